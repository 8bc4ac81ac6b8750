"""A chart as a widget that knows what is chosen in it: as rows, and as the SQL for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from stateanalytics.charts import vega
from stateanalytics.errors import ArgumentError
from stateanalytics.sql.conditions import literal

if TYPE_CHECKING:
    from stateanalytics.charts.interactive import Source


class SelectableChart(alt.JupyterChart):
    """A chart of ours in a notebook with a kernel; nothing that it shows comes from a network.

    Attributes
    ----------
    selected : polars.DataFrame
        The rows that are drawn and chosen; all of them where nothing is.
    sql : str
        What gives the rows of the snapshot behind them, for ``snap.sql``, over all time.
    """

    # Of this class only: other charts of a user load what they like.
    _esm = vega.bundled(str(alt.JupyterChart._esm))

    def __init__(self, chart: Any) -> None:
        super().__init__(chart, embed_options={"actions": False, "ast": True})

    @property
    def selected(self) -> pl.DataFrame:
        """The rows that are drawn and chosen; all of them where nothing is."""
        rows = self._rows()
        for asked in self._chosen():
            rows = rows.filter(_holds(asked, rows.schema))
        return rows

    @property
    def sql(self) -> str:
        """What gives the rows of the snapshot behind them, for ``snap.sql``, over all time."""
        source: Source | None = getattr(self.chart, "_source", None)
        if source is None:
            raise ArgumentError(
                "What this chart draws is in no table of SQL.", "chart.live().selected"
            )
        chosen = list(self._chosen())
        parts = [source.where] if source.where else []
        parts += [
            f"{name} BETWEEN {literal(low)} AND {literal(high)}"
            for asked in chosen
            if isinstance(asked, dict)
            for name, (low, high) in asked.items()
            if name in source.ranges
        ]
        if chosen and source.conditions:
            parts.append(_any_of(self.selected, source))
        return f"FROM {source.table}" + (f" WHERE {' AND '.join(parts)}" if parts else "")

    def _chosen(self) -> Iterator[Any]:
        """What each selection holds: stretches by column, or a list of values by column."""
        for name in self.selections.trait_names():
            value = getattr(self.selections, name).value
            # Those that move axes choose nothing.
            if value and not name.endswith(("_axis", "_axes")):
                yield value

    def _rows(self) -> pl.DataFrame:
        """The frame of the part that selections are of: the one with all of their columns."""
        frames = list(_frames(self.chart))
        fields = {
            field
            for asked in self._chosen()
            for one in (asked if isinstance(asked, list) else [asked])
            for field in one
        }
        source: Source | None = getattr(self.chart, "_source", None)
        if source is not None:
            fields |= {*source.ranges, *(column for column, _ in source.conditions)}
        return next((frame for frame in frames if fields <= set(frame.columns)), frames[0])


def _frames(chart: Any) -> Iterator[pl.DataFrame]:
    if isinstance(chart.data, pl.DataFrame):
        yield chart.data
    for name in ("layer", "concat", "hconcat", "vconcat"):
        for part in getattr(chart, name, ()) or ():
            yield from _frames(part)


def _holds(asked: Any, schema: pl.Schema) -> pl.Expr:
    if isinstance(asked, dict):
        return pl.all_horizontal(
            pl.col(name).is_between(*(_value(end, schema[name]) for end in ends))
            for name, ends in asked.items()
        )
    return pl.any_horizontal(
        pl.all_horizontal(
            pl.col(name).eq_missing(pl.lit(_value(value, schema[name])))
            for name, value in one.items()
        )
        for one in asked
    )


def _value(value: Any, dtype: pl.DataType) -> Any:
    """Moments come as milliseconds."""
    is_moment = dtype == pl.Datetime and value is not None
    return datetime.fromtimestamp(value / 1000, UTC) if is_moment else value


def _any_of(rows: pl.DataFrame, source: Source) -> str:
    """SQL that holds of what any of the rows stands for."""
    columns = [column for column, _ in source.conditions]
    texts = dict(source.conditions)
    either = [
        " AND ".join(
            texts[column].replace("{}", literal(value))
            if value is not None
            else f"{column} IS NULL"
            for column, value in row.items()
        )
        for row in rows.select(columns).unique(maintain_order=True).to_dicts()
    ]
    return "(" + " OR ".join(f"({one})" for one in either) + ")" if either else "false"
