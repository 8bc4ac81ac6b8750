"""False alarms against delay: the worksheet of a threshold, and all of today's constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts import style
from stateanalytics.charts.interactive import Spec, finished
from stateanalytics.core.text import visible
from stateanalytics.core.words import how_long, per_hundred, say
from stateanalytics.errors import ArgumentError, check_columns

if TYPE_CHECKING:
    import altair as alt

_LABEL_STEP = 15
RATE = "mistakes_per_100h"
_LINE = 14
_MARKS = {
    "threshold_s": pl.Float64,
    "mark": pl.String,
    "label": pl.String,
    "line": pl.Float64,
    "is_right": pl.Boolean,
}


def chart_worksheet(
    curve: pl.DataFrame,
    *,
    sentence: str | None = None,
    palette: style.Palette = style.LIGHT,
    width: int = 620,
    height: int = 240,
) -> alt.LayerChart:
    """Mistakes of a threshold over its values, which are the delay of detection.

    Parameters
    ----------
    curve : polars.DataFrame
        Rows of `Advice.curves` for one constant.
    sentence : str, optional
        Heading; by default what the chart shows (`say_worksheet`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        The vertical axis is a square root, so that zero and few alarms can be read. Today's
        value and the cheapest are labelled.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If there are several constants in the frame.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> curves = sa.thresholds.recommend(sa.demo()).curves
    >>> chart = sa.charts.chart_worksheet(curves.filter(name="slow"))
    >>> print(chart.description)
    Today 1 h: 4.3 good runs flagged per 100 runs. The cheapest, 1 h 30 min: 0.63, 30 min later.
    """
    import altair as alt

    spec = worksheet_spec(curve, palette=palette, width=width, height=height)
    heading = say_worksheet(curve) if sentence is None else sentence
    return finished(alt.LayerChart, spec, heading, palette=palette, width=width)


def worksheet_spec(
    curve: pl.DataFrame, *, palette: style.Palette, width: int, height: int = 240
) -> Spec:
    """The specification of `chart_worksheet`."""
    check_columns(
        curve,
        ("name", "threshold_s", "mistakes", "mistake", "per", "is_today", "is_best"),
        "chart_worksheet",
    )
    if curve["name"].n_unique() > 1:
        raise ArgumentError(
            f"chart_worksheet draws one constant; found {curve['name'].n_unique()}.",
            "filter one: advice.curves.filter(name='stale.flow')",
        )
    known = curve.lazy().filter(pl.col("mistakes").is_not_null()).sort("threshold_s").collect()
    drawn = _near(known, known["is_today"] | known["is_best"], times=6)
    high = max(style.largest(drawn, "threshold_s"), 60.0)
    low = float(drawn["threshold_s"].min() or 1.0)  # type: ignore[arg-type]
    counted = mistakes_of(*drawn[["mistake", "per"]].row(0)) if drawn.height else "mistakes"
    what = "delay until it acts (the threshold)"
    delay = style.log_time("threshold_s", low_s=low, high_s=high, title=what, width=width)
    top = max(style.largest(drawn, "mistakes"), 1.0)
    alarms = style.field(
        "mistakes:Q",
        title=style.axis_title(counted, height),
        scale={"type": "sqrt", "domain": [0, 1.1 * top], "nice": False},
        axis={"tickCount": 5},
    )
    place = {"x": delay, "y": alarms, "color": {"value": palette["info"]}}
    line = style.mark("line", place, strokeWidth=2, clip=True)
    # A separate layer: a line with points is two marks, and both would have the axis selection.
    points = style.mark("point", place, size=28, filled=True, opacity=1, clip=True)
    # Invisible and larger, so that the pointer meets them.
    near = style.mark("point", place, size=160, filled=True, opacity=0, clip=True)
    near["moves"] = "worksheet_axis", "x"
    curve_of = {
        "data": drawn,
        "tooltips": {
            "threshold": "threshold_s", "mistakes": "mistakes", "hours_of_waiting": "waiting_h",
            "loss": "loss", "per": "per",
        },
        "layer": [line, points, near],
    }  # fmt: skip
    marks = _priced_marks(drawn)
    dashes = {"domain": ["today", "cheapest"], "range": [[4, 3], [1, 0]]}
    dash = style.field("mark:N", legend=None, scale=dashes)
    shown = {"x": delay, "strokeDash": dash, "color": {"value": palette["muted"]}}
    rule = {**style.mark("rule", shown, strokeWidth=1.5, clip=True), "data": marks}
    words = style.leaning_labels(
        marks, delay, dx=5, palette=palette, ends_s=(low, max(high, 4 * low)), width=width
    )
    return {
        "layer": [curve_of, rule, *words],
        "resolve": {"scale": {"y": "independent"}},
        "width": width,
        "height": height,
    }


def _priced_marks(drawn: pl.DataFrame) -> pl.DataFrame:
    """Labels of today's and the cheapest value, and the lines of text that they stand on."""
    rows = [
        {
            "threshold_s": row["threshold_s"],
            "mark": mark,
            "label": f"{mark} {how_long(row['threshold_s'])}: {per_hundred(row['mistakes'])}",
        }
        for column, mark in (("is_today", "today"), ("is_best", "cheapest"))
        for row in [row for row in drawn.iter_rows(named=True) if row[column]][:1]
    ]
    if len(rows) == 2 and rows[0]["threshold_s"] == rows[1]["threshold_s"]:
        rows = [{**rows[0], "label": rows[0]["label"].replace("today", "today and cheapest")}]
    ends = drawn["threshold_s"].min(), drawn["threshold_s"].max()
    for place, row in enumerate(rows):
        row["line"] = 2 + place * _LABEL_STEP
        row["is_right"] = row["threshold_s"] ** 2 > (ends[0] or 1) * (ends[1] or 1)  # type: ignore[operator]
    return pl.DataFrame(rows, schema=_MARKS)


def _near(curve: pl.DataFrame, is_marked: pl.Series, *, times: float) -> pl.DataFrame:
    """The part of a curve around the marked values; far below, alarms would dominate the scale."""
    marked = curve["threshold_s"].filter(is_marked)
    if marked.is_empty():
        return curve
    low, high = float(marked.min()) / times, float(marked.max()) * times  # type: ignore[arg-type]
    return curve.filter(pl.col("threshold_s").is_between(low, high))


def chart_false_alarms(
    sheet: pl.DataFrame,
    *,
    what: str = "sessions",
    sentence: str | None = None,
    palette: style.Palette = style.LIGHT,
    width: int = 620,
    height: int = 260,
) -> alt.LayerChart:
    """The false-alarm rate of live sessions, over the silence that raises the alarm.

    Parameters
    ----------
    sheet : polars.DataFrame
        Rows of `thresholds.stale` for one stratum.
    what : str
        What the sessions are called.
    sentence : str, optional
        Heading; by default what the chart shows (`say_false_alarms`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        A line with its exact interval around today's constants, which are labelled. The
        vertical axis is a square root, so that zero and few alarms can be read.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If a threshold is there twice: the frame holds several strata.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sheet = sa.thresholds.stale(sa.demo()).filter(kind="agent")
    >>> chart = sa.charts.chart_false_alarms(sheet, what="agents")
    >>> print(chart.description)
    Of agents, per 100 session-hours: 10 min flags 67 wrongly (55 to 81), 6 h 0 (0 to 2.4).
    """
    import altair as alt

    check_columns(
        sheet,
        ("threshold_s", RATE, f"{RATE}_low", f"{RATE}_high", "constants", "is_today"),
        "chart_false_alarms",
    )
    if sheet["threshold_s"].is_duplicated().any():
        raise ArgumentError(
            "chart_false_alarms draws one stratum; found thresholds twice.",
            "filter one: sheet.filter(kind='flow')",
        )
    known = sheet.filter(pl.col(RATE).is_not_null()).sort("threshold_s")
    drawn = _near(known, known["is_today"], times=4)
    low = float(drawn["threshold_s"].min() or 1.0)  # type: ignore[arg-type]
    high = max(style.largest(drawn, "threshold_s"), 4 * low)
    title = "silence until the alarm (the delay)"
    delay = style.log_time("threshold_s", low_s=low, high_s=high, title=title, width=width)
    most = max(style.largest(drawn, f"{RATE}_high"), 1.0)
    alarms = {
        "title": "false alarms per 100 session-hours",
        "scale": {"type": "sqrt", "domain": [0, most], "nice": False},
        "axis": {"tickCount": 5},
    }
    place = {"x": delay, "y": style.field(f"{RATE}:Q", **alarms)}
    drawn_in = {"color": {"value": palette["info"]}}
    ends = {"y": style.field(f"{RATE}_low:Q", **alarms), "y2": {"field": f"{RATE}_high"}}
    # Invisible, for the pointer: a line has the tooltip of one row only.
    points = style.mark("point", place, size=120, opacity=0, filled=True, clip=True)
    curve = {
        "data": drawn,
        "tooltips": {
            "silence": "threshold_s", "false_alarms": RATE, "at_least": f"{RATE}_low",
            "at_most": f"{RATE}_high", "constants": "constants",
        },
        "layer": [
            style.mark("area", {"x": delay, **ends, **drawn_in}, opacity=0.18),
            style.mark("line", {**place, **drawn_in}, strokeWidth=2, clip=True),
            {**points, "moves": ("alarms_axis", "x")},
        ],
    }  # fmt: skip
    marks = _constant_marks(drawn, (low * high) ** 0.5)
    rule = style.mark("rule", {"x": delay, "color": {"value": palette["muted"]}}, strokeDash=[4, 3])
    names = style.leaning_labels(
        marks, delay, dx=4, palette=palette, ends_s=(low, high), width=width
    )
    spec = {
        "layer": [curve, {**rule, "data": marks}, *names],
        "resolve": {"scale": {"y": "independent"}},
        "width": width,
        "height": height,
    }
    heading = say_false_alarms(sheet, what=what) if sentence is None else sentence
    return finished(alt.LayerChart, spec, heading, palette=palette, width=width)


def _constant_marks(drawn: pl.DataFrame, middle_s: float) -> pl.DataFrame:
    """Labels of today's constants, each on a line of text, away from the edge."""
    rows = [
        {
            "threshold_s": row["threshold_s"],
            "mark": "today",
            "label": f"{how_long(row['threshold_s'])}: {row['constants']}",
            "line": float(2 + _LINE * place),
            "is_right": row["threshold_s"] > middle_s,
        }
        for place, row in enumerate(drawn.filter("is_today").iter_rows(named=True))
    ]
    return pl.DataFrame(rows, schema=_MARKS)


MISTAKES = {
    ("false_alarm", "100 session-hours"): "false alarms",
    ("lost_run", "100 session-hours"): "live runs closed",
    ("false_alarm", "100 runs"): "good runs flagged",
    ("lost_run", "100 runs"): "good runs ended",
}
"""Names of mistakes, by their cost and the denominator of their rate."""


def say_worksheet(curve: pl.DataFrame) -> str:
    """Today's threshold against the recommended one, in alarms and delay.

    Examples
    --------
    >>> curve = pl.DataFrame(
    ...     {
    ...         "threshold_s": [1800.0, 21600.0],
    ...         "mistakes": [2.8, 0.0],
    ...         "mistake": ["false_alarm"] * 2,
    ...         "per": ["100 session-hours"] * 2,
    ...         "is_today": [False, True],
    ...         "is_best": [True, False],
    ...     }
    ... )
    >>> say_worksheet(curve)
    'Today 6 h: 0 false alarms per 100 session-hours. The cheapest, 30 min: 2.8, 5 h 30 min sooner.'
    """
    rows = curve.to_dicts()
    today, best = ([row for row in rows if row[name]][:1] for name in ("is_today", "is_best"))
    if not best:
        return say("chart.no_worksheet")
    cheapest = best[0]
    what = mistakes_of(cheapest["mistake"], cheapest["per"])
    number, limit = per_hundred(cheapest["mistakes"]), how_long(cheapest["threshold_s"])
    if not today:
        return say("chart.only_cheapest", limit=limit, n=number, what=what)
    now = today[0]
    outcome = say("chart.outcome", limit=now["threshold_s"], n=now["mistakes"], what=what)
    shift_s = now["threshold_s"] - cheapest["threshold_s"]
    if not shift_s:
        return say("chart.today_is_cheapest", outcome=outcome)
    name = "chart.cheapest_is_sooner" if shift_s > 0 else "chart.cheapest_is_later"
    return say(name, outcome=outcome, limit=limit, n=number, shift=abs(shift_s))


def say_false_alarms(sheet: pl.DataFrame, *, what: str = "sessions") -> str:
    """False alarms of the shortest and the longest of today's constants, with exact intervals.

    Examples
    --------
    >>> sheet = pl.DataFrame(
    ...     {
    ...         "threshold_s": [3600.0, 21600.0],
    ...         "mistakes_per_100h": [2.8, 0.0],
    ...         "mistakes_per_100h_low": [0.1, 0.0],
    ...         "mistakes_per_100h_high": [15.4, 10.2],
    ...         "constants": ["idle", "stale.agent"],
    ...         "is_today": [True, True],
    ...     }
    ... )
    >>> say_false_alarms(sheet, what="agents")
    'Of agents, per 100 session-hours: 1 h flags 2.8 wrongly (0.1 to 15), 6 h 0 (0 to 10).'
    """
    today = sheet.filter("is_today", pl.col("mistakes_per_100h").is_not_null()).sort("threshold_s")
    if today.is_empty():
        return say("chart.no_false_alarms", what=what)
    ends = today.head(1) if today.height == 1 else pl.concat([today.head(1), today.tail(1)])
    rate, low, high = (f"mistakes_per_100h{end}" for end in ("", "_low", "_high"))
    parts = [
        f"{how_long(row['threshold_s'])}{' flags' if place == 0 else ''} {per_hundred(row[rate])}"
        f"{' wrongly' if place == 0 else ''} ({per_hundred(row[low])} to {per_hundred(row[high])})"
        for place, row in enumerate(ends.iter_rows(named=True))
    ]
    return say("chart.false_alarms", what=what, rates=", ".join(parts))


def mistakes_of(mistake: str, per: str) -> str:
    """The name of a mistake and its denominator.

    Examples
    --------
    >>> mistakes_of("lost_run", "100 runs")
    'good runs ended per 100 runs'
    """
    return f"{MISTAKES.get((mistake, per), 'mistakes')} per {visible(per)}"
