"""Small canonical frames, by hand: what is named is set, the rest is null."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.systems import detail_frames

Row: TypeAlias = dict[str, Any]
AS_OF = datetime(2026, 5, 27, tzinfo=UTC)
WHOSE = {"source": "state.db", "system": "lionagi", "entity_type": "session"}


def ago(**how_long: float) -> datetime:
    """A moment before as-of: ago(hours=2)."""
    return AS_OF - timedelta(**how_long)


def frame(name: str, rows: list[Row]) -> pl.DataFrame:
    """Rows of a canonical frame, every column in its dtype."""
    shape = {**schema.FRAMES, **detail_frames()}[name]
    filled = [{column.name: row.get(column.name) for column in shape.columns} for row in rows]
    return pl.DataFrame(filled, schema=shape.dtypes)


def facts(entities: list[Row], *, as_of: datetime = AS_OF, **frames: list[Row]) -> Facts:
    """Facts of a few entities; keys and source are filled in."""
    return Facts(
        entities=frame("entities", [_complete(row) for row in entities]),
        transitions=frame("transitions", frames.get("transitions", [])),
        events=frame("events", frames.get("events", [])),
        findings=frame("findings", frames.get("findings", [])),
        sources=frame("sources", frames.get("sources", [])),
        as_of=as_of,
        as_of_from="given",
    )


def states_of(facts: Facts, states: list[Row]) -> pl.DataFrame:
    """States by hand, one for each entity and in its order."""
    keys = facts.entities.select(schema.ENTITY_KEY).to_dicts()
    return frame("states", [{**key, **_DONE, **row} for key, row in zip(keys, states, strict=True)])


_DONE = {
    "lifecycle": "completed",
    "outcome": "completed",
    "health": "ok",
    "severity": "neutral",
    "tone": "success",
    "is_terminal": True,
    "is_legacy": False,
}
DONE: Row = {}
FAILED: Row = {
    "lifecycle": "failed", "outcome": "failed", "severity": "critical", "tone": "danger",
}  # fmt: skip
TIMED_OUT: Row = {
    "lifecycle": "timed_out", "outcome": "timed_out", "severity": "warning", "tone": "warning",
}  # fmt: skip
RUNNING: Row = {
    "lifecycle": "running", "outcome": None, "health": "running", "is_terminal": False,
    "severity": "info", "tone": "info",
}  # fmt: skip
STALLED: Row = {**RUNNING, "health": "stalled", "severity": "critical", "tone": "danger"}
LEGACY: Row = {
    "lifecycle": "unknown", "outcome": "unknown", "health": "unknown", "is_terminal": False,
    "is_legacy": True, "tone": "neutral",
}  # fmt: skip


def _complete(row: Row) -> Row:
    whole = {**WHOSE, **row}
    return (
        {"session_id": whole["entity_id"], **whole} if whole["entity_type"] == "session" else whole
    )
