"""Failures over the namespace of reason codes."""

import polars as pl
import pytest

import stateanalytics as sa
from tests.failures import fan_out, run, store


def nodes(*rows, **asked):
    return sa.failures.codes(store(*rows), **asked)


def test_a_node_counts_all_below_it_and_causes_once():
    found = nodes(
        *fan_out(5),
        run("a", reason_code="run.failed.exception"),
        run("b", reason_code="run.failed.exception"),
        run("c", reason_code="session.phantom.process_dead"),
        run("d"),
    )
    assert found.select("code", "parent", "depth", "is_leaf", "n_rows", "n_causes").rows() == [
        ("run", None, 1, False, 7, 3),
        ("run.failed", "run", 2, False, 7, 3),
        ("run.failed.exception", "run.failed", 3, True, 2, 2),
        ("run.failed.provider_retryable", "run.failed", 3, True, 5, 1),
        ("session", None, 1, False, 1, 1),
        ("session.phantom", "session", 2, False, 1, 1),
        ("session.phantom.process_dead", "session.phantom", 3, True, 1, 1),
        (None, None, 1, True, 1, 1),
    ]


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


def test_nothing_gives_no_rows_of_the_same_shape():
    assert nodes().is_empty()
    assert nodes().schema == nodes(run("a")).schema


def test_the_sample_adds_up(demo):
    found = sa.failures.codes(demo)
    roots = found.filter(pl.col("depth") == 1)
    assert roots["n_rows"].sum() == sa.failures.members(demo).height
    assert roots["share"].sum() == pytest.approx(1.0)
