"""Where detectors disagree: a square of pairs, each cell with its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.charts.titles import titled
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("a", "b", "n", "n_only_a", "n_only_b")
MOST_SHOWN = 12
_LABEL_WIDTH = 170


def chart_disagreement(
    pairs: pl.DataFrame,
    *,
    detectors: Sequence[str] | None = None,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """How many rows the detector of a line flags and that of a column does not.

    Parameters
    ----------
    pairs : polars.DataFrame
        `Agreement.pairs`: ``a``, ``b``, ``n`` (rows both look at), ``n_only_a``,
        ``n_only_b``.
    detectors : sequence of str, optional
        Which, in which order; by default the twelve that disagree most, by that.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        The darker a cell, the larger the share of rows; the number is in it. A pair that
        shares no row has a dash.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in pairs.columns]:
        raise MissingColumnsError.of(missing, pairs.columns, "chart_disagreement")
    directed = _directed(pairs)
    order = list(detectors) if detectors is not None else _loudest(directed)
    drawn = directed.filter(pl.col("flags").is_in(order), pl.col("silent").is_in(order))
    side = max(22.0, (width - _LABEL_WIDTH) / max(len(order), 1))
    axis = alt.Axis(domain=False, ticks=False, labelLimit=_LABEL_WIDTH - 10, labelPadding=4)
    base = alt.Chart(drawn).encode(
        y=alt.Y("flags:N", sort=order, title="flags …", axis=axis),
        x=alt.X("silent:N", sort=order, title="… and this one does not", axis=_tilted(axis)),
    )
    cells = base.mark_rect(strokeWidth=1).encode(
        fill=alt.value(palette["critical"]),
        fillOpacity=alt.Opacity(
            "share:Q", scale=alt.Scale(domain=[0, 1], range=[0, 0.6]), legend=None
        ),
        stroke=alt.value(palette["line"]),
    )
    numbers = base.mark_text(fontSize=FONT_SIZE).encode(
        text="shown:N",
        color=alt.condition(
            "datum.n_only > 0", alt.value(palette["text"]), alt.value(palette["muted"])
        ),
    )
    chart = alt.layer(cells, numbers, data=drawn).properties(
        width=side * max(len(order), 1), height=24 * max(len(order), 1)
    )
    total = int(largest(directed, "n_only"))
    described = chart.properties(
        description=f"{len(order)} detectors; at most {total} rows differ."
    )
    dressed: Any = dress(titled(described, sentence, palette=palette, width=width), palette)
    return cast("alt.LayerChart", dressed)


def _tilted(axis: alt.Axis) -> alt.Axis:
    tilted = axis.copy()
    tilted.labelAngle = -40
    return tilted


def _directed(pairs: pl.DataFrame) -> pl.DataFrame:
    """Two rows a pair: who flags, who does not, how many of the rows both look at."""
    one = pairs.select(flags="a", silent="b", n="n", n_only="n_only_a")
    other = pairs.select(flags="b", silent="a", n="n", n_only="n_only_b")
    return pl.concat([one, other]).with_columns(
        share=(pl.col("n_only") / pl.col("n")).fill_nan(0.0).fill_null(0.0),
        shown=pl.when(pl.col("n") > 0)
        .then(pl.col("n_only").cast(pl.String))
        .otherwise(pl.lit("–")),
    )


def _loudest(directed: pl.DataFrame) -> list[str]:
    """The detectors that take part in most disagreements."""
    both = pl.concat(
        [directed.select(name="flags", n="n_only"), directed.select(name="silent", n="n_only")]
    )
    totals = both.group_by("name").agg(pl.col("n").sum()).filter(pl.col("n") > 0)
    return totals.sort("n", "name", descending=[True, False]).head(MOST_SHOWN)["name"].to_list()
