"""Durations as text, the same on every engine."""

from __future__ import annotations

import narwhals as nw

from stateanalytics.core.engines import Frame, lookup

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DAYS_FROM = 3 * _DAY


def words(seconds: float) -> str:
    """A duration as text, in two units at most.

    Examples
    --------
    >>> [words(s) for s in (45.9, 120, 33120, 21600, 266400)]
    ['45 s', '2 min', '9 h 12 min', '6 h', '3 d 2 h']
    """
    whole = int(seconds // 1)
    if whole >= _DAYS_FROM:
        return f"{whole // _DAY} d" + _rest(whole // _HOUR % 24, "h")
    if whole >= _HOUR:
        return f"{whole // _HOUR} h" + _rest(whole // _MINUTE % 60, "min")
    return f"{whole // _MINUTE} min" if whole >= _MINUTE else f"{whole} s"


def _rest(count: int, unit: str) -> str:
    return f" {count} {unit}" if count else ""


def add_duration_text(frame: Frame, seconds: str, pieces: tuple[str, str]) -> Frame:
    """Add `words` of a column, as two pieces to be joined; null pieces are left out.

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
    whole = nw.col(seconds).floor().clip(0, _MOST_DAYS * _DAY).cast(nw.Int64)
    is_days, is_hours, is_minutes = (whole >= size for size in (_DAYS_FROM, _HOUR, _MINUTE))
    placed = frame.with_columns(
        nw.when(is_days)
        .then(whole // _DAY + _LARGE.index("0 d"))
        .when(is_hours)
        .then(whole // _HOUR + _LARGE.index("0 h"))
        .when(is_minutes)
        .then(whole // _MINUTE + _LARGE.index("0 min"))
        .otherwise(whole)
        .alias(large),
        nw.when(is_days)
        .then(whole // _HOUR % 24 + _RESTS.index(" 0 h"))
        .when(is_hours)
        .then(whole // _MINUTE % 60)
        .alias(rest),
    )
    # Nothing is said of a rest of none.
    rests = [None if text.startswith(" 0 ") else text for text in _RESTS]
    return lookup(placed, {large: (large, _LARGE), rest: (rest, rests)})


_MOST_DAYS = 9999
_LARGE = (
    *(f"{count} s" for count in range(60)),
    *(f"{count} min" for count in range(60)),
    *(f"{count} h" for count in range(72)),
    *(f"{count} d" for count in range(_MOST_DAYS + 1)),
)
_RESTS = (
    *(f" {count} min" for count in range(60)),
    *(f" {count} h" for count in range(24)),
)
