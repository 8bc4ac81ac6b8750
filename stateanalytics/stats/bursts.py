"""Bursts: events nearer to each other than chance, such as the failures of an outage of days."""

from __future__ import annotations

import polars as pl

CLOSE, CLOSE_OF_FEW, CLOSEST = 0.5, 2.0, 0.75
"""Events are in bursts where the mean of -log(distance / mean distance) is at least
``CLOSE + CLOSE_OF_FEW / sqrt(n - 1)`` for n events, and `CLOSEST`: by chance it is .58 for many
events, and .69 where every trial is one. So 2 to 6 % of random sets of up to 50 events seem to
have bursts, at most 3 % of up to 100, and none of more than 200.
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
    Moran's test of distances [1]_: where they are on average so small (`CLOSE`), events not
    further apart than `APART` times the mean are one burst: most of those of an outage. It finds
    bursts of a few events, and two of them, which hardly change the variance of distances.

    References
    ----------
    .. [1] Moran, P. A. P. (1951). The random division of an interval, part II. Journal of the
       Royal Statistical Society B 13, 147-150.

    Examples
    --------
    >>> frame = pl.DataFrame({"place": [40, 41, 43, 44, 45, 90, 92, 93, 94, 95]})
    >>> frame.select(burst_number(pl.col("place"), pl.lit(200)))["place"].to_list()
    [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    """
    distances = place.cast(pl.Float64).diff()
    mean = (n.cast(pl.Float64) + 1) / (pl.len() + 1)
    # Half a place less: whole numbers are never as small as distances by chance are.
    closeness = -((distances - 0.5) / mean).log().mean()
    of_few = CLOSE + CLOSE_OF_FEW / (pl.len().cast(pl.Float64) - 1).sqrt()
    close = pl.max_horizontal(pl.lit(CLOSEST), of_few)
    return ((distances > APART * mean) | (closeness < close)).fill_null(value=True).cum_sum()
