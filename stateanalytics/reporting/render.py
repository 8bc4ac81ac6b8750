"""Plain data to a page of HTML. Everything is escaped; nothing is computed."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from jinja2.bccache import Bucket
from markupsafe import Markup

from stateanalytics.charts.report_charts import WIDTHS, drawn
from stateanalytics.charts.style import DARK, LIGHT, VARIABLES
from stateanalytics.charts.svg import to_svg
from stateanalytics.charts.timeline import chart_timeline
from stateanalytics.core import words
from stateanalytics.reporting.entities import COLOURS, PROGRAM, with_program
from stateanalytics.reporting.material import FOR_OPERATORS, Plain, Section
from stateanalytics.reporting.sections import SECTIONS

_TEMPLATES = Path(__file__).with_name("templates")
# No script at all; style within the page; pictures only from within it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(summary: Plain, *, program: str = PROGRAM) -> str:
    """The page of a summary; the same input gives the same bytes.

    Parameters
    ----------
    summary : dict
        Of a report.
    program : str
        How a shell runs this package, with which the commands of the page begin.
    """
    summary = with_program(summary, program)
    links = {
        (run["entity_type"], run["entity_id"]): f"#run-{place}"
        for place, run in reversed([*enumerate(summary["runs"], 1)])
    }
    sections = _sections_in(summary)
    shown = [one for one in sections if one.has_content(summary[one.name])]
    is_empty = not summary.get("provenance", {}).get("entities", True)
    if is_empty:
        shown = [one for one in shown if one.name == "provenance"]
    return _page_of(
        "report",
        report=summary,
        lead=[one for one in shown if one.place < FOR_OPERATORS],
        chapters=[one for one in shown if one.place >= FOR_OPERATORS],
        silent=[] if is_empty else [one for one in sections if one not in shown],
        charts=drawn(summary),
        run_links=links,
        program=program,
        tz=summary["tz"],
    )


def render_email(summary: Plain) -> str:
    """The first screen and a sentence of each section, for mail readers."""
    return _page_of("email", report=summary, sections=_sections_in(summary))


def unfolded(page: str) -> str:
    """The same page with everything unfolded: texts are escaped, so only our tags match."""
    return page.replace("<details", "<details open")


def render_session(summary: Plain, timeline: pl.DataFrame) -> str:
    """The page of one entity."""
    chart = {}
    for size, width in WIDTHS.items():
        drawing = chart_timeline(timeline, palette=VARIABLES, width=width)
        chart[size] = Markup(to_svg(drawing, name=f"timeline-{size}", label=summary["finding"]))
    return _page_of("session", entity=summary, chart=chart)


def _sections_in(summary: Plain) -> list[Section]:
    return [section for section in SECTIONS if section.name in summary]


def _page_of(name: str, tz: str = "UTC", **values: Any) -> str:
    page: str = (
        _pages()
        .get_template(f"{name}.html.j2")
        .render(content_policy=POLICY, style=Markup(_style()), phrases=words, tz=tz, **values)
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
        bytecode_cache=_Compiled(),
    )


class _Compiled(jinja2.BytecodeCache):
    """Compiled templates (.3 s), kept where Python keeps compiled modules."""

    _files = SourceFileLoader(__name__, __file__)

    def _place(self, bucket: Bucket) -> str:
        return cache_from_source(str(_TEMPLATES / f"{bucket.key}.py"))

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the template compiled from the same text by the same versions."""
        with suppress(OSError):
            bucket.bytecode_from_string(self._files.get_data(self._place(bucket)))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it, whole or not at all."""
        if not sys.dont_write_bytecode:
            self._files.set_data(self._place(bucket), bucket.bytecode_to_string())


@cache
def _style() -> str:
    css = _TEMPLATES / "style.css"
    return f":root{{{_colours()}}}\n{css.read_text('utf-8')}"


def _colours() -> str:
    """All colours in both themes, under the names that style and charts use."""
    charts = [f"--chart-{name}:light-dark({LIGHT[name]},{DARK[name]});" for name in LIGHT]
    pills = [
        f"--{token}-bg:light-dark({c.light_background},{c.dark_background});"
        f"--{token}-fg:light-dark({c.light_foreground},{c.dark_foreground});"
        for token, c in COLOURS.items()
    ]
    return "".join((*charts, *pills))
