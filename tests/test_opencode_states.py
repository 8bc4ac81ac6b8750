"""opencode in ADR-0033's words: every expected state, and a filter is never a success."""

import json
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.reading import read_facts
from tests.opencode_logs import T0, event, facts_of, read_once, step

READINGS = [
    ("v2_20260717", "v2_20260717/event_table.jsonl"),
    ("v2_20260717", "v2_20260717/opencode-local.db"),
    ("synthetic", "synthetic/v2_edge_cases.jsonl"),
    ("synthetic", "synthetic/v2_edge_cases_shuffled_dups.jsonl"),
]
AXES = ("lifecycle", "outcome", "health", "delivery", "severity", "tone")
GOOD_ENDS = ("completed", "succeeded", "merged")


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    return shared / "samples" / "opencode"


def _id(row: dict, kind: str) -> str:
    own = f":execution:{row['exec_no']}" if kind == "execution" else ""
    return row["session_id"] + own


@pytest.mark.parametrize("kind", ["execution", "session"])
@pytest.mark.parametrize(("folder", "log"), READINGS, ids=[log for _, log in READINGS])
def test_every_expected_state_holds(samples: Path, folder: str, log: str, kind: str) -> None:
    facts = read_once(samples / log)
    states = sa.states(facts).filter(pl.col("entity_type") == kind)
    found = {row["entity_id"]: row for row in states.to_dicts()}
    lines = (samples / "expected" / folder / f"{kind}_states.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in lines]
    for row in expected:
        ours = found[_id(row, kind)]
        assert {axis: ours[axis] for axis in AXES} == {axis: row[axis] for axis in AXES}
        assert ("Blocked by provider" in ours["display"]) == row["blocked"]
    assert len(found) == len(expected)


@pytest.mark.parametrize("kind", ["execution", "session"])
@pytest.mark.parametrize(("folder", "log"), READINGS, ids=[log for _, log in READINGS])
def test_every_expected_reason_holds(samples: Path, folder: str, log: str, kind: str) -> None:
    facts = read_once(samples / log)
    reasons = sa.reasons(facts).filter(pl.col("entity_type") == kind).sort("entity_id", "order")
    found: dict[str, list] = {}
    for row in reasons.to_dicts():
        evidence = json.loads(row["evidence"])[0]
        event_id = None if evidence["kind"] == "rule" else evidence["id"]
        found.setdefault(row["entity_id"], []).append(
            {
                "code": row["code"],
                "claim_status": row["claim_status"],
                "confidence": row["confidence"],
                "event_id": event_id,
            }
        )
    lines = (samples / "expected" / folder / f"{kind}_states.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        assert found.get(_id(row, kind), []) == row["reasons"]


FILTERED = {
    "era A": ("v1_1.18.34/event_table.jsonl", "A", 1),
    "era B": ("v2_20260717/opencode-local.db", "B", 4),
    "era C": ("synthetic/v2_edge_cases.jsonl", "C", 1),
    "V1": ("v1_1.18.34/opencode.db", "V1", 3),
}


@pytest.mark.parametrize("where", list(FILTERED))
def test_a_content_filter_never_reads_as_success(samples: Path, where: str) -> None:
    log, era, n_expected = FILTERED[where]
    facts = read_once(samples / log)
    blocked = facts.details["opencode_executions"].filter("is_blocked", pl.col("era") == era)
    assert blocked.height == n_expected
    states = sa.states(facts)
    touched = pl.concat(
        [
            blocked.select(entity_id="entity_id"),
            blocked.filter("is_last").select(entity_id="session_id"),
            blocked.select(pl.concat_str("session_id", pl.lit(":turn:"), "turn_no")).rename(
                {"session_id": "entity_id"}
            ),
            facts.details["opencode_steps"].filter("is_blocked").select(entity_id="entity_id"),
        ]
    )
    seen = states.join(touched, on="entity_id", how="semi")
    assert seen["outcome"].cast(pl.String).unique().to_list() == ["failed"]
    assert seen["is_terminal"].all()
    assert seen["severity"].cast(pl.String).unique().to_list() == ["critical"]
    assert seen["display"].str.contains("Blocked by provider content filter").all()
    assert seen["reason_codes"].str.contains("content_filtered").all()
    coded = facts.entities.join(seen, on="entity_id", how="semi")
    assert coded["reason_code"].str.ends_with("failed.content_filtered").all()


@pytest.mark.parametrize(
    "run", ["v1_1.18.34/run_json_mock-filter.jsonl", "v2_20260717/run_v2_mock-filter.jsonl"]
)
def test_a_content_filter_in_the_output_of_a_run_is_a_failure(samples: Path, run: str) -> None:
    states = sa.states(read_once(samples / run))
    assert set(states["outcome"].cast(pl.String)) == {"failed"}


@pytest.mark.parametrize(
    ("end", "finish"),
    [("step.ended", "content-filter"), ("step.failed", "content-filter")],
)
def test_a_filter_wins_over_a_success_that_was_written(
    tmp_path: Path, end: str, finish: str
) -> None:
    facts = facts_of(
        tmp_path,
        event(0, "execution.started"),
        step(1, "step.started"),
        step(2, end, finish=finish, error={"type": "unknown", "message": ""}),
        event(3, "execution.succeeded"),
    )
    states = sa.states(facts)
    assert not set(states["outcome"].cast(pl.String)) & set(GOOD_ENDS)
    assert "outcome.blocked_as_success" in facts.findings["code"].to_list()


def test_a_refusal_in_the_providers_own_words_is_a_block_if_nothing_was_said(
    tmp_path: Path,
) -> None:
    facts = facts_of(
        tmp_path,
        event(0, "execution.started"),
        step(1, "step.started"),
        step(2, "step.ended", finish="stop", rawFinish="SAFETY"),
        event(3, "execution.succeeded"),
    )
    assert sa.states(facts)["outcome"].cast(pl.String).unique().to_list() == ["failed"]


def _health(facts: Facts) -> tuple[str | None, str | None]:
    state = sa.states(facts).filter(pl.col("entity_type") == "session").row(0, named=True)
    return state["health"], state["reason_codes"]


STARTED = (event(0, "execution.started"), step(1, "step.started"))


@pytest.mark.parametrize(
    ("silence_s", "health"),
    [
        pytest.param(599, "running", id="just before the limit"),
        pytest.param(600, "stalled", id="at the limit"),
        pytest.param(3599, "stalled", id="just before it counts as dead"),
        pytest.param(3600, "process_dead", id="for an hour"),
    ],
)
def test_silence_of_an_open_execution(tmp_path: Path, silence_s: int, health: str) -> None:
    facts = facts_of(tmp_path, *STARTED, as_of_ms=T0 + 1000 + silence_s * 1000)
    assert _health(facts)[0] == health


def test_a_tool_at_work_may_be_silent_for_longer(tmp_path: Path) -> None:
    called = step(2, "tool.called", id="call_1", input={})
    facts = facts_of(tmp_path, *STARTED, called, as_of_ms=T0 + 2000 + 700_000)
    assert _health(facts)[0] == "running"


def test_a_policy_may_be_more_or_less_patient(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, *STARTED, as_of_ms=T0 + 1000 + 300_000)
    strict = sa.Policy.v1().replace(limits={"opencode": {"stalled_after_s": 300}})
    changed = sa.compare_policies(facts, sa.Policy.v1(), strict)
    assert changed["entity_type"].sort().to_list() == ["execution", "session", "turn"]
    of_session = sa.states(facts, policy=strict).filter(pl.col("entity_type") == "session")
    assert of_session["health"].to_list() == ["stalled"]
    assert of_session["policy_version"].to_list() == [strict.version]
    reasons = sa.reasons(facts, policy=strict).filter(pl.col("entity_type") == "session")
    assert reasons["code"].to_list() == ["run.health.stalled"]


def test_a_runaway_is_as_many_steps_as_the_policy_says(tmp_path: Path) -> None:
    steps = [
        line
        for n in range(3)
        for line in (
            step(1 + 2 * n, "step.started", f"msg_{n}"),
            step(2 + 2 * n, "step.ended", f"msg_{n}", finish="unknown"),
        )
    ]
    facts = facts_of(tmp_path, event(0, "execution.started"), *steps)
    assert _health(facts)[0] == "running"
    strict = sa.Policy.v1().replace(limits={"opencode": {"min_runaway_steps": 3}})
    reasons = sa.reasons(facts, policy=strict)
    assert "run.health.runaway_steps" in reasons["code"].to_list()


RETRY = step(
    2,
    "retry.scheduled",
    attempt=2,
    at=T0 + 10_000,
    error={"type": "provider.rate-limit", "message": "429"},
)


@pytest.mark.parametrize(
    ("at_s", "health", "codes"),
    [
        (5, "degraded", "run.health.retry_scheduled, run.health.provider_rate_limit"),
        (70, "degraded", "run.health.retry_scheduled, run.health.provider_rate_limit"),
        (71, "stalled", "run.health.retry_overdue"),
    ],
)
def test_a_retry_is_current_state(tmp_path: Path, at_s: int, health: str, codes: str) -> None:
    facts = facts_of(tmp_path, *STARTED, RETRY, as_of_ms=T0 + at_s * 1000)
    assert _health(facts) == (health, codes)


def test_an_open_question_makes_it_wait_for_a_person(tmp_path: Path) -> None:
    asked = event(None, "permission.asked", id="per_1", at_ms=T0 + 2000)
    facts = facts_of(tmp_path, *STARTED, asked)
    assert _health(facts) == ("idle", "run.health.awaiting_permission")


def test_an_answered_question_is_none(tmp_path: Path) -> None:
    asked = event(None, "permission.asked", id="per_1", at_ms=T0 + 2000)
    given = event(None, "permission.replied", requestID="per_1", reply="once", at_ms=T0 + 2500)
    assert _health(facts_of(tmp_path, *STARTED, asked, given))[0] == "running"


STOPPED = event(3, "execution.interrupted", reason="shutdown")


def _interrupted(facts: Facts) -> tuple:
    first = facts.details["opencode_executions"].row(0, named=True)
    state = sa.states(facts).filter(pl.col("entity_id") == first["entity_id"]).row(0, named=True)
    return state["outcome"], state["reason_codes"], first["is_resumed"], first["is_resumable"]


def test_a_person_and_a_servers_stop_are_kept_apart(tmp_path: Path) -> None:
    by_user = event(3, "execution.interrupted", reason="user")
    assert _interrupted(facts_of(tmp_path, *STARTED, by_user)) == (
        "cancelled",
        "run.cancelled.user_interrupt",
        False,
        None,
    )
    assert _interrupted(facts_of(tmp_path, *STARTED, STOPPED)) == (
        "aborted",
        "run.aborted.server_shutdown",
        False,
        True,
    )


def test_a_stop_that_was_resumed_says_so(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, *STARTED, STOPPED, event(4, "execution.started"))
    assert _interrupted(facts) == (
        "aborted",
        "run.aborted.server_shutdown, run.health.resumed_after_shutdown",
        True,
        False,
    )


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param(
            step(2, "tool.failed", id="call_1",
                 error={"type": "aborted", "message": "The user declined this tool call"}),
            id="the tool says so",
        ),
        pytest.param(
            event(None, "permission.replied", requestID="per_1", reply="reject", at_ms=T0 + 2500),
            id="the answer is in the stream",
        ),
    ],
)  # fmt: skip
def test_a_rejected_permission_is_no_shutdown(tmp_path: Path, proof: dict) -> None:
    outcome, codes, _, resumable = _interrupted(facts_of(tmp_path, *STARTED, proof, STOPPED))
    assert (outcome, codes, resumable) == ("cancelled", "run.cancelled.permission_declined", False)


def test_an_unknown_reason_and_an_unknown_error_stay_visible(tmp_path: Path) -> None:
    eaten = event(3, "execution.interrupted", reason="eaten by a dog")
    facts = facts_of(tmp_path, *STARTED, eaten)
    assert _interrupted(facts)[1] == "run.cancelled.unrecognized"
    assert facts.details["opencode_executions"]["interrupt_reason"][0] == "eaten by a dog"
    failed = event(3, "execution.failed", error={"type": "provider.tired", "message": ""})
    facts = facts_of(tmp_path, *STARTED, failed)
    assert _interrupted(facts)[1] == "run.failed.unrecognized"
    assert "provider.tired" in facts.findings["example"].to_list()


def test_a_waiting_input_leaves_a_finished_session_idle(tmp_path: Path) -> None:
    waits = event(4, "inbox.enqueued", inboxID="msg_9", item={"type": "user", "delivery": "queue"})
    facts = facts_of(tmp_path, *STARTED, event(3, "execution.succeeded"), waits)
    health, codes = _health(facts)
    assert health == "idle"
    assert codes.endswith("run.health.input_pending")


def test_states_come_in_the_order_of_entities(samples: Path) -> None:
    facts = read_facts([samples / log for _, log in READINGS[1:3]])[0]
    key = ["source", "entity_type", "entity_id"]
    assert sa.states(facts).select(key).equals(facts.entities.select(key))
    assert facts.entities.select(key).is_duplicated().sum() == 0
