"""Rates, costs and throughput of runs over time, a line for each value of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from stateanalytics.charts.living import Palette, Source
from stateanalytics.charts.pointing import click, faint, moving, told
from stateanalytics.charts.style import LIGHT, finished, utc_axis
from stateanalytics.charts.text_width import fitted
from stateanalytics.core.facts import Facts
from stateanalytics.core.own_columns import own_column
from stateanalytics.core.text import visible
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.failure_rates import OTHERS, UNKNOWN, rates
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.conditions import NOT_DRIVEN, is_run, literal, with_own

if TYPE_CHECKING:
    import altair as alt

# What is drawn: its column, the title of its axis, its form.
MEASURES = {
    "failed": ("share", "share of ended runs that failed", "%"),
    "runs": ("n_ended", "runs that ended", "~s"),
    "failures": ("n_failed", "runs that failed", "~s"),
    "cost": ("cost_usd", "cost of ended runs", "$~s"),
    "lost": ("failed_cost_usd", "cost of failed runs", "$~s"),
}
# Of `state.population`, in SQL: what rates may count, and has ended.
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
    """A share, a number or a cost of runs over steps of time, by project, model, kind, ….

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    by, every, window
        As in `failures.rates`.
    of : {"failed", "runs", "failures", "cost", "lost"}
        The share that failed or timed out; how many ended, or failed; what those cost.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        ``.data`` is what `failures.rates` gave, at most five values and the others. A click
        in the legend keeps lines; where there is only one, its interval is a band.

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
    drawn, tips = told(
        _named(rates(snap, by=by, every=every, window=window)), of="name", from_="step_at",
        to="until", runs="n_ended", failed="n_failed", share="share", at_least="share_low",
        at_most="share_high", cost="cost_usd", cost_of_failed="failed_cost_usd",
    )  # fmt: skip
    names = drawn["name"].unique(maintain_order=True).to_list()
    kept = click("chosen_lines", "name", in_legend=True)
    chosen = click("chosen_rates", "value", "step_at", "until")
    fills = alt.Scale(domain=names, range=[palette[name] for name in COLOURS[: len(names)]])
    legend = None if len(names) < 2 else alt.Legend(orient="top", labelColor=palette["text"])
    step = alt.X("step_at:T", title="UTC", scale=alt.Scale(type="utc", padding=8), axis=utc_axis())
    base = alt.Chart(drawn).encode(
        x=step, color=alt.Color("name:N", title=None, scale=fills, legend=legend)
    )
    value = alt.Y(f"{column}:Q", title=title, axis=alt.Axis(format=form, tickCount=5))
    # The legend is that of the first layer which has one: a click in it reaches only its choice.
    line = (
        base.mark_line(strokeWidth=1.5, clip=True)
        .encode(y=value, opacity=faint(kept))
        .add_params(kept)
    )
    points = (
        base.mark_point(filled=True, size=40, clip=True)
        .encode(
            y=value,
            tooltip=tips,
            opacity=faint(kept & chosen),
            shape=alt.Shape(
                "name:N",
                title=None,
                legend=legend,
                scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)])),
            ),
        )
        .add_params(chosen, moving("rates_axis"))
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
    asked = None if window is None else read_window(window, as_of=snap.as_of)
    within = [] if asked is None else [_between(asked)]
    own = getattr(snap, "own_tables", {})
    joined = own_column(snap.table("entity_states"), by, own) if own else None  # type: ignore[attr-defined]
    source = Source(
        with_own("entity_states", [joined] if joined else []),
        (*_whose(by, drawn), ("step_at", "ended_at >= {}"), ("until", "ended_at < {}")),
        where=" AND ".join([is_run(snap.entities["system"].unique()), _COUNTED, *within]),
    )
    return finished(alt.LayerChart, chart, sentence, palette=palette, width=width, source=source)


def _between(asked: Window) -> str:
    return f"ended_at >= {literal(asked.since)} AND ended_at < {literal(asked.until)}"


def _whose(by: str | None, drawn: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """What holds of the runs of a line, in SQL; the others are those of no line."""
    if by is None:
        return ()
    kept = ", ".join(literal(value) for value in drawn["value"].unique().sort())
    value = f"coalesce({quoted(by)}::VARCHAR, {literal(UNKNOWN)})"
    line = f"CASE WHEN {value} IN ({kept}) THEN {value} ELSE {literal(OTHERS)} END"
    return (("value", f"{line} = {{}}"),)


def _named(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with a name for each value that fits into a legend, those with most runs first."""
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
