"""One session's life: signs of life as ticks, each detector's alarm as a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.palette import LIGHT, Palette, dress
from stateanalytics.charts.titles import titled
from stateanalytics.core.text import visible
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

SIGNS = "signs of life"
NEEDED_EVENTS = ("at",)
NEEDED_ALARMS = ("detector", "started_at", "ended_at", "is_censored")
_LABEL_WIDTH, _ROW = 170, 24
MOST_TICKS = 2_000


def chart_alarms(
    events: pl.DataFrame,
    alarms: pl.DataFrame,
    *,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """Ticks where the session gave a sign of life, bars where a detector called it.

    Parameters
    ----------
    events : polars.DataFrame
        ``at``: signs of life of one session; more than 2,000 are thinned evenly.
    alarms : polars.DataFrame
        Rows of `alarms` for the same session.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        One line a detector, by when it first called; a bar that is still going when the
        data end is hollow.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    for frame, needed in ((events, NEEDED_EVENTS), (alarms, NEEDED_ALARMS)):
        if missing := [name for name in needed if name not in frame.columns]:
            raise MissingColumnsError.of(missing, frame.columns, "chart_alarms")
    ticks = events.select("at").drop_nulls().unique().sort("at")
    ticks = ticks.gather_every(max(1, -(-ticks.height // MOST_TICKS)))
    ticks = ticks.with_columns(detector=pl.lit(SIGNS))
    bars = alarms.select(NEEDED_ALARMS).sort("started_at", "detector")
    order = [SIGNS, *bars["detector"].unique(maintain_order=True).to_list()]
    line = alt.Y(
        "detector:N",
        sort=order,
        scale=alt.Scale(domain=order),
        title=None,
        axis=alt.Axis(
            domain=False,
            ticks=False,
            labelLimit=_LABEL_WIDTH - 10,
            minExtent=_LABEL_WIDTH - 10,
            grid=True,
        ),
    )
    marks = (
        alt.Chart(ticks)
        .mark_tick(thickness=1.5, height=14)
        .encode(x=_utc("at"), y=line, color=alt.value(palette["text"]))
    )
    calls = (
        alt.Chart(bars)
        .mark_bar(height=10, strokeWidth=1.5)
        .encode(
            x=_utc("started_at"),
            x2="ended_at:T",
            y=line,
            fill=alt.value(palette["warning"]),
            stroke=alt.value(palette["warning"]),
            fillOpacity=alt.condition("datum.is_censored", alt.value(0.1), alt.value(1)),
        )
    )
    chart: Any = alt.layer(marks, calls).properties(
        width=width - _LABEL_WIDTH,
        height=_ROW * len(order),
        description=visible(
            f"{ticks.height} signs of life and {bars.height} alarms of {len(order) - 1} detectors."
        ),
    )
    dressed: alt.LayerChart = dress(titled(chart, sentence, palette=palette, width=width), palette)
    return dressed


def _utc(field: str) -> alt.X:
    import altair as alt

    return alt.X(f"{field}:T", title="UTC", scale=alt.Scale(type="utc"), axis=alt.Axis(tickCount=6))
