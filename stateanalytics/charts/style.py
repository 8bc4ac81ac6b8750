"""What all charts share: colours, fonts, text widths and the axis of log time.

Fills can be distinguished with every kind of colour vision, in both themes. The tokens of
ADR-0025 are made for text on its own background and are not used here: as fills, warning and
stale look the same with protanopia. Colour is never the only sign; every chart also names or
orders what it shows.

A drawing is made before its font is known, and the same text is up to a fifth wider in another
font. Widths are those of the widest (DejaVu Sans, or Verdana), so that nothing is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.charts.vega import BOLD, LETTERS, OTHER
from stateanalytics.core.text import visible
from stateanalytics.core.words import how_long

FONT_SIZE = 12
HEADER = {"labelOrient": "top", "labelAnchor": "start", "labelPadding": 2}
"""The title of a facet: above it, at its left edge."""
_TYPES = {"N": "nominal", "O": "ordinal", "Q": "quantitative", "T": "temporal"}
Palette: TypeAlias = Mapping[str, str]

# Groups, such as kinds of work: none of them looks like an outcome.
OF_GROUPS = ("info", "second", "text", "third", "neutral")
# The most severe comes first, everywhere.
ORDER = ("critical", "warning", "info", "neutral", "success")

_COLOURS = {
    "critical": ("#B42318", "#FF6B5E"),
    "warning": ("#E69F00", "#FFC53D"),
    "info": ("#175CD3", "#5B8DEF"),
    "neutral": ("#8A94A6", "#6B7280"),
    "success": ("#0B8F6A", "#5EEAD4"),
    "second": ("#7A4B1E", "#B97A45"),
    "third": ("#5B2A86", "#CFC66A"),
    "text": ("#1F2937", "#E5E7EB"),
    "muted": ("#5B6472", "#A3ACBA"),
    "line": ("#D8DCE3", "#374151"),
    "surface": ("#FAFAF8", "#161B24"),
}
"""Each colour on a light and on a dark ground."""
LIGHT: Palette = {name: light for name, (light, _) in _COLOURS.items()}
DARK: Palette = {name: dark for name, (_, dark) in _COLOURS.items()}
# For SVG inside a page: the page defines them, so that a drawing serves both themes.
VARIABLES: Palette = {
    **{name: f"var(--chart-{name})" for name in LIGHT},
    "surface": "var(--surface)",
}

TICKS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""Durations that are labelled on an axis of time, where there is room."""
SHORTEST_S = 0.5
"""Where durations of zero are drawn: a logarithmic axis has no 0."""
_LEAST_ROOM = 62
_NARROWER = 0.85
"""Width of the narrowest font relative to the widest."""


def largest(frame: pl.DataFrame, column: str) -> float:
    """The largest number of a column; 0 for an empty column."""
    return float(frame[column].cast(pl.Float64).max() or 0)  # type: ignore[arg-type]


UTC_AXIS = {"tickCount": 6, "format": {"hours": "%H:%M", "minutes": "%H:%M"}}
"""An axis of moments with a 24-hour clock."""


def field(shorthand: str, **options: Any) -> dict[str, Any]:
    """A column on a channel, with its type: ``n:Q``, ``name:N`` or ``rank:O``."""
    column, kind = shorthand.split(":")
    return {"field": column, "type": _TYPES[kind], **options}


def mark(kind: str, encoding: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The specification of a mark, with the columns and values of its channels."""
    return {"mark": {"type": kind, **options}, "encoding": encoding}


def share_axis(column: str, title: str) -> dict[str, Any]:
    """A vertical axis of shares from 0 to 100 %."""
    axis = {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]}
    return field(f"{column}:Q", title=title, scale={"domain": [0, 1]}, axis=axis)


def label_axis(room: float, **options: Any) -> dict[str, Any]:
    """An axis of row names, with a given width in pixels.

    Vega may measure a narrower font than the page has, so names are cut a little earlier.
    """
    cut = {"labelLimit": _NARROWER * room, "minExtent": room}
    return {"domain": False, "ticks": False, **cut, **options}


def where(test: str, value: object, otherwise: object) -> dict[str, Any]:
    """A value on a channel where a test of the row is true, and another one elsewhere."""
    return {"value": otherwise, "condition": {"test": test, "value": value}}


def leaning_labels(
    marks: pl.DataFrame,
    x: dict[str, Any],
    *,
    dx: int,
    palette: Palette,
    ends_s: tuple[float, float],
    width: int,
) -> list[dict[str, Any]]:
    """Layers of names, right and left of their rules, away from the nearer edge.

    Below each name is the same one in the colour of the paper, so that no line crosses it.

    Parameters
    ----------
    marks : polars.DataFrame
        ``threshold_s``, ``label``, ``line`` (pixels from the top) and ``is_right`` (in the right
        half, so the name stands left of its rule); names are cut to the width of the axis.
    x : dict
        Position of the rules, from `log_time`.
    dx : int
        Pixels between a rule and its name.
    palette : mapping of str to str
        Colours by name.
    ends_s : tuple of float
        Of the axis, which is logarithmic.
    width : int
        Of the axis, in pixels.
    """
    low, high = ends_s
    rows = marks.to_dicts()
    for row in rows:
        at = math.log(row["threshold_s"] / low) / math.log(high / low)
        row["label"] = fitted(row["label"], width * (at if row["is_right"] else 1 - at) - dx)
    frame = pl.DataFrame(rows, schema=marks.schema)
    place = {"x": x, "y": field("line:Q", axis=None, scale=None)}
    place["text"] = field("label:N")
    paper, text = {"value": palette["surface"]}, {"value": palette["text"]}
    plain = {"baseline": "top", "fontSize": FONT_SIZE, "clip": True, "strokeWidth": 4}
    return [
        {**mark("text", {**place, **colours}, align=align, dx=dx, **plain), "data": side}
        for is_right, align, dx in ((False, "left", dx), (True, "right", -dx))
        for side in (frame.filter(is_right=is_right),)
        for colours in ({"color": paper, "stroke": paper}, {"color": text})
    ]


def log_time(
    column: str,
    *,
    low_s: float,
    high_s: float,
    title: str | None,
    width: int,
    vertical: bool = False,
) -> dict[str, Any]:
    """A logarithmic axis of durations from 1 s to weeks, without colliding ticks.

    Parameters
    ----------
    column : str
        With seconds, above 0.
    low_s, high_s : float
        Ends of the axis; widened to at least a factor of four.
    title : str or None
        What is measured, in words.
    width : int
        Room for the ticks, in pixels.
    vertical : bool
        Whether it is the y axis.
    """
    low = max(low_s, SHORTEST_S)
    high = max(high_s, 4 * low)
    ticks = ticks_between(low, high, width if not vertical else 4 * width)
    scale = {"type": "log", "domain": [low, high], "nice": False, "clamp": True}
    axis = time_axis(ticks, labelFlush=not vertical)
    return field(f"{column}:Q", title=title, scale=scale, axis=axis)


def time_axis(ticks: list[int], **options: Any) -> dict[str, Any]:
    """An axis of durations, with a line at each tick."""
    labels = {"values": ticks, "labelExpr": tick_labels()}
    return {**labels, "grid": True, "gridOpacity": 0.6, **options}


def axis_title(text: str, room: float = 480) -> str:
    r"""Untrusted text as the title of an axis, which Vega-Lite 5 puts into an expression.

    Examples
    --------
    >>> print(axis_title('runs" + evil() + "\\'))
    runs” + evil() + ”⧵
    """
    return fitted(visible(text), room).replace("\\", "⧵").replace('"', "”")


def ticks_between(low_s: float, high_s: float, width: int) -> list[int]:
    """The labelled durations within a range, thinned until each has room.

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


def width_of(text: str, size: float = FONT_SIZE, *, is_bold: bool = False) -> float:
    """Pixels that a text takes at most.

    Examples
    --------
    >>> round(width_of("49 min")), round(width_of("49 min", is_bold=True))
    (42, 47)
    """
    thousandths = sum(
        LETTERS[place] if 0 <= (place := ord(letter) - 32) < len(LETTERS) else OTHER
        for letter in text
    )
    return thousandths * size / 1000 * (BOLD if is_bold else 1.0)


def widest(texts: Iterable[str], size: float = FONT_SIZE, *, is_bold: bool = False) -> float:
    """Pixels that the widest of some texts takes at most; 0 for none."""
    return max((width_of(text, size, is_bold=is_bold) for text in texts), default=0.0)


def fitted(text: str, room: float, size: float = FONT_SIZE, *, is_bold: bool = False) -> str:
    """Text cut to a width in pixels, with ``…`` at its end where something is missing.

    Examples
    --------
    >>> fitted("ProviderQuotaError: API Error", 120), fitted("short", 120), fitted("short", 2)
    ('ProviderQuotaErr…', 'short', '')
    """
    if width_of(text, size, is_bold=is_bold) <= room:
        return text
    left = room - width_of("…", size, is_bold=is_bold)
    kept = len(text)
    while kept and width_of(text[:kept], size, is_bold=is_bold) > left:
        kept -= 1
    return text[:kept].rstrip() + "…" if kept else ""


def wrapped(text: str, room: float, size: float = FONT_SIZE, *, is_bold: bool = False) -> list[str]:
    """Text wrapped at blanks to lines of a width; a word that is too wide is cut.

    Examples
    --------
    >>> wrapped("Half of the flows end within 49 min", 120)
    ['Half of the flows', 'end within 49 min']
    """
    lines: list[str] = []
    for word in text.split():
        both = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(both, size, is_bold=is_bold) <= room:
            lines[-1] = both
        else:
            lines.append(fitted(word, room, size, is_bold=is_bold))
    return lines


@dataclass(frozen=True)
class Source:
    """The rows of a SQL table that a mark stands for.

    Attributes
    ----------
    table : str
        Name of the table.
    conditions : tuple of tuple of str
        A column of the drawn frame, and the SQL condition of its rows; ``{}`` is its value.
    ranges : tuple of str
        Columns of both frames of which a range may be selected.
    where : str
        SQL condition of all drawn rows.
    """

    table: str
    conditions: tuple[tuple[str, str], ...] = ()
    ranges: tuple[str, ...] = ()
    where: str = ""
