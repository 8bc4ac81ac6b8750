"""What V1 of opencode keeps in messages alone is read as in the other systems."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.systems.history import facts_at, rewound
from stateanalytics.systems.opencode.reading import texts
from stateanalytics.systems.opencode.records import RAN_BY_PERSON
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT
from tests.contract.recording import restore
from tests.opencode_logs import (
    T0,
    event,
    facts_of,
    in_sessions,
    step,
    v1_call,
    v1_export,
    v1_message,
)

RECORDED = ROOT / "tests" / "recorded" / "opencode"

TEXT = {"type": "text", "text": "Done."}
PROMPT = v1_message(1, "user", parts=[TEXT])
ANSWER = v1_message(2, parts=[TEXT])


def session_of(facts):
    return sa.states(facts).filter(entity_type="session").row(0, named=True)


SILENCES = [(60, "running"), (700, "stalled"), (3 * 3600, "process_dead")]


def test_a_fork_is_not_counted_before_it_exists(tmp_path):
    """It copies messages that are older than itself."""
    store = restore(RECORDED, tmp_path / "store") / "opencode.db"
    early = sa.read(store, as_of="2026-11-24T08:16:34Z")
    assert early.entities.filter(entity_type="session").height == 13
    [cost] = sa.failures.costs(early, by=())["total_usd"]
    assert cost == pytest.approx(0.019454, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("silent_s", "health"), SILENCES)
@pytest.mark.parametrize("before", [(), (PROMPT, ANSWER)], ids=["first prompt", "later prompt"])
def test_a_prompt_that_was_never_answered_is_stalled_and_then_dead(
    tmp_path, before, silent_s, health
):
    asked = v1_message(5, "user", parts=[TEXT])
    told = session_of(v1_export(tmp_path, *before, asked, n_silent_s=silent_s))
    assert (told["lifecycle"], told["outcome"], told["health"]) == ("running", None, health)


def test_a_prompt_that_an_answer_took_up_with_another_one_waits_for_nothing(tmp_path):
    # Prompts that come while it works are answered together, and only the last is the parent.
    queued = v1_message(2, "user", parts=[TEXT])
    both = v1_message(3, parentID="msg_1", parts=[TEXT])
    told = session_of(v1_export(tmp_path, PROMPT, queued, both, n_silent_s=9999))
    assert (told["lifecycle"], told["health"]) == ("completed", "ok")


def test_work_that_goes_on_with_a_prompt_that_came_meanwhile_did_not_crash(tmp_path):
    times = {"created": T0 + 20_000, "completed": T0 + 35_000}
    called = v1_message(2, finish="tool-calls", parts=[v1_call()], time=times)
    both = v1_message(4, parentID="msg_3", parts=[TEXT])
    facts = v1_export(tmp_path, PROMPT, called, v1_message(3, "user", parts=[TEXT]), both)
    assert shown(facts, "turn") == [WELL, WELL]
    killed = v1_message(4, "user", parts=[TEXT]), v1_message(5, parentID="msg_4", parts=[TEXT])
    facts = v1_export(tmp_path, PROMPT, called, *killed)
    assert facts.details["opencode_executions"]["outcome"].to_list() == ["crashed", "succeeded"]


def test_an_answer_in_the_shape_that_was_asked_for_ends_its_turn(tmp_path):
    shaped = v1_message(2, finish="tool-calls", parts=[v1_call("StructuredOutput")])
    assert session_of(v1_export(tmp_path, PROMPT, shaped, n_silent_s=9999))["health"] == "ok"


@pytest.mark.parametrize(("parts", "n"), [([v1_call()], 1), ([TEXT], 2)])
def test_an_answer_that_stopped_to_call_a_tool_is_not_idle(tmp_path, parts, n):
    calling = v1_message(2, finish="stop", parts=parts)
    done = v1_message(3, parentID="msg_1", finish="stop", parts=[TEXT])
    turns = v1_export(tmp_path, PROMPT, calling, done).details["opencode_executions"]
    assert turns["n_idle_answers"].to_list() == [n]


def test_the_input_of_a_call_that_still_runs_is_known_since_its_start(tmp_path):
    store = restore(RECORDED, tmp_path / "store") / "opencode.db"
    runs = "json_remove(json_set(data, '$.state.status', 'running'), '$.state.time.end')"
    with closing(sqlite3.connect(store)) as db, db:
        part, start_ms = db.execute(
            "SELECT id, json_extract(data, '$.state.time.start') FROM part "
            "WHERE json_extract(data, '$.state.input.command') IS NOT NULL ORDER BY id"
        ).fetchone()
        db.execute(
            f"UPDATE part SET data = {runs}, time_created = ? WHERE id = ?", (start_ms - 2, part)
        )
    facts, _ = read_facts(store)
    told = []
    for at_ms in (start_ms - 1, start_ms):
        past = facts_at(facts, datetime.fromtimestamp(at_ms / 1000, UTC)).facts
        calls = past.details["opencode_tools"].sort("started_at", nulls_last=True)
        told.append(
            calls.filter(pl.col("ended_at").is_null())
            .select("state", pl.col("target").is_null())
            .rows()
        )
    assert told == [[("streaming", True)], [("running", False)]]


def test_a_prompt_that_waits_is_dropped_with_the_work_that_a_person_stops(tmp_path):
    times = {"created": T0 + 20_000, "completed": T0 + 35_000}
    stopped = v1_message(2, time=times, error={"name": "MessageAbortedError", "data": {}})
    facts = v1_export(tmp_path, PROMPT, stopped, v1_message(3, "user"), n_silent_s=9999)
    assert session_of(facts)["lifecycle"] == "cancelled"


def test_a_prompt_behind_open_work_is_no_second_turn(tmp_path):
    working = v1_message(2, finish=None, time={"created": PROMPT["info"]["time"]["created"] + 1})
    facts = v1_export(tmp_path, PROMPT, working, v1_message(3, "user"), n_silent_s=700)
    assert facts.details["opencode_executions"].height == 1
    assert session_of(facts)["health"] == "stalled"


LIMIT = "shell tool terminated command after exceeding timeout 2000 ms. If this command is expected"
LIMIT_0 = "(Command timed out after 2000 ms)"
NO_ANSWER = "MCP error -32001: Request timed out"
RULE = "The user has specified a rule which prevents you from it"
CTRL_C = "<bash_metadata>\nUser aborted the command\n</bash_metadata>"
TIMED_OUT, INVALID = "timed_out.own_limit", "failed.tool_input_invalid"
CALLS = {
    "exit 7": (v1_call(metadata={"exit": 7}), "failed.exit_nonzero"),
    "exit 0": (v1_call(metadata={"exit": 0}, output="exceeding timeout 5 ms"), ""),
    "time limit": (v1_call(output=f"<shell_metadata>\n{LIMIT}\n</shell_metadata>"), TIMED_OUT),
    "time limit, 0.x": (v1_call(output=f"a\n\n{LIMIT_0}"), TIMED_OUT),
    "time limit of an MCP server": (v1_call("m_x", "error", error=NO_ANSWER), TIMED_OUT),
    "a command that prints the words": (v1_call("read", output=LIMIT_0), ""),
    "Ctrl-C": (v1_call(output=f"a\n\n{CTRL_C}"), "cancelled.interrupted"),
    "bad input": (v1_call("x", "error", error="The x tool was called with invalid arg"), INVALID),
    "wrong input": (v1_call("invalid", input={"error": "Invalid input for tool edit"}), INVALID),
    "no tool": (v1_call("invalid", input={"error": "unavailable tool"}), "failed.tool_unknown"),
    "stopped": (v1_call("task", "error", error="Task cancelled"), "failed.aborted"),
    "forbidden by a rule": (v1_call("x", "error", error=RULE), "failed.permission_rejected"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_completed_without_success_is_none(tmp_path, name):
    call, code = CALLS[name]
    expected = (code.split(".")[0] or "succeeded", code and f"invocation.{code}")
    answer = v1_message(2, parts=[TEXT, call])
    facts = v1_export(tmp_path, PROMPT, answer)
    told = sa.states(facts).filter(entity_type="tool_call").row(0, named=True)
    assert (told["lifecycle"], told["reason_codes"] or "") == expected
    reasons = facts.entities.filter(entity_type="tool_call")["recorded_reasons"].item()
    assert {one["dimension"] for one in json.loads(reasons or "[]")} <= {"lifecycle"}
    assert session_of(facts)["lifecycle"] == "completed"


def test_calls_of_later_versions_are_judged_by_the_same_rules(tmp_path):
    def life(**data):
        return [
            event(0, "execution.started"),
            step(1, "step.started"),
            step(2, "tool.input.started", id="call_1", name="shell"),
            step(3, "tool.called", id="call_1", input={}),
            step(4, "tool.success", id="call_1", **data),
        ]

    lives = {
        "ses_b": life(structured={"exit": 3}),
        "ses_c": life(metadata={"timeout": True}),
        "ses_d": life(metadata={"exit": 0, "timeout": False}),
    }
    facts = facts_of(tmp_path, *in_sessions(lives))
    codes = sa.states(facts).filter(entity_type="tool_call").sort("entity_id")["reason_codes"]
    assert codes.to_list() == ["invocation.failed.exit_nonzero", f"invocation.{TIMED_OUT}", None]


def test_what_messages_do_not_tell_is_null_and_messages_are_counted(tmp_path):
    facts = v1_export(tmp_path, PROMPT, ANSWER, v1_message(3, "user"), v1_message(4))
    for name in ("opencode_sessions", "opencode_executions", "opencode_steps"):
        assert set(facts.details[name]["n_retries"]) == {None}
    assert facts.entities.filter(entity_type="session")["n_messages"].to_list() == [4]


ORIGIN, FORK, AGAIN = (f"ses_{name}" for name in ("origin", "fork", "again"))


def forks_of_forks(path, *, kept=(ORIGIN, FORK, AGAIN), is_counted=True, of="n_input_tokens"):
    """Three sessions, each with the messages of the one before and an answer of its own."""
    store = restore(RECORDED, path / "store") / "opencode.db"
    with closing(sqlite3.connect(store)) as db:
        for table in ("event", "part", "message", "session"):
            db.execute(f"DELETE FROM {table}")
        asked = []
        for number, name in enumerate((ORIGIN, FORK, AGAIN)):
            born = T0 + 100_000 * number
            asked.append(v1_message(10 * number + 1, "user")["info"])
            usage = {"input": 100, "output": 10, "reasoning": 0, "cache": {"read": 0, "write": 0}}
            asked.append(v1_message(10 * number + 2, cost=0.5, tokens=usage)["info"])
            if name not in kept:
                continue
            n_answers = (number + 1) * is_counted
            db.execute(
                "INSERT INTO session (id, project_id, slug, directory, title, version, cost, "
                "tokens_input, tokens_output, time_created, time_updated) "
                "VALUES (?, 'global', 'a', '/a', 'a', '1.18.33', ?, ?, ?, ?, ?)",
                [name, 0.5 * n_answers, 100 * n_answers, 10 * n_answers, born, born],
            )
            for place, info in enumerate(asked):
                own = info | {"id": f"msg_{name}_{place}", "sessionID": name}
                if "parentID" in own:
                    own["parentID"] = f"msg_{name}_{place - 1}"
                at = info["time"]["created"]
                data = json.dumps({k: v for k, v in own.items() if k not in ("id", "sessionID")})
                db.execute(
                    "INSERT INTO message VALUES (?, ?, ?, ?, ?)", [own["id"], name, at, at, data]
                )
        db.commit()
    facts = read_facts(store, as_of=datetime.fromtimestamp(T0 / 1000 + 3600, UTC))[0]
    sessions = facts.entities.filter(entity_type="session")
    return dict(sessions.select("entity_id", of).iter_rows())


@pytest.mark.slow
def test_forks_of_forks_count_what_each_added(tmp_path):
    assert forks_of_forks(tmp_path) == {ORIGIN: 100, FORK: 100, AGAIN: 100}


@pytest.mark.slow
def test_without_the_original_its_work_counts_in_the_oldest_fork_alone(tmp_path):
    assert forks_of_forks(tmp_path, kept=(FORK, AGAIN)) == {FORK: 200, AGAIN: 100}


@pytest.mark.parametrize(("of", "each"), [("n_input_tokens", 100), ("cost_usd", 0.5)])
def test_where_rows_count_nothing_the_answers_count(tmp_path, of, each):
    spent = forks_of_forks(tmp_path, is_counted=False, of=of)
    assert spent == dict.fromkeys((ORIGIN, FORK, AGAIN), each)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "lifecycle"),
    [("", "cancelled"), (" with the following feedback: use rg", "running")],
)
def test_a_rejection_with_instructions_does_not_end_the_turn(tmp_path, answer, lifecycle):
    words = f"The user rejected permission to use this specific tool call{answer}"
    part = v1_call(status="error", error=words)
    facts = v1_export(tmp_path, PROMPT, v1_message(2, finish="tool-calls", parts=[part]))
    assert session_of(facts)["lifecycle"] == lifecycle
    call = sa.states(facts).filter(entity_type="tool_call")
    assert call["reason_codes"].to_list() == ["invocation.failed.permission_rejected"]


@pytest.mark.slow
def test_the_last_messages_of_a_session_have_their_texts(tmp_path):
    database = restore(RECORDED, tmp_path / "store") / "opencode.db"
    with closing(sqlite3.connect(database)) as stored:
        [(told_id, hostile)] = stored.execute(
            "SELECT session_id, json_extract(data, '$.text') FROM part "
            "WHERE json_extract(data, '$.type') = 'text' AND json_extract(data, '$.synthetic') "
            "IS NULL ORDER BY id LIMIT 1"
        )
        stored.execute("UPDATE part SET data = json_set(data, '$.type', 7) WHERE session_id <> ?",
                       (told_id,))  # fmt: skip
        stored.commit()
    snap = sa.read(database, progress=False)
    assert f"message · user: {hostile[:20]}" in repr(sa.session(snap, told_id))
    assert sa.session(snap, told_id).timeline.height > 0
    database.unlink()
    assert hostile not in repr(sa.session(snap, told_id))


def test_the_texts_of_opencode_2_are_those_of_its_events(tmp_path):
    events = [
        ("session.created.1", "ses_a", {"sessionID": "ses_a"}),
        ("session.input.admitted.1", "ses_a", {"input": {"data": {"text": "Fix it's build"}}}),
        ("session.inbox.enqueued.1", "ses_a", {"item": {"payload": {"text": "and the tests"}}}),
        ("session.text.ended.1", "ses_a", {"text": "Done."}),
        ("session.reasoning.ended.1", "ses_a", {"text": "a thought"}),
        ("session.text.ended.1", "ses_b", {"text": "of another"}),
    ]
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as db, db:
        db.execute("CREATE TABLE event_sequence (aggregate_id, seq)")
        db.execute("CREATE TABLE event (id, aggregate_id, seq, created, type, data)")
        rows = [
            (f"evt_{n}", of, n, 1_779_840_000_000 + n, kind, json.dumps({"sessionID": of, **data}))
            for n, (kind, of, data) in enumerate(events)
        ]
        db.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", [*rows, (*rows[0][:5], "{")])
    snap = sa.read(tmp_path / "opencode.db", progress=False)
    found = texts(snap, {"entity_type": "session", "entity_id": "ses_a"})
    assert found.select("role", "text").rows() == [
        *(("user", "Fix it's build"), ("user", "and the tests"), ("assistant", "Done."))
    ]
    assert found["at"].is_sorted() and found["at"].dt.year().to_list() == [2026] * 3


def ran_by_person(number: int) -> tuple[dict, dict]:
    """What V1 writes of a command that a person ran: a prompt of its own, and no finish."""
    words = {"type": "text", "synthetic": True, "text": RAN_BY_PERSON}
    asked = v1_message(number, "user", parts=[words])
    call = v1_call(metadata={"exit": 1}, output="no")
    return asked, v1_message(number + 1, parentID=f"msg_{number}", finish=None, parts=[call])


def shown(facts, entity_type):
    columns = ("lifecycle", "health", "delivery")
    return sa.states(facts).filter(entity_type=entity_type).sort("entity_id").select(columns).rows()


NOT_ASKED, WELL = ("completed", "ok", "not_expected"), ("completed", "ok", "passed")
FAILED = {"name": "APIError", "data": {"message": "no", "statusCode": 500}}


@pytest.mark.parametrize(
    ("before", "session"),
    [
        ((), NOT_ASKED),
        ((PROMPT, ANSWER), WELL),
        ((PROMPT, v1_message(2, error=FAILED)), ("failed", "degraded", "missing")),
    ],
)
def test_a_command_of_a_person_leaves_the_session_as_it_was(tmp_path, before, session):
    facts = v1_export(tmp_path, *before, *ran_by_person(5))
    assert shown(facts, "session") == [session]
    assert shown(facts, "turn")[-1] == NOT_ASKED
    assert {lifecycle for lifecycle, *_ in shown(facts, "step")} <= {"succeeded", "failed"}
    assert not sa.failures.effort(facts)["effort"].is_in(["given_up"]).any()
    own = facts.details["opencode_executions"].row(-1, named=True)
    assert (own["n_steps"], own["n_tools"], own["is_last"]) == (0, 1, not before)
    later = v1_export(tmp_path, *before, *ran_by_person(5), *ran_by_person(20))
    assert shown(rewound(later, facts.as_of).facts, "turn") == shown(facts, "turn")


def test_a_loop_of_calls_that_was_not_allowed_to_go_on_is_declined(tmp_path):
    words = "The user rejected permission to use this specific tool call."
    refused = {"name": "UnknownError", "data": {"message": words}}
    call = v1_call(status="error", error="Tool execution aborted")
    facts = v1_export(tmp_path, PROMPT, v1_message(2, finish=None, error=refused, parts=[call]))
    assert session_of(facts)["reason_codes"] == "run.cancelled.permission_declined"


def test_the_newest_moment_is_that_of_the_last_call(tmp_path):
    call = v1_call(time={"start": T0, "end": T0 + 60_000})
    v1_export(tmp_path, PROMPT, v1_message(2, parts=[call]))
    facts = read_facts(tmp_path / "export.json")[0]
    assert facts.as_of == datetime.fromtimestamp(T0 / 1000 + 60, UTC)
    assert facts.findings.is_empty()


def test_a_command_that_a_person_stopped_is_cancelled(tmp_path):
    asked, ran = ran_by_person(5)
    ran["parts"][0]["state"] |= {
        "metadata": {}, "output": "\n\n<metadata>\nUser aborted the command\n</metadata>"
    }  # fmt: skip
    turns = shown(v1_export(tmp_path, PROMPT, ANSWER, asked, ran), "turn")
    assert turns == [WELL, ("cancelled", "ok", "not_expected")]


def of_itself(number: int, text: str) -> dict:
    return v1_message(number, "user", parts=[{"type": "text", "synthetic": True, "text": text}])


SUBTASK = v1_message(2, finish="tool-calls", parts=[v1_call("task", input={})])
TASK_SAID = of_itself(3, "Summarize the task tool output above and continue with your task.")
OVERFLOWED = v1_message(2, finish=None)
IN_FULL = v1_message(3, "user", parts=[{"type": "compaction", "auto": True, "overflow": True}])
SUMMARY = v1_message(4, parentID="msg_3", agent="compaction", parts=[TEXT])
GOES_ON = "Continue if you have next steps, or stop and ask for clarification if you are unsure."


@pytest.mark.parametrize(
    ("messages", "n_steps", "n_compactions"),
    [
        ((SUBTASK, TASK_SAID, v1_message(4, parentID="msg_3", parts=[TEXT])), 2, 0),
        (
            (OVERFLOWED, IN_FULL, SUMMARY, of_itself(5, f"It was too large.\n\n{GOES_ON}"),
             v1_message(6, parentID="msg_5", parts=[TEXT])), 3, 1,
        ),
    ],
    ids=["the task of a command", "a context that was too long"],
)  # fmt: skip
def test_what_opencode_asks_itself_is_part_of_the_turn(tmp_path, messages, n_steps, n_compactions):
    facts = v1_export(tmp_path, PROMPT, *messages)
    assert shown(facts, "turn") == shown(facts, "session") == [WELL]
    executions = facts.details["opencode_executions"]
    sums = executions.select(pl.col("n_steps", "n_compactions").sum()).row(0)
    assert sums == (n_steps, n_compactions)
    assert "crashed" not in executions["outcome"]
    assert facts.entities.filter(entity_type="session")["n_turns"].to_list() == [1]
    assert facts.entities.filter(entity_type="turn")["attempt"].to_list() == [1]
    died = v1_export(tmp_path, PROMPT, *messages[:2], n_silent_s=9 * 3600)
    assert shown(died, "session") == [("running", "process_dead", "unknown")]


AUTO = v1_message(4, "user", parts=[{"type": "compaction", "auto": True}])
COMPACTED = (
    *(AUTO, v1_message(5, parentID="msg_4", agent="compaction", parts=[TEXT])),
    *(of_itself(6, GOES_ON), v1_message(7, parentID="msg_6", parts=[TEXT])),
)
ASKED = v1_message(8, "user", parts=[{"type": "file"}])


def answered(parts: list[dict]) -> tuple[dict, dict]:
    return v1_message(3, "user", parts=parts), v1_message(4, parentID="msg_3", parts=[TEXT])


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ((PROMPT, ANSWER, v1_message(3, "user"), *COMPACTED), [1, 2, 2]),
        ((*COMPACTED, v1_message(8, "user"), v1_message(9, parentID="msg_8")), [1, 1, 2]),
        ((PROMPT, ANSWER, *COMPACTED, ASKED), [1, 1, 1, 2]),
        # Of a release that does not say who compacted, and of the same words by a person.
        ((PROMPT, ANSWER, *answered([{"type": "compaction"}])), [1, 2]),
        ((PROMPT, ANSWER, *answered([{"type": "text", "text": f"Fix it. {GOES_ON}"}])), [1, 2]),
    ],
)
def test_a_compaction_is_of_the_last_prompt_answered_or_not(tmp_path, messages, turns):
    facts = v1_export(tmp_path, *messages)
    assert facts.details["opencode_executions"]["turn_no"].to_list() == turns
    assert facts.entities.filter(entity_type="session")["n_turns"].to_list() == [turns[-1]]


@pytest.mark.parametrize(("silent_s", "health"), [(60, "running"), (9 * 3600, "process_dead")])
def test_a_command_of_a_person_without_an_end_is_open(tmp_path, silent_s, health):
    asked, _ = ran_by_person(5)
    call = v1_call(status="running", time={"start": T0})
    ran = v1_message(6, parentID="msg_5", finish=None, time={"created": T0 + 60_000}, parts=[call])
    facts = v1_export(tmp_path, PROMPT, ANSWER, asked, ran, n_silent_s=silent_s)
    assert shown(facts, "session") == [WELL]
    assert shown(facts, "turn") == [WELL, ("running", health, "unknown")]


@pytest.mark.parametrize("tool", ["question", "plan_exit"])
def test_a_question_waits_for_a_person_and_is_no_stall(tmp_path, tool):
    call = v1_call(tool, "running", time={"start": T0}, input={"questions": []})
    asking = v1_message(2, finish=None, time={"created": T0 + 20_000}, parts=[call])
    facts = v1_export(tmp_path, PROMPT, asking, n_silent_s=9999)
    assert shown(facts, "session") == [("running", "idle", "unknown")]
    assert sa.detectors.detect(facts).rows.filter("fires").is_empty()
    answered = v1_message(2, finish="tool-calls", parts=[v1_call(tool, input={})])
    assert shown(v1_export(tmp_path, PROMPT, answered), "session") == [
        ("running", "running", "unknown")
    ]
