"""What mistakes of a threshold cost, and how much data a bound on a tail takes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import polars as pl

from stateanalytics.errors import check_number, check_share
from stateanalytics.stats.distributions import beta_cdf


@dataclass(frozen=True)
class Costs:
    """What mistakes of a threshold cost, in minutes of a person's attention.

    Only their ratios matter for the advice: doubling all of them changes nothing but the
    numbers called loss.

    Attributes
    ----------
    false_alarm : float
        Looking at a run that was fine. Default 5: open it, read the last lines, go back.
    undetected_hour : float
        A run that is dead or will not end well, unnoticed for an hour. Default 10: what
        waits for it waits, and its context is colder when somebody looks.
    lost_run : float
        A run that would have ended well, cut off or closed by mistake. Default 60: it is
        looked into and repeated.
    run_hour : float
        An hour that a run works: model, machine and slot. Default 3.
    deaths_per_100_hours : float or None
        How often runs die, per 100 session-hours alive. None (the default): as the data
        show, where they show enough of it.

    Examples
    --------
    >>> Costs(false_alarm=20).lost_run
    60.0
    """

    false_alarm: float = 5.0
    undetected_hour: float = 10.0
    lost_run: float = 60.0
    run_hour: float = 3.0
    deaths_per_100_hours: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            check_number(field.name, value, 5)
            object.__setattr__(self, field.name, float(value))

    def of_mistake(self, mistake: str) -> float:
        """What one mistake costs: ``false_alarm``, or ``lost_run`` where the alarm closes runs."""
        return self.lost_run if mistake == "lost_run" else self.false_alarm


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
    check_share("prob", prob, 0.95)
    check_share("confidence", confidence, 0.95)
