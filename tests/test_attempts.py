"""A run that was stopped and resumed is several attempts at one work."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.sections.slow import summarize_slow
from stateanalytics.systems import system_named
from tests.frames import AS_OF, WHOSE, ago, facts
from tests.opencode_logs import event, step
from tests.opencode_logs import facts_of as opencode_facts
from tests.report_parts import material_of
from tests.samples import SAMPLES


def life(entity_id, *steps, **row):
    """A session and its changes of status: (hours ago, status, writer)."""
    whose = {**WHOSE, "entity_id": entity_id}
    changes = [
        {**whose, "at": ago(hours=hours), "seq": seq, "status": status, "writer": writer,
         "reason_code": f"run.{status}.any"}
        for seq, (hours, status, writer) in enumerate(steps)
    ]  # fmt: skip
    last, ended = ago(hours=steps[-1][0]), steps[-1][1] != "running"
    session = {
        **whose, "kind": "agent", "raw_status": steps[-1][1], "started_at": ago(hours=steps[0][0]),
        "ended_at": last if ended else None, "end_written_by": "executor" if ended else None,
        "last_activity_at": last, **row,
    }  # fmt: skip
    return session, changes


def spells_of(*lives, events=(), **asked):
    changes = [change for _, changes in lives for change in changes]
    sessions = [session for session, _ in lives]
    given = facts(sessions, transitions=changes, events=list(events))
    return sa.survival.spells(given, silent_runs="as_of", **asked)


RESUMED = life(
    "resumed", (10, "running", "system"), (9, "timed_out", "executor"), (6, "running", "executor"),
    (4, "completed", "executor"), timeout_s=3600.0, n_model_turns=9,
)  # fmt: skip
PLAIN = life("plain", (3, "running", "system"), (1, "completed", "executor"), n_model_turns=4)


def test_each_attempt_has_its_own_time_end_and_limit():
    found = spells_of(RESUMED, PLAIN)
    shown = found.select("entity_id", "n_resumed", pl.col("duration_s") / 3600, "ending", "ended")
    first, second = ("resumed", 0, 1.0, "timed_out", False), ("resumed", 1, 2.0, "completed", True)
    assert shown.rows() == [first, second, ("plain", 0, 2.0, "completed", True)]
    assert found["cut_off_by"].to_list() == ["time_limit", None, None]
    assert found["n_model_turns"].to_list() == [None, None, 4]


def test_the_work_as_a_whole_is_one_row_from_first_to_last():
    found = spells_of(RESUMED, PLAIN, per="work")
    shown = found.select("entity_id", "n_resumed", pl.col("duration_s") / 3600).rows()
    assert shown == [("resumed", 0, 6.0), ("plain", 0, 2.0)]


def test_a_page_names_attempts_and_their_pauses_are_not_slow_work():
    """Attempts of 1 and 2 hours with 3 between them, and a run of 2 hours: none of 6."""
    session, changes = RESUMED
    given = facts([session | {"session_id": "resumed"}, PLAIN[0]], transitions=changes)
    found = sa.report(given, sections=["durations", "slow"]).summary
    assert found["durations"]["finding"].startswith("3 attempts at 2 runs started in the window: ")
    assert [row["lasted"] for row in found["slow"]["ended"]] == ["2 h", "2 h"]


def test_a_session_that_waits_for_people_took_as_long_as_its_longest_turn():
    """Its own end is not recorded, so that none of them had a known duration."""
    with sa.read(SAMPLES / "claude_code", progress=False) as snap:
        slow = summarize_slow(material_of(snap))
    assert slow["finding"].endswith("; none of 8 ended runs took longer.")


def test_an_attempt_that_is_still_going_is_cut_off():
    began = (5, "running", "system"), (4, "failed", "executor")
    found = spells_of(life("going", *began, (1, "running", "executor")))
    assert found["ending"].to_list() == ["failed", "running"]
    assert (found["duration_s"] / 3600).to_list() == [1.0, 1.0]
    assert found["ended_at"].to_list() == [ago(hours=4), AS_OF]


def test_an_attempt_that_somebody_else_ended_says_nothing_of_its_length():
    swept = life(
        "swept", (9, "running", "system"), (5, "failed", "admin"), (4, "running", "executor"),
        (3, "completed", "executor"),
    )  # fmt: skip
    assert spells_of(swept)["left_out"].to_list() == ["end_observed", None]


def test_an_attempt_that_was_found_dead_ended_at_its_last_sign_of_life():
    dead = life(
        "dead", (9, "running", "system"), (5, "failed", "reaper"), (4, "running", "executor"),
        (3, "completed", "executor"),
    )  # fmt: skip
    dead[1][1]["reason_code"] = system_named("lionagi").ends.death_codes[0]
    signs = [
        {**WHOSE, "entity_id": "dead", "at": ago(hours=hours), "seq": seq, "is_activity": True}
        for seq, hours in enumerate((8, 7, 3.5))
    ]
    found = spells_of(dead, events=signs)
    assert (found["duration_s"] / 3600).to_list() == [2.0, 1.0]
    assert found["end_from"].to_list() == ["last_activity", "recorded"]
    assert found["end_width_s"].to_list() == [7200.0, None]


def test_ends_in_a_row_and_what_comes_after_as_of_are_no_attempts():
    twice = life(
        "twice", (9, "running", "system"), (8, "failed", "executor"), (7, "timed_out", "admin"),
        (6, "running", "executor"), (5, "completed", "executor"),
    )  # fmt: skip
    assert (spells_of(twice)["duration_s"] / 3600).to_list() == [1.0, 1.0]
    late = life(
        "late", (9, "running", "system"), (8, "failed", "executor"), (-2, "running", "executor"),
        raw_status="failed", ended_at=ago(hours=8), end_written_by="executor",
    )  # fmt: skip
    assert spells_of(late).height == 1


def test_a_session_of_agent_orchestrator_that_was_restored_is_two_attempts():
    restored = life(
        "restored", (9, "working", "poll"), (7, "done", "agent_report"), (6, "working", "poll"),
        (2, "merged", "poll"), system="agent_orchestrator",
        recorded_outcome="merged", recorded_lifecycle="completed",
    )  # fmt: skip
    for change in restored[1]:
        change["system"] = "agent_orchestrator"
    found = spells_of(restored)
    shown = found.select("n_resumed", pl.col("duration_s") / 3600, "ending", "left_out")
    assert shown.rows() == [(0, 2.0, "completed", None), (1, 4.0, "completed", None)]
    whole = spells_of(restored, per="work")
    assert (whole["duration_s"] / 3600).to_list() == [7.0]


@pytest.mark.slow
def test_a_turn_of_opencode_that_crashed_and_went_on_is_two_attempts(tmp_path):
    ended = step(62, "step.ended", "msg_2", finish="stop"), event(63, "execution.succeeded")
    given = opencode_facts(
        tmp_path,
        *(event(1, "execution.started"), step(2, "step.started")),
        *(event(60, "execution.started"), step(61, "step.started", "msg_2"), *ended),
    )
    found = sa.survival.spells(given)
    shown = found.select("n_resumed", "duration_s", "ending", "end_from", "end_width_s")
    first, second = shown.rows()
    assert first == (0, 1.0, "aborted", "last_activity", 58.0)
    assert second == (1, 3.0, "completed", "recorded", None)
    assert sa.survival.spells(given, per="work")["duration_s"].to_list() == [62.0]


def test_a_window_takes_the_attempts_that_began_in_it():
    found = spells_of(RESUMED, PLAIN, window=(ago(hours=7), AS_OF))
    assert found.select("entity_id", "n_resumed").rows() == [("resumed", 1), ("plain", 0)]


def test_the_sample_has_no_completion_of_two_hours(demo):
    """It was one run that timed out at 30 min, waited 40 and was resumed for 47."""
    agents = sa.survival.spells(demo).filter(pl.col("left_out").is_null(), kind="agent")
    assert agents.filter(ending="completed")["duration_s"].max() < 3000
    whole = sa.survival.spells(demo, per="work").filter(pl.col("left_out").is_null(), kind="agent")
    assert whole.filter(ending="completed")["duration_s"].max() == 7000


def test_another_unit_is_refused(demo):
    with pytest.raises(ArgumentError, match="per must be one of attempt, work; found 'turn'"):
        sa.survival.spells(demo, per="turn")
