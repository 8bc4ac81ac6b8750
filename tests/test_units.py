"""A duration reads the same wherever it is written."""

import math

import narwhals as nw
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stateanalytics.core.units import how_long, how_long_each
from stateanalytics.state.display import add_duration_text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.4, "under 1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (129_600, "1 d 12 h"),
        (10_000_000, "115 d 17 h"),
        (-90, "minus 1 min 30 s"),
        (None, "unknown"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_the_two_largest_units_are_named(seconds, words):
    assert how_long(seconds) == words
    each = pl.DataFrame({"s": [seconds]}, schema={"s": pl.Float64})
    assert each.select(how_long_each("s", "unknown"))["s"].to_list() == [words]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
@example([59.999999, 3599.999999, 86_399.999999, 1e-300])
def test_a_column_says_what_a_number_says(values):
    each = pl.DataFrame({"s": values}, schema={"s": pl.Float64})
    assert each.select(how_long_each("s"))["s"].to_list() == [how_long(v) for v in values]


@given(st.lists(st.floats(1, 8e8), min_size=1))
def test_reasons_on_every_engine_say_it_too(values):
    frame = nw.from_native(pl.LazyFrame({"s": values}, schema={"s": pl.Float64}))
    texts = add_duration_text(frame, "s", ("a", "b")).collect()
    said = texts.select(text=nw.concat_str("a", "b", ignore_nulls=True))["text"].to_list()
    assert said == [how_long(v) for v in values]
