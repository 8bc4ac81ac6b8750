"""Drawings and tables of explorers as plain HTML, fast enough for a slider.

No script, no style sheet, no id: fragments for any page, light or dark, that are complete when
they are printed or exported. Text of a store is escaped.
"""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import polars as pl

from stateanalytics.charts.style import ticks_between
from stateanalytics.core.text import CELL, as_written, visible
from stateanalytics.core.words import how_long, per_hundred, say
from stateanalytics.errors import MissingComponentError, needing

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 270, 56, 12, 70, 40
_TEXT = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'


@dataclass(frozen=True)
class Priced:
    """The candidate values of a threshold under given costs.

    Attributes
    ----------
    thresholds_s, mistakes, waiting_h, losses : tuple of float
        One number for each candidate, sorted by the first; all others per ``per``.
    per : str
        The denominator of the numbers.
    chosen, cheapest : int
        Positions of the selected candidate and of the cheapest.
    today : int or None
        Position of today's value; None where it is no candidate.
    """

    thresholds_s: tuple[float, ...]
    mistakes: tuple[float, ...]
    waiting_h: tuple[float, ...]
    losses: tuple[float, ...]
    per: str
    chosen: int
    cheapest: int
    today: int | None


def priced(
    curve: pl.DataFrame, *, price: float, hour: float, threshold_s: float | None = None
) -> Priced:
    """A curve of `Advice.curves` under other costs.

    Parameters
    ----------
    curve : polars.DataFrame
        Rows of one constant.
    price, hour : float
        Costs of a mistake and of an hour of waiting.
    threshold_s : float, optional
        The selected candidate; the cheapest by default, and where it is no candidate.

    Examples
    --------
    >>> curve = pl.DataFrame(
    ...     {
    ...         "threshold_s": [60.0, 600.0],
    ...         "mistakes": [9.0, 1.0],
    ...         "waiting_h": [1.0, 10.0],
    ...         "per": ["100 runs"] * 2,
    ...         "is_today": [True, False],
    ...     }
    ... )
    >>> priced(curve, price=1.0, hour=1.0).cheapest, priced(curve, price=9.0, hour=1.0).cheapest
    (0, 1)
    """
    rows = curve.sort("threshold_s")
    limits = tuple(rows["threshold_s"].to_list())
    mistakes, waiting = tuple(rows["mistakes"].to_list()), tuple(rows["waiting_h"].to_list())
    losses = tuple(price * m + hour * w for m, w in zip(mistakes, waiting, strict=True))
    cheapest = min(range(len(losses)), key=losses.__getitem__)
    today = next((place for place, is_today in enumerate(rows["is_today"]) if is_today), None)
    chosen = limits.index(threshold_s) if threshold_s in limits else cheapest
    return Priced(limits, mistakes, waiting, losses, rows["per"][0], chosen, cheapest, today)


def sentence(of: Priced) -> str:
    """The selected threshold compared with the cheapest and with today's, in a sentence.

    Examples
    --------
    >>> sentence(Priced((60.0, 600.0), (9.0, 1.0), (1.0, 10.0), (10.0, 11.0), "100 runs", 1, 0, 0))
    '10 min: mistakes 1, waiting 10 h, loss 11 per 100 runs; 1 min, the cheapest, 10.'
    """

    def values(place: int) -> dict[str, float]:
        return {"limit": of.thresholds_s[place], "loss": of.losses[place]}

    others = {"the cheapest": of.cheapest}
    if of.today is not None and of.today != of.cheapest:
        others["today's"] = of.today
    return say(
        "worksheet.view",
        **values(of.chosen),
        mistakes=of.mistakes[of.chosen],
        waiting=of.waiting_h[of.chosen],
        per=of.per,
        others="".join(
            say("worksheet.other", name=name, **values(place))
            for name, place in others.items()
            if place != of.chosen
        ),
    )


def drawing(of: Priced) -> str:
    """The loss of every candidate as an SVG, with labelled marks."""
    low, high = of.thresholds_s[0], of.thresholds_s[-1]
    # Losses far from the cheapest would flatten the relevant part.
    top = max(1e-9, 4 * of.losses[of.cheapest], 1.15 * of.losses[of.chosen])
    span = math.log(high / low) or 1.0

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(seconds / low) / span

    def y(loss: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * loss / top

    # Relative to an inner frame that clips the curve.
    points = " ".join(
        f"{x(limit) - LEFT:.1f},{y(loss) - TOP:.1f}"
        for limit, loss in zip(of.thresholds_s, of.losses, strict=True)
    )
    ticks = "".join(
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
        'stroke="currentColor" stroke-opacity="0.15"/>'
        f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" {_TEXT}>'
        f"{how_long(tick)}</text>"
        for tick in ticks_between(low, high, WIDTH - LEFT - RIGHT)
    )
    marks = "".join(
        _mark(x(of.thresholds_s[place]), name, line, of.thresholds_s[place])
        for line, (place, name) in enumerate(_marked(of).items())
    )
    here = f'cx="{x(of.thresholds_s[of.chosen]):.1f}" cy="{y(of.losses[of.chosen]):.1f}"'
    axis = HEIGHT - BOTTOM
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(sentence(of))}" '
        f'style="max-width:{WIDTH}px;width:100%">{ticks}'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axis}" y2="{axis}" stroke="currentColor"/>'
        f'<svg x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{axis - TOP}">'
        f'<polyline points="{points}" fill="none" stroke="#175CD3" stroke-width="2"/></svg>'
        f'{marks}<circle {here} r="4" fill="#175CD3"/>'
        f'<text x="{LEFT - 6}" y="{axis}" text-anchor="end" {_TEXT}>0</text>'
        f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end" {_TEXT}>{per_hundred(top)}</text>'
        f'<text x="{LEFT}" y="14" {_TEXT}>loss, minutes of attention per {html.escape(of.per)}'
        "</text>"
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end" {_TEXT}>'
        "threshold: delay until it acts</text></svg>"
    )


def priced_table(of: Priced) -> str:
    """A table of all candidates, with the names of the marked ones."""
    names = _marked(of)
    columns = (of.thresholds_s, of.mistakes, of.waiting_h, of.losses)
    rows = "".join(
        f"<tr><th scope='row'>{how_long(limit)}</th><td>{per_hundred(mistakes)}</td>"
        f"<td>{per_hundred(waiting)}</td><td>{per_hundred(loss)}</td>"
        f"<td>{names.get(place, '')}</td></tr>"
        for place, (limit, mistakes, waiting, loss) in enumerate(zip(*columns, strict=True))
    )
    head = "".join(
        f"<th scope='col'>{name}</th>"
        for name in ("threshold", "mistakes", "waiting, h", "loss", "")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def heading(name: str, kind: str | None) -> str:
    """The heading of a constant, escaped."""
    return html.escape(visible(name if kind is None or kind in name else f"{name} ({kind})"))


def _marked(of: Priced) -> dict[int, str]:
    """Names of the marked candidates by position."""
    named = {"this": of.chosen, "cheapest": of.cheapest, "today": of.today}
    names_at: dict[int, list[str]] = {}
    for name, place in named.items():
        if place is not None:
            names_at.setdefault(place, []).append(name)
    return {place: ", ".join(names) for place, names in names_at.items()}


def _mark(x: float, name: str, line: int, seconds: float) -> str:
    is_right = x > WIDTH / 2
    anchor, offset = ("end", -5) if is_right else ("start", 5)
    dash = {"this": "1 0", "cheapest": "2 2", "today": "6 3"}[name.split(",", maxsplit=1)[0]]
    top = TOP - 42 + 14 * line
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{HEIGHT - BOTTOM}" '
        f'stroke="currentColor" stroke-dasharray="{dash}"/>'
        f'<text x="{x + offset:.1f}" y="{top + 10}" text-anchor="{anchor}" {_TEXT}>'
        f"{name}: {how_long(seconds)}</text>"
    )


def table(caption: str, frame: pl.DataFrame, columns: Sequence[str]) -> str:
    """A frame as a small HTML table."""
    head = "".join(f'<th scope="col"{CELL}>{name}</th>' for name in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td{CELL}>{safe(value)}</td>" for value in row) + "</tr>"
        for row in frame.select(columns).iter_rows()
    )
    return (
        f"<table><caption{CELL}>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )


def safe(value: object) -> str:
    """Text of a store, escaped."""
    return html.escape(visible("" if value is None else str(value)))


def widget_libraries() -> AbstractContextManager[None]:
    """A context for imports of widget libraries, with an error that names what is missing."""
    return needing(
        "ipywidgets and anywidget",
        "An interactive explorer",
        extra="notebook",
        instead="show its .as_html()",
    )


class Shown(ABC):
    """Something with a widget, and a static first view."""

    @property
    @abstractmethod
    def widget(self) -> Any:
        """The ipywidgets box."""

    @abstractmethod
    def as_html(self) -> str:
        """The first view, for static pages."""

    def _repr_html_(self) -> str:
        return as_written(self.as_html())

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        bundle: dict[str, Any] = {}
        note = ""
        try:
            shown = self.widget._repr_mimebundle_()
            bundle = dict(shown[0] if isinstance(shown, tuple) else shown)
        except MissingComponentError as missing:
            note = "".join(f"<p>{safe(line)}</p>" for line in str(missing).splitlines())
        return {**bundle, "text/html": note + self._repr_html_(), "text/plain": repr(self)}
