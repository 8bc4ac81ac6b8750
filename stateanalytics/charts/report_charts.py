"""The charts of a report, drawn by a separate process while the numbers are computed.

Loading Altair and Vega takes a second, as long as drawing everything, and a page needs the
charts only at its end: `prepare` starts the process early, and `begin_drawing` sends it each
section as it is made, on a core that is otherwise idle.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import polars as pl
from markupsafe import Markup

from stateanalytics.charts.detectors import chart_disagreement
from stateanalytics.charts.durations import chart_durations
from stateanalytics.charts.failures import chart_severity
from stateanalytics.charts.over_time import chart_over_time
from stateanalytics.charts.style import VARIABLES
from stateanalytics.charts.svg import to_svg
from stateanalytics.charts.thresholds import chart_worksheet
from stateanalytics.io.processes import ChildProcess

LIMIT_S = 30.0
"""Time limit for what takes a second; afterwards the charts are drawn by this process."""
WIDTHS = {"wide": 820, "narrow": 310}
Plain = dict[str, Any]
Drawings = dict[str, dict[str, str]]
# With JupyterLab installed, Altair loads these optional modules, which takes four times as long
# as Altair itself. Static drawings do not need them.
NOT_DRAWN_WITH = ("anywidget", "rfc3987_syntax")
# The process gets the same import path as this one.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"sys.modules.update(dict.fromkeys({NOT_DRAWN_WITH})); "
    "from stateanalytics.charts.report_charts import main; main()"
)
_PREPARED: list[ChildProcess] = []


def prepare() -> None:
    """Start the process that draws the next page, so that it is ready in time."""
    if not any(process.is_alive() for process in _PREPARED):
        # Entries of the import path that are no text, such as paths, are ignored by Python.
        places = [place for place in sys.path if isinstance(place, str)]
        command = [sys.executable, "-I", "-c", _START, json.dumps(places)]
        with contextlib.suppress(OSError):  # then this process draws
            _PREPARED.append(ChildProcess(command))


def begin_drawing(name: str, section: Callable[[], Plain]) -> None:
    """Let the prepared process, if there is one, draw a section while others are made."""
    for process in _PREPARED[:1]:
        if name in DRAWN and process.is_alive():
            with process.within(LIMIT_S):
                process.ask("begin", {name: section()})


def drawn(summary: Plain) -> dict[str, dict[str, Markup]]:
    """The drawings of a summary, by section and width; the same from either process."""
    of_sections = {name: summary[name] for name in DRAWN if name in summary}
    drawings = _drawn_by_process(of_sections) or draw(of_sections)
    return {
        name: {size: Markup(drawing) for size, drawing in of_section.items()}
        for name, of_section in drawings.items()
    }


def draw(sections: Mapping[str, Plain]) -> Drawings:
    """The drawings of sections, made by this process."""
    return {name: DRAWN[name](section) for name, section in sections.items()}


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


def main() -> None:
    """The process: load the libraries, draw each section, and answer when all are asked for."""
    import altair as alt

    to_svg(alt.Chart(pl.DataFrame({"x": [1]})).mark_bar().encode(x="x:Q"), name="x", label="x")
    known: dict[str, tuple[Plain, dict[str, str]]] = {}
    for line in sys.stdin:
        request, sections = json.loads(line)
        for name, section in sections.items():
            if name not in known or known[name][0] != section:
                known[name] = section, DRAWN[name](section)
        # A section alone is not answered: the caller reads only the answer to all of them.
        if request == "draw":
            print(json.dumps({"drawn": {name: known[name][1] for name in sections}}), flush=True)


def _attention(section: Plain) -> dict[str, str]:
    frame = pl.DataFrame(section["by_type"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    return both_widths(chart_severity, frame, "severity", section["finding"])


def _over_time(section: Plain) -> dict[str, str]:
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
    return both_widths(chart_over_time, frame, "over-time", section["finding"])


def _detectors(section: Plain) -> dict[str, str]:
    if not section["pairs"]:
        return {}
    frame = pl.DataFrame(section["pairs"], infer_schema_length=None)
    order = [row["detector"] for row in section["said"]]
    chart = partial(chart_disagreement, detectors=order)
    return both_widths(chart, frame, "detectors", section["finding"])


def _durations(section: Plain) -> dict[str, str]:
    frame = pl.DataFrame(section["steps"], infer_schema_length=None)
    if frame.is_empty():
        return {}
    chart = partial(chart_durations, slow_after_s=section["slow_after_s"])
    return both_widths(chart, frame, "durations", section["finding"])


def _thresholds(section: Plain) -> dict[str, str]:
    sheet = section["worksheet"]
    if sheet is None:
        return {}
    frame = pl.DataFrame(sheet["curve"], infer_schema_length=None)
    chart = partial(chart_worksheet, sentence="")
    return both_widths(chart, frame, "thresholds", sheet["finding"])


# Sections with a chart; the others are tables and sentences.
DRAWN: Mapping[str, Callable[[Plain], dict[str, str]]] = MappingProxyType(
    {
        "attention": _attention,
        "over_time": _over_time,
        "detectors": _detectors,
        "durations": _durations,
        "thresholds": _thresholds,
    }
)


def both_widths(chart: Any, frame: pl.DataFrame, name: str, label: str) -> dict[str, str]:
    """A drawing for screens and a narrow one for phones, with the same font size."""
    return {
        size: to_svg(
            chart(frame, palette=VARIABLES, width=width), name=f"{name}-{size}", label=label
        )
        for size, width in WIDTHS.items()
    }
