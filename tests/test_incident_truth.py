"""Incidents against weeks whose truth is known: one an outage, and chance is none."""

from datetime import timedelta
from itertools import pairwise, product
from random import Random
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stateanalytics.core.windows import Window
from stateanalytics.failures.incident_grouping import (
    BURSTS,
    LINKS,
    add_incidents,
    members_within,
    members_within_each,
)
from stateanalytics.stats.distributions import gamma_cdf
from tests.examples import a_few, examples
from tests.outages import (
    BY_DAY,
    DISK,
    LIMIT,
    MANY,
    MONDAY,
    NETWORK,
    RHYTHMS,
    WEEK_S,
    false_links,
    fan_outs,
    independent,
    n_incidents,
    outage,
    retries,
    week,
)

MINUTE, HOUR = 60.0, 3600.0
ODD = [{"template": "odd"}]
OUTAGES = [*product((40, 200, 400), (10 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR))]


def seeds(n, first=0):
    return [Random(seed) for seed in range(first, first + n)]


def own(draw, n=20):
    return independent(draw, n, BY_DAY, MANY)


def incidents_a_fault(parts, n=12):
    """The mean number of incidents of what is one fault, among twenty independent failures."""
    weeks = [week(own(draw), parts(draw)) for draw in seeds(n)]
    return mean(n_incidents(rows.filter(~pl.col("fault").str.starts_with("own"))) for rows in weeks)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seconds"), a_few(OUTAGES, 4))
def test_an_outage_of_any_length_is_one_incident(n, seconds):
    assert 1 <= incidents_a_fault(lambda draw: outage(draw, n, seconds)) <= 1.2


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [DISK, NETWORK])
@pytest.mark.parametrize("seconds", a_few([10 * MINUTE, HOUR, 6 * HOUR]))
def test_four_wordings_of_one_fault_are_one_incident(kinds, seconds):
    assert incidents_a_fault(lambda draw: outage(draw, 40, seconds, kinds)) <= 1.2


@pytest.mark.slow
@pytest.mark.parametrize(("n_own", "n", "seconds", "most"), a_few([
    (20, 40, 10 * MINUTE, 0.01), (20, 200, 3 * HOUR, 0.01), (20, 40, 6 * HOUR, 0.02),
    (100, 40, 10 * MINUTE, 0.01), (100, 200, 6 * HOUR, 0.01), (100, 40, 3 * HOUR, 0.04),
    (500, 200, HOUR, 0.01), (500, 400, 6 * HOUR, 0.01), (3000, 200, 10 * MINUTE, 0.01),
], 2))  # fmt: skip
def test_what_the_same_cluster_fails_outside_of_the_outage_stays_apart(n_own, n, seconds, most):
    weeks = [week(independent(draw, n_own, BY_DAY), outage(draw, n, seconds)) for draw in seeds(20)]
    assert mean(n_incidents(rows, "outage") for rows in weeks) <= 1.2
    links, failures = zip(*map(false_links, weeks), strict=True)
    assert sum(links) <= most * sum(failures)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [[LIMIT], MANY])
@pytest.mark.parametrize(("n", "rhythm"), a_few([*product((20, 100, 500, 3000), RHYTHMS)], 4))
def test_independent_failures_stay_apart_whatever_the_hours(n, rhythm, kinds):
    draws = seeds(max(4, min(30, 4_000 // n)))
    weeks = [week(independent(draw, n, RHYTHMS[rhythm], kinds)) for draw in draws]
    links, failures = zip(*map(false_links, weeks), strict=True)
    assert sum(links) <= 0.01 * sum(failures)


@pytest.mark.parametrize("hours", a_few([1, 3, 6]))
def test_three_outages_of_a_week_are_three_incidents(hours):
    def three(draw):
        days = {f"{day}": day * 86_400 + 9e4 for day in (0, 2, 4)}
        each = [outage(draw, 40, hours * HOUR, fault=day, begins=at) for day, at in days.items()]
        return [row for rows in each for row in rows]

    assert 3 <= incidents_a_fault(three) <= 3.6


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10 * MINUTE, 3 * HOUR])
def test_two_faults_at_once_are_two_incidents(seconds):
    def two(draw):
        limit = [{**LIMIT, "provider": "p"}]
        rows = [*outage(draw, 40, seconds, DISK, fault="disk", begins=2e5)]
        return [*rows, *outage(draw, 40, seconds, limit, fault="limit", begins=2e5)]

    assert 2 <= incidents_a_fault(two) <= 2.4


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [[LIMIT], DISK, ODD])
@pytest.mark.parametrize("waits", a_few([[60 * 2**i for i in range(6)], [300] * 3, [600] * 2], 2))
def test_retries_of_one_task_are_one_incident(waits, kinds):
    assert incidents_a_fault(lambda draw: retries(draw, waits, kinds)) == 1


def test_three_tries_of_a_fan_out_are_one_incident():
    assert incidents_a_fault(lambda draw: fan_outs(draw, 3, 25 * MINUTE)) == 1


@pytest.mark.parametrize("tried", [
    lambda draw: retries(draw, [60 * 2**i for i in range(6)]),
    lambda draw: fan_outs(draw, 3, 25 * MINUTE),
])  # fmt: skip
def test_retries_are_found_by_their_task_where_the_cluster_always_fails(tried):
    weeks = [week(independent(draw, 500, BY_DAY), tried(draw)) for draw in seeds(4)]
    truth = ~pl.col("fault").str.starts_with("own")
    assert all(n_incidents(rows.filter(truth)) == 1 for rows in weeks)
    # Without a name and a directory nothing shows that they are one task.
    draw = Random(1)
    rows = [{**row, "name": None, "directory": None} for row in tried(draw)]
    assert n_incidents(week(independent(draw, 500, BY_DAY), rows).filter(truth)) > 1


def test_the_limits_are_quantiles_of_gamma_distributions():
    chances = [round(gamma_cdf(limit, n), 5) for n, limit in BURSTS.items()]
    assert chances == pytest.approx([0.008, 0.0017, *[0.00015] * 4], rel=0.1)


@pytest.mark.slow
@given(
    times=st.lists(st.floats(0, WEEK_S - 1), min_size=1, max_size=40),
    kinds=st.lists(st.integers(0, len(MANY) - 1), min_size=40, max_size=40),
    draw=st.randoms(use_true_random=False),
)
@examples(80)
def test_incidents_are_the_same_in_any_order(times, kinds, draw):
    """Each incident is of two pieces of work at least, and of rows that a link joins."""
    rows = [
        {**MANY[kind], "at": round(at), "fault": str(i)}
        for i, (at, kind) in enumerate(zip(sorted(set(map(round, times))), kinds, strict=False))
    ]
    found = week(rows)
    shuffled = week(draw.sample(rows, len(rows)))

    def groups(frame):
        named = frame.drop_nulls("incident_id").group_by("incident_id").agg("fault")
        return {frozenset(faults) for faults in named["fault"]}

    assert groups(shuffled) == groups(found)
    assert all(len(faults) > 1 for faults in groups(found))


@given(
    times=st.lists(st.floats(0, WEEK_S - 1), max_size=40),
    kinds=st.lists(st.integers(0, len(MANY) - 1), min_size=40, max_size=40),
    ends=st.lists(st.integers(0, 9), min_size=2, max_size=8),
)
@examples(60)
def test_windows_in_one_pass_have_the_incidents_of_each_alone(times, kinds, ends):
    """Whether they overlap, are empty, or hold everything."""
    rows = week([
        {**MANY[kind], "at": at, "fault": str(i), "request": str(kind)}
        for i, (at, kind) in enumerate(zip(times, kinds, strict=False))
    ])  # fmt: skip
    day = timedelta(days=1)
    windows = [
        Window(MONDAY + min(pair) * day, MONDAY + (max(pair) + 1) * day, "days")
        for pair in pairwise(ends)
    ]
    as_of = MONDAY + 20 * day
    together = members_within_each(rows, windows, as_of, {})
    for window in windows:
        alone = members_within(rows, window, as_of, {})
        seconds = (window.until - window.since).total_seconds()
        own = add_incidents(rows.filter(window.holds("failed_at")), span_s=seconds)
        same = [name for name in alone.columns if not name.startswith("by_")]
        assert_frame_equal(together[window][same], alone[same])
        assert_frame_equal(alone[same], own[same])
        for name in LINKS:  # numbers of bursts differ, not who shares one
            first = pl.int_range(pl.len()).first().over(f"by_{name}")
            assert_frame_equal(together[window].select(first), alone.select(first))


def test_a_store_has_the_same_incidents_whoever_else_is_in_the_report():
    """Five failures in 20 minutes, all that a new store holds, and one of an older store."""
    new = week([{**LIMIT, "at": 300.0 * i, "fault": "new"} for i in range(5)])
    old = week([{**ODD[0], "at": WEEK_S, "fault": "old"}]).with_columns(source=pl.lit("old"))
    month = Window(MONDAY - timedelta(28), MONDAY + timedelta(14), "weeks")
    as_of = MONDAY + timedelta(minutes=20)
    begins = {new["source"][0]: MONDAY, "old": month.since}
    alone = members_within(new, month, as_of, begins)
    together = members_within(pl.concat([new, old]), month, as_of, begins)
    assert (n_incidents(alone), n_incidents(together, "new")) == (5, 5)
    # Where the store was observed for weeks, five in 20 minutes are one.
    assert n_incidents(members_within(new, month, as_of, {})) == 1
