"""Is a schedule alive: lionagi's verdict and ADR-0033's word."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.systems.lionagi.schedules import WORDS, schedule_ages, with_schedule_health
from tests.examples import examples
from tests.frames import AS_OF, ago, frame

MOMENTS = {
    "since_last_execution_s": "last_executed_at",
    "since_last_evaluation_s": "last_evaluated_at",
    "since_last_healthy_poll_s": "last_healthy_poll_at",
    "since_last_fire_s": "last_fired_at",
}
USUAL = {"is_enabled": True, "trigger_type": "interval", "cadence_s": 60.0, "n_runs": 1}


def schedules(*rows):
    """Schedules at `AS_OF`, of which each moment is given as an age."""
    columns = [
        {MOMENTS.get(name, name): value for name, value in row.items()}
        | {MOMENTS[name]: aged(row[name]) for name in MOMENTS if name in row}
        for row in rows
    ]
    return schedule_ages(frame("lionagi_schedules", columns), AS_OF)


def aged(seconds):
    return None if seconds is None else ago(seconds=seconds)


def health(**row):
    rows = with_schedule_health(schedules({**USUAL, **row}))
    return rows.select("schedule_health", "health").row(0)


JUST_RAN, LONG_AGO = {"since_last_execution_s": 1.0}, {"since_last_execution_s": 1e4}
MISFIRED = ("overdue", "misfired")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({"is_enabled": False}, ("disabled", "ok"), id="off"),
        pytest.param({"is_enabled": None}, ("disabled", "ok"), id="not known to be on"),
        pytest.param({"n_runs": 0}, ("never-fired", "ok"), id="nothing recorded"),
        pytest.param({"n_runs": None}, ("never-fired", "ok"), id="not even a count"),
        pytest.param({}, ("no-evidence", "ok"), id="skips only"),
        pytest.param({"n_runs": 0, "since_last_fire_s": 9.0}, ("no-evidence", "ok"), id="pruned"),
        pytest.param({"since_last_execution_s": 360.0}, ("healthy", "ok"), id="at the limit"),
        pytest.param({"since_last_execution_s": 360.5}, MISFIRED, id="past the limit"),
        pytest.param(
            {"since_last_execution_s": 10_800.0, "cadence_s": 3600.0},
            ("healthy", "ok"),
            id="three cadences are the limit of slow schedules",
        ),
        ({"since_last_execution_s": 1e9, "cadence_s": None}, ("healthy", "ok")),
        ({"since_last_execution_s": 1e9, "cadence_s": 0.0}, ("healthy", "ok")),
        ({**JUST_RAN, "last_executed_status": "timed_out"}, ("failing", "ok")),
        ({**LONG_AGO, "last_executed_status": "failed"}, MISFIRED),
        pytest.param(
            {**LONG_AGO, "since_last_evaluation_s": 5.0, "has_threshold": True},
            ("healthy", "ok"),
            id="an evaluation is a sign of life of a threshold",
        ),
        pytest.param(
            {**LONG_AGO, "since_last_evaluation_s": 5.0}, MISFIRED, id="of a threshold only"
        ),
        pytest.param(
            {"trigger_type": "github_poll", "since_last_healthy_poll_s": 5.0},
            ("healthy", "ok"),
            id="a poll is a sign of life of a poller",
        ),
        ({**JUST_RAN, "n_running": 1}, ("healthy", "running")),
        ({**JUST_RAN, "next_fire_at": AS_OF}, ("healthy", "due")),
        pytest.param(
            {**LONG_AGO, "n_running": 1, "next_fire_at": ago(seconds=1)},
            MISFIRED,
            id="misfired wins over running and due",
        ),
        pytest.param(
            {**JUST_RAN, "n_running": 1, "next_fire_at": ago(seconds=1)},
            ("healthy", "running"),
            id="running wins over due",
        ),
    ],
)
def test_each_schedule_has_its_health(row, expected):
    assert health(**row) == expected


def test_ages_are_those_at_the_given_instant():
    row = {**USUAL, "since_last_execution_s": 3600, "next_fire_at": AS_OF + timedelta(minutes=1)}
    assert schedules(row).select("silence_s", "next_fire_in_s").row(0) == (3600.0, 60.0)


def test_no_schedules_have_no_health():
    assert with_schedule_health(schedules()).height == 0


AGES = st.none() | st.integers(-10, 10**6)
ROWS = st.fixed_dictionaries(
    {
        "is_enabled": st.sampled_from([True, False, None]),
        "trigger_type": st.sampled_from(["interval", "cron", "github_poll", "at", None]),
        "cadence_s": st.sampled_from([None, 0.0, 60.0, 3600.0]),
        "since_last_execution_s": AGES,
        "since_last_evaluation_s": AGES,
        "since_last_healthy_poll_s": AGES,
        "since_last_fire_s": AGES,
        "has_threshold": st.sampled_from([True, False, None]),
        "last_executed_status": st.sampled_from(["completed", "failed", None]),
        "n_runs": st.sampled_from([0, 1, None]),
    }
)


def one_by_one(row):
    """The slow obvious version."""
    signs = [row["since_last_execution_s"]]
    signs += [row["since_last_evaluation_s"]] if row["has_threshold"] else []
    signs += [row["since_last_healthy_poll_s"]] if row["trigger_type"] == "github_poll" else []
    signs = [age for age in signs if age is not None]
    if not row["is_enabled"]:
        return "disabled"
    if not signs:
        nothing = not row["n_runs"] and row["since_last_fire_s"] is None
        return "never-fired" if nothing else "no-evidence"
    cadence = row["cadence_s"]
    if cadence and min(signs) > max(3 * cadence, cadence + 300):
        return "overdue"
    return "failing" if row["last_executed_status"] == "failed" else "healthy"


@examples(60)
@given(st.lists(ROWS, max_size=15))
def test_bulk_equals_row_by_row(rows):
    found = with_schedule_health(schedules(*rows))["schedule_health"].to_list()
    assert found == [one_by_one(row) for row in rows]
    assert set(found) <= set(WORDS)
