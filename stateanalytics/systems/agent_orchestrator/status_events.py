"""The events, priorities and reactions of a change of status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns

STATUS_EVENTS: Mapping[str, str] = {
    "working": "session.working",
    "pr_open": "pr.created",
    "ci_failed": "ci.failing",
    "review_pending": "review.pending",
    "changes_requested": "review.changes_requested",
    "approved": "review.approved",
    "mergeable": "merge.ready",
    "merged": "merge.completed",
    "needs_input": "session.needs_input",
    "stuck": "session.stuck",
    "errored": "session.errored",
    "killed": "session.killed",
}
"""New status to the event it emits; every other status emits none."""

EVENT_REACTIONS: Mapping[str, str] = {
    "ci.failing": "ci-failed",
    "review.changes_requested": "changes-requested",
    "automated_review.found": "bugbot-comments",
    "merge.conflicts": "merge-conflicts",
    "merge.ready": "approved-and-green",
    "pr.closed": "pr-closed",
    "session.stuck": "agent-stuck",
    "session.needs_input": "agent-needs-input",
    "session.killed": "agent-exited",
    "summary.all_complete": "all-complete",
}
"""Event to the reaction that replaces it, where one is configured."""

_LOG_LEVELS = {
    "ci_failed": "warn",
    "changes_requested": "warn",
    "needs_input": "error",
    "stuck": "error",
    "errored": "error",
}
# Parts of an event type and the priority they mean; the first match counts.
PRIORITIES = (
    (r"stuck|needs_input|errored", "urgent"),
    (r"^summary\.", "info"),
    (r"approved|ready|merged|completed", "action"),
    (r"fail|changes_requested|conflicts", "warning"),
)


def classify_status_changes(frame: FrameT) -> FrameT:
    """Add the event, its priority and reaction, and the log level of a new status.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``new_status`` (legacy word).

    Returns
    -------
    The same kind of frame
        With ``event_type`` (null: none), ``event_priority``, ``reaction_key`` and
        ``log_level`` (info, warn, error: with the default ``AO_LOG_LEVEL`` only the last
        two are ever written).

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> changes = pl.DataFrame({"new_status": ["stuck", "detecting"]})
    >>> classify_status_changes(changes)["event_type"].to_list()
    ['session.stuck', None]
    """
    status = nw.col("new_status")
    words = {
        "event_type": first_match(nw, status, STATUS_EVENTS, None),
        "log_level": first_match(nw, status, _LOG_LEVELS, "info"),
    }
    function = "classify_status_changes"
    return add_columns(frame, ["new_status"], function, words, event_rules())


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


def first_match(library: Any, column: Any, table: Mapping[str, str], default: str | None) -> Any:
    """The value of a word in a table, as an expression of Narwhals or polars."""
    text = nw.String() if library is nw else library.String()
    rule = library.lit(default, text)
    for word, value in table.items():
        rule = library.when(column == word).then(library.lit(value)).otherwise(rule)
    return rule


def event_rules() -> dict[str, Any]:
    """The priority and the reaction of ``event_type``, as expressions."""
    event = nw.col("event_type")
    priority: Any = nw.when(~event.is_null()).then(nw.lit("info"))
    for pattern, word in reversed(PRIORITIES):
        priority = nw.when(event.str.contains(pattern)).then(nw.lit(word)).otherwise(priority)
    return {
        "event_priority": priority,
        "reaction_key": first_match(nw, event, EVENT_REACTIONS, None),
    }
