"""Small whole inputs of every format, made from the shipped samples and by hand."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import stateanalytics as sa
from tests.ao_trees import lifecycle, put, record, write_events, write_flat, write_json, write_lines
from tests.opencode_logs import T0, event, step, write

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples"
AT = "2026-05-04T09:00:00.000Z"

# Which rows of the sample's tables are kept; of all others the first few.
_KEPT = {
    "sessions": "rowid % 29 = 0",
    "branches": "session_id IN (SELECT id FROM sessions WHERE rowid % 29 = 0)",
    "progressions": "id IN (SELECT progression_id FROM sessions WHERE rowid % 29 = 0 UNION "
    "SELECT progression_id FROM branches WHERE session_id IN "
    "(SELECT id FROM sessions WHERE rowid % 29 = 0))",
    "status_transitions": "entity_id IN (SELECT id FROM sessions WHERE rowid % 29 = 0)"
    " OR rowid % 60 = 0",
    "messages": "rowid % 40 = 0",
    "session_signals": "rowid % 40 = 0",
    "schedule_runs": "rowid % 5 = 0",
}


def lionagi(folder: Path) -> Path:
    """A store of a dozen sessions with run and show directories beside it."""
    with closing(sqlite3.connect(folder / "state.db")) as store:
        store.execute("ATTACH ? AS sample", (str(SAMPLES / "state.db"),))
        names = "SELECT name, sql FROM sample.sqlite_master WHERE type = ? AND sql NOT NULL"
        for name, sql in store.execute(names, ("table",)).fetchall():
            store.execute(sql)
            where = _KEPT.get(name, "rowid <= 6")
            store.execute(f'INSERT INTO main."{name}" SELECT * FROM sample."{name}" WHERE {where}')
        for _, sql in store.execute(names, ("index",)).fetchall():
            store.execute(sql)
        store.commit()
        runs = [
            row[0] for row in store.execute("SELECT run_id FROM sessions WHERE run_id NOT NULL")
        ]
    for name in sorted({*runs, *sorted(path.name for path in (SAMPLES / "runs").iterdir())[:2]}):
        if (SAMPLES / "runs" / name).is_dir():
            _copied(SAMPLES / "runs" / name, folder / "runs" / name)
    for path in sorted((SAMPLES / "shows").iterdir())[:2]:
        _copied(path, folder / "shows" / path.name)
    return folder / "state.db"


def _copied(source: Path, target: Path) -> None:
    """Contents only: a sample may be read-only."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def agent_orchestrator(folder: Path) -> Path:
    """A tree with records of every generation and a log of every kind."""
    root = folder / ".agent-orchestrator"
    write_json(root, "app-1", record(lifecycle(), pr="https://github.com/a/b/pull/3"))
    write_json(root, "app-2", record(lifecycle("done", "research_complete", completedAt=AT)))
    write_json(root, "app-3", record(lifecycle("terminated", "manually_killed"), status="killed"))
    write_json(root, "app-4", record(status="working", branch="b", worktree="/w"))
    flat = "82cd38fe090d-billing"
    write_flat(root, "bil-1", directory=flat, status="working", branch="x", createdAt=AT)
    write_flat(root, "bil-2", directory=flat, status="merged", worktree="/w", agentReportedState=
               "completed", agentReportedAt=AT)  # fmt: skip
    state = json.dumps(lifecycle("done", "research_complete"))
    write_flat(root, "bil-4", directory=flat, status="done", stateVersion="2", statePayload=state)
    archived = "archive/bil-3_2026-03-23T01-02-03-004Z"
    write_flat(root, archived, directory=flat, status="killed", branch="y", createdAt=AT)
    sessions = root / "projects/web/sessions"
    write_lines(
        sessions / ".agent-report-audit/app-1.ndjson",
        {"timestamp": AT, "accepted": True, "reportState": "started", "actor": "a",
         "before": {"legacyStatus": "spawning"}, "after": {"legacyStatus": "working"}},
        {"timestamp": AT, "accepted": False, "rejectionReason": "no", "reportState": "x"},
    )  # fmt: skip
    seen = [{"ts": AT, "state": state, "source": "hook"} for state in ("active", "idle")]
    write_lines(root / "projects/web/worktrees/app-2/.ao/activity.jsonl", *seen)
    base = {"timestamp": AT, "projectId": "web", "sessionId": "app-1"}
    log = {**base, "operation": "lifecycle.transition", "data": {"from": "working", "to": "stuck"}}
    write_lines(root / "0123456789ab-observability/processes/lifecycle-1.ndjson", log, base)
    snapshot = {"component": "lifecycle-manager", "traces": [log], "recentTraces": [log]}
    write_lines(root / "0123456789ab-observability/processes/lifecycle-1.json", snapshot)
    change = {"kind": "session_status", "from": "working", "to": "pr_open"}
    told = {"event": {**base, "type": "session.updated", "data": {"transition": change}}}
    write_lines(root / "dashboard-notifications.jsonl", told)
    write_lines(root / "recovery.log", {**base, "action": "cleanup", "previousStatus": "working"})
    feedback = f"id=r1\ntool=bug_report\ncreatedAt={AT}\nsession=app-1\ntitle=x\nbody=y\n"
    put(root / "projects/web/feedback-reports/report_2026-05-04T09-15-00-050Z_51.kv", feedback)
    kinds = ("lifecycle.transition", "activity.transition", "session.killed", "detecting.x")
    data = '{"from":"a","to":"b"}'
    events = [(1_777_885_200_000 + n, None, "app-1", kinds[n % 4], data) for n in range(12)]
    write_events(root / "activity-events.db", *events)
    return root


GO = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, project_id TEXT, kind TEXT, harness TEXT,
  activity_state TEXT, activity_last_at TEXT, is_terminated INTEGER, first_signal_at TEXT,
  created_at TEXT, updated_at TEXT, branch TEXT, display_name TEXT, issue_id TEXT, model TEXT);
CREATE TABLE pr (url TEXT, session_id TEXT, number INTEGER, pr_state TEXT, review_decision TEXT,
  ci_state TEXT, mergeability TEXT, additions INTEGER, deletions INTEGER, updated_at TEXT);
CREATE TABLE pr_comment (pr_url TEXT, resolved INTEGER);
CREATE TABLE change_log (seq INTEGER PRIMARY KEY, project_id TEXT, session_id TEXT,
  event_type TEXT, payload TEXT, created_at TEXT);
CREATE INDEX i ON sessions (activity_state);
"""


def agent_orchestrator_go(folder: Path) -> Path:
    """The database of the Go rewrite."""
    at = "2026-07-01 10:00:00.123456789 +0000 UTC"
    states = ("active", "idle", "exited", "waiting", "blocked", "ready")
    with closing(sqlite3.connect(folder / "ao.db")) as store:
        store.executescript(GO)
        for n, state in enumerate(states):
            row = (f"w-{n}", "web", "worker", "codex", state, at, int(n == 2), at, at, at)
            store.execute(f"INSERT INTO sessions VALUES ({'?, ' * 10}'b', 'd', 'i', 'm')", row)
            pull = (f"https://x/pull/{n}", f"w-{n}", n, "open", "none", "failing", "unknown")
            store.execute(f"INSERT INTO pr VALUES ({'?, ' * 7}1, 2, ?)", (*pull, at))
            changed = (n, f"w-{n}", '{"activity_state": "idle"}', at)
            store.execute("INSERT INTO change_log VALUES (?, 'web', ?, 'changed', ?, ?)", changed)
        store.execute("INSERT INTO pr_comment VALUES ('https://x/pull/1', 0)")
        store.commit()
    return folder / "ao.db"


def opencode_log(folder: Path) -> Path:
    """Real events of a few sessions, and made ones with failures and asks."""
    lines = (SAMPLES / "opencode" / "events_july_2026.jsonl").read_text().splitlines()[:40]
    error = {"type": "provider.rate-limit", "message": "slow down", "status": 429}
    made = [
        event(0, "created"), event(1, "execution.started"), step(2, "step.started", agent="build"),
        step(3, "tool.called", callID="c1", name="bash"), step(4, "tool.failed", callID="c1"),
        step(5, "step.failed", error=error), event(6, "execution.failed", error=error),
        event(None, "permission.asked", id="per_1"), event(0, "execution.started", "ses_b"),
    ]  # fmt: skip
    return write(folder / "log.jsonl", [*lines, *made])


def claude_code(folder: Path) -> Path:
    """Transcripts of a few sessions: copied, with a subagent, failed, cut off."""
    left_out = shutil.ignore_patterns("*.py", "*.md")
    return Path(shutil.copytree(SAMPLES / "claude_code", folder / "claude", ignore=left_out))


def codex(folder: Path) -> Path:
    """Rollouts of a few threads: inherited, packed, failed, cut off."""
    left_out = shutil.ignore_patterns("*.py", "*.md")
    return Path(shutil.copytree(SAMPLES / "codex", folder / "codex", ignore=left_out))


def _info(role: str, **others: object) -> dict:
    return {
        "id": f"msg_{role}",
        "sessionID": "ses_x",
        "role": role,
        "time": {"created": T0},
        **others,
    }


def opencode_export(folder: Path) -> Path:
    """What ``opencode export`` writes."""
    tool = {
        "type": "tool",
        "tool": "bash",
        "callID": "c",
        "state": {"status": "error", "error": "x"},
    }
    ended = _info("assistant", finish="stop", time={"created": T0, "completed": T0 + 9})
    failed = {"name": "APIError", "data": {"message": "overloaded", "statusCode": 529}}
    document = {
        "info": {"id": "ses_x", "title": "t", "version": "1.18", "time": {"created": T0}},
        "messages": [
            {"info": _info("user"), "parts": [{"type": "text", "text": "hi"}]},
            {"info": ended, "parts": [tool]},
            {"info": _info("assistant", id="m3", error=failed), "parts": []},
        ],
    }
    return put(folder / "export.json", json.dumps(document))


def opencode_storage(folder: Path) -> Path:
    """Files of the time before databases."""
    root = folder / "storage"
    session = {
        "id": "ses_x",
        "projectID": "p",
        "title": "t",
        "time": {"created": T0, "updated": T0},
    }
    put(root / "session/p/ses_x.json", json.dumps(session))
    put(root / "session/p/ses_y.json", json.dumps({**session, "id": "ses_y", "parentID": "ses_x"}))
    put(root / "message/ses_x/msg_user.json", json.dumps(_info("user")))
    put(root / "message/ses_x/msg_assistant.json", json.dumps(_info("assistant", finish="stop")))
    part = {
        "id": "prt_1",
        "messageID": "msg_assistant",
        "sessionID": "ses_x",
        "type": "text",
        "text": "x",
    }
    put(root / "part/msg_assistant/prt_1.json", json.dumps(part))
    return root


OPENCODE = """
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text, seq integer, created integer DEFAULT 0,
  type text, data text);
CREATE TABLE session_v2 (id text, parent_id text, title text, version text, cost real,
  time_created integer, time_updated integer, time_suspended integer, resume_attempts integer,
  idle_outcome text);
CREATE TABLE session (id text, title text, version text, time_created integer, model text);
CREATE TABLE session_message (id text, session_id text, type text, seq integer,
  time_created integer, time_updated integer, data text);
CREATE TABLE message (id text, session_id text, time_created integer, data text);
CREATE TABLE part (id text, message_id text, session_id text, data text);
CREATE TABLE session_input (id text, promoted_seq integer);
CREATE TABLE account (id text, token text);
"""


def opencode_database(folder: Path) -> Path:
    """A database with all three eras, and one legacy file beside it."""
    lines = (SAMPLES / "opencode" / "events_july_2026.jsonl").read_text().splitlines()[:30]
    with closing(sqlite3.connect(folder / "opencode.db")) as store:
        store.executescript(OPENCODE)
        for line in lines:
            one = json.loads(line)
            place, data = one["durable"], json.dumps(one["data"])
            row = (one["id"], place["aggregateID"], place["seq"], one["created"], one["type"], data)
            store.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", row)
        for n, identity in enumerate(("ses_taken", "ses_own", "ses_late")):
            new = (identity, T0 + n, n)
            store.execute(
                "INSERT INTO session_v2 VALUES (?, NULL, 't', '2', 0, ?, 0, 0, ?, NULL)", new
            )
            old = (identity, T0, '{"id": "m", "providerID": "p"}')
            store.execute("INSERT INTO session VALUES (?, 't', '1', ?, ?)", old)
            for role in ("user", "assistant"):
                info = json.dumps({"role": role, "finish": "stop", "time": {"created": T0 + n}})
                key = (f"m{role}{n}", identity)
                store.execute("INSERT INTO message VALUES (?, ?, 1795220000000, ?)", (*key, info))
                said = (*key, role, n, T0, T0, '{"finish": "content-filter", "content": []}')
                store.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", said)
            part = (f"p{n}", f"massistant{n}", identity, '{"type": "text", "text": "x"}')
            store.execute("INSERT INTO part VALUES (?, ?, ?, ?)", part)
        store.execute("INSERT INTO session_input VALUES ('i1', NULL)")
        store.commit()
    opencode_storage(folder)
    return folder / "opencode.db"


RULES = """version = 1

[[rule]]
name = "provider limit"
action = "merge"
code = "run.failed.*"
message = '(?i)rate limit|overloaded|timed out'
into_code = "run.failed.provider"

[[rule]]
name = "hosts"
action = "split"
message = 'host (\\S+)'

[[rule]]
name = "noise"
action = "ignore"
code = ""
"""
POLICY = """base = "operator"
version = "ours"
idle_after_s = 1800
stalled_after_default_s = 5400.0
is_display_verbose = true

[stalled_after_s]
agent = 7200

[read_as.session]
done = "completed"
"<null>" = "completed"

[limits.lionagi]
"""


def rules(folder: Path) -> Path:
    """A file of rules."""
    return put(folder / "rules.toml", RULES)


def policy(folder: Path) -> Path:
    """A policy in TOML."""
    return put(folder / "policy.toml", POLICY)


def report(folder: Path) -> Path:
    """The JSON of a report."""
    path = lionagi(folder)
    with sa.read(path, progress=False) as snap:
        return sa.report(snap, shown=False).write_json(folder / "report.json")
