"""The events, priorities and reactions of a change of status, and the reactions by default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns, look_up

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
        "event_type": look_up(status, STATUS_EVENTS),
        "log_level": look_up(status, _LOG_LEVELS, "info"),
    }
    function = "classify_status_changes"
    return add_columns(frame, ["new_status"], function, words, event_rules())


DEFAULT_REACTIONS: Mapping[str, tuple[str, str]] = {
    "ci-failed": ("send-to-agent", "info"),
    "changes-requested": ("send-to-agent", "info"),
    "bugbot-comments": ("send-to-agent", "info"),
    "merge-conflicts": ("send-to-agent", "info"),
    "approved-and-green": ("notify", "action"),
    "pr-closed": ("notify", "action"),
    "agent-stuck": ("notify", "urgent"),
    "agent-needs-input": ("notify", "urgent"),
    "agent-exited": ("notify", "urgent"),
    "all-complete": ("notify", "info"),
}
"""Reaction key to what it does by default, and the priority of its notification."""


def classify_events(frame: FrameT) -> FrameT:
    """Add the priority and the reaction of an event, from the text of its type.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``event_type`` (text).

    Returns
    -------
    The same kind of frame
        With ``event_priority`` (urgent, action, warning, info; null without an event)
        and ``reaction_key`` (null: the event has none).

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Notes
    -----
    Agent Orchestrator's ``inferPriority`` and ``eventToReactionKey``.

    Examples
    --------
    >>> import polars as pl
    >>> events = pl.DataFrame({"event_type": ["merge.ready", "session.working"]})
    >>> classify_events(events).select("event_priority", "reaction_key").rows()
    [('action', 'approved-and-green'), ('info', None)]
    """
    return add_columns(frame, ["event_type"], "classify_events", event_rules())


def priority_of(event_type: str) -> str:
    """The priority of one event type; as `classify_events`, for a word."""
    matches = (word for pattern, word in PRIORITIES if re.search(pattern, event_type))
    return next(matches, "info")


def event_rules() -> dict[str, Any]:
    """The priority and the reaction of ``event_type``, as expressions."""
    event = nw.col("event_type")
    priority: Any = nw.when(~event.is_null()).then(nw.lit("info"))
    for pattern, word in reversed(PRIORITIES):
        priority = nw.when(event.str.contains(pattern)).then(nw.lit(word)).otherwise(priority)
    return {
        "event_priority": priority,
        "reaction_key": look_up(event, EVENT_REACTIONS),
    }
