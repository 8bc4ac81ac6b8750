"""Claude Code: transcripts of every shape, whole and broken."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.io import json_lines
from stateanalytics.state.states import states
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.detectors import silence_ends
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from stateanalytics.systems.situations import cause_of_error
from tests.examples import a_few
from tests.transcripts import (
    NOON,
    SAMPLES,
    Transcript,
    after,
    axes,
    begun_rollout,
    begun_transcript,
    facts_of,
    file_of,
    findings_of,
    state_of,
    transcript_maker,
)

SAMPLE = SAMPLES / "claude_code"
call, say = transcript_maker.call, transcript_maker.say
USAGE = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def sample() -> Facts:
    return read_facts(SAMPLE, as_of=NOON)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("good", ("completed", "ok", "passed", "run.completed.turn_ended")),
        ("fork", ("completed", "ok", "passed", "run.completed.turn_ended")),
        ("stopped", ("cancelled", "ok", "not_expected", "run.cancelled.user_interrupt")),
        ("limit", ("failed", "ok", "missing", "run.failed.provider_quota")),
        ("died", ("completed", "ok", "passed", "run.completed.turn_ended")),
        ("compact", ("completed", "ok", "partial", "run.delivery.truncated_length")),
        ("asking", ("running", "idle", "unknown", "run.health.awaiting_user")),
        ("working", ("running", "running", "unknown", "run.health.open_tool")),
    ],
)
def test_sessions_show_the_state_of_their_last_turn(sample, name, expected) -> None:
    assert axes(sample, transcript_maker.session_id(name)) == expected


def test_earlier_turns_keep_their_own(sample: Facts) -> None:
    found = dict(states(sample).select("entity_id", "reason_codes").iter_rows())
    died, good = transcript_maker.session_id("died"), transcript_maker.session_id("good")
    assert found[f"{died}:turn:1"] == "run.aborted.process_dead_no_terminal"
    assert found[f"{good}:turn:1"].endswith("run.health.recovered_after_retry")
    assert found[f"{good}:toolu_g2"] == "invocation.failed.exit_nonzero"
    assert found[f"{good}:toolu_g1"] is None


def test_usage_is_counted_once_over_copies_and_repeated_lines(sample: Facts) -> None:
    sessions = {row["thread_id"]: row for row in sample.detail(frames.SESSIONS).to_dicts()}
    good, fork = (sessions[transcript_maker.session_id(name)] for name in ("good", "fork"))
    assert (good["n_output_tokens"], good["naive_output_tokens"]) == (225, 228)
    assert (fork["n_output_tokens"], fork["n_prompts"], fork["n_copied"]) == (66, 1, 8)
    tokens = sample.entities.filter(entity_type="session")["n_output_tokens"].sum()
    assert tokens == sample.detail(frames.MESSAGES)["n_output_tokens"].sum()


def test_subagents_are_runs_with_the_call_that_started_them(sample: Facts) -> None:
    [child] = sample.detail(frames.SESSIONS).filter(pl.col("agent_id").is_not_null()).to_dicts()
    assert child["parent_thread_id"] == transcript_maker.session_id("parent")
    assert child["parent_tool_id"] == "toolu_p1"
    [calling] = sample.detail(frames.TOOLS).filter(tool_id="toolu_p1").to_dicts()
    assert calling["child_thread_id"] == child["thread_id"]


# A command has two minutes, and one, or what it asks for; other tools have ten, servers an hour.
OVERDUE = [
    *(("Bash", {}, 2.9, "running", ""), ("Bash", {}, 3.1, "stalled", "")),
    ("Bash", {"timeout": 600000}, 10.9, "running", ""),
    ("Bash", {"timeout": 600000}, 11.1, "stalled", ""),
    *(("mcp__a__b", {}, 59, "running", ""), ("Read", {}, 10.1, "stalled", "")),
    ("Bash", {}, 14, "running", '{"env": {"BASH_DEFAULT_TIMEOUT_MS": "900000"}}'),
    ("Bash", {}, 14, "stalled", '{"env": ["BASH_DEFAULT_TIMEOUT_MS"], "timeout": null}'),
]


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "given", "minutes", "health", "settings"), a_few(OVERDUE, 3))
def test_open_tools_are_judged_by_their_own_time_limit_or_that_of_the_settings(
    tmp_path: Path, tool: str, given: dict, minutes: float, health: str, settings: str
) -> None:
    if settings:
        (tmp_path / "settings.json").write_text(settings)
    transcript = begun_transcript()
    transcript.answer(call("t1", tool, **given), stop="tool_use", usage=USAGE)
    facts = facts_of(tmp_path, transcript, as_of=transcript.now + after(minutes))
    assert state_of(facts)["health"] == health
    assert "run.health.awaiting_permission" in state_of(facts)["reason_codes"]


def test_a_call_of_a_subagent_waits_as_long_as_that_is_heard_of(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(call("t1", "Agent"), stop="tool_use", usage=USAGE)
    transcript.add("progress", data={"agentId": "a1"}, parentToolUseID="t1")
    child = Transcript("one", "2026-05-18T09:30:00", agent="a1")
    child.user("Look")
    facts = facts_of(tmp_path, transcript, child, as_of=child.now + after(9))
    assert state_of(facts, transcript.session_id)["health"] == "running"


@pytest.mark.slow
def test_a_retry_is_waited_for(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.retry(1, 20_000.0)
    facts = facts_of(tmp_path, transcript, as_of=transcript.now + after(0.5))
    codes = "run.health.retry_scheduled, run.health.provider_rate_limit"
    assert axes(facts) == ("running", "degraded", "unknown", codes)
    late = facts_of(tmp_path, transcript, as_of=transcript.now + after(2))
    assert state_of(late)["health"] == "stalled"


def answer(text: str, stop: str | None, **fields: object) -> Callable:
    return lambda transcript: transcript.answer(say(text), stop=stop, usage=USAGE, **fields)


def add(kind: str, **fields: object) -> Callable:
    return lambda transcript: transcript.add(kind, **fields)


def error_record(tag: str, stop: str | None = None) -> Callable:
    """An error of which the record, and not a status, shows what stopped the answer."""
    message = {
        **{"model": "<synthetic>", "id": "msg_x", "role": "assistant"},
        "content": [{"type": "text", "text": "API Error: stopped"}],
        "stop_reason": stop,
    }
    return add("assistant", isApiErrorMessage=True, error=tag, message=message)


def overloaded(transcript: Transcript) -> None:
    transcript.api_error("overloaded", "server_error", 529)


def called(transcript: Transcript) -> None:
    transcript.answer(call("t", "Bash"), stop="tool_use", usage=USAGE)


def exited(transcript: Transcript) -> None:
    """What a process writes when it ends: its costs, without a timestamp."""
    times = {"startTime": 1000 * transcript.now.timestamp() - 5000, "totalDuration": 5000}
    transcript.add("cost-state", uuid=None, timestamp=None, totalCostUSD=1, modelUsage={}, **times)


def result(**fields: object) -> Callable:
    return lambda transcript: transcript.result("t", "It ran.", **fields)


INTERRUPTED = "cancelled.interrupted"
INTERRUPT = [say("[Request interrupted by user for tool use]")]
STOPPED, SHUTDOWN = (
    lambda transcript, fields=fields: transcript.user(INTERRUPT, **fields)
    for fields in ({}, {"interruptedByShutdown": True})
)
HOOK_STOP = add("attachment", attachment={"type": "hook_stopped_continuation"})
HOOKED, BLOCKED = (add("system", promptSubmitEnding={"promptKept": kept}) for kept in (True, False))
MODEL_END = add("ended-by-model", uuid=None)
TURN_END = add("system", subtype="turn_duration")
STOP_HOOK = add("progress", data={"type": "hook_progress", "hookEvent": "Stop"})
COMPACTED = add("system", subtype="compact_boundary")
UNSTOPPED, STILL_UNSTOPPED = (answer("a", None, version=f"2.1.{n}") for n in (58, 59))
OVER_BY_TOOL = {"_meta": {"claude/endTurn": True}}
MAX_TURNS = add("attachment", attachment={"type": "max_turns_reached"})
NO_FALLBACK = add("system", subtype="model_refusal_no_fallback", content="refused")
BUDGET = add("attachment", attachment={"type": "budget_usd", "total": 0.01})
AGAIN = add("user", message={"role": "user", "content": "Again"})
CALL, RESULT, GOOD, EXIT = called, result(), answer("a", "end_turn"), exited
LEAVES = add("user", message={"role": "user", "content": "<command-name>/exit</command-name>"})
NOTED = add("user", isMeta=True, message={"content": "<command-name>/exit</command-name>"})
CONTINUED = add("continued-in", after_s=5, uuid=None, continuedInSessionId="other")
WAITS, OVER, RULE = "health.awaiting_model", "completed.turn_ended", "cancelled.stopped_by_rule"
REFUSAL = "failed.content_filtered"
LAST_TURNS = {
    "prompt": (WAITS,),
    "an answer that continues": (WAITS, answer("a", None)),
    "a result": (WAITS, CALL, RESULT),
    "a tool that fails to end it": (WAITS, CALL, result(toolEndsTurn=True, is_error=True)),
    "a hook during a call": ("health.open_tool", CALL, HOOK_STOP),
    "a confirmed answer": (OVER, answer("a", None), TURN_END),
    "an answer before its hooks": (OVER, answer("a", None), STOP_HOOK),
    "hooks that ask for more": (WAITS, answer("a", None), STOP_HOOK, answer("b", None)),
    "a client that keeps no stop reasons": (OVER, UNSTOPPED),
    "the first that keeps them": (WAITS, STILL_UNSTOPPED),
    "one whose version is a word": (WAITS, answer("a", None, version="dev")),
    "an answer that it did not keep": (OVER, answer("", None, version="2.1.58"), TURN_END),
    "a call by one that keeps none": ("health.open_tool", UNSTOPPED, CALL),
    "a result that a compaction removed": (OVER, CALL, COMPACTED, GOOD),
    "a tool that ends the turn": (OVER, CALL, result(toolEndsTurn=True)),
    "a tool of a server that ends it": (OVER, CALL, result(mcpMeta=OVER_BY_TOOL)),
    "an answer after a hook, and another hook": (OVER, CALL, RESULT, HOOK_STOP, GOOD, HOOK_STOP),
    "a hook that stops the prompt": (RULE, HOOKED),
    "a hook that blocks the next prompt": (RULE, GOOD, BLOCKED),
    "a hook that stops": (RULE, CALL, RESULT, HOOK_STOP),
    "a denial that ends it": (RULE, CALL, result(toolDenialEndsTurn=True, is_error=True)),
    "an end without an answer": ("delivery.unknown_finish", CALL, RESULT, TURN_END),
    "an end by the model": ("completed.ended_by_model", GOOD, MODEL_END),
    "one that looks like an interrupt": ("completed.ended_by_model", CALL, MODEL_END, STOPPED),
    "an interrupt": ("cancelled.user_interrupt", CALL, STOPPED),
    "a person who leaves during a call": ("cancelled.user_interrupt", CALL, LEAVES),
    "words of the client about it": ("health.open_tool", CALL, NOTED),
    "a process that a person ended": ("cancelled.user_interrupt", CALL, LEAVES, EXIT),
    "a person who leaves after an answer": (OVER, UNSTOPPED, LEAVES),
    "a session that is opened again": (WAITS, CALL, LEAVES, AGAIN),
    "a shutdown": ("aborted.shutdown", CALL, SHUTDOWN),
    "a process that ended in a call": ("aborted.shutdown", CALL, EXIT),
    "a process that ended before an answer": ("aborted.shutdown", EXIT),
    "a process that ended after one": (OVER, GOOD, EXIT),
    "one that goes on": ("health.open_tool", EXIT, CALL),
    "a limit of costs": ("timed_out.max_budget", BUDGET, CALL, EXIT),
    "a limit of an earlier process": ("aborted.shutdown", BUDGET, GOOD, AGAIN, CALL, EXIT),
    "one that goes on in another session": ("cancelled.superseded", CALL, EXIT, CONTINUED, EXIT),
    "an answer without words": ("delivery.empty_output", answer("", "end_turn")),
    "an unknown reason": ("delivery.unknown_finish", answer("a", "new word")),
    "a limit of turns": ("timed_out.max_turns", answer("a", None), MAX_TURNS),
    "an error": ("failed.provider_internal", overloaded),
    "a refusal": (REFUSAL, answer("no", "refusal")),
    "a refusal without another model": (REFUSAL, NO_FALLBACK),
    "a refusal as an error": (REFUSAL, error_record("invalid_request", "refusal")),
    "the output limit as an error": (
        "delivery.truncated_length",
        error_record("max_output_tokens"),
    ),
    "an invalid request": ("failed.provider_invalid_request", error_record("invalid_request")),
    "a full context window": (
        "failed.context_overflow",
        answer("half", "model_context_window_exceeded"),
    ),
}
OUTCOMES = {"health": None, "delivery": "completed"}


@pytest.mark.parametrize(("stop", "n"), [(None, 1), ("end_turn", 0)])
def test_an_answer_without_a_stop_reason_has_too_few_tokens(tmp_path: Path, stop, n) -> None:
    transcript = begun_transcript()
    answer("a", stop)(transcript)
    found = facts_of(tmp_path, transcript).findings.filter(code="usage.placeholder")
    assert found["n_rows"].sum() == n


def test_the_last_turn_is_read_from_its_records(tmp_path: Path) -> None:
    """All in one folder: a session has the same state whatever lies next to it."""
    transcripts = {name: begun_transcript(name) for name in LAST_TURNS}
    for name, (_, *steps) in LAST_TURNS.items():
        for step in steps:
            step(transcripts[name])
    shown = states(facts_of(tmp_path, *transcripts.values())).filter(entity_type="session")
    by_id = {row["entity_id"]: row for row in shown.to_dicts()}
    for name, (code, *_) in LAST_TURNS.items():
        row, word = by_id[transcripts[name].session_id], code.partition(".")[0]
        assert row["outcome"] == OUTCOMES.get(word, word), name
        assert f"run.{code}" in row["reason_codes"].split(", "), name


@pytest.mark.parametrize("name", ["a refusal as an error", "the output limit as an error"])
def test_an_error_that_is_none_keeps_its_words_but_not_its_tag(tmp_path: Path, name) -> None:
    transcript = begun_transcript()
    _, record = LAST_TURNS[name]
    overloaded(transcript)
    record(transcript)
    facts = facts_of(tmp_path, transcript)
    [turn] = facts.detail(frames.TURNS).to_dicts()
    assert (turn["error_message"], turn["error_type"]) == ("API Error: stopped", None)
    assert set(facts.entities["reason_message"]) == {"API Error: stopped"}


def test_a_refusal_without_an_error_does_not_take_that_of_a_retry(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.retry(1, 20_000.0)
    answer("no", "refusal")(transcript)
    [turn] = facts_of(tmp_path, transcript).detail(frames.TURNS).to_dicts()
    assert (turn["situation"], turn["error_message"]) == ("refused", None)


def test_a_call_of_an_answer_that_was_given_again_is_not_waited_for(tmp_path: Path) -> None:
    transcript = begun_transcript()
    asked = transcript.parent
    transcript.answer(call("toolu_1", "Bash", command="make"), stop="tool_use", usage=USAGE)
    transcript.parent = asked
    transcript.answer(say("Done without it."), stop="end_turn", usage=USAGE)
    facts = facts_of(tmp_path, transcript)
    assert axes(facts) == ("completed", "ok", "passed", "run.completed.turn_ended")
    assert facts.detail(frames.TOOLS)["is_replaced"].to_list() == [True]


ENDS = [result(toolEndsTurn=True), HOOK_STOP, TURN_END, MODEL_END, SHUTDOWN, EXIT, LEAVES]


@pytest.mark.parametrize("step", ENDS)
def test_an_end_without_an_answer_is_known_when_it_is_written(tmp_path, step):
    transcript = begun_transcript()
    for each in [CALL, RESULT]:
        each(transcript)
    open_at = transcript.now
    transcript.now += timedelta(seconds=7)
    step(transcript)
    facts = facts_of(tmp_path, transcript)
    [turn] = facts.detail(frames.TURNS).to_dicts()
    assert turn["ended_at"] == transcript.now
    assert state_of(facts_at(facts, open_at).facts)["lifecycle"] == "running"


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((CALL, EXIT), "aborted.shutdown"),
        ((CALL, RESULT, EXIT), "aborted.shutdown"),
        ((CALL, LEAVES), "cancelled.user_interrupt"),
        ((BUDGET, CALL, EXIT), "timed_out.max_budget"),
        ((CALL,), "aborted.process_dead_no_terminal"),
    ],
)
def test_a_resume_does_not_change_how_a_turn_ended(tmp_path, steps, code):
    """As 2.1.332 writes it, which first closes what the process before it had not."""
    transcript = begun_transcript()
    for step in steps:
        step(transcript)
    ended, is_open = transcript.now, RESULT not in steps
    transcript.now += after(60)
    if is_open:
        transcript.result("t", NO_END, is_error=True, toolDenialKind="interrupted")
    transcript.add("assistant", message={"model": "<synthetic>", "content": [say("Nothing.")]})
    resumed = transcript.now
    transcript.user("<task-notification>", queueTranscriptOnly=True)
    for step in (AGAIN, GOOD, EXIT):
        step(transcript)
    facts = facts_of(tmp_path, transcript)
    [turn, _] = facts.detail(frames.TURNS).to_dicts()
    assert turn["ended_at"] == turn["last_activity_at"] == ended
    assert facts.detail(frames.TOOLS)["ended_at"].is_null().all() == is_open
    for at in (ended, resumed, transcript.now) if EXIT in steps else (transcript.now,):
        shown = states(facts_at(facts, at).facts).filter(entity_id=turn["entity_id"])
        assert shown["reason_codes"].to_list() == [f"run.{code}"]


def test_a_death_is_noticed_at_the_next_prompt_whatever_becomes_of_that(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(call("toolu_1", "Bash", command="make"), stop="tool_use", usage=USAGE)
    transcript.user("Are you there?", 600.0)
    ends = silence_ends(facts_of(tmp_path, transcript))
    assert ends.select("at", "boundary").rows() == [(transcript.now, "crash")]


@pytest.mark.slow
def test_small_pieces_say_what_large_ones_say(sample: Facts, monkeypatch) -> None:
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 2000)
    again = read_facts(SAMPLE, as_of=NOON)[0]
    for frame in (frames.LINES, frames.BLOCKS):
        assert again.detail(frame).equals(sample.detail(frame))
    assert again.entities.equals(sample.entities)


def test_nothing_but_names_is_a_session_that_waits_for_its_prompt(tmp_path: Path) -> None:
    transcript = Transcript("one", "2026-05-18T09:00:00")
    transcript.add("ai-title", aiTitle="A title")
    facts = facts_of(tmp_path, transcript)
    assert axes(facts) == ("pending", "unknown", "not_expected", "run.pending.no_prompt")
    assert facts.entities["name"].to_list() == ["A title"]


def test_a_resume_that_writes_old_records_again_is_no_new_work(tmp_path: Path) -> None:
    """Fresh ids of records, the same ids of answers, later moments."""
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=USAGE)
    transcript.lines += [
        {**line, "uuid": f"again-{place}", "timestamp": f"2026-05-18T10:00:0{place}.000Z"}
        for place, line in enumerate(transcript.lines)
    ]
    transcript.user("More", 7200.0)
    transcript.answer(say("More."), stop="end_turn", usage=USAGE)
    facts = facts_of(tmp_path, transcript)
    [session] = facts.detail(frames.SESSIONS).to_dicts()
    counted = ("n_prompts", "n_answers", "n_turns", "n_output_tokens", "n_repeated")
    assert [session[name] for name in counted] == [2, 2, 2, 8, 2]


def test_a_resume_under_another_id_has_only_its_own_work(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=USAGE)
    again = Transcript("again", "2026-05-18T10:00:00")
    again.lines = [
        {**line, "uuid": f"again-{place}", "sessionId": again.session_id}
        for place, line in enumerate(transcript.lines)
    ]
    again.user("More")
    again.answer(say("More."), stop="end_turn", usage=USAGE)
    facts = facts_of(tmp_path, transcript, again, as_of=NOON)
    sessions = facts.detail(frames.SESSIONS).sort("first_at")
    counted = ("n_prompts", "n_answers", "n_turns", "n_output_tokens", "naive_output_tokens")
    assert sessions.select(counted).rows() == [(1, 1, 1, 4, 4), (1, 1, 1, 4, 8)]


def test_a_copy_that_tells_more_than_its_line_is_believed(tmp_path: Path) -> None:
    """A session that was forked while an answer was being written, and never finished it."""
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=(1, 2, 3, 4))
    fork = Transcript("fork", "2026-05-18T10:00:00")
    origin = {"forkedFrom": {"sessionId": transcript.session_id, "messageUuid": "x"}}
    fork.lines = [json.loads(json.dumps(line | origin)) for line in transcript.lines]
    fork.lines[-1]["message"]["usage"]["output_tokens"] = 400
    fork.user("More")
    facts = facts_of(tmp_path, transcript, fork, as_of=NOON)
    sessions = facts.detail(frames.SESSIONS).sort("first_at")
    assert sessions["n_output_tokens"].to_list() == [400, 0]


def test_any_line_of_an_answer_says_why_it_stopped(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("a"), stop="end_turn", usage=USAGE)
    again = json.loads(json.dumps(transcript.lines[-1]))
    again["message"]["stop_reason"] = None
    transcript.lines.append(again | {"uuid": "later"})
    assert axes(facts_of(tmp_path, transcript))[0] == "completed"


def test_a_task_that_was_queued_names_its_subagent(tmp_path: Path) -> None:
    transcript, child = begun_transcript(), Transcript("one", "2026-05-18T09:00:05", agent="a1")
    transcript.answer(call("t1", "Agent"), stop="tool_use", usage=USAGE)
    task = json.dumps({"task_id": "a1", "tool_use_id": "t1", "description": "Look"})
    transcript.add("queue-operation", operation="enqueue", content=task)
    GOOD(transcript)
    child.user("Look")
    facts = facts_of(tmp_path, transcript, child)
    [found] = facts.detail(frames.SESSIONS).drop_nulls("agent_id").to_dicts()
    assert (found["parent_tool_id"], found["parent_thread_id"]) == ("t1", transcript.session_id)
    assert facts.detail(frames.TURNS)["n_idle_answers"].max() == 0


def test_outputs_and_memories_are_no_transcripts(tmp_path: Path) -> None:
    transcript = begun_transcript()
    for folder in ("tool-results", "memory"):
        path = tmp_path / "projects" / "-p" / transcript.session_id / folder / "t.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(transcript.text())
    facts = facts_of(tmp_path / "projects" / "-p", transcript)
    assert facts.detail(frames.SESSIONS)["n_files"].to_list() == [1]
    assert findings_of(facts)["source.files_not_read"] == 2


@pytest.mark.parametrize(
    ("begun", "folder", "linked"),
    [
        (begun_transcript, "projects/-p", "projects"),
        (begun_transcript, "projects/-p", "projects/-p"),
        (begun_rollout, "", "sessions"),
        (begun_rollout, "", "sessions/2026"),
    ],
)
def test_linked_folders_are_read_once(tmp_path, begun, folder, linked) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    as_of = facts_of(root / folder, begun()).as_of
    expected = read_facts(root, as_of=as_of)[0]
    (root / linked).rename(elsewhere)
    for link in (root / linked, root / f"{linked}-again", elsewhere / "loop"):
        link.symlink_to(root if link.name == "loop" else elsewhere)
    (elsewhere / "other.txt").touch()
    facts = read_facts(root, as_of=as_of)[0]
    assert facts.entities.equals(expected.entities) and expected.entities.height
    assert findings_of(facts) == {**findings_of(expected), "source.files_not_read": 1}


@pytest.mark.parametrize("begun", [begun_transcript, begun_rollout])
def test_the_offset_of_a_time_counts(tmp_path: Path, begun: Callable, monkeypatch) -> None:
    """Worked out by hand: 09:00 at +05:30 is 03:30 in UTC, whatever the zone of the machine."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    stamps = {}
    for end in ("Z", "", "+05:30", "-0800", " garbage"):
        transcript = begun()
        for line in transcript.lines:
            line["timestamp"] = f"2026-05-18T09:00:05.250{end}"
        facts = facts_of(tmp_path / (end or "none"), transcript, as_of=NOON)
        stamps[end] = facts.entities.filter(entity_type="session")["started_at"].item()
    clock = {end: at and f"{at:%H:%M:%S.%f}" for end, at in stamps.items()}
    same = "09:00:05.250000"
    zones = {"+05:30": "03:30:05.250000", "-0800": "17:00:05.250000"}
    assert clock == {"Z": same, "": same, **zones, " garbage": None}
    assert findings_of(facts)["time.unreadable"]


def test_counts_beyond_all_numbers_are_counted(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("a"), stop="end_turn", usage=(10**30, 2, 3, True))  # no number at all
    facts = facts_of(tmp_path, transcript)
    [session] = facts.entities.filter(entity_type="session").to_dicts()
    assert (session["n_input_tokens"], session["n_output_tokens"]) == (5, 0)
    assert findings_of(facts)["usage.below_zero"] == 1


def test_work_of_subagents_inside_an_old_transcript_stands_apart(tmp_path: Path) -> None:
    transcript, side = begun_transcript(), Transcript("one", "2026-05-18T09:00:05", agent="x")
    transcript.answer(call("t1", "Task"), stop="tool_use", usage=USAGE)
    side.user("Look")
    side.answer(say("Seen."), stop="end_turn", usage=USAGE)
    for line in side.lines:
        del line["agentId"]
    transcript.lines += side.lines
    transcript.result("t1", "Seen.")
    facts = facts_of(tmp_path, transcript)
    assert axes(facts, transcript.session_id)[3] == "run.health.awaiting_model"
    assert axes(facts, f"{transcript.session_id}/sidechain")[3] == "run.completed.turn_ended"


def test_a_session_in_two_folders_is_one(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=USAGE)
    for folder, n_lines in (("-a", 1), ("-b", 2)):
        path = tmp_path / folder / f"{transcript.session_id}.jsonl"
        path.parent.mkdir()
        path.write_text("".join(transcript.text().splitlines(keepends=True)[:n_lines]))
    facts = read_facts(tmp_path, as_of=transcript.now)[0]
    [session] = facts.detail(frames.SESSIONS).to_dicts()
    assert (session["n_prompts"], session["n_files"], session["n_repeated"]) == (1, 2, 1)
    assert "session.in_two_files" in set(facts.findings["code"])


def test_repeated_lines_and_odd_clocks_are_counted_and_change_nothing(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=USAGE)
    transcript.lines[1]["timestamp"] = "2026-05-18T08:00:00.000Z"
    transcript.lines = [line for line in transcript.lines for _ in range(2)]
    facts = facts_of(tmp_path, transcript, as_of=NOON)
    assert axes(facts)[0] == "completed"
    assert facts.entities.filter(entity_type="session")["n_messages"].to_list() == [2]
    n_rows = findings_of(facts)
    assert (n_rows["record.repeated"], n_rows["time.out_of_order"]) == (2, 2)


def test_what_says_nothing_is_counted(tmp_path: Path) -> None:
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=(-1, 2, 3, 4))
    (tmp_path / f"{transcript.session_id.replace('-', '0')}.jsonl").touch()
    odd = [
        {"type": "user", "timestamp": 1779094800.5, "message": "text"},
        {"type": "assistant", "timestamp": "soon", "message": None},
        {"uuid": "x", "timestamp": "2026-05-18T09:00:05.000Z"},
    ]
    facts = facts_of(tmp_path, transcript, tail="\n".join(map(json.dumps, odd)), as_of=NOON)
    n_rows = findings_of(facts)
    assert (n_rows["time.unreadable"], n_rows["record.no_content"]) == (2, 2)
    assert (n_rows["usage.below_zero"], n_rows["record.unknown_type"]) == (1, 1)
    assert n_rows["file.empty"] == 1
    assert facts.entities.filter(entity_type="session")["n_input_tokens"].item() == 0 + 2 + 3


def test_two_records_on_one_line_are_both_read(tmp_path: Path) -> None:
    """A text in them may end as a record does, before one begins."""
    transcript = begun_transcript()
    transcript.user('a "}{" b }{')
    transcript.answer(say("}{"), stop="end_turn", usage=USAGE)
    usual = facts_of(tmp_path / "usual", transcript)
    joined = tmp_path / "joined"
    facts_of(joined, transcript)
    (path,) = joined.rglob("*.jsonl")
    path.write_text(path.read_text().replace("}\n{", "}{"))
    found = read_facts(joined, as_of=transcript.now + timedelta(seconds=30))[0]
    assert found.findings.equals(usual.findings)
    same = ("entity_id", "raw_status", "n_output_tokens")
    assert found.entities.select(same).equals(usual.entities.select(same))


def test_hostile_lines_cost_only_themselves(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(json_lines.budget, "MAX_LINE_BYTES", 2000)
    transcript = begun_transcript()
    transcript.answer(say("Done."), stop="end_turn", usage=USAGE)
    bad = ["[]", "nonsense", '"text"', json.dumps({"type": "user", "x": "y" * 4000})]
    odd = [
        {"type": ["a"], "message": 3, "timestamp": {}, "uuid": [], "toolUseResult": "text"},
        {"type": "assistant", "message": {"content": [3, None, {"type": {}}], "usage": [1]}},
        {"type": "user", "message": {"content": [{"type": "text", "text": "\ud800"}]}},
        {"type": "system", "timestamp": "99999-13-40", "retryInMs": 1e300},
    ]
    tail = "\n".join([*bad, *map(json.dumps, odd)]) + "\n"
    facts = facts_of(tmp_path, transcript, tail=tail, as_of=NOON)
    n_rows = findings_of(facts)
    assert (n_rows["record.not_json"], n_rows["record.too_long"]) == (3, 1)
    path = tmp_path / f"{transcript.session_id}.jsonl"
    path.write_bytes(path.read_text().encode("utf-16"))
    # Another process would have the bound of lines as it is.
    monkeypatch.setattr(json_lines, "grows", lambda _: False)
    assert read_facts(tmp_path, as_of=NOON)[0].entities.height == facts.entities.height


INTERNAL, CUT_OFF = "provider_internal", "truncated_length"


@pytest.mark.parametrize(
    ("tag", "status", "words", "cause"),
    [
        ("rate_limit", 429, "You've hit your session limit · resets 9pm", "provider_quota"),
        ("rate_limit", 429, "Too many requests", "provider_rate_limit"),
        ("rate_limit", 429, "You've hit your monthly spend limit", "provider_quota"),
        ("rate_limit", 429, "Extra usage is required for 1M context", "provider_quota"),
        (None, 401, None, "provider_auth"),
        ("billing_error", None, None, "provider_quota"),
        ("overloaded", 529, None, "provider_internal"),
        ("invalid_request", 400, "Prompt is too long", "context_overflow"),
        (None, 404, None, "provider_invalid_request"),
        (None, None, "Request timed out.", "provider_transport"),
        (None, None, None, "provider_unknown"),
        ("invalid_request", 400, "Output blocked by content filtering policy", "content_filtered"),
        ("invalid_request", None, "… violate our Usage Policy …", "content_filtered"),
        ("unknown", None, "API Error: 500 …", "provider_internal"),
        # Records of older versions have only words.
        *(
            (None, None, words, cause)
            for words, cause in (
                ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', INTERNAL),
                ('{"type":"error","error":{"type":"overloaded_error"}}', INTERNAL),
                ('401 {"type":"error","error":{"type":"authentication_error"}}', "provider_auth"),
                ('500 {"type":"error","error":{"type":"api_error"}}', INTERNAL),
                ("Invalid API key · Please run /login", "provider_auth"),
                ("You've hit your session limit · resets 9pm", "provider_quota"),
                ("Claude AI usage limit reached|1760000400", "provider_quota"),
                ("Credit balance is too low", "provider_quota"),
                ("API Error: Self-signed certificate detected", "provider_transport"),
                ("prompt is too long: 215000 tokens > 200000 maximum", "context_overflow"),
                ("API Error: Claude's response exceeded the 32000 output token maximum", CUT_OFF),
                ("It took too long to think of a reason", "provider_unknown"),
            )
        ),
    ],
)
def test_causes_of_errors(tag, status, words, cause) -> None:
    schema = {"error_type": pl.String, "error_status": pl.Int64, "error_message": pl.String}
    row = pl.DataFrame([(tag, status, words)], schema=schema, orient="row")
    assert row.select(cause_of_error()).item() == cause


# --- commands that a person gives in place of a prompt ------------------------------------


def typed(text: str, **fields: object) -> Callable:
    return lambda transcript: transcript.user(text, 60.0, **fields)


CAVEAT = typed("<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
SHELL = typed("<bash-input>git status</bash-input>")
SHOWN = typed("<bash-stdout>On branch main</bash-stdout><bash-stderr></bash-stderr>")
REVIEW = typed("<command-message>review</command-message>\n<command-name>/review</command-name>")
HIDDEN = typed("Review the code.", isMeta=True)
COST, COSTS = typed("<command-name>/cost</command-name>"), typed("<local-command-stdout>1</…>")
TASK, STOP = typed("<task-notification>…"), typed("[Request interrupted by user]")
PLAN = typed("<command-name>/plan</command-name>")
COMMANDS = {
    "a shell command": ("good", GOOD, CAVEAT, SHELL, SHOWN),
    "a stopped shell command": ("good", GOOD, CAVEAT, SHELL, STOP),
    "a call that is stopped after a command": ("interrupted", CALL, CAVEAT, COST, STOPPED),
    "a shell command that is answered": ("good good", GOOD, SHELL, SHOWN, GOOD),
    "a local command": ("good", GOOD, CAVEAT, COST, COSTS),
    "a local command, and a task that is answered": ("good", GOOD, CAVEAT, COST, TASK, GOOD),
    "a command after a failure": (
        "failed good",
        overloaded,
        CAVEAT,
        COST,
        COSTS,
        REVIEW,
        HIDDEN,
        GOOD,
    ),
    "a mode and its first task": ("failed good", overloaded, PLAN, COSTS, GOOD),
    "a command after a hook": (
        "stopped_by_rule good",
        CALL,
        RESULT,
        HOOK_STOP,
        REVIEW,
        HIDDEN,
        GOOD,
    ),
    "a command without an answer yet": ("good awaiting_model", GOOD, REVIEW, HIDDEN),
    "a command that fails": ("good failed", GOOD, REVIEW, HIDDEN, overloaded),
    "a command that is stopped": ("good interrupted", GOOD, REVIEW, HIDDEN, STOPPED),
    "a skill that the model called": ("good", CALL, RESULT, REVIEW, HIDDEN, GOOD),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_a_model_answers_begins_a_turn(tmp_path: Path, name: str) -> None:
    transcript = begun_transcript()
    turns, *steps = COMMANDS[name]
    for step in steps:
        step(transcript)
    shown = facts_of(tmp_path, transcript).detail(frames.TURNS)
    assert shown["situation"].to_list() == turns.split()
    assert set(shown["n_prompts"]) == {1}


FULL = "API Error: The model has reached its context window limit."
CREDITS = "API Error: Usage credits ran out before the response was finished."
ERROR_KINDS = [
    *(
        ("server_error", {"apiError": kind}, "API Error: Try again.", "provider_transport")
        for kind in ("connection_failed", "computer_slept", "no_response", "tls_untrusted_ca")
    ),
    ("server_error", {"apiError": "new_kind"}, "API Error: Try again.", INTERNAL),
    *(
        ("invalid_request", {"apiError": kind}, "Sorry.", cause)
        for kind, cause in (
            ("gateway_signin_required", "provider_auth"),
            ("dlp_request_denied", "content_filtered"),
            ("safety_monitor_blocked", "content_filtered"),
            ("autocompact_thrashing", "context_overflow"),
        )
    ),
    ("rate_limit", {"apiError": "model_requires_usage_credits"}, "Sorry.", "provider_quota"),
    ("unknown", {}, CREDITS, "provider_quota"),
    *((tag, {}, "Sorry.", "provider_auth") for tag in ("account_on_hold", "verification_required")),
    ("max_output_tokens", {"apiErrorParams": {"cut": "context_window"}}, "…", "context_overflow"),
    ("max_output_tokens", {"apiError": "max_output_tokens"}, FULL, "context_overflow"),
    ("max_output_tokens", {"apiErrorParams": {"cut": "output_limit"}}, "…", CUT_OFF),
]


def test_the_exact_kind_of_an_error_decides_before_its_tag(tmp_path: Path) -> None:
    transcripts = [begun_transcript(str(place)) for place in range(len(ERROR_KINDS))]
    for transcript, (tag, fields, words, _) in zip(transcripts, ERROR_KINDS, strict=True):
        transcript.api_error(words, tag, None)
        transcript.lines[-1].update(fields)
    shown = dict(
        states(facts_of(tmp_path, *transcripts)).select("entity_id", "reason_codes").rows()
    )
    for transcript, (*given, cause) in zip(transcripts, ERROR_KINDS, strict=True):
        assert shown[transcript.session_id].endswith(f".{cause}"), given


def test_what_another_session_asks_for_begins_a_turn_once_the_last_one_is_over(tmp_path):
    """In the middle of a turn it is a part of that."""
    transcript = begun_transcript()
    for minutes in (0, 90):
        ask = {"isMeta": True, "origin": {"kind": "peer"}}
        transcript.now += timedelta(minutes=minutes)
        CALL(transcript)
        transcript.result("t", "It ran.")
        transcript.user("Another Claude session sent a message: …", **ask)
        GOOD(transcript)
        transcript.add("system", subtype="turn_duration", durationMs=1000)
        transcript.user("<local-command-stdout>Context</local-command-stdout>", isMeta=True)
        transcript.now += timedelta(minutes=minutes)
        transcript.user("Another Claude session sent a message: …", **ask)
    GOOD(transcript)
    turns = facts_of(tmp_path, transcript).detail(frames.TURNS)
    assert turns["situation"].to_list() == ["good"] * 3
    assert (turns["ended_at"] - turns["started_at"]).dt.total_minutes().to_list()[0] == 0


def test_a_turn_that_failed_costs_what_it_took_and_not_its_whole_session(tmp_path: Path) -> None:
    transcript = begun_transcript("went on")
    overloaded(transcript)
    for _ in range(3):
        transcript.user("try again")
        answer("Done.", "end_turn")(transcript)
    members = sa.failures.members(facts_of(tmp_path, transcript))
    [turn] = members.to_dicts()
    assert turn["entity_type"] == "turn" and not turn["n_tokens"]
    [whole] = sa.failures.costs(facts_of(tmp_path, transcript), by=()).to_dicts()
    assert 0 < turn["run_s"] < whole["run_s"] / 3


def test_a_session_keeps_its_model_while_a_prompt_waits(tmp_path: Path) -> None:
    transcript = begun_transcript()
    answer("Done.", "end_turn")(transcript)
    transcript.user("And now the docs")
    facts = facts_of(tmp_path, transcript)
    assert facts.entities.filter(entity_type="session")["model"].item() is not None
    [costs] = sa.failures.costs(facts, by="model").to_dicts()
    assert (costs["n_runs"], costs["run_s"] > 0) == (1, True)


# --- subagents whose file ends without a word, and what their parent says of them ---------


def a_subagent(*, result: dict | None, agent: str = "a1") -> tuple[Transcript, Transcript]:
    """A parent that called a subagent, whose last answer says no reason why it stopped."""
    parent = Transcript("parent", "2026-05-20T17:00:00")
    parent.user("look around")
    parent.answer(call("toolu_1", "Task", prompt="look"), stop="tool_use", usage=USAGE)
    child = Transcript("parent", "2026-05-20T17:00:20", agent=agent)
    child.user("look")
    child.answer(say("done"), stop=None, usage=(1, 2, 3, 3))
    if result is not None:
        report = {"agentId": agent, **result}
        parent.result("toolu_1", "found", 60.0, toolUseResult=report)
        parent.answer(say("all done"), stop="end_turn", usage=USAGE)
    return parent, child


def test_a_subagent_that_its_parent_saw_complete_is_no_stall(tmp_path):
    result = {"status": "completed", "usage": {"output_tokens": 5108}, "totalTokens": 9000}
    parent, child = a_subagent(result=result)
    facts = facts_of(tmp_path, parent, child, as_of=parent.now + timedelta(days=1))
    row = state_of(facts, f"{parent.session_id}/a1")
    assert (row["outcome"], row["health"], row["severity"]) == ("completed", "ok", "neutral")
    own = facts.entities.filter(entity_id=f"{parent.session_id}/a1").row(0, named=True)
    assert own["n_output_tokens"] == 5108 and own["ended_at"] is not None
    codes = facts.findings["code"].to_list()
    assert "usage.placeholder" in codes and "usage.no_transcript" not in codes
    fork = Transcript("fork", "2026-05-18T10:00:00")
    origin = {"forkedFrom": {"sessionId": parent.session_id, "messageUuid": "x"}}
    fork.lines = [line | origin | {"sessionId": fork.session_id} for line in parent.lines]
    forked = facts_of(tmp_path / "forked", parent, child, fork)
    assert "usage.no_transcript" not in forked.findings["code"].to_list()
    [without] = facts_of(tmp_path / "alone", parent).findings.filter(code="usage.no_transcript")[
        "example"
    ]
    assert without == "a1"


def test_repeated_lines_name_no_sum_that_a_report_of_a_subagent_exceeds(tmp_path):
    parent, child = a_subagent(result={"status": "completed", "usage": {"output_tokens": 5108}})
    parent.answer(say("a"), say("b"), stop="end_turn", usage=USAGE)
    [message] = facts_of(tmp_path, parent, child).findings.filter(code="message.repeated")[
        "message"
    ]
    assert "lines that repeat an answer" in message and "sum" not in message


@pytest.mark.parametrize("is_end_known", [True, False])
def test_slow_work_has_the_turns_whose_end_is_known(tmp_path, is_end_known):
    transcript = begun_transcript()
    CALL(transcript)
    transcript.result("t", "It ran.", 7300.0)
    if is_end_known:
        GOOD(transcript)
    AGAIN(transcript)
    GOOD(transcript)
    made = sa.report(facts_of(tmp_path, transcript), sections=["slow"]).summary["slow"]
    assert (made["n_ended"], made["n_slow_ended"]) == (1, int(is_end_known))


@pytest.mark.parametrize("later", [(), (AGAIN, GOOD), (AGAIN, GOOD, EXIT)])
def test_a_background_subagent_ends_with_the_process_of_its_session(tmp_path, later):
    parent, child = a_subagent(result={"status": "async_launched"})
    CALL(child)
    child.now = ended = parent.now
    child.result("t", "Exit code 137", is_error=True)
    for step in (EXIT, *later):
        step(parent)
    facts, name = facts_of(tmp_path, parent, child), f"{parent.session_id}/a1"
    calls = sa.failures.calls(facts).filter(thread_id=name)
    assert calls["outcome"].to_list() == ["interrupted"]
    row = state_of(facts, name)
    assert (row["outcome"], row["reason_codes"]) == ("aborted", "run.aborted.shutdown")
    assert facts.entities.filter(entity_id=name)["ended_at"].to_list() == [ended]


@pytest.mark.parametrize(("late_s", "health"), [(60.0, "ok"), (0.0, "stalled")])
def test_a_subagent_of_a_subagent_ends_with_the_result_of_its_call(tmp_path, late_s, health):
    """The records of a subagent say nothing of its own; a result at once is a start."""
    parent, child = a_subagent(result=None)
    child.answer(call("toolu_2", "Agent", prompt="look"), stop="tool_use", usage=USAGE)
    inner = Transcript("parent", f"{child.now:%Y-%m-%dT%H:%M:%S}", agent="a2")
    inner.user("look")
    child.result("toolu_2", "found", late_s)
    inner.answer(say("done"), stop=None, usage=(1, 2, 3, 3))
    note = (tmp_path / file_of(inner)).with_suffix(".meta.json")
    note.parent.mkdir(parents=True)
    note.write_text('{"toolUseId": "toolu_2"}')
    facts = facts_of(tmp_path, parent, child, inner, as_of=parent.now + timedelta(days=1))
    assert state_of(facts, f"{parent.session_id}/a2")["health"] == health


@pytest.mark.slow
@pytest.mark.parametrize("result", [None, {"status": "async_launched"}])
def test_a_subagent_that_nobody_saw_complete_is_stalled(tmp_path, result):
    parent, child = a_subagent(result=result)
    facts = facts_of(tmp_path, parent, child, as_of=parent.now + timedelta(days=1))
    assert state_of(facts, f"{parent.session_id}/a1")["health"] == "stalled"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "outcome"), [("killed", "cancelled"), ("stopped", "cancelled"), ("failed", "failed")]
)
def test_a_background_subagent_ends_as_its_parent_was_notified(tmp_path, status, outcome):
    parent, child = a_subagent(result={"status": "async_launched"})
    note = f"<task-notification>\n<task-id>a1</task-id>\n<status>{status}</status>"
    parent.add("queue-operation", operation="enqueue", content=note)
    facts = facts_of(tmp_path, parent, child, as_of=parent.now + timedelta(days=1))
    row = state_of(facts, f"{parent.session_id}/a1")
    assert (row["outcome"], row["health"]) == (outcome, "ok")
    then = facts_at(facts, parent.now - timedelta(seconds=1)).facts
    assert state_of(then, f"{parent.session_id}/a1")["outcome"] is None


def test_a_subagent_that_went_on_has_the_tokens_and_the_end_of_its_last_report(tmp_path):
    parent, child = a_subagent(result={"status": "completed", "usage": {"output_tokens": 900}})
    child.now = parent.now
    child.user("go on")
    child.answer(say("more"), stop=None, usage=(1, 2, 3, 3))
    parent.now += timedelta(minutes=5)
    parent.answer(call("toolu_2", "Agent", prompt="go on"), stop="tool_use", usage=USAGE)
    report = {"agentId": "a1", "status": "completed", "usage": {"output_tokens": 40}}
    parent.result("toolu_2", "found", 60.0, toolUseResult=report)
    facts = facts_of(tmp_path, parent, child, as_of=parent.now + timedelta(days=1))
    own = facts.entities.filter(entity_id=f"{parent.session_id}/a1").row(0, named=True)
    assert own["n_output_tokens"] == 3 + 40
    assert state_of(facts, f"{parent.session_id}/a1")["outcome"] == "completed"


def test_one_transcript_is_read_with_the_agents_of_its_workflows(tmp_path):
    parent, child = a_subagent(result=None)
    path = tmp_path / f"{parent.session_id}.jsonl"
    agent = path.with_suffix("") / "subagents" / "workflows" / "wf_1" / "agent-a1.jsonl"
    agent.parent.mkdir(parents=True)
    path.write_text(parent.text())
    agent.write_text(child.text())
    facts = read_facts(path, as_of=child.now)[0]
    expected = {parent.session_id, f"{parent.session_id}/a1"}
    assert set(facts.entities.filter(entity_type="session")["entity_id"]) == expected


def test_an_agent_that_compacts_is_over_once_it_has_answered(tmp_path):
    parent, child = a_subagent(result=None, agent="acompact-1f2e")
    facts = facts_of(tmp_path, parent, child, as_of=parent.now + timedelta(days=1))
    assert state_of(facts, f"{parent.session_id}/acompact-1f2e")["outcome"] == "completed"


REFUSED = "The user doesn't want to proceed with this tool use."
NO_END = "[Tool call interrupted: the session ended before this call's result was recorded]"
OPEN_END = "[Tool call not completed: an approval request expired with no answer]"
STOPPED_LATE = f"{REFUSED} Correction to the text above: this call was stopped while running"


@pytest.mark.parametrize(
    ("kind", "words", "code"),
    [
        (None, "Exit code 1\ncat: /etc/shadow: Permission denied", "failed.exit_nonzero"),
        (None, "Exit code 2\nread timed out after 5 attempts", "failed.exit_nonzero"),
        (None, "Exit code 143\nCommand timed out after 2m 0.0s", "timed_out.own_limit"),
        (None, "EACCES: permission denied, open '/root/a'", "failed.tool_error"),
        (None, "It is unavailable.", "failed.tool_error"),
        (None, "spawn /opt/ripgrep/rg ENOENT", "failed.not_found"),
        (None, "Permission for this action has been denied.", "cancelled.permission_rejected"),
        (None, "Permission for this tool use was denied.", "cancelled.permission_rejected"),
        (None, "This command requires approval", "cancelled.permission_rejected"),
        (None, "cd in '/x' was blocked. For security, …", "cancelled.permission_rejected"),
        (None, REFUSED, "cancelled.permission_rejected"),
        *(
            (kind, "It is unavailable.", "cancelled.permission_rejected")
            for kind in ("user-rejected", "permission-rule", "automode-unavailable", "new-kind")
        ),
        (None, "<tool_use_error>Sibling tool call errored</tool_use_error>", INTERRUPTED),
        (None, "Cancelled: parallel tool call Bash(ls) errored", INTERRUPTED),
        (None, "Exit code 137\n[Request interrupted by user for tool use]\n1 failed", INTERRUPTED),
        (None, "The user doesn't want to take this action right now.", INTERRUPTED),
        (None, OPEN_END, INTERRUPTED),
        ("user-rejected", STOPPED_LATE, INTERRUPTED),
        (120_000, "Command did not complete, and runs in the background", "timed_out.own_limit"),
        *(
            (kind, words, INTERRUPTED)
            for kind in ("interrupted", "cancelled", True)
            for words in (REFUSED, "Exit code 137")
        ),
    ],
)
def test_the_client_says_whether_a_call_failed_was_refused_or_stopped(tmp_path, kind, words, code):
    """The words of a command are not those of the client; no text: `toolUseResult` has it."""
    transcript = begun_transcript()
    CALL(transcript)
    more = {"toolDenialKind": kind}
    if isinstance(kind, int):
        more = {"toolUseResult": {"interrupted" if kind is True else "timedOutAfterMs": kind}}
    transcript.result("t", words, is_error=kind != 120_000, **more)
    shown = states(facts_of(tmp_path, transcript)).filter(entity_type="tool_call")
    assert shown["reason_codes"].to_list() == [f"invocation.{code}"]


def test_a_command_that_a_person_stops_is_a_sign_of_life(tmp_path):
    transcript = begun_transcript()
    CALL(transcript)
    transcript.result("t", "", toolUseResult={"interrupted": True})
    facts = facts_of(tmp_path, transcript)
    (ended_at,) = facts.detail(frames.TOOLS)["ended_at"]
    assert facts.detail(frames.TURNS)["last_activity_at"].to_list() == [ended_at]


@pytest.mark.parametrize("given", ["[1] no", '[{"text": 1}]', [{"type": "text", "text": "no"}]])
def test_a_message_is_the_text_of_a_result_whatever_it_begins_with(tmp_path, given):
    transcript = begun_transcript()
    CALL(transcript)
    transcript.result("t", given, is_error=True)
    found = sa.failures.calls(facts_of(tmp_path, transcript))["message"].to_list()
    assert found == [given if isinstance(given, str) else "no"]


@pytest.mark.parametrize(
    ("status", "words", "outcome", "exit_code"),
    [
        ("completed", "completed (exit code 0)", "ok", None),
        ("failed", "failed with exit code 4", "failed", 4),
        ("killed", "was stopped", "interrupted", None),
        ("killed", "was stopped after reaching its background time limit", "timed_out", None),
        # A resume: nothing is known of its end.
        ("stopped", "didn't finish before the previous session ended", "unknown", None),
        (None, "Successfully stopped task: b1 (pytest)", "interrupted", None),
    ],
)
@pytest.mark.parametrize("late", [{}, {"timedOutAfterMs": 2000}])
def test_tests_in_the_background_end(tmp_path, late, status, words, outcome, exit_code):
    transcript = begun_transcript()
    transcript.answer(call("t", "Bash", command="pytest"), stop="tool_use", usage=USAGE)
    transcript.result("t", "It runs.", toolUseResult={"backgroundTaskId": "b1", **late})
    begun = transcript.now
    name = f'<summary>Background command "my "own" words" {words}</summary>'
    note = f"<task-id>b1</task-id><tool-use-id>t</tool-use-id><status>{status}</status>{name}"
    for operation in ("enqueue", "remove") if status else ():
        transcript.add("queue-operation", 60, uuid=None, operation=operation, content=note)
    if not status:
        transcript.answer(call("s", "TaskStop", task_id="b1"), stop="tool_use", usage=USAGE)
        transcript.result("s", words, 56, toolUseResult={"task_id": "b1"})
    facts = facts_of(tmp_path, transcript)
    row, *stop = sa.failures.calls(facts).sort("started_at").to_dicts()
    assert [other["outcome"] for other in stop] == ["ok"][: not status]
    assert (row["outcome"], row["exit_code"]) == (outcome, exit_code)
    assert "own" not in (row["message"] or "")
    assert row["ended_at"] == begun + after(outcome != "unknown")
    n_failing = sa.failures.signs(facts).filter(sign="tests_failing").height
    assert n_failing == (outcome in ("failed", "timed_out"))
    past = facts_at(facts, begun).facts
    assert sa.failures.calls(past)["outcome"].to_list() == ["unknown"]
    assert "tests_failing" not in sa.failures.signs(past)["sign"]


@pytest.mark.parametrize(
    ("words", "step", "outcome"),
    [(REFUSED, STOPPED, "cancelled"), ("Exit code 137", EXIT, "aborted")],
)
def test_a_call_that_a_signal_stops_has_not_failed(tmp_path, words, step, outcome):
    transcript = begun_transcript()
    CALL(transcript)
    EXIT(transcript)
    transcript.result("t", words, is_error=True, toolDenialKind="user-rejected")
    step(transcript)
    facts = facts_of(tmp_path, transcript)
    assert sa.failures.calls(facts)["outcome"].to_list() == ["interrupted"]
    assert state_of(facts)["outcome"] == outcome


def test_a_call_of_the_next_process_was_not_stopped_by_the_end_of_the_one_before(tmp_path):
    """What it goes on with may be no prompt, and so no turn of its own."""
    transcript = begun_transcript()
    for step in (EXIT, CALL, result(is_error=True), GOOD):
        step(transcript)
    facts = facts_of(tmp_path, transcript)
    assert sa.failures.calls(facts)["outcome"].to_list() == ["failed"]


@pytest.mark.parametrize(
    ("is_named", "is_late", "outcome"),
    # Without a name, a person said no when asked, before it ran.
    [(True, False, "interrupted"), (True, True, "interrupted"), (False, False, "denied")],
)
def test_tests_that_a_person_stops_are_not_refused(tmp_path, is_named, is_late, outcome):
    """As 2.1.332 writes it: after a prompt that waited, if there is one."""
    transcript = begun_transcript()
    transcript.answer(call("t", "Bash", command="pytest"), stop="tool_use", usage=USAGE)
    named = {"interruptedMessageId": transcript.lines[-1]["message"]["id"]} if is_named else {}
    if is_late:
        transcript.user("Do something else")
    transcript.result("t", REFUSED, is_error=True, toolDenialKind="user-rejected")
    transcript.user(INTERRUPT, **named)
    if is_late:
        GOOD(transcript)
    facts = facts_of(tmp_path, transcript)
    assert sa.failures.calls(facts)["outcome"].to_list() == [outcome]
    assert set(sa.failures.signs(facts)["sign"]) == {outcome, "interrupted"}
    turns = facts.detail(frames.TURNS)
    assert turns["situation"].to_list() == ["interrupted", *["good"] * is_late]


def test_a_call_is_that_of_its_record_and_not_of_a_logged_request(tmp_path):
    transcript = begun_transcript()
    blob = {"role": "assistant", "content": [call("t", "Agent")]}
    transcript.add("api-request-blob", message=blob, timestamp=None, uuid=None)
    transcript.answer(call("t", "Agent"), stop="tool_use", usage=USAGE)
    RESULT(transcript)
    GOOD(transcript)
    facts = facts_of(tmp_path, transcript)
    assert state_of(facts)["outcome"] == "completed"
    assert facts.detail(frames.TOOLS)["started_at"].null_count() == 0


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_session_that_goes_on_in_another_is_its_parent(tmp_path, names, is_copied):
    """As 2.1.332 writes it when a session moves to the background; or with a summary alone."""
    old, new = map(begun_transcript, names)
    GOOD(old)
    new.lines = [{**line, "sessionId": new.session_id} for line in old.lines * is_copied]
    new.user("Go on", 60)
    GOOD(new)
    old.add("continued-in", 50, uuid=None, continuedInSessionId=new.session_id)
    sessions = facts_of(tmp_path, old, new, as_of=new.now).detail(frames.SESSIONS)
    known = sessions.select("thread_id", "parent_thread_id", "n_turns").rows()
    assert set(known) == {(old.session_id, None, 1), (new.session_id, old.session_id, 1)}


def test_a_fork_that_names_no_origin_has_the_one_whose_records_it_copied(tmp_path):
    old, fork = begun_transcript("one"), begun_transcript("two")
    old.add("queue-operation", 0, uuid=None, operation="dequeue")
    GOOD(old)
    fork.lines = [{**line, "sessionId": fork.session_id} for line in old.lines if line["uuid"]]
    fork.now = old.now
    fork.add("queue-operation", 60, uuid=None, operation="dequeue")
    GOOD(fork)
    sessions = facts_of(tmp_path, old, fork, as_of=fork.now).detail(frames.SESSIONS)
    parents = dict(sessions.select("thread_id", "parent_thread_id").rows())
    assert parents == {old.session_id: None, fork.session_id: old.session_id}
