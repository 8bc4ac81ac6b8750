"""Codex: rollouts of every shape, whole and broken, now and then."""

import contextlib
import json
import os
import random
import runpy
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.io import json_lines
from stateanalytics.state.states import states
from stateanalytics.systems.codex import frames, places
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT
from tests.examples import a_few, examples

SAMPLE = ROOT / "data" / "samples" / "codex"
NOON = datetime(2026, 5, 20, 17, 5, tzinfo=UTC)
maker = SimpleNamespace(**runpy.run_path(str(SAMPLE / "make_rollouts.py")))
Rollout = maker.Rollout
IDS = {name: told.thread_id for name, told in maker.lives().items()}


@pytest.fixture(scope="module")
def sample() -> Facts:
    return read_facts(SAMPLE, as_of=NOON)[0]


def facts_of(folder: Path, *told: object, as_of: object = None, tail: str = "") -> Facts:
    for rollout in told:
        path = folder / rollout.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rollout.text() + tail)
    return read_facts(folder, as_of=as_of or told[0].now + timedelta(seconds=30))[0]


def state_of(facts: Facts, entity_id: str | None = None) -> dict:
    found = states(facts).filter(entity_type="session")
    [row] = (found if entity_id is None else found.filter(entity_id=entity_id)).to_dicts()
    return row


def axes(facts: Facts, entity_id: str | None = None) -> tuple:
    row = state_of(facts, entity_id)
    return row["lifecycle"], row["health"], row["delivery"], row["reason_codes"]


def session_of(facts: Facts) -> dict:
    [row] = facts.detail(frames.SESSIONS).to_dicts()
    return row


def begun(policy: str = "on-request") -> object:
    told = Rollout("one", "2026-05-18T09:00:00")
    told.turn("Do it", policy=policy)
    return told


def found_of(facts: Facts) -> dict[str, int]:
    return dict(facts.findings.select("code", "n_rows").iter_rows())


def test_the_sample_is_what_its_script_makes() -> None:
    for name, octets in maker.rollouts().items():
        assert (SAMPLE / name).read_bytes() == octets


GOOD = ("completed", "ok", "passed", "run.completed.turn_complete")
EMPTY = "run.delivery.empty_output, run.failed.unrecorded_error"
ASKS = "run.health.open_tool, run.health.awaiting_permission, run.health.stalled"


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
    told = sample.detail(frames.TOOLS).select("call_id", "exit_code", "duration_s", "timeout_s")
    rows = {row[0]: row[1:] for row in told.iter_rows()}
    assert rows["call_g2"] == (1, 31.0, None)
    assert rows["call_n1"] == (2, 3.5, None)
    assert rows["call_w1"] == (None, None, 600.0)


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
    told = ("rate_limit_reached", "rate_limit_used_percent", "rate_limit_resets_at")
    assert turns.select(told).rows() == [
        ("rate_limit_reached", 100.0, datetime(2026, 5, 20, 18, 0, tzinfo=UTC))
    ]


def test_no_text_of_anybody_is_loaded(sample: Facts) -> None:
    loaded = [sample.entities, sample.events, *sample.details.values()]
    everything = "".join(str(frame.to_dicts()) for frame in loaded)
    for said in ("discount is there", "coupon instead", "callers", "class Cart", "Forty"):
        assert said not in everything


def after(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)


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
def test_open_calls_are_judged_by_their_own_time_limit(
    tmp_path: Path, tool: str, given: dict, minutes: float, health: str
) -> None:
    told = begun()
    told.call("c1", tool, **given)
    facts = facts_of(tmp_path, told, as_of=told.now + after(minutes))
    assert state_of(facts)["health"] == health


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
def test_a_person_may_be_asked_by_policy_or_because_the_call_says_so(
    tmp_path: Path, policy: str, given: dict, asks: bool
) -> None:
    told = begun(policy)
    told.call("c1", **given)
    codes = state_of(facts_of(tmp_path, told))["reason_codes"]
    assert ("run.health.awaiting_permission" in codes) == asks


def test_a_call_of_a_subagent_waits_as_long_as_that_is_heard_of(tmp_path: Path) -> None:
    told = begun()
    told.call("c1", "spawn_agent")
    child = Rollout("child", "2026-05-18T09:30:00", parent_thread_id=told.thread_id)
    child.turn("Look")
    facts = facts_of(tmp_path, told, child, as_of=child.now + after(9))
    assert state_of(facts, told.thread_id)["health"] == "running"


def say(text: str, **more: object) -> Callable:
    return lambda told: told.say(text, **more)


def abort(reason: str) -> Callable:
    return lambda told: told.event("turn_aborted", turn_id=told.turn_id, reason=reason)


def warn(told: object) -> None:
    told.event("error", message="x", codex_error_info="active_turn_not_steerable")


INCOMPLETE = "Incomplete response returned, reason: "


def http(status: int | None) -> dict:
    return {"http_connection_failed": {"http_status_code": status}}


def fail(info: object, message: str = "no") -> Callable:
    error = {"message": message, "codex_error_info": info}
    return lambda told: told.complete(None, error=error)


def end(last: str | None) -> Callable:
    return lambda told: told.complete(last)


def ran(exit_code: int) -> Callable:
    return lambda told: (told.call("c"), told.ran("c", exit_code, 1.0))


def tail_phase(told: object) -> None:
    """The message of an answer says that it is the last one, its event does not."""
    told.lines[-2]["payload"]["phase"] = "final_answer"


DECLINED = "invocation.cancelled.permission_rejected"
INTERRUPTED = "invocation.cancelled.interrupted"
CUT_OFF = "run.delivery.truncated_length"
LAST_TURNS = [
    ([], "running", "run.health.awaiting_model"),
    ([say("a", phase="commentary")], "running", "run.health.awaiting_model"),
    ([say("a")], "running", "run.health.awaiting_turn_end"),
    ([say("a"), end(None)], "completed", "run.completed.turn_complete"),
    ([ran(0), end(None)], "completed", "run.completed.turn_complete"),
    ([ran(1), end(None)], "completed", EMPTY),
    ([lambda t: t.limits(100.0, "primary"), end(None)], "failed", "run.failed.provider_quota"),
    (
        [ran(0), lambda t: t.limits(100.0, "primary"), end(None)],
        "failed",
        "run.failed.provider_quota",
    ),
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
    ([warn, say("a"), end("a")], "completed", "run.completed.turn_complete"),
]


def test_the_last_turn_is_read_off_its_records(tmp_path: Path) -> None:
    """All in one folder: a thread says what it says whatever lies beside it."""
    rollouts = [
        Rollout(f"case {number}", "2026-05-18T09:00:00") for number in range(len(LAST_TURNS))
    ]
    for told, (build, _, _) in zip(rollouts, LAST_TURNS, strict=True):
        told.turn("Do it")
        for step in build:
            step(told)
    facts = facts_of(tmp_path, *rollouts)
    shown = states(facts).filter(entity_type="session")
    found = {row["entity_id"]: (row["lifecycle"], row["reason_codes"]) for row in shown.to_dicts()}
    assert [found[told.thread_id] for told in rollouts] == [
        (word, code) for _, word, code in LAST_TURNS
    ]
    assert found_of(facts)["turn.unknown_abort"] == 1


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("unsupported call: made_up", "invocation.failed.tool_error"),
        ("apply_patch verification failed: no such line", "invocation.failed.tool_error"),
        ("failed to parse function arguments: missing field", "invocation.failed.tool_error"),
        ("Exit code: -1\nWall time: 2 seconds\nOutput:\naborted by user", INTERRUPTED),
        ("exec command rejected by user", DECLINED),
        ("patch rejected by user", DECLINED),
        ("`git push` rejected: blocked by policy", DECLINED),
        (
            "exec_command failed for `rm x`: CreateProcess { message: "
            '"Rejected(\\"rejected by user\\")" }',
            DECLINED,
        ),
        ("err: user cancelled MCP tool call", DECLINED),
        ("exec_command failed for `ls`: no such directory", "invocation.failed.tool_error"),
        ("The docs say: a patch rejected by user is kept", None),
        ("The docs say: unsupported call: made_up", None),
        ("Exit code: 0\nWall time: 2 seconds\nOutput:\naborted by user", None),
    ],
)
def test_a_call_is_judged_by_its_words_where_nothing_else_says(tmp_path, output, code) -> None:
    told = begun()
    told.call("c")
    told.result("c", output)
    say("a")(told)
    end("a")(told)
    shown = states(facts_of(tmp_path, told)).filter(entity_type="tool_call")
    assert shown["reason_codes"].to_list() == [code]


@pytest.mark.parametrize(
    ("outputs", "delivery"), a_few([([{}], "passed"), ([None], "missing"), ([], "missing")], 2)
)
def test_a_review_has_delivered_where_it_was_left(tmp_path, outputs, delivery) -> None:
    told = begun()
    for output in outputs:
        told.event("exited_review_mode", review_output=output)
    abort("review_ended")(told)
    assert state_of(facts_of(tmp_path, told))["delivery"] == delivery


def test_a_thread_without_a_turn_waits_for_one(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Rollout("one", "2026-05-18T09:00:00"))
    assert axes(facts) == ("pending", "unknown", "not_expected", "run.pending.no_turn")


def test_an_end_that_comes_too_late_is_not_believed(tmp_path: Path) -> None:
    told = begun()
    first = told.turn_id
    told.turn("Next")
    told.event("task_complete", turn_id=first, last_agent_message="late")
    facts = facts_of(tmp_path, told)
    reasons = facts.detail(frames.TURNS)["situation"].to_list()
    assert reasons == ["aborted", "awaiting_model"]


def test_taken_back_turns_are_skipped_and_counted(tmp_path: Path) -> None:
    told = begun()
    told.complete("a")
    for prompt in ("Two", "Three"):
        told.turn(prompt)
        told.complete("b")
    told.event("thread_rolled_back", num_turns=2)
    told.turn("Four")
    facts = facts_of(tmp_path, told)
    turns = facts.detail(frames.TURNS)
    assert turns["is_rolled_back"].to_list() == [False, True, True, False]
    assert turns["is_last"].to_list() == [False, False, False, True]


def test_tokens_follow_totals_that_fall_and_answers_that_tell_themselves(tmp_path: Path) -> None:
    told = begun()
    told.tokens(1000, 0, 10)
    told.total = dict.fromkeys(maker.PARTS, 0)
    told.tokens(400, 100, 5)
    session = session_of(facts := facts_of(tmp_path, told))
    assert (session["n_input_tokens"], session["n_cached_tokens"]) == (1400, 100)
    assert found_of(facts)["tokens.total_fell"] == 1
    for _ in range(2):  # the same answer, told twice
        usage = dict(zip(maker.PARTS, (7, 0, 2, 0, 9), strict=True))
        told.add("token_usage_record", turn_id=told.turn_id, response_id="r", usage=usage)
    assert session_of(facts_of(tmp_path, told))["n_input_tokens"] == 7


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
    told = Rollout("one", "2026-05-18T09:00:00", history_base=base, **more)
    told.turn("Two")
    told.complete("b")
    for place, line in enumerate(told.lines):
        line["ordinal"] = place
    session = session_of(facts := facts_of(tmp_path, told))
    assert (session["n_prompts"], session["n_copied"]) == (1, 0)
    assert session["parent_thread_id"] == "parent"
    assert axes(facts)[0] == "completed"


def test_finished_items_are_calls_where_none_is_written(tmp_path: Path) -> None:
    told = begun()
    for place, (exit_code, status) in enumerate([(0, "completed"), (1, "failed")]):
        ran = {"type": "CommandExecution", "exit_code": exit_code, "status": status}
        item = ran | {"id": f"item_{place}", "duration": {"secs": 2, "nanos": 0}}
        told.event("item_completed", 2.0, turn_id=told.turn_id, item=item)
    told.complete("a")
    facts = facts_of(tmp_path, told)
    assert (session_of(facts)["n_tool_calls"], session_of(facts)["n_tool_errors"]) == (2, 1)
    assert facts.detail(frames.TOOLS)["name"].to_list() == ["CommandExecution"] * 2
    assert "tool.result_without_call" not in found_of(facts)


def rows_of(facts: Facts) -> pl.DataFrame:
    """Every entity, whatever finds it in a file."""
    return facts.entities.drop("source").sort("entity_type", "entity_id")


@pytest.mark.parametrize("seed", a_few(range(6), 1))
def test_lines_in_any_order_say_the_same(sample: Facts, tmp_path: Path, seed: int) -> None:
    """Moments tell the order where results stand before their calls."""
    chance, root = random.Random(seed), tmp_path / "root"
    shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("*.py"))
    for path in sorted(root.rglob("rollout-*.jsonl")):
        lines = path.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        chance.shuffle(whole)
        path.write_text("".join([*whole, *lines[len(whole) :]]))
    again = read_facts(root, as_of=NOON)[0]
    assert rows_of(again).equals(rows_of(sample))
    assert found_of(again)["time.out_of_order"] > found_of(sample).get("time.out_of_order", 0)


def test_a_thread_in_two_places_is_one(tmp_path: Path) -> None:
    told = begun()
    told.complete("a")
    packed = tmp_path / "archived_sessions" / f"{Path(told.file).name}.zst"
    packed.parent.mkdir()
    packed.write_bytes(maker.packed(told.text()))
    other = tmp_path / "sessions" / Path(told.file).name
    other.parent.mkdir()
    other.write_text("".join(told.text().splitlines(keepends=True)[:-1]))
    facts = facts_of(tmp_path, told)
    assert session_of(facts)["n_files"] == 3
    assert session_of(facts)["file"] == told.file
    assert axes(facts)[0] == "completed"
    assert found_of(facts)["session.in_two_files"] == 1
    twin = (tmp_path / told.file).with_suffix(".jsonl.zst")
    twin.write_bytes(b"\x28\xb5\x2f\xfd being written")
    assert "file.unreadable" not in found_of(read_facts(tmp_path, as_of=facts.as_of)[0])


def test_a_packed_rollout_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    told = begun()
    told.complete("a")
    path = tmp_path / f"{Path(told.file).name}.zst"
    path.write_bytes(maker.packed(told.text())[:-20])
    facts = read_facts(tmp_path, as_of=told.now)[0]
    assert found_of(facts)["file.unreadable"] == 1


def test_hostile_lines_cost_only_themselves(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 2000)
    told = begun()
    told.complete("a")
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
    facts = facts_of(tmp_path, told, tail=tail, as_of=NOON)
    n_rows = found_of(facts)
    assert (n_rows["record.not_json"], n_rows["record.too_long"]) == (3, 1)
    assert n_rows["record.legacy_shape"] == 1
    assert axes(facts)[0] == "completed"


def test_odd_clocks_repeats_and_versions_are_counted(tmp_path: Path) -> None:
    told = Rollout("one", "2026-05-18T09:00:00", version="9.0.0")
    told.turn("Do it")
    told.complete("a")
    told.lines[-1]["timestamp"] = "2026-05-18T08:00:00.000Z"
    told.lines += [told.lines[-1]]
    told.event("task_complete", turn_id=None, last_agent_message="again")
    facts = facts_of(tmp_path, told, as_of=NOON)
    n_rows = found_of(facts)
    assert axes(facts)[0] == "completed"
    assert (n_rows["time.out_of_order"], n_rows["version.unknown"]) == (2, 1)


def test_what_is_there_twice_or_says_nothing_is_counted(tmp_path: Path) -> None:
    told = begun()
    told.tokens(-5, 0, 7)
    told.tokens(10**30, 0, 1)
    told.complete("a")
    once = facts_of(tmp_path, told, as_of=NOON)
    told.lines = [line for line in told.lines for _ in range(2)]
    told.lines += [
        {"type": "event_msg", "timestamp": 1779094800.5, "payload": "text"},
        {"type": "event_msg", "timestamp": -5, "payload": None},
    ]
    empty = tmp_path / "sessions" / "2026" / "05" / f"rollout-{told.thread_id}.jsonl"
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.touch()
    facts = facts_of(tmp_path, told, as_of=NOON)
    assert session_of(facts)["n_prompts"] == session_of(once)["n_prompts"] == 1
    assert session_of(facts)["n_answers"] == session_of(once)["n_answers"]
    assert (session_of(facts)["n_input_tokens"], session_of(facts)["n_output_tokens"]) == (0, 8)
    n_rows = found_of(facts)
    assert (n_rows["time.unreadable"], n_rows["record.unknown_event"]) == (2, 2)
    assert (n_rows["usage.below_zero"], n_rows["file.empty"]) == (4, 1)
    assert n_rows["record.repeated"] >= 1


def test_rollouts_from_before_there_were_records_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "rollout-2025-05-01T09-00-00-5973b6c0-94b8-487b-a530-2aeb6098ae0e.jsonl"
    begin = {"id": "5973b6c0", "timestamp": "2025-05-01T09:00:00Z", "instructions": None}
    said = {"type": "message", "role": "user", "content": []}
    path.write_text("".join(json.dumps(line) + "\n" for line in (begin, said)))
    facts = read_facts(tmp_path, as_of=NOON)[0]
    assert found_of(facts) == {"record.legacy_shape": 2}
    assert state_of(facts)["lifecycle"] == "pending"


def test_a_file_that_goes_away_costs_only_itself(tmp_path: Path, monkeypatch) -> None:
    one, two = begun(), Rollout("two", "2026-05-18T09:00:00")
    listed = places.rollouts_of

    def found(path: Path) -> list[Path]:
        files = listed(path)
        (tmp_path / two.file).unlink(missing_ok=True)
        return files

    monkeypatch.setattr("stateanalytics.systems.codex.reading.rollouts_of", found)
    facts = facts_of(tmp_path, one, two)
    assert facts.entities.filter(entity_type="session").height == 1
    assert facts.findings["code"].to_list() == ["file.vanished"]


def test_a_directory_of_a_hostile_name_says_the_same(tmp_path: Path) -> None:
    named = tmp_path / os.fsdecode(b"a\n\x1b[31m<b>\xff")
    told = begun()
    plain = facts_of(tmp_path / "plain", told)
    with sa.read(shutil.copytree(tmp_path / "plain", named), as_of=NOON, progress=False) as snap:
        assert "\x1b" not in repr(snap)
        key = ["entity_type", "entity_id", "raw_status", "started_at"]
        assert snap.entities.select(key).equals(plain.entities.select(key))
        assert snap.findings["code"].equals(plain.findings["code"])


@given(st.data())
@examples(24)
def test_any_beginning_of_a_rollout_is_read(data: st.DataObject) -> None:
    texts = {name: text for name, text in maker.rollouts().items() if "rollout-" in name}
    name = data.draw(st.sampled_from(sorted(texts)))
    octets = texts[name]
    n_bytes = data.draw(st.integers(0, len(octets)))
    with tempfile.TemporaryDirectory() as folder:
        begun_one = begun()
        (Path(folder) / Path(begun_one.file).name).write_text(begun_one.text())
        (Path(folder) / Path(name).name).write_bytes(octets[:n_bytes])
        facts = read_facts(folder, as_of=NOON)[0]
    kept = facts.detail(frames.LINES).filter(pl.col("file") == Path(name).name).height
    if name.endswith(".jsonl"):
        n_lines = octets[:n_bytes].count(b"\n")
        n_bad = facts.findings.filter(code="line.unfinished")["n_rows"].sum()
        assert n_lines <= kept + n_bad <= n_lines + 1


def cut_off(at: datetime, to: Path) -> Path:
    """The sample as a copy that was made at an instant."""
    shutil.copytree(SAMPLE, to, ignore=shutil.ignore_patterns("*.py", "history.jsonl", "archived*"))
    for path in to.rglob("*.jsonl"):
        kept = []
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                told = json.loads(line)
                moment = (told.get("timestamp") or told["updated_at"]).replace("Z", "+00:00")
                kept += [line] if datetime.fromisoformat(moment) <= at else []
        path.write_text("".join(kept))
        if not kept:
            path.unlink()
    return to


@pytest.mark.parametrize("share", a_few(range(8), 1))
def test_an_earlier_instant_is_what_a_copy_of_then_says(tmp_path, share) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(SAMPLE, plain, ignore=shutil.ignore_patterns("archived*", "history.jsonl"))
    whole = read_facts(plain, as_of=NOON)[0]
    moments = sorted(set(whole.detail(frames.LINES)["at"].drop_nulls()))[:-1]
    random.Random(2026).shuffle(moments)
    for number, at in enumerate(moments[share::8][: 2 if share == 0 else None]):
        past = facts_at(whole, at)
        then = past.facts
        assert past.lost.height == then.entities.height
        copy = read_facts(cut_off(at, tmp_path / str(number)), as_of=at)[0]
        key = ["entity_type", "entity_id"]
        ours, theirs = (facts.entities.drop("source").sort(key) for facts in (then, copy))
        assert ours.equals(theirs), at
        seen = [states(facts).drop("source").sort(key) for facts in (then, copy)]
        assert seen[0].equals(seen[1]), at


def test_places_are_told_by_what_is_inside(tmp_path: Path) -> None:
    assert places.find(SAMPLE) == [SAMPLE]
    assert places.find(SAMPLE / "sessions") == [SAMPLE / "sessions"]
    [packed] = (SAMPLE / "archived_sessions").iterdir()
    assert places.find(packed) == [packed]
    (tmp_path / "rollout-x.jsonl").write_text('{"type":"user","sessionId":"s"}\n')
    assert places.find(tmp_path) == []
    (tmp_path / "rollout-x.jsonl").unlink()
    hostile = tmp_path / "sessions" / "a\n[x]*" / Path(begun().file).name
    hostile.parent.mkdir(parents=True)
    hostile.write_text(begun().text())
    assert places.find(tmp_path) == [tmp_path]
    assert read_facts(tmp_path, as_of=NOON)[0].entities.height == 2


def test_what_lies_beside_the_rollouts_is_counted(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("logs_2.sqlite", "log/codex-tui.log"):
        (tmp_path / name).write_text("")
    facts = facts_of(tmp_path, begun())
    found = facts.findings.filter(code="source.files_not_read").select("table", "n_rows")
    assert found.rows() == [("*.sqlite", 1), ("log/*.log", 1)]


def test_the_newest_index_tells_of_threads_that_have_no_rollout(tmp_path: Path) -> None:
    told = begun()
    (tmp_path / "state_4.sqlite").write_text("an older generation")
    with contextlib.closing(sqlite3.connect(tmp_path / "state_5.sqlite")) as index:
        index.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT)")
        rows = [(told.thread_id, told.file), ("gone", "sessions/gone.jsonl")]
        index.executemany("INSERT INTO threads VALUES (?, ?)", rows)
        index.commit()
    found = facts_of(tmp_path, told).findings.filter(code="index.thread_without_rollout")
    assert found.select("n_rows", "example").rows() == [(1, "gone")]
    (tmp_path / "state_5.sqlite").write_text("no database")
    assert found_of(facts_of(tmp_path, told))["index.unreadable"] == 1


def test_a_search_by_the_provider_is_a_call_that_is_over(tmp_path: Path) -> None:
    told = begun()
    for status in ("completed", "completed", "failed"):
        told.item("web_search_call", status=status, action={"type": "search", "query": "x"})
    told.complete("Found.")
    tools = facts_of(tmp_path, told).detail(frames.TOOLS)
    assert tools.select("name", "is_error").rows() == [
        ("web_search_call", False), ("web_search_call", False), ("web_search_call", True)
    ]  # fmt: skip
    assert tools["ended_at"].null_count() == 0
