"""The generator's known truth is recovered within the intervals, as often as they say."""

import math
from statistics import NormalDist

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.stats.distributions import solve
from tests.generators import durations
from tests.generators.spells import FATES, PACE, Kind

N_REPEATS, N_RUNS = 200, 300
# 93 % of 200, as asked of an interval that says 95 %.
ENOUGH = 186
FLOW = Kind("flow", 1.0, median_s=3_900.0, sigma=0.45, timeout_s=7_200.0)


def ended_by(seconds, fate):
    """Share that would end with a fate by a duration, if nothing cut it off."""
    scaled = math.log(seconds / (FLOW.median_s * PACE[fate]))
    return FATES[fate] * NormalDist().cdf(scaled / FLOW.sigma)


def gone_by(seconds):
    return sum(ended_by(seconds, fate) for fate in FATES)


@pytest.fixture(scope="module")
def repeats():
    """200 fleets of 300 flows each, stopped at their limit, told apart by ``repeat``."""
    fleets = [
        durations(N_RUNS, seed=seed, kinds=[FLOW]).with_columns(repeat=pl.lit(seed))
        for seed in range(N_REPEATS)
    ]
    is_over = pl.col("end") != "timed_out"
    return pl.concat(fleets).with_columns(ended=is_over, cause=pl.when(is_over).then("end"))


def n_held(low, high, truth):
    return ((low <= truth) & (high >= truth)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("prob", [0.25, 0.5, 0.75])
def test_quantiles_hold_the_truth(repeats, prob):
    truth = solve(lambda seconds: gone_by(seconds) - prob, 1.0, 60_000.0)
    found = sa.survival.quantiles(sa.survival.kaplan_meier(repeats, by="repeat"), [prob])
    assert found["is_identified"].all()
    assert n_held(found["duration_low_s"], found["duration_high_s"], truth) >= ENOUGH


@pytest.mark.parametrize("fate", sorted(FATES))
def test_incidences_hold_the_truth(repeats, fate):
    curve = sa.survival.cumulative_incidence(repeats, by="repeat").filter(cause=fate)
    at_an_hour = curve.filter(pl.col("duration_s") <= 3600).group_by("repeat").last()
    held = n_held(at_an_hour["incidence_low"], at_an_hour["incidence_high"], ended_by(3600, fate))
    # Of the rare ends (9 of 300) the interval says less than it promises.
    assert held >= (ENOUGH if FATES[fate] > 0.1 else 176)


def test_restricted_means_hold_the_truth(repeats):
    found = sa.survival.restricted_mean(sa.survival.kaplan_meier(repeats, by="repeat"), 5400)
    truth = math.fsum(1 - gone_by(second + 0.5) for second in range(5400))
    low, high = (found["mean_s"] + sign * 1.96 * found["mean_se"] for sign in (-1, 1))
    assert n_held(low, high, truth) >= ENOUGH


def test_bands_hold_the_whole_curve(repeats):
    curve = sa.survival.confidence_band(sa.survival.kaplan_meier(repeats, by="repeat"))
    truth = curve["duration_s"].map_elements(lambda s: 1 - gone_by(s), return_dtype=pl.Float64)
    outside = curve.with_columns(truth=truth).with_columns(
        **{
            name: ~pl.col("truth").is_between(f"{name}_low", f"{name}_high").fill_null(value=True)
            for name in ("band", "survival")
        }
    )
    missed = outside.group_by("repeat").agg(pl.col("band", "survival").any())
    assert missed["band"].sum() <= N_REPEATS - ENOUGH
    # The pointwise intervals miss the curve somewhere in many more fleets.
    assert missed["survival"].sum() > 3 * (N_REPEATS - ENOUGH)


def test_completions_of_another_limit_hold_the_truth(repeats):
    runs = repeats.with_columns(ending="end", left_out=pl.lit(None, pl.String))
    found = sa.survival.timeout_candidates(runs, [3600], by="repeat").filter(~pl.col("is_today"))
    truth = ended_by(3600, "completed")
    assert n_held(found["completed_low"], found["completed_high"], truth) >= ENOUGH


def test_two_weeks_of_one_fleet_differ_as_seldom_as_they_should(repeats):
    """p-values of the log-rank test are uniform where nothing changed."""
    halves = repeats.with_columns(week=pl.int_range(pl.len()).over("repeat") % 2)
    p = sa.survival.logrank(halves, by="week", within="repeat")["p_value"]
    assert 0.01 <= (p < 0.05).mean() <= 0.09
    assert p.mean() == pytest.approx(0.5, abs=0.07)
