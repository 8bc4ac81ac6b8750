"""How often classes come up in draws with replacement: exactly as where members are drawn."""

import math
from collections import Counter
from random import Random

import pytest

from stateanalytics.stats.draws import binomial, multinomial


@pytest.mark.parametrize(
    ("n", "p"),
    [
        pytest.param(30, 0.1, id="by the gaps between successes"),
        pytest.param(60, 0.3, id="by rejection"),
        pytest.param(60, 0.8, id="by its failures"),
    ],
)
def test_draws_have_the_binomial_distribution(n, p):
    """Chi-square of 20,000 draws against the probabilities, far below its 0.1 % point."""
    random, n_draws = Random(7), 20_000
    seen = Counter(binomial(random, n, p) for _ in range(n_draws))
    expected = {k: n_draws * math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}
    usual = [k for k, count in expected.items() if count >= 5]
    statistic = sum((seen[k] - expected[k]) ** 2 / expected[k] for k in usual)
    assert statistic < len(usual) + 4 * math.sqrt(2 * len(usual))


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [300_000, 1, 20], [5] * 40])
def test_as_many_are_drawn_as_there_are(sizes):
    random = Random(3)
    for _ in range(50):
        drawn = multinomial(random, sizes)
        assert sum(drawn) == sum(sizes)
        assert min(drawn) >= 0


def test_classes_come_up_by_their_size():
    random, sizes = Random(5), [700, 200, 100]
    draws = [multinomial(random, sizes) for _ in range(400)]
    sums = [sum(draw[place] for draw in draws) for place in range(3)]
    assert sums == pytest.approx([400 * size for size in sizes], rel=0.02)
