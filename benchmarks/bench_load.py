"""A million sessions of a store into frames: beside SQLite itself and other readers.

Ours is all of it: copy the store in another process, check its pages, read the columns
that facts need through guards, check the JSON. The floor is SQLite alone, touching the
same columns of the original once, with one thread.

``python -m benchmarks.bench_load`` also prints the routes that were not taken.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

import polars as pl

from benchmarks.measure import N_RUNS, Row, median_s, peak_mb, side_by_side
from stateanalytics.io import sqlite_tables
from stateanalytics.io.cells import TEXT, Cell
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.lionagi import frames
from tests.generators import write_store

DIRTY = 0.01
MOST_CLEAN, MOST_DIRTY, LEAST_PEER = 2.0, 3.5, 4.0


def run(n_sessions: int = 300_000, n_runs: int = N_RUNS) -> list[Row]:
    """The rows of the benchmark table."""
    with tempfile.TemporaryDirectory() as folder:
        clean = str(write_store(Path(folder) / "clean.db", n_sessions, has_transitions=False))
        rows = [
            beside_floor(f"load {n_sessions:,} sessions", clean, MOST_CLEAN, n_runs),
            *beside_read_database(n_sessions, clean, n_runs),
            beside_backup(n_sessions, clean, n_runs),
        ]
        Path(clean).unlink()
        dirty = str(
            write_store(Path(folder) / "d.db", n_sessions, has_transitions=False, dirty=DIRTY)
        )
        work = f"load {n_sessions:,} sessions, {DIRTY:.0%} of the cells dirty"
        return [rows[0], beside_floor(work, dirty, MOST_DIRTY, n_runs), *rows[1:]]


def beside_floor(work: str, path: str, most: float, n_runs: int) -> Row:
    """Loading beside SQLite touching the same values."""
    ours, floor = side_by_side(partial(load, path), partial(touch, path), n_runs)
    note = f"{ours / floor:.2g} × the floor; peak {peak_mb(partial(load, path)):,.0f} MB"
    goal = f"≤ {most:g} × SQLite alone"
    differs = "nothing copied, checked or kept; one thread"
    met = ours <= most * floor
    return Row(work, ours, "SQLite, sum(length(…))", floor, goal, met, note, differs)


def beside_read_database(n_sessions: int, path: str, n_runs: int) -> list[Row]:
    """`polars.read_database` beside the whole load, and beside the stored columns alone."""
    whole, peer = side_by_side(partial(load, path), partial(read_database, path), n_runs)
    ours, again = side_by_side(partial(same_columns, path), partial(read_database, path), n_runs)
    name = "polars.read_database"
    columns = f"{len(wanted(path)[1])} columns as stored"
    return [
        Row(
            f"load {n_sessions:,} sessions: copy, check, guards, JSON",
            whole,
            name,
            peer,
            "none: what the whole costs",
            is_met=True,
            differs=f"{columns}: nothing copied, checked or computed, any cell's type believed; "
            "one thread",
        ),
        Row(
            f"read {n_sessions:,} sessions, {columns}, not copied",
            ours,
            name,
            again,
            f"≥ {LEAST_PEER:g} × faster",
            again >= LEAST_PEER * ours,
            differs=f"one thread, ours up to {sqlite_tables.N_THREADS}; no guards",
        ),
    ]


def beside_backup(n_sessions: int, path: str, n_runs: int) -> Row:
    """The private copy alone, of a store that nobody has open, beside SQLite's backup."""
    ours, peer = side_by_side(partial(copy, path), partial(backup, path), n_runs)
    size = f"{Path(path).stat().st_size / 1e6:,.0f} MB"
    work = f"copy {n_sessions:,} sessions ({size})"
    return Row(
        work,
        ours,
        "Connection.backup",
        peer,
        "none: what the copy costs",
        is_met=True,
        differs="no process of its own, no list of tables",
    )


# --- ours ------------------------------------------------------------------------------


def wanted(path: str) -> tuple[dict[str, Cell], list[str]]:
    """What is read of sessions, and the stored columns that this touches."""
    with closing(connected(path)) as connection:
        there = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    cells = {**frames.TABLES["sessions"], "metadata_run_id": frames._RUN_ID_OF_OLD_ROWS}
    used = {name for key, cell in cells.items() for name in (cell.needs if cell.sql else (key,))}
    return cells, [name for name in there if name in used]


def load(path: str) -> pl.DataFrame:
    with open_store(path) as store:
        return read_table(store, "sessions", wanted(path)[0])[0]


def copy(path: str) -> None:
    open_store(path).close()


# --- the others ------------------------------------------------------------------------


def connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?immutable=1", uri=True)


def touch(path: str) -> None:
    """The floor."""
    sums = ", ".join(f"sum(length({name}))" for name in wanted(path)[1])
    with closing(connected(path)) as connection:
        connection.execute(f"SELECT {sums} FROM sessions").fetchone()


def read_database(path: str) -> pl.DataFrame:
    with closing(connected(path)) as connection:
        query = f"SELECT {', '.join(wanted(path)[1])} FROM sessions"
        return pl.read_database(query, connection, infer_schema_length=None)


def backup(path: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(connected(path)) as connection,
        closing(sqlite3.connect(Path(folder) / "copy.db")) as target,
    ):
        target.execute("PRAGMA journal_mode=OFF")
        target.execute("PRAGMA synchronous=OFF")
        connection.backup(target)


def standard_library(path: str) -> pl.DataFrame:
    with closing(connected(path)) as connection:
        names = wanted(path)[1]
        rows = connection.execute(f"SELECT {', '.join(names)} FROM sessions").fetchall()
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def adbc(path: str) -> pl.DataFrame:
    """The Arrow driver without guards: one odd cell ends it."""
    import adbc_driver_sqlite.dbapi

    with (
        adbc_driver_sqlite.dbapi.connect(f"file:{quote(path)}?immutable=1") as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": 1_000_000})
        cursor.execute(f"SELECT {', '.join(wanted(path)[1])} FROM sessions")
        return pl.DataFrame(cursor.fetch_arrow_table())


def same_columns(path: str) -> pl.DataFrame:
    """Ours, guarded, without copying, computing and checking JSON."""
    cells, names = wanted(path)
    plain = {name: cells[name] if name in cells and not cells[name].sql else TEXT for name in names}
    return sqlite_tables.rows_and_problems(as_it_lies(path), "sessions", plain)[0]


def guarded(path: str, n_threads: int | None = None) -> pl.DataFrame:
    """Ours without copying and without the check of pages."""
    kept, sqlite_tables.N_THREADS = sqlite_tables.N_THREADS, n_threads or sqlite_tables.N_THREADS
    try:
        return sqlite_tables.rows_and_problems(as_it_lies(path), "sessions", wanted(path)[0])[0]
    finally:
        sqlite_tables.N_THREADS = kept


def as_it_lies(path: str) -> Store:
    """A store that stands for its own copy; only for files that nobody writes to."""
    with closing(connected(path)) as connection:
        declared = {r[1]: r[2] for r in connection.execute("PRAGMA table_info(sessions)")}
    texts = frozenset(name for name, kind in declared.items() if kind == "TEXT")
    return Store(
        label=path,
        path=Path(path),
        copy=Path(path),
        tables={"sessions": tuple(declared)},
        size_bytes=0,
        is_live=False,
        rowids={"sessions": "rowid"},
        texts={"sessions": texts},
    )


def connectorx(path: str) -> pl.DataFrame:
    import connectorx

    query = f"SELECT {', '.join(wanted(path)[1])} FROM sessions"
    return pl.DataFrame(connectorx.read_sql(f"sqlite://{quote(path)}", query, return_type="arrow"))


ROUTES: dict[str, Callable[[str], object]] = {
    "SQLite alone: sum(length(…))": touch,
    "ours: copy, check, guards, JSON, two threads": load,
    "  the same without copy and check": guarded,
    "  the same on one thread": partial(guarded, n_threads=1),
    "  the columns as stored": same_columns,
    "  the copy alone, as bytes": copy,
    "  the copy alone, by SQLite's backup": backup,
    "Arrow driver, no guards, one thread": adbc,
    "connectorx": connectorx,
    "standard library": standard_library,
    "polars.read_database": read_database,
}


def compare_routes(n_sessions: int, n_runs: int = N_RUNS) -> None:
    """Print every route to the same rows, as a multiple of SQLite alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_store(Path(folder) / "clean.db", n_sessions, has_transitions=False))
        floor = median_s(partial(touch, path), n_runs)
        for name, route in ROUTES.items():
            try:
                seconds = median_s(partial(route, path), n_runs)
            except (ImportError, OSError) as error:
                print(f"{name:48} {error!r:.60}")
            else:
                print(f"{name:48} {seconds / floor:5.2f} × the floor ({seconds:.2f} s)", flush=True)


if __name__ == "__main__":
    compare_routes(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
