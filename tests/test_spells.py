"""Durations of runs: what was seen, what is a lower bound, what must be left out."""

import polars as pl
import pytest

from stateanalytics.durations.spells import EDGES_S, LEFT_OUT, count_spells, spells
from stateanalytics.errors import MissingColumnsError
from stateanalytics.windows import read_window
from tests.frames import (
    AS_OF,
    DONE,
    FAILED,
    LEGACY,
    RUNNING,
    STALLED,
    TIMED_OUT,
    ago,
    facts,
    states_of,
)

MERGED = {"lifecycle": "merged", "outcome": "merged"}
START, END = ago(hours=5), ago(hours=4)


def measured(entity, state, **asked):
    given = facts([{"entity_id": "a", "started_at": START, **entity}])
    return spells(given, states=states_of(given, [state]), **asked)


@pytest.mark.parametrize(
    ("entity", "state", "duration_s", "ending", "cut_off_by"),
    [
        pytest.param({"ended_at": END}, DONE, 3600.0, "completed", None, id="completed"),
        pytest.param({"ended_at": END}, MERGED, 3600.0, "completed", None, id="merged"),
        pytest.param({"ended_at": END}, FAILED, 3600.0, "failed", None, id="failed"),
        pytest.param({"ended_at": START}, DONE, 0.0, "completed", None, id="no time at all"),
        pytest.param(
            {"ended_at": END}, TIMED_OUT, 3600.0, "timed_out", "time_limit", id="timed out"
        ),
        pytest.param({}, RUNNING, 18000.0, "running", "as_of", id="running up to as-of"),
        pytest.param(
            {"last_activity_at": END}, STALLED, 3600.0, "running", "last_activity", id="fell silent"
        ),
        pytest.param({}, STALLED, 18000.0, "running", "as_of", id="silent, but nothing was seen"),
        pytest.param(
            {"last_activity_at": ago(hours=-1)}, STALLED, 18000.0, "running", "last_activity",
            id="a sign of life in the future counts up to as-of",
        ),
        pytest.param(
            {"last_activity_at": ago(hours=9)}, STALLED, 0.0, "running", "last_activity",
            id="a sign of life before the start counts from it",
        ),
    ],
)  # fmt: skip
def test_a_duration_says_what_was_seen(entity, state, duration_s, ending, cut_off_by):
    found = measured(entity, state).row(0, named=True)
    assert found["left_out"] is None
    assert (found["duration_s"], found["ending"], found["cut_off_by"]) == (
        duration_s,
        ending,
        cut_off_by,
    )
    assert found["ended"] is (cut_off_by is None)


@pytest.mark.parametrize(
    ("entity", "state", "left_out"),
    [
        pytest.param({"ended_at": END}, LEGACY, "legacy", id="legacy"),
        pytest.param({"ended_at": END, "recorded_by": "mirrored"}, DONE, "mirrored", id="mirrored"),
        pytest.param({"ended_at": END, "recorded_by": "imported"}, DONE, "imported", id="imported"),
        pytest.param({"started_at": None}, DONE, "undated", id="no time at all"),
        pytest.param({"started_at": None, "ended_at": END}, DONE, "no_start", id="no start"),
        pytest.param({}, DONE, "no_end", id="ended without an end"),
        pytest.param({"started_at": ago(hours=-1)}, RUNNING, "starts_later", id="starts later"),
        pytest.param({"ended_at": ago(hours=6)}, DONE, "ends_before_start", id="backwards"),
        pytest.param(
            {"ended_at": END, "is_end_approximate": True}, DONE, "end_approximate", id="repaired"
        ),
        pytest.param(
            {"ended_at": END, "end_written_by": "observer"}, FAILED, "end_observed", id="reaped"
        ),
        pytest.param({"ended_at": END, "end_written_by": "executor"}, DONE, None, id="its own end"),
        pytest.param({"end_written_by": "observer"}, RUNNING, None, id="running has no end"),
    ],
)
def test_what_cannot_be_trusted_is_left_out_with_its_reason(entity, state, left_out):
    found = measured(entity, state).row(0, named=True)
    assert found["left_out"] == left_out
    assert (found["duration_s"] is None) is (left_out is not None)
    assert left_out is None or left_out in LEFT_OUT


def test_a_running_row_with_an_end_counts_as_running():
    assert measured({"ended_at": END}, RUNNING)["duration_s"].to_list() == [18000.0]


def test_runs_are_chosen_by_their_start_not_their_end():
    week = read_window(("2026-05-18", "2026-05-25"), as_of=AS_OF)
    began_before = measured(
        {"started_at": ago(days=20), "ended_at": ago(days=3)}, DONE, window=week
    )
    ended_after = measured({"started_at": ago(days=3), "ended_at": ago(days=1)}, DONE, window=week)
    assert (began_before.height, ended_after.height) == (0, 1)


def test_runs_without_a_start_are_placed_by_what_is_known():
    week = read_window(("2026-05-18", "2026-05-25"), as_of=AS_OF)
    for entity, is_in in (
        ({"started_at": None, "ended_at": ago(days=3)}, True),
        ({"started_at": None, "created_at": ago(days=30)}, False),
        ({"started_at": None}, True),
    ):
        assert (measured(entity, DONE, window=week).height == 1) is is_in


def test_only_sessions_are_runs():
    assert measured({"entity_type": "play", "ended_at": END}, DONE).is_empty()


def test_nothing_gives_no_spells_and_no_steps():
    given = facts([])
    none = spells(given, states=states_of(given, []))
    assert none.is_empty()
    assert count_spells(none).is_empty()


def steps_of(durations, **columns):
    frame = pl.DataFrame(
        {
            "ending": ["completed"] * len(durations),
            "duration_s": durations,
            "ended": [True] * len(durations),
            "left_out": pl.Series([None] * len(durations), dtype=pl.String),
            **columns,
        },
        schema_overrides={"duration_s": pl.Float64},
    )
    return count_spells(frame)


@pytest.mark.parametrize("edge", EDGES_S)
def test_a_step_begins_with_its_low_end(edge):
    assert steps_of([edge])["low_s"].to_list() == [edge]


def test_steps_hold_every_counted_spell_once_whatever_the_order():
    durations = [0.0, 0.5, 1.0, 59.9, 60.0, 61.0, 86_400.0, 9e9]
    steps = steps_of(durations)
    assert steps["n"].sum() == len(durations)
    assert steps.equals(steps_of(durations[::-1]))
    assert steps.row(-1, named=True)["high_s"] is None


def test_left_out_spells_are_in_no_step():
    assert steps_of([5.0], left_out=["no_end"]).is_empty()


def test_count_spells_names_missing_columns():
    with pytest.raises(MissingColumnsError, match=r"count_spells needs columns \['kind'\]"):
        count_spells(
            steps_of([5.0])
            .rename({"n": "duration_s"})
            .with_columns(ended=pl.lit(True), left_out=pl.lit(None)),
            by="kind",
        )
