"""A chart as a static drawing, for a page and for a notebook: no script, no link, nothing loaded.

Altair shows a chart by a script that holds its data as JSON, fetched libraries around it:
a failure message with ``</script>`` in it breaks out, and without a network there is
nothing to see. In notebooks ours are shown as the same static drawing that stands in the
report; the chart itself stays an Altair chart, with its data in ``.data``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, TypeVar
from xml.etree import ElementTree

from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import ArgumentError

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
Chart = TypeVar("Chart")


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
    import vl_convert

    if not isinstance(chart, alt.TopLevelMixin):
        raise ArgumentError(
            f"to_svg needs an Altair chart; found {type(chart).__name__} {chart!r:.60}.",
            'to_svg(chart_survival(curve), name="runs", label="How long runs take")',
        )
    spec = json.dumps(_tame(chart.to_dict(validate=False)), allow_nan=False)
    return inert(vl_convert.vegalite_to_svg(spec), name=name, label=label)


def _tame(value: Any) -> Any:
    """The same specification without characters that XML lacks, or texts without an end."""
    if isinstance(value, str):
        return shortened(visible(value), LONGEST_TEXT)
    if isinstance(value, dict):
        return {_tame(key): _tame(part) for key, part in value.items()}
    return [_tame(part) for part in value] if isinstance(value, list) else value


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
    '<svg viewBox="0 0 8 8" role="img" aria-label="A box" style="max-width:8px" />'
    """
    drawn = ElementTree.fromstring(svg)
    ids = {old: f"{name}-{n}" for n, old in enumerate(_ids(drawn))}
    clean = _rewritten(drawn, ids)
    clean.set("role", "img")
    clean.set("aria-label", label)
    for size in ("width", "height"):
        clean.attrib.pop(size, None)
    clean.set("style", f"max-width:{_width(drawn)}px")
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
    kept.extend(_rewritten(child, ids) for child in part if _local(child.tag) in ELEMENTS)
    return kept


def _within_page(value: str, ids: dict[str, str]) -> str:
    """References only to our own ids; any other address becomes nothing."""
    if "url(" not in value:
        return value
    own = _OWN_PICTURE.fullmatch(value.strip())
    return f"url(#{ids[own[1]]})" if own and own[1] in ids else "none"


def _local(tag: object) -> str:
    return str(tag).removeprefix(f"{{{SVG}}}")


def shown_safely(chart: Chart) -> Chart:
    """The chart, as one of a kind that shows itself as a drawing."""
    kind: Any = type(chart)
    # Altair takes every plain assignment for a part of the chart.
    object.__setattr__(chart, "__class__", _kind(kind))
    return chart


class _Drawing:
    """Shows an Altair chart as SVG; comes before the chart's own class."""

    def _repr_mimebundle_(self, *_args: Any, **_options: Any) -> dict[str, str]:
        from stateanalytics.charts.svg import to_svg

        chart: Any = self
        description = chart.description if isinstance(chart.description, str) else "chart"
        drawn = to_svg(chart, name="chart", label=description)
        # Notebooks may be dark, and the colours are made for light ground.
        ground = f'style="background:#fff;{_STYLE}'
        return {
            "text/html": f"<figure>{drawn.replace(_STYLE_BEGINS, ground, 1)}</figure>",
            "text/plain": f"{type(self).__name__}: {description}",
        }


_STYLE = "padding:8px;box-sizing:content-box;height:auto;"
_STYLE_BEGINS = 'style="'


@cache
def _kind(kind: Any) -> type:
    """A chart class whose instances show themselves as drawings."""
    return kind if issubclass(kind, _Drawing) else type(kind.__name__, (_Drawing, kind), {})
