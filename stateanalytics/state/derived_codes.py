"""The reason codes that rules derive: ``{entity}.{dimension}.{word}``, ADR-0033's namespace."""

from __future__ import annotations

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, Frame, lookup
from stateanalytics.state.delivery import DELIVERY, DELIVERY_OR_NONE, DELIVERY_RULE
from stateanalytics.state.health import HEALTH_RULE, RULES
from stateanalytics.state.lifecycle import CELL, StatusTable

REASON_HEALTHS = (
    "due", "idle", "degraded", "disconnected", "blocked",
    "stalled", "misfired", "process_dead", "orphaned", "unknown",
)  # fmt: skip
"""Healths that need explaining, so that a reason is derived."""

REASON_DELIVERIES = ("partial", "missing", "invalid")
"""Deliveries that need explaining."""

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


def rule_code(entity: str, name: str) -> str | None:
    """The code that explains what a health rule says; None for what a system recorded."""
    rule = RULES[name]
    if name.startswith("recorded_") or rule.health not in REASON_HEALTHS:
        return None
    return f"{entity}.health.{rule.code or rule.health}"


def delivery_code(entity: str, delivery: str | None) -> str | None:
    """The code that explains a delivery, for the entity of that domain."""
    return f"{entity}.delivery.{delivery}" if delivery in REASON_DELIVERIES else None


def add_code(frame: Frame, table: StatusTable, axis: str, into: str) -> Frame:
    """Add the derived code of one axis, ``health`` or ``delivery``, by the rule that fired.

    Null where none is needed, or where the system recorded the axis itself.
    """
    named = [domain(cell.entity_type) for cell in table.all]
    domains = tuple(dict.fromkeys(named))
    if axis == "health":
        rule, n_rules = HEALTH_RULE, len(RULES)
        codes = [rule_code(entity, name) for entity in domains for name in RULES]
    else:
        rule, n_rules = DELIVERY, len(DELIVERY_OR_NONE)
        codes = [delivery_code(entity, word) for entity in domains for word in DELIVERY_OR_NONE]
    based = lookup(frame, {_DOMAIN: (CELL, [domains.index(name) for name in named])})
    placed = based.with_columns((nw.col(_DOMAIN) * n_rules + nw.col(rule)).alias(_DERIVED))
    coded = lookup(placed, {into: (_DERIVED, codes)})
    if axis == "delivery":
        coded = coded.with_columns(
            nw.when(~nw.col(DELIVERY_RULE).is_null()).then(nw.col(into)).alias(into)
        )
    return coded.drop([_DOMAIN, _DERIVED])


def derived_codes(entity: str, health: str | None, delivery: str | None) -> str | None:
    """The codes that explain a state of that domain, joined; None where none is needed.

    Examples
    --------
    >>> derived_codes("run", "stalled", "missing")
    'run.health.stalled, run.delivery.missing'
    """
    codes = (health_code(entity, health), delivery_code(entity, delivery))
    return schema.CODE_SEPARATOR.join(filter(None, codes)) or None
