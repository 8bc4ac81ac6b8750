"""Every type of error that opencode wrote or drafted is a reason code, and no other is lost."""

import csv
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from tests.examples import a_few
from tests.opencode_logs import event, facts_of, step

# Seed 004's union, with its typed fields.
DRAFTED = {
    "permission.rejected": ({"permission": "bash", "resource": "rm -rf"}, "permission_rejected"),
    "tool.input.invalid": ({"message": "no JSON", "input": {"a": 1}}, "tool_input_invalid"),
    "tool.execution.cancelled": ({"reason": "timeout"}, "tool_execution_cancelled"),
    "unknown": ({"message": "?", "agent": "build"}, "unknown"),
}


@pytest.fixture(scope="module")
def shipped(reference: Path) -> list[dict[str, str]]:
    """The types that were found in sources and samples, with what they mean."""
    with (reference / "opencode" / "error_types.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def failed(shipped: list, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One failed session a type."""
    events = [
        line
        for number, row in enumerate(shipped)
        for line in (
            event(0, "execution.started", session=f"ses_{number}"),
            event(1, "execution.failed", session=f"ses_{number}",
                  error={"type": row["type"], "message": "m"}),
        )
    ]  # fmt: skip
    return facts_of(tmp_path_factory.mktemp("errors"), *events)


def test_every_type_has_the_cause_and_the_health_of_the_reference(shipped, failed) -> None:
    states = {row["entity_id"]: row for row in sa.states(failed).to_dicts()}
    for number, row in enumerate(shipped):
        told = states[f"ses_{number}"]
        assert told["reason_codes"].startswith(f"run.failed.{row['reason_cause']}"), row["type"]
        assert told["health"] == row["health_if_failed"], row["type"]
    kept = failed.details["opencode_executions"]["error_type"]
    assert sorted(kept) == sorted(row["type"] for row in shipped)


def test_every_code_of_the_reference_is_in_the_registry(reference: Path) -> None:
    with (reference / "opencode" / "reason_codes.csv").open(newline="") as file:
        codes = {row["code"] for row in csv.DictReader(file)}
    assert codes - set(sa.reason_codes()["code"]) == {"invocation.failed.<cause>"}


@pytest.mark.parametrize("error_type", a_few(DRAFTED, 2))
def test_the_drafted_union_is_read_with_its_fields(tmp_path: Path, error_type: str) -> None:
    fields, cause = DRAFTED[error_type]
    facts = facts_of(
        tmp_path,
        event(0, "execution.started"),
        step(1, "step.started"),
        step(2, "tool.input.started", id="call_1", name="bash"),
        step(3, "tool.called", id="call_1", input={}),
        step(4, "tool.failed", id="call_1", error={"type": error_type, **fields}),
    )
    tool = facts.details["opencode_tools"].row(0, named=True)
    assert (tool["error_type"], tool["cause"]) == (error_type, cause)
    assert tool["error_permission"] == fields.get("permission")
    assert tool["error_resource"] == fields.get("resource")
    assert tool["error_message"] == fields.get("message", fields.get("reason"))
    codes = sa.reasons(facts).filter(pl.col("entity_type") == "tool_call")["code"].to_list()
    assert codes == [f"invocation.failed.{cause}"]


@pytest.mark.parametrize(
    ("said", "message"), [("HTTP 401: no key", "HTTP 401: no key"), (" ", "It failed"),
                          (None, "It failed")]
)  # fmt: skip
def test_the_words_of_the_error_are_the_message(
    tmp_path: Path, said: str | None, message: str
) -> None:
    error = {"type": "provider.auth", "message": said}
    facts = facts_of(
        tmp_path, event(0, "execution.started"), event(1, "execution.failed", error=error)
    )
    first = sa.reasons(facts).filter(entity_type="session", order=0)
    assert first["message"].to_list() == [message]
    assert sa.attention(facts)["message"].to_list() == [message]


@pytest.mark.parametrize("error_type", a_few(["provider.tired", "Provider_Auth", "", None, 7], 2))
def test_a_type_that_nobody_knows_stays_visible(tmp_path: Path, error_type: object) -> None:
    facts = facts_of(
        tmp_path,
        event(0, "execution.started"),
        event(1, "execution.failed", error={"type": error_type, "message": "m"}),
    )
    execution = facts.details["opencode_executions"].row(0, named=True)
    assert execution["error_type"] == (None if error_type is None else str(error_type))
    states = sa.states(facts).filter(pl.col("entity_type") == "session")
    assert states["outcome"].cast(pl.String).to_list() == ["failed"]
    assert states["reason_codes"].str.starts_with("run.failed.").all()
