"""The end of a poll: what it writes into the record, and the word it came to."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.statuses import legacy_status_rule
from tests.conformance.agent_orchestrator.detecting import DetectingBudget
from tests.conformance.agent_orchestrator.javascript_dates import milliseconds


def write(frame: pl.LazyFrame, budget: DetectingBudget) -> pl.LazyFrame:
    """The record after the poll, and the word it came to."""
    state = pl.coalesce("_session_state", "session_state")
    decides = pl.col("_session_state").is_not_null()
    is_frozen = pl.col("decided_by") == "indeterminate"
    skips = pl.col("decided_by").is_in(("indeterminate", "project_missing"))
    keeps_attempts = pl.col("decided_by").is_in(("activity_failure_kept", "project_missing"))
    entered = {
        "started_at": ("working", pl.col("started_at")),
        "completed_at": ("done", pl.col("completed_at")),
        "terminated_at": ("terminated", pl.col("terminated_at")),
    }
    times = {
        name: pl.when(decides & (state == word)).then(pl.coalesce(stored, "at")).otherwise(stored)
        for name, (word, stored) in entered.items()
    }
    written = frame.with_columns(
        **times,
        session_state=state,
        session_reason=pl.coalesce("_session_reason", "session_reason"),
        last_transition_at=pl.when(decides).then("at").otherwise("last_transition_at"),
        pr_state=pl.col("_pr_state"),
        pr_reason=pl.col("_pr_reason"),
        runtime_state=pl.when(skips).then("runtime_state").otherwise("_runtime_state"),
        runtime_reason=pl.when(skips).then("runtime_reason").otherwise("_runtime_reason"),
        evidence=pl.when(is_frozen).then("evidence").otherwise("_evidence"),
        detecting_attempts=pl.when("_is_doubt")
        .then("_doubt_attempts")
        .when(keeps_attempts | is_frozen)
        .then("detecting_attempts")
        .otherwise(pl.lit(0)),
        detecting_started_at=pl.when("_is_doubt")
        .then("_doubt_started_at")
        .when(is_frozen)
        .then("detecting_started_at"),
        detecting_hash=pl.when("_is_doubt")
        .then("_doubt_hash")
        .when(is_frozen)
        .then("detecting_hash"),
    )
    return _conclude(written, budget)


def _conclude(frame: pl.LazyFrame, budget: DetectingBudget) -> pl.LazyFrame:
    by = pl.col("decided_by")
    keeps_word = by.is_in(
        ("project_missing", "indeterminate", "activity_failure_kept", "unchanged")
    )
    status = (
        pl.when(keeps_word)
        .then("_status0")
        .when(by == "recovered")
        .then(pl.lit("working"))
        .when(by == "waiting_input")
        .then(pl.lit("needs_input"))
        .when(by == "pull_request")
        .then("_pr_status")
        .when(by == "idle")
        .then(pl.lit("stuck"))
        .otherwise(legacy_status_rule(library=pl))
    )
    is_touched = (
        pl.col("_session_state").is_not_null() | pl.col("_runtime_seen") | pl.col("_pr_seen")
    )
    skips = by.is_in(("indeterminate", "project_missing"))
    concluded = frame.with_columns(status=status, is_lifecycle_changed=is_touched & ~skips)
    seen = pl.coalesce("seen_status", "stored_status", "_status0")
    writes = (pl.col("is_lifecycle_changed") | (pl.col("status") != seen)) & ~skips
    since_ms = milliseconds(pl.col("at")) - milliseconds(pl.col("detecting_started_at"))
    is_exhausted = (pl.col("detecting_attempts") > budget.max_attempts) | (
        since_ms > budget.max_duration_s * 1000
    ).fill_null(False)
    is_escalated = (pl.col("status") == "stuck") & is_exhausted
    return concluded.with_columns(
        stored_status=pl.when(writes).then("status").otherwise("stored_status"),
        detecting_escalated_at=pl.when(by == "indeterminate")
        .then("detecting_escalated_at")
        .when(is_escalated)
        .then(pl.coalesce("detecting_escalated_at", "at")),
    )
