"""A store of any size in the shape that lionagi 0.36.0 writes, made quickly."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

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
) -> Path:
    """Write a lionagi store of any size: believable, the same for the same arguments.

    Work that would end after ``as_of`` is still running; ``dirty`` is the share of cells, of each
    column that `dirt` names, that hold what does not belong there; without
    ``n_messages_per_session``, a mean, there are no messages, branches and progressions.
    """
    store = Path(path)
    assert not store.exists(), "a file is never written over"
    plan = Plan(n_sessions, seed, as_of.timestamp(), days * 86_400.0, n_messages_per_session)
    _create(store)
    try:
        _fill(store, plan, has_transitions=has_transitions)
        _finish(store, plan, dirty)
    except BaseException:
        store.unlink(missing_ok=True)
        raise
    return store


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


def _finish(store: Path, plan: Plan, dirty: float) -> None:
    with _sqlite(store) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for statement in dirt.statements(dirty):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_meta VALUES ('created_at', ?)", (str(int(plan.first_at)),)
        )
        connection.execute("PRAGMA journal_mode=WAL")


@contextlib.contextmanager
def _sqlite(store: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        yield connection
