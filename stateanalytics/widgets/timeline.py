"""One run in a notebook: a choice of what happened, a stretch of its time, and the rows."""

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
from stateanalytics.core.formatting import count, how_long_each
from stateanalytics.core.text import shortened, visible
from stateanalytics.core.windows import read_moment
from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.reporting.session import SessionPage, session_page
from stateanalytics.state.policy import Policy
from stateanalytics.timeline import LANES
from stateanalytics.widgets.drawing import Shown, moving, table

N_ROWS, N_LETTERS = 14, 160


def session(
    snap: Facts, entity_id: str, *, policy: Policy | None = None, redact: bool = True
) -> Session:
    """Everything that is known of one run, or of any other entity.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    entity_id : str
        Its id, or the beginning of one that no other has; ``play:id`` where several types
        share it.
    policy : Policy, optional
        What counts as bad, and the limits that silences are held against; ADR-0033's.
    redact : bool
        Mask what looks like a secret where it is shown; `Session.timeline` and
        `Session.selected` are as they are stored.

    Returns
    -------
    Session
        Shows itself in a notebook, as a widget; ``.timeline`` is a frame, ``.chart()`` a
        drawing, ``.write_html(path)`` a page.

    Raises
    ------
    ArgumentError
        If there is no such entity, or several; the message names them.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> one = session(demo(), "932ca655")
    >>> one.summary["finding"][:58]
    'Failed after 4 min 28 s: ProviderQuotaError: API Error: 42'
    >>> one.timeline["lane"].unique().sort().to_list()
    ['attempt', 'child', 'message', 'parent', 'silence', 'state']
    >>> one.choose(lanes="attempt").selected["what"].to_list()
    ['attempt 1: failed']
    """
    return Session(**vars(session_page(snap, entity_id, policy=policy, redact=redact)))


@dataclass(repr=False, eq=False)
class Session(SessionPage, Shown):
    """One entity, from `session`: a frame, a drawing, a widget and a page.

    Attributes
    ----------
    chosen : tuple of str
        The kinds of things that are looked at, of `lanes`; () is all of them.
    between : tuple of datetime or None
        The stretch that is looked at, by a drag in the widget; None is all of it.
    """

    chosen: tuple[str, ...] = ()
    between: tuple[datetime, datetime] | None = None

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """The kinds of things that happened: states, attempts, messages, tools, silences, ….

        In the order of the drawing.
        """
        there = set(self.timeline["lane"])
        return tuple(lane for lane in LANES if lane in there)

    @property
    def selected(self) -> pl.DataFrame:
        """The rows of the timeline that are chosen, as they are stored."""
        return self.timeline.filter(self._is_chosen)

    def choose(
        self, lanes: str | Sequence[str] = (), between: Sequence[Any] | None = None
    ) -> Session:
        """Choose as a hand would in the widget; what is not named is not narrowed.

        Parameters
        ----------
        lanes : str or sequence of str
            Kinds of things.
        between : sequence, optional
            The two ends of a stretch, as moments or texts.
        """
        chosen = (lanes,) if isinstance(lanes, str) else tuple(lanes)
        for lane in chosen:
            if lane not in self.lanes:
                raise ArgumentError(
                    f"Nothing of the kind {lane!r:.40} happened; of {', '.join(self.lanes)} did.",
                    f"choose(lanes=[…]){did_you_mean(str(lane), self.lanes)}",
                )
        stretch = None
        if between is not None:
            first, last = sorted(read_moment(end, "between") for end in between)
            stretch = first, last
        self._set(tuple(lane for lane in self.lanes if lane in chosen), stretch)
        return self

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box: kinds of things, the drawing, and the rows of what is chosen."""
        with moving():
            import ipywidgets as w

        drawing = self._drawing().live()
        which = w.SelectMultiple(
            options=self.lanes, value=self.chosen, rows=len(self.lanes), description="kinds"
        )
        which.observe(lambda change: self._pick(change["new"]), "value")
        self._watch(drawing)
        return w.VBox([w.HBox([which, drawing]), w.HTML(self._view())])

    def _display_(self) -> Any:
        """What marimo shows, which knows no box of widgets: the drawing, above what is told."""
        marimo = import_module("marimo")  # which asks for it, and no other does
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
            # A new drawing has new selections.
            self._watch(drawing)

    def _pick(self, lanes: tuple[str, ...]) -> None:
        if lanes != self.chosen:  # and not what `_set` says itself
            self._set(lanes, None)

    def _watch(self, drawing: Any) -> None:
        def moved(change: Any) -> None:
            ends_ms = change["new"].value.get("at")
            first, last = (read_moment(end / 1000) for end in ends_ms) if ends_ms else (None, None)
            self._set(self.chosen, (first, last) if first and last else None)

        drawing.selections.observe(moved, "chosen_time")

    def _drawing(self) -> Any:
        rows = self.drawn.filter(pl.col("lane").is_in(self.chosen or self.lanes))
        return chart_timeline(rows, sentence=self.summary["finding"])

    def _view(self) -> str:
        """The rows that are chosen, as HTML."""
        rows = self.drawn.filter(self._is_chosen)
        told = rows.head(N_ROWS).select(
            pl.col("at").dt.strftime("%Y-%m-%d %H:%M:%S").alias("when (UTC)"),
            pl.col("lane").alias("kind"),
            _short("what"),
            how_long_each("duration_s").alias("lasted"),
            _short("detail").alias("why"),
        )
        left = rows.height - told.height
        more = f"<p>{count(left, 'more row')} in <code>.selected</code>.</p>" if left else ""
        caption = f"{rows.height:,} of {self.timeline.height:,} rows"
        return table(caption, told, told.columns) + more

    @property
    def _is_chosen(self) -> pl.Expr:
        """What was going on in the stretch, and not only what began in it."""
        chosen = pl.col("lane").is_in(self.chosen or self.lanes)
        if self.between is None:
            return chosen
        first, last = self.between
        return chosen & (pl.col("at") <= last) & (pl.coalesce("until", "at") >= first)


def _short(column: str) -> pl.Expr:
    return pl.col(column).map_elements(
        lambda text: shortened(visible(text), N_LETTERS), return_dtype=pl.String
    )
