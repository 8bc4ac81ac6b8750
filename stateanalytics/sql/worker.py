"""The process that runs queries: one at a time, each in a DuckDB of its own.

`running` starts it. It may be killed at any moment, which frees what a query took: so a limit
of time or memory holds wherever the engine is, in its parser, its planner or a single call that
nothing interrupts. It ends when the process that started it does, which closes its input.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from stateanalytics.errors import QueryError
from stateanalytics.io.processes import delete_if_abandoned, limit_process
from stateanalytics.sql import engine
from stateanalytics.sql.functions import RESULT_BYTES
from stateanalytics.sql.guard import Reading, read_query
from stateanalytics.sql.parsing import TableText, as_our_error, from_arrow, too_slow

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

# What the engine does not count itself: its plans, batches on their way, its threads.
_UNCOUNTED_BYTES = 256 * 1024**2
# What the allocator may keep after a query; with more, the process gets no other one.
_KEPT_BYTES = 256 * 1024**2
_MOST_TABLE_BYTES = 2 * 2**30
"""Tables that are kept for the next query; a larger one is read for each query."""
_RELEASE_EVERY_S = 60.0
_LOCK_GOES_WITHIN_S = 2.0


class Start(NamedTuple):
    """The first message: paths of libraries, and the folder of the sender."""

    libraries: list[str]
    folder: str


class Read(NamedTuple):
    """Check a query; the answer names the tables whose rows it needs."""

    query: str
    params: bytes
    known: Mapping[str, TableText]
    ranked: frozenset[str]
    as_of: datetime
    timeout_s: float
    memory_bytes: int


class Run(NamedTuple):
    """Run the query of the last `Read`; the answer names the columns of the result."""

    files: Mapping[str, engine.TableFile]
    result: str
    max_rows: int
    left_s: float


def main() -> None:
    """Answer messages until their sender ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    messages, answers = _pipes()
    start: Start = pickle.load(messages)
    sys.path[:] = start.libraries
    waiting: queue.SimpleQueue[Read | Run] = queue.SimpleQueue()
    threading.Thread(
        target=_listen, args=(messages, waiting, Path(start.folder)), daemon=True
    ).start()
    query = _Query()
    query.prepare()
    engine.warm_up()
    at_rest = _data_bytes()
    limit_process()
    answer: dict[str, Any] = {}
    while True:
        answer["is_spent"] = _data_bytes() - at_rest - query.tables.data_bytes > _KEPT_BYTES
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        query.prepare()
        message = _next(waiting, query.tables)
        # Memory that the engine does not count is limited where the system can.
        if at_rest and isinstance(message, Read):
            most_bytes = at_rest + message.memory_bytes + _UNCOUNTED_BYTES
            limit_process(RLIMIT_DATA=most_bytes + query.tables.data_bytes)
        elif at_rest and isinstance(message, Run):
            # The bytes of a file, the frame made of them, and that frame in one piece.
            new = 3 * sum(map(_size, query.tables.unread(message.files.values())))
            limit_process(RLIMIT_DATA=most_bytes + query.tables.data_bytes + new)
        answer = query.answer(message)


def _next(waiting: queue.SimpleQueue[Read | Run], tables: _Tables) -> Read | Run:
    """The next message; while waiting, release tables of snapshots that were closed."""
    while True:
        with contextlib.suppress(queue.Empty):
            message = waiting.get(timeout=_RELEASE_EVERY_S)
            if isinstance(message, Read):
                tables.release()
            return message
        tables.release()


class _Kept(NamedTuple):
    """The rows of a table, the size of its file, and by how much this process grew with them."""

    rows: pl.DataFrame
    file_bytes: int
    data_bytes: int


class _Tables:
    """Rows that were read for a query, kept for the next one that names the same table."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    @property
    def data_bytes(self) -> int:
        """By how much this process grew for them."""
        return sum(kept.data_bytes for kept in self._kept.values())

    def unread(self, files: Iterable[engine.TableFile]) -> list[engine.TableFile]:
        """The files that have not been read."""
        return [file for file in files if file.path not in self._kept]

    def rows(self, file: engine.TableFile) -> pl.DataFrame:
        """The rows of a file, which is then the last to be released."""
        kept = self._kept.pop(file.path, None)
        if kept is None:
            before = _data_bytes()
            kept = _Kept(engine.read_rows(file), _size(file), max(0, _data_bytes() - before))
        self._kept[file.path] = kept
        return kept.rows

    def release(self, most_bytes: float = math.inf) -> None:
        """Drop rows of deleted files, and the oldest rows beyond this many bytes of files."""
        left = most_bytes
        for path, kept in reversed(list(self._kept.items())):
            left -= kept.file_bytes
            if left < 0 or not Path(path).exists():
                del self._kept[path]


def _pipes() -> tuple[IO[bytes], IO[str]]:
    """Both pipes of the parent, moved away from standard input and output."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    ends = os.dup(0), os.dup(1)
    for standard in (0, 1):
        os.dup2(nowhere, standard)
    return os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "w", encoding="ascii")


def _listen(messages: IO[bytes], waiting: queue.SimpleQueue[Read | Run], folder: Path) -> None:
    with contextlib.suppress(Exception):  # half a message: the sender was killed
        while True:
            waiting.put(pickle.load(messages))
    # A killed process closes its pipes before it releases its lock.
    until = time.monotonic() + _LOCK_GOES_WITHIN_S
    while not delete_if_abandoned(folder, young_s=-1) and time.monotonic() < until:
        time.sleep(0.05)
    os._exit(0)


class _Query:
    """One query, from its check to its result."""

    def __init__(self) -> None:
        self.tables = _Tables()
        self._fresh: DuckDBPyConnection | None = None
        self._connection: DuckDBPyConnection | None = None
        self._asked: Read | None = None
        self._reading: Reading | None = None

    def prepare(self) -> None:
        """Have an engine ready before somebody waits for it."""
        self._fresh = self._fresh or engine.connect()

    def answer(self, message: Read | Run) -> dict[str, Any]:
        """The answer to a message, or the error that it ends with."""
        try:
            return self._read(message) if isinstance(message, Read) else self._run(message)
        except Exception as error:
            self._clear()
            refusal = self._as_our_error(error)
        return {
            "error": type(refusal).__name__,
            "problem": refusal.problem,
            "hint": refusal.hint,
            "shell": refusal.shell,
        }

    def _clear(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _read(self, read: Read) -> dict[str, Any]:
        began = time.monotonic()
        self._clear()
        self._asked, self._reading = read, None
        connection, self._fresh = self._fresh or engine.connect(), None
        self._connection = connection
        connection.execute(f"SET memory_limit = '{read.memory_bytes // 1024}KiB'")
        moment = read.as_of.astimezone(UTC).isoformat(" ")
        connection.execute(f"CREATE MACRO as_of() AS TIMESTAMPTZ '{moment}'")
        columns = {name: table.columns for name, table in read.known.items()}
        self._reading = read_query(read.query, columns, connection, ranked=read.ranked)
        self._values = engine.bind(engine.unpacked(read.params), self._reading.parameters)
        self._tables = engine.load_order(self._reading.tables, read.known, connection)
        if time.monotonic() - began > read.timeout_s:
            raise too_slow(read.timeout_s)
        return {"tables": [name for name in self._tables if read.known[name].view is None]}

    def _run(self, run: Run) -> dict[str, Any]:
        assert self._asked is not None
        assert self._connection is not None
        assert self._reading is not None
        rows = {name: (self.tables.rows(file), file) for name, file in run.files.items()}
        engine.add_tables(self._connection, self._tables, self._asked.known, rows)
        del rows
        self.tables.release(_MOST_TABLE_BYTES)
        engine.lock_down(self._connection, run.left_s)
        columns = engine.write_rows(
            self._connection,
            self._reading.sql,
            self._values,
            run.result,
            max_rows=run.max_rows,
            max_bytes=min(RESULT_BYTES, self._asked.memory_bytes),
        )
        self._clear()
        return {"columns": columns}

    def _as_our_error(self, error: Exception) -> QueryError:
        import duckdb
        import polars as pl

        assert self._asked is not None
        timeout_s, memory_bytes = self._asked.timeout_s, self._asked.memory_bytes
        if isinstance(error, QueryError):
            return error
        if isinstance(error, duckdb.InterruptException):
            return too_slow(timeout_s)
        if isinstance(error, duckdb.Error):
            names = self._reading.tables if self._reading else ()
            return as_our_error(error, [self._asked.known[name] for name in names], memory_bytes)
        if isinstance(error, RuntimeError | pl.exceptions.PolarsError | OSError | MemoryError):
            return from_arrow(error, timeout_s, memory_bytes)
        return QueryError(f"The query cannot be run: {error!r:.400}", "write it another way")


def _size(file: engine.TableFile) -> int:
    return Path(file.path).stat().st_size


def _data_bytes() -> int:
    """The current size of what `limit_process` limits; 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[5]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
