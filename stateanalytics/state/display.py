"""A state in words: ADR-0033's flat chain, and ADR-0025's effective state."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType

import narwhals as nw
import polars as pl

from stateanalytics.core.engines import Frame, lookup
from stateanalytics.core.schema import DELIVERIES, HEALTHS
from stateanalytics.state.lifecycle import StatusCell

SEPARATOR = " · "

STALE_HEALTHS = ("stalled", "process_dead", "orphaned")
"""Healths with which ADR-0025 never shows a lone "Running", but "stale running"."""

Segment = tuple[str, bool, bool]
"""First label of the chain; is the outcome terminal; is it a success."""


def label(word: str) -> str:
    """A word of a vocabulary as people read it.

    Examples
    --------
    >>> label("timed_out")
    'Timed out'
    """
    return word.replace("_", " ").capitalize()


HEALTH_LABELS = MappingProxyType(
    {word: label(word) for word in HEALTHS} | {"ok": "Infra OK", "unknown": "Health unknown"}
)
DELIVERY_LABELS = MappingProxyType(
    {word: f"Artifacts {word}" for word in DELIVERIES}
    | {"invalid": "Artifact contract invalid", "not_expected": "No artifacts expected"}
)


def chain(segment: Segment, health: str | None, delivery: str | None, *, verbose: bool) -> str:
    """One state as a chain.

    Parameters
    ----------
    segment : (str, bool, bool)
        First label; is there a terminal outcome; is it a success.
    health, delivery : str or None
        Words of their axes; None: does not apply.
    verbose : bool
        Keep the segments that ADR-0033 leaves out because all is well.

    Notes
    -----
    The health is left out if it is ``ok`` and the outcome terminal, the delivery if it is
    ``not_expected``, or ``passed`` with a success. A segment that would repeat the one
    before it (a running run that is running) is said once.

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
    is_said = cell.outcome is not None and cell.outcome != "unknown"
    first = cell.outcome if is_said and cell.outcome else cell.lifecycle
    return (label(first), is_ended, cell.is_good_end)


def effective_states(cell: StatusCell) -> tuple[str | None, str | None]:
    """ADR-0025's word for lists, and the one while the health is stale.

    None for a text that no table has: it is shown as it is stored.
    """
    if cell.word is None and (cell.raw_status or not cell.is_known_text):
        return (cell.raw_status, cell.raw_status)
    if cell.is_legacy:
        return ("legacy", "legacy")
    word = cell.lifecycle.replace("_", " ")
    return (word, f"stale {word}" if word == "running" else word)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def add_duration_text(frame: Frame, seconds: str, pieces: tuple[str, str]) -> Frame:
    """Add what `units.how_long` says of a column, as two pieces to be joined.

    Durations of more than `_MOST_DAYS` days are told as that many.

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
# Nothing is said of a rest of none.
_REST_WORDS = pl.Series([None if text.startswith(" 0 ") else text for text in _RESTS])
