"""States in words, and the meaning of every combination of status, health and delivery.

A million rows have only a few hundred combinations. So the cascade, the display chain and the
derived codes are computed for a table of all combinations, by the same rules that users apply
to their own frames, and each row looks up its combination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, Frame, lookup
from stateanalytics.core.schema import DELIVERIES, HEALTHS
from stateanalytics.state.definitions import SILENT_HEALTHS
from stateanalytics.state.health import (
    HEALTH,
    HEALTH_OR_NONE,
    HEALTH_RULE,
    RULES,
    derive_severity,
    words_by_number,
)
from stateanalytics.state.lifecycle import (
    CELL,
    DELIVERY,
    DELIVERY_OR_NONE,
    DELIVERY_RULE,
    StatusCell,
    StatusTable,
)
from stateanalytics.state.policy import Policy

SEPARATOR = " · "

Segment = tuple[str, bool, bool]
"""The first label of the chain; whether the outcome is terminal; whether it is a success."""


def label(word: str) -> str:
    """A word of a vocabulary as a label for people.

    Examples
    --------
    >>> label("timed_out")
    'Timed out'
    """
    return word.replace("_", " ").capitalize()


HEALTH_LABELS: Mapping[str, str] = {
    **{word: label(word) for word in HEALTHS},
    **{"ok": "Infra OK", "unknown": "Health unknown"},
}
DELIVERY_LABELS: Mapping[str, str] = {
    **{word: f"Artifacts {word}" for word in DELIVERIES},
    **{"invalid": "Artifact contract invalid", "not_expected": "No artifacts expected"},
}


def chain(segment: Segment, health: str | None, delivery: str | None, *, verbose: bool) -> str:
    """One state as a chain.

    Parameters
    ----------
    segment : (str, bool, bool)
        The first label; whether the outcome is terminal; whether it is a success.
    health, delivery : str or None
        Words of these axes; None: the axis does not apply.
    verbose : bool
        Keep the segments that ADR-0033 omits because all is well.

    Notes
    -----
    The health is omitted if it is ``ok`` and the outcome terminal, the delivery if it is
    ``not_expected``, or ``passed`` with a success. A segment that would repeat the one
    before it (a running run that is running) is omitted.

    References
    ----------
    ADR-0033, "State display contract".

    Examples
    --------
    >>> chain(("Failed", True, False), "ok", "missing", verbose=False)
    'Failed · Artifacts missing'
    >>> chain(("Failed", True, False), "ok", "not_expected", verbose=True)
    'Failed · Infra OK'
    """
    first, is_ended, is_success = segment
    parts = [first]
    if health and (verbose or not (health == "ok" and is_ended)):
        parts.append(HEALTH_LABELS[health])
    is_as_promised = delivery == "passed" and is_success and not verbose
    if delivery and delivery != "not_expected" and not is_as_promised:
        parts.append(DELIVERY_LABELS[delivery])
    return SEPARATOR.join(dict.fromkeys(parts))


def segment_of(cell: StatusCell) -> Segment:
    """The first segment that a stored status gives."""
    is_ended = bool(cell.is_terminal)
    if cell.word is None and cell.is_recorded:
        return (label(cell.lifecycle), False, False)
    if cell.word is None:
        is_blank = cell.is_known_text and not cell.raw_status
        return ("Legacy" if is_blank and cell.is_legacy else "Unknown", False, False)
    if cell.lifecycle == "unknown":
        return (label(cell.word.raw_status), False, False)
    has_outcome = cell.outcome is not None and cell.outcome != "unknown"
    first = cell.outcome if has_outcome and cell.outcome else cell.lifecycle
    return (label(first), is_ended, cell.is_good_end)


def effective_states(cell: StatusCell) -> tuple[str | None, str | None]:
    """ADR-0025's word for lists, and its word while the health is stale.

    None for a text that no table has; it is shown as stored.
    """
    if cell.word is None and (cell.raw_status or not cell.is_known_text):
        return (cell.raw_status, cell.raw_status)
    if cell.is_legacy:
        return ("legacy", "legacy")
    word = cell.lifecycle.replace("_", " ")
    return (word, f"stale {word}" if word == "running" else word)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def add_duration_text(frame: Frame, seconds: str, pieces: tuple[str, str]) -> Frame:
    """Add the text of `words.how_long` for a column, as two pieces to be joined.

    Durations of more than `_MOST_DAYS` days are shown as that many.

    Examples
    --------
    >>> import polars as pl
    >>> frame = nw.from_native(pl.LazyFrame({"s": [33120.0, 45.9, 266400.0]}))
    >>> texts = add_duration_text(frame, "s", ("a", "b")).collect()
    >>> texts.select(text=nw.concat_str("a", "b", ignore_nulls=True))["text"].to_list()
    ['9 h 12 min', '45 s', '3 d 2 h']
    """
    large, rest = pieces
    placed = frame.with_columns(_pieces(seconds, pieces))
    return lookup(placed, {large: (large, _LARGE_WORDS), rest: (rest, _REST_WORDS)})


@lru_cache(maxsize=4)
def _pieces(seconds: str, pieces: tuple[str, str]) -> tuple[nw.Expr, nw.Expr]:
    """The places of both pieces among `_LARGE` and `_RESTS`."""
    large, rest = pieces
    whole = nw.col(seconds).floor().clip(0, _MOST_DAYS * _DAY).cast(nw.Int64)
    is_days, is_hours, is_minutes = (whole >= size for size in (_DAY, _HOUR, _MINUTE))
    of_large = (
        nw.when(is_days)
        .then(whole // _DAY + _LARGE.index("0 d"))
        .when(is_hours)
        .then(whole // _HOUR + _LARGE.index("0 h"))
        .when(is_minutes)
        .then(whole // _MINUTE + _LARGE.index("0 min"))
        .otherwise(whole)
    )
    of_rest = (
        nw.when(is_days)
        .then(whole // _HOUR % 24 + _RESTS.index(" 0 h"))
        .when(is_hours)
        .then(whole // _MINUTE % 60 + _RESTS.index(" 0 min"))
        .when(is_minutes)
        .then(whole % _MINUTE)
    )
    return of_large.alias(large), of_rest.alias(rest)


_MOST_DAYS = 9999
_LARGE = (
    *(f"{count} s" for count in range(60)),
    *(f"{count} min" for count in range(60)),
    *(f"{count} h" for count in range(24)),
    *(f"{count} d" for count in range(_MOST_DAYS + 1)),
)
_RESTS = (
    *(f" {count} s" for count in range(60)),
    *(f" {count} min" for count in range(60)),
    *(f" {count} h" for count in range(24)),
)
_LARGE_WORDS = pl.Series(_LARGE)
# A second part of zero, as in "2 h 0 min", is not shown.
_REST_WORDS = pl.Series([None if text.startswith(" 0 ") else text for text in _RESTS])


REASON_HEALTHS = (
    "due", "idle", "degraded", "disconnected", "blocked",
    "stalled", "misfired", "process_dead", "orphaned", "unknown",
)  # fmt: skip
"""Healths for which a reason is derived."""

REASON_DELIVERIES = ("partial", "missing", "invalid")
"""Deliveries for which a reason is derived."""

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
    """The code that explains the health of a rule; None where a system recorded the health."""
    rule = RULES[name]
    if name.startswith("recorded_") or rule.health not in REASON_HEALTHS:
        return None
    return f"{entity}.health.{rule.code or rule.health}"


def delivery_code(entity: str, delivery: str | None) -> str | None:
    """The code that explains a delivery, for the entity of that domain."""
    return f"{entity}.delivery.{delivery}" if delivery in REASON_DELIVERIES else None


def add_code(frame: Frame, table: StatusTable, axis: str, into: str) -> Frame:
    """Add the derived code of one axis, ``health`` or ``delivery``, by the rule that fired.

    Null if none is needed, or if the system itself recorded the axis or that code.
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
    """Derived codes, null where the system recorded the same code, so that none is there twice."""
    comma = nw.lit(schema.CODE_SEPARATOR)
    listed = nw.concat_str(comma, nw.col("recorded_reason_codes"), comma)
    code = nw.concat_str(comma, nw.col(into), comma)
    is_new = ~listed.str.contains(code, literal=True).fill_null(value=False)
    return frame.with_columns(nw.when(is_new).then(nw.col(into)).alias(into))


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
    """Statuses with the same meaning, for all types of entities.

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


@lru_cache(maxsize=8)
def signatures_of(
    policy: Policy, *, has_recorded: bool
) -> tuple[list[int], dict[str, tuple[str, pl.Series]]]:
    """The class of each cell, and each new column with the positions and values it is made from.

    The positions of most columns are those of `_combinations`: classes, with every health and
    delivery. Made once, for the table under a policy never changes.
    """
    cells = StatusTable(policy, has_recorded).all
    kinds = [StatusClass.of(cell) for cell in cells]
    classes = list(dict.fromkeys(kinds))
    number = {kind: n for n, kind in enumerate(classes)}
    # In one chunk, because lookups in several chunks are four times slower.
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
    return [number[kind] for kind in kinds], words


def _combinations(classes: list[StatusClass], policy: Policy) -> pl.DataFrame:
    """Every class with every health and delivery, in the order of `SIGNATURE`."""
    pairs = [(health, delivery) for health in HEALTH_OR_NONE for delivery in DELIVERY_OR_NONE]
    healths, deliveries = zip(*pairs, strict=True)
    # Hundreds of classes share a few segments and domains.
    displays = {
        segment: [chain(segment, *pair, verbose=policy.is_display_verbose) for pair in pairs]
        for segment in {status.segment for status in classes}
    }
    codes = {
        named: [derived_codes(named, *pair) for pair in pairs]
        for named in {status.domain for status in classes}
    }
    # For a silent health ADR-0025 shows "stale running" and never just "running".
    is_stale = [health in SILENT_HEALTHS for health in healths]
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


def add_words(frame: Frame, policy: Policy, *, has_recorded: bool) -> Frame:
    """Add the columns of `signatures_of`, from cell, health and delivery."""
    class_of_cell, words = signatures_of(policy, has_recorded=has_recorded)
    n_healths, n_deliveries = len(HEALTH_OR_NONE), len(DELIVERY_OR_NONE)
    classed = lookup(frame, {_CLASS: (CELL, class_of_cell)})
    # 32 bits, because there are too many combinations for 16.
    place = (nw.col(_CLASS).cast(nw.Int32) * n_healths + nw.col(HEALTH)) * n_deliveries + nw.col(
        DELIVERY
    )
    signed = classed.with_columns(place.alias(SIGNATURE))
    last = {name: spec for name, spec in words.items() if spec[0] == "severity_rule"}
    first = {name: spec for name, spec in words.items() if name not in last}
    return lookup(lookup(signed, first), last)


def _enum(values: Iterable[str | None], vocabulary: tuple[str, ...]) -> pl.Series:
    return pl.Series(list(values), dtype=pl.Enum(vocabulary))
