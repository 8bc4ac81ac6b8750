"""The sentence above a chart: what it proves, broken into lines that fit."""

from __future__ import annotations

import textwrap
from typing import Any, TypeVar

from stateanalytics.charts.palette import FONT_SIZE, Palette
from stateanalytics.core.text import visible

Chart = TypeVar("Chart")
_WIDTH_OF_A_LETTER = 6.6


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
    lines = textwrap.wrap(shown, max(20, int(width / _WIDTH_OF_A_LETTER)), break_on_hyphens=False)
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
