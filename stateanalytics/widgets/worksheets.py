"""Worksheets of detectors and of thresholds: sliders over frames that are computed already."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.text import CELL, visible
from stateanalytics.core.words import CANDIDATES_S, how_long
from stateanalytics.detectors.catalogue import registry
from stateanalytics.detectors.comparing import Disagreements, disagreements
from stateanalytics.detectors.detections import Detections
from stateanalytics.errors import ArgumentError, check_columns, did_you_mean, in_short
from stateanalytics.thresholds.advice import Advice
from stateanalytics.widgets.drawing import (
    Shown,
    drawing,
    heading,
    priced,
    priced_table,
    safe,
    sentence,
    table,
    widget_libraries,
)

UNIT = [*schema.ENTITY_KEY, "at"]
YOURS = "silent for longer"
LIMITS_S = tuple(limit for limit in CANDIDATES_S if limit >= 60)
N_FIRST, N_ROWS = 6, 8
_NEEDED = (*UNIT, "kind", "detector", "covered", "fires", "measured_s")


@dataclass(frozen=True, eq=False, repr=False)
class DetectorExplorer(Shown):
    """Compare which rows detectors flag, by kind of work, also with a rule of your own.

    Attributes
    ----------
    detections : Detections or polars.DataFrame
        From `detect`, or its ``rows``; kept as rows.

    Notes
    -----
    Rows are grouped by their pattern of answers at first; every later choice sums a small
    table, within a few milliseconds. Without a kernel, the first view is shown as a page.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> look = DetectorExplorer(sa.detectors.detect(sa.demo(), detectors=["B2", "B4"]))
    >>> look.counts().select("flags", "silent", "n_only").rows()
    [('dashboard_stuck_60m', 'dashboard_stale_card', 1)]
    """

    detections: pl.DataFrame

    def __post_init__(self) -> None:
        if isinstance(self.detections, Detections):
            object.__setattr__(self, "detections", self.detections.rows)
        if not isinstance(self.detections, pl.DataFrame):
            raise ArgumentError(
                f"DetectorExplorer needs detections; found {type(self.detections).__name__}.",
                "DetectorExplorer(sa.detectors.detect(snap))",
            )
        check_columns(self.detections, _NEEDED, "DetectorExplorer")

    @cached_property
    def names(self) -> list[str]:
        """Detectors that flag anything, those that flag most first."""
        counts = self.detections.group_by("detector").agg(n=pl.col("fires").sum())
        flagging = counts.filter(pl.col("n") > 0).sort("n", "detector", descending=[True, False])
        return flagging["detector"].to_list()

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of work that occur."""
        return self.detections["kind"].drop_nulls().unique().sort().to_list()

    @cached_property
    def differences(self) -> Disagreements:
        """All disagreements, with their causes."""
        return disagreements(self.detections.filter(pl.col("detector").is_in(list(registry()))))

    def counts(
        self,
        detectors: Sequence[str] | None = None,
        *,
        kind: str | None = None,
        silent_after_s: float | None = None,
    ) -> pl.DataFrame:
        """Number of rows that one detector flags and another one that covers them does not.

        Parameters
        ----------
        detectors : sequence of str, optional
            Names; by default the six that flag most.
        kind : str, optional
            Only this kind of work.
        silent_after_s : float, optional
            Adds a rule of your own: silent for longer than this, rounded down to one of
            `LIMITS_S`.

        Returns
        -------
        polars.DataFrame
            ``flags``, ``silent``, ``n`` (rows that both cover), ``n_only``; only pairs that differ,
            the largest difference first.
        """
        chosen = self._chosen(detectors)
        patterns = self._patterns if kind is None else self._patterns.filter(kind=kind)
        if silent_after_s is not None:
            limit = max(
                (known for known in LIMITS_S if known <= silent_after_s), default=LIMITS_S[0]
            )
            patterns = patterns.with_columns((pl.col("past_s") >= limit).alias(YOURS))
            chosen = [YOURS, *chosen]
        pairs = [
            patterns.select(
                flags=pl.lit(flagging),
                silent=pl.lit(other),
                n=pl.col("n")
                .filter(pl.col(flagging).is_not_null(), pl.col(other).is_not_null())
                .sum(),
                n_only=pl.col("n").filter(pl.col(flagging), ~pl.col(other)).sum(),
            )
            for flagging in chosen
            for other in chosen
            if flagging != other
        ]
        if not pairs:
            return _NO_COUNTS.clear()
        counted = pl.concat(pairs).filter(pl.col("n_only") > 0)
        return counted.sort("n_only", "flags", "silent", descending=[True, False, False])

    def view(
        self,
        detectors: Sequence[str] | None = None,
        *,
        kind: str | None = None,
        silent_after_s: float | None = None,
    ) -> str:
        """Matrix, causes and rows of a selection, as HTML."""
        chosen = self._chosen(detectors)
        counted = self.counts(chosen, kind=kind, silent_after_s=silent_after_s)
        shown = [YOURS, *chosen] if silent_after_s is not None else chosen
        rows = self.differences.rows.filter(pl.col("a").is_in(chosen), pl.col("b").is_in(chosen))
        rows = rows if kind is None else rows.filter(kind=kind)
        causes = rows.group_by("a", "b", "cause").agg(n=pl.len(), words=pl.col("words").first())
        causes = causes.sort("n", "a", "b", "cause", descending=[True, False, False, False])
        head = f"<p>{YOURS} than {how_long(silent_after_s)}</p>" if silent_after_s else ""
        return (
            head
            + _matrix(counted, shown)
            + table("Causes", causes.head(N_ROWS), ("a", "b", "cause", "n", "words"))
            + table("Rows", rows.head(N_ROWS), ("entity_id", "a", "b", "cause", "words"))
        )

    def as_html(self) -> str:
        """The first view, for static pages."""
        worst = self.differences.worst or "All detectors agree."
        return f"<p><strong>{html.escape(visible(worst))}</strong></p>{self.view()}"

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box: detectors, kind, threshold, and the resulting view."""
        with widget_libraries():
            import ipywidgets as w

        shown = w.HTML()
        if not self.names:
            shown.value = "<p>No detector flags anything.</p>"
            return w.VBox([shown])
        which = w.SelectMultiple(
            options=[(visible(name), name) for name in self.names],
            value=tuple(self.names[:N_FIRST]),
            rows=8,
            description="detectors",
        )
        kind = w.Dropdown(
            options=[("every kind", None), *((visible(value), value) for value in self.kinds)],
            description="kind",
        )
        limit = w.SelectionSlider(
            options=[("none", 0.0), *((how_long(value), value) for value in LIMITS_S)],
            description="silent for",
        )

        def draw(_: object = None) -> None:
            shown.value = self.view(
                which.value, kind=kind.value, silent_after_s=limit.value or None
            )

        for control in (which, kind, limit):
            control.observe(draw, "value")
        draw()
        return w.VBox([w.HBox([which, w.VBox([kind, limit])]), shown])

    @cached_property
    def _patterns(self) -> pl.DataFrame:
        """Patterns of answers, with their number of rows and the silence that they exceed."""
        rows = self.detections.filter(pl.col("detector").is_in(self.names))
        wide = rows.pivot(
            "detector", index=[*UNIT, "kind"], values="fires", aggregate_function="first"
        )
        silences = self._covered_by("silence").agg(silence_s=pl.col("measured_s").max())
        # Rules of elapsed time look only at running work; where there are any, yours does, too.
        running = self._covered_by("elapsed").agg()
        if running.height:
            silences = silences.join(running, on=UNIT, how="semi")
        limits = pl.DataFrame({"past_s": (-1.0, *LIMITS_S)})  # -1: known, and past no limit
        placed = (
            wide.join(silences, on=UNIT, how="left")
            # Strictly longer: a silence that equals the limit is not past it.
            .sort("silence_s")
            .join_asof(
                limits, left_on="silence_s", right_on="past_s", allow_exact_matches=False,
                coalesce=False,
            )
        )  # fmt: skip
        return placed.group_by("kind", "past_s", *self.names).agg(n=pl.len().cast(pl.Int64))

    def _covered_by(self, construct: str) -> Any:
        """The rows that detectors of a construct cover, grouped by entity and instant."""
        names = [name for name, detector in registry().items() if detector.construct == construct]
        return self.detections.filter(pl.col("detector").is_in(names), pl.col("covered")).group_by(
            UNIT
        )

    def _chosen(self, detectors: Iterable[str] | None) -> list[str]:
        if detectors is None:
            return self.names[:N_FIRST]
        chosen = [detectors] if isinstance(detectors, str) else list(detectors)
        for name in chosen:
            if name not in self.names:
                raise ArgumentError(
                    f"{in_short(name)} flags nothing here; {len(self.names)} detectors do.",
                    "look.names lists them" + did_you_mean(str(name), self.names),
                )
        return chosen

    def __repr__(self) -> str:
        return (
            f"DetectorExplorer of {len(self.names)} detectors. "
            "Show it as the last line of a cell, or .as_html()"
        )


_NO_COUNTS = pl.DataFrame(
    schema={"flags": pl.String, "silent": pl.String, "n": pl.Int64, "n_only": pl.Int64}
)


def _matrix(counted: pl.DataFrame, names: Sequence[str]) -> str:
    """A table of how many rows the row's detector flags and the column's does not."""
    cells = {(row["flags"], row["silent"]): row["n_only"] for row in counted.iter_rows(named=True)}
    head = "".join(f'<th scope="col"{CELL}>{safe(name)}</th>' for name in names)
    lines = "".join(
        f'<tr><th scope="row"{CELL}>{safe(line)}</th>'
        + "".join(
            "<td></td>" if line == column else f"<td{CELL}>{cells.get((line, column), 0)}</td>"
            for column in names
        )
        + "</tr>"
        for line in names
    )
    caption = f"<caption{CELL}>Flagged by the row, and not by the column</caption>"
    return f"<table>{caption}<thead><tr><td></td>{head}</tr></thead><tbody>{lines}</tbody></table>"


_HIGHEST_COST = 240.0


@dataclass(frozen=True, eq=False, repr=False)
class ThresholdWorksheet(Shown):
    """Sliders over the curves of an `Advice`; without a kernel, its curves and tables.

    Attributes
    ----------
    advice : Advice
        From `thresholds.recommend`; nothing is recomputed.

    Notes
    -----
    A slider only applies other costs to known numbers: it reads no data and draws within a few
    milliseconds. An exported or printed notebook shows the whole curves and a table of all
    candidates instead.

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
        """The view of a slider: a sentence and the curve, as HTML.

        Parameters
        ----------
        name : str
            One of `names`.
        threshold_s : float, optional
            The selected candidate; the cheapest by default.
        price, hour : float, optional
            Costs of a mistake and of an hour of waiting; by default those of the advice.
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
        """Every curve with its table, for static pages."""
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
        """The ipywidgets box: threshold, value, costs, and the resulting view."""
        with widget_libraries():
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
            min=0.0, max=_HIGHEST_COST, step=1.0, description="cost of a mistake", style=wide
        )
        hour = w.FloatSlider(
            min=0.0, max=_HIGHEST_COST, step=1.0, description="cost of an hour", style=wide
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
        """The advice at its own costs, which begins with its verdict."""
        words = self.advice.frame.filter(name=name)["in_words"].item()
        return f"<p>{html.escape(visible(words))}</p>"

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
