"""The reason codes that rules derive: ``{entity}.{dimension}.{word}``, ADR-0033's namespace."""

from __future__ import annotations

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.state.delivery import DELIVERY
from stateanalytics.state.engines import TEMPORARY, Frame, lookup
from stateanalytics.state.health import HEALTH
from stateanalytics.state.lifecycle import CELL, Cells

REASON_HEALTHS = (
    "due", "idle", "degraded", "disconnected", "blocked",
    "stalled", "misfired", "process_dead", "orphaned", "unknown",
)  # fmt: skip
"""Healths that need explaining, so that a reason is derived."""

REASON_DELIVERIES = ("partial", "missing", "invalid")
"""Deliveries that need explaining."""

SEPARATOR = ", "
_DOMAIN = f"{TEMPORARY}domain"
_DERIVED = f"{TEMPORARY}derived"


def domain(entity_type: str | None) -> str:
    """The first segment of derived codes: ADR-0033 calls a session a run.

    Examples
    --------
    >>> domain("session"), domain("schedule")
    ('run', 'schedule')
    """
    return "run" if entity_type in ("session", None) else str(entity_type)


def health_code(entity: str, health: str | None) -> str | None:
    """The code that explains a health, for the entity of that domain."""
    return f"{entity}.health.{health}" if health in REASON_HEALTHS else None


def delivery_code(entity: str, delivery: str | None) -> str | None:
    """The code that explains a delivery, for the entity of that domain."""
    return f"{entity}.delivery.{delivery}" if delivery in REASON_DELIVERIES else None


def add_code(frame: Frame, cells: Cells, axis: str, into: str) -> Frame:
    """Add the derived code of one axis, ``health`` or ``delivery``; null where none is."""
    code_of = {"health": health_code, "delivery": delivery_code}[axis]
    column = {"health": HEALTH, "delivery": DELIVERY}[axis]
    words = (*{"health": schema.HEALTHS, "delivery": schema.DELIVERIES}[axis], None)
    named = [domain(cell.entity_type) for cell in cells.all]
    domains = tuple(dict.fromkeys(named))
    based = lookup(frame, {_DOMAIN: (CELL, [domains.index(name) for name in named])})
    placed = based.with_columns((nw.col(_DOMAIN) * len(words) + nw.col(column)).alias(_DERIVED))
    codes = [code_of(entity, word) for entity in domains for word in words]
    return lookup(placed, {into: (_DERIVED, codes)}).drop([_DOMAIN, _DERIVED])


def derived_codes(entity: str, health: str | None, delivery: str | None) -> str | None:
    """The codes that explain a state of that domain, joined; None where none is needed.

    Examples
    --------
    >>> derived_codes("run", "stalled", "missing")
    'run.health.stalled, run.delivery.missing'
    """
    codes = (health_code(entity, health), delivery_code(entity, delivery))
    return SEPARATOR.join(filter(None, codes)) or None
