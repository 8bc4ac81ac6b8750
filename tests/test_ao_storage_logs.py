"""Agent Orchestrator's logs and databases become transitions and events."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.core.facts import Facts
from stateanalytics.systems.history import facts_at
from tests.ao_trees import (
    CREATED,
    Scenarios,
    facts_of,
    lifecycle,
    put,
    record,
    write_events,
    write_json,
    write_lines,
)
from tests.examples import a_few
from tests.lionagi_stores import wrote

scenario = Scenarios()


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One tree with the session of every scenario of this page, and all logs about them."""
    return facts_of(scenario.written(tmp_path_factory.mktemp("logged")))


def at(minute: int, second: int = 0) -> str:
    return f"2026-05-04T09:{minute:02}:{second:02}.000Z"


def observed(name: str, when: str, before: str, after: str, **keys: object) -> dict:
    data = {"oldStatus": before, "newStatus": after, "evidence": "ci_failing"}
    base = {"source": "ao-observability", "timestamp": when, "component": "lifecycle-manager"}
    base |= {"operation": "lifecycle.transition", "outcome": "success", "projectId": "web"}
    return base | {"sessionId": name, "reason": "ci_failing", "data": data, "level": "warn"} | keys


def notified(name: str, when: str, before: str, after: str) -> dict:
    return {
        "id": "e1", "type": "ci.failing", "priority": "warning", "sessionId": name,
        "projectId": "web", "timestamp": when, "message": f"{name}: {before} to {after}",
        "data": {"oldStatus": before, "newStatus": after},
    }  # fmt: skip


def reported(when: str, before: str, after: str, **keys: object) -> dict:
    states = {
        name: {"legacyStatus": word, "sessionState": "working", "sessionReason": "pr_created"}
        for name, word in (("before", before), ("after", after))
    }
    base = {"timestamp": when, "actor": "dev", "source": "report", "reportState": "pr_created"}
    return base | {"accepted": True} | states | keys


def observability(root: Path, name: str, *lines: object) -> Path:
    """A session, and the log of a process that watched it alone."""
    write_json(root, name, record(lifecycle()))
    return write_lines(root / f"0123456789ab-observability/processes/{name}.ndjson", *lines)


def audit(root: Path, name: str, *lines: object) -> Path:
    """A session, and its audit trail."""
    write_json(root, name, record(lifecycle()))
    return write_lines(root / f"projects/web/sessions/.agent-report-audit/{name}.ndjson", *lines)


def test_the_scenario_tells_the_life_of_a_session(shared: Path) -> None:
    facts = facts_of(shared / "samples" / "agent-orchestrator" / "v3_json_final_ts")
    life = facts.transitions.filter(entity_id="app-1")
    words = "working pr_open ci_failed review_pending changes_requested approved mergeable merged"
    assert life["status"].to_list() == words.split()
    assert life["previous_status"].to_list()[1:] == life["status"].to_list()[:-1]
    minutes = (life["at"] - datetime(2026, 5, 4, 9, tzinfo=UTC)).dt.total_minutes()
    assert minutes.to_list() == [0, 4, 6, 9, 12, 15, 17, 20]
    assert life["writer"].to_list()[1] == "agent_report"


@scenario
def _(root: Path) -> None:
    observability(root, "told-1", observed("told-1", at(6), "pr_open", "ci_failed"))
    again = notified("told-1", at(6, 1), "pr_open", "ci_failed")
    write_lines(root / "dashboard-notifications.jsonl", again)


def test_a_change_that_three_logs_tell_is_one_transition(logged: Facts) -> None:
    changes = logged.transitions.filter(entity_id="told-1")
    row = changes.row(0, named=True)
    assert changes.height == 1
    assert (row["reason_code"], row["message"]) == ("ci_failing", "told-1: pr_open to ci_failed")
    assert json.loads(row["evidence"]) == [{"kind": "tool_result", "detail": "ci_failing"}]
    assert logged.events.filter(entity_id="told-1").height == 2


@scenario
def _(root: Path) -> None:
    audit(root, "polled-1", reported(at(4), "working", "pr_open"))
    observability(root, "polled-1", observed("polled-1", at(4, 30), "working", "pr_open"))


def test_the_poll_that_sees_a_report_tells_the_same_change(logged: Facts) -> None:
    changes = logged.transitions.filter(entity_id="polled-1")
    assert changes.select("writer", "actor").rows() == [("agent_report", "dev")]


@scenario
def _(root: Path) -> None:
    words = (
        (at(6), "working", "stuck"),
        (at(6, 30), "stuck", "working"),
        (at(7), "working", "stuck"),
    )
    observability(root, "back-1", *(observed("back-1", *each) for each in words))


def test_a_session_that_comes_back_changes_twice(logged: Facts) -> None:
    changes = logged.transitions.filter(entity_id="back-1")
    assert changes["status"].to_list() == ["stuck", "working", "stuck"]


@scenario
def _(root: Path) -> None:
    rejected = {"accepted": False, "rejectionReason": "over"}
    audit(root, "rejected-1", reported(at(4), "working", "pr_open", **rejected))


def test_a_rejected_report_changes_nothing_and_is_no_sign_of_life(logged: Facts) -> None:
    assert logged.transitions.filter(entity_id="rejected-1").is_empty()
    row = logged.events.filter(entity_id="rejected-1").row(0, named=True)
    assert (row["kind"], row["is_activity"], row["detail"]) == ("report.rejected", False, "over")


@scenario
def _(root: Path) -> None:
    states = ("active", "ready", "idle", "waiting_input", "blocked", "exited")
    lines = [{"ts": at(n), "state": state, "source": "hook"} for n, state in enumerate(states)]
    write_json(root, "alive-1", record(lifecycle()))
    write_lines(root / "projects/web/worktrees/alive-1/.ao/activity.jsonl", *lines)


def test_only_activity_that_shows_life_counts_as_such(logged: Facts) -> None:
    events = logged.events.filter(pl.col("kind").str.starts_with("activity."))
    assert events.filter("is_activity")["kind"].to_list() == ["activity.active", "activity.ready"]
    assert events["entity_id"].to_list() == ["alive-1"] * 6


@scenario
def _(root: Path) -> None:
    write_json(root, "ill-1", record(lifecycle()))
    escalated = {"sessionId": "ill-1", "action": "escalated", "reason": "partial"}
    write_lines(root / "recovery.log", {"timestamp": at(50), **escalated})
    text = f"version=1\ntool=bug_report\ncreatedAt={CREATED}\ntitle=CI loops\nsession=ill-1\n"
    put(root / "projects/web/feedback-reports/report_x_1.kv", text)


def test_recovery_and_feedback_are_events(logged: Facts) -> None:
    of_others = pl.col("kind").str.contains(r"^(observability|report|activity|notification)\.")
    events = logged.events.filter(~of_others).sort("kind")
    assert events.select("kind", "detail", "entity_id").rows() == [
        ("feedback.bug_report", "CI loops", "ill-1"),
        ("recovery.escalated", "partial", "ill-1"),
    ]


@scenario
def _(root: Path) -> None:
    line = observed("traced-1", at(6), "working", "stuck", correlationId="c1")
    log = observability(root, "traced-1", line)
    other = line | {"correlationId": "c2", "operation": "lifecycle.sync", "timestamp": at(7)}
    put(log.with_suffix(".json"), json.dumps({"version": 1, "traces": [other, line, 3]}))


def test_traces_that_the_log_holds_too_are_told_once(logged: Facts) -> None:
    kinds = sorted(logged.events.filter(entity_id="traced-1")["kind"])
    assert kinds == [f"observability.lifecycle.{word}" for word in ("sync", "transition")]


@scenario
def _(root: Path) -> None:
    observability(root, "young-1", observed("old-7", at(6), "working", "stuck"))


def test_lines_about_unknown_sessions_are_kept_and_counted(logged: Facts) -> None:
    assert logged.transitions.filter(entity_id="old-7").height == 1
    told = logged.findings.filter(code="event.no_record").row(0, named=True)
    assert (told["n_rows"], told["example"]) == (1, "old-7")


@scenario
def _(root: Path) -> None:
    observability(root, "undated-1", observed("undated-1", "yesterday", "working", "stuck"))


def test_a_line_without_a_time_is_kept_without_one(logged: Facts) -> None:
    assert logged.events.filter(entity_id="undated-1")["at"].to_list() == [None]
    assert logged.transitions.filter(entity_id="undated-1").is_empty()
    told = logged.findings.filter(code="event.no_time").row(0, named=True)
    assert (told["n_rows"], told["example"]) == (1, "observability.lifecycle.transition")


def test_sessions_of_one_name_keep_their_own_logs(tmp_path: Path) -> None:
    for project in ("web", "shop"):
        write_json(tmp_path, "s-1", record(lifecycle(), project=project), project=project)
        log = tmp_path / "projects" / project / "sessions/.agent-report-audit/s-1.ndjson"
        write_lines(log, reported(at(4), "working", "pr_open", note=project))
    facts = facts_of(tmp_path)
    names = dict(facts.entities.select("entity_id", "project").rows())
    told = facts.events.select("entity_id", "detail").rows()
    assert sorted(told) == sorted(names.items())


@pytest.mark.parametrize("name", ["recovery.log", "activity.jsonl"])
def test_one_log_can_be_named_by_itself(tmp_path: Path, name: str) -> None:
    line = {"timestamp": at(5), "ts": at(5), "sessionId": "web-1", "action": "skipped"}
    path = write_lines(tmp_path / "worktrees" / "web-1" / ".ao" / name, line | {"state": "idle"})
    facts = facts_of(path)
    assert facts.entities.is_empty()
    assert facts.events["entity_id"].to_list() == ["web-1"]


# --- databases ------------------------------------------------------------------------------


def events_database(path: Path) -> Path:
    return write_events(
        path,
        (1_777_885_200_000, None, "web-1", "lifecycle.transition",
         '{"from":"spawning","to":"working"}'),
        (1_777_885_260_000, None, "web-1", "activity.transition", '{"from":"idle","to":"active"}'),
        (1_777_885_320_000, None, "web-1", "detecting.escalated",
         '{"attempts":4,"cause":"max_attempts"}'),
        (1_777_885_380_000, None, "web-1", "session.killed", "not json"),
    )  # fmt: skip


def test_activity_events_are_events_and_transitions(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle()))
    events_database(tmp_path / "activity-events.db")
    facts = facts_of(tmp_path)
    assert facts.transitions.select("previous_status", "status").rows() == [("spawning", "working")]
    assert facts.events["kind"].to_list()[1:3] == ["activity.transition", "detecting.escalated"]
    assert facts.events["is_activity"].to_list() == [False, True, False, False]
    assert "cell.not_json" in facts.findings["code"]
    assert facts.sources["format"].item() == "G2, activity events"


def test_an_events_database_can_be_named_under_any_name(tmp_path: Path) -> None:
    facts = facts_of(events_database(tmp_path / "copy.sqlite"))
    assert facts.sources["system"].to_list() == ["agent_orchestrator"]
    assert facts.events.height == 4


def go_database(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    script = """
        CREATE TABLE sessions (id TEXT, project_id TEXT, kind TEXT, harness TEXT,
          activity_state TEXT, activity_last_at TEXT, is_terminated INTEGER,
          first_signal_at TEXT, created_at TEXT, updated_at TEXT);
        CREATE TABLE pr (url TEXT, session_id TEXT, number INTEGER, pr_state TEXT,
          review_decision TEXT, ci_state TEXT, mergeability TEXT);
        CREATE TABLE change_log (seq INTEGER, project_id TEXT, session_id TEXT,
          event_type TEXT, payload TEXT, created_at TEXT);
        INSERT INTO sessions VALUES
          ('web-1','web','worker','codex','active','2026-07-01 10:00:00.123456789 +0000 UTC',0,
           '2026-07-01T10:00:00Z','2026-07-01 09:00:00+00:00','2026-07-01 10:00:00+00:00'),
          ('web-2','web','worker','codex','idle','2026-07-01T09:00:00Z',0,NULL,
           '2026-07-01T09:00:00Z','2026-07-01T09:00:00Z'),
          ('web-3','web','worker','aider','idle','2026-07-01T09:00:00Z',0,NULL,
           '2026-07-01T09:00:00Z','2026-07-01T09:00:00Z'),
          ('web-4','web','worker','codex','exited','2026-07-01T09:00:00Z',1,NULL,
           '2026-07-01T09:00:00Z','2026-07-01T09:30:00Z'),
          ('web-5','web','worker','codex','idle','2026-07-01T09:00:00Z',1,NULL,
           '2026-07-01T09:00:00Z','2026-07-01T09:30:00Z');
        INSERT INTO pr VALUES
          ('https://github.com/a/b/pull/3','web-3',3,'open','none','failing','unknown'),
          ('https://github.com/a/b/pull/4','web-3',4,'open','approved','passing','mergeable'),
          ('https://github.com/a/b/pull/5','web-5',5,'merged','approved','passing','unknown');
        INSERT INTO change_log VALUES
          (1,'web','web-1','session_created','{}','2026-07-01T09:00:00Z');
        """
    with closing(sqlite3.connect(path)) as store:
        store.executescript(script)
    return path


@pytest.mark.parametrize("name", a_few([".ao", ".ao/data", ".ao/data/ao.db"]))
def test_the_go_rewrite_is_read_with_the_status_it_derives(tmp_path: Path, name: str) -> None:
    go_database(tmp_path / ".ao" / "data" / "ao.db")
    facts = facts_of(tmp_path / name)
    sessions = facts.detail("ao_sessions").sort("session_id")
    statuses = ["working", "no_signal", "ci_failed", "terminated", "merged"]
    assert sessions["legacy_status"].to_list() == statuses
    assert sessions["health"].to_list()[1] == "disconnected"
    of_pulls = sessions.filter(session_id="web-3").select("n_prs", "pr_number", "delivery")
    assert of_pulls.row(0) == (2, 3, "invalid")
    assert sessions["outcome"].to_list() == [None, None, None, "aborted", "merged"]
    last_at = datetime(2026, 7, 1, 10, 0, 0, 123_000, tzinfo=UTC)
    assert facts.entities["last_activity_at"].max() == last_at
    assert facts.events["kind"].to_list() == ["change.session_created"]
    assert set(sessions["generation"]) == {"G3"}
    assert facts.sources["format"].item() == "G3"
    assert facts.findings.filter(pl.col("severity") == "error").is_empty()


@pytest.mark.slow
@pytest.mark.parametrize(("is_bot", "status"), [(1, "mergeable"), (0, "changes_requested")])
def test_what_a_bot_remarks_on_a_pull_request_waits_for_nobody(tmp_path, is_bot, status) -> None:
    path = go_database(tmp_path / "ao.db")
    url, said_at = "https://github.com/a/b/pull/4", "2026-07-01T10:00:00Z"
    words = '"state":"open","ci":"passing","review":"approved","mergeability":"mergeable"'
    pull = f'{{"url":"{url}",{words}}}'
    thread = f'{{"pr":"{url}","thread":"T1","resolved":false,"isBot":{json.dumps(bool(is_bot))}}}'
    lines = (
        ("session_created", '{"id":"web-3","activity":"idle","isTerminated":false}'),
        ("pr_created", pull),
        ("pr_review_thread_added", thread),
    )
    said = [(i, *line, said_at) for i, line in enumerate(lines, 2)]
    wrote(
        path,
        "DELETE FROM pr WHERE number = 3",
        "UPDATE sessions SET updated_at = '2026-07-01T11:00:00Z'",
        "CREATE TABLE pr_comment (pr_url, comment_id, resolved, is_bot)",
        ("INSERT INTO pr_comment VALUES (?, 'C1', 0, ?)", [(url, is_bot)]),
        ("INSERT INTO change_log VALUES (?, 'web', 'web-3', ?, ?, ?)", said),
    )
    facts = facts_of(path)
    assert facts.detail("ao_sessions").filter(session_id="web-3")["legacy_status"].item() == status
    then = facts_at(facts, datetime(2026, 7, 1, 10, 0, 0, 500, tzinfo=UTC)).facts.entities
    assert then.filter(entity_id="web-3")["raw_status"].item() == status


def test_a_database_of_the_go_rewrite_without_rows_is_read(tmp_path: Path) -> None:
    path = go_database(tmp_path / "ao.db")
    wrote(path, *(f"DELETE FROM {table}" for table in ("sessions", "pr", "change_log")))
    facts = facts_of(path)
    assert facts.entities.is_empty()
    assert facts.detail("ao_sessions").is_empty()
    assert facts.findings.is_empty()
    assert facts.sources["format"].item() == "G3"


@pytest.mark.slow
def test_the_current_database_of_the_go_rewrite_is_read_empty_and_full(shared: Path) -> None:
    folder = shared / "samples" / "agent-orchestrator-go"
    assert facts_of(folder / "empty.db").entities.is_empty()
    types = facts_of(folder / "ao.db").entities["entity_type"]
    assert dict(types.value_counts().rows()) == {
        "session": 45, "turn": 11, "review_run": 5, "agent_switch": 2, "interface_transition": 2,
        "spawn": 1,
    }  # fmt: skip
