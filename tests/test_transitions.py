"""Legal and illegal changes of status: lionagi's graphs and histories."""

from datetime import timedelta

import pytest

from stateanalytics.systems import reading as sources
from stateanalytics.systems.lionagi.transitions import (
    EDGES,
    KNOWN,
    LIFECYCLES,
    OVERRIDE_EVENT,
    TERMINAL_FLOOR_AT,
    VERDICTS,
    classify_transitions,
)
from tests.conftest import component
from tests.frames import frame

AFTER = TERMINAL_FLOOR_AT + timedelta(days=30)
BEFORE = TERMINAL_FLOOR_AT - timedelta(days=30)


def change(entity_type, before, after, *, at=AFTER, code=None, entity_id="a", seq=0):
    return {
        "source": "state.db",
        "system": "lionagi",
        "entity_type": entity_type,
        "entity_id": entity_id,
        "at": at,
        "seq": seq,
        "previous_status": before,
        "status": after,
        "reason_code": code,
    }


def verdict(*changes, **options):
    return classify_transitions(frame("transitions", list(changes)), **options)["verdict"].to_list()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(change("session", None, "running"), "first", id="first row"),
        pytest.param(change("session", None, "failed"), "first", id="a NULL status was closed"),
        pytest.param(change("session", "running", "completed"), "legal", id="an end"),
        pytest.param(change("session", "running", "running"), "same_status", id="written again"),
        pytest.param(change("play", "merged", "merged"), "same_status", id="an import, terminal"),
        pytest.param(change("dispatch", "delivering", "delivering"), "legal", id="declared loop"),
        pytest.param(change("session", "failed", "completed"), "illegal", id="out of an end"),
        pytest.param(
            change("session", "failed", "completed", at=BEFORE), "illegal_before_0_28", id="early"
        ),
        pytest.param(
            change("session", "failed", "running", code="session.reopened.by_resume"),
            "override",
            id="resumed",
        ),
        pytest.param(
            change("schedule_run", "running", "skipped", at=BEFORE),
            "illegal",
            id="undeclared between open statuses, whenever",
        ),
        pytest.param(change("session", "running", "done"), "unknown", id="unknown word"),
        pytest.param(change("session", "", "running"), "unknown", id="empty word before"),
        pytest.param(change("engine_run", "running", "failed"), "unknown", id="no graph"),
        pytest.param(change("session", "running", None), "unknown", id="no status after"),
    ],
)
def test_each_change_falls_into_one_class(row, expected):
    assert verdict(row) == [expected]
    assert expected in VERDICTS


def test_an_exit_at_the_release_of_0_28_was_already_refused():
    assert verdict(change("session", "failed", "running", at=TERMINAL_FLOOR_AT)) == ["illegal"]


def test_an_override_event_within_a_second_makes_an_exit_intended():
    reopened = change("session", "completed", "running")
    event = {**reopened, "kind": OVERRIDE_EVENT}
    assert verdict(reopened, events=frame("events", [event])) == ["override"]
    assert verdict(
        reopened, events=frame("events", [{**event, "at": AFTER + timedelta(seconds=1)}])
    ) == ["override"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"at": AFTER + timedelta(seconds=2)}, id="two seconds later"),
        pytest.param({"entity_id": "b"}, id="of another entity"),
        pytest.param({"source": "other.db"}, id="in another store"),
        pytest.param({"kind": "admin.status_transition_rejected"}, id="of another kind"),
    ],
)
def test_an_override_event_elsewhere_proves_nothing(other):
    reopened = change("session", "completed", "running")
    event = {**reopened, "kind": OVERRIDE_EVENT, **other}
    assert verdict(reopened, events=frame("events", [event])) == ["illegal"]


def test_override_events_repeat_no_row():
    rows = [change("session", "completed", "running", seq=seq) for seq in range(3)]
    events = frame("events", [{**rows[0], "kind": OVERRIDE_EVENT}] * 2)
    assert verdict(*rows, events=events) == ["override"] * 3


def test_no_changes_give_no_verdicts():
    assert verdict() == []


def test_the_graphs_are_those_of_the_installed_lionagi():
    policy = component("lionagi.state.lifecycle.policy")
    for cycle in LIFECYCLES:
        real = policy.DEFAULT_REGISTRY.get(cycle.entity_type)
        assert set(KNOWN[cycle.entity_type]) == real.statuses
        mine = {(e.before, e.after) for e in EDGES if e.entity_type == cycle.entity_type}
        assert mine == {
            (status, edge.to_status) for status, edges in real.edges.items() for edge in edges
        }
        assert cycle.same_status == real.same_status
        assert set(cycle.reason_prefixes) == real.reason_prefixes
        assert cycle.has_reason_columns == real.reason_columns


def test_real_histories_hold_few_illegal_edges(lionagi_samples):
    store = lionagi_samples / "0.36.0" / "state.db"
    facts, _ = sources.read_facts([store])
    counted = classify_transitions(facts.transitions, events=facts.events)["verdict"].value_counts()
    found = dict(counted.iter_rows())
    assert found["override"] == 1
    assert found["legal"] > 50
    # The sample's writer let fires go from running to skipped, which no graph declares.
    assert found["illegal"] == 4
    assert "unknown" not in found
