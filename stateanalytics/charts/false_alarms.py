"""False alarms of every threshold of silence, with all of today's constants on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.labels import leaning_labels
from stateanalytics.charts.log_time import log_time
from stateanalytics.charts.palette import LIGHT, Palette, dress, largest
from stateanalytics.charts.sentences import say_false_alarms
from stateanalytics.charts.titles import titled
from stateanalytics.core.units import how_long
from stateanalytics.errors import ArgumentError, MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

RATE = "mistakes_per_100h"
NEEDED = ("threshold_s", RATE, f"{RATE}_low", f"{RATE}_high", "constants", "is_today")
_LINE = 14
_AROUND = 4


def chart_false_alarms(
    sheet: pl.DataFrame,
    *,
    what: str = "sessions",
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 260,
) -> alt.LayerChart:
    """How often live sessions are flagged, over the silence that flags them.

    Parameters
    ----------
    sheet : polars.DataFrame
        Rows of `thresholds.stale` for one stratum.
    what : str
        What the sessions are called.
    sentence : str, optional
        Heading; by default what the chart proves (`say_false_alarms`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        A line with its exact interval, around today's constants, which are named where
        they stand. The vertical axis is a square root: none is there, and few can be read.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If a threshold is there twice: the frame holds several strata.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in sheet.columns]:
        raise MissingColumnsError.of(missing, sheet.columns, "chart_false_alarms")
    if sheet["threshold_s"].is_duplicated().any():
        raise ArgumentError(
            "chart_false_alarms draws one stratum; found thresholds twice.",
            "filter one: sheet.filter(kind='flow')",
        )
    drawn = _near(sheet.filter(pl.col(RATE).is_not_null()).sort("threshold_s"))
    low = float(drawn["threshold_s"].min() or 1.0)  # type: ignore[arg-type]
    high = max(largest(drawn, "threshold_s"), 4 * low)
    silence = log_time(
        "threshold_s",
        low_s=low,
        high_s=high,
        title="silence until the alarm (the delay)",
        width=width,
    )
    scale = alt.Scale(type="sqrt", domain=[0, max(largest(drawn, f"{RATE}_high"), 1.0)], nice=False)

    def alarms(column: str) -> alt.Y:
        return alt.Y(
            f"{column}:Q",
            title="false alarms per 100 session-hours",
            scale=scale,
            axis=alt.Axis(tickCount=5),
        )

    base = alt.Chart(drawn)
    band = base.mark_area(opacity=0.18).encode(
        x=silence,
        y=alarms(f"{RATE}_low"),
        y2=f"{RATE}_high:Q",
        color=alt.value(palette["info"]),
    )
    line = base.mark_line(strokeWidth=2).encode(
        x=silence, y=alarms(RATE), color=alt.value(palette["info"])
    )
    marks = _marks(drawn, (low * high) ** 0.5)
    rules = (
        alt.Chart(marks)
        .mark_rule(strokeDash=[4, 3])
        .encode(x=silence, color=alt.value(palette["muted"]))
    )
    names = leaning_labels(marks, silence, dx=4, palette=palette)
    curve = alt.layer(band, line)
    chart: Any = (
        alt.layer(curve, rules, *names)
        .resolve_scale(y="independent")
        .properties(width=width, height=height)
    )
    said = say_false_alarms(sheet, what=what) if sentence is None else sentence
    dressed: alt.LayerChart = dress(titled(chart, said, palette=palette, width=width), palette)
    return dressed


def _near(sheet: pl.DataFrame) -> pl.DataFrame:
    """The part around today's constants; far below them the alarms would set the scale."""
    today = sheet.filter("is_today")["threshold_s"]
    if today.is_empty():
        return sheet
    low, high = float(today.min()) / _AROUND, float(today.max()) * _AROUND  # type: ignore[arg-type]
    return sheet.filter(pl.col("threshold_s").is_between(low, high))


def _marks(drawn: pl.DataFrame, middle_s: float) -> pl.DataFrame:
    """Today's constants with their names, one line each, leaning away from the edge."""
    rows = [
        {
            "threshold_s": row["threshold_s"],
            "label": f"{how_long(row['threshold_s'])}: {row['constants']}",
            "line": float(2 + _LINE * place),
            "is_right": row["threshold_s"] > middle_s,
        }
        for place, row in enumerate(drawn.filter("is_today").iter_rows(named=True))
    ]
    return pl.DataFrame(
        rows,
        schema={
            "threshold_s": pl.Float64,
            "label": pl.String,
            "line": pl.Float64,
            "is_right": pl.Boolean,
        },
    )
