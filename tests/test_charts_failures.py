"""Failures drawn: the namespace of codes, clusters over time, incidents."""

import itertools
import re
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.charts import chart_failure_codes, chart_failure_trend, chart_incidents, to_svg

SINCE = datetime(2026, 5, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def frames(demo):
    names = ("codes", "clusters", "incidents")
    return {name: getattr(sa.failures, name)(demo, window="2026-W21") for name in names}


def drawings(frames):
    return {
        "codes": chart_failure_codes(frames["codes"]),
        "clusters": chart_failure_trend(frames["clusters"], since=SINCE),
        "incidents": chart_incidents(frames["incidents"]),
    }


def test_a_frame_fits_into_csv_and_gives_its_lists_when_asked(frames, demo):
    for frame in frames.values():
        assert frame.height < frame.write_csv().count("\n")
        assert not any(dtype.is_nested() for dtype in frame.dtypes)
    nested = sa.failures.incidents(demo, window="2026-W21", nested=True)
    texts = nested["cluster_ids"].list.join(", ").to_list()
    assert texts == frames["incidents"]["cluster_ids"].to_list()


def test_every_node_lies_within_its_parent_and_siblings_do_not_overlap(frames):
    drawn = chart_failure_codes(frames["codes"]).data
    spans = {row["code"]: (row["start"], row["end"]) for row in drawn.iter_rows(named=True)}
    for row in drawn.filter(pl.col("parent").is_not_null()).iter_rows(named=True):
        begin, end = spans[row["parent"]]
        assert begin <= row["start"] <= row["end"] <= end
    for _, level in drawn.group_by("depth"):
        ends = level.sort("start").select("start", "end").rows()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


def test_the_icicle_is_as_wide_as_all_rows(frames):
    drawn = chart_failure_codes(frames["codes"]).data
    assert drawn["end"].max() == frames["codes"].filter(depth=1)["n_rows"].sum()


def test_cells_of_a_cluster_add_up_to_its_rows(frames):
    drawn = chart_failure_trend(frames["clusters"], since=SINCE).data
    sums = drawn.group_by("name", maintain_order=True).agg(pl.col("n").sum())["n"].to_list()
    assert sums == frames["clusters"].sort("rank").head(12)["n_rows"].to_list()
    assert drawn["step"].unique(maintain_order=True).to_list()[0] == "Mon 18"


def test_the_fan_out_is_one_incident_with_its_words(frames):
    drawn = chart_incidents(frames["incidents"]).data
    assert "25 rows, 24 sessions: invocation" in drawn["words"].to_list()


def test_an_incident_is_named_by_what_to_fix(frames):
    titles = dict(frames["clusters"].select("template", "title").iter_rows())
    incidents = frames["incidents"]
    assert incidents.height > 1
    assert incidents["title"].to_list() == [titles[text] for text in incidents["template"]]
    drawn = chart_incidents(incidents).data
    for name, title in drawn.select("name", "title").iter_rows():
        assert title.startswith(name.split(" ", 1)[1].rstrip("… "))
        assert "<*>" not in name
    old = chart_incidents(incidents.drop("title")).data
    assert old["name"][0] != drawn["name"][0], "a frame of your own may have no titles"


@pytest.mark.slow
def test_long_words_of_an_incident_do_not_widen_the_drawing():
    def view_box(linked_by: str) -> str:
        begins = [SINCE + timedelta(hours=hours) for hours in (0, 30, 45, 55, 100)]
        incidents = pl.DataFrame({"since": begins, "until": begins}).with_columns(
            incident_id=pl.format("i{}", pl.int_range(pl.len())),
            n_rows=5, n_sessions=2, code=pl.lit("x"), template=pl.lit("t"),
            linked_by=pl.lit(linked_by),
        )  # fmt: skip
        svg = to_svg(chart_incidents(incidents), name="x", label="x")
        return re.search(r'viewBox="([^"]*)"', svg)[1]

    assert view_box("provider, " * 40) == view_box("time")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codes", "clusters", "incidents"])
def test_nothing_is_a_drawing_too(frames, name):
    empty = {key: frame.clear() for key, frame in frames.items()}
    assert to_svg(drawings(empty)[name], name="x", label="x")


@pytest.mark.slow
def test_the_report_tells_the_fan_out_once(demo_week):
    section = demo_week.summary["failures"]
    largest = section["together"]["incidents"][0]
    assert (largest["n_sessions"], largest["n_rows"], largest["lasted"]) == (24, 25, "47 s")
    fan_out = next(one for one in section["clusters"] if "429" in one["template"])
    assert (fan_out["n_rows"], fan_out["n_causes"]) == (27, 4)
    assert {"new", "ongoing"} == {one["state"] for one in section["clusters"]}
