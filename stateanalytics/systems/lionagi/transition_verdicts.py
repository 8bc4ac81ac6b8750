"""Which changes of status are legal: histories judged by the graphs.

Only lionagi's lifecycle service checks edges; most writers check the vocabulary and,
since 0.28.0, that nothing leaves a terminal status. Histories therefore hold edges that
no graph declares, and each is put into one class of `VERDICTS` instead of being called
corrupt.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import narwhals as nw

from stateanalytics.core.clock import add_ages
from stateanalytics.core.engines import MOMENT, TEMPORARY, TEXT, Frame, adapt, optional
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import Moment
from stateanalytics.systems.lionagi.transition_graphs import EDGES, LIFECYCLES, VALID_TRANSITIONS

__all__ = [
    "ADMIN_TRANSITION_TARGETS",
    "EDGES",
    "LIFECYCLES",
    "VALID_TRANSITIONS",
    "VERDICTS",
    "can_transition",
    "classify_transitions",
    "with_can_transition",
    "with_edge_facts",
]

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

# ADR-0025: sessions alone, six statuses, and what an operator may set.
ADR0025_STATUSES = ("running", "completed", "failed", "timed_out", "aborted", "cancelled")
SESSION_TERMINAL_STATUSES = frozenset(ADR0025_STATUSES[1:])
ADMIN_TRANSITION_TARGETS = frozenset({"failed", "aborted", "cancelled"})


def can_transition(current: str | None, target: str, *, by_admin: bool = False) -> bool:
    """ADR-0025's transition function: may a session go from one status to another.

    Parameters
    ----------
    current, target : str
        Status before and after; None before is a legacy session, which may not move.
    by_admin : bool, default False
        Is an operator asking: they may not declare a session completed or timed out.

    Examples
    --------
    >>> can_transition("running", "timed_out"), can_transition("failed", "completed")
    (True, False)
    >>> can_transition("running", "completed", by_admin=True)
    False
    """
    targets = ADMIN_TRANSITION_TARGETS if by_admin else SESSION_TERMINAL_STATUSES
    return current == "running" and target in targets


def with_can_transition(
    frame: Any, *, current: str = "previous_status", target: str = "status"
) -> Any:
    """`can_transition` for every row: adds ``can_transition`` and ``can_transition_by_admin``.

    Examples
    --------
    >>> import polars as pl
    >>> moves = pl.DataFrame({"previous_status": ["running", None], "status": ["completed"] * 2})
    >>> with_can_transition(moves).select("can_transition", "can_transition_by_admin").rows()
    [(True, False), (False, False)]
    """
    is_running = (nw.col(current) == "running").fill_null(False)
    adapter = adapt(frame, {current: TEXT, target: TEXT}, "with_can_transition")
    return adapter.give_back(
        adapter.frame.with_columns(
            can_transition=is_running & _is_one_of(target, SESSION_TERMINAL_STATUSES),
            can_transition_by_admin=is_running & _is_one_of(target, ADMIN_TRANSITION_TARGETS),
        )
    )


def with_edge_facts(frame: Any) -> Any:
    """What the graphs say about each change of status.

    Parameters
    ----------
    frame : frame
        ``entity_type``, ``previous_status``, ``status``: text.

    Returns
    -------
    frame
        The same kind with ``is_allowed`` (is the edge declared), ``is_from_terminal``,
        and the texts ``actor_types``, ``required_patch``, ``required_guard``: names
        joined by ``|``, null where the edge asks for nothing in particular.

    Examples
    --------
    >>> import polars as pl
    >>> change = {"entity_type": "team", "previous_status": "active", "status": "archived"}
    >>> with_edge_facts(pl.DataFrame([change])).select("is_allowed", "is_from_terminal").rows()
    [(True, False)]
    """
    edge = _key("entity_type", "previous_status", "status")
    adapter = adapt(frame, _CHANGE, "with_edge_facts")
    return adapter.give_back(
        adapter.frame.with_columns(
            is_allowed=edge.is_in(sorted(_DECLARED)).fill_null(False),
            is_from_terminal=_is_terminal("previous_status"),
            actor_types=_joined(edge, "actor_types"),
            required_patch=_joined(edge, "required_patch"),
            required_guard=_joined(edge, "required_guard"),
        )
    )


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


def _is_one_of(column: str, words: Iterable[str]) -> nw.Expr:
    return nw.col(column).is_in(sorted(words)).fill_null(False)


def _is_known(column: str) -> nw.Expr:
    return _key("entity_type", column).is_in(sorted(_KNOWN)).fill_null(False)


def _is_terminal(column: str) -> nw.Expr:
    return _key("entity_type", column).is_in(sorted(_TERMINAL)).fill_null(False)


def _joined(edge: nw.Expr, attribute: str) -> nw.Expr:
    """One attribute of an edge as text; null where the edge does not set it."""
    texts = {
        f"{one.entity_type}|{one.before}|{one.after}": "|".join(getattr(one, attribute))
        for one in EDGES
        if getattr(one, attribute)
    }
    return edge.replace_strict(texts, default=None, return_dtype=nw.String)


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
