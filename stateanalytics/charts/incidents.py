"""Incidents as intervals: when failures hung together, and how many runs they took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from stateanalytics.charts.palette import FONT_SIZE, LIGHT, Palette, dress
from stateanalytics.charts.titles import titled
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import MissingColumnsError

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("incident_id", "since", "until", "n_rows", "n_sessions", "code", "template", "linked_by")
MOST_SHOWN = 12
_LABEL_WIDTH, _ROW = 260, 26


def chart_incidents(
    incidents: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.LayerChart:
    """The incidents with most rows, one line each, over time.

    Parameters
    ----------
    incidents : polars.DataFrame
        From `failures.incidents`.
    sentence : str
        Heading: what the chart proves.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        A bar from the first failure to the last, with how many rows and sessions it took;
        oldest on top.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    if missing := [name for name in NEEDED if name not in incidents.columns]:
        raise MissingColumnsError.of(missing, incidents.columns, "chart_incidents")
    drawn = _named(incidents)
    lines = drawn["name"].to_list()
    labels = _LABEL_WIDTH // 2 if width < 2 * _LABEL_WIDTH else _LABEL_WIDTH
    time = alt.X("since:T", title="UTC", scale=alt.Scale(type="utc"), axis=alt.Axis(tickCount=6))
    base = alt.Chart(drawn).encode(
        y=alt.Y(
            "name:N",
            sort=lines,
            title=None,
            axis=alt.Axis(domain=False, ticks=False, labelLimit=labels - 10, minExtent=labels - 10),
        )
    )
    # A burst of seconds would be too thin to see: its ends are marked.
    bars = base.mark_bar(height=10, cornerRadius=2).encode(
        x=time, x2="until:T", color=alt.value(palette["critical"])
    )
    ends = base.mark_point(filled=True, shape="diamond", size=50, opacity=1).encode(
        x=time, color=alt.value(palette["critical"])
    )
    # Words lean away from the nearer edge.
    words = [
        base.transform_filter(f"datum.is_late == {'true' if is_late else 'false'}")
        .mark_text(
            align="right" if is_late else "left",
            dx=-8 if is_late else 8,
            dy=-9,
            fontSize=FONT_SIZE - 1,
        )
        .encode(x=time, text="words:N", color=alt.value(palette["text"]))
        for is_late in (False, True)
    ]
    chart: Any = alt.layer(bars, ends, *words).properties(
        width=width - labels,
        height=_ROW * max(len(lines), 1),
        description=f"{incidents.height} incidents, {drawn.height} of them drawn.",
    )
    return cast(
        "alt.LayerChart", dress(titled(chart, sentence, palette=palette, width=width), palette)
    )


def _named(incidents: pl.DataFrame) -> pl.DataFrame:
    """The largest ones, by when they began, each with its words."""
    top = incidents.sort("n_rows", "since", descending=True).head(MOST_SHOWN).sort("since")
    names = [
        f"{place} {shortened(visible(row['template'] or row['code'] or '(nothing said)'), 60)}"
        for place, row in enumerate(top.iter_rows(named=True), start=1)
    ]
    words = pl.format("{} rows, {} sessions: {}", "n_rows", "n_sessions", "linked_by")
    middle = pl.col("since").min() + (pl.col("until").max() - pl.col("since").min()) / 2
    return top.select(
        "since",
        "until",
        words=words,
        is_late=pl.col("since") > middle,
        name=pl.Series(names, dtype=pl.String),
    )
