"""Linked charts over a table: counts by several columns, each a filter for the others."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.facts import checked_snapshot
from stateanalytics.core.joins import OwnColumn, own_column, with_own_column
from stateanalytics.core.redaction import redact
from stateanalytics.core.text import shortened, visible
from stateanalytics.core.windows import read_moment
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.failures import aliases
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.snapshot import Snapshot
from stateanalytics.sql import conditions
from stateanalytics.systems import all_systems
from stateanalytics.widgets.drawing import Shown, safe, table, widget_libraries

RUNS = "entity_states"
BY = {
    RUNS: ("started_at", "kind", "model", "project", "outcome", "duration_s", "cost_usd"),
    "failures": (
        *("failed_at", "code", "template", "model", "agent", "project", "run_s", "cost_usd"),
    ),
}
SHOWN = {
    RUNS: ("started_at", "entity_id", "name", "agent", "model", "display", "duration_s"),
    "failures": ("failed_at", "session_id", "agent", "model", "code", "message"),
}
MOST_COLUMNS, N_ROWS, N_LETTERS = 8, 10, 90


def explore(
    snap: Snapshot,
    of: str = RUNS,
    *,
    by: Sequence[str] | None = None,
    where: str | None = None,
    redact: bool = True,
) -> Explorer:
    """Charts over a table that filter each other, and the SQL of the selection.

    Parameters
    ----------
    snap : Snapshot
        From `read`.
    of : str
        A SQL table, such as ``failures`` or one of your own; by default the runs of
        ``entity_states``.
    by : sequence of str, optional
        Columns to count by: moments, numbers or words; by default the most useful ones. Also
        columns of your own table, joined by the shared column: ``teams.owner``.
    where : str, optional
        SQL condition of the rows to explore.
    redact : bool
        Whether what looks like a secret is masked where it is shown.

    Returns
    -------
    Explorer
        Displays itself in a notebook. A drag selects a range, a click a word; ``selected``
        gives the rows, ``sql`` the query for them.

    Raises
    ------
    ArgumentError
        If there is no such table or column.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> look = sa.explore(sa.demo()).choose(outcome="timed_out", kind=["agent", "flow"])
    >>> look.selected.height == sa.demo().sql(look.sql).height
    True
    """
    checked_snapshot(snap, "explore")
    whole = snap.table(of)
    condition = None
    if where is not None:
        # In brackets for an OR, closed on a new line in case of a comment at its end.
        condition = f"({where}\n)" if "--" in str(where) else f"({where})"
        rows = snap.sql(_query(of, condition), max_rows=2**62)
    elif of == RUNS:
        condition = conditions.is_run(snap.entities["system"].unique())
        run_types = {known.name: known.runs.entity_type for known in all_systems()}
        run_type = pl.col("system").replace_strict(run_types, default="session")
        rows = whole.filter(pl.col("entity_type") == run_type)
    else:
        rows = whole
    is_single = isinstance(by, str) or not isinstance(by, Collection)
    columns = _columns(rows, of) if by is None else [str(by)] if is_single else list(by)
    own = getattr(snap, "own_tables", {})
    joined = [column for name in columns if (column := own_column(rows, name, own))]
    for name in columns:
        rows = with_own_column(rows, name, own)
        if name not in rows.columns:
            raise ArgumentError(
                f"There is no column {name!r:.80} in {of}; there are {len(rows.columns)}.",
                "snap.schema() lists them" + did_you_mean(str(name), rows.columns),
            )
        if not conditions.is_countable(rows.schema[name]):
            raise ArgumentError(
                f"Nothing is counted by {name!r:.80}, which is of type {rows.schema[name]!s:.60}.",
                "name columns of moments, numbers or words",
            )
    return Explorer(snap, of, condition, rows, columns, joined=joined, is_redacted=redact)


class Explorer(Shown):
    """The result of `explore`: the selection, its rows, and the charts.

    Attributes
    ----------
    chosen : mapping of str to sequence of int
        The selected positions by column, as in `sql.conditions`.
    selected : polars.DataFrame
        The selected rows, the newest first.
    sql : str
        The query for the same rows, for ``snap.sql``.
    """

    def __init__(
        self,
        snap: Snapshot,
        of: str,
        where: str | None,
        rows: pl.DataFrame,
        columns: Sequence[str],
        *,
        joined: Sequence[OwnColumn] = (),
        is_redacted: bool,
    ) -> None:
        self._from = conditions.with_own_columns(of, joined)
        self._snap, self._of, self._base, self._is_redacted = snap, of, where, is_redacted
        moments = [name for name in columns if rows.schema[name] == pl.Datetime]
        self._moment = moments[0] if moments else None
        if self._moment:
            rows = rows.sort(self._moment, descending=True, nulls_last=True, maintain_order=True)
        self._counted = conditions.CrossFilter(rows, columns)
        self.chosen: conditions.Chosen = {}

    def choose(self, **values: Any) -> Explorer:
        """Select values: a word or several, or the two ends of a range.

        Parameters
        ----------
        **values
            By column; None clears the selection. Ends are widened to those of their steps.
        """
        places = {name: self._places(name, value) for name, value in values.items()}
        self._set({name: at for name, at in {**self.chosen, **places}.items() if at})
        return self

    @property
    def selected(self) -> pl.DataFrame:
        """The selected rows, the newest first."""
        return self._counted.selected(self.chosen)

    @property
    def sql(self) -> str:
        """The query for the same rows, for ``snap.sql``."""
        parts = [part for part in (self._base, self._counted.where(self.chosen)) if part]
        order = f" ORDER BY {quoted(self._moment)} DESC" if self._moment else ""
        return _query(self._from, " AND ".join(parts)) + order

    @cached_property
    def widget(self) -> Any:
        """The charts, which need a kernel."""
        with widget_libraries():
            panel_class = _panel_class()

        panel = panel_class(
            dimensions=[self._described(column) for column in self._counted.dimensions.values()],
            answer=self.answer(),
            chosen={},
        )
        panel.observe(lambda change: self._set(_checked(change["new"], self._counted)), "chosen")
        return panel

    def answer(self) -> dict[str, Any]:
        """The content of the charts for the current selection."""
        begun = time.perf_counter()
        counts = self._counted.counts(self.chosen)
        n = self._counted.n_rows(self.chosen)
        took_ms = round(1000 * (time.perf_counter() - begun))
        rows = self._shown(self._counted.selected(self.chosen, most=N_ROWS))
        return {
            "counts": counts,
            "n": n,
            "n_of": self._counted.rows.height,
            "took_ms": took_ms,
            "sql": self._masked(pl.DataFrame({"sql": [self.sql]}))["sql"][0],
            "rows": {"columns": rows.columns, "values": [list(row) for row in rows.rows()]},
        }

    def _display_(self) -> Any:
        """The view in marimo, which does not display a MIME bundle with a widget."""
        return self.widget

    def as_html(self) -> str:
        """The selection as tables, for static pages."""
        answer = self.answer()
        rows = pl.DataFrame(
            answer["rows"]["values"], schema=answer["rows"]["columns"], orient="row"
        )
        parts = []
        for dimension in self._counted.dimensions.values():
            described = self._described(dimension)
            counts = pl.DataFrame(
                {"value": described["labels"], "rows": answer["counts"][dimension.name]}
            )
            counts = counts.filter(pl.col("rows") > 0)
            parts.append(table(safe(described["title"]), counts, counts.columns))
        return (
            f"<p>{answer['n']:,} of {answer['n_of']:,} rows</p>{''.join(parts)}"
            f"{table('Newest rows', rows, rows.columns)}"
            f"<p><code>snap.sql({safe(repr(answer['sql']))})</code></p>"
        )

    def _set(self, chosen: conditions.Chosen) -> None:
        self.chosen = chosen
        if "widget" in self.__dict__:
            with self.widget.hold_sync():
                self.widget.chosen = {name: list(places) for name, places in chosen.items()}
                self.widget.answer = self.answer()

    def _places(self, name: str, value: Any) -> list[int]:
        known = self._counted.dimensions
        if name not in known:
            raise ArgumentError(
                f"Nothing is counted by {name!r:.80}; there are {', '.join(known)}.",
                f"sa.explore(snap, {self._of!r}, by=[…]){did_you_mean(name, known)}",
            )
        dimension = known[name]
        if value is None:
            return []
        if dimension.is_scale:
            return dimension.between(*_ends(dimension, value))
        words = value if isinstance(value, list | tuple) else [value]
        return [self._place_of(dimension, word) for word in words]

    def _place_of(self, dimension: conditions.Dimension, word: Any) -> int:
        if word not in dimension.values and dimension.name == "cluster_id":
            others = aliases(self._snap).filter(pl.col("alias_id") == word)
            word = others["cluster_id"][0] if others.height else word
        if word not in dimension.values:
            texts = [str(text) for text in dimension.values if text is not None]
            raise ArgumentError(
                f"{word!r:.80} is no {dimension.name} that is counted here.",
                f"one of {', '.join(map(repr, texts[:3]))}, …{did_you_mean(str(word), texts)}",
            )
        return dimension.values.index(word)

    def _described(self, dimension: conditions.Dimension) -> dict[str, Any]:
        title = dimension.name
        for ending in ("_at", "_s", "_usd"):
            title = title.removesuffix(ending)
        values = [_as_text(value, dimension.name) for value in dimension.values]
        texts = self._clean(pl.DataFrame({"text": values}, schema={"text": pl.String}))["text"]
        labels = texts.to_list()
        if dimension.is_scale:
            labels = [f"{low} to {high}" for low, high in itertools.pairwise(labels)]
        return {
            "name": dimension.name,
            "title": title.replace("_", " "),
            "is_scale": dimension.is_scale,
            "labels": labels,
            "low": texts[0],
            "high": texts[-1],
        }

    def _shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The first rows as texts."""
        wanted = SHOWN.get(self._of, tuple(rows.columns[:MOST_COLUMNS]))
        words = [
            pl.col(name).map_elements(
                lambda value, name=name: _as_text(value, name),  # type: ignore[misc]
                return_dtype=pl.String,
                skip_nulls=True,
            )
            for name in wanted
            if name in rows.columns
        ]
        return self._clean(rows.select(words)).fill_null("")

    def _masked(self, frame: pl.DataFrame) -> pl.DataFrame:
        return redact(frame)[0] if self._is_redacted else frame

    def _clean(self, frame: pl.DataFrame) -> pl.DataFrame:
        return self._masked(frame).with_columns(
            pl.col(pl.String).map_elements(
                lambda text: shortened(visible(text), N_LETTERS), return_dtype=pl.String
            )
        )

    def __repr__(self) -> str:
        return (
            f"Explorer of {self._counted.rows.height:,} rows of {self._of} by "
            f"{', '.join(self._counted.dimensions)}. Show it as the last line of a cell, "
            "or .selected, .sql, .as_html()"
        )


@cache
def _panel_class() -> Any:
    """The browser's side: counts and labels go there, chosen places come back, nothing else."""
    import anywidget
    import traitlets

    here = Path(__file__).parent

    class ExploringPanel(anywidget.AnyWidget):
        _esm = (here / "exploring.js").read_text("utf-8")
        _css = (here / "exploring.css").read_text("utf-8")

        dimensions: traitlets.List[Any] = traitlets.List().tag(sync=True)
        answer: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
        chosen: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)

    return ExploringPanel


def _ends(dimension: conditions.Dimension, value: Any) -> list[Any]:
    """The two ends of a range, the lower first."""
    try:
        first, last = value
        if isinstance(dimension.values[0], datetime):
            return sorted(read_moment(end, dimension.name) for end in (first, last))
        ends = sorted(float(end) for end in (first, last))
    except ArgumentError:
        raise
    except (TypeError, ValueError):
        ends = [math.nan]
    if any(map(math.isnan, ends)):
        raise ArgumentError(
            f"{dimension.name} is selected by the two ends of a range; found {in_short(value)}.",
            f"choose({dimension.name}=(…, …)), or {dimension.name}=None for all of it",
        )
    return ends


def _query(of: str, where: str) -> str:
    return f"FROM {of}" + (f" WHERE {where}" if where else "")


def _columns(rows: pl.DataFrame, of: str) -> list[str]:
    """The default columns to count by; in other tables those that vary and are no ids."""
    if of in BY:
        return list(BY[of])
    differing = [
        name
        for name, dtype in rows.schema.items()
        if conditions.is_countable(dtype) and rows[name].n_unique() > 1
    ]
    useful = [
        name
        for name in differing
        if rows[name].dtype.is_temporal()
        or rows[name].dtype.is_numeric()
        or rows[name].n_unique() < max(conditions.MOST_VALUES, rows.height / 4)
    ]
    return useful[:MOST_COLUMNS]


def _checked(chosen: Any, counted: conditions.CrossFilter) -> conditions.Chosen:
    """The valid part of a selection that a page sent."""
    return {
        name: [int(place) for place in places]
        for name, places in dict(chosen).items()
        if name in counted.dimensions
        and places
        and all(
            isinstance(place, int) and 0 <= place < counted.dimensions[name].n_places
            for place in places
        )
    }


def _as_text(value: object, name: str) -> str:
    """A value as text, with its unit."""
    if value is None:
        return "(none)"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float | int) and not isinstance(value, bool):
        if name.endswith("_s"):
            return how_long(float(value), is_estimate=0 < value < 10)
        return f"${value:,.4g}" if name.endswith("_usd") else f"{value:,.6g}"
    return str(value)
