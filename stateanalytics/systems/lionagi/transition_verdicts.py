"""Which changes of status are legal: histories judged by the graphs.

Only lionagi's lifecycle service checks edges; most writers check the vocabulary and,
since 0.28.0, that nothing leaves a terminal status. Histories therefore hold edges that
no graph declares, and each is put into one class of `VERDICTS` instead of being called
corrupt.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import narwhals as nw

from stateanalytics.core.clock import add_ages
from stateanalytics.core.engines import MOMENT, TEMPORARY, TEXT, Frame, adapt, optional
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import Moment
from stateanalytics.systems.lionagi.transition_graphs import EDGES, LIFECYCLES

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
