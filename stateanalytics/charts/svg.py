"""A chart as a still drawing, for pages and notebooks: no script, no link, nothing loaded."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from stateanalytics.charts import vega
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import ArgumentError, in_short

LONGEST_TEXT = 2_000  # more than any expression of ours, and than anybody reads in a drawing
SVG = "http://www.w3.org/2000/svg"
ELEMENTS = frozenset(
    {"svg", "g", "path", "text", "tspan", "rect", "line", "circle", "defs", "clipPath", "title"}
)
# Everything else (on…, href, style, class) falls away, whoever wrote it.
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
        Text in its data may be hostile; it comes out as text.
    name : str
        Begins every id, so that several drawings can stand on one page.
    label : str
        What the drawing says, for those who cannot see it.

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
    if hasattr(chart, "live"):  # of ours, whose ground the page gives
        spec["config"]["background"] = "transparent"
    return inert(vega.drawn(spec), name=name, label=label)


def as_file(spec: dict[str, Any], *, label: str) -> str:
    """A specification that is `tame`, as a drawing that stands by itself."""
    return inert(vega.drawn(spec), name="chart", label=label).replace(
        "<svg ", f'<svg xmlns="{SVG}" ', 1
    )


def tame(value: Any) -> Any:
    """The same specification without characters that XML lacks, or texts without an end."""
    if isinstance(value, str):
        return shortened(visible(value), LONGEST_TEXT)
    if isinstance(value, dict):
        return {tame(key): tame(part) for key, part in value.items()}
    return [tame(part) for part in value] if isinstance(value, list) else value


def inert(svg: str, *, name: str, label: str) -> str:
    """An SVG document written again with known elements and attributes only.

    Marks lose their own roles: the drawing is one image with one label, and the page
    gives the numbers as a table.

    Parameters
    ----------
    svg : str
        A whole document; scripts, links, styles, handlers and references to anything
        but its own parts fall away.
    name, label : str
        As in `to_svg`.

    Examples
    --------
    >>> page = '<svg xmlns="{}" viewBox="0 0 8 8"><script>x()</script></svg>'
    >>> inert(page.format(SVG), name="a", label="A box")
    '<svg viewBox="0 0 8 8" role="img" aria-label="A box" style="max-width:8px;overflow:visible" />'
    """
    drawn = ElementTree.fromstring(svg)
    ids = {old: f"{name}-{n}" for n, old in enumerate(_ids(drawn))}
    clean = _rewritten(drawn, ids)
    clean.set("role", "img")
    clean.set("aria-label", label)
    for size in ("width", "height"):
        clean.attrib.pop(size, None)
    # A page whose font is wider than any that was thought of shows more, and cuts nothing.
    clean.set("style", f"max-width:{_width(drawn)}px;overflow:visible")
    return ElementTree.tostring(clean, encoding="unicode")


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
    """Marks that nobody sees are for a pointer, which a drawing has not."""
    return _local(part.tag) in ELEMENTS and part.get("opacity") != "0"


def _within_page(value: str, ids: dict[str, str]) -> str:
    """References only to our own ids; any other address becomes nothing."""
    if "url(" not in value:
        return value
    own = _OWN_PICTURE.fullmatch(value.strip())
    return f"url(#{ids[own[1]]})" if own and own[1] in ids else "none"


def _local(tag: object) -> str:
    return str(tag).removeprefix(f"{{{SVG}}}")
