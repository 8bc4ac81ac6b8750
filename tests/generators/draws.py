"""Columns of reproducible random values, by the bits of `stateanalytics.stats.draws`.

A store can be written in pieces of any size, and a column that is added later changes no other.
"""

import itertools
import math

import polars as pl

from stateanalytics.stats.draws import bits

_HEX = pl.Series("hex", [f"{number:04x}" for number in range(1 << 16)])


def uniform(row, seed, column):
    """A number strictly between 0 and 1 for each row number."""
    return ((bits(row, seed, column) // (1 << 11)).cast(pl.Float64) + 0.5) / float(1 << 53)


def integer(row, seed, column, low, high):
    """A whole number from ``low`` to ``high``, both included, for each row number."""
    return low + (bits(row, seed, column) % (high - low + 1)).cast(pl.Int64)


def one_of(row, seed, column, values):
    """One of the values with equal probability, for each row number."""
    return pl.lit(pl.Series(values)).gather(bits(row, seed, column) % len(values))


def weighted(row, seed, column, shares):
    """One of the keys with the probability of its share, for each row number."""
    limits = list(itertools.accumulate(shares.values()))
    drawn = uniform(row, seed, column) * limits[-1]
    # The infinite limit is never reached, but gives a single key a column as well.
    index = pl.sum_horizontal((drawn >= limit).cast(pl.Int32) for limit in (*limits[:-1], math.inf))
    return pl.lit(pl.Series(list(shares), dtype=pl.String)).gather(index)


def hex_id(row, seed, column, n_digits=32):
    """An id of hexadecimal digits for each row number."""
    halves = [bits(row, seed, f"{column}/{half}") for half in ("high", "low")]
    fours = [
        pl.lit(_HEX).gather((half // (1 << (16 * place))) % (1 << 16))
        for half in halves
        for place in range(4)
    ]
    n_fours = -(-n_digits // 4)
    return pl.concat_str(fours[:n_fours]).str.slice(0, n_digits)


def uuid(row, seed, column):
    """An id shaped like a random UUID (version 4) for each row number."""
    ends = ((0, 8), (8, 4), (13, 3), (17, 3), (20, 12))
    digits = (hex_id(row, seed, column).str.slice(*end) for end in ends)
    return pl.format("{}-{}-4{}-a{}-{}", *digits)
