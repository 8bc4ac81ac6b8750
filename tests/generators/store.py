"""A store of any size in the shape that lionagi 0.36.0 writes, made quickly."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from stateanalytics.errors import ArgumentError
from tests.generators import dirt, tables
from tests.generators.plan import Plan
from tests.generators.rows import invocations, sessions, transitions
from tests.generators.talk import talk

AS_OF = datetime(2026, 5, 25, 6, tzinfo=UTC)
_PIECE = 240_000


def write_store(
    path: str | Path,
    n_sessions: int,
    *,
    seed: int = 0,
    as_of: datetime = AS_OF,
    days: float = 28.0,
    dirty: float = 0.0,
    n_messages_per_session: int = 0,
    has_transitions: bool = True,
    has_indexes: bool = False,
) -> Path:
    """Write a lionagi store of any size: believable, the same for the same arguments.

    Parameters
    ----------
    path : str or Path
        The file to make; it must not exist.
    n_sessions : int
        Sessions in it; millions are meant.
    seed : int
        The same arguments give the same rows.
    as_of : datetime
        The last instant it holds; work that would end later is still running.
    days : float
        How many days of work before ``as_of``.
    dirty : float
        Share of cells, per column that can be dirtied, that hold what does not belong there:
        text in a number, blobs, broken UTF-8, huge integers, broken JSON. See `dirty_cells`.
    n_messages_per_session : int
        Mean number of messages; 0 writes no messages, branches and progressions.
    has_transitions : bool
        Write the history of each session: two rows, one while it runs.
    has_indexes : bool
        Make the larger of lionagi's secondary indexes (slower; readers seldom care).

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ArgumentError
        If the file exists, or a number makes no sense.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = write_store(Path(folder) / "state.db", 10)
    ...     connection = sqlite3.connect(store)
    ...     connection.execute("SELECT count(*) FROM sessions").fetchone()
    ...     connection.close()
    (10,)
    """
    store = Path(path)
    _check(store, n_sessions, days, dirty, n_messages_per_session)
    plan = Plan(n_sessions, seed, as_of.timestamp(), days * 86_400.0, n_messages_per_session)
    _create(store)
    try:
        _fill(store, plan, has_transitions=has_transitions)
        _finish(store, plan, dirty, has_indexes=has_indexes)
    except BaseException:
        store.unlink(missing_ok=True)
        raise
    return store


def _check(store: Path, n_sessions: int, days: float, dirty: float, n_messages: int) -> None:
    if store.exists():
        raise ArgumentError(
            f"write_store makes a new file, and {str(store)!r} exists.",
            "name another path, or delete it first",
        )
    if not store.parent.is_dir():
        raise ArgumentError(
            f"write_store needs a folder to write into, and {str(store.parent)!r} is none.",
            f"mkdir -p {store.parent}",
        )
    if n_sessions < 0 or n_messages < 0 or days <= 0:
        raise ArgumentError(
            "write_store needs n_sessions >= 0, n_messages_per_session >= 0 and days > 0, found "
            f"{n_sessions!r}, {n_messages!r} and {days!r}.",
            "write_store('state.db', 1000)",
        )
    if not 0.0 <= dirty <= 0.5:
        raise ArgumentError(
            f"write_store needs dirty between 0 and 0.5, found {dirty!r}.",
            "write_store('state.db', 1000, dirty=0.01)",
        )


def _create(store: Path) -> None:
    with _sqlite(store) as connection:
        for name, columns in tables.TABLES.items():
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
        connection.executemany("INSERT INTO schema_meta VALUES (?, ?)", tables.SCHEMA_META.items())
        connection.executemany(
            "INSERT INTO message_types VALUES (?, ?)", enumerate(tables.MESSAGE_TYPES)
        )


def _fill(store: Path, plan: Plan, *, has_transitions: bool) -> None:
    from adbc_driver_sqlite import dbapi

    with dbapi.connect(str(store), autocommit=True) as connection, connection.cursor() as cursor:
        # A crash loses the file, which can be written again.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-400000"):
            cursor.execute(f"PRAGMA {pragma}")
            cursor.fetchall()
        for name, rows in _pieces(plan, has_transitions=has_transitions):
            if rows.height:
                cursor.adbc_ingest(name, rows.to_arrow(), mode="append")


def _pieces(plan: Plan, *, has_transitions: bool) -> Iterator[tuple[str, pl.DataFrame]]:
    for first in range(0, plan.n_sessions, _PIECE):
        piece = sessions(plan, first, min(first + _PIECE, plan.n_sessions))
        yield "invocations", invocations(piece)
        yield from talk(plan, piece)
        yield "sessions", piece.select(dirt.columns_of("sessions"))
        if has_transitions:
            yield "status_transitions", transitions(plan, piece)


def _finish(store: Path, plan: Plan, dirty: float, *, has_indexes: bool) -> None:
    with _sqlite(store) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for statement in dirt.statements(dirty):
            connection.execute(statement)
        if has_indexes:
            for statement in tables.INDEXES:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_meta VALUES ('created_at', ?)", (str(int(plan.first_at)),)
        )
        connection.execute("PRAGMA journal_mode=WAL")


@contextlib.contextmanager
def _sqlite(store: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        yield connection
