"""Small lionagi stores written by hand: any table, any column, any value."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.io.parts import Parts
from stateanalytics.io.sqlite import open_store
from stateanalytics.systems.lionagi.reading import read

NOW_S = 1_779_840_000.0
Rows = Sequence[Mapping[str, Any]]

# What a store must have to be recognised; a table without rows gets these columns.
_NEEDED = {
    "sessions": ("id", "progression_id", "status"),
    "branches": ("id", "session_id", "progression_id"),
    "progressions": ("id", "collection"),
    "messages": ("id", "created_at", "content", "role"),
}


def write_store(path: Path, **tables: Rows) -> Path:
    """Write a store in which the keys of the rows are the columns, without types."""
    connection = sqlite3.connect(path)
    for table in {**_NEEDED, **tables}:
        rows = tables.get(table, ())
        if not rows and table not in _NEEDED:
            continue
        columns = list(
            dict.fromkeys([*_NEEDED.get(table, ()), *(name for row in rows for name in row)])
        )
        quoted = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f'CREATE TABLE "{table}" ({quoted})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})',
            [tuple(row.get(name) for name in columns) for row in rows],
        )
    connection.commit()
    connection.close()
    return path


def wrote(path: Path, *statements: Any) -> Path:
    """The store after somebody wrote to it and left: SQL, or a pair of SQL and its rows."""
    with closing(sqlite3.connect(path)) as writer:
        for statement in statements:
            sql, *rows = (statement,) if isinstance(statement, str) else statement
            writer.executemany(sql, *rows) if rows else writer.execute(sql)
            writer.commit()
    return path


def session(identity: str, **columns: Any) -> dict[str, Any]:
    """A session that ended well ten minutes ago, except for the given columns."""
    return {
        "id": identity,
        "progression_id": f"list-{identity}",
        "status": "completed",
        "created_at": NOW_S - 1200,
        "started_at": NOW_S - 1200,
        "ended_at": NOW_S - 600,
        "updated_at": NOW_S - 600,
        "last_message_at": NOW_S - 601,
        "status_reason_code": "run.completed.ok",
        "status_reason_summary": "Run completed successfully.",
        "status_evidence_refs": "[]",
        "node_metadata": "null",
    } | columns


def listing(identity: str, messages: Sequence[str]) -> dict[str, Any]:
    """A progression that lists messages."""
    return {"id": identity, "collection": json.dumps(list(messages))}


def change(entity_id: str, status: str, at_s: float, **columns: Any) -> dict[str, Any]:
    """A transition of a session, except for the given columns."""
    return {
        "id": f"{entity_id}-{status}-{at_s}",
        "entity_type": "session",
        "entity_id": entity_id,
        "previous_status": "running",
        "status": status,
        "reason_code": f"run.{status}.ok",
        "source": "executor",
        "actor": entity_id,
        "evidence_refs": "[]",
        "metadata": "{}",
        "created_at": at_s,
    } | columns


def read_part(path: Path, *, bodies: bool = False) -> Parts:
    """The facts of a store, which is closed again."""
    with open_store(path) as store:
        return read(store, bodies=bodies)


def codes(part: Parts) -> dict[str, int]:
    """Rows by code of finding."""
    return dict(part.findings.group_by("code").agg(pl.col("n_rows").sum()).rows())
