"""The worksheet of thresholds: choose one, move it and its costs, see what follows."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from stateanalytics.core.text import visible
from stateanalytics.core.units import how_long
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.thresholds.advice import Advice
from stateanalytics.thresholds.wording import SAID
from stateanalytics.widgets.drawing import (
    Shown,
    drawing,
    heading,
    moving,
    priced,
    priced_table,
    sentence,
)

_DEAREST = 240.0


@dataclass(frozen=True, eq=False, repr=False)
class ThresholdWorksheet(Shown):
    """Sliders over the curves of an `Advice`; without a kernel, its curves and tables.

    Attributes
    ----------
    advice : Advice
        What `thresholds.recommend` gave; nothing is computed again.

    Notes
    -----
    A move of a slider prices numbers that are there: it reads no data and draws within a
    few milliseconds. Where the notebook is exported or printed, sliders are dead, so the
    whole curve and a table of every candidate stand there instead.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sheet = ThresholdWorksheet(sa.thresholds.recommend(sa.demo()))
    >>> sheet.view("slow", threshold_s=3600.0).startswith("<p>1 h:")
    True
    """

    advice: Advice

    def __post_init__(self) -> None:
        if not isinstance(self.advice, Advice):
            raise ArgumentError(
                f"ThresholdWorksheet needs advice; found {type(self.advice).__name__}.",
                "ThresholdWorksheet(sa.thresholds.recommend(snap))",
            )

    @cached_property
    def names(self) -> list[str]:
        """The constants that have enough data for a curve."""
        return self.advice.curves["name"].unique(maintain_order=True).to_list()

    def view(
        self,
        name: str,
        *,
        threshold_s: float | None = None,
        price: float | None = None,
        hour: float | None = None,
    ) -> str:
        """What a slider shows: one sentence and the curve, as HTML.

        Parameters
        ----------
        name : str
            One of `names`.
        threshold_s : float, optional
            The candidate to look at; the cheapest by default.
        price, hour : float, optional
            What a mistake and an hour of waiting cost; as in the advice by default.
        """
        curve = self._curve(name)
        of = priced(
            curve,
            price=curve["price"][0] if price is None else price,
            hour=curve["hour"][0] if hour is None else hour,
            threshold_s=threshold_s,
        )
        return f"<p>{sentence(of)}</p>{drawing(of)}{self._verdict(name)}"

    def as_html(self) -> str:
        """Every curve with its table, for pages where nothing moves."""
        parts = []
        for name in self.names:
            curve = self._curve(name)
            of = priced(curve, price=curve["price"][0], hour=curve["hour"][0])
            parts.append(
                f"<section><h4>{heading(name, curve['kind'][0])}</h4><p>{sentence(of)}</p>"
                f"{drawing(of)}{self._verdict(name)}<details><summary>Every value</summary>"
                f"{priced_table(of)}</details></section>"
            )
        return "".join(parts) or "<p>Not enough data for any threshold.</p>"

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box: which threshold, its value, its two costs, and what follows."""
        with moving():
            import ipywidgets as w

        wide = {"description_width": "10em"}
        shown = w.HTML()
        if not self.names:
            shown.value = self.as_html()
            return w.VBox([shown])
        which = w.Dropdown(
            options=[(visible(name), name) for name in self.names],
            description="threshold",
            style=wide,
        )
        value = w.SelectionSlider(options=[("", 0.0)], description="value", style=wide)
        price = w.FloatSlider(
            min=0.0, max=_DEAREST, step=1.0, description="cost of a mistake", style=wide
        )
        hour = w.FloatSlider(
            min=0.0, max=_DEAREST, step=1.0, description="cost of an hour", style=wide
        )

        def draw(_: object = None) -> None:
            shown.value = self.view(
                which.value, threshold_s=value.value, price=price.value, hour=hour.value
            )

        def start(_: object = None) -> None:
            curve = self._curve(which.value).sort("threshold_s")
            value.options = [(how_long(limit), limit) for limit in curve["threshold_s"]]
            value.value = curve.filter("is_best")["threshold_s"][0]
            price.value, hour.value = curve["price"][0], curve["hour"][0]

        start()
        which.observe(start, "value")
        for slider in (value, price, hour):
            slider.observe(draw, "value")
        draw()
        return w.VBox([which, value, price, hour, shown])

    def _verdict(self, name: str) -> str:
        """What the advice says at its own costs: to keep a value is not to know nothing of it."""
        verdict, words = self.advice.frame.filter(name=name).select("verdict", "in_words").row(0)
        return f"<p><strong>{SAID[verdict]}</strong> {html.escape(visible(words))}</p>"

    def _curve(self, name: str) -> pl.DataFrame:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise ArgumentError(
                f"There is no curve for {in_short(name)}; there are {known}.",
                "advice.frame says why a threshold has none" + did_you_mean(str(name), self.names),
            )
        return self.advice.curves.filter(pl.col("name") == name)

    def __repr__(self) -> str:
        return (
            f"ThresholdWorksheet of {len(self.names)} thresholds. "
            "Show it as the last line of a cell, or .as_html()"
        )
