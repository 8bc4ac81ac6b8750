"""Codex: rollouts of every shape, whole and broken."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stateanalytics.core.facts import Facts
from stateanalytics.failures.run_costs import costs
from stateanalytics.failures.struggles import signs
from stateanalytics.io import json_lines
from stateanalytics.state.states import states
from stateanalytics.systems.codex import frames
from stateanalytics.systems.codex.reading import calls, used_tokens
from stateanalytics.systems.reading import read_facts
from tests.examples import a_few
from tests.lionagi_stores import wrote
from tests.transcripts import (
    NOON,
    SAMPLES,
    Rollout,
    after,
    axes,
    begun_rollout,
    facts_of,
    findings_of,
    rollout_maker,
    state_of,
)

SAMPLE = SAMPLES / "codex"
IDS = {name: rollout.thread_id for name, rollout in rollout_maker.lives().items()}


@pytest.fixture(scope="module")
def sample() -> Facts:
    return read_facts(SAMPLE, as_of=NOON)[0]


def session_of(facts: Facts) -> dict:
    [row] = facts.detail(frames.SESSIONS).to_dicts()
    return row


GOOD = ("completed", "ok", "passed", "run.completed.turn_complete")
EMPTY = "run.delivery.empty_output, run.failed.unrecorded_error"
ASKS = "run.health.open_tool, run.health.awaiting_permission, run.health.stalled"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, GOOD) for name in ("good", "fork", "parent", "child", "died", "undone", "paged")),
        ("stopped", ("cancelled", "ok", "not_expected", "run.cancelled.user_interrupt")),
        ("limit", ("failed", "ok", "missing", "run.failed.provider_quota")),
        ("cut", ("failed", "ok", "missing", "run.failed.provider_transport")),
        ("silent", ("completed", "ok", "missing", EMPTY)),
        ("asking", ("running", "stalled", "unknown", ASKS)),
        ("working", ("running", "running", "unknown", "run.health.open_tool")),
        ("old", ("completed", "ok", "passed", "run.completed.final_message")),
    ],
)
def test_threads_show_the_state_of_their_last_turn(sample, name, expected) -> None:
    assert axes(sample, IDS[name]) == expected


def test_earlier_turns_and_calls_keep_their_own(sample: Facts) -> None:
    found = dict(states(sample).select("entity_id", "reason_codes").iter_rows())
    assert found[f"{IDS['died']}:turn:1"] == "run.aborted.process_dead_no_terminal"
    assert found[f"{IDS['undone']}:turn:2"] == "run.cancelled.user_interrupt"
    assert found[f"{IDS['good']}:call_g2"] == "invocation.failed.exit_nonzero"
    assert found[f"{IDS['paged']}:call_n1"] == "invocation.failed.exit_nonzero"
    assert found[f"{IDS['died']}:call_d1"] == "invocation.failed.no_result"
    assert found[f"{IDS['stopped']}:call_s1"] == "invocation.cancelled.interrupted"
    assert found[f"{IDS['good']}:call_g1"] is None


def test_commands_have_exit_codes_and_durations(sample: Facts) -> None:
    calls = sample.detail(frames.TOOLS).select("call_id", "exit_code", "duration_s", "timeout_s")
    rows = {row[0]: row[1:] for row in calls.iter_rows()}
    assert rows["call_g2"] == (1, 31.0, None)
    assert rows["call_n1"] == (2, 3.5, None)
    assert rows["call_w1"] == (None, None, 600.0)


def test_events_name_the_tool_and_show_how_long_it_and_the_turn_took(sample: Facts) -> None:
    events = sample.events.filter(entity_id=IDS["good"]).sort("seq")
    named = events.drop_nulls("name").select("kind", "name").rows()
    tools = ("exec_command", "exec_command", "apply_patch")
    assert named == [("call", tool) for tool in tools]
    timed = events.drop_nulls("duration_s").select("kind", "duration_s").rows()
    assert timed[:3] == [("message", 1.5), ("message", 31.0), ("turn_complete", 9.0)]


def test_what_is_inherited_is_counted_in_the_parent_only(sample: Facts) -> None:
    rows = {row["thread_id"]: row for row in sample.detail(frames.SESSIONS).to_dicts()}
    fork, child = rows[IDS["fork"]], rows[IDS["child"]]
    assert (fork["n_turns"], fork["n_input_tokens"], fork["naive_total_tokens"]) == (1, 3000, 11546)
    assert (fork["parent_thread_id"], fork["is_subagent"]) == (IDS["good"], False)
    assert (child["parent_thread_id"], child["is_subagent"]) == (IDS["parent"], True)
    assert (child["parent_call_id"], child["agent_role"]) == ("call_p1", "explorer")
    assert rows[IDS["good"]]["title"] == "Discount"
    tokens = sample.entities.filter(entity_type="session")["n_input_tokens"].sum()
    assert tokens == sample.detail(frames.TURNS)["n_input_tokens"].sum()


def test_a_limit_is_told_with_what_is_left_of_it(sample: Facts) -> None:
    turns = sample.detail(frames.TURNS).filter(thread_id=IDS["limit"])
    columns = ("rate_limit_reached", "rate_limit_used_percent", "rate_limit_resets_at")
    resets_at = datetime(2026, 5, 20, 18, 0, tzinfo=UTC)
    assert turns.select(columns).rows() == [("rate_limit_reached", 100.0, resets_at)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "given", "minutes", "health"),
    a_few(
        [
            pytest.param("shell", {}, 1.1, "running", id="a command has ten seconds, and a minute"),
            pytest.param("shell", {}, 1.2, "stalled", id="then it is overdue"),
            pytest.param("shell", {"timeout_ms": 600000}, 10.9, "running", id="or what it asks"),
            pytest.param("shell", {"timeout_ms": 600000}, 11.1, "stalled", id="and no longer"),
            pytest.param("mcp__a__b", {}, 5.9, "running", id="a server has five, and one"),
            pytest.param("exec_command", {}, 10.1, "stalled", id="other tools have ten minutes"),
        ],
        2,
    ),
)
def test_open_calls_are_judged_by_their_own_time_limit(tmp_path, tool, given, minutes, health):
    rollout = begun_rollout()
    rollout.call("c1", tool, **given)
    facts = facts_of(tmp_path, rollout, as_of=rollout.now + after(minutes))
    assert state_of(facts)["health"] == health


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "given", "asks"),
    a_few(
        [
            ("untrusted", {}, True),
            ("on-request", {}, False),
            ("on-request", {"with_escalated_permissions": True}, True),
            ("never", {"with_escalated_permissions": True}, False),
        ],
        2,
    ),
)
def test_a_person_may_be_asked_by_policy_or_by_the_call(tmp_path, policy, given, asks) -> None:
    rollout = begun_rollout(policy)
    rollout.call("c1", **given)
    codes = state_of(facts_of(tmp_path, rollout))["reason_codes"]
    assert ("run.health.awaiting_permission" in codes) == asks


def test_a_call_of_a_subagent_waits_as_long_as_that_is_heard_of(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.call("c1", "spawn_agent")
    child = Rollout("child", "2026-05-18T09:30:00", parent_thread_id=rollout.thread_id)
    child.turn("Look")
    facts = facts_of(tmp_path, rollout, child, as_of=child.now + after(9))
    assert state_of(facts, rollout.thread_id)["health"] == "running"


def say(text: str, **more: object) -> Callable:
    return lambda rollout: rollout.say(text, **more)


def abort(reason: str) -> Callable:
    return lambda rollout: rollout.event("turn_aborted", turn_id=rollout.turn_id, reason=reason)


def warn(rollout: object) -> None:
    rollout.event("error", message="x", codex_error_info="active_turn_not_steerable")


INCOMPLETE = "Incomplete response returned, reason: "


def http(status: int | None) -> dict:
    return {"http_connection_failed": {"http_status_code": status}}


def fail(info: object, message: str = "no") -> Callable:
    error = {"message": message, "codex_error_info": info}
    return lambda rollout: rollout.complete(None, error=error)


def end(last: str | None) -> Callable:
    return lambda rollout: rollout.complete(last)


def ran(exit_code: int) -> Callable:
    return lambda rollout: (rollout.call("c"), rollout.ran("c", exit_code, 1.0))


def tail_phase(rollout: object) -> None:
    """The message of an answer says that it is the last one, its event does not."""
    rollout.lines[-2]["payload"]["phase"] = "final_answer"


DECLINED = "invocation.cancelled.permission_rejected"
INTERRUPTED = "invocation.cancelled.interrupted"
CUT_OFF, QUOTA = "run.delivery.truncated_length", "run.failed.provider_quota"
LAST_TURNS = [
    ([], "running", "run.health.awaiting_model"),
    ([say("a", phase="commentary")], "running", "run.health.awaiting_model"),
    ([say("a")], "running", "run.health.awaiting_turn_end"),
    ([say("a"), end(None)], "completed", "run.completed.turn_complete"),
    ([ran(0), end(None)], "completed", "run.completed.turn_complete"),
    ([ran(1), end(None)], "completed", EMPTY),
    ([lambda t: t.limits(100.0, "primary"), end(None)], "failed", QUOTA),
    ([ran(0), lambda t: t.limits(100.0, "primary"), end(None)], "failed", QUOTA),
    ([lambda t: t.say("a", phase=None), tail_phase], "running", "run.health.awaiting_turn_end"),
    ([fail(None, "stream timed out")], "failed", "run.failed.provider_transport"),
    ([fail("other", "Transport error: network error")], "failed", "run.failed.provider_transport"),
    ([fail("other", INCOMPLETE + "content_filter")], "failed", "run.failed.content_filtered"),
    ([say("a"), fail("other", INCOMPLETE + "max_output_tokens")], "completed", CUT_OFF),
    ([fail(http(401))], "failed", "run.failed.provider_auth"),
    ([fail(http(529))], "failed", "run.failed.provider_internal"),
    ([fail(http(429))], "failed", "run.failed.provider_rate_limit"),
    ([fail(http(None))], "failed", "run.failed.provider_transport"),
    ([abort("replaced")], "cancelled", "run.cancelled.superseded"),
    ([abort("review_ended")], "completed", "run.completed.review_ended"),
    ([abort("budget_limited")], "aborted", "run.aborted.budget_limited"),
    ([abort("brand_new")], "unknown", "run.aborted.unknown_reason"),
    ([fail("context_window_exceeded")], "failed", "run.failed.context_overflow"),
    ([fail("sandbox_error")], "failed", "run.failed.sandbox"),
    ([fail("brand_new")], "failed", "run.failed.provider_unknown"),
    ([fail("model_not_found", "no access to it")], "failed", "run.failed.provider_invalid_request"),
    ([fail("inference_hook_denied")], "failed", "run.failed.permission_rejected"),
    ([warn, say("a"), end("a")], "completed", "run.completed.turn_complete"),
]


def test_the_last_turn_is_read_off_its_records(tmp_path: Path) -> None:
    """All in one folder: a thread says what it says whatever lies beside it."""
    rollouts = [Rollout(f"case {n}", "2026-05-18T09:00:00") for n in range(len(LAST_TURNS))]
    for rollout, (build, _, _) in zip(rollouts, LAST_TURNS, strict=True):
        rollout.turn("Do it")
        for step in build:
            step(rollout)
    facts = facts_of(tmp_path, *rollouts)
    shown = states(facts).filter(entity_type="session")
    found = {row["entity_id"]: (row["lifecycle"], row["reason_codes"]) for row in shown.to_dicts()}
    assert [found[rollout.thread_id] for rollout in rollouts] == [one[1:] for one in LAST_TURNS]
    assert findings_of(facts)["turn.unknown_abort"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("unsupported call: made_up", "invocation.failed.tool_error"),
        ("apply_patch verification failed: no such line", "invocation.failed.tool_error"),
        ("failed to parse function arguments: missing field", "invocation.failed.tool_error"),
        ("unable to locate image at `/a.png`: No such file", "invocation.failed.tool_error"),
        ("Exit code: -1\nWall time: 2 seconds\nOutput:\naborted by user", INTERRUPTED),
        ("aborted before dispatch", INTERRUPTED),
        ("Wall time: 2.3 seconds\naborted by user", INTERRUPTED),
        ("The docs say: aborted before dispatch", None),
        ("request_user_input is unavailable in Default mode", "invocation.failed.tool_error"),
        ("invalid agent id x: Error(ParseChar)", "invocation.failed.tool_error"),
        ("exec command rejected by user", DECLINED),
        ("approval policy is Never; reject command — you cannot ask", DECLINED),
        ("MCP tool call requires approval, but approval policy is never", DECLINED),
        ("patch rejected by user", DECLINED),
        ("`git push` rejected: blocked by policy", DECLINED),
        ('failed: CreateProcess { message: "Rejected(\\"rejected by user\\")" }', DECLINED),
        ("err: user cancelled MCP tool call", DECLINED),
        ("exec_command failed for `ls`: no such directory", "invocation.failed.tool_error"),
        ("The docs say: a patch rejected by user is kept", None),
        ("The docs say: unsupported call: made_up", None),
        ("Exit code: 0\nWall time: 2 seconds\nOutput:\naborted by user", None),
        ("Script failed\nWall time 3 seconds\nOutput:\nnot of a script", None),
        ("Script terminated\nWall time 3 seconds\nOutput:\n", INTERRUPTED),
        ("Script running with cell ID 3 was printed here", None),
    ],
)
def test_a_call_is_judged_by_its_words_where_nothing_else_says(tmp_path, output, code) -> None:
    rollout = begun_rollout()
    rollout.call("c")
    rollout.result("c", output)
    say("a")(rollout)
    end("a")(rollout)
    shown = states(facts := facts_of(tmp_path, rollout)).filter(entity_type="tool_call")
    assert shown["reason_codes"].to_list() == [code]
    assert not facts.detail(frames.TOOLS)["is_background"].any()


LATE = {"message": "Caused by:\n    timed out awaiting tools/call after 3s"}
RUNS_ON = "Process running with session ID 7\nOutput:\n"
STOPPED = ("interrupted", "interrupted", None)
UNBEGUN = {"type": "CommandExecution", "exit_code": -1, "aggregated_output": "No folder"}
REPLY = {"content": [{"type": "text", "text": 'Rejected("2 rows") user rejected MCP tool call'}]}
REPLIED = {"type": "McpToolCall", "status": "completed", "result": REPLY}
LOCKED = {"content": [{"type": "text", "text": 'It is "locked"'}], "isError": True}


@pytest.mark.parametrize(
    ("item", "answer", "expected"),
    [
        ({"type": "McpToolCall", "error": LATE}, "", ("timed_out", "timeout", LATE["message"])),
        ({"type": "McpToolCall", "result": LOCKED}, "", ("failed", "tool_error", 'It is "locked"')),
        ({"type": "CommandExecution", "exit_code": -1}, RUNS_ON, STOPPED),
        (UNBEGUN, 'Rejected("No folder")', ("failed", "exit_nonzero", "No folder")),
        (REPLIED, "Wall time: 1", ("ok", None, None)),
    ],
)
def test_the_event_of_a_call_says_how_it_ended(tmp_path: Path, item, answer, expected) -> None:
    rollout = begun_rollout()
    rollout.call("c")
    rollout.result("c", answer)
    rollout.event("item_completed", 9.0, item={"id": "c", "status": "failed", **item})
    facts = facts_of(tmp_path, rollout)
    assert calls(facts).select("outcome", "cause", "message").rows() == [expected]


def test_who_waits_for_a_command_does_not_repeat_itself(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.call("c", cmd="make")
    rollout.result("c", RUNS_ON)
    for number in range(5):
        rollout.call(f"p{number}", "write_stdin", session_id=7, chars="")
        rollout.result(f"p{number}", RUNS_ON)
    for number in range(5):
        script = "text(await tools.write_stdin({session_id: 7, chars: ''}))"
        rollout.item("custom_tool_call", name="exec", input=script, call_id=f"s{number}")
        rollout.item("custom_tool_call_output", call_id=f"s{number}", output="Script completed")
    facts = facts_of(tmp_path, rollout)
    assert signs(facts).is_empty()
    assert calls(facts)["target"].to_list() == ["make", *[None] * 5, *["write_stdin"] * 5]


@pytest.mark.parametrize(("code", "expected"), [(0, "ok"), (1, "interrupted")])
def test_a_command_that_the_agent_stops_did_not_fail(tmp_path: Path, code, expected) -> None:
    rollout = begun_rollout()
    rollout.call("c", cmd="npm run dev")
    rollout.result("c", RUNS_ON)
    rollout.call("p", "write_stdin", session_id=7, chars="\x03")
    rollout.result("p", f"Process exited with code {code}\nOutput:\n^C")
    outcomes = calls(facts_of(tmp_path, rollout))["outcome"].to_list()
    assert outcomes == ["unknown", expected]


@pytest.mark.parametrize(
    ("is_stopped_first", "code", "expected"),
    [
        pytest.param(True, 130, "interrupted", id="Ctrl+C"),
        pytest.param(True, 1, "interrupted", id="an end of its own on Ctrl+C"),
        pytest.param(True, 0, "ok", id="an orderly end on Ctrl+C"),
        pytest.param(False, 1, "failed", id="it had failed before another one was stopped"),
    ],
)
def test_the_end_of_a_stopped_command_is_no_failure(
    tmp_path: Path, is_stopped_first, code, expected
) -> None:
    rollout = begun_rollout()
    rollout.call("c", cmd="npm run dev")
    rollout.result("c", RUNS_ON)
    item = {"type": "CommandExecution", "id": "c", "exit_code": code, "aggregated_output": "^C"}
    stop = {"session_id": 7, "chars": "\x03"}
    if is_stopped_first:
        rollout.call("p", "write_stdin", **stop)
    rollout.event("item_completed", 1.0, item={**item, "status": "failed" if code else "completed"})
    if not is_stopped_first:
        rollout.call("p", "write_stdin", **stop)
    rollout.result("p", f"Process exited with code {code}\nOutput:\n^C")
    assert calls(facts_of(tmp_path, rollout))["outcome"].to_list() == [expected, "ok"]


def test_a_plan_is_an_answer(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.say("I look first.", phase="commentary")
    rollout.call("c")
    rollout.ran("c", 0, 1.0)
    rollout.event("item_completed", 1.0, item={"type": "Plan", "id": "p", "text": "# Plan"})
    rollout.message("assistant", "<proposed_plan># Plan", phase="final_answer")
    rollout.complete(None)
    facts = facts_of(tmp_path, rollout)
    assert signs(facts).is_empty()
    assert state_of(facts)["outcome"] == "completed"
    assert facts.detail(frames.TURNS)["n_text_chars"].item() == len("I look first.# Plan")


def test_a_command_that_fails_in_the_background_fails_one_time(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.call("c")
    rollout.result("c", RUNS_ON)
    ended = {"type": "CommandExecution", "exit_code": 3, "aggregated_output": "no disk\n"}
    rollout.call("p", "write_stdin", session_id=7)
    rollout.event("item_completed", 9.0, item={"id": "c", "status": "failed", **ended})
    rollout.result("p", "Process exited with code 3\nOutput:\nno disk")
    rollout.call("d")
    rollout.result("d", RUNS_ON)
    rollout.call("q", "write_stdin", session_id=8)
    rollout.result("q", "Process exited with code 4\nOutput:\nno net")
    found = calls(facts_of(tmp_path, rollout)).select("tool", "outcome", "message").rows()
    assert found[:2] == [("exec_command", "failed", "no disk"), ("write_stdin", "ok", None)]
    assert found[2:] == [("exec_command", "unknown", None), ("write_stdin", "failed", "no net")]


RESULT = '{"chunk_id":"a1","wall_time_seconds":1.5,"exit_code":%s,"output":"%s"}'
TRUNCATED = r"Warning: truncated output (original token count: 9)\nTotal output lines: 2\n\n"
EXITED_2 = ("failed", "exit_nonzero", 2, None)
SCRIPTS = [
    ("completed", ["3 passed in 0.1s"], "ok", None, None, "passed"),
    ("completed", [RESULT % (1, "2 failed in 0.1s\\n")], "failed", "exit_nonzero", 1, "failed"),
    ("completed", [RESULT % (0, "a"), RESULT % (2, "b")], *EXITED_2),
    ("completed", [RESULT % (0, '{\\"exit_code\\":1}')], "ok", None, 0, None),
    ("completed", [json.dumps(json.loads(RESULT % (2, "a")), indent=2)], *EXITED_2),
    ("completed", ['{"chunk_id":"a1","exit_code":2}\nno net'], *EXITED_2),
    ("completed", [RESULT % (2, f"{TRUNCATED}c")], *EXITED_2),
    ("failed", ["Script error:\nExit code: 2\nWall time: 1 seconds\nOutput:\nd"], *EXITED_2),
    ("completed", ['{"exit_code":1}'], "ok", None, None, None),
    ("failed", ["Script error:\nError: x"], "failed", "tool_error", None, None),
    ("failed", ['Script error:\nRejected("no")'], "denied", "permission_rejected", None, None),
    ("terminated", [], "interrupted", "interrupted", None, None),
    ("running with cell ID 7", ["Script failed"], "unknown", None, None, None),
    ("completed", ['{"chunk_id":"a1","session_id":7,"output":"a"}'], "unknown", None, None, None),
    ("completed", ["a", "SESSION_ID=7"], "unknown", None, None, None),
    ("completed", ["SESSION_ID=7\n"], "ok", None, None, None),
    ("completed", ["a\nSESSION_ID=7\nb"], "ok", None, None, None),
]


def test_what_a_script_did_is_read_off_what_stands_above_its_output(tmp_path: Path) -> None:
    rollout = begun_rollout()
    for number, (status, texts, *_) in enumerate(SCRIPTS):
        asked = 'text(await tools.exec_command({cmd: "pytest -q"}))'
        rollout.item("custom_tool_call", name="exec", input=asked, call_id=f"c{number}")
        above = f"Script {status}\nWall time 2.5 seconds\nOutput:\n"
        output = [{"type": "input_text", "text": text} for text in (above, *texts)]
        rollout.item("custom_tool_call_output", 3.0, call_id=f"c{number}", output=output)
    rollout.event("patch_apply_end", call_id="exec-1", success=True)
    rollout.event("collab_agent_spawn_end", call_id="c0", new_thread_id="two")
    facts = facts_of(tmp_path, rollout)
    shown = calls(facts).select("outcome", "cause", "exit_code", "test_result")
    assert shown.rows() == [script[2:] for script in SCRIPTS]
    assert set(calls(facts).select("target", "is_test", "duration_s").rows()) == {
        ("pytest", True, 2.5)
    }
    running = facts.detail(frames.TOOLS).filter("is_background")["call_id"].to_list()
    assert running == [f"c{number}" for number, row in enumerate(SCRIPTS) if row[2] == "unknown"]
    messages = calls(facts).filter(cause="tool_error")["message"].to_list()
    messages += calls(facts).filter(exit_code=2)["message"].to_list()
    assert messages == ["Script error:\nError: x", "a\n\nb", "a", "no net", "c", "d"]
    assert not {"tool.result_without_call", "record.unknown_event"} & set(findings_of(facts))


def test_what_stands_above_an_output_is_no_part_of_a_message(tmp_path: Path) -> None:
    rollout = begun_rollout()
    start = "/opt/brew/shellenv.sh: line 18: /bin/ps: Operation not permitted\n"
    command = f"Command: sh -c '{'x' * 400}'\nChunk ID: a\n"
    for above, below in ((command, "no net"), ("", start), ("", f"{start}no net")):
        rollout.call(call_id := str(len(rollout.lines)))
        rollout.result(call_id, f"{above}Process exited with code 1\nOutput:\n{below}")
    messages = calls(facts_of(tmp_path, rollout))["message"].to_list()
    assert messages == ["no net", "exited with code 1", "no net"]


@pytest.mark.parametrize(
    ("script", "target", "last"),
    [
        ("tools.exec_command({cmd: 'git diff \"a\" | wc -l'})", "git", "wc"),
        ('tools.exec_command({"cmd":"cd a && ls \\"b\\"",workdir})', "ls", "ls"),
        ("const cmd = `make`; tools.exec_command({cmd})", "make", "make"),
        ("tools.apply_patch('*** Update File: a.py\\n')", "a.py", None),
        ('run({"cmd":"pytest"}); run({cmd: "diff a b"})', None, None),
    ],
)
def test_a_script_is_about_its_only_command(tmp_path, script, target, last) -> None:
    rollout = begun_rollout()
    rollout.item("custom_tool_call", name="exec", input=script, call_id="c")
    found = calls(facts_of(tmp_path, rollout)).row(0, named=True)
    assert (found["target"], found["last_command"]) == (target, last)
    assert not found["is_test"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "delivery"), a_few([([{}], "passed"), ([None], "missing"), ([], "missing")], 2)
)
def test_a_review_has_delivered_where_it_was_left(tmp_path, outputs, delivery) -> None:
    rollout = begun_rollout()
    for output in outputs:
        rollout.event("exited_review_mode", review_output=output)
    abort("review_ended")(rollout)
    assert state_of(facts_of(tmp_path, rollout))["delivery"] == delivery


@pytest.mark.parametrize(("output", "delivery"), [({"findings": []}, "passed"), (None, "missing")])
def test_a_review_of_finished_items_has_delivered_too(tmp_path, output, delivery) -> None:
    rollout = begun_rollout()
    for item in (
        {"type": "EnteredReviewMode", "target": {"type": "uncommittedChanges"}},
        {"type": "FunctionCallOutput", "name": "x", "output": "x"},
        {"type": "Extension", "kind": "clock.sleep", "duration_ms": 5},
        {"type": "ExitedReviewMode", "review_output": output},
    ):
        rollout.event("item_completed", 1.0, turn_id=rollout.turn_id, item={"id": "a"} | item)
    if output:
        compacted(rollout)
    rollout.add("dynamic_tools_updated", tools=[])
    rollout.item("configuration_update")
    rollout.item("additional_tools", tools=[])
    rollout.complete(None)
    facts = facts_of(tmp_path, rollout)
    assert state_of(facts)["delivery"] == delivery
    assert not {code for code in findings_of(facts) if code.startswith("record.unknown")}


def ran_by_person(rollout: Rollout) -> None:
    rollout.message(
        "user", "<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>"
    )


def compacted(rollout: Rollout) -> None:
    rollout.add("compacted", message="summary", replacement_history=[])


@pytest.mark.parametrize("does", [ran_by_person, compacted])
@pytest.mark.parametrize("begins", [True, False])
def test_what_a_person_does_between_tasks_leaves_the_thread_as_it_was(tmp_path, does, begins):
    rollout = Rollout("one", "2026-05-18T09:00:00")
    if not begins:
        rollout.turn("Do it")
        rollout.complete(None, error={"message": "x", "codex_error_info": "sandbox_error"})
    rollout.event("task_started", 5.0, turn_id="between")
    does(rollout)
    rollout.event("task_complete", 1.0, turn_id="between", last_agent_message=None)
    facts = facts_of(tmp_path, rollout)
    own = ("completed", "ok", "not_expected", "run.completed.no_request")
    shown = states(facts).filter(entity_id=f"{rollout.thread_id}:turn:{1 if begins else 2}")
    assert shown.select("lifecycle", "health", "delivery", "reason_codes").row(0) == own
    failed = ("failed", "ok", "missing", "run.failed.sandbox")
    assert axes(facts, rollout.thread_id) == (own if begins else failed)
    assert facts.detail(frames.TURNS)["is_last"].sum() == 1


def test_what_an_asked_turn_leaves_behind_is_its_own(tmp_path: Path) -> None:
    rollout = begun_rollout()
    compacted(rollout)
    ran_by_person(rollout)
    rollout.complete(None)
    assert axes(facts_of(tmp_path, rollout))[3] == EMPTY


@pytest.mark.parametrize("tool", ["request_user_input", "request_permissions"])
def test_a_question_waits_for_a_person_and_is_no_stall(tmp_path: Path, tool: str) -> None:
    rollout = begun_rollout()
    rollout.call("c1", tool)
    asked_at = rollout.now
    rollout.result("c1", '{"answers":{}}', 7200.0)
    facts = facts_of(tmp_path, rollout, as_of=rollout.now)
    assert axes(facts) == ("running", "running", "unknown", "run.health.awaiting_model")
    waiting = ("running", "idle", "unknown", "run.health.awaiting_user")
    past = facts_of(tmp_path, rollout, as_of=asked_at + after(60))
    assert axes(past) == waiting
    assert past.entities.filter(entity_type="session")["n_questions"].to_list() == [1]
    unanswered = begun_rollout()
    unanswered.call("c1", tool)
    assert axes(facts_of(tmp_path / "b", unanswered, as_of=rollout.now)) == waiting


@pytest.mark.slow
def test_a_thread_without_a_turn_waits_for_one(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Rollout("one", "2026-05-18T09:00:00"))
    assert axes(facts) == ("pending", "unknown", "not_expected", "run.pending.no_turn")


def test_an_end_that_comes_too_late_is_not_believed(tmp_path: Path) -> None:
    rollout = begun_rollout()
    first = rollout.turn_id
    rollout.turn("Next")
    rollout.event("task_complete", turn_id=first, last_agent_message="late")
    facts = facts_of(tmp_path, rollout)
    reasons = facts.detail(frames.TURNS)["situation"].to_list()
    assert reasons == ["aborted", "awaiting_model"]


def test_taken_back_turns_are_skipped_and_counted(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.complete("a")
    for prompt in ("Two", "Three"):
        rollout.turn(prompt)
        rollout.complete("b")
    rollout.event("thread_rolled_back", num_turns=2)
    rollout.turn("Four")
    facts = facts_of(tmp_path, rollout)
    turns = facts.detail(frames.TURNS)
    assert turns["is_rolled_back"].to_list() == [False, True, True, False]
    assert turns["is_last"].to_list() == [False, False, False, True]


@pytest.mark.slow
def test_tokens_follow_totals_that_fall_and_answers_that_tell_themselves(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.tokens(1000, 0, 10)
    rollout.total = dict.fromkeys(rollout_maker.PARTS, 0)
    rollout.tokens(400, 100, 5)
    session = session_of(facts := facts_of(tmp_path, rollout))
    assert (session["n_input_tokens"], session["n_cached_tokens"]) == (1400, 100)
    assert findings_of(facts)["tokens.total_fell"] == 1
    for _ in range(2):  # the same answer, rollout twice
        usage = dict(zip(rollout_maker.PARTS, (7, 0, 2, 0, 9), strict=True))
        rollout.add("token_usage_record", turn_id=rollout.turn_id, response_id="r", usage=usage)
    assert session_of(facts_of(tmp_path, rollout))["n_input_tokens"] == 7


def test_tokens_written_to_the_cache_are_known_where_they_are_reported(tmp_path: Path) -> None:
    rollout, older = begun_rollout(), begun_rollout(name="older")
    rollout.tokens(100, 40, 10)
    older.tokens(100, 40, 10)
    for usage in rollout.lines[-1]["payload"]["info"].values():
        usage["cache_write_input_tokens"] = 30
    rollout.complete("a")
    rollout.turn("More")
    record = {"usage": {"input_tokens": 200, "cache_write_input_tokens": 60}}
    rollout.add("token_usage_record", response_id="r", **record)
    none = begun_rollout(name="none")
    none.add("token_usage_record", usage={"input_tokens": 50, "cache_write_input_tokens": 0})
    facts = facts_of(tmp_path, rollout, older, none)
    threads = facts.entities.filter(entity_type="session").select(
        "n_input_tokens", "n_cache_write_tokens"
    )
    assert sorted(threads.rows()) == [(50, 0), (100, None), (300, 90)]
    used = used_tokens(facts).sort("n_input_tokens")["n_cache_write_tokens"].to_list()
    assert used == [0, 30, None, 60]


def test_long_prompts_of_a_turn_are_counted_and_priced_apart(tmp_path: Path) -> None:
    """Of two requests the one above 272,000 tokens costs twice its input, half more its output."""
    rollout = begun_rollout()
    [begun] = [line for line in rollout.lines if line["type"] == "turn_context"]
    begun["payload"]["model"] = "gpt-6.1-sol"
    rollout.tokens(272_000, 200_000, 1_000)
    rollout.tokens(300_000, 272_000, 2_000)
    facts = facts_of(tmp_path, rollout)
    counts = "n_input_tokens", "n_cache_read_tokens", "n_output_tokens", "longest_prompt_tokens"
    used = used_tokens(facts).select(counts).rows()
    assert used == [(272_000, 200_000, 1_000, None), (300_000, 272_000, 2_000, 272_001)]
    assert session_of(facts)["n_input_tokens"] == 572_000
    short, long = 0.072 * 2 + 0.2 * 0.1 + 0.001 * 10, 0.028 * 2 + 0.272 * 0.1
    [usd] = costs(facts, by=())["estimated_usd"]
    assert usd == pytest.approx(short + 2 * long + 1.5 * 0.002 * 10, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("way", a_few(["moment", "ordinal", "nothing"], 2))
def test_what_a_fork_inherits_is_found_without_ids_of_turns(tmp_path: Path, way: str) -> None:
    parent = Rollout("parent", "2026-05-18T08:00:00")
    parent.prompt("One")
    parent.say("Yes.")
    parent.tokens(500, 0, 5)
    more = {"forked_from_ordinal_exclusive": 7} if way == "ordinal" else {}
    fork = Rollout("one", "2026-05-18T09:00:00", forked_from_id=parent.thread_id, **more)
    if way != "nothing":
        fork.copy_of(parent)
    fork.now += timedelta(seconds=0 if way == "ordinal" else 9)
    fork.prompt("Two")
    fork.tokens(300, 0, 3)
    if way == "ordinal":
        for place, line in enumerate(fork.lines):
            line["ordinal"] = place
    facts = facts_of(tmp_path, fork)
    session = session_of(facts)
    assert (session["n_prompts"], session["n_input_tokens"]) == (1, 300)
    assert session["n_copied"] == (0 if way == "nothing" else 7 if way == "moment" else 6)


def test_a_fork_that_points_at_its_history_has_none_of_it(tmp_path: Path) -> None:
    base = {"thread_id": "parent", "end_ordinal_exclusive": 40}
    more = {"history_mode": "paginated", "forked_from_ordinal_exclusive": 40}
    rollout = Rollout("one", "2026-05-18T09:00:00", history_base=base, **more)
    rollout.turn("Two")
    rollout.complete("b")
    for place, line in enumerate(rollout.lines):
        line["ordinal"] = place
    session = session_of(facts := facts_of(tmp_path, rollout))
    assert (session["n_prompts"], session["n_copied"]) == (1, 0)
    assert session["parent_thread_id"] == "parent"
    assert axes(facts)[0] == "completed"


def test_finished_items_are_calls_where_none_is_written(tmp_path: Path) -> None:
    rollout = begun_rollout()
    for place, (exit_code, status) in enumerate([(0, "completed"), (1, "failed")]):
        ran = {"type": "CommandExecution", "exit_code": exit_code, "status": status}
        item = ran | {"id": f"item_{place}", "duration": {"secs": 2, "nanos": 0}}
        rollout.event("item_completed", 2.0, turn_id=rollout.turn_id, item=item)
    rollout.complete("a")
    facts = facts_of(tmp_path, rollout)
    assert (session_of(facts)["n_tool_calls"], session_of(facts)["n_tool_errors"]) == (2, 1)
    assert facts.detail(frames.TOOLS)["name"].to_list() == ["CommandExecution"] * 2
    assert "tool.result_without_call" not in findings_of(facts)


@pytest.mark.slow
def test_a_thread_in_two_places_is_one(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.complete("a")
    packed = tmp_path / "archived_sessions" / f"{Path(rollout.file).name}.zst"
    packed.parent.mkdir()
    packed.write_bytes(rollout_maker.packed(rollout.text()))
    other = tmp_path / "sessions" / Path(rollout.file).name
    other.parent.mkdir()
    other.write_text("".join(rollout.text().splitlines(keepends=True)[:-1]))
    facts = facts_of(tmp_path, rollout)
    assert session_of(facts)["n_files"] == 3
    assert session_of(facts)["file"] == rollout.file
    assert axes(facts)[0] == "completed"
    assert findings_of(facts)["session.in_two_files"] == 1
    twin = (tmp_path / rollout.file).with_suffix(".jsonl.zst")
    twin.write_bytes(b"\x28\xb5\x2f\xfd being written")
    assert "file.unreadable" not in findings_of(read_facts(tmp_path, as_of=facts.as_of)[0])


def test_a_thread_that_goes_on_from_an_earlier_turn_has_another_rollout(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.tokens(500, 0, 5)
    begins = [0, len(rollout.lines), 0]
    rollout.turn("Two")
    rollout.tokens(300, 0, 3)
    is_back = [[False] * 2, [False, True, False], [True] * 3 + [False]]
    for number, begin in enumerate(begins):
        if number:
            base = {"thread_id": rollout.thread_id, "end_ordinal_exclusive": begin}
            rollout.lines = []
            rollout.add("session_meta", 1.0, **rollout.meta, history_base=base if begin else None)
            rollout.turn("Three")
            rollout.tokens(200, 0, 2)
        rollout.lines = [line | {"ordinal": begin + n} for n, line in enumerate(rollout.lines)]
        end = f"_{number:08d}-0000-7000-8000-000000000000.jsonl" if number else ".jsonl"
        path = tmp_path / rollout.file.replace(".jsonl", end)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rollout.text())
        facts = read_facts(tmp_path, as_of=rollout.now)[0]
        assert facts.detail(frames.TURNS)["is_rolled_back"].to_list() == is_back[number]
    session = session_of(facts)
    assert (session["n_files"], session["parent_thread_id"]) == (1, None)
    assert (session["n_prompts"], session["n_input_tokens"]) == (4, 1200)
    assert not {"session.in_two_files", "session.name_mismatch"} & set(findings_of(facts))


def test_a_packed_rollout_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.complete("a")
    path = tmp_path / f"{Path(rollout.file).name}.zst"
    path.write_bytes(rollout_maker.packed(rollout.text())[:-20])
    facts = read_facts(tmp_path, as_of=rollout.now)[0]
    assert findings_of(facts)["file.unreadable"] == 1


def test_hostile_lines_cost_only_themselves(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(json_lines.budget, "MAX_LINE_BYTES", 2000)
    rollout = begun_rollout()
    rollout.complete("a")
    bad = ["[]", "nonsense", '"text"', json.dumps({"type": "event_msg", "x": "y" * 4000})]
    odd = [
        {"type": ["a"], "payload": 3, "timestamp": {}, "ordinal": "x"},
        {"type": "event_msg", "payload": {"type": {"a": 1}, "info": [1], "duration": "1s"}},
        {"type": "response_item", "payload": {"type": "message", "role": 1, "content": [3, None]}},
        {"type": "response_item", "payload": {"type": "function_call", "call_id": 7, "name": []}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "\ud800"}},
        {"type": "session_meta", "payload": {"id": None, "source": {"subagent": [1]}}},
        {"type": "event_msg", "timestamp": "99999-13-40", "payload": {"type": "token_count"}},
        {"type": "message", "role": "user", "content": []},
    ]
    tail = "\n".join([*bad, *map(json.dumps, odd)]) + "\n"
    facts = facts_of(tmp_path, rollout, tail=tail, as_of=NOON)
    n_rows = findings_of(facts)
    assert (n_rows["record.not_json"], n_rows["record.too_long"]) == (3, 1)
    assert n_rows["record.legacy_shape"] == 1
    assert axes(facts)[0] == "completed"


@pytest.mark.slow
def test_odd_clocks_repeats_and_versions_are_counted(tmp_path: Path) -> None:
    rollout = Rollout("one", "2026-05-18T09:00:00", version="9.0.0")
    rollout.turn("Do it")
    rollout.complete("a")
    rollout.lines[-1]["timestamp"] = "2026-05-18T08:00:00.000Z"
    rollout.lines += [rollout.lines[-1]]
    rollout.event("task_complete", turn_id=None, last_agent_message="again")
    facts = facts_of(tmp_path, rollout, as_of=NOON)
    n_rows = findings_of(facts)
    assert axes(facts)[0] == "completed"
    assert (n_rows["time.out_of_order"], n_rows["version.unknown"]) == (2, 1)


@pytest.mark.slow
def test_what_is_there_twice_or_says_nothing_is_counted(tmp_path: Path) -> None:
    rollout = begun_rollout()
    rollout.tokens(-5, 0, 7)
    rollout.tokens(10**30, 0, 1)
    rollout.complete("a")
    once = facts_of(tmp_path, rollout, as_of=NOON)
    rollout.lines = [line for line in rollout.lines for _ in range(2)]
    rollout.lines += [
        {"type": "event_msg", "timestamp": 1779094800.5, "payload": "text"},
        {"type": "event_msg", "timestamp": -5, "payload": None},
    ]
    empty = tmp_path / "sessions" / "2026" / "05" / f"rollout-{rollout.thread_id}.jsonl"
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.touch()
    facts = facts_of(tmp_path, rollout, as_of=NOON)
    assert session_of(facts)["n_prompts"] == session_of(once)["n_prompts"] == 1
    assert session_of(facts)["n_answers"] == session_of(once)["n_answers"]
    assert (session_of(facts)["n_input_tokens"], session_of(facts)["n_output_tokens"]) == (0, 8)
    n_rows = findings_of(facts)
    assert (n_rows["time.unreadable"], n_rows["record.unknown_event"]) == (2, 2)
    assert (n_rows["usage.below_zero"], n_rows["file.empty"]) == (4, 1)
    assert n_rows["record.repeated"] >= 1


@pytest.mark.slow
def test_rollouts_from_before_there_were_records_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "rollout-2025-05-01T09-00-00-5973b6c0-94b8-487b-a530-2aeb6098ae0e.jsonl"
    begin = {"id": "5973b6c0", "timestamp": "2025-05-01T09:00:00Z", "instructions": None}
    said = {"type": "message", "role": "user", "content": []}
    path.write_text("".join(json.dumps(line) + "\n" for line in (begin, said)))
    facts = read_facts(tmp_path, as_of=NOON)[0]
    assert findings_of(facts) == {"record.legacy_shape": 2}
    assert state_of(facts)["lifecycle"] == "pending"


def test_what_lies_beside_the_rollouts_is_counted(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("logs_2.sqlite", "log/codex-tui.log"):
        (tmp_path / name).write_text("")
    facts = facts_of(tmp_path, begun_rollout())
    found = facts.findings.filter(code="source.files_not_read").select("table", "n_rows")
    assert found.rows() == [("*.sqlite", 1), ("log/*.log", 1)]


@pytest.mark.slow
def test_the_newest_index_tells_of_threads_that_have_no_rollout(tmp_path: Path) -> None:
    rollout = begun_rollout()
    (tmp_path / "state_4.sqlite").write_text("an older generation")
    rows = [(rollout.thread_id, rollout.file), ("gone", "sessions/gone.jsonl")]
    create = "CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT)"
    wrote(tmp_path / "state_5.sqlite", create, ("INSERT INTO threads VALUES (?, ?)", rows))
    found = facts_of(tmp_path, rollout).findings.filter(code="index.thread_without_rollout")
    assert found.select("n_rows", "example").rows() == [(1, "gone")]
    (tmp_path / "state_5.sqlite").write_text("no database")
    assert findings_of(facts_of(tmp_path, rollout))["index.unreadable"] == 1


def test_a_search_by_the_provider_is_a_call_that_is_over(tmp_path: Path) -> None:
    rollout = begun_rollout()
    for status in ("completed", "completed", "failed"):
        rollout.item("web_search_call", status=status, action={"type": "search", "query": "x"})
    rollout.complete("Found.")
    tools = facts_of(tmp_path, rollout).detail(frames.TOOLS)
    assert tools.select("name", "is_error").rows() == [
        ("web_search_call", False), ("web_search_call", False), ("web_search_call", True)
    ]  # fmt: skip
    assert tools["ended_at"].null_count() == 0
