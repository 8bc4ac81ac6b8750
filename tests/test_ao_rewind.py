"""Sessions of Agent Orchestrator at earlier instants, and the instant at which a tree stands."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import polars.selectors as cs
import pytest

import stateanalytics as sa
from stateanalytics.state.definitions import LEFT_OUT
from stateanalytics.state.population import population
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.go_sessions import go_moment
from stateanalytics.systems.agent_orchestrator.reading import CLOCKS
from stateanalytics.systems.history import facts_at
from tests.ao_trees import (
    CREATED,
    facts_of,
    lifecycle,
    record,
    write_events,
    write_flat,
    write_json,
    write_lines,
)

LATER = "2026-05-04T09:40:00.000Z"
NOON = datetime(2026, 5, 4, 9, 20, tzinfo=UTC)


def at_noon(tree: Path, session: str = "web-1", at: datetime = NOON) -> dict:
    """The entity of a session, its record, and what of it is lost."""
    facts = facts_of(tree)
    past = facts_at(facts, at)
    rows = past.facts.entities.with_columns(past.lost.select(pl.all().name.prefix("lost_")))
    records = past.facts.detail(frames.SESSIONS)
    assert records.filter(~pl.col("is_current") & pl.any_horizontal(cs.datetime() > at)).is_empty()
    both = rows.join(records.filter("is_current"), on="entity_id", suffix="_record")
    return both.row(by_predicate=pl.col("entity_id") == session, named=True)


def polled(tree: Path, *polls: tuple[str, str, str], previous: str = "not_started") -> None:
    """Lines of the observability log: when, the session's state and its reason."""
    lines = []
    for at, state, reason in polls:
        words = {"PRState": "none", "PRReason": "not_created"}
        words |= {"RuntimeState": "alive", "RuntimeReason": "process_running"}
        old = {**words, "SessionState": previous, "SessionReason": "spawn_requested"}
        new = {**words, "SessionState": state, "SessionReason": reason}
        data = {f"previous{key}": word for key, word in old.items()}
        data |= {f"new{key}": word for key, word in new.items()}
        data |= {"oldStatus": previous, "newStatus": state, "detectingAttempts": 0}
        data["evidence"] = f"activity_signal=valid activity=active at={at}"
        lines.append(
            {"timestamp": at, "operation": "lifecycle.transition", "projectId": "web",
             "sessionId": "web-1", "data": data, "level": "info"}
        )  # fmt: skip
        previous = state
    write_lines(tree / "82cd38fe090d-observability" / "processes" / "poll-1.ndjson", *lines)


@pytest.mark.slow
def test_the_newest_line_tells_the_axes_by_the_mapping_of_now(tmp_path: Path) -> None:
    life = lifecycle("terminated", "manually_killed", lastTransitionAt=LATER, terminatedAt=LATER)
    write_json(tmp_path, "web-1", record(life))
    polled(
        tmp_path,
        ("2026-05-04T09:05:00.000Z", "working", "task_in_progress"),
        ("2026-05-04T09:15:00.000Z", "stuck", "probe_failure"),
        (LATER, "terminated", "manually_killed"),
    )
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["recorded_lifecycle"]) == ("stuck", "running")
    assert then["recorded_health"] == "stalled"
    assert then["recorded_reason_codes"] == "run.health.stalled"
    newest = datetime(2026, 5, 4, 9, 15, tzinfo=UTC)
    assert then["updated_at"] == then["last_activity_at"] == newest
    assert (then["session_state"], then["terminated_at"], then["ended_at"]) == ("stuck", None, None)
    assert not any(then[f"lost_{name}"] for name in ("status", "reason", "record", "silence"))
    before = at_noon(tmp_path, at=datetime(2026, 5, 4, 9, 1, tzinfo=UTC))
    assert (before["raw_status"], before["recorded_lifecycle"]) == ("spawning", "pending")


@pytest.mark.slow
def test_what_nobody_recorded_is_null_and_said(tmp_path: Path) -> None:
    life = lifecycle("terminated", "manually_killed", lastTransitionAt=LATER, terminatedAt=LATER)
    enriched = json.dumps({"title": "Add a cart", "ciStatus": "passing", "enrichedAt": LATER})
    write_json(tmp_path, "web-1", record(life, prEnrichment=enriched, recoveryCount="2"))
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["recorded_lifecycle"]) == (None, "unknown")
    assert (then["ended_at"], then["updated_at"], then["session_state"]) == (None, None, None)
    assert (then["pr_title"], then["pr_ci_status"], then["n_recoveries"]) == (None, None, None)
    assert then["lost_status"] and then["lost_reason"] and then["lost_record"]
    with sa.read(tmp_path, as_of=NOON, progress=False) as snap:
        missing = snap.findings.filter(pl.col("code") == "time.not_recorded")
        assert "raw_status" in missing["column"].to_list()


@pytest.mark.slow
def test_a_record_that_was_last_written_by_then_says_what_it_says(tmp_path: Path) -> None:
    earlier = "2026-05-04T09:10:00.000Z"
    write_json(tmp_path, "web-1", record(lifecycle(lastTransitionAt=earlier), lastSeen="x"))
    write_json(tmp_path, "web-2", record(lifecycle(lastTransitionAt=LATER)))
    then, now = at_noon(tmp_path), at_noon(tmp_path, at=datetime(2026, 5, 4, 9, 40, tzinfo=UTC))
    for name in ("raw_status", "recorded_lifecycle", "recorded_reasons", "updated_at"):
        assert then[name] == now[name] is not None
    assert not then["lost_status"]


def test_a_status_that_is_younger_than_the_axes_stands_alone(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle(lastTransitionAt=LATER)))
    polled(tmp_path, ("2026-05-04T09:05:00.000Z", "working", "task_in_progress"))
    said = {"type": "session.stuck", "projectId": "web", "sessionId": "web-1"}
    said |= {"timestamp": "2026-05-04T09:15:00.000Z",
             "data": {"oldStatus": "working", "newStatus": "stuck"}}  # fmt: skip
    write_lines(tmp_path / "82cd38fe090d-observability" / "dashboard-notifications.jsonl",
                {"event": said})  # fmt: skip
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["recorded_health"]) == ("stuck", "stalled")
    assert (then["session_state"], then["is_synthesized"]) == (None, True)
    assert "run.lifecycle.synthesized" in then["recorded_reason_codes"]


def test_a_report_changes_the_session_and_by_its_status_the_pull_request(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle(lastTransitionAt=LATER),
               agentReportedState="working", agentReportedAt=LATER))  # fmt: skip
    polled(tmp_path, ("2026-05-04T09:05:00.000Z", "working", "task_in_progress"))
    before = {"legacyStatus": "working", "sessionState": "working",
              "sessionReason": "task_in_progress"}  # fmt: skip
    after = {"legacyStatus": "pr_open", "sessionState": "idle", "sessionReason": "pr_created"}
    line = {"timestamp": "2026-05-04T09:10:00.000Z", "actor": "dev", "source": "report",
            "reportState": "pr_created", "note": "see 7", "before": before}  # fmt: skip
    folder = tmp_path / "projects" / "web" / "sessions" / ".agent-report-audit"
    write_lines(
        folder / "web-1.ndjson",
        line | {"accepted": True, "after": after},
        line | {"accepted": False, "after": after, "timestamp": "2026-05-04T09:11:00.000Z"},
    )
    then = at_noon(tmp_path)
    shown = [then[name] for name in ("raw_status", "pr_state", "runtime_state")]
    assert shown == ["pr_open", "open", "alive"]
    assert (then["report_state"], then["report_note"]) == ("pr_created", "see 7")
    assert then["report_at"] == datetime(2026, 5, 4, 9, 10, tzinfo=UTC)
    assert not then["lost_report"]


@pytest.mark.slow
def test_an_archive_tells_its_session_until_it_was_restored(tmp_path: Path) -> None:
    keys = {"project": "web", "agent": "codex", "createdAt": CREATED}
    folder = "82cd38fe090d-web"
    write_flat(tmp_path, "archive/web-1_2026-05-04T09-10-00-000Z", directory=folder,
               status="killed", **keys)  # fmt: skip
    write_flat(tmp_path, "web-1", directory=folder, status="spawning",
               restoredAt="2026-05-04T09:30:00.000Z", **keys)  # fmt: skip
    then = at_noon(tmp_path)
    ended_at = datetime(2026, 5, 4, 9, 10, tzinfo=UTC)
    assert (then["raw_status"], then["ended_at"]) == ("killed", ended_at)
    assert at_noon(tmp_path, at=datetime(2026, 5, 4, 9, 5, tzinfo=UTC))["raw_status"] is None


def test_a_change_that_nobody_logged_makes_the_status_before_it_uncertain(tmp_path: Path) -> None:
    life = lifecycle("terminated", "manually_killed", lastTransitionAt=LATER, terminatedAt=LATER)
    write_json(tmp_path, "web-1", record(life))
    polled(tmp_path, ("2026-05-04T09:05:00.000Z", "working", "task_in_progress"))
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["lost_status"]) == ("working", True)


def test_a_kill_that_an_event_tells_counts_from_then_on(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle(lastTransitionAt=LATER), restoredAt=LATER))
    polled(tmp_path, ("2026-05-04T09:05:00.000Z", "working", "task_in_progress"))
    killed_at = datetime(2026, 5, 4, 9, 10, tzinfo=UTC)
    event = ("web-1", "session.killed", '{"reason":"manually_killed"}')
    write_events(tmp_path / "activity-events.db", (int(killed_at.timestamp() * 1000), "", *event))
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["recorded_lifecycle"]) == ("killed", "cancelled")
    assert then["ended_at"] == killed_at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-08-22 12:00:00.123456789 +0000 UTC", "12:00:00.123"),
        ("2026-08-22 12:00:00", "12:00:00.000"),
        ("2026-08-22 17:30:00.5 +0530 IST m=+12.34", "12:00:00.500"),
    ],
)
def test_a_time_of_the_go_rewrite_counts_by_its_offset(text: str, at: str) -> None:
    read = pl.DataFrame({"text": [text]}).select(go_moment(pl.col("text"))).item()
    assert read == datetime.fromisoformat(f"2026-08-22T{at}+00:00")


# --- the instant at which a tree stands ------------------------------------------------

NEWEST = "2026-05-04T09:45:00.200Z"
PROVEN_AT = datetime(2026, 5, 4, 9, 45, 0, 200_000, tzinfo=UTC)


@pytest.fixture
def records_only(shared: Path, tmp_path: Path) -> sa.Snapshot:
    """A tree of which only the records of sessions were kept."""
    samples = shared / "samples" / "agent-orchestrator" / "v3_json_final_ts"
    for path in samples.glob("projects/*/sessions/*.json"):
        copy = tmp_path / path.relative_to(samples)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return sa.read(tmp_path, progress=False)


def test_a_tree_of_records_stands_at_its_newest_moment(records_only: sa.Snapshot) -> None:
    assert records_only.events.is_empty()
    assert records_only.transitions.is_empty()
    assert records_only.as_of == PROVEN_AT
    assert records_only.sources["last_at"].to_list() == [PROVEN_AT]
    assert "time.future" not in records_only.findings["code"].to_list()


def test_no_age_of_a_tree_of_records_is_negative(records_only: sa.Snapshot) -> None:
    ages = sa.states(records_only).select("age_s", "silence_s", "duration_s")
    assert ages.select((pl.all() < 0).any()).row(0) == (False, False, False)


def test_no_session_of_a_tree_of_records_vanishes_unnamed(records_only: sa.Snapshot) -> None:
    states = sa.states(records_only)
    rows = population(records_only.entities, states, as_of=records_only.as_of)
    assert rows.height == records_only.entities.height == 19
    # One record has neither axes nor a date, and is said to be of no known status.
    assert rows.filter(pl.col("left_out").is_not_null())["left_out"].to_list() == ["legacy"]
    assert "legacy" in LEFT_OUT


PROOFS = {
    "last transition": {"lifecycle": lifecycle(lastTransitionAt=NEWEST)},
    "terminated": {"lifecycle": lifecycle("terminated", "manually_killed", terminatedAt=NEWEST)},
    "completed": {"lifecycle": lifecycle("done", "research_complete", completedAt=NEWEST)},
    "last report": {"agentReportedState": "working", "agentReportedAt": NEWEST},
    "restored": {"restoredAt": NEWEST},
    "watcher": {"reportWatcherTriggerActivatedAt": NEWEST},
    "in doubt": {"detectingStartedAt": NEWEST},
    "looked up": {"prEnrichment": f'{{"enrichedAt": "{NEWEST}"}}'},
    "seen": {"lifecycleEvidence": f"activity_signal=valid activity=active at={NEWEST}"},
}


@pytest.mark.slow
def test_every_moment_of_a_record_proves_that_it_has_been(tmp_path: Path) -> None:
    """Each in a tree of its own."""
    for number, keys in enumerate(PROOFS.values()):
        life = {"lifecycle": lifecycle()} | keys
        write_json(tmp_path / str(number), f"web-{number}", record(**life))
    trees = [tmp_path / str(number) for number in range(len(PROOFS))]
    with sa.read(*trees, progress=False) as snap:
        assert snap.as_of == PROVEN_AT
        proven = dict(zip(PROOFS, snap.sources["last_at"], strict=True))
        assert proven == dict.fromkeys(PROOFS, PROVEN_AT)


def test_one_record_of_a_clock_that_ran_ahead_does_not_make_the_tree_old(tmp_path: Path) -> None:
    for number in range(4):
        write_json(tmp_path, f"web-{number}", record(lifecycle(lastTransitionAt=NEWEST)))
    ahead = record(agentReportedState="working", agentReportedAt="2031-01-01")
    write_json(tmp_path, "web-9", ahead)
    with sa.read(tmp_path, progress=False) as snap:
        assert snap.as_of == PROVEN_AT
        named = snap.findings.filter(pl.col("code") == "time.future")
        assert named["entity_id"].to_list() == ["web-9"]


def test_when_a_file_was_copied_proves_nothing(tmp_path: Path) -> None:
    write_flat(tmp_path, "bil-1", directory="82cd38fe090d-billing", status="working",
               createdAt="2026-03-20T08:00:00.000Z")  # fmt: skip
    with sa.read(tmp_path, progress=False) as snap:
        assert snap.as_of == datetime(2026, 3, 20, 8, tzinfo=UTC)
        assert datetime.now(UTC) - snap.as_of > timedelta(days=1)


def test_every_column_of_a_record_has_one_clock() -> None:
    assert set(CLOCKS) == set(frames.SESSIONS.dtypes)
    clocks = {"static", "own moment", "transition", "update", "derived", "assembled"}
    assert set(CLOCKS.values()) <= {*clocks, *frames.SESSIONS.dtypes}
