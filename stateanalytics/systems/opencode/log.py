"""An event log as frames: one row an event, and typed payloads beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from stateanalytics.systems.opencode.event_kinds import FAMILIES

ORIGINS = ("database", "log", "stream")
"""Where a row was read from, most trusted first: a stream loses rows, a database does not."""

EVENTS = pl.Schema(
    {
        "row": pl.UInt32(),
        "event_id": pl.String(),
        "session_id": pl.String(),
        "seq": pl.Int64(),
        "at_ms": pl.Int64(),
        "type": pl.String(),
        "kind": pl.String(),
        "family": pl.UInt8(),
        "is_era_a": pl.Boolean(),
        "origin": pl.UInt8(),
        "digest": pl.UInt64(),
    }
)
"""One event: ``row`` links it to its payload, a null ``seq`` means that it was only live.

``digest`` stands for the text it was read from, so that of two rows that claim one place
the same is kept in whatever order they came.
"""

FAMILY_NAMES = tuple(FAMILIES)
"""``family`` of an event is a position in this; null: it has no payload."""

_TEXT, _INTEGER, _REAL = pl.String(), pl.Int64(), pl.Float64()
_ERROR: dict[str, pl.DataType] = {
    "error_type": _TEXT,
    "error_message": _TEXT,
    "error_status": _INTEGER,
}
_USAGE: dict[str, pl.DataType] = {
    "cost_usd": _REAL,
    "n_input_tokens": _INTEGER,
    "n_output_tokens": _INTEGER,
    "n_reasoning_tokens": _INTEGER,
    "n_cache_read_tokens": _INTEGER,
    "n_cache_write_tokens": _INTEGER,
}
_FIELDS: Mapping[str, Mapping[str, pl.DataType]] = {
    "execution": {**_ERROR, "reason": _TEXT},
    "step": {
        "message_id": _TEXT,
        "agent": _TEXT,
        "model": _TEXT,
        "provider": _TEXT,
        "dispatched_ms": _INTEGER,
        "finish": _TEXT,
        "raw_finish": _TEXT,
        "attempt": _INTEGER,
        "retry_at_ms": _INTEGER,
        **_ERROR,
        **_USAGE,
    },
    "text": {"message_id": _TEXT, "n_chars": _INTEGER},
    "tool": {
        "message_id": _TEXT,
        "call_id": _TEXT,
        "tool": _TEXT,
        "exit_code": _INTEGER,
        **_ERROR,
        "error_permission": _TEXT,
        "error_resource": _TEXT,
    },
    "input": {"input_id": _TEXT, "input_kind": _TEXT, "delivery": _TEXT},
    "session": {
        "title": _TEXT,
        "directory": _TEXT,
        "project_id": _TEXT,
        "parent_id": _TEXT,
        "program_version": _TEXT,
        "agent": _TEXT,
        "model": _TEXT,
        "provider": _TEXT,
        **_USAGE,
    },
    "ask": {"request_id": _TEXT, "reply": _TEXT},
}
PAYLOADS: Mapping[str, pl.Schema] = {
    family: pl.Schema([("row", pl.UInt32()), *columns.items()])
    for family, columns in _FIELDS.items()
}
"""Columns of each payload; ``row`` is the event's."""


@dataclass(frozen=True)
class Log:
    """Events in any order, as often as they were seen, with what they carry.

    Attributes
    ----------
    events : polars.DataFrame
        `EVENTS`.
    payloads : mapping of str to polars.DataFrame
        `PAYLOADS`, by family.
    """

    events: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EVENTS))
    payloads: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def payload(self, family: str) -> pl.DataFrame:
        """The payloads of one family; empty where there are none."""
        found = self.payloads.get(family)
        return pl.DataFrame(schema=PAYLOADS[family]) if found is None else found


def pooled_logs(logs: Sequence[Log]) -> Log:
    """Several logs as one; rows are numbered anew."""
    if len(logs) == 1:
        return logs[0]
    starts, n = [], 0
    for log in logs:
        starts.append(n)
        n += log.events.height
    moved = [
        (
            log.events.with_columns(pl.col("row") + start),
            {f: p.with_columns(pl.col("row") + start) for f, p in log.payloads.items()},
        )
        for log, start in zip(logs, starts, strict=True)
    ]
    return Log(
        pl.concat([events for events, _ in moved]) if moved else pl.DataFrame(schema=EVENTS),
        {
            family: pl.concat([p[family] for _, p in moved if family in p])
            for family in PAYLOADS
            if any(family in p for _, p in moved)
        },
    )
