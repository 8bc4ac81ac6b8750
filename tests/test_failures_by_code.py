"""Failures by reason code, and lionagi's key of a distinct cause."""

import random

import polars as pl
import pytest

from stateanalytics.errors import MissingColumnsError
from stateanalytics.failures.counting import count_causes
from tests.frames import DONE, FAILED, LEGACY, RUNNING, TIMED_OUT, ago, facts, states_of
from tests.report_parts import failures_by_code

CODE = "run.failed.exception"


def row(entity_id, **rest):
    return {"entity_id": entity_id, "ended_at": ago(days=1), **rest}


def counted(entities, states, **asked):
    given = facts(entities)
    return failures_by_code(given, states_of(given, states), **asked)


def causes_of_lionagi(entities: pl.DataFrame) -> int:
    """lionagi's own query, row by row: the slow and obvious version."""
    pairs = set()
    for one in entities.iter_rows(named=True):
        own = f"session:{one['session_id']}"
        group = own if one["invocation_id"] is None else f"invocation:{one['invocation_id']}"
        reason = own if one["reason_code"] is None else f"reason:{one['reason_code']}"
        pairs.add((one["source"], group, reason))
    return len(pairs)


def test_a_fan_out_with_one_reason_is_one_cause():
    rows = [row(str(n), invocation_id="i", reason_code=CODE) for n in range(24)]
    found = counted(rows, [FAILED] * 24)
    assert found.select("code", "n_rows", "n_sessions", "n_causes").rows() == [(CODE, 24, 24, 1)]


def test_rows_without_an_invocation_are_not_folded_into_one():
    rows = [row(str(n), reason_code=CODE) for n in range(5)]
    assert counted(rows, [FAILED] * 5)["n_causes"].to_list() == [5]


def test_rows_without_a_code_are_a_cause_each_and_keep_a_null_code():
    rows = [row(str(n), invocation_id="i") for n in range(3)]
    found = counted(rows, [FAILED] * 3)
    assert found.select("code", "n_rows", "n_causes", "example").rows() == [(None, 3, 3, None)]


def test_an_id_that_looks_like_a_code_stays_apart_from_it():
    rows = [row("x", reason_code="y"), row("y", invocation_id="x")]
    assert count_causes(facts(rows).entities) == 2


def test_two_stores_never_share_a_cause():
    rows = [row("a", source=name, invocation_id="i", reason_code=CODE) for name in ("x", "y")]
    assert count_causes(facts(rows).entities) == 2


def test_causes_equal_lionagis_query_on_random_rows():
    chance = random.Random(7)
    rows = [
        row(
            str(n % 70),
            invocation_id=chance.choice([None, None, "i", "j", "k"]),
            reason_code=chance.choice([None, "a.b.c", "d.e.f", "session:3"]),
        )
        for n in range(200)
    ]
    entities = facts(rows).entities
    assert count_causes(entities) == causes_of_lionagi(entities)
    assert count_causes(entities.sample(fraction=1, shuffle=True, seed=1)) == count_causes(entities)


def test_timeouts_are_counted_and_kept_apart():
    rows = [row("a", reason_code=CODE), row("b", reason_code=CODE)]
    found = counted(rows, [FAILED, TIMED_OUT])
    assert found.select("n_rows", "n_failed", "n_timed_out").rows() == [(2, 1, 1)]


def test_the_newest_message_is_the_example_and_first_and_last_are_seen():
    rows = [
        row("a", reason_code=CODE, reason_message="older", ended_at=ago(days=3)),
        row("b", reason_code=CODE, reason_message="newer", ended_at=ago(days=2)),
        row("c", reason_code=CODE, reason_message="", ended_at=ago(days=1)),
    ]
    expected = (ago(days=3), ago(days=1), "newer")
    for order in (rows, rows[::-1]):
        assert (
            counted(order, [FAILED] * 3).select("first_at", "last_at", "example").row(0) == expected
        )


def test_shares_are_of_all_failed_rows_and_most_causes_come_first():
    rows = [row(str(n), reason_code="few.rows.one", invocation_id="i") for n in range(3)]
    rows.append(row("z", reason_code="one.row.one"))
    found = counted(rows, [FAILED] * 4)
    assert found.select("code", "share_of_rows").rows() == [
        ("few.rows.one", 0.75),
        ("one.row.one", 0.25),
    ]


def test_only_failures_that_rates_may_count_are_there():
    rows = [
        row("done"),
        row("open", ended_at=None, started_at=ago(hours=1)),
        row("legacy"),
        row("mirror", recorded_by="mirrored"),
        row("branch", entity_type="branch"),
        row("play", entity_type="play", reason_code="play.failed.gate"),
    ]
    found = counted(rows, [DONE, RUNNING, LEGACY, FAILED, FAILED, FAILED])
    assert found.select("code", "n_rows", "n_sessions").rows() == [("play.failed.gate", 1, 0)]


def test_other_ends_can_be_asked_for():
    aborted = {**FAILED, "lifecycle": "aborted", "outcome": "aborted"}
    assert counted([row("a")], [aborted]).is_empty()
    assert counted([row("a")], [aborted], outcomes=["aborted"])["n_rows"].to_list() == [1]


def test_the_window_narrows():
    rows = [row("a", ended_at=ago(days=2)), row("b", ended_at=ago(days=9))]
    assert counted(rows, [FAILED] * 2)["n_rows"].sum() == 2
    assert counted(rows, [FAILED] * 2, window="2026-W21")["n_rows"].sum() == 1


def test_nothing_failed_gives_no_rows_of_the_same_shape():
    nothing, something = counted([], []), counted([row("a")], [FAILED])
    assert nothing.is_empty()
    assert nothing.schema == something.schema


def test_count_causes_names_missing_columns():
    with pytest.raises(MissingColumnsError, match="count_causes needs columns"):
        count_causes(pl.DataFrame({"source": ["x"]}))
