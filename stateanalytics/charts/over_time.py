"""Numbers over time: runs by ending, rates and costs by group, and weekly numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from stateanalytics.charts.durations import ENDINGS
from stateanalytics.charts.interactive import (
    click_selection,
    displayable,
    fading,
    finished,
    movable_axes,
    shared_selections,
    with_tooltips,
)
from stateanalytics.charts.style import (
    FONT_SIZE,
    LIGHT,
    Palette,
    Source,
    facet_header,
    fitted,
    largest,
    utc_axis,
    width_of,
)
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import own_column
from stateanalytics.core.text import visible
from stateanalytics.core.windows import Window, read_window
from stateanalytics.core.words import say
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.failures.failure_rates import OTHERS, UNKNOWN, rates
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.conditions import NOT_DRIVEN, is_run, literal, with_own_columns

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
"""More drawings cannot be compared; the first series of the frame are drawn."""
_UNITS_OF_TIME = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def chart_weeks(
    weeks: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    columns: int = 2,
) -> alt.ConcatChart:
    """Small multiples of the numbers of each week, every series on its own scale.

    Parameters
    ----------
    weeks : polars.DataFrame
        From `Snapshot.weeks` or `Snapshot.control_limits`, or some of its rows. Series without
        a group are drawn if there are any, otherwise the series of groups.
    sentence : str, optional
        Heading; by default the weeks that are drawn, "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole chart, in pixels.
    columns : int
        Drawings side by side.

    Returns
    -------
    altair.ConcatChart
        A line with its interval as a band, and dashed lines for its limits if there are any.
        Hollow points are weeks that the data cover only in part; the line has a gap where
        there is no value.

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
    panels = [
        _panel(rows_of_series, room, palette, has_measure=not has_one_measure)
        for rows_of_series in series[:MOST]
    ]
    if not panels:
        panels = [alt.Chart(pl.DataFrame({"week": [], "value": []})).mark_point()]
    with shared_selections():
        chart = alt.concat(*panels, columns=columns, spacing=18)
    words = _weeks_sentence(rows) if sentence is None else sentence
    drawn = min(columns, len(panels)) * (room + 40)
    return finished(alt.ConcatChart, chart, words, palette=palette, width=drawn, source=_OF_WEEK)


def _panel(
    series: pl.DataFrame, width: int, palette: Palette, *, has_measure: bool
) -> alt.LayerChart:
    import altair as alt

    scale, unit = _scale(series)
    # An interval with only one end has no band.
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
    drawn, tips = with_tooltips(
        drawn.with_columns(coverage=series["coverage"]), week="week", value="value",
        at_least="lower", at_most="upper", covered="coverage",
    )  # fmt: skip
    chosen = click_selection("chosen_week", "week")
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
            opacity=fading(chosen),
        )
        .add_params(chosen)
    )
    name = _panel_title(series.row(0, named=True), has_measure=has_measure)
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


def _panel_title(row: dict[str, Any], *, has_measure: bool) -> str:
    measure = WORDS.get(str(row["measure"]), str(row["measure"]))
    if row["group_kind"] is None:
        return measure
    group = row["group_label"] or row["group_id"] or "(no message)"
    return f"{measure}, {group}" if has_measure else str(group)


def _scale(series: pl.DataFrame) -> tuple[float, str]:
    """The divisor of the values, and their unit after the division."""
    unit = str(series["unit"][0])
    if unit.startswith("share"):
        return 0.01, "%" + unit.removeprefix("share")
    if unit == "s":
        most = largest(series, "value")
        return next((pair for pair in _UNITS_OF_TIME if most >= 2 * pair[0]), _UNITS_OF_TIME[-1])
    return 1.0, "" if unit in ("runs", "causes", "incidents", "rows") else unit


def _weeks_sentence(rows: pl.DataFrame) -> str:
    """The weeks of a chart, and which of them are covered only in part."""
    weeks = rows.filter(pl.col("coverage") != "none")["week"].unique().sort()
    if weeks.is_empty():
        return say("chart.no_week")
    part = rows.filter(pl.col("coverage") == "part")["week"].unique().sort().to_list()
    end = say("chart.weeks_in_part", weeks=part) if part else ""
    span = weeks[0] if weeks.len() == 1 else f"{weeks[0]} to {weeks[-1]}"
    measures = rows["measure"].unique().to_list()
    what = f"{WORDS.get(measures[0], measures[0])}, " if len(measures) == 1 else ""
    return say("chart.weeks", what=what, weeks=span, in_part=end)


# Measure: its column, the title of its axis, its format.
MEASURES = {
    "failed": ("share", "share of ended runs that failed", "%"),
    "runs": ("n_ended", "runs that ended", "~s"),
    "failures": ("n_failed", "runs that failed", "~s"),
    "cost": ("cost_usd", "cost of ended runs", "$~s"),
    "lost": ("failed_cost_usd", "cost of failed runs", "$~s"),
}
# `state.population` in SQL: runs that rates count and that have ended.
_COUNTED = (
    "is_terminal AND NOT is_legacy AND lifecycle <> 'unknown' "
    f"AND coalesce(recorded_by, '') NOT IN ('mirrored', 'imported') AND {NOT_DRIVEN}"
)
COLOURS = ("info", "critical", "success", "warning", "neutral", "muted")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down")


def chart_rate(
    snap: Facts,
    *,
    by: str | None = None,
    every: str = "1d",
    of: Literal["failed", "runs", "failures", "cost", "lost"] = "failed",
    window: object = None,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 240,
) -> alt.LayerChart:
    """A share, a count or a cost of runs over time, by project, model, kind or another column.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    by, every, window
        As in `failures.rates`.
    of : {"failed", "runs", "failures", "cost", "lost"}
        The share of failed or timed-out runs; the number that ended or failed; their cost.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        ``.data`` is the frame of `failures.rates`, at most five values and the others. A click
        in the legend selects lines; a single line has its interval as a band.

    Raises
    ------
    ArgumentError
        If there is no such column, step or measure.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> hours = chart_rate(demo(), by="project", every="1h", of="cost")
    >>> hours.data["value"].n_unique()
    5
    """
    import altair as alt

    if of not in MEASURES:
        raise ArgumentError(
            f"There is no measure {of!r:.40}; there are {', '.join(MEASURES)}.",
            'chart_rate(snap, by="project", of="failed")',
        )
    column, title, form = MEASURES[of]
    drawn, tips = with_tooltips(
        _named(rates(snap, by=by, every=every, window=window)), of="name", from_="step_at",
        to="until", runs="n_ended", failed="n_failed", share="share", at_least="share_low",
        at_most="share_high", cost="cost_usd", cost_of_failed="failed_cost_usd",
    )  # fmt: skip
    names = drawn["name"].unique(maintain_order=True).to_list()
    kept = click_selection("chosen_lines", "name", in_legend=True)
    chosen = click_selection("chosen_rates", "value", "step_at", "until")
    fills = alt.Scale(domain=names, range=[palette[name] for name in COLOURS[: len(names)]])
    legend = None if len(names) < 2 else alt.Legend(orient="top", labelColor=palette["text"])
    step = alt.X("step_at:T", title="UTC", scale=alt.Scale(type="utc", padding=8), axis=utc_axis())
    base = alt.Chart(drawn).encode(
        x=step, color=alt.Color("name:N", title=None, scale=fills, legend=legend)
    )
    value = alt.Y(f"{column}:Q", title=title, axis=alt.Axis(format=form, tickCount=5))
    # The legend belongs to the first layer that has one, so clicks reach only its selection.
    line = (
        base.mark_line(strokeWidth=1.5, clip=True)
        .encode(y=value, opacity=fading(kept))
        .add_params(kept)
    )
    points = (
        base.mark_point(filled=True, size=40, clip=True)
        .encode(
            y=value,
            tooltip=tips,
            opacity=fading(kept & chosen),
            shape=alt.Shape(
                "name:N",
                title=None,
                legend=legend,
                scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)])),
            ),
        )
        .add_params(chosen, movable_axes("rates_axis"))
    )
    band = base.mark_area(fillOpacity=0.15, clip=True).encode(
        y=alt.Y("share_low:Q", title=title), y2="share_high:Q"
    )
    layers = [band, line, points] if of == "failed" and len(names) == 1 else [line, points]
    chart = alt.layer(*layers, data=drawn).properties(
        width=width,
        height=height,
        description=f"{title.capitalize()}, {drawn['step_at'].n_unique()} steps of {every}.",
    )
    # A step may begin before the window, and end after it.
    chosen_window = None if window is None else read_window(window, as_of=snap.as_of)
    within = [] if chosen_window is None else [_between(chosen_window)]
    own = getattr(snap, "own_tables", {})
    joined = own_column(snap.table("entity_states"), by, own) if own else None  # type: ignore[attr-defined]
    source = Source(
        with_own_columns("entity_states", [joined] if joined else []),
        (*_conditions(by, drawn), ("step_at", "ended_at >= {}"), ("until", "ended_at < {}")),
        where=" AND ".join([is_run(snap.entities["system"].unique()), _COUNTED, *within]),
    )
    return finished(alt.LayerChart, chart, sentence, palette=palette, width=width, source=source)


def _between(window: Window) -> str:
    return f"ended_at >= {literal(window.since)} AND ended_at < {literal(window.until)}"


def _conditions(by: str | None, drawn: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """SQL conditions for the runs of a line; the others are runs of no line."""
    if by is None:
        return ()
    kept = ", ".join(literal(value) for value in drawn["value"].unique().sort())
    value = f"coalesce({quoted(by)}::VARCHAR, {literal(UNKNOWN)})"
    line = f"CASE WHEN {value} IN ({kept}) THEN {value} ELSE {literal(OTHERS)} END"
    return (("value", f"{line} = {{}}"),)


def _named(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with names that fit into a legend, values with most runs first."""
    values = steps["value"].unique(maintain_order=True)
    names = {value: fitted(visible(value), 150) for value in values}
    size = pl.col("n_ended").sum().over("value")
    return (
        steps.with_columns(
            name=pl.col("value").replace_strict(names, return_dtype=pl.String), _size=size
        )
        .sort("_size", "value", "step_at", descending=[True, False, False])
        .drop("_size")
    )


OPEN = "open"


_STEP_HEIGHT = 40


_OF_ENDING = Source("spells", (("ending", "ending = {}"),))


def chart_over_time(
    counts: pl.DataFrame, *, palette: Palette = LIGHT, width: int = 620
) -> alt.FacetChart:
    """A row of bars for each ending, over steps of time, with their numbers.

    Parameters
    ----------
    counts : polars.DataFrame
        ``label`` of the step, in order of time; ``ending`` (an outcome, or ``open`` for
        runs that were open at the end of the step); ``n``.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart
        Outcomes share a scale, so heights can be compared; open runs have their own scale.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    check_columns(counts, ("label", "ending", "n"), "chart_over_time")
    drawn, tips = with_tooltips(_heights(counts), step="label", ended="row_name", runs="n")
    chosen = click_selection("chosen_steps", "label", "ending")
    steps = counts["label"].unique(maintain_order=True).to_list()
    rows = drawn["row_name"].unique(maintain_order=True).to_list()
    fills = [palette[colour] for colour in drawn.unique("row_name", maintain_order=True)["colour"]]
    room = width / max(len(steps), 1)
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "label:N",
            sort=steps,
            title=None,
            axis=alt.Axis(
                labelAngle=0,
                ticks=False,
                values=steps[:: max(1, -(-len(steps) * 70 // width))],
                labelLimit=90,
            ),
            scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1),
        ),
        y=alt.Y("height:Q", title=None, axis=None, scale=alt.Scale(domain=[0, 1.35], nice=False)),
    )
    bars = base.mark_bar().encode(
        tooltip=tips,
        opacity=fading(chosen),
        color=alt.Color("row_name:N", scale=alt.Scale(domain=rows, range=fills), legend=None),
    )
    numbers = base.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE - 1).encode(
        text="n:Q",
        color=alt.condition("datum.n > 0", alt.value(palette["text"]), alt.value(palette["muted"])),
    )
    bars = bars.add_params(chosen)
    layers = [bars, numbers] if room >= 24 else [bars]
    chart = (
        alt.layer(*layers, data=drawn)
        .properties(width=width, height=_STEP_HEIGHT)
        .facet(
            row=alt.Row(
                "row_name:N",
                sort=rows,
                header=facet_header(),
            ),
            spacing=10,
        )
    )
    n = int(counts.filter(pl.col("ending") != OPEN)["n"].sum())
    described = chart.properties(description=f"{n} runs by when and how they ended.")
    return displayable(described, palette, _OF_ENDING)


def _heights(counts: pl.DataFrame) -> pl.DataFrame:
    """The counts as heights from 0 to 1, with the name and colour of each row."""
    is_open = pl.col("ending") == OPEN
    most = {
        True: largest(counts.filter(is_open), "n") or 1.0,
        False: largest(counts.filter(~is_open), "n") or 1.0,
    }
    known = [name for name in ENDINGS if name != "running"]
    names = {name: ENDINGS[name][0] for name in known} | {OPEN: "open at the end of the step"}
    colours = {name: ENDINGS[name][1] for name in known} | {OPEN: "info"}
    return counts.with_columns(
        height=pl.col("n") / pl.when(is_open).then(most[True]).otherwise(most[False]),
        row_name=pl.col("ending").replace(names),
        colour=pl.col("ending").replace_strict(colours, default="neutral"),
    )
