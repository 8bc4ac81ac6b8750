"""The logarithmic axis of time that the charts share: ticks that people name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateanalytics.core.units import how_long

if TYPE_CHECKING:
    import altair as alt

TICKS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""Moments that stand on an axis of time, where there is room."""
SHORTEST_S = 0.5
"""What takes no time at all is drawn here: a logarithmic axis has no 0."""
_LEAST_ROOM = 62


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
