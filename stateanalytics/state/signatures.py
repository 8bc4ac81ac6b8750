"""What every combination of status, health and delivery means, worked out once per policy.

A million rows hold a few hundred combinations. So the cascade, the display chain and
the derived codes are evaluated over the table of all combinations, by the same rules
that users apply to frames of their own, and rows look their words up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, Frame, contains, lookup
from stateanalytics.state.delivery import DELIVERY, DELIVERY_OR_NONE, DELIVERY_RULE
from stateanalytics.state.display import STALE_HEALTHS, Segment, chain, effective_states, segment_of
from stateanalytics.state.health import HEALTH, HEALTH_OR_NONE, HEALTH_RULE, RULES
from stateanalytics.state.lifecycle import CELL, StatusCell, StatusTable
from stateanalytics.state.policy import Policy
from stateanalytics.state.severity import derive_severity, words_by_number

REASON_HEALTHS = (
    "due", "idle", "degraded", "disconnected", "blocked",
    "stalled", "misfired", "process_dead", "orphaned", "unknown",
)  # fmt: skip
"""Healths that need explaining, so that a reason is derived."""

REASON_DELIVERIES = ("partial", "missing", "invalid")
"""Deliveries that need explaining."""

_DOMAIN = f"{TEMPORARY}domain"
_DERIVED = f"{TEMPORARY}derived"
_LISTED, _CODE, _IS_LISTED = (f"{TEMPORARY}{name}" for name in ("listed", "code", "is_listed"))


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

    Null where none is needed, and where the system recorded the axis or that code itself.
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
    if table.has_recorded:
        coded = _without_recorded(coded, into)
    return coded.drop([_DOMAIN, _DERIVED])


def _without_recorded(frame: Frame, into: str) -> Frame:
    """Derived codes, null where they are among the recorded ones: one cause is one reason."""
    comma = nw.lit(schema.CODE_SEPARATOR)
    listed = nw.concat_str(comma, nw.col("recorded_reason_codes"), comma)
    bounded = frame.with_columns(
        listed.alias(_LISTED), nw.concat_str(comma, nw.col(into), comma).alias(_CODE)
    )
    told = contains(bounded, {_IS_LISTED: (_LISTED, _CODE)})
    is_new = ~nw.col(_IS_LISTED).fill_null(value=False)
    return told.with_columns(nw.when(is_new).then(nw.col(into)).alias(into)).drop(
        [_LISTED, _CODE, _IS_LISTED]
    )


def derived_codes(entity: str, health: str | None, delivery: str | None) -> str | None:
    """The codes that explain a state of that domain, joined; None where none is needed.

    Examples
    --------
    >>> derived_codes("run", "stalled", "missing")
    'run.health.stalled, run.delivery.missing'
    """
    codes = (health_code(entity, health), delivery_code(entity, delivery))
    return schema.CODE_SEPARATOR.join(filter(None, codes)) or None


SIGNATURE = f"{TEMPORARY}signature"
_CLASS = f"{TEMPORARY}class"


@dataclass(frozen=True)
class StatusClass:
    """Statuses that mean the same, whatever entity they are of.

    Attributes
    ----------
    outcome : str or None
    segment : (str, bool, bool)
        See `display.chain`.
    lively, stale : str or None
        See `display.effective_states`.
    domain : str
        First segment of derived codes.
    """

    outcome: str | None
    segment: Segment
    lively: str | None
    stale: str | None
    domain: str

    @classmethod
    def of(cls, cell: StatusCell) -> StatusClass:
        """The class of one cell."""
        lively, stale = effective_states(cell)
        return cls(cell.outcome, segment_of(cell), lively, stale, domain(cell.entity_type))


@dataclass(frozen=True)
class Signatures:
    """The table of one policy, as values to look up.

    Attributes
    ----------
    class_of_cell : tuple of int
        Position of each cell's class.
    words : mapping of str to (str, polars.Series)
        Column of ``states``: the column of positions it is looked up by, and its values.
    """

    class_of_cell: tuple[int, ...]
    words: Mapping[str, tuple[str, pl.Series]]


@lru_cache(maxsize=8)
def signatures_of(policy: Policy, *, has_recorded: bool = False) -> Signatures:
    """The table under a policy; made once, for it never changes."""
    cells = StatusTable(policy, has_recorded).all
    kinds = [StatusClass.of(cell) for cell in cells]
    classes = list(dict.fromkeys(kinds))
    number = {kind: n for n, kind in enumerate(classes)}
    # One chunk: looking up in several is four times slower.
    table = derive_severity(_combinations(classes, policy), policy=policy).rechunk()
    severities, tones = words_by_number(policy)
    words = {
        "lifecycle": (CELL, _enum((cell.lifecycle for cell in cells), schema.LIFECYCLES)),
        "outcome": (CELL, _enum((cell.outcome for cell in cells), schema.OUTCOMES)),
        "is_terminal": (CELL, pl.Series([cell.is_terminal for cell in cells])),
        "is_legacy": (CELL, pl.Series([cell.is_legacy for cell in cells])),
        "health": (HEALTH, _enum(HEALTH_OR_NONE, schema.HEALTHS)),
        "delivery": (DELIVERY, _enum(DELIVERY_OR_NONE, schema.DELIVERIES)),
        "severity_rule": (SIGNATURE, table["severity_rule"]),
        "display": (SIGNATURE, table["display"]),
        "effective_state": (SIGNATURE, table["effective_state"]),
        "derived_codes": (SIGNATURE, table["derived_codes"]),
        "severity": ("severity_rule", _enum(severities, schema.SEVERITIES)),
        "tone": ("severity_rule", _enum(tones, schema.TONES)),
    }
    return Signatures(tuple(number[kind] for kind in kinds), words)


def _combinations(classes: list[StatusClass], policy: Policy) -> pl.DataFrame:
    """Every class with every health and delivery, in the order of `SIGNATURE`."""
    pairs = [(health, delivery) for health in HEALTH_OR_NONE for delivery in DELIVERY_OR_NONE]
    healths, deliveries = zip(*pairs, strict=True)
    # Hundreds of classes have a few segments and domains between them.
    displays = {
        segment: [chain(segment, *pair, verbose=policy.is_display_verbose) for pair in pairs]
        for segment in {status.segment for status in classes}
    }
    codes = {
        named: [derived_codes(named, *pair) for pair in pairs]
        for named in {status.domain for status in classes}
    }
    is_stale = [health in STALE_HEALTHS for health in healths]
    of_class = [
        {
            "outcome": [status.outcome] * len(pairs),
            "health": healths,
            "delivery": deliveries,
            "display": displays[status.segment],
            "effective_state": [status.stale if stale else status.lively for stale in is_stale],
            "derived_codes": codes[status.domain],
        }
        for status in classes
    ]
    columns = {name: [word for words in of_class for word in words[name]] for name in of_class[0]}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def add_words(frame: Frame, policy: Policy, *, has_recorded: bool = False) -> Frame:
    """Add the columns of `Signatures.words`, from cell, health and delivery."""
    signatures = signatures_of(policy, has_recorded=has_recorded)
    n_healths, n_deliveries = len(HEALTH_OR_NONE), len(DELIVERY_OR_NONE)
    classed = lookup(frame, {_CLASS: (CELL, signatures.class_of_cell)})
    # There are more combinations than 16 bits can number.
    place = (nw.col(_CLASS).cast(nw.Int32) * n_healths + nw.col(HEALTH)) * n_deliveries + nw.col(
        DELIVERY
    )
    signed = classed.with_columns(place.alias(SIGNATURE))
    last = {name: spec for name, spec in signatures.words.items() if spec[0] == "severity_rule"}
    first = {name: spec for name, spec in signatures.words.items() if name not in last}
    return lookup(lookup(signed, first), last)


def _enum(values: Iterable[str | None], vocabulary: tuple[str, ...]) -> pl.Series:
    return pl.Series(list(values), dtype=pl.Enum(vocabulary))
