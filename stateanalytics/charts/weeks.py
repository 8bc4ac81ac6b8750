"""Week after week, one small drawing a series: the value, its interval and what is only part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.living import Palette, Source, one_choice_for_all
from stateanalytics.charts.pointing import click, faint, told
from stateanalytics.charts.style import LIGHT, finished, largest
from stateanalytics.charts.text_width import FONT_SIZE, fitted, width_of
from stateanalytics.core.text import visible
from stateanalytics.errors import check_columns

if TYPE_CHECKING:
    import altair as alt

NEEDED = (
    *("week", "coverage", "measure", "group_kind", "group_id", "group_label"),
    *("value", "lower", "upper", "unit"),
)
WORDS = {
    "runs": "Runs",
    "completed": "Completed",
    "timed_out": "Timed out",
    "unresolved": "Unresolved",
    "incidents": "Incidents of failed runs",
    "failure_causes": "Causes of failures",
    "failure_incidents": "Incidents of failures",
    "failure_rows": "Failed rows",
    "failure_run_s": "Time lost",
    "failure_cost_usd": "Cost of failures",
    "duration": "Median duration",
}
LIMITS = ("limit_low", "limit_high")
_OF_WEEK = Source("weeks", (("week", "week = {}"),))
MOST = 24
"""More drawings than this nobody compares; the first series of the frame are drawn."""
_UNITS_OF_TIME = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def chart_weeks(
    weeks: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    columns: int = 2,
) -> alt.ConcatChart:
    """Small multiples of the numbers of each week, every series on a scale of its own.

    Parameters
    ----------
    weeks : polars.DataFrame
        What `Snapshot.weeks` or `Snapshot.control_limits` gave, or some of its rows. Series
        without a group are drawn where there are any, else those of groups.
    sentence : str, optional
        Heading; by default which weeks are drawn, "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole, in pixels.
    columns : int
        Drawings side by side.

    Returns
    -------
    altair.ConcatChart
        A line with its interval as a band, and broken lines for its limits where they are
        there; hollow points are weeks that the data cover in
        part, and where there is no value the line has a gap.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> weeks = demo().weeks(2)
    >>> len(chart_weeks(weeks).concat)
    11
    """
    import altair as alt

    check_columns(weeks, NEEDED, "chart_weeks")
    is_whole = pl.col("group_kind").is_null()
    rows = weeks.filter(is_whole) if weeks.filter(is_whole).height else weeks
    series = rows.partition_by("measure", "group_kind", "group_id", maintain_order=True)
    room = max(60, width // columns - 70)
    has_one_measure = rows["measure"].n_unique() == 1
    panels = [_panel(one, room, palette, has_measure=not has_one_measure) for one in series[:MOST]]
    if not panels:
        panels = [alt.Chart(pl.DataFrame({"week": [], "value": []})).mark_point()]
    with one_choice_for_all():
        chart = alt.concat(*panels, columns=columns, spacing=18)
    words = _words(rows) if sentence is None else sentence
    drawn = min(columns, len(panels)) * (room + 40)
    return finished(alt.ConcatChart, chart, words, palette=palette, width=drawn, source=_OF_WEEK)


def _panel(
    series: pl.DataFrame, width: int, palette: Palette, *, has_measure: bool
) -> alt.LayerChart:
    import altair as alt

    scale, unit = _scale(series)
    # Half an interval has no band: the other end is not bounded by the data.
    is_bounded = pl.col("lower").is_not_null() & pl.col("upper").is_not_null()
    drawn = series.select(
        "week",
        pl.col("value") / scale,
        *(
            pl.when(is_bounded).then(pl.col(name) / scale).alias(name)
            for name in ("lower", "upper")
        ),
        *(pl.col(name) / scale for name in LIMITS if name in series.columns),
        is_part=pl.col("coverage") == "part",
    )
    drawn, tips = told(
        drawn.with_columns(coverage=series["coverage"]), week="week", value="value",
        at_least="lower", at_most="upper", covered="coverage",
    )  # fmt: skip
    chosen = click("chosen_week", "week")
    every = max(1, -(-drawn.height * 64 // width))
    ticks = drawn["week"].to_list()[::-1][::every]
    x = alt.X(
        "week:O", title=None, scale=alt.Scale(domain=drawn["week"].to_list()),
        axis=alt.Axis(labelAngle=0, values=ticks, ticks=False, grid=False),
    )  # fmt: skip
    axis = alt.Axis(tickCount=3)
    y = alt.Y("value:Q", title=None, axis=axis, scale=alt.Scale(zero=True, nice=True))
    base = alt.Chart(drawn)
    colour = alt.value(palette["info"])
    band = base.mark_area(fillOpacity=0.2).encode(x=x, y="lower:Q", y2="upper:Q", fill=colour)
    line = base.mark_line(strokeWidth=1.5).encode(x=x, y=y, stroke=colour)
    points = (
        base.mark_point(size=28, filled=False, strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            stroke=colour,
            fill=colour,
            fillOpacity=alt.condition("datum.is_part", alt.value(0), alt.value(1)),
            tooltip=tips,
            opacity=faint(chosen),
        )
        .add_params(chosen)
    )
    name = _name(series.row(0, named=True), has_measure=has_measure)
    ending = f" ({unit})" if unit else ""
    words = fitted(visible(name), width + 40 - width_of(ending)) + ending
    title = alt.Title(
        words, anchor="start", fontSize=FONT_SIZE,
        fontWeight="normal", color=palette["text"], offset=4,
    )  # fmt: skip
    limits = [
        base.mark_line(strokeDash=[4, 3], strokeWidth=1, interpolate="step").encode(
            x=x, y=f"{name}:Q", stroke=alt.value(palette["muted"])
        )
        for name in LIMITS
        if name in drawn.columns and drawn[name].count()
    ]
    layers: Any = alt.layer(band, *limits, line, points)
    panel: alt.LayerChart = layers.properties(width=width, height=70, title=title)
    return panel


def _name(row: dict[str, Any], *, has_measure: bool) -> str:
    measure = WORDS.get(str(row["measure"]), str(row["measure"]))
    if row["group_kind"] is None:
        return measure
    group = row["group_label"] or row["group_id"] or "(nothing said)"
    return f"{measure}, {group}" if has_measure else str(group)


def _scale(series: pl.DataFrame) -> tuple[float, str]:
    """What a value is divided by, and the unit that it then has."""
    unit = str(series["unit"][0])
    if unit.startswith("share"):
        return 0.01, "%" + unit.removeprefix("share")
    if unit == "s":
        most = largest(series, "value")
        return next((pair for pair in _UNITS_OF_TIME if most >= 2 * pair[0]), _UNITS_OF_TIME[-1])
    return 1.0, "" if unit in ("runs", "causes", "incidents", "rows") else unit


def _words(rows: pl.DataFrame) -> str:
    """Which weeks these are, and which of them say less than a whole week."""
    told = rows.filter(pl.col("coverage") != "none")["week"].unique().sort()
    if told.is_empty():
        return "No week is covered by the data."
    part = rows.filter(pl.col("coverage") == "part")["week"].unique().sort().to_list()
    end = f"; {' and '.join(part)} only in part" if part else ""
    span = told[0] if told.len() == 1 else f"{told[0]} to {told[-1]}"
    measures = rows["measure"].unique().to_list()
    what = f"{WORDS.get(measures[0], measures[0])}, " if len(measures) == 1 else ""
    return f"{what}{span}, each week as it stood at its end{end}."
