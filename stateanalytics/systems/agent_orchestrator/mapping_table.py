"""What each word of the three axes means in ADR-0033's terms, as tables.

The mapping is ours: Agent Orchestrator has none. Its session axis decides lifecycle and
outcome, the worst of session and runtime decides health, the pull request decides
delivery; a conflict becomes two reasons, never a compromise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SessionMeaning(NamedTuple):
    """What a session's state and reason mean.

    Attributes
    ----------
    lifecycle, outcome : str, str or None
        ADR-0033's words; no outcome while it is not over.
    health : str
        What the session axis says of the health, before the runtime has its say.
    code : str
        Reason code.
    claim : str
        Observed, inferred or hypothesis.
    confidence : float
        That the reason explains the state, 0 to 1.
    message : str
        The reason in words.
    """

    lifecycle: str
    outcome: str | None
    health: str
    code: str
    claim: str
    confidence: float
    message: str


def _running(
    health: str, code: str, message: str, claim: str = "observed", confidence: float = 1.0
) -> SessionMeaning:
    return SessionMeaning("running", None, health, f"run.{code}", claim, confidence, message)


def _ended(
    outcome: str, code: str, message: str, claim: str = "observed", confidence: float = 1.0
) -> SessionMeaning:
    lifecycle = code.partition(".")[0]
    return SessionMeaning(lifecycle, outcome, "ok", f"run.{code}", claim, confidence, message)


SESSION_MEANINGS: Mapping[tuple[str, str], SessionMeaning] = {
    ("not_started", "spawn_requested"): SessionMeaning(
        "pending",
        None,
        "unknown",
        "run.pending.spawn_requested",
        "observed",
        1.0,
        "requested, nothing ran yet",
    ),
    ("working", "agent_acknowledged"): _running(
        "running", "running.agent_acknowledged", "the agent said it took the task"
    ),
    ("working", "task_in_progress"): _running(
        "running", "running.task_in_progress", "at work, as far as is known", "inferred", 0.6
    ),
    ("working", "fixing_ci"): _running(
        "running", "running.fixing_ci", "its pull request fails CI", "inferred", 0.7
    ),
    ("working", "resolving_review_comments"): _running(
        "running",
        "running.resolving_review_comments",
        "its pull request needs changes",
        "inferred",
        0.7,
    ),
    ("needs_input", "awaiting_user_input"): _running(
        "idle", "health.awaiting_user_input", "the agent waits for a person"
    ),
    ("idle", "pr_created"): _running(
        "ok", "running.pr_created", "handed over: a pull request is open"
    ),
    ("idle", "awaiting_external_review"): _running(
        "ok", "running.awaiting_external_review", "handed over: waits for review"
    ),
    ("idle", "pr_closed_waiting_decision"): _running(
        "ok",
        "running.pr_closed_waiting_decision",
        "its pull request was closed, a person decides",
    ),
    ("idle", "merged_waiting_decision"): _ended(
        "merged",
        "completed.merged_waiting_decision",
        "its pull request is merged",
        "observed",
        1.0,
    ),
    ("idle", "research_complete"): _ended(
        "completed",
        "completed.agent_declared",
        "the agent declared its work complete",
        "observed",
        0.8,
    ),
    ("stuck", "probe_failure"): _running(
        "stalled", "health.stalled", "no progress, or probes that never agreed", "inferred", 0.7
    ),
    ("stuck", "error_in_process"): _running(
        "stalled", "health.stalled_error", "blocked by an error, and stayed so", "inferred", 0.8
    ),
    ("detecting", "probe_failure"): _running(
        "degraded", "health.probe_inconclusive", "a probe failed", "hypothesis", 0.5
    ),
    ("detecting", "runtime_lost"): _running(
        "disconnected", "health.runtime_unconfirmed", "its runtime may be lost", "hypothesis", 0.5
    ),
    ("detecting", "agent_process_exited"): _running(
        "disconnected",
        "health.process_exit_unconfirmed",
        "its agent may have exited",
        "hypothesis",
        0.5,
    ),
    ("done", "research_complete"): _ended("completed", "completed.done", "done", "observed", 1.0),
    ("terminated", "manually_killed"): _ended(
        "cancelled", "cancelled.manually_killed", "killed by a person"
    ),
    ("terminated", "pr_merged"): _ended(
        "merged",
        "completed.pr_merged_cleanup",
        "closed because its pull request was merged",
        "observed",
        1.0,
    ),
    ("terminated", "auto_cleanup"): _ended(
        "aborted", "aborted.auto_cleanup", "removed as dead", "observed", 1.0
    ),
    ("terminated", "runtime_lost"): _ended(
        "aborted",
        "aborted.runtime_lost",
        "its runtime was gone: a crash, or a kill that was written over",
        "inferred",
        0.6,
    ),
    ("terminated", "agent_process_exited"): _ended(
        "aborted", "aborted.agent_process_exited", "its agent exited", "observed", 0.9
    ),
    ("terminated", "probe_failure"): _ended(
        "failed", "failed.probe_failure", "its probes failed", "inferred", 0.6
    ),
    ("terminated", "error_in_process"): _ended(
        "failed", "failed.error_in_process", "its agent failed", "observed", 0.9
    ),
}
"""State and reason of a session, in every pair that is written, to their meaning."""

ODD_PAIRS: Mapping[str, tuple[str, str | None, str]] = {
    "not_started": ("pending", None, "unknown"),
    "working": ("running", None, "running"),
    "idle": ("running", None, "ok"),
    "needs_input": ("running", None, "idle"),
    "stuck": ("running", None, "stalled"),
    "detecting": ("running", None, "disconnected"),
    "done": ("completed", "completed", "ok"),
    "terminated": ("aborted", "aborted", "ok"),
}
"""A known state with a reason that never goes with it: lifecycle, outcome, health."""

HEALTHS_BY_WEIGHT = (
    "process_dead",
    "orphaned",
    "stalled",
    "disconnected",
    "degraded",
    "idle",
    "running",
    "ok",
    "unknown",
)
"""From the worst to the one that says nothing."""

RUNTIME_HEALTHS: Mapping[str, str] = {
    "alive": "ok",
    "unknown": "unknown",
    "exited": "process_dead",
    "missing": "process_dead",
    "probe_failed": "disconnected",
}
"""State of the runtime to what it says of the health."""

RUNTIME_CODES: Mapping[str, str] = {
    "tmux_missing": "run.health.tmux_missing",
    "manual_kill_requested": "run.health.manual_kill_requested",
    "pr_merged_cleanup": "run.health.pr_merged_cleanup",
    "auto_cleanup": "run.health.auto_cleanup",
}
"""Reason of a runtime that is gone to a reason code of its own."""

OPEN_DELIVERIES: Mapping[str, str] = {
    "ci_failing": "invalid",
    "changes_requested": "partial",
    "approved": "passed",
    "merge_ready": "passed",
}
"""Reason of an open pull request to the delivery it means; the others say nothing yet."""

SAYS_NOTHING_YET = ("review_pending", "in_progress")
