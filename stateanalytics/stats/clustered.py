"""Shares of what comes in groups: the interval of as many independent ones as they are worth."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import polars as pl

from stateanalytics.stats.distributions import student_quantile
from stateanalytics.stats.intervals import newcombe, wilson

_ALIKE = 0.25
"""So many units of the rarer answer are taken to be alike throughout, beside those seen.

What few of them show of how alike units are is too little more often than too much.
"""


class ClusteredShare(NamedTuple):
    """A share, and how sure it is.

    Attributes
    ----------
    n_hits, n : int
        How many of how many.
    n_units : int
        The independent units that they come from.
    n_effective : float
        How many independent ones would say as much; at most ``n``.
    n_if_alike : float
        As many they would be if all of one unit were the same; never fewer.
    degrees : float
        Of freedom, that ``n_effective`` is known with.
    """

    n_hits: int
    n: int
    n_units: int
    n_effective: float
    n_if_alike: float
    degrees: float

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float] | None:
        """Wilson's interval of as many as are effective; None where there is nothing to share."""
        return wilson(*self.effective(confidence=confidence), confidence=confidence)

    def minus(self, before: ClusteredShare, *, confidence: float = 0.95) -> tuple[float, ...]:
        """The difference of two shares, and its interval: Newcombe's, of effective numbers."""
        sides = [side.effective(confidence=confidence) for side in (self, before)]
        return newcombe(*sides[0], *sides[1], confidence=confidence)

    def effective(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """How many of how many independent ones an interval of this level may rest on."""
        if not self.n:
            return 0.0, 0.0
        normal = NormalDist().inv_cdf((1 + confidence) / 2)
        wider = (student_quantile(confidence, self.degrees) / normal) ** 2
        n = min(float(self.n), max(self.n_if_alike, self.n_effective / wider))
        return min(n, n * self.n_hits / self.n), n


def clustered_share(hits: pl.Series, units: pl.Series) -> ClusteredShare:
    """Count hits, and how many independent ones they are worth by how alike their units are.

    Parameters
    ----------
    hits : polars.Series of Boolean
        Which have the property; null counts as not.
    units : polars.Series
        The unit that each belongs to: those of one are alike, those of two independent.

    Returns
    -------
    ClusteredShare

    Notes
    -----
    The design effect is the variance of the ratio estimate between units [1]_, each residual
    raised for the weight of its own unit (CR2 [2]_), over that of independent ones; between
    1 and what it is where all of one unit are the same. An interval divides the effective number
    by the squared ratio of Student's to the normal quantile [3]_, with degrees of freedom of
    the units that count for the variance, as far as it is due to them. Units of one each
    give Wilson's interval itself; one unit alone counts as one.

    References
    ----------
    .. [1] Kish, L. (1965). Survey Sampling, chapter 5. Wiley.
    .. [2] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for
       linear regression with multi-stage samples. Survey Methodology 28, 169-181.
    .. [3] Korn, E. L. and Graubard, B. I. (1998). Confidence intervals for proportions with
       small expected number of positive counts. Survey Methodology 24, 193-201.

    Examples
    --------
    >>> hits, units = [True, True, False, False] * 3, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    >>> alike = clustered_share(pl.Series(hits), pl.Series(units))
    >>> alike.n_units, round(alike.n_effective, 1)
    (6, 6.0)
    >>> [round(end, 2) for end in alike.interval()]
    [0.19, 0.81]
    """
    of_units = (
        pl.DataFrame({"unit": units, "hit": hits})
        .group_by("unit")
        .agg(x=pl.col("hit").sum(), m=pl.len())
    )
    return share_of_units(of_units.group_by("x", "m").agg(times=pl.len()))


def share_of_units(alike: pl.DataFrame) -> ClusteredShare:
    """What `clustered_share` gives, from how many units have ``x`` hits among ``m`` rows.

    Parameters
    ----------
    alike : polars.DataFrame
        ``x``, ``m`` and ``times``, the units that are so; sums of several stores add up.

    Examples
    --------
    >>> share_of_units(pl.DataFrame({"x": [2, 0], "m": [2, 2], "times": [3, 3]})).n_effective
    6.0
    """
    # Floats add up to the same only in the same order, whatever order the rows were in.
    of_units = alike.select(pl.col("x", "m", "times").cast(pl.Float64)).sort("x", "m")
    x, m, times = pl.col("x"), pl.col("m"), pl.col("times")
    sums = of_units.select((m * times).sum(), (x * times).sum(), times.sum().alias("units")).row(0)
    n, n_hits, n_units = (int(total) for total in sums)
    if n == 0:
        return ClusteredShare(0, 0, 0, 0.0, 0.0, math.inf)
    share = n_hits / n
    rest = (x - m * share) ** 2 / (1 - m / n)
    seen, squares, fourths = of_units.select(
        seen=(pl.when(m < n).then(rest) * times).sum(),
        squares=(m**2 * times).sum(),
        fourths=(m**4 * times).sum(),
    ).row(0)
    n_if_alike = n * n / squares
    counted = ClusteredShare(n_hits, n, n_units, n_if_alike, n_if_alike, math.inf)
    rarer = min(share, 1 - share) * n_if_alike
    if n_if_alike > n - 0.5 or not rarer or n_units == 1:
        return counted
    largest = n / n_if_alike
    effect = min(max(seen / (n * share * (1 - share)), 1.0), largest)
    due = 1 - 1 / effect
    effect = (effect * rarer + _ALIKE * due * largest) / (rarer + _ALIKE * due)
    due = 1 - 1 / effect
    degrees = 1 / (due**2 / max(squares**2 / fourths - 1, 1.0) + (1 - due) ** 2 / n)
    return counted._replace(n_effective=n / effect, degrees=degrees)
