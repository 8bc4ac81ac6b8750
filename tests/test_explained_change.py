"""What explains a change of the share of runs that complete: parts that add up."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.explained import REST
from stateanalytics.reporting.story import _explained
from tests.examples import examples
from tests.failures import run, store
from tests.frames import AS_OF, ago

NOW, BEFORE = (ago(days=7), AS_OF), (ago(days=14), ago(days=7))
ENDS = {
    "well": {"status": "completed"},
    "poetry": {"reason_message": "Bash exited with code 127: poetry: not found"},
    "quota": {"reason_message": "API Error: 429 rate limit", "provider": "codex"},
    "stopped": {"status": "cancelled"},
}


def ended(end, n, *, days, **rest):
    rest |= ENDS[end]
    return [run(f"{end}-{days}-{i}", ended=ago(days=days, minutes=i), **rest) for i in range(n)]


def explained(*rows, **asked):
    return sa.failures.explained_change(store(*rows), window=NOW, before=BEFORE, **asked)


def test_by_hand():
    found = explained(
        *ended("well", 10, days=1, project="web"),
        *ended("poetry", 8, days=1, project="mobile"),
        *ended("quota", 2, days=1, project="web"),
        *ended("well", 9, days=9, project="web"),
        *ended("stopped", 1, days=9, project="web"),
    )
    rows = {row["part"]: row for row in found.to_dicts()}
    assert found["n"].to_list() == [8, 2, 0]
    assert found["n_before"].to_list() == [0, 0, 1]
    assert found["change"].round(9).to_list() == [0.4, 0.1, -0.1]
    assert found["n_runs"].unique().to_list() == [20]
    first = found.row(0, named=True)
    assert (first["dimension"], first["value"], first["n_in"]) == ("project", "mobile", 8)
    assert first["low"] < 0.4 < first["high"]
    assert "poetry" in first["title"]
    assert rows["cancelled"]["title"] == "cancelled"
    # Ten of twenty did not complete, of before one of ten.
    assert found["change"].sum() == pytest.approx(0.5 - 0.1)


def test_what_got_better_comes_first_where_all_got_better():
    found = explained(
        *ended("well", 10, days=1), *ended("quota", 1, days=1),
        *ended("well", 5, days=9), *ended("poetry", 5, days=9),
    )  # fmt: skip
    assert found["change"].round(3).to_list() == [-0.5, 0.091]


def test_more_work_alone_is_no_change():
    rows = [("well", 8, 1), ("quota", 2, 1), ("well", 4, 9), ("quota", 1, 9)]
    found = explained(*(row for end, n, days in rows for row in ended(end, n, days=days)))
    assert found["change"].to_list() == [0.0]
    assert found["dimension"].to_list() == [None]


@pytest.mark.slow
def test_only_so_many_are_named_and_the_rest_is_one_part():
    rows = [
        *ended("well", 4, days=1), *ended("quota", 3, days=1), *ended("poetry", 2, days=1),
        *ended("stopped", 1, days=1), *ended("well", 4, days=9),
    ]  # fmt: skip
    every, one, none = (explained(*rows, n=n) for n in (None, 1, 0))
    assert [len(found) for found in (every, one, none)] == [3, 2, 1]
    assert one["part"].to_list() == [every["part"][0], REST]
    assert none["part"].to_list() == [REST]
    for found in (one, none):
        assert found["change"].sum() == pytest.approx(every["change"].sum())


@pytest.mark.slow
def test_nothing_to_compare_is_no_row():
    well = [*ended("well", 1, days=1), *ended("well", 1, days=9)]
    for rows in ([], ended("quota", 1, days=1), ended("quota", 1, days=9), well):
        assert explained(*rows).is_empty()
    unplaced = {**run("x", reason_message="no"), "started_at": None, "created_at": None}
    bare = {name: None for name in unplaced if name not in ("entity_id", "raw_status")}
    assert explained({**unplaced, **bare}, *ended("well", 1, days=9)).is_empty()


@pytest.mark.parametrize("n", [-1, 1.5, "three"])
def test_a_number_of_parts_is_one(n):
    with pytest.raises(ArgumentError, match="n "):
        explained(n=n)


def test_what_is_shown_adds_up_after_rounding():
    parts = [{"part": str(i), "title": "x", "value": None, "change": 0.014} for i in range(3)]
    since = read_window(NOW, as_of=AS_OF).since
    words = _explained([*parts, {**parts[0], "part": REST, "change": 0.006}], since, "all before")
    assert "the share of incomplete runs rose by 5 points against all before: " in words
    assert words.endswith("“x” +1, “x” +1, “x” +1 and others +2.")


PROJECTS = st.sampled_from([None, "a", "b"])
weeks = st.lists(
    st.tuples(st.sampled_from([*ENDS]), st.sampled_from([1, 9]), PROJECTS), max_size=30
)


@pytest.mark.slow
@given(weeks)
@examples(30)
def test_the_parts_add_up_whatever_the_order(drawn):
    rows = [
        run(f"{i}", ended=ago(days=days, minutes=i), project=project, **ENDS[end])
        for i, (end, days, project) in enumerate(drawn)
    ]
    found = explained(*rows)
    of = {days: [end for end, day, _ in drawn if day == days] for days in (1, 9)}
    if not of[1] or not of[9]:
        assert found.is_empty()
        return
    bad = {days: sum(end != "well" for end in ends) for days, ends in of.items()}
    now, before = (Fraction(bad[days], len(of[days])) for days in (1, 9))
    assert found["change"].sum() == pytest.approx(float(now - before), abs=1e-9)
    assert found["n"].sum() == now * len(of[1])
    assert found["part"].is_unique().all()
    assert explained(*reversed(rows)).equals(found)
    assert found.filter(pl.col("low") > pl.col("change") + 1e-9).is_empty()
