"""The priority and the reaction of an event, and the reactions by default."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns
from stateanalytics.systems.agent_orchestrator.status_events import PRIORITIES, event_rules

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
