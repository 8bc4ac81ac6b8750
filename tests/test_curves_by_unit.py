"""Curves rest on units: by hand, against the slow derivative, and how often intervals hold."""

import math
from random import Random
from statistics import NormalDist

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stateanalytics.survival import jackknife
from stateanalytics.survival.comparison import compare
from stateanalytics.survival.curves import kaplan_meier, quantiles, restricted_mean
from stateanalytics.survival.incidence import (
    cause_table,
    completion_times,
    cumulative_incidence,
    never_ending,
)
from stateanalytics.survival.jackknife import LAST_COVARIANCE, UNIT_VARIANCE
from tests.survival_data import TYPE_I

NAMES = ["entry_s", "duration_s", "cause", "unit"]


def runs_of(draw, n, n_units, *, is_late):
    """Spells with ties, some cut off, some entered late."""
    rows = []
    for _ in range(n):
        entry = float(draw.choice([0, 0, draw.randrange(5)])) if is_late else 0.0
        cause = draw.choice(["completed", "failed", None])
        rows.append((entry, entry + draw.randrange(1, 14), cause, draw.randrange(n_units)))
    return rows


def weighted_incidence(rows, weights, cause, until):
    """The Aalen-Johansen estimate of spells that count more or less than one."""
    left, incidence = 1.0, 0.0
    for moment in sorted({row[1] for row in rows if row[2] and row[1] <= until}):
        here = [(row, w) for row, w in zip(rows, weights, strict=True) if row[0] < moment <= row[1]]
        n = sum(w for _, w in here)
        ends = [(row[2], w) for row, w in here if row[1] == moment and row[2]]
        incidence += left * sum(w for why, w in ends if why == cause) / n
        left *= 1 - sum(w for _, w in ends) / n
    return incidence


def slow_covariance(rows, cause, one, other):
    """Of two moments: every unit counted a little more, then a little less."""
    step, total = 1e-5, 0.0
    for unit in {row[3] for row in rows}:
        moved = []
        for moment in (one, other):
            weights = [[1 + moved * (row[3] == unit) for row in rows] for moved in (step, -step)]
            more, less = (weighted_incidence(rows, of, cause, moment) for of in weights)
            moved.append((more - less) / (2 * step))
        weight = sum(row[3] == unit for row in rows) / len(rows)
        total += moved[0] * moved[1] / (1 - weight)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_variance_is_that_of_counting_each_unit_a_little_more(seed, is_late):
    rows = runs_of(Random(seed), 40, 9, is_late=is_late)
    spells = pl.DataFrame(rows, schema=NAMES, orient="row")
    causes = cause_table(spells, "cause", [], "a test", least_at_risk=0)
    table = causes.by_unit(causes.names["cause"].to_list().index("completed"), 0.95).collect()
    last = table["duration_s"].max()
    columns = ("duration_s", UNIT_VARIANCE, LAST_COVARIANCE)
    for moment, variance, with_last in table.select(columns).rows():
        meant = [slow_covariance(rows, "completed", moment, other) for other in (moment, last)]
        assert [variance, with_last] == pytest.approx(meant, abs=1e-9)


def test_where_each_spell_is_a_unit_nothing_changes():
    ends = pl.DataFrame(runs_of(Random(1), 60, 3, is_late=True), schema=NAMES, orient="row")
    spells, alone = ends.drop("unit"), ends.with_columns(unit=pl.int_range(pl.len()))
    assert cumulative_incidence(alone).equals(cumulative_incidence(spells))
    assert completion_times(alone).equals(completion_times(spells))
    curves = [kaplan_meier(frame.with_columns(ended=pl.col("cause").is_not_null()))
              for frame in (alone, spells)]  # fmt: skip
    assert curves[0].equals(curves[1])
    # Of spells whose unit nobody knows each is alone, too.
    unknown = spells.with_columns(unit=pl.lit(None))
    assert cumulative_incidence(unknown).equals(cumulative_incidence(spells))
    runs = unknown.drop("entry_s").with_columns(
        ended=True, ending="cause", model=pl.Series(["a", "b"] * 30), kind=pl.lit("k")
    )
    assert never_ending(runs)["n_units"].item() == 60
    assert {*compare(runs, adjust="kind")["n_units"]} == {30}


def fan_outs(sizes, *, every_s=60.0):
    """Units whose runs all take the same."""
    rows = [(every_s * (1 + place), place) for place, size in enumerate(sizes) for _ in range(size)]
    return pl.DataFrame(rows, schema=["duration_s", "unit"], orient="row").with_columns(ended=True)


def test_units_of_one_mind_are_one_witness_each():
    single = kaplan_meier(fan_outs([1] * 20))
    curve = kaplan_meier(fan_outs([24] * 20))
    ratio = (curve["survival_se"] / single["survival_se"]).drop_nulls()
    assert ratio.to_list() == pytest.approx([math.sqrt(20 / 19)] * ratio.len(), rel=0.006)
    medians = [quantiles(one, 0.5).row(0, named=True) for one in (single, curve)]
    assert medians[1]["duration_low_s"] <= medians[0]["duration_low_s"]
    assert medians[1]["duration_high_s"] >= medians[0]["duration_high_s"]
    assert [median["n_units"] for median in medians] == [20, 20]
    means = [restricted_mean(one, 900)["mean_se"].item() for one in (single, curve)]
    # What units add is taken to move the whole curve together: an upper bound.
    assert means[0] < means[1] < 1.3 * means[0]


def test_a_handful_of_units_has_no_interval_and_says_so():
    curve = kaplan_meier(fan_outs([24] * 4))
    assert curve["survival_se"].null_count() == curve["survival_low"].null_count() == 4
    assert curve["n_units"].unique().to_list() == [4]
    words = quantiles(curve, 0.5)["in_words"].item()
    assert words == "50 % end within 2 min (no interval: 4 of 5 units needed)"
    assert restricted_mean(curve, 240).row(0, named=True)["mean_se"] is None
    assert restricted_mean(curve, 240)["is_identified"].item()


def test_runs_of_one_show_or_invocation_are_one_unit():
    n = TYPE_I.height
    runs = TYPE_I.with_columns(
        source=pl.lit("a"),
        show_id=pl.Series([None] * 8 + ["show"] * (n - 8)),
        invocation_id=pl.Series(["i"] * 2 + [f"i{place}" for place in range(2, n)]),
        entity_id=pl.int_range(n).cast(pl.String),
    )
    assert kaplan_meier(runs)["n_units"][0] == 8
    assert kaplan_meier(runs.drop("show_id"))["n_units"][0] == n - 1


def test_strata_count_their_own_units_and_the_order_of_rows_says_nothing():
    draw = Random(5)
    ends = pl.DataFrame(runs_of(draw, 300, 40, is_late=True), schema=NAMES, orient="row")
    ends = ends.with_columns(kind=pl.col("unit") % 3)
    curve = cumulative_incidence(ends, by="kind")
    alone = cumulative_incidence(ends.filter(kind=1))
    assert_frame_equal(curve.filter(kind=1).drop("kind"), alone, abs_tol=1e-12)
    shuffled = ends.sample(fraction=1, shuffle=True, seed=3)
    assert cumulative_incidence(shuffled, by="kind").equals(curve)


def test_of_very_many_units_some_tell_the_variance_of_all(monkeypatch):
    draw = Random(8)
    rates = [draw.choice([0.5, 2.0]) for _ in range(1500)]
    rows = [(draw.expovariate(rate), unit) for unit, rate in enumerate(rates) for _ in range(4)]
    runs = pl.DataFrame(rows, schema=["duration_s", "unit"], orient="row").with_columns(ended=True)
    whole = kaplan_meier(runs)
    monkeypatch.setattr(jackknife, "MOST_UNITS", 500)
    part = kaplan_meier(runs)
    middle = slice(1000, 5000)
    ratio = part["survival_se"][middle] / whole["survival_se"][middle]
    assert not part.equals(whole)
    assert 0.9 < ratio.min() <= ratio.max() < 1.1


NORMAL = NormalDist()
MOMENTS_S = (300, 1500)
SHARE = 0.69


def truth():
    """What intervals should hold, of lognormal durations with a median of ten minutes."""
    shares = {at: NORMAL.cdf(math.log(at / 600)) for at in MOMENTS_S}
    return {
        "median": 600.0,
        "p90": 600 * math.exp(NORMAL.inv_cdf(0.9)),
        **{f"survival at {at}": 1 - share for at, share in shares.items()},
        **{f"incidence at {at}": SHARE * share for at, share in shares.items()},
    }


def drawn(draw, n_units, icc):
    """Fan-outs of 1 to 24 runs, alike in how long they take and in how they end."""
    rows, common, own = [], math.sqrt(icc), math.sqrt(1 - icc)
    for unit in range(n_units):
        slow, bad = draw.gauss(), draw.gauss()
        for _ in range(draw.randint(1, 24)):
            took = 600 * math.exp(common * slow + own * draw.gauss())
            stop = 600 * math.exp(draw.gauss(1.8, 0.5))
            is_good = common * bad + own * draw.gauss() < NORMAL.inv_cdf(SHARE)
            rows.append((min(took, stop), ["failed", "completed"][is_good] if took <= stop else
                         None, unit))  # fmt: skip
    runs = pl.DataFrame(rows, schema=["duration_s", "cause", "unit"], orient="row")
    return runs.with_columns(ended=pl.col("cause").is_not_null())


def intervals_of(runs):
    curve = kaplan_meier(runs)
    ends = quantiles(curve, [0.5, 0.9]).select("duration_low_s", "duration_high_s").rows()
    yield from zip(("median", "p90"), ends, strict=True)
    ended = cumulative_incidence(runs).filter(cause="completed")
    for what, found in (("survival", curve), ("incidence", ended)):
        for at in MOMENTS_S:
            row = found.filter(pl.col("duration_s") <= at).tail(1)
            yield f"{what} at {at}", row.select(f"{what}_low", f"{what}_high").row(0)


def coverage(draw, n, n_units, icc):
    meant = truth()
    held = dict.fromkeys(meant, 0)
    for _ in range(n):
        for name, (low, high) in intervals_of(drawn(draw, n_units, icc)):
            held[name] += (low or 0) <= meant[name] <= (math.inf if high is None else high)
    return {name: n_held / n for name, n_held in held.items()}


def test_intervals_of_alike_runs_hold():
    """Three samples of 20 fan-outs: by runs, one in two would miss."""
    held = coverage(Random(77), 3, 20, 0.5)
    assert sum(held.values()) / len(held) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n_units", [20, 40])
@pytest.mark.parametrize("icc", [0, 0.1, 0.3, 0.5])
def test_intervals_hold_whatever_units_have_in_common(icc, n_units):
    """200 samples at seeds drawn anew: 95 of a hundred give or take three, and what draws do."""
    held = coverage(Random(), 200, n_units, icc)
    assert all(0.92 - 0.045 <= share <= 1 for share in held.values()), held
    assert 0.92 - 0.015 <= sum(held.values()) / len(held) <= 0.98 + 0.01, held
