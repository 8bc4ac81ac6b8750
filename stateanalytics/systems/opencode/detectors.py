"""opencode's detectors: an open execution that is silent, late, or runs in circles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.systems.detector import Detector, catalogued
from stateanalytics.systems.opencode import LIMITS


def opencode(limits: Mapping[str, float] | None = None) -> tuple[Detector, ...]:
    """The detectors of opencode.

    Parameters
    ----------
    limits : mapping of str to float, optional
        Other limits to try, by their names.
    """
    chosen = {**LIMITS, **(limits or {})}
    patience = pl.when(pl.col("n_tools_running") > 0).then(chosen["tool_factor"]).otherwise(1.0)
    said: dict[str, Any] = {
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
            **said,
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
            **said,
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
            **said,
        ),
        catalogued(
            "opencode_runaway",
            fires=pl.col("n_unknown_finishes") >= chosen["min_runaway_steps"],
            label="runaway",
            construct="count",
            question="stuck",
            rule="ten steps or more that finished for an unknown reason",
            **said,
        ),
    )


def _limits(seconds: float, chosen: Mapping[str, float]) -> str:
    patient = how_long(seconds * chosen["tool_factor"])
    return f"{how_long(seconds)}; with a tool at work {patient}"
