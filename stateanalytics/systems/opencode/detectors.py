"""The thresholds, features and detectors of opencode, for silent, late or looping executions."""

from __future__ import annotations

from functools import cache
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.words import how_long
from stateanalytics.systems.base import Detecting, features_from_csv
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.opencode import LIMITS, NAME, frames
from stateanalytics.systems.opencode.states import RUN_KEY, turn_id
from stateanalytics.systems.situations import silence_ends_of


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row per execution; a crash is noticed when work restarts."""
    executions = facts.detail(frames.EXECUTIONS).with_columns(
        situation=pl.col("outcome").replace({"crashed": "aborted"}),
        thread_id="session_id",
        turn_no="exec_no",
    )
    return silence_ends_of(executions, NAME, open_=())


def attempt_ends(facts: Facts) -> pl.DataFrame:
    """Executions that crashed or were shut down, where another one continued their turn."""
    is_crash = pl.col("outcome") == "crashed"
    session = ["source", "session_id"]
    return (
        facts.detail(frames.EXECUTIONS)
        .sort(*session, "exec_no")
        .with_columns(
            resumed_at=pl.col("started_at").shift(-1).over(session),
            is_continued=pl.col("is_continuation").shift(-1).over(session),
        )
        .filter("is_continued")
        .select(
            "source",
            "resumed_at",
            system=pl.lit(NAME),
            entity_type=pl.lit("turn"),
            entity_id=turn_id(),
            # A crash is noticed when work restarts.
            ended_at=pl.coalesce("ended_at", "resumed_at"),
            last_sign_at="last_active_at",
            outcome=pl.lit("aborted"),
            raw_status="outcome",
            reason_code=pl.when(is_crash)
            .then(pl.lit("run.aborted.process_dead_no_terminal"))
            .otherwise(pl.lit("run.aborted.server_shutdown")),
            reason_message="error_message",
            end_written_by=pl.when(is_crash).then(pl.lit("observer")),
        )
    )


@cache
def detecting() -> Detecting:
    """The detectors, and the columns that only they read: null for everything but executions."""
    features = features_from_csv(__package__, _add_features)
    return Detecting(detectors=detectors(), features=features)


def _add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    last_events = (
        past.facts.events.filter(pl.col("system") == NAME)
        .group_by("source", session_id="entity_id")
        .agg(last_event_at=pl.col("at").max())
    )
    running_tools = (
        past.facts.detail(frames.TOOLS)
        .filter(pl.col("ended_at").is_null())
        .group_by(RUN_KEY)
        .agg(n_open_calls=pl.len().cast(pl.Int64))
    )
    values = (
        past.facts.detail(frames.EXECUTIONS)
        .join(last_events, on=["source", "session_id"], how="left")
        .join(running_tools, on=RUN_KEY, how="left")
        .select(
            *("source", "entity_id", "n_unknown_finishes", "is_retry_pending", "is_claimed"),
            "n_pending_asks",
            execution="outcome",
            n_tools_running=pl.col("n_open_calls").fill_null(0),
            event_age_s=_age_s(pl.coalesce("last_event_at", "last_active_at", "started_at"), past),
            retry_overdue_s=_age_s(pl.col("retry_at"), past),
        )
        .unique(["source", "entity_id"], keep="last", maintain_order=True)
    )
    return rows.join(values, on=["source", "entity_id"], how="left", maintain_order="left")


def _age_s(moment: pl.Expr, past: Past) -> pl.Expr:
    return (pl.lit(past.at) - moment).dt.total_microseconds() / 1e6


_IS_OPEN = pl.col("execution") == "open"


def detectors() -> tuple[Detector, ...]:
    """The detectors of opencode; their words are ``data/detectors.csv``."""
    rules: dict[str, dict[str, Any]] = {
        "opencode_stalled": _silent_for(LIMITS["stalled_after_s"]),
        "opencode_dead": _silent_for(LIMITS["dead_after_s"])
        | {"when": ~pl.col("is_claimed").fill_null(value=False)},
        "opencode_retry_overdue": {
            "threshold_s": LIMITS["retry_grace_s"],
            "when": pl.col("is_retry_pending"),
        },
        "opencode_runaway": {"fires": pl.col("n_unknown_finishes") >= LIMITS["min_runaway_steps"]},
    }
    scoped = {name: {"scope": _IS_OPEN} | rule for name, rule in rules.items()}
    return catalogue(__package__, scoped)


def _silent_for(seconds: float) -> dict[str, Any]:
    """A rule of silence, with more patience while a tool works; a question waits for a person."""
    factor = LIMITS["tool_factor"]
    patience = pl.when(pl.col("n_tools_running") > 0).then(factor).otherwise(1.0)
    return {
        "scope": _IS_OPEN & (pl.col("n_pending_asks").fill_null(0) == 0),
        "threshold_s": seconds * patience,
        "limits": f"{how_long(seconds)}; with a tool at work {how_long(seconds * factor)}",
    }
