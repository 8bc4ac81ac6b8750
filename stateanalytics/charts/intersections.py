"""Which detectors flag the same rows: bars of sets over a grid of dots (UpSet)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.charts.titles import titled
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("rank", "n", "detector", "is_member", "n_flagged")
_LABEL_WIDTH, _ROW, _BARS = 190, 20, 110


def chart_intersections(
    sets: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.VConcatChart:
    """One column a set: above how many rows exactly these detectors flag, below which they are.

    Parameters
    ----------
    sets : polars.DataFrame
        From `intersections`.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.VConcatChart
        Detectors by how many rows they flag, the most at the top.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in sets.columns]:
        raise MissingColumnsError.of(missing, sets.columns, "chart_intersections")
    used = sets.filter(pl.col("is_member").any().over("detector"))
    order = (
        used.select("detector", "n_flagged")
        .unique()
        .sort("n_flagged", "detector", descending=[True, False])["detector"]
        .to_list()
    )
    room = width - _LABEL_WIDTH
    columns = alt.X("rank:O", axis=None)
    totals = used.select("rank", "n").unique().sort("rank")
    bars = alt.Chart(totals).encode(
        x=columns,
        y=alt.Y(
            "n:Q",
            title=None,
            axis=None,
            scale=alt.Scale(domain=[0, 1.2 * max(largest(totals, "n"), 1)]),
        ),
    )
    above = alt.layer(
        bars.mark_bar(width=16).encode(color=alt.value(palette["info"])),
        bars.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE).encode(
            text="n:Q", color=alt.value(palette["text"])
        ),
    ).properties(width=room, height=_BARS)
    grid = alt.Chart(used).encode(
        x=columns,
        y=alt.Y(
            "detector:N",
            scale=alt.Scale(domain=order),
            title=None,
            axis=alt.Axis(
                domain=False, ticks=False, labelLimit=_LABEL_WIDTH - 10, minExtent=_LABEL_WIDTH - 10
            ),
        ),
    )
    # A member is large and filled, any other one small and hollow: no colour is needed.
    dots = grid.mark_point(filled=True, opacity=1).encode(
        size=alt.condition("datum.is_member", alt.value(90), alt.value(14)),
        color=alt.condition(
            "datum.is_member", alt.value(palette["text"]), alt.value(palette["line"])
        ),
    )
    place = pl.col("detector").replace_strict({name: n for n, name in enumerate(order)})
    names = pl.col("detector").sort_by(place)
    spans = used.filter("is_member").group_by("rank").agg(first=names.first(), last=names.last())
    lines = (
        alt.Chart(spans)
        .mark_rule(strokeWidth=2)
        .encode(
            x=columns,
            y=alt.Y("first:N", scale=alt.Scale(domain=order)),
            y2="last:N",
            color=alt.value(palette["text"]),
        )
    )
    below = alt.layer(lines, dots).properties(width=room, height=_ROW * max(len(order), 1))
    chart: Any = alt.vconcat(above, below, spacing=4).resolve_scale(x="shared")
    n = int(totals["n"].sum() or 0)
    described = chart.properties(description=f"{n} rows in {totals.height} sets of detectors.")
    dressed: alt.VConcatChart = dress(
        titled(described, sentence, palette=palette, width=width), palette
    )
    return dressed
