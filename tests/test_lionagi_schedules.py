"""The cadence of schedules, and the facts that follow from their runs."""

from datetime import UTC, datetime, timedelta

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
        *(("0 * * * *", 3600.0), ("*/15 * * * *", 900.0), ("0 3 * * *", 86400.0)),
        *(("@daily", 86400.0), ("0 9 * * mon-fri", 86400.0), ("0 9 * * MON,WED", 172800.0)),
        ("0 0 * * 7", 604800.0),  # seven is sunday
        *(("0 0 1 1 *", 31536000.0), ("0 0 29 2 *", 126230400.0)),
        *(("0 22-2 * * *", 3600.0), ("0 0 * * fri-mon", 86400.0)),  # past midnight, and the week
        *(("5/20 * * * *", 1200.0), ("0-7/8 10 * * *", 86400.0), ("*/100 * * * *", 3600.0)),
        ("0 0 3,15 * mon", 172800.0),  # day of month or weekday: monday, then the 3rd
        ("0 9 * * 7-sun", 86400.0),  # the whole week
        *((odd, None) for odd in ("0 0 31 2 *", "60 * * * *", "*/0 * * * *", "at dawn", "")),
        *((odd, None) for odd in ("* * * * * *", "0 0 1 1 * 0 2027", "0 0 L * *", "0 0 * * 5L")),
        *((odd, None) for odd in ("0 0 * * fri#2", "0 0 15W * *", "H H(0-7) * * *", "R * * * *")),
        *((odd, None) for odd in ("@reboot", "0 sat-sun * * *", "? * * * *", "0 0 *,5 * 6")),
        # Steps past the week, digits of another script, and absurdly many.
        *((odd, None) for odd in ("0 0 * * fri-mon/2", "٣ * * * *", "9" * 5000 + " * * * *")),
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
    row = {"id": identity, "name": identity, "enabled": 1, "trigger_type": "interval"}
    moments = dict.fromkeys(("created_at", "updated_at"), NOW_S - 86400)
    return {**row, "interval_sec": 60, **moments, **columns}


def _run(identity, status, fired_s, **columns):
    row = {"id": identity, "schedule_id": "s", "status": status, "chain_depth": 0}
    moments = dict.fromkeys(("fired_at", "created_at", "updated_at"), NOW_S - fired_s)
    return {**row, **moments, **columns}


def test_skips_and_chained_runs_are_no_executions(tmp_path):
    runs = [
        *(_run("a", "completed", 500), _run("b", "failed", 400), _run("c", "timed_out", 300)),
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
    in_new_york = {"resolved_timezone": "America/New_York"}
    in_new_york["last_fired_at"] = datetime(2026, 3, 7, 7, tzinfo=UTC).timestamp()
    schedules = [
        _schedule("s", interval_sec=60),
        _schedule("poll", trigger_type="github_poll", interval_sec=None, poll_interval_sec=120),
        _schedule("default", trigger_type="github_poll", interval_sec=0, poll_interval_sec=None),
        _schedule("once", trigger_type="at", interval_sec=None),
        _schedule("odd", trigger_type="cron", cron_expr="whenever", interval_sec=60),
        _schedule("none", trigger_type="cron", cron_expr=None, interval_sec=60),
        _schedule("zone", trigger_type="cron", cron_expr="0 3 * * *", **in_new_york),
    ]
    part, details = _details(tmp_path, schedules)
    known = {"s": 60.0, "poll": 120.0, "default": 300.0, "zone": 82800.0}
    found = dict(details.select("schedule_id", "cadence_s").rows())
    assert found == known | dict.fromkeys(("once", "odd", "none"))
    odd = part.findings.filter(code="schedule.odd_cron")
    assert odd.select("entity_id", "example").rows() == [("none", None), ("odd", "whenever")]


def test_the_reason_of_a_schedule_is_in_its_history(tmp_path):
    why = "schedule_definition.disabled.budget_exhausted"
    of = {"entity_type": "schedule", "entity_id": "s", "created_at": NOW_S, "reason_code": why}
    change = {**of, "previous_status": "enabled", "status": "disabled"}
    stored = {"schedules": [_schedule("s", enabled=0)], "status_transitions": [change]}
    row = read_part(write_store(tmp_path / "state.db", **stored)).entities.row(0, named=True)
    assert (row["raw_status"], row["reason_code"]) == ("disabled", why)
