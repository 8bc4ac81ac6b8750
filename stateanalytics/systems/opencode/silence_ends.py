"""Ends of opencode's executions: after one, a session waits for its user."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.opencode import frames


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row an execution; a crash is noticed when work starts again."""
    is_crash = pl.col("outcome") == "crashed"
    started_again = pl.col("started_at").shift(-1).over("source", "session_id")
    return (
        facts.detail(frames.EXECUTIONS)
        .sort("source", "session_id", "exec_no")
        .select(
            "source",
            system=pl.lit("opencode"),
            entity_id="session_id",
            at=pl.when(is_crash).then(started_again).otherwise("ended_at"),
            boundary=pl.when(is_crash).then(pl.lit("crash")).otherwise(pl.lit("own_end")),
        )
    )
