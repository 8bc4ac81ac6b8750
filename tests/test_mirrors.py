"""Each work is counted once, however many rows tell of it."""

from datetime import timedelta

import pytest

import stateanalytics as sa
from stateanalytics.state.population import counted, is_mirror, population
from tests.frames import AS_OF, DONE, facts, states_of
from tests.opencode_logs import event, facts_of, step


def told(*rows: tuple[str, str, int | None]) -> list[bool]:
    """Mirrors among rows of (type, session, minutes after the start)."""
    entities = [
        {
            "entity_id": str(number),
            "entity_type": entity_type,
            "system": "lionagi" if entity_type == "branch" else "opencode",
            "session_id": session,
            "started_at": None if minutes is None else AS_OF + timedelta(minutes=minutes),
        }
        for number, (entity_type, session, minutes) in enumerate(rows)
    ]
    return is_mirror(facts(entities).entities).to_list()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([("session", "s", 0), ("branch", "s", 0)], [False, True], id="a branch"),
        pytest.param([("step", "s", 0), ("tool_call", "s", 1)], [True, True], id="parts of a turn"),
        pytest.param([("turn", "s", 0), ("turn", "s", 5)], [False, True], id="only the last turn"),
        pytest.param([("turn", "s", 5), ("turn", "s", 0)], [True, False], id="in any order"),
        pytest.param([("turn", "s", 0), ("turn", "t", 5)], [True, True], id="of each session"),
        pytest.param([("turn", "s", 0), ("turn", "s", 0)], [True, True], id="at one moment"),
        pytest.param([("turn", "s", None)], [True], id="without a start"),
        pytest.param([("turn", "s", 0), ("execution", "s", 9)], [True, True], id="types apart"),
        pytest.param([("play", "s", 0), ("invocation", "s", 0)], [False, False], id="own work"),
    ],
)
def test_what_another_row_tells_is_a_mirror(rows, expected):
    assert told(*rows) == expected


@pytest.mark.parametrize("kept", ["session", "play"])
def test_a_row_with_the_id_of_a_session_repeats_it_while_it_is_there(kept):
    types = (kept, "engine_run")
    rows = [{"entity_id": "s", "session_id": "s", "entity_type": name} for name in types]
    assert is_mirror(facts(rows).entities).to_list() == [False, kept == "session"]


def test_no_rows_are_no_mirrors():
    assert is_mirror(facts([]).entities).to_list() == []


def test_totals_over_types_leave_mirrors_out():
    given = facts(
        [
            {"entity_id": "s", "ended_at": AS_OF},
            {"entity_id": "b", "entity_type": "branch", "session_id": "s", "ended_at": AS_OF},
        ]
    )
    rows = population(given.entities, states_of(given, [DONE, DONE]), as_of=AS_OF)
    assert counted(rows)["entity_id"].to_list() == ["s"]
    assert counted(rows, "branch")["entity_id"].to_list() == ["b"]


FAILS = {"error": {"type": "provider.auth", "message": "401"}}


def turn(first: int, message: str, end: str, **data: object) -> list[dict]:
    ends = {"failed": ("step.failed", "execution.failed"), "good": ("step.ended",
            "execution.succeeded")}[end]  # fmt: skip
    return [
        event(first, "execution.started"),
        step(first + 1, "step.started", message),
        step(first + 2, "text.ended", message, text="as far as it got"),
        step(first + 3, ends[0], message, **(data or {"finish": "stop"})),
        event(first + 4, ends[1], **({"error": data["error"]} if end == "failed" else {})),
    ]


@pytest.mark.slow
def test_one_failed_turn_is_one_failure(tmp_path):
    facts = facts_of(tmp_path, *turn(0, "msg_1", "failed", **FAILS))
    assert sa.attention(facts)["entity_type"].to_list() == ["session"]


@pytest.mark.slow
def test_a_failed_turn_that_the_session_outlived_is_not_lost(tmp_path):
    facts = facts_of(tmp_path, *turn(0, "msg_1", "failed", **FAILS), *turn(5, "msg_2", "good"))
    states = {row["entity_type"]: row for row in sa.states(facts).to_dicts()}
    assert states["session"]["outcome"] == "completed"
    assert sa.attention(facts).select("entity_type", "code").rows() == [
        ("turn", "run.failed.provider_auth")
    ]
