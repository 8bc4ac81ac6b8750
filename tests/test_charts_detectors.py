"""Detectors side by side: which sets flag the same rows, and how that is drawn."""

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stateanalytics.charts import chart_alarms, chart_disagreement, chart_intersections
from stateanalytics.detectors.comparing import intersections
from stateanalytics.detectors.frames import INTERSECTIONS
from stateanalytics.errors import ArgumentError, MissingColumnsError

AT = datetime(2026, 5, 25, tzinfo=UTC)
HOSTILE = "</script><img src=x onerror=alert(1)>"


def detections(rows):
    """Entity, detector, fires."""
    of = {"source": "s", "system": "lionagi", "entity_type": "session", "at": AT}
    dicts = [
        {**of, "entity_id": entity, "detector": detector, "fires": fires}
        for entity, detector, fires in rows
    ]
    types = {"fires": pl.Boolean, "at": pl.Datetime("us", "UTC")}
    return pl.DataFrame(dicts, schema_overrides=types)


ROWS = [
    ("x", "stale", True), ("x", "stuck", True),
    ("y", "stale", False), ("y", "stuck", True),
    ("z", "stale", None), ("z", "stuck", True),
    ("w", "stale", False), ("w", "stuck", False), ("w", "quiet", False),
]  # fmt: skip


def sets(rows, **how):
    found = intersections(detections(rows), **how)
    members = found.filter("is_member").group_by("rank", "n", maintain_order=True).agg("detector")
    return [tuple(row) for row in members.rows()]


def test_each_set_counts_the_rows_that_exactly_it_flags():
    assert sets(ROWS) == [(1, 2, ["stuck"]), (2, 1, ["stale", "stuck"])]


def test_detectors_that_flag_nothing_and_rows_that_nobody_flags_are_left_out():
    found = intersections(detections(ROWS))
    assert sorted(found["detector"].unique()) == ["stale", "stuck"]
    assert found["n"].sum() == 2 * (2 + 1)


def test_sets_do_not_depend_on_order_or_repetition():
    assert sets([*reversed(ROWS), *ROWS]) == sets(ROWS)


def test_only_the_largest_sets_are_kept():
    assert sets(ROWS, most=1) == [(1, 2, ["stuck"])]


@pytest.mark.parametrize("rows", [[], [("x", "stale", None)], [("x", "stale", False)]])
def test_nothing_flagged_is_an_empty_frame(rows):
    found = intersections(detections(rows) if rows else detections(ROWS).clear())
    assert found.is_empty()
    assert found.schema == INTERSECTIONS.empty().schema
    chart_intersections(found).to_dict()


def test_what_is_wrong_with_the_input_is_said():
    with pytest.raises(MissingColumnsError, match="intersections"):
        intersections(pl.DataFrame({"a": [1]}))
    with pytest.raises(ArgumentError, match="at least 1; found 0"):
        intersections(detections(ROWS), most=0)


PAIRS = pl.DataFrame(
    {"a": ["x", "x", "y"], "b": ["y", HOSTILE, HOSTILE], "n": [10, 10, 0],
     "n_only_a": [4, 0, 0], "n_only_b": [1, 7, 0]}
)  # fmt: skip


def cells(chart):
    return {(row["flags"], row["silent"]): row["shown"] for row in chart.data.iter_rows(named=True)}


def test_the_matrix_has_both_directions_of_each_pair_and_a_dash_where_nothing_is_shared():
    found = cells(chart_disagreement(PAIRS))
    shown = {("x", "y"): "4", ("y", "x"): "1", (HOSTILE, "x"): "7", ("y", HOSTILE): "–"}
    assert shown.items() <= found.items()


def test_the_matrix_shows_the_detectors_that_were_asked_for_in_their_order():
    chart = chart_disagreement(PAIRS, detectors=["y", "x"])
    assert set(cells(chart)) == {("x", "y"), ("y", "x")}
    assert json.dumps(chart.to_dict()).count('"sort": ["y", "x"]') >= 2


ALARMS = pl.DataFrame(
    {
        "detector": ["late", HOSTILE],
        "started_at": [AT + timedelta(hours=2), AT],
        "ended_at": [AT + timedelta(hours=3), AT + timedelta(hours=1)],
        "is_censored": [True, False],
    }
)
EVENTS = pl.DataFrame({"at": [AT + timedelta(minutes=n) for n in range(5_000)]})


def test_the_timeline_thins_its_ticks_and_orders_detectors_by_their_first_alarm():
    spec = chart_alarms(EVENTS, ALARMS).to_dict()
    rows = {len(one) for one in spec["datasets"].values()}
    assert rows == {2, 1_667}
    assert '"domain": ["signs of life", "</script>' in json.dumps(spec)


def test_a_missing_column_of_the_timeline_is_named():
    with pytest.raises(MissingColumnsError, match="chart_alarms"):
        chart_alarms(EVENTS, pl.DataFrame({"detector": ["x"]}))
