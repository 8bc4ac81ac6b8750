"""Detectors: where they disagree, what they flag together, and when their alarms were on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts import interactive
from stateanalytics.charts.style import (
    FONT_SIZE,
    LIGHT,
    UTC_AXIS,
    Palette,
    field,
    label_axis,
    largest,
    mark,
    where,
)
from stateanalytics.errors import check_columns

if TYPE_CHECKING:
    import altair as alt

MOST_SHOWN = 12
_LABEL_WIDTH = 170
_SET_LABEL_WIDTH, _SET_ROW, _BARS = 190, 20, 110
SIGNS = "signs of life"
NEEDED_ALARMS = ("detector", "started_at", "ended_at", "is_censored")
_ALARM_LABEL_WIDTH, _ALARM_ROW = 170, 24
MOST_TICKS = 2_000


def chart_disagreement(
    pairs: pl.DataFrame,
    *,
    detectors: Sequence[str] | None = None,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """A matrix: how many rows the detector of a row flags and that of a column does not.

    Parameters
    ----------
    pairs : polars.DataFrame
        `Agreement.pairs`: ``a``, ``b``, ``n`` (rows that both cover), ``n_only_a``, ``n_only_b``.
    detectors : sequence of str, optional
        Which, in which order; by default the twelve that disagree most, by that.
    sentence : str
        Heading: what the chart shows.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        Darker cells are larger shares of rows; each shows its number. A pair that shares no
        row has a dash.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> detections = sa.detectors.detect(sa.demo(), detectors=["B1", "B2", "B4"])
    >>> pairs = sa.detectors.agreement(detections, n_resamples=0).pairs
    >>> chart = sa.charts.chart_disagreement(pairs)
    >>> print(chart.description)
    3 detectors; at most 3 rows differ.
    """
    import altair as alt

    spec = disagreement_spec(pairs, detectors, palette=palette, width=width)
    return interactive.finished(alt.LayerChart, spec, sentence, palette=palette, width=width)


def disagreement_spec(
    pairs: pl.DataFrame, detectors: Sequence[str] | None, *, palette: Palette, width: int
) -> interactive.Spec:
    """The specification of `chart_disagreement`."""
    check_columns(pairs, ("a", "b", "n", "n_only_a", "n_only_b"), "chart_disagreement")
    directed = _directed(pairs)
    order = list(detectors) if detectors is not None else _most_disagreeing(directed)
    side = max(22.0, (width - _LABEL_WIDTH) / max(len(order), 1))
    axis = label_axis(_LABEL_WIDTH - 10, labelPadding=4)
    tilted = {**axis, "labelAngle": -40, "minExtent": 0}
    place = {
        "y": field("flags:N", sort=order, title="flags …", axis=axis),
        "x": field("silent:N", sort=order, title="… and this one does not", axis=tilted),
    }
    shares = field("share:Q", legend=None, scale={"domain": [0, 1], "range": [0, 0.6]})
    fills = {"fill": {"value": palette["critical"]}, "fillOpacity": shares}
    cells = mark("rect", {**place, **fills, "stroke": {"value": palette["line"]}}, strokeWidth=1)
    colour = where("datum.n_only > 0", palette["text"], palette["muted"])
    shown = {**place, "text": field("shown:N"), "color": colour}
    total = int(largest(directed, "n_only"))
    return {
        "data": directed.filter(pl.col("flags").is_in(order), pl.col("silent").is_in(order)),
        "tooltips": {
            "flags": "flags", "and_this_one_does_not": "silent", "rows": "n_only", "of": "n"
        },
        "layer": [
            {**cells, "clicks": ("chosen_pair", "flags", "silent")},
            mark("text", shown, fontSize=FONT_SIZE),
        ],
        "width": side * max(len(order), 1),
        "height": 24 * max(len(order), 1),
        "description": f"{len(order)} detectors; at most {total} rows differ.",
    }  # fmt: skip


def _directed(pairs: pl.DataFrame) -> pl.DataFrame:
    """Two rows for each pair: which detector flags, which does not, and how many rows."""
    forth = pairs.select(flags="a", silent="b", n="n", n_only="n_only_a")
    back = pairs.select(flags="b", silent="a", n="n", n_only="n_only_b")
    return pl.concat([forth, back]).with_columns(
        share=(pl.col("n_only") / pl.col("n")).fill_nan(0.0).fill_null(0.0),
        shown=pl.when(pl.col("n") > 0)
        .then(pl.col("n_only").cast(pl.String))
        .otherwise(pl.lit("–")),
    )


def _most_disagreeing(directed: pl.DataFrame) -> list[str]:
    """The detectors with most disagreements."""
    both = pl.concat(
        [directed.select(name="flags", n="n_only"), directed.select(name="silent", n="n_only")]
    )
    totals = both.group_by("name").agg(pl.col("n").sum()).filter(pl.col("n") > 0)
    return totals.sort("n", "name", descending=[True, False]).head(MOST_SHOWN)["name"].to_list()


def chart_intersections(
    sets: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.VConcatChart:
    """Sets of detectors, and how many rows exactly these detectors flag (an UpSet plot).

    Parameters
    ----------
    sets : polars.DataFrame
        From `intersections`.
    sentence : str
        Heading: what the chart shows.
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

    Examples
    --------
    >>> import stateanalytics as sa
    >>> detections = sa.detectors.detect(sa.demo(), detectors=["B1", "B2", "B4"])
    >>> chart = sa.charts.chart_intersections(sa.detectors.intersections(detections))
    >>> print(chart.description)
    6 rows in 3 sets of detectors.
    """
    import altair as alt

    check_columns(sets, ("rank", "n", "detector", "is_member", "n_flagged"), "chart_intersections")
    used = sets.filter(pl.col("is_member").any().over("detector"))
    order = (
        used.select("detector", "n_flagged")
        .unique()
        .sort("n_flagged", "detector", descending=[True, False])["detector"]
        .to_list()
    )
    room = width - _SET_LABEL_WIDTH
    columns = field("rank:O", axis=None)
    members = pl.col("detector").filter("is_member").sort().str.join(", ")
    totals = used.group_by("rank", "n").agg(detectors=members).sort("rank")
    text = {"value": palette["text"]}
    heights = {"domain": [0, 1.2 * max(largest(totals, "n"), 1)]}
    place = {"x": columns, "y": field("n:Q", title=None, axis=None, scale=heights)}
    bars = mark("bar", {**place, "color": {"value": palette["info"]}}, width=16)
    shown = {**place, "text": field("n:Q"), "color": text}
    numbers = mark("text", shown, baseline="bottom", dy=-2, fontSize=FONT_SIZE)
    above = {
        "data": totals,
        "tooltips": {"rows": "n", "flagged_by": "detectors"},
        "layer": [{**bars, "clicks": ("chosen_set", "rank")}, numbers],
        "width": room,
        "height": _BARS,
    }
    rows, axis = {"domain": order}, label_axis(_SET_LABEL_WIDTH - 10)
    # Members are large, others small: no colour is needed.
    of_set = {
        "x": columns,
        "y": field("detector:N", title=None, axis=axis, scale=rows),
        "size": where("datum.is_member", 90, 14),
        "color": where("datum.is_member", palette["text"], palette["line"]),
    }
    dots = mark("point", of_set, filled=True, opacity=1)
    place_of = pl.col("detector").replace_strict({name: n for n, name in enumerate(order)})
    names = pl.col("detector").sort_by(place_of)
    spans = used.filter("is_member").group_by("rank").agg(first=names.first(), last=names.last())
    ends = {"x": columns, "y": field("first:N", scale=rows), "y2": {"field": "last"}, "color": text}
    below = {
        "layer": [{**mark("rule", ends, strokeWidth=2), "data": spans}, {**dots, "data": used}],
        "width": room,
        "height": _SET_ROW * max(len(order), 1),
    }
    parts = map(interactive.as_chart, (above, below))
    chart = alt.vconcat(*parts, spacing=4).resolve_scale(x="shared")
    n = int(totals["n"].sum() or 0)
    described = chart.properties(description=f"{n} rows in {totals.height} sets of detectors.")
    return interactive.finished(alt.VConcatChart, described, sentence, palette=palette, width=width)


def chart_alarms(
    events: pl.DataFrame,
    alarms: pl.DataFrame,
    *,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """Signs of life of a session as ticks, alarms of detectors as bars.

    Parameters
    ----------
    events : polars.DataFrame
        ``at``: signs of life of one session; more than 2,000 are thinned evenly.
    alarms : polars.DataFrame
        Rows of `alarms` for the same session.
    sentence : str
        Heading: what the chart shows.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        One row for each detector, by its first alarm; an alarm that is still on when the data
        end is hollow.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> snap = sa.demo()
    >>> alarms = sa.detectors.alarms(snap, detectors=["B1", "B2", "B4"])
    >>> session = alarms["entity_id"].mode().sort()[0]
    >>> events = snap.events.filter(entity_id=session)
    >>> chart = sa.charts.chart_alarms(events, alarms.filter(entity_id=session))
    >>> print(chart.description)
    8 signs of life and 3 alarms of 3 detectors.
    """
    import altair as alt

    check_columns(events, ("at",), "chart_alarms")
    check_columns(alarms, NEEDED_ALARMS, "chart_alarms")
    ticks = events.select("at").drop_nulls().unique().sort("at")
    ticks = ticks.gather_every(max(1, -(-ticks.height // MOST_TICKS)))
    ticks = ticks.with_columns(detector=pl.lit(SIGNS))
    bars = alarms.select(NEEDED_ALARMS).sort("started_at", "detector")
    order = [SIGNS, *bars["detector"].unique(maintain_order=True).to_list()]
    axis = label_axis(_ALARM_LABEL_WIDTH - 10, grid=True)
    line = field("detector:N", sort=order, title=None, axis=axis, scale={"domain": order})
    signs = {"x": _utc("at"), "y": line, "color": {"value": palette["text"]}}
    on = {
        "x": _utc("started_at"),
        "x2": {"field": "ended_at"},
        "y": line,
        "fill": {"value": palette["warning"]},
        "stroke": {"value": palette["warning"]},
        "fillOpacity": where("datum.is_censored", 0.1, 1),
    }
    n, n_detectors = bars.height, len(order) - 1
    spec = {
        "layer": [
            {**mark("tick", signs, thickness=1.5, height=14, clip=True), "data": ticks},
            {
                **mark("bar", on, height=10, strokeWidth=1.5, clip=True),
                "data": bars,
                "tooltips": {
                    "detector": "detector", "since": "started_at", "until": "ended_at",
                    "still_on": "is_censored",
                },
                "moves": ("alarms_axis", "x"),
            },
        ],
        "width": width - _ALARM_LABEL_WIDTH,
        "height": _ALARM_ROW * len(order),
        "description": f"{ticks.height} signs of life and {n} alarms of {n_detectors} detectors.",
    }  # fmt: skip
    return interactive.finished(alt.LayerChart, spec, sentence, palette=palette, width=width)


def _utc(column: str) -> interactive.Spec:
    return field(f"{column}:T", title="UTC", scale={"type": "utc"}, axis=UTC_AXIS)
