"""Files of Agent Orchestrator: where it keeps them, what they are, and how they are read."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import table_rows
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError
from stateanalytics.io.files import (
    has_or_is_log,
    legible,
    open_regular,
    read_octets,
    stores_among,
    without_halves,
)
from stateanalytics.io.findings import MAX_ROWS_PER_CODE, texts_of
from stateanalytics.systems import system_named
from stateanalytics.systems.places import schema_of

HASH_DIRECTORY = re.compile(r"^([0-9a-f]{12})(?:-(.+))?$")
"""A project before April 2026: twelve digits, mostly with a name after them."""

MIGRATED = ".migrated"
"""Suffix of directories of which the storage migration copied the records."""

OBSERVABILITY = "-observability"
RECORD_NAME = re.compile(r"^[A-Za-z0-9_-]+$")
ARCHIVE_NAME = re.compile(
    r"^(?P<id>[A-Za-z0-9_-]+?)_"
    r"(?P<at>\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}-\d{3}Z|\d{8}T\d{6}Z)(?P<json>\.json)?$"
)
"""Name of an archived record: the session, and when it was put away."""

CORRUPT = ".json.corrupt-"
LOCK = ".lock"
TEMPORARY = ".tmp."
EVENTS_DATABASE = "activity-events.db"
GO_DATABASE = "ao.db"
ROOT_NAMES = (".agent-orchestrator", ".ao")
"""Directories of a home that Agent Orchestrator writes to."""


SYSTEM = "agent_orchestrator"


class Kind(StrEnum):
    """What a file holds."""

    JSON_RECORD = "json"
    RECORD = "kv"
    ARCHIVE = "kv_archive"
    JSON_ARCHIVE = "json_archive"
    CORRUPT_COPY = "corrupt copy"
    LOCK = "lock"
    AUDIT = "audit trail"
    ACTIVITY = "activity log"
    OBSERVABILITY = "observability log"
    TRACES = "process snapshot"
    NOTIFICATIONS = "notifications"
    RECOVERY = "recovery log"
    FEEDBACK = "feedback report"
    EVENTS_DATABASE = "events database"
    GO_DATABASE = "database of the Go rewrite"


RECORDS = (Kind.JSON_RECORD, Kind.RECORD, Kind.ARCHIVE, Kind.JSON_ARCHIVE)


@cache
def project_of(directory: str) -> str | None:
    """Project by the name of a directory; None where the name is only a hash.

    Examples
    --------
    >>> project_of("82cd38fe090d-billing.migrated"), project_of("82cd38fe090d"), project_of("web")
    ('billing', None, 'web')
    """
    name = directory.removesuffix(MIGRATED)
    match = HASH_DIRECTORY.match(name)
    return match.group(2) if match else name


_FILES = table_rows(__package__, "files.csv")
# Where `_of_project` finds the files of a project, so that one named by itself has its directory.
_IN_PROJECT = re.compile(
    r"([^/]*)/(?:recovery\.log|(?:sessions(?:/archive|/\.agent-report-audit)?"
    r"|feedback-reports|worktrees/[^/]+/\.ao)/[^/]+)$"
)
_DEEPEST = 4
_MOST_DIRECTORIES = 2000
_BEGINNING = 65_536  # bytes
_OWN_KEYS = (b"worktree", b"branch", b"statePayload", b"lifecycle")
_RECORD_KEYS = (*_OWN_KEYS, b"status", b"createdAt")
# Claude Code keeps a note on each live process in a directory of the same name.
_PROCESS_NOTE = (b'"pid"', b'"sessionId"')


class File(NamedTuple):
    """One file of a tree.

    Attributes
    ----------
    path : str
        Where it is.
    kind : Kind
    directory : str
        Name of the project's directory; empty where it belongs to none.

    Notes
    -----
    A tuple, because a tree may have very many: dataclasses take three times as long.
    """

    path: str
    kind: Kind
    directory: str = ""

    @property
    def name(self) -> str:
        """The last part of the path, as text that can be written."""
        return legible(self.path.rpartition(os.sep)[2])

    @property
    def is_migrated(self) -> bool:
        """Is it an original that the storage migration left behind."""
        return self.directory.endswith(MIGRATED)


def find(path: Path) -> list[Path]:
    """Inputs of Agent Orchestrator at a path.

    Parameters
    ----------
    path : pathlib.Path
        A file, a part of a tree, a tree, or a directory with several trees below it.

    Returns
    -------
    list of pathlib.Path
        The path itself where it is a record, a log, or (part of) one tree; the trees below
        it where there are several; none where there is nothing.
    """
    if path.is_file():
        return [path] if _kind_of_file(path) else []
    if not path.is_dir():
        return []
    if _is_tree(path) or _is_project(path) or _is_sessions(path):
        return [path]
    hidden = [path / name for name in ROOT_NAMES]
    return [tree for tree in hidden if _is_tree(tree)] or sorted(_trees_below(path))


def files_of(path: Path) -> Iterator[File]:
    """Every file of a tree, a project, a directory of sessions, or the one that is named."""
    if path.is_file():
        if kind := _kind_of_file(path):
            match = _IN_PROJECT.search(path.as_posix())
            # A tree may have a recovery log as well, which is of no project.
            is_of_tree = kind == Kind.RECOVERY and _is_tree(path.parent)
            yield File(str(path), kind, legible(match[1]) if match and not is_of_tree else "")
    elif _is_tree(path):
        yield from _of_tree(path)
    elif _is_project(path):
        yield from _of_project(path)
    else:
        yield from _of_sessions(path, legible(path.parent.name))


def opens(path: Path) -> Iterator[str]:
    """Paths that are opened to read an input; worktrees, of any size and always busy, are not."""
    return opened_of(files_of(path))


def opened_of(files: Iterable[File]) -> Iterator[str]:
    """Paths that are opened to read some files."""
    for file in files:
        yield file.path
        if file.kind in (Kind.EVENTS_DATABASE, Kind.GO_DATABASE):
            store = os.path.realpath(file.path)
            yield from (store + ending for ending in ("-wal", "-journal"))


_GENERATIONS = {
    Kind.RECORD: "key=value records",
    Kind.ARCHIVE: "key=value records",
    Kind.JSON_RECORD: "JSON records",
    Kind.JSON_ARCHIVE: "JSON records",
    Kind.EVENTS_DATABASE: "activity events",
    Kind.GO_DATABASE: "Go rewrite",
}


def version(path: Path) -> str:
    """Generations of which a tree holds files."""
    files = {file.kind: file.path for file in files_of(path)}
    words = [word for kind, word in _GENERATIONS.items() if kind in files]
    if Kind.GO_DATABASE in files:
        words.append(schema_of(Path(files[Kind.GO_DATABASE]), system_named(SYSTEM))[1])
    return ", ".join(filter(None, dict.fromkeys(words)))


def _is_tree(path: Path) -> bool:
    if any(_holds((path / name).is_file) for name in (EVENTS_DATABASE, GO_DATABASE)):
        return True
    if _holds((path / "data" / GO_DATABASE).is_file):
        return True
    if any(_holds((at / "sessions").is_dir) for at in _directories(path / "projects")):
        return True
    return any(
        directory.name.endswith(OBSERVABILITY) or _holds((directory / "sessions").is_dir)
        for directory in _directories(path)
        if HASH_DIRECTORY.match(directory.name.removesuffix(MIGRATED))
    )


def _is_project(path: Path) -> bool:
    return _holds((path / "sessions").is_dir) and _is_sessions(path / "sessions")


def _is_sessions(path: Path) -> bool:
    """Is a path a directory of session records: by its name, and by the first records in it."""
    if path.name != "sessions":
        return False
    records = (
        file
        for file in _of_sessions(path, "")
        if file.kind in (Kind.JSON_RECORD, Kind.RECORD, Kind.ARCHIVE)
    )
    return any(_is_record(Path(file.path)) for _, file in zip(range(20), records, strict=False))


def _is_record(path: Path) -> bool:
    # Stores are never opened here: see `io.sqlite_copy`.
    if path.suffix in (".db", ".sqlite", ".sqlite3") or has_or_is_log(path):
        return False
    try:
        with open_regular(path) as file:
            begin = file.read(_BEGINNING)
    except OSError:
        return False
    is_process_note = all(key in begin for key in _PROCESS_NOTE)
    return any(key in begin for key in (_OWN_KEYS if is_process_note else _RECORD_KEYS))


def evidence(path: Path) -> bool:
    """Is a file of Agent Orchestrator: a database or a log by its name, a record by its keys."""
    if path.name in (EVENTS_DATABASE, GO_DATABASE):
        return True
    if path.name.endswith(("-wal", "-journal")):
        return False
    return bool(_kind_in("(root)", path.name) or _kind_of_log(path)) or _is_record(path)


def _trees_below(path: Path) -> Iterator[Path]:
    """Trees at most a few levels below, never inside one another."""
    level, n_seen = [path], 0
    for _ in range(_DEEPEST):
        below: list[Path] = []
        for directory in level:
            for nested in _directories(directory):
                n_seen += 1
                if n_seen > _MOST_DIRECTORIES:
                    return
                if _is_tree(nested):
                    yield nested
                elif not nested.name.startswith(".") and nested.name != "node_modules":
                    below.append(nested)
        level = below


def _of_tree(root: Path) -> Iterator[File]:
    for entry in _entries(root):
        name = entry.name
        if _holds(entry.is_dir):
            if name == "projects":
                for project in _entries(root / name):
                    if _holds(project.is_dir):
                        yield from _of_project(root / name / project.name)
            elif name.endswith(OBSERVABILITY):
                yield from _of_observability(root / name)
            elif HASH_DIRECTORY.match(name.removesuffix(MIGRATED)):
                yield from _of_project(root / name)
            elif name == "data" and _holds((root / name / GO_DATABASE).is_file):
                yield File(str(root / name / GO_DATABASE), Kind.GO_DATABASE)
        else:
            kind = _kind_in("(root)", name)
            if kind:
                yield File(entry.path, kind)


def _kind_in(folder: str, name: str) -> Kind | None:
    """Kind of a file by its name, in a folder of ``data/files.csv``; parentheses: of any name."""
    patterns = ((row["pattern"], row["kind"]) for row in _FILES if row["folder"] == folder)
    return next((Kind(kind) for pattern, kind in patterns if fnmatchcase(name, pattern)), None)


def _of_project(path: Path) -> Iterator[File]:
    directory = legible(path.name)
    yield from _of_sessions(path / "sessions", directory)
    for entry in _entries(path / "feedback-reports"):
        if _kind_in("(anywhere)", entry.name) == Kind.FEEDBACK:
            yield File(entry.path, Kind.FEEDBACK, directory)
    # Nothing else of a worktree is Agent Orchestrator's: it may be a repository of any size.
    for entry in _entries(path / "worktrees"):
        log = os.path.join(entry.path, ".ao", "activity.jsonl")  # noqa: PTH118
        if os.path.isfile(log):  # noqa: PTH113
            yield File(log, Kind.ACTIVITY, directory)
    if _holds((path / "recovery.log").is_file):
        yield File(str(path / "recovery.log"), Kind.RECOVERY, directory)


def _of_sessions(path: Path, directory: str) -> Iterator[File]:
    entries = _entries(path)
    stores = stores_among([entry.name for entry in entries])
    for entry in entries:
        name = entry.name
        if name in stores:
            continue
        # Only regular files: a pipe would block whoever opens it.
        if name == "archive" and _holds(entry.is_dir):
            for file in _entries(path / name):
                if (kind := _kind_of_archive(file.name)) and _holds(file.is_file):
                    yield File(file.path, kind, directory)
        elif name == ".agent-report-audit":
            for file in _entries(path / name):
                if kind := _kind_in(name, file.name):
                    yield File(file.path, kind, directory)
        elif not name.startswith(".") and (kind := _kind_of_record(name)) and _holds(entry.is_file):
            yield File(entry.path, kind, directory)


def _kind_of_record(name: str) -> Kind | None:
    """Kind of a file in a directory of session records; None: not read."""
    # Nearly all are records, and only a name with a point in it can be any of the others.
    if RECORD_NAME.match(name.removesuffix(".json")):
        return Kind.JSON_RECORD if name.endswith(".json") else Kind.RECORD
    if name.endswith(LOCK) or TEMPORARY in name:
        return Kind.LOCK
    return Kind.CORRUPT_COPY if CORRUPT in name else None


def _kind_of_archive(name: str) -> Kind | None:
    match = ARCHIVE_NAME.match(name)
    return match and (Kind.JSON_ARCHIVE if match["json"] else Kind.ARCHIVE)


def _of_observability(path: Path) -> Iterator[File]:
    for entry in _entries(path):
        if kind := _kind_in("(observability)", entry.name):
            yield File(entry.path, kind)
    for entry in _entries(path / "processes"):
        if kind := _kind_in("processes", entry.name):
            yield File(entry.path, kind)
        elif entry.name.endswith(".json"):
            yield File(entry.path, Kind.TRACES)


def _kind_of_file(path: Path) -> Kind | None:
    """Kind of a file that was named by itself: by its name, then by its beginning."""
    return _kind_in("(root)", path.name) or _kind_of_log(path) or _kind_of_named_record(path)


def _kind_of_log(path: Path) -> Kind | None:
    return _kind_in("(anywhere)", path.name) or _kind_in(path.parent.name, path.name)


def _kind_of_named_record(path: Path) -> Kind | None:
    kinds = {"archive": _kind_of_archive, "sessions": _kind_of_record}
    kind_of = kinds.get(path.parent.name)
    kind = kind_of(path.name) if kind_of else None
    return kind if kind in RECORDS and _is_record(path) else None


def _entries(path: Path) -> list[os.DirEntry[str]]:
    """Entries of a directory, by name; empty where there is no directory."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _directories(path: Path) -> Iterable[Path]:
    return (Path(entry.path) for entry in _entries(path) if _holds(entry.is_dir))


def _holds(test: Callable[[], bool]) -> bool:
    """Answer of a file system; False for a loop of links or a lost permission."""
    try:
        return test()
    except OSError:
        return False


_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HARMLESS = ("info",)


# A fault is what was wrong with a file, or with ``n_rows`` lines or records of it: columns as in
# `schema.FINDINGS`, with the file below the input and the session that the record belongs to.
_FAULTS = {
    **dict.fromkeys(("code", "severity", "message", "action", "path", "example"), pl.String),
    **{"session_id": pl.String, "n_rows": pl.Int64},
}


@dataclass(frozen=True)
class Faults:
    """The faults of one input; with ``on_error="raise"`` the first that costs data ends it.

    Attributes
    ----------
    label : str
        The input.
    root : str
        Directory that paths are shown relative to.
    on_error : str
        ``skip`` or ``raise``.
    """

    label: str
    root: str
    on_error: str = "skip"
    faults: list[dict[str, Any]] = field(default_factory=list)

    def below(self, path: str) -> str:
        """Path as it is shown: relative to the input."""
        return legible(self._relative(path))

    def note_name(self, path: str) -> None:
        """Add a fault where the name of a file that is read is not UTF-8."""
        if not path.isascii() and self.below(path) != self._relative(path):
            self.note("file.name_not_utf8", path)

    def _relative(self, path: str) -> str:
        relative = path.removeprefix(self.root).replace(os.sep, "/").lstrip("/")
        return relative or os.path.basename(path)  # noqa: PTH119

    def note(self, code: str, path: str, *values: object, **more: Any) -> str:
        """Add a fault with the texts of its code in ``data/findings.csv``; returns its message.

        ``values`` are for the braces of the message, and ``more`` replaces columns of `_FAULTS`.

        Raises
        ------
        DamagedStoreError
            If data are lost and the caller asked for it.
        """
        texts = texts_of(__package__)[code]
        message = texts.message.format(*values) if values else texts.message
        fault = {
            **{"code": code, "severity": texts.severity, "message": message, "n_rows": 1},
            **{"action": texts.action or "excluded", "path": self.below(path), **more},
        }
        target, root = os.path.realpath(path), os.path.realpath(self.root)
        if not Path(target).is_relative_to(root):
            # A link out of the input may lead to a file that nobody meant to show.
            fault["example"] = None
        if self.on_error == "raise" and fault["severity"] not in _HARMLESS:
            raise DamagedStoreError(
                f"{self.label!r} cannot be read completely: {fault['path']!r}: "
                f"{fault['message']}"
                + (f" ({fault['example']})." if fault.get("example") else "."),
                "omit on_error='raise' to read the rest and list this in snap.findings",
            )
        self.faults.append(fault)
        return str(fault["message"])

    def findings(self) -> pl.DataFrame:
        """All faults in the shape of `schema.FINDINGS`; many of one code are counted."""
        names = {"path": "table", "session_id": "entity_id"}
        rows = pl.DataFrame(self.faults, schema=_FAULTS).rename(names)
        is_listed = pl.int_range(pl.len()).over("code") < MAX_ROWS_PER_CODE
        more = rows.filter(~is_listed).group_by("code", "severity", maintain_order=True)
        counted = more.agg(pl.col("n_rows").sum()).with_columns(
            message=pl.lit("more of the same, not listed one by one"), action=pl.lit("excluded")
        )
        named = pl.concat([rows.filter(is_listed), counted], how="diagonal").with_columns(
            source=pl.lit(self.label),
            system=pl.lit(SYSTEM),
            entity_type=pl.when(pl.col("entity_id").is_not_null()).then(pl.lit("session")),
        )
        return schema.FINDINGS.conform(named)


class Content(NamedTuple):
    """Content of a file: its text (None: it cannot be read), size and last change."""

    text: str | None
    problem: str | None = None
    size_bytes: int = 0
    modified_s: float | None = None


def read_file(path: str, faults: Faults, *, session_id: str | None = None) -> Content:
    """Text of a file, in any encoding.

    Parameters
    ----------
    path : str
        May have vanished, be unreadable, a pipe, or in another encoding.
    faults : Faults
        Receives what was wrong.
    session_id : str, optional
        The session that the record belongs to.
    """

    def lost(code: str, reason: object = None) -> Content:
        return Content(None, faults.note(code, path, reason, session_id=session_id))

    try:
        octets, status = read_octets(path)
    except FileNotFoundError:
        return lost("file.vanished")
    except OSError as error:
        code = "file.too_large" if error.errno == errno.EFBIG else "file.unreadable"
        return lost(OVER_BUDGET if isinstance(error, BudgetSpentError) else code, error.strerror)
    text, odd = _decoded(octets)
    whole, n_halves = without_halves(text)
    if odd:
        faults.note("file.not_utf8", path, odd, session_id=session_id)
    if n_halves:
        faults.note("file.half_surrogate", path, n_rows=n_halves, session_id=session_id)
    return Content(whole, None, len(octets), status.st_mtime)


def _decoded(octets: bytes) -> tuple[str, str | None]:
    """A text, and what was odd about its encoding."""
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        if octets.startswith(_UTF16):
            return octets.decode("utf-16", "replace"), "it is UTF-16, not UTF-8"
        return octets.decode("utf-8-sig", "replace"), "some bytes are not UTF-8"
    return text.removeprefix("\ufeff"), None
