"""From what a user names to the stores that are meant, and what lies at a place."""

# `os.path` answers False where `Path` raises: in a folder that may not be read.
# ruff: noqa: PTH110, PTH112, PTH113

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stateanalytics.core.words import count, size
from stateanalytics.errors import (
    ArgumentError,
    NotAStoreError,
    SourceError,
    SourceNotFoundError,
    found,
)
from stateanalytics.io.archive.delta import local_copy, name_of
from stateanalytics.io.archive.manifests import Archived
from stateanalytics.io.archive.reading import ChosenWeeks, archived_sources, is_archive
from stateanalytics.io.files import (
    LOG_ENDINGS,
    folders_below,
    is_url,
    legible,
    matching,
    open_regular,
    refuse_scheme,
    size_of,
    written_ns,
)
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems import BUILT_IN, all_systems, system_named
from stateanalytics.systems.base import System, expanded

_PATTERN_CHARACTERS = "*?["
_MOST_FILES_WEIGHED = 500
"""Files of a system that are read to weigh its claim: enough to outweigh strays."""
_MOST_BYTES_COPIED = 2**30
"""A larger store is not copied only to show its version."""
_MOST_FILES_SEARCHED, _BYTES_SEARCHED = 20, 2**16
"""How many files are searched for a version, and how much of the beginning and end of each."""


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
        The source of an archive that it is; ``path`` is the manifest of its last run.
    others : tuple of (str, pathlib.Path)
        Who else could read some of the directory that it was found in, and which part.
    """

    path: Path
    label: str
    is_named: bool
    system: System | None = None
    archived: Archived | None = None
    others: tuple[tuple[str, Path], ...] = ()


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
    """Files whose sizes and times show that somebody wrote to an input.

    ``opened`` is what a read just now opened, where that is known.
    """
    if place.archived is not None:
        # Not all of the archive, for each of a thousand sources.
        return [*place.archived.own_files]
    files = place.system.files if place.system is not None else None
    if files is not None and files.opens is not None:
        own: list[str | Path] = list(files.opens(place.path) if opened is None else opened)
    else:
        # The log lies where a link leads; the index shows nothing that the log does not.
        path = os.path.realpath(place.path)
        own = [Path(path + ending) for ending in ("", *LOG_ENDINGS) if ending != "-shm"]
    return [*own, *companions_of(place, system)]


def companions_of(place: Place, system: str) -> list[Path]:
    """What is read of an input besides its path: all of an archive, a store's directories."""
    if place.archived is not None:
        return [place.archived.root]
    known = system_named(system) if system else None
    readers = [] if known is None else [known.stores, known.files]
    return [path for reader in readers if reader for path in reader.companions(place.path)]


def usual_places(
    environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> list[Path]:
    """Where the orchestrators keep their records, system by system.

    Parameters
    ----------
    environment : mapping of str to str
        Where variables such as `Home.variable` may be set.
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
    places = (
        path for known in all_systems() for path in known.home.usual_places(environment, home)
    )
    return list(dict.fromkeys(places))


def is_pattern(text: str) -> bool:
    """May a name stand for several files; one that exists as it is written does not."""
    return any(character in text for character in _PATTERN_CHARACTERS)


def claims_on(path: Path) -> list[Claim]:
    """What each system can read of a path, the best proved first.

    A single file belongs to the first system that recognises it. In a directory evidence
    decides, so that one file of another system's shape does not hide all the others.
    """
    is_file = path.is_file()
    finds = [
        (known, inputs)
        for known in all_systems()
        if known.files
        and not (is_file and known.files.never.fullmatch(path.name))
        and (inputs := ask_system(known, known.files.find, path, str(path)))
    ]
    stores = _stores_in(path)
    if is_file or (len(finds) < 2 and not stores):
        return [Claim(known, tuple(inputs), 1) for known, inputs in finds[:1]]
    claims = [Claim(known, tuple(inputs), _evidence(known, inputs)) for known, inputs in finds]
    if stores:
        # A system finds a database of another name itself; here it may be anybody's.
        claims = [claim for claim in claims if not set(claim.inputs) & set(stores)]
        claims.append(Claim(None, tuple(stores), _evidence_of_stores(stores)))
    proved = [claim for claim in claims if claim.evidence]
    return sorted(proved, key=lambda claim: -claim.evidence)


def _owner_first(path: Path) -> list[Claim]:
    """Who reads a path, and who else could.

    Raises
    ------
    SourceError
        If two systems could read as much of it.
    """
    claims = claims_on(path)
    best = [claim for claim in claims[:2] if claim.evidence == claims[0].evidence]
    if len(best) == 2:
        owner, runner_up = best
        usual = [claim for claim in best if path in _usual_places_of(claim)]
        if len(usual) == 1:
            return sorted(claims, key=lambda claim: claim is not usual[0])
        examples = [_example(claim) for claim in best]
        raise SourceError(
            f"{str(path)!r} has as many files of {owner} as of {runner_up}, so it is not clear "
            "which system wrote it.",
            f"name a part of it: {examples[0]!r} or {examples[1]!r}",
        )
    return claims


def _others(path: Path, claims: Sequence[Claim], read: Set[str]) -> tuple[tuple[str, Path], ...]:
    """Who reads nothing of a directory although they could, and the parts of it to name.

    Not every system sees what lies in the folders of a directory. Those of a usual place are
    many, and of its system.
    """
    here = path.absolute()
    found = [(claim.title, _part_of(path, claim)) for claim in claims if claim.title not in read]
    usual = {*usual_places(), *usual_places({}, here.parent)}
    patterns = () if here in {*usual, *(place.parent for place in usual)} else ("*", "*/*")
    folders = (folder for pattern in patterns for folder in sorted(path.glob(pattern)))
    # `Path.is_dir` raises an error for what lies in a folder that may not be entered.
    for folder in islice(filter(os.path.isdir, folders), _MOST_FOLDERS):
        claims = claims_on(folder)
        # A system may take the files of one that is read for its own.
        if not any(one.system and one.title in read for one in claims):
            # What lies below a part of the same system is read with it.
            known = {title for title, part in found if folder.is_relative_to(part)}
            found += [
                (claim.title, part)
                for claim in claims
                if claim.title not in known | read and _evidence(claim.system, claim.inputs)
                for part in claim.inputs
            ]
    return tuple(found)


def _part_of(path: Path, claim: Claim) -> Path:
    """What to name in a directory so that a system reads its files there."""
    example = Path(_example(claim))
    part = path / example.relative_to(path).parts[0] if example.is_relative_to(path) else example
    return part if claims_on(part) else example


def _usual_places_of(claim: Claim) -> set[Path]:
    """Where the systems of a claim keep their records, and the directories of their stores."""
    systems = [claim.system] if claim.system else [known for known in all_systems() if known.stores]
    places = [
        path for known in systems for path in known.home.usual_places(os.environ, Path.home())
    ]
    return {*places, *(path.parent for path in places if path.name in store_names())}


def _example(claim: Claim) -> str:
    """A file or directory that only this claim is about."""
    first = claim.inputs[0]
    if claim.system is None or first.is_file():
        return str(first)
    own = (file for file in _opened(claim.system, first) if _is_evidence(claim.system, file))
    return str(next(own, first))


def _evidence(known: System | None, inputs: Sequence[Path]) -> int:
    """How many files of some inputs a system understands; of many only the first are read."""
    if known is None or known.files is None or known.files.evidence is None:
        return len(inputs)
    files = (file for path in inputs for file in _opened(known, path))
    return sum(_is_evidence(known, file) for file in islice(files, _MOST_FILES_WEIGHED))


def _is_evidence(known: System, file: Path) -> bool:
    evidence = known.files.evidence if known.files is not None else None
    # A file that holds nothing proves nothing by its name either.
    if evidence is None or not size_of([file]):
        return False
    return bool(ask_system(known, evidence, file, str(file)))


def _opened(known: System | None, path: Path) -> Iterator[Path]:
    """The files that reading an input opens; of a store its logs, too."""
    if path.is_file():
        yield from (path.with_name(path.name + ending) for ending in ("", *LOG_ENDINGS))
    elif known is not None and known.files is not None and known.files.opens is not None:
        yield from map(Path, known.files.opens(path))
    else:
        for folder, _, names in os.walk(path):
            yield from (Path(folder) / name for name in sorted(names))


def _stores_in(folder: Path) -> list[Path]:
    return [folder / name for name in store_names() if os.path.isfile(folder / name)]


def _evidence_of_stores(stores: Sequence[Path]) -> int:
    """How many stores there are, with the files of the directories that are read with them."""
    folders = {
        path
        for store in stores
        for known in all_systems()
        if known.stores is not None and store.name in known.stores.lies_at
        for path in known.stores.companions(store)
        if path.is_dir()
    }
    files = (name for folder in folders for _, _, names in os.walk(folder) for name in names)
    n_stores = sum(size_of([store]) > 0 for store in stores)
    return n_stores and n_stores + sum(1 for _ in islice(files, _MOST_FILES_WEIGHED))


def ask_system(known: System, function: Callable[[Any], Any], place: Any, label: str) -> Any:
    """What a function of one system answers; None, with a warning, where an installed one fails."""
    try:
        return function(place)
    # Somebody else's code may raise anything; it must not hide the stores of others.
    except Exception as error:
        if known.name in BUILT_IN:
            raise
        warnings.warn(
            f"The system {known.name!r} cannot examine {label!r} and is skipped: "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def owner_of(store: Store) -> System | None:
    """The system that recognises the tables of a store."""
    for known in all_systems():
        if known.stores and ask_system(known, known.stores.recognises, store, store.label):
            return known
    return None


def find_places(
    named: Sequence[str | Path], weeks: ChosenWeeks | None = None
) -> tuple[list[Place], list[Place]]:
    """The files that are meant, without duplicates, in the order they were named.

    Parameters
    ----------
    named : sequence of str or pathlib.Path
        Files, directories, patterns; ``~`` stands for the home directory. A name that
        exists as it is written is never read as a pattern. None: the `usual_places`.

    Returns
    -------
    places : list of Place
        What to open.
    duplicates : list of Place
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
        return _first_usual(usual_places()), []
    places: dict[tuple[int, int] | str, Place] = {}
    duplicates = []
    for name in named:
        for match in _expand(name, weeks):
            place = replace(match, label=legible(match.label))
            identity = _identity(place)
            if identity in places:
                duplicates.append(place)
            else:
                places[identity] = place
    read = [Path(os.path.realpath(place.path)) for place in places.values()]
    whole = [
        replace(
            place,
            others=tuple(
                (title, part)
                for title, part in place.others
                if not any(path.is_relative_to(os.path.realpath(part)) for path in read)
            ),
        )
        for place in places.values()
    ]
    return _with_distinct_labels(whole), duplicates


def _identity(place: Place) -> tuple[int, int] | str:
    """What an input is under every name; a link to nowhere is itself."""
    if place.archived is not None:
        # One file may have the runs of many sources.
        return f"{os.path.realpath(place.archived.root)}/{place.path.name}"
    try:
        status = place.path.stat()
    except OSError:
        status = place.path.lstat()
    return status.st_dev, status.st_ino


def _with_distinct_labels(places: list[Place]) -> list[Place]:
    """Sources of archives under labels that no other input has."""
    taken = Counter(place.label for place in places)
    return [
        replace(
            place, label=f"{place.label} [{place.path.name[:16]} in {name_of(place.archived.root)}]"
        )
        if place.archived is not None and taken[place.label] > 1
        else place
        for place in places
    ]


def _first_usual(usual: list[Path]) -> list[Place]:
    """What lies in the usual places; of stores that are files only the first of each name."""
    places: list[Place] = []
    closed = []
    for path in usual:
        if records := _records_at(path, str(path)) if os.path.isdir(path) else []:
            places += records
        elif part := closed_part(path):
            closed.append(part)
        elif os.path.isfile(path) and path.name not in {place.path.name for place in places}:
            places.append(Place(path, str(path), is_named=True))
    also = f"; no right to read {', '.join(map(repr, dict.fromkeys(closed)))}" if closed else ""
    if places:
        if closed:
            warnings.warn(f"Some usual places are skipped{also}.", RuntimeWarning, stacklevel=2)
        return places
    variables = " or ".join(known.home.variable for known in all_systems() if known.home.variable)
    raise SourceNotFoundError(
        f"No source was named, and the {len(usual)} usual places are empty{also}.",
        f"sa.read('path/to/state.db'), or set {variables}; sa.demo() is a sample to explore",
        shell="name a store; stateanalytics doctor lists the places and a sample",
    )


def closed_part(path: Path) -> str | None:
    """The first of a place, its folder and what lies in it that this user may not read."""
    errors: list[OSError] = []
    below = folders_below([path], on_error=errors.append)
    files = (os.path.join(folder, name) for folder, names in below for name in names)  # noqa: PTH118
    some = [*islice(files, _MOST_FILES_WEIGHED)]
    here = path if os.access(path.parent, os.X_OK) else path.parent
    parts = (str(part) for part in (here, *(error.filename for error in errors), *some))
    return next((at for at in parts if os.path.exists(at) and not os.access(at, os.R_OK)), None)


def _expand(name: str | Path, weeks: ChosenWeeks | None) -> list[Place]:
    text = str(name)
    if not isinstance(name, str | Path) or not text.strip() or "\x00" in text:
        raise ArgumentError(
            f"A source must be the path of a store, not {name!r}."
            if isinstance(name, str)
            else f"A source must be the path of a store; found {found(name)}.",
            "sa.read('path/to/state.db')",
            shell="path/to/state.db",
        )
    if is_url(text):
        text = str(local_copy(text, weeks))
    refuse_scheme(text)
    typed = expanded(text)
    try:
        if typed.exists():
            return _places_at(typed, text)
        is_dangling = typed.is_symlink()
    except OSError as error:
        raise SourceNotFoundError(
            f"{text!r} cannot be checked: {error.strerror}.", "check the path and its permissions"
        ) from error
    if is_pattern(text):
        return _matches(str(typed), text)
    if is_dangling:
        raise SourceNotFoundError(
            f"{text!r} is a link to {str(typed.readlink())!r}, which does not exist.",
            "repair the link, or name the store itself",
        )
    raise SourceNotFoundError(f"There is no file or directory {text!r}.", _hint_for(typed, text))


def _from_root(typed: Path) -> Path:
    """The same path from the root: names of projects may lie above it, or it be a dot."""
    path = typed.absolute()
    return path.resolve() if ".." in path.parts else path


def _as_typed(places: list[Place], path: Path, typed: Path) -> list[Place]:
    """Places below a path, with labels that begin as it was typed."""
    return [
        replace(place, label=str(typed / place.path.relative_to(path)))
        if place.label == str(place.path) and place.path.is_relative_to(path)
        else place
        for place in places
    ]


def _places_at(typed: Path, text: str) -> list[Place]:
    """What lies at a path that exists; ``text`` is what the user typed."""
    path = _from_root(typed)
    if not path.is_dir():
        places = _records_at(path, text) or [Place(path, text, is_named=True)]
    elif is_archive(path):
        return _sources_of_archive(path)
    else:
        at_home = _places_in_home(path)
        places = at_home or _records_at(path, text) or _stores_of_directory(path, text)
    return _as_typed(places, path, typed)


def _places_in_home(path: Path) -> list[Place]:
    """What lies in the usual places below a home directory; none where it is no home.

    Systems that lie next to each other do not compete for the directory above them.
    """
    usual = [
        place
        for place in usual_places({}, path)
        if os.path.isfile(place) or (os.path.isdir(place) and claims_on(place))
    ]
    stores = [Place(store, str(store), is_named=False) for store in _stores_in(path)]
    if not usual or len(usual) + len(stores) < 2:
        return []
    first, *more = [*_first_usual(usual), *stores]
    read = {Claim(place.system, (), 0).title for place in (first, *more)}
    return [replace(first, others=_others(path, claims_on(path), read)), *more]


def _sources_of_archive(path: Path) -> list[Place]:
    return [
        Place(source.files[-1], source.label, is_named=True, archived=source)
        for source in archived_sources(path)
    ]


def _records_at(path: Path, text: str) -> list[Place]:
    """What a path holds of the system that can read the most of it; none where it is a store."""
    claims = _owner_first(path)
    if not claims or claims[0].system is None:
        return []
    owner = claims[0]
    return [
        Place(
            file,
            text if file == path else str(file),
            is_named=True,
            system=owner.system,
            others=_others(path, claims[1:], {owner.title}) if file == owner.inputs[0] else (),
        )
        for file in owner.inputs
    ]


def store_names() -> list[str]:
    """Where stores lie in a directory of their own: ``state.db``."""
    return list(dict.fromkeys(name for name in _paths_of_stores() if "/" not in name))


def _paths_of_stores() -> list[str]:
    return [name for known in all_systems() if known.stores for name in known.stores.lies_at]


_MOST_FOLDERS = 30
UNKNOWN = "an unknown program"


def _stores_of_directory(folder: Path, text: str) -> list[Place]:
    """The store of a directory; a rotated copy such as ``state.db.pre-x.1.bak`` never is it."""
    for name in _paths_of_stores():
        if (folder / name).is_file():
            claims = _owner_first(folder)
            others = _others(folder, claims[1:], {claim.title for claim in claims[:1]})
            return [Place(folder / name, text, is_named=True, others=others)]
    stores = [path for path in sorted(folder.glob("*.db")) if path.is_file()]
    if stores:
        return [Place(path, str(path), is_named=False) for path in stores]
    if closed := closed_part(folder):
        raise NotAStoreError(
            f"{text!r} has nothing to read: there is no right to read {closed!r}.",
            "check its permissions",
        )
    names = store_names()
    below = sorted(path for name in names for path in folder.glob(f"*/{name}"))[:3]
    if not below:
        # To look into a folder takes time, and a home directory has many.
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir()][:_MOST_FOLDERS]
        below = [*islice(filter(claims_on, inner), 3)]
    hint = "name the directory or the file of a store, such as 'path/to/state.db'"
    shell = "name the directory or file of a store; stateanalytics doctor lists the usual ones"
    if below:
        hint = shell = "name one of these: " + ", ".join(repr(str(path)) for path in below)
    raise NotAStoreError(
        f"A store was needed, but the directory {text!r} has no {' or '.join(names)}, "
        "no other *.db file and no records of a known system.",
        hint,
        shell=shell,
    )


def _matches(pattern: str, text: str) -> list[Place]:
    paths = [Path(match) for match in matching(pattern)]
    stores = [place for path in paths for place in _places_of_match(path)]
    if not stores:
        raise SourceNotFoundError(
            f"No store matches {text!r}"
            + (f"; {len(paths)} other files or directories do." if paths else "."),
            "check the pattern; copies (*.bak) and journals (*-wal) are ignored on purpose",
        )
    return stores


def _places_of_match(path: Path) -> list[Place]:
    if path.suffix == ".bak" or path.name.endswith(LOG_ENDINGS):
        return []
    if is_archive(path):
        return _sources_of_archive(path)
    whole = _from_root(path)
    if places := _records_at(whole, str(path)):
        return _as_typed(places, whole, path)
    if path.is_file():
        return [Place(whole, str(path), is_named=False)]
    return [Place(store, str(path), is_named=False) for store in _stores_in(whole)[:1]]


def _hint_for(path: Path, text: str) -> str:
    if text.startswith("file:") or text == ":memory:":
        return "name the file itself; URIs and :memory: are no stores"
    there = path.parent
    if not there.is_dir():
        return f"the directory {str(there)!r} does not exist either; check the path"
    stores = sorted(legible(store.name) for store in there.glob("*.db"))[:3]
    return f"in {str(there)!r} there is {', '.join(stores)}" if stores else "check the path"


def description_of(path: Path) -> str | None:
    """Whose records lie at a place, of which version and how large; None: nothing to read.

    Examples
    --------
    >>> description_of(Path("/nowhere/at/all")) is None
    True
    """
    if os.path.isdir(path) and is_archive(path):
        return f"an archive of {count(len(archived_sources(path)), 'source')}"
    claim = next(iter(_owner_first(path)), None)
    if claim is None and not os.path.isfile(path):
        return None
    known, inputs = (None, (path,)) if claim is None else (claim.system, claim.inputs)
    sizes = [n for file in inputs for part in _opened(known, file) if (n := size_of([part]))]
    owners, versions = zip(*(_version(known, file) for file in inputs), strict=True)
    title = next((owner.title for owner in owners if owner), UNKNOWN)
    shown = " ".join([title, ", ".join(dict.fromkeys(filter(None, versions)))]).rstrip()
    return f"{shown}: {count(len(sizes), 'file')}, {size(sum(sizes))}"


def _version(known: System | None, path: Path) -> tuple[System | None, str]:
    is_store = path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3")
    if known is not None and known.files is not None and not is_store:
        files = known.files
        return known, files.version(path) or _release(files.version_key, _opened(known, path))
    return schema_of(path, known)


def _release(key: str, files: Iterable[Path]) -> str:
    """What the file that was written last names as the version of its program."""
    if not key:
        return ""
    pattern = re.compile(rb'"%s"\s*:\s*"(\d+(?:\.\d+)*)' % key.encode())
    by_age = sorted(files, key=written_ns, reverse=True)
    for path in by_age[:_MOST_FILES_SEARCHED]:
        try:
            with open_regular(path) as file:
                begin = file.read(_BYTES_SEARCHED)
                file.seek(max(0, size_of([path]) - _BYTES_SEARCHED))
                versions = pattern.findall(begin + file.read(_BYTES_SEARCHED))
        except OSError:
            continue
        if versions:
            return str(versions[-1].decode())
    return ""


def schema_of(path: Path, known: System | None) -> tuple[System | None, str]:
    """Whose a database is, and the version of its schema; empty: nothing shows it."""
    if size_of([path]) > _MOST_BYTES_COPIED:
        return known, ""
    try:
        with open_store(path) as store:
            owner = known or owner_of(store)
            return owner, "" if owner is None else _schema_version(store, owner)
    except SourceError:
        return known, ""


def _schema_version(store: Store, owner: System) -> str:
    tables = None if owner.tables is None else owner.tables()
    if tables is not None and tables.in_words is not None:
        return tables.in_words(store.tables).removeprefix(f"{owner.title} ")
    if tables is None or tables.version is None:
        return ""
    table, cell = tables.version
    newest = read_table(store, table, {"version": cell})[0]["version"].max()
    return "" if newest is None else f"schema {newest!s}"
