"""Shares of groups: of clustered observations, and shrunk towards what groups have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import exp, lgamma, log
from typing import NamedTuple

import polars as pl

from stateanalytics.stats.distributions import beta_cdf, solve, student_quantile
from stateanalytics.stats.intervals import newcombe, two_sided_z, wilson

_PRIOR_UNITS = 0.25
"""Weight, in units of the rarer answer, of a prior of fully similar units.

Few such units understate the design effect more often than they overstate it.
"""


class ClusteredShare(NamedTuple):
    """A share, and its effective sample size.

    Attributes
    ----------
    n_hits, n : int
        How many of how many.
    n_units : int
        The independent units that they come from.
    n_effective : float
        Number of independent observations with the same variance; at most ``n``.
    n_if_alike : float
        The effective size if all observations of a unit were equal: a lower bound.
    degrees : float
        Degrees of freedom of ``n_effective``.
    """

    n_hits: int
    n: int
    n_units: int
    n_effective: float
    n_if_alike: float
    degrees: float

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float] | None:
        """Wilson's interval at the effective sample size; None where ``n`` is 0."""
        return wilson(*self.effective(confidence=confidence), confidence=confidence)

    def minus(self, before: ClusteredShare, *, confidence: float = 0.95) -> tuple[float, ...]:
        """The difference of two shares, with Newcombe's interval at effective sample sizes."""
        sides = [side.effective(confidence=confidence) for side in (self, before)]
        return newcombe(*sides[0], *sides[1], confidence=confidence)

    def effective(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Hits and sample size that an interval of this level may use."""
        if not self.n:
            return 0.0, 0.0
        # Korn and Graubard: Student's quantile in place of the normal one where units are few.
        widening = student_quantile(confidence, self.degrees) / two_sided_z(confidence)
        n = min(float(self.n), max(self.n_if_alike, self.n_effective / widening**2))
        return min(n, n * self.n_hits / self.n), n


def clustered_share(hits: pl.Series, units: pl.Series) -> ClusteredShare:
    """Count hits, and estimate the effective sample size of observations that come in units.

    Parameters
    ----------
    hits : polars.Series of Boolean
        Which have the property; null counts as not.
    units : polars.Series
        The unit of each observation: those of different units are independent.

    Returns
    -------
    ClusteredShare

    Notes
    -----
    The design effect is the variance of the ratio estimate between units [1]_, with each
    residual corrected for the leverage of its own unit (CR2 [2]_), over the variance of
    independent observations; at least 1, at most its value for identical observations. An
    interval divides the effective size by the squared ratio of Student's to the normal
    quantile [3]_, with Satterthwaite's degrees of freedom of the units, as far as the variance
    is due to them. Units of one observation each give Wilson's interval itself; a single unit
    counts as one observation.

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
    >>> share = clustered_share(pl.Series(hits), pl.Series(units))
    >>> share.n_units, round(share.n_effective, 1)
    (6, 6.0)
    >>> [round(end, 2) for end in share.interval()]
    [0.19, 0.81]
    """
    rows = pl.LazyFrame({"unit": units, "hit": hits})
    of_units = rows.group_by("unit").agg(x=pl.col("hit").sum(), m=pl.len())
    return share_of_units(of_units.group_by("x", "m").agg(times=pl.len()).collect())


def share_of_units(units: pl.DataFrame) -> ClusteredShare:
    """The same as `clustered_share`, from the number of units with ``x`` hits among ``m`` rows.

    Parameters
    ----------
    units : polars.DataFrame
        ``x``, ``m`` and ``times``, the number of such units; tables of stores can be added.

    Examples
    --------
    >>> share_of_units(pl.DataFrame({"x": [2, 0], "m": [2, 2], "times": [3, 3]})).n_effective
    6.0
    """
    # Floats add up to the same only in the same order, whatever order the rows were in.
    rows = sorted(tuple(map(float, row)) for row in units[["x", "m", "times"]].iter_rows())
    n, n_hits = (int(sum(row[of] * row[2] for row in rows)) for of in (1, 0))
    n_units = int(sum(times for _, _, times in rows))
    if n == 0:
        return ClusteredShare(0, 0, 0, 0.0, 0.0, math.inf)
    share = n_hits / n
    between_units = sum((x - m * share) ** 2 / (1 - m / n) * times for x, m, times in rows if m < n)
    squares, fourths = (sum(m**power * times for _, m, times in rows) for power in (2, 4))
    n_if_alike = n * n / squares
    as_identical = ClusteredShare(n_hits, n, n_units, n_if_alike, n_if_alike, math.inf)
    rarer = min(share, 1 - share) * n_if_alike
    # Units of one observation each, a share of 0 or 1, or a single unit: nothing to estimate.
    if n_if_alike > n - 0.5 or not rarer or n_units == 1:
        return as_identical
    largest = n / n_if_alike
    effect = min(max(between_units / (n * share * (1 - share)), 1.0), largest)
    prior = _PRIOR_UNITS * (1 - 1 / effect)
    effect = (effect * rarer + prior * largest) / (rarer + prior)
    # Share of the variance that is due to units; only that part has few degrees of freedom.
    due = 1 - 1 / effect
    degrees = 1 / (due**2 / max(squares**2 / fourths - 1, 1.0) + (1 - due) ** 2 / n)
    return as_identical._replace(n_effective=n / effect, degrees=degrees)


_WEAKEST, _STRONGEST = 0.5, 1e6
_N_ROUNDS, _N_STEPS = 4, 40
_GOLDEN = (5**0.5 - 1) / 2


class Prior(NamedTuple):
    """The distribution of shares over groups: a beta distribution.

    Attributes
    ----------
    share : float
        Its mean.
    strength : float
        Its weight, in observations.
    """

    share: float
    strength: float

    def after(self, n_hits: int, n: int) -> tuple[float, float]:
        """Parameters of the posterior beta distribution of a share, given its counts."""
        a, b = self.share * self.strength, (1 - self.share) * self.strength
        return a + n_hits, b + n - n_hits

    def shrunk(self, n_hits: int, n: int) -> float:
        """Posterior mean: the share, shrunk towards the mean of all groups.

        Examples
        --------
        >>> Prior(0.1, 10).shrunk(2, 2)
        0.25
        """
        a, b = self.after(n_hits, n)
        return a / (a + b)

    def interval(self, n_hits: int, n: int) -> tuple[float, float]:
        """Equal-tailed interval of 95 % of the posterior distribution."""
        a, b = self.after(n_hits, n)
        low = solve(lambda share: beta_cdf(share, a, b) - 0.025, 0, 1)
        return low, solve(lambda share: beta_cdf(share, a, b) - 0.975, 0, 1)

    def chance_below(self, share: float, n_hits: int, n: int) -> float:
        """Posterior probability that the share lies below a given one."""
        return beta_cdf(share, *self.after(n_hits, n))


def fit_prior(groups: Iterable[tuple[int, int]]) -> Prior:
    """Empirical Bayes: the distribution of shares over groups, estimated from their counts.

    Parameters
    ----------
    groups : iterable of (int, int)
        Hits and observations of each group; 0 <= hits <= n.

    Returns
    -------
    Prior
        Its strength falls as groups differ more than by chance.

    Notes
    -----
    Hits are beta-binomial [1]_. The strength maximises the likelihood times
    strength ** -0.5, a prior that is flat in the standard deviation between groups; it keeps
    groups that differ by chance alone from getting an infinite strength. The mean has the
    weights of [2]_. Both are then taken as known: with few groups, intervals are somewhat too
    narrow.

    References
    ----------
    .. [1] Skellam, J. G. (1948). A probability distribution derived from the binomial
       distribution. JRSS B 10, 257-261.
    .. [2] Kleinman, J. C. (1973). Proportions with extraneous variance: single and
       independent samples. JASA 68, 46-54.

    Examples
    --------
    >>> similar = fit_prior([(1, 10)] * 40)
    >>> different = fit_prior([(0, 10), (9, 10)] * 20)
    >>> round(similar.share, 2), similar.strength > 100, different.strength < 2
    (0.1, True, True)
    """
    # In order, so that sums are the same to the last bit however the groups come.
    counts = Counter(sorted((n_hits, n) for n_hits, n in groups if n))
    strength = 1.0
    share = _mean(counts, strength)
    for _ in range(_N_ROUNDS):
        strength = _strength(counts, share)
        share = _mean(counts, strength)
    return Prior(share, strength)


def _mean(counts: Counter[tuple[int, int]], strength: float) -> float:
    """Mean share, each group weighted by its information about the others. Never 0 or 1."""
    hits = total = 0.0
    for (n_hits, n), times in counts.items():
        weight = times * (strength + 1) / (strength + n)
        hits += weight * n_hits
        total += weight * n
    return (hits + 0.5) / (total + 1)


def _strength(counts: Counter[tuple[int, int]], share: float) -> float:
    """The strength of maximum likelihood, by golden-section search of its logarithm."""
    low, high = log(_WEAKEST), log(_STRONGEST)
    for _ in range(_N_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if _log_likelihood(counts, share, exp(left)) < _log_likelihood(counts, share, exp(right)):
            low = left
        else:
            high = right
    return exp((low + high) / 2)


def _log_likelihood(counts: Counter[tuple[int, int]], share: float, strength: float) -> float:
    a, b = share * strength, (1 - share) * strength
    begin = lgamma(a) + lgamma(b) - lgamma(strength)
    likelihoods = (
        times * (lgamma(a + n_hits) + lgamma(b + n - n_hits) - lgamma(strength + n) - begin)
        for (n_hits, n), times in counts.items()
    )
    return sum(likelihoods) - log(strength) / 2


def borrowed(own: tuple[int, int], others: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Share of a small group, informed by other groups: parameters of a beta distribution.

    Parameters
    ----------
    own : (int, int)
        Hits and observations of the group.
    others : sequence of (int, int)
        Those of comparable groups; with few of them little is borrowed.

    Returns
    -------
    tuple of float
        The two parameters of the posterior distribution of its share.

    Notes
    -----
    As `fit_prior`, but fully Bayesian: mean and strength are integrated out over a grid [1]_,
    with Jeffreys' prior for the mean and one for the strength that is flat in the standard
    deviation between groups. The result is the beta distribution with the same mean and
    variance as the posterior.

    References
    ----------
    .. [1] Gelman, A. et al. (2013). Bayesian data analysis, third edition, section 5.3.

    Examples
    --------
    >>> a, b = borrowed((1, 4), [(2, 100)] * 20)
    >>> round(a / (a + b), 2)
    0.02
    """
    counts = Counter(sorted([own, *others]))
    posteriors = [
        (_log_likelihood(counts, prior.share, prior.strength) + log_prior, *prior.after(*own))
        for prior, log_prior in _PRIORS
    ]
    # Relative to the largest, because likelihoods themselves are too small for a float.
    largest = max(likelihood for likelihood, _, _ in posteriors)
    total = mean = square = 0.0
    for likelihood, a, b in posteriors:
        weight, size = exp(likelihood - largest), a + b
        total += weight
        mean += weight * a / size
        square += weight * a * (a + 1) / (size * (size + 1))
    mean, square = mean / total, square / total
    strength = (mean - square) / (square - mean * mean)
    return mean * strength, (1 - mean) * strength


def _grid() -> Iterator[tuple[Prior, float]]:
    """Priors with the logarithm of their weight: means even in log odds, strengths in logarithm."""
    for odds in (0.5 * step for step in range(-15, 16)):
        share = 1 / (1 + exp(-odds))
        for strength in (0.5 * 3.0**step for step in range(10)):
            yield Prior(share, strength), (log(share) + log(1 - share)) / 2


_PRIORS = tuple(_grid())
