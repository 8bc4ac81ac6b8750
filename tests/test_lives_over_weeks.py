"""What lives say of failures whose rates are known, week by week: how soon, and how often wrong.

The generator knows rates and weeks, and nothing of the rules: counts of a week are Poisson's, or
gamma's mixture of them where ``spread`` is above 0, and moments are uniform in it.
"""

from datetime import timedelta
from random import Random

import pytest

from stateanalytics.core.windows import Window
from stateanalytics.failures.cluster_life import count_lives
from stateanalytics.failures.failure_rows import cluster_id, find_members, judged_rows, placed_runs
from stateanalytics.failures.incident_grouping import members_within
from stateanalytics.failures.weekly_change import all_periods, growth
from tests.examples import some_of
from tests.failures import run, store
from tests.frames import AS_OF

WEEK = timedelta(days=7)
MESSAGES = {
    "disk": "ENOSPC: no space left on device, write",
    "login": "OAuth token has expired, please run /login",
    "import": "ModuleNotFoundError: No module named 'tomlkit'",
    "merge": "CONFLICT (content): Merge conflict in uv.lock",
    "rate": "API Error: 429 rate limit exceeded",
    "socket": "getaddrinfo ENOTFOUND registry.example.org",
}
STEADY = {"login": 6.0, "import": 4.0, "merge": 2.0, "rate": 12.0, "socket": 0.7}


def count_of(draw, mean, spread):
    """A count of a week: Poisson's by waiting times, at a rate that varies by ``spread``."""
    rate = mean * draw.gammavariate(1 / spread, spread) if spread else mean
    n, at = 0, draw.expovariate(1)
    while at < rate:
        n, at = n + 1, at + draw.expovariate(1)
    return n


def fleet(draw, rates, n_weeks, *, spread=0.0, n_well=175):
    """Runs of weeks up to as-of; ``rates`` has a number a week, or a function of the week."""
    rows = []
    for week in range(n_weeks):
        since = AS_OF - (n_weeks - week) * WEEK
        counts = {None: count_of(draw, n_well, 0.0)}
        for name, rate in rates.items():
            counts[name] = count_of(draw, rate(week) if callable(rate) else rate, spread)
        rows += [
            run(
                f"{name}{week}-{place}",
                status="failed" if name else "completed",
                ended=since + draw.random() * WEEK,
                reason_message=MESSAGES.get(name, name),
            )
            for name, n in counts.items()
            for place in range(n)
        ]
    return rows


def judged(rows):
    """Members and ended runs of these rows."""
    facts = store(*rows)
    every = judged_rows(facts, None)
    return find_members(facts, rows=every), placed_runs(every)


def told(rows, weeks, n_weeks, **asked):
    """The states of all clusters in each of these weeks, by their first message."""
    members, ended = judged(rows)
    names = {cluster_id(None, text): name for name, text in MESSAGES.items()}
    found = []
    for week in weeks:
        since = AS_OF - (n_weeks - week) * WEEK
        lives = count_lives(members, ended, Window(since, since + WEEK, ""), as_of=AS_OF, **asked)
        found.append(
            {names.get(row["cluster_id"], row["template"]): row for row in lives.to_dicts()}
        )
    return found


def states(rows, weeks, n_weeks, name="disk", **asked):
    """The state of one failure in each of these weeks."""
    return [found[name]["state"] if name in found else None
            for found in told(rows, weeks, n_weeks, **asked)]  # fmt: skip


def first_told(draw, rate, since, n_weeks):
    """The first week from ``since`` on in which the failure is growing, counted from 1."""
    rows = fleet(draw, {**STEADY, "disk": rate}, n_weeks, n_well=draw.choice([150, 200]))
    found = states(rows, range(since, n_weeks), n_weeks)
    return found.index("growing") + 1 if "growing" in found else n_weeks


def risen(low, high):
    return lambda week: low if week < 20 else high


def on_and_off(week):
    return 5.0 if week // 3 % 2 == 0 else 0.0


def fixed_for_12_weeks(week):
    return 0.0 if 10 <= week < 22 else 5.0


REWORDED = "write failed: no space left on device (ENOSPC)"


def reworded(draw, at, n_weeks, text=REWORDED):
    """A failure whose message has other words from an upgrade on."""
    upgrade = AS_OF - (n_weeks - at) * WEEK
    rows = fleet(draw, {**STEADY, "disk": 8.0}, n_weeks)
    return [
        {**row, "reason_message": text}
        if row["reason_message"] == MESSAGES["disk"] and row["ended_at"] >= upgrade
        else row
        for row in rows
    ]


@pytest.mark.slow
def test_what_comes_and_goes_is_said():
    rows = fleet(Random(1), {"login": 6.0, "disk": on_and_off}, 19)
    assert states(rows, (6, 12, 15, 18), 19) == ["back", "flapping", "quiet", "flapping"]


@pytest.mark.slow
def test_what_was_fixed_is_gone_and_then_back():
    rows = fleet(Random(2), {**STEADY, "disk": fixed_for_12_weeks}, 24)
    assert states(rows, (9, 12, 21, 22), 24) == ["ongoing", "gone", "gone", "back"]


@pytest.mark.slow
def test_what_is_said_in_other_words_is_renamed_and_neither_new_nor_gone():
    before, week, after = told(reworded(Random(0), 12, 14), (11, 12, 13), 14)
    assert before["disk"]["state"] == "ongoing" and REWORDED not in before
    assert (week["disk"]["state"], week[REWORDED]["state"]) == ("renamed", "renamed")
    assert week[REWORDED]["renamed_from"] == cluster_id(None, MESSAGES["disk"])
    assert week["disk"]["renamed_to"] == cluster_id(None, REWORDED)
    assert (after["disk"]["state"], after[REWORDED]["state"]) == ("renamed", "ongoing")
    assert after["disk"]["renamed_from"] is None


@pytest.mark.slow
def test_another_failure_that_begins_as_one_ends_is_new():
    text = "RuntimeError: no candidate passed the gate"
    [week] = told(reworded(Random(0), 12, 14, text), (12,), 14)
    assert (week["disk"]["state"], week[text]["state"]) == ("gone", "new")


def test_a_week_that_is_not_over_has_nothing_gone_for_its_future():
    rows = fleet(Random(3), {"disk": 6.0}, 10)
    members, ended, since = *judged(rows), AS_OF - timedelta(hours=8)
    window = Window(since, since + WEEK, "")
    [half] = count_lives(members.filter(members["failed_at"] < since), ended, window, as_of=AS_OF)[
        "state"
    ]
    assert half == "quiet"


def has_false_growth(rows, weeks, n_weeks):
    return [
        any(row["state"] == "growing" for row in found.values())
        for found in told(rows, weeks, n_weeks)
    ]


def evenly(**counts):
    """Rows of weeks up to as-of, with so many failures in each, and 175 that complete."""
    n_weeks = max(map(len, counts.values()))
    since, every = AS_OF - n_weeks * WEEK, {None: [175] * n_weeks, **counts}
    return [
        run(f"{name}{week}-{place}", status="failed" if name else "completed",
            ended=since + (week + (place + 0.5) / n) * WEEK, reason_message=MESSAGES.get(name))
        for name, of_weeks in every.items() for week, n in enumerate(of_weeks) for place in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize("newest", [(9,), (7, 7), (5, 6, 6, 7)], ids=["one", "two", "four"])
def test_newest_weeks_are_judged_alone_and_together(newest):
    """Of evenly spread failures, three a week before; only all of the newest weeks show it."""
    n_weeks = 20 + len(newest)
    rows = evenly(login=[6] * n_weeks, disk=[*[3] * 20, *newest])
    found = states(rows, range(20, n_weeks), n_weeks)
    assert found == [*["ongoing"] * (len(newest) - 1), "growing"]


def test_what_fails_more_often_has_more_of_the_false_alarms():
    """Of 10 and 30 incidents before the window, without the first: weights of 10 and of 30."""
    members, ended = judged(evenly(login=[3] * 10 + [9], disk=[1] * 10 + [4]))
    now = Window(AS_OF - WEEK, AS_OF, "")
    found = growth(members, members_within(members, all_periods(now), AS_OF, {}), ended, now,
                   as_of=AS_OF, fdr=1.0)  # fmt: skip
    login, disk = found.sort("p_value").iter_rows(named=True)
    assert disk["cluster_id"] == cluster_id(None, MESSAGES["disk"])
    assert login["q_value"] == pytest.approx(2 * login["p_value"] * 20 / 30)
    assert disk["q_value"] == pytest.approx(disk["p_value"] * 20 / 10)


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high", "week_2"), [(3, 9, 0.8), (10, 20, 0.78)])
def test_growth_is_said_within_weeks(low, high, week_2):
    """Room for two standard errors."""
    n = some_of(60, 2)
    found = [first_told(Random(500 + seed), risen(low, high), 20, 24) for seed in range(n)]
    for within, share in ((2, week_2), (4, 0.95)):
        room = 2 * (share * (1 - share) / n) ** 0.5
        assert sum(week <= within for week in found) / n >= share - room


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "most"), [(0.0, 0.05), (0.1, 0.05), (0.3, 0.08)])
def test_a_steady_fleet_is_called_growing_in_few_weeks(spread, most):
    weeks, n = (9, 13, 17, 21, 24), some_of(40, 2)
    found = [
        has_false_growth(fleet(Random(7000 + seed), {**STEADY, "disk": 2.0}, 25, spread=spread),
                         weeks, 25)
        for seed in range(n)
    ]  # fmt: skip
    n_weeks = n * len(weeks)
    assert sum(map(sum, found)) / n_weeks <= most + 2 * (most * (1 - most) / n_weeks) ** 0.5


@pytest.mark.slow
def test_what_fails_rarely_is_hardly_ever_back_gone_or_flapping():
    """Steady at .7 and 2 a week."""
    found = []
    for seed in range(some_of(20, 2)):
        rows = fleet(Random(8000 + seed), {"socket": 0.7, "disk": 2.0, "rate": 12.0}, 32)
        for week in told(rows, range(8, 32, 2), 32):
            found += [week[name]["state"] for name in ("socket", "disk") if name in week]
    for state, most in (("back", 0.02), ("gone", 0.02), ("flapping", 0.02)):
        assert found.count(state) / len(found) <= most, state


@pytest.mark.slow
def test_a_slow_growth_is_said_within_half_a_year():
    """From 2 to 8 a week over 26 weeks."""
    n = 12
    found = [first_told(Random(seed), lambda week: 2 + max(week - 8, 0) * 6 / 26, 8, 34)
             for seed in range(n)]  # fmt: skip
    assert sum(week < 27 for week in found) >= 0.6 * n
