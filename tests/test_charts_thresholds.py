"""Charts of durations and thresholds: they draw what the frame says, and say it."""

import json
import re
from xml.etree import ElementTree

import altair as alt
import polars as pl
import pytest

from stateanalytics.charts import (
    DARK,
    LIGHT,
    VARIABLES,
    chart_alarms,
    chart_cumulative_incidence,
    chart_disagreement,
    chart_false_alarms,
    chart_limits,
    chart_survival,
    chart_worksheet,
    to_svg,
)
from stateanalytics.charts.style import OF_GROUPS, ticks_between
from stateanalytics.charts.survival import DASHES, MOST, say_survival
from stateanalytics.charts.thresholds import say_worksheet
from stateanalytics.errors import ArgumentError
from stateanalytics.survival.curves import kaplan_meier
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.survival.occupancy import state_occupancy
from tests.examples import a_few
from tests.test_charts_detectors import ALARMS, EVENTS, PAIRS

RUNS = pl.DataFrame(
    {
        "duration_s": [0.0, 60.0, 600.0, 600.0, 3600.0, 3600.0],
        "ended": [True, True, True, False, True, False],
        "cause": ["failed", "completed", "completed", None, "completed", None],
        "kind": ["agent", "agent", "agent", "flow", "flow", "flow"],
    }
)
CURVE = pl.DataFrame(
    {
        "name": ["stale.agent"] * 4,
        "threshold_s": [600.0, 1800.0, 3600.0, 21600.0],
        "mistakes": [40.0, 2.8, 1.0, 0.0],
        "mistake": ["false_alarm"] * 4,
        "per": ["100 session-hours"] * 4,
        "is_today": [False, False, False, True],
        "is_best": [False, True, False, False],
    }
)
LIMITS = pl.DataFrame(
    {
        "limit_s": [900.0, 900.0, 900.0, 3600.0, None],
        "elapsed_s": [900.2, 900.4, 0.0, 60.0, 5.0],
        "ending": ["timed_out", "timed_out", "failed", "completed", "completed"],
        "fits": ["at_limit", "at_limit", "before", "before", None],
        "has_no_turns": [True, True, None, False, None],
    }
)
SHEET = pl.DataFrame(
    {
        "threshold_s": [600.0, 1800.0, 3600.0, 21600.0, 86400.0],
        "mistakes_per_100h": [75.0, 2.8, 0.0, 0.0, 0.0],
        "mistakes_per_100h_low": [49.0, 0.1, 0.0, 0.0, 0.0],
        "mistakes_per_100h_high": [109.0, 15.4, 10.2, 10.2, 10.2],
        "constants": ["worker.idle", None, "idle, phantom", "stale.agent", None],
        "is_today": [True, False, True, True, False],
    }
)
SURVIVAL = kaplan_meier(RUNS)
FATES = cumulative_incidence(RUNS)
CHARTS = {
    "survival": lambda: chart_survival(SURVIVAL),
    "strata": lambda: chart_survival(kaplan_meier(RUNS, by="kind")),
    "fates": lambda: chart_cumulative_incidence(FATES),
    "limits": lambda: chart_limits(LIMITS),
    "worksheet": lambda: chart_worksheet(CURVE),
}


def texts(chart) -> list[str]:
    """What a reader sees; the same chart always gives the same bytes."""
    svg = to_svg(chart, name="x", label="in words")
    # A title of several lines is a text of several parts.
    parts = ElementTree.fromstring(svg).iter("text")
    return [" ".join(part.itertext()) for part in parts if "".join(part.itertext()).strip()]


def test_states_are_stacked_like_ends():
    """Where every end is final, both draw the same areas."""
    runs = RUNS.filter(pl.col("duration_s") > 0)
    of_lives = {"until_s": "duration_s", "next_state": "cause"}
    lives = runs.select(state=pl.lit("running"), from_s=0.0, **of_lives)
    occupancy = state_occupancy(lives).filter(pl.col("duration_s") > 0)
    ends = cumulative_incidence(runs)
    drawn, meant = (chart_cumulative_incidence(frame).layer[0].data for frame in (occupancy, ends))
    assert set(drawn["fate"]) == set(meant["fate"])
    last = [frame.group_by("fate").last().sort("fate")["high"] for frame in (drawn, meant)]
    assert last[0].to_list() == pytest.approx(last[1].to_list())


def test_survival_says_its_median_and_how_many_were_at_risk():
    shown = texts(CHARTS["survival"]())
    assert [text for text in shown if text.isdigit()] == ["5", "5", "5", "4", "2"]
    assert "at risk" in shown
    assert "Half of the runs end within 10 min (0 s to not identified); p95 is" in " ".join(shown)
    assert {"1 s", "1 min", "10 min", "1 h"} <= set(shown)


def test_lines_are_named_where_they_end_and_have_a_dash_each():
    shown = texts(CHARTS["strata"]())
    assert shown.count("agent") == shown.count("flow") == 2  # at the line, and in its row of counts
    assert len(DASHES) == len(OF_GROUPS) == MOST
    assert len({tuple(dash) for dash in DASHES}) == MOST


def test_many_strata_leave_the_largest():
    rows = [{"duration_s": float(1 + n % 50), "kind": f"k{min(n, 3000)}"} for n in range(4000)]
    many = pl.DataFrame(rows).with_columns(ended=True)
    drawn = chart_survival(kaplan_meier(many, by="kind"))
    shown = [text for text in texts(drawn) if re.fullmatch(r"k\d+", text)]
    assert len(set(shown)) == MOST
    assert "k3000" in shown


def test_what_is_added_is_drawn_over_the_curve_and_names_stand_beyond_its_end():
    limit = pl.DataFrame({"x": [3600.0]})
    chart = chart_survival(kaplan_meier(RUNS, by="kind"))
    both = (chart + alt.Chart(limit).mark_rule(strokeDash=[4, 4]).encode(x="x:Q")).to_dict()
    assert [layer["mark"]["type"] for layer in both["vconcat"][0]["layer"]] == [
        *("area", "line", "tick", "point", "rule")
    ]
    assert both["vconcat"][1] == chart.to_dict()["vconcat"][1]
    assert both["config"] == chart.to_dict()["config"]
    legends = [layer["encoding"].get("color", {}) for layer in both["vconcat"][0]["layer"][:4]]
    assert {legend["legend"]["orient"] for legend in legends} == {"right"}


def test_long_curves_are_thinned_to_what_can_be_drawn():
    long = pl.DataFrame({"duration_s": [n / 7 for n in range(1, 20_000)], "ended": True})
    drawn = json.dumps(chart_survival(kaplan_meier(long)).to_dict())
    assert len(drawn) < 200_000


def test_fates_name_every_area_with_its_share():
    shown = texts(CHARTS["fates"]())
    assert "failed 17 %" in shown
    assert any(text.startswith("completed ") for text in shown)
    assert any(text.startswith("still running ") for text in shown)
    assert "By 1 h, of 100 runs:" in " ".join(shown)


def test_fates_fill_everything_at_every_moment():
    drawn = chart_cumulative_incidence(FATES).layer[0].data
    for _, part in drawn.group_by("duration_s"):
        edges = part.sort("low")
        assert edges["low"][0] == pytest.approx(0)
        assert edges["high"][-1] == pytest.approx(1)
        assert edges["low"][1:].to_list() == pytest.approx(edges["high"][:-1].to_list())


def test_limits_count_equal_runs_and_leave_out_what_is_not_known():
    drawn = chart_limits(LIMITS).layer[2].data
    assert drawn["n"].sum() == 4
    timed_out = drawn.filter(ending="timed_out").select("n", "is_hollow", "drawn_limit_s")
    assert timed_out.rows() == [(2, True, 900.0)]
    shown = " ".join(texts(CHARTS["limits"]()))
    assert "2 of 4 runs with a known limit ran into it, 2 of them without a single turn." in shown


def test_the_worksheet_names_both_axes_today_and_the_cheapest():
    shown = texts(CHARTS["worksheet"]())
    assert "false alarms per 100 session-hours" in shown
    assert "delay until it acts (the threshold)" in shown
    assert {"today 6 h: 0", "cheapest 30 min: 2.8"} <= {*shown}
    today = "Today 6 h: 0 false alarms per 100 session-hours. "
    assert f"{today}The cheapest, 30 min: 2.8, 5 h 30 min sooner." in " ".join(shown)


@pytest.mark.slow
def test_false_alarms_are_drawn_with_all_of_todays_constants():
    shown = texts(chart_false_alarms(SHEET, what="agents"))
    assert {"10 min: worker.idle", "1 h: idle, phantom", "6 h: stale.agent"} <= set(shown)
    assert shown.count("false alarms per 100 session-hours") == 1
    assert "silence until the alarm (the delay)" in shown
    said = "Of agents, per 100 session-hours: 10 min flags 75 wrongly (49 to 109), 6 h 0 (0 to 10)."
    assert said in " ".join(shown)
    nothing = chart_false_alarms(SHEET.with_columns(is_today=False))
    assert "No threshold of today can be judged by these sessions." in " ".join(texts(nothing))


def test_a_limit_that_ends_runs_is_not_said_to_alarm():
    limit = CURVE.with_columns(mistake=pl.lit("lost_run"), per=pl.lit("100 runs"))
    assert "Today 6 h: 0 good runs ended per 100 runs." in say_worksheet(limit)
    assert "good runs ended per 100 runs" in texts(chart_worksheet(limit))


def test_one_mark_where_today_is_the_cheapest():
    same = CURVE.with_columns(is_best=pl.col("is_today"))
    assert "today and cheapest 6 h: 0" in texts(chart_worksheet(same))
    assert say_worksheet(same).startswith("Today's value is the cheapest, 6 h: 0 false alarms")


def test_no_value_today_and_no_data_have_sentences():
    cheapest = "The cheapest, 30 min: 2.8 false alarms per 100 session-hours."
    assert say_worksheet(CURVE.with_columns(is_today=False)) == cheapest
    assert say_worksheet(CURVE.clear()) == "Not enough data to weigh a threshold."


@pytest.mark.parametrize("palette", a_few([DARK, VARIABLES]))
def test_themes_change_colours_and_nothing_else(palette):
    def drawn(colours):
        # But for the edge: on a page, text begins where the page's does.
        chart = chart_worksheet(CURVE, palette=colours).properties(padding=4)
        svg = to_svg(chart, name="x", label="in words")
        for name in LIGHT:
            svg = svg.replace(colours[name], name)
        return svg

    assert drawn(LIGHT) == drawn(palette)


LITTLE = [
    *((chart_survival, SURVIVAL.clear()), (chart_survival, SURVIVAL.head(1))),
    (chart_survival, kaplan_meier(RUNS.with_columns(ended=False))),
    *((chart_cumulative_incidence, FATES.clear()), (chart_limits, LIMITS.clear())),
    *((chart_worksheet, CURVE.clear()), (chart_false_alarms, SHEET.clear())),
    (chart_worksheet, CURVE.with_columns(mistakes=0.0)),
    (chart_disagreement, PAIRS.clear()),
    (lambda alarms: chart_alarms(EVENTS.clear(), alarms), ALARMS.clear()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "frame"), a_few(LITTLE, 3))
def test_nothing_and_little_are_drawn_too(draw, frame):
    assert "NaN" not in to_svg(draw(frame), name="x", label="in words")


def test_what_cannot_be_drawn_is_refused_in_words():
    with pytest.raises(ArgumentError, match="found thresholds twice"):
        chart_false_alarms(pl.concat([SHEET, SHEET]))
    with pytest.raises(ArgumentError, match=r"draws one stratum; found the strata \['kind'\]"):
        chart_cumulative_incidence(cumulative_incidence(RUNS, by="kind"))
    with pytest.raises(ArgumentError, match="draws one constant; found 2"):
        chart_worksheet(pl.concat([CURVE, CURVE.with_columns(name=pl.lit("idle"))]))


def test_a_heading_may_be_given_or_left_out():
    assert "mine" in texts(chart_survival(SURVIVAL, sentence="mine"))
    assert not any("Half" in text for text in texts(chart_survival(SURVIVAL, sentence="")))


def test_a_sentence_about_nothing_says_so():
    assert say_survival(SURVIVAL.clear(), what="flow runs") == "There are no flow runs to draw."


@pytest.mark.parametrize("width", [60, 200, 620])
def test_ticks_never_crowd(width):
    assert len(ticks_between(0.5, 2_592_000, width)) <= max(2, width // 62)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_no_line_of_the_grid_crosses_the_name_of_a_value(palette):
    """The paper's colour is below each letter; "cheapest 12 h: 0" stood on two lines."""
    page = ElementTree.fromstring(
        to_svg(chart_worksheet(CURVE, palette=palette), name="x", label="y")
    )
    named = [one for one in page.iter() if one.text == "today 6 h: 0"]
    below, text = ((one.get("fill"), one.get("stroke")) for one in named)
    assert below == (palette["surface"], palette["surface"])
    assert text == (palette["text"], None)
