"""Is a schedule alive: lionagi's verdict and ADR-0033's word."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import ColumnTypeError, MissingColumnsError
from stateanalytics.systems.lionagi import frames as lionagi_frames
from stateanalytics.systems.lionagi.features import (
    WORDS,
    schedule_ages,
    with_schedule_health,
)
from tests.engines import assert_same_rows, on_every_engine
from tests.examples import examples
from tests.frames import AS_OF, ago, frame

SHAPE = {
    "is_enabled": pl.Boolean,
    "trigger_type": pl.String,
    "cadence_s": pl.Float64,
    "since_last_execution_s": pl.Float64,
    "last_executed_status": pl.String,
    "n_runs": pl.Int64,
    "has_threshold": pl.Boolean,
    "since_last_evaluation_s": pl.Float64,
    "since_last_healthy_poll_s": pl.Float64,
    "since_last_fire_s": pl.Float64,
    "n_running": pl.Int64,
    "next_fire_in_s": pl.Float64,
}
USUAL = {"is_enabled": True, "trigger_type": "interval", "cadence_s": 60.0, "n_runs": 1}


def schedules(*rows):
    return pl.DataFrame([{name: row.get(name) for name in SHAPE} for row in rows], schema=SHAPE)


def health(**row):
    found = with_schedule_health(schedules({**USUAL, **row}))
    return found.select("schedule_health", "health").row(0)


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
        pytest.param(
            {"since_last_execution_s": 360.5}, ("overdue", "misfired"), id="past the limit"
        ),
        pytest.param(
            {"since_last_execution_s": 10_800.0, "cadence_s": 3600.0},
            ("healthy", "ok"),
            id="three cadences are the limit of slow schedules",
        ),
        pytest.param(
            {"since_last_execution_s": 1e9, "cadence_s": None}, ("healthy", "ok"), id="no cadence"
        ),
        pytest.param(
            {"since_last_execution_s": 1e9, "cadence_s": 0.0}, ("healthy", "ok"), id="zero cadence"
        ),
        pytest.param(
            {"since_last_execution_s": 1.0, "last_executed_status": "timed_out"},
            ("failing", "ok"),
            id="the last run failed",
        ),
        pytest.param(
            {"since_last_execution_s": 1e4, "last_executed_status": "failed"},
            ("overdue", "misfired"),
            id="overdue wins over failing",
        ),
        pytest.param(
            {"since_last_execution_s": 1e4, "since_last_evaluation_s": 5.0, "has_threshold": True},
            ("healthy", "ok"),
            id="an evaluation is a sign of life of a threshold",
        ),
        pytest.param(
            {"since_last_execution_s": 1e4, "since_last_evaluation_s": 5.0},
            ("overdue", "misfired"),
            id="of a threshold only",
        ),
        pytest.param(
            {"trigger_type": "github_poll", "since_last_healthy_poll_s": 5.0},
            ("healthy", "ok"),
            id="a poll is a sign of life of a poller",
        ),
        pytest.param(
            {"since_last_execution_s": 1.0, "n_running": 1}, ("healthy", "running"), id="running"
        ),
        pytest.param(
            {"since_last_execution_s": 1.0, "next_fire_in_s": 0.0}, ("healthy", "due"), id="due"
        ),
        pytest.param(
            {"since_last_execution_s": 1e4, "n_running": 1, "next_fire_in_s": -1.0},
            ("overdue", "misfired"),
            id="misfired wins over running and due",
        ),
        pytest.param(
            {"since_last_execution_s": 1.0, "n_running": 1, "next_fire_in_s": -1.0},
            ("healthy", "running"),
            id="running wins over due",
        ),
    ],
)
def test_each_schedule_has_its_health(row, expected):
    assert health(**row) == expected


def test_the_limits_can_be_another_teams():
    row = schedules({**USUAL, "since_last_execution_s": 361.0})
    assert with_schedule_health(row, overdue_factor=10)["schedule_health"].item() == "healthy"
    assert with_schedule_health(row, overdue_grace_s=1e4)["schedule_health"].item() == "healthy"


def test_the_clock_is_applied_to_the_canonical_frame():
    row = {
        "source": "a.db",
        "schedule_id": "s",
        "is_enabled": True,
        "trigger_type": "interval",
        "cadence_s": 60.0,
        "n_runs": 3,
        "n_running": 0,
        "last_executed_at": ago(hours=1),
        "next_fire_at": AS_OF + timedelta(minutes=1),
    }
    aged = schedule_ages(frame("lionagi_schedules", [row]), AS_OF)
    assert aged.select("since_last_execution_s", "next_fire_in_s").row(0) == (3600.0, 60.0)
    assert with_schedule_health(aged)["health"].to_list() == ["misfired"]


def test_no_schedules_are_fine():
    aged = schedule_ages(lionagi_frames.SCHEDULES.empty(), datetime(2026, 1, 1, tzinfo=UTC))
    assert with_schedule_health(aged).height == 0


def test_columns_that_do_not_fit_say_so():
    with pytest.raises(MissingColumnsError, match="with_schedule_health needs columns"):
        with_schedule_health(schedules().drop("cadence_s"))
    with pytest.raises(ColumnTypeError, match="needs numbers in column 'cadence_s'"):
        with_schedule_health(schedules().with_columns(pl.col("cadence_s").cast(pl.String)))


AGES = st.none() | st.floats(-10, 1e6)
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


@on_every_engine
def test_every_engine_judges_the_same(engine):
    rows = schedules(
        {**USUAL, "since_last_execution_s": 361.0},
        {**USUAL, "trigger_type": "github_poll", "since_last_healthy_poll_s": 5.0},
        {**USUAL, "since_last_execution_s": 1.0, "next_fire_in_s": -1.0},
        {},
    )
    assert_same_rows(engine.back(with_schedule_health(engine.of(rows))), with_schedule_health(rows))
