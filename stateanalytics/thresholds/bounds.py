"""How much data a statement about a tail needs: order statistics, no distribution assumed."""

from __future__ import annotations

import math

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.stats.distributions import beta_cdf


def n_needed(prob: float, *, confidence: float = 0.95) -> int:
    """How many values it takes before their largest bounds a quantile from above.

    Parameters
    ----------
    prob : float
        The quantile, in (0, 1).
    confidence : float
        How sure, in (0, 1).

    Notes
    -----
    The largest of n values lies above the quantile with probability ``1 - prob**n``.

    Examples
    --------
    >>> [n_needed(prob) for prob in (0.9, 0.95, 0.99)]
    [29, 59, 299]
    """
    _check(prob, confidence)
    return math.ceil(math.log(1 - confidence) / math.log(prob))


def upper_bound(values: pl.Series, prob: float, *, confidence: float = 0.95) -> float | None:
    """A value that the quantile does not exceed, this sure; None where no value is.

    Parameters
    ----------
    values : polars.Series of float
        Independent values; infinite where a value is only known to be large (cut off).
    prob, confidence : float
        The quantile and how sure, in (0, 1).

    Returns
    -------
    float or None
        An observed value; None with fewer than `n_needed` values, or where the bound
        falls on one that was cut off.

    Notes
    -----
    The smallest order statistic k with P(Binomial(n, prob) < k) >= confidence [1]_.

    References
    ----------
    .. [1] Hahn, G. J. and Meeker, W. Q. (1991). Statistical intervals, section 5.2.

    Examples
    --------
    >>> upper_bound(pl.Series(range(58)), 0.95) is None
    True
    >>> upper_bound(pl.Series(range(100)), 0.95)
    98.0
    """
    _check(prob, confidence)
    kept = values.cast(pl.Float64).drop_nulls().sort()
    n = kept.len()
    if n < n_needed(prob, confidence=confidence):
        return None
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        # P(Binomial(n, p) < k) = P(Beta(k, n - k + 1) > p).
        if 1 - beta_cdf(prob, middle, n - middle + 1) >= confidence:
            high = middle
        else:
            low = middle + 1
    bound = float(kept[low - 1])
    return bound if math.isfinite(bound) else None


def _check(prob: float, confidence: float) -> None:
    for name, value in (("prob", prob), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ArgumentError(
                f"{name} needs to be between 0 and 1; found {value!r}.", f"{name}=0.95"
            )
