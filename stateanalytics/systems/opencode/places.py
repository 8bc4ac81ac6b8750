"""Where opencode keeps its data, and how its files are told from others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stateanalytics.io.files import has_or_is_log, open_regular
from stateanalytics.io.processes import mentions
from stateanalytics.systems.omissions import kinds_of_files

DATABASE = re.compile(r"^opencode.*\.db$")
STORES = (".db", ".sqlite", ".sqlite3")
SUFFIXES = (".jsonl", ".ndjson", ".sse", ".json", ".log", ".txt")
_LEGACY = ("session", "message", "part")
_HEAD_BYTES = 2**20
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
# Never opened: they hold passwords and tokens.
SECRETS = ("auth.json", "account.json", "mcp-auth.json", "service.json")


def find(path: Path) -> list[Path]:
    """What of a path opencode wrote, one input each; looks at names and beginnings only.

    Parameters
    ----------
    path : pathlib.Path
        A file, or a directory: a data directory, one that holds it as ``opencode``, or a
        folder of captures.

    Returns
    -------
    list of pathlib.Path
        Databases; else a legacy ``storage`` directory; else files of records.
    """
    try:
        if path.is_file():
            return [path] if is_database(path) or is_record_file(path) else []
        if not path.is_dir():
            return []
        return _in_directory(path)
    except OSError:
        return []


def _in_directory(folder: Path) -> list[Path]:
    for place in (folder, folder / "opencode", folder / ".local" / "share" / "opencode"):
        databases = sorted(path for path in _files(place) if is_database(path))
        if databases:
            return databases
        if is_storage(place / "storage"):
            return [place / "storage"]
    if is_storage(folder):
        return [folder]
    return [path for path in sorted(_files(folder)) if is_record_file(path)]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def is_database(path: Path) -> bool:
    """Is it an opencode database: by its name, or by the tables named at its beginning."""
    if DATABASE.match(path.name):
        return True
    return path.suffix in STORES and mentions(path, _TABLES, _HEAD_BYTES)


def evidence(path: Path) -> bool:
    """A database, a file of records, or a session of the time before databases."""
    is_session = "session" in path.parts and path.name.startswith("ses_")
    return is_database(path) or is_session or is_record_file(path)


def is_storage(folder: Path) -> bool:
    """Is it a ``storage`` directory of the time before databases."""
    return (
        folder.name == "storage"
        and (folder / "session").is_dir()
        and ((folder / "message").is_dir() or (folder / "part").is_dir())
    )


def beside(path: Path) -> list[Path]:
    """The files of the time before databases, which are read with the database beside them."""
    return [path.with_name("storage")] if path.name == "opencode.db" else []


def unread(path: Path) -> Mapping[str, int]:
    """The kinds of files of opencode's own directory, told with the first database in it.

    Snapshots and worktrees are copies of anybody's repositories, and are not looked through.
    """
    folder = path.parent
    if folder.name != "opencode" or not is_database(path):
        return {}
    try:
        databases = [name for name in sorted(_files(folder)) if is_database(name)]
    except OSError:  # a database that may be read may lie where nobody may look around
        return {}
    if databases[:1] != [path]:
        return {}
    opened = [f"{name}{end}" for name in databases for end in ("", "-wal", "-shm", "-journal")]
    return kinds_of_files(folder, opened, (*_LEGACY, "snapshot", "worktree", "repos"))


def is_record_file(path: Path) -> bool:
    """Does a file begin with records of opencode."""
    if path.suffix.lower() not in SUFFIXES or path.name in SECRETS:
        return False
    if path.name.startswith("service") or has_or_is_log(path):
        return False
    try:
        with open_regular(path) as file:
            begin = file.read(2**16)
    except OSError:  # one file that may not be read hides no other
        return False
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        begin = begin.decode("utf-16", "replace").encode()
    return bool(_RECORD.search(begin)) and bool(_SESSION.search(begin))
