"""The features and detectors of opencode: executions that are silent, late, or run in circles."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.systems.base import Features
from stateanalytics.systems.detector import Detector, catalogued
from stateanalytics.systems.history import Past
from stateanalytics.systems.opencode import LIMITS, frames

COLUMNS = MappingProxyType(
    {
        "execution": "open, or how an execution ended",
        "event_age_s": "since the last event of its session",
        "retry_overdue_s": "since a retry was due that nothing followed; negative: to come",
        "n_tools_running": "tool calls without an end",
        "n_unknown_finishes": "steps that finished for an unknown reason",
        "is_retry_pending": "does its last step wait for a retry",
        "is_claimed": "is its session claimed, to be resumed at the next start",
    }
)
LOST_OF = MappingProxyType({"is_claimed": ("record",)})


def features() -> Features:
    """The columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features, lost_of=LOST_OF)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Executions of opencode with the columns of `COLUMNS`; other entities have null there.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.detections.with_ages`.
    past : Past
        The facts at the instant.

    Notes
    -----
    The frames of `past` are those of the instant already.
    """
    own = (
        past.facts.detail(frames.EXECUTIONS)
        .join(_last_events(past), on=["source", "session_id"], how="left")
        .join(_running_tools(past), on=["source", "session_id", "exec_no"], how="left")
        .select(
            "source",
            "entity_id",
            "n_unknown_finishes",
            "is_retry_pending",
            "is_claimed",
            execution="outcome",
            n_tools_running=pl.col("n_at_work").fill_null(0).cast(pl.Int64),
            event_age_s=_age(pl.coalesce("heard_at", "last_active_at", "started_at"), past),
            retry_overdue_s=_age(pl.col("retry_at"), past),
        )
        .unique(["source", "entity_id"], keep="last", maintain_order=True)
    )
    return rows.join(own, on=["source", "entity_id"], how="left", maintain_order="left")


def _age(moment: pl.Expr, past: Past) -> pl.Expr:
    return (pl.lit(past.at) - moment).dt.total_microseconds() / 1e6


def _last_events(past: Past) -> pl.DataFrame:
    return (
        past.facts.events.filter(pl.col("system") == "opencode")
        .group_by("source", session_id="entity_id")
        .agg(heard_at=pl.col("at").max())
    )


def _running_tools(past: Past) -> pl.DataFrame:
    return (
        past.facts.detail(frames.TOOLS)
        .filter(pl.col("ended_at").is_null())
        .group_by("source", "session_id", "exec_no")
        .agg(n_at_work=pl.len())
    )


def opencode(limits: Mapping[str, float] | None = None) -> tuple[Detector, ...]:
    """The detectors of opencode.

    Parameters
    ----------
    limits : mapping of str to float, optional
        Other limits to try, by their names.
    """
    chosen = {**LIMITS, **(limits or {})}
    patience = pl.when(pl.col("n_tools_running") > 0).then(chosen["tool_factor"]).otherwise(1.0)
    words: dict[str, Any] = {
        "family": "opencode",
        "system": "opencode",
        "entity_types": ("execution",),
        "scope": pl.col("execution") == "open",
        "scope_words": "executions without an end",
        "origin": "the mapping of opencode to ADR-0033",
    }
    claimed = pl.col("is_claimed").fill_null(value=False)
    return (
        catalogued(
            "opencode_stalled",
            measures="event_age_s",
            comparison=">=",
            threshold_s=chosen["stalled_after_s"] * patience,
            limits=_limits(chosen["stalled_after_s"], chosen),
            label="stalled",
            construct="silence",
            question="stale",
            restarts_on="activity",
            rule="no event of its session for ten minutes; for an hour while a tool runs",
            **words,
        ),
        catalogued(
            "opencode_dead",
            measures="event_age_s",
            comparison=">=",
            threshold_s=chosen["dead_after_s"] * patience,
            limits=_limits(chosen["dead_after_s"], chosen),
            when=~claimed,
            label="process_dead",
            construct="silence",
            question="dead",
            liveness="unknown stays unknown",
            rule="no event for an hour, and no claim to resume it; for six while a tool runs",
            **words,
        ),
        catalogued(
            "opencode_retry_overdue",
            measures="retry_overdue_s",
            threshold_s=chosen["retry_grace_s"],
            when=pl.col("is_retry_pending"),
            label="retry overdue",
            construct="schedule",
            question="overdue",
            rule="a retry was due more than a minute ago, and nothing came",
            **words,
        ),
        catalogued(
            "opencode_runaway",
            fires=pl.col("n_unknown_finishes") >= chosen["min_runaway_steps"],
            label="runaway",
            construct="count",
            question="stuck",
            rule="ten steps or more that finished for an unknown reason",
            **words,
        ),
    )


def _limits(seconds: float, chosen: Mapping[str, float]) -> str:
    patient = how_long(seconds * chosen["tool_factor"])
    return f"{how_long(seconds)}; with a tool at work {patient}"
