"""The map of time limits: what was configured against how long runs took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.durations import ENDINGS
from stateanalytics.charts.living import Palette, Source
from stateanalytics.charts.pointing import click, drag, faint, moving, told
from stateanalytics.charts.sentences import say_limits
from stateanalytics.charts.style import LIGHT, SHORTEST_S, finished, largest, log_time
from stateanalytics.charts.text_width import FONT_SIZE
from stateanalytics.errors import check_columns

if TYPE_CHECKING:
    import altair as alt

SHAPES = {
    "completed": "circle",
    "failed": "cross",
    "timed_out": "square",
    "aborted": "diamond",
    "cancelled": "triangle-down",
    "skipped": "triangle-right",
    "running": "triangle-up",
}
ASIDE = {
    "timed_out": 1.0,
    "completed": 0.93,
    "failed": 1.07,
    "running": 0.87,
    "aborted": 1.14,
    "cancelled": 1.21,
    "skipped": 1.28,
}
"""Endings of one limit stand side by side; those that met it stand on it."""
_STEPS_A_DECADE = 20
_OF_LIMIT = Source(
    "timeouts", (("ending", "ending = {}"), ("limit_s", "limit_s = {}")), ranges=("elapsed_s",)
)


def chart_limits(
    runs: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 320,
) -> alt.LayerChart:
    """Every run with a known limit: how long it might have taken, and how long it took.

    Parameters
    ----------
    runs : polars.DataFrame
        What `timeouts` gave; runs without a limit or a duration are not drawn.
    sentence : str, optional
        Heading; by default what the chart proves (`say_limits`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        Runs on the line took exactly their limit. Shapes say how they ended, side by side
        where limits are equal; equal runs are drawn once, larger; hollow shapes never
        took a turn.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    check_columns(runs, ("limit_s", "elapsed_s", "ending", "fits", "has_no_turns"), "chart_limits")
    drawn, tips = told(
        _binned(runs), ended="how", runs="n", limit="limit_s", took="elapsed_s", run="run"
    )
    kept, chosen = click("chosen_endings", "how", in_legend=True), drag("chosen_runs", "x", "y")
    high = 2 * max(largest(drawn, "limit_s"), largest(drawn, "elapsed_s"), 60.0)
    low = min(_least(drawn, "limit_s"), _least(drawn, "elapsed_s")) / 2
    limit = log_time("beside_s", low_s=low, high_s=high, title="configured limit", width=width)
    took = log_time(
        "elapsed_s", low_s=low, high_s=high, title="how long it took", width=height, vertical=True
    )
    there = [name for name in ENDINGS if name in drawn["ending"].to_list()]
    names = [ENDINGS[name][0] for name in there]
    line = (
        alt.Chart(pl.DataFrame({"beside_s": [low, high], "elapsed_s": [low, high]}))
        .mark_line(strokeDash=[4, 3], strokeWidth=1)
        .encode(x=limit, y=took, color=alt.value(palette["muted"]))
    )
    word = (
        alt.Chart(pl.DataFrame({"beside_s": [high], "elapsed_s": [high]}))
        .mark_text(align="right", baseline="top", dx=-64, dy=6, fontSize=FONT_SIZE - 1)
        .encode(x=limit, y=took, text=alt.value("at its limit"), color=alt.value(palette["muted"]))
    )
    colours = alt.Scale(domain=names, range=[palette[ENDINGS[name][1]] for name in there])
    points = (
        alt.Chart(drawn)
        .mark_point(strokeWidth=1.5, clip=True)
        .encode(
            x=limit,
            y=took,
            shape=alt.Shape(
                "how:N",
                title=None,
                scale=alt.Scale(domain=names, range=[SHAPES[name] for name in there]),
                legend=alt.Legend(orient="top", symbolSize=70, labelColor=palette["text"]),
            ),
            stroke=alt.Stroke("how:N", scale=colours, title=None),
            fill=alt.Fill("how:N", scale=colours, title=None),
            fillOpacity=alt.condition("datum.is_hollow", alt.value(0), alt.value(0.5)),
            size=alt.Size("n:Q", scale=alt.Scale(type="sqrt", range=[30, 320]), legend=None),
            tooltip=tips,
            opacity=faint(kept),
        )
        .add_params(kept, chosen, moving("limits_axes", "x", "y"))
    )
    chart = alt.layer(line, word, points).properties(width=width, height=height)
    words = say_limits(runs) if sentence is None else sentence
    return finished(alt.LayerChart, chart, words, palette=palette, width=width, source=_OF_LIMIT)


def _binned(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs that a drawing cannot tell apart, counted."""
    words = {name: how for name, (how, _) in ENDINGS.items()}
    step = (pl.col("elapsed_s").log10() * _STEPS_A_DECADE).round()
    name = pl.col("entity_id") if "entity_id" in runs.columns else pl.lit(None, pl.String)
    one = pl.when(pl.len() == 1).then(name.first()).otherwise(pl.lit("several"))
    return (
        runs.filter(
            pl.col("limit_s") > 0, pl.col("elapsed_s") >= 0, pl.col("ending").is_in(list(words))
        )
        .with_columns(
            elapsed_s=pl.max_horizontal("elapsed_s", pl.lit(SHORTEST_S)),
            is_hollow=pl.col("has_no_turns").fill_null(False),
        )
        .group_by("limit_s", "ending", "is_hollow", step.alias("step"))
        .agg(pl.col("elapsed_s").median(), n=pl.len(), run=one)
        .with_columns(
            how=pl.col("ending").replace_strict(words, return_dtype=pl.String),
            beside_s=pl.col("limit_s") * pl.col("ending").replace_strict(ASIDE),
        )
        .sort("ending", "limit_s", "elapsed_s")
        .drop("step")
    )


def _least(frame: pl.DataFrame, column: str) -> float:
    return float(frame[column].min() or 60.0)  # type: ignore[arg-type]
