"""The limit that stops few runs that would end well keeps its promise, whatever the work."""

import math
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.thresholds.choice import break_even, covering_limit
from tests.examples import examples
from tests.generators.known_costs import runs as known_runs

PLACES = [(18, 0.05, None), (19, 0.05, 19), (38, 0.05, 38), (39, 0.05, 38), (99, 0.01, 99)]


@pytest.mark.parametrize(("n", "loses", "place"), [*PLACES, (0, 0.5, None)])
def test_the_limit_is_the_value_at_its_place(n, loses, place):
    values = pl.Series(range(1, n + 1), dtype=pl.Float64)
    assert covering_limit(values, loses) == place


def test_where_the_limit_would_be_a_censored_value_there_is_none():
    assert covering_limit(pl.Series([1.0] * 18 + [math.inf])) is None
    assert covering_limit(pl.Series([1.0] * 38 + [math.inf])) == 1.0
    assert covering_limit(pl.Series([None] * 30, dtype=pl.Float64)) is None


@examples(100)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=80),
    st.floats(0.01, 0.9),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_the_order_does_not_matter_and_censored_values_only_lengthen(values, loses, n, random):
    limit = covering_limit(pl.Series(values), loses)
    shuffled = random.sample(values, len(values))
    assert covering_limit(pl.Series(shuffled), loses) == limit
    if limit is not None:
        exceeding = sum(value > limit for value in values)
        assert exceeding <= loses * (len(values) + 1) + 1e-6
        # Each of the last n is known only to be at least as long as it was.
        censored = covering_limit(pl.Series([*values[n:], *[math.inf] * len(values[:n])]), loses)
        assert censored is None or censored >= limit


def lognormal(draw):
    return draw.lognormvariate(6, 1)


def two_modes(draw):
    return draw.gauss(300, 20) if draw.random() < 0.9 else draw.gauss(3000, 100)


def heavy(draw):
    return draw.paretovariate(0.9)


def seconds(draw):
    return float(round(draw.expovariate(1 / 4)))


@pytest.mark.slow
@pytest.mark.parametrize("draw_one", [lognormal, two_modes, heavy, seconds])
@pytest.mark.parametrize("n", [19, 60, 200])
def test_the_next_run_stays_within_as_often_as_promised(draw_one, n):
    draw = Random(f"{draw_one.__name__} {n}")
    n_fleets = 1500
    n_within = 0
    for _ in range(n_fleets):
        limit = covering_limit(pl.Series([draw_one(draw) for _ in range(n)]))
        n_within += draw_one(draw) <= limit
    spread = 3 * math.sqrt(0.05 * 0.95 / n_fleets)
    assert n_within / n_fleets >= 0.95 - spread
    if draw_one is not seconds:  # ties lie within
        assert n_within / n_fleets <= 0.97 + spread


def longest_of(frame):
    length = pl.when("is_good").then(pl.when("ended").then("duration_s").otherwise(math.inf))
    return frame.group_by("unit").agg(longest=length.max())["longest"]


@pytest.mark.slow
@pytest.mark.parametrize("traits", [{"size": 6, "unit_sd": 0.9}, {"limit_s": lambda _: 20_000.0}])
def test_fan_outs_and_limits_of_known_work_keep_the_promise(traits):
    """Fan-outs count once, and a run that was cut off counts as longer than all."""
    n_within, n_known = 0, 0
    for seed in range(250):
        size = traits.get("size", 1)
        frame = known_runs(61 * size, seed, **traits)
        *seen, new = frame.partition_by("unit", maintain_order=True)
        limit = covering_limit(longest_of(pl.concat(seen)))
        longest = longest_of(new).item()
        if limit is not None and longest is not None:
            n_known += 1
            n_within += longest <= limit
    assert n_known > 180
    assert n_within / n_known >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / n_known)


def test_the_limits_of_the_sample():
    demo = sa.demo()
    frame = sa.thresholds.covering(demo)
    assert frame.columns[:4] == ["system", "kind", "loses", "limit_s"]
    known = frame.filter(pl.col("limit_s").is_not_null())
    assert known.height >= 2
    assert (known["n_needed"] == 19).all()
    assert known["in_words"].str.contains("About 5 % or fewer").all()
    stricter = sa.thresholds.covering(demo, loses=0.01, by="kind")
    both = stricter.join(frame, on="kind").filter(pl.col("limit_s").is_not_null())
    assert (both["limit_s"] >= both["limit_s_right"]).all()
    assert sa.thresholds.covering(demo, by=()).height == 1


PRICES = st.floats(0.01, 100)


# --- break-even ----------------------------------------------------------------------------


@examples(100)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(0, 5), PRICES)
def test_todays_value_is_the_cheapest_exactly_between_these_prices(fewer, place, price):
    steps = len(fewer)
    mistakes = [float(sum(fewer[i:])) for i in range(steps)]
    places = pl.Series(range(steps), dtype=pl.Float64)
    waiting = {"threshold_s": places, "waiting_h": places * places + places}
    curve = pl.DataFrame({"mistakes": mistakes, **waiting})
    today_s = float(place % steps)
    loss = curve.select(price * pl.col("mistakes") + pl.col("waiting_h")).to_series()
    low, high = break_even(curve, today_s)
    is_cheapest = loss[int(today_s)] <= loss.min() + 1e-9
    is_inside = low - 1e-9 <= price <= high + 1e-9
    assert is_cheapest == is_inside or min(abs(price - low), abs(price - high)) < 1e-6


def test_without_todays_value_there_is_no_break_even():
    curve = pl.DataFrame({"threshold_s": [1.0], "mistakes": [1.0], "waiting_h": [1.0]})
    assert break_even(curve, None) is None
    assert break_even(curve.clear(), 1.0) is None
    assert break_even(curve, 1.0) == (0.0, math.inf)


@pytest.mark.slow
def test_every_limit_of_the_sample_with_19_invocations_says_something_to_act_on():
    frame = sa.thresholds.recommend(sa.demo()).frame
    acts = ("change", "choose", "raise", "lower", "keep")
    knows = frame["in_words"].str.contains("As observed|t most 1 in 20|; [0-9 hmins]+: ")
    assert (frame["verdict"].is_in(acts) | knows).sum() >= 12
    assert frame.filter(pl.col("n") < 19)["covering_s"].is_null().all()
