"""What all charts share: colours, type, headings, names beside rules, the axis of log time.

Fills stay apart for every kind of sight, in both themes. The tokens of ADR-0025 are made
for text on its own soft ground and are not used here: as fills, warning and stale cannot be
told apart with protanopia. Colour is never the only sign; every chart also names or orders
what it shows.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stateanalytics.charts.living import Palette, Source, living
from stateanalytics.charts.text_width import FONT_SIZE, fitted, wrapped
from stateanalytics.core.text import visible
from stateanalytics.core.units import how_long

if TYPE_CHECKING:
    import altair as alt

Kind = TypeVar("Kind")
Chart = TypeVar("Chart")

# What needs attention most stands first, everywhere.
ORDER = ("critical", "warning", "info", "neutral", "success")

LIGHT: Palette = MappingProxyType(
    {
        "critical": "#B42318",
        "warning": "#E69F00",
        "info": "#175CD3",
        "neutral": "#8A94A6",
        "success": "#0B8F6A",
        "text": "#1F2937",
        "muted": "#5B6472",
        "line": "#D8DCE3",
        "surface": "#FFFFFF",
    }
)
DARK: Palette = MappingProxyType(
    {
        "critical": "#FF6B5E",
        "warning": "#FFC53D",
        "info": "#5B8DEF",
        "neutral": "#6B7280",
        "success": "#5EEAD4",
        "text": "#E5E7EB",
        "muted": "#A3ACBA",
        "line": "#374151",
        "surface": "#161B24",
    }
)
# For SVG inside a page: the page says what they are, so one drawing serves both themes.
VARIABLES: Palette = MappingProxyType({name: f"var(--chart-{name})" for name in LIGHT})

TICKS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""Moments that stand on an axis of time, where there is room."""
SHORTEST_S = 0.5
"""What takes no time at all is drawn here: a logarithmic axis has no 0."""
_LEAST_ROOM = 62
_NARROWER = 0.85
"""The narrowest font against the widest."""


def largest(frame: pl.DataFrame, column: str) -> float:
    """The largest number of a column; 0 where there is none."""
    return float(frame[column].cast(pl.Float64).max() or 0)  # type: ignore[arg-type]


def titled(chart: Chart, sentence: str, *, palette: Palette, width: int) -> Chart:
    """The chart under its sentence, which is also its description for those who cannot see.

    Parameters
    ----------
    chart : altair top-level chart
    sentence : str
        Text of a store may be in it: it is drawn as text. "" leaves the chart as it is.
    palette : mapping of str to str
        Colours by name.
    width : int
        Room, in pixels.
    """
    import altair as alt

    if not sentence:
        return chart
    plain: Any = chart
    shown = visible(sentence)
    lines = wrapped(shown, max(width, 130), FONT_SIZE + 1, is_bold=True)
    made: Chart = plain.properties(
        title=alt.Title(
            lines,
            anchor="start",
            fontSize=FONT_SIZE + 1,
            fontWeight="bold",
            color=palette["text"],
            offset=10,
        ),
        description=shown,
    )
    return made


def finished(
    kind: type[Kind],
    chart: Any,
    sentence: str,
    *,
    palette: Palette,
    width: int,
    source: Source | None = None,
) -> Kind:
    """The chart, of a kind, under its sentence, in our colours: see `titled` and `living`."""
    made: Kind = living(titled(chart, sentence, palette=palette, width=width), palette, source)
    return made


def utc_axis() -> alt.Axis:
    """An axis of moments, whose hours are those of 24."""
    import altair as alt

    return alt.Axis(tickCount=6, format={"hours": "%H:%M", "minutes": "%H:%M"})


def label_axis(room: float, **options: Any) -> alt.Axis:
    """An axis of names beside rows, in so many pixels.

    What draws it may measure a narrower font than the page has: it cuts a name sooner.
    """
    import altair as alt

    return alt.Axis(
        domain=False, ticks=False, labelLimit=_NARROWER * room, minExtent=room, **options
    )


def leaning_labels(
    marks: pl.DataFrame,
    x: alt.X | alt.Y,
    *,
    dx: int,
    palette: Palette,
    ends_s: tuple[float, float],
    width: int,
) -> list[alt.Chart]:
    """Two layers of names: one leans right of its rule, the other left, away from the edge.

    Parameters
    ----------
    marks : polars.DataFrame
        ``threshold_s``, ``label``, ``line`` (pixels from the top) and ``is_right`` (stands in
        the right half, so leans left); a name is cut to what is left of the axis.
    x : altair.X or altair.Y
        Where the rules stand.
    dx : int
        Pixels between a rule and its name.
    palette : mapping of str to str
        Colours by name.
    ends_s : tuple of float
        Of the axis, which is logarithmic.
    width : int
        Of the axis, in pixels.
    """
    import altair as alt

    low, high = ends_s
    names = [
        fitted(row["label"], (width * (at if row["is_right"] else 1 - at)) - dx)
        for row in marks.iter_rows(named=True)
        for at in [math.log(row["threshold_s"] / low) / math.log(high / low)]
    ]
    marks = marks.with_columns(label=pl.Series(names, dtype=pl.String))
    return [
        alt.Chart(marks.filter(pl.col("is_right") == is_right))
        .mark_text(
            align="right" if is_right else "left",
            dx=-dx if is_right else dx,
            baseline="top",
            fontSize=FONT_SIZE,
        )
        .encode(
            x=x,
            y=alt.Y("line:Q", axis=None, scale=None),
            text="label:N",
            color=alt.value(palette["text"]),
        )
        for is_right in (False, True)
    ]


def log_time(
    field: str,
    *,
    low_s: float,
    high_s: float,
    title: str | None,
    width: int,
    vertical: bool = False,
) -> alt.X | alt.Y:
    """An axis of durations from 1 s to weeks, as wide as asked, without colliding ticks.

    Parameters
    ----------
    field : str
        Column with seconds, above 0.
    low_s, high_s : float
        Ends of the axis; widened to at least a factor of four.
    title : str or None
        What is measured, in words.
    width : int
        Room for the ticks, in pixels.
    vertical : bool
        Whether it is the y axis.
    """
    import altair as alt

    low = max(low_s, SHORTEST_S)
    high = max(high_s, 4 * low)
    axis = alt.Axis(
        values=ticks_between(low, high, width if not vertical else 4 * width),
        labelExpr=tick_labels(),
        grid=True,
        gridOpacity=0.6,
        labelFlush=not vertical,
    )
    scale = alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)
    channel = alt.Y if vertical else alt.X
    return channel(f"{field}:Q", title=title, scale=scale, axis=axis)


def axis_title(text: str, room: float = 480) -> str:
    r"""A text of anybody as the title of an axis, which Vega-Lite 5 puts into an expression.

    Examples
    --------
    >>> print(axis_title('runs" + evil() + "\\'))
    runs” + evil() + ”⧵
    """
    return fitted(visible(text), room).replace("\\", "⧵").replace('"', "”")


def ticks_between(low_s: float, high_s: float, width: int) -> list[int]:
    """The named moments inside, thinned until each has room.

    Examples
    --------
    >>> ticks_between(1, 86_400, 800)
    [1, 10, 60, 600, 3600, 21600, 86400]
    >>> ticks_between(1, 86_400, 200)
    [1, 600, 86400]
    """
    inside = [tick for tick in TICKS if low_s <= tick <= high_s]
    most = max(2, width // _LEAST_ROOM)
    return inside[:: -(-len(inside) // most)] if inside else []


def tick_labels() -> str:
    """A Vega expression of our own constants; no text of a store may enter one."""
    cases = " : ".join(f"datum.value === {value} ? '{how_long(value)}'" for value in TICKS)
    return f"{cases} : ''"
