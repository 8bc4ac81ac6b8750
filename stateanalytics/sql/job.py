"""One query on its own thread and connection, with a limit of time and memory."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import QueryError
from stateanalytics.sql.limits import MEMORY_BYTES, RESULT_BYTES
from stateanalytics.sql.problems import from_arrow, too_large, too_slow
from stateanalytics.sql.values import check_shape, projection

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from duckdb import DuckDBPyConnection
    from duckdb.sqltypes import DuckDBPyType

    from stateanalytics.sql.guard import Reading

_LOOK_EVERY_S = 0.05
_GRACE_S = 1.0
_BATCH_ROWS = 10_000

Result = tuple["pa.Table", "list[str]", "list[DuckDBPyType]"]


class Job:
    """A query on its own thread, so that its caller can stop waiting for it.

    DuckDB looks for an interruption between batches of rows. A single call of a function
    may take longer than that; then the caller gets the error in time, and the thread ends
    when the call does. The connection is this job's alone: stopping it stops nothing else.

    Until then such a call goes on, and may take memory beyond the limit. The check of the
    text bounds the functions that build long values, the levels of a query and the types
    of its result; what it cannot bound is what several of those make together: lists whose
    every element is a long text, ``x || x`` from level to level, wide structs of structs.
    The command line ends its process with the error; in Python, run queries of strangers in
    a process of their own, with a limit of memory.
    """

    def __init__(
        self,
        connection: DuckDBPyConnection,
        reading: Reading,
        values: dict[str, Any] | list[Any] | None,
        max_rows: int,
    ) -> None:
        self._connection = connection
        self._reading = reading
        self._values = values
        self._max_rows = max_rows
        self._done = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._work, name="stateanalytics-sql", daemon=True).start()

    def wait(self, timeout_s: float) -> Result:
        """The result, or the error, within the time limit."""
        import duckdb
        import pyarrow as pa

        problem = self._watch(timeout_s)
        if problem is not None:
            self._stop()
            raise problem
        if self._result is not None:
            return self._result
        error = self._error
        self._error = None  # or error, traceback and job would keep each other alive
        if isinstance(error, duckdb.InterruptException):
            raise too_slow(timeout_s)
        if isinstance(error, pa.ArrowException | OSError | MemoryError | RecursionError):
            raise from_arrow(error, timeout_s) from None
        raise error if error is not None else QueryError("The query gave no result.")

    def _watch(self, timeout_s: float) -> QueryError | None:
        """Wait for the end; what is wrong if it does not come in time or in memory."""
        deadline = time.monotonic() + timeout_s
        enough = _resident_bytes() + 2 * MEMORY_BYTES
        try:
            while not self._done.wait(max(0.0, min(_LOOK_EVERY_S, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    return too_slow(timeout_s)
                if _resident_bytes() > enough:
                    return too_large(MEMORY_BYTES)
        except BaseException:  # Ctrl-C: the query must not go on behind the prompt
            self._stop()
            raise
        return None

    def _stop(self) -> None:
        import duckdb

        deadline = time.monotonic() + _GRACE_S
        while not self._done.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(duckdb.Error):
                self._connection.interrupt()
            self._done.wait(0.02)

    def _work(self) -> None:
        try:
            self._result = self._rows()
        except BaseException as error:  # wait() raises it again
            self._error = error.with_traceback(None)
        finally:
            self._connection.close()
            self._done.set()

    def _rows(self) -> Result:
        import pyarrow as pa

        relation = self._connection.sql(self._reading.sql, params=self._values)
        names, types = list(relation.columns), list(relation.types)
        check_shape(types)
        shaped = relation.project(projection(types)).limit(self._max_rows + 1)
        reader = shaped.to_arrow_reader(_BATCH_ROWS)
        batches, n_bytes = [], 0
        for batch in reader:
            batches.append(batch)
            n_bytes += batch.nbytes
            if n_bytes > RESULT_BYTES:
                raise too_large(RESULT_BYTES)
        return pa.Table.from_batches(batches, schema=reader.schema), names, types


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError, ValueError):
        return 0
