"""Polls of Agent Orchestrator decided, replayed, and replayed with other limits."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stateanalytics.errors import MissingColumnsError
from tests.conformance.agent_orchestrator.detecting import DetectingBudget
from tests.conformance.agent_orchestrator.determine_status import determine_status
from tests.conformance.agent_orchestrator.events import DEFAULT_REACTIONS
from tests.conformance.agent_orchestrator.poll_columns import STORED
from tests.conformance.agent_orchestrator.replay import WRITTEN, PollSettings, replay_polls
from tests.examples import examples

START = datetime(2026, 5, 4, 9, tzinfo=UTC)
MOMENT = pl.Datetime("us", "UTC")
SPAWNED = {
    "session_state": "not_started",
    "session_reason": "spawn_requested",
    "pr_state": "none",
    "pr_reason": "not_created",
    "runtime_state": "unknown",
}
AT_WORK = SPAWNED | {
    "session_state": "working",
    "session_reason": "task_in_progress",
    "runtime_state": "alive",
}


def poll_at(minute: float) -> datetime:
    return START + timedelta(minutes=minute, milliseconds=200)


def written(words: dict[str, str] | None = None) -> dict[str, str | None]:
    return {f"written_{name}": (words or {}).get(name) for name in WRITTEN}


def story(session_id: str, polls: list[dict[str, Any]], first: dict[str, str]) -> pl.DataFrame:
    """Polls every half minute; what each one lacks is alive and well."""
    rows = []
    for place, poll in enumerate(polls):
        at = poll_at(place / 2)
        rows.append(
            {
                "session_id": session_id,
                "at": at,
                "created_at": START,
                "runtime_probe": "alive",
                "process_probe": "alive",
                "activity": "active",
                "activity_at": at - timedelta(seconds=4),
                "report_state": None,
                "report_at": None,
                **written(first if place == 0 else None),
                **poll,
            }
        )
    moments = {"at": MOMENT, "created_at": MOMENT, "activity_at": MOMENT, "report_at": MOMENT}
    texts = {f"written_{name}": pl.String for name in WRITTEN} | {"report_state": pl.String}
    return pl.DataFrame(rows, schema_overrides=moments | texts, infer_schema_length=None)


def test_one_poll_needs_what_was_stored() -> None:
    with pytest.raises(MissingColumnsError, match=r"determine_status needs columns \['pr_reason'"):
        determine_status(pl.DataFrame({"at": [START]}))


def test_no_polls_are_decided_and_replayed_to_none() -> None:
    none = story("one", [{}], AT_WORK).clear()
    assert replay_polls(none).height == 0
    stored = pl.DataFrame([AT_WORK | {"at": START}]).clear()
    assert determine_status(stored).height == 0


@pytest.mark.parametrize(
    ("change", "decided_by", "status"),
    [
        ({"is_project_known": False}, "project_missing", "working"),
        ({"activity": "waiting_input"}, "waiting_input", "needs_input"),
        ({"activity": "throws"}, "activity_failure", "detecting"),
        ({"process_probe": "indeterminate", "activity": "active"}, "indeterminate", "working"),
        ({"activity": "exited"}, "probe", "detecting"),
        ({"scm_state": "merged"}, "pull_request", "merged"),
        ({"report_state": "needs_input", "report_at": START}, "agent_report", "needs_input"),
        ({"activity": "blocked", "activity_at": START - timedelta(minutes=11)}, "idle", "stuck"),
        ({"activity": "active"}, "unchanged", "working"),
        ({"session_state": "stuck", "activity": "active"}, "recovered", "working"),
        ({"session_state": "stuck", "activity": None}, "weak_evidence", "stuck"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_has_its_turn(change: dict[str, Any], decided_by: str, status: str) -> None:
    poll = AT_WORK | {"at": START, "runtime_probe": "alive", "process_probe": "alive"} | change
    schema = {"activity": pl.String, "at": MOMENT}
    row = determine_status(pl.DataFrame([poll], schema_overrides=schema)).row(0, named=True)
    assert (row["decided_by"], row["status"]) == (decided_by, status)


def test_what_an_unsure_probe_leaves_is_the_record_as_it_was() -> None:
    stored = AT_WORK | {"evidence": "before", "detecting_attempts": 2, "detecting_hash": "h"}
    poll = stored | {"at": START, "runtime_probe": "dead", "process_probe": "indeterminate"}
    row = determine_status(pl.DataFrame([poll])).row(0, named=True)
    assert {name: row[name] for name in stored} == stored
    assert row["is_lifecycle_changed"] is False


def test_a_threshold_of_zero_switches_stuck_off() -> None:
    poll = AT_WORK | {"at": START, "activity": "idle", "activity_at": START - timedelta(days=1)}
    statuses = [
        determine_status(pl.DataFrame([poll | {"stuck_threshold_s": s}]))["status"].item()
        for s in (600.0, 0.0)
    ]
    assert statuses == ["stuck", "working"]


# --- a whole afternoon, against the records that the real code left ---------------------------


def final_record(shared: Path, session_id: str) -> dict[str, Any]:
    folder = shared / "samples" / "agent-orchestrator" / "v2_json"
    path = folder / "projects" / "webshop" / "sessions" / f"{session_id}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def started(minute: float) -> dict[str, Any]:
    return {"report_state": "started", "report_at": START + timedelta(minutes=1)} | (
        written({"session_state": "working", "session_reason": "agent_acknowledged"})
        if minute == 1
        else {}
    )


def exits_at_six(n_polls: int = 91) -> pl.DataFrame:
    """The story of app-4: its agent exits after six minutes, its terminal stays."""
    polls = []
    for place in range(n_polls):
        minute = place / 2
        poll = started(minute) if minute >= 1 else {}
        if minute >= 6:
            gone = {"activity": "exited", "activity_at": poll_at(minute), "process_probe": "dead"}
            poll = poll | gone
        polls.append(poll)
    return story("app-4", polls, SPAWNED)


@pytest.mark.slow
def test_a_long_afternoon_ends_in_the_record_that_the_real_code_wrote(shared: Path) -> None:
    record = final_record(shared, "app-4")
    last = replay_polls(exits_at_six()).row(-1, named=True)
    session, runtime = record["lifecycle"]["session"], record["lifecycle"]["runtime"]
    assert (last["session_state"], last["session_reason"]) == (session["state"], session["reason"])
    assert (last["runtime_state"], last["runtime_reason"]) == (runtime["state"], runtime["reason"])
    assert last["evidence"] == record["lifecycleEvidence"]
    assert last["stored_status"] == record["status"]
    assert last["detecting_attempts"] == int(record["detectingAttempts"])
    assert last["detecting_hash"] == record["detectingEvidenceHash"]
    assert last["watcher_trigger"] == record["reportWatcherActiveTrigger"]
    assert last["watcher_count"] == int(record["reportWatcherTriggerCount"])
    for column, stored in (
        ("detecting_started_at", record["detectingStartedAt"]),
        ("detecting_escalated_at", record["detectingEscalatedAt"]),
        ("watcher_activated_at", record["reportWatcherTriggerActivatedAt"]),
        ("started_at", session["startedAt"]),
        ("last_transition_at", session["lastTransitionAt"]),
    ):
        assert last[column] == datetime.fromisoformat(stored), column


@pytest.mark.slow
def test_five_attempts_instead_of_three_come_a_minute_later() -> None:
    polls = exits_at_six(20)
    patient = PollSettings(budget=DetectingBudget(max_attempts=5))
    first_stuck = [
        replay_polls(polls, settings=chosen).filter(pl.col("status") == "stuck")["at"].min()
        for chosen in (PollSettings(), patient)
    ]
    assert first_stuck == [poll_at(7.5), poll_at(8.5)]


@pytest.mark.slow
def test_a_replay_is_replayed_from_what_others_wrote_alone() -> None:
    once = replay_polls(exits_at_six(18))
    again = replay_polls(once)
    assert_frame_equal(again.select(once.columns), once)


def test_the_merged_session_is_closed_once_its_agent_rests() -> None:
    opened = {"scm_state": "open", "scm_ci": "passing", "scm_review": "approved"}
    opened |= {"scm_is_mergeable": True}
    merged = opened | {"scm_state": "merged"}
    busy = story("app-1", [opened, merged, merged, merged], AT_WORK)
    rests = busy.with_columns(
        activity=pl.when(pl.col("at") >= poll_at(1)).then(pl.lit("idle")).otherwise("activity")
    )
    after = replay_polls(rests)
    assert after["status"].to_list() == ["mergeable", "merged", "merged", "cleanup"]
    assert after["session_state"].to_list() == ["idle", "idle", "terminated", "terminated"]
    assert after["notified_events"].to_list() == [
        "reaction.triggered(approved-and-green):action",
        "merge.completed:action",
        "",
        "",
    ]
    keeps = replay_polls(busy, settings=PollSettings(cleans_up_merged=False))
    assert keeps["session_state"].to_list() == ["idle"] * 4


def test_a_kill_is_written_over_by_the_next_poll_and_a_restore_clears_the_end() -> None:
    dead = {"runtime_probe": "dead", "process_probe": "dead", "activity": "exited"}
    killed = {"session_state": "terminated", "session_reason": "manually_killed"}
    killed |= {"runtime_state": "missing"}
    restored = {"session_state": "working", "session_reason": "task_in_progress"}
    restored |= {"runtime_state": "alive"}
    polls = [{}, dead | written(killed), dead, written(restored)]
    after = replay_polls(story("app-11", polls, AT_WORK))
    assert after["session_reason"].to_list() == [
        "task_in_progress",
        "runtime_lost",
        "runtime_lost",
        "task_in_progress",
    ]
    assert after["decided_by"].to_list() == ["unchanged", "probe", None, "unchanged"]
    assert after["terminated_at"].is_null().to_list() == [True, False, False, True]
    assert after["notified_events"].to_list()[1] == "reaction.triggered(agent-exited):urgent"


def test_a_reaction_of_the_user_takes_the_place_of_the_event() -> None:
    polls = story("one", [{"activity": "waiting_input"}], AT_WORK)
    settings_by_events = {
        "reaction.triggered(agent-needs-input):urgent": PollSettings(),
        "session.needs_input:urgent": PollSettings(reactions={}),
        "": PollSettings(
            reactions=DEFAULT_REACTIONS | {"agent-needs-input": ("send-to-agent", "info")}
        ),
    }
    for events, chosen in settings_by_events.items():
        assert replay_polls(polls, settings=chosen)["notified_events"].item() == events


OBSERVATIONS = st.fixed_dictionaries(
    {
        "runtime_probe": st.sampled_from(["alive", "dead", "throws"]),
        "process_probe": st.sampled_from(["alive", "dead", "throws", "indeterminate"]),
        "activity": st.sampled_from(["active", "idle", "blocked", "exited", "throws", None]),
    }
)


@pytest.mark.slow
@given(st.lists(st.lists(OBSERVATIONS, min_size=1, max_size=4), min_size=1, max_size=3))
@examples(5)
def test_sessions_replay_together_as_they_do_alone(stories: list[list[dict[str, Any]]]) -> None:
    frames = [story(f"app-{n}", polls, AT_WORK) for n, polls in enumerate(stories)]
    together = replay_polls(pl.concat(frames, how="vertical_relaxed").reverse())
    alone = pl.concat([replay_polls(frame) for frame in frames], how="vertical_relaxed")
    keys = ["session_id", "at"]
    assert_frame_equal(together.sort(keys), alone.sort(keys).select(together.columns))


def test_every_stored_column_comes_back() -> None:
    after = replay_polls(story("one", [{}, {}], SPAWNED))
    assert set(STORED) <= set(after.columns)
    assert not [name for name in after.columns if name.startswith("_")]
