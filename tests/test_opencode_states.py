"""opencode in ADR-0033's words: every expected state, and a filter is never a success."""

import json
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.reading import read_facts
from tests.opencode_logs import (
    T0,
    ending_at,
    event,
    facts_of,
    in_sessions,
    reasons_once,
    states_once,
    step,
)

READINGS = [
    *(
        ("v2_20260717", f"v2_20260717/{name}")
        for name in ("event_table.jsonl", "opencode-local.db")
    ),
    *(("synthetic", f"synthetic/v2_edge_cases{end}.jsonl") for end in ("", "_shuffled_dups")),
]
AXES = ("lifecycle", "outcome", "health", "delivery", "severity", "tone")


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    return shared / "samples" / "opencode"


def _id(row: dict, kind: str) -> str:
    own = f":execution:{row['exec_no']}" if kind == "execution" else ""
    return row["session_id"] + own


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["execution", "session"])
@pytest.mark.parametrize(("folder", "log"), READINGS, ids=[log for _, log in READINGS])
def test_every_expected_state_and_reason_holds(samples, folder: str, log: str, kind: str) -> None:
    states = states_once(samples / log).filter(entity_type=kind)
    by_id = {row["entity_id"]: row for row in states.to_dicts()}
    reasons: dict[str, list] = {}
    of_kind = reasons_once(samples / log).filter(entity_type=kind).sort("entity_id", "order")
    for row in of_kind.to_dicts():
        evidence = json.loads(row["evidence"])[0]
        event_id = None if evidence["kind"] == "rule" else evidence["id"]
        reason = {name: row[name] for name in ("code", "claim_status", "confidence")}
        reasons.setdefault(row["entity_id"], []).append(reason | {"event_id": event_id})
    lines = (samples / "expected" / folder / f"{kind}_states.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        ours = by_id[_id(row, kind)]
        assert {axis: ours[axis] for axis in AXES} == {axis: row[axis] for axis in AXES}
        assert ("Blocked by provider" in ours["display"]) == row["blocked"]
        assert reasons.get(_id(row, kind), []) == row["reasons"]
    assert len(by_id) == len(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", ["v1_1.18.34/run_json_mock-filter.jsonl", "v2_20260717/run_v2_mock-filter.jsonl"]
)
def test_a_content_filter_in_the_output_of_a_run_is_a_failure(samples: Path, run: str) -> None:
    states = states_once(samples / run)
    assert set(states["outcome"].cast(pl.String)) == {"failed"}


DAY_MS = 86_400_000
NOW = T0 + 100 * DAY_MS
STARTED = (event(0, "execution.started"), step(1, "step.started"))
SUCCEEDED = event(3, "execution.succeeded")
STOPPED = event(3, "execution.interrupted", reason="shutdown")
ASKED = event(None, "permission.asked", id="per_1", at_ms=T0 + 2000)
LIMITED = {"type": "provider.rate-limit", "message": "429"}
RETRY = step(2, "retry.scheduled", attempt=2, at=T0 + 10_000, error=LIMITED)
BY_STATUS = step(2, "retry.scheduled", at=T0 + 10_000, error={"type": "unknown", "status": 429})
DECLINED = event(None, "permission.replied", requestID="per_1", reply="reject", at_ms=T0 + 2500)
WAITING = "run.health.retry_scheduled, run.health.provider_rate_limit"


def nowhere(n: int) -> tuple[dict, dict]:
    """A step that ends for no known reason."""
    name = f"msg_{n}"
    ended = step(2 + 2 * n, "step.ended", name, finish="unknown")
    return step(1 + 2 * n, "step.started", name), ended


class Open(NamedTuple):
    """A session, what came last of it how long ago, and the health that it has for that."""

    events: tuple[dict, ...]
    silent_s: int
    health: str
    codes: str | None


OPEN = {
    "silent for five minutes": Open(STARTED, 300, "running", None),
    "silent until just before the limit": Open(STARTED, 599, "running", None),
    "silent until the limit": Open(STARTED, 600, "stalled", "run.health.stalled"),
    "silent for nearly an hour": Open(STARTED, 3599, "stalled", "run.health.stalled"),
    "silent for an hour": Open(STARTED, 3600, "process_dead", "run.health.process_dead"),
    "a tool at work may be silent for longer": Open(
        (*STARTED, step(2, "tool.called", id="call_1", input={})), 700, "running", None
    ),
    "a retry is current state": Open((*STARTED, RETRY), 3, "degraded", WAITING),
    "a retry may be a minute late": Open((*STARTED, RETRY), 68, "degraded", WAITING),
    "a retry has a status of its own": Open((*STARTED, BY_STATUS), 3, "degraded", WAITING),
    "a retry is overdue after a minute": Open(
        (*STARTED, RETRY), 69, "stalled", "run.health.retry_overdue"
    ),
    "an open question waits for a person": Open(
        (*STARTED, ASKED), 0, "idle", "run.health.awaiting_permission"
    ),
    "an answered question is none": Open(
        (*STARTED, ASKED,
         event(None, "permission.replied", requestID="per_1", reply="once", at_ms=T0 + 2500)),
        0, "running", None,
    ),
    "steps that lead nowhere": Open(
        (event(0, "execution.started"), *nowhere(0), *nowhere(1), *nowhere(2)), 0, "running", None
    ),
    "a waiting input leaves a finished session idle": Open(
        (*STARTED, SUCCEEDED, event(4, "inbox.enqueued", inboxID="msg_9",
                                    item={"type": "user", "delivery": "queue"})),
        0, "idle", "run.delivery.empty_output, run.health.input_pending",
    ),
}  # fmt: skip


class Ended(NamedTuple):
    """What followed upon the beginning, and what is said of the execution that it ended."""

    events: tuple[dict, ...]
    outcome: str
    codes: str
    is_resumed: bool = False
    is_resumable: bool | None = None


ENDED = {
    "a person stopped it": Ended(
        (event(3, "execution.interrupted", reason="user"),),
        "cancelled", "run.cancelled.user_interrupt",
    ),
    "its server stopped": Ended(
        (STOPPED,), "aborted", "run.aborted.server_shutdown", is_resumable=True
    ),
    "its server stopped and took it up again": Ended(
        (STOPPED, event(4, "execution.started")), "aborted",
        "run.aborted.server_shutdown, run.health.resumed_after_shutdown",
        is_resumed=True, is_resumable=False,
    ),
    "a person declined, as the tool says": Ended(
        (
            step(2, "tool.failed", id="call_1",
                 error={"type": "aborted", "message": "The user declined this tool call"}),
            STOPPED,
        ),
        "cancelled", "run.cancelled.permission_declined", is_resumable=False,
    ),
    "a person declined, as the answer says": Ended(
        (DECLINED, STOPPED), "cancelled", "run.cancelled.permission_declined", is_resumable=False
    ),
    "for a reason that nobody knows": Ended(
        (event(3, "execution.interrupted", reason="eaten by a dog"),),
        "cancelled", "run.cancelled.unrecognized",
    ),
    "with an error that nobody knows": Ended(
        (event(3, "execution.failed", error={"type": "provider.tired", "message": ""}),),
        "failed", "run.failed.unrecognized",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """All sessions of the tables above in one log: what ended did so on a day of its own."""
    sessions = {
        name: ending_at(T0 + day * DAY_MS, *STARTED, *ended.events)
        for day, (name, ended) in enumerate(ENDED.items())
    } | {name: ending_at(NOW - one.silent_s * 1000, *one.events) for name, one in OPEN.items()}
    return facts_of(tmp_path_factory.mktemp("lives"), *in_sessions(sessions), as_of_ms=NOW)


@pytest.fixture(scope="module")
def judged(lives: Facts) -> dict[str, dict]:
    """Their states, by the id of the entity."""
    return {row["entity_id"]: row for row in sa.states(lives).to_dicts()}


@pytest.mark.parametrize("session", OPEN)
def test_health_is_of_what_came_last_and_how_long_ago(judged: dict, session: str) -> None:
    state, expected = judged[session], OPEN[session]
    assert (state["health"], state["reason_codes"]) == (expected.health, expected.codes)


@pytest.mark.parametrize("session", ENDED)
def test_a_person_and_a_servers_stop_are_kept_apart(lives: Facts, judged, session: str) -> None:
    executions = lives.details["opencode_executions"].filter(session_id=session)
    first = executions.sort("exec_no").row(0, named=True)
    state = judged[first["entity_id"]]
    found = (state["outcome"], state["reason_codes"], first["is_resumed"], first["is_resumable"])
    assert found == ENDED[session][1:]


def test_an_unknown_reason_and_an_unknown_error_stay_visible(lives: Facts) -> None:
    assert "eaten by a dog" in lives.details["opencode_executions"]["interrupt_reason"].to_list()
    assert "provider.tired" in lives.findings["example"].to_list()


def test_a_policy_may_be_more_or_less_patient(lives: Facts, judged: dict) -> None:
    limits = {"stalled_after_s": 300, "min_runaway_steps": 3}
    strict = sa.Policy.v1().replace(limits={"opencode": limits})
    of = pl.col("entity_id").str.starts_with
    silent, endless = of("silent for five minutes"), of("steps that lead nowhere")
    changed = sa.compare_policies(lives, sa.Policy.v1(), strict).filter(silent)
    assert changed["entity_type"].sort().to_list() == ["execution", "session", "turn"]
    of_session = sa.states(lives, policy=strict).filter(silent, entity_type="session")
    assert of_session.select("health", "policy_version").rows() == [("stalled", strict.version)]
    reasons = sa.reasons(lives, policy=strict)
    stalled = reasons.filter(silent, entity_type="session")
    assert stalled["code"].to_list() == ["run.health.stalled"]
    assert "run.health.runaway_steps" in reasons.filter(endless)["code"].to_list()


@pytest.mark.slow
def test_states_come_in_the_order_of_entities(samples: Path) -> None:
    facts = read_facts([samples / log for _, log in READINGS[1:3]])[0]
    key = ["source", "entity_type", "entity_id"]
    assert sa.states(facts).select(key).equals(facts.entities.select(key))
    assert facts.entities.select(key).is_duplicated().sum() == 0
