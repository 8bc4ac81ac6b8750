"""The vocabularies of Agent Orchestrator, and the one status that it derives and shows."""

from __future__ import annotations

from typing import Any, Final

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    add_columns,
    first_true,
    look_up,
)

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


def legacy_status_rule(library: Any = nw) -> Any:
    """The legacy status as one expression over session and pull request columns.

    Parameters
    ----------
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.

    Returns
    -------
    narwhals.Expr or polars.Expr
        Text; null where the session state is null or no known word.

    Notes
    -----
    Agent Orchestrator's ``deriveLegacyStatus``. Runtime, kind and times never matter.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["working"],
    ...         "session_reason": ["fixing_ci"],
    ...         "pr_state": ["open"],
    ...         "pr_reason": ["ci_failing"],
    ...     }
    ... )
    >>> frame.select(legacy_status_rule(pl)).item()
    'ci_failed'
    """
    state, reason, pr_state, pr_reason = (
        library.col(name) for name in ("session_state", "session_reason", "pr_state", "pr_reason")
    )
    is_at_work = state.is_in(("working", "idle"))
    opened = look_up(pr_reason, _BY_PULL_REQUEST, "pr_open", library=library)
    rest = first_true(
        (state == "terminated", look_up(reason, _BY_END, "terminated", library=library)),
        (is_at_work & (pr_state == "merged"), "merged"),
        (is_at_work & (pr_state == "open"), opened),
        (is_at_work, state),
        library=library,
    )
    return look_up(state, _BY_STATE, rest, library=library)


def derive_legacy_status(frame: FrameT) -> FrameT:
    """Add the one word that Agent Orchestrator shows for the three axes.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``session_reason``, ``pr_state``, ``pr_reason``.

    Returns
    -------
    The same kind of frame
        With ``legacy_status``; null where the session state is no known word.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck", "terminated"],
    ...         "session_reason": ["probe_failure", "pr_merged"],
    ...         "pr_state": ["open", "merged"],
    ...         "pr_reason": ["approved", "merged"],
    ...     }
    ... )
    >>> derive_legacy_status(frame)["legacy_status"].to_list()
    ['stuck', 'cleanup']
    """
    names = ["session_state", "session_reason", "pr_state", "pr_reason"]
    rules = {"legacy_status": legacy_status_rule()}
    return add_columns(frame, names, "derive_legacy_status", rules)


def is_terminal_rule(library: Any) -> Any:
    """Does a session with axes count as over; as an expression of Narwhals or polars.

    It is one of three notions of *terminal* in Agent Orchestrator: it counts a stuck session
    whose process is gone, which the poll loop and the dashboard do not.
    """
    ends = {
        "session_state": ("done", "terminated"),
        "pr_state": ("merged",),
        "runtime_state": ("missing", "exited"),
    }
    rules = [library.col(name).is_in(words).fill_null(False) for name, words in ends.items()]
    return rules[0] | rules[1] | rules[2]


EVENT_PRIORITIES = {
    **dict.fromkeys(("working", "pr_open", "review_pending", "killed"), "info"),
    **dict.fromkeys(("ci_failed", "changes_requested"), "warning"),
    **dict.fromkeys(("approved", "mergeable", "merged"), "action"),
    **dict.fromkeys(("needs_input", "stuck", "errored"), "urgent"),
}
"""Status to the priority of the event that a change to it emits; every other emits none."""


def name_primary_reason(frame: FrameT) -> FrameT:
    """Add the one reason that Agent Orchestrator logs for a change.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``session_reason``, ``pr_reason``, ``runtime_reason``.

    Returns
    -------
    The same kind of frame
        With ``primary_reason``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``primaryLifecycleReason``: the session's while detecting, else the
    pull request's if it says anything, else the runtime's if it is not simply running. So
    a stuck session whose terminal is gone logs ``tmux_missing``.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck"],
    ...         "session_reason": ["probe_failure"],
    ...         "pr_reason": ["in_progress"],
    ...         "runtime_reason": ["tmux_missing"],
    ...     }
    ... )
    >>> name_primary_reason(frame)["primary_reason"].item()
    'tmux_missing'
    """
    session, pull_request, runtime = (
        nw.col(name) for name in ("session_reason", "pr_reason", "runtime_reason")
    )
    rule = nw.when(runtime != "process_running").then(runtime).otherwise(session)
    says_more = ~pull_request.is_in(("not_created", "in_progress"))
    rule = nw.when(says_more).then(pull_request).otherwise(rule)
    is_detecting = nw.col("session_state") == "detecting"
    rules = {"primary_reason": nw.when(is_detecting).then(session).otherwise(rule)}
    names = ["session_state", "session_reason", "pr_reason", "runtime_reason"]
    return add_columns(frame, names, "name_primary_reason", rules)


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


def classify_go_pull_requests(frame: FrameT) -> FrameT:
    """Add the status of each pull request of the Go rewrite.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``pr_state`` (draft, open, merged, closed), ``ci_state``, ``review_decision``,
        ``mergeability`` (words of its ``pr`` table), ``n_unresolved_comments``.

    Returns
    -------
    The same kind of frame
        With ``pr_status``: one of `PULL_REQUEST_STATUSES`, or merged or closed; and
        ``pr_rank``, its place in that order (null where it is not open).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "pr_state": ["open", "draft"],
    ...         "ci_state": ["passing", "failing"],
    ...         "review_decision": ["review_required", "none"],
    ...         "mergeability": ["unknown", "unknown"],
    ...         "n_unresolved_comments": [0, 0],
    ...     }
    ... )
    >>> classify_go_pull_requests(frame)["pr_status"].to_list()
    ['review_pending', 'ci_failed']
    """
    review, merge = nw.col("review_decision"), nw.col("mergeability")
    needs_changes = (review == "changes_requested") | (nw.col("n_unresolved_comments") > 0)
    status = first_true(
        (nw.col("pr_state") == "merged", "merged"),
        (nw.col("pr_state") == "closed", "closed"),
        (nw.col("ci_state") == "failing", "ci_failed"),
        (nw.col("pr_state") == "draft", "draft"),
        (needs_changes, "changes_requested"),
        (merge == "mergeable", "mergeable"),
        (review == "review_required", "review_pending"),
        (merge == "blocked", "pr_open"),
        (review == "approved", "approved"),
        default="pr_open",
    )
    places = {word: place for place, word in enumerate(PULL_REQUEST_STATUSES)}
    rank = look_up(nw.col("pr_status"), places, dtype=nw.Int64())
    names = ["pr_state", "ci_state", "review_decision", "mergeability", "n_unresolved_comments"]
    function = "classify_go_pull_requests"
    return add_columns(frame, names, function, {"pr_status": status}, {"pr_rank": rank})


def derive_go_status(frame: FrameT, *, no_signal_s: float = NO_SIGNAL_S) -> FrameT:
    """Add the status of each session of the Go rewrite.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``is_terminated``, ``activity_state``, ``activity_age_s`` (since the last
        activity, or the start), ``has_hooks`` (does its harness signal), ``has_signal``
        (did it ever), and of its pull requests: ``has_merged_pr`` and
        ``worst_pr_status`` (of the open ones; null: none is open).
    no_signal_s : float, default 90
        The silence after which a harness with hooks counts as silent.

    Returns
    -------
    The same kind of frame
        With ``status``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    First match: terminated (merged, if a pull request was), active, exited, waiting or
    blocked, the worst open pull request, merged, no signal, idle.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "is_terminated": [False],
    ...         "activity_state": ["idle"],
    ...         "activity_age_s": [91.0],
    ...         "has_hooks": [True],
    ...         "has_signal": [False],
    ...         "has_merged_pr": [False],
    ...         "worst_pr_status": pl.Series([None], dtype=pl.String),
    ...     }
    ... )
    >>> derive_go_status(frame)["status"].item()
    'no_signal'
    """
    activity, worst = nw.col("activity_state"), nw.col("worst_pr_status")
    is_silent = (
        nw.col("has_hooks") & ~nw.col("has_signal") & (nw.col("activity_age_s") > no_signal_s)
    )
    is_merged = nw.col("has_merged_pr")
    status = first_true(
        (nw.col("is_terminated") & is_merged, "merged"),
        (nw.col("is_terminated"), "terminated"),
        (activity == "active", "working"),
        (activity == "exited", "exited"),
        (activity.is_in(("waiting_input", "blocked")), "needs_input"),
        (~worst.is_null(), worst),
        (is_merged, "merged"),
        (is_silent, "no_signal"),
        default="idle",
    )
    names = ["is_terminated", "activity_state", "activity_age_s", "has_hooks", "has_signal"]
    names += ["has_merged_pr", "worst_pr_status"]
    return add_columns(frame, names, "derive_go_status", {"status": status})
