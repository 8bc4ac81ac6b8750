"""Every event type that opencode wrote, under the one name that the fold knows it by.

The same thing has another name in each era: ``session.next.prompted``,
``session.input.promoted`` and ``session.inbox.delivered`` all say that an input became
a message. A type that is not here keeps its own name and changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

ERA_A_PREFIX = "session.next."

RENAMED = MappingProxyType(
    {
        "prompt.admitted": "input.admitted",
        "prompted": "input.promoted",
        "prompt.promoted": "input.promoted",
        "inbox.enqueued": "input.admitted",
        "inbox.delivered": "input.promoted",
        "inbox.cancelled": "input.cancelled",
        "inbox.delivery.changed": "input.delivery",
        "permission.v2.asked": "permission.asked",
        "permission.v2.replied": "permission.replied",
        "question.v2.asked": "permission.asked",
        "question.asked": "permission.asked",
        "question.v2.replied": "permission.replied",
        "question.replied": "permission.replied",
        "question.v2.rejected": "permission.rejected",
        "question.rejected": "permission.rejected",
        "form.created": "permission.asked",
        "form.replied": "permission.replied",
        "form.cancelled": "permission.rejected",
    }
)

FAMILIES = MappingProxyType(
    {
        "execution": (
            "execution.started",
            "execution.succeeded",
            "execution.failed",
            "execution.interrupted",
        ),
        "step": ("step.started", "step.ended", "step.failed", "retry.scheduled"),
        "text": ("text.ended",),
        "tool": (
            "tool.input.started",
            "tool.input.ended",
            "tool.called",
            "tool.success",
            "tool.failed",
        ),
        "input": ("input.admitted", "input.promoted", "input.cancelled", "input.delivery"),
        "session": (
            "created",
            "updated",
            "renamed",
            "forked",
            "usage.recorded",
            "compaction.ended",
            "compaction.failed",
        ),
        "ask": ("permission.asked", "permission.replied", "permission.rejected"),
    }
)
"""Which payload an event has, by its kind."""

TERMINALS = ("execution.succeeded", "execution.failed", "execution.interrupted")

# Bookkeeping: these also happen while nobody works, so they are no sign of life.
QUIET = (
    "created", "updated", "renamed", "forked", "usage.recorded", "viewed", "metadata.updated",
    "permissions", "moved", "message.content.updated", "revert.staged", "revert.cleared",
    "revert.committed", "deleted", "usage.updated", "agent.selected", "model.selected",
    "message.updated", "message.part.updated", "message.removed", "message.part.removed",
)  # fmt: skip


def kind_of(event_type: pl.Expr) -> pl.Expr:
    """The fold's name for a type, its version already taken off.

    Examples
    --------
    >>> types = ["session.next.prompted", "session.inbox.delivered", "session.made.up"]
    >>> pl.select(kind_of(pl.lit(pl.Series(types)))).to_series().to_list()
    ['input.promoted', 'input.promoted', 'made.up']
    """
    bare = event_type.str.strip_prefix(ERA_A_PREFIX).str.strip_prefix("session.")
    return bare.replace(dict(RENAMED))


def family_of(kind: pl.Expr) -> pl.Expr:
    """Position in `FAMILIES` of the payload that an event of that kind has; null: none."""
    places = {kind: place for place, kinds in enumerate(FAMILIES.values()) for kind in kinds}
    return kind.replace_strict(places, default=None, return_dtype=pl.UInt8)
