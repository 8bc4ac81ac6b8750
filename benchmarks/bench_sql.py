"""snap.sql: a small question over the sample, and a roll-up of many states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from benchmarks.measure import Row, median_s, side_by_side
from stateanalytics.core import schema
from stateanalytics.snapshot import Snapshot, demo

GOAL_S = 0.1
AS_OF = datetime(2026, 5, 27, tzinfo=UTC)
ROLL_UP = "SELECT severity, outcome, count(*) AS n FROM states GROUP BY ALL ORDER BY ALL"


def run(n_sessions: int = 1_000_000) -> list[Row]:
    """Measure; tables are loaded before, since that is done once."""
    sample = demo()
    small_s = median_s(lambda: sample.sql(ROLL_UP))
    many = snapshot(n_sessions)
    states = many.table("states")
    ours_s, peer_s = side_by_side(lambda: many.sql(ROLL_UP), lambda: in_polars(states))
    return [
        Row(
            work="snap.sql, a small question over the sample",
            ours_s=small_s,
            peer="",
            peer_s=None,
            goal=f"≤ {GOAL_S:g} s",
            is_met=small_s <= GOAL_S,
            note="a new, closed engine each time",
        ),
        Row(
            work=f"snap.sql, a roll-up of {n_sessions:,} states",
            ours_s=ours_s,
            peer="polars, not sandboxed",
            peer_s=peer_s,
            goal="–",
            is_met=True,
            note="rows are read by that process once",
            differs="no process of its own, no limit, no check of the query",
        ),
    ]


def snapshot(n_sessions: int) -> Snapshot:
    """Sessions of every outcome, made without a store."""
    words = pl.Series(["completed", "failed", "timed_out", "running", "cancelled"])
    number = pl.int_range(n_sessions, eager=True)
    entities = schema.ENTITIES.conform(
        pl.DataFrame(
            {
                "source": pl.repeat("bench", n_sessions, eager=True),
                "system": pl.repeat("lionagi", n_sessions, eager=True),
                "entity_type": pl.repeat("session", n_sessions, eager=True),
                "entity_id": number.cast(pl.String),
                "raw_status": words.gather(number % len(words)),
                "n_messages": number % 50,
                "started_at": pl.select(
                    pl.lit(AS_OF - timedelta(days=7)) + pl.duration(seconds=number % 600_000)
                ).to_series(),
            }
        )
    )
    rest = [frame.empty() for frame in schema.FACTS[1:]]
    return Snapshot(entities, *rest, as_of=AS_OF)


def in_polars(states: pl.DataFrame) -> pl.DataFrame:
    """The same roll-up by hand."""
    return (
        states.group_by("severity", "outcome")
        .agg(n=pl.len())
        .sort("severity", "outcome", nulls_last=True)
    )
