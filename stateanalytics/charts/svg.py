"""A chart as a static SVG, for pages and notebooks: no script, no link, nothing loaded."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any
from xml.etree import ElementTree

from stateanalytics.charts import vega
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import ArgumentError, in_short

LONGEST_TEXT = 2_000  # longer than any expression of ours
SVG = "http://www.w3.org/2000/svg"
ELEMENTS = frozenset(
    {"svg", "g", "path", "text", "tspan", "rect", "line", "circle", "defs", "clipPath", "title"}
)
# Everything else (on…, href, style, class) is removed.
ATTRIBUTES = frozenset(
    [
        *("id", "viewBox", "preserveAspectRatio", "width", "height", "transform", "d"),
        *("x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry"),
        *("fill", "fill-opacity", "fill-rule", "clip-path", "clip-rule", "opacity"),
        *("stroke", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin"),
        *("stroke-miterlimit", "stroke-opacity", "stroke-width"),
        *("font-family", "font-size", "font-style", "font-weight", "letter-spacing"),
        *("text-anchor", "dominant-baseline"),
    ]
)
_OWN_PICTURE = re.compile(r"url\(#([\w-]+)\)")


def to_svg(chart: Any, *, name: str, label: str) -> str:
    """The chart as one ``<svg>`` element.

    Parameters
    ----------
    chart : altair chart
        Text in its data may be hostile; it is written as text.
    name : str
        Prefix of every id, so that a page can hold several drawings.
    label : str
        Description for screen readers.

    Returns
    -------
    str
        Scales with its box (a ``viewBox``, no fixed size). The same chart gives the
        same bytes.
    """
    import altair as alt

    if not isinstance(chart, alt.TopLevelMixin):
        raise ArgumentError(
            f"to_svg needs an Altair chart; found {type(chart).__name__} {in_short(chart)}.",
            'to_svg(chart_survival(curve), name="runs", label="How long runs take")',
        )
    spec = tame(chart.to_dict(validate=False))
    if hasattr(chart, "live"):  # a chart of ours gets the background of the page
        spec["config"]["background"] = "transparent"
    return inert(vega.drawn(spec), name=name, label=label)


def drawing(spec: dict[str, Any], *, name: str, label: str) -> str:
    """The ``<svg>`` of a specification; as `to_svg`."""
    return inert(vega.drawn(tame(spec)), name=name, label=label)


def as_file(spec: dict[str, Any], *, label: str) -> str:
    """A `tame` specification as an SVG file."""
    return inert(vega.drawn(spec), name="chart", label=label).replace(
        "<svg ", f'<svg xmlns="{SVG}" ', 1
    )


def tame(value: Any) -> Any:
    """The specification without characters that XML forbids, and with texts of limited length."""
    if isinstance(value, str):
        return shortened(visible(value), LONGEST_TEXT)
    if isinstance(value, dict):
        return {tame(key): tame(part) for key, part in value.items()}
    return [tame(part) for part in value] if isinstance(value, list) else value


def inert(svg: str, *, name: str, label: str) -> str:
    """An SVG document reduced to known elements and attributes.

    Marks lose their own roles: the drawing is one image with one label, and the page
    gives the numbers as a table.

    Parameters
    ----------
    svg : str
        A whole document; scripts, links, styles, handlers and references to anything but its
        own parts are removed.
    name, label : str
        As in `to_svg`.

    Examples
    --------
    >>> page = '<svg xmlns="{}" viewBox="0 0 8 8"><script>x()</script></svg>'
    >>> inert(page.format(SVG), name="a", label="A box")
    '<svg viewBox="0 0 8 8" role="img" aria-label="A box" style="max-width:8px;overflow:visible" />'
    """
    drawn = ElementTree.fromstring(svg)
    clean = _rewritten(drawn, {old: f"{name}-{n}" for n, old in enumerate(_ids(drawn))})
    clean.set("role", "img")
    clean.set("aria-label", label)
    for size in ("width", "height"):
        clean.attrib.pop(size, None)
    # If a page has an even wider font, text overflows and is not cut.
    clean.set("style", f"max-width:{_width(drawn)}px;overflow:visible")
    return ElementTree.tostring(clean, encoding="unicode")


def main() -> None:
    """The process that draws the charts of a report, by section and width.

    Its last argument is where to find libraries. A section alone is not answered: the caller
    reads only the answer to all of them.
    """
    sys.path[:] = json.loads(sys.argv[-1])
    vega.started(os.getpid())
    known: dict[str, tuple[Any, dict[str, str]]] = {}
    for line in sys.stdin:
        request, sections = json.loads(line)
        for name, charts in sections.items():
            if name not in known or known[name][0] != charts:
                known[name] = charts, {size: drawing(**chart) for size, chart in charts.items()}
        if request == "draw":
            print(json.dumps({"drawn": {name: known[name][1] for name in sections}}), flush=True)


def _ids(drawn: ElementTree.Element) -> list[str]:
    return [part.attrib["id"] for part in drawn.iter() if "id" in part.attrib]


def _width(drawn: ElementTree.Element) -> int:
    return round(float(drawn.attrib["viewBox"].split()[2]))


def _rewritten(part: ElementTree.Element, ids: dict[str, str]) -> ElementTree.Element:
    kept = ElementTree.Element(_local(part.tag))
    kept.text, kept.tail = part.text, part.tail
    for attribute, value in part.attrib.items():
        if attribute not in ATTRIBUTES:
            continue
        kept.set(attribute, ids[value] if attribute == "id" else _within_page(value, ids))
    kept.extend(_rewritten(child, ids) for child in part if _is_drawn(child))
    return kept


def _is_drawn(part: ElementTree.Element) -> bool:
    """Whether an element is drawn; invisible marks are for the pointer of a notebook."""
    return _local(part.tag) in ELEMENTS and part.get("opacity") != "0"


def _within_page(value: str, ids: dict[str, str]) -> str:
    """References only to our own ids; any other address becomes nothing."""
    if "url(" not in value:
        return value
    own = _OWN_PICTURE.fullmatch(value.strip())
    return f"url(#{ids[own[1]]})" if own and own[1] in ids else "none"


def _local(tag: object) -> str:
    return str(tag).removeprefix(f"{{{SVG}}}")
