"""What a whole report says of weeks in which nothing changed: hardly ever that something did."""

import math
from datetime import timedelta
from random import Random

import pytest

from stateanalytics.core.windows import Window
from stateanalytics.reporting import report
from stateanalytics.reporting.changes import (
    FALSE_ALARMS,
    GROWING,
    LIMITS,
    false_alarm_rate,
    rate_of_growing,
    with_changes,
)
from stateanalytics.reporting.material import Material
from stateanalytics.state.policy import Policy
from tests.examples import some_of
from tests.failures import run
from tests.frames import AS_OF, facts

WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"]


def null_weeks(draw, n_weeks, *, per_week=12, size=8, icc=0.3):
    """Fan-outs that fail and time out together, of causes that come in bursts; no week differs."""
    rows = []
    for fan in range(n_weeks * per_week):
        began = AS_OF - timedelta(days=7 * n_weeks * draw.random())
        odds = 1 / icc - 1
        fails = draw.betavariate(0.2 * odds, 0.8 * odds)
        word, project = draw.choice(WORDS), f"p{draw.randrange(5)}"
        for place in range(draw.choice([1, 2, size])):
            ended = began + timedelta(seconds=600 * math.exp(draw.gauss(0, 0.5)))
            if ended >= AS_OF:
                continue
            bad = draw.random() < fails
            status = draw.choice(["failed", "failed", "timed_out"]) if bad else "completed"
            message = f"the {word} service said {word} is not {word} at all" if bad else None
            rows.append(
                run(f"f{fan}-{place}", status=status, ended=ended, invocation_id=f"i{fan}",
                    project=project, reason_message=message)
            )  # fmt: skip
    return facts(rows)


def wandering(draw, n_weeks, persistence, sigma):
    """Levels of weeks around 0, of which the next week keeps a part; they never change for good."""
    level = draw.gauss(0, sigma)
    for _ in range(n_weeks):
        yield level
        level = persistence * level + draw.gauss(0, sigma * (1 - persistence**2) ** 0.5)


def wandering_weeks(draw, n_weeks, persistence, times, per_week=140):
    """Single runs; the odds to fail and the durations wander by ``times`` what chance does."""
    odds, rows = 1 / 9, []
    chance = (1 + odds) / (per_week * odds) ** 0.5, 0.8 * (1.57 / per_week) ** 0.5
    levels = zip(*(wandering(draw, n_weeks, persistence, times * sd) for sd in chance), strict=True)
    for week, (fails, slow) in enumerate(levels):
        share = 1 / (1 + math.exp(-fails) / odds)
        for i in range(round(draw.gauss(per_week, 1.5 * per_week**0.5))):
            ended = AS_OF - timedelta(days=7 * (n_weeks - week - draw.random()))
            took, word = 600 * math.exp(slow + draw.gauss(0, 0.8)), draw.choice(WORDS)
            bad = draw.random() < share
            message = f"the {word} service said {word} is not {word} at all" if bad else None
            rows.append(
                run(f"{week}-{i}", status="failed" if bad else "completed", ended=ended,
                    reason_message=message)
                | {"started_at": ended - timedelta(seconds=took)}
            )  # fmt: skip
    return facts(rows)


def claims(summary):
    """What a report says has changed."""
    numbers = summary["headline"]["numbers"]
    clear = [one for one in numbers if (one.get("change") or {}).get("is_clear")]
    said = [("change", one["name"]) for one in clear]
    if " growing" in summary["failures"]["finding"]:
        said.append(("growing", ""))
    return said


def said_of(given):
    window = (AS_OF - timedelta(days=7), AS_OF)
    asked = {"compare": "previous", "sections": ["headline", "failures"]}
    return claims(report(given, window=window, **asked).summary)


def rare_failures(draw, n_weeks, *, longest=0.0, n_now=0):
    """Ten failures of .2 to 5 a week, each alone or in bursts; the truth: none of them is news."""
    rows = [("ok", None, 7 * n_weeks * draw.random()) for _ in range(60 * n_weeks)]
    rows += [("bad", "zulu", 7 * draw.random()) for _ in range(n_now)]
    for name in "abcdefghij":
        rate, day = 0.2 * 25 ** draw.random() / 7, draw.expovariate(1)
        while day < 7 * n_weeks:
            n = draw.randint(1, 8) if longest else 1
            rows += [("bad", 3 * name, day - longest * draw.random()) for _ in range(n)]
            day += draw.expovariate(rate)
    return facts([
        run(f"{i}", status="failed" if word else "completed", ended=AS_OF - timedelta(days=day),
            reason_message=word and f"the {word} service said {word} is not {word} at all")
        for i, (_, word, day) in enumerate(rows) if day > 0
    ])  # fmt: skip


def news_of(given):
    window, asked = (AS_OF - timedelta(days=7), AS_OF), ["headline", "failures"]
    found = report(given, window=window, compare="previous", sections=asked).summary["news"]
    # What grows has a test of its own.
    return {each["title"]: str(each["names"]) for each in found if each["title"] != "Worse"}


@pytest.mark.slow
def test_new_is_news_only_where_the_history_is_long_enough_for_a_surprise():
    assert news_of(rare_failures(Random(5), 2)) == {}
    [(title, names)] = news_of(rare_failures(Random(5), 12, n_now=6)).items()
    assert title == "Surprisingly new in 12 weeks" and "zulu" in names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_weeks", "longest", "most"), [(2, 0, 3), (4, 0, 4), (12, 0, 4), (26, 0, 4), (12, 2, 9)]
)
def test_news_of_rare_failures_is_rare(n_weeks, longest, most):
    """At most so many of 30 reports have some."""
    draw, n = Random(n_weeks), some_of(30, 2)
    found = [news_of(rare_failures(draw, n_weeks, longest=longest)) for _ in range(n)]
    assert sum(map(bool, found)) / n <= most / 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "number", "weeks", "most"),
    [
        *((seed, 80, (n, null_weeks), FALSE_ALARMS) for n, seed in ((2, 71), (10, 4_003))),
        # Failures and durations, half of which goes on. See docs/calibration.md.
        ("8 1", 60, (8, wandering_weeks, 0.5, 1), 0.08),
        ("12 2", 60, (12, wandering_weeks, 0.5, 2), 0.14),
    ],
    ids=["alike", "ten alike", "wandering", "wandering twice as far"],
)
def test_reports_of_weeks_without_a_change_seldom_say_that_something_changed(
    seed, number, weeks, most
):
    """All its tests together; room for three deviations."""
    draw, n = Random(seed), some_of(number, 2)
    n_weeks, make, *how = weeks
    found = [said_of(make(draw, n_weeks, *how)) for _ in range(n)]
    n_false = sum(bool(said) for said in found)
    assert n_false / n <= most + 3 * (most * (1 - most) / n) ** 0.5, [s for s in found if s]


def test_all_families_together_spend_what_a_report_may():
    many_weeks = sum(LIMITS.values()) + 3 * false_alarm_rate(3, has_limits=True)
    assert GROWING + many_weeks == pytest.approx(FALSE_ALARMS)
    assert GROWING + 3 * false_alarm_rate(3, has_limits=False) == pytest.approx(FALSE_ALARMS)


BOTH = ("completed", "incidents")


@pytest.mark.parametrize(
    ("n_now", "n_weeks", "left"), [(20, 9, ()), (60, 9, BOTH), (0, 9, ()), (60, 6, ())]
)
def test_numbers_that_are_worse_leave_their_part_to_growing_clusters(n_now, n_weeks, left):
    """Of the last of ten weeks, or of seven, which are too few."""
    rows = [
        run(f"{week}-{i}", status="failed" if i < n else "completed", reason_message=f"{i}",
            reason_code=f"run.failed.{WORDS[i % 6]}" if i < n else None,
            ended=AS_OF - timedelta(days=7 * (n_weeks + 1 - week - (i + 0.5) / 120)))
        for week, n in enumerate([*[20] * n_weeks, n_now]) for i in range(120)
    ]  # fmt: skip
    given = facts(rows)
    material = Material.of(given, Window(AS_OF - timedelta(days=7), AS_OF, ""), Policy.v1())
    assert rate_of_growing(material) == pytest.approx(GROWING + sum(map(LIMITS.get, left)))


def number(name, n, of, **rest):
    return {"name": name, "n": n, "of": of, "share": n / of, "n_units": of, "n_effective": of,
            "n_if_alike": of, "degrees": None, **rest}  # fmt: skip


def test_a_difference_beyond_chance_may_be_too_little_for_one_of_several():
    """At 95 % alone it would be one."""
    now = [number("completed", 52, 70), number("timed_out", 5, 70)]
    then = [number("completed", 46, 80), number("timed_out", 6, 80)]
    change = with_changes(now, then)[0]["change"]
    assert change["interval"][0] > 0
    assert change["words"].endswith("not significant among several numbers")
    assert change["is_clear"] is False
