"""The charts of a report, drawn by a separate process while the numbers are computed.

A page needs the charts only at its end: `prepare` starts the process early, and `begin_drawing`
sends it the charts of each section as it is made, on a core that is otherwise idle. They are
plain specifications, so that neither process loads Altair, which takes as long as all drawing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from markupsafe import Markup

from stateanalytics.charts.detectors import disagreement_spec
from stateanalytics.charts.durations import durations_spec
from stateanalytics.charts.failures import severity_spec
from stateanalytics.charts.interactive import Spec, for_page
from stateanalytics.charts.over_time import over_time_spec
from stateanalytics.charts.style import VARIABLES
from stateanalytics.charts.svg import drawing
from stateanalytics.charts.thresholds import worksheet_spec
from stateanalytics.io.processes import ChildProcess, isolated

LIMIT_S = 30.0
"""Time limit for what takes a second; afterwards the charts are drawn by this process."""
WIDTHS = {"wide": 820, "narrow": 310}
Plain = dict[str, Any]
Drawings = dict[str, dict[str, str]]
_PREPARED: list[ChildProcess] = []
_SPECIFIED: dict[str, tuple[Plain, Plain]] = {}
"""The last section of each name, and its charts."""


def prepare() -> None:
    """Start the process that draws the next page, so that it is ready in time."""
    if not any(process.is_alive() for process in _PREPARED):
        # Entries of the import path that are no text, such as paths, are ignored by Python.
        places = [place for place in sys.path if isinstance(place, str)]
        command = isolated("stateanalytics.charts.svg", json.dumps(places))
        with contextlib.suppress(OSError):  # then this process draws
            _PREPARED.append(ChildProcess(command))


def begin_drawing(name: str, section: Plain, clean: Callable[[Plain], Plain]) -> None:
    """Let the prepared process, if there is one, draw a section while others are made."""
    for process in _PREPARED[:1]:
        if name in DRAWN and process.is_alive():
            with process.within(LIMIT_S):
                process.ask("begin", {name: _charts(name, section, clean)})


def drawn(summary: Plain) -> dict[str, dict[str, Markup]]:
    """The drawings of a summary, by section and width; the same from either process."""
    charts = {name: _charts(name, summary[name]) for name in DRAWN if name in summary}
    drawings = _drawn_by_process(charts) or draw(charts)
    return {
        name: {size: Markup(drawing) for size, drawing in of_section.items()}
        for name, of_section in drawings.items()
    }


def draw(sections: Mapping[str, Plain]) -> Drawings:
    """The drawings of the charts of sections, made by this process."""
    return {
        name: {size: drawing(**chart) for size, chart in charts.items()}
        for name, charts in sections.items()
    }


def _charts(name: str, section: Plain, clean: Callable[[Plain], Plain] = dict) -> Plain:
    """What `drawing` needs for each width of the chart of a section."""
    # To clean the rest of a section takes longer than to specify its charts.
    specify, keys = DRAWN[name]
    shown = clean({key: section[key] for key in keys})
    if name not in _SPECIFIED or _SPECIFIED[name][0] != shown:
        _SPECIFIED[name] = shown, specify(shown)
    return _SPECIFIED[name][1]


def _drawn_by_process(sections: Mapping[str, Plain]) -> Drawings | None:
    """The drawings from the prepared process; None where there is none, or it failed."""
    with contextlib.suppress(IndexError):
        process = _PREPARED.pop()
        if process.is_alive():
            try:
                with process.within(LIMIT_S):
                    process.ask("draw", sections)
                    answer = process.answer()
            except BaseException:
                process.end()
                raise
            if "drawn" in answer:
                _PREPARED.append(process)
                drawings: Drawings = answer["drawn"]
                return drawings
        process.end()
    return None


@atexit.register
def end_prepared() -> None:
    """End the prepared process."""
    while _PREPARED:
        _PREPARED.pop().end()


def _attention(section: Plain) -> Plain:
    frame = pl.DataFrame(section["by_type"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    return _for_widths("severity", section["finding"], severity_spec, frame)


def _over_time(section: Plain) -> Plain:
    if not section["endings"]:
        return {}
    frame = pl.DataFrame(
        [
            {
                "label": row["label"],
                "ending": ending,
                "n": n,
                "changed": "; ".join(row.get("changed", ())) or None,
            }
            for row in section["rows"]
            for ending, n in zip(
                (*section["endings"], "open"), (*row["counts"], row["n_open"]), strict=True
            )
        ],
        schema_overrides={"changed": pl.String},
        infer_schema_length=None,
    )
    return _for_widths("over-time", section["finding"], over_time_spec, frame)


def _detectors(section: Plain) -> Plain:
    if not section["pairs"]:
        return {}
    titles = {row["detector"]: row["title"] for row in section["said"]}
    frame = pl.DataFrame(section["pairs"], infer_schema_length=None)
    frame = frame.with_columns(pl.col("a", "b").replace(titles))
    order = list(titles.values())
    return _for_widths("detectors", section["finding"], disagreement_spec, frame, order)


def _durations(section: Plain) -> Plain:
    frame = pl.DataFrame(section["steps"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    limits = {"slow": section["slow_after_s"]}
    return _for_widths("durations", section["finding"], durations_spec, frame, limits)


def _thresholds(section: Plain) -> Plain:
    sheet = section["worksheet"]
    if sheet is None:
        return {}
    frame = pl.DataFrame(sheet["curve"], infer_schema_length=None)
    return _for_widths("thresholds", sheet["finding"], worksheet_spec, frame)


DRAWN: Mapping[str, tuple[Callable[[Plain], Plain], tuple[str, ...]]] = {
    "attention": (_attention, ("by_type", "finding")),
    "over_time": (_over_time, ("endings", "rows", "finding")),
    "detectors": (_detectors, ("pairs", "said", "finding")),
    "durations": (_durations, ("steps", "slow_after_s", "finding")),
    "thresholds": (_thresholds, ("worksheet",)),
}
"""Sections with a chart, and what of each it shows; the others are tables and sentences."""


def _for_widths(name: str, label: str, spec: Callable[..., Spec], *given: Any) -> Plain:
    return {
        size: {
            "spec": for_page(spec(*given, palette=VARIABLES, width=width)),
            "name": f"{name}-{size}",
            "label": label,
        }
        for size, width in WIDTHS.items()
    }
