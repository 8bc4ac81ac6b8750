"""Plain data to one page of HTML. Everything is escaped; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import resources
from types import MappingProxyType
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from stateanalytics.charts import (
    VARIABLES,
    chart_disagreement,
    chart_durations,
    chart_over_time,
    chart_severity,
    chart_worksheet,
    to_svg,
)
from stateanalytics.charts.style import DARK, LIGHT
from stateanalytics.reporting import phrases
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.pills import COLOURS
from stateanalytics.reporting.sections import SECTIONS

WIDTHS = {"wide": 820, "narrow": 310}
# No script at all; style within the page; pictures only from within it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(summary: Plain) -> str:
    """The page of a summary; the same summary gives the same bytes."""
    page: str = (
        _pages()
        .get_template("report.html.j2")
        .render(
            report=summary,
            sections=[section for section in SECTIONS if section.name in summary],
            charts={name: draw(summary[name]) for name, draw in DRAWN.items() if name in summary},
            content_policy=POLICY,
            style=Markup(_style()),
            phrases=phrases,
        )
    )
    return page


@cache
def _pages() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("stateanalytics.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _attention(section: Plain) -> dict[str, Markup]:
    frame = pl.DataFrame(section["by_type"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    return _both_widths(chart_severity, frame, "severity", section["finding"])


def _over_time(section: Plain) -> dict[str, Markup]:
    if not section["endings"]:
        return {}
    frame = pl.DataFrame(
        [
            {"label": row["label"], "ending": ending, "n": n}
            for row in section["rows"]
            for ending, n in zip(
                (*section["endings"], "open"), (*row["counts"], row["n_open"]), strict=True
            )
        ]
    )
    return _both_widths(chart_over_time, frame, "over-time", section["finding"])


def _detectors(section: Plain) -> dict[str, Markup]:
    if not section["pairs"]:
        return {}
    frame = pl.DataFrame(section["pairs"], infer_schema_length=None)
    order = [row["detector"] for row in section["said"]]
    chart = partial(chart_disagreement, detectors=order)
    return _both_widths(chart, frame, "detectors", section["finding"])


def _durations(section: Plain) -> dict[str, Markup]:
    frame = pl.DataFrame(section["steps"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    chart = partial(chart_durations, slow_after_s=section["slow_after_s"])
    return _both_widths(chart, frame, "durations", section["finding"])


def _thresholds(section: Plain) -> dict[str, Markup]:
    sheet = section["worksheet"]
    if sheet is None:
        return {}
    frame = pl.DataFrame(sheet["curve"], infer_schema_length=None)
    chart = partial(chart_worksheet, sentence="")
    return _both_widths(chart, frame, "thresholds", sheet["finding"])


# Section -> its chart; the others are tables and sentences.
DRAWN: Mapping[str, Callable[[Plain], dict[str, Markup]]] = MappingProxyType(
    {
        "attention": _attention,
        "over_time": _over_time,
        "detectors": _detectors,
        "durations": _durations,
        "thresholds": _thresholds,
    }
)


def _both_widths(chart: Any, frame: pl.DataFrame, name: str, label: str) -> dict[str, Markup]:
    """One drawing for screens, one for phones: type keeps its size on both."""
    return {
        size: Markup(
            to_svg(chart(frame, palette=VARIABLES, width=width), name=f"{name}-{size}", label=label)
        )
        for size, width in WIDTHS.items()
    }


@cache
def _style() -> str:
    css = resources.files("stateanalytics.reporting") / "templates" / "style.css"
    return f":root{{{_colours()}}}\n{css.read_text('utf-8')}"


def _colours() -> str:
    """Every colour once, in both themes, under the name that style and charts use."""
    charts = [f"--chart-{name}:light-dark({LIGHT[name]},{DARK[name]});" for name in LIGHT]
    pills = [
        f"--{token}-bg:light-dark({c.light_background},{c.dark_background});"
        f"--{token}-fg:light-dark({c.light_foreground},{c.dark_foreground});"
        for token, c in COLOURS.items()
    ]
    return "".join((*charts, *pills))
