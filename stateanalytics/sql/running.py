"""Run one query over named tables in another process, and give its result as a frame.

A worker process that has answered is kept for the next query. Two threads that query at the
same time have one each. No worker outlives this process, and a fork of it starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import pickle
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

import polars as pl

from stateanalytics.core.redaction import as_pairs
from stateanalytics.core.schema import FRAMES
from stateanalytics.core.shapes import words_of_columns
from stateanalytics.errors import (
    ArgumentError,
    MaskedWarning,
    QueryError,
    QueryRefusedError,
    QueryTimeoutError,
    TruncatedWarning,
    check_number,
)
from stateanalytics.io.processes import PrivateFolder, isolated, make_private_folder
from stateanalytics.io.refusals import no_room
from stateanalytics.sql.engine import Parameters, TableFile, packed
from stateanalytics.sql.functions import MEMORY_BYTES
from stateanalytics.sql.parsing import TableText, broken_down, check_text, too_slow
from stateanalytics.sql.worker import Read, Run, Start
from stateanalytics.systems import detail_frames

# The engine ends a query at its limit, as a rule; its process is killed this much later.
_GRACE = 0.25
_LEAST_GRACE_S, _MOST_GRACE_S = 0.1, 1.0
_START_S = 120.0
_POLL_S = 0.1  # Ctrl-C interrupts no wait, so that waits are short
_MOST_IDLE = 2
_ERRORS = {kind.__name__: kind for kind in (QueryError, QueryRefusedError, QueryTimeoutError)}


@dataclass(frozen=True, eq=False)
class Table(TableText):
    """One table that queries may name.

    Attributes
    ----------
    load : callable, optional
        Gives the rows; called when a query names the table.
    merged : set of str
        Columns in which masking made different texts equal; known once the rows are loaded.
    """

    load: Callable[[], pl.DataFrame] | None = None
    merged: set[str] = field(default_factory=set, repr=False)
    _written: list[TableFile] = field(default_factory=list, repr=False)

    def file(self, name: str) -> TableFile:
        """The rows as a file, which is written when first needed and deleted with this table.

        Raises
        ------
        NoRoomError
            If they do not fit into the folder for temporary files.
        """
        if not self._written or not Path(self._written[-1].path).exists():
            assert self.load is not None
            frame = self.load()
            path = _new_file()
            weakref.finalize(self, _delete, path, os.getpid())
            try:
                # As a stream, for which polars needs no threads: a fork has none.
                frame.write_ipc_stream(path)
            except OSError as error:
                reason = f"the system reports: {error!s:.200}"
                raise no_room(f"table {name}", reason, int(frame.estimated_size())) from error
            self._written.append(TableFile(str(path), words_of_columns(frame.schema)))
        return self._written[-1]


def run(
    query: str,
    params: Parameters,
    tables: Mapping[str, Table],
    *,
    as_of: datetime,
    max_rows: int,
    timeout_s: float,
    memory_bytes: int = MEMORY_BYTES,
) -> pl.DataFrame:
    """Run one query over named tables.

    Parameters
    ----------
    query : str
        One statement that selects.
    params : mapping, sequence or None
        Values for ``$name`` or for ``?``.
    tables : mapping of str to Table
        Everything that the query may name.
    as_of : datetime
        What the SQL function ``as_of()`` gives.
    max_rows : int
        Rows that are kept; a longer result is cut and a `TruncatedWarning` given.
    timeout_s : float
        Seconds for the query itself, beginning with the check of its text; loading the tables
        it names does not count.
    memory_bytes : int
        Memory that the query may take.

    Returns
    -------
    polars.DataFrame, shape (at most max_rows, ...)
        The second column of a name gets ``_1`` appended, and so on.

    Raises
    ------
    QueryError, QueryRefusedError, QueryTimeoutError
        If the query is wrong, is refused, or is too slow.
    ArgumentError
        If a limit is no positive number.
    NoRoomError
        If a table or the result does not fit into the folder for temporary files.
    """
    check_number("max_rows", max_rows, 10_000, least=1, is_whole=True)
    check_number("timeout_s", timeout_s, 30, is_above=True)
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes < 2**20:
        problem = f"memory_bytes must be at least {2**20:,} bytes; found {memory_bytes!r}."
        raise ArgumentError(problem, "memory_bytes=2 * 1024**3")
    known = {
        name: TableText(table.columns, table.left_out, table.view) for name, table in tables.items()
    }
    read = Read(
        *(check_text(query), packed(params), known, _ranked(), as_of, timeout_s, memory_bytes)
    )
    grace_s = min(max(_GRACE * timeout_s, _LEAST_GRACE_S), _MOST_GRACE_S)
    with WORKERS.borrowed() as process:
        began = time.monotonic()
        needed = process.ask(read, timeout_s + grace_s, read)["tables"]
        left_s = max(0.001, timeout_s - (time.monotonic() - began))
        files = {name: tables[name].file(name) for name in needed}
        with _temporary_file() as path:
            message = Run(files, str(path), max_rows, left_s)
            result = _as_frame(path, process.ask(message, left_s + grace_s, read)["columns"])
    merged = [
        f"{name}.{column}"
        for name in files
        for column in sorted(tables[name].merged)
        if re.search(rf"(?i)(?<!\w){re.escape(column)}(?!\w)", query)
    ]
    if merged:
        warnings.warn(
            MaskedWarning(
                f"What looks like a secret is masked in {', '.join(merged)}, so that different "
                "values are equal there: joins, groups and DISTINCT treat them as equal. "
                "redact=False keeps them apart."
            ),
            stacklevel=3,
        )
    if result.height > max_rows:
        warnings.warn(
            TruncatedWarning(
                f"The result was truncated: these are its first {max_rows:,} rows. "
                "Ask for more with max_rows=…, or aggregate in the query."
            ),
            stacklevel=3,
        )
    return result.head(max_rows)


@functools.cache
def _ranked() -> frozenset[str]:
    """Columns whose words have a rank, in any frame."""
    frames = (*FRAMES.values(), *detail_frames().values())
    return frozenset(name for frame in frames for name in words_of_columns(frame.dtypes))


def _new_file() -> Path:
    handle, path = tempfile.mkstemp(".rows", dir=WORKERS.folder())
    os.close(handle)
    return Path(path)


@contextlib.contextmanager
def _temporary_file() -> Iterator[Path]:
    path = _new_file()
    try:
        yield path
    finally:
        _delete(path, os.getpid())


def _delete(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a fork does not own it
        with contextlib.suppress(OSError):
            path.unlink()


def _as_frame(path: Path, columns: Sequence[tuple[str, list[str] | None]]) -> pl.DataFrame:
    """A result as a frame of our dtypes, with unique names of columns."""
    frame = pl.read_ipc_stream(path.read_bytes())
    names = _unique([name for name, _ in columns])
    return pl.DataFrame(
        [
            _typed(column, words).alias(name)
            for column, name, (_, words) in zip(frame.get_columns(), names, columns, strict=True)
        ]
    )


def _typed(column: pl.Series, words: list[str] | None) -> pl.Series:
    if words is not None:
        return column.cast(pl.Enum(words))
    if column.dtype == pl.Null:
        return column.cast(pl.String)
    if column.dtype.is_decimal():
        whole = column.cast(pl.Int64, strict=False)
        return whole if whole.null_count() == column.null_count() else column.cast(pl.Float64)
    return as_pairs(column)


def _unique(names: Sequence[str]) -> list[str]:
    """Names of columns, the second of a name with ``_1`` appended, and so on."""
    taken: list[str] = []
    for name in names:
        candidates = chain([name], (f"{name}_{number}" for number in count(1)))
        taken.append(next(candidate for candidate in candidates if candidate not in taken))
    return taken


class WorkerProcess:
    """A process that runs queries.

    Attributes
    ----------
    pid : int
        Its process id.
    is_spent : bool
        Whether it must not get another query: it is late, dead, or keeps memory.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            isolated("stateanalytics.sql.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert isinstance(self._process.stdout, io.BufferedReader)
        # Without its buffer, whose lock a fork would inherit from the thread that reads.
        output, self._process.stdout = self._process.stdout.detach(), None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(output, self._answers), daemon=True).start()
        self.pid = self._process.pid
        self.end = weakref.finalize(self, _end, self._process, os.getpid())
        self.is_spent = True
        libraries = [entry for entry in sys.path if Path(entry).is_absolute()]
        answer, _ = self._exchange(Start(libraries, str(folder)), _START_S)
        if answer is None:
            self.end()
            raise QueryError(
                "The process that runs queries did not start.",
                f"{sys.executable} -c 'import duckdb, nanoarrow, polars' shows why",
            )

    def is_alive(self) -> bool:
        """Whether it can get a query."""
        return not self.is_spent and self._process.poll() is None

    def ask(self, message: Read | Run, within_s: float, query: Read) -> dict[str, Any]:
        """The answer to a message; kills the process if there is none in time.

        Raises
        ------
        QueryError
            If the query failed.
        """
        answer, is_late = self._exchange(message, within_s)
        if answer is None:
            self.end()
            if is_late:
                raise too_slow(query.timeout_s)
            raise broken_down(self._process.returncode, query.memory_bytes)
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["problem"], answer["hint"], shell=answer["shell"])
        return answer

    def _exchange(
        self, message: Start | Read | Run, within_s: float
    ) -> tuple[dict[str, Any] | None, bool]:
        """The answer, if there is one, and whether the process was killed because it was late."""
        self.is_spent = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a dead process: there will be no answer
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        until = time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            try:
                line = self._answers.get(timeout=min(left_s, _POLL_S))
            except queue.Empty:
                continue
            answer = json.loads(line) if line else {"is_spent": True}
            self.is_spent = answer.pop("is_spent")
            return (answer if line else None), False
        self._process.kill()
        return None, True


def _listen(output: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Put every line into a queue: waiting for a queue can have a limit, unlike for a pipe."""
    rest = b""
    with output:
        while piece := output.read(2**16):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                answers.put(line)
    answers.put(b"")


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() == starter:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # a fork owns only its end of the pipe
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # unwritten data are dropped
        process.stdin.close()


class _Workers:
    """Idle workers of this process, and the folder for files that they get and give."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty; in a fork, the parent keeps the workers."""
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._folder: PrivateFolder | None = None

    def folder(self) -> Path:
        """The private folder for files that a worker gets and gives."""
        with self._lock:
            # A cleaner of temporary files may have deleted it.
            if self._folder is None or not self._folder.path.is_dir():
                self._folder = make_private_folder()
                atexit.register(_delete_folder, self._folder, os.getpid())
            return self._folder.path

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[WorkerProcess]:
        """A worker process, for the time of one query."""
        worker = self._idle_worker() or WorkerProcess(self.folder())
        try:
            yield worker
        finally:
            with self._lock:
                is_kept = worker.is_alive() and len(self._idle) < _MOST_IDLE
                if is_kept:
                    self._idle.append(worker)
            if not is_kept:
                worker.end()

    def _idle_worker(self) -> WorkerProcess | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.end()


def _delete_folder(folder: PrivateFolder, maker: int) -> None:
    if os.getpid() == maker:
        folder.delete()


WORKERS = _Workers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKERS.forget)
