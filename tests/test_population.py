"""Which rows a number counts."""

import polars as pl
import pytest

from stateanalytics.core.windows import read_window
from stateanalytics.errors import MissingColumnsError
from stateanalytics.state.definitions import LEFT_OUT
from stateanalytics.state.population import counted, population, within
from tests.frames import AS_OF, DONE, LEGACY, RUNNING, ago, facts, states_of

WEEK = read_window(("2026-05-18", "2026-05-25"), as_of=AS_OF)
IN_WEEK = ago(days=3)
BEFORE = ago(days=20)


def placed(entities, states, window=WEEK):
    given = facts(entities)
    rows = population(given.entities, states_of(given, states), as_of=AS_OF)
    return within(rows, window, as_of=AS_OF)


@pytest.mark.parametrize(
    ("entity", "state", "is_in"),
    [
        pytest.param({"ended_at": IN_WEEK, "started_at": BEFORE}, DONE, True, id="by its end"),
        pytest.param(
            {"ended_at": BEFORE, "created_at": IN_WEEK}, DONE, False, id="end comes first"
        ),
        pytest.param({"started_at": IN_WEEK}, DONE, True, id="else by its start"),
        pytest.param({"created_at": IN_WEEK}, DONE, True, id="else by its creation"),
        pytest.param({"ended_at": WEEK.since}, DONE, True, id="the first moment is in"),
        pytest.param({"ended_at": WEEK.until}, DONE, False, id="the last moment is not"),
        pytest.param({"started_at": BEFORE}, RUNNING, True, id="open and begun before: in"),
        pytest.param({"started_at": ago(days=1)}, RUNNING, False, id="open but begun later: not"),
        pytest.param({"started_at": BEFORE}, LEGACY, False, id="legacy is not open"),
        pytest.param({}, DONE, True, id="undated: in, to be counted as left out"),
        pytest.param({"ended_at": ago(days=-3)}, DONE, False, id="later than a past window"),
    ],
)
def test_the_window_holds_what_belongs_to_it(entity, state, is_in):
    assert (placed([{"entity_id": "a", **entity}], [state]).height == 1) is is_in


@pytest.mark.parametrize(
    ("entity", "state", "left_out"),
    [
        pytest.param({}, DONE, None, id="counted"),
        pytest.param({}, RUNNING, None, id="running is counted"),
        pytest.param({}, LEGACY, "legacy", id="legacy"),
        pytest.param({}, {"is_legacy": None}, "legacy", id="nothing derived"),
        pytest.param({"recorded_by": "mirrored"}, DONE, "mirrored", id="mirrored"),
        pytest.param({"recorded_by": "imported"}, DONE, "imported", id="imported"),
        pytest.param({"recorded_by": "mirrored"}, LEGACY, "legacy", id="legacy comes first"),
        pytest.param({"ended_at": None}, DONE, "undated", id="undated"),
        pytest.param({"recorded_by": "live"}, DONE, None, id="live"),
    ],
)
def test_what_is_left_out_says_why(entity, state, left_out):
    rows = placed([{"entity_id": "a", "ended_at": IN_WEEK, **entity}], [state])
    assert rows["left_out"].to_list() == [left_out]
    assert left_out is None or left_out in LEFT_OUT
    assert counted(rows).height == (left_out is None)


def test_what_ends_after_as_of_is_left_out_and_not_lost():
    now = read_window(None, as_of=AS_OF)
    rows = placed([{"entity_id": "a", "ended_at": ago(hours=-2)}], [DONE], now)
    assert rows["left_out"].to_list() == ["future"]


def test_open_work_is_placed_at_as_of():
    rows = placed([{"entity_id": "a", "started_at": BEFORE}], [RUNNING])
    assert rows.select("is_open", "placed_at").row(0) == (True, AS_OF)


def test_rows_keep_their_order_and_are_never_multiplied():
    entities = [{"entity_id": str(n % 3), "ended_at": IN_WEEK} for n in range(9)]
    assert placed(entities, [DONE] * 9)["entity_id"].to_list() == list("012012012")


def test_entities_without_a_state_are_left_out():
    given = facts([{"entity_id": "a", "ended_at": IN_WEEK}])
    rows = population(given.entities, states_of(facts([]), []), as_of=AS_OF)
    assert rows["left_out"].to_list() == ["legacy"]


def test_counted_narrows_to_one_type():
    rows = placed(
        [
            {"entity_id": "a", "ended_at": IN_WEEK},
            {"entity_id": "p", "entity_type": "play", "ended_at": IN_WEEK},
        ],
        [DONE, DONE],
    )
    assert counted(rows, "play")["entity_id"].to_list() == ["p"]
    assert counted(rows).height == 2


def test_nothing_gives_no_rows():
    assert placed([], []).is_empty()


def test_missing_columns_are_named():
    given = facts([])
    with pytest.raises(MissingColumnsError, match=r"population \(states\)[\s\S]*severity"):
        population(given.entities, pl.DataFrame(), as_of=AS_OF)
