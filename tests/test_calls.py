"""Calls of tools in one frame, how they ended, and the signs of struggle in them."""

import json
import re
from itertools import groupby

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.comparing import compare
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import CALLS, SIGNS, TURNS
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.call_outcomes import calls, tools
from stateanalytics.failures.frames import EFFORT
from stateanalytics.failures.struggles import effort_of, signs, signs_of
from stateanalytics.state.policy import SIGN_LIMITS, Policy
from stateanalytics.systems.tool_calls import (
    calls_from,
    digest,
    expected_exits,
    inputs_of,
    phrase_in,
    results_of,
)
from tests.conftest import SHIPPED
from tests.examples import examples
from tests.frames import WHOSE, ago, facts
from tests.transcripts import after, begun_rollout, begun_transcript, facts_of, transcript_maker

CLIENTS = ("claude_code", "codex")


def answered(session, block):
    """An answer of the model that calls a tool."""
    session.answer(block, stop="tool_use", usage=(10, 0, 0, 20))


def told(folder, client, commands, name="one"):
    """The facts of a session that runs commands: each its text, and its exit code or None."""
    if client == "claude_code":
        session = begun_transcript(name)
        for number, (command, exit_code) in enumerate(commands):
            block = transcript_maker.call(f"c{number}", "Bash", command=command)
            answered(session, block)
            if exit_code is not None:
                words = "done" if not exit_code else f"Exit code {exit_code}\nno"
                session.result(f"c{number}", words, is_error=bool(exit_code))
    else:
        session = begun_rollout(name=name)
        for number, (command, exit_code) in enumerate(commands):
            session.call(f"c{number}", cmd=command)
            if exit_code is not None:
                session.ran(f"c{number}", exit_code, 1.0)
                session.result(f"c{number}", f"Process exited with code {exit_code}\nOutput:\nno")
    return facts_of(folder, session)


@pytest.mark.parametrize(
    ("first", "last", "message", "outcome"),
    [
        ("rg", "cat", "Exit code 1", "expected_nonzero"),
        ("/usr/bin/test", "cat", "exited with code 1", "expected_nonzero"),
        ("git", "/usr/bin/grep", "Exit code 1", "expected_nonzero"),
        ("rg", "cat", "Exit code 1\ncat: a: No such file or directory", "failed"),
        ("make", "cat", "Exit code 1", "failed"),
        ("cd", "git config", "Exit code 1", "expected_nonzero"),
        ("git", "git diff --no-index", "Exit code 1\ndiff --git a/x b/x", "expected_nonzero"),
        ("git", "git", "Exit code 1\nerror: failed to push some refs", "failed"),
    ],
)
def test_a_command_that_printed_nothing_is_judged_by_its_first(first, last, message, outcome):
    row = {"target": first, "last_command": last, "message": message, "exit_code": 1}
    ended = pl.DataFrame(row).with_columns(ended_at=ago(hours=1))
    called = CALLS.conform(ended).with_columns(is_error=True)
    assert calls_from(called, "codex")["outcome"].to_list() == [outcome]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_message_of_a_long_output_has_its_end_too(tmp_path, client):
    printed = "make check\n" + "ok  pkg\n" * 900 + "--- FAIL: TestOne\n"
    session = begun_transcript() if client == "claude_code" else begun_rollout()
    if client == "claude_code":
        answered(session, transcript_maker.call("c", "Bash", command="make"))
        session.result("c", printed, is_error=True)
    else:
        session.call("c", cmd="make")
        session.result("c", f"Process exited with code 2\nOutput:\n{printed}")
    [message] = calls(facts_of(tmp_path, session))["message"]
    assert message.startswith("make check\nok  pkg\n") and "\n…\nok" in message
    assert message.endswith("\n--- FAIL: TestOne") and len(message) <= 500


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_calls_of_both_clients_are_one_frame(tmp_path, client):
    commands = {
        "ls": 0, "grep x y": 1, "A='x y'; cat no": 1, "cd a && CI=1 make | tail -1": 0,
    }  # fmt: skip
    found = calls(told(tmp_path, client, [*commands.items(), ("ls", 0), ("sleep 9", None)]))
    outcomes = ["ok", "expected_nonzero", "failed", "ok", "ok", "unknown"]
    assert found["outcome"].to_list() == outcomes
    assert found["target"].to_list() == ["ls", "grep", "cat", "make", "ls", "sleep"]
    assert found["last_command"].to_list() == ["ls", "grep", "cat", "tail", "ls", "sleep"]
    assert found["is_retry_of"].to_list() == [None] * 4 + [found["entity_id"][0], None]
    assert found["exit_code"].drop_nulls().to_list()[:2] in ([0, 1], [1, 1])
    assert found["system"].unique().to_list() == [client]
    assert found["input_digest"].n_unique() == 5


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_red_run_of_tests_that_becomes_green_is_expected(tmp_path, client):
    found = calls(told(tmp_path, client, [("pytest -q", 1), ("ls", 0), ("pytest -x", 0)]))
    assert found["outcome"].to_list() == ["expected_nonzero", "ok", "ok"]
    assert signs(told(tmp_path, client, [("pytest -q", 1), ("pytest -x", 0)])).is_empty()


#: One letter a call: which command; a capital fails.
stories = st.text("abAB", max_size=30)


def frame_of(story):
    """The calls of a story, without a store."""
    n = len(story)
    rows = pl.DataFrame(
        {
            "source": ["s"] * n,
            "thread_id": ["t"] * n,
            "entity_id": [str(number) for number in range(n)],
            "tool": ["Bash"] * n,
            "input_digest": list(story.lower()),
            "started_at": [number * 1_000_000 for number in range(n)],
            "is_error": [letter.isupper() for letter in story],
        },
        schema_overrides={"started_at": pl.Datetime("us", "UTC"), "source": pl.String,
                          "thread_id": pl.String, "entity_id": pl.String, "tool": pl.String,
                          "input_digest": pl.String, "is_error": pl.Boolean},
    ).with_columns(ended_at="started_at")  # fmt: skip
    return calls_from(rows, "any")


def kinds(found):
    return found.select("sign", "n_calls").rows()


SIGNS_OF = {
    "a loop": ([("npm run dev", 0)] * 4, [("repeated_call", 4)]),
    "shorter": ([("npm run dev", 0)] * 3, []),
    "tried again in vain": ([("ls", 0), ("cat none", 1), ("cat none", 1), ("pwd", 0)],
                            [("unchanged_retry", 2)]),
    "a loop of errors": ([("ls", 0)] * 3 + [("cat none", 1)] * 3, [("repeated_error", 3)]),
    "errors, not equal": ([("ls", 0), ("cat a", 1), ("cat b", 1), ("cat c", 1)] * 1, []),
    "a loop with others between": ([("cat none", 1), ("npm ci", 0)] * 2, []),
    "tried again after a look": ([("cat none", 1), ("ls", 0)] * 2, [("unchanged_retry", 2)]),
    "checks between edits": ([("make lint", 0), ("sed -i 1d a", 0), ("make lint", 0),
                              ("sed -i 2d a", 0)] * 2 + [("make lint", 0)], []),
    "in turn": ([("cat a", 0), ("ls", 0)] * 3, [("alternating", 6)]),
    "longer in turn": ([("cat a", 0), ("ls", 0)] * 4 + [("cat a", 0)], [("alternating", 9)]),
    "shorter in turn": ([("cat a", 0), ("ls", 0)] * 2 + [("cat a", 0)], []),
    "tests that end red": ([("pytest", 0), ("ls", 0), ("go test ./...", 1)],
                           [("tests_failing", 1)]),
    "taken back": ([("git checkout main", 0), ("git restore a.py", 0)], [("taken_back", 1)]),
    "mostly failing": ([("ls", 0)] + [(f"cat {n}", 1) for n in range(5)], [("mostly_failing", 5)]),
    "a call without an end": ([("ls", 0), ("sleep 9", None)], []),
    "nothing": ([], []),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", SIGNS_OF)
def test_signs_by_hand(tmp_path, client, case):
    commands, expected = SIGNS_OF[case]
    assert kinds(signs(told(tmp_path, client, commands))) == expected


def test_a_sign_says_which_calls_and_what_they_cost(tmp_path):
    snap = told(tmp_path, "claude_code", [("ls", 0), *[("cat none", 1)] * 4])
    (sign,) = signs(snap).to_dicts()
    found = calls(snap)
    assert (sign["first_call"], sign["last_call"]) == (found["entity_id"][1], found["entity_id"][4])
    assert sign["lost_s"] == (found["ended_at"][4] - found["ended_at"][1]).total_seconds() > 0
    assert sign["n_tokens"] == found["n_answer_tokens"][2:].sum() > 0
    assert (sign["tool"], sign["target"], sign["message"]) == ("Bash", "cat", "Exit code 1\nno")


def ran(session, number, command, words, *, is_error=False):
    """Run a command in a session of Claude Code, with this result."""
    answered(session, transcript_maker.call(f"c{number}", "Bash", command=command))
    session.result(f"c{number}", words, is_error=is_error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([f"{n} of 4 done" for n in range(4)], []),
        (["waiting"] * 4, [("repeated_call", 4)]),
        # Only how long it took differs.
        ([f"2 passed in 0.{n}s" for n in range(4)], [("repeated_call", 4)]),
        (["a" * 5000 + str(n) for n in range(4)], [("repeated_call", 4)]),
    ],
)
def test_a_loop_has_equal_results(tmp_path, words, expected):
    session = begun_transcript()
    for number, result in enumerate(words):
        ran(session, number, "make status", result)
    assert kinds(signs(facts_of(tmp_path, session))) == expected


@pytest.mark.parametrize(
    "words",
    [
        "ERR_PNPM_UNSUPPORTED_ENGINE  Unsupported environment",
        "Vitest requires Node.js version 20+",
        "/usr/bin/python3: No module named pytest",
        "Error: Cannot find module 'vitest/config'",
        *("bash: line 1: pytest: command not found", "sh: 1: jest: not found"),
        *('error Command "jest" not found.', "error: no such command: `nextest`"),
    ],
)
def test_tests_that_did_not_start_do_not_fail(tmp_path, words):
    session = begun_transcript()
    ran(session, 1, "pytest -q", words, is_error=True)
    assert kinds(signs(facts_of(tmp_path, session))) == []
    for number, result in enumerate(("1 failed in 0.2s", words), 2):
        ran(session, number, "pytest -q", result, is_error=True)
    found = signs(facts_of(tmp_path / "red", session))
    assert kinds(found.filter(sign="tests_failing")) == [("tests_failing", 1)]


def test_tests_behind_a_pipe_are_judged_by_their_summary(tmp_path):
    session = begun_transcript()
    ran(session, 1, "pytest -q | tail -3", "1 failed, 3 passed in 0.2s")
    snap = facts_of(tmp_path, session)
    assert calls(snap).select("outcome", "test_result", "is_test").row(0) == ("ok", "failed", True)
    assert kinds(signs(snap)) == [("tests_failing", 1)]


@pytest.mark.parametrize("client", CLIENTS)
def test_tests_in_the_background_are_judged_when_they_are_read(tmp_path, client):
    red = "1 failed, 3 passed in 0.2s"
    if client == "claude_code":
        session = begun_transcript()
        ran(session, 0, "pytest", f"Exit code 1\n{red}", is_error=True)
        answered(session, transcript_maker.call("c1", "Bash", command="pytest"))
        words = "Command running in background with ID: b1"
        session.result("c1", words, toolUseResult={"stdout": "", "backgroundTaskId": "b1"})
        before = facts_of(tmp_path / "before", session)
        answered(session, transcript_maker.call("c2", "BashOutput", bash_id="b1"))
        session.result("c2", f"<status>completed</status>\n<stdout>\n{red}\n</stdout>")
    else:
        session = begun_rollout()
        session.call("c0", cmd="pytest")
        session.ran("c0", 1, 1.0, red)
        session.call("c1", cmd="pytest")
        session.result("c1", "Process running with session ID 7\nOutput:\n")
        before = facts_of(tmp_path / "before", session)
        session.call("c2", "write_stdin", session_id=7)
        session.ran("c2", 1, 1.0, red)
    snap = facts_of(tmp_path, session)
    assert calls(snap)["outcome"][1] == calls(before)["outcome"][1] == "unknown"
    assert kinds(signs(before)) == [] and kinds(signs(snap)) == [("tests_failing", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("a.py", "x = 2", "x = 1", [("taken_back", 1)]),
        ("b.py", "x = 2", "x = 1", []),
        ("a.py", "x = 2", "x = 3", []),
    ],
)
def test_an_edit_is_taken_back_by_its_earlier_text(tmp_path, file, old, new, expected):
    session = begun_transcript()
    for number, texts in enumerate([("a.py", "x = 1", "x = 2"), (file, old, new)]):
        names = dict(zip(("file_path", "old_string", "new_string"), texts, strict=True))
        answered(session, transcript_maker.call(f"c{number}", "Edit", **names))
        session.result(f"c{number}", "The file was updated.")
    assert kinds(signs(facts_of(tmp_path, session))) == expected


def test_a_server_that_is_not_there_is_down(tmp_path):
    session = begun_transcript()
    for number in range(2):
        answered(session, transcript_maker.call(f"c{number}", "mcp__db__query", sql=str(number)))
        session.result(f"c{number}", "MCP server db is not connected", is_error=True)
    assert kinds(signs(facts_of(tmp_path, session))) == [("tool_down", 2)]


def a_turn(number, **facts_of_it):
    """One turn of a thread, a minute after the one before it."""
    begin = number * 120_000_000
    names = {"source": "s", "system": "any", "session_id": "t", "thread_id": "t"}
    row = {**names, "turn_no": number, "entity_type": "turn", "entity_id": f"t{number}"}
    moments = (("started_at", begin), ("ended_at", begin + 60_000_000))
    typed = pl.DataFrame([row | facts_of_it]).with_columns(
        pl.lit(at).cast(pl.Datetime("us", "UTC")).alias(name) for name, at in moments
    )
    return TURNS.conform(typed)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({}, {"gives_up": True}, [("gave_up", 1)]),
        ({"is_empty": True}, {"is_empty": True}, [("empty_answer", 1)] * 2),
        ({}, {"is_cut": True}, [("cut_answer", 1)]),
        ({}, {"is_correction": True}, [("corrected", 1)]),
        # Before the first prompt there is nothing to correct.
        ({"is_correction": True}, {}, []),
        ({"is_interrupted": True}, {"is_interrupted": True}, [("interrupted", 2)]),
        ({"n_retries": 1, "retry_s": 0.5}, {"n_retries": 2, "retry_s": 8.0},
         [("provider_retries", 3)]),
        ({"n_retries": 1}, {"n_retries": 1}, []),
        ({"n_compactions": 1}, {}, [("compacted", 1)]),
        ({"n_idle_answers": 3}, {"n_idle_answers": 2}, [("only_answers", 1)]),
    ],
)  # fmt: skip
def test_signs_of_turns(first, last, expected):
    turned = pl.concat([a_turn(1, **first), a_turn(2, **last)])
    found = signs_of(CALLS.empty(), turned, Policy.v1(), turned)
    assert found.schema == SIGNS.dtypes
    assert kinds(found) == expected
    # Between two turns it waits for a person.
    waited_s = 8.5 if expected and expected[0][0] == "provider_retries" else 0
    assert found["lost_s"].sum() == waited_s


def test_each_turn_has_its_own_stops_and_compactions():
    rows = {1: {"is_interrupted": True}, 2: {}, 3: {"is_interrupted": True, "n_compactions": 1}}
    turned = pl.concat([a_turn(number, **row) for number, row in rows.items()])
    found = effort_of(CALLS.empty(), turned, signs_of(CALLS.empty(), turned, Policy.v1(), turned))
    found = found.sort("turn_no", nulls_last=True)
    stopped, compacted = "stopped by a person", "conversation compacted"
    whole = f"2 × {stopped}; {compacted}"
    assert found["why"].to_list() == [stopped, None, f"{stopped}; {compacted}", whole]
    assert found["effort"].to_list() == ["smooth", "smooth", "struggled", "struggled"]


def test_equal_signs_of_several_turns_are_said_once():
    turned = pl.concat([a_turn(number, is_empty=True) for number in range(3)])
    found = effort_of(CALLS.empty(), turned, signs_of(CALLS.empty(), turned, Policy.v1(), turned))
    assert found.filter(entity_type="session")["why"].item() == "the last answer is empty"


def efforts(called, turned):
    found = effort_of(called, turned, signs_of(called, turned, Policy.v1(), turned))
    assert found.schema == EFFORT.dtypes
    return dict(found.select("entity_id", "effort").rows())


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({}, {}, ("smooth", "smooth", "smooth")),
        ({}, {"gives_up": True}, ("given_up", "smooth", "given_up")),
        # Somebody went on.
        ({"gives_up": True}, {}, ("struggled", "given_up", "smooth")),
        ({}, {"is_correction": True}, ("smooth", "smooth", "smooth")),
        ({"is_interrupted": True}, {"is_correction": True}, ("struggled", "smooth", "smooth")),
        ({"n_compactions": 1}, {"n_compactions": 1}, ("smooth", "smooth", "smooth")),
        ({"n_retries": 4}, {}, ("struggled", "struggled", "smooth")),
        # Both turns have their own of them.
        ({"n_retries": 1}, {"n_retries": 2}, ("struggled", "struggled", "struggled")),
    ],
)
def test_effort_of_a_session_and_of_its_turns(first, last, expected):
    turned = pl.concat([a_turn(1, **first), a_turn(2, **last)])
    found = efforts(CALLS.empty(), turned)
    assert tuple(found[name] for name in ("t", "t1", "t2")) == expected


@pytest.mark.parametrize(
    ("story", "expected"),
    [("aB", "smooth"), ("AAA", "stuck"), ("AAAb", "struggled"), ("ababab", "stuck"), ("", None)],
)
def test_who_loops_at_the_end_is_stuck(story, expected):
    assert efforts(frame_of(story), TURNS.empty()).get("t") == expected


@pytest.mark.slow
@examples(100)
@given(stories)
def test_effort_is_smooth_without_signs_and_says_all_of_them(story):
    called = frame_of(story)
    found = signs_of(called, TURNS.empty(), Policy.v1(), TURNS.empty())
    (row,) = effort_of(called, TURNS.empty(), found).to_dicts() or [None]
    if row is not None:
        assert set((row["signs"] or "").split(", ")) - {""} == set(found["sign"])
        assert found.is_empty() <= (row["effort"] == "smooth")
        assert row["n_calls"] == len(story)


@pytest.mark.slow
def test_failures_of_calls_are_clustered_like_those_of_runs(tmp_path):
    session = begun_transcript()
    for number in range(3):
        ran(session, number, "make", "Exit code 2\nno rule to make target x", is_error=True)
    ran(session, 3, "ls", "a.py")
    ran(session, 4, "cat b.py", "Exit code 1\nno such file", is_error=True)
    snap = facts_of(tmp_path, session)
    found = sa.failures.clusters(snap, of="calls")
    assert sorted(found["n_rows"]) == [1, 3]
    rows = sa.failures.members(snap, of="calls")
    assert rows["cluster_id"].n_unique() == 2
    assert rows["entity_type"].unique().to_list() == ["tool_call"]
    # Each has the time until the next call, so that three in a row have all of it.
    called = calls(snap)
    until = called["started_at"][3] - called["started_at"][0]
    assert found.filter(n_rows=3)["run_s"].item() == until.total_seconds()
    assert sa.failures.change(snap, of="calls")["n_runs"].unique().to_list() == [5]
    assert sa.failures.life(snap, of="calls").height == 2
    (rate,) = compare(snap, "failed_calls", by="tool").frame.to_dicts()
    assert (rate["tool"], rate["n_of"], rate["n"], rate["value"]) == ("Bash", 5, 4, 0.8)
    # One session is one observation.
    assert rate["high"] - rate["low"] > 0.7
    assert sa.failures.clusters(snap).is_empty()
    with pytest.raises(ArgumentError, match="no kind of failure"):
        sa.failures.clusters(snap, of="call")


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["claude_code", "codex", "opencode"])
def test_every_effort_is_of_an_entity(sample):
    with sa.read(SHIPPED[sample], progress=False) as snap:
        found = sa.failures.effort(snap)
        missing = found.join(snap.entities, on=["source", "system", "entity_type", "entity_id"],
                             how="anti")  # fmt: skip
    assert found.height > 0 and missing.is_empty()


def test_a_loop_whose_next_call_runs_is_stuck(tmp_path):
    session = begun_transcript()
    for number in range(3):
        ran(session, number, "make x", "Exit code 2\nno", is_error=True)
    answered(session, transcript_maker.call("c9", "Bash", command="make x"))
    found = sa.failures.effort(facts_of(tmp_path, session))
    assert found["effort"].unique().to_list() == ["stuck"]


@pytest.mark.slow
def test_a_session_that_loops_now_needs_attention_of_an_operator(tmp_path):
    session = begun_transcript()
    for number in range(4):
        ran(session, number, "npm test", "waiting")
    snap = facts_of(tmp_path, session, as_of=session.now + after(1))
    assert sa.attention(snap).is_empty()
    (item,) = sa.attention(snap, policy=sa.Policy.operator()).to_dicts()
    assert (item["entity_type"], item["severity"]) == ("session", "critical")
    assert (item["code"], item["dimension"], item["standing"]) == ("effort.stuck", "effort", "open")
    said = "4 × the same call and result (Bash npm). To stop it: Esc in its terminal"
    assert item["message"] == said
    # An end leaves nothing to stop.
    session.answer(transcript_maker.say("done"), stop="end_turn", usage=(10, 0, 0, 20))
    ended = facts_of(tmp_path / "ended", session, as_of=session.now + after(1))
    assert sa.attention(ended, policy=sa.Policy.operator()).is_empty()


def test_equal_calls_in_a_row_are_one_line_of_the_timeline(tmp_path):
    session = begun_transcript()
    for number in range(38):
        ran(session, number, "npm test", "Exit code 1\nno", is_error=True)
    ran(session, 99, "ls", "a.py")
    page = sa.session(facts_of(tmp_path, session), transcript_maker.session_id("one"))
    lines = page.timeline.filter(lane="call").select("what", "detail", "outcome").rows()
    assert lines == [
        ("38 × Bash npm", "failed, exit 1, Exit code 1\nno", "failed"), ("Bash ls", None, "ok"),
    ]  # fmt: skip
    assert not page.timeline.filter(pl.col("what").str.starts_with("tool_call")).height


@pytest.mark.slow
def test_the_first_screen_says_what_happened_inside_of_runs(tmp_path):
    session = begun_transcript()
    for number in range(4):
        ran(session, number, "npm test", "Exit code 1\nno", is_error=True)
    snap = facts_of(tmp_path, session, as_of=session.now + after(1))
    summary = sa.report(snap, window=(session.now - after(60), session.now + after(60))).summary
    inside = summary["inside"]
    assert (inside["n_calls"], inside["n_failed"], inside["n_stuck_now"]) == (4, 4, 1)
    assert inside["finding"].startswith("4 of 4 calls failed (100 %")
    assert summary["actions"][0]["what"].endswith("in /repo/shop, stuck in a loop")
    with sa.demo() as nothing:
        assert sa.report(nothing, sections=["inside"]).summary["inside"]["n_sessions"] == 0


@pytest.mark.slow
def test_what_was_lost_in_a_session_that_completed_has_a_price(tmp_path):
    session = begun_transcript()
    for number in range(4):
        ran(session, number, "npm test", "waiting", is_error=False)
    session.answer(transcript_maker.say("Done."), stop="end_turn", usage=(900_000, 0, 0, 40))
    snap = facts_of(tmp_path, session, as_of=session.now + after(60))
    window = (session.now - after(60), session.now + after(60))
    page = sa.report(snap, window=window)
    inside = page.summary["inside"]
    whole = sa.failures.costs(snap, by=())["total_usd"][0]
    n_written = snap.entities.filter(entity_type="session")["n_output_tokens"][0]
    assert inside["lost_usd"] == pytest.approx(whole * inside["n_tokens"] / n_written)
    assert re.search(r" output tokens, about \$[\d.]+ of their cost, to", inside["finding"])
    lost = f"<strong>Lost to failures:</strong> {inside['lost_too']}</p>"
    assert inside["lost_too"].startswith("Runs that completed lost ") and lost in page.as_html()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_gives_up_is_read_from_its_words(tmp_path, client):
    if client == "claude_code":
        session = begun_transcript()
        said = transcript_maker.say("I was unable to fix the build.")
        session.answer(said, stop="end_turn", usage=(10, 0, 0, 20))
    else:
        session = begun_rollout()
        session.say("I was unable to fix the build.")
        session.complete("I was unable to fix the build.")
    assert kinds(signs(facts_of(tmp_path, session))) == [("gave_up", 1)]


SUMMARIES = {
    "===== 1 failed, 3 passed in 0.2s =====": "failed",
    "4 passed, 1 warning in 1.02s": "passed",
    "2 errors in 0.4s": "failed",
    "FAILED (failures=1, errors=2)": "failed",
    "Ran 3 tests in 0.001s\n\nOK": "passed",
    "Tests:       1 failed, 5 passed, 6 total": "failed",
    "Tests:       5 passed, 5 total": "passed",
    "      Tests  2 failed | 8 passed (10)": "failed",
    "  12 passing (1s)\n  1 failing": "failed",
    "--- FAIL: TestCart (0.00s)\nFAIL": "failed",
    "ok  \texample.com/cart\t0.3s": "passed",
    "test result: FAILED. 1 passed; 1 failed;": "failed",
    "test result: ok. 9 passed; 0 failed;": "passed",
    "12 examples, 1 failure": "failed",
    "12 examples, 0 failures": "passed",
    "2 doctests, 1 property, 9 tests, 1 failure": "failed",
    "2 doctests, 9 tests, 0 failures, 1 excluded": "passed",
    "Result: 7/9 passed\nFailed: 2 tests": "failed",
    "Result: 9 passed, 4 excluded": "passed",
    "Result: 2 passed, 1 failed": "failed",
    "Result: 2 passed, 0 failed": "passed",
    " Test Files  3 failed (3)\n      Tests  no tests": "failed",
    "\x1b[2m Tests \x1b[22m \x1b[1m\x1b[31m1 failed\x1b[39m\x1b[22m\x1b[2m | 8 passed": "failed",
    "\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[32m4 passed\x1b[39m\x1b[22m\x1b[90m (4)": "passed",
    "Tests run: 5, Failures: 1, Errors: 0, Skipped: 0": "failed",
    "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0": "passed",
    "100% tests passed, 0 tests failed out of 9": "passed",
    "0 failed jobs, all passed": None,
    "the parser failed in 3 of 7 files": None,
    "": None,
}


@pytest.mark.parametrize(("text", "expected"), SUMMARIES.items())
def test_summaries_of_test_runners(text, expected):
    as_json = json.dumps([{"type": "text", "text": f"before\n{text}\nafter"}])
    found = results_of(pl.Series([text, f"before\n{text}\nafter", as_json]))
    assert found["test_result"].to_list() == [expected] * 3


def test_refused_and_interrupted_calls_are_signs_and_no_failures(tmp_path):
    session = begun_transcript()
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    for number in range(4):
        if number == 3:
            session.user("Then look for another way", after_s=86_400)
        ran(session, number, f"rm {number}", refused, is_error=True)
    snap = facts_of(tmp_path, session)
    assert calls(snap)["outcome"].to_list() == ["denied"] * 4
    assert kinds(signs(snap)) == [("denied", 4)]
    ended = calls(snap)["ended_at"]
    assert signs(snap)["lost_s"].item() == (ended[2] - ended[0]).total_seconds()
    (row,) = tools(snap).to_dicts()
    assert (row["n_calls"], row["n_failed"], row["n_denied"], row["share"]) == (4, 0, 4, 0.0)


def test_a_loop_of_a_subagent_is_its_own(tmp_path):
    parent = begun_transcript()
    answered(parent, transcript_maker.call("a", "Agent", prompt="go"))
    child = transcript_maker.Transcript("one", "2026-05-18T09:00:30", agent="a1")
    child.user("Go")
    for number in range(4):
        answered(child, transcript_maker.call(f"s{number}", "Bash", command="cat none"))
        child.result(f"s{number}", "Exit code 1\nno", is_error=True)
    found = signs(facts_of(tmp_path, parent, child, as_of=child.now + after(1)))
    assert kinds(found) == [("repeated_error", 4)]
    (thread,), (parent_id,) = found["thread_id"].unique(), found["session_id"].unique()
    assert thread.startswith(f"{parent_id}/")


def expected_loops(story, rules):
    """Loops by the words of their definition, call by call."""
    found, place = [], 0
    for letter, run_of in groupby(story):
        n = len(list(run_of))
        if letter.isupper() and n >= rules["n_repeated_errors"]:
            found.append(("repeated_error", n, place))
        place += n
    errors = {begin for _, _, begin in found}
    place = 0
    for _, run_of in groupby(story.lower()):
        n = len(list(run_of))
        if n >= rules["n_repeated_unseen"] and place not in errors:
            found.append(("repeated_call", n, place))
        place += n
    return sorted(found)


def with_calls(rows):
    return signs_of(rows, TURNS.empty(), Policy.v1(), TURNS.empty())


@pytest.mark.slow
@examples(200)
@given(stories)
def test_loops_of_any_story_are_those_of_their_definition(story):
    found = with_calls(frame_of(story)).filter(pl.col("sign").str.starts_with("repeated"))
    rows = found.select("sign", "n_calls", pl.col("first_call").cast(pl.Int64)).rows()
    assert sorted(rows) == expected_loops(story, SIGN_LIMITS)


@examples(60)
@given(st.lists(stories, max_size=3), st.randoms())
def test_signs_do_not_depend_on_the_order_of_rows(stories_of_threads, rng):
    parts = [
        frame_of(story).with_columns(thread_id=pl.lit(str(n)))
        for n, story in enumerate(stories_of_threads)
    ]
    rows = pl.concat([CALLS.empty(), *parts])
    order = list(range(rows.height))
    rng.shuffle(order)
    shuffled = rows[order].with_columns(is_error=pl.col("outcome") == "failed")
    again = calls_from(shuffled, "any")
    one, other = with_calls(rows), with_calls(again)
    assert one.sort(one.columns).equals(other.sort(other.columns))


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_what_is_later_does_not_depend_on_the_names_of_branches(names):
    """Tests fail, pass in another branch, and fail again at the end; an edit is made twice."""
    test = {"tool": "Bash", "target": "pytest", "is_test": True}
    edit = {"tool": "Edit", "target": "a.py", "outcome": "ok"}
    stories = [
        (0, test | {"outcome": "failed"}), (1, test | {"outcome": "ok"}),
        (0, edit | {"replaced_digest": "x", "written_digest": "y"}),
        (1, edit | {"replaced_digest": "y", "written_digest": "x"}),
        (1, test | {"outcome": "failed"}), (0, test | {"outcome": "failed"}),
    ]  # fmt: skip
    rows = [
        {**WHOSE, "entity_id": f"c{n}", "session_id": "s", "thread_id": "s", "started_at":
         ago(minutes=60 - n), "part_id": names[branch], "input_digest": str(n)} | call
        for n, (branch, call) in enumerate(stories)
    ]  # fmt: skip
    recorded = pl.DataFrame(rows, schema_overrides={"target": pl.String}).drop("entity_type")
    session = {"entity_id": "s", "raw_status": "completed", "started_at": ago(hours=2)}
    known = changed_facts(facts([session]), details={"lionagi_calls": CALLS.conform(recorded)})
    found = dict(calls(known).select("entity_id", "outcome").rows())
    ends = {name: end for name, end in found.items() if name in ("c0", "c1", "c4", "c5")}
    assert ends == {"c0": "expected_nonzero", "c1": "ok", "c4": "failed", "c5": "failed"}
    assert {("tests_failing", 1), ("taken_back", 1)} <= set(kinds(signs(known)))


def test_retries_of_opencode_take_the_time_that_they_waited():
    [sign] = signs(sa.read(SHIPPED["opencode"])).filter(sign="provider_retries").to_dicts()
    assert (sign["n_calls"], sign["lost_s"]) == (4, 29.986)


@pytest.mark.parametrize("has_ids", [True, False])
def test_two_outages_of_calls_are_two_with_and_without_ids(has_ids):
    hours = {"a": 200, "b": 200, "c": 20, "d": 20}
    rows = [
        {**WHOSE, "entity_id": f"c{name}" if has_ids else None, "session_id": name,
         "thread_id": name, "tool": "Bash", "started_at": ago(hours=at), "ended_at": ago(hours=at),
         "outcome": "failed", "message": "No space left on device"}
        for name, at in hours.items()
    ]  # fmt: skip
    recorded = pl.DataFrame(rows, schema_overrides={"entity_id": pl.String}).drop("entity_type")
    sessions = facts([{"entity_id": name, "raw_status": "completed"} for name in hours])
    known = changed_facts(sessions, details={"lionagi_calls": CALLS.conform(recorded)})
    failed = sa.failures.members(known, of="calls")
    assert failed.height == 4 and failed["incident_id"].null_count() == 0
    assert failed["incident_id"].n_unique() == 2


@pytest.mark.parametrize("seconds", [(0, 0), (None, None), (5, None)])
def test_of_calls_at_one_time_the_order_of_rows_decides(seconds):
    rows = [
        {**WHOSE, "entity_id": f"c{n}", "thread_id": "s", "tool": "Bash", "target": "pytest",
         "is_test": True, "started_at": None if at is None else ago(minutes=1, seconds=-at),
         "outcome": ("failed", "ok")[n]}
        for n, at in enumerate(seconds)
    ]  # fmt: skip
    moments = {"started_at": pl.Datetime("us", "UTC")}
    recorded = pl.DataFrame(rows, schema_overrides=moments).drop("entity_type")
    session = {"entity_id": "s", "raw_status": "completed", "started_at": ago(hours=2)}
    # Sorted by id, where there is no time.
    known = changed_facts(facts([session]), details={"lionagi_calls": CALLS.conform(recorded)})
    ends = dict(calls(known).select("entity_id", "outcome").rows())
    assert ends == (
        {"c0": "expected_nonzero", "c1": "ok"}
        if seconds != (5, None)
        else {"c0": "failed", "c1": "ok"}
    )


@pytest.mark.parametrize(("of_turn", "n"), [(True, 1), (None, 1), (False, 0)])
def test_only_a_person_stops_by_a_sign(of_turn, n):
    stopped = frame_of("a").with_columns(
        outcome=pl.lit("interrupted"), source=pl.lit("s"), thread_id=pl.lit("t"),
        turn_no=pl.lit(1, pl.Int64),
    )  # fmt: skip
    turned = a_turn(1, is_interrupted=of_turn)
    for some in (turned, turned.clear()):  # it may have begun before the window
        found = signs_of(CALLS.conform(stopped), some, Policy.v1(), turned)
        assert found.filter(sign="interrupted").height == n
    of_turns = effort_of(CALLS.conform(stopped), turned, found).drop_nulls("turn_no")
    assert of_turns["why"].to_list() == ["stopped by a person" if n else None]


def test_results_without_calls_and_calls_named_twice_harm_nobody(tmp_path):
    session = begun_transcript()
    session.result("never", "done")
    for _ in range(2):
        answered(session, transcript_maker.call("same", "Bash", command="ls"))
    session.result("same", "done")
    found = calls(facts_of(tmp_path, session))
    assert found.select("call_id", "outcome").rows() == [("same", "ok")]


def test_a_call_of_a_million_characters_is_a_digest(tmp_path):
    session = begun_transcript()
    answered(session, transcript_maker.call("big", "Write", file_path="a.py", content="x" * 10**6))
    session.result("big", "done")
    (row,) = calls(facts_of(tmp_path, session)).to_dicts()
    assert (row["target"], len(row["input_digest"])) == ("a.py", 32)


@pytest.mark.parametrize("text", [
    None, "", "{", "[]", "\0", '{"command": 7}', '{"command": ["bash"]}',
    '{"command": ["bash", 7]}',
    '{"command": "' + "a" * 10**5 + '"}', '{"command": "' + "\\\\" * 999 + '"}',
    json.dumps({"command": "命令 | 下一个"}), json.dumps({"command": "echo \ud800"}),
])  # fmt: skip
def test_any_text_is_an_input(text):
    (row,) = inputs_of(pl.Series([text], dtype=pl.String)).to_dicts()
    assert (row["input_digest"] is None) == (text is None)
    assert len(row["target"] or "") <= 300


@pytest.mark.parametrize(
    ("command", "first", "last", "is_look"),
    [
        ("npm run lint 2>&1", "npm", "npm", False),
        ("grep -rn x src 2>/dev/null", "grep", "grep", True),
        ("# both of them; first\ngit diff | cat # all of it | here", "git", "cat", True),
        ("# don't\nls 'a b' # it's | x", "ls", "ls", True),
        ("gh api x --jq '.[] | {id: .id}'", "gh", "gh", False),
        ('git commit -m "fix: a | b; pytest"', "git", "git", False),
        ("git commit -m \"$(cat <<'EOF'\nA fix; see\n\nit's | all\nEOF\n)\"", "git", "git", False),
        ("cat > a.py <<EOF\nx = 1 | 2\nEOF\npython a.py", "cat", "python", False),
        ('python3 -c "\nimport os; print(1)\n"', "python3", "python3", False),
        ("cat <<'PY' | python\nx = 1; y\nPY\nls", "cat", "ls", False),
        ("cat <<MSG > a.txt", "cat", "cat", False),
        ("git apply - <<'PATCH'\n-a | b\nPATCH\n", "git", "git", False),
        ('git commit -m "$(cat <<TEXT\na; pytest\nTEXT\n)" && ls', "git", "ls", False),
        ("npm i -D vitest; pip install -U pytest", "npm", "pip", False),
        ("cat package.json | grep jest; vitest --version", "cat", "vitest", False),
        ("cat a.txt > b.txt", "cat", "cat", False),
        ("wc -l < a.txt", "wc", "wc", True),
        (r"rg 'a|b' -g \"*.py\" | head \'it", "rg", "head", True),
        ("make\r\n", "make", "make", False),
        ("make \\\n  build \\\n  all", "make", "make", False),
        ("N=$(git log | wc -l) && echo $N", "echo", "echo", False),
        ('"/opt/my tools/x" a', "/opt/my tools/x", "/opt/my tools/x", False),
        ("cd a && '/Program Files/x/git.exe' status", *["/Program Files/x/git.exe"] * 2, False),
        ('npm run a; "done: $(cat b/c)"', "npm", "npm", False),
        ('"$HOME"/bin/x a | sort', "$HOME/bin/x", "sort", False),
        ("cat <<eof > a\nX\nTODO\npytest; x\neof\nls", "cat", "ls", False),
        ("cat <<A <<-'B'\npytest\nA\n1 <<A\nC\n\tB\nls", "cat", "ls", False),
        ("cd a && git -C b config --get x", "git", "git config", False),
        ("for f in a; do git diff -w --no-index a $f; done", "for", "git diff --no-index", False),
        ("git -c a=b --no-pager diff --stat", "git", "git", True),
        ("cat <<< EOF\nls | wc", "cat", "wc", False),
        ("npm --prefix ui i -D vitest && yarn workspace a add jest", "npm", "yarn", False),
        ("pnpm -C ui add vitest; uv tool install tox", "pnpm", "uv", False),
        ("uv pip install pytest; bundle add rspec", "uv", "bundle", False),
        ("conda install -n a pytest; pipx install nox", "conda", "pipx", False),
        ("poetry add --group dev pytest; cargo install cargo-nextest", "poetry", "cargo", False),
        ("composer require --dev phpunit; go get a.b/ava", "composer", "go", False),
        ("ls src;\n", "ls", "ls", True),
        ("cat a; rg 'b' c | Select-Object -First 9 | Out-String", "cat", "rg", False),
    ],
)
def test_the_programs_of_a_command_line(command, first, last, is_look):
    found = inputs_of(pl.Series([json.dumps({"command": command})]))
    assert found.select("target", "last_command", "is_look").row(0) == (first, last, is_look)
    assert not found["is_test"].item()


_OF_SHELLS = ("bash -lc", "sh -c", "ssh build", "cd a && zsh -c", "powershell.exe -Command")


@pytest.mark.parametrize(
    "command",
    [
        *(f"{shell} 'cd b; pytest -q'" for shell in _OF_SHELLS),
        *("N=$(pytest -q)", "bash -c 'pytest'", "(pytest)", "cat <<MSG\na\nMSG\npytest"),
        *("pnpm -s test", "npm --prefix ui run test:unit", "pnpm --filter @a/b test | tail -5"),
        *("npm run -s test", "npm --prefix ui test", "pnpm -C ui test", "pnpm -r run test"),
        *("yarn workspace a run test", "pnpm -C ui add vitest && pnpm -C ui test"),
        *("yarn workspace a test", "node --test", "uv sync && pytest", "echo a && npm test"),
        *("cat <<EOF\na\nEOF\npytest\ncat <<TEXT\nb\nTEXT", "pip install -e . && pytest"),
    ],
)
def test_tests_may_run_inside_a_command(command):
    assert inputs_of(pl.Series([json.dumps({"command": command})]))["is_test"].item()


@pytest.mark.parametrize("end", ["EOF", "PY", "MSG", "END", "JSON", "SQL", "NODE", "PY_EOF", "a.b"])
def test_what_a_text_in_a_command_names_is_not_run(end):
    command = f"cat <<'{end}' > a.txt\ngit reset --hard; pytest\n{end}\ngit status"
    found = inputs_of(pl.Series([json.dumps({"command": command})]))
    assert found.select("is_test", "is_undo", "last_command").row(0) == (False, False, "git")


def test_equal_inputs_have_equal_digests_on_every_machine():
    assert digest(pl.Series(["b", None, "b"])).to_list() == [
        "3e23e8160039594a33894f6564e1b134", None, "3e23e8160039594a33894f6564e1b134",
    ]  # fmt: skip


def test_every_expected_exit_has_a_source():
    rows = table_rows("stateanalytics.core", "expected_exits.csv")
    assert all(row["source"].startswith("https://") for row in rows)
    assert expected_exits().select("program", "exit_code").is_duplicated().any() is False


def test_without_calls_there_are_none(tmp_path):
    empty = facts({})
    assert calls(empty).is_empty() and tools(empty).is_empty() and signs(empty).is_empty()


@pytest.mark.slow
def test_questions_about_calls_in_sql_and_at_the_terminal(capsys):
    place = str(SHIPPED["codex"])
    with sa.read(place) as snap:
        told_by_sql = snap.sql("SELECT tool, count(*) AS n FROM calls GROUP BY tool ORDER BY tool")
        assert told_by_sql["n"].sum() == sa.failures.calls(snap).height > 0
        assert snap.sql("FROM signs").height == sa.failures.signs(snap).height > 0
    for word in ("calls", "tools", "signs"):
        assert run(["failures", place, "--show", word, "--format", "csv"]) == 0
        assert "tool" in capsys.readouterr().out


WORDS_OF = {
    "gives_up": (
        [
            "I couldn't get the tests to pass.", "I couldn't get the failing tests to pass",
            "I've tried everything, but the build stays red.",
            "I have not managed to fix the login.", "This is as far as I get.",
            "Leider ist es mir nicht gelungen, den Fehler zu beheben.",
            "I was unable to fix the failing build.", "Unable to complete the migration.",
            "I tried everything, but I couldn't get the tests to pass",
            "I couldn't finish the migration.", "Leider konnte ich den Fehler nicht beheben.",
            "Je n'ai pas réussi à corriger le test.", "No pude completar la tarea.",
            "Não consegui resolver o erro.", "我无法完成这个任务。", "Не удалось исправить ошибку.",
        ],
        [
            "The message 'unable to complete' came from a typo; it is fixed.",
            "The job that was unable to complete within 9 s now takes 2 s.",
            "I was unable to reproduce the bug, so I added logging and found it in the parser.",
            'Fixed: the log said "I was unable to fix" wrongly.', "All tests pass.",
        ],
    ),
    "corrects": (
        [
            "No, use the other file", "That's wrong", "wait, I meant the other one",
            "Actually don't touch the tests", "still fails with the same error", "It still fails",
            "The tests are still failing", "Stop. Revert it", "Undo that", "wrong file", "nope",
            "Nein, das ist falsch", "Hold on, that's not what I asked", "Wrong, use b", "stop",
            "No, use yarn", "That's wrong, it has to be UTC", "nein, das ist falsch",
            "non, pas ça", "不对，用另一个", "нет, не так", "still failing",
        ],
        [
            "Stop words should be removed from the index", "Wrong passwords must give a 401",
            "Undo and redo need shortcuts", "No problem, go on", "Now add tests",
            "Actually, one more thing: add docs", "Wait for the server to start before the test",
            "Make sure the old tests still pass", "Thanks! Now the next", "",
            "Notes on the release", "Add a stop button", "All tests pass.",
        ],
    ),
    "asks": (
        ["What should the limit be?", "Done. Shall I go on?\n", "要继续吗？"],
        ["Done.", "I asked why? and it works."],
    ),
    "is_undo": (
        [
            "git restore src/a.py", "git checkout -- a.py", "git checkout a.py",
            "git checkout HEAD~2 a.py", "git checkout HEAD~2 src/", "git reset --hard",
            "git reset --hard HEAD~1", "git reset HEAD~1", "git -C app restore a.py",
            "cd app && git restore .", "git checkout .", "git revert --no-edit abc123",
            "git revert HEAD", "git restore --source=HEAD~1 a.py",
            "git restore --staged --worktree a.py", "bash -lc 'git restore a.py'",
            "git stash; git checkout main -- a.py", "git reset --soft HEAD^",
            "git checkout src/cart.py && npm test", 'git checkout -- "a b.py"',
            "sudo git restore a", 'git -C "a b" restore a.py', "git restore -SW a.py",
        ],
        [
            "git restore --staged a.py", "git restore -S a.py",
            "git commit -m 'fix: git restore a.py'",
            'git commit -m "revert: git reset --hard was wrong"', "git checkout main",
            "git checkout feature/cart", "git checkout -b fix/a.js", "git checkout v1.2.3",
            "git checkout main && npm test", "git checkout main 2>&1", "git reset a.py",
            "git reset HEAD a.py", "git reset", "git log --grep='git revert'",
            "rg 'git restore' docs", 'echo "git restore a"', "git revert --abort",
            "git checkout main\nnpm test", "git checkout -", "git checkout release-1.2 # go",
            "(git checkout main)", "git status", "git checkout --track origin/x",
            "git restore --staged a && ls", "git checkout main | tail -1",
            "git checkout main; npm test", "git checkout -q $(git rev-list a | sed -n 3p)",
        ],
    ),
}  # fmt: skip
"""By kind: texts or commands that have it, and those that only look like it."""


@pytest.mark.parametrize("kind", WORDS_OF)
def test_phrases_and_commands_by_their_words(kind):
    has, has_not = WORDS_OF[kind]
    if kind in (apart := {"gives_up", "corrects"}):
        [other] = apart - {kind}
        has_not = [*has_not, *(text for texts in WORDS_OF[other] for text in texts)]
    rows = pl.DataFrame({"text": has + has_not})
    if kind == "is_undo":
        asked = pl.Series([json.dumps({"command": text}) for text in has + has_not])
        found = inputs_of(asked)["is_undo"]
    else:
        found = rows.select(phrase_in(pl.col("text"), kind)).to_series()
    assert rows.filter(found)["text"].to_list() == has


AWAY = {
    "mcp__db__query": ("MCP server db is not connected", "Transport closed",
                       "Error: No such tool available: mcp__db__query",
                       "unsupported call: mcp__db__query", "MCP error -32000: Connection closed"),
    "Bash": ("sandbox error: command was denied by the sandbox",
             "Exit code 1\nbwrap: No permissions to create a new namespace",
             "touch: cannot touch 'a': Read-only file system"),
}  # fmt: skip
THERE = {
    "mcp__db__query": ("no such table: users",),
    "Bash": ("Error: the server is not connected", "MCP server db is not connected",
             "test sandbox denied a transfer of 5", "chown: Operation not permitted"),
}  # fmt: skip


@pytest.mark.parametrize("words, n_signs", [(AWAY, 1), (THERE, 0)])
def test_servers_and_sandboxes_in_the_words_of_clients(words, n_signs):
    for tool, messages in words.items():
        for message in messages:
            rows = frame_of("AbA").with_columns(
                tool=pl.lit(tool),
                message=pl.lit(message),
                last_command=pl.lit("node" if tool == "Bash" else None, pl.String),
            )
            found = signs_of(rows, TURNS.empty(), Policy.v1(), TURNS.empty())
            assert found.filter(sign="tool_down").height == n_signs, message


def test_older_results_of_codex_are_equal_but_for_their_duration(tmp_path):
    log = begun_rollout()
    for n in range(4):
        log.call(f"call_{n}", cmd="pytest -q")
        given = {"output": "1 failed, 2 passed in 0.12s", "metadata": {"exit_code": 0,
                 "duration_seconds": n / 10}}  # fmt: skip
        log.result(f"call_{n}", json.dumps(given, separators=(",", ":")))
    log.say("It is done.")
    log.complete("It is done.")
    found = signs(facts_of(tmp_path, log))
    assert kinds(found) == [("repeated_call", 4), ("tests_failing", 1)]


def test_a_hook_that_blocks_refuses(tmp_path):
    log = begun_transcript()
    ran(log, 1, "rm -r a", "PreToolUse:Bash hook error: [guard.sh]: not here", is_error=True)
    assert calls(facts_of(tmp_path, log))["outcome"].to_list() == ["denied"]
