"""What follows the decision of a poll: cleaning up, watching reports, telling people."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.systems.agent_orchestrator.constants import (
    WatcherThresholds,
    watcher_audits,
    watcher_trigger,
)
from tests.conformance.agent_orchestrator.events import (
    EVENT_REACTIONS,
    STATUS_EVENTS,
    priority_of,
)
from tests.conformance.agent_orchestrator.report_watcher import REACTION_KEYS

_BUSY = ("active", "waiting_input", "blocked")


def close_merged(frame: pl.LazyFrame, *, is_on: bool, grace_s: float) -> pl.LazyFrame:
    """Close sessions whose pull request is merged, once their agent rests or the grace ends.

    Adds ``seen_status``, the poller's memory: it forgets a session that it closed.
    """
    is_merged = (pl.col("status") == "merged") & pl.lit(is_on)
    since = pl.coalesce("merged_pending_since", "at")
    is_busy = pl.col("activity").is_in(_BUSY).fill_null(False)
    waited_ms = (pl.col("at") - since).dt.total_milliseconds()
    closes = is_merged & (~is_busy | (waited_ms >= grace_s * 1000))
    has_runtime = pl.col("has_handle").fill_null(True)
    runtime = pl.when(has_runtime).then(pl.lit("missing")).otherwise(pl.lit("exited"))
    ends = {
        "session_state": pl.lit("terminated"),
        "session_reason": pl.lit("pr_merged"),
        "runtime_state": runtime,
        "runtime_reason": pl.lit("pr_merged_cleanup"),
        "terminated_at": pl.coalesce("terminated_at", "at"),
        "last_transition_at": pl.col("at"),
    }
    return frame.with_columns(
        **{name: pl.when(closes).then(end).otherwise(name) for name, end in ends.items()},
        merged_pending_since=pl.when(is_merged & ~closes).then(since),
        seen_status=pl.when(~closes).then("status"),
    )


def watch(frame: pl.LazyFrame, limits: WatcherThresholds) -> pl.LazyFrame:
    """Add the report watcher's columns after the poll, and ``~new_trigger``."""
    at = pl.col("at")
    ages = frame.with_columns(
        is_audited=watcher_audits(pl),
        created_age_s=(at - pl.col("created_at")).dt.total_milliseconds() / 1000,
        report_age_s=(at - pl.col("report_at")).dt.total_milliseconds() / 1000,
    ).with_columns(**{"~trigger": watcher_trigger(pl, limits)})
    is_same = (pl.col("~trigger") == pl.col("watcher_trigger")).fill_null(False)
    is_on = pl.col("~trigger").is_not_null()
    return ages.with_columns(
        **{"~new_trigger": is_on & ~is_same},
        watcher_trigger=pl.col("~trigger"),
        watcher_activated_at=pl.when(is_same).then("watcher_activated_at").when(is_on).then(at),
        watcher_count=pl.when(is_same).then(pl.col("watcher_count") + 1).when(is_on).then(1),
    ).drop("is_audited", "created_age_s", "report_age_s")


def notify(frame: pl.LazyFrame, reactions: Mapping[str, tuple[str, str]]) -> pl.LazyFrame:
    """Add ``notified_events``: what a notifier sees, joined by ``|``; empty: nothing."""
    by_status = {status: _notification(event, reactions) for status, event in STATUS_EVENTS.items()}
    by_trigger = {trigger: _reaction(key, reactions) for trigger, key in REACTION_KEYS.items()}
    changes = pl.col("status") != pl.col("~seen")
    closing = (pl.col("pr_state") == "closed") & (pl.col("~pr_state") != "closed")
    parts = (
        pl.when(changes).then(_text_of("status", by_status)),
        pl.when(closing).then(pl.lit(_notification("pr.closed", reactions), pl.String())),
        pl.when("~new_trigger").then(_text_of("watcher_trigger", by_trigger)),
    )
    return frame.with_columns(
        notified_events=pl.concat_str(parts, separator="|", ignore_nulls=True)
    )


def _text_of(column: str, texts: Mapping[str, str | None]) -> pl.Expr:
    return pl.col(column).replace_strict(
        list(texts), list(texts.values()), default=None, return_dtype=pl.String
    )


def _notification(event: str, reactions: Mapping[str, tuple[str, str]]) -> str | None:
    """The notification of an event: that of its reaction where one is configured."""
    key = EVENT_REACTIONS.get(event)
    if key in reactions:
        return _reaction(str(key), reactions)
    return f"{event}:{priority_of(event)}"


def _reaction(key: str, reactions: Mapping[str, tuple[str, str]]) -> str | None:
    """The notification of a reaction; none where it is off, or tells the agent instead."""
    action, priority = reactions.get(key, ("off", ""))
    return f"reaction.triggered({key}):{priority}" if action == "notify" else None
