"""Shares of many groups, the few-counts ones drawn towards what the groups have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import exp, lgamma, log
from typing import NamedTuple

from stateanalytics.errors import ArgumentError, check_share
from stateanalytics.stats.distributions import beta_cdf, solve

_WEAKEST, _STRONGEST = 0.5, 1e6
_N_ROUNDS, _N_STEPS = 4, 40
_GOLDEN = (5**0.5 - 1) / 2


class Prior(NamedTuple):
    """What groups have in common: their shares are beta-distributed.

    Attributes
    ----------
    share : float
        The mean of it.
    strength : float
        How many observations it weighs.
    """

    share: float
    strength: float

    def after(self, n_hits: int, n: int) -> tuple[float, float]:
        """The two parameters of the beta distribution of a share of which this was observed."""
        a, b = self.share * self.strength, (1 - self.share) * self.strength
        return a + n_hits, b + n - n_hits

    def shrunk(self, n_hits: int, n: int) -> float:
        """The mean of that distribution: the share, drawn towards what is common.

        Examples
        --------
        >>> Prior(0.1, 10).shrunk(2, 2)
        0.25
        """
        a, b = self.after(n_hits, n)
        return a / (a + b)

    def interval(self, n_hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
        """The middle of that distribution, with as much below it as above."""
        check_share("confidence", confidence, 0.95)
        a, b = self.after(n_hits, n)
        tail = (1 - confidence) / 2
        low = solve(lambda share: beta_cdf(share, a, b) - tail, 0, 1)
        return low, solve(lambda share: beta_cdf(share, a, b) - 1 + tail, 0, 1)

    def chance_below(self, share: float, n_hits: int, n: int) -> float:
        """How probable it is that the share lies below another one."""
        return beta_cdf(share, *self.after(n_hits, n))


def fit_prior(groups: Iterable[tuple[int, int]]) -> Prior:
    """What the shares of groups have in common, from their counts: empirical Bayes.

    Parameters
    ----------
    groups : iterable of (int, int)
        Hits and how many there were, of each group; 0 <= hits <= n.

    Returns
    -------
    Prior
        The weaker, the more the groups differ beyond chance.

    Raises
    ------
    ArgumentError
        If a count makes no sense.

    Notes
    -----
    Hits are beta-binomial [1]_. The strength maximises their likelihood times its power of
    minus one half, which is flat in how much groups vary and so keeps groups that differ by
    chance alone from becoming one; the share is the mean with the weights of [2]_. The
    parameters are then taken as known: where there are few groups, intervals are somewhat
    too narrow.

    References
    ----------
    .. [1] Skellam, J. G. (1948). A probability distribution derived from the binomial
       distribution. JRSS B 10, 257-261.
    .. [2] Kleinman, J. C. (1973). Proportions with extraneous variance: single and
       independent samples. JASA 68, 46-54.

    Examples
    --------
    >>> alike = fit_prior([(1, 10)] * 40)
    >>> unlike = fit_prior([(0, 10), (9, 10)] * 20)
    >>> round(alike.share, 2), alike.strength > 100, unlike.strength < 2
    (0.1, True, True)
    """
    # In order, so that sums are the same to the last bit however the groups come.
    counts = Counter(sorted((n_hits, n) for n_hits, n in groups if n))
    if wrong := [pair for pair in counts if not 0 <= pair[0] <= pair[1]]:
        raise ArgumentError(
            f"fit_prior needs 0 <= n_hits <= n; found {wrong[0]}.", "[(1, 10), (0, 4)]"
        )
    strength = 1.0
    share = _mean(counts, strength)
    for _ in range(_N_ROUNDS):
        strength = _strength(counts, share)
        share = _mean(counts, strength)
    return Prior(share, strength)


def _mean(counts: Counter[tuple[int, int]], strength: float) -> float:
    """The mean share; of a group counts what it knows of more than itself. Never 0 or 1."""
    hits = total = 0.0
    for (n_hits, n), times in counts.items():
        weight = times * (strength + 1) / (strength + n)
        hits += weight * n_hits
        total += weight * n
    return (hits + 0.5) / (total + 1)


def _strength(counts: Counter[tuple[int, int]], share: float) -> float:
    """The likeliest one, looked for by golden sections of its logarithm."""
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
    """What is known of the share of a small group beside others like it, as a beta distribution.

    Parameters
    ----------
    own : (int, int)
        Hits and how many there were, of the group in question.
    others : sequence of (int, int)
        The same of groups like it; with few of them little is borrowed.

    Returns
    -------
    tuple of float
        The two parameters of the distribution of its share.

    Notes
    -----
    As `fit_prior`, but what groups have in common is not taken as known: its mean and
    strength are weighed by how likely they make all groups [1]_, over a grid, with
    Jeffreys' prior of the mean and one that is flat in how much groups vary. What comes out
    is drawn together into the beta distribution with the same mean and variance.

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
    known = [
        (_log_likelihood(counts, prior.share, prior.strength) + weight, *prior.after(*own))
        for prior, weight in _PRIORS
    ]
    most = max(likelihood for likelihood, _, _ in known)
    total = mean = square = 0.0
    for likelihood, a, b in known:
        weight, sum_ = exp(likelihood - most), a + b
        total += weight
        mean += weight * a / sum_
        square += weight * a * (a + 1) / (sum_ * (sum_ + 1))
    mean, square = mean / total, square / total
    strength = (mean - square) / (square - mean * mean)
    return mean * strength, (1 - mean) * strength


def _grid() -> Iterator[tuple[Prior, float]]:
    """Means on a scale of their odds, strengths on that of their logarithm, both with weights."""
    for odds in (0.5 * step for step in range(-15, 16)):
        share = 1 / (1 + exp(-odds))
        for strength in (0.5 * 3.0**step for step in range(10)):
            yield Prior(share, strength), (log(share) + log(1 - share)) / 2


_PRIORS = tuple(_grid())
