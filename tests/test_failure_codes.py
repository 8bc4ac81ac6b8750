"""Failures by reason code: nodes of the namespace, distinct causes, shares and trends."""

import random

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.state.definitions import cause_key
from tests.failures import fan_out, run, store
from tests.frames import ago, facts

CODE = "run.failed.exception"


def nodes(*rows, **asked):
    return sa.failures.codes(store(*rows), **asked)


def leaves(*rows, **asked):
    return nodes(*rows, **asked).filter("is_leaf")


def test_a_node_counts_all_below_it_and_causes_once():
    dead = run("c", reason_code="session.phantom.process_dead")
    of_code = [run(name, reason_code=CODE) for name in "ab"]
    found = nodes(*fan_out(5), *of_code, dead, run("d"))
    assert found.select("code", "parent", "depth", "is_leaf", "n_rows", "n_causes").rows() == [
        ("run", None, 1, False, 7, 3),
        ("run.failed", "run", 2, False, 7, 3),
        (CODE, "run.failed", 3, True, 2, 2),
        ("run.failed.provider_retryable", "run.failed", 3, True, 5, 1),
        ("session", None, 1, False, 1, 1),
        ("session.phantom", "session", 2, False, 1, 1),
        ("session.phantom.process_dead", "session.phantom", 3, True, 1, 1),
        (None, None, 1, True, 1, 1),
    ]


def test_rows_without_an_invocation_or_a_code_are_a_cause_each():
    assert leaves(*(run(str(n), reason_code=CODE) for n in range(5)))["n_causes"].to_list() == [5]
    found = leaves(*(run(str(n), invocation_id="i") for n in range(3)))
    assert found.select("code", "n_rows", "n_causes").rows() == [(None, 3, 3)]


def causes_of_lionagi(entities: pl.DataFrame) -> int:
    """lionagi's own query, row by row: the slow and obvious version."""
    pairs = set()
    for row in entities.iter_rows(named=True):
        own = f"session:{row['session_id']}"
        group = own if row["invocation_id"] is None else f"invocation:{row['invocation_id']}"
        reason = own if row["reason_code"] is None else f"reason:{row['reason_code']}"
        pairs.add((row["source"], group, reason))
    return len(pairs)


def n_causes(rows):
    return facts(rows).entities.select(cause_key().n_unique()).item()


def test_causes_equal_lionagis_query_on_random_rows():
    chance = random.Random(7)
    groups, reasons = [None, None, "i", "j", "k"], [None, "a.b.c", "d.e.f", "session:3"]
    rows = [
        run(str(n % 70), invocation_id=chance.choice(groups), reason_code=chance.choice(reasons))
        for n in range(200)
    ]
    assert n_causes(rows) == causes_of_lionagi(facts(rows).entities)
    assert n_causes(chance.sample(rows, 200)) == n_causes(rows)


def test_an_id_like_a_code_and_rows_of_two_stores_stay_apart():
    assert n_causes([run("x", reason_code="y"), run("y", invocation_id="x")]) == 2
    of_one = {"invocation_id": "i", "reason_code": CODE}
    assert n_causes([run("a", source=name, **of_one) for name in "xy"]) == 2


def test_only_failures_that_rates_may_count_are_there():
    found = leaves(
        run("done", status="completed"),
        run("open", status="running", ended_at=None),
        run("legacy", status="of another age"),
        run("mirror", recorded_by="mirrored"),
        run("branch", entity_type="branch"),
        run("aborted", status="aborted"),
        run("late", status="timed_out", reason_code=CODE),
        run("play", status="escalated", entity_type="play", reason_code="play.failed.gate"),
    )
    counts = found.select("code", "n_rows", "n_failed", "n_timed_out", "n_sessions")
    assert counts.rows() == [("play.failed.gate", 1, 1, 0, 0), (CODE, 1, 0, 1, 1)]


def test_the_window_narrows():
    rows = [run("a", ended=ago(days=2)), run("b", ended=ago(days=9))]
    assert leaves(*rows)["n_rows"].sum() == 2
    found = leaves(*rows, window="2026-W21")
    assert found.select("n_rows", "first_at", "last_at").rows() == [(1, ago(days=9), ago(days=9))]


def test_shares_are_of_distinct_causes_with_an_interval():
    found = nodes(*fan_out(9), run("a", reason_code="play.failed.gate"))
    top = found.filter(pl.col("code") == "run").row(0, named=True)
    assert top["share"] == 0.5
    assert top["share_low"] < 0.5 < top["share_high"]


def test_codes_that_nobody_registered_keep_their_name():
    found = nodes(run("a", reason_code="word"), run("b", reason_code="made.up"))
    assert found["code"].to_list() == ["made", "made.up", "word"]
    assert found["meaning"].null_count() == 3


def test_a_code_that_is_also_the_head_of_another_is_a_leaf_and_a_node():
    found = nodes(run("a", reason_code="a.b"), run("b", reason_code="a.b.c"))
    row = found.filter(pl.col("code") == "a.b").row(0, named=True)
    assert (row["is_leaf"], row["n_rows"]) == (True, 2)


@pytest.mark.slow
def test_the_sample_adds_up(demo):
    roots = sa.failures.codes(demo).filter(depth=1)
    assert roots["n_rows"].sum() == sa.failures.members(demo).height
    assert roots["share"].sum() == pytest.approx(1.0)
    assert len({tuple(sa.failures.codes(demo, of="calls")["run_s"]) for _ in range(5)}) == 1
