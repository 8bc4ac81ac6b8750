"""How often each of several classes comes up where members are drawn again, with replacement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

_FEW = 10.0  # expected successes below which counting the gaps between them is faster


def multinomial(random: Random, sizes: Sequence[int]) -> list[int]:
    """How often each class comes up in as many draws with replacement as there are members.

    Parameters
    ----------
    random : random.Random
        Where chance comes from.
    sizes : sequence of int
        Members of each class, at least 1.

    Returns
    -------
    list of int
        Their sum is that of ``sizes``. The work grows with the classes, not the members.

    Examples
    --------
    >>> sum(multinomial(Random(1), [5, 1000, 20]))
    1025
    """
    n_left = members_left = sum(sizes)
    times = []
    for size in sizes:
        drawn = binomial(random, n_left, size / members_left)
        times.append(drawn)
        n_left -= drawn
        members_left -= size
    return times


def binomial(random: Random, n: int, p: float) -> int:
    """How many of ``n`` trials succeed, each with probability ``p``, exactly.

    References
    ----------
    .. [1] Hormann, W. (1993). The generation of binomial random variates. J. Statist.
       Comput. Simul. 46, 101-110 (BTRS).
    .. [2] Devroye, L. (1986). Non-uniform random variate generation, section X.4.3.

    Examples
    --------
    >>> binomial(Random(1), 10, 0.0), binomial(Random(1), 10, 1.0)
    (0, 10)
    """
    if p <= 0 or n == 0:
        return 0
    if p > 0.5:
        return n - binomial(random, n, 1 - p)
    return _by_gaps(random, n, p) if n * p < _FEW else _by_rejection(random, n, p)


def _by_gaps(random: Random, n: int, p: float) -> int:
    """Trials up to each next success are geometric."""
    successes, trial, scale = 0, 0, math.log1p(-p)
    while True:
        trial += int(math.log(1 - random.random()) / scale) + 1
        if trial > n:
            return successes
        successes += 1


def _by_rejection(random: Random, n: int, p: float) -> int:
    """A transformed uniform pair, accepted by the ratio of the probabilities."""
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    log_odds, mode = math.log(p / (1 - p)), int((n + 1) * p)
    height = math.lgamma(mode + 1) + math.lgamma(n - mode + 1)
    while True:
        u = random.random() - 0.5
        v = 1 - random.random()
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + n * p + 0.5) if edge else -1
        if not 0 <= k <= n:
            continue
        if edge >= 0.07 and v <= 0.92 - 4.2 / b:
            return k
        log_ratio = height - math.lgamma(k + 1) - math.lgamma(n - k + 1) + (k - mode) * log_odds
        if math.log(v * alpha / (a / edge**2 + b)) <= log_ratio:
            return k
