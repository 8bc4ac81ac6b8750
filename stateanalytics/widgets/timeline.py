"""A run in a notebook: its timeline, a selection of it, and the selected rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any

import polars as pl

from stateanalytics.charts.timeline import chart_timeline
from stateanalytics.core.facts import Facts
from stateanalytics.core.text import shortened, visible
from stateanalytics.core.windows import read_moment
from stateanalytics.core.words import count, how_long_each
from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.reporting.session import SessionPage, session_page
from stateanalytics.state.policy import Policy
from stateanalytics.timeline import LANES, N_TEXTS
from stateanalytics.widgets.drawing import Shown, table, widget_libraries

N_ROWS, N_LETTERS = 14, 160


def session(
    snap: Facts,
    entity_id: str,
    *,
    policy: Policy | None = None,
    redact: bool = True,
    bodies: bool = False,
) -> Session:
    """Everything that is known about a run, or about any other entity.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    entity_id : str
        Its id, or a unique beginning of it; ``play:id`` where several types share an id.
    policy : Policy, optional
        The rules of states, and the limits of silences; by default that of ADR-0033.
    redact : bool
        Mask what looks like a secret where it is shown; `Session.timeline` and
        `Session.selected` are as stored.
    bodies : bool
        Show the texts of all messages, not of the last six alone.

    Returns
    -------
    Session
        Displays itself in a notebook as a widget; ``.timeline`` is a frame, ``.chart()`` a
        chart, ``.write_html(path)`` a page.

    Raises
    ------
    ArgumentError
        If there is no such entity, or several; the message names them.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> run = session(demo(), "932ca655")
    >>> run.summary["finding"][:58]
    'Failed after 4 min 28 s: ProviderQuotaError: API Error: 42'
    >>> run.timeline["lane"].unique().sort().to_list()
    ['attempt', 'child', 'message', 'parent', 'silence', 'state']
    >>> run.choose(lanes="attempt").selected["what"].to_list()
    ['attempt 1: failed']
    """
    n_texts = None if bodies else N_TEXTS
    page = session_page(snap, entity_id, policy=policy, redact=redact, n_texts=n_texts)
    return Session(**vars(page))


@dataclass(repr=False, eq=False)
class Session(SessionPage, Shown):
    """An entity, from `session`: a frame, a chart, a widget and a page.

    Attributes
    ----------
    chosen : tuple of str
        The selected kinds of events, of `lanes`; () is all of them.
    between : tuple of datetime or None
        The selected range of time, by a drag in the widget; None is all of it.
    """

    chosen: tuple[str, ...] = ()
    between: tuple[datetime, datetime] | None = None

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """The kinds of events in the timeline, in the order of the chart."""
        occurring = set(self.timeline["lane"])
        return tuple(lane for lane in LANES if lane in occurring)

    @property
    def selected(self) -> pl.DataFrame:
        """The selected rows of the timeline, as stored."""
        return self.timeline.filter(self._is_chosen)

    def choose(
        self, lanes: str | Sequence[str] = (), between: Sequence[Any] | None = None
    ) -> Session:
        """Select rows as in the widget; arguments that are not given do not restrict.

        Parameters
        ----------
        lanes : str or sequence of str
            Kinds of events.
        between : sequence, optional
            The two ends of a range, as moments or texts.
        """
        chosen = (lanes,) if isinstance(lanes, str) else tuple(lanes)
        for lane in chosen:
            if lane not in self.lanes:
                raise ArgumentError(
                    f"There are no rows of kind {lane!r:.40}; there are {', '.join(self.lanes)}.",
                    f"choose(lanes=[…]){did_you_mean(str(lane), self.lanes)}",
                )
        time_range = None
        if between is not None:
            first, last = sorted(read_moment(end, "between") for end in between)
            time_range = first, last
        self._set(tuple(lane for lane in self.lanes if lane in chosen), time_range)
        return self

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box: kinds of events, the chart, and the selected rows."""
        with widget_libraries():
            import ipywidgets as w

        drawing = self._drawing().live()
        which = w.SelectMultiple(
            options=self.lanes, value=self.chosen, rows=len(self.lanes), description="kinds"
        )
        which.observe(lambda change: self._pick(change["new"]), "value")
        self._watch(drawing)
        return w.VBox([w.HBox([which, drawing]), w.HTML(self._view())])

    def _display_(self) -> Any:
        """The view in marimo, which has no box of widgets: the chart above the rows."""
        marimo = import_module("marimo")  # only marimo calls this
        return marimo.vstack([self.chart(), marimo.Html(self._repr_html_())])

    def _set(self, lanes: tuple[str, ...], between: tuple[datetime, datetime] | None) -> None:
        is_same = lanes == self.chosen
        self.chosen, self.between = lanes, between
        if "widget" not in self.__dict__:
            return
        controls, rows = self.widget.children
        rows.value = self._view()
        if not is_same:
            which, drawing = controls.children
            which.value = lanes
            drawing.chart = self._drawing()
            # A new chart has new selections.
            self._watch(drawing)

    def _pick(self, lanes: tuple[str, ...]) -> None:
        if lanes != self.chosen:  # not a change by `_set` itself
            self._set(lanes, None)

    def _watch(self, drawing: Any) -> None:
        def on_change(change: Any) -> None:
            ends_ms = change["new"].value.get("at")
            first, last = (read_moment(end / 1000) for end in ends_ms) if ends_ms else (None, None)
            self._set(self.chosen, (first, last) if first and last else None)

        drawing.selections.observe(on_change, "chosen_time")

    def _drawing(self) -> Any:
        rows = self.drawn.filter(pl.col("lane").is_in(self.chosen or self.lanes))
        return chart_timeline(rows, sentence=self.summary["finding"])

    def _view(self) -> str:
        """The selected rows as HTML."""
        rows = self.drawn.filter(self._is_chosen)
        shown = rows.head(N_ROWS).select(
            pl.col("at").dt.strftime("%Y-%m-%d %H:%M:%S").alias("when (UTC)"),
            pl.col("lane").alias("kind"),
            _short("what"),
            how_long_each("duration_s").alias("lasted"),
            _short("detail").alias("why"),
        )
        left = rows.height - shown.height
        more = f"<p>{count(left, 'more row')} in <code>.selected</code>.</p>" if left else ""
        caption = f"{rows.height:,} of {self.timeline.height:,} rows"
        return table(caption, shown, shown.columns) + more

    @property
    def _is_chosen(self) -> pl.Expr:
        """The selection of kinds and time; events that overlap the range are included."""
        chosen = pl.col("lane").is_in(self.chosen or self.lanes)
        if self.between is None:
            return chosen
        first, last = self.between
        return chosen & (pl.col("at") <= last) & (pl.coalesce("until", "at") >= first)


def _short(column: str) -> pl.Expr:
    return pl.col(column).map_elements(
        lambda text: shortened(visible(text), N_LETTERS), return_dtype=pl.String
    )
