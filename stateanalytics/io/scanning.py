"""Scans of a store's private copy, on several threads, into frames.

Columns are first read as they are; the driver looks at a whole range of rows before it
chooses types, so that any value of another kind shows in them. Only ranges where
something shows are read again through the guards of `cells`.

Routes to 35 columns of a million sessions, as multiples of the time that SQLite alone
needs to touch the same values (``python -m benchmarks.bench_load`` measures them):
this one .7 on two cores, 1.4 on one; through guards alone 1.0 and 1.9; the Arrow driver
without either 1.3, but one odd cell ends it, and so it does with connectorx (1.3, no
UTF-8 no answer, and a file that is missing is made); the standard library 3.8;
`polars.read_database` 3.8.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from stateanalytics.io import cells, refusals
from stateanalytics.io.cells import Cell, Kind
from stateanalytics.io.opening import decoded_or_none
from stateanalytics.io.sqlite_copy import quoted

if TYPE_CHECKING:
    from nanoarrow.c_array import CArray

    from stateanalytics.io.sqlite import Store

_MARK = b"\xff"
_DAMAGE = ("disk image is malformed", "malformed database schema", "not a database")
# A batch holds at most 2 GB of one column's text; where it is more, smaller ones do.
_BATCHES = (32_768, 64, 1)
N_THREADS = max(1, min(4, os.cpu_count() or 1))
_ROWS_WORTH_A_THREAD = 20_000
_FEW_CELLS = 1000  # that are decoded one by one

Invalid = dict[str, tuple[int, bytes]]  # column: cells that are not UTF-8, an example


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
        """The name of the row's number, where it has one."""
        return self.store.rowids[self.table]

    @property
    def is_utf8(self) -> bool:
        """Does the store keep its text as UTF-8."""
        return self.store.encoding == "UTF-8"

    def rows(self, where: str = "") -> tuple[str, dict[str, str]]:
        """A FROM clause, and the name of each column in it."""
        # An index can answer what the table itself, damaged, could not.
        table = f"{quoted(self.table)} NOT INDEXED {where}"
        if not self.is_computed:
            return table, dict(self.sql)
        # Guards name a column several times; OFFSET keeps SQLite from computing it as often.
        inner = ", ".join(f"{sql} AS k{i}" for i, sql in enumerate(self.sql.values()))
        names = {name: f"k{i}" for i, name in enumerate(self.sql)}
        return f"(SELECT {inner} FROM {table} LIMIT -1 OFFSET 0)", names

    def scan(self, where: str, *, is_guarded: bool) -> str:
        """The SELECT over some rows, after one row that tells the types."""
        source, names = self.rows(where)
        # SQLite converts the text of a UTF-16 store, and an invalid mark with it.
        mark = "CAST(x'ff' AS TEXT)" if self.is_utf8 else "NULL"
        seeds = [f"{cells.SEEDS[kind]} AS c{i}" for i, kind in enumerate(self.kinds.values())]
        values = [
            (cells.GUARDS[kind] if is_guarded or self.must_guard(name) else "{c}").format(
                c=names[name], mark=mark
            )
            for name, kind in self.kinds.items()
        ]
        types, rows = ", ".join(seeds) or "1", ", ".join(values) or "1"
        return f"SELECT {types} UNION ALL SELECT {rows} FROM {source}"

    def must_guard(self, name: str) -> bool:
        """Would numbers come as text in the driver's way of writing them."""
        kind, kept = self.kinds[name], self.store.texts.get(self.table, ())
        return kind == "json" or (kind == "text" and (self.is_computed or name not in kept))


def plans(store: Store, table: str, columns: Mapping[str, Cell]) -> list[Plan]:
    """How to read those columns that can be read.

    Computed columns are scanned by themselves: what keeps SQLite from computing them
    several times would cost the plain ones a third of their time.
    """
    there, rowid = set(store.tables[table]), store.rowids[table]
    plain: dict[str, str] = {}
    computed: dict[str, str] = {}
    for name, cell in columns.items():
        if cell.sql is not None:
            if there.issuperset(cell.needs):
                computed[name] = cell.sql
        elif cell.kind == "rowid":
            if rowid is not None:
                plain[name] = rowid
        elif name in there:
            # A collation that only the store's writer has could not be compared by.
            plain[name] = f"{quoted(name)} COLLATE BINARY"
    kinds = {name: columns[name].kind for name in (*plain, *computed)}
    planned = [
        Plan(store, table, {name: kinds[name] for name in sql}, sql, sql is computed)
        for sql in (plain, computed)
        if sql
    ]
    # Without any column there still is a number of rows.
    return planned or [Plan(store, table, {}, {}, False)]


class Cursor:
    """Answers queries of one connection through the Arrow driver.

    The driver's own cursors import a quarter of a second of Arrow that nothing here needs.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def frame(self, query: str, batch_rows: int = _BATCHES[0]) -> pl.DataFrame:
        """All rows; the driver chooses types by the first ``batch_rows`` of them.

        Nobody has looked yet whether its text is UTF-8.
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
    """A batch as a frame, which would trust offsets that have run over."""
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


@dataclass
class _Kept:
    """A connection that is opened when it is first wanted, and what closes it."""

    ends: ExitStack
    cursor: Cursor | None = None


_KEPT: dict[Path, _Kept] = {}


@contextmanager
def one_connection(store: Store) -> Iterator[None]:
    """Let `small_cursor_of` give one cursor of a store again and again, until the block ends.

    To open the copy takes as long as to read a small table, and most tables are small.
    """
    with ExitStack() as ends:
        _KEPT[store.copy] = _Kept(ends)
        ends.callback(_KEPT.pop, store.copy)
        yield


@contextmanager
def small_cursor_of(store: Store) -> Iterator[Cursor]:
    """A cursor for the thread that reads the store: that of `one_connection`, or its own."""
    kept = _KEPT.get(store.copy)
    with _told(store), ExitStack() as ends:
        if kept is None:
            yield ends.enter_context(_connected(store))
            return
        if kept.cursor is None:
            kept.cursor = kept.ends.enter_context(_connected(store))
        yield kept.cursor


@contextmanager
def cursor_of(store: Store) -> Iterator[Cursor]:
    """A cursor of the Arrow driver on the private copy, for a thread of its own."""
    with _told(store), _connected(store) as cursor:
        yield cursor


@contextmanager
def _connected(store: Store) -> Iterator[Cursor]:
    """A connection to the private copy that trusts nothing in it."""
    import adbc_driver_manager
    import adbc_driver_sqlite

    # Nobody writes to the copy, so that SQLite need not lock it, nor look for a log but ours.
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
def _told(store: Store) -> Iterator[None]:
    """Errors of the driver as errors of ours."""
    import adbc_driver_manager

    try:
        yield
    except (adbc_driver_manager.Error, RuntimeError, OSError) as error:
        # Behind the first line the driver repeats the whole query.
        problem = str(error).split("\n")[0].split(" query: ", 1)[-1]
        if not any(words in problem for words in _DAMAGE):
            raise refusals.unreadable(store.path, problem) from error
        store.check()
        raise refusals.damaged(store.path, [problem]) from error


def parts(plan: Plan, only: Collection[int] | None, cursor: Cursor) -> list[str]:
    """WHERE clauses that cut the table into ranges of row numbers, or choose some rows of it."""
    name = plan.rowid
    if only is not None:
        return [f"WHERE {name} IN ({', '.join(map(str, sorted(only)))})"]
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


def scan_unguarded(plan: Plan, where: str, cursor: Cursor) -> tuple[pl.DataFrame, Invalid] | None:
    """Rows of one range, or None where something in them needs the guards."""
    # In one batch: the driver looks at all of it before it chooses the types. It also makes
    # room for all of it, so the batch is as large as the range and no larger.
    n_rows = cursor.row(f"SELECT count(*) FROM {quoted(plan.table)} NOT INDEXED {where}")[0]
    try:
        frame = cursor.frame(plan.scan(where, is_guarded=False), n_rows + 1)
    except _TooMuchTextError:
        return None
    if frame.dtypes != ([cells.SCANNED[kind] for kind in plan.kinds.values()] or [pl.Int64()]):
        return None
    frame, invalid = _named(plan, frame)
    is_suspicious = invalid or frame.select(cells.is_suspicious(plan.kinds)).item()
    return None if is_suspicious else (frame, invalid)


def scan_guarded(
    plan: Plan, where: str, cursor: Cursor, batches: tuple[int, ...] = _BATCHES
) -> tuple[pl.DataFrame, Invalid]:
    """Rows of one range with marks, and which text was not UTF-8."""
    try:
        frame = cursor.frame(plan.scan(where, is_guarded=True), batches[0])
    except _TooMuchTextError:
        return scan_guarded(plan, where, cursor, batches[1:])
    return _named(plan, frame)


def _named(plan: Plan, frame: pl.DataFrame) -> tuple[pl.DataFrame, Invalid]:
    """The rows behind the first with the names of the plan, and which text was not UTF-8."""
    columns: list[pl.Series] = []
    invalid: Invalid = {}
    for name, column in zip(plan.kinds or ("",), frame.slice(1), strict=True):
        text, n_bad, example = _valid(column)
        columns.append(text.alias(name))
        if n_bad:
            invalid[name] = (n_bad, example)
    return pl.DataFrame(columns), invalid


def _valid(column: pl.Series) -> tuple[pl.Series, int, bytes]:
    """A column whose text is UTF-8, how many cells were not, and one of those."""
    if column.dtype not in (pl.String, pl.Binary):
        return column, 0, b""
    octets = column.cast(pl.Binary)
    try:
        return octets.cast(pl.String), 0, b""
    except pl.exceptions.ComputeError:
        unmarked = octets.to_frame("c").select(pl.when(pl.col("c") != _MARK).then("c"))["c"]
        texts = _decoded(unmarked)
    bad = unmarked.filter(texts.is_null() & unmarked.is_not_null())
    return texts, texts.null_count() - octets.null_count(), bad[0] if bad.len() else b""


def _decoded(octets: pl.Series) -> pl.Series:
    """Text; null where something is not UTF-8, which is looked for by halves."""
    try:
        return octets.cast(pl.String)
    except pl.exceptions.ComputeError:
        if octets.len() <= _FEW_CELLS:
            return pl.Series([decoded_or_none(cell) for cell in octets], dtype=pl.String)
        half = octets.len() // 2
        return pl.concat([_decoded(octets[:half]), _decoded(octets[half:])])
