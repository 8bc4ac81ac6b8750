"""Cells that hold what does not belong there: which, of what kind, how many."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tests.generators import tables


@dataclass(frozen=True)
class Dirt:
    """What is put into some cells of one column; is_lost: a reader cannot keep the value."""

    table: str
    column: str
    kind: str
    sql: str
    is_lost: bool = True


DIRT = (
    Dirt("sessions", "started_at", "text in a number", "'yesterday'"),
    Dirt("sessions", "ended_at", "absurd moment", "9.9e17"),
    Dirt("sessions", "updated_at", "text in a number", "'2026-05-20T10:00:00'"),
    Dirt("sessions", "last_message_at", "blob", "x'00ff'"),
    Dirt("sessions", "input_tokens", "integer past 2^53", "9007199254740993", is_lost=False),
    Dirt("sessions", "output_tokens", "integer past int64", "'99999999999999999999'"),
    Dirt("sessions", "num_turns", "text in a number", "'many'"),
    Dirt("sessions", "total_cost_usd", "text in a number", "'free'"),
    Dirt("sessions", "agent_name", "blob", "x'6167656e74'"),
    Dirt("sessions", "model", "broken UTF-8", "CAST(x'736f6eff6e6574' AS TEXT)"),
    Dirt("sessions", "status_reason_summary", "broken UTF-8", "CAST(x'6661696c6564c3' AS TEXT)"),
    Dirt("sessions", "artifact_contract_json", "broken JSON", "'{\"expected\": ['"),
    Dirt("sessions", "artifact_verification_json", "blob", "x'7b7d'"),
    Dirt("sessions", "status_evidence_refs", "broken JSON", "'[{kind: session}]'"),
    Dirt("sessions", "node_metadata", "double-encoded JSON", '\'"{\\"pid\\": 7}"\'', is_lost=False),
)


def columns_of(table: str) -> list[str]:
    """Names of the columns of a table, in order."""
    return [column.split()[0] for column in tables.TABLES[table].split(", ")]


def dirty_cells(n_sessions: int, dirty: float) -> pl.DataFrame:
    """What `write_store` makes dirty; not ``is_lost`` is what a careful reader can still tell."""
    every = _every(dirty)
    return pl.DataFrame(
        {
            "table": [cell.table for cell in DIRT],
            "column": [cell.column for cell in DIRT],
            "kind": [cell.kind for cell in DIRT],
            "n_rows": [
                len(range(_first(place, every), n_sessions + 1, every)) if every else 0
                for place in range(len(DIRT))
            ],
            "is_lost": [cell.is_lost for cell in DIRT],
        }
    )


def statements(dirty: float) -> list[str]:
    """The SQL that dirties a clean store: every n-th row of each column, columns staggered."""
    every = _every(dirty)
    if not every:
        return []
    by_table: dict[str, list[str]] = {}
    for place, cell in enumerate(DIRT):
        by_table.setdefault(cell.table, []).append(
            f"{cell.column} = CASE WHEN rowid % {every} = {_first(place, every) % every}"
            f" THEN {cell.sql} ELSE {cell.column} END"
        )
    return [f"UPDATE {table} SET {', '.join(cells)}" for table, cells in by_table.items()]


def _every(dirty: float) -> int:
    return round(1.0 / dirty) if dirty else 0


def _first(place: int, every: int) -> int:
    return 1 + place * 7 % every
