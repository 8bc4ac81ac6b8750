"""Intervals and exact tests: by hand, as properties, and against the reference values."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import ArgumentError
from stateanalytics.stats.distributions import benjamini_hochberg, beta_cdf, binomial_p, gamma_cdf
from stateanalytics.stats.intervals import (
    newcombe,
    poisson_interval,
    rate_ratio,
    wilson,
    wilson_columns,
)
from tests.examples import examples


@pytest.mark.parametrize(
    ("n_hits", "n", "low", "high"),
    [
        *((8, 10, 0.490162, 0.943318), (0, 20, 0.0, 0.161125)),
        *((20, 20, 1 - 0.161125, 1.0), (1, 1, 0.206549, 1.0)),
    ],
)
def test_wilson_gives_the_reference_values(n_hits, n, low, high):
    assert wilson(n_hits, n) == pytest.approx((low, high), abs=1e-6)


def test_no_total_has_no_interval():
    assert wilson(0, 0) is None


@given(st.integers(0, 500), st.integers(1, 500))
@examples(60)
def test_the_interval_holds_the_share_and_stays_within_zero_and_one(hits, n):
    hits = min(hits, n)
    low, high = wilson(hits, n)
    assert 0 <= low <= hits / n <= high <= 1


def test_columns_agree_with_single_numbers():
    counts = pl.DataFrame({"hits": [0, 8, 20, None], "n": [0, 10, 20, 5]})
    ends = counts.select(wilson_columns("hits", "n"))
    assert ends.row(1) == pytest.approx((0.8, *wilson(8, 10)))
    assert ends.row(2) == pytest.approx((1.0, *wilson(20, 20)))
    assert ends.row(0) == ends.row(3) == (None, None, None)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95])
def test_confidence_must_be_a_share(confidence):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        wilson(1, 2, confidence=confidence)
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        wilson_columns("hits", "n", confidence=confidence)


@pytest.mark.parametrize(
    ("n_events", "low", "high"),
    [
        *((0, 0.0, -math.log(0.025)), (1, 0.0253178, 5.5716434)),
        *((15, 8.3953861, 24.7402185), (100, 81.3639913, 121.6267938)),
    ],
)
def test_poisson_rates_equal_the_tables(n_events, low, high):
    assert poisson_interval(n_events) == pytest.approx((low, high), abs=1e-6)


def test_two_weeks_compare_as_in_the_reference():
    found = rate_ratio(15, 1000, 7, 1100)
    assert found.p_value == pytest.approx(0.0574532, abs=5e-8)
    assert found.ratio == pytest.approx(15 / 1000 / (7 / 1100))


@pytest.mark.parametrize(
    ("now", "before", "low", "high"),
    [
        *(((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090)),
        *(((6, 7), (2, 7), 0.0582, 0.8062), ((5, 56), (0, 29), -0.0381, 0.1926)),
        *(((0, 10), (0, 20), -0.1611, 0.2775), ((0, 10), (0, 10), -0.2775, 0.2775)),
        *(((10, 10), (0, 20), 0.6791, 1.0), ((10, 10), (0, 10), 0.6075, 1.0)),
    ],
)
def test_newcombes_differences_equal_his_table(now, before, low, high):
    """Newcombe, R. G. (1998), Statistics in Medicine 17, 873-890, table II, method 10."""
    difference, *ends = newcombe(*now, *before)
    assert difference == pytest.approx(now[0] / now[1] - before[0] / before[1])
    assert ends == pytest.approx([low, high], abs=5e-5)


def test_rate_ratio_equals_poisson_test_of_r():
    """The example on the manual page of ``poisson.test``."""
    found = rate_ratio(11, 800, 6 + 8 + 7, 1083 + 1050 + 878)
    assert found.p_value == pytest.approx(0.07967, abs=5e-6)
    assert found.ratio == pytest.approx(1.971488, abs=5e-7)
    assert (found.low, found.high) == pytest.approx((0.8584264, 4.2772659), abs=5e-8)


def test_rates_without_events_or_time_say_what_is_not_known():
    never = rate_ratio(0, 10, 0, 10)
    assert (never.ratio, never.low, never.high, never.p_value) == (None, 0.0, None, 1.0)
    fresh = rate_ratio(5, 1, 0, 1)
    assert (fresh.ratio, fresh.high) == (None, None)
    assert fresh.low > 0
    gone = rate_ratio(0, 1, 5, 1)
    assert (gone.ratio, gone.low) == (0.0, 0.0)
    assert rate_ratio(1, 0, 1, 1).p_value is None


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.1, 10))
@examples(60)
def test_rates_turned_round_give_the_ratio_turned_round(now, before, scale):
    there, back = rate_ratio(now, scale, before, 1), rate_ratio(before, 1, now, scale)
    assert there.p_value == pytest.approx(back.p_value, rel=1e-6)
    if now and before:
        assert there.low == pytest.approx(1 / back.high, rel=1e-9)
        assert there.low < there.ratio < there.high


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 0.99))
@examples(100)
def test_the_exact_binomial_test_equals_the_sum_over_all_counts(k, n, share):
    k = min(k, n)
    point = [math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(n + 1)]
    as_unlikely = math.fsum(p for p in point if p <= point[k] * (1 + 1e-7))
    assert binomial_p(k, n, share) == pytest.approx(min(1, as_unlikely), abs=1e-9)


def test_tails_of_beta_and_gamma_keep_their_digits_for_large_counts():
    assert beta_cdf(0.5, 5e5, 5e5) == pytest.approx(0.5, abs=1e-9)
    assert gamma_cdf(1e6, 1e6) == pytest.approx(0.5 + 1 / (3 * math.sqrt(2 * math.pi * 1e6)))
    assert binomial_p(0, 200, 0.5) == pytest.approx(2 * 0.5**200, rel=1e-9)


def test_benjamini_hochberg_gives_the_reference_values_in_any_order():
    p = [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216]
    q = [0.01, 0.04, 0.084, 0.084, 0.084, 0.1, 0.1057143, 0.216, 0.216, 0.216]
    found = pl.DataFrame({"p_value": p[::-1]}).select(benjamini_hochberg())["q_value"]
    assert found.to_list() == pytest.approx(q[::-1], abs=5e-8)


def test_what_was_not_tested_does_not_count_as_a_test():
    tests = pl.DataFrame({"p_value": [None, 0.02, None, 0.01]})
    assert tests.select(benjamini_hochberg())["q_value"].to_list() == [None, 0.02, None, 0.02]
    untested = pl.DataFrame({"p_value": [None]}, schema={"p_value": pl.Float64})
    assert untested.select(benjamini_hochberg())["q_value"].to_list() == [None]
    assert untested.clear().select(benjamini_hochberg()).is_empty()


def test_families_are_adjusted_apart():
    tests = pl.DataFrame({"p_value": [0.01, 0.02, 0.01], "family": ["a", "a", "b"]})
    found = tests.select(benjamini_hochberg(over="family"))["q_value"]
    assert found.to_list() == [0.02, 0.02, 0.01]
