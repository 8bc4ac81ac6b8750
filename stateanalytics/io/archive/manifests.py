"""What an archive records about its runs: manifests, failed attempts, and last looks.

A manifest is written by a run that found something new in a source, and names the files with
it. An attempt is a note about a source that could not be collected; it stays until it can. A
look is a note about when sources were collected last, whether or not anything was new.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.windows import WEEK
from stateanalytics.errors import NotAStoreError
from stateanalytics.io.files import as_moment, as_text, read_json_object, read_octets
from stateanalytics.io.outputs import put_whole

SCHEMA_VERSION = 1
"""Version of the canonical frames: raised when a column changes its meaning or its type."""

MAX_MANIFEST_BYTES, MAX_TABLE_BYTES, MAX_NOTE_BYTES = 64_000_000, 2_000_000_000, 8_000_000

MANIFESTS, SHARDS, TABLES = "manifests", "shards", "tables"
"""Folders: of runs, of the rows of one run each, and of the rows of many."""

ACROSS = "across"
"""In place of a week: work that is open, spans weeks, or changed after it was archived."""

_NAME = re.compile(r"([0-9a-f]{16})-(\d{6})-([0-9a-f]{8})\.json")
_WEEK = re.compile(rf"\d{{4}}-W\d{{2}}|{ACROSS}")
_WORD = re.compile(r"[A-Za-z0-9_]{1,80}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shard:
    """The rows of one run, one frame and one week: a file, or a part of one.

    Attributes
    ----------
    frame, week : str
        The frame of the rows, and the ISO week of their work, or `ACROSS`.
    sha256 : str
        Digest of the whole file.
    n_rows : int
        Its rows.
    n_bytes : int
        Size of the file.
    first : int or None
        Position of the first row in a file that holds rows of other runs, too; None: the file
        holds these rows alone.
    """

    frame: str
    week: str
    sha256: str
    n_rows: int
    n_bytes: int
    first: int | None = None

    def path(self, root: Path, system: str, key: str) -> Path:
        """Its place in an archive."""
        if self.first is not None:
            return root / TABLES / self.frame / self.week / f"{self.sha256[:32]}.parquet"
        return root / SHARDS / system / key / self.week / f"{self.frame}-{self.sha256[:32]}.parquet"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one run observed of one source, and the files with its rows.

    Attributes
    ----------
    key, number, run : str and int
        The `source_key`; the position among the runs of the source, which orders them even
        where a clock ran backwards; and a random name of the run.
    label, system, format, place : str
        The name of the source, its system, its storage generation, and its location.
    observed_at, first_at, last_at : datetime
        When the run read, by its clock; the oldest and the newest proven moment.
    is_live, size_bytes, fingerprint
        As of `schema.SOURCES`.
    content, files : str
        Digests of all frames, and of names, sizes and times of the files (empty: not known).
    counts, findings : mapping of str to int
        Number of rows by frame, and of findings by code.
    status : str
        ``complete``, or ``partial`` where some of the source could not be read.
    bodies, redacted : bool
        The options of the run (`writing.Options`).
    schema_version, package : int and str
        The versions that wrote it.
    shards : tuple of Shard
        The files with new rows, and with all findings.
    """

    key: str
    number: int
    run: str
    label: str
    system: str
    format: str
    place: str
    observed_at: datetime
    first_at: datetime | None
    last_at: datetime | None
    is_live: bool
    size_bytes: int
    fingerprint: str
    content: str
    files: str
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    status: str
    bodies: bool
    redacted: bool
    schema_version: int = SCHEMA_VERSION
    package: str
    shards: tuple[Shard, ...]

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.key}-{self.number:06}-{self.run}.json"

    @property
    def proven_at(self) -> datetime:
        """The newest proven moment; without any, the earliest moment there is."""
        return self.last_at or _LONG_AGO

    @property
    def order(self) -> tuple[datetime, int, str]:
        """Sort key of the runs of one source: their newest proven moment, then their number."""
        return (self.proven_at, self.number, self.run)

    def as_json(self, indent: int | None = 1) -> str:
        """The manifest as JSON text."""
        moments = {name: _written(getattr(self, name)) for name in _MOMENTS}
        return json.dumps({**asdict(self), **moments}, indent=indent)

    @classmethod
    def of(cls, given: Any) -> Manifest:
        """The manifest in a JSON document.

        Raises
        ------
        ValueError, TypeError, KeyError, OverflowError
            If the document is no manifest.
        """
        known = {field.name: given[field.name] for field in fields(cls)}
        known |= {name: _moment(known[name]) for name in _MOMENTS}
        known["shards"] = tuple(_shard(shard) for shard in known["shards"])
        manifest = cls(**known)
        _check_kinds(manifest)
        for name in (*manifest.counts, manifest.label, manifest.format, manifest.fingerprint):
            name.encode()  # half of a surrogate pair fits into no column of texts
        if not (_NAME.fullmatch(manifest.name) and _WORD.fullmatch(manifest.system)):
            raise ValueError("not the values of a manifest")
        return manifest


_MOMENTS = ("observed_at", "first_at", "last_at")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "datetime": (datetime,),
    "datetime | None": (datetime, type(None)),
    "Mapping[str, int]": (dict,),
    "tuple[Shard, ...]": (tuple,),
}
"""Types that a field may hold, by its annotation."""


def _check_kinds(record: Manifest) -> None:
    """Refuse fields of other types, and numbers that are no counts of 63 bits."""
    for name, kinds in _KIND_OF.items():
        value = getattr(record, name)
        if type(value) not in kinds:
            raise TypeError(name)
        if isinstance(value, dict):
            if any(type(n) is not int or not 0 <= n < 2**63 for n in value.values()):
                raise ValueError(name)
        elif isinstance(value, int) and not 0 <= value < 2**63:
            raise ValueError(name)


_KIND_OF = {column.name: _KINDS[str(column.type)] for column in fields(Manifest)}


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    moment = None if text is None else datetime.fromisoformat(text)
    return None if moment is None else moment.astimezone(UTC)


def _shard(given: Mapping[str, Any]) -> Shard:
    names = ("frame", "week", "sha256", "n_rows", "n_bytes")
    shard = Shard(**{name: given[name] for name in names}, first=given.get("first"))
    numbers = [shard.n_rows, shard.n_bytes, *([] if shard.first is None else [shard.first])]
    if any(type(number) is not int for number in numbers):
        raise TypeError("shards")
    # They become a path, which must not lead out of the archive.
    if not (
        _WORD.fullmatch(shard.frame)
        and _WEEK.fullmatch(shard.week)
        and _DIGEST.fullmatch(shard.sha256)
        and all(0 <= number < 2**63 for number in numbers)
    ):
        raise ValueError("not the values of a shard")
    return shard


def source_key(host: str, place: str) -> str:
    """Identifier of a source in an archive: a digest of its machine and its place there."""
    return sha256(f"{host}\0{place}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


@cache
def package_version() -> str:
    """The version of this program; to look it up takes as long as to archive a small source."""
    return version("stateanalytics")


@dataclass(frozen=True)
class Archived:
    """One source of an archive.

    Attributes
    ----------
    root : pathlib.Path
        The archive.
    runs : tuple of Manifest
        Its readable runs, oldest observation first.
    files : tuple of pathlib.Path
        The name of every run, in the order of their writing; a run that was compacted is no
        file of its own.
    wrong : mapping of pathlib.Path to str
        The problem of each run that cannot be read. An unreadable note of looks is a source of
        its own.
    attempt : Attempt, optional
        The last collection, where that failed.
    look : Look, optional
        The last collection that the archive has a note of. Not compared: a look without news
        makes no other source.
    """

    root: Path
    runs: tuple[Manifest, ...] = ()
    files: tuple[Path, ...] = ()
    wrong: Mapping[Path, str] = field(default_factory=dict)
    attempt: Attempt | None = None
    look: Look | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The name of the source when it was archived last."""
        if self.last is not None:
            return self.last.label
        return self.attempt.label if self.attempt and not self.wrong else str(self.files[0])

    @property
    def last_at(self) -> datetime | None:
        """The newest moment that any of its runs proved."""
        return self.runs[-1].last_at if self.runs else None

    @cached_property
    def last(self) -> Manifest | None:
        """The newest run, whatever it observed."""
        return max(self.runs, key=lambda run: (run.number, run.run), default=None)

    @property
    def looked_at(self) -> datetime | None:
        """The time of the last collection; a killed run may have left no note of its look."""
        if self.last is None:
            return None
        observed_at = self.last.observed_at
        return observed_at if self.look is None else max(self.look.at, observed_at)

    @property
    def is_unchanged(self) -> bool:
        """Whether the last collection found nothing new."""
        look = self.look
        return look is not None and look.status == "unchanged" and look.at == self.looked_at

    @property
    def own_files(self) -> list[Path]:
        """The paths of this source alone: manifests, folders of shards, notes of attempts."""
        folders = {(run.system, run.key) for run in self.runs}
        rows = [self.root / SHARDS / system / key for system, key in sorted(folders)]
        notes = {attempt_path(self.root, key) for _, key in folders}
        return [*self.files, *rows, *sorted(notes)]


def is_with_runs(root: Path) -> bool:
    """Whether a folder has the name of any run."""
    return any(_NAME.fullmatch(name) or _TABLE.fullmatch(name) for name in _names(root))


def runs_by_source(root: Path) -> dict[str, Archived]:
    """The sources of an archive with their runs, by key, without notes about them.

    Runs in a table that cannot be read, or that does not say whose they are, have a key of
    their own, which is no `source_key`.
    """
    for _ in range(_N_TRIES):
        names = _names(root)
        known = _runs_by_source(root, names)
        # Files that vanished were compacted meanwhile.
        if not any(each.wrong for each in known.values()) or names == _names(root):
            break
    return known


def last_runs(root: Path) -> dict[str, Manifest]:
    """The newest readable run of each source by its key, without its shards."""
    return {
        key: replace(source.last, shards=())
        for key, source in runs_by_source(root).items()
        if source.last
    }


def tables_of_runs(root: Path) -> list[Path]:
    """The tables of compacted runs, the newest last; a killed compaction leaves an older one."""
    return [root / MANIFESTS / name for name in _names(root) if _TABLE.fullmatch(name)]


def table_of_runs(root: Path, runs: Iterable[Manifest | str]) -> tuple[Path, bytes]:
    """A new table of runs, some of them JSON already, and its place."""
    number = max((int(path.name[5:11]) for path in tables_of_runs(root)), default=0) + 1
    head = json.dumps({"archive": ARCHIVE_VERSION, "package": package_version()})
    lines = [head, *(run if isinstance(run, str) else run.as_json(indent=None) for run in runs)]
    path = root / MANIFESTS / f"runs-{number:06}-{secrets.token_hex(4)}.jsonl"
    return path, "".join(f"{line}\n" for line in lines).encode()


ARCHIVE_VERSION = 2
"""Version of the folders and files; the first had no tables."""

_TABLE = re.compile(r"runs-\d{6}-[0-9a-f]{8}\.jsonl")
_N_TRIES = 5


def _names(root: Path) -> list[str]:
    folder = root / MANIFESTS
    return sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208 - names sort faster


def _runs_by_source(root: Path, names: Sequence[str]) -> dict[str, Archived]:
    runs: dict[str, dict[str, Manifest]] = {}
    wrong: dict[str, dict[Path, str]] = {}
    folder = root / MANIFESTS
    tables = [folder / name for name in names if _TABLE.fullmatch(name)]
    found = [each for path in tables[-1:] for each in _runs_of_table(path)]
    compacted = {run.name for _, _, run in found if isinstance(run, Manifest)}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and name not in compacted:
            found.append((match[1], folder / name, _run_of_file(folder / name)))
    for key, place, run in found:
        if isinstance(run, Manifest):
            runs.setdefault(key, {})[run.name] = run
        else:
            wrong.setdefault(key, {})[place] = run
    return {
        key: Archived(
            root,
            tuple(sorted(runs.get(key, {}).values(), key=lambda run: run.order)),
            tuple(sorted([*(folder / name for name in runs.get(key, ())), *wrong.get(key, ())])),
            wrong.get(key, {}),
        )
        for key in sorted({*runs, *wrong})
    }


def _run_of_file(path: Path) -> Manifest | str:
    """The run in a file of its own, or the problem with it."""
    try:
        run = _run_of(json.loads(read_octets(path, MAX_MANIFEST_BYTES)[0].decode("utf-8")))
    except _UNREADABLE as error:
        return _problem(error)
    if isinstance(run, Manifest) and run.name != path.name:
        return "is the manifest of another run"
    return run


def _runs_of_table(path: Path) -> Iterator[tuple[str, Path, Manifest | str]]:
    """The source and the line of each run of a table, and the run or the problem with it.

    Raises
    ------
    NotAStoreError
        If a newer version wrote it.
    """
    try:
        lines = read_octets(path, MAX_TABLE_BYTES)[0].splitlines()
        head = json.loads(lines[0]) if lines else {}
        version = head["archive"]
        if not isinstance(version, int):
            raise TypeError("archive")
    except _UNREADABLE as error:
        yield path.name, path, _problem(error)
        return
    refuse_newer(str(path.parents[1]), version)
    for number, line in enumerate(lines[1:], 2):
        place = path.with_name(f"{path.name}:{number}")
        given: Any = None
        try:
            given = json.loads(line)
            run = _run_of(given)
        except _UNREADABLE as error:
            run = _problem(error)
        key = given.get("key") if isinstance(given, dict) else None
        is_known = isinstance(key, str) and _KEY.fullmatch(key)
        yield str(key) if is_known else place.name, place, run


def refuse_newer(archive: str, version: int) -> None:
    """Refuse an archive that a newer version wrote."""
    if version > ARCHIVE_VERSION:
        raise NotAStoreError(
            f"The archive {archive!r} has version {version}; "
            f"this program reads up to {ARCHIVE_VERSION}.",
            "read it with the newest stateanalytics: pip install -U stateanalytics",
        )


_UNREADABLE = (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError)


def _run_of(given: Any) -> Manifest | str:
    """The run in a JSON document; a newer version may write other fields."""
    if given["schema_version"] > SCHEMA_VERSION:
        return f"has schema version {given['schema_version']}, newer than this program"
    return Manifest.of(given)


def _problem(error: Exception) -> str:
    return f"is no manifest: {type(error).__name__}"


ATTEMPTS = "attempts"
_ATTEMPT_NAME = re.compile(r"[0-9a-f]{16}\.json")


@dataclass(frozen=True)
class Attempt:
    """The last time that a source could not be collected.

    Attributes
    ----------
    key, label : str
        The `source_key` and the name of the source.
    at : datetime or None
        When; None where the note cannot be read.
    message : str
        Why.
    """

    key: str
    label: str
    at: datetime | None
    message: str


def attempt_path(root: Path, key: str) -> Path:
    """File of the note about a source."""
    return root / ATTEMPTS / f"{key}.json"


def note_attempts(root: Path, failed: Iterable[Attempt], collected: Iterable[str]) -> None:
    """Write a note about each source that failed, and delete those of collected sources.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    for key in collected:
        attempt_path(root, key).unlink(missing_ok=True)
    for attempt in failed:
        # A folder with notes alone must be recognised as an archive by the next run.
        for folder in (MANIFESTS, ATTEMPTS):
            (root / folder).mkdir(parents=True, exist_ok=True)
        words = {"label": attempt.label, "at": _written(attempt.at), "message": attempt.message}
        put_whole(attempt_path(root, attempt.key), json.dumps(words, indent=1).encode())


def read_attempts(root: Path) -> dict[str, Attempt]:
    """Notes about failed sources by source key; the message of an unreadable note says so."""
    return {path.stem: _attempt(path) for path in _in_folder(root / ATTEMPTS, _ATTEMPT_NAME)}


def _in_folder(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """The files of a folder with such names, which may be absent."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in files if name.fullmatch(path.name)]


def _attempt(path: Path) -> Attempt:
    words = read_json_object(path, max_bytes=MAX_NOTE_BYTES).value or {}
    label, at, message = as_text(words.get("label")), words.get("at"), as_text(words.get("message"))
    if label is None or message is None:
        return Attempt(path.stem, path.stem, None, "the note of it cannot be read")
    return Attempt(path.stem, label, as_moment(at), message)


LOOKS = "looks"
FOLDERS = {MANIFESTS, SHARDS, TABLES, ATTEMPTS, LOOKS}
"""All that an archive has."""
STATUSES = ("archived", "unchanged")
"""Results for a source that was collected; one that was not has an `Attempt`."""

_LOOK_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}\.json")
_KEY = re.compile(r"[0-9a-f]{16}")
_AHEAD = timedelta(hours=1)
"""By how much the clocks of two machines may differ."""


@dataclass(frozen=True)
class Look:
    """The last time that a source was collected.

    Attributes
    ----------
    at : datetime
        When, by the clock of the collecting machine.
    status : str
        One of `STATUSES`.
    """

    at: datetime
    status: str


def note_looks(root: Path, statuses: Mapping[str, str], at: datetime) -> None:
    """Write a note about sources that were collected just now, by their keys.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    if not statuses:
        return
    at = at.astimezone(UTC)
    path = root / LOOKS / f"{at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.json"
    path.parent.mkdir(exist_ok=True)
    put_whole(path, json.dumps({"at": at.isoformat(), "sources": dict(statuses)}).encode())


def drop_old_looks(root: Path, now: datetime) -> None:
    """Delete each note of which every source is in newer notes, so that notes stay few.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    notes, _ = _notes(root)
    noted: set[str] = set()
    # A note from a clock that ran ahead would stay the newest for ever.
    for path, looks in sorted(notes, key=lambda note: _age(note, now)):
        if looks.keys() <= noted:
            path.unlink(missing_ok=True)
        noted |= looks.keys()


def read_looks(root: Path) -> tuple[dict[str, Look], list[Path]]:
    """The last look at each source by its key, and the files of unreadable notes."""
    notes, unreadable = _notes(root)
    last: dict[str, Look] = {}
    for _, looks in notes:
        for key, look in looks.items():
            if key not in last or last[key].at < look.at:
                last[key] = look
    return last, unreadable


def stale(sources: pl.DataFrame) -> pl.DataFrame:
    """Sources last collected more than a week before the newest collection of any source.

    Parameters
    ----------
    sources : polars.DataFrame
        ``source`` and ``looked_at``, null for sources that are not archived.

    Returns
    -------
    polars.DataFrame
        The same columns, longest ago first.
    """
    behind = pl.col("looked_at").max() - pl.col("looked_at")
    return sources.filter(behind > WEEK).select("source", "looked_at").sort("looked_at", "source")


_Note = tuple[Path, dict[str, Look]]


def _age(note: _Note, now: datetime) -> tuple[bool, timedelta, str]:
    path, looks = note
    at = next((look.at for look in looks.values()), now)
    return at > now + _AHEAD, now - at, path.name


def _notes(root: Path) -> tuple[list[_Note], list[Path]]:
    notes, unreadable = [], []
    for path in _in_folder(root / LOOKS, _LOOK_NAME):
        given = read_json_object(path, max_bytes=MAX_NOTE_BYTES)
        if given.value is None and given.problem is None:
            continue  # another run has just deleted it
        if (looks := _looks(given.value or {})) is None:
            unreadable.append(path)
        else:
            notes.append((path, looks))
    return notes, unreadable


def _looks(given: Mapping[str, object]) -> dict[str, Look] | None:
    at, statuses = as_moment(given.get("at")), given.get("sources")
    if at is None or not isinstance(statuses, dict):
        return None
    if not all(_KEY.fullmatch(key) and status in STATUSES for key, status in statuses.items()):
        return None
    return {key: Look(at, status) for key, status in statuses.items()}
