"""What a pointer does in a chart: marks tell what they are, are chosen, and axes move.

A drag chooses a stretch and a click a mark (with shift: one more), a double click lets all
go. With shift a drag moves the axis, and with ctrl the wheel stretches it: without a key the
wheel belongs to the notebook. Text of a store is data here as well: in no expression, no
name and no address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core.text import shortened, visible
from stateanalytics.core.units import dollars_each, how_long_each

if TYPE_CHECKING:
    import altair as alt

LONGEST_TOLD = 240
FAINT = 0.25
"""How opaque marks are beside those that are chosen."""
_DRAG = "[pointerdown[{key}event.shiftKey], window:pointerup] > window:pointermove!"


def told(frame: pl.DataFrame, **columns: str) -> tuple[pl.DataFrame, list[alt.Tooltip]]:
    """What a mark says of its row: each name, and the column that is told under it.

    Parameters
    ----------
    frame : polars.DataFrame
        What is drawn.
    **columns : str
        Name that people read, with ``_`` for blanks, to column; those that are not there
        are left out.

    Returns
    -------
    tuple of polars.DataFrame and list of altair.Tooltip
        The frame with a text a column: moments in UTC, durations in words, amounts in USD.

    Examples
    --------
    >>> runs = pl.DataFrame({"elapsed_s": [5400.0], "cost_usd": [0.5]})
    >>> frame, tips = told(runs, took="elapsed_s", cost="cost_usd", agent="agent")
    >>> frame.row(0)
    (5400.0, 0.5, '1 h 30 min', '$0.50')
    >>> [tip.to_dict()["title"] for tip in tips]
    ['took', 'cost']
    """
    import altair as alt

    there = {name: column for name, column in columns.items() if column in frame.columns}
    texts = [
        _text(column, frame.schema[column]).fill_null("–").alias(f"told_{name}")
        for name, column in there.items()
    ]
    tips = [
        alt.Tooltip(f"told_{name}:N", title=name.strip("_").replace("_", " ")) for name in there
    ]
    return frame.with_columns(texts), tips


def _text(column: str, dtype: pl.DataType) -> pl.Expr:
    value = pl.col(column)
    if dtype == pl.Datetime:
        return value.dt.strftime("%Y-%m-%d %H:%M:%S UTC")
    if dtype.is_numeric() and column.endswith("_s"):
        return how_long_each(column)
    if dtype.is_numeric() and column.endswith("_usd"):
        return dollars_each(value.round(2))
    if dtype.is_float() and column.startswith("share"):
        return (100 * value).map_elements("{:.3g} %".format, return_dtype=pl.String)
    if dtype.is_float():
        return value.map_elements("{:,.4g}".format, return_dtype=pl.String)
    return value.cast(pl.String).map_elements(
        lambda text: shortened(visible(text), LONGEST_TOLD), return_dtype=pl.String
    )


def click(name: str, *fields: str, in_legend: bool = False) -> alt.Parameter:
    """Marks are chosen by a click, by what they have in these columns; or in the legend."""
    import altair as alt

    legend: dict[str, Any] = {"bind": "legend"} if in_legend else {}
    return alt.selection_point(name=name, fields=list(fields), **legend)


def drag(name: str, *encodings: str) -> alt.Parameter:
    """A stretch is chosen by a drag."""
    import altair as alt

    axes: Any = list(encodings or ("x",))
    return alt.selection_interval(name=name, encodings=axes, on=_DRAG.format(key="!"), zoom=False)


def moving(name: str, *encodings: str) -> alt.Parameter:
    """Axes are moved by a drag with shift and stretched by the wheel with ctrl."""
    import altair as alt

    axes: Any = list(encodings or ("x",))
    return alt.selection_interval(
        name=name,
        encodings=axes,
        bind="scales",
        on=_DRAG.format(key=""),
        translate=_DRAG.format(key=""),
        zoom="wheel![event.ctrlKey]",
    )


def faint(chosen: alt.Parameter | alt.PredicateComposition, opacity: float = 1.0) -> Any:
    """The opacity of a mark: less where others are chosen."""
    import altair as alt

    return alt.when(chosen).then(alt.value(opacity)).otherwise(alt.value(FAINT * opacity))
