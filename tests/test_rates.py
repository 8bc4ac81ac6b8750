"""Rates over steps of time: counted by hand, drawn, and asked for again in SQL."""

from datetime import timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.charts import chart_rate
from stateanalytics.charts.over_time import MEASURES
from stateanalytics.errors import ArgumentError
from tests.frames import ago, facts
from tests.test_report import run


def ended(name, status, hours, **rest):
    times = {"started_at": ago(hours=hours + 1), "ended_at": ago(hours=hours)}
    return run(name, status, **{**times, **rest})


RUNS = [
    ended("a", "failed", 25, project="x", cost_usd=1.0),
    ended("b", "completed", 25.5, project="x", cost_usd=2.0),
    ended("c", "timed_out", 26, project="y"),
    ended("d", "completed", 49, project=None, cost_usd=4.0),
    run("open", "running", project="x", cost_usd=8.0),
]


def test_every_run_that_ended_is_in_the_step_of_its_end():
    found = sa.failures.rates(facts(RUNS), by="project")
    columns = ("value", "n_ended", "n_failed", "cost_usd", "failed_cost_usd", "n_cost_unreported")
    assert found.select(columns).rows() == [
        ("(none)", 1, 0, 4.0, 0.0, 0),
        ("x", 2, 1, 3.0, 1.0, 0),
        ("y", 1, 1, 0.0, 0.0, 1),
    ]
    assert (found["until"] - found["step_at"]).unique().to_list() == [timedelta(days=1)]
    assert found["share"].to_list() == [0.0, 0.5, 1.0]
    assert (found["share_low"] <= found["share"]).all()
    assert sa.failures.rates(facts(RUNS))["n_ended"].sum() == 4
    assert sa.failures.rates(facts([])).is_empty()


def test_values_with_few_runs_are_the_others_and_none_is_lost():
    found = sa.failures.rates(facts(RUNS), by="project", top=1)
    by_value = dict(found.group_by("value").agg(pl.col("n_ended").sum()).rows())
    assert by_value == {"x": 2, "(others)": 2}


def test_steps_add_up_to_the_same_however_long(demo):
    sums = {
        every: sa.failures.rates(demo, every=every).select("n_ended", "n_failed").sum().row(0)
        for every in ("1h", "1d", "1w")
    }
    assert len(set(sums.values())) == 1


@pytest.mark.parametrize("of", MEASURES)
def test_every_measure_is_drawn(of, demo):
    drawn = chart_rate(demo, by="model", of=of, window="2026-W21").to_dict()
    assert drawn["layer"][-1]["encoding"]["y"]["field"] == MEASURES[of][0]


@pytest.mark.parametrize("by", ["project", "teams.owner"])
def test_what_is_chosen_is_sql_for_the_runs_of_that_step(by, demo):
    owners = pl.DataFrame({"project": ["billing", "mobile"], "owner": ["ann", "it's bob"]})
    snap = demo.with_table("teams", owners)
    chart = chart_rate(snap, by=by, every="7d", window="2026-W21")
    live = chart.live()
    for value in chart.data["value"].unique():
        row = chart.data.filter(value=value).sort("n_ended").row(-1, named=True)
        at = {name: int(row[name].timestamp() * 1000) for name in ("step_at", "until")}
        live._vl_selections = {
            **live._vl_selections,
            "chosen_rates": {"value": {"vlPoint": {"or": [{"value": value, **at}]}}, "store": []},
        }
        assert live.selected["n_ended"].to_list() == [row["n_ended"]]
        assert snap.sql(live.sql).height == row["n_ended"]


def test_what_is_no_column_step_or_measure_is_said(demo):
    with pytest.raises(ArgumentError, match=r"no column 'projekt'(.|\n)*'project'"):
        sa.failures.rates(demo, by="projekt")
    for every in ("often", "0d", ""):
        with pytest.raises(ArgumentError, match=f"length of a step; found '{every}'"):
            sa.failures.rates(demo, every=every)
    for top in ("x", None, 2.5, -1):
        with pytest.raises(ArgumentError, match="top counts values"):
            sa.failures.rates(demo, by="project", top=top)
    with pytest.raises(ArgumentError, match="no measure 'luck'"):
        chart_rate(demo, of="luck")
