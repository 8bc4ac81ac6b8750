"""A duration reads the same wherever it is written."""

import math

import narwhals as nw
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stateanalytics.charts.survival import say_survival
from stateanalytics.core.words import how_long, how_long_each
from stateanalytics.state.display import add_duration_text
from stateanalytics.survival.curves import kaplan_meier, quantiles
from tests.examples import examples

UNKNOWN = [(none, "unknown") for none in (None, math.inf, math.nan)]


MEASURED = (
    *((0, "0 s"), (0.4, "under 1 s"), (59.9, "59 s"), (60, "1 min"), (90, "1 min 30 s")),
    *((3599, "59 min 59 s"), (3600, "1 h"), (5400, "1 h 30 min"), (86_399, "23 h 59 min")),
    *((86_400, "1 d"), (129_600, "1 d 12 h"), (10_000_000, "115 d 17 h")),
    *((-90, "minus 1 min 30 s"), *UNKNOWN),
)
ESTIMATED = (
    *((0, "0 s"), (0.00002, "0.001 s"), (0.0374, "0.037 s"), (0.4, "0.4 s")),
    *((2.84, "2.8 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.5, "1 min")),
    *((3599.5, "1 h"), (5437, "1 h 31 min"), (86_390, "1 d"), (95_000, "1 d 2 h")),
    *((-2.84, "minus 2.8 s"), *UNKNOWN),
)


@pytest.mark.parametrize(
    ("seconds", "words", "is_estimate"),
    [*((*case, False) for case in MEASURED), *((*case, True) for case in ESTIMATED)],
)
def test_two_units_are_named_and_of_an_estimate_two_figures(seconds, words, is_estimate):
    assert how_long(seconds, is_estimate=is_estimate) == words
    each = pl.DataFrame({"s": [seconds]}, schema={"s": pl.Float64})
    told = each.select(how_long_each("s", "unknown", is_estimate=is_estimate))
    assert told["s"].to_list() == [words]


def test_half_end_within_a_time_that_can_be_read():
    curve = kaplan_meier(pl.DataFrame({"duration_s": [0.2, 0.4, 2.84], "ended": True}))
    assert quantiles(curve, [0.5, 0.9])["in_words"].str.extract("within ([^(]+) ").to_list() == [
        "0.4 s",
        "2.8 s",
    ]
    assert say_survival(curve).startswith("Half of the runs end within 0.4 s (0.2 s to ")


@examples(100)
@given(st.floats(0, 1e9))
def test_an_estimate_is_off_by_a_twentieth_at_most(seconds):
    units = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    words = how_long(seconds, is_estimate=True).split()
    told = sum(float(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(told - seconds) <= max(0.001, seconds / 20)


@examples(100)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
@example([59.999999, 3599.999999, 86_399.999999, 1e-300])
def test_a_column_says_what_a_number_says(values):
    each = pl.DataFrame({"s": values}, schema={"s": pl.Float64})
    assert each.select(how_long_each("s"))["s"].to_list() == [how_long(v) for v in values]


@examples(100)
@given(st.lists(st.floats(1, 8e8), min_size=1))
def test_reasons_on_every_engine_say_it_too(values):
    frame = nw.from_native(pl.LazyFrame({"s": values}, schema={"s": pl.Float64}))
    texts = add_duration_text(frame, "s", ("a", "b")).collect()
    said = texts.select(text=nw.concat_str("a", "b", ignore_nulls=True))["text"].to_list()
    assert said == [how_long(v) for v in values]
