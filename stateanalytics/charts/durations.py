"""How long runs took: by how they ended, and against their configured time limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from stateanalytics.charts import interactive, style
from stateanalytics.core.text import visible
from stateanalytics.core.words import how_long, say
from stateanalytics.errors import ColumnTypeError, check_columns

if TYPE_CHECKING:
    import altair as alt


class Ending(NamedTuple):
    """How charts show an ending: runs with the same limit stand side by side, by ``offset``."""

    words: str
    colour: str
    shape: str
    offset: float


ENDINGS = {
    "completed": Ending("completed", "success", "circle", 0.93),
    "failed": Ending("failed", "critical", "cross", 1.07),
    "timed_out": Ending("timed out", "warning", "square", 1.0),
    "aborted": Ending("aborted", "neutral", "diamond", 1.14),
    "cancelled": Ending("cancelled", "neutral", "triangle-down", 1.21),
    "skipped": Ending("skipped", "neutral", "triangle-right", 1.28),
    "running": Ending("still running", "info", "triangle-up", 0.87),
}
"""Runs that reached their limit stand on it."""
SLOW_S = 3_600
ROW_HEIGHT = 58
_HEADROOM = 1.3
NOTE: dict[str, Any] = {"baseline": "bottom", "fontSize": style.FONT_SIZE - 1}
NEEDED = ("ending", "low_s", "high_s", "n", "n_cut_off")
_OF_STEP = (("low_s", "duration_s >= {}"), ("high_s", "duration_s < {}"))


def chart_durations(
    steps: pl.DataFrame,
    *,
    by: str = "ending",
    slow_after_s: float = SLOW_S,
    limits: Mapping[str, float] | None = None,
    palette: style.Palette = style.LIGHT,
    width: int = 620,
) -> alt.FacetChart:
    """A row of bars for each ending, by duration; hollow bars are lower bounds.

    Parameters
    ----------
    steps : polars.DataFrame
        From `survival.spells`, or counted: ``ending`` (or ``by``), ``low_s``, ``high_s``,
        ``n``, ``n_cut_off``.
    by : str
        The column whose values have a row each, such as ``kind``.
    slow_after_s : float
        From how many seconds on a run is slow.
    limits : mapping of str to float, optional
        Names and seconds of today's limits, each a dashed line with its name and value; by
        default the one of slow runs.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart
        Holds the frame that it draws. Rows share both axes, so heights can be compared.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ColumnTypeError
        If a count or an edge is no number.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> spells = sa.survival.spells(sa.demo())
    >>> chart = sa.charts.chart_durations(spells)
    >>> print(chart.description)
    1232 durations by how they ended, on a logarithmic axis of time.
    """
    import altair as alt

    if "duration_s" in getattr(steps, "columns", ()):
        # What is counted already, as in a page, needs no rules of states.
        from stateanalytics.survival.run_spells import count_spells

        steps = count_spells(steps, by)
    if by != "ending":
        check_columns(steps, [by], "chart_durations")
        steps = steps.with_columns(
            ending=pl.col(by).cast(pl.String).fill_null("not recorded"),
            n_ended=pl.col("n") - pl.col("n_cut_off"),
        )
    given = {"slow": slow_after_s} if limits is None else limits
    spec = durations_spec(steps, given, by=by, palette=palette, width=width)
    source = style.Source("spells", (("ending", f"{by} = {{}}"), *_OF_STEP))
    return interactive.finished(
        alt.FacetChart, spec, "", palette=palette, width=width, source=source
    )


def durations_spec(
    steps: pl.DataFrame,
    limits: Mapping[str, float],
    *,
    by: str = "ending",
    palette: style.Palette,
    width: int,
) -> interactive.Spec:
    """The specification of `chart_durations`, of steps that are counted."""
    drawn = _drawable(steps)
    values = list(dict.fromkeys(drawn["ending"].to_list()))
    endings = values if by != "ending" else [ending for ending in ENDINGS if ending in values]
    # An axis of logarithms has no place for the others.
    today = {name: value for name, value in limits.items() if value and 0 < value < math.inf}
    low, high = _domain(drawn, today.values())
    hidden = (10, 600) if width < 400 else ()
    ticks = [tick for tick in style.TICKS if low <= tick <= high and tick not in hidden]
    log = {"type": "log", "domain": [low, high], "nice": False}
    # Numbers stand above their bars, and names of limits above the numbers.
    runs = {"domain": [0, _HEADROOM * max(style.largest(drawn, "n"), 1)], "nice": False}
    drawn, lines = _limit_lines(drawn, today, endings, palette)
    fills = {
        "domain": [_shown(ending).words for ending in endings],
        "range": [palette[_shown(ending).colour] for ending in endings],
    }
    colour = style.field("ending_name:N", scale=fills, legend=None)
    height = style.field("n:Q", title=None, axis=None, scale=runs)
    axis = style.time_axis(ticks, labelFlush=True)
    x = style.field("from_s:Q", title="duration", scale=log, axis=axis)
    ends = {"x": x, "x2": {"field": "to_s"}, "y": height, "y2": {"datum": 0}}
    opacity = style.where("datum.is_cut_off", 0.15, 1)
    filled = {**ends, "fill": colour, "fillOpacity": opacity, "stroke": colour}
    bars = style.mark("rect", filled, strokeWidth=1)
    bars["clicks"] = "chosen_durations", "ending", "low_s", "high_s"
    middle = {"x": style.field("middle_s:Q", scale={"type": "log"}), "y": height}
    shown = {**middle, "text": style.field("n:Q"), "color": {"value": palette["muted"]}}
    counts = style.mark("text", shown, dy=-2, **NOTE)
    layers = [*lines, bars] if width < 400 else [*lines, bars, counts]
    if by != "ending":
        ended = {**filled, "y": {**height, "field": "n_ended"}, "fillOpacity": {"value": 1}}
        layers.append(style.mark("rect", ended))
    by_ending = dict(drawn[["ending", "row_name"]].iter_rows())
    rows = [by_ending[ending] for ending in endings]
    return {
        "data": drawn,
        "tooltips": {
            "ended" if by == "ending" else by: "ending_name",
            **{"runs": "n", "at_least": "low_s", "below": "high_s", "cut_off": "n_cut_off"},
        },
        "facet": {"row": style.field("row_name:N", sort=rows, header=style.HEADER)},
        "spec": {"layer": layers, "width": width, "height": ROW_HEIGHT},
        "spacing": 12,
        "description": f"{drawn['n'].sum()} durations by "
        f"{'how they ended' if by == 'ending' else by}, "
        "on a logarithmic axis of time.",
    }  # fmt: skip


def _shown(ending: str) -> Ending:
    """How an ending is shown, or another value that has a row."""
    return ENDINGS.get(ending) or Ending(visible(ending), "info", "circle", 1.0)


def _limit_lines(
    drawn: pl.DataFrame, limits: Mapping[str, float], endings: list[str], palette: style.Palette
) -> tuple[pl.DataFrame, list[interactive.Spec]]:
    """A line for each limit through all rows, with its name above one of them.

    The names stand next to those of the rows, one below the other, so that two limits of
    almost the same length can be read.
    """
    columns: list[pl.Expr] = []
    layers: list[interactive.Spec] = []
    is_first = pl.int_range(pl.len()).over("ending") == 0
    named = sorted(limits.items(), key=lambda limit: limit[1]) if endings else []
    for place, (name, seconds) in enumerate(named):
        is_named = is_first & (pl.col("ending") == endings[place % len(endings)])
        words = pl.lit(f"{visible(name)}: {how_long(seconds)}")
        columns += [
            pl.lit(float(seconds)).alias(f"limit_{place}_s"),
            pl.when(is_named).then(words).alias(f"limit_{place}"),
        ]
        x = style.field(f"limit_{place}_s:Q", aggregate="mean")
        at = {"x": x, "color": {"value": palette["muted"]}}
        named_at = {**at, "y": {"value": 0}, "text": style.field(f"limit_{place}:N")}
        layers += [
            style.mark("rule", at, strokeDash=[4, 3], strokeWidth=1),
            {
                **style.mark("text", named_at, dy=-3, **NOTE),
                "transform": [{"filter": f"datum.limit_{place} != null"}],
            },
        ]
    # Layers of a facet share its frame.
    return drawn.with_columns(columns), layers


def _drawable(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps with ends that a log axis can draw, and with names."""
    check_columns(steps, NEEDED, "chart_durations")
    if wrong := [
        name
        for name in NEEDED[1:]
        if not (steps[name].dtype.is_numeric() or steps[name].is_empty())
    ]:
        raise ColumnTypeError(
            f"chart_durations needs numbers in {wrong}; found {steps[wrong[0]].dtype}.",
            "pass what sa.survival.spells returned",
        )
    counts, n_cut_off = (pl.col(name).sum().over("ending") for name in ("n", "n_cut_off"))
    is_cut_off = pl.col("n_cut_off") > 0
    name = pl.col("ending").replace_strict(
        {name: ending.words for name, ending in ENDINGS.items()}, default=pl.col("ending")
    )
    return (
        steps.lazy()
        .filter(pl.col("ending").is_not_null())
        .with_columns(
            from_s=pl.max_horizontal(pl.col("low_s"), 0.5),
            # Slightly narrower than the step, so that bars do not touch.
            to_s=pl.coalesce("high_s", pl.col("low_s") * 2) * 0.97,
            ending_name=name,
            is_cut_off=is_cut_off,
            row_name=pl.format(
                "{}: {}{}",
                name,
                counts,
                pl.when(n_cut_off == 0)
                .then(pl.lit(""))
                .when(n_cut_off == counts)
                .then(pl.lit(" (lower bounds)"))
                .otherwise(pl.format(" ({} lower bounds)", n_cut_off)),
            ),
        )
        .with_columns(middle_s=(pl.col("from_s") * pl.col("to_s")).sqrt())
        .collect()
    )


def _domain(drawn: pl.DataFrame, limits_s: Collection[float]) -> list[float]:
    """The axis: at least from a second to two hours, so that charts of two weeks are comparable."""
    is_below_a_second = (drawn["from_s"] < 1).any()
    return [
        min([0.5 if is_below_a_second else 1.0, *limits_s]),
        max([2.0 * SLOW_S, style.largest(drawn, "to_s"), *limits_s]),
    ]


_STEPS_A_DECADE = 20
_OF_LIMIT = style.Source(
    "timeouts", (("ending", "ending = {}"), ("limit_s", "limit_s = {}")), ranges=("elapsed_s",)
)


def chart_limits(
    runs: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: style.Palette = style.LIGHT,
    width: int = 620,
    height: int = 320,
) -> alt.LayerChart:
    """The duration of every run with a known limit, against that limit.

    Parameters
    ----------
    runs : polars.DataFrame
        From `timeouts`; runs without a limit or a duration are not drawn.
    sentence : str, optional
        Heading; by default what the chart shows (`say_limits`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        Runs on the line took exactly their limit. Shapes show how they ended, side by side
        where limits are equal; equal runs are drawn as a larger shape; hollow shapes never
        took a turn.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> chart = sa.charts.chart_limits(sa.survival.timeouts(sa.demo()))
    >>> print(chart.description)
    37 of 238 runs with a known limit ran into it.
    """
    import altair as alt

    check_columns(runs, ("limit_s", "elapsed_s", "ending", "fits", "has_no_turns"), "chart_limits")
    drawn = _binned(runs)
    high = 2 * max(style.largest(drawn, "limit_s"), style.largest(drawn, "elapsed_s"), 60.0)
    low = min(_least(drawn, "limit_s"), _least(drawn, "elapsed_s")) / 2
    ends: dict[str, Any] = {"low_s": low, "high_s": high}
    limit = style.log_time("drawn_limit_s", title="configured limit", width=width, **ends)
    took = style.log_time(
        "elapsed_s", title="how long it took", width=height, vertical=True, **ends
    )
    occurring = [name for name in ENDINGS if name in drawn["ending"].to_list()]
    names = [ENDINGS[name].words for name in occurring]
    place = {"x": limit, "y": took}
    grey = {**place, "color": {"value": palette["muted"]}}
    corner = {"align": "right", "dx": -64, "dy": 6, **NOTE, "baseline": "top"}
    word = style.mark("text", {**grey, "text": {"value": "at its limit"}}, **corner)
    colours = {"domain": names, "range": [palette[ENDINGS[name].colour] for name in occurring]}
    shapes = {"domain": names, "range": [ENDINGS[name].shape for name in occurring]}
    legend = {"orient": "top", "symbolSize": 70, "labelColor": palette["text"]}
    shown = {
        **place,
        "shape": style.field("how:N", title=None, scale=shapes, legend=legend),
        "stroke": style.field("how:N", scale=colours, title=None),
        "fill": style.field("how:N", scale=colours, title=None),
        "fillOpacity": style.where("datum.is_hollow", 0, 0.5),
        "size": style.field("n:Q", scale={"type": "sqrt", "range": [30, 320]}, legend=None),
    }
    line = style.mark("line", grey, strokeDash=[4, 3], strokeWidth=1)
    diagonal = pl.DataFrame({"drawn_limit_s": [low, high], "elapsed_s": [low, high]})
    spec = {
        "layer": [
            {**line, "data": diagonal},
            {**word, "data": diagonal.tail(1)},
            {
                **style.mark("point", shown, strokeWidth=1.5, clip=True),
                "data": drawn,
                "tooltips": {
                    "ended": "how", "runs": "n", "limit": "limit_s", "took": "elapsed_s",
                    "run": "run",
                },
                "clicks": ("chosen_endings", "how"),
                "in_legend": True,
                "drags": ("chosen_runs", "x", "y"),
                "moves": ("limits_axes", "x", "y"),
            },
        ],
        "width": width,
        "height": height,
    }  # fmt: skip
    words = say_limits(runs) if sentence is None else sentence
    return interactive.finished(
        alt.LayerChart, spec, words, palette=palette, width=width, source=_OF_LIMIT
    )


def _binned(runs: pl.DataFrame) -> pl.DataFrame:
    """Counts of runs that a drawing cannot distinguish."""
    words = {name: ending.words for name, ending in ENDINGS.items()}
    offsets = {name: ending.offset for name, ending in ENDINGS.items()}
    step = (pl.col("elapsed_s").log10() * _STEPS_A_DECADE).round()
    name = pl.col("entity_id") if "entity_id" in runs.columns else pl.lit(None, pl.String)
    run = pl.when(pl.len() == 1).then(name.first()).otherwise(pl.lit("several"))
    return (
        runs.filter(
            pl.col("limit_s") > 0, pl.col("elapsed_s") >= 0, pl.col("ending").is_in(list(words))
        )
        .with_columns(
            elapsed_s=pl.max_horizontal("elapsed_s", pl.lit(style.SHORTEST_S)),
            is_hollow=pl.col("has_no_turns").fill_null(False),
        )
        .group_by("limit_s", "ending", "is_hollow", step.alias("step"))
        .agg(pl.col("elapsed_s").median(), n=pl.len(), run=run)
        .with_columns(
            how=pl.col("ending").replace_strict(words, return_dtype=pl.String),
            drawn_limit_s=pl.col("limit_s") * pl.col("ending").replace_strict(offsets),
        )
        .sort("ending", "limit_s", "elapsed_s")
        .drop("step")
    )


def _least(frame: pl.DataFrame, column: str) -> float:
    return float(frame[column].min() or 60.0)  # type: ignore[arg-type]


def say_limits(runs: pl.DataFrame) -> str:
    """How many runs reached their time limit, and how many of these never took a turn.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "limit_s": [900.0, 900.0, None],
    ...         "elapsed_s": [900.5, 60.0, 5.0],
    ...         "fits": ["at_limit", "before", None],
    ...         "has_no_turns": [True, False, None],
    ...     }
    ... )
    >>> say_limits(runs)
    '1 of 2 runs with a known limit ran into it, 1 of them without a single turn.'
    """
    known = runs.filter(pl.col("limit_s").is_not_null() & pl.col("elapsed_s").is_not_null())
    if known.is_empty():
        return say("chart.no_limit")
    at_limit = known.filter(pl.col("fits") == "at_limit")
    empty = at_limit.filter(pl.col("has_no_turns").fill_null(False)).height
    tail = say("chart.without_turns", n=empty) if empty else ""
    return say("chart.at_limit", n=at_limit.height, n_known=known.height, tail=tail)
