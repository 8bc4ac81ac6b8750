"""Tail probabilities, quantiles, and the false discovery rate of many tests."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from statistics import NormalDist

import polars as pl

_TINY = 1e-300
_PRECISION = 1e-16
_MOST_STEPS = 100_000


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
    """Two-sided exact test that a split of ``b`` to ``c`` is even.

    Parameters
    ----------
    b, c : int
        The two counts.
    mid : bool
        Count the observed split half (mid-p): less conservative for few cases.

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
    """Binomial(n, 1/2) at i: exact for small n, by logarithms where 2**n overflows."""
    if n <= 1000:
        return float(math.comb(n, i) / 2**n)
    return math.exp(_log_choose(n, i) - n * math.log(2))


def beta_cdf(x: float, a: float, b: float) -> float:
    """Probability that a beta(a, b) variable is at most ``x``: the incomplete beta function.

    Parameters
    ----------
    x : float
        In [0, 1].
    a, b : float
        Shapes, above 0.

    Notes
    -----
    Lentz's continued fraction, taken from the side where it converges fast [1]_. Tails of the
    binomial are beta probabilities, so exact tests of counts use it.

    References
    ----------
    .. [1] NIST Digital Library of Mathematical Functions, section 8.17(v).

    Examples
    --------
    >>> round(beta_cdf(0.5, 2, 3), 6)
    0.6875
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1 - x, b, a)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    value, c, d = 1.0, 1.0, 0.0
    for step in range(_MOST_STEPS):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        # As `_not_zero`, but without a call: exact intervals spend most of their time here.
        d = 1 + term * d
        d = 1 / (d if abs(d) > _TINY else _TINY)
        c = 1 + term / c
        c = c if abs(c) > _TINY else _TINY
        value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return math.exp(log_front) * (value - 1) / a


def student_tail(t: float, df: float) -> float:
    """Two-sided tail of Student's distribution; degrees of freedom may be fractional.

    Examples
    --------
    >>> round(student_tail(2.228139, 10), 6)
    0.05
    """
    if math.isinf(df):
        return math.erfc(abs(t) / math.sqrt(2))
    return beta_cdf(df / (df + t * t), df / 2, 0.5)


def student_quantile(level: float, df: float) -> float:
    """Two-sided quantile of Student's distribution: it holds ``level`` of the probability.

    Examples
    --------
    >>> round(student_quantile(0.95, 10), 6)
    2.228139
    """
    if math.isinf(df):
        return NormalDist().inv_cdf((1 + level) / 2)
    # df / (df + t²) has a beta distribution.
    ratio = solve(lambda x: beta_cdf(x, df / 2, 0.5) - (1 - level), 0.0, 1.0)
    return math.sqrt(df * (1 - ratio) / ratio) if ratio > 0 else math.inf


def student_quantiles(level: float, degrees: pl.Expr) -> pl.Expr:
    """The `student_quantile` of each row, with at least one degree of freedom."""
    return degrees.clip(1).map_elements(
        lambda df: student_quantile(level, df), return_dtype=pl.Float64
    )


def gamma_cdf(x: float, shape: float) -> float:
    """Probability that a gamma(shape, 1) variable is at most ``x``.

    Parameters
    ----------
    x : float
        At least 0.
    shape : float
        Above 0.

    Notes
    -----
    Series below the mean, continued fraction above it [1]_. It is also the probability of a
    Poisson count of at least ``shape`` with mean ``x``.

    References
    ----------
    .. [1] NIST Digital Library of Mathematical Functions, sections 8.7 and 8.9.

    Examples
    --------
    >>> round(gamma_cdf(1.0, 1.0), 6)
    0.632121
    """
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for step in range(1, _MOST_STEPS):
            term *= x / (shape + step)
            total += term
            if term < total * _PRECISION:
                break
        return min(1.0, front * total)
    b = x + 1 - shape
    c, d = 1 / _TINY, 1 / b
    value = d
    for step in range(1, _MOST_STEPS):
        factor = step * (shape - step)
        b += 2
        d = 1 / _not_zero(factor * d + b)
        c = _not_zero(b + factor / c)
        value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return max(0.0, 1.0 - front * value)


def binomial_p(k: int, n: int, share: float) -> float:
    """Two-sided exact test of a share: probability of a count as unlikely as ``k`` of ``n``.

    Parameters
    ----------
    k, n : int
        Hits and trials.
    share : float
        The share that is tested, in (0, 1).

    Notes
    -----
    The sum over all counts that are at most as likely as the observed one, with R's tolerance
    of 1e-7 for "as likely" (``binom.test``).

    Examples
    --------
    >>> round(binomial_p(1, 8, 0.5), 7)
    0.0703125
    """
    if n == 0:
        return 1.0
    limit = _log_binomial(k, n, share) + 1e-7
    if k < n * share:
        above = range(math.ceil(n * share), n + 1)
        place = bisect_left(above, -limit, key=lambda i: -_log_binomial(i, n, share))
        return min(1.0, _at_most(k, n, share) + _at_least(above.start + place, n, share))
    below = range(math.floor(n * share) + 1)
    place = bisect_right(below, limit, key=lambda i: _log_binomial(i, n, share))
    return min(1.0, _at_least(k, n, share) + _at_most(place - 1, n, share))


def solve(function: Callable[[float], float], low: float, high: float) -> float:
    """Root of an increasing function between ``low`` and ``high``, by false position.

    Examples
    --------
    >>> round(solve(lambda x: x * x - 2, 0.0, 2.0), 9)
    1.414213562
    """
    below, above = function(low), function(high)
    side = 0
    for _ in range(_MOST_STEPS):
        middle = (low * above - high * below) / (above - below) if above != below else low
        value = function(middle)
        if value == 0 or high - low <= 4e-16 * max(abs(low), abs(high)):
            return middle
        # Illinois rule: halve the weight of an end that is kept twice, or false position stalls.
        if value > 0:
            if abs(high - middle) <= 1e-14 * abs(middle):
                return middle
            high, above = middle, value
            below = below / 2 if side > 0 else below
            side = 1
        else:
            if abs(low - middle) <= 1e-14 * abs(middle):
                return middle
            low, below = middle, value
            above = above / 2 if side < 0 else above
            side = -1
    return (low + high) / 2


def _log_binomial(k: int, n: int, share: float) -> float:
    return _log_choose(n, k) + k * math.log(share) + (n - k) * math.log1p(-share)


def _at_most(k: int, n: int, share: float) -> float:
    """Binomial probability of a count of at most k."""
    return 0.0 if k < 0 else 1.0 if k >= n else beta_cdf(1 - share, n - k, k + 1)


def _at_least(k: int, n: int, share: float) -> float:
    """Binomial probability of a count of at least k; small tails keep their digits."""
    return 1.0 if k <= 0 else 0.0 if k > n else beta_cdf(share, k, n - k + 1)


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def hypergeometric_tail(k: int, n_drawn: int, n_marked: int, n_all: int) -> float:
    """Probability to draw at least ``k`` of ``n_marked`` items in ``n_drawn`` out of ``n_all``.

    Fisher's exact test, one-sided: drawn items are marked as often as the others.

    Examples
    --------
    >>> round(hypergeometric_tail(3, 4, 4, 8), 6)
    0.242857
    >>> hypergeometric_tail(0, 4, 4, 8)
    1.0
    """
    lowest, highest = max(0, n_drawn + n_marked - n_all), min(n_drawn, n_marked)
    if k <= lowest:
        return 1.0
    if k > highest:
        return 0.0
    if k <= n_drawn * n_marked / n_all:
        # From the other side, where terms only decrease.
        return 1.0 - hypergeometric_tail(n_drawn - k + 1, n_drawn, n_all - n_marked, n_all)
    first = _log_choose(n_marked, k) + _log_choose(n_all - n_marked, n_drawn - k)
    first -= _log_choose(n_all, n_drawn)
    # Relative to the first term, so that even the smallest tail keeps its digits.
    term = tail = 1.0
    for i in range(k, highest):
        term *= (n_marked - i) * (n_drawn - i)
        term /= (i + 1) * (n_all - n_marked - n_drawn + i + 1)
        tail += term
        if term < tail * 1e-17:
            break
    return min(1.0, math.exp(first) * tail)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def benjamini_hochberg(
    p_value: str = "p_value", *, over: str | list[str] | None = None, n_tests: int | None = None
) -> pl.Expr:
    """Adjusted p-values: the smallest false discovery rate at which each test is significant.

    Parameters
    ----------
    p_value : str
        Column of p-values, in [0, 1]; null: not tested.
    over : str or list of str, optional
        Columns that name separate families of tests; None: all rows are one family.
    n_tests : int, optional
        Number of tests, where those without a result have no row; by default the number of
        p-values.

    Returns
    -------
    polars.Expr
        Adjusted p-values (q-values), in the order of the rows, named ``q_value``; null
        without a test, which then does not count either.

    Notes
    -----
    Benjamini and Hochberg's step-up procedure [1]_: of all rows with a q-value of at most
    0.1, on average at most one in ten is false. It holds for tests that are independent or
    positively dependent; choose the family before looking.

    References
    ----------
    .. [1] Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate.
       J. R. Statist. Soc. B 57, 289-300.

    Examples
    --------
    >>> tests = pl.DataFrame({"p_value": [0.04, 0.001, None, 0.03]})
    >>> tests.with_columns(benjamini_hochberg().round(3))["q_value"].to_list()
    [0.04, 0.003, None, 0.04]
    """
    p = pl.col(p_value)
    scaled = p * (p.count() if n_tests is None else n_tests) / p.rank("max")
    # Running minimum from the largest p-value down: adjusted values keep the order of p.
    order = p.arg_sort(nulls_last=True)
    adjusted = scaled.gather(order).cum_min(reverse=True).gather(order.arg_sort())
    kept = pl.when(p.is_not_null()).then(adjusted.clip(upper_bound=1.0))
    return (kept if over is None else kept.over(over)).alias("q_value")
