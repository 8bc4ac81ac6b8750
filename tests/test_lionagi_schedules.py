"""The cadence of schedules, and the facts that follow from their runs."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.systems.lionagi.schedules import cadence_s
from tests.examples import examples
from tests.lionagi_stores import NOW_S, read_part, write_store

WEDNESDAY = datetime(2026, 5, 27, 10, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("0 * * * *", 3600.0, id="hourly"),
        pytest.param("*/15 * * * *", 900.0, id="step"),
        pytest.param("0 3 * * *", 86400.0, id="daily"),
        pytest.param("@daily", 86400.0, id="shorthand"),
        pytest.param("0 9 * * mon-fri", 86400.0, id="names"),
        pytest.param("0 9 * * MON,WED", 172800.0, id="list of names, from monday to wednesday"),
        pytest.param("0 0 * * 7", 604800.0, id="seven is sunday"),
        pytest.param("0 0 1 1 *", 31536000.0, id="yearly"),
        pytest.param("0 0 29 2 *", 126230400.0, id="leap days"),
        pytest.param("0 22-2 * * *", 3600.0, id="a range past midnight"),
        pytest.param("0 0 * * fri-mon", 86400.0, id="a range past the week"),
        pytest.param("5/20 * * * *", 1200.0, id="start and step"),
        pytest.param("0-7/8 10 * * *", 86400.0, id="a step beyond its range"),
        pytest.param("*/100 * * * *", 3600.0, id="a step beyond the hour"),
        pytest.param(
            "0 0 3,15 * mon", 172800.0, id="day of month or weekday: monday, then the 3rd"
        ),
        pytest.param("0 0 31 2 *", None, id="never"),
        pytest.param("60 * * * *", None, id="out of range"),
        pytest.param("*/0 * * * *", None, id="no step"),
        pytest.param("at dawn", None, id="no cron"),
        pytest.param("0 9 * * 7-sun", 86400.0, id="sunday to sunday is the whole week"),
        pytest.param("* * * * * *", None, id="six fields"),
        pytest.param("0 0 1 1 * 0 2027", None, id="seven fields"),
        pytest.param("0 0 L * *", None, id="the last day"),
        pytest.param("0 0 * * 5L", None, id="the last friday"),
        pytest.param("0 0 * * fri#2", None, id="the second friday"),
        pytest.param("0 0 15W * *", None, id="the nearest weekday"),
        pytest.param("H H(0-7) * * *", None, id="a hashed moment"),
        pytest.param("R * * * *", None, id="a random moment"),
        pytest.param("@reboot", None, id="no rhythm"),
        pytest.param("0 sat-sun * * *", None, id="days for hours"),
        pytest.param("? * * * *", None, id="no choice of minutes"),
        pytest.param("0 0 *,5 * 6", None, id="a star in a list"),
        pytest.param("0 0 * * fri-mon/2", None, id="steps past the week"),
        pytest.param("", None, id="empty"),
        pytest.param("٣ * * * *", None, id="digits of another script"),
        pytest.param("9" * 5000 + " * * * *", None, id="absurdly long"),
    ],
)
def test_cadence_is_the_time_between_the_next_two_fires(expression, expected):
    assert cadence_s(expression, WEDNESDAY) == expected


def test_cadence_is_true_over_a_clock_change():
    before = datetime(2026, 3, 7, 7, tzinfo=UTC)
    assert cadence_s("0 3 * * *", before, "America/New_York") == 23 * 3600
    assert cadence_s("0 3 * * *", before, "UTC") == 24 * 3600
    assert cadence_s("0 3 * * *", before, "Mars/Olympus") == 24 * 3600


SLOW_TWINS = {
    "*/7 * * * *": lambda at: at.minute % 7 == 0,
    "13 */5 * * *": lambda at: at.minute == 13 and at.hour % 5 == 0,
    "0 0 */3 * *": lambda at: at.minute == at.hour == 0 and at.day % 3 == 1,
    "30 4 1-7 * 2": lambda at: (
        (at.minute, at.hour) == (30, 4) and (at.day <= 7 or at.isoweekday() == 2)
    ),
    "0 0 * 2,6 *": lambda at: at.minute == at.hour == 0 and at.month in (2, 6),
    "50-59,0-9/3 8 * * *": lambda at: (
        at.hour == 8 and (at.minute >= 50 or at.minute in (0, 3, 6, 9))
    ),
}


@examples(40)
@given(
    st.sampled_from(sorted(SLOW_TWINS)), st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1))
)
def test_cadence_equals_a_walk_minute_by_minute(expression, after):
    minute = after.replace(second=0, microsecond=0)
    fires = []
    while len(fires) < 2:
        minute += timedelta(minutes=1)
        if SLOW_TWINS[expression](minute):
            fires.append(minute)
    expected = (fires[1] - fires[0]).total_seconds()
    assert cadence_s(expression, after.replace(tzinfo=UTC)) == expected


def _details(tmp_path, schedules, runs=()):
    part = read_part(write_store(tmp_path / "state.db", schedules=schedules, schedule_runs=runs))
    return part, part.details["lionagi_schedules"]


def _schedule(identity, **columns):
    return {
        "id": identity,
        "name": identity,
        "enabled": 1,
        "trigger_type": "interval",
        "interval_sec": 60,
        "created_at": NOW_S - 86400,
        "updated_at": NOW_S - 86400,
    } | columns


def _run(identity, status, fired_s, **columns):
    return {
        "id": identity,
        "schedule_id": "s",
        "status": status,
        "chain_depth": 0,
        "fired_at": NOW_S - fired_s,
        "created_at": NOW_S - fired_s,
        "updated_at": NOW_S - fired_s,
    } | columns


def test_skips_and_chained_runs_are_no_executions(tmp_path):
    runs = [
        _run("a", "completed", 500),
        _run("b", "failed", 400),
        _run("c", "timed_out", 300),
        _run("d", "skipped", 200, status_reason_code="schedule.skipped.missed_fire"),
        _run("e", "completed", 100, chain_depth=1),
        _run("f", "queued", 50),
    ]
    _, details = _details(tmp_path, [_schedule("s")], runs)
    row = details.row(0, named=True)
    assert row["last_executed_status"] == "timed_out"
    assert row["last_executed_at"].timestamp() == NOW_S - 300
    assert (row["n_runs"], row["n_missed"], row["n_failed_in_row"]) == (5, 1, 2)


def test_a_tie_of_two_runs_is_decided_as_lionagi_does(tmp_path):
    runs = [_run("b", "failed", 100), _run("a", "completed", 100)]
    _, details = _details(tmp_path, [_schedule("s")], runs)
    assert details["last_executed_status"].to_list() == ["failed"]


def test_each_trigger_has_its_own_cadence(tmp_path):
    schedules = [
        _schedule("s", interval_sec=60),
        _schedule("poll", trigger_type="github_poll", interval_sec=None, poll_interval_sec=120),
        _schedule("default", trigger_type="github_poll", interval_sec=0, poll_interval_sec=None),
        _schedule("once", trigger_type="at", interval_sec=None),
        _schedule("odd", trigger_type="cron", cron_expr="whenever", interval_sec=60),
        _schedule("none", trigger_type="cron", cron_expr=None, interval_sec=60),
        _schedule(
            "zone",
            trigger_type="cron",
            cron_expr="0 3 * * *",
            resolved_timezone="America/New_York",
            last_fired_at=datetime(2026, 3, 7, 7, tzinfo=UTC).timestamp(),
        ),
    ]
    part, details = _details(tmp_path, schedules)
    assert dict(details.select("schedule_id", "cadence_s").rows()) == {
        "s": 60.0,
        "poll": 120.0,
        "default": 300.0,
        "once": None,
        "odd": None,
        "none": None,
        "zone": 82800.0,
    }
    odd = part.findings.filter(pl.col("code") == "schedule.odd_cron")
    assert odd.select("entity_id", "example").rows() == [("none", None), ("odd", "whenever")]


def test_the_reason_of_a_schedule_is_in_its_history(tmp_path):
    path = write_store(
        tmp_path / "state.db",
        schedules=[_schedule("s", enabled=0)],
        status_transitions=[
            {
                "entity_type": "schedule",
                "entity_id": "s",
                "previous_status": "enabled",
                "status": "disabled",
                "reason_code": "schedule_definition.disabled.budget_exhausted",
                "created_at": NOW_S,
            }
        ],
    )
    row = read_part(path).entities.row(0, named=True)
    assert row["raw_status"] == "disabled"
    assert row["reason_code"] == "schedule_definition.disabled.budget_exhausted"
