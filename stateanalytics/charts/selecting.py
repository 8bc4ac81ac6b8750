"""A chart as a widget with its selection: as rows, and as SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import altair as alt
import polars as pl

from stateanalytics.charts import vega
from stateanalytics.charts.style import Source
from stateanalytics.errors import ArgumentError
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.conditions import literal


class SelectableChart(alt.JupyterChart):
    """A chart in a notebook with a kernel; nothing comes from a network.

    Attributes
    ----------
    selected : polars.DataFrame
        The selected rows of the drawn frame; all of them without a selection.
    sql : str
        A query for the rows of the snapshot behind them, for ``snap.sql``, over all time.
    """

    # Only for this class: other charts of a user are not changed.
    _esm = vega.bundled(str(alt.JupyterChart._esm))

    def __init__(self, chart: Any) -> None:
        super().__init__(chart, embed_options={"actions": False, "ast": True})

    @property
    def selected(self) -> pl.DataFrame:
        """The selected rows of the drawn frame; all of them without a selection."""
        rows = self._rows()
        for selection in self._chosen():
            rows = rows.filter(_holds(selection, rows.schema))
        return rows

    @property
    def sql(self) -> str:
        """A query for the rows of the snapshot behind them, for ``snap.sql``, over all time."""
        source: Source | None = getattr(self.chart, "_source", None)
        if source is None:
            raise ArgumentError(
                "The rows of this chart are in no SQL table.", "chart.live().selected"
            )
        chosen = list(self._chosen())
        parts = [source.where] if source.where else []
        parts += [
            f"{name} BETWEEN {literal(low)} AND {literal(high)}"
            for selection in chosen
            if isinstance(selection, dict)
            for name, (low, high) in selection.items()
            if name in source.ranges
        ]
        if chosen and source.conditions:
            parts.append(_any_of(self.selected, source))
        return f"FROM {source.table}" + (f" WHERE {' AND '.join(parts)}" if parts else "")

    def _chosen(self) -> Iterator[Any]:
        """The value of each selection: ranges by column, or a list of values by column."""
        for name in self.selections.trait_names():
            value = getattr(self.selections, name).value
            # Selections that move axes select nothing.
            if value and not name.endswith(("_axis", "_axes")):
                yield value

    def _rows(self) -> pl.DataFrame:
        """The frame with all columns of the selections."""
        frames = list(_frames(self.chart))
        fields = {
            field
            for selection in self._chosen()
            for values in (selection if isinstance(selection, list) else [selection])
            for field in values
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


def _holds(selection: Any, schema: pl.Schema) -> pl.Expr:
    if isinstance(selection, dict):
        return pl.all_horizontal(
            pl.col(name).is_between(*(_value(end, schema[name]) for end in ends))
            for name, ends in selection.items()
        )
    return pl.any_horizontal(
        pl.all_horizontal(
            pl.col(name).eq_missing(pl.lit(_value(value, schema[name])))
            for name, value in values.items()
        )
        for values in selection
    )


def _value(value: Any, dtype: pl.DataType) -> Any:
    """Moments come as milliseconds."""
    is_moment = dtype == pl.Datetime and value is not None
    return datetime.fromtimestamp(value / 1000, UTC) if is_moment else value


def _any_of(rows: pl.DataFrame, source: Source) -> str:
    """SQL condition for the rows behind any of the selected marks."""
    columns = [column for column, _ in source.conditions]
    texts = dict(source.conditions)
    either = [
        " AND ".join(
            texts[column].replace("{}", literal(value))
            if value is not None
            else f"{quoted(column)} IS NULL"
            for column, value in row.items()
        )
        for row in rows.select(columns).unique(maintain_order=True).to_dicts()
    ]
    return "(" + " OR ".join(f"({condition})" for condition in either) + ")" if either else "false"
