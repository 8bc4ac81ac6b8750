"""Which status may follow which: lionagi 0.36.0's lifecycle policies as data."""

from __future__ import annotations

from dataclasses import dataclass

from stateanalytics.core.vocabulary import words_of


@dataclass(frozen=True)
class Edge:
    """One declared change of status, and what a writer must bring to make it."""

    entity_type: str
    before: str
    after: str
    actor_types: tuple[str, ...] = ()
    required_patch: tuple[str, ...] = ()
    required_guard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lifecycle:
    """How the histories of one entity type are written.

    Attributes
    ----------
    same_status : str
        What writing the status that is already there does: ``append`` a row, or ``noop``.
    reason_prefixes : tuple of str
        Domains of reason codes the type declares as its own; writers may use others.
    has_reason_columns : bool
        Does the entity's row keep the last reason.
    """

    entity_type: str
    same_status: str
    reason_prefixes: tuple[str, ...]
    has_reason_columns: bool


LIFECYCLES = (
    Lifecycle("session", "append", ("run", "session"), True),
    Lifecycle("invocation", "append", ("run",), True),
    Lifecycle("show", "append", ("show",), True),
    Lifecycle("play", "append", ("play",), True),
    Lifecycle("team", "append", ("team",), True),
    Lifecycle("schedule_run", "append", ("run", "schedule"), True),
    Lifecycle("dispatch", "append", ("dispatch",), False),
    Lifecycle("schedule", "noop", ("schedule_definition",), False),
)

_SESSION_ENDS = ("completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled")
_OPERATOR_RETRY = ("attempt", "last_error", "next_attempt_at")


def _edges(entity_type: str, before: str, *after: str) -> tuple[Edge, ...]:
    return tuple(Edge(entity_type, before, word) for word in after)


def _any_other(entity_type: str) -> tuple[Edge, ...]:
    """Every open status may become any other: shows and plays move freely until they end."""
    words = words_of(entity_type)
    return tuple(
        Edge(entity_type, before.raw_status, after.raw_status)
        for before in words
        for after in words
        if not before.is_terminal and before != after
    )


EDGES: tuple[Edge, ...] = (
    *_edges("session", "running", *_SESSION_ENDS),
    *_edges("invocation", "running", *_SESSION_ENDS),
    *_any_other("show"),
    *_any_other("play"),
    *_edges("team", "active", "archived"),
    *_edges("schedule_run", "queued", "waiting_dependency", "running", "skipped", "cancelled"),
    *_edges("schedule_run", "waiting_dependency", "queued", "cancelled"),
    *_edges(
        "schedule_run", "running",
        "completed", "failed", "timed_out", "retry_wait", "queued", "cancelled",
    ),
    *_edges("schedule_run", "retry_wait", "queued", "cancelled"),
    *_edges("dispatch", "pending", "delivering", "expired", "acked"),
    # A claim that a crashed worker left behind is taken over by counting the attempt.
    Edge("dispatch", "delivering", "delivering", required_guard=("attempt",)),
    *_edges(
        "dispatch", "delivering",
        "pending", "delivered", "acked", "dead_letter", "expired",
    ),
    Edge("dispatch", "dead_letter", "pending", ("operator",), _OPERATOR_RETRY),
    Edge("dispatch", "expired", "pending", ("operator",), _OPERATOR_RETRY),
    *_edges("schedule", "enabled", "disabled", "deleted"),
    *_edges("schedule", "disabled", "enabled", "deleted"),
)  # fmt: skip
