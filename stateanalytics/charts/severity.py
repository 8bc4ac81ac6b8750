"""How much needs attention: entities by type, one column of bars a severity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.living import Palette, Source, living
from stateanalytics.charts.pointing import click, faint, told
from stateanalytics.charts.style import LIGHT, label_axis, largest
from stateanalytics.charts.text_width import FONT_SIZE
from stateanalytics.errors import ColumnTypeError, check_columns

if TYPE_CHECKING:
    import altair as alt

# Neutral is left to the table: it would set the scale, and needs no attention.
SHOWN = ("critical", "warning", "info")
NEEDED = ("entity_type", *SHOWN)
ROW_HEIGHT = 24
LABEL_WIDTH = 96
_OF_TYPE = Source("states", (("entity_type", "entity_type = {}"), ("severity", "severity = {}")))


def chart_severity(
    by_type: pl.DataFrame, *, palette: Palette = LIGHT, width: int = 620
) -> alt.FacetChart:
    """Bars with their numbers; every column is headed by its severity, worst first.

    Parameters
    ----------
    by_type : polars.DataFrame
        ``entity_type`` and a count for each of critical, warning and info.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.FacetChart
        Rows stand in the order of the frame. All columns share one scale.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ColumnTypeError
        If a count is no number.
    """
    import altair as alt

    check_columns(by_type, NEEDED, "chart_severity")
    if wrong := [name for name in SHOWN if by_type.height and not by_type[name].dtype.is_numeric()]:
        raise ColumnTypeError(
            f"chart_severity needs counts in {wrong}; found {by_type[wrong[0]].dtype}.",
            "count first: frame.group_by('entity_type').agg(...)",
        )
    drawn = by_type.select(NEEDED).unpivot(
        index="entity_type", variable_name="severity", value_name="n"
    )
    drawn, tips = told(drawn, type="entity_type", severity="severity", entities="n")
    chosen = click("chosen_severity", "entity_type", "severity")
    bars = alt.Chart(drawn).encode(
        y=alt.Y(
            "entity_type:N",
            sort=by_type["entity_type"].to_list(),
            title=None,
            axis=label_axis(LABEL_WIDTH, labelPadding=6),
        ),
        # Room right of the longest bar, where its number stands.
        x=alt.X(
            "n:Q",
            axis=None,
            scale=alt.Scale(domain=[0, 1.35 * max(largest(drawn, "n"), 1)], nice=False),
        ),
    )
    fills = alt.Scale(domain=list(SHOWN), range=[palette[name] for name in SHOWN])
    layers = alt.layer(
        bars.mark_bar(height=12)
        .encode(
            color=alt.Color("severity:N", scale=fills, legend=None),
            tooltip=tips,
            opacity=faint(chosen),
        )
        .add_params(chosen),
        bars.mark_text(align="left", dx=4, fontSize=FONT_SIZE).encode(
            text="n:Q",
            color=alt.condition(
                "datum.n > 0", alt.value(palette["text"]), alt.value(palette["muted"])
            ),
        ),
        data=drawn,
    ).properties(width=(width - LABEL_WIDTH) / len(SHOWN) - 10, height=ROW_HEIGHT * by_type.height)
    chart = layers.facet(
        column=alt.Column(
            "severity:N",
            sort=list(SHOWN),
            header=alt.Header(labelOrient="top", labelAnchor="start", labelPadding=2),
        ),
        spacing=10,
    )
    total = int(drawn["n"].sum())
    described = chart.properties(description=f"{total} entities by type and severity.")
    return living(described, palette, _OF_TYPE)
