"""Short weekly series: their newest level, and a sequential test of the current week.

Counts and shares are transformed to the scale where chance has the same variance at every
level, so that one Gaussian method serves both; what weeks vary beyond that is estimated
from them. The sequential test may be read at any moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from stateanalytics.stats.distributions import gamma_cdf, solve

# Anscombe's 3/8: with it the variance stays the same down to a few events.
_CONTINUITY = 0.375


@dataclass(frozen=True)
class Point:
    """One week of a series, on the scale where its variance is known up to a factor.

    Attributes
    ----------
    value : float
        The transformed number of the week.
    weight : float
        Inverse of its variance, up to the factor by which weeks vary more than chance.
    """

    value: float
    weight: float


def count_point(n: float, exposure: float) -> Point:
    """A count on the scale of 2 sqrt(rate), where its variance is 1 / exposure [1]_.

    References
    ----------
    .. [1] Anscombe, F. J. (1948). The transformation of Poisson, binomial and
       negative-binomial data. Biometrika 35, 246-254.

    Examples
    --------
    >>> point = count_point(9, 100.0)
    >>> round(count_back(point.value, 100.0), 6)
    9.0
    """
    return Point(2 * math.sqrt((n + _CONTINUITY) / exposure), exposure)


def count_back(value: float, exposure: float) -> float:
    """The count that a transformed value stands for."""
    return max(0.0, exposure * (max(value, 0.0) / 2) ** 2 - _CONTINUITY)


def share_point(n: float, n_of: float) -> Point:
    """A share on the scale of 2 arcsin(sqrt(share)), where its variance is 1 / n.

    Examples
    --------
    >>> point = share_point(30, 40)
    >>> round(share_back(point.value, 40), 6)
    0.75
    """
    share = (n + _CONTINUITY) / (n_of + 2 * _CONTINUITY)
    return Point(2 * math.asin(math.sqrt(share)), n_of + 0.5)


def share_back(value: float, n_of: float) -> float:
    """The share that a transformed value stands for."""
    share = math.sin(min(max(value, 0.0), math.pi) / 2) ** 2
    return min(1.0, max(0.0, (share * (n_of + 2 * _CONTINUITY) - _CONTINUITY) / n_of))


def duration_point(value_s: float, n: float) -> Point:
    """A typical duration: its logarithm, whose variance falls with the number of ends."""
    return Point(math.log(value_s), n)


def duration_back(value: float) -> float:
    """The duration that a transformed value stands for."""
    return math.exp(value)


MOST_NEW = 8
"""Most newest weeks that are compared with all weeks before them: an older level is usual."""
BEFORE_PER_WEEK = 1.5
"""Weeks that must come before a level, for each week in it."""
SPREADS: Mapping[float, float] = {0.0: 8.0} | {
    spread: 1 / (1 + spread) for spread in (2.0**power for power in range(-1, 12))
}
"""How far weeks may vary beyond chance, in standard deviations of chance, and how likely that is
before any is seen: in four of five stores not at all."""
PERSISTENCE = 0.8
"""Autocorrelation, from week to week, of what weeks vary beyond chance."""
WORSE_SHARE = 0.9
"""The share of false alarms that may be about the worse: nobody waits for good news."""
CHANGES_PER_ALARM = 2
"""How often those that vary beyond chance are called changed, in levels of the test."""
_FEWEST_BEFORE = 4


@dataclass(frozen=True)
class Newest:
    """What the newest weeks of a series show against the weeks before them.

    Attributes
    ----------
    start : int or None
        Position of the first week of a new level; None: nothing changed.
    before, low, high : float
        The level before, and the limits that a newest week must leave to be a change alone.
    level, level_low, level_high : float
        The level since, and its 95 % interval.
    p_value : float
        Probability of so clear a change where there is none; at most ``alpha`` where there is one.
    """

    start: int | None
    before: float
    low: float
    high: float
    level: float
    level_low: float
    level_high: float
    p_value: float


def newest_change(
    points: Sequence[Point], *, alpha: float = 0.05, worse: int = 1, most_new: int = MOST_NEW
) -> Newest | None:
    """Whether the newest weeks have another level than those before; None: too few weeks.

    Parameters
    ----------
    points : sequence of Point
        In the order of time; ``1 / weight`` is their variance by chance.
    alpha : float
        Probability of a change where there is none.
    worse : int
        1 where more is worse, -1 where less is: that side has most of ``alpha``.
    most_new : int
        So many of the newest weeks may be another level.

    Notes
    -----
    The means of the newest 1 to ``most_new`` weeks and of all before, which are more
    (`BEFORE_PER_WEEK`), are compared; the level begins where such a difference is least likely.
    That of n weeks needs a p-value n times as small, because longer levels arise more often from
    weeks that persist. How much weeks vary beyond chance is not known: the probability is the
    mean over all `SPREADS`, each as likely as the variance within both parts makes it. What is
    beyond chance goes on in the weeks after (`PERSISTENCE`), so that a mean of several weeks is
    less sure than independent weeks were. A level is over, and no change, where the newest week is
    nearer to the one before. A week outside its limits is a change.

    Examples
    --------
    >>> weeks = [count_point(n, 1.0) for n in (9, 11, 8, 12, 10, 9, 11, 24, 27)]
    >>> newest_change(weeks).start
    7
    """
    n = len(points)
    fewest = max(
        _FEWEST_BEFORE, n - most_new, math.ceil(n * BEFORE_PER_WEEK / (1 + BEFORE_PER_WEEK))
    )
    cuts = range(n - 1, fewest - 1, -1)
    if not cuts:
        return None
    newest = points[-1].value
    tails = {}
    for cut in cuts:
        before, level = _mean(points[:cut]), _mean(points[cut:])
        if abs(newest - level) <= abs(newest - before):
            is_worse = (level > before) == (worse > 0)
            deviations = _deviations(points, cut, points[:cut], points[cut:])
            tails[cut] = _tail(abs(level - before), deviations) / _share_of(is_worse=is_worse)
    p_values = {cut: tail * (n - cut) for cut, tail in tails.items()}
    p_value = min(1.0, *p_values.values())
    clear = [cut for cut in tails if p_values[cut] <= alpha]
    cut = min(clear, key=lambda cut: tails[cut], default=n - 1)
    before, level = _mean(points[:cut]), _mean(points[cut:])
    alone = _deviations(points, cut, points[:cut], points[-1:])
    low, high = (
        _quantile(_share_of(is_worse=is_worse) * alpha, alone)
        for is_worse in (worse < 0, worse > 0)
    )
    half = _quantile(0.025, _deviations(points, cut, points[cut:]))
    return Newest(
        cut if clear else None,
        *(before, before - low, before + high),
        *(level, level - half, level + half),
        p_value,
    )


def _share_of(*, is_worse: bool) -> float:
    return WORSE_SHARE if is_worse else 1 - WORSE_SHARE


def _mean(points: Sequence[Point]) -> float:
    # Relative to the first point: the mean of equal values is then that value to the last bit.
    first = points[0].value
    offset = sum(point.weight * (point.value - first) for point in points)
    return first + offset / _weight(points)


def _weight(points: Sequence[Point]) -> float:
    return sum(point.weight for point in points)


def _squares(points: Sequence[Point]) -> float:
    mean = _mean(points)
    return sum(point.weight * (point.value - mean) ** 2 for point in points)


def _deviations(
    points: Sequence[Point], cut: int, *parts: Sequence[Point]
) -> list[tuple[float, float]]:
    """The probability of each of `SPREADS`, and the deviation of the means of parts under it."""
    n, squares = len(points), _squares(points[:cut]) + _squares(points[cut:])
    # Weeks that persist differ less among each other than from those of another year.
    within = (1 - _inflation(n) / n) / (1 - 1 / n)
    found = []
    for spread, prior in SPREADS.items():
        seen = 1 + spread**2 * within
        log_chance = math.log(prior) - (squares / seen + (n - 2) * math.log(seen)) / 2
        variance = sum((1 + spread**2 * _inflation(len(part))) / _weight(part) for part in parts)
        found.append((log_chance, math.sqrt(variance)))
    most = max(found)[0]
    total = sum(math.exp(log_chance - most) for log_chance, _ in found)
    return [(math.exp(log_chance - most) / total, deviation) for log_chance, deviation in found]


def _tail(difference: float, deviations: list[tuple[float, float]]) -> float:
    """The probability that means differ by more, in this direction, by chance."""
    return sum(
        chance * math.erfc(difference / deviation / math.sqrt(2)) / 2
        for chance, deviation in deviations
    )


def _quantile(tail: float, deviations: list[tuple[float, float]]) -> float:
    """The difference that has this `_tail`."""
    most = max(-NormalDist().inv_cdf(tail), 0.0) * max(deviation for _, deviation in deviations)
    return solve(lambda difference: tail - _tail(difference, deviations), 0.0, most)


@cache
def _inflation(n: int) -> float:
    """The variance of the mean of weeks that persist, over that of as many independent ones."""
    return 1 + 2 * sum((1 - lag / n) * PERSISTENCE**lag for lag in range(1, n))


RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Alternatives of the sequential test, in multiples of the usual rate, equally weighted."""
CAUTION = 0.6
"""Confidence of the upper bound that is taken for the variance between weeks."""
_MOST_LOG = 700.0
"""Upper limit of the logarithm of the evidence: beyond it no float can hold the number."""


@dataclass(frozen=True)
class UsualRate:
    """The usual weekly rate: a gamma distribution, estimated from earlier weeks.

    Attributes
    ----------
    shape : float
        Large where weeks are similar and many.
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
    """Estimate the usual rate and its variation from earlier weeks.

    Parameters
    ----------
    counts, exposures : sequence of float
        Events of each week and their denominator, such as runs that ended; at least two
        weeks, every exposure above 0.

    Notes
    -----
    Method of moments: the variance between weeks is the variance of rates beyond Poisson's.
    Its upper bound at confidence `CAUTION` is taken, because a few weeks that are similar by
    luck would make alarms too easy. The uncertainty of the mean itself is added.

    Examples
    --------
    >>> round(usual_rate([10, 12, 8, 9, 11, 10, 9, 11], [100.0] * 8).mean, 3)
    0.101
    """
    # Half an event more, so that weeks without any event still have a rate.
    n_events, exposure = sum(counts) + 0.5, sum(exposures)
    mean, degrees = n_events / exposure, len(counts) - 1
    squares = sum(
        weight * (count / weight - mean) ** 2
        for count, weight in zip(counts, exposures, strict=True)
    )
    # Lower quantile of chi-square: the squares could have been so small by luck.
    quantile = 2 * solve(lambda x: gamma_cdf(x, degrees / 2) - (1 - CAUTION), 1e-9, 4.0 * degrees)
    square_exposure = sum(weight * weight for weight in exposures)
    between_weeks = max(0.0, squares * degrees / quantile - degrees * mean) / (
        exposure - square_exposure / exposure
    )
    variance = between_weeks + mean / exposure + between_weeks * square_exposure / exposure**2
    return UsualRate(mean * mean / variance, mean / variance)


def evidence_of_more(n: float, exposure: float, usual: UsualRate) -> float:
    """E-value for a rate above the usual one: how much likelier the counts are at a higher rate.

    Parameters
    ----------
    n, exposure : float
        Events so far and their denominator so far.
    usual : UsualRate
        The usual rate, from the weeks before.

    Returns
    -------
    float
        In a usual week it ever reaches 20 with a probability of at most 1/20, however often it is
        checked and whenever checking stops (Ville's inequality).

    Notes
    -----
    The week's own rate is unknown and integrated out, so counts are negative binomial, at the
    usual rate and at each of `RATIOS` times it. The mean of the likelihood ratios is a
    martingale in usual weeks: a mixture sequential probability ratio test [1]_.

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
