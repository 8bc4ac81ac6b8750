"""What the graphs say about one change of status, and ADR-0025's transition function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import TEXT, adapt
from stateanalytics.core.vocabulary import STATUS_WORDS, words_of
from stateanalytics.systems.lionagi.transitions import EDGES, LIFECYCLES

VALID_TRANSITIONS: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        cycle.entity_type: MappingProxyType(
            {
                word.raw_status: frozenset(
                    edge.after
                    for edge in EDGES
                    if (edge.entity_type, edge.before) == (cycle.entity_type, word.raw_status)
                )
                for word in words_of(cycle.entity_type)
            }
        )
        for cycle in LIFECYCLES
    }
)

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


_CHANGE = {"entity_type": TEXT, "previous_status": TEXT, "status": TEXT}
_DECLARED = [f"{edge.entity_type}|{edge.before}|{edge.after}" for edge in EDGES]
_MANAGED = {cycle.entity_type for cycle in LIFECYCLES}
_TERMINAL = [
    f"{word.entity_type}|{word.raw_status}"
    for word in STATUS_WORDS
    if word.entity_type in _MANAGED and word.is_terminal
]


def _is_terminal(column: str) -> nw.Expr:
    return _key("entity_type", column).is_in(_TERMINAL).fill_null(False)


def _key(*columns: str) -> nw.Expr:
    return nw.concat_str(*(nw.col(column) for column in columns), separator="|")


def _is_one_of(column: str, words: Iterable[str]) -> nw.Expr:
    return nw.col(column).is_in(sorted(words)).fill_null(False)


def _joined(edge: nw.Expr, attribute: str) -> nw.Expr:
    """One attribute of an edge as text; null where the edge does not set it."""
    texts = {
        f"{one.entity_type}|{one.before}|{one.after}": "|".join(getattr(one, attribute))
        for one in EDGES
        if getattr(one, attribute)
    }
    return edge.replace_strict(texts, default=None, return_dtype=nw.String)
