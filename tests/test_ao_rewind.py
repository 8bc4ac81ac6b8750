"""How sessions of Agent Orchestrator stood at an earlier instant, case by case."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.databases import go_moment
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests.ao_trees import CREATED, lifecycle, put, record, write_flat, write_json, write_lines

LATER = "2026-05-04T09:40:00.000Z"
NOON = datetime(2026, 5, 4, 9, 20, tzinfo=UTC)


def at_noon(tree: Path, session: str = "web-1", at: datetime = NOON) -> dict:
    """The entity of a session, its record, and what of it is lost."""
    facts, stores = read_facts([tree], shown=False)
    for store in stores:
        store.close()
    past = facts_at(facts, at)
    rows = past.facts.entities.with_columns(past.lost.select(pl.all().name.prefix("lost_")))
    records = past.facts.detail(frames.SESSIONS).filter(pl.col("is_current"))
    both = rows.join(records, on="entity_id", suffix="_record", maintain_order="left")
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
    assert (then["raw_status"], then["recorded_lifecycle"], then["recorded_health"]) == (
        "stuck",
        "running",
        "stalled",
    )
    assert then["recorded_reason_codes"] == "run.health.stalled"
    assert then["ended_at"] is None
    assert then["updated_at"] == datetime(2026, 5, 4, 9, 15, tzinfo=UTC)
    assert then["last_activity_at"] == datetime(2026, 5, 4, 9, 15, tzinfo=UTC)
    assert (then["session_state"], then["terminated_at"]) == ("stuck", None)
    assert not any(value for name, value in then.items() if name.startswith("lost_") and name in (
        "lost_status", "lost_reason", "lost_record", "lost_silence"))  # fmt: skip
    before = at_noon(tmp_path, at=datetime(2026, 5, 4, 9, 1, tzinfo=UTC))
    assert (before["raw_status"], before["recorded_lifecycle"]) == ("spawning", "pending")


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
    said |= {"timestamp": "2026-05-04T09:15:00.000Z"}
    said |= {"data": {"oldStatus": "working", "newStatus": "stuck"}}
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
    assert (then["raw_status"], then["pr_state"], then["runtime_state"]) == (
        "pr_open",
        "open",
        "alive",
    )
    assert (then["report_state"], then["report_note"]) == ("pr_created", "see 7")
    assert then["report_at"] == datetime(2026, 5, 4, 9, 10, tzinfo=UTC)
    assert not then["lost_report"]


def test_an_archive_tells_its_session_until_it_was_restored(tmp_path: Path) -> None:
    keys = {"project": "web", "agent": "codex", "createdAt": CREATED}
    folder = "82cd38fe090d-web"
    write_flat(tmp_path, "archive/web-1_2026-05-04T09-10-00-000Z", directory=folder,
               status="killed", **keys)  # fmt: skip
    write_flat(tmp_path, "web-1", directory=folder, status="spawning",
               restoredAt="2026-05-04T09:30:00.000Z", **keys)  # fmt: skip
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["ended_at"]) == (
        "killed",
        datetime(2026, 5, 4, 9, 10, tzinfo=UTC),
    )
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
    put(tmp_path / "activity-events.db", b"")
    with closing(sqlite3.connect(tmp_path / "activity-events.db")) as db:
        db.execute(
            "CREATE TABLE activity_events (id INTEGER PRIMARY KEY, ts_epoch INTEGER, ts TEXT, "
            "project_id TEXT, session_id TEXT, source TEXT, type TEXT, log_level TEXT, "
            "summary TEXT, data TEXT)"
        )
        epoch = int(datetime(2026, 5, 4, 9, 10, tzinfo=UTC).timestamp() * 1000)
        db.execute(
            "INSERT INTO activity_events VALUES (1, ?, '', 'web', 'web-1', 'session', "
            "'session.killed', 'info', 'killed', '{\"reason\":\"manually_killed\"}')",
            (epoch,),
        )
        db.commit()
    then = at_noon(tmp_path)
    assert (then["raw_status"], then["recorded_lifecycle"]) == ("killed", "cancelled")
    assert then["ended_at"] == datetime(2026, 5, 4, 9, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param("2026-08-22 12:00:00.123456789 +0000 UTC", "12:00:00.123", id="UTC"),
        pytest.param("2026-08-22 12:00:00", "12:00:00.000", id="of SQLite"),
        pytest.param("2026-08-22 17:30:00.5 +0530 IST m=+12.34", "12:00:00.500", id="local"),
    ],
)
def test_a_time_of_the_go_rewrite_counts_by_its_offset(text: str, at: str) -> None:
    read = pl.DataFrame({"text": [text]}).select(go_moment(pl.col("text"))).item()
    assert read == datetime.fromisoformat(f"2026-08-22T{at}+00:00")
