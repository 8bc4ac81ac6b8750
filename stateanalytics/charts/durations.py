"""How long runs took, by how they ended, on a logarithmic axis of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.log_time import TICKS, tick_labels
from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.errors import ColumnTypeError, MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

ENDINGS = {
    "completed": ("completed", "success"),
    "failed": ("failed", "critical"),
    "timed_out": ("timed out", "warning"),
    "aborted": ("aborted", "neutral"),
    "cancelled": ("cancelled", "neutral"),
    "skipped": ("skipped", "neutral"),
    "running": ("still running", "info"),
}
SLOW_S = 3_600
ROW_HEIGHT = 46
NEEDED = ("ending", "low_s", "high_s", "n", "n_cut_off")


def chart_durations(
    steps: pl.DataFrame,
    *,
    slow_after_s: float = SLOW_S,
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.FacetChart:
    """One row of bars for each way to end; hollow bars lasted at least so long.

    Parameters
    ----------
    steps : polars.DataFrame
        What `count_spells` gave: ``ending``, ``low_s``, ``high_s``, ``n``, ``n_cut_off``.
    slow_after_s : float
        Where the dashed line stands.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart
        Carries the frame that it draws. Rows share both axes, so heights compare.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ColumnTypeError
        If a count or an edge is no number.
    """
    import altair as alt

    drawn = _drawable(steps, slow_after_s)
    endings = [ending for ending in ENDINGS if ending in drawn["ending"].to_list()]
    names = [ENDINGS[ending][0] for ending in endings]
    colours = [palette[ENDINGS[ending][1]] for ending in endings]
    time = alt.X(
        "from_s:Q",
        title="duration",
        scale=alt.Scale(type="log", domain=_domain(drawn), nice=False),
        axis=alt.Axis(
            values=_ticks(drawn, sparse=width < 400),
            labelExpr=tick_labels(),
            grid=True,
            gridOpacity=0.6,
            labelFlush=True,
        ),
    )
    runs = alt.Y(
        "n:Q",
        title=None,
        scale=alt.Scale(domain=[0, max(largest(drawn, "n"), 1)], nice=False),
        axis=None,
    )
    base = alt.Chart(drawn)
    scale = alt.Scale(domain=names, range=colours)
    bars = base.mark_rect(strokeWidth=1).encode(
        x=time,
        x2="to_s:Q",
        y=runs,
        y2=alt.datum(0),
        fill=alt.Fill("ending_name:N", scale=scale, legend=None),
        fillOpacity=alt.condition("datum.is_cut_off", alt.value(0.15), alt.value(1)),
        stroke=alt.Stroke("ending_name:N", scale=scale, legend=None),
    )
    counts = base.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE - 1).encode(
        x=alt.X("middle_s:Q", scale=alt.Scale(type="log")),
        y=runs,
        text="n:Q",
        color=alt.value(palette["muted"]),
    )
    slow = base.mark_rule(strokeDash=[4, 3], strokeWidth=1).encode(
        x="mean(slow_s):Q", color=alt.value(palette["muted"])
    )
    layers = [slow, bars] if width < 400 else [slow, bars, counts]
    rows = alt.layer(*layers, data=drawn).properties(width=width, height=ROW_HEIGHT)
    chart = rows.facet(
        row=alt.Row(
            "row_name:N",
            sort=_row_names(drawn, endings),
            header=alt.Header(labelOrient="top", labelAnchor="start", labelPadding=2),
        ),
        spacing=12,
    )
    return dress(chart.properties(description=_description(drawn)), palette)


def _drawable(steps: pl.DataFrame, slow_after_s: float) -> pl.DataFrame:
    """The steps with what a log axis cannot know: where the open ends are drawn, and names."""
    if missing := [name for name in NEEDED if name not in steps.columns]:
        raise MissingColumnsError.of(missing, steps.columns, "chart_durations")
    if wrong := [
        name
        for name in NEEDED[1:]
        if not (steps[name].dtype.is_numeric() or steps[name].is_empty())
    ]:
        raise ColumnTypeError(
            f"chart_durations needs numbers in {wrong}; found {steps[wrong[0]].dtype}.",
            "pass what count_spells returned",
        )
    counts = pl.col("n").sum().over("ending")
    is_cut_off = pl.col("n_cut_off") > 0
    name = pl.col("ending").replace_strict(
        {ending: words for ending, (words, _) in ENDINGS.items()}, default=pl.col("ending")
    )
    return (
        steps.filter(pl.col("ending").is_not_null())
        .with_columns(
            from_s=pl.max_horizontal(pl.col("low_s"), 0.5),
            # A hair narrower than the step, so that bars stand apart.
            to_s=pl.coalesce("high_s", pl.col("low_s") * 2) * 0.97,
            ending_name=name,
            is_cut_off=is_cut_off,
            row_name=pl.format(
                "{}: {}{}",
                name,
                counts,
                pl.when(is_cut_off.any().over("ending"))
                .then(pl.lit(" (lasted at least so long)"))
                .otherwise(pl.lit("")),
            ),
        )
        .with_columns(
            middle_s=(pl.col("from_s") * pl.col("to_s")).sqrt(), slow_s=pl.lit(slow_after_s)
        )
    )


def _row_names(drawn: pl.DataFrame, endings: list[str]) -> list[str]:
    by_ending = dict(drawn.select("ending", "row_name").unique(maintain_order=True).iter_rows())
    return [by_ending[ending] for ending in endings]


def _domain(drawn: pl.DataFrame) -> list[float]:
    """At least a second to two hours, so that two weeks can be laid side by side."""
    is_below_a_second = (drawn["from_s"] < 1).any()
    return [0.5 if is_below_a_second else 1.0, max(2.0 * SLOW_S, largest(drawn, "to_s"))]


def _ticks(drawn: pl.DataFrame, *, sparse: bool) -> list[int]:
    low, high = _domain(drawn)
    inside = [tick for tick in TICKS if low <= tick <= high]
    return [tick for tick in inside if tick not in (10, 600)] if sparse else inside


def _description(drawn: pl.DataFrame) -> str:
    return f"Durations of {drawn['n'].sum()} runs by how they ended, on a logarithmic axis of time."
