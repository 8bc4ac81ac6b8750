"""A direction is given where the values that may be the best are all on one side of today's.

The truth is known: lognormal work whose limit cuts a third of the good runs, silences with two
modes, work whose value of today is the best, and limits that were set by how hard work is.
"""

import math
from functools import cache
from random import Random

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.thresholds.choice import DIRECTIONS, Losses, choose, lowered
from stateanalytics.thresholds.counts import (
    at_worst,
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
)
from stateanalytics.thresholds.judge import judge_all
from stateanalytics.thresholds.settings import constants
from tests.generators.known_costs import runs, runs_loss

OF_RUNS, OF_SILENCES = {"price": 60.0, "hour": 3.0}, {"price": 5.0, "hour": 10.0}
SHORT_S, BEST_S = 900.0, 10_800.0
true_loss = cache(runs_loss)


def chosen(frame, today_s):
    reach = support(frame, CANDIDATES_S)
    counts = elapsed_counts(frame, reach.candidates_s, mistake="lost_run")
    return choose(counts, reach, today_s=today_s, **OF_RUNS)


def of_silences(n, seed, today_s):
    """Most silences last a minute, one in twenty 20 to 40 min; a fifth of the sessions die."""
    draw, rows = Random(seed), []
    for unit in range(n):
        is_dead = draw.random() < 0.2
        for _ in range(19):
            is_long = draw.random() < 0.05
            gap = draw.uniform(1200, 2400) if is_long else draw.expovariate(1 / 60)
            rows.append((unit, gap, "sign_of_life", False))
        last_s = 43_200.0 if is_dead else draw.expovariate(1 / 60)
        rows.append((unit, last_s, "death" if is_dead else "own_end", is_dead))
    gaps = pl.DataFrame(rows, schema=["unit", "gap_s", "closed_by", "is_dead"], orient="row")
    reach = silence_support(gaps, CANDIDATES_S, today_s)
    counts = silence_counts(gaps, reach.candidates_s)
    return choose(counts, reach, today_s=today_s, **OF_SILENCES)


def moves_to(choice):
    return choice.recommended_s if choice.verdict == "change" else choice.bound_s


def shares(n, seeds, today_s, **traits):
    """Shares of fleets with a useful verdict, and with a wrong one."""
    moved = [moves_to(chosen(runs(n, seed, **traits), today_s)) for seed in seeds]
    known = [to for to in moved if to is not None]
    wrong = sum(true_loss(to) >= true_loss(today_s) for to in known)
    return (len(known) - wrong) / len(moved), wrong / len(moved)


def test_a_limit_that_cuts_a_third_is_to_be_raised_and_how_far_cannot_be_told():
    choice = chosen(runs(120, 1), SHORT_S)
    assert (choice.verdict, choice.recommended_s, choice.flips) == ("raise", None, False)
    assert choice.bound_s > SHORT_S
    assert 0 < choice.gain_low < choice.gain
    assert choice.gain == pytest.approx(
        choice.at(SHORT_S)["loss"] - choice.at(choice.bound_s)["loss"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("today_s", [300.0, SHORT_S, 1800.0])
@pytest.mark.parametrize(("n", "least"), [(60, 0.75), (120, 0.9), (300, 0.98)])
def test_useful_verdicts_of_many_fleets(n, least, today_s):
    useful, wrong = shares(n, range(9000, 9100), today_s)
    assert useful >= least
    assert wrong <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 120, 300])
@pytest.mark.parametrize("today_s", [BEST_S, 14_400.0])
def test_no_direction_leads_away_from_the_best_in_many_fleets(n, today_s):
    assert true_loss(today_s) <= 1.05 * min(map(true_loss, CANDIDATES_S))
    assert shares(n, range(4000, 4100), today_s)[1] <= 0.01
    fan_outs = {"size": 8, "unit_sd": 0.99}
    assert shares(8 * n, range(4000, 4030), today_s, **fan_outs)[1] <= 0.01


def test_silences_of_two_modes_with_a_value_16_times_the_best():
    verdicts = {of_silences(300, seed, 43_200.0).verdict for seed in range(3)}
    assert verdicts <= {"change", "lower"}
    assert of_silences(300, 5, 2700.0).verdict == "keep"


@pytest.mark.parametrize("today_s", [900.0, 7200.0])
def test_limits_that_follow_how_hard_work_is_give_no_direction(today_s):
    """Easy work is stopped at 15 min, hard work later: nobody saw the easy work beyond."""
    for seed in range(4):
        easy = runs(200, seed, limit_s=lambda _: 900.0)
        hard = runs(100, seed + 50, limit_s=lambda _: 7200.0).with_columns(
            unit=pl.col("unit") + 1000
        )
        hard = hard.with_columns(
            duration_s=pl.min_horizontal(2 * pl.col("duration_s"), pl.lit(7200.0)),
            ended=pl.col("ended") & (pl.col("duration_s") < 3600),
        )
        assert chosen(pl.concat([easy, hard]), today_s).verdict not in ("change", "raise")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_one_unit_shows_no_direction(n):
    choice = chosen(runs(n, 3), SHORT_S) if n else None
    assert choice is None or choice.verdict not in ("change", *DIRECTIONS)


def test_a_direction_does_not_depend_on_the_order_of_runs():
    frame = runs(120, 8)
    first, second = (
        chosen(rows, SHORT_S) for rows in (frame, frame.sample(fraction=1, shuffle=True, seed=4))
    )
    assert (first.verdict, first.bound_s) == (second.verdict, second.bound_s)
    assert math.isclose(first.gain_low, second.gain_low)


HUNG_S, DAY_S = 200_000.0, 86_400.0


def ended_and_hung(n_hung=10, hung_s=HUNG_S):
    """A hundred runs that end well after an hour, and some that are open at the end of the data."""
    rows = [(3600.0, True, True)] * 100 + [(hung_s, False, None)] * n_hung
    schema = ["duration_s", "ended", "is_good"]
    return pl.DataFrame(rows, schema=schema, orient="row").with_row_index("unit")


def judged(frame, today_s, mistake="lost_run"):
    frame = frame.with_columns(system=pl.lit("lionagi"), kind=pl.lit("agent"))
    changes = {"kind": "agent", "today_s": today_s, "evidence": "runs", "mistake": mistake}
    constant = constants()[0]
    limit = constant.__class__(**{**vars(constant), **changes, "name": "timeout.agent"})
    return judge_all([limit], {"runs": frame}, sa.thresholds.Costs())[0].row


def test_a_limit_longer_than_the_data_is_lowered_where_what_was_waited_costs_more():
    row = judged(ended_and_hung(), 3 * DAY_S)
    # The waiting beyond 12 h, less the 20 h that a lost run costs, of 10 runs of 110.
    most = 3 * (HUNG_S / 3600 - 20 - 12) * 10 / 1.1
    assert (row["verdict"], row["bound_s"], row["gain"]) == ("lower", DAY_S / 2, None)
    assert 0 < row["gain_low"] < most
    assert row["in_words"].startswith("Lower 3 d to at most 12 h: this saves ")
    assert " The cheapest observed value is 1 h (1 h to " in row["in_words"]
    assert judged(ended_and_hung(), 7 * DAY_S)["gain_low"] == row["gain_low"]


@pytest.mark.parametrize(
    ("n_hung", "hung_s"),
    [
        pytest.param(2, HUNG_S, id="too few"),
        pytest.param(10, 40_000.0, id="they waited for less than they would cost"),
    ],
)
def test_open_runs_that_may_still_be_worth_their_waiting_lower_nothing(n_hung, hung_s):
    verdict = judged(ended_and_hung(n_hung, hung_s), 3 * DAY_S)["verdict"]
    assert verdict in {"cannot_tell", "not_identified"}


def test_runs_that_were_stopped_early_lower_nothing():
    """Of what was stopped at 2 h nobody knows how it would have ended."""
    stopped = ended_and_hung(40, 7200.0).with_columns(pl.col("unit") + 1000)
    frame = pl.concat([ended_and_hung(6), stopped])
    assert judged(frame, 3 * DAY_S)["verdict"] == "not_identified"


def test_a_label_waits_only_for_runs_that_do_not_end_well_so_open_ones_show_nothing():
    row = judged(ended_and_hung(), 3 * DAY_S, mistake="false_alarm")
    assert row["verdict"] == "not_identified"


@pytest.mark.parametrize("goes_on_s", [1.0, 3600.0, DAY_S, math.inf])
def test_whatever_open_runs_do_later_the_shorter_limit_saves_as_much(goes_on_s):
    today_s, shorter_s, price_s = 5 * DAY_S, 14_400.0, 72_000.0
    frame = ended_and_hung()
    rows = at_worst(frame, today_s, until_s=shorter_s, price_s=price_s)
    kept = support(rows, [shorter_s, HUNG_S - price_s])
    counts = elapsed_counts(rows, kept.candidates_s, mistake="lost_run")
    least = lowered(Losses(counts, kept, **OF_RUNS, conf_level=0.95)).gain[0]
    later = pl.when("ended").then("duration_s").otherwise(pl.col("duration_s") + goes_on_s)
    known = frame.with_columns(
        duration_s=later.clip(upper_bound=today_s),
        ended=later < math.inf,
        is_good=pl.col("is_good").fill_null(True),
    )
    sums = elapsed_counts(known, [shorter_s, today_s], mistake="lost_run").sum().row(0, named=True)
    cost = [60 * sums[f"mistakes_{place}"] + 3 * sums[f"waiting_h_{place}"] for place in (0, 1)]
    assert (cost[1] - cost[0]) / 1.1 >= least - 1e-9
    if goes_on_s == 1.0:
        assert (cost[1] - cost[0]) / 1.1 == pytest.approx(least, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "least"), [(300, 0.6), (600, 0.95)])
def test_useful_verdicts_on_limits_beyond_the_data_of_many_fleets(n, least, monkeypatch):
    """Two runs in a hundred hang, for two days and more."""
    monkeypatch.setattr("tests.generators.known_costs.OBSERVED_S", HUNG_S)
    assert true_loss(3 * DAY_S) > 1.5 * true_loss(BEST_S)
    rows = [judged(runs(n, seed), 3 * DAY_S) for seed in range(9000, 9060)]
    known = [row["bound_s"] for row in rows if row["bound_s"] is not None]
    assert {row["verdict"] for row in rows} <= {"lower", "cannot_tell", "not_identified"}
    assert len(known) >= least * len(rows)
    assert all(true_loss(to) < true_loss(3 * DAY_S) for to in known)
