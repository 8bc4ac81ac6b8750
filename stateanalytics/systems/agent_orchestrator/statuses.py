"""The vocabularies of Agent Orchestrator, and the one status that it derives and shows."""

from __future__ import annotations

from typing import Final

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import first_true, flag, look_up

# A word's place in its tuple is its place in Agent Orchestrator's own declaration.
KINDS: Final = ("worker", "orchestrator")

LEGACY_STATUSES: Final = (
    "spawning",
    "working",
    "detecting",
    "pr_open",
    "ci_failed",
    "review_pending",
    "changes_requested",
    "approved",
    "mergeable",
    "merged",
    "cleanup",
    "needs_input",
    "stuck",
    "errored",
    "killed",
    "idle",
    "done",
    "terminated",
)
TERMINAL_STATUSES: Final = ("killed", "terminated", "done", "cleanup", "errored", "merged")
"""The derived statuses that the poll loop leaves alone."""

SESSION_STATES: Final = (
    "not_started",
    "working",
    "idle",
    "needs_input",
    "stuck",
    "detecting",
    "done",
    "terminated",
)
SESSION_REASONS: Final = (
    "spawn_requested",
    "agent_acknowledged",
    "task_in_progress",
    "pr_created",
    "pr_closed_waiting_decision",
    "fixing_ci",
    "resolving_review_comments",
    "awaiting_user_input",
    "awaiting_external_review",
    "research_complete",
    "merged_waiting_decision",
    "manually_killed",
    "pr_merged",
    "auto_cleanup",
    "runtime_lost",
    "agent_process_exited",
    "probe_failure",
    "error_in_process",
)
PR_STATES: Final = ("none", "open", "merged", "closed")
PR_REASONS: Final = (
    "not_created",
    "in_progress",
    "ci_failing",
    "review_pending",
    "changes_requested",
    "approved",
    "merge_ready",
    "merged",
    "closed_unmerged",
    "cleared_on_restore",
)
RUNTIME_STATES: Final = ("unknown", "alive", "exited", "missing", "probe_failed")
RUNTIME_REASONS: Final = (
    "spawn_incomplete",
    "process_running",
    "process_missing",
    "tmux_missing",
    "manual_kill_requested",
    "pr_merged_cleanup",
    "auto_cleanup",
    "probe_error",
)
REPORT_STATES: Final = (
    "started",
    "working",
    "waiting",
    "needs_input",
    "fixing_ci",
    "addressing_reviews",
    "pr_created",
    "draft_pr_created",
    "ready_for_review",
    "completed",
)


PAYLOAD_WORDS: Final = {
    "kind": KINDS,
    "session_state": SESSION_STATES,
    "session_reason": SESSION_REASONS,
    "pr_state": PR_STATES,
    "pr_reason": PR_REASONS,
    "runtime_state": RUNTIME_STATES,
    "runtime_reason": RUNTIME_REASONS,
}
"""The words that each field of a lifecycle payload may hold."""

_BY_STATE = {
    "not_started": "spawning",
    "needs_input": "needs_input",
    "stuck": "stuck",
    "done": "done",
    "detecting": "detecting",
}
_BY_END = {
    "manually_killed": "killed",
    "runtime_lost": "killed",
    "auto_cleanup": "cleanup",
    "pr_merged": "cleanup",
    "error_in_process": "errored",
    "probe_failure": "errored",
}
_BY_PULL_REQUEST = {
    "ci_failing": "ci_failed",
    "changes_requested": "changes_requested",
    "review_pending": "review_pending",
    "approved": "approved",
    "merge_ready": "mergeable",
}


def legacy_status(prefix: str = "") -> pl.Expr:
    """Legacy status: the one word that Agent Orchestrator shows for the three axes.

    Parameters
    ----------
    prefix : str
        Of the columns ``session_state``, ``session_reason``, ``pr_state`` and ``pr_reason``.

    Returns
    -------
    polars.Expr of String
        Null where the session state is null or no known word.

    Notes
    -----
    Agent Orchestrator's ``deriveLegacyStatus``. Runtime, kind and times never matter.

    Examples
    --------
    >>> axes = {"session_state": ["working", "stuck", "terminated"]}
    >>> axes |= {"session_reason": ["fixing_ci", "probe_failure", "pr_merged"]}
    >>> axes |= {"pr_state": ["open", "open", "merged"]}
    >>> axes |= {"pr_reason": ["ci_failing", "approved", "merged"]}
    >>> pl.DataFrame(axes).select(legacy_status()).to_series().to_list()
    ['ci_failed', 'stuck', 'cleanup']
    """
    state, reason, pr_state, pr_reason = (
        pl.col(f"{prefix}{name}")
        for name in ("session_state", "session_reason", "pr_state", "pr_reason")
    )
    is_at_work = state.is_in(("working", "idle"))
    by_pull_request = first_true(
        (state == "terminated", look_up(reason, _BY_END, "terminated")),
        (is_at_work & (pr_state == "merged"), "merged"),
        (is_at_work & (pr_state == "open"), look_up(pr_reason, _BY_PULL_REQUEST, "pr_open")),
        (is_at_work, state),
    )
    return look_up(state, _BY_STATE, by_pull_request)


def is_terminal() -> pl.Expr:
    """Does a session with axes count as over.

    It is one of three notions of *terminal* in Agent Orchestrator: it counts a stuck session
    of which the process is gone, which the poll loop and the dashboard do not.
    """
    return (
        pl.col("session_state").is_in(("done", "terminated")).fill_null(value=False)
        | pl.col("pr_state").is_in(("merged",)).fill_null(value=False)
        | pl.col("runtime_state").is_in(("missing", "exited")).fill_null(value=False)
    )


EVENT_PRIORITIES = {
    **dict.fromkeys(("working", "pr_open", "review_pending", "killed"), "info"),
    **dict.fromkeys(("ci_failed", "changes_requested"), "warning"),
    **dict.fromkeys(("approved", "mergeable", "merged"), "action"),
    **dict.fromkeys(("needs_input", "stuck", "errored"), "urgent"),
}
"""Status to the priority of the event that a change to it emits; every other emits none."""


def primary_reason() -> pl.Expr:
    """The one reason that Agent Orchestrator logs for a change.

    Notes
    -----
    Agent Orchestrator's ``primaryLifecycleReason``: the session's while detecting, else the
    pull request's if it says anything, else the runtime's if it is not simply running. So
    a stuck session of which the terminal is gone logs ``tmux_missing``.

    Examples
    --------
    >>> words = {"session_state": ["stuck"], "session_reason": ["probe_failure"]}
    >>> words |= {"pr_reason": ["in_progress"], "runtime_reason": ["tmux_missing"]}
    >>> pl.DataFrame(words).select(primary_reason()).item()
    'tmux_missing'
    """
    session, pull_request, runtime = (
        pl.col(name) for name in ("session_reason", "pr_reason", "runtime_reason")
    )
    return first_true(
        (pl.col("session_state") == "detecting", session),
        (~pull_request.is_in(("not_created", "in_progress")), pull_request),
        (runtime != "process_running", runtime),
        default=session,
    )


# --- the Go rewrite ----------------------------------------------------------------------

ACTIVITIES = ("active", "idle", "waiting_input", "blocked", "exited")
"""What an agent can be seen doing."""
GO_ENDS = ("terminated", "merged")
"""The statuses of sessions that are over."""

NO_SIGNAL_S = 90.0
"""A harness with hooks that has been silent for longer since its start has no signal."""

PULL_REQUEST_STATUSES = (
    "ci_failed",
    "changes_requested",
    "draft",
    "review_pending",
    "pr_open",
    "approved",
    "mergeable",
)
"""The statuses of an open pull request, from the worst."""


def go_pull_request_status() -> pl.Expr:
    """Status of each pull request of the Go rewrite, or merged or closed.

    Examples
    --------
    >>> words = {"pr_state": ["open", "draft"], "ci_state": ["passing", "failing"]}
    >>> words |= {"review_decision": ["review_required", "none"]}
    >>> words |= {"mergeability": ["unknown"] * 2, "n_unresolved_comments": [0, 0]}
    >>> pl.DataFrame(words).select(go_pull_request_status()).to_series().to_list()
    ['review_pending', 'ci_failed']
    """
    state, review, merge = (
        pl.col(name) for name in ("pr_state", "review_decision", "mergeability")
    )
    needs_changes = (review == "changes_requested") | (pl.col("n_unresolved_comments") > 0)
    return first_true(
        (state == "merged", "merged"),
        (state == "closed", "closed"),
        (pl.col("ci_state") == "failing", "ci_failed"),
        (state == "draft", "draft"),
        (needs_changes, "changes_requested"),
        (merge == "mergeable", "mergeable"),
        (review == "review_required", "review_pending"),
        (merge == "blocked", "pr_open"),
        (review == "approved", "approved"),
        default="pr_open",
    )


def go_status() -> pl.Expr:
    """Status of each session of the Go rewrite, but for silence, which needs a clock.

    Notes
    -----
    First match: terminated (merged, if a pull request was), active, exited, waiting or
    blocked, the worst open pull request (``worst_pr_status``; null: none is open), merged,
    idle. An activity that no known version writes is a status of its own.

    Examples
    --------
    >>> session = {"is_terminated": [False], "activity_state": ["blocked"]}
    >>> session |= {"has_merged_pr": [False], "worst_pr_status": ["draft"]}
    >>> pl.DataFrame(session).select(go_status()).item()
    'needs_input'
    """
    activity, worst = pl.col("activity_state"), pl.col("worst_pr_status")
    is_terminated, is_merged = flag("is_terminated"), flag("has_merged_pr")
    return first_true(
        (is_terminated & is_merged, "merged"),
        (is_terminated, "terminated"),
        (~activity.is_in(ACTIVITIES), activity),
        (activity == "active", "working"),
        (activity == "exited", "exited"),
        (activity.is_in(("waiting_input", "blocked")), "needs_input"),
        (worst.is_not_null(), worst),
        (is_merged, "merged"),
        default="idle",
    )
