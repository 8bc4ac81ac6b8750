"""Counts with known truth for simulations: Poisson, weeks that differ, bursts, fan-outs."""

import math


def poisson(rng, mean):
    """Knuth's product of uniforms, in parts that do not underflow."""
    if mean > 30:
        return poisson(rng, 30) + poisson(rng, mean - 30)
    n, product, least = 0, rng.random(), math.exp(-mean)
    while product > least:
        n, product = n + 1, product * rng.random()
    return n


def negative_binomial(rng, mean, excess):
    """A Poisson whose rate varies with a squared coefficient of variation of ``excess``."""
    return poisson(rng, rng.gammavariate(1 / excess, mean * excess))


def bursts(rng, mean, size):
    """Geometric bursts of a mean size."""
    return sum(burst(rng, size) for _ in range(poisson(rng, mean / size)))


def burst(rng, size):
    """One geometric burst, at least 1."""
    return 1 + int(math.log(1 - rng.random()) / math.log1p(-1 / size))


def alike(rng, n, share, correlation):
    """Successes of ``n`` that share a fate: beta-binomial with this intraclass correlation."""
    if correlation:
        strength = 1 / correlation - 1
        share = rng.betavariate(share * strength, (1 - share) * strength)
    return sum(rng.random() < share for _ in range(n))
