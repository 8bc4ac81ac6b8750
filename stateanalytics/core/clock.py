"""The clock, applied once at the edge: moments become ages in seconds, on every engine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core.engines import Frame, by_engine, with_native
from stateanalytics.core.windows import TICK, Moment, read_moment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_s(now: Moment) -> float:
    """Epoch seconds of an instant; a number is taken as it is, to the last bit.

    Raises
    ------
    ArgumentError
        If it is no instant.

    Examples
    --------
    >>> epoch_s("2026-05-27")
    1779840000.0
    """
    moment = read_moment(now, "now")
    return float(now) if isinstance(now, (int, float)) else (moment - _EPOCH).total_seconds()


def add_ages(frame: Frame, now: Moment, columns: Mapping[str, str]) -> Frame:
    """Add how long before ``now`` each moment was, in float seconds.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    now : datetime, date, str, int or float
        The instant that ages are measured at.
    columns : mapping of str to str
        New column to the column of moments: a Datetime (UTC, also where it has no zone;
        Spark reads one without a zone in its session's) or epoch seconds.

    Returns
    -------
    narwhals.LazyFrame
        Ages are negative for moments after ``now``. Null where no moment is known: null,
        NaN (which SQLite cannot store) and zero.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"updated_at": [40.0, 0.0, None]}))
    >>> add_ages(frame, 100, {"age_s": "updated_at"}).collect()["age_s"].to_list()
    [60.0, None, None]
    """
    found = frame.collect_schema()
    now_s = epoch_s(now)
    now_us = (read_moment(now) - _EPOCH) // TICK
    dated = {new: old for new, old in columns.items() if isinstance(found[old], nw.Datetime)}
    numbered = {new: old for new, old in columns.items() if new not in dated}
    make = _MICROSECONDS.get(frame.implementation)
    if dated and make is not None:
        frame = with_native(frame, {new: make(old, (now_us,)) for new, old in dated.items()})
    elif dated:
        frame = frame.with_columns(
            ((nw.lit(read_moment(now)) - nw.col(old)).dt.total_microseconds() / 1e6).alias(new)
            for new, old in dated.items()
        )
    known = {
        old: _is_known(old, is_float=isinstance(found[old], (nw.Float32, nw.Float64)))
        for old in numbered.values()
    }
    return frame.with_columns(
        nw.when(known[old]).then(nw.lit(now_s) - nw.col(old).cast(nw.Float64)).alias(new)
        for new, old in numbered.items()
    )


def add_spans(frame: Frame, columns: Mapping[str, tuple[str, str]]) -> Frame:
    """Add the seconds between two moments of a row.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    columns : mapping of str to (str, str)
        New column: the earlier and the later column, both Datetime or both epoch seconds.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"started_at": [40.0], "ended_at": [100.0]}))
    >>> add_spans(frame, {"duration_s": ("started_at", "ended_at")}).collect()["duration_s"].item()
    60.0
    """
    found = frame.collect_schema()
    make = _SPANS.get(frame.implementation)
    dated = {
        new: pair
        for new, pair in columns.items()
        if all(isinstance(found[name], nw.Datetime) for name in pair)
    }
    if dated and make is not None:
        frame = with_native(frame, {new: make(*pair) for new, pair in dated.items()})
    elif dated:
        frame = frame.with_columns(
            ((nw.col(later) - nw.col(earlier)).dt.total_microseconds() / 1e6).alias(new)
            for new, (earlier, later) in dated.items()
        )
    return frame.with_columns(
        (nw.col(later) - nw.col(earlier)).cast(nw.Float64).alias(new)
        for new, (earlier, later) in columns.items()
        if new not in dated
    )


def _is_known(column: str, *, is_float: bool) -> nw.Expr:
    is_set = nw.col(column) != 0
    return is_set & ~nw.col(column).is_nan() if is_float else is_set


# Polars multiplies by the inverse of a constant, which is off in the last bit; a column
# of millions is divided by as IEEE says, and as the other engines do.
_MILLION = (pl.int_range(pl.len(), dtype=pl.Int64) * 0 + 1_000_000).cast(pl.Float64)


# Integer microseconds are exact on every engine; the epoch itself means "never".
def _polars_age(column: str, now_us: Any) -> pl.Expr:
    at = pl.col(column).dt.epoch("us")
    return pl.when(at != 0).then((pl.lit(now_us[0]) - at) / _MILLION)


def _duckdb_age(column: str, now_us: Any) -> Any:
    from duckdb import CaseExpression, ColumnExpression, ConstantExpression, FunctionExpression

    at = FunctionExpression("epoch_us", ColumnExpression(column))
    age = ConstantExpression(now_us[0]) - at
    return CaseExpression(at != ConstantExpression(0), age / ConstantExpression(1e6))


def _spark_age(column: str, now_us: Any) -> Any:
    from pyspark.sql import functions as sf

    at = sf.unix_micros(sf.col(column).cast("timestamp"))
    return sf.when(at != 0, (sf.lit(now_us[0]) - at) / 1e6)


def _polars_span(earlier: str, later: str) -> pl.Expr:
    return (pl.col(later).dt.epoch("us") - pl.col(earlier).dt.epoch("us")) / _MILLION


def _duckdb_span(earlier: str, later: str) -> Any:
    from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

    begun, ended = (FunctionExpression("epoch_us", ColumnExpression(c)) for c in (earlier, later))
    return (ended - begun) / ConstantExpression(1e6)


def _spark_span(earlier: str, later: str) -> Any:
    from pyspark.sql import functions as sf

    begun, ended = (sf.unix_micros(sf.col(c).cast("timestamp")) for c in (earlier, later))
    return (ended - begun) / 1e6


_SPANS = by_engine(_polars_span, _duckdb_span, _spark_span)
_MICROSECONDS = by_engine(_polars_age, _duckdb_age, _spark_age)
