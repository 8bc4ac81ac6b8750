"""Where opencode keeps its data, and how to tell its files from others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stateanalytics.io.files import beginning_of, has_or_is_log
from stateanalytics.io.processes import mentions
from stateanalytics.systems.omissions import kinds_of_files

_DATABASE_NAME = re.compile(r"^opencode.*\.db$")
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_RECORD_SUFFIXES = (".jsonl", ".ndjson", ".sse", ".json", ".log", ".txt")
_LEGACY = ("session", "message", "part")
_SCHEMA_BYTES = 2**20
_TABLES = [
    f"CREATE TABLE {quote}{name}"
    for name in ("event_sequence", "session_v2", "session_message", "session_input")
    for quote in ("", "`", '"', "'")
]
_RECORD = re.compile(
    rb"\"(?:aggregateID|assistantMessageID|sessionID|projectID)\""
    rb"|\"type\"\s*:\s*\"server\.connected\""
)
_SESSION = re.compile(rb"\"ses_[0-9A-Za-z_]+\"|\"type\"\s*:\s*\"(?:session|server)\.")
# Never opened: they contain passwords and tokens.
_SECRETS = ("auth.json", "account.json", "mcp-auth.json", "service.json")


def find(path: Path) -> list[Path]:
    """The inputs of opencode at a path, found by the names and first bytes of files.

    Parameters
    ----------
    path : pathlib.Path
        A file, or a directory: a data directory, the parent of one called ``opencode``, or a
        folder of captures.

    Returns
    -------
    list of pathlib.Path
        Databases; else a legacy ``storage`` directory; else files of records.
    """
    try:
        if path.is_file():
            return [path] if is_database(path) or _is_record_file(path) else []
        for folder in (path, path / "opencode", path / ".local" / "share" / "opencode"):
            if databases := sorted(file for file in _files(folder) if is_database(file)):
                return databases
            if is_storage(folder / "storage"):
                return [folder / "storage"]
        if is_storage(path):
            return [path]
        return [file for file in sorted(_files(path)) if _is_record_file(file)]
    except OSError:
        return []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def is_database(path: Path) -> bool:
    """Whether a file is an opencode database, by its name or by the tables at its beginning."""
    if _DATABASE_NAME.match(path.name):
        return True
    return path.suffix in _DATABASE_SUFFIXES and mentions(path, _TABLES, _SCHEMA_BYTES)


def evidence(path: Path) -> bool:
    """Whether a file is a database, records, or a session from before databases."""
    is_session = "session" in path.parts and path.name.startswith("ses_")
    return is_database(path) or is_session or _is_record_file(path)


def is_storage(folder: Path) -> bool:
    """Whether a folder is a ``storage`` directory from before databases."""
    return (
        folder.name == "storage"
        and (folder / "session").is_dir()
        and ((folder / "message").is_dir() or (folder / "part").is_dir())
    )


def companions(path: Path) -> list[Path]:
    """The files from before databases, which are read with the database next to them."""
    return [path.with_name("storage")] if path.name == "opencode.db" else []


def unread(path: Path) -> Mapping[str, int]:
    """The unread files of opencode's data directory by kind, for the first database in it.

    Snapshots and worktrees are copies of users' repositories and are not searched.
    """
    folder = path.parent
    if folder.name != "opencode" or not is_database(path):
        return {}
    try:
        databases = [name for name in sorted(_files(folder)) if is_database(name)]
    except OSError:  # a readable database may be in a folder that may not be listed
        return {}
    if databases[:1] != [path]:
        return {}
    opened = [f"{name}{end}" for name in databases for end in ("", "-wal", "-shm", "-journal")]
    return kinds_of_files(folder, opened, (*_LEGACY, "snapshot", "worktree", "repos"))


def _is_record_file(path: Path) -> bool:
    """Whether a file begins with records of opencode."""
    if path.suffix.lower() not in _RECORD_SUFFIXES or path.name in _SECRETS:
        return False
    if path.name.startswith("service") or has_or_is_log(path):
        return False
    begin = beginning_of(path)
    return bool(_RECORD.search(begin)) and bool(_SESSION.search(begin))
