"""Tails of the distributions that tests are read off; no table, no library."""

from __future__ import annotations

import math


def chi_square_tail(statistic: float, df: int) -> float:
    """Upper tail of the chi-square distribution, by its finite recursion in df.

    Examples
    --------
    >>> round(chi_square_tail(3.841458820694124, 1), 6)
    0.05
    """
    half = statistic / 2
    a = 0.5 if df % 2 else 1.0
    tail = math.erfc(math.sqrt(half)) if df % 2 else math.exp(-half)
    while a < df / 2:
        tail += math.exp(a * math.log(half) - half - math.lgamma(a + 1)) if half else 0.0
        a += 1
    return tail


def even_split_p(b: int, c: int, *, mid: bool = False) -> float:
    """Two-sided probability of a split as uneven as ``b`` to ``c`` if both were as likely.

    Parameters
    ----------
    b, c : int
        The two counts.
    mid : bool
        Count the observed split half: less cautious, closer to the level for few cases.

    Examples
    --------
    >>> even_split_p(1, 7), even_split_p(1, 7, mid=True)
    (0.0703125, 0.0390625)
    """
    n, k = b + c, min(b, c)
    if n == 0:
        return 1.0
    point = [_even_split(n, i) for i in range(k + 1)]
    tail = math.fsum(point) - (point[k] / 2 if mid else 0.0)
    return min(1.0, 2 * tail)


def _even_split(n: int, i: int) -> float:
    """Binomial(n, 1/2) at i: exact for few, by logarithms where the numbers grow long."""
    if n <= 1000:
        return float(math.comb(n, i) / 2**n)
    log_comb = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
    return math.exp(log_comb - n * math.log(2))
