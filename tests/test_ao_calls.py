"""Calls of tools in the chats of Agent Orchestrator's Go rewrite."""

import json

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.failures.call_outcomes import calls
from stateanalytics.failures.struggles import signs, turns
from tests.labelled_sessions import AgentOrchestrator
from tests.lionagi_stores import wrote

AT = "2026-08-22 09:{:02}:{:02} +0000 UTC"
TABLES = AgentOrchestrator.tables | {"conversation_messages": "turn_id sequence role origin text"}


def activity(identity, kind="command", status="completed", *, at=0, **columns):
    """An activity of nine seconds, ``at`` minutes after nine; its detail as JSON."""
    detail = columns.pop("detail", None)
    return {
        "id": identity,
        "conversation_id": "chat",
        "turn_id": columns.pop("turn_id", "turn"),
        "kind": kind,
        "status": status,
        "summary": columns.pop("summary", "npm test"),
        "detail_json": "" if detail is None else json.dumps(detail),
        "created_at": AT.format(at, 0),
        "updated_at": AT.format(at, 9),
        **{"provider_item_id": "", "command_output": "", **columns},
    }


def snapshot(folder, activities, messages=(), **options):
    """A store with one chat of the session s, and a turn that a restart ended."""
    turn = {"conversation_id": "chat", "handled_by_session_id": "s", "started_at": AT.format(0, 0)}
    cut = {"state": "failed", "error_message": "controller ended before the turn completed"}
    rows = {
        "sessions": [{"id": "s", "project_id": "p", "kind": "worker", "harness": "codex",
                      "activity_state": "idle", "created_at": AT.format(0, 0),
                      "updated_at": AT.format(50, 0)}],
        "conversations": [{"id": "chat", "session_id": "s", "current_session_id": "s"}],
        "conversation_turns": [{"id": "turn", **turn, "state": "completed"},
                               {"id": "cut", **turn, **cut}],
        "conversation_messages": [
            dict(zip(TABLES["conversation_messages"].split(), row, strict=True)) for row in messages
        ],
        "conversation_activities": activities,
    }  # fmt: skip
    statements = []
    for table, columns in TABLES.items():
        names = columns.split()
        cells = [tuple(row.get(name) for name in names) for row in rows.get(table, [])]
        marks = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
        statements += [f"CREATE TABLE {table} ({', '.join(names)})", (marks, cells)]
    path = wrote(folder / "ao.db", *statements)
    return sa.read(path, progress=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (activity("a", detail={"command": "grep x y", "exitCode": 1, "durationMs": 1500}),
         ("command", "grep", "expected_nonzero", "exit_nonzero", 1, 1.5)),
        (activity("a", detail={"command": "make", "exitCode": 2}, command_output="no rule"),
         ("command", "make", "failed", "exit_nonzero", 2, 9.0)),
        (activity("a"), ("command", "npm", "ok", None, None, 9.0)),
        (activity("a", status="running"), ("command", "npm", "unknown", None, None, None)),
        (activity("a", status="cancelled"),
         ("command", "npm", "interrupted", "interrupted", None, 9.0)),
        (activity("a", status="failed", turn_id="cut"),
         ("command", "npm", "interrupted", "interrupted", None, 9.0)),
        (activity("a", "file_change", detail={"files": [{"path": "src/a.py", "patch": "+1"}]}),
         ("file_change", "src/a.py", "ok", None, None, 9.0)),
        (
            activity("a", "mcp_tool", "failed", detail={"server": "docs", "toolName": "find",
                     "arguments": {"url": "https://x.org/y"}, "error": "timed out after 60 s"}),
            ("docs__find", "x.org", "timed_out", "timeout", None, 9.0),
        ),
        (
            activity("a", "mcp_tool", detail={"providerToolName": "Read", "success": False,
                     "input": {"file_path": "a.md"}, "output": "File does not exist."}),
            ("Read", "a.md", "failed", "not_found", None, 9.0),
        ),
        (activity("a", detail="no object"), ("command", "npm", "ok", None, None, 9.0)),
        (
            {**activity("a"), "detail_json": "{", "provider_item_id": "item"},
            ("command", "npm", "ok", None, None, 9.0),
        ),
    ],
)  # fmt: skip
def test_an_activity_is_a_call(tmp_path, given, shown):
    found = calls(snapshot(tmp_path, [given])).row(0, named=True)
    columns = ("tool", "target", "outcome", "cause", "exit_code", "duration_s")
    assert tuple(found[name] for name in columns) == shown
    assert [found[name] for name in ("system", "session_id", "thread_id", "entity_id")] == [
        *("agent_orchestrator", "s", "s", "a")
    ]
    assert found["call_id"] == (given["provider_item_id"] or "a")
    assert found["input_digest"] is not None


@pytest.mark.slow
def test_what_else_happens_in_a_chat_is_no_call(tmp_path):
    kinds = ("plan", "reasoning", "approval", "usage", "error", "system", "auto_review")
    snap = snapshot(tmp_path, [activity(kind, kind) for kind in kinds])
    assert calls(snap).is_empty() and snap.error_counts().is_empty()


@pytest.mark.slow
def test_a_loop_in_a_chat_is_a_sign_and_later_calls_are_not_there_before(tmp_path):
    detail = {"command": "npm test", "exitCode": 1}
    own = {"detail": detail, "command_output": "1 failed"}
    snap = snapshot(tmp_path, [activity(f"a{n}", at=n, **own) for n in range(5)])
    [loop] = signs(snap).filter(sign="repeated_error").to_dicts()
    assert (loop["n_calls"], loop["thread_id"], loop["lost_s"]) == (5, "s", 240.0)
    path = snap.sources["source"][0]
    then = calls(sa.read(path, as_of="2026-08-22T09:02:05Z", progress=False))
    assert then["outcome"].to_list() == ["failed", "failed", "unknown"]
    assert then["exit_code"].to_list() == [1, 1, None]


def test_what_a_person_refused_is_denied_though_it_is_stored_as_completed(tmp_path):
    def asked(decision, at):
        detail = {"decision": decision} if decision else None
        return activity(f"ask{at}", "approval", "resolved", at=at, detail=detail)

    snap = snapshot(
        tmp_path,
        [
            *(activity("a", at=0), activity("b", at=1), asked("decline", 2)),
            *(activity("c", at=3), asked("acceptForSession", 4), activity("d", at=5), asked("", 6)),
            *(activity("e", at=7, turn_id="cut"), asked("reject_once", 8)),
        ],
    )
    outcomes = dict(calls(snap).select("entity_id", "outcome").rows())
    # The last question is of another turn than the call before it.
    assert outcomes == {"a": "ok", "b": "denied", "c": "ok", "d": "denied", "e": "ok"}


def test_turns_of_a_chat_show_what_their_words_show(tmp_path):
    messages = [
        *(("turn", 1, "user", "human", "Fix it"), ("turn", 3, "assistant", "provider", "Done.")),
        *(("turn", 2, "assistant", "provider", "I was unable to."),),
        *(("cut", 4, "user", "human", "No, that is wrong"),),
        ("cut", 5, "assistant", "provider", "I was unable to fix the build."),
    ]
    snap = snapshot(tmp_path, [activity("a", turn_id="cut")], messages=messages)
    found = turns(snap).select("entity_id", "gives_up", "is_correction", "turn_no")
    assert sorted(found.rows()) == [("cut", True, True, 1), ("turn", False, False, 2)]
    assert calls(snap)["turn_no"].to_list() == [1]


@pytest.mark.slow
def test_an_archive_has_the_calls_of_a_chat(tmp_path):
    snap = snapshot(tmp_path, [activity("a"), activity("b", detail={"exitCode": 1}, at=1)])
    snap.archive(tmp_path / "history")
    with sa.read(tmp_path / "history", progress=False) as archived:
        kept = calls(archived)
    assert kept.drop("source").equals(calls(snap).drop("source"))
    assert kept.filter(pl.col("outcome") == "failed")["entity_id"].to_list() == ["b"]
