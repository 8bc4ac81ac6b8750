"""SQL conditions for what somebody selected, and counts under such a selection.

A cross-filter counts a table by several columns, each under the selection in all others. The
selection is an SQL condition; polars counts by bin numbers instead, one byte for each row and
column, which gives the same rows in a fraction of the time that texts would take.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.core.joins import OwnColumn
from stateanalytics.core.windows import Window
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.state.population import outdated_sources
from stateanalytics.systems import all_systems

NOT_DRIVEN = (
    "NOT coalesce((source, system, session_id) IN (SELECT (told_source, told_system, told_id) "
    "FROM links JOIN entity_states USING (source, system, entity_type, entity_id) "
    "WHERE is_counted_by_driver AND NOT is_legacy AND lifecycle <> 'unknown' "
    "AND coalesce(ended_at, started_at, created_at) IS NOT NULL), false)"
)
"""SQL condition that excludes transcripts of work that another system's session counts.

A session that is not counted itself, such as one with a legacy status, hides no transcript.
"""


PLACE = "coalesce(ended_at, started_at, created_at)"
"""SQL of the stored moment that places an entity in a window; what is open, is at as-of."""

COUNTED = (
    "NOT is_legacy AND lifecycle <> 'unknown'",
    "coalesce(recorded_by, '') NOT IN ('mirrored', 'imported')",
    NOT_DRIVEN,
    f"{PLACE} IS NOT NULL",
    f"(NOT is_terminal OR {PLACE} <= as_of())",
)
"""SQL conditions for the entities, with their states, that rates may count (`population`)."""


def is_open_before(window: Window, sources: pl.DataFrame) -> list[str]:
    """SQL conditions for open entities that belong to a window (`population.within`)."""
    began = f"coalesce(coalesce(started_at, created_at) < {literal(window.until)}, true)"
    names = outdated_sources(sources, window)["source"]
    outdated = f"source NOT IN ({', '.join(map(literal, names))})"
    return [began, *([outdated] if names.len() else [])]


def literal(value: object) -> str:
    """A value as a literal of DuckDB's SQL: text of a store stays text.

    Examples
    --------
    >>> [literal(value) for value in ("it's", 3, 0.5, None)]
    ["'it''s'", '3', '0.5', 'NULL']
    """
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case datetime():
            return f"TIMESTAMPTZ '{value.isoformat(' ')}'"
    return "'" + str(value).replace("'", "''") + "'"


def with_own_columns(table: str, joined: Sequence[OwnColumn]) -> str:
    """SQL of a table joined to columns of the user's own tables, under their dotted names."""
    if not joined:
        return table
    names = (
        f'{quoted(own.table)}.{quoted(own.column)} AS "{own.table}.{own.column}"' for own in joined
    )
    keys = {own.table: own.key for own in joined}
    joins = (f" LEFT JOIN {quoted(name)} USING ({quoted(key)})" for name, key in keys.items())
    return f"(SELECT rows.*, {', '.join(names)} FROM {table} AS rows{''.join(joins)})"


def is_run(systems: Iterable[str]) -> str:
    """SQL condition for the runs among entities of some systems.

    Examples
    --------
    >>> is_run([])
    "entity_type = 'session'"
    """
    types = {
        known.name: known.runs.entity_type for known in all_systems() if known.name in set(systems)
    }
    if set(types.values()) <= {"session"}:
        return "entity_type = 'session'"
    each = [
        f"(system = {literal(name)} AND entity_type = {literal(run_type)})"
        for name, run_type in types.items()
    ]
    return f"({' OR '.join(each)})"


def is_failed() -> str:
    """SQL condition for the rows of which `is_failure` holds, among those with an outcome.

    Examples
    --------
    >>> is_failed().startswith("(outcome IN ('failed', 'timed_out')")
    True
    """
    died = (
        f" OR (system = {literal(known.name)} AND outcome = 'aborted' AND reason_code IN "
        f"({', '.join(map(literal, known.ends.failure_codes))}))"
        for known in all_systems()
        if known.ends.failure_codes
    )
    return f"(outcome IN ('failed', 'timed_out'){''.join(died)})"


MOST_VALUES = 12
"""Words of a column that are counted separately: the most frequent ones."""
_BINS = 40
_STEPS_S = (
    *(60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_419_200),
    *(7_257_600, 31_449_600),
)
_BEYOND = 1e300
"""Numbers from here on count as missing: a bin beyond them would be infinite."""
_ROW = "_number_of_row"
Chosen: TypeAlias = Mapping[str, Sequence[int]]
"""Chosen bins by column: every one of words, the first and the last one of a scale."""


@dataclass(frozen=True)
class Dimension:
    """A column that rows are counted by.

    Attributes
    ----------
    name : str
        The column.
    is_scale : bool
        Whether its values lie on a scale of time or of numbers; else they are words.
    values : tuple
        Its words, None for rows without one; or the edges of its bins.
    """

    name: str
    is_scale: bool
    values: tuple[object, ...]

    @property
    def n_places(self) -> int:
        """The number of its bins."""
        return len(self.values) - self.is_scale

    def at(self, places: Sequence[int]) -> pl.Expr:
        """Whether the bin number of a row is one of these."""
        place = pl.col(self.name)
        return place.is_between(min(places), max(places)) if self.is_scale else place.is_in(places)

    def between(self, low: object, high: object) -> list[int]:
        """The first and the last bin of a range, which is widened to whole bins."""
        edges: list[Any] = list(self.values)
        first = max(0, bisect_right(edges, low) - 1)
        last = min(self.n_places - 1, max(first, bisect_left(edges, high) - 1))
        return [min(first, self.n_places - 1), last]

    def condition(self, places: Sequence[int]) -> str:
        """SQL condition for the rows in these bins."""
        column = quoted(self.name)
        if self.is_scale:
            low, high = self.values[min(places)], self.values[max(places) + 1]
            return f"{column} >= {literal(low)} AND {column} < {literal(high)}"
        words = [literal(self.values[n]) for n in places if self.values[n] is not None]
        parts = [f"{column} IN ({', '.join(words)})"] if words else []
        parts += [f"{column} IS NULL"] if len(words) < len(places) else []
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


class CrossFilter:
    """A table, counted by each of its dimensions.

    Parameters
    ----------
    rows : polars.DataFrame
        The table.
    columns : collection of str
        What to count by; a column without values is excluded.
    """

    def __init__(self, rows: pl.DataFrame, columns: Collection[str]) -> None:
        self.rows = rows
        dimensions = {name: _dimension(rows[name]) for name in columns}
        self.dimensions = {name: known for name, known in dimensions.items() if known is not None}
        places = [
            _place(own, _comparable(rows[name])).alias(name)
            for name, own in self.dimensions.items()
        ]
        self._places = rows.select(pl.int_range(pl.len()).alias(_ROW)).with_columns(places)

    def where(self, chosen: Chosen) -> str:
        """SQL condition for the chosen rows."""
        parts = (self.dimensions[name].condition(at) for name, at in chosen.items() if at)
        return " AND ".join(parts)

    def _chosen(self, chosen: Chosen, *, but: str | None = None) -> pl.LazyFrame:
        """The bin numbers of the chosen rows, by every column but ``but``, and their places."""
        parts = [
            self.dimensions[name].at(places)
            for name, places in chosen.items()
            if places and name != but
        ]
        return self._places.lazy().filter(*parts)

    def counts(self, chosen: Chosen) -> dict[str, list[int]]:
        """Rows in each bin of each dimension, under the choice in the others."""
        plans = [self._chosen(chosen, but=name).group_by(name).len() for name in self.dimensions]
        counted = [dict(rows.iter_rows()) for rows in pl.collect_all(plans)]
        return {
            name: [at.get(n, 0) for n in range(dimension.n_places)]
            for (name, dimension), at in zip(self.dimensions.items(), counted, strict=True)
        }

    def n_rows(self, chosen: Chosen) -> int:
        """The number of chosen rows."""
        return int(self._chosen(chosen).select(pl.len()).collect().item())

    def selected(self, chosen: Chosen, *, most: int | None = None) -> pl.DataFrame:
        """The chosen rows, in their order; at most the first ``most``."""
        rows = self._chosen(chosen).select(_ROW)
        return self.rows[rows.head(self.rows.height if most is None else most).collect()[_ROW]]


def is_countable(dtype: pl.DataType) -> bool:
    """Whether rows can be counted by a column of this type, and chosen by it in SQL."""
    return not (dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object))


def _dimension(values: pl.Series) -> Dimension | None:
    values = _comparable(values)
    if values.null_count() == values.len():
        return None
    if values.dtype == pl.Datetime:
        return Dimension(values.name, is_scale=True, values=_edges_of_time(values))
    if values.dtype.is_numeric():
        return Dimension(values.name, is_scale=True, values=_edges(values))
    counts = values.value_counts(sort=False)
    order = counts.sort("count", values.name, descending=[True, False], nulls_last=True)
    return Dimension(
        values.name, is_scale=False, values=tuple(order[values.name].head(MOST_VALUES))
    )


def _comparable(values: pl.Series) -> pl.Series:
    """Moments, finite numbers or texts: what a text of SQL can be compared with."""
    if values.dtype == pl.Datetime:
        return values.cast(pl.Datetime("us", "UTC"))
    if values.dtype.is_numeric():
        number = values.cast(pl.Float64)
        is_finite = number.abs() < _BEYOND
        return pl.select(pl.when(is_finite).then(number).alias(values.name)).to_series()
    return values.cast(pl.String)


def _edges_of_time(values: pl.Series) -> tuple[datetime, ...]:
    """Edges of bins of time, as narrow as the number of bins allows; weeks begin on Monday."""
    first, last = values.min(), values.max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    span_s = (last - first).total_seconds()
    step_s = next((step for step in _STEPS_S if span_s <= _BINS * step), span_s / _BINS)
    monday = datetime(1969, 12, 29, tzinfo=UTC)
    begin = _after(monday, (first - monday).total_seconds() // step_s * step_s)
    n = int((last - begin).total_seconds() // step_s) + 1
    return tuple(_after(begin, step_s * place) for place in range(n + 1))


def _after(moment: datetime, seconds: float) -> datetime:
    """The moment that many seconds later, within the calendar."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)


def _edges(values: pl.Series) -> tuple[float, ...]:
    """Edges of bins: of equal ratio where values span decades, else of equal width."""
    low, high = float(values.min() or 0), float(values.max() or 0)  # type: ignore[arg-type]
    above = values.filter(values > 0)
    smallest = float(above.min() or 1)  # type: ignore[arg-type]
    if low >= 0 and high > 20 * smallest:
        # Four steps a decade, at most.
        start = max(
            math.floor(math.log10(smallest) * 4), math.floor(math.log10(high) * 4) - _BINS + 2
        )
        edges = [float(f"{10 ** (n / 4):.2g}") for n in range(start + 1, start + _BINS + 2)]
        last = next(n for n, edge in enumerate(edges) if edge > high)
        return (0.0, *edges[: last + 1])
    width = _nice((high - low) / 20 or 1.0)
    begin = math.floor(low / width)
    return tuple(width * n for n in range(begin, math.floor(high / width) + 2))


def _nice(width: float) -> float:
    size = 10.0 ** math.floor(math.log10(width))
    return next(step * size for step in (1, 2, 5, 10) if width <= step * size)


def _place(dimension: Dimension, values: pl.Series) -> pl.Series:
    """The bin number of each row; null for none."""
    if not dimension.is_scale:
        places = {word: n for n, word in enumerate(dimension.values)}
        return values.replace_strict(places, default=None, return_dtype=pl.UInt8)
    inner = pl.Series(dimension.values[1:-1], dtype=values.dtype)
    at = inner.search_sorted(values, side="right").cast(pl.UInt8)
    return pl.select(pl.when(values.is_not_null()).then(at)).to_series()
