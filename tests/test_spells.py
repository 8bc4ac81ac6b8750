"""Durations of runs: what was seen, what is a lower bound, what must be left out."""

from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.schema import SPELLS
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.state.definitions import LEFT_OUT_OF_DURATIONS
from stateanalytics.survival.run_spells import count_left_out, count_spells, spells
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
WEEK = read_window(("2026-05-18", "2026-05-25"), as_of=AS_OF)
REAPED = {
    "ended_at": ago(hours=1), "last_activity_at": END, "end_written_by": "observer",
    "reason_code": "session.phantom.process_dead",
}  # fmt: skip


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
            {"ended_at": END, "stored_duration_s": 3_600_000.0}, DONE, 3600.0, "completed", None,
            id="by its two moments, whatever the store computed",
        ),
        pytest.param(
            {"ended_at": START + timedelta(microseconds=1)}, DONE, 1e-6, "completed", None,
            id="to the microsecond",
        ),
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
    assert (found["duration_s"], found["ending"]) == (duration_s, ending)
    assert (found["cut_off_by"], found["ended"]) == (cut_off_by, cut_off_by is None)


@pytest.mark.parametrize(
    ("entity", "state", "left_out"),
    [
        pytest.param({"ended_at": END}, LEGACY, "legacy", id="legacy"),
        pytest.param({"ended_at": END, "recorded_by": "mirrored"}, DONE, "mirrored", id="mirrored"),
        pytest.param({"ended_at": END, "recorded_by": "imported"}, DONE, "imported", id="imported"),
        pytest.param({"started_at": None}, DONE, "undated", id="no time at all"),
        pytest.param({"started_at": None, "ended_at": END}, DONE, "no_start", id="no start"),
        pytest.param(
            {"started_at": AS_OF.fromtimestamp(0, AS_OF.tzinfo), "ended_at": END}, DONE,
            "no_start", id="the start of time is none",
        ),
        pytest.param({}, DONE, "no_end", id="ended without an end"),
        pytest.param({"started_at": ago(hours=-1)}, RUNNING, "starts_later", id="starts later"),
        pytest.param({"ended_at": ago(hours=6)}, DONE, "ends_before_start", id="backwards"),
        pytest.param(
            {"ended_at": END, "is_end_approximate": True}, DONE, "end_approximate", id="repaired"
        ),
        pytest.param(
            {"ended_at": END, "end_written_by": "observer"}, FAILED, "end_observed", id="reaped"
        ),
        pytest.param(
            {**REAPED, "last_activity_at": START}, FAILED, "end_observed",
            id="found dead, without a sign of life since its start",
        ),
        pytest.param(
            {**REAPED, "reason_code": "run.cancelled.manual_kill"}, FAILED, "end_observed",
            id="killed by a person",
        ),
        pytest.param({"ended_at": END, "end_written_by": "executor"}, DONE, None, id="its own end"),
        pytest.param({"end_written_by": "observer"}, RUNNING, None, id="running has no end"),
    ],
)  # fmt: skip
def test_what_cannot_be_trusted_is_left_out_with_its_reason(entity, state, left_out):
    found = measured(entity, state).row(0, named=True)
    assert found["left_out"] == left_out
    assert (found["duration_s"] is None) is (left_out is not None)
    assert left_out is None or left_out in LEFT_OUT_OF_DURATIONS


def test_a_running_row_with_an_end_counts_as_running():
    assert measured({"ended_at": END}, RUNNING)["duration_s"].to_list() == [18000.0]


def test_runs_are_chosen_by_their_start_not_their_end():
    began_before = {"started_at": ago(days=20), "ended_at": ago(days=3)}
    ended_after = {"started_at": ago(days=3), "ended_at": ago(days=1)}
    assert measured(began_before, DONE, window=WEEK).is_empty()
    assert measured(ended_after, DONE, window=WEEK).height == 1


def test_runs_without_a_start_are_placed_by_what_is_known():
    for entity, is_in in (
        ({"started_at": None, "ended_at": ago(days=3)}, True),
        ({"started_at": None, "created_at": ago(days=30)}, False),
        ({"started_at": None}, True),
    ):
        assert (measured(entity, DONE, window=WEEK).height == 1) is is_in


def test_only_sessions_are_runs():
    assert measured({"entity_type": "play", "ended_at": END}, DONE).is_empty()


def test_runs_of_opencode_are_turns_which_know_the_work_of_their_session():
    """A session of opencode also waits for people; that is no time of a run."""
    session = {"system": "opencode", "entity_id": "ses", "kind": "subagent", "project": "p"}
    turn = {
        "system": "opencode", "entity_type": "turn", "entity_id": "ses+1", "session_id": "ses",
        "agent": "build", "started_at": START, "ended_at": END,
    }  # fmt: skip
    given = facts([{**session, "started_at": ago(days=9), "ended_at": END}, turn])
    told = spells(given, states=states_of(given, [DONE, DONE])).row(0, named=True)
    assert told["entity_id"] == "ses+1"
    assert [told[name] for name in ("duration_s", "kind", "project", "agent")] == [
        3600.0, "subagent", "p", "build",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("elapsed", "limit_s", "duration_s"),
    [
        pytest.param(3600, 900.0, 900.0, id="cut off at its limit"),
        pytest.param(600, 900.0, 600.0, id="another deadline came first"),
        pytest.param(3600, None, 3600.0, id="limit not known"),
        pytest.param(3600, 1e300, 3600.0, id="limit beyond the calendar"),
    ],
)
def test_a_timeout_is_cut_off_at_its_limit_or_is_an_end(elapsed, limit_s, duration_s):
    entity = {"ended_at": START + timedelta(seconds=elapsed), "timeout_s": limit_s}
    cut = measured(entity, TIMED_OUT).row(0, named=True)
    assert (cut["duration_s"], cut["is_censored"], cut["cause"]) == (duration_s, True, None)
    ended = measured(entity, TIMED_OUT, timeouts="event").row(0, named=True)
    assert (ended["duration_s"], ended["ended"], ended["cause"]) == (elapsed, True, "timed_out")


def test_who_was_found_dead_died_at_the_last_sign_of_life():
    found = measured(REAPED, FAILED).row(0, named=True)
    assert (found["duration_s"], found["cause"], found["end_from"]) == (
        3600.0, "failed", "last_activity",
    )  # fmt: skip
    assert found["end_width_s"] == 3 * 3600
    assert measured(REAPED, FAILED, observed_ends="left_out")["left_out"].item() == "end_observed"


def test_silent_runs_may_be_cut_off_at_as_of():
    found = measured({"last_activity_at": END}, STALLED, silent_runs="as_of")
    assert found["duration_s"].item() == 18000.0


def test_causes_are_there_where_the_end_was_seen():
    assert measured({"ended_at": END}, FAILED)["cause"].item() == "failed"
    assert measured({}, RUNNING)["cause"].item() is None


def test_a_window_is_the_end_of_what_is_known():
    long = {"started_at": ago(days=3), "ended_at": ago(days=1)}
    cut = measured(long, DONE, window=WEEK).row(0, named=True)
    assert (cut["duration_s"], cut["cut_off_by"]) == (86_400.0, "window_end")
    assert (cut["ending"], cut["cause"], cut["ended_at"]) == ("running", None, WEEK.until)
    whole = measured(long, DONE).row(0, named=True)
    assert (whole["duration_s"], whole["cut_off_by"]) == (2 * 86_400.0, None)


def test_runs_that_were_over_before_the_window_were_not_active_in_it():
    over = {"started_at": ago(days=20), "ended_at": WEEK.since}
    assert measured(over, DONE, window=WEEK, cohort="active").is_empty()
    # What began earlier came under observation then, and says nothing about before.
    active = {**over, "ended_at": WEEK.since + timedelta(days=1)}
    found = measured(active, DONE, window=WEEK, cohort="active")
    assert found["entry_s"].item() == (WEEK.since - ago(days=20)).total_seconds()


@pytest.mark.parametrize("option", ["cohort", "timeouts", "silent_runs", "observed_ends"])
def test_options_without_meaning_say_what_there_is(option):
    with pytest.raises(ArgumentError, match=f"{option} must be one of .*, .*; found 'sometimes'"):
        measured({}, RUNNING, **{option: "sometimes"})


def test_why_runs_do_not_count_is_counted():
    counts = count_left_out(measured({"ended_at": END, "recorded_by": "mirrored"}, DONE))
    assert counts.select("left_out", "n").rows() == [("mirrored", 1)]
    assert count_left_out(measured({}, RUNNING)).is_empty()


def test_an_unknown_status_keeps_its_name():
    odd = measured({"ended_at": END, "raw_status": "zombified"}, LEGACY).row(0, named=True)
    assert (odd["raw_status"], odd["ending"], odd["left_out"]) == ("zombified", None, "legacy")


def test_spells_have_the_shape_of_the_schema_and_are_open_to_sql(demo):
    runs = sa.survival.spells(demo)
    assert runs.schema == SPELLS.dtypes
    asked = demo.sql("SELECT kind, count(*) AS n FROM spells WHERE left_out IS NULL GROUP BY ALL")
    assert asked["n"].sum() == runs["left_out"].null_count()


@pytest.mark.slow
def test_spells_of_every_system_feed_the_curves(shared):
    stores = [
        shared / "samples" / "lionagi" / "0.36.0" / "state.db",
        shared / "samples" / "agent-orchestrator" / "v2_json",
        shared / "samples" / "opencode" / "v2_20260717",
    ]
    with sa.read(*stores, progress=False) as snap:
        runs = sa.survival.spells(snap, timeouts="event")
    counted = runs.filter(pl.col("left_out").is_null())
    assert counted["system"].n_unique() == 3
    curve = sa.survival.kaplan_meier(runs, by="system")
    first = curve.group_by("system").agg(n=pl.col("n_at_risk").max()).sort("system")
    sizes = counted.group_by("system").agg(n=pl.len().cast(pl.Int64)).sort("system")
    assert first.equals(sizes)
    assert sa.survival.cumulative_incidence(runs, by="system").height > 0


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


MINUTE, HOUR = 60.0, 3600.0
# Nought, seconds, minutes, hours and days, each step about twice the one before.
STEPS = (
    *(0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0),
    *(n * MINUTE for n in (1, 2, 4, 8, 15, 30)),
    *(n * HOUR for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
)


@pytest.mark.parametrize(("low", "high"), list(pairwise((*STEPS, None))))
def test_a_step_holds_its_low_end_and_not_its_high_one(low, high):
    assert steps_of([low]).select("low_s", "high_s").rows() == [(low, high)]
    if high is not None:
        assert steps_of([high - 1e-6])["low_s"].to_list() == [low]


def test_steps_hold_every_counted_spell_once_whatever_the_order():
    durations = [0.0, 0.5, 1.0, 59.9, 60.0, 61.0, 86_400.0, 9e9]
    steps = steps_of(durations)
    assert steps["n"].sum() == len(durations)
    assert steps.equals(steps_of(durations[::-1]))
    assert steps.row(-1, named=True)["high_s"] is None


def test_left_out_spells_are_in_no_step():
    assert steps_of([5.0], left_out=["no_end"]).is_empty()


def test_count_spells_names_missing_columns():
    rows = steps_of([5.0]).rename({"n": "duration_s"})
    with pytest.raises(MissingColumnsError, match=r"count_spells needs columns \['kind'\]"):
        count_spells(rows.with_columns(ended=pl.lit(True), left_out=pl.lit(None)), by="kind")
