"""Clusters of failures over time: one line a cluster, one cell a step, its number in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress, largest
from stateanalytics.charts.titles import titled
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("cluster_id", "code", "template", "rule_name", "trend", "trend_step_s", "rank")
MOST_SHOWN, MOST_CELLS = 12, 14
NOTHING = "(nothing said)"
_LABEL_WIDTH, _ROW = 260, 22


def chart_failure_trend(
    clusters: pl.DataFrame,
    *,
    since: datetime,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """The best ranked clusters over the steps of their trend.

    Parameters
    ----------
    clusters : polars.DataFrame
        From `failures.clusters`; the first twelve are drawn.
    since : datetime
        Where the trends begin: the window's start.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        More than fourteen steps are put together by twos, threes, …; a week of hours
        becomes days.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in clusters.columns]:
        raise MissingColumnsError.of(missing, clusters.columns, "chart_failure_trend")
    drawn = _cells(clusters.sort("rank").head(MOST_SHOWN), since)
    lines = drawn["name"].unique(maintain_order=True).to_list()
    steps = drawn["step"].unique(maintain_order=True).to_list()
    narrow = width < 2 * _LABEL_WIDTH
    labels = _LABEL_WIDTH // 2 if narrow else _LABEL_WIDTH
    axis = alt.Axis(domain=False, ticks=False, labelLimit=labels - 10, minExtent=labels - 10)
    room = width - labels
    shown = steps[:: max(1, -(-len(steps) * 46 // max(room, 1)))]
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "step:O",
            sort=steps,
            title=None,
            axis=alt.Axis(values=shown, labelAngle=0, domain=False, ticks=False),
        ),
        y=alt.Y("name:N", sort=lines, title=None, axis=axis),
    )
    cells = base.mark_rect(strokeWidth=1).encode(
        fill=alt.value(palette["critical"]),
        fillOpacity=alt.Opacity(
            "n:Q",
            scale=alt.Scale(type="sqrt", domain=[0, max(largest(drawn, "n"), 1)], range=[0, 0.6]),
            legend=None,
        ),
        stroke=alt.value(palette["line"]),
    )
    numbers = base.mark_text(fontSize=FONT_SIZE - 1).encode(
        text="shown:N", color=alt.value(palette["text"])
    )
    layers = [cells] if room / max(len(steps), 1) < 16 else [cells, numbers]
    chart: Any = alt.layer(*layers, data=drawn).properties(
        width=room,
        height=_ROW * max(len(lines), 1),
        description=f"{len(lines)} clusters of failures over {len(steps)} steps of time.",
    )
    return cast(
        "alt.LayerChart", dress(titled(chart, sentence, palette=palette, width=width), palette)
    )


def _cells(clusters: pl.DataFrame, since: datetime) -> pl.DataFrame:
    """One row a cluster and step, with names that are told apart."""
    lengths = clusters.select(n=pl.col("trend").list.len())
    n_steps = max(int(largest(lengths, "n")), 1)
    step_s = largest(clusters, "trend_step_s") or 3_600.0
    fold = -(-n_steps // MOST_CELLS)
    if step_s * fold < 86_400 < step_s * n_steps / 2:
        fold = max(1, round(86_400 / step_s))  # steps of whole days read best
    form = "%a %-d" if step_s * fold < 7 * 86_400 else "%-d %b"
    form = form if step_s * fold >= 86_400 else "%a %H:%M"
    names = [
        f"{row['rank']} "
        + shortened(visible(row["rule_name"] or row["template"] or row["code"] or NOTHING), 60)
        for row in clusters.iter_rows(named=True)
    ]
    long = (
        clusters.select("cluster_id", "trend", name=pl.Series(names, dtype=pl.String))
        .with_columns(at=pl.int_ranges(pl.col("trend").list.len()))
        .explode("trend", "at")
        .drop_nulls("at")
        .group_by("name", place=pl.col("at") // fold, maintain_order=True)
        .agg(n=pl.col("trend").sum())
    )
    moments = pl.lit(since) + pl.col("place") * pl.lit(timedelta(seconds=step_s * fold))
    return long.with_columns(
        step=moments.dt.strftime(form),
        shown=pl.when(pl.col("n") > 0).then(pl.col("n").cast(pl.String)).otherwise(pl.lit("")),
    ).drop("place")
