"""Confidence intervals of shares and rates: Wilson's, and exact ones for few events."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.errors import ArgumentError, check_share
from stateanalytics.stats.distributions import (
    beta_cdf,
    binomial_p,
    gamma_cdf,
    solve,
    student_quantile,
    student_tail,
)

_FEW_EVENTS = 1_000


def wilson(n_hits: float, n: float, *, confidence: float = 0.95) -> tuple[float, float] | None:
    """Interval for a share of ``n_hits`` in ``n``; None where ``n`` is 0.

    Parameters
    ----------
    n_hits, n : float
        How many had the property, of how many; 0 <= n_hits <= n. Effective numbers may be
        fractions.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    tuple of float, or None
        Lower and upper end, in [0, 1]; None where ``n`` is 0.

    Notes
    -----
    The score interval of [1]_. It stays inside [0, 1] and keeps a width at 0 and at n,
    where the textbook interval collapses. It takes the n to be independent: the many
    sessions of one fan-out are not, and make it too narrow (`clustered_share`).

    References
    ----------
    .. [1] Wilson, E. B. (1927). Probable inference, the law of succession, and
       statistical inference. JASA 22, 209-212.

    Examples
    --------
    >>> [round(end, 6) for end in wilson(8, 10)]
    [0.490162, 0.943318]
    >>> wilson(0, 0) is None
    True
    """
    z = two_sided_z(confidence)
    if n == 0:
        return None
    low, high = _ends(n_hits, n, z)
    # At 0 and at n one end is the share itself, and rounding must not move it off.
    return (max(0.0, min(float(low), n_hits / n)), min(1.0, max(float(high), n_hits / n)))


def wilson_columns(
    hits: str, total: str, *, confidence: float = 0.95, prefix: str = "share"
) -> list[pl.Expr]:
    """The share, and the two ends of its interval, as expressions over two columns.

    Parameters
    ----------
    hits, total : str
        Columns with the counts.
    confidence : float
        Between 0 and 1.
    prefix : str
        Begins the three names: ``share``, ``share_low``, ``share_high``.

    Returns
    -------
    list of polars.Expr
        Null where the total is 0 or null.

    Examples
    --------
    >>> week = pl.DataFrame({"failed": [0, 8], "ended": [0, 10]})
    >>> week.select(wilson_columns("failed", "ended")).row(1)[0]
    0.8
    """
    n = pl.when(pl.col(total) > 0).then(pl.col(total).cast(pl.Float64))
    n_hits = pl.col(hits).cast(pl.Float64)
    low, high = _ends(n_hits, n, two_sided_z(confidence))
    share = n_hits / n
    return [
        share.alias(prefix),
        pl.min_horizontal(low, share).clip(lower_bound=0.0).alias(f"{prefix}_low"),
        pl.max_horizontal(high, share).clip(upper_bound=1.0).alias(f"{prefix}_high"),
    ]


def _exact_share(n_hits: float, n_others: float, confidence: float) -> tuple[float, float]:
    """Ends of the exact interval of a share; with dispersion, counts may be fractions.

    Notes
    -----
    The shares that an exact one-sided test would not reject [1]_.

    References
    ----------
    .. [1] Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial
       limits illustrated in the case of the binomial. Biometrika 26, 404-413.
    """
    tail = (1 - confidence) / 2
    low = solve(lambda x: beta_cdf(x, n_hits, n_others + 1) - tail, 0, 1) if n_hits else 0.0
    high = solve(lambda x: beta_cdf(x, n_hits + 1, n_others) - 1 + tail, 0, 1) if n_others else 1.0
    return low, high


@functools.cache
def poisson_interval(n_events: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval for the expected number of events, from the number that was counted.

    Parameters
    ----------
    n_events : int
        Events counted, at least 0.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Notes
    -----
    Garwood's interval [1]_; with no events the upper end is about 3.7 at 95 %. Events are
    taken to be independent: the many sessions of one fan-out are not.

    References
    ----------
    .. [1] Garwood, F. (1936). Fiducial limits for the Poisson distribution. Biometrika
       28, 437-442.

    Examples
    --------
    >>> [round(end, 1) for end in poisson_interval(15)]
    [8.4, 24.7]
    """
    tail = (1 - confidence) / 2
    # An upper bracket for the root, far enough above the mean for any confidence.
    top = n_events + 60 + 40 * (n_events + 1) ** 0.5
    low = solve(lambda x: gamma_cdf(x, n_events) - tail, 0, top) if n_events else 0.0
    return low, solve(lambda x: gamma_cdf(x, n_events + 1) - 1 + tail, 0, top)


def poisson_columns(
    events: str, exposure: str, *, confidence: float = 0.95, prefix: str = "rate"
) -> list[pl.Expr]:
    """The rate, and the two ends of its interval, as expressions over two columns.

    Parameters
    ----------
    events, exposure : str
        Columns with the counts, and with what they were counted over.
    confidence : float
        Between 0 and 1.
    prefix : str
        Begins the three names: ``rate``, ``rate_low``, ``rate_high``.

    Returns
    -------
    list of polars.Expr
        Null where the exposure is 0 or null.

    Notes
    -----
    As `poisson_interval` for up to 1000 events. Above that, Wilson and Hilferty's cube root
    [1]_, which is off by less than a millionth there. Both take the events to come one by
    one: where they come in bursts (24 runs of one fan-out that fail together), the interval
    is too narrow, by the square root of the size of a burst. Count incidents, or see
    `weighted_count`.

    References
    ----------
    .. [1] Wilson, E. B. and Hilferty, M. M. (1931). The distribution of chi-square.
       PNAS 17, 684-688.

    Examples
    --------
    >>> week = pl.DataFrame({"flags": [15, 2], "hours": [1000.0, 0.0]})
    >>> week.select(poisson_columns("flags", "hours")).rows()[1]
    (None, None, None)
    """
    z = two_sided_z(confidence)
    n = pl.col(events).cast(pl.Int64)
    over = pl.when(pl.col(exposure) > 0).then(pl.col(exposure).cast(pl.Float64))

    def ends(which: int) -> pl.Expr:
        centre = (n + which).cast(pl.Float64)
        sign = 2 * which - 1
        many = centre * (1 - 1 / (9 * centre) + sign * z / (3 * centre.sqrt())) ** 3
        few = n.map_batches(
            lambda counts: _exact_ends(counts, which, confidence), return_dtype=pl.Float64
        )
        return pl.when(n > _FEW_EVENTS).then(many).otherwise(few)

    return [
        (n / over).alias(prefix),
        (ends(0) / over).alias(f"{prefix}_low"),
        (ends(1) / over).alias(f"{prefix}_high"),
    ]


def _exact_ends(counts: pl.Series, which: int, confidence: float) -> pl.Series:
    """Garwood's lower (0) or upper (1) end for small counts, computed once per distinct count."""
    distinct = counts.filter(counts <= _FEW_EVENTS).unique().to_list()
    known = {n: poisson_interval(n, confidence)[which] for n in distinct}
    return counts.replace_strict(known, default=None, return_dtype=pl.Float64)


def weighted_count(
    total: float, variance: float, heaviest: float, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval for a sum over independent units that are few or have unequal weights.

    Parameters
    ----------
    total, variance : float
        The sum, and its variance estimated from the units; at least 0.
    heaviest : float
        What one more unit could add: for a sum of 0 the upper end is 3.7 times as much.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    tuple of float
        Lower and upper end, at least 0.

    Notes
    -----
    Fay and Feuer's gamma interval [1]_: Garwood's where every unit weighs one. Quantiles
    are Wilson and Hilferty's: within one percent of the exact ones, except that the lower end
    is too low with fewer than ten units.

    References
    ----------
    .. [1] Fay, M. P. and Feuer, E. J. (1997). Confidence intervals for directly
       standardized rates. Statistics in Medicine 16, 791-801.

    Examples
    --------
    >>> [round(end, 2) for end in weighted_count(0, 0, 1)]
    [0.0, 3.67]
    >>> [round(end, 1) for end in weighted_count(15, 15, 1)]
    [8.4, 24.7]
    """
    z = two_sided_z(confidence)
    low = _gamma_quantile(total, variance, -z) if total > 0 else 0.0
    return low, _gamma_quantile(total + heaviest, variance + heaviest * heaviest, z)


def _gamma_quantile(mean: float, variance: float, z: float) -> float:
    """Wilson and Hilferty's quantile of a gamma variable: its cube root is close to normal."""
    if variance <= 0 or mean <= 0:
        return mean
    spread = variance / (9 * mean * mean)
    return float(mean * max(0.0, 1 - spread + z * spread**0.5) ** 3)


class RateRatio(NamedTuple):
    """The ratio of two rates, with its interval and the test of equality.

    Attributes
    ----------
    ratio : float or None
        The first rate over the second; None where the second has no events (the ratio is
        then infinite or not defined) or an exposure is 0.
    low, high : float or None
        Its exact interval; ``high`` is None where it has no upper bound.
    p_value : float or None
        Two-sided test that the rates are equal; None where an exposure is 0.
    """

    ratio: float | None
    low: float | None
    high: float | None
    p_value: float | None


def rate_ratio(
    n_events: int,
    exposure: float,
    n_events_before: int,
    exposure_before: float,
    *,
    confidence: float = 0.95,
    dispersion: float = 1.0,
    degrees: float = math.inf,
) -> RateRatio:
    """Compare two rates exactly: their ratio, its interval and a test of equality.

    Parameters
    ----------
    n_events, exposure : int, float
        Events and exposure of one period, such as failures and run-hours.
    n_events_before, exposure_before : int, float
        Those of the period it is compared with.
    confidence : float
        Between 0 and 1.
    dispersion : float
        Variance of the counts over that of Poisson counts, at least 1.
    degrees : float
        Degrees of freedom of the estimated dispersion; infinite: it is known.

    Returns
    -------
    RateRatio
        ``ratio``, ``low``, ``high``, ``p_value``.

    Notes
    -----
    Given all events, those of the first period are binomial with its share of the
    exposure, so interval and test are exact however few events there are [1]_; R's
    ``poisson.test`` gives the same numbers. The interval is Clopper-Pearson's, the p-value
    adds up all splits that are at most as likely: near the level the two can disagree. Where
    events come in bursts, ``dispersion`` of them count as one (quasi-Poisson): the same tails
    of the beta distribution at fractional counts, twice the smaller one, with half of the
    observed count in each (mid-p), and Student's distribution in place of the normal where
    few units estimate the dispersion.

    References
    ----------
    .. [1] Przyborowski, J. and Wilenski, H. (1940). Homogeneity of results in testing
       samples from Poisson series. Biometrika 31, 313-323.

    Examples
    --------
    >>> two_weeks = rate_ratio(15, 1000, 7, 1100)
    >>> round(two_weeks.ratio, 3), round(two_weeks.p_value, 7)
    (2.357, 0.0574532)
    """
    if exposure == 0 or exposure_before == 0:
        return RateRatio(None, None, None, None)
    n = n_events + n_events_before
    scale = exposure_before / exposure
    if n == 0:
        return RateRatio(None, 0.0, None, 1.0)
    now, before = n_events / dispersion, n_events_before / dispersion
    widening = (
        (student_quantile(confidence, degrees) / two_sided_z(confidence)) ** 2
        if dispersion > 1
        else 1.0
    )
    low, high = _exact_share(now / widening, before / widening, confidence)
    at_equality = exposure / (exposure + exposure_before)
    if dispersion > 1:
        at_least = beta_cdf(at_equality, now, before + 1) if now else 1.0
        above = beta_cdf(at_equality, now + 1, before) if before else 0.0
        # Mid-p: half of the probability of the observed count lies in each tail.
        tail = (at_least + above) / 2
        # A p-value of 0 has no normal deviate; 1e-15 is eight standard deviations.
        p_value = max(min(1.0, 2 * min(tail, 1 - tail)), 1e-15)
        p_value = student_tail(NormalDist().inv_cdf(1 - p_value / 2), degrees)
    else:
        p_value = binomial_p(n_events, n, at_equality)
    return RateRatio(
        ratio=n_events / n_events_before * scale if n_events_before else None,
        low=low / (1 - low) * scale if low < 1 else None,
        high=high / (1 - high) * scale if high < 1 else None,
        p_value=p_value,
    )


def newcombe(
    n_hits: float, n: float, n_hits_before: float, n_before: float, *, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Difference of two independent shares, with its interval.

    Parameters
    ----------
    n_hits, n : float
        How many had the property, of how many; ``n`` above 0.
    n_hits_before, n_before : float
        Those of the share that is subtracted.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    tuple of float
        Difference, lower and upper end, in [-1, 1].

    Raises
    ------
    ArgumentError
        If a total is 0, or as for `wilson`.

    Notes
    -----
    Method 10 of [1]_: the two Wilson intervals, squared and added.

    References
    ----------
    .. [1] Newcombe, R. G. (1998). Interval estimation for the difference between
       independent proportions. Statistics in Medicine 17, 873-890.

    Examples
    --------
    >>> [round(part, 4) for part in newcombe(56, 70, 48, 80)]
    [0.2, 0.0524, 0.3339]
    """
    now = wilson(n_hits, n, confidence=confidence)
    before = wilson(n_hits_before, n_before, confidence=confidence)
    if now is None or before is None:
        raise ArgumentError(
            f"newcombe needs two totals of at least 1; found n={n} and n_before={n_before}.",
            "if one of them is 0, there is nothing to compare",
        )
    share, share_before = n_hits / n, n_hits_before / n_before
    below = ((share - now[0]) ** 2 + (before[1] - share_before) ** 2) ** 0.5
    above = ((now[1] - share) ** 2 + (share_before - before[0]) ** 2) ** 0.5
    difference = share - share_before
    return difference, max(-1.0, difference - below), min(1.0, difference + above)


def two_sided_z(confidence: float) -> float:
    """Half-width of a normal interval, in standard deviations.

    Examples
    --------
    >>> round(two_sided_z(0.95), 3)
    1.96
    """
    check_share("confidence", confidence, 0.95)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _ends(n_hits: Any, n: Any, z: float) -> tuple[Any, Any]:
    """Both ends of Wilson's interval, for numbers as well as for expressions."""
    centre = (n_hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * (n_hits * (n - n_hits) / n + z * z / 4) ** 0.5
    return centre - half, centre + half
