"""Numbers over time: runs by ending, any measure by group, and weekly numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts import interactive, style
from stateanalytics.charts.durations import ENDINGS, NOTE
from stateanalytics.core.text import visible
from stateanalytics.core.words import in_one_line, say
from stateanalytics.errors import ArgumentError, check_columns

if TYPE_CHECKING:
    import altair as alt

    from stateanalytics.comparing import Comparison

NEEDED = (
    *("week", "coverage", "measure", "group_kind", "group_id", "group_label"),
    *("value", "lower", "upper", "unit"),
)
WORDS = {
    "runs": "Runs",
    "completed": "Completed",
    "timed_out": "Timed out",
    "unresolved": "Need attention",
    "incidents": "Incidents of failed runs",
    "failure_causes": "Causes of failures",
    "failure_incidents": "Incidents of failures",
    "failure_rows": "Failed rows",
    "failure_run_s": "Time lost",
    "failure_cost_usd": "Cost of failures",
    "time_to_complete": "Median time to complete",
}
LIMITS = ("limit_low", "limit_high")
_OF_WEEK = style.Source("weeks", (("week", "week = {}"),))
MOST = 24
"""More drawings cannot be compared; the first series of the frame are drawn."""
_UNITS_OF_TIME = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def chart_weeks(
    weeks: pl.DataFrame,
    *,
    sentence: str | None = None,
    changes: pl.DataFrame | None = None,
    palette: style.Palette = style.LIGHT,
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
    changes : polars.DataFrame, optional
        From `changes`: a thin rule at the week of each.
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
    >>> import stateanalytics as sa
    >>> chart = sa.charts.chart_weeks(sa.demo().weeks(4))
    >>> print(chart.description)
    2026-W19 to 2026-W22, each week as of its end; 2026-W22 only in part.
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
    if changes is not None and changes.height:
        week = pl.col("changed_at").dt.strftime("%G-W%V").alias("week")
        marks = changes.select(week, change=pl.Series(in_one_line(changes), dtype=pl.String))
        marks = marks.filter(pl.col("week").is_in(rows["week"].implode()))
        at_week = _change_rules("change", palette, x=style.field("week:O"))
        rules = interactive.as_chart({"data": marks, **at_week})
        panels = [panel + rules for panel in panels]
    if not panels:
        panels = [alt.Chart(pl.DataFrame({"week": [], "value": []})).mark_point()]
    with interactive.shared_selections():
        chart = alt.concat(*panels, columns=columns, spacing=18)
    words = _weeks_sentence(rows) if sentence is None else sentence
    drawn = min(columns, len(panels)) * (room + 40)
    return interactive.finished(
        alt.ConcatChart, chart, words, palette=palette, width=drawn, source=_OF_WEEK
    )


def _panel(
    series: pl.DataFrame, width: int, palette: style.Palette, *, has_measure: bool
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
    drawn, tips = interactive.with_tooltips(
        drawn.with_columns(coverage=series["coverage"]), week="week", value="value",
        at_least="lower", at_most="upper", covered="coverage",
    )  # fmt: skip
    chosen = interactive.click_selection("chosen_week", "week")
    every = max(1, -(-drawn.height * 64 // width))
    ticks = drawn["week"].to_list()[::-1][::every]
    x = alt.X("week:O", title=None).scale(domain=drawn["week"].to_list())
    x = x.axis(labelAngle=0, values=ticks, ticks=False, grid=False)
    y = alt.Y("value:Q", title=None).axis(tickCount=3).scale(zero=True, nice=True)
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
            opacity=interactive.fading(chosen),
        )
        .add_params(chosen)
    )
    name = _panel_title(series.row(0, named=True), has_measure=has_measure)
    ending = f" ({unit})" if unit else ""
    words = style.fitted(visible(name), width + 40 - style.width_of(ending)) + ending
    title = alt.Title(
        words, anchor="start", fontSize=style.FONT_SIZE,
        fontWeight="normal", color=palette["text"], offset=4,
    )  # fmt: skip
    limits = [
        base.mark_line(strokeDash=[4, 3], strokeWidth=1, interpolate="step").encode(
            x=x, y=f"{name}:Q", stroke=alt.StrokeValue(palette["muted"])
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
        most = style.largest(series, "value")
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


FORMATS = {"share": "%", "USD": "$~s", "s": "~s"}
NONE = "(none)"


def chart_compare(
    comparison: Comparison,
    *,
    sentence: str = "",
    changes: pl.DataFrame | None = None,
    palette: style.Palette = style.LIGHT,
    width: int = 620,
) -> alt.FacetChart | alt.LayerChart:
    """The result of `Snapshot.compare`: a row for each group over time, or groups side by side.

    Parameters
    ----------
    comparison : Comparison
        With ``every``: a line with its interval for each group, at most the 24 largest ones.
        Else a point with its interval for each, and the window compared with, in grey.
    sentence : str
        Heading; by default the measure and its meaning.
    changes : polars.DataFrame, optional
        From `changes`: each is a thin labelled rule where time is drawn.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart or altair.LayerChart
        ``.data`` is the frame, with ``group``.

    Raises
    ------
    ArgumentError
        If it is no comparison.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> weeks = sa.demo().compare("failed", by="project", every="1w")
    >>> chart = sa.charts.chart_compare(weeks)
    >>> print(chart.description)
    failed (share): ended runs that failed or timed out
    """
    import altair as alt

    from stateanalytics.comparing import Comparison

    if not isinstance(comparison, Comparison):
        raise ArgumentError(
            f"chart_compare draws a comparison; found {type(comparison).__name__}.",
            'chart_compare(snap.compare("failed", by="project", every="1w"))',
        )
    measure, by = comparison.measure, comparison.by
    texts = [pl.col(name).cast(pl.String).fill_null(NONE) for name in by] or [pl.lit(measure.name)]
    frame = comparison.frame.with_columns(
        group=pl.concat_str(texts, separator=" · ").map_elements(
            lambda text: style.fitted(visible(text), 300), return_dtype=pl.String
        )
    )
    size = pl.col("n_of").sum().alias("size")
    sizes = frame.group_by("group").agg(size).sort("size", "group", descending=[True, False])
    names = sizes["group"].head(MOST).to_list()
    frame = frame.filter(pl.col("group").is_in(names))
    if comparison.every and changes is not None:
        lines = changes.select(
            "changed_at", change=pl.Series(in_one_line(changes), dtype=pl.String)
        )
        frame = pl.concat([frame, lines.join(sizes.select("group"), how="cross")], how="diagonal")
        frame = frame.filter(pl.col("group").is_in(names))
    drawn, tips = interactive.with_tooltips(
        frame, of="group", from_="since", to="until", value="value", at_least="low",
        at_most="high", n="n", of_runs="n_of", before="value_before", difference="difference",
        verdict="verdict",
    )  # fmt: skip
    chosen = interactive.click_selection("chosen_groups", *by, "since", "until")
    kept = drawn.filter(pl.col("value").is_not_null())
    title = f"{measure.name.replace('_', ' ')} ({measure.unit})"
    form = FORMATS.get(measure.unit, "~s")
    scale = alt.Scale(zero=measure.kind != "median")
    number: dict[str, Any] = {"axis": alt.Axis(format=form, tickCount=3 if comparison.every else 5)}
    colour, muted = alt.value(palette["info"]), alt.value(palette["muted"])
    points = (
        alt.Chart(drawn)
        .mark_point(filled=True, size=40)
        .encode(tooltip=tips, color=colour, opacity=interactive.fading(chosen))
        .add_params(chosen)
    )
    source = style.Source(comparison.table, comparison.conditions, where=comparison.where)
    about = f"{title}, {len(names)} groups, {kept.height} values."
    room: dict[str, Any] = {"palette": palette, "width": width, "source": source}
    words = visible(sentence or comparison.title)
    if not comparison.every:
        y = alt.Y("group:N", sort=names, title=None, axis=style.label_axis(220))
        x = alt.X("value:Q", title=title, scale=scale, **number)
        base = alt.Chart(drawn).encode(y=y)
        layers = [base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=colour)]
        if "value_before" in drawn.columns:
            layers.append(base.mark_tick(thickness=2).encode(x="value_before:Q", color=muted))
        layers.append(points.encode(x=x, y=y))
        side = alt.layer(*layers, data=drawn).properties(
            width=width - 220, height=alt.Step(24), description=about
        )
        return interactive.finished(alt.LayerChart, side, words, **room)
    x = alt.X("since:T", title="UTC", axis=style.utc_axis()).scale(type="utc", padding=8)
    y = alt.Y("value:Q", title=None, scale=scale, **number)
    base = alt.Chart(drawn).encode(x=x)
    layers = [
        base.mark_area(fillOpacity=0.2).encode(y="low:Q", y2="high:Q", fill=colour),
        base.mark_line(strokeWidth=1.5).encode(y=y, stroke=colour),
        points.encode(x=x, y=y),
    ]
    if "change" in drawn.columns:
        at = style.field("changed_at:T", scale={"type": "utc"})
        layers.insert(0, interactive.as_chart(_change_rules("change", palette, x=at)))
    rows = alt.layer(*layers, data=drawn).properties(width=width, height=80)
    chart = rows.facet(row=alt.Row("group:N", sort=names, header=style.HEADER), spacing=12)
    return interactive.finished(alt.FacetChart, chart.properties(description=about), words, **room)


def _change_rules(column: str, palette: style.Palette, **place: Any) -> interactive.Spec:
    """A thin rule at each change, which says in its tooltip what changed."""
    what = style.field(f"{column}:N", title="changed")
    shown = {**place, "color": {"value": palette["muted"]}, "tooltip": what}
    return style.mark("rule", shown, strokeWidth=1, strokeDash=[2, 2])


OPEN = "open"


_STEP_HEIGHT = 40


_OF_ENDING = style.Source("spells", (("ending", "ending = {}"),))


def chart_over_time(
    counts: pl.DataFrame, *, palette: style.Palette = style.LIGHT, width: int = 620
) -> alt.FacetChart:
    """A row of bars for each ending, over steps of time, with their numbers.

    Parameters
    ----------
    counts : polars.DataFrame
        ``label`` of the step, in order of time; ``ending`` (an outcome, or ``open`` for
        runs that were open at the end of the step); ``n``; optional ``changed``, what changed
        in the step: a thin rule.
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

    Examples
    --------
    >>> import polars as pl
    >>> import stateanalytics as sa
    >>> counts = pl.DataFrame(
    ...     {
    ...         "label": ["Mon", "Mon", "Tue", "Tue"],
    ...         "ending": ["completed", "failed", "completed", "failed"],
    ...         "n": [12, 3, 9, 5],
    ...     }
    ... )
    >>> chart = sa.charts.chart_over_time(counts)
    >>> print(chart.description)
    29 runs by when and how they ended.
    """
    chart: alt.FacetChart = interactive.as_chart(
        over_time_spec(counts, palette=palette, width=width)
    )
    return interactive.displayable(chart, palette, _OF_ENDING)


def over_time_spec(counts: pl.DataFrame, *, palette: style.Palette, width: int) -> interactive.Spec:
    """The specification of `chart_over_time`."""
    check_columns(counts, ("label", "ending", "n"), "chart_over_time")
    drawn = _heights(counts)
    steps = list(dict.fromkeys(counts["label"].to_list()))
    colours = dict(drawn[["row_name", "colour"]].iter_rows())
    rows, fills = list(colours), [palette[colour] for colour in colours.values()]
    axis = {
        "labelAngle": 0,
        "ticks": False,
        "values": steps[:: max(1, -(-len(steps) * 70 // width))],
        "labelLimit": 90,
        # What stands in brackets goes below: "(part)".
        "labelExpr": "split(replace(datum.label, ' (', '\\n('), '\\n')",
    }
    paddings = {"paddingInner": 0.25, "paddingOuter": 0.1}
    x = style.field("label:N", sort=steps, title=None, axis=axis, scale=paddings)
    scale = {"domain": [0, 1.35], "nice": False}
    place = {"x": x, "y": style.field("height:Q", title=None, axis=None, scale=scale)}
    fill = style.field("row_name:N", scale={"domain": rows, "range": fills}, legend=None)
    bars = style.mark("bar", {**place, "color": fill})
    layers = [{**bars, "clicks": ("chosen_steps", "label", "ending")}]
    if width / max(len(steps), 1) >= 24:
        colour = style.where("datum.n > 0", palette["text"], palette["muted"])
        shown = {**place, "text": style.field("n:Q"), "color": colour}
        layers.append(style.mark("text", shown, dy=-2, **NOTE))
    if "changed" in drawn.columns and drawn["changed"].count():
        # Left of its bar. All else of x is that of the bars: without its order, the steps of
        # the whole chart would stand in that of the alphabet.
        at = {"x": {**x, "bandPosition": 0}, "y": {"value": 0}, "y2": {"value": _STEP_HEIGHT}}
        rules = _change_rules("changed", palette, **at)
        layers.insert(0, {**rules, "transform": [{"filter": "datum.changed != null"}]})
    n = int(counts["n"].filter(counts["ending"] != OPEN).sum())
    return {
        "data": drawn,
        "tooltips": {"step": "label", "ended": "row_name", "runs": "n"},
        "facet": {"row": style.field("row_name:N", sort=rows, header=style.HEADER)},
        "spec": {"layer": layers, "width": width, "height": _STEP_HEIGHT},
        "spacing": 10,
        "description": f"{n} runs by when and how they ended.",
    }


def _heights(counts: pl.DataFrame) -> pl.DataFrame:
    """The counts as heights from 0 to 1, with the name and colour of each row."""
    is_open, n = pl.col("ending") == OPEN, pl.col("n")
    most_open, most_ended = (
        pl.coalesce(n.filter(is_here).max().cast(pl.Float64).replace(0.0, None), 1.0)
        for is_here in (is_open, ~is_open)
    )
    known = [name for name in ENDINGS if name != "running"]
    names = {name: ENDINGS[name].words for name in known} | {OPEN: "open at the end of the step"}
    colours = {name: ENDINGS[name].colour for name in known} | {OPEN: "info"}
    return counts.with_columns(
        height=n / pl.when(is_open).then(most_open).otherwise(most_ended),
        row_name=pl.col("ending").replace(names),
        colour=pl.col("ending").replace_strict(colours, default="neutral"),
    )
