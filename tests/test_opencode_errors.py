"""Every type of error that opencode wrote or drafted is a reason code, and no other is lost."""

import csv
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from tests.opencode_logs import event, facts_of, in_sessions, step

# Seed 004's union, with its typed fields.
DRAFTED = {
    "permission.rejected": ({"permission": "bash", "resource": "rm -rf"}, "permission_rejected"),
    "tool.input.invalid": ({"message": "no JSON", "input": {"a": 1}}, "tool_input_invalid"),
    "tool.execution.cancelled": ({"reason": "timeout"}, "tool_execution_cancelled"),
    "unknown": ({"message": "status code (501 GET http://x)", "agent": "build"}, "unknown"),
}


@pytest.fixture(scope="module")
def shipped(reference: Path) -> list[dict[str, str]]:
    """The types that were found in sources and samples, with what they mean."""
    with (reference / "opencode" / "error_types.csv").open(newline="") as file:
        return list(csv.DictReader(file))


SAID = {
    "an error that has words": ("HTTP 401: no key", "HTTP 401: no key"),
    "an error of blanks": (" ", "It failed"),
    "an error without words": (None, "It failed"),
}
KINDS = ("provider.tired", "Provider_Auth", "", None, 7)
UNKNOWN = {f"an error of the type {kind!r}": kind for kind in KINDS}


def _failed(kind: object, message: str | None = "m") -> list[dict]:
    """The life of a session whose execution failed."""
    error = {"type": kind, "message": message}
    return [event(0, "execution.started"), event(1, "execution.failed", error=error)]


@pytest.fixture(scope="module")
def failed(shipped: list, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One session an error."""
    of_tools = {
        kind: [
            event(0, "execution.started"),
            step(1, "step.started"),
            step(2, "tool.input.started", id="call_1", name="bash"),
            step(3, "tool.called", id="call_1", input={}),
            step(4, "tool.failed", id="call_1", error={"type": kind, **fields}),
        ]
        for kind, (fields, _) in DRAFTED.items()
    }
    lives = {
        **{f"ses_{number}": _failed(row["type"]) for number, row in enumerate(shipped)},
        **{f"a tool of {kind}": life for kind, life in of_tools.items()},
        **{name: _failed("provider.auth", said) for name, (said, _) in SAID.items()},
        **{name: _failed(kind) for name, kind in UNKNOWN.items()},
    }
    return facts_of(tmp_path_factory.mktemp("errors"), *in_sessions(lives))


@pytest.fixture(scope="module")
def states(failed: Facts) -> dict[str, dict]:
    return {row["entity_id"]: row for row in sa.states(failed).to_dicts()}


@pytest.fixture(scope="module")
def reasons(failed: Facts) -> pl.DataFrame:
    return sa.reasons(failed)


@pytest.fixture(scope="module")
def wanted(failed: Facts) -> pl.DataFrame:
    return sa.attention(failed)


def _execution(facts: Facts, session: str) -> dict:
    found = facts.details["opencode_executions"].filter(session_id=session)
    return found.row(0, named=True)


def test_every_type_has_the_cause_and_the_health_of_the_reference(shipped, failed, states) -> None:
    for number, row in enumerate(shipped):
        told = states[f"ses_{number}"]
        assert told["reason_codes"].startswith(f"run.failed.{row['reason_cause']}"), row["type"]
        assert told["health"] == row["health_if_failed"], row["type"]
        assert _execution(failed, f"ses_{number}")["error_type"] == row["type"]


def test_every_code_of_the_reference_is_in_the_registry(reference: Path) -> None:
    with (reference / "opencode" / "reason_codes.csv").open(newline="") as file:
        codes = {row["code"] for row in csv.DictReader(file)}
    assert codes - set(sa.reason_codes()["code"]) == {"invocation.failed.<cause>"}


@pytest.mark.parametrize("error_type", DRAFTED)
def test_the_drafted_union_is_read_with_its_fields(failed, reasons, error_type: str) -> None:
    fields, cause = DRAFTED[error_type]
    session = f"a tool of {error_type}"
    tool = failed.details["opencode_tools"].filter(session_id=session).row(0, named=True)
    assert (tool["error_type"], tool["cause"]) == (error_type, cause)
    assert tool["error_permission"] == fields.get("permission")
    assert tool["error_resource"] == fields.get("resource")
    assert tool["error_message"] == fields.get("message", fields.get("reason"))
    codes = reasons.filter(entity_type="tool_call", entity_id=tool["entity_id"])["code"].to_list()
    assert codes == [f"invocation.failed.{cause}"]


@pytest.mark.parametrize("session", SAID)
def test_the_words_of_the_error_are_the_message(reasons, wanted, session: str) -> None:
    message = SAID[session][1]
    first = reasons.filter(entity_type="session", entity_id=session, order=0)
    assert first["message"].to_list() == [message]
    assert wanted.filter(entity_id=session)["message"].to_list() == [message]


@pytest.mark.parametrize("session", UNKNOWN)
def test_a_type_that_nobody_knows_stays_visible(failed, states, session: str) -> None:
    kind = UNKNOWN[session]
    assert _execution(failed, session)["error_type"] == (None if kind is None else str(kind))
    assert states[session]["outcome"] == "failed"
    assert states[session]["reason_codes"].startswith("run.failed.")
