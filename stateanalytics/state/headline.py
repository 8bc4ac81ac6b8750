"""The five numbers of a stretch of time, counted once for reports and weeks alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from stateanalytics.state.definitions import TROUBLE, ended_well

HEADLINE: Mapping[str, str] = {
    "runs": "runs",
    "completed": "share of ended runs",
    "timed_out": "share of ended runs",
    "unresolved": "share of open runs",
    "incidents": "incidents",
}
"""The names of the numbers, and what each is counted in."""


class Count(NamedTuple):
    """How many, and of how many; of None: a count, and no share."""

    n: int
    of: int | None = None


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
    >>> [tuple(count) for count in count_headline(runs, 1).values()]
    [(3, None), (1, 2), (0, 2), (1, 1), (1, None)]
    """
    is_open = pl.col("is_open")
    counted = runs.select(
        n_ended=(~is_open).sum(),
        n_open=is_open.sum(),
        completed=(~is_open & ended_well()).sum(),
        timed_out=(~is_open & (pl.col("outcome") == "timed_out")).sum(),
        unresolved=(is_open & pl.col("severity").is_in(list(TROUBLE))).sum(),
    ).row(0, named=True)
    n_ended, n_open = counted["n_ended"], counted["n_open"]
    return {
        "runs": Count(runs.height),
        "completed": Count(counted["completed"], n_ended),
        "timed_out": Count(counted["timed_out"], n_ended),
        "unresolved": Count(counted["unresolved"], n_open),
        "incidents": Count(n_incidents),
    }
