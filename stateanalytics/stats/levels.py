"""A short series of weeks: at which levels it ran, since when, and what chance allows each week.

Counts and shares are looked at on the scale where chance has the same variance at every
level, so that one Gaussian method serves both; what weeks vary beyond that is learned from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stateanalytics.stats.distributions import student_quantile, student_tail

SHORTEST = 2
"""A level lasts at least so many weeks: one alone is an outlier, which its limits tell."""
_LITTLE = 0.375  # Anscombe: with it the variance stays the same down to a few events.


@dataclass(frozen=True)
class Point:
    """One week of a series, on the scale where its variance is known up to a factor.

    Attributes
    ----------
    value : float
        What was seen.
    weight : float
        One by its variance, but for the factor by which weeks vary more.
    """

    value: float
    weight: float


@dataclass(frozen=True)
class Limits:
    """What the other weeks of the same level let expect of one.

    Attributes
    ----------
    expected, low, high : float
        Their level, and what a week like them lies between.
    p_value : float
        How often chance would take one further away; two-sided.
    """

    expected: float
    low: float
    high: float
    p_value: float


def count_point(n: float, exposure: float) -> Point:
    """A count: twice the square root of its rate, whose variance is one by the exposure [1]_.

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
    return Point(2 * math.sqrt((n + _LITTLE) / exposure), exposure)


def count_back(value: float, exposure: float) -> float:
    """The count that a value on that scale stands for."""
    return max(0.0, exposure * (max(value, 0.0) / 2) ** 2 - _LITTLE)


def share_point(n: float, n_of: float) -> Point:
    """A share: twice the angle whose sine is its square root.

    Examples
    --------
    >>> point = share_point(30, 40)
    >>> round(share_back(point.value, 40), 6)
    0.75
    """
    share = (n + _LITTLE) / (n_of + 2 * _LITTLE)
    return Point(2 * math.asin(math.sqrt(share)), n_of + 0.5)


def share_back(value: float, n_of: float) -> float:
    """The share that a value on that scale stands for."""
    share = math.sin(min(max(value, 0.0), math.pi) / 2) ** 2
    return min(1.0, max(0.0, (share * (n_of + 2 * _LITTLE) - _LITTLE) / n_of))


def duration_point(value_s: float, n: float) -> Point:
    """A typical duration: its logarithm, whose variance falls with the number of ends."""
    return Point(math.log(value_s), n)


def duration_back(value: float) -> float:
    """The duration that a value on that scale stands for."""
    return math.exp(value)


def change_points(
    points: Sequence[Point], *, alpha: float = 0.05, least_variance: float = 1.0
) -> list[int]:
    """Where a level ends and another begins: the places of the first weeks of new levels.

    Parameters
    ----------
    points : sequence of Point
        In the order of time.
    alpha : float
        How often a series without any change may be said to have one.
    least_variance : float
        The factor of chance alone: 1 for counts and shares, 0 where it is not known.

    Notes
    -----
    Binary segmentation [1]_: of all places to cut a stretch, that with the largest t of the
    two levels, whose variance is learned from the weeks beside it; the penalty is
    Bonferroni's over the places. Every further cut needs the first, so that a series without
    change is cut in at most ``alpha`` of cases. Weeks must be independent given their level:
    a slow drift is told as steps.

    References
    ----------
    .. [1] Scott, A. J. and Knott, M. (1974). A cluster analysis method for grouping means in
       the analysis of variance. Biometrics 30, 507-512.

    Examples
    --------
    >>> change_points([count_point(n, 1.0) for n in (9, 11, 8, 12, 10, 31, 28, 33, 30)])
    [5]
    """
    n = len(points)
    places = range(SHORTEST, n - SHORTEST + 1)
    if n < 2 * SHORTEST + 1:
        return []
    statistics = {place: _step(points, place, least_variance) for place in places}
    place = max(statistics, key=lambda place: statistics[place])
    if student_tail(statistics[place], n - 2) * len(places) > alpha:
        return []
    before, after = (
        change_points(part, alpha=alpha, least_variance=least_variance)
        for part in (points[:place], points[place:])
    )
    return [*before, place, *(place + further for further in after)]


def limits(
    points: Sequence[Point],
    starts: Sequence[int] = (),
    *,
    conf_level: float = 0.95,
    least_variance: float = 1.0,
) -> list[Limits | None]:
    """What chance allows each week, by the other weeks of its level.

    Parameters
    ----------
    points : sequence of Point
        In the order of time.
    starts : sequence of int
        What `change_points` gave.
    conf_level : float
        Of the limits.
    least_variance : float
        As for `change_points`.

    Returns
    -------
    list of Limits or None
        None where a level has no other week, or weeks that do not vary at all.

    Notes
    -----
    A Student's t interval for one more observation; the variance is common to all levels and
    known from all weeks but the one that is looked at, so that an outlier does not widen the
    limits that it is held against. It is never below that of chance.

    Examples
    --------
    >>> weeks = [count_point(n, 1.0) for n in (9, 11, 8, 12, 10, 9, 11, 40)]
    >>> [found.p_value < 0.05 for found in limits(weeks)][-2:]
    [False, True]
    """
    ends = [0, *starts, len(points)]
    levels = [points[since:until] for since, until in pairwise(ends)]
    squares = [_squares(level) for level in levels]
    degrees = len(points) - len(levels) - 1
    reach = student_quantile(conf_level, degrees) if degrees > 0 else math.inf
    found: list[Limits | None] = []
    for level, own in zip(levels, squares, strict=True):
        for place, point in enumerate(level):
            others = [*level[:place], *level[place + 1 :]]
            if not others or degrees < 1:
                found.append(None)
                continue
            rest = sum(squares) - own + _squares(others)
            variance = max(least_variance, rest / degrees)
            found.append(_one_more(point, others, variance, degrees, reach))
    return found


def means(points: Sequence[Point], starts: Sequence[int] = ()) -> list[float]:
    """The mean of each level.

    Examples
    --------
    >>> means([Point(1.0, 1.0), Point(4.0, 2.0), Point(7.0, 1.0)], [2])
    [3.0, 7.0]
    """
    ends = [0, *starts, len(points)]
    return [_mean(points[since:until]) for since, until in pairwise(ends)]


def _one_more(
    point: Point, others: Sequence[Point], variance: float, degrees: int, reach: float
) -> Limits | None:
    weight = sum(other.weight for other in others)
    spread = math.sqrt(variance * (1 / point.weight + 1 / weight))
    if spread <= 0:
        return None
    expected = _mean(others)
    p_value = student_tail((point.value - expected) / spread, degrees)
    return Limits(expected, expected - reach * spread, expected + reach * spread, p_value)


def _step(points: Sequence[Point], place: int, least_variance: float) -> float:
    """Student's t of two levels."""
    before, after = points[:place], points[place:]
    degrees = len(points) - 2
    variance = max(least_variance, (_squares(before) + _squares(after)) / degrees)
    weights = [sum(point.weight for point in part) for part in (before, after)]
    apart = abs(_mean(after) - _mean(before))
    if variance <= 0:
        return math.inf if apart else 0.0
    return apart / math.sqrt(variance * (1 / weights[0] + 1 / weights[1]))


def _mean(points: Sequence[Point]) -> float:
    # From the first one on, so that of values that are all the same it is that value.
    first = points[0].value
    apart = sum(point.weight * (point.value - first) for point in points)
    return first + apart / sum(point.weight for point in points)


def _squares(points: Sequence[Point]) -> float:
    mean = _mean(points)
    return sum(point.weight * (point.value - mean) ** 2 for point in points)
