"""How runs ended over time: one row of bars an outcome, and one for what was open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.durations import ENDINGS
from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

OPEN = "open"
NEEDED = ("label", "ending", "n")
ROW_HEIGHT = 40


def chart_over_time(
    counts: pl.DataFrame, *, palette: Palette = LIGHT, width: int = 620
) -> alt.FacetChart:
    """One row of bars for each way to end, over steps of time, with their numbers.

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
        Outcomes share a scale, so heights compare; the row of open runs has its own.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in counts.columns]:
        raise MissingColumnsError.of(missing, counts.columns, "chart_over_time")
    drawn = _drawable(counts)
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
        color=alt.Color("row_name:N", scale=alt.Scale(domain=rows, range=fills), legend=None)
    )
    numbers = base.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE - 1).encode(
        text="n:Q",
        color=alt.condition("datum.n > 0", alt.value(palette["text"]), alt.value(palette["muted"])),
    )
    layers = [bars, numbers] if room >= 24 else [bars]
    chart = (
        alt.layer(*layers, data=drawn)
        .properties(width=width, height=ROW_HEIGHT)
        .facet(
            row=alt.Row(
                "row_name:N",
                sort=rows,
                header=alt.Header(labelOrient="top", labelAnchor="start", labelPadding=2),
            ),
            spacing=10,
        )
    )
    n = int(counts.filter(pl.col("ending") != OPEN)["n"].sum())
    return dress(chart.properties(description=f"{n} runs by when and how they ended."), palette)


def _drawable(counts: pl.DataFrame) -> pl.DataFrame:
    """The counts as heights between 0 and 1, with the name and colour of each row."""
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
