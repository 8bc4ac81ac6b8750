"""Calls of tools in lionagi's messages: read when they are asked for, paired and judged."""

import json
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.schema import CALLS
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.call_outcomes import calls
from stateanalytics.failures.struggles import signs, turns
from stateanalytics.reporting.session import session_page
from stateanalytics.systems.lionagi import events as of_lionagi
from tests.examples import examples
from tests.lionagi_stores import NOW_S, listing, session, write_store

REQUEST, ANSWER = 4, 5
IS_ERROR = {"metadata": {"is_error": True}}


def message(identity, content, *, at=0.0, lion_class=None, **columns):
    """A message of a tool, ``at`` seconds after the first."""
    return {
        "id": identity,
        "created_at": NOW_S + at,
        "role": "action",
        "lion_class": lion_class,
        "content": content if isinstance(content, str | bytes) else json.dumps(content),
        **columns,
    }


def request(identity, command="make test", *, at=0.0, function="Bash"):
    content = {"function": function, "arguments": {"command": command}}
    return message(identity, content, at=at, lion_class=REQUEST)


def answer(identity, of, *, at=1.0, metadata=None, **content):
    """An answer as lionagi writes it; ``metadata`` marks the errors of agents."""
    whole = {"function": "Bash", "action_request_id": of, **content}
    columns = {"node_metadata": json.dumps(metadata)} if metadata else {}
    return message(identity, whole, at=at, lion_class=ANSWER, **columns)


def snapshot(folder, messages, *, branches=1):
    """A session whose branches list the messages in turn."""
    lists = [[row["id"] for row in messages[n::branches]] for n in range(branches)]
    tables = {
        "sessions": [session("s")], "messages": messages,
        "branches": [{"id": f"b{n}", "session_id": "s", "progression_id": f"p{n}"}
                     for n in range(branches)],
        "progressions": [listing(f"p{n}", ids) for n, ids in enumerate(lists)],
    }  # fmt: skip
    return sa.read(write_store(folder / "state.db", **tables), progress=False)


def test_a_request_and_its_answer_are_one_call(tmp_path):
    rows = [request("q"), answer("a", "q", at=2.5, output="2 passed in 1.0s")]
    found = calls(snapshot(tmp_path, rows)).row(0, named=True)
    shown = ("system", "session_id", "thread_id", "call_id", "entity_id", "tool", "target")
    assert [found[name] for name in shown] == ["lionagi", "s", "s", "q", "q", "Bash", "make"]
    assert (found["outcome"], found["duration_s"], found["test_result"]) == ("ok", 2.5, "passed")
    assert found["ended_at"] - found["started_at"] == timedelta(seconds=2.5)
    assert (found["is_test"], found["part_id"], found["cause"]) == (True, None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "outcome", "cause", "exit_code"),
    [
        ({"output": "fine"}, "ok", None, None),
        ({"output": None}, "ok", None, None),
        ({"output": ""}, "ok", None, None),
        ({"output": {"a": 1}}, "ok", None, None),
        ({"output": "error: handled"}, "ok", None, None),
        ({"output": "", "error": "boom"}, "failed", "tool_error", None),
        ({"output": {"error": "no tool", "message": "x"}}, "failed", "tool_error", None),
        ({"output": "$ make\nExit code: 2\nno"}, "failed", "exit_nonzero", 2),
        ({"output": "Process exited with code 0."}, "ok", None, 0),
        ({"output": "cat: error: No such file or directory"}, "failed", "not_found", None),
        ({"output": "odd", **IS_ERROR}, "failed", "tool_error", None),
        ({"output": "Command timed out after 2m", **IS_ERROR}, "timed_out", "timeout", None),
        (
            {"output": "The user doesn't want to proceed with this tool use.", **IS_ERROR},
            *("denied", "permission_rejected", None),
        ),
        ({"lion_content_pruned": {"original_bytes": 9}}, "unknown", None, None),
    ],
)
def test_a_call_failed_where_lionagi_says_so(tmp_path, given, outcome, cause, exit_code):
    found = calls(snapshot(tmp_path, [request("q"), answer("a", "q", **given)])).row(0, named=True)
    assert (found["outcome"], found["cause"], found["exit_code"]) == (outcome, cause, exit_code)
    assert (found["message"] is None) == (outcome in ("ok", "unknown"))
    assert found["ended_at"] is not None


# The result of lionagi's own `_detect_status` for each output.
OUTPUTS = (
    ("", False),
    ("ok", False),
    ("exit code: 1", True),
    ("Exit Code: 0\nexit code: 1", False),
    ("process exited with code 137.", True),
    ("x\n" * 7 + "exit code: 2", True),
    ("x\n" * 8 + "exit code: 2", False),
    ("failed: no such file or directory", True),
    ("No such file or directory", False),
    ("not found\nNo Such File or Directory", True),
    ("x" * 301 + "error: no such file or directory", False),
    ("exit code: many", False),
    ("exit code: -9", True),
)


def test_an_output_is_an_error_by_the_rule_of_lionagi(tmp_path):
    rows = []
    for n, (output, _) in enumerate(OUTPUTS):
        rows += [request(f"q{n}", "cat x", at=n)]
        rows += [answer(f"a{n}", f"q{n}", at=n + 0.5, output=output)]
    found = calls(snapshot(tmp_path, rows))
    assert (found["outcome"] == "failed").to_list() == [is_error for _, is_error in OUTPUTS]


@pytest.mark.slow
def test_bad_rows_are_calls_as_far_as_they_say_so(tmp_path):
    """Answers without requests and the reverse, twice the same, and contents of other kinds."""
    rows = [
        answer("alone", "nobody", at=1, output="fine"),
        request("open", at=2),
        answer("early", "late", at=3, output="fine"),
        request("late", at=4),
        answer("again", "late", at=5, output="", error="boom"),
        message("broken", "{", at=6),
        message("bytes", b"\x00", at=7),
        message("nothing", {"function": "Bash"}, at=8, lion_class=ANSWER),
        message("removed", {"lion_content_pruned": {}}, at=9, lion_class=REQUEST),
        {**message("user", {"error": "no tool"}, at=10), "role": "user"},
        request(None, at=10),
        {**request("open", at=10), "created_at": None},
        request("big", "x" * 1_000_000, at=11),
        answer("bigger", "big", at=12, output="é" * 1_000_000),
    ]
    found = calls(snapshot(tmp_path, rows))
    outcomes = dict(found.select("entity_id", "outcome").rows())
    assert outcomes == {"alone": "ok", "open": "unknown", "late": "ok", "big": "ok"}
    assert found.filter(pl.col("started_at").is_null())["entity_id"].to_list() == ["alone"]
    assert found["input_digest"].null_count() == 1
    assert found.filter(entity_id="late")["duration_s"].to_list() == [None]


def test_errors_of_tools_are_counted_by_calls(tmp_path):
    rows = [
        *(answer("ok", "1", output="fine"), answer("no", "2", output="", error="x")),
        answer("gone", "3", lion_content_pruned={}),
        request("open"),
    ]
    snap = snapshot(tmp_path, rows)
    counted = snap.error_counts().select("session_id", "n_tool_answers", "n_tool_errors")
    assert counted.rows() == [("s", 3, 1)]
    assert snap.sql("SELECT sum(n_pruned) FROM error_counts").item() == 1
    assert snap.sql("SELECT count(*) FROM calls").item() == 4


def loop(n, *, first=0, output="1 failed in 0.1s\nExit code: 1", command="make test"):
    """A call that is made again and again with the same result."""
    rows = []
    for k in range(first, first + n):
        rows += [request(f"q{k}", command, at=10 * k)]
        rows += [answer(f"a{k}", f"q{k}", at=10 * k + 5, output=output)]
    return rows


@pytest.mark.slow
def test_a_loop_is_a_sign_and_branches_that_work_at_once_are_none(tmp_path):
    (tmp_path / "one").mkdir()
    [found] = signs(snapshot(tmp_path / "one", loop(12))).filter(sign="repeated_error").to_dicts()
    assert (found["n_calls"], found["thread_id"], found["lost_s"]) == (12, "s", 110.0)
    # Six branches that each call the same once, or a loop in one of them.
    each = [[request(f"q{n}", "ls x", at=n), answer(f"a{n}", f"q{n}", output="no", error="x")]
            for n in range(6)]  # fmt: skip
    turned = [pair[place] for place in (0, 1) for pair in each]
    (tmp_path / "six").mkdir()
    snap = snapshot(tmp_path / "six", turned, branches=6)
    assert sorted(calls(snap)["part_id"]) == [f"b{n}" for n in range(6)]
    assert signs(snap)["sign"].to_list() == ["mostly_failing"]


def said(identity, role, text, *, at):
    key = "instruction" if role == "user" else "assistant_response"
    return {**message(identity, {key: text}, at=at), "role": role}


@pytest.mark.slow
def test_turns_are_instructions_with_their_calls_and_last_answer(tmp_path):
    rows = [
        said("lost", "assistant", "I was unable to begin.", at=0),
        said("u1", "user", "Fix it", at=1),
        *(request("q", at=2), answer("a", "q", at=3, output="fine")),
        said("m1", "assistant", "Which one?", at=4),
        said("u2", "user", "No, the other", at=5),
        said("m2", "assistant", "I was unable to fix the build.", at=6),
        said("u3", "user", "Again", at=7),
    ]
    snap = snapshot(tmp_path, rows)
    found = turns(snap)
    shown = found.select("turn_no", "entity_id", "gives_up", "is_question", "is_correction")
    assert shown.rows() == [
        *((1, "u1", False, True, None), (2, "u2", True, False, None), (3, "u3", None, None, None))
    ]
    assert [at and at.timestamp() - NOW_S for at in found["ended_at"]] == [4, 6, None]
    assert calls(snap)["turn_no"].to_list() == [1]
    [gave_up] = signs(snap).to_dicts()
    assert (gave_up["sign"], gave_up["turn_no"], gave_up["first_call"]) == ("gave_up", 2, "u2")
    path = snap.sources["source"][0]
    then = turns(sa.read(path, as_of=NOW_S + 5.5, progress=False))
    assert then["gives_up"].to_list() == [False, None]


def test_branches_that_work_at_once_have_turns_of_their_own(tmp_path):
    rows = [
        *(said("u1", "user", "One", at=1), said("u2", "user", "Two", at=2)),
        *(request("q1", at=3), request("q2", at=4)),
        *(said("m1", "assistant", "Done.", at=5), said("m2", "assistant", "I gave up.", at=6)),
    ]
    snap = snapshot(tmp_path, rows, branches=2)
    assert dict(calls(snap).select("entity_id", "turn_no").rows()) == {"q1": 1, "q2": 2}
    assert [at.timestamp() - NOW_S for at in turns(snap)["ended_at"]] == [5, 6]


@pytest.mark.slow
def test_calls_at_an_earlier_instant_have_no_later_results(tmp_path):
    rows = [
        *(request("q", at=0), answer("a", "q", at=10, output="", error="x")),
        *(request("r", at=20), answer("b", "r", at=30, output="fine")),
    ]
    path = snapshot(tmp_path, rows).sources["source"][0]
    for seconds, outcomes in ((5, ["unknown"]), (15, ["failed"]), (25, ["failed", "unknown"])):
        then = calls(sa.read(path, as_of=NOW_S + seconds, progress=False))
        assert then["outcome"].to_list() == outcomes
        assert then["message"].to_list() == [None if o == "unknown" else "x" for o in outcomes]


def test_contents_are_read_when_calls_are_asked_for_and_once(tmp_path, monkeypatch):
    read = []
    own = of_lionagi._read
    monkeypatch.setattr(of_lionagi, "_read", lambda *given: read.append(1) or own(*given))
    monkeypatch.setattr(of_lionagi, "_PIECE", 3)
    snap = snapshot(tmp_path, loop(5))
    assert not read and snap.entities.height
    assert calls(snap).height == calls(snap).height == 5
    assert len(read) == 4
    snap.close()
    assert calls(snap).height == 5


def test_calls_of_a_closed_snapshot_are_refused_with_the_reason(tmp_path):
    snap = snapshot(tmp_path, loop(2))
    snap.close()
    with pytest.raises(ArgumentError, match="closed"):
        calls(snap)


def test_a_refreshed_snapshot_has_calls_when_the_one_before_is_closed(tmp_path):
    first = snapshot(tmp_path, loop(3))
    again = first.refresh(progress=False)
    first.close()
    assert calls(again).height == 3
    copy = again.stores[0].copy
    again.close()
    assert not copy.exists()


def test_an_archive_and_a_refresh_have_the_calls(tmp_path):
    snap = snapshot(tmp_path, loop(3))
    snap.archive(tmp_path / "history")
    with sa.read(tmp_path / "history", progress=False) as archived:
        assert calls(archived).drop("source").equals(calls(snap).drop("source"))
    assert calls(snap.refresh()).equals(calls(snap))


ROWS = st.lists(
    st.sampled_from(["request", "answer", "error", "pruned", "odd"]).flatmap(
        lambda kind: st.tuples(st.just(kind), st.integers(0, 3), st.floats(0, 1e3))
    ),
    max_size=12,
)


@pytest.mark.slow
@examples(30)
@given(ROWS, st.randoms(use_true_random=False))
def test_any_messages_give_each_call_once_in_any_order(tmp_path_factory, rows, order):
    made = []
    for n, (kind, of, at) in enumerate(rows):
        made.append(
            {
                "request": lambda n=n, at=at, of=of: request(f"r{of}-{n}", at=at),
                "answer": lambda n=n, at=at, of=of: answer(f"m{n}", f"r{of}-0", at=at, output="x"),
                "error": lambda n=n, at=at, of=of: answer(f"m{n}", f"r{of}-1", at=at, error="x"),
                "pruned": lambda n=n, at=at: message(f"m{n}", {"lion_content_pruned": {}}, at=at),
                "odd": lambda n=n, at=at: message(f"m{n}", "[]", at=at),
            }[kind]()
        )
    found = calls(snapshot(tmp_path_factory.mktemp("one"), made))
    assert found.schema == CALLS.dtypes
    assert found["entity_id"].is_unique().all() and not found["entity_id"].null_count()
    requests = {row["id"] for row in made if row["lion_class"] == REQUEST}
    assert requests <= {*found["entity_id"]}
    order.shuffle(made)
    again = calls(snapshot(tmp_path_factory.mktemp("two"), made))
    assert {*again["entity_id"]} >= requests
    assert again.height == found.height


@pytest.mark.slow
def test_calls_that_end_runs_and_the_runs_are_one_fault(tmp_path):
    """Three of four failed runs ended with such a call; that of another cause is no fault of it."""
    said = "/bin/sh: 1: poetry: not found"
    failed = {"status": "failed", "status_reason_code": "run.failed.exception"}
    exited = {**failed, "status_reason_summary": f"ToolError: Bash exited with code 127: {said}"}
    full = {**failed, "status_reason_summary": "OSError: [Errno 28] No space left on device"}
    runs = [*(session(f"s{n}", **exited) for n in range(4)), session("o", **full), session("w")]
    messages = []
    for run in runs:
        name = run["id"]
        output = "fine" if name == "s3" else f"Exit code: 127\n{said}"
        at = -700  # before their end, ten minutes ago
        messages += [request(f"q-{name}", "poetry run", at=at)]
        messages += [answer(f"a-{name}", f"q-{name}", at=at + 5, output=output)]
    path = write_store(
        tmp_path / "state.db",
        sessions=runs,
        branches=[{"id": f"b-{run['id']}", "session_id": run["id"],
                   "progression_id": f"p-{run['id']}"} for run in runs],
        progressions=[listing(f"p-{run['id']}", [f"q-{run['id']}", f"a-{run['id']}"])
                      for run in runs],
        messages=messages,
    )  # fmt: skip
    snap = sa.read(path, as_of=NOW_S, progress=False)
    [of_calls] = sa.failures.clusters(snap, of="calls").to_dicts()
    assert of_calls["n_rows"] == 5
    of_runs = sa.failures.clusters(snap).filter(pl.col("template").str.contains("poetry"))
    assert of_calls["run_cluster_id"] == of_runs["cluster_id"].item()
    assert of_calls["n_runs_ended"] == 3
    assert sa.failures.clusters(snap)["run_cluster_id"].null_count() == 2
    page = sa.report(snap, window=("2026-05-26", "2026-05-27")).as_html()
    assert "5 failed calls inside" in page
    assert "3 runs failed with it" in page


@pytest.mark.slow
def test_the_last_messages_of_a_session_are_shown_while_its_store_is_open(tmp_path):
    said = [
        {"id": f"m{n}", "created_at": NOW_S + n, "role": role, "content": json.dumps({key: text})}
        for n, (role, key, text) in enumerate(
            [
                ("user", "instruction", "Fix the build. api_key=sk-test-" + "0" * 32),
                ("assistant", "assistant_response", "On it."),
                ("system", "system_message", "You are an agent."),
                ("user", "instruction", "\x1b[31m<script>alert(1)</script>"),
                ("assistant", "other", "no text"),
            ]
        )
    ]
    snap = snapshot(tmp_path, said)
    page = session_page(snap, "s")
    shown = page.timeline.filter(pl.col("what").str.starts_with("message"))["detail"].to_list()
    assert shown[1:3] == ["On it.", None] and "script" in shown[3]
    assert "sk-test" not in page.as_html() + repr(page)
    assert "<script>alert" not in page.as_html() and "\x1b" not in repr(page)
    assert session_page(snap, "s", n_texts=1).timeline["detail"].to_list().count("On it.") == 0
    snap.close()
    assert "On it." not in str(session_page(snap, "s").timeline["detail"].to_list())
