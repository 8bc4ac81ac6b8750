"""opencode's events folded: every expected row, whatever the order of the events."""

import json
import random
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.facts import Facts
from stateanalytics.systems.reading import read_facts
from tests.examples import examples
from tests.opencode_logs import event, facts_of, in_sessions, ms, read_once, step, write

LOGS = {
    "v2_20260717": ("v2_20260717/event_table.jsonl", "v2_20260717/opencode-local.db"),
    "synthetic": tuple(f"synthetic/v2_edge_cases{end}.jsonl" for end in ("", "_shuffled_dups")),
}
READINGS = [(folder, log) for folder, logs in LOGS.items() for log in logs]
NAMES = {
    "executions": {
        **{"started": "started_at", "ended": "ended_at", "reason": "interrupt_reason"},
        "after_unclosed_turn": "is_continuation",
    },
    "steps": {
        **{"step_id": "message_id", "attempts": "n_attempts", "retries": "n_retries"},
        **{"text_chars": "n_text_chars", "cost": "cost_usd", "recovered": "is_recovered"},
        "retry_error": "retry_error_type",
    },
    "tools": {"step_id": "message_id"},
    "inputs": {},
    "sessions": {"last_created": "last_at"},
}
KEYS = {
    "executions": ("session_id", "exec_no"),
    "steps": ("session_id", "step_id"),
    "tools": ("session_id", "step_id", "call_id"),
    "inputs": ("session_id", "input_id"),
    "sessions": ("session_id",),
}


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    return shared / "samples" / "opencode"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("table", list(NAMES))
@pytest.mark.parametrize(("folder", "log"), READINGS, ids=[log for _, log in READINGS])
def test_every_expected_row_holds(samples: Path, folder: str, log: str, table: str) -> None:
    facts = read_once(samples / log)
    own = dict(NAMES[table])
    frame = ms(facts.details[f"opencode_{table}"])
    if table == "executions":
        frame = frame.with_columns(late_terminal=pl.col("n_terminals") > 1)
    key = [own.get(name, name) for name in KEYS[table]]
    found = {tuple(row[name] for name in key): row for row in frame.to_dicts()}
    expected = rows(samples / "expected" / folder / f"{table}.jsonl")
    for row in expected:
        ours = found[tuple(row[name] for name in KEYS[table])]
        assert {name: ours[own.get(name, name)] for name in row} == row
    assert len(found) == len(expected)


def test_shuffled_and_doubled_lines_give_the_same_frames(samples: Path) -> None:
    ordered, shuffled = (_frames(read_once(samples / log)) for log in LOGS["synthetic"])
    for name, frame in ordered.items():
        assert frame.equals(shuffled[name]), name


def _frames(facts: Facts) -> dict[str, pl.DataFrame]:
    named = {name: getattr(facts, name) for name in ("entities", "transitions", "events")}
    named |= facts.details
    return {name: frame.drop("source") for name, frame in named.items()}


CRASH = (
    event(0, "created"),
    event(1, "execution.started"),
    step(2, "step.started", model={"id": "m", "providerID": "p"}),
    step(3, "tool.input.started", callID="call_1", name="shell"),
    step(4, "tool.called", callID="call_1", input={}),
    event(5, "execution.started"),
    step(6, "tool.failed", callID="call_1",
         error={"type": "aborted", "message": "Tool execution interrupted: shell"}),
    step(7, "step.started", "msg_2", model={"id": "m", "providerID": "p"}),
    step(8, "text.ended", "msg_2", text="héllo"),
    step(9, "step.ended", "msg_2", finish="stop", cost=0.25, tokens={"input": 3, "output": 4}),
    event(10, "execution.succeeded"),
)  # fmt: skip


def test_tokens_of_caches_that_nobody_reported_are_not_known_and_not_none(tmp_path):
    told = facts_of(tmp_path, *CRASH).entities
    assert told["n_input_tokens"].drop_nulls().unique().to_list() == [3]
    caches = told.select("n_cache_read_tokens", "n_cache_write_tokens")
    assert caches.null_count().row(0) == (told.height, told.height)


def test_tokens_of_a_title_and_of_a_summary_are_those_of_the_session(tmp_path):
    title = event(11, "usage.recorded", source="title", tokens={"input": 5, "output": 1})
    read = {"input": 7, "output": 2, "reasoning": 1, "cache": {"read": 40}}
    told = facts_of(tmp_path, *CRASH, title, event(12, "compaction.ended", tokens=read)).entities
    used = told.select("entity_type", "n_input_tokens", "n_output_tokens", "n_cache_read_tokens")
    assert used.filter(entity_type="session").row(0)[1:] == (3 + 5 + 47, 4 + 1 + 3, 40)
    assert used.filter(entity_type="turn").row(0)[1:] == (3, 4, None)


@pytest.mark.slow
@examples(15)
@given(seed=st.integers(0, 10**6), n_again=st.integers(0, 8))
def test_order_and_repetition_of_lines_do_not_matter(seed: int, n_again: int) -> None:
    chance = random.Random(seed)
    lines = [*CRASH, *chance.choices(CRASH, k=n_again)]
    chance.shuffle(lines)
    with tempfile.TemporaryDirectory() as folder:
        plain, mixed = (
            _frames(read_facts(write(Path(folder) / f"{name}.jsonl", events))[0])
            for name, events in (("plain", CRASH), ("mixed", lines))
        )
    for name, frame in plain.items():
        assert frame.equals(mixed[name]), name


RATE_LIMITED = {"type": "provider.rate-limit", "message": "429"}
REFUSED = {"type": "unknown", "message": "Too many requests", "status": 401}
VAGUE = ({"message": "failed", "status": 503}, {"message": "Overloaded"}, {"message": "failed"})
LIVES = {
    "crash": CRASH,
    "unknown event": (*CRASH, event(11, "invented.yesterday")),
    "late end": (
        event(0, "execution.started"),
        event(1, "execution.interrupted", reason="shutdown"),
        event(2, "execution.failed", error={"type": "aborted", "message": "Execution was "
              "interrupted repeatedly and will not be resumed automatically."}),
    ),
    "start after a failure": (
        event(0, "execution.started"),
        step(1, "step.started"),
        step(2, "step.failed", error={"type": "provider.internal", "message": "503"}),
        step(3, "step.started"),
    ),
    "middle": (step(25, "step.started"), event(26, "execution.succeeded")),
    "claimed twice": (
        event(0, "execution.started"),
        event(1, "execution.succeeded", event_id="evt_1"),
        event(1, "execution.interrupted", event_id="evt_2", reason="user"),
    ),
    "retries": (
        event(0, "execution.started"),
        step(1, "step.started"),
        step(2, "retry.scheduled", attempt=2, at=1_795_300_004_000, error=RATE_LIMITED),
        step(3, "step.started"),
        step(4, "retry.scheduled", attempt=3, at=1_795_300_009_000, error=RATE_LIMITED),
    ),
    "retries and another end": tuple(
        written
        for n, error in enumerate(VAGUE)
        for written in (
            event(3 * n, "execution.started"),
            step(3 * n + 1, "retry.scheduled", f"msg_{n}", error={"type": "unknown"} | error),
            event(3 * n + 2, "execution.failed", error=REFUSED),
        )
    ),
    "inputs": (
        event(0, "inbox.enqueued", inboxID="msg_1", item={"type": "user", "delivery": "steer"}),
        event(1, "inbox.enqueued", inboxID="msg_2", item={"type": "user", "delivery": "queue"}),
        event(2, "inbox.delivered", inboxID="msg_1"),
        event(3, "inbox.enqueued", inboxID="msg_3", item={"type": "move", "delivery": "queue"}),
        event(4, "inbox.cancelled", inboxID="msg_3"),
    ),
}  # fmt: skip
COSTS = {
    "nobody said": ((), None),
    "said to be nothing": ((0.0,), 0.0),
    "added up": ((0.25, 0.5), 0.75),
}


def _spending(kind: str, costs: tuple[float, ...]) -> list[dict]:
    """The life of a session that tells its costs in events of a kind."""
    spent = [{"cost": cost} for cost in costs] or [{}]
    events = [
        step(2 + n, kind, f"msg_{n}", finish="stop", **one)
        if kind == "step.ended"
        else event(2 + n, kind, **one)
        for n, one in enumerate(spent)
    ]
    begin, end = event(1, "execution.started"), event(9, "execution.succeeded")
    return [event(0, "created"), begin, *events, end]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Each life is a session of one log."""
    spending = {
        f"{name} by {kind}": _spending(kind, costs)
        for name, (costs, _) in COSTS.items()
        for kind in ("step.ended", "usage.recorded")
    }
    return facts_of(tmp_path_factory.mktemp("lives"), *in_sessions(LIVES | spending))


def _rows(facts: Facts, table: str, session: str) -> pl.DataFrame:
    return facts.details[f"opencode_{table}"].filter(session_id=session)


FOLDED = {
    "a crash and a restart are one turn": (
        "crash", "executions", ("outcome", "turn_no", "is_continuation", "n_text_chars"),
        [("crashed", 1, False, 0), ("succeeded", 1, True, 5)],
    ),
    "a tool belongs to the execution of its step": (
        "crash", "tools", ("exec_no", "end_exec_no", "is_stale", "cause"),
        [(1, 2, True, "stale_after_crash")],
    ),
    "the last of several ends counts": (
        "late end", "executions", ("outcome", "first_outcome", "n_terminals", "cause"),
        [("failed", "interrupted", 2, "resume_exhausted")],
    ),
    "a start after a failure opens the step again": (
        "start after a failure", "steps", ("state", "n_attempts", "error_type", "finish"),
        [("open", 2, None, None)],
    ),
    "a capture that begins in the middle has an execution": (
        "middle", "executions", ("exec_no", "outcome", "is_head_truncated"),
        [(0, "succeeded", True)],
    ),
    "the last retry is the state of the step": (
        "retries", "steps", ("is_retry_pending", "retry_attempt", "retry_at", "n_retries"),
        [(True, 3, 1_795_300_009_000, 2)],
    ),
    "a retry is judged by its own status and words": (
        "retries and another end", "executions", ("error_status", "cause", "retry_cause"),
        [(401, "provider_auth", cause) for cause in (*["provider_internal"] * 2, "unknown")],
    ),
    "an input that was never promoted waits": (
        "inputs", "inputs", ("kind", "is_pending", "wait_s"),
        [("user", False, 2.0), ("user", True, None), ("move", False, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDED)
def test_a_life_is_folded_into_its_rows(lives: Facts, case: str) -> None:
    session, table, columns, expected = FOLDED[case]
    found = ms(_rows(lives, table, session))
    ordered = found.sort("input_id") if table == "inputs" else found
    assert ordered.select(columns).rows() == expected


def test_a_place_that_two_events_claim_is_a_finding(lives: Facts) -> None:
    assert _rows(lives, "executions", "claimed twice")["outcome"].to_list() == ["succeeded"]
    conflicts = lives.findings.filter(code="event.conflict")
    assert conflicts["entity_id"].to_list() == ["claimed twice"]


def test_an_unknown_event_changes_nothing_and_stays_visible(lives: Facts) -> None:
    outcomes = _rows(lives, "executions", "unknown event")["outcome"]
    assert outcomes.to_list() == ["crashed", "succeeded"]
    assert "session.invented.yesterday" in lives.events["kind"].to_list()


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("kind", ["step.ended", "usage.recorded"])
def test_a_cost_that_nobody_reported_is_unknown_and_not_nothing(lives, name, kind):
    found = lives.entities.filter(entity_type="session", entity_id=f"{name} by {kind}")
    assert found["cost_usd"].to_list() == [COSTS[name][1]]
