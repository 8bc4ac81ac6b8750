"""Reproducible random numbers: bits as polars expressions, and multinomial counts.

A value of a column depends only on the seed, the name of the column and the number of the
row: a counter-based generator.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from random import Random

import polars as pl

_GOLDEN = 0x9E3779B97F4A7C15


def bits(row: pl.Expr, seed: int, column: str) -> pl.Expr:
    """64 random bits for each row number (UInt64).

    Notes
    -----
    The finalizer of SplitMix64 over an arithmetic sequence; unsigned products wrap.

    References
    ----------
    .. [1] Steele, G. L., Lea, D. and Flood, C. H. (2014). Fast splittable
       pseudorandom number generators. OOPSLA 2014, 453-472.

    Examples
    --------
    >>> pl.select(bits(pl.int_range(2, dtype=pl.UInt64), 0, "a")).to_series().n_unique()
    2
    """
    start = (seed * 0xD1342543DE82EF95 + zlib.crc32(column.encode()) * _GOLDEN) % (1 << 64)
    state = row.cast(pl.UInt64) * _u64(_GOLDEN) + _u64(start)
    state = (state ^ (state // (1 << 30))) * _u64(0xBF58476D1CE4E5B9)
    state = (state ^ (state // (1 << 27))) * _u64(0x94D049BB133111EB)
    return state ^ (state // (1 << 31))


def _u64(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.UInt64)


# Expected successes below which counting the gaps between them is faster.
_FEW = 10.0


def multinomial(random: Random, sizes: Sequence[int]) -> list[int]:
    """Counts of classes in a resample with replacement of all members.

    Parameters
    ----------
    random : random.Random
        The generator.
    sizes : sequence of int
        Members of each class, at least 1.

    Returns
    -------
    list of int
        One count per class, with the sum of ``sizes``. The work grows with the classes, not
        the members.

    Examples
    --------
    >>> sum(multinomial(Random(1), [5, 1000, 20]))
    1025
    """
    n_left = members_left = sum(sizes)
    times = []
    for size in sizes:
        drawn = binomial(random, n_left, size / members_left)
        times.append(drawn)
        n_left -= drawn
        members_left -= size
    return times


def binomial(random: Random, n: int, p: float) -> int:
    """An exact binomial random number: successes of ``n`` trials with probability ``p``.

    References
    ----------
    .. [1] Hormann, W. (1993). The generation of binomial random variates. J. Statist.
       Comput. Simul. 46, 101-110 (BTRS).
    .. [2] Devroye, L. (1986). Non-uniform random variate generation, section X.4.3.

    Examples
    --------
    >>> binomial(Random(1), 10, 0.0), binomial(Random(1), 10, 1.0)
    (0, 10)
    """
    if p <= 0 or n == 0:
        return 0
    if p > 0.5:
        return n - binomial(random, n, 1 - p)
    return _by_gaps(random, n, p) if n * p < _FEW else _by_rejection(random, n, p)


def _by_gaps(random: Random, n: int, p: float) -> int:
    """By the gaps between successes, which are geometric."""
    successes, trial, scale = 0, 0, math.log1p(-p)
    while True:
        trial += int(math.log(1 - random.random()) / scale) + 1
        if trial > n:
            return successes
        successes += 1


def _by_rejection(random: Random, n: int, p: float) -> int:
    """By rejection of a transformed uniform pair, BTRS of [1]_ in `binomial`."""
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    log_odds, mode = math.log(p / (1 - p)), int((n + 1) * p)
    height = math.lgamma(mode + 1) + math.lgamma(n - mode + 1)
    while True:
        u = random.random() - 0.5
        v = 1 - random.random()
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + n * p + 0.5) if edge else -1
        if not 0 <= k <= n:
            continue
        if edge >= 0.07 and v <= 0.92 - 4.2 / b:
            return k
        log_ratio = height - math.lgamma(k + 1) - math.lgamma(n - k + 1) + (k - mode) * log_odds
        if math.log(v * alpha / (a / edge**2 + b)) <= log_ratio:
            return k
