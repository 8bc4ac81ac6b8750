"""Names beside vertical rules, one line each, that stay inside the drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, Palette

if TYPE_CHECKING:
    import altair as alt


def leaning_labels(
    marks: pl.DataFrame, x: alt.X | alt.Y, *, dx: int, palette: Palette
) -> list[alt.Chart]:
    """Two layers of names: one leans right of its rule, the other left, away from the edge.

    Parameters
    ----------
    marks : polars.DataFrame
        ``label``, ``line`` (pixels from the top) and ``is_right`` (stands in the right
        half, so leans left), beside the column of ``x``.
    x : altair.X or altair.Y
        Where the rules stand.
    dx : int
        Pixels between a rule and its name.
    palette : mapping of str to str
        Colours by name.
    """
    import altair as alt

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
