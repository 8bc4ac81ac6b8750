"""A limit trial: who goes on, for how long, what it costs; and which limit is today's."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.systems.lionagi.constants import time_limit
from stateanalytics.thresholds.costs import Costs
from stateanalytics.thresholds.evidence import time_limits
from stateanalytics.thresholds.judge import judge
from stateanalytics.thresholds.trial import ENOUGH
from tests.examples import examples
from tests.failures import run, store
from tests.frames import ago


@pytest.fixture(scope="module")
def advice(demo):
    return sa.thresholds.recommend(demo)


@pytest.fixture(scope="module")
def trial(advice):
    return sa.thresholds.plan_trial(advice, "phantom", share=0.05)


@pytest.mark.slow
def test_a_trial_lasts_until_enough_got_beyond(advice, trial):
    row = advice.frame.row(by_predicate=pl.col("name") == "phantom", named=True)
    assert row["verdict"] == "not_identified"
    assert trial.from_s == row["reached_s"]
    assert trial.to_s >= 4 * trial.from_s
    a_week = row["n"] / advice.n_weeks * 0.05 * row["outlasting"]
    assert trial.n_beyond == pytest.approx(trial.weeks * a_week)
    assert trial.n_beyond >= ENOUGH > trial.n_beyond - a_week
    hours = (trial.to_s - trial.from_s) / 3600
    assert trial.cost == pytest.approx(trial.n_beyond * hours * advice.costs.undetected_hour)


@pytest.mark.slow
def test_what_stands_for_a_larger_fleet_gets_beyond_in_a_shorter_time(advice, trial):
    of_ten = replace(advice, n_sessions=10 * advice.n_sessions_drawn)
    planned = sa.thresholds.plan_trial(of_ten, "phantom", share=0.05, weeks=trial.weeks)
    assert planned.n_beyond == pytest.approx(10 * trial.n_beyond)


def test_those_that_a_limit_stopped_would_get_beyond_it_too():
    """700 of 1,012 come to 900 s and are stopped there: as many more than the 12 as that."""
    lengths = [(100.0, True)] * 300 + [(900.0, False)] * 700 + [(2000.0, True)] * 12
    runs = pl.DataFrame(lengths, schema=["duration_s", "ended"], orient="row").with_columns(
        unit=pl.int_range(pl.len()), system=pl.lit("lionagi"), kind=pl.lit("agent"), is_good=True
    )
    row = judge(time_limit("agent", 900.0), runs, Costs()).row
    assert (row["n"], row["reached_s"]) == (312, 1800.0)
    assert row["outlasting"] * row["n"] == pytest.approx(712)


def test_the_snippet_draws_the_share_that_was_asked_for_and_always_the_same(trial):
    held = {}
    exec(compile(trial.snippet, "trial.py", "exec"), held)
    limits = [held["limit_s"](f"invocation {n}") for n in range(4000)]
    assert set(limits) == {3600.0, trial.to_s}
    assert limits.count(trial.to_s) / 4000 == pytest.approx(0.05, abs=0.012)
    assert limits[:9] == [held["limit_s"](f"invocation {n}") for n in range(9)]


def test_it_says_who_goes_on_and_what_that_tells(advice, trial):
    assert re.fullmatch(
        r"phantom: let a random 5 % of invocations go on to 12 h for \d+ weeks\. About 30 get "
        r"beyond 3 h, which costs at most [\d,]+ min of attention, and tells what share of them "
        r"goes on to end well to within 18 points\.",
        trial.in_words,
    )
    assert "trial.snippet" in repr(trial)
    short = sa.thresholds.plan_trial(advice, "phantom", weeks=1, to_s=14_400)
    assert "for 1 week. " in short.in_words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"advice": 5}, "plan_trial needs advice; found int"),
        ({"name": "fantom"}, "nothing to plan for 'fantom'"),
        ({"name": "stale.flow"}, "nothing to plan for 'stale.flow'"),
        ({"share": 0}, "share is a share between 0 and 1; found 0"),
        ({"weeks": 0}, "weeks needs a whole number from 1; found 0"),
        ({"to_s": 60}, "to_s needs a number above 10800; found 60"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(advice, asked, words):
    given = {"advice": advice, "name": "phantom", **asked}
    with pytest.raises(ArgumentError, match=words):
        sa.thresholds.plan_trial(given.pop("advice"), given.pop("name"), **given)


def limits_of(runs):
    """Rows of (limit, declared or inferred, duration) as `timeouts` and `runs` give them."""
    frame = pl.DataFrame(runs, schema=["limit_s", "limit_from", "duration_s"], orient="row")
    named = frame.with_columns(system=pl.lit("any"), kind=pl.lit("flow"))
    return time_limits(named.filter(pl.col("limit_s").is_not_null()), named).row(0)[2:]


def test_todays_limit_is_that_which_stops_most_of_those_who_come_so_far():
    """15 min stops more runs than 30 min, because hardly any run comes to 30 min."""
    short = [(900.0, "inferred", 900.2)] * 7
    long = [(1800.0, "inferred", 1800.1)] * 6
    others = [(None, None, 300.0)] * 80 + [(None, None, 1000.0)] * 50 + [(None, None, 7000.0)] * 2
    assert limits_of([*short, *long, *others]) == (1800.0, True, True)
    assert limits_of([*short[:4], *long, *others]) == (1800.0, True, False)


def test_declared_limits_count_wherever_their_runs_ended():
    declared = [(600.0, "checkpoint", 60.0)] * 20 + [(1200.0, "checkpoint", 60.0)]
    inferred = [(900.0, "inferred", 900.0)] * 9
    assert limits_of([*declared, *inferred]) == (600.0, False, False)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, 10.0, 20.0, 30.0]), st.booleans(),
            st.sampled_from([5.0, 9.0, 9.5, 10.0, 19.0, 19.2, 29.0, 29.0, 40.0]),
        ),
        max_size=30,
    )
)  # fmt: skip
@examples(60)
def test_limits_are_those_of_the_slow_loop(rows):
    runs = [
        (limit, "inferred" if is_inferred else "metadata", length)
        for limit, is_inferred, length in rows
    ]
    shares = {False: {}, True: {}}
    for is_inferred, word in ((False, "metadata"), (True, "inferred")):
        left = 1.0
        for limit in sorted({row[0] for row in runs if row[0] and row[1] == word}):
            n = sum(row[:2] == (limit, word) for row in runs)
            n_left = sum(row[2] >= limit - 1 for row in runs)
            stopped = min(1.0, n / n_left) if n_left else 1.0
            shares[is_inferred][limit] = stopped * left if is_inferred else n / len(runs)
            left *= 1 - stopped
    found = next((kind for kind in (False, True) if shares[kind]), None)
    if found is None:
        return
    best = max(shares[found], key=lambda limit: (shares[found][limit], -limit))
    is_mixed = sum(share >= 0.1 for share in shares[found].values()) > 1
    assert limits_of(runs) == (best, found, is_mixed)


def test_as_many_limits_as_runs_take_no_square_of_time_or_memory():
    n = 40_000
    assert limits_of([(float(i), "metadata", float(i)) for i in range(1, n)]) == (1.0, False, False)


def test_one_start_of_1970_does_not_stretch_a_trial():
    weeks = [run(f"w{week}", ended=ago(days=7 * week + 1), status="completed") for week in range(8)]
    usual = sa.thresholds.recommend(store(*weeks)).n_weeks
    old = run("old", status="completed", ended=datetime(1970, 1, 2, tzinfo=UTC))
    stretched = sa.thresholds.recommend(store(*weeks, old)).n_weeks
    assert usual == pytest.approx(7.1, abs=0.1)
    assert usual < stretched <= 9
