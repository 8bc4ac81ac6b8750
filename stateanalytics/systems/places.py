"""From what a user names to the stores that are meant: paths, directories, patterns."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stateanalytics.errors import (
    ArgumentError,
    NotAStoreError,
    SourceError,
    SourceNotFoundError,
    found,
)
from stateanalytics.io.archive.reading import Archived, archived_sources, is_archive
from stateanalytics.io.files import LOG_ENDINGS, legible, matching, refuse_scheme
from stateanalytics.systems import BUILT_IN, all_systems, system_named
from stateanalytics.systems.base import System, expanded

_PATTERN_CHARACTERS = "*?["
_MOST_LOOKED_AT = 500
"""Files of a system that are looked at to weigh its claim: enough to outweigh strays."""


@dataclass(frozen=True)
class Place:
    """One file or directory to read, and how the user named it.

    Attributes
    ----------
    path : pathlib.Path
        The file, or the directory.
    label : str
        What to call it in the ``source`` column.
    is_named : bool
        Did the user name this very file, so that it must be a store; a file that a
        directory or a pattern brought along may be something else.
    system : System, optional
        Who reads it; None: it is a SQLite store, of whoever recognises its tables.
    archived : Archived, optional
        The source of an archive that it is; then ``path`` is the manifest of its last run.
    runner_up : Claim, optional
        Who else could read some of the directory that it was found in.
    """

    path: Path
    label: str
    is_named: bool
    system: System | None = None
    archived: Archived | None = None
    runner_up: Claim | None = None


@dataclass(frozen=True)
class Claim:
    """What one system can read of a path, and how well that is proved.

    Attributes
    ----------
    system : System or None
        Who reads it; None: it holds a store, of whoever recognises its tables.
    inputs : tuple of pathlib.Path
        What it would read, one input each.
    evidence : int
        Files of records that it understands; see `Files.evidence`.
    """

    system: System | None
    inputs: tuple[Path, ...]
    evidence: int

    @property
    def title(self) -> str:
        """The system's name for people."""
        return "a store" if self.system is None else self.system.title

    def __str__(self) -> str:
        """The system and how much of it is there."""
        return f"{self.title} ({self.evidence} file{'' if self.evidence == 1 else 's'})"


def files_of(place: Place, system: str, opened: Iterable[str] | None = None) -> list[str | Path]:
    """What of an input tells by its size and times that somebody wrote to it.

    ``opened`` is what a read just now opened, where that is known.
    """
    if place.archived is not None:
        # Not all of the archive, for each of a thousand sources.
        return [*place.archived.own_files]
    files = place.system.files if place.system is not None else None
    if files is not None and files.opens is not None:
        own: list[str | Path] = list(files.opens(place.path) if opened is None else opened)
    else:
        # Where a link leads, the log lies; its index tells nothing that the log does not.
        path = os.path.realpath(place.path)
        own = [Path(path + ending) for ending in ("", *LOG_ENDINGS) if ending != "-shm"]
    return [*own, *files_beside(place, system)]


def files_beside(place: Place, system: str) -> list[Path]:
    """What is read of an input besides its path: all of an archive, a store's directories."""
    if place.archived is not None:
        return [place.archived.root]
    known = system_named(system) if system else None
    ways = [] if known is None else [known.stores, known.files]
    return [path for way in ways if way is not None for path in way.beside(place.path)]


def usual_places(
    environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> list[Path]:
    """Where the orchestrators keep their records, system by system.

    Parameters
    ----------
    environment : mapping of str to str
        Where variables such as `System.variable` may be set.
    home : pathlib.Path, optional
        The home directory; the user's own by default.

    Returns
    -------
    list of pathlib.Path
        Distinct files and directories, whether they exist or not. Of the files of one
        system only the first that exists is read when nothing is named.

    Examples
    --------
    >>> [str(path) for path in usual_places({"LIONAGI_HOME": "/srv/lion"}, Path("/home/me"))]
    ['/srv/lion/state.db', '/home/me/.lionagi/state.db', '/home/me/.agent-orchestrator', \
'/home/me/.ao', '/home/me/.local/share/opencode', '/home/me/.claude', '/home/me/.config/claude', \
'/home/me/.codex']
    """
    home = home or Path.home()
    places = (path for known in all_systems() for path in known.usual_places(environment, home))
    return list(dict.fromkeys(places))


def is_pattern(text: str) -> bool:
    """May a name stand for several files; one that exists as it is written does not."""
    return any(character in text for character in _PATTERN_CHARACTERS)


def is_there(path: Path) -> bool:
    """Does a usual place hold anything to read."""
    return path.is_file() or (path.is_dir() and bool(claims_on(path)))


def found_by(path: Path) -> tuple[System | None, list[Path]]:
    """The system that reads a path, and what it would read of it; a store is none of them."""
    owner, _ = _owner_and_runner_up(path)
    return (None, []) if owner is None else (owner.system, list(owner.inputs))


def claims_on(path: Path) -> list[Claim]:
    """What each system can read of a path, the best proved first.

    A single file is whoever's recognises it first. In a directory evidence decides, so that one
    file of another system's shape does not hide all the others.
    """
    finds = [(known, inputs) for known in all_systems() if (inputs := _found_by(known, path))]
    if path.is_file() or (len(finds) < 2 and not _stores_in(path)):
        return [Claim(known, tuple(inputs), 1) for known, inputs in finds[:1]]
    claims = [Claim(known, tuple(inputs), _evidence(known, inputs)) for known, inputs in finds]
    if stores := _stores_in(path):
        # A database of another name is found by its system; here it is whoever's.
        claims = [claim for claim in claims if not set(claim.inputs) & set(stores)]
        claims.append(Claim(None, tuple(stores), _evidence_of_stores(stores)))
    proved = [claim for claim in claims if claim.evidence]
    return sorted(proved, key=lambda claim: -claim.evidence)


def _owner_and_runner_up(path: Path) -> tuple[Claim | None, Claim | None]:
    """Who reads a path, and who else could.

    Raises
    ------
    SourceError
        If two systems could read as much of it.
    """
    claims = claims_on(path)
    owner, runner_up = (*claims[:2], None, None)[:2]
    if owner is None or runner_up is None:
        return owner, None
    if owner.evidence == runner_up.evidence:
        usual = [claim for claim in (owner, runner_up) if path in _usual_places_of(claim)]
        if len(usual) == 1:
            return usual[0], runner_up if usual[0] is owner else owner
        examples = [_example(claim) for claim in (owner, runner_up)]
        raise SourceError(
            f"{str(path)!r} holds as much of {owner} as of {runner_up}, so that nothing tells "
            "which of them it is.",
            f"name the part that is meant: {examples[0]!r} or {examples[1]!r}",
        )
    return owner, runner_up


def _usual_places_of(claim: Claim) -> set[Path]:
    """Where the systems of a claim keep their records, and the directories of their stores."""
    known = [claim.system] if claim.system else [each for each in all_systems() if each.stores]
    places = [path for each in known for path in each.usual_places(os.environ, Path.home())]
    return {*places, *(path.parent for path in places if path.name in store_names())}


def _example(claim: Claim) -> str:
    """A file or directory that only this claim is about."""
    first = claim.inputs[0]
    if claim.system is None or first.is_file():
        return str(first)
    own = (file for file in _opened(claim.system, first) if _evidence_of(claim.system, file))
    return str(next(own, first))


def _evidence(known: System, inputs: Iterable[Path]) -> int:
    """How many files of some inputs a system understands; of many only the first are looked at."""
    if known.files is None or known.files.evidence is None:
        return len(list(inputs))
    files = (file for path in inputs for file in _opened(known, path))
    return sum(_evidence_of(known, file) for file in islice(files, _MOST_LOOKED_AT))


def _evidence_of(known: System, file: Path) -> int:
    evidence = known.files.evidence if known.files is not None else None
    if evidence is None or _is_empty(file):
        return 0
    return int(bool(looked(known, evidence, file, str(file))))


def _is_empty(file: Path) -> bool:
    """Whether a file holds nothing, so that its name proves nothing either."""
    try:
        return file.stat().st_size == 0
    except OSError:
        return True


def _opened(known: System, path: Path) -> Iterator[Path]:
    """The files of an input, those that its system opens where it says which."""
    if path.is_file():
        yield path
    elif known.files is not None and known.files.opens is not None:
        yield from map(Path, known.files.opens(path))
    else:
        for folder, _, names in os.walk(path):
            yield from (Path(folder) / name for name in sorted(names))


def _stores_in(folder: Path) -> list[Path]:
    return [folder / name for name in store_names() if (folder / name).is_file()]


def _evidence_of_stores(stores: Sequence[Path]) -> int:
    """A store and the files beside it that are read with it."""
    folders = {path for store in stores for path in files_beside_store(store) if path.is_dir()}
    files = (name for folder in folders for _, _, names in os.walk(folder) for name in names)
    n_stores = sum(not _is_empty(store) for store in stores)
    return n_stores and n_stores + sum(1 for _ in islice(files, _MOST_LOOKED_AT))


def files_beside_store(store: Path) -> list[Path]:
    """What is read beside a store, by whichever systems keep stores of its name."""
    return [
        path
        for known in all_systems()
        if known.stores is not None and store.name in known.stores.lies_at
        for path in known.stores.beside(store)
    ]


def _found_by(known: System, path: Path) -> list[Path]:
    return [] if known.files is None else looked(known, known.files.find, path, str(path)) or []


def looked(known: System, look: Callable[[Any], Any], place: Any, label: str) -> Any:
    """What one system sees; an installed one that fails sees nothing, and is warned about."""
    try:
        return look(place)
    # Somebody else's code may raise anything; it must not hide the stores of others.
    except Exception as error:
        if known.name in BUILT_IN:
            raise
        warnings.warn(
            f"The system {known.name!r} cannot look at {label!r} and is passed over: "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def find_places(
    named: Sequence[str | Path], usual: Iterable[Path] | None = None
) -> tuple[list[Place], list[Place]]:
    """The files that are meant, each once, in the order they were named.

    Parameters
    ----------
    named : sequence of str or pathlib.Path
        Files, directories, patterns; ``~`` stands for the home directory. A name that
        exists as it is written is never read as a pattern.
    usual : iterable of pathlib.Path, optional
        Where to look when nothing is named; `usual_places` by default.

    Returns
    -------
    places : list of Place
        What to open.
    again : list of Place
        Files that were named a second time, by whatever name.

    Raises
    ------
    SourceNotFoundError
        If nothing is at a name, or in none of the usual places.
    NotAStoreError
        If a directory holds no store.
    ArgumentError
        If a name is empty or no path at all.
    """
    if not named:
        return _first_usual(list(usual_places() if usual is None else usual)), []
    places: dict[tuple[int, int], Place] = {}
    again = []
    for name in named:
        for match in _expand(name):
            place = replace(match, label=legible(match.label))
            identity = _identity(place.path)
            if identity in places:
                again.append(place)
            else:
                places[identity] = place
    return _told_apart(list(places.values())), again


def _identity(path: Path) -> tuple[int, int]:
    """What a file is under every name; a link to nowhere, such as a run of an archive, itself."""
    try:
        status = path.stat()
    except OSError:
        status = path.lstat()
    return status.st_dev, status.st_ino


def _told_apart(places: list[Place]) -> list[Place]:
    """Sources of archives under labels that no other input has."""
    taken = Counter(place.label for place in places)
    return [
        replace(place, label=f"{place.label} [{place.path.name[:16]} in {place.archived.root}]")
        if place.archived is not None and taken[place.label] > 1
        else place
        for place in places
    ]


def _first_usual(usual: list[Path]) -> list[Place]:
    """What lies in the usual places; of stores that are files only the first of each name."""
    places: list[Place] = []
    for path in usual:
        if path.is_dir():
            places += _of_files(path, str(path))
        elif path.is_file() and path.name not in {place.path.name for place in places}:
            places.append(Place(path, str(path), is_named=True))
    if places:
        return places
    looked = ", ".join(repr(str(path)) for path in usual)
    variables = " or ".join(known.variable for known in all_systems() if known.variable)
    raise SourceNotFoundError(
        f"No source was named, and nothing is in the usual places: {looked}.",
        f"sa.read('path/to/state.db'), or set {variables}; sa.demo() is a sample to look around in",
        shell=f"name a store, such as path/to/state.db, or set {variables}; to look around in a "
        'sample: stateanalytics report "$(stateanalytics doctor --demo)"',
    )


def _expand(name: str | Path) -> list[Place]:
    text = str(name)
    if not isinstance(name, str | Path) or not text.strip() or "\x00" in text:
        raise ArgumentError(
            f"A source must be the path of a store, not {name!r}."
            if isinstance(name, str)
            else f"A source must be the path of a store; found {found(name)}.",
            "sa.read('path/to/state.db')",
            shell="path/to/state.db",
        )
    refuse_scheme(text)
    path = expanded(text)
    try:
        if is_archive(path):
            return _of_archive(path)
        if path.is_dir() and (places := _of_home(path)):
            return places
        if path.exists() and (places := _of_files(path, text)):
            return places
        if path.is_dir():
            return _in_directory(path, text)
        if path.exists():
            return [Place(path, text, is_named=True)]
        is_dangling = path.is_symlink()
    except OSError as error:
        raise SourceNotFoundError(
            f"{text!r} cannot be looked at: {error.strerror}.", "check the path and its permissions"
        ) from error
    if is_pattern(text):
        return _matching(str(path), text)
    if is_dangling:
        raise SourceNotFoundError(
            f"{text!r} is a link to {str(path.readlink())!r}, where nothing is.",
            "mend the link, or name the store itself",
        )
    raise SourceNotFoundError(f"Nothing is at {text!r}.", _hint_for(path, text))


def _of_home(path: Path) -> list[Place]:
    """What lies in the usual places below a home directory; none where it is no home.

    Systems that lie next to each other do not compete for the directory above them.
    """
    usual = [place for place in usual_places({}, path) if is_there(place)]
    return _first_usual(usual) if len(usual) > 1 else []


def _of_archive(path: Path) -> list[Place]:
    return [
        Place(source.files[-1], source.label, is_named=True, archived=source)
        for source in archived_sources(path)
    ]


def _of_files(path: Path, text: str) -> list[Place]:
    """What a path holds of the system that can read the most of it; none where it is a store."""
    owner, runner_up = _owner_and_runner_up(path)
    if owner is None or owner.system is None:
        return []
    return [
        Place(
            each,
            text if each == path else str(each),
            is_named=True,
            system=owner.system,
            runner_up=runner_up,
        )
        for each in owner.inputs
    ]


def store_names() -> list[str]:
    """Where stores lie in a directory of their own: ``state.db``."""
    return list(dict.fromkeys(name for name in _lie_at() if "/" not in name))


def _lie_at() -> list[str]:
    return [name for known in all_systems() if known.stores for name in known.stores.lies_at]


def _in_directory(folder: Path, text: str) -> list[Place]:
    """The store of a directory; a rotated copy such as ``state.db.pre-x.1.bak`` never is it."""
    for name in _lie_at():
        if (folder / name).is_file():
            _, runner_up = _owner_and_runner_up(folder)
            return [Place(folder / name, text, is_named=True, runner_up=runner_up)]
    stores = [path for path in sorted(folder.glob("*.db")) if path.is_file()]
    if stores:
        return [Place(path, str(path), is_named=False) for path in stores]
    names = store_names()
    below = sorted(path for name in names for path in folder.glob(f"*/{name}"))[:3]
    raise NotAStoreError(
        f"A store was needed, but the directory {text!r} holds no {' or '.join(names)} "
        "and no other *.db file, and no records that a known system writes.",
        "name one of these: " + ", ".join(repr(str(path)) for path in below)
        if below
        else "name the directory or the file of a store, such as 'path/to/state.db'",
    )


def _matching(pattern: str, text: str) -> list[Place]:
    paths = [Path(match) for match in matching(pattern)]
    stores = [
        place
        for path in paths
        if not _is_beside_a_store(path)
        for place in (
            _of_archive(path)
            if is_archive(path)
            else _of_files(path, str(path))
            or ([Place(path, str(path), is_named=False)] if path.is_file() else _of_match(path))
        )
    ]
    if not stores:
        raise SourceNotFoundError(
            f"No store matches {text!r}"
            + (f"; {len(paths)} other files or directories do." if paths else "."),
            "check the pattern; copies (*.bak) and journals (*-wal) are left alone on purpose",
        )
    return stores


def _of_match(folder: Path) -> list[Place]:
    if not folder.is_dir():
        return []
    stores = [folder / name for name in store_names() if (folder / name).is_file()]
    return [Place(store, str(folder), is_named=False) for store in stores[:1]]


def _is_beside_a_store(path: Path) -> bool:
    return path.suffix == ".bak" or path.name.endswith(("-wal", "-shm", "-journal"))


def _hint_for(path: Path, text: str) -> str:
    if text.startswith("file:") or text == ":memory:":
        return "name the file itself; URIs and :memory: are no stores"
    there = path.parent
    if not there.is_dir():
        return f"the directory {str(there)!r} does not exist either; check the path"
    stores = sorted(legible(store.name) for store in there.glob("*.db"))[:3]
    return f"in {str(there)!r} there is {', '.join(stores)}" if stores else "check the path"
