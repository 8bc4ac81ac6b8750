"""The middle of a poll: the state, pull request and evidence that its rule decides on."""

from __future__ import annotations

import polars as pl

from tests.conformance.agent_orchestrator.agent_report import report_meaning
from tests.conformance.agent_orchestrator.detecting import DetectingBudget, detecting_rule
from tests.conformance.agent_orchestrator.javascript_dates import milliseconds, moment
from tests.conformance.agent_orchestrator.pull_request import pull_request_rule


def decide(frame: pl.LazyFrame, budget: DetectingBudget) -> pl.LazyFrame:
    """Add the state, reason, pull request axis and evidence that the rule decides on."""
    by = pl.col("decided_by")
    is_doubt = (by == "activity_failure") | (
        (by == "probe") & (pl.col("_probe_decision") == "detecting")
    )
    doubted = frame.with_columns(
        _is_doubt=is_doubt,
        _doubt_evidence=pl.when(is_doubt).then(
            pl.when(by == "probe").then("_probe_evidence").otherwise("_activity_evidence")
        ),
        _doubt_reason=pl.when(by == "probe").then("_probe_reason"),
    )
    doubt = detecting_rule(
        budget,
        now_ms=milliseconds(pl.col("at")),
        evidence=pl.col("_doubt_evidence"),
        attempts=pl.col("detecting_attempts"),
        started_ms=milliseconds(pl.col("detecting_started_at")),
        has_start=pl.col("detecting_started_at").is_not_null(),
        previous_hash=pl.when(pl.col("detecting_hash") != "").then("detecting_hash"),
        is_blocked=pl.col("_is_blocked"),
        reason=pl.col("_doubt_reason"),
    )
    in_doubt = doubted.with_columns(
        _doubt_word=pl.when(doubt.is_escalated)
        .then(pl.lit("stuck"))
        .otherwise(pl.lit("detecting")),
        _doubt_session_reason=doubt.session_reason,
        _doubt_attempts=doubt.attempts,
        _doubt_started_at=moment(doubt.started_ms),
        _doubt_hash=doubt.evidence_hash,
    )
    return _pull_request(in_doubt).with_columns(**_session()).with_columns(**_evidence())


def _pull_request(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the pull request axis: opened if there is one, then as the decision says."""
    decision = pull_request_rule(
        state=pl.col("scm_state"),
        ci=pl.col("scm_ci"),
        review=pl.col("scm_review"),
        is_mergeable=pl.col("scm_is_mergeable"),
        is_idle_too_long=pl.col("_is_too_idle"),
        is_blocked=pl.col("_is_blocked"),
        activity_evidence=pl.col("_activity_evidence"),
    )
    decides = pl.col("decided_by") == "pull_request"
    earlier = ("project_missing", "waiting_input", "activity_failure_kept", "activity_failure")
    reached = pl.col("has_pr") & ~pl.col("decided_by").is_in((*earlier, "indeterminate", "probe"))
    opens = reached & (pl.col("pr_state") == "none")
    names = reached & (pl.col("pr_reason") == "not_created")
    return frame.with_columns(
        _pr_status=decision.status,
        _pr_session_state=decision.session_state,
        _pr_session_reason=decision.session_reason,
        _pr_evidence=decision.evidence,
        _pr_seen=reached,
        _pr_state=pl.when(decides)
        .then(decision.pr_state)
        .when(opens)
        .then(pl.lit("open"))
        .otherwise("pr_state"),
        _pr_reason=pl.when(decides)
        .then(decision.pr_reason)
        .when(names)
        .then(pl.lit("in_progress"))
        .otherwise("pr_reason"),
    )


def _session() -> dict[str, pl.Expr]:
    """State and reason after the poll; null where the rule leaves them alone."""
    is_killed = (pl.col("decided_by") == "probe") & (pl.col("_probe_decision") == "killed")
    report = pl.col("report_state")
    idle_reason = (
        pl.when("_is_blocked").then(pl.lit("error_in_process")).otherwise(pl.lit("probe_failure"))
    )
    # A stuck session whose activity cannot even be looked for, but whose runtime answers.
    is_reopened = (
        (pl.col("decided_by") == "weak_evidence")
        & (pl.col("_detection") == "unavailable")
        & (pl.col("session_state") == "stuck")
        & (pl.col("session_reason") == "probe_failure")
        & (pl.col("_runtime") == "alive")
    )
    states = {
        "waiting_input": (pl.lit("needs_input"), pl.lit("awaiting_user_input")),
        "pull_request": (pl.col("_pr_session_state"), pl.col("_pr_session_reason")),
        "agent_report": (
            report_meaning(report, "session_state"),
            report_meaning(report, "session_reason"),
        ),
        "idle": (pl.lit("stuck"), idle_reason),
        "recovered": (pl.lit("working"), pl.lit("task_in_progress")),
    }
    chosen = []
    for place, (doubt, killed, reopened) in enumerate(
        (
            ("_doubt_word", "terminated", "detecting"),
            ("_doubt_session_reason", "runtime_lost", "probe_failure"),
        )
    ):
        rule = pl.when("_is_doubt").then(pl.col(doubt)).when(is_killed).then(pl.lit(killed))
        rule = rule.when(is_reopened).then(pl.lit(reopened))
        for name, values in states.items():
            rule = rule.when(pl.col("decided_by") == name).then(values[place])
        chosen.append(rule.otherwise(pl.lit(None, pl.String())))
    return {"_session_state": chosen[0], "_session_reason": chosen[1], "_is_reopened": is_reopened}


def _evidence() -> dict[str, pl.Expr]:
    by, activity = pl.col("decided_by"), pl.col("_activity_evidence")
    return {
        "_evidence": pl.when(by == "project_missing")
        .then(pl.lit("project_missing"))
        .when(by == "probe")
        .then("_probe_evidence")
        .when(by == "pull_request")
        .then("_pr_evidence")
        .when(by == "agent_report")
        .then(pl.concat_str(pl.lit("agent_report:"), "report_state"))
        .when(by == "idle")
        .then(pl.concat_str(pl.lit("idle_beyond_threshold "), activity))
        .otherwise(activity)
    }
