"""One week against the one before: planted regressions are found, chance is not."""

import math
from datetime import timedelta
from random import Random

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.stats.bursts import burst_number
from stateanalytics.survival.jackknife import with_units
from stateanalytics.survival.period_change import (
    PERIODS,
    RATES,
    VERDICTS,
    _durations,
    _rates,
    two_windows,
)
from tests.examples import some_of
from tests.failures import LIMIT, run
from tests.frames import AS_OF, DONE, FAILED, RUNNING, TIMED_OUT, ago, facts, states_of
from tests.generators.distributions import log_normal
from tests.outages import outage, poisson

WEEK = ("2026-05-20", "2026-05-27")


def week_of(n, *, days_ago, median_s=600.0, state=DONE, agent="coder", seed=1, **columns):
    """Sessions spread over one week, with log-normal durations."""
    lengths = pl.select(row=pl.int_range(n, dtype=pl.UInt64)).select(
        log_normal(pl.col("row"), seed, agent, median=median_s, sigma=0.5)
    )
    rows = []
    for i, seconds in enumerate(lengths.to_series()):
        started = ago(days=days_ago, hours=-2 - i * 150 / n)
        ended = started + (ago() - ago(seconds=seconds))
        rows.append(({"started_at": started, "ended_at": ended, "agent": agent, **columns}, state))
    return rows


def changed(rows, **asked):
    given = facts([{"entity_id": f"s{i}", **row} for i, (row, _) in enumerate(rows)])
    states = states_of(given, [state for _, state in rows])
    return sa.survival.duration_change(given, WEEK, states=states, **{"by": "agent", **asked})


def of(table, measure, value="coder"):
    return table.filter(measure=measure, value=value).row(0, named=True)


def test_an_agent_that_takes_twice_as_long_is_named():
    slower = week_of(60, days_ago=14) + week_of(60, days_ago=7, median_s=1200.0, seed=2)
    steady = week_of(60, days_ago=14, agent="tester", seed=3) + week_of(
        60, days_ago=7, agent="tester", seed=4
    )
    table = changed(slower + steady)
    found = of(table, "duration")
    assert found["verdict"] == "worse"
    assert found["ratio_low"] < 2 < found["ratio_high"]
    assert found["before"] == pytest.approx(600, rel=0.25)
    assert of(table, "duration", "tester")["verdict"] == "no_difference"
    assert table["verdict"][0] == "worse"
    assert found["in_words"].startswith("agent coder: median time to complete ")
    assert f" (on average {round(found['ratio'], 2)} times, " in found["in_words"]


def test_an_agent_that_fails_sooner_is_not_faster():
    """A quota that ends twelve runs after six minutes makes nobody's work quicker."""
    rows = (
        week_of(36, days_ago=14, median_s=1500.0)
        + week_of(4, days_ago=14, median_s=1500.0, state=FAILED, seed=2)
        + week_of(18, days_ago=7, median_s=1500.0, seed=3)
        + week_of(22, days_ago=7, median_s=360.0, state=FAILED, seed=4)
    )
    table = changed(rows)
    assert of(table, "failed")["verdict"] == "worse"
    assert of(table, "duration")["verdict"] == "no_difference"


def test_an_agent_that_fails_more_often_is_named():
    rows = (
        week_of(60, days_ago=14)
        + week_of(5, days_ago=14, state=FAILED, seed=2)
        + week_of(40, days_ago=7, seed=3)
        + week_of(40, days_ago=7, state=FAILED, seed=4)
    )
    found = of(changed(rows), "failed")
    assert (found["n_before"], found["n_now"], found["verdict"]) == (5, 40, "worse")
    assert found["ratio"] == pytest.approx(found["now"] / found["before"])
    assert found["ratio_low"] > 1


def test_fewer_completions_are_worse_and_more_are_better():
    rows = week_of(100, days_ago=14, median_s=300.0) + week_of(100, days_ago=7, median_s=900.0)
    assert of(changed(rows), "completed")["verdict"] == "worse"
    turned = week_of(100, days_ago=14, median_s=900.0) + week_of(100, days_ago=7, median_s=300.0)
    table = changed(turned)
    assert of(table, "completed")["verdict"] == "better"
    assert of(table, "duration")["verdict"] == "better"


def test_timeouts_are_a_rate_of_their_own_and_no_failure():
    rows = (
        week_of(60, days_ago=14)
        + week_of(30, days_ago=7)
        + week_of(30, days_ago=7, state=TIMED_OUT, seed=5)
    )
    table = changed(rows)
    timed_out = of(table, "timed_out")
    assert timed_out["verdict"] == "worse"
    assert timed_out["ratio"] is None  # none before: only a lower end is known
    assert f" (at least {round(timed_out['ratio_low'], 2)} times; q " in timed_out["in_words"]
    assert of(table, "failed")["verdict"] == "not_enough_data"
    assert of(table, "failed")["n_now"] == 0


def test_the_same_twice_is_no_difference():
    table = changed(week_of(80, days_ago=14) + week_of(80, days_ago=7))
    assert set(table["verdict"]) <= {"no_difference", "not_enough_data"}


def test_chance_alone_is_seldom_a_finding():
    """30 agents that did not change: at most a few of 120 tests, by Benjamini and Hochberg."""
    rows = [
        row
        for i in range(30)
        for days_ago in (14, 7)
        for row in week_of(20, days_ago=days_ago, agent=f"agent {i}", seed=100 * i + days_ago)
    ]
    table = changed(rows)
    assert table.filter(pl.col("verdict").is_in(["worse", "better"])).height <= 3
    assert (table["q_value"].drop_nulls() >= table["p_value"].drop_nulls()).all()


def test_few_runs_are_not_compared():
    table = changed(week_of(4, days_ago=14) + week_of(90, days_ago=7))
    assert set(table["verdict"]) == {"not_enough_data"}
    assert table["q_value"].to_list() == [None] * table.height
    assert table["in_words"].str.ends_with("(not enough data to compare)").all()


def test_only_one_of_the_weeks_has_runs():
    table = changed(week_of(20, days_ago=7))
    assert of(table, "duration")["n_before"] == 0
    assert set(table["verdict"]) == {"not_enough_data"}


def test_nothing_at_all():
    assert changed([]).is_empty()


def test_runs_without_the_value_are_in_no_group_but_in_all():
    rows = week_of(10, days_ago=14, agent="x") + week_of(10, days_ago=7, agent="x")
    unnamed = [({**row, "agent": None}, state) for row, state in rows]
    table = changed(unnamed)
    assert table["dimension"].unique().to_list() == ["all"]
    assert table["value"].null_count() == table.height


def test_both_weeks_are_watched_for_equally_long():
    """What went on after its week is cut off there, in the week before as in this one."""
    rows = [
        ({"started_at": ago(days=8), "ended_at": ago(days=2)}, DONE),
        ({"started_at": ago(days=1)}, RUNNING),
    ]
    given = facts([{"entity_id": f"s{i}", **row} for i, (row, _) in enumerate(rows)])
    both = two_windows(given, WEEK, states=states_of(given, [DONE, RUNNING]))
    assert both.select("period", "duration_s", "cut_off_by", "ending").rows() == [
        ("before", 86_400.0, "window_end", "running"),
        ("now", 86_400.0, "as_of", "running"),
    ]
    assert ago() == AS_OF


def test_several_dimensions_and_their_values():
    rows = week_of(20, days_ago=14, model="m") + week_of(20, days_ago=7, model="m")
    table = changed(rows, by=["agent", "model"])
    assert table.select("dimension", "value").unique().sort("dimension").rows() == [
        ("agent", "coder"),
        ("all", None),
        ("model", "m"),
    ]
    assert table["verdict"].is_in(list(VERDICTS)).all()
    assert not any(math.isnan(q) for q in table["q_value"].drop_nulls())


def groups(draw, n_units, size, sd, icc, *, times=1.0, sizes=None):
    """Runs of two weeks whose invocations take alike long and fail alike often."""
    rows = []
    for period in PERIODS:
        for unit in range(n_units):
            work = math.exp(draw.gauss(0, sd)) * (times if period == "now" else 1)
            odds = 1 / icc - 1 if icc else None
            fails = draw.betavariate(0.2 * odds, 0.8 * odds) if odds else 0.2
            for _ in range(draw.choice(sizes) if sizes else size):
                took = 600 * work * math.exp(draw.gauss(0, 0.8))
                ending = "failed" if draw.random() < fails else "completed"
                if took > 3600:
                    took, ending = 3600.0, "timed_out"
                rows.append((f"{period}{unit}", period, took, draw.random() > 0.03, ending))
    names = ["unit", "period", "duration_s", "ended", "ending"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        dimension=pl.lit("all"), value=pl.lit(None, pl.String)
    )


def p_values(runs):
    """Of each measure."""
    found = pl.concat([_durations(runs, 0.95), _rates(runs, 0.95, 5)])
    return dict(found.select("measure", "p_value").iter_rows())


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        pytest.param((10, 24, 0.0, 0.0), id="10 of 24 that are not alike"),
        pytest.param((10, 24, 0.5, 0.1), id="10 of 24"),
        pytest.param((20, 24, 1.0, 0.3), id="20 of 24"),
        pytest.param((60, 8, 0.5, 0.5), id="60 of 8"),
        pytest.param((200, 1, 0.0, 0.0), id="each alone"),
        pytest.param((30, 0, 0.5, 0.1, [1, 1, 2, 4, 24]), id="uneven"),
    ],
)
@pytest.mark.parametrize("seed", [20_871, 555])
def test_at_most_one_null_week_in_twenty_differs_at_5_percent(design, seed):
    """However alike the runs of an invocation are; room for three deviations of 150 weeks."""
    draw, n = Random(seed), 150
    found = dict.fromkeys(("duration", *RATES), 0)
    for _ in range(n):
        runs = groups(draw, *design[:4], sizes=design[4] if len(design) > 4 else None)
        for measure, p in p_values(runs).items():
            found[measure] += p is not None and p < 0.05
    assert all(n_false / n <= 0.05 + 0.053 for n_false in found.values()), found


@pytest.mark.slow
def test_twice_as_long_is_found_though_runs_are_alike():
    """Twenty invocations of 24 a week that vary by half: power is not thrown away."""
    draw, n = Random(8_086), 100
    found = [p_values(groups(draw, 20, 24, 0.5, 0.1, times=2.0))["duration"] for _ in range(n)]
    assert sum(p < 0.05 for p in found) / n >= 0.8


def test_the_runs_of_one_show_are_one_unit():
    plays = [
        {"entity_type": "play", "entity_id": f"p{i}", "session_id": f"s{i}",
         "parent_type": "show", "parent_id": "show"}
        for i in range(2)
    ]  # fmt: skip
    runs = [{"entity_id": f"s{i}", "started_at": ago(hours=2), "ended_at": ago(hours=1)}
            for i in range(3)]  # fmt: skip
    given = facts([*plays, *runs])
    found = sa.survival.spells(given, states=states_of(given, [DONE] * 5))
    assert found["show_id"].to_list() == ["show", "show", None]
    assert with_units(found)["unit"].n_unique() == 2


def test_a_window_with_one_invocation_is_not_compared():
    lone = [({**row, "invocation_id": "one"}, state) for row, state in week_of(30, days_ago=7)]
    table = changed(week_of(60, days_ago=14) + lone)
    assert table["verdict"].unique().to_list() == ["not_enough_data"]


def weeks_with_outages(draw, hours):
    """Two weeks alike, each with outages of 20 runs in one project, one or two on average."""
    rows = []
    for week in range(2):
        since = ago(days=7 * (week + 1))
        failures = [
            (since + timedelta(seconds=each["at"]), LIMIT.format(n), project)
            for n in range(poisson(draw, 1.5))
            for project in [f"p{draw.randrange(4)}"]
            for each in outage(draw, 20, hours * 3600)
        ]
        for _ in range(poisson(draw, 150)):
            message = (
                f"No module named '{draw.choice('abcdef') * 4}'" if draw.random() < 0.08 else None
            )
            moment = since + timedelta(days=7 * draw.random())
            failures.append((moment, message, f"p{draw.randrange(4)}"))
        rows += [
            run(f"{week}-{i}", status="failed" if message else "completed", ended=moment,
                reason_message=message, provider="x", project=project, agent=draw.choice("ab"))
            | {"started_at": moment - timedelta(seconds=600 * math.exp(draw.gauss(0, 0.7)))}
            for i, (moment, message, project) in enumerate(failures)
        ]  # fmt: skip
    return facts(rows)


def weeks_of_one_project(draw, hours, per_week=100):
    """Two weeks alike; outages, one a week on average, in which runs of one project fail."""
    outages = [(7 * (week + draw.random()), draw.randrange(4))
               for week in range(2) for _ in range(poisson(draw, 1))]  # fmt: skip
    rows = []
    for i in range(2 * per_week):
        days_ago, project, took = (
            14 * draw.random(),
            draw.randrange(4),
            math.exp(draw.gauss(0, 0.8)),
        )
        message = f"the {'abcdef'[i % 6] * 5} service is down" if draw.random() < 0.08 else None
        if any(0 <= days_ago - at <= hours / 24 and project == of for at, of in outages):
            message, took = LIMIT.format(i), 0.05
        row = run(f"{i}", status="failed" if message else "completed", ended=ago(days=days_ago),
                  reason_message=message, project=f"p{project}", agent="abc"[i % 3])  # fmt: skip
        rows.append({**row, "started_at": row["ended_at"] - timedelta(seconds=600 * took)})
    return facts(rows)


def is_in_bursts(places, n):
    frame = pl.DataFrame({"place": sorted(places)})
    return frame.select(burst_number(pl.col("place"), pl.lit(n)))["place"].n_unique() < len(places)


def test_failures_of_every_run_are_no_burst():
    assert not any(is_in_bursts(range(1, n + 1), n) for n in (2, 20, 150, 1_000))


@pytest.mark.parametrize(("n", "of"), [(3, 60), (5, 200), (20, 300), (300, 6_000), (500, 10_000)])
def test_failures_at_random_are_seldom_in_bursts_and_those_of_outages_are(n, of):
    """At most 6 in 100 by chance; room for three deviations."""
    draw, all_runs = Random(n), range(1, of + 1)
    chance = sum(is_in_bursts(draw.sample(all_runs, n), of) for _ in range(150))
    assert chance <= 150 * 0.06 + 3 * (150 * 0.06 * 0.94) ** 0.5
    long = of // 5 if n > 3 else 6
    starts = [draw.randrange(of - long) for _ in range(40)]
    found = sum(is_in_bursts(draw.sample(range(at + 1, at + long + 1), n), of) for at in starts)
    assert found >= 34


@pytest.mark.slow
@pytest.mark.parametrize("hours", [1 / 6, 3, 48])
@pytest.mark.parametrize("weeks", [weeks_of_one_project, weeks_with_outages])
def test_outages_make_at_most_one_table_in_twenty_wrong(weeks, hours):
    """Measured: 2 to 6 of 100; room for three deviations."""
    draw, n = Random(f"{hours} hours"), some_of(120, 2)
    fleets = [weeks(draw, hours) for _ in range(n)]
    changed = [(sa.survival.duration_change(one)["q_value"] <= 0.05).any() for one in fleets]
    lifted = [sa.failures.lift(one)["is_over_represented"].any() for one in fleets]
    assert max(sum(changed), sum(lifted)) <= 0.05 * n + 3 * (0.05 * 0.95 * n) ** 0.5
