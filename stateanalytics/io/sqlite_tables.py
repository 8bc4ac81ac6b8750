"""Tables of a store's private copy as typed frames; cells of another kind become findings.

Columns are first read as they are, on several threads; the driver looks at a whole range of
rows before it chooses types, so that a value of another kind changes the type. Only such
ranges are read a second time, through the guards of `cells`.

Routes to 35 columns of a million sessions, as multiples of the time that SQLite alone
needs to touch the same values (``python -m benchmarks.bench_load`` measures them):
this one .7 on two cores, 1.4 on one; through guards alone 1.0 and 1.9; the Arrow driver
without either 1.3, but one odd cell ends it, and so it does with connectorx (1.3, no
UTF-8 no answer, and a missing file is created); the standard library 3.8;
`polars.read_database` 3.8.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io import cells, refusals
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError, spending
from stateanalytics.io.cells import Cell, Kind, problem
from stateanalytics.io.files import decoded
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_copy import quoted

if TYPE_CHECKING:
    from nanoarrow.c_array import CArray

_MARK = b"\xff"
_DAMAGE = ("disk image is malformed", "malformed database schema", "not a database")
# A batch holds at most 2 GB of one column's text; where it is more, smaller ones do.
_BATCHES = (32_768, 64, 1)
N_THREADS = max(1, min(4, os.cpu_count() or 1))
_ROWS_WORTH_A_THREAD = 20_000

Invalid = dict[str, tuple[int, bytes]]
"""By column the number of cells that are not UTF-8, and an example."""
Problem = dict[str, object]
"""A row of `findings` without its source and system."""


class _TooMuchTextError(Exception):
    """A batch held more text of one column than its offsets can address."""


@dataclass(frozen=True)
class Plan:
    """The columns of a table that can be read, and the SQL that each is read by."""

    store: Store
    table: str
    kinds: Mapping[str, Kind]
    sql: Mapping[str, str]
    is_computed: bool

    @property
    def rowid(self) -> str | None:
        """The name of the row number; None where the table has none."""
        return self.store.rowids[self.table]

    @property
    def is_utf8(self) -> bool:
        """Whether the store keeps its text as UTF-8."""
        return self.store.encoding == "UTF-8"

    def rows(self, where: str = "") -> tuple[str, dict[str, str]]:
        """A FROM clause, and the name of each column in it."""
        # An index could answer a query in place of the table, and hide its damage.
        table = f"{quoted(self.table)} NOT INDEXED {where}"
        if not self.is_computed:
            return table, dict(self.sql)
        # Guards name a column several times; OFFSET makes SQLite compute it only once.
        inner = ", ".join(f"{sql} AS k{i}" for i, sql in enumerate(self.sql.values()))
        names = {name: f"k{i}" for i, name in enumerate(self.sql)}
        return f"(SELECT {inner} FROM {table} LIMIT -1 OFFSET 0)", names

    def scan(self, where: str, *, is_guarded: bool) -> str:
        """The SELECT over some rows, after a first row that fixes the types."""
        source, names = self.rows(where)
        # SQLite would convert an invalid mark in a UTF-16 store along with its text.
        mark = "CAST(x'ff' AS TEXT)" if self.is_utf8 else "NULL"
        seeds = [f"{cells.SCANS[kind].seed} AS c{i}" for i, kind in enumerate(self.kinds.values())]
        values = [
            (cells.SCANS[kind].guard if is_guarded or self.must_guard(name) else "{c}").format(
                c=names[name], mark=mark
            )
            for name, kind in self.kinds.items()
        ]
        types, rows = ", ".join(seeds) or "1", ", ".join(values) or "1"
        return f"SELECT {types} UNION ALL SELECT {rows} FROM {source}"

    def must_guard(self, name: str) -> bool:
        """Whether numbers would come as text in the driver's notation, not in SQLite's."""
        kind, texts = self.kinds[name], self.store.texts.get(self.table, ())
        return kind == "json" or (kind == "text" and (self.is_computed or name not in texts))


def plans(store: Store, table: str, columns: Mapping[str, Cell]) -> list[Plan]:
    """How to read those columns that can be read.

    Computed columns are scanned apart: the OFFSET that keeps SQLite from computing them
    several times would make plain columns a third slower.
    """
    existing, rowid = set(store.tables[table]), store.rowids[table]
    plain: dict[str, str] = {}
    computed: dict[str, str] = {}
    for name, cell in columns.items():
        if cell.sql is not None:
            if existing.issuperset(cell.needs):
                computed[name] = cell.sql
        elif cell.kind == "rowid":
            if rowid is not None:
                plain[name] = rowid
        elif name in existing:
            # A collation that only the store's writer defines cannot be used here.
            plain[name] = f"{quoted(name)} COLLATE BINARY"
    kinds = {name: columns[name].kind for name in (*plain, *computed)}
    planned = [
        Plan(store, table, {name: kinds[name] for name in sql}, sql, sql is computed)
        for sql in (plain, computed)
        if sql
    ]
    # Without any column the table still has a number of rows.
    return planned or [Plan(store, table, {}, {}, False)]


class Cursor:
    """Answers queries of one connection through the Arrow driver.

    The driver's own cursors import a quarter of a second of Arrow that nothing here needs.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def frame(self, query: str, batch_rows: int = _BATCHES[0]) -> pl.DataFrame:
        """All rows; the driver chooses types by the first ``batch_rows`` of them.

        Its text may not be UTF-8.
        """
        import adbc_driver_manager
        import nanoarrow as na

        with adbc_driver_manager.AdbcStatement(self.connection) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            batches = [_framed(batch) for batch in na.c_array_stream(stream)]
        return pl.concat(batches) if batches else pl.DataFrame()

    def row(self, query: str) -> tuple[Any, ...]:
        """The first row."""
        return self.frame(query, 1).row(0)


def _framed(batch: CArray) -> pl.DataFrame:
    """A batch as a frame; polars would trust offsets that have overflowed."""
    import nanoarrow as na

    try:
        columns = list(batch.view().children)
    except RuntimeError as error:
        raise _TooMuchTextError from error
    for column in columns:
        if column.storage_type in ("string", "binary"):
            offsets = [None, column.buffer(1)]
            numbers = na.c_array_from_buffers(na.int32(), column.length + 1, offsets)
            if not pl.Series(numbers).is_sorted():
                raise _TooMuchTextError
    return pl.DataFrame(batch)


@contextmanager
def one_connection(store: Store) -> Iterator[None]:
    """Let all small queries of a store share one connection until the block ends.

    To open the copy takes as long as to read a small table, and most tables are small.
    """
    with ExitStack() as closing:
        store.shared.closing = closing
        try:
            yield
        finally:
            store.shared.closing = store.shared.cursor = None


@contextmanager
def small_cursor(store: Store) -> Iterator[Cursor]:
    """A cursor for the thread that reads the store: that of `one_connection`, or its own."""
    shared = store.shared
    with _as_our_errors(store), ExitStack() as closing:
        if shared.closing is None:
            yield closing.enter_context(_connected(store))
            return
        if shared.cursor is None:
            shared.cursor = shared.closing.enter_context(_connected(store))
        yield shared.cursor


@contextmanager
def cursor_for_thread(store: Store) -> Iterator[Cursor]:
    """A cursor on the private copy with a connection of its own."""
    with _as_our_errors(store), _connected(store) as cursor:
        yield cursor


@contextmanager
def _connected(store: Store) -> Iterator[Cursor]:
    """A connection to the private copy that trusts nothing in it."""
    import adbc_driver_manager
    import adbc_driver_sqlite

    # The copy never changes, so SQLite needs no lock and looks for no log but ours.
    uri = f"file:{quote(str(store.copy))}?{'mode=ro' if store.has_log else 'immutable=1'}"
    with (
        adbc_driver_sqlite.connect(uri) as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
    ):
        cursor = Cursor(connection)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=2147418112"):
            cursor.frame(f"PRAGMA {pragma}")
        yield cursor


@contextmanager
def _as_our_errors(store: Store) -> Iterator[None]:
    """Raise errors of the driver as errors of this package."""
    import adbc_driver_manager

    try:
        yield
    except (adbc_driver_manager.Error, RuntimeError, OSError) as error:
        # After the first line the driver repeats the whole query.
        problem = str(error).split("\n")[0].split(" query: ", 1)[-1]
        if not any(words in problem for words in _DAMAGE):
            raise refusals.unreadable(store.path, problem) from error
        store.check()
        raise refusals.damaged(store.path, [problem]) from error


def row_ranges(plan: Plan, only: Collection[int] | None, cursor: Cursor) -> list[str]:
    """WHERE clauses that split the table by row number, or choose at least some of its rows."""
    name = plan.rowid
    if only is not None:
        numbers, size = sorted(only), _ROWS_WORTH_A_THREAD
        pieces = [numbers[i : i + size] for i in range(0, max(1, len(numbers)), size)]
        return [f"WHERE {name} {_choice(piece, plan)}" for piece in pieces]
    if name is None or N_THREADS == 1:
        return [""]
    table = quoted(plan.table)
    low, high = cursor.row(f"SELECT min({name}), (SELECT max({name}) FROM {table}) FROM {table}")
    if low is None or high - low < 2 * _ROWS_WORTH_A_THREAD:
        return [""]
    n_parts = min(8 * N_THREADS, (high - low) // _ROWS_WORTH_A_THREAD)
    cuts = [low + (high - low) * part // n_parts for part in range(1, n_parts)]
    return [
        f"WHERE {name} < {cuts[0]}",
        *(f"WHERE {name} >= {a} AND {name} < {b}" for a, b in pairwise(cuts)),
        f"WHERE {name} >= {cuts[-1]}",
    ]


def _choice(numbers: Sequence[int], plan: Plan) -> str:
    """A list of row numbers, or the range of them where few others lie between them.

    To parse a number of a list takes as long as to read a few rows.
    """
    n_between = numbers[-1] - numbers[0] if numbers else 0
    if n_between > (1.5 if plan.is_computed else 10) * len(numbers):
        return f"IN ({', '.join(map(str, numbers))})"
    return f"BETWEEN {numbers[0]} AND {numbers[-1]}" if numbers else "IS NULL"


def scan_unguarded(plan: Plan, where: str, cursor: Cursor) -> tuple[pl.DataFrame, Invalid] | None:
    """Rows of one range, or None where a value of another kind needs the guards."""
    # In one batch: the driver looks at a whole batch before it chooses the types. It also
    # allocates a whole batch, so the batch is as large as the range and no larger.
    n_rows = cursor.row(f"SELECT count(*) FROM {quoted(plan.table)} NOT INDEXED {where}")[0]
    try:
        frame = cursor.frame(plan.scan(where, is_guarded=False), n_rows + 1)
    except _TooMuchTextError:
        return None
    scanned = [cells.SCANS[kind].scanned for kind in plan.kinds.values()]
    if frame.dtypes != (scanned or [pl.Int64()]):
        return None
    frame, invalid = _named(plan, frame)
    is_suspicious = invalid or frame.select(cells.is_suspicious(plan.kinds)).item()
    return None if is_suspicious else (frame, invalid)


def scan_guarded(
    plan: Plan, where: str, cursor: Cursor, batches: tuple[int, ...] = _BATCHES
) -> tuple[pl.DataFrame, Invalid]:
    """Rows of one range with marks, and the text that was not UTF-8."""
    try:
        frame = cursor.frame(plan.scan(where, is_guarded=True), batches[0])
    except _TooMuchTextError:
        return scan_guarded(plan, where, cursor, batches[1:])
    return _named(plan, frame)


def _named(plan: Plan, frame: pl.DataFrame) -> tuple[pl.DataFrame, Invalid]:
    """The rows after the first, named as in the plan, and the text that was not UTF-8."""
    columns: list[pl.Series] = []
    invalid: Invalid = {}
    for name, column in zip(plan.kinds or ("",), frame.slice(1), strict=True):
        text, n_bad, example = _valid(column)
        columns.append(text.alias(name))
        if n_bad:
            invalid[name] = (n_bad, example)
    return pl.DataFrame(columns), invalid


def _valid(column: pl.Series) -> tuple[pl.Series, int, bytes]:
    """A column with text that is not UTF-8 as null, the number of such cells, an example."""
    if column.dtype not in (pl.String, pl.Binary):
        return column, 0, b""
    octets = column.cast(pl.Binary)
    try:
        return octets.cast(pl.String), 0, b""
    except pl.exceptions.ComputeError:
        unmarked = octets.to_frame("c").select(pl.when(pl.col("c") != _MARK).then("c"))["c"]
        texts = decoded(unmarked)
    bad = unmarked.filter(texts.is_null() & unmarked.is_not_null())
    return texts, texts.null_count() - octets.null_count(), bad[0] if bad.len() else b""


def read_table(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    *,
    system: str = "",
    only: Collection[int] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a table in the requested columns and kinds, and the problems in them.

    Parameters
    ----------
    store : Store
        An open store.
    table : str
        Name of the table; an absent one has no rows.
    columns : mapping of str to Cell
        Name of each column to its kind. An absent column is null in every row, and so is one
        with absent ``needs``.
    system : str
        The ``system`` column of the findings.
    only : collection of int, optional
        Only rows with these row numbers, which must be among the columns. A finding may be of
        a row between them.

    Returns
    -------
    rows : polars.DataFrame, shape (n_rows, n_columns)
        In the order of the table's row numbers. A cell of another kind is null.
    findings : polars.DataFrame
        One row per column and kind of problem, in the shape of `schema.FINDINGS`.

    Raises
    ------
    DamagedStoreError
        If a page of the store is corrupted.
    ArgumentError
        If the store was closed.

    Examples
    --------
    >>> import sqlite3, tempfile
    >>> from pathlib import Path
    >>> from stateanalytics.io.cells import MOMENT, TEXT
    >>> from stateanalytics.io.sqlite import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     connection = sqlite3.connect(Path(folder) / "state.db")
    ...     _ = connection.executescript(
    ...         "CREATE TABLE t (id TEXT, at REAL); INSERT INTO t VALUES ('a', 0), ('b', 'soon')"
    ...     )
    ...     connection.close()
    ...     with open_store(Path(folder) / "state.db") as store:
    ...         rows, findings = read_table(store, "t", {"id": TEXT, "at": MOMENT})
    >>> rows.rows()
    [('a', None), ('b', None)]
    >>> findings.select("column", "code", "n_rows", "example").rows()
    [('at', 'cell.wrong_type', 1, 'soon')]
    """
    if not (store.is_open and store.copy.exists()):
        raise refusals.closed(store.label)
    rows, problems = rows_and_problems(store, table, columns, only)
    store.check()
    named = [{"source": store.label, "system": system, **finding} for finding in problems]
    return rows, schema.FINDINGS.conform(pl.DataFrame(named) if named else schema.FINDINGS.empty())


def rows_and_problems(
    store: Store, table: str, columns: Mapping[str, Cell], only: Collection[int] | None = None
) -> tuple[pl.DataFrame, list[Problem]]:
    """Rows of a table as `read_table` gives them, and problems as dicts."""
    shape = pl.Schema({name: cells.SCANS[cell.kind].dtype for name, cell in columns.items()})
    if table not in store.tables:
        return shape.to_frame(), _absent(store, table)
    try:
        spending().draw()
    except BudgetSpentError as error:
        return shape.to_frame(), _over_budget(store, table, error)
    scanned, n_scanned, problems = _columns(plans(store, table, columns), only)
    with contextlib.suppress(BudgetSpentError):  # what was read is kept: the next table reports it
        spending().draw(n_rows=n_scanned)
    documents_in = [name for name in scanned.columns if columns[name].kind == "json"]
    scanned, json_problems = cells.check_json(scanned, documents_in)
    rows = pl.DataFrame(
        {
            name: scanned[name]
            if name in scanned.columns
            else pl.repeat(None, n_scanned, dtype=dtype, eager=True)
            for name, dtype in shape.items()
        }
    )
    if only is not None:
        number = next(name for name, cell in columns.items() if cell.kind == "rowid")
        wanted = pl.Series(sorted(only), dtype=pl.Int64)
        rows = rows.filter(pl.col(number).is_in(wanted.implode()))
    return rows, [{"table": table, **finding} for finding in (*problems, *json_problems)]


def n_rows(store: Store, names: Collection[str]) -> dict[str, int]:
    """Number of rows of some tables of a store."""
    with small_cursor(store) as cursor:
        return {
            name: cursor.row(f"SELECT count(*) AS n FROM {quoted(name)} NOT INDEXED")[0]
            for name in names
        }


def _columns(
    planned: list[Plan], only: Collection[int] | None = None
) -> tuple[pl.DataFrame, int, list[Problem]]:
    """The columns of all plans in one frame, the number of rows, and the problems in them."""
    guarded: set[int] = set()

    def scan(task: tuple[Plan, str], cursor: Cursor) -> tuple[pl.DataFrame, Invalid]:
        """Scan without guards until a value in a plan's columns needs them."""
        plan, where = task
        if id(plan) not in guarded:
            scanned = scan_unguarded(plan, where, cursor)
            if scanned is not None:
                return scanned
            guarded.add(id(plan))
        return scan_guarded(plan, where, cursor)

    def in_thread(task: tuple[Plan, str]) -> tuple[pl.DataFrame, Invalid]:
        with cursor_for_thread(task[0].store) as cursor:
            return scan(task, cursor)

    with small_cursor(planned[0].store) as cursor:
        ranges = row_ranges(planned[-1], only, cursor)
        tasks = [(plan, where) for plan in planned for where in ranges]
        scanned = [scan(task, cursor) for task in tasks] if len(ranges) == 1 else []
    if not scanned:
        with ThreadPoolExecutor(N_THREADS) as threads:
            scanned = list(threads.map(in_thread, tasks))
    typed, problems = [], []
    for i, plan in enumerate(planned):
        plan_ranges = scanned[i * len(ranges) : (i + 1) * len(ranges)]
        raw = pl.concat([frame for frame, _ in plan_ranges])
        frame, marked = _typed(raw, plan.kinds)
        typed.append(frame)
        invalid = _total([invalid for _, invalid in plan_ranges])
        problems += _meanings(plan, ranges, marked, invalid)
    return pl.concat(typed, how="horizontal"), raw.height, problems


def _absent(store: Store, table: str) -> list[Problem]:
    if table not in store.others:
        return []
    finding = problem("table.not_stored", None, 1, "a view or virtual table runs code", None)
    return [finding | {"table": table, "example": store.others[table], "action": "taken as absent"}]


def _over_budget(store: Store, table: str, error: BudgetSpentError) -> list[Problem]:
    message = f"rows that are not read: {error}"
    n_left = n_rows(store, [table])[table]
    if not n_left:
        return []
    finding = problem(OVER_BUDGET, None, n_left, message, None)
    return [finding | {"table": table, "action": "raise the budget, or name fewer sources"}]


def _total(ranges: list[Invalid]) -> Invalid:
    total: Invalid = {}
    for invalid in ranges:
        for name, (n_bad, example) in invalid.items():
            before, first = total.get(name, (0, b""))
            total[name] = (before + n_bad, first or example)
    return total


def _typed(raw: pl.DataFrame, kinds: Mapping[str, Kind]) -> tuple[pl.DataFrame, set[str]]:
    """Columns in the types of their kinds, marks as null, and the columns that had marks."""
    is_mark = {
        name: {
            "real": pl.col(name).is_infinite(),
            # A moment of 0 was never set.
            "moment": pl.col(name).is_infinite() | (pl.col(name) == 0),
            "integer": pl.col(name) == cells.MARK_INTEGER,
            "yes_no": pl.col(name) == cells.MARK_YES_NO,
        }[kind]
        for name, kind in kinds.items()
        if kind in ("real", "moment", "integer", "yes_no")
    }
    is_marked = raw.select(expr.any().alias(name) for name, expr in is_mark.items())
    marked = {name for name in is_mark if is_marked[name].item()}
    value = {
        name: pl.when(~is_mark[name]).then(name) if name in marked else pl.col(name)
        for name in kinds
    }
    microseconds = {name: (value[name] * 1e6).round().cast(pl.Int64) for name in kinds}
    return raw.select(
        (microseconds[name] if kind == "moment" else value[name])
        .cast(cells.SCANS[kind].dtype)
        .alias(name)
        for name, kind in kinds.items()
    ), marked


def _meanings(plan: Plan, ranges: list[str], marked: set[str], invalid: Invalid) -> list[Problem]:
    """What the marks of a scan were: counts and an example by column and code."""
    # Marks in UTF-16 text are not visible, so every such column is looked at.
    suspects = [
        name
        for name, kind in plan.kinds.items()
        if name in marked or name in invalid or (kind in ("text", "json") and not plan.is_utf8)
    ]
    if not suspects:
        return []
    problems: list[Problem] = []
    counted: dict[tuple[str, str], tuple[int, str]] = {}
    with ThreadPoolExecutor(N_THREADS) as threads:
        for part in threads.map(lambda where: _counted(plan, suspects, where), ranges):
            for key, (n_rows, example) in part.items():
                before, smallest = counted.get(key, (0, ""))
                both = min(smallest, example) if before and n_rows else example or smallest
                counted[key] = (before + n_rows, both)
    for name in suspects:
        for meaning in cells.meanings_of(plan.kinds[name]):
            n_rows, example = counted[name, meaning.code]
            if n_rows:
                problems.append(problem(meaning.code, name, n_rows, meaning.message, example))
        n_invalid, octets = invalid.get(name, (0, b""))
        n_invalid -= counted.get((name, "cell.blob"), (0, ""))[0]
        if n_invalid > 0:
            example = octets.decode(errors="backslashreplace")
            problems.append(
                problem("cell.not_utf8", name, n_invalid, "text that is not UTF-8", example)
            )
    return problems


def _counted(plan: Plan, suspects: list[str], where: str) -> dict[tuple[str, str], tuple[int, str]]:
    """Number of rows of a range by column and code, and the smallest example of each."""
    source, names = plan.rows(where)
    inner, outer, keys = [], [], []
    for i, name in enumerate(suspects):
        meanings = cells.meanings_of(plan.kinds[name])
        whens = " ".join(f"WHEN {m.condition} THEN {j}" for j, m in enumerate(meanings))
        inner.append(f"CASE {whens} END AS m{i}, {{c}} AS v{i}".format(c=names[name]))
        example = cells.EXAMPLE.format(c=f"v{i}")
        for j, meaning in enumerate(meanings):
            keys.append((name, meaning.code))
            outer.append(f"count(*) FILTER (WHERE m{i} = {j})")
            outer.append(f"CAST(min(CASE WHEN m{i} = {j} THEN {example} END) AS BLOB)")
    odd = " OR ".join(f"m{i} IS NOT NULL" for i in range(len(suspects)))
    rows = f"(SELECT {', '.join(inner)} FROM {source} LIMIT -1 OFFSET 0) WHERE {odd}"
    with cursor_for_thread(plan.store) as cursor:
        row = cursor.row(f"SELECT {', '.join(outer)} FROM {rows}")
    return {
        key: (row[2 * i], (row[2 * i + 1] or b"").decode(errors="backslashreplace"))
        for i, key in enumerate(keys)
    }
