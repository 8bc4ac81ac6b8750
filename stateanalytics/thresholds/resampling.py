"""How sure a sum over sessions is: sessions drawn again, with replacement, by a seed."""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.stats import random_columns

MOST_BATCHES = 500
"""More units than this are dealt into so many batches at random, and batches are drawn."""

_ROWS_AT_ONCE = 100_000


def resampled_sums(units: pl.DataFrame, *, n_boot: int, seed: int) -> pl.DataFrame:
    """Sums of every column over units drawn again with replacement, many times.

    Parameters
    ----------
    units : polars.DataFrame, shape (n_units, n_columns)
        One row per independent unit (a session with everything in it), numbers only.
    n_boot : int
        How many times, at least 1.
    seed : int
        The same seed and the same units, in the same order, give the same sums.

    Returns
    -------
    polars.DataFrame, shape (n_boot, n_columns)
        One row a repetition; no rows without units.

    Notes
    -----
    The bootstrap over clusters [1]_: what happens within one session is not independent,
    so sessions are drawn, not their gaps. Above `MOST_BATCHES` units, batches dealt at
    random are drawn instead: their sums vary as sums over units do, and the work no
    longer grows with the fleet.

    References
    ----------
    .. [1] Davison, A. C. and Hinkley, D. V. (1997). Bootstrap methods and their
       application, section 3.8.

    Examples
    --------
    >>> resampled_sums(pl.DataFrame({"n": [2.0, 2.0]}), n_boot=2, seed=1)["n"].to_list()
    [4.0, 4.0]
    """
    if n_boot < 1:
        raise ArgumentError(
            f"n_boot needs at least one repetition; found {n_boot!r}.", "n_boot=400"
        )
    numbers = units.select(pl.all().cast(pl.Float64))
    if numbers.is_empty():
        return numbers
    batches = _batches(numbers, seed)
    n = batches.height
    at_once = max(1, _ROWS_AT_ONCE // n)
    sums = []
    for first in range(0, n_boot, at_once):
        last = min(first + at_once, n_boot)
        row = pl.int_range(first * n, last * n, dtype=pl.UInt64)
        draws = pl.select(repetition=row // n, drawn=random_columns.bits(row, seed, "draw") % n)
        sums.append(
            batches.select(pl.all().gather(draws["drawn"]))
            .with_columns(draws["repetition"])
            .group_by("repetition", maintain_order=True)
            .sum()
            .drop("repetition")
        )
    return pl.concat(sums)


def _batches(units: pl.DataFrame, seed: int) -> pl.DataFrame:
    if units.height <= MOST_BATCHES:
        return units
    row = pl.int_range(pl.len(), dtype=pl.UInt64)
    return (
        # Dealt like cards, so that no batch is larger than another by more than one unit.
        units.with_columns(
            batch=random_columns.bits(row, seed, "batch").rank("ordinal") % MOST_BATCHES
        )
        .group_by("batch")
        .sum()
        .sort("batch")
        .drop("batch")
    )
