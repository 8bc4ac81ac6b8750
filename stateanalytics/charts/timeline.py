"""The timeline of an entity: lanes for states, attempts, silences, messages and relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts import style
from stateanalytics.charts.interactive import finished
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import check_columns
from stateanalytics.state.definitions import BAD_ENDS
from stateanalytics.timeline import LANES

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("at", "until", "lane", "what", "detail", "outcome")
MOST = 400
"""The most rows that are drawn: the first."""
_LANE_HEIGHT = 26
_LABELS, _MOST_LINES = 110, 18
_RELATIVES = ("parent", "child")
_FILLS = {
    "silence": "warning", "attempt": "info", "state": "neutral", "child": "success", "tool": "info",
    "call": "success",
}  # fmt: skip


def chart_timeline(
    timeline: pl.DataFrame,
    *,
    sentence: str = "",
    palette: style.Palette = style.LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """The timeline of an entity: durations as bars, moments as ticks, a lane for each kind.

    Parameters
    ----------
    timeline : polars.DataFrame
        The frame ``sa.session(snap, id).timeline``.
    sentence : str
        Heading; "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        Bars are labelled where the label fits; a silence past a limit, and a call or relative
        that failed, have the colour of critical. Rows without a moment are not drawn. A drag
        selects a range of time.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    check_columns(timeline, NEEDED, "chart_timeline")
    drawn = _drawn(timeline, width)
    lanes = [lane for lane in LANES if lane in drawn["lane"]]
    lines = drawn["line"].unique(maintain_order=True).to_list()
    axis = {"format": _day_or_hour(drawn), "tickCount": max(2, width // 110)}
    scale = {"type": "utc", "nice": False}
    place = {
        "y": style.field("line:N", sort=lines, title=None, axis=style.label_axis(_LABELS)),
        "x": style.field("at:T", title="UTC", scale=scale, axis=axis),
    }
    fills = {
        "domain": [*lanes, "past a limit", "failed"],
        "range": [
            *(palette[_FILLS.get(name, "muted")] for name in lanes),
            *(palette["critical"] for _ in range(2)),
        ],
    }
    filled = {**place, "color": style.field("fill:N", scale=fills, legend=None)}
    edge = {"fillOpacity": 0.4, "stroke": palette["surface"], "strokeWidth": 1}
    bars = style.mark("bar", {**filled, "x2": {"field": "until"}}, height=14, clip=True, **edge)
    bars |= {"drags": ("chosen_time", "x"), "moves": ("timeline_axis", "x")}
    moments = style.mark("tick", filled, thickness=2, height=16, orient="vertical", clip=True)
    shown = {**place, "text": style.field("label:N"), "color": {"value": palette["text"]}}
    names = style.mark("text", shown, align="left", dx=4, fontSize=style.FONT_SIZE - 1)
    layers = (bars, "datum.lasts"), (moments, "!datum.lasts"), (names, "datum.label != ''")
    spec = {
        "data": drawn,
        "tooltips": {"at": "at", "until": "until", "what": "what", "detail": "detail"},
        "layer": [
            {**layer, "transform": [{"filter": condition}], "has_tips": True}
            for layer, condition in layers
        ],
        "width": width - _LABELS,
        "height": _LANE_HEIGHT * max(len(lines), 1),
    }
    return finished(alt.LayerChart, spec, sentence, palette=palette, width=width)


def _day_or_hour(drawn: pl.DataFrame) -> str:
    first, last = drawn["at"].min(), drawn["until"].max() or drawn["at"].max()
    is_long = first is not None and (last - first).days >= 1  # type: ignore[operator, union-attr]
    return "%d %b %H:%M" if is_long else "%H:%M:%S" if drawn.height < 2 else "%H:%M"


def _drawn(timeline: pl.DataFrame, width: int) -> pl.DataFrame:
    """Rows with a moment, with their lanes, colours and labels that fit into the bars."""
    rows = timeline.filter(pl.col("at").is_not_null()).head(MOST)
    last = rows.select(pl.max_horizontal(pl.col("at").max(), pl.col("until").max())).item()
    span_s = ((last - rows["at"].min()).total_seconds() if rows.height else 0) or 1.0
    lasts = pl.col("until").is_not_null() & (pl.col("until") > pl.col("at"))
    share = (pl.col("until") - pl.col("at")).dt.total_microseconds() / (1e6 * span_s)
    is_past = (pl.col("lane") == "silence") & pl.col("detail").is_not_null()
    is_failed = pl.col("outcome").is_in(BAD_ENDS)
    room = (share * (width - _LABELS)).fill_null(0.0)
    placed = rows.with_columns(
        pl.col("what", "detail").map_elements(
            lambda text: shortened(visible(text), 200), return_dtype=pl.String
        )
    )
    is_near = pl.col("lane").is_in(_RELATIVES)
    short = pl.col("what").map_elements(
        lambda text: style.fitted(text, 0.85 * _LABELS), return_dtype=pl.String
    )
    own = pl.when(is_near).then(short).otherwise("lane")
    named = pl.when(is_near).then(pl.col("detail").fill_null("")).otherwise("what")
    order = pl.col("lane").replace_strict(list(LANES), list(range(len(LANES))), default=None)
    lines = placed.with_columns(line=own).sort(order, "at", maintain_order=True)
    shown_lines = lines["line"].unique(maintain_order=True).head(_MOST_LINES)
    return lines.filter(pl.col("line").is_in(shown_lines.implode())).with_columns(
        lasts=lasts.fill_null(value=False),
        fill=pl.when(is_past)
        .then(pl.lit("past a limit"))
        .when(is_failed.fill_null(value=False))
        .then(pl.lit("failed"))
        .otherwise("lane"),
        label=pl.when(room > named.map_elements(style.width_of, return_dtype=pl.Float64) + 8)
        .then(named)
        .otherwise(pl.lit("")),
    )
