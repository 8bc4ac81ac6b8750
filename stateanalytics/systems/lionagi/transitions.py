"""Recorded changes of status: which may follow which, and the history as it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core.clock import add_ages
from stateanalytics.core.engines import MOMENT, TEMPORARY, TEXT, Frame, adapt, optional
from stateanalytics.core.vocabulary import STATUS_WORDS, TABLES, words_of
from stateanalytics.core.windows import Moment
from stateanalytics.systems.lionagi.raw import Raw


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


VERDICTS = (
    "first",
    "legal",
    "same_status",
    "override",
    "illegal_before_0_28",
    "illegal",
    "unknown",
)
"""Classes of a change. ``first``: no status before it was recorded, so there is no edge
to judge. ``unknown``: no graph for the entity type, or a word outside its vocabulary."""

OVERRIDE_CODES = ("session.reopened.by_resume",)
OVERRIDE_EVENT = "admin.status_transition_override"
OVERRIDE_WITHIN_S = 1
TERMINAL_FLOOR_AT = datetime(2026, 7, 7, tzinfo=UTC)
"""Release of lionagi 0.28.0, the first to refuse changes of a terminal status."""


def classify_transitions(
    transitions: Any, *, events: Any = None, floor_at: Moment = TERMINAL_FLOOR_AT
) -> Any:
    """Put every recorded change of status into one class of `VERDICTS`.

    Parameters
    ----------
    transitions : frame
        ``schema.TRANSITIONS``; needed are ``entity_type``, ``entity_id``, ``at``,
        ``previous_status``, ``status``; ``reason_code`` and ``source`` are used if there.
    events : frame, optional
        ``schema.EVENTS`` of the same engine. An ``admin.status_transition_override`` of
        the entity within a second proves that an exit from a terminal status was meant.
    floor_at : datetime, date, ISO text or epoch seconds, optional
        Since when exits from terminal statuses were refused; by default the release
        of 0.28.0. A machine that was updated later has a later one.

    Returns
    -------
    frame
        The same rows and kind with ``verdict``: text, never null.

    Notes
    -----
    An undeclared edge between open statuses is ``illegal`` at any time: no release
    declared it, though writers other than the lifecycle service could make it.

    Examples
    --------
    >>> import polars as pl
    >>> day = datetime(2026, 8, 1, tzinfo=UTC)
    >>> change = {"entity_type": "session", "entity_id": "a", "at": day,
    ...           "previous_status": "failed", "status": "completed", "reason_code": None}
    >>> classify_transitions(pl.DataFrame([change]))["verdict"].to_list()
    ['illegal']
    """
    needed = {**_CHANGE, "entity_id": TEXT, "at": MOMENT}
    adapter = adapt(transitions, needed, "classify_transitions")
    rows = add_ages(adapter.frame, floor_at, {_AGE: "at"})
    if events is None:
        rows = rows.with_columns(nw.lit(value=False).alias(_IS_MEANT))
    else:
        happened = adapt(events, _EVENT, "classify_transitions").frame
        rows = _with_override_events(rows, happened, floor_at)
    code = optional(rows, "reason_code", nw.String)
    edge = _key("entity_type", "previous_status", "status")
    is_same = (nw.col("previous_status") == nw.col("status")) & ~edge.is_in(sorted(_DECLARED))
    is_override = nw.col(_IS_MEANT) | code.is_in(OVERRIDE_CODES).fill_null(False)
    verdict = (
        nw.when(nw.col("previous_status").is_null())
        .then(nw.lit("first"))
        .when(~(_is_known("previous_status") & _is_known("status")))
        .then(nw.lit("unknown"))
        .when(edge.is_in(sorted(_DECLARED)))
        .then(nw.lit("legal"))
        .when(is_same)
        .then(nw.lit("same_status"))
        .when(is_override)
        .then(nw.lit("override"))
        .when(_is_terminal("previous_status") & (nw.col(_AGE) > 0))
        .then(nw.lit("illegal_before_0_28"))
        .otherwise(nw.lit("illegal"))
    )
    return adapter.give_back(rows.with_columns(verdict=verdict).drop(_IS_MEANT, _AGE))


_CHANGE = {"entity_type": TEXT, "previous_status": TEXT, "status": TEXT}
_AGE = f"{TEMPORARY}before_floor_s"
_EVENT_AGE = f"{TEMPORARY}event_before_floor_s"
_IS_MEANT = f"{TEMPORARY}is_meant"
_EVENT = {"entity_id": TEXT, "at": MOMENT, "kind": TEXT}
_DECLARED = frozenset(f"{edge.entity_type}|{edge.before}|{edge.after}" for edge in EDGES)
_MANAGED = frozenset(cycle.entity_type for cycle in LIFECYCLES)
_KNOWN = frozenset(
    f"{word.entity_type}|{word.raw_status}" for word in STATUS_WORDS if word.entity_type in _MANAGED
)
_TERMINAL = frozenset(
    f"{word.entity_type}|{word.raw_status}"
    for word in STATUS_WORDS
    if word.entity_type in _MANAGED and word.is_terminal
)


def _key(*columns: str) -> nw.Expr:
    return nw.concat_str(*(nw.col(column) for column in columns), separator="|")


def _is_known(column: str) -> nw.Expr:
    return _key("entity_type", column).is_in(sorted(_KNOWN)).fill_null(False)


def _is_terminal(column: str) -> nw.Expr:
    return _key("entity_type", column).is_in(sorted(_TERMINAL)).fill_null(False)


def _with_override_events(rows: Frame, events: Frame, floor_at: Moment) -> Frame:
    """Mark the changes that an override event of the same entity stands beside."""
    names = rows.collect_schema().names()
    event_names = events.collect_schema().names()
    keys: list[str] = [
        name for name in ("source", "entity_id") if name in names and name in event_names
    ]
    moments = (
        add_ages(events.filter(nw.col("kind") == OVERRIDE_EVENT), floor_at, {_EVENT_AGE: "at"})
        .select(*keys, _EVENT_AGE)
        .unique(subset=[*keys, _EVENT_AGE])
    )
    near = (
        rows.select(*keys, _AGE)
        .join(moments, on=keys, how="inner")
        .filter((nw.col(_AGE) - nw.col(_EVENT_AGE)).abs() <= OVERRIDE_WITHIN_S)
        .select(*keys, _AGE)
        .unique(subset=[*keys, _AGE])
        .with_columns(nw.lit(value=True).alias(_IS_MEANT))
    )
    return rows.join(near, on=[*keys, _AGE], how="left").with_columns(
        nw.col(_IS_MEANT).fill_null(value=False)
    )


KNOWN: dict[str, tuple[str, ...]] = {
    entity_type: tuple(word.raw_status for word in words_of(entity_type)) for entity_type in TABLES
}


def _ends(entity_type: str, *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    ends = (word.raw_status for word in words_of(entity_type) if word.is_terminal)
    return tuple(raw for raw in ends if raw not in but)


# Ends of work that ran, so that a missing time is a gap: a skipped fire or a play that
# was blocked before it began has no end to record.
ENDS_WITH_A_TIME: dict[str, tuple[str, ...]] = {
    "session": _ends("session"),
    "invocation": _ends("invocation"),
    "schedule_run": _ends("schedule_run", but=("skipped", "cancelled")),
    "engine_run": _ends("engine_run"),
}
RUNNING: dict[str, tuple[str, ...]] = {
    "session": ("running",),
    "invocation": ("running",),
    "play": ("running", "prepared"),
    "schedule_run": ("queued", "waiting_dependency", "running"),
    "engine_run": ("running",),
}


# Older call sites wrote the table's name or the route's.
_ALIASES = {
    "run": "session",
    "sessions": "session",
    "shows": "show",
    "plays": "play",
    "invocations": "invocation",
    "teams": "team",
    "schedule_runs": "schedule_run",
    "schedules": "schedule",
    "dispatch_outbox": "dispatch",
}


def transitions(raw: Raw) -> pl.DataFrame:
    """One row an accepted status change.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_transitions, 12)
        Sorted by ``at``, then ``seq`` (the row's place in the table: ids are random, and
        several changes may share one moment).
    """
    rows = raw["status_transitions"].select(
        pl.col("entity_id", "previous_status", "status", "actor", "metadata"),
        entity_type=pl.col("entity_type").replace(_ALIASES),
        at="created_at",
        seq="rowid",
        reason_code=pl.col("reason_code").replace("", None),
        message=pl.col("reason_summary").replace("", None),
        writer="source",
        evidence="evidence_refs",
    )
    # Rows come in the order of their place, and are mostly written in the order of time.
    is_ordered = rows["at"].null_count() == 0 and rows["at"].is_sorted()
    return rows if is_ordered else rows.sort("at", "seq", nulls_last=True)
