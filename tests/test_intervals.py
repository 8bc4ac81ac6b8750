"""Wilson's interval: by hand, as a property, and against the reference values."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateanalytics.errors import ArgumentError
from stateanalytics.intervals import wilson, wilson_columns


@pytest.mark.parametrize(
    ("n_hits", "n", "low", "high"),
    [
        pytest.param(8, 10, 0.490162, 0.943318, id="eight of ten"),
        pytest.param(0, 20, 0.0, 0.161125, id="none of twenty"),
        pytest.param(20, 20, 1 - 0.161125, 1.0, id="all of twenty mirrors none"),
        pytest.param(1, 1, 0.206549, 1.0, id="one of one"),
    ],
)
def test_wilson_gives_the_reference_values(n_hits, n, low, high):
    assert wilson(n_hits, n) == pytest.approx((low, high), abs=1e-6)


def test_no_total_has_no_interval():
    assert wilson(0, 0) is None


@given(st.integers(0, 500), st.integers(1, 500))
@settings(max_examples=60, deadline=None)
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


def test_more_hits_than_total_says_which_comes_first():
    with pytest.raises(ArgumentError, match=r"n_hits=10 and n=8[\s\S]*hits first"):
        wilson(10, 8)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95])
def test_confidence_must_be_a_share(confidence):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        wilson(1, 2, confidence=confidence)
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        wilson_columns("hits", "n", confidence=confidence)
