"""What follows when the probes of a runtime and of an agent's process disagree."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need
from tests.conformance.agent_orchestrator.detecting import DetectingBudget, decide_detecting


class ProbeDecision(NamedTuple):
    """One probe decision, as expressions over one frame."""

    decision: pl.Expr
    reason: pl.Expr
    evidence: pl.Expr


def probe_rule(
    *,
    runtime: pl.Expr,
    is_runtime_failed: pl.Expr,
    process: pl.Expr,
    is_process_failed: pl.Expr,
    can_probe: pl.Expr,
    is_live: pl.Expr,
    activity_evidence: pl.Expr,
) -> ProbeDecision:
    """The decision over two probes, as expressions; see `resolve_probes`."""
    is_failed = is_runtime_failed | is_process_failed
    is_dead, is_gone = runtime == "dead", process == "dead"
    disagree = (is_dead & (process == "alive")) | ((runtime == "alive") & is_gone)
    disagree = disagree | (is_dead & is_live)
    is_unproven = is_dead & (process == "unknown") & can_probe
    is_killed = is_dead & is_gone
    decision = (
        pl.when(is_failed | disagree | is_unproven)
        .then(pl.lit("detecting"))
        .when(is_killed)
        .then(pl.lit("killed"))
        .otherwise(pl.lit("none"))
    )
    reason = (
        pl.when(is_failed)
        .then(pl.lit("probe_failure"))
        .when(is_dead)
        .then(pl.lit("runtime_lost"))
        .otherwise(pl.lit("agent_process_exited"))
    )
    pair = pl.concat_str(pl.lit(" runtime="), runtime, pl.lit(" process="), process)
    evidence = (
        pl.when(is_failed)
        .then(pl.concat_str(pl.lit("probe_failed"), pair))
        .when(disagree)
        .then(pl.concat_str(pl.lit("signal_disagreement"), pair))
        .when(is_unproven)
        .then(pl.lit("runtime_dead process_unknown"))
        .when(is_killed)
        .then(pl.lit("runtime_dead process_dead"))
    )
    return ProbeDecision(
        decision=decision,
        reason=pl.when(decision == "detecting").then(reason),
        evidence=pl.concat_str(evidence, pl.lit(" "), activity_evidence),
    )


def resolve_probes(frame: pl.DataFrame, *, budget: DetectingBudget | None = None) -> pl.DataFrame:
    """Decide from two probes whether a session is dead, in doubt, or neither.

    Parameters
    ----------
    frame : polars.DataFrame
        ``runtime`` and ``process`` (alive, dead, unknown), ``is_runtime_failed`` and
        ``is_process_failed`` (the probe itself failed), ``can_probe`` (the status before
        the poll was not spawning), ``is_live`` (`classify_activity`'s
        ``is_liveness_evidence``), ``activity_evidence`` (text); and for the budget, as in
        `decide_detecting`: ``at``, ``detecting_attempts``, ``detecting_started_at``,
        ``detecting_hash``, optionally ``is_idle_blocked``.
    budget : DetectingBudget, optional
        The limits; Agent Orchestrator's where absent.

    Returns
    -------
    polars.DataFrame
        With ``decision`` (none, detecting, killed), ``session_state``,
        ``session_reason``, ``evidence``, and the detecting columns as after the poll;
        all of them null (``detecting_attempts`` 0 where killed) without a decision.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``resolveProbeDecision``. A dead process in an unknown runtime
    decides nothing.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "runtime": ["dead", "alive"],
    ...         "process": ["dead", "dead"],
    ...         "is_runtime_failed": [False, False],
    ...         "is_process_failed": [False, False],
    ...         "can_probe": [True, True],
    ...         "is_live": [False, False],
    ...         "activity_evidence": ["activity_signal=unavailable"] * 2,
    ...         "at": [datetime(2026, 5, 1, tzinfo=UTC)] * 2,
    ...         "detecting_attempts": [0, 0],
    ...         "detecting_started_at": pl.Series([None] * 2, dtype=pl.Datetime("us", "UTC")),
    ...         "detecting_hash": pl.Series([None] * 2, dtype=pl.String),
    ...     }
    ... )
    >>> resolve_probes(frame).select("decision", "session_reason").rows()
    [('killed', 'runtime_lost'), ('detecting', 'agent_process_exited')]
    """
    names = ["runtime", "is_runtime_failed", "process", "is_process_failed", "can_probe"]
    need(frame, [*names, "is_live", "activity_evidence"], "resolve_probes")
    rule = probe_rule(
        runtime=pl.col("runtime"),
        is_runtime_failed=pl.col("is_runtime_failed"),
        process=pl.col("process"),
        is_process_failed=pl.col("is_process_failed"),
        can_probe=pl.col("can_probe"),
        is_live=pl.col("is_live"),
        activity_evidence=pl.col("activity_evidence"),
    )
    asked = frame.with_columns(
        decision=rule.decision, detecting_reason=rule.reason, evidence=rule.evidence
    )
    decided = decide_detecting(asked, budget=budget)
    is_killed, is_detecting = pl.col("decision") == "killed", pl.col("decision") == "detecting"
    kept = ("session_state", "session_reason", "detecting_started_at", "detecting_hash")
    return (
        decided.with_columns(
            *(pl.when(is_detecting).then(name).alias(name) for name in kept),
            detecting_attempts=pl.when(is_detecting)
            .then("detecting_attempts")
            .when(is_killed)
            .then(0),
            is_escalated=pl.col("is_escalated") & is_detecting,
        )
        .with_columns(
            session_state=pl.when(is_killed).then(pl.lit("terminated")).otherwise("session_state"),
            session_reason=pl.when(is_killed)
            .then(pl.lit("runtime_lost"))
            .otherwise("session_reason"),
        )
        .drop("status", "detecting_reason", "is_start_unreadable")
    )
