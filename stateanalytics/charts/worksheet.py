"""The worksheet of a threshold: false alarms against delay, today's value marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.labels import leaning_labels
from stateanalytics.charts.log_time import log_time
from stateanalytics.charts.palette import LIGHT, Palette, dress, largest
from stateanalytics.charts.sentences import mistakes_of, say_worksheet
from stateanalytics.charts.titles import titled
from stateanalytics.core.units import how_long, per_hundred
from stateanalytics.errors import ArgumentError, MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("name", "threshold_s", "mistakes", "mistake", "per", "is_today", "is_best")
_LABEL_STEP = 15
_AROUND = 6


def chart_worksheet(
    curve: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 240,
) -> alt.LayerChart:
    """Mistakes of one threshold over the delay that each value means.

    Parameters
    ----------
    curve : polars.DataFrame
        Rows of `Advice.curves` for one constant.
    sentence : str, optional
        Heading; by default what the chart proves (`say_worksheet`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        The vertical axis is a square root, so that few alarms can be read and none is
        there. Today's value and the cheapest are named where they stand.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If there are several constants in the frame.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in curve.columns]:
        raise MissingColumnsError.of(missing, curve.columns, "chart_worksheet")
    if curve["name"].n_unique() > 1:
        raise ArgumentError(
            f"chart_worksheet draws one constant; found {curve['name'].n_unique()}.",
            "filter one: advice.curves.filter(name='stale.flow')",
        )
    drawn = _near(curve.filter(pl.col("mistakes").is_not_null()).sort("threshold_s"))
    high = max(largest(drawn, "threshold_s"), 60.0)
    low = float(drawn["threshold_s"].min() or 1.0)  # type: ignore[arg-type]
    counted = mistakes_of(*drawn.select("mistake", "per").row(0)) if drawn.height else "mistakes"
    what = "delay until it acts (the threshold)"
    delay = log_time("threshold_s", low_s=low, high_s=high, title=what, width=width)
    top = max(largest(drawn, "mistakes"), 1.0)
    alarms = alt.Y(
        "mistakes:Q",
        title=counted,
        scale=alt.Scale(type="sqrt", domain=[0, 1.1 * top], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    base = alt.Chart(drawn)
    line = base.mark_line(strokeWidth=2, point={"size": 28, "filled": True}).encode(
        x=delay, y=alarms, color=alt.value(palette["info"])
    )
    marks = _marks(drawn)
    rule = (
        alt.Chart(marks)
        .mark_rule(strokeWidth=1.5)
        .encode(
            x=delay,
            strokeDash=alt.StrokeDash(
                "mark:N",
                scale=alt.Scale(domain=["today", "cheapest"], range=[[4, 3], [1, 0]]),
                legend=None,
            ),
            color=alt.value(palette["muted"]),
        )
    )
    words = leaning_labels(marks, delay, dx=5, palette=palette)
    chart: Any = (
        alt.layer(line, rule, *words)
        .resolve_scale(y="independent")
        .properties(width=width, height=height)
    )
    said = say_worksheet(curve) if sentence is None else sentence
    dressed: alt.LayerChart = dress(titled(chart, said, palette=palette, width=width), palette)
    return dressed


def _near(curve: pl.DataFrame) -> pl.DataFrame:
    """The part around today's and the cheapest value; far away the alarms set the scale."""
    marked = curve.filter(pl.col("is_today") | pl.col("is_best"))["threshold_s"]
    if marked.is_empty():
        return curve
    return curve.filter(
        pl.col("threshold_s").is_between(marked.min() / _AROUND, marked.max() * _AROUND)  # type: ignore[operator]
    )


def _marks(drawn: pl.DataFrame) -> pl.DataFrame:
    """Today's and the cheapest value, each with its words and the line they stand on."""
    rows = [
        {
            "threshold_s": row["threshold_s"],
            "mark": mark,
            "label": f"{mark} {how_long(row['threshold_s'])}: {per_hundred(row['mistakes'])}",
        }
        for column, mark in (("is_today", "today"), ("is_best", "cheapest"))
        for row in drawn.filter(pl.col(column)).head(1).to_dicts()
    ]
    if len(rows) == 2 and rows[0]["threshold_s"] == rows[1]["threshold_s"]:
        rows = [{**rows[0], "label": rows[0]["label"].replace("today", "today and cheapest")}]
    ends = drawn["threshold_s"].min(), drawn["threshold_s"].max()
    for place, row in enumerate(rows):
        row["line"] = 2 + place * _LABEL_STEP
        row["is_right"] = row["threshold_s"] ** 2 > (ends[0] or 1) * (ends[1] or 1)  # type: ignore[operator]
    return pl.DataFrame(
        rows,
        schema={
            "threshold_s": pl.Float64,
            "mark": pl.String,
            "label": pl.String,
            "line": pl.Float64,
            "is_right": pl.Boolean,
        },
    )
