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
        rules = {"data": marks, **_change_rules("change", palette, x=style.field("week:O"))}
        panels = [{**panel, "layer": [*panel["layer"], rules]} for panel in panels]
    if not panels:
        panels = [{"data": pl.DataFrame({"week": [], "value": []}), **style.mark("point", {})}]
    with interactive.shared_selections():
        chart = alt.concat(*map(interactive.as_chart, panels), columns=columns, spacing=18)
    words = _weeks_sentence(rows) if sentence is None else sentence
    drawn = min(columns, len(panels)) * (room + 40)
    return interactive.finished(
        alt.ConcatChart, chart, words, palette=palette, width=drawn, source=_OF_WEEK
    )


def _panel(
    series: pl.DataFrame, width: int, palette: style.Palette, *, has_measure: bool
) -> interactive.Spec:
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
    drawn = drawn.with_columns(coverage=series["coverage"])
    every = max(1, -(-drawn.height * 64 // width))
    weeks = drawn["week"].to_list()
    axis = {"labelAngle": 0, "values": weeks[::-1][::every], "ticks": False, "grid": False}
    x = style.field("week:O", title=None, scale={"domain": weeks}, axis=axis)
    scaled = {"axis": {"tickCount": 3}, "scale": {"zero": True, "nice": True}}
    place = {"x": x, "y": style.field("value:Q", title=None, **scaled)}
    colour = {"value": palette["info"]}
    ends = {"x": x, "y": style.field("lower:Q"), "y2": {"field": "upper"}, "fill": colour}
    hollow = style.where("datum.is_part", 0, 1)
    shown = {**place, "stroke": colour, "fill": colour, "fillOpacity": hollow}
    points = style.mark("point", shown, size=28, filled=False, strokeWidth=1.5)
    name = _panel_title(series.row(0, named=True), has_measure=has_measure)
    ending = f" ({unit})" if unit else ""
    words = style.fitted(visible(name), width + 40 - style.width_of(ending)) + ending
    title = {
        "text": words, "anchor": "start", "fontSize": style.FONT_SIZE,
        "fontWeight": "normal", "color": palette["text"], "offset": 4,
    }  # fmt: skip
    dashes: dict[str, Any] = {"strokeDash": [4, 3], "strokeWidth": 1, "interpolate": "step"}
    grey = {"x": x, "stroke": {"value": palette["muted"]}}
    limits = [
        style.mark("line", {**grey, "y": style.field(f"{name}:Q")}, **dashes)
        for name in LIMITS
        if name in drawn.columns and drawn[name].count()
    ]
    return {
        "data": drawn,
        "tooltips": {
            "week": "week", "value": "value", "at_least": "lower", "at_most": "upper",
            "covered": "coverage",
        },
        "layer": [
            style.mark("area", ends, fillOpacity=0.2),
            *limits,
            style.mark("line", {**place, "stroke": colour}, strokeWidth=1.5),
            {**points, "clicks": ("chosen_week", "week")},
        ],
        "width": width,
        "height": 70,
        "title": title,
    }  # fmt: skip


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
    n_values = frame["value"].count()
    title = f"{measure.name.replace('_', ' ')} ({measure.unit})"
    axis = {"format": FORMATS.get(measure.unit, "~s"), "tickCount": 3 if comparison.every else 5}
    number: dict[str, Any] = {"axis": axis, "scale": {"zero": measure.kind != "median"}}
    colour, muted = {"value": palette["info"]}, {"value": palette["muted"]}
    points = {"filled": True, "size": 40}
    clicks = {"clicks": ("chosen_groups", *by, "since", "until")}
    source = style.Source(comparison.table, comparison.conditions, where=comparison.where)
    room: dict[str, Any] = {"palette": palette, "width": width, "source": source}
    words = visible(sentence or comparison.title)
    spec: interactive.Spec = {
        "data": frame,
        "tooltips": {
            "of": "group", "from_": "since", "to": "until", "value": "value", "at_least": "low",
            "at_most": "high", "n": "n", "of_runs": "n_of", "before": "value_before",
            "difference": "difference", "verdict": "verdict",
        },
        "description": f"{title}, {len(names)} groups, {n_values} values.",
    }  # fmt: skip
    if not comparison.every:
        y = style.field("group:N", sort=names, title=None, axis=style.label_axis(220))
        x = style.field("value:Q", title=title, **number)
        ends = {"x": style.field("low:Q"), "x2": {"field": "high"}}
        layers = [style.mark("rule", {**ends, "y": y, "color": colour}, strokeWidth=2)]
        if "value_before" in frame.columns:
            before = {"x": style.field("value_before:Q"), "y": y, "color": muted}
            layers.append(style.mark("tick", before, thickness=2))
        layers.append(
            {**style.mark("point", {"x": x, "y": y, "color": colour}, **points), **clicks}
        )
        spec |= {"layer": layers, "width": width - 220, "height": {"step": 24}}
        return interactive.finished(alt.LayerChart, spec, words, **room)
    scale = {"type": "utc", "padding": 8}
    place = {
        "x": style.field("since:T", title="UTC", axis=style.UTC_AXIS, scale=scale),
        "y": style.field("value:Q", title=None, **number),
    }
    ends = {"y": style.field("low:Q"), "y2": {"field": "high"}, "fill": colour}
    layers = [
        style.mark("area", {**place, **ends}, fillOpacity=0.2),
        style.mark("line", {**place, "stroke": colour}, strokeWidth=1.5),
        {**style.mark("point", {**place, "color": colour}, **points), **clicks},
    ]
    if "change" in frame.columns:
        at = style.field("changed_at:T", scale={"type": "utc"})
        layers.insert(0, _change_rules("change", palette, x=at))
    spec |= {
        "spec": {"layer": layers, "width": width, "height": 80},
        "facet": {"row": style.field("group:N", sort=names, header=style.HEADER)},
        "spacing": 12,
    }
    return interactive.finished(alt.FacetChart, spec, words, **room)


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
    import altair as alt

    spec = over_time_spec(counts, palette=palette, width=width)
    room: dict[str, Any] = {"palette": palette, "width": width, "source": _OF_ENDING}
    return interactive.finished(alt.FacetChart, spec, "", **room)


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
