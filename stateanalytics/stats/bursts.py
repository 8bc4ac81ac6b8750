"""Bursts: events nearer to each other than chance, such as the failures of an outage of days."""

from __future__ import annotations

import polars as pl

UNEVEN = 2.0
"""Events whose distances vary at least so many times as much as by chance are in bursts."""
UNEVEN_OF_MANY = 3.3
"""Of n events, 1 and this over the root of n times as much are enough where that is less.

By chance 1 to 4 % of sets of up to 50 events vary so much, and 5 to 6 % of sets of 100 to 500.
"""
APART = 2.0
"""Events of a burst are at most so many times the mean distance apart: an outage of two days in a
fleet with less than one run an hour has runs of others between its own, and fell into parts."""


def burst_number(place: pl.Expr, n: pl.Expr) -> pl.Expr:
    """Number the bursts of events, in their order; without bursts each event has its own.

    Parameters
    ----------
    place : polars.Expr
        The place of each event among all ``n`` trials, sorted. Trials and not time, so that no
        weekend stands between bursts.
    n : polars.Expr
        The number of trials.

    Notes
    -----
    By chance the distances of events, and those to both ends, have a variance of at most their
    squared mean, with a standard error of 2 over the root of their number. Where it is `UNEVEN`
    times that, or more than about 1 in 20 has by chance (`UNEVEN_OF_MANY`), events not further
    apart than `APART` times the mean are one burst: most of those of an outage.

    Examples
    --------
    >>> frame = pl.DataFrame({"place": [40, 41, 43, 44, 45, 90, 92, 93, 94, 95]})
    >>> frame.select(burst_number(pl.col("place"), pl.lit(200)))["place"].to_list()
    [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    """
    gaps, whole = place.cast(pl.Float64).diff(), n.cast(pl.Float64) + 1
    ends = place.first().cast(pl.Float64).pow(2) + (whole - place.last()).pow(2)
    mean = whole / (pl.len() + 1)
    variance = (gaps.pow(2).sum() + ends) / (pl.len() + 1) - mean**2
    uneven = pl.min_horizontal(
        pl.lit(UNEVEN), 1 + UNEVEN_OF_MANY / pl.len().cast(pl.Float64).sqrt()
    )
    is_apart = (gaps > APART * mean) | (variance < uneven * mean**2)
    return is_apart.fill_null(value=True).cum_sum()
