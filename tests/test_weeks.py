"""Every week as it stood at its end: by hand, as the report says it, and where nothing is known."""

import re
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stateanalytics.charts import chart_weeks, to_svg
from stateanalytics.cli import run
from stateanalytics.core.windows import read_window, weeks_up_to
from stateanalytics.errors import MissingColumnsError
from stateanalytics.reporting import report
from stateanalytics.state.population import HEADLINE
from stateanalytics.systems.history import facts_at
from stateanalytics.weekly import UNITS, WEEKS, weekly_numbers
from tests.conftest import ROOT
from tests.examples import a_few
from tests.frames import facts

MONDAY = datetime(2026, 5, 18, tzinfo=UTC)
"""Of week 2026-W21."""
AS_OF = MONDAY + timedelta(days=9)


def at(days):
    return MONDAY + timedelta(days=days)


def run_of(identity, status="completed", *, began, lasted_s=600.0, **columns):
    """A run that began so many days after the Monday; None: it goes on."""
    began_at = at(began)
    ended_at = None if lasted_s is None else began_at + timedelta(seconds=lasted_s)
    return {
        "entity_id": identity, "session_id": identity, "raw_status": status, "kind": "agent",
        "created_at": began_at, "started_at": began_at, "ended_at": ended_at,
        "updated_at": ended_at or began_at, "last_activity_at": ended_at or began_at,
        "end_written_by": "executor", **columns,
    }  # fmt: skip


def change_of(identity, status, days, previous="running"):
    return {
        "source": "state.db", "system": "lionagi", "entity_type": "session",
        "entity_id": identity, "at": at(days), "seq": 1, "status": status,
        "previous_status": previous,
    }  # fmt: skip


def numbers(weeks, measure, *columns, **group):
    kept = weeks.filter(measure=measure)
    kept = kept.filter(**group) if group else kept.filter(pl.col("group_kind").is_null())
    return kept.select("week", *columns or ["value"]).rows()


BY_HAND = [
    run_of("a", began=-6.0, lasted_s=300.0),
    run_of("b", "failed", began=-5.0, reason_code="run.failed.exception", invocation_id="i",
           reason_message="worker 4 died", cost_usd=1.5),
    run_of("c", "failed", began=-5.0, reason_code="run.failed.exception", invocation_id="i",
           reason_message="worker 7 died"),
    # Running at the end of its first week, timed out in the next.
    run_of("d", "timed_out", began=-1.0, lasted_s=3 * 86_400.0,
           reason_code="run.timed_out.deadline", reason_message="too long"),
    run_of("e", began=1.0, lasted_s=900.0),
]  # fmt: skip
HAND = facts(BY_HAND, as_of=AS_OF, transitions=[change_of("d", "timed_out", 2.0)])


@pytest.fixture(scope="module")
def four_by_hand():
    """One week of which nothing is known, and the three of `hand`."""
    return weekly_numbers(HAND, 4)


@pytest.fixture(scope="module")
def hand(four_by_hand):
    return four_by_hand.filter(pl.col("week") != "2026-W19")


@pytest.fixture(scope="module")
def demo_weeks(demo):
    return demo.weeks(5)


def test_weeks_by_hand(four_by_hand):
    weeks = four_by_hand
    assert weeks.schema == WEEKS.dtypes
    assert weeks.select("week", "coverage", "known_at").unique().sort("week").rows() == [
        ("2026-W19", "none", None),
        ("2026-W20", "part", MONDAY),
        ("2026-W21", "whole", MONDAY + timedelta(days=7)),
        ("2026-W22", "part", AS_OF),
    ]
    assert numbers(weeks, "runs") == [
        ("2026-W19", None), ("2026-W20", 4.0), ("2026-W21", 2.0), ("2026-W22", 0.0),
    ]  # fmt: skip
    assert numbers(weeks, "completed", "n", "n_of") == [
        ("2026-W19", None, None), ("2026-W20", 1, 3), ("2026-W21", 1, 2), ("2026-W22", 0, 0),
    ]  # fmt: skip
    assert numbers(weeks, "unresolved", "n_of")[1:] == [
        ("2026-W20", 1), ("2026-W21", 0), ("2026-W22", 0),
    ]  # fmt: skip
    assert numbers(weeks, "incidents", "value")[1:3] == [("2026-W20", 1.0), ("2026-W21", 1.0)]


def test_failures_by_code_and_cluster_with_their_cost(hand):
    weeks = hand
    code = {"group_kind": "code", "group_id": "run.failed.exception"}
    assert numbers(weeks, "failure_rows", **code) == [
        ("2026-W20", 2.0), ("2026-W21", 0.0), ("2026-W22", 0.0),
    ]  # fmt: skip
    assert numbers(weeks, "failure_cost_usd", "value", "n", "n_of", **code) == [
        ("2026-W20", 1.5, 1, 2), ("2026-W21", 0.0, 0, 0), ("2026-W22", 0.0, 0, 0),
    ]  # fmt: skip
    causes = weeks.filter(measure="failure_causes", group_kind="cluster", week="2026-W20")
    assert dict(causes.select("group_label", "value").rows()) == {
        "worker <*> died": 1.0, "too long": 0.0,
    }  # fmt: skip
    one = causes.filter(group_label="worker <*> died").row(0, named=True)
    assert (one["lower"], one["upper"]) == pytest.approx((0.0253178, 5.5716434))
    # Nobody told what the work that timed out cost: that is not nothing.
    late = {"group_kind": "code", "group_id": "run.timed_out.deadline"}
    assert numbers(weeks, "failure_cost_usd", "value", "n_of", **late)[1] == ("2026-W21", None, 1)


def test_medians_know_that_what_runs_on_took_at_least_so_long(hand):
    weeks = hand
    # Of the four of the first week one completed, two failed, and one was still running.
    assert numbers(weeks, "time_to_complete", "value", "n", "n_of") == [
        ("2026-W20", None, 1, 4), ("2026-W21", 900.0, 1, 1), ("2026-W22", None, 0, 0),
    ]  # fmt: skip
    by_kind = {"group_kind": "kind", "group_id": "agent"}
    assert numbers(weeks, "time_to_complete", **by_kind) == numbers(weeks, "time_to_complete")


@pytest.mark.slow
def test_a_week_that_is_over_does_not_change_with_time(hand):
    last_week = weekly_numbers(facts_at(HAND, at(7)).facts, 2, top=None)
    series = ["week", "measure", "group_kind", "group_id"]
    both = last_week.join(hand, on=series, nulls_equal=True, suffix="_now")
    assert both.height == last_week.height
    for name in ("coverage", "known_at", "value", "lower", "upper", "n", "n_of"):
        assert both[name].equals(both[f"{name}_now"].alias(name)), name


# A whole week and the last one, of which a part is known, at the desk as well.
@pytest.mark.parametrize("week", a_few(["2026-W21", "2026-W20", "2026-W19", "2026-W22"], 0))
def test_the_five_numbers_are_those_of_the_report_as_of_the_end_of_the_week(demo, demo_weeks, week):
    windows = {window.label[5:13]: window for window in weeks_up_to(demo.as_of, 4)}
    then = facts_at(demo, min(windows[week].until, demo.as_of)).facts
    said = report(then, window=week, compare=None, sections=[], shown=False).summary
    for number in said["headline"]["numbers"]:
        row = demo_weeks.filter(week=week, measure=number["name"]).row(0, named=True)
        assert (row["n"], row["n_of"]) == (number["n"], number["of"]), (week, number["name"])
        interval = number["interval"] or [None, None]
        assert [row["lower"], row["upper"]] == pytest.approx(interval)


def test_every_series_is_in_every_week(demo_weeks):
    weeks = demo_weeks
    series = ["measure", "group_kind", "group_id"]
    assert weeks.height == 5 * weeks.select(series).unique().height
    assert weeks.select("week", *series).is_duplicated().any() is False
    assert weeks["measure"].unique(maintain_order=True).to_list() == list(UNITS)
    inside = pl.col("value").is_between(pl.col("lower"), pl.col("upper"))
    assert weeks.select(inside.all()).item()


@pytest.mark.slow
def test_so_many_groups_of_a_kind_are_told_as_were_asked_for(demo, demo_weeks):
    groups = ("measure", "group_kind")
    three = demo.weeks(1, top=3)
    assert three.group_by(groups).len()["len"].max() == 3
    assert demo_weeks.filter(week="2026-W22").group_by(groups).len()["len"].max() == 10
    assert demo.weeks(1, top=0)["measure"].to_list() == list(UNITS)


@pytest.mark.parametrize("rows", [[], [run_of("one", began=3.0)], [{"entity_id": "undated"}]])
def test_little_or_nothing_gives_the_same_frame(rows):
    weeks = weekly_numbers(facts(rows, as_of=AS_OF), 3)
    assert weeks.schema == WEEKS.dtypes
    assert set(HEADLINE) < set(weeks["measure"])
    whole = weeks.filter(pl.col("group_kind").is_null())
    assert whole.height == 3 * len(UNITS)
    reached = ["none", "part", "part"] if rows and "started_at" in rows[0] else ["none"] * 3
    assert whole.filter(measure="runs")["coverage"].to_list() == reached
    assert whole.filter(coverage="none").select("value", "n", "known_at").null_count().row(0) == (
        len(whole.filter(coverage="none")),
    ) * 3  # fmt: skip


def test_a_week_that_ends_at_as_of_is_the_last_and_whole():
    weeks = weekly_numbers(facts(BY_HAND, as_of=MONDAY + timedelta(days=7)), 2)
    assert weeks["week"].unique(maintain_order=True).to_list() == ["2026-W20", "2026-W21"]
    assert weeks["coverage"].to_list()[-1] == "whole"


@pytest.mark.slow
def test_sql_and_the_command_say_the_same(demo, read_once, capsys):
    found = demo.sql("SELECT value FROM weeks WHERE measure = 'runs' ORDER BY week")
    runs = demo.weeks().filter(measure="runs")["value"]
    assert found["value"].equals(runs)
    store = str(ROOT / "data/samples/state.db")
    assert run(["report", store, "--weeks", "2", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ",".join(WEEKS.dtypes)
    assert len(lines) == 1 + 2 * len(UNITS)
    assert run(["report", store, "--weeks", "2"]) == 0
    told = capsys.readouterr()
    assert re.search(r"^2026-W21 +263 +57 % +9 % +65 +1 d 9 h", told.out, re.MULTILINE)
    assert "the data cover 2026-W22 only in part" in told.err
    assert run(["report", store, "--weeks", "1", "--limits", "--format", "csv"]) == 0
    assert "verdict,level_since" in capsys.readouterr().out
    for show, kind in (("clusters", "cluster"), ("codes", "code"), ("kinds", "kind")):
        arguments = ["--weeks", "1", "--top", "2", "--show", show, "--format", "json"]
        assert run(["report", store, *arguments]) == 0
        assert f'"group_kind": "{kind}"' in capsys.readouterr().out.replace('":"', '": "')


@pytest.mark.slow
def test_the_chart_has_a_drawing_for_each_series(demo_weeks):
    weeks = demo_weeks.filter(pl.col("week") != "2026-W18")
    svg = to_svg(chart_weeks(weeks), name="x", label="in words")
    assert "Completed (% of ended runs)" in svg
    # Words that have no room on one line stand on two.
    assert "2026-W19 and 2026-W22 only in part" in re.sub(r"(<[^>]*>)+", " ", svg)
    clusters = weeks.filter(measure="failure_causes", group_kind="cluster")
    drawn = chart_weeks(clusters)
    assert len(drawn.concat) == 10
    assert "Causes of failures, 2026-W19" in to_svg(drawn, name="x", label="y")
    empty = to_svg(chart_weeks(weeks.clear()), name="x", label="y")
    assert "No week is covered by the data" in empty
    with pytest.raises(MissingColumnsError, match="chart_weeks needs columns"):
        chart_weeks(weeks.drop("value"))


def test_the_weeks_of_an_instant_are_read_as_weeks(demo):
    names = [week.label[5:13] for week in weeks_up_to(datetime(2027, 1, 2, tzinfo=UTC), 3)]
    assert names == ["2026-W51", "2026-W52", "2026-W53"]
    assert weeks_up_to(AS_OF, 1)[0] == read_window("2026-W22", as_of=AS_OF)
    assert demo.weeks(1, top=0)["week"].unique().to_list() == ["2026-W22"]
