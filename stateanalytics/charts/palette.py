"""Colours of charts: fills that stay apart for every kind of sight, in both themes.

The tokens of ADR-0025 are made for text on its own soft ground and are not used here:
as fills, warning and stale cannot be told apart with protanopia. Colour is never the
only sign; every chart also names or orders what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import polars as pl

from stateanalytics.charts.display import shown_safely

Palette: TypeAlias = Mapping[str, str]
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

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
FONT_SIZE = 12


def dress(chart: Chart, palette: Palette) -> Chart:
    """The chart in our type, grid and colours; nothing global is touched.

    Parameters
    ----------
    chart : altair top-level chart
    palette : mapping of str to str
        `LIGHT`, `DARK` or `VARIABLES`.

    Returns
    -------
    altair chart
        Of the same kind. A notebook shows it as a drawing, see `shown_safely`.
    """
    plain: Any = chart
    # One call: each one copies the whole chart.
    dressed: Chart = plain.configure(
        background="transparent",
        font=FONT,
        padding={"left": 2, "right": 8, "top": 4, "bottom": 4},
        view={"stroke": None},
        axis={
            "labelColor": palette["muted"],
            "titleColor": palette["muted"],
            "labelFontSize": FONT_SIZE,
            "titleFontSize": FONT_SIZE,
            "titleFontWeight": "normal",
            "domainColor": palette["line"],
            "tickColor": palette["line"],
            "gridColor": palette["line"],
            "labelLimit": 220,
        },
        header={
            "labelColor": palette["text"],
            "labelFontSize": FONT_SIZE,
            "labelLimit": 260,
            "title": None,
        },
    )
    return shown_safely(dressed)


def largest(frame: pl.DataFrame, column: str) -> float:
    """The largest number of a column; 0 where there is none."""
    return float(frame[column].cast(pl.Float64).max() or 0)  # type: ignore[arg-type]
