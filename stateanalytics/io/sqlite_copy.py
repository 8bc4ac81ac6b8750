"""Consistent copies of SQLite stores, made in a process of its own.

`processes.StoreProcess` starts it. It reads requests, each a line of JSON, and answers each
with a line: what was copied, what the check of a copy found, and so on.

Why a process: POSIX drops every lock that a process holds on a file as soon as it closes any
descriptor of that file. A notebook may well hold a connection to the very store that is read,
through whichever copy of SQLite. This process holds no other connections, so no lock is
dropped, and a store that makes SQLite crash ends only this process.

Why not always SQLite's own backup: opening a store in WAL mode creates ``-wal`` and ``-shm``
next to it, even with ``mode=ro``, and a read-only connection leaves them there. So a store that
no process has open is copied as plain bytes (.4 s for a GB, a third of the time of a backup),
and an open one through `sqlite3.Connection.backup`, as the files are there already. Every page
of the copy is checked (1 s for a GB) while the parent reads; this finds damage that a scan does
not meet, such as in the end of a long text.

Only the standard library may be imported here, and little of it: a command waits for that.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import stat
import struct
import sys
import time
from contextlib import closing

TYPE_CHECKING = False  # as in `typing`, without the time of its import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAGIC = b"SQLite format 3\0"
# SQLite locks bytes past the first GB: one for a future writer, 510 for readers, and one byte
# of the WAL's index that every connection in WAL mode holds (os_unix.c: RESERVED_BYTE,
# SHARED_FIRST, DMS).
WRITER, READERS, WAL_INDEX_USERS = (0x40000001, 1), (0x40000002, 510), (128, 1)
# The last bytes of the journal of a transaction over several stores: SQLite would open the
# file that is named before them, and delete it.
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
# The index of a log begins with two copies of its header (wal.c: WalIndexHdr): a counter of
# commits, the length of the log, checksums, salts.
INDEX_HEADER = 48
TICK_NS = 2_000_000_000  # no file system's clock is coarser
N_TRIES = 5
CHECK_S, CHECK_S_PER_GB = 60.0, 20.0  # limit of the check; 1 s for a GB is usual
ILLEGIBLE = "\ufffd"  # replaces octets that are not UTF-8; such tables are not read
VIRTUAL_TABLE = "a virtual table"
VIRTUAL = 2  # in table_xinfo: a generated column that is not stored
# Errors that end a check: bad pages; or an expression of the schema itself (a view, an index
# with a collation or function of the writer's own) that cannot or may not be run here.
# By code, because "malformed JSON" is no damage and "disk I/O error" is.
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
REFUSED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH}
HARMLESS = (  # messages of a check about rows or unused pages, which do not affect reading
    "never used",
    "NULL value in",
    "constraint failed",
    "value in ",
    "non-unique entry",
    "missing from index",
    "wrong # of entries",
)


class Problem(Exception):  # noqa: N818 - the parent gets it as data, not as an exception
    """The reason for a missing copy: a word that the parent knows, and details."""

    def __init__(self, word: str, found: str = "") -> None:
        super().__init__(word, found)
        self.word, self.found = word, found


def main() -> None:
    """Answer requests until the input is closed."""
    requests: dict[str, Callable[..., dict[str, Any]]] = {
        "copy": copied,
        "follow": followed,
        "check": checked,
        "state": state_now,
        "mentions": look_for_words,
    }
    for line in sys.stdin.buffer:
        request, *arguments = json.loads(line)
        print(json.dumps(answered(requests[request], *arguments)), flush=True)


def answered(request: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """The answer to a request, or the problem with the store."""
    try:
        return request(*arguments)
    except Problem as problem:
        return {"problem": problem.word, "found": problem.found}
    except sqlite3.DatabaseError as error:
        word = "no_room" if "full" in str(error) else "damaged"
        if "unsafe use of" in str(error):
            word = "untrusted"
        elif word == "damaged" and (missing := missing_bytes(arguments[0])):
            return {"problem": "truncated", "found": missing}
        return {"problem": word, "found": str(error)}
    except OSError as error:
        words = {
            errno.ENOENT: "missing",
            errno.EACCES: "no_permission",
            errno.EPERM: "no_permission",
        }
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        word = "no_room" if full else words.get(error.errno or 0, "unreadable")
        return {"problem": word, "found": error.strerror or str(error)}


def look_for_words(path: str, words: list[str], n_bytes: int) -> dict[str, Any]:
    """Whether the beginning of a file contains any of some words."""
    begin = beginning(path, n_bytes)
    return {"is_there": any(word.encode() in begin for word in words)}


def state_now(source: str) -> dict[str, Any]:
    """The `state` of a store now."""
    return {"state": state(source, is_open_elsewhere(source))}


def copied(source: str, target: str, busy_s: float) -> dict[str, Any]:
    """Copy the store in the way that disturbs no other process; return its `contents`."""
    is_live = is_open_elsewhere(source)
    # Before anything is read: a commit during the copy must differ from this state.
    known, logged = state(source, is_live), log_position(source)
    header = read_header(source)
    is_wal = header[18] == 2 and header[19] == 2
    if is_wal and is_live:
        by_backup(source, target, busy_s)
    elif is_wal or os.path.exists(source + "-wal"):  # noqa: PTH110
        # SQLite would use a log that the header does not expect, too, and create an index.
        by_stable_bytes(source, target)
    else:
        by_bytes_under_a_lock(source, target, busy_s)
    logged = logged if is_wal and is_live else None
    return {"is_live": is_live, "state": known, "logged": logged, **contents(target)}


def followed(
    source: str, target: str, base: str, logged: tuple[str, int], most_bytes: int
) -> dict[str, Any]:
    """A copy from an earlier copy and the log that the store has written since.

    It is the file of the earlier copy, by another name, with the log up to its last commit next
    to it, which SQLite reads too. A frame of a log is never overwritten before the log restarts
    with other salts in its header.
    """
    is_live, (salts, n_frames) = is_open_elsewhere(source), logged
    known, position = state(source, is_live), log_position(source)
    header = read_header(source)
    if not is_live or position is None or position[0] != salts or header[18:20] != b"\2\2":
        raise Problem("moved")
    log = source + "-wal"
    page_size = int.from_bytes(first_octets(log)[8:12], "big")
    size = 32 + position[1] * (24 + page_size)
    if position[1] < n_frames or size > most_bytes:
        raise Problem("moved")
    octets = beginning(log, size)
    if len(octets) < size or first_octets(log)[:32] != octets[:32] or octets[16:24].hex() != salts:
        raise Problem("moved")
    heads = [octets[at : at + 24] for at in range(32, size, 24 + page_size)]
    if any(head[8:16].hex() != salts for head in heads) or (heads and not any(heads[-1][4:8])):
        raise Problem("moved")
    try:
        os.link(base, target)
    except OSError:
        shutil.copyfile(base, target)
    with open(target + "-wal", "wb") as file:  # noqa: PTH123
        file.write(octets)
    changed = sorted({int.from_bytes(head[:4], "big") for head in heads[n_frames:]})
    return {"is_live": is_live, "state": known, "logged": position, "changed": changed}


def log_position(source: str) -> tuple[str, int] | None:
    """The salts of the log, which identify it, and its number of committed frames."""
    index, log = (first_octets(source + ending) for ending in ("-shm", "-wal"))
    header = index[:INDEX_HEADER]
    if not log or len(header) < INDEX_HEADER or header != index[INDEX_HEADER : 2 * INDEX_HEADER]:
        return None
    if header[32:40] != log[16:24]:
        return None
    return header[32:40].hex(), int.from_bytes(header[16:20], sys.byteorder)


def read_header(source: str) -> bytes:
    """The first 100 bytes of a valid store."""
    header = beginning(source, 100)
    if not header:
        raise Problem("empty")
    if header[:16] != MAGIC:
        raise Problem("not_sqlite", header[:32].hex())
    if len(header) < 100:
        raise Problem("damaged", f"its header has {len(header)} bytes and should have 100")
    return header


def beginning(path: str, n_bytes: int) -> bytes:
    """The first bytes of a regular file."""
    # A pipe without a writer would block; Windows has O_BINARY, without which it would end a
    # log at Ctrl-Z.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Problem("not_a_file")
        return os.read(descriptor, n_bytes)
    finally:
        os.close(descriptor)


def is_open_elsewhere(source: str) -> bool:
    """Whether another process has the store open in WAL mode, or is writing to it."""
    # In WAL mode a connection is a reader for as long as it is open. In other modes only while
    # it reads, as this program does in another process, so readers do not count there.
    is_wal = first_octets(source)[18:20] == b"\2\2"
    users = READERS if is_wal else WRITER
    return is_locked(source, users) or is_locked(source + "-shm", WAL_INDEX_USERS)


def is_locked(path: str, region: tuple[int, int]) -> bool:
    """Whether another process holds a lock in a region; no lock is taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        import fcntl

        # struct flock; BSD and macOS order its members differently.
        layout = "@hhqqi4x" if sys.platform.startswith("linux") else "@qqihh"
        write, start, length = fcntl.F_WRLCK, *region
        lock = (write, 0, start, length, 0) if layout[1] == "h" else (start, length, 0, write, 0)
        answer = struct.unpack(
            layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *lock))
        )
        return bool(answer[0 if layout[1] == "h" else 3] != fcntl.F_UNLCK)
    except (ImportError, OSError):  # without such locks an existing WAL index counts as one
        return path.endswith("-shm")
    finally:
        os.close(descriptor)


def connect(path: str, mode: str, busy_s: float = 0) -> sqlite3.Connection:
    """A connection that runs no code of the store."""
    # Every octet as a number, so that none has a meaning in a URI.
    octets = "".join(f"%{octet:02X}" for octet in os.fsencode(path))
    uri = f"file:{octets}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def begin_reading(connection: sqlite3.Connection) -> None:
    """Take the read lock now, so that a store that stays locked is an error."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def by_bytes_under_a_lock(source: str, target: str, busy_s: float) -> None:
    """Copy bytes while a shared lock keeps every writer of a rollback-mode store out."""
    with closing(connect(source, "mode=ro", busy_s)) as connection:
        try:
            begin_reading(connection)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Problem("busy", str(error)) from error
            if not os.path.exists(source + "-journal"):  # noqa: PTH110
                raise
            # A writer died in a transaction: its journal must be rolled back, on the copy.
            by_stable_bytes(source, target)
            return
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            raise Problem("busy", "its journal mode is being changed")
        shutil.copyfile(source, target)


def by_backup(source: str, target: str, busy_s: float) -> None:
    """Copy the pages of one read transaction, while others may write in WAL mode."""
    try:
        with closing(connect(source, "mode=ro", busy_s)) as connection:
            begin_reading(connection)
            with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=OFF")
                copy.execute("PRAGMA synchronous=OFF")
                connection.backup(copy)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Problem("busy", str(error)) from error
        if "unable to open" not in str(error) and "readonly" not in str(error):
            raise
        # The index of the WAL cannot be used (a read-only mount), but stable bytes can.
        by_stable_bytes(source, target)


def by_stable_bytes(source: str, target: str) -> None:
    """Copy the store and its log as bytes, repeatedly until nothing changed meanwhile."""
    for attempt in range(N_TRIES):
        before = signature(source)
        for ending in ("", "-wal", "-journal"):
            if os.path.exists(source + ending):  # noqa: PTH110
                shutil.copyfile(source + ending, target + ending)
            elif os.path.exists(target + ending):  # noqa: PTH110
                os.unlink(target + ending)  # noqa: PTH108
        if signature(source) == before:
            break
        time.sleep(0.1 * 2**attempt)
    else:
        raise Problem("busy", "it kept changing while it was copied")
    if names_another_file(target + "-journal"):
        raise Problem("damaged", "its rollback journal names another file, which is not followed")
    # The log becomes part of the copy; a journal is rolled back.
    with closing(connect(target, "mode=rw")) as copy:
        copy.execute("PRAGMA journal_mode=DELETE").fetchone()
        copy.execute("SELECT count(*) FROM sqlite_master").fetchone()


def names_another_file(journal: str) -> bool:
    """Whether a journal ends with the name of a super-journal, by its last bytes."""
    try:
        with open(journal, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(SUPER_JOURNAL)))
            return file.read() == SUPER_JOURNAL
    except FileNotFoundError:
        return False


def signature(source: str) -> list[tuple[int, int, int, int] | None]:
    """File numbers, sizes and times of the store and its logs, which change with each write."""
    stats: list[tuple[int, int, int, int] | None] = []
    for ending in ("", "-wal", "-journal"):
        try:
            status = os.stat(source + ending)  # noqa: PTH116
        except FileNotFoundError:
            stats.append(None)
        else:
            stats.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return stats


def state(source: str, is_live: bool) -> str | None:
    """A text that changes with each commit and each replaced file; None where it might not.

    A commit increments a counter in the header, in WAL mode in the header of the log's index,
    which SQLite's own readers use. Sizes and times alone are not enough: two commits may fall
    into one tick of the file system's clock.
    """
    try:
        log, index = (first_octets(source + ending) for ending in ("-wal", "-shm"))
        files = signature(source)
        # The two copies of the header differ while one is being written.
        if index[:INDEX_HEADER] != index[INDEX_HEADER : 2 * INDEX_HEADER]:
            return None
        header = first_octets(source)
        is_wal = header[18:20] == b"\2\2"
        if (log or is_wal) and not (log and index):
            # Commits of writers in exclusive mode, and those merged from a log when a store is
            # closed, need not change these headers. Then only the time proves anything.
            newest_ns = max(status[2] for status in files if status is not None)
            if time.time_ns() - newest_ns < TICK_NS:
                return None
        octets = (header, log[:32], index[:INDEX_HEADER])
        # Opening a store as root changes the owner of its logs, and so their last time.
        logs = [status and status[:3] for status in files[1:]]
        return repr((is_live, files[0], logs, octets))
    except (OSError, Problem):
        return None


def first_octets(path: str) -> bytes:
    """The first 100 bytes of a file; empty where there is no file."""
    try:
        return beginning(path, 100)
    except FileNotFoundError:
        return b""


def contents(target: str) -> dict[str, Any]:
    """Tables with rows, with their columns and the name of their row number."""
    if missing := missing_bytes(target):
        raise Problem("truncated", missing)
    with closing(connect(target, "immutable=1")) as copy:
        copy.text_factory = bytes
        tables: dict[str, Any] = {}
        others: dict[str, str] = {}
        illegible: list[str] = []
        query = "SELECT name, type, rootpage FROM sqlite_master WHERE type IN ('table', 'view')"
        for raw, kind, root in copy.execute(query).fetchall():
            try:
                name = lower(raw)
            except UnicodeDecodeError:
                illegible.append(raw.decode(errors="backslashreplace"))
                continue
            if kind == b"view" or not root:
                others[name] = "a view" if kind == b"view" else VIRTUAL_TABLE
                continue
            # Virtual generated columns (2) run the store's own expressions: not read.
            declared: dict[str, str] = {}
            for row in copy.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall():
                try:
                    column = lower(row[1])
                except UnicodeDecodeError:
                    illegible.append(f"{name}.{row[1].decode(errors='backslashreplace')}")
                    continue
                if row[6] in (0, 3):
                    declared[column] = row[2].decode(errors="replace")
            tables[name] = {
                "root": root,
                "columns": list(declared),
                "texts": [column for column, kind in declared.items() if keeps_text(kind)],
                "rowid": rowid_name(copy, name, list(declared)),
            }
        encoding = copy.execute("PRAGMA encoding").fetchone()[0].decode()
    return {"tables": tables, "others": others, "illegible": illegible, "encoding": encoding}


def lower(name: bytes) -> str:
    """A name in lower case, as readers use it: SQLite ignores the case of ASCII letters.

    A name that is no plain word is not used by any reader, and stays as it is.
    """
    is_word = name.replace(b"_", b"").isalnum()
    return (name.lower() if is_word else name).decode()


def missing_bytes(path: str) -> str:
    """The present and the promised number of bytes in words; empty if none are missing."""
    with open(path, "rb") as file:  # noqa: PTH123
        n_bytes, size = promised_bytes(file.read(100)), os.fstat(file.fileno()).st_size
    return f"{size} of {n_bytes} bytes are there" if n_bytes > size else ""


def promised_bytes(header: bytes) -> int:
    """The size of a store by its header; 0 where that is not kept."""
    page_size = int.from_bytes(header[16:18], "big")
    n_pages = int.from_bytes(header[28:32], "big")
    # The number of pages is only kept by versions that also keep the second of these.
    is_kept = header[24:28] == header[92:96]
    n_bytes = n_pages * (65536 if page_size == 1 else page_size)
    return n_bytes if is_kept else 0


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def keeps_text(declared: str) -> bool:
    """Whether a column of a declared type stores numbers as text (SQLite's affinity)."""
    kind = declared.upper()
    return "INT" not in kind and any(word in kind for word in ("CHAR", "CLOB", "TEXT"))


def rowid_name(copy: sqlite3.Connection, table: str, columns: list[str]) -> str | None:
    """The name of a table's row number; None where it has none."""
    taken = {column.lower() for column in columns}
    free = [name for name in ("rowid", "_rowid_", "oid") if name not in taken]
    try:
        copy.execute(f"SELECT {free[0]} FROM {quoted(table)} LIMIT 0")
    except (IndexError, sqlite3.OperationalError):
        return None
    return free[0]


def checked(target: str) -> dict[str, Any]:
    """Damage that SQLite's quick check finds in the copy, and tables that were not checked."""
    limit = time.monotonic() + CHECK_S + CHECK_S_PER_GB * os.path.getsize(target) / 1e9  # noqa: PTH202
    with closing(connect(target, "immutable=1")) as copy:
        copy.text_factory = lambda octets: octets.decode(errors="replace")
        copy.execute("PRAGMA cell_size_check=ON")
        copy.execute("PRAGMA ignore_check_constraints=ON")
        copy.execute("PRAGMA mmap_size=2147418112")
        copy.set_progress_handler(lambda: time.monotonic() > limit, 10_000)
        try:
            damage, unchecked = look_for_damage(copy)
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            damage, unchecked = [], ["*"]
    return {"damage": damage, "unchecked": unchecked}


def look_for_damage(copy: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """Damaged pages, and the tables that cannot be checked."""
    # Views and virtual tables have no pages, and to read their columns may run code.
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    names = [name for (name,) in copy.execute(query).fetchall() if ILLEGIBLE not in name]
    # The check runs the expressions of virtual generated columns, which may do anything.
    unchecked = [name for name in names if computes(copy, name)]
    if not unchecked:
        bad_pages = damage(copy, "PRAGMA quick_check(20)")
        if bad_pages is not None:
            return bad_pages, []
    everything: list[str] = []
    for name in names:
        if name in unchecked:
            continue
        bad_pages = damage(copy, f"PRAGMA quick_check({quoted(name)})")
        if bad_pages is None:
            unchecked.append(name)
        else:
            everything += bad_pages
    return everything, unchecked


def computes(copy: sqlite3.Connection, table: str) -> bool:
    """Whether a table has columns that are computed when they are read."""
    columns = copy.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    return any(hidden == VIRTUAL for *_, hidden in columns)


def damage(copy: sqlite3.Connection, check: str) -> list[str] | None:
    """Damage found by a check that affects reading; None where the check could not be run."""
    try:
        lines = [row[0] for row in copy.execute(check)]
    except sqlite3.DatabaseError as error:
        # The low byte is the kind of error, the others are details.
        kind = error.sqlite_errorcode & 0xFF
        if kind in DAMAGED:
            return [str(error)]
        if kind in REFUSED:
            return None
        raise
    return [
        line
        for text in lines
        for line in str(text).splitlines()
        if line not in ("ok", "")
        and not line.startswith("***")
        and not any(h in line for h in HARMLESS)
    ]
