"""Ends of runs over time, and what has run long."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stateanalytics.core.windows import steps_between
from stateanalytics.reporting import report
from stateanalytics.reporting.sections.over_time import _chance_of_worst
from tests.frames import AS_OF, ago, facts
from tests.test_report_compare import ended, some


def over_time(rows, **how):
    return report(facts(rows), sections=["over_time"], **how).summary["over_time"]


def slow(rows, **how):
    return report(facts(rows), sections=["slow"], **how).summary["slow"]


def running(entity_id, *, hours, silent_s=60, **rest):
    times = {"created_at": ago(hours=hours), "started_at": ago(hours=hours)}
    return {
        "entity_id": entity_id, "raw_status": "running", "n_messages": 3,
        "last_activity_at": ago(seconds=silent_s), **times, **rest,
    }  # fmt: skip


DAYS = [
    *some("a", "completed", 5, days=1),
    *some("b", "failed", 3, days=3),
    *some("c", "completed", 1, days=3),
]


@pytest.mark.slow
def test_every_end_stands_in_its_day_and_the_days_add_up():
    found = over_time(DAYS)
    assert (found["step"], found["endings"]) == ("day", ["completed", "failed"])
    assert sum(row["n"] for row in found["rows"]) == 9
    by_day = {row["from"][:10]: row["counts"] for row in found["rows"]}
    assert by_day[f"{ago(days=1):%Y-%m-%d}"] == [5, 0]
    assert by_day[f"{ago(days=3):%Y-%m-%d}"] == [1, 3]


def test_a_day_without_ends_is_a_row_of_zeros():
    quiet = [row for row in over_time(DAYS)["rows"] if not row["n"]]
    assert quiet and all(row["counts"] == [0, 0] for row in quiet)


@pytest.mark.slow
def test_days_of_which_only_a_part_is_in_the_window_say_so():
    rows = over_time(DAYS)["rows"]
    assert rows[0]["is_part"] and rows[0]["label"].endswith("(part)")
    assert not rows[1]["is_part"]


def test_the_fewest_runs_of_a_day_are_those_of_a_whole_day():
    rows = [row for day in range(1, 7) for row in some(f"d{day}-", "completed", 3 + day, days=day)]
    steps = over_time([*rows, *some("f", "failed", 2, days=2)])
    assert [row["n"] for row in steps["rows"] if row["is_part"]] == [0, 0]
    assert steps["finding"].startswith("Between 4 and 9 runs ended each whole day; ")

    only_today = over_time(some("f", "failed", 2, days=0))["finding"]
    assert only_today.startswith("No run ended during any whole day; ")


def test_a_day_whose_midnight_the_clock_skips_has_its_runs():
    """In Cairo the 24th of April begins at 01:00, in 2026."""
    rows = [*some("a", "completed", 2, days=33), *some("b", "completed", 1, days=34)]
    steps = over_time(rows, window=("2026-04-22", "2026-04-26"), tz="Africa/Cairo")["rows"]
    counted = [(row["label"], row["n"], row["is_part"]) for row in steps]
    days = ("Wed 22 Apr", "Thu 23 Apr", "Fri 24 Apr", "Sat 25 Apr")
    assert counted == [(day, n, False) for day, n in zip(days, (0, 1, 2, 0), strict=True)]
    assert steps[2]["from"] == "2026-04-23T22:00:00Z"


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param("2025-10-26", [("01:00", 0), ("02:00", 1), ("03:00", 0)], id="shown twice"),
        pytest.param("2026-03-29", [("01:00", 0), ("03:00", 1)], id="skipped"),
    ],
)
def test_an_hour_that_the_clock_shows_twice_or_skips_is_one_step_or_none(day, hours):
    end = datetime.fromisoformat(f"{day}T01:30+00:00")
    rows = [ended("x", "completed", days=0, created_at=end, started_at=end, ended_at=end)]
    window = (f"{day}T01:00", f"{day}T04:00")
    steps = over_time(rows, window=window, tz="Europe/Berlin")["rows"]
    assert [(row["label"][-5:], row["n"]) for row in steps] == hours


def test_a_day_that_the_clock_skips_is_none():
    """Samoa went over the date line at the end of the 29th of December, in 2011."""
    end = datetime(2011, 12, 29, 20, tzinfo=UTC)
    rows = [ended("x", "completed", days=0, created_at=end, started_at=end, ended_at=end)]
    steps = over_time(rows, window=("2011-12-29", "2012-01-03"), tz="Pacific/Apia")["rows"]
    counted = [(row["label"], row["n"], row["n_open"], row["is_part"]) for row in steps]
    days = ("Thu 29 Dec", "Sat 31 Dec", "Sun 1 Jan", "Mon 2 Jan")
    assert counted == [(day, int(day == days[0]), 0, False) for day in days]


@pytest.mark.parametrize("every", ["1d", "12h"])
def test_the_last_step_before_a_day_that_the_clock_skips_has_an_end(every):
    last = datetime(2011, 12, 30, 9, 59, tzinfo=UTC)
    steps = steps_between(last - timedelta(days=1), last, every, "Pacific/Apia").collect()
    assert steps["until"].to_list()[-1] == last + timedelta(minutes=1)
    assert steps["until"][:-1].equals(steps["from_at"][1:])


@pytest.mark.slow
def test_open_runs_are_counted_at_the_end_of_each_day():
    rows = over_time([running("o", hours=50), ended("x", "completed", days=1)])["rows"]
    at = {row["from"][:10]: row["n_open"] for row in rows}
    assert at[f"{ago(days=4):%Y-%m-%d}"] == 0
    assert rows[-1]["n_open"] == 1


@pytest.mark.slow
def test_the_worst_day_is_the_one_that_is_surely_bad():
    """One failure of one run is less sure than twelve of sixteen."""
    rows = [
        *some("many", "failed", 12, days=2),
        *some("fine", "completed", 4, days=2),
        *some("one", "failed", 1, days=4),
        *some("ok", "completed", 9, days=1),
    ]
    assert "when 12 of 16 failed or timed out (75 %)" in over_time(rows)["finding"]


@pytest.mark.slow
@pytest.mark.parametrize(("days", "step"), [(1, "hour"), (7, "day"), (90, "week"), (900, "month")])
def test_steps_fit_the_window(days, step):
    found = over_time(DAYS, window=(ago(days=days), AS_OF))
    assert found["step"] == step
    assert 1 <= len(found["rows"]) <= 60


@pytest.mark.slow
def test_nothing_ended_is_said_and_nothing_is_drawn():
    made = report(facts([running("o", hours=1)]), sections=["over_time"])
    assert made.summary["over_time"]["finding"] == "No run ended in this window."
    assert "chart-over-time" not in made.as_html()


def test_slow_is_not_silent():
    found = slow([running("chatty", hours=9, silent_s=120), running("young", hours=0.5)])
    longest = "1 of 2 open runs has run longer than 1 h, the longest for 9 h, "
    assert found["finding"].startswith(f"{longest}with its last activity 2 min ago")
    assert [row["entity_id"] for row in found["open"]] == ["chatty", "young"]
    assert found["open"][0]["silent"] == "2 min"


def test_ended_slow_runs_say_how_many_completed_all_the_same():
    rows = [
        ended("long", "completed", days=1) | {"started_at": ago(days=1, hours=3)},
        ended("longer", "failed", days=1) | {"started_at": ago(days=1, hours=4)},
        ended("short", "completed", days=1) | {"started_at": ago(days=1, minutes=5)},
    ]
    found = slow(rows)
    assert found["finding"].endswith("2 of 3 ended runs took longer, and 1 of these completed.")
    assert [row["entity_id"] for row in found["ended"]] == ["longer", "long"]
    assert found["ended"][0]["silent"] is None


def test_an_end_that_an_observer_wrote_is_no_duration():
    swept = ended("swept", "failed", days=1, end_written_by="observer")
    assert slow([swept | {"started_at": ago(days=4)}])["n_ended"] == 0


def test_a_snapshot_without_rows_has_both_sections():
    made = report(facts([]), sections=["over_time", "slow"])
    assert made.summary["slow"]["finding"].startswith("No run is open; none ended")
    assert "Nothing to show: over time, slow" in made.as_html()


def test_what_chance_does_on_the_worst_step_does_not_depend_on_the_order_of_the_others():
    worst, usual, high = (30, 100), [(10, 100)] * 8, [(n, 100) for n in range(20, 26)]
    said = set()
    for counts in ([*usual, *high, worst], [*high, *usual, worst], [worst, *high, *usual]):
        steps = pl.DataFrame(counts, ["n_failed", "n"], orient="row")
        days = [AS_OF + timedelta(days=day) for day in range(len(counts))]
        steps, place = steps.with_columns(from_at=pl.Series(days)), counts.index(worst)
        said.add(_chance_of_worst(steps, steps.row(place, named=True)))
    assert len(said) == 1
    assert " (up to" in said.pop()
