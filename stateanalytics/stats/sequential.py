"""A rate that is looked at again and again: evidence that may be read at any moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stateanalytics.stats.distributions import gamma_cdf, solve

RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""So many times the usual rate is looked out for, each with the same weight."""
CAUTION = 0.6
"""How sure the bound is that the spread between weeks is taken at."""
_MOST_LOG = 700.0
"""Evidence stops growing there: beyond it no float holds it, and nobody needs more."""


@dataclass(frozen=True)
class UsualRate:
    """What a week's rate usually is: a gamma distribution, learned from earlier weeks.

    Attributes
    ----------
    shape : float
        Large where weeks are alike and many.
    exposure : float
        ``shape / exposure`` is the mean rate.
    """

    shape: float
    exposure: float

    @property
    def mean(self) -> float:
        """Events per unit of exposure in a usual week."""
        return self.shape / self.exposure


def usual_rate(counts: Sequence[float], exposures: Sequence[float]) -> UsualRate:
    """Learn from earlier weeks what rates are usual, and by how much they vary.

    Parameters
    ----------
    counts, exposures : sequence of float
        Events of each week and what they are held against, such as runs that ended; at
        least two weeks, every exposure above 0.

    Notes
    -----
    Moments: the variance between weeks is what the spread of rates has beyond Poisson's,
    taken at its upper bound, `CAUTION` sure, because a few weeks that are alike by luck would
    make alarms cheap. How little they say of the mean is added.

    Examples
    --------
    >>> round(usual_rate([10, 12, 8, 9, 11, 10, 9, 11], [100.0] * 8).mean, 3)
    0.101
    """
    events, exposure = sum(counts) + 0.5, sum(exposures)
    mean, degrees = events / exposure, len(counts) - 1
    spread = sum(
        each * (count / each - mean) ** 2 for count, each in zip(counts, exposures, strict=True)
    )
    # Chi square's lower quantile: the spread could have been so small by luck.
    lucky = 2 * solve(lambda x: gamma_cdf(x, degrees / 2) - (1 - CAUTION), 1e-9, 4.0 * degrees)
    squares = sum(each * each for each in exposures)
    beyond = max(0.0, spread * degrees / lucky - degrees * mean) / (exposure - squares / exposure)
    variance = beyond + mean / exposure + beyond * squares / exposure**2
    return UsualRate(mean * mean / variance, mean / variance)


def evidence_of_more(n: float, exposure: float, usual: UsualRate) -> float:
    """How many times as likely what was seen is at a higher rate than at a usual one.

    Parameters
    ----------
    n, exposure : float
        Events so far, and what they are held against so far.
    usual : UsualRate
        Of the weeks before.

    Returns
    -------
    float
        An e-value. In a usual week it ever reaches 20 with a probability of at most 1/20,
        however often it is looked at and whenever one stops (Ville's inequality).

    Notes
    -----
    The week's own rate is unknown; integrated over, the counts are negative binomial, under
    the usual rate as under each of `RATIOS` times it. The mean of the ratios of their
    probabilities, in the order in which events came, is a martingale in usual weeks: a mixture
    sequential probability ratio test [1]_.

    References
    ----------
    .. [1] Robbins, H. (1970). Statistical methods related to the law of the iterated
       logarithm. Annals of Mathematical Statistics 41, 1397-1409.

    Examples
    --------
    >>> usual = UsualRate(shape=40.0, exposure=400.0)
    >>> [round(evidence_of_more(n, 100.0, usual), 1) for n in (10, 20, 30)]
    [0.1, 7.1, 3346.4]
    """
    ratios = [
        math.exp(
            min(
                (usual.shape + n)
                * math.log((usual.exposure + exposure) / (usual.exposure / ratio + exposure))
                - usual.shape * math.log(ratio),
                _MOST_LOG,
            )
        )
        for ratio in RATIOS
    ]
    return sum(ratios) / len(ratios)
