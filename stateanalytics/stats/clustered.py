"""Shares of what comes in groups: the interval of as many independent ones as they are worth."""

from __future__ import annotations

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
    """

    n_hits: int
    n: int
    n_units: int
    n_effective: float

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float] | None:
        """Wilson's interval of as many as are effective; None where there is nothing to share."""
        return wilson(self._hits, self.n_effective, confidence=confidence)

    def minus(self, before: ClusteredShare, *, confidence: float = 0.95) -> tuple[float, ...]:
        """The difference of two shares, and its interval: Newcombe's, of effective numbers."""
        return newcombe(
            self._hits, self.n_effective, before._hits, before.n_effective, confidence=confidence
        )

    @property
    def _hits(self) -> float:
        return self.n_effective * self.n_hits / self.n if self.n else 0.0


def clustered_share(
    hits: pl.Series, units: pl.Series, *, confidence: float = 0.95
) -> ClusteredShare:
    """Count hits, and how many independent ones they are worth by how alike their units are.

    Parameters
    ----------
    hits : polars.Series of Boolean
        Which have the property; null counts as not.
    units : polars.Series
        The unit that each belongs to: those of one are alike, those of two independent.
    confidence : float
        Of the intervals that will be asked for: with few units the size of the effect is
        itself not sure, as with Student's.

    Returns
    -------
    ClusteredShare

    Notes
    -----
    The design effect is the variance of the ratio estimate between units [1]_, each residual
    raised for the weight of its own unit (CR2 [2]_), over that of independent ones; between
    1 and what it is where all of one unit are the same. The effective number is divided by the
    squared ratio of Student's to the normal quantile [3]_, with degrees of freedom of the
    units that count for the variance, as far as it is due to them. Units of one each
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
        .agg(x=pl.col("hit").sum().cast(pl.Float64), m=pl.len().cast(pl.Float64))
    )
    n, n_hits = units.len(), int(hits.sum())
    if n == 0:
        return ClusteredShare(0, 0, 0, 0.0)
    share, m = n_hits / n, pl.col("m")
    rest = (pl.col("x") - m * share) ** 2 / (1 - m / n)
    seen, squares, fourths = of_units.select(
        seen=pl.when(m < n).then(rest).sum(), squares=(m**2).sum(), fourths=(m**4).sum()
    ).row(0)
    n_if_alike = n * n / squares
    counted = ClusteredShare(n_hits, n, of_units.height, n_if_alike)
    rarer = min(share, 1 - share) * n_if_alike
    if n_if_alike > n - 0.5 or not rarer or of_units.height == 1:
        return counted
    largest = n / n_if_alike
    effect = min(max(seen / (n * share * (1 - share)), 1.0), largest)
    due = 1 - 1 / effect
    effect = (effect * rarer + _ALIKE * due * largest) / (rarer + _ALIKE * due)
    due = 1 - 1 / effect
    degrees = 1 / (due**2 / max(squares**2 / fourths - 1, 1.0) + (1 - due) ** 2 / n)
    wider = student_quantile(confidence, degrees) / NormalDist().inv_cdf((1 + confidence) / 2)
    return counted._replace(n_effective=min(n, max(n_if_alike, n / effect / wider**2)))
