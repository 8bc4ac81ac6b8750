"""Errors for paths that cannot be read as a store: what was needed and found, what to type."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from stateanalytics.core.words import size
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    NoRoomError,
    NotAStoreError,
    SourceError,
    SourceNotFoundError,
    StoreBusyError,
)

# First octets of other kinds of files, their names, and what to do.
_OTHER_FILES = (
    (b"7\x7f\x06", "is the write-ahead log of a store", "name the store itself, without -wal"),
    (b"\x1f\x8b", "is compressed with gzip", "unpack it first with `gunzip`"),
    (b"PK\x03\x04", "is a zip archive", "unpack it first with `unzip`"),
    (b"(\xb5/\xfd", "is compressed with zstd", "unpack it first with `unzstd`"),
    (b"\x00\x00\x00\x00\x00\x00\x00\x00", "begins with zeros only", "restore it from a backup"),
)


def nothing_there(path: str | Path, error: OSError | ValueError) -> SourceNotFoundError:
    """The error for a path without a file."""
    text = str(path)
    hint = "check the spelling; `ls -l` on its folder shows what is there"
    if text.startswith("file:"):
        hint = "give the plain path, without `file:` and without options"
    elif text == ":memory:":
        hint = "a store in memory belongs to one process; write it to a file first"
    elif os.path.islink(path):  # noqa: PTH114
        hint = f"it is a link to {os.readlink(path)!r}; repair the link"  # noqa: PTH115
    why = (error.strerror if isinstance(error, OSError) else str(error)) or "not found"
    return SourceNotFoundError(
        f"A SQLite store was needed, and nothing is at {str(path)!r} ({why.lower()}).", hint
    )


def explained(
    path: str | Path, problem: str, found: str, size_bytes: int = 0, busy_s: float = 0.0
) -> SourceError:
    """The error for a problem that `sqlite_copy` reports."""
    name, needed = repr(str(path)), "A SQLite store was needed, and"
    wanted = f"The store {name} cannot be read:"
    owner = "read it as the user who owns it, or copy it to where you may read"
    begin = bytes.fromhex(found) if problem == "not_sqlite" else b""
    errors: dict[str, Callable[[], SourceError]] = {
        "missing": lambda: nothing_there(path, FileNotFoundError(2, "it has just been deleted")),
        "not_a_file": lambda: NotAStoreError(f"{needed} {name} is no file.", "name a file"),
        "empty": lambda: NotAStoreError(
            f"{needed} {name} is empty (0 bytes).",
            "name another file; a store stays empty until the first run is recorded",
        ),
        "not_sqlite": lambda: NotAStoreError(*what_it_is(path, begin)),
        "untrusted": lambda: NotAStoreError(
            f"{wanted} an index or column runs a function that SQLite does not trust: {found}.",
            "read a copy without it: `sqlite3 COPY 'DROP INDEX NAME'`",
        ),
        "no_room": lambda: no_room(path, found, size_bytes),
        "no_permission": lambda: StoreBusyError(f"{wanted} {found}.", owner),
        "unreadable": lambda: StoreBusyError(f"{wanted} {found}.", owner),
        "busy": lambda: StoreBusyError(
            f"{wanted} it was busy for {busy_s:g} s ({found}).",
            "wait for the program that uses it, or stop it, and try again",
        ),
    }
    damage = found if problem == "damaged" else f"{problem}: {found}"
    return errors.get(problem, functools.partial(damaged, path, [damage]))()


def what_it_is(path: str | Path, begin: bytes) -> tuple[str, str]:
    """The message for a file that is no store, by its first octets, and what to do."""
    for magic, what, hint in _OTHER_FILES:
        if begin.startswith(magic):
            is_tar = str(path).endswith((".tgz", ".tar.gz"))
            todo = "unpack it first with `tar xzf`" if is_tar else hint
            return f"A SQLite store was needed, and {str(path)!r} {what}.", todo
    if begin[8:12] == b"DUCK":
        what, hint = "is a DuckDB database", "name the state.db of the orchestrator"
    elif all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in begin):
        what = f"is text of no known system: it begins with {begin.decode()!r}"
        hint = "name the .db file, or the whole directory, such as ~/.claude"
    else:
        what = "has no SQLite header: it is another kind of file, damaged or encrypted"
        hint = "name another file or a backup; if it is encrypted (SQLCipher), export it decrypted"
    return f"A SQLite store was needed, and {str(path)!r} {what}.", hint


def damaged(path: str | Path, problems: list[str]) -> DamagedStoreError:
    """The error for a damaged store."""
    shown = "; ".join(line[:120] for line in problems[:3])
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return DamagedStoreError(
        f"The store {str(path)!r} cannot be read completely, because it is damaged: {shown}{more}.",
        "read a backup, or its intact parts with on_error='salvage' (--salvage)",
        shell="read a backup, or its intact parts with --salvage",
    )


def beyond_salvage(path: str | Path, reason: str) -> DamagedStoreError:
    """The error for a damaged store of which nothing can be read."""
    return DamagedStoreError(
        f"The store {str(path)!r} cannot be salvaged, because nothing in it can be read: {reason}.",
        "read a backup",
    )


def unreadable(path: str | Path, reason: str) -> SourceError:
    """The error for an undamaged store with a table that SQLite cannot read."""
    hint = "exclude it; a fresh copy with `sqlite3 STORE .dump | sqlite3 NEW` may help"
    if "too big" in reason or "out of memory" in reason:
        hint = "look for a huge cell: `sqlite3 STORE 'SELECT max(length(COLUMN)) FROM TABLE'`"
    return SourceError(f"The store {str(path)!r} cannot be read. SQLite reports: {reason}.", hint)


def closed(label: str) -> ArgumentError:
    """The error for a store that was closed."""
    return ArgumentError(
        f"An open store was needed, and {label!r} was closed.",
        "ask for it while the snapshot or store is open, or read it again",
    )


def no_room(path: str | Path, reason: str, size_bytes: int) -> NoRoomError:
    """The error for a copy that does not fit."""
    try:
        folder = repr(tempfile.gettempdir())
    except OSError:
        folder = "a folder for temporary files"
    return NoRoomError(
        f"A private copy of {str(path)!r} needs {size(size_bytes)} in {folder}, but {reason}.",
        "set TMPDIR to a folder with room, for example `TMPDIR=/var/tmp`",
    )
