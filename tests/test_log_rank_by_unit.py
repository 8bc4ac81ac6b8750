"""The log-rank test rests on units: against a slow loop, and how often it is wrong."""

import math
from random import Random

import polars as pl
import pytest

from stateanalytics.survival import logrank
from stateanalytics.survival.log_rank import FEWEST_UNITS
from tests.survival_data import slow_logrank

NAMES = {"entry_s": pl.Float64, "duration_s": pl.Float64, "ended": pl.Boolean}
NAMES |= {"arm": pl.Boolean, "unit": pl.String, "one": pl.Int64}


def runs_of(draw, n, n_units, *, is_crossed):
    """Spells with ties, late entries and two strata, whose units may be of both arms."""
    rows = []
    for _ in range(n):
        unit = draw.randrange(n_units)
        entry = float(draw.choice([0, 0, 0, draw.randrange(4)]))
        # Of one unit all take much alike.
        took = entry + 1 + abs(unit % 5 * 2 + draw.randrange(4))
        arm = draw.random() < 0.5 if is_crossed else unit % 2 == 0
        rows.append((entry, took, draw.random() < 0.8, arm, f"u{unit}", draw.randrange(2)))
    return rows


def slow_by_unit(rows):
    """Observed minus expected, squared, and divided by the squares of what units add to it."""
    added, expected = {}, {}
    for stratum in {row[5] for row in rows}:
        of_stratum = [row for row in rows if row[5] == stratum]
        for row in of_stratum:
            place = (row[3], row[4])
            for moment in sorted({other[1] for other in of_stratum if other[2]}):
                if not row[0] < moment <= row[1]:
                    continue
                at_risk = [other for other in of_stratum if other[0] < moment <= other[1]]
                own = [other for other in at_risk if other[3] == row[3]]
                ends = sum(other[1] == moment and other[2] for other in at_risk)
                own_ends = sum(other[1] == moment and other[2] for other in own)
                distance = row[3] - sum(other[3] for other in at_risk) / len(at_risk)
                moved = distance * ((row[1] == moment and row[2]) - own_ends / len(own))
                added[place] = added.get(place, 0) + moved
                expected[place] = expected.get(place, 0) + ends / len(at_risk)
    totals = {arm: sum(e for place, e in expected.items() if place[0] == arm) for arm in (0, 1)}
    of_units = {}
    for (arm, unit), moved in added.items():
        raised = moved / math.sqrt(1 - expected[arm, unit] / totals[arm])
        of_units[unit] = of_units.get(unit, 0) + raised
    return sum(moved**2 for moved in of_units.values())


@pytest.mark.parametrize("is_crossed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_variance_is_that_of_what_units_add(seed, is_crossed):
    rows = runs_of(Random(seed), 80, 16, is_crossed=is_crossed)
    spells = pl.DataFrame(rows, schema=NAMES, orient="row")
    parts = [[row[:4] for row in rows if row[5] == one] for one in (0, 1)]
    of_runs = slow_logrank(*parts)
    alone = logrank(spells.drop("unit"), "arm", strata="one")
    assert alone["statistic"].item() == pytest.approx(of_runs)
    u = sum(slow_observed_minus_expected(part) for part in parts)
    found = logrank(spells, "arm", strata="one").row(0, named=True)
    assert found["statistic"] == pytest.approx(min(of_runs, u**2 / slow_by_unit(rows)))
    assert found["n_units"] == 16
    assert found["statistic"] < of_runs or is_crossed


def slow_observed_minus_expected(rows):
    u = 0.0
    for moment in {duration for _, duration, ended, _ in rows if ended}:
        at_risk = [row for row in rows if row[0] < moment <= row[1]]
        ends = [row for row in at_risk if row[1] == moment and row[2]]
        u += sum(row[3] for row in ends) - sum(row[3] for row in at_risk) * len(ends) / len(at_risk)
    return u


@pytest.fixture(scope="module")
def fan_outs():
    rows = runs_of(Random(5), 200, 20, is_crossed=False)
    return pl.DataFrame(rows, schema=NAMES, orient="row")


def test_where_each_spell_is_a_unit_or_nobody_knows_it_the_test_is_the_classical(fan_outs):
    classical = logrank(fan_outs.drop("unit"), ["arm", "one"])
    for unit in (pl.int_range(pl.len()), pl.lit(None, pl.String)):
        assert logrank(fan_outs.with_columns(unit=unit), ["arm", "one"]).equals(classical)
    assert classical["n_units"].item() == fan_outs.height


def test_runs_counted_many_times_say_no_more_than_once(fan_outs):
    alone = fan_outs.with_columns(unit=pl.int_range(pl.len()))
    once, often = (logrank(rows, "arm").row(0, named=True)
                   for rows in (alone, pl.concat([alone] * 24)))  # fmt: skip
    assert often["n_units"] == once["n_units"]
    assert often["statistic"] == pytest.approx(once["statistic"], rel=0.1)
    counted = logrank(pl.concat([alone.drop("unit")] * 24), "arm")["statistic"].item()
    assert counted == pytest.approx(24 * once["statistic"], rel=0.1)


def test_the_order_of_rows_and_of_groups_says_nothing(fan_outs):
    found = logrank(fan_outs, "arm")
    assert logrank(fan_outs.sample(fraction=1, shuffle=True, seed=2), "arm").equals(found)
    turned = logrank(fan_outs.with_columns(~pl.col("arm")), "arm")
    assert turned["p_value"].item() == pytest.approx(found["p_value"].item())


def test_each_of_several_tests_has_units_of_its_own(fan_outs):
    weeks = [fan_outs.with_columns(week=1), fan_outs.with_columns(week=2, unit=None)]
    found = logrank(pl.concat(weeks, how="vertical_relaxed"), "arm", within="week")
    assert found["n_units"].to_list() == [20, fan_outs.height]
    alone = [logrank(week, "arm")["p_value"].item() for week in weeks]
    assert found["p_value"].to_list() == pytest.approx(alone)


@pytest.mark.parametrize("ended", [True, False])
def test_a_group_of_too_few_fan_outs_cannot_be_told_apart(fan_outs, ended):
    def with_others(n_units):
        place = pl.int_range(pl.len()) % n_units
        unit = pl.format("o{}", place)
        others = fan_outs.with_columns(ended=pl.lit(ended), arm=None, unit=unit)
        return logrank(pl.concat([fan_outs.filter("arm"), others]), "arm")

    few = with_others(FEWEST_UNITS - 1).row(0, named=True)
    assert (few["statistic"], few["p_value"], few["df"]) == (None, None, 1)
    assert with_others(FEWEST_UNITS)["p_value"].item() is not None


def test_more_groups_than_two_are_tested_with_the_mean_of_their_design_effects(fan_outs):
    arm = pl.col("unit").str.slice(1).cast(pl.Int64) % 4
    four = fan_outs.with_columns(arm=arm)
    by_unit, by_run = (logrank(rows, "arm").row(0, named=True)
                       for rows in (four, four.drop("unit")))  # fmt: skip
    assert (by_unit["df"], by_unit["n_groups"]) == (3, 4)
    assert by_unit["statistic"] < by_run["statistic"]
    assert by_unit["p_value"] > by_run["p_value"]


def drawn(draw, repeat, sizes, icc, *, times=1.0, is_rare=False):
    """Fan-outs of each arm, alike in how long they take."""
    rows = []
    for arm, of_arm in enumerate(sizes):
        for place, size in enumerate(of_arm):
            common = math.sqrt(icc) * draw.gauss()
            for _ in range(size):
                took = math.exp(common + math.sqrt(1 - icc) * draw.gauss()) * times**arm
                stop = math.exp(draw.gauss(-1.3 if is_rare else 1.2, 0.8))
                rows.append((repeat, f"{arm}-{place}", arm, min(took, stop), took <= stop))
    return rows


def shares_found(seed, n, sizes, icc, **asked):
    """How many of ``n`` samples differ at 5 %, by unit and as if each run were alone."""
    draw = Random(seed)
    rows = [row for repeat in range(n) for row in drawn(draw, repeat, sizes, icc, **asked)]
    names = ["repeat", "unit", "arm", "duration_s", "ended"]
    runs = pl.DataFrame(rows, schema=names, orient="row")
    tested = [logrank(frame, "arm", within="repeat")["p_value"]
              for frame in (runs, runs.drop("unit"))]  # fmt: skip
    return [(p < 0.05).sum() / n for p in tested]


UNEVEN = [1, 1, 1, 2, 2, 4, 4, 8, 16, 24]


@pytest.mark.slow
@pytest.mark.parametrize("icc", [0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([[24] * 10] * 2, id="20 fan-outs of 24"),
        pytest.param([[24] * 4, [24] * 16], id="4 against 16"),
        pytest.param([UNEVEN] * 2, id="uneven"),
        pytest.param([[12] * 6] * 4, id="four groups of 6"),
    ],
)
def test_at_most_one_null_in_twenty_differs_at_5_percent(sizes, icc):
    """At seeds drawn anew: 7 of a hundred, and room for three deviations of 200 samples."""
    by_unit, by_run = shares_found(Random().random(), 200, sizes, icc)
    assert by_unit <= 0.07 + 0.054
    assert by_run > 0.1 or icc <= 0.1


@pytest.mark.slow
def test_ends_that_are_rare_are_no_findings_either():
    by_unit, _ = shares_found(Random().random(), 200, [[24] * 10] * 2, 0.3, is_rare=True)
    assert by_unit <= 0.07 + 0.054


@pytest.mark.slow
def test_twice_as_long_is_found():
    by_unit, _ = shares_found(8_086, 100, [[24] * 20] * 2, 0.3, times=2.0)
    assert by_unit >= 0.8
