"""One query, run in a DuckDB of its own that sees the snapshot and nothing else."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.errors import ArgumentError, QueryError, TruncatedWarning
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.functions import LONGEST_TEXT, MEMORY_BYTES, MOST_GROWTH, RESULT_BYTES
from stateanalytics.sql.guard import read_query
from stateanalytics.sql.parsing import from_arrow, in_our_words, too_large, too_slow
from stateanalytics.sql.values import Parameters, as_frame, bound, check_shape, projection

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


_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
    "memory_limit": f"{MEMORY_BYTES // 1024**2}MiB",
}

# Stand-ins for functions that build long values: (name, arguments, what is too long, call).
# Constants are folded from the inside out, also in a branch that is never taken, and a macro
# copies its arguments; so each argument stands in its macro once, as the value of a lambda.
_BOUNDED = (
    *(
        (name, "x, n, pad", "n", f"n > {LONGEST_TEXT}", f"{name}(x, least(n, {LONGEST_TEXT}), pad)")
        for name in ("lpad", "rpad")
    ),
    (
        "repeat",
        "x, n",
        "n x",
        f"n > {LONGEST_TEXT} OR n * strlen(x::VARCHAR) > {MOST_GROWTH}",
        f"repeat(x, least(n, {LONGEST_TEXT}))",
    ),
    (
        "replace",
        "x, a, b",
        "x a b",
        # The number of places is counted, since most long texts hold few.
        "strlen(b) > strlen(a) AND (strlen(x) - strlen(system.main.replace(x, a, ''))) "
        f"// greatest(strlen(a), 1) * (strlen(b) - strlen(a)) > {MOST_GROWTH}",
        "replace(x, a, b)",
    ),
)
_LONG_MATCHES = f"strlen(b) > 1 AND (strlen(x) + 1) * strlen(b) > {MOST_GROWTH}"


@dataclass(frozen=True)
class Table:
    """One table that queries may name.

    Attributes
    ----------
    columns : tuple of str
        For messages; empty where they are known only once it is loaded.
    load : callable, optional
        Gives its rows; called when a query names the table.
    view : str, optional
        Instead of rows: SQL over other tables.
    left_out : tuple of str
        Columns that hold bodies, which were not read.
    """

    columns: tuple[str, ...]
    load: Callable[[], pl.DataFrame] | None = None
    view: str | None = None
    left_out: tuple[str, ...] = ()


def run(
    query: str,
    params: Parameters,
    tables: Mapping[str, Table],
    *,
    as_of: datetime,
    max_rows: int,
    timeout_s: float,
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
        Seconds for the query itself; loading the tables it names does not count.

    Returns
    -------
    polars.DataFrame, shape (at most max_rows, ...)
        Columns of the same name are told apart by ``_1``, ``_2`` ….

    Raises
    ------
    QueryError, QueryRefusedError, QueryTimeoutError
        As their names say.
    ArgumentError
        If a limit is no positive number.
    """
    import duckdb

    _check_limits(max_rows, timeout_s)
    connection = _connect(as_of)
    try:
        reading = read_query(query, {name: t.columns for name, t in tables.items()}, connection)
        values = bound(params, reading.parameters)
        _provide(connection, reading.tables, tables, set())
        _close_the_door(connection, timeout_s)
    except BaseException:
        connection.close()
        raise
    named = [tables[name] for name in reading.tables]
    try:
        result, names, types = Job(connection, reading, values, max_rows).wait(timeout_s)
    except duckdb.Error as error:
        raise in_our_words(error, named) from None
    if result.num_rows > max_rows:
        warnings.warn(
            TruncatedWarning(
                f"The result was truncated: these are its first {max_rows:,} rows. "
                "Ask for more with max_rows=…, or aggregate in the query."
            ),
            stacklevel=3,
        )
    return as_frame(result.slice(0, max_rows), names, types)


def _check_limits(max_rows: int, timeout_s: float) -> None:
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
        raise ArgumentError(f"max_rows counts rows, from 1; found {max_rows!r}.", "max_rows=10_000")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise ArgumentError(f"timeout_s is seconds; found {timeout_s!r}.", "timeout_s=30")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ArgumentError(
            f"timeout_s is more than 0 seconds; found {timeout_s!r}.", "timeout_s=30"
        )


def _connect(as_of: datetime) -> DuckDBPyConnection:
    """An engine of its own, with the functions that stand in for the clock and the unbounded."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    moment = as_of.astimezone(UTC).isoformat(" ")
    connection.execute(f"CREATE MACRO as_of() AS TIMESTAMPTZ '{moment}'")
    for name, arguments, once, is_long, call in _BOUNDED:
        body = _bounded(name, once.split(), is_long, call)
        connection.execute(f"CREATE MACRO {name}({arguments}) AS {body}")
    # A pattern stays where it is: as the value of a lambda it would be read for every row.
    three, four = (
        _bounded("regexp_replace", ["x", "b"], _LONG_MATCHES, f"regexp_replace({arguments})")
        for arguments in ("x, p, b", "x, p, b, o")
    )
    connection.execute(f"CREATE MACRO regexp_replace(x, p, b) AS {three}, (x, p, b, o) AS {four}")
    return connection


def _bounded(name: str, once: Sequence[str], is_long: str, call: str) -> str:
    """SQL that makes a long value or, with few words, refuses to."""
    refusal = (
        f"{name}() makes at most {LONGEST_TEXT:,} characters, "
        f"or {MOST_GROWTH:,} bytes more than it was given"
    )
    null = " OR ".join(f"{argument} IS NULL" for argument in once)
    sql = (
        f"CASE WHEN {null} THEN NULL WHEN {is_long} THEN error('{refusal}') "
        f"ELSE system.main.{call} END"
    )
    for argument in reversed(once):
        sql = f"list_transform([{argument}], lambda {argument}: {sql})[1]"
    return sql


def _provide(
    connection: DuckDBPyConnection,
    wanted: frozenset[str],
    tables: Mapping[str, Table],
    there: set[str],
) -> None:
    """Register the tables a query names, and those that its views need."""
    for name in sorted(wanted - there):
        there.add(name)
        table = tables[name]
        if table.view is not None:
            known = {name: other.columns for name, other in tables.items()}
            needed = read_query(table.view, known, connection).tables
            _provide(connection, needed, tables, there)
            connection.execute(f"CREATE VIEW {quoted(name)} AS {table.view}")
        elif table.load is not None:
            _register(connection, name, table.load())


def _register(connection: DuckDBPyConnection, name: str, frame: pl.DataFrame) -> None:
    """Hand a frame over without a copy; its Enum columns sort by rank in SQL too."""
    hidden = f"_rows_of_{name}"
    connection.register(hidden, frame.to_arrow(compat_level=pl.CompatLevel.newest()))
    ranked = []
    for column, dtype in frame.schema.items():
        if isinstance(dtype, pl.Enum):
            words = f"ENUM({_literals(dtype.categories)})"
            # So that a query can say 'warning'::severity.
            connection.execute(f"CREATE TYPE IF NOT EXISTS {quoted(column)} AS {words}")
            ranked.append(f"CAST({quoted(column)} AS {words}) AS {quoted(column)}")
    replaced = f" REPLACE ({', '.join(ranked)})" if ranked else ""
    connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT *{replaced} FROM {quoted(hidden)}")


def _literals(words: Any) -> str:
    return ", ".join("'" + str(word).replace("'", "''") + "'" for word in words)


def _close_the_door(connection: DuckDBPyConnection, timeout_s: float) -> None:
    connection.execute(f"SET max_execution_time = {max(1, math.ceil(timeout_s * 1000))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
