"""The five numbers of a stretch of time, counted once for reports and weeks alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from stateanalytics.state.definitions import TROUBLE, ended_well
from stateanalytics.state.sampling_units import sampling_units
from stateanalytics.stats.shares import ClusteredShare, clustered_share

HEADLINE: Mapping[str, str] = {
    "runs": "runs",
    "completed": "share of ended runs",
    "timed_out": "share of ended runs",
    "unresolved": "share of open runs",
    "incidents": "incidents",
}
"""The names of the numbers, and what each is counted in."""


class Count(NamedTuple):
    """How many, and of how many; of None: a count, and no share.

    Of a share, ``sure`` says how many independent units it comes from, which are a ``unit`` each.
    """

    n: int
    of: int | None = None
    sure: ClusteredShare | None = None
    unit: str = ""


def count_headline(runs: pl.DataFrame, n_incidents: int) -> dict[str, Count]:
    """The five numbers of some runs.

    Parameters
    ----------
    runs : polars.DataFrame
        The sessions of a window that rates count: `population.counted` of a `population`.
    n_incidents : int
        How many incidents the failed ones are; what hangs together say their messages.

    Returns
    -------
    dict of str to Count
        By the names of `HEADLINE`, in its order.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "is_open": [False, False, True], "outcome": ["completed", "failed", None],
    ...         "severity": ["neutral", "critical", "warning"],
    ...     }
    ... )
    >>> [(count.n, count.of) for count in count_headline(runs, 1).values()]
    [(3, None), (1, 2), (0, 2), (1, 1), (1, None)]
    """
    ended, still_open = runs.filter(~pl.col("is_open")), runs.filter("is_open")
    return {
        "runs": Count(runs.height),
        "completed": share_of(ended, ended_well()),
        "timed_out": share_of(ended, pl.col("outcome") == "timed_out"),
        "unresolved": share_of(still_open, pl.col("severity").is_in(list(TROUBLE))),
        "incidents": Count(n_incidents),
    }


def share_of(runs: pl.DataFrame, is_hit: pl.Expr) -> Count:
    """How many of some runs have a property, and how many independent units say so."""
    units, unit = sampling_units(runs)
    sure = clustered_share(runs.select(is_hit.fill_null(value=False)).to_series(), units)
    return Count(sure.n_hits, sure.n, sure, unit)
