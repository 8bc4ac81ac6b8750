"""What failed, over the dotted namespace of reason codes: an icicle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.charts.titles import titled
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("code", "parent", "depth", "n_rows")
NO_CODE = "(no code)"
DEPTHS = [0.42, 0.3, 0.2, 0.12]
_ROW_HEIGHT, _LETTER = 34, 6.4


def chart_failure_codes(
    codes: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.LayerChart:
    """One bar a node, as wide as its rows, under the node that it belongs to.

    Parameters
    ----------
    codes : polars.DataFrame
        From `failures.codes`.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        In pixels.

    Returns
    -------
    altair.LayerChart
        A name stands in its bar where there is room for it; the frame has all.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in codes.columns]:
        raise MissingColumnsError.of(missing, codes.columns, "chart_failure_codes")
    drawn = _placed(codes, width)
    depths = max(int(largest(drawn, "depth")), 1)
    total = max(largest(drawn, "end"), 1.0)
    base = alt.Chart(drawn).encode(
        x=alt.X("start:Q", axis=None, scale=alt.Scale(domain=[0, total], nice=False)),
        y=alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[depths, 0], nice=False)),
    )
    bars = base.mark_rect(strokeWidth=1.5).encode(
        x2="end:Q",
        y2="bottom:Q",
        fill=alt.value(palette["critical"]),
        fillOpacity=alt.Opacity(
            "depth:O",
            scale=alt.Scale(domain=[1, 2, 3, 4], range=[0.42, 0.3, 0.2, 0.12]),
            legend=None,
        ),
        stroke=alt.value(palette["surface"]),
    )
    names = base.mark_text(
        align="left", baseline="middle", dx=5, dy=_ROW_HEIGHT / 2, fontSize=FONT_SIZE
    ).encode(text="shown:N", color=alt.value(palette["text"]))
    chart: Any = alt.layer(bars, names).properties(
        width=width,
        height=_ROW_HEIGHT * depths,
        description=f"{int(total)} failed rows over {drawn.height} nodes of reason codes.",
    )
    return cast(
        "alt.LayerChart", dress(titled(chart, sentence, palette=palette, width=width), palette)
    )


def _placed(codes: pl.DataFrame, width: int) -> pl.DataFrame:
    """Where each node stands: below its parent, beside its siblings, in order of names.

    Sorted by their segments a node comes right before what belongs to it; so it begins
    where the rows of its own of all nodes before it end.
    """
    rows = codes.select("code", "parent", "depth", "n_rows")
    below = rows.group_by(code="parent").agg(n_below=pl.col("n_rows").sum())
    placed = (
        rows.join(below, on="code", how="left")
        .with_columns(own=pl.col("n_rows") - pl.col("n_below").fill_null(0))
        .sort(pl.col("code").str.split("."), nulls_last=True)
        .with_columns(start=pl.col("own").cum_sum() - pl.col("own"))
        .with_columns(end=pl.col("start") + pl.col("n_rows"), top=pl.col("depth") - 1)
    )
    total = max(largest(placed, "end"), 1.0)
    name = pl.col("code").str.split(".").list.last().fill_null(NO_CODE)
    label = pl.concat_str(name, pl.lit(" "), pl.col("n_rows").cast(pl.String))
    room = (pl.col("n_rows") / total * width - 10) / _LETTER
    return placed.with_columns(
        bottom=pl.col("top") + 1,
        shown=pl.when(label.str.len_chars() <= room).then(label).otherwise(pl.lit("")),
    )
