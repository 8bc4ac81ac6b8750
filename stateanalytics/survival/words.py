"""Durations and shares as people say them, as expressions over columns."""

from __future__ import annotations

import polars as pl


def span(seconds: str | pl.Expr) -> pl.Expr:
    """A duration in the unit that people would use, with at most one decimal.

    Examples
    --------
    >>> long = pl.DataFrame({"s": [45.0, 900.0, 5400.0, 86400.0, 604800.0]})
    >>> long.select(span("s"))["s"].to_list()
    ['45 s', '15 min', '90 min', '24 h', '7 d']
    """
    value = pl.col(seconds) if isinstance(seconds, str) else seconds

    def number(of: pl.Expr) -> pl.Expr:
        return of.round(1).cast(pl.String).str.strip_suffix(".0")

    return (
        pl.when(value < 120)
        .then(pl.format("{} s", number(value)))
        .when(value < 7200)
        .then(pl.format("{} min", number(value / 60)))
        .when(value <= 48 * 3600)
        .then(pl.format("{} h", number(value / 3600)))
        .otherwise(pl.format("{} d", number(value / 86400)))
    )


def percent(share: str) -> pl.Expr:
    """A share as a whole number of percent, without the sign.

    Examples
    --------
    >>> pl.DataFrame({"x": [0.123]}).select(percent("x"))["x"].to_list()
    ['12']
    """
    return (pl.col(share) * 100).round(0).cast(pl.Int64).cast(pl.String)
