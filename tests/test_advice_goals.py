"""What advice promises on fleets of known truth: useful, cheap, and kept; how many would decide.

A share of the fleets is drawn in each run of the tests, all of them where there is time.
"""

import math
from functools import cache
from statistics import median

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.thresholds.choice import Choice
from stateanalytics.thresholds.judge import _gain, judge_all
from stateanalytics.thresholds.settings import constants
from tests.generators.known_costs import runs, runs_loss
from tests.test_advice_direction import chosen, moves_to

true_loss = cache(runs_loss)
TODAY_S = (300.0, 900.0, 1800.0, 3600.0, 10_800.0, 86_400.0)
FEW, MANY = 1, pytest.param(40, marks=pytest.mark.slow)


def is_within_a_quarter(choice, today_s):
    gain = true_loss(today_s) - true_loss(choice.recommended_s)
    return abs(choice.gain - gain) <= 0.25 * gain


def promise(choice):
    """The words about a gain: a number with its range, or the range alone."""
    ends = {"gain": choice.gain, "gain_low": choice.gain_low, "gain_high": choice.gain_high}
    return _gain({**ends, "per": "100 runs"})


@pytest.mark.slow
@pytest.mark.parametrize("n_fleets", [FEW, MANY])
def test_what_is_followed_costs_no_more_than_the_best_and_gains_come_in(n_fleets):
    regrets, kept, within, numbers, ranges, wrong, n_moved = [], [], [], [], [], 0, 0
    best = min(map(true_loss, CANDIDATES_S))
    for today_s in TODAY_S:
        for n in (120, 300, 1000)[:: 1 if n_fleets > FEW else 2]:
            for seed in range(n_fleets):
                choice = chosen(runs(n, 50_000 + seed), today_s)
                to_s = moves_to(choice)
                if choice.recommended_s is not None:
                    regrets.append(true_loss(choice.recommended_s) / best)
                if to_s is None:
                    continue
                n_moved += 1
                gain = true_loss(today_s) - true_loss(to_s)
                wrong += gain <= 0
                if choice.verdict == "change":
                    within.append(is_within_a_quarter(choice, today_s))
                    if "(" in promise(choice):
                        numbers.append(within[-1])
                    else:
                        ranges.append(choice.gain_low <= gain <= choice.gain_high)
                else:  # A direction promises its lower end; that of the first value that has one.
                    kept.append(gain >= choice.gain_low)
    assert median(regrets) <= 1.05
    assert sorted(regrets)[int(0.95 * len(regrets))] <= 1.5
    assert wrong <= 0.01 * n_moved
    assert sum(kept) >= 0.88 * len(kept) - 1
    # Of all gains .88 (185 of 210), which is chance and not the choice: docs/thresholds.md.
    assert sum(within) >= 0.85 * len(within) - 1
    assert numbers and sum(numbers) >= 0.97 * len(numbers)
    assert sum(ranges) >= 0.9 * len(ranges) - 1


@pytest.mark.slow
def test_with_1500_runs_nine_of_ten_gains_are_within_a_quarter():
    frames = [runs(1500, 60_000 + seed) for seed in range(60)]
    choices = [(chosen(frame, today_s), today_s) for frame in frames for today_s in TODAY_S]
    within = [is_within_a_quarter(*pair) for pair in choices if pair[0].verdict == "change"]
    assert sum(within) >= 0.9 * len(within) >= 0.9 * 60 * 4


def test_a_number_is_promised_only_where_its_range_is_narrow():
    ends = [(40, 30, 52), (40, 30, 53), (40, 27, 50), (-4, -5, 3), (0, 0, 0)]
    words = [promise(Choice(None, "", None, 0, 0, 0, *each)).split(" min")[0] for each in ends]
    assert words == ["40 (30 to 52)", "30 to 53", "27 to 50", "at most 3", "0 (0 to 0)"]


@pytest.mark.slow
@pytest.mark.parametrize("n_fleets", [FEW * 2, MANY])
def test_as_many_more_as_are_named_would_decide(n_fleets):
    n_named, n_decided = 0, 0
    for today_s in (1800.0, 3600.0, 86_400.0):
        for n in (30, 60, 120):
            for seed in range(n_fleets):
                times = chosen(runs(n, 70_000 + seed), today_s).times
                if times is None:
                    continue
                n_named += 1
                later = chosen(runs(math.ceil(n * times), 80_000 + seed), today_s)
                n_decided += later.verdict in ("change", "raise", "lower", "keep")
    assert n_named >= n_fleets
    assert n_decided >= 0.4 * n_named - 1


def lengths(n, seed, kind):
    return runs(n, seed).with_columns(
        unit=pl.format("{}/{}", pl.lit(kind), "unit"),
        system=pl.lit("lionagi"),
        kind=pl.lit(kind),
        timeout_s=pl.lit(None, pl.Float64),
    )


def limit_of(kind, today_s):
    constant = constants()[0]
    changes = {"kind": kind, "today_s": today_s, "evidence": "runs", "mistake": "lost_run"}
    return constant.__class__(**{**vars(constant), **changes, "name": f"timeout.{kind}"})


@pytest.mark.parametrize("n", [5, 18, 40])
def test_rows_with_too_few_runs_say_how_many_it_takes_and_what_the_limit_cuts(n):
    evidence = {"runs": lengths(n, 3, "agent")}
    row = judge_all([limit_of("agent", 600.0)], evidence, sa.thresholds.Costs())[0].row
    assert row["mistakes_today"] is not None
    if row["n"] < 19:
        assert (row["verdict"], row["n_more"]) == ("not_enough_data", 19 - row["n"])
        assert "10 min" in row["in_words"]
    assert (row["n"] < 19) == (n < 40)


def test_without_a_value_of_today_59_runs_are_compared_and_not_299():
    evidence = {"runs": lengths(70, 3, "agent")}
    row = judge_all([limit_of("agent", None)], evidence, sa.thresholds.Costs())[0].row
    assert row["verdict"] in ("choose", "cannot_tell")
    assert row["n_needed"] == 299 and row["healthy_upper_s"] is None
