"""Altair charts that show themselves: as Vega-Lite where it runs, as a drawing where nothing may.

Altair shows a chart by a script that holds its data as text, fetched libraries around it: a
failure message with ``</script>`` in it breaks out, and without a network there is nothing to
see. Ours hand over data as data, in the types that JupyterLab, VS Code and marimo draw
themselves, beside the same drawing that stands in a report. Colours and type are added where
a chart is whole, so that one can be layered, put beside others and configured like any other.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import polars as pl

from stateanalytics.charts.text_width import FONT_SIZE
from stateanalytics.core.components import needing
from stateanalytics.core.redaction import redact_texts

if TYPE_CHECKING:
    from stateanalytics.charts.selecting import SelectableChart

Palette: TypeAlias = Mapping[str, str]
Chart = TypeVar("Chart")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
# JupyterLab 4 draws the fifth major version only; ours say nothing that it does not know.
TYPES = {
    f"application/vnd.vegalite.v{major}+json": f"https://vega.github.io/schema/vega-lite/v{major}.json"
    for major in (6, 5)
}


# On a page, text begins where the page's does; a notebook of another colour shows the edge.
_ON_A_PAGE: Any = {"left": 2, "right": 16, "top": 4, "bottom": 4}
_ON_ITS_OWN: Any = {"left": 6, "right": 12, "top": 8, "bottom": 6}


@dataclass(frozen=True)
class Source:
    """Where the rows behind a mark are.

    Attributes
    ----------
    table : str
        What SQL calls them.
    conditions : tuple of tuple of str
        A column of the drawn frame, and SQL that holds of its rows, ``{}`` being its value.
    ranges : tuple of str
        Columns of both frames of which a stretch may be chosen.
    where : str
        SQL that holds of all rows that are drawn.
    """

    table: str
    conditions: tuple[tuple[str, str], ...] = ()
    ranges: tuple[str, ...] = ()
    where: str = ""


def living(chart: Chart, palette: Palette, source: Source | None = None) -> Chart:
    """The chart, as one of its kind that shows itself in our type, grid and colours.

    Parameters
    ----------
    chart : altair top-level chart
        Stays as it is.
    palette : mapping of str to str
        `LIGHT`, `DARK` or `VARIABLES`.
    source : Source, optional
        Where the rows behind its marks are.
    """
    plain: Any = getattr(chart, "_plain", type(chart))
    made: Chart = _kind(plain, tuple(palette.items()), source)(**_parts(chart, plain))
    return made


@cache
def _kind(plain: type, colours: tuple[tuple[str, str], ...], source: Source | None) -> type:
    own = {"_palette": dict(colours), "_source": source, "_plain": plain}
    return type(plain.__name__, (_Living, plain), own)


def _parts(chart: Any, plain: type) -> dict[str, Any]:
    """What a chart is made of, by the names that its part of the schema of Vega-Lite has."""
    parts = {}
    for name in _names(plain):
        # A method may have the name of a part, so that parts are asked for as items.
        with suppress(KeyError):
            parts[name] = chart[name]
    return parts


@cache
def _names(plain: type) -> tuple[str, ...]:
    is_spec = re.compile("TopLevel.+Spec").fullmatch
    spec = next(kind for kind in plain.__mro__ if is_spec(kind.__name__))
    return tuple(name for name in signature(spec).parameters if name != "self")


class _Living:
    """What ours do otherwise; comes before the chart's own class.

    A copy is of the class of its original and has nothing else of it than parts of the
    chart, so that colours are kept by the class.
    """

    _palette: Palette
    _source: Source | None
    _plain: type

    def to_dict(self, *args: Any, context: dict[str, Any] | None = None, **options: Any) -> Any:
        """The specification: with our look where it is whole, and none as a part of another."""
        plain: Any = self
        if context is None or context.get("top_level", True):
            plain = plain.copy(deep=False)
            own: Any = _parts(plain, self._plain).get("config")
            asked = own.to_dict() if hasattr(own, "to_dict") else own
            look = _look(self._palette)
            plain["config"] = _merged(look, asked) if isinstance(asked, Mapping) else look
        return super(_Living, plain).to_dict(*args, context=context, **options)  # type: ignore[misc]

    def live(self) -> SelectableChart:
        """The same as a widget, whose ``selected`` gives what is chosen in it, and ``sql`` too."""
        from stateanalytics.charts.selecting import SelectableChart

        instead = "show the chart itself"
        with needing("anywidget", "A chart to choose from", extra="notebook", instead=instead):
            return SelectableChart(self)

    def __add__(self, other: Any) -> Any:
        return living(super().__add__(other), self._palette, self._source)  # type: ignore[misc]

    def __or__(self, other: Any) -> Any:
        with one_choice_for_all():
            return living(super().__or__(other), self._palette)  # type: ignore[misc]

    def __and__(self, other: Any) -> Any:
        with one_choice_for_all():
            return living(super().__and__(other), self._palette)  # type: ignore[misc]

    def _repr_mimebundle_(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        from stateanalytics.charts.svg import as_file, tame

        chart: Any = self
        description = chart.description if isinstance(chart.description, str) else "chart"
        # A notebook is kept with what it shows, and goes to others.
        spec = _without_secrets(tame(chart.to_dict()))
        description = _without_secrets(description)
        # Where VS Code is dark it writes in white, unless a chart says its ground here.
        moving = {"background": spec["config"]["background"], **spec}
        return {
            **{kind: {**moving, "$schema": schema} for kind, schema in TYPES.items()},
            "image/svg+xml": as_file(spec, label=description),
            "text/plain": f"{type(self).__name__}: {description}",
        }


@contextmanager
def one_choice_for_all() -> Iterator[None]:
    """Charts of one kind beside each other, in which one choice is meant to hold in all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection")
        yield


def _without_secrets(spec: Any) -> Any:
    """A specification in which secrets are masked, equal ones alike."""
    texts = pl.Series(list(dict.fromkeys(_texts(spec))), dtype=pl.String)
    told = dict(zip(texts, redact_texts(texts)[0], strict=True))

    def walk(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: walk(value) for key, value in part.items()}
        if isinstance(part, list):
            return [walk(value) for value in part]
        return told[part] if isinstance(part, str) else part

    return walk(spec)


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping | list):
        for value in part.values() if isinstance(part, Mapping) else part:
            yield from _texts(value)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both say something, what is above."""
    return {
        **below,
        **{
            name: _merged(below[name], part)
            if isinstance(part, Mapping) and isinstance(below.get(name), Mapping)
            else part
            for name, part in above.items()
        },
    }


def _look(palette: Palette) -> dict[str, Any]:
    return {
        # A notebook may be dark, and the colours are made for their ground.
        "background": palette["surface"],
        "font": FONT,
        "padding": _ON_A_PAGE if palette["surface"].startswith("var(") else _ON_ITS_OWN,
        "view": {"stroke": None},
        "axis": {
            "labelColor": palette["muted"],
            "titleColor": palette["muted"],
            "labelFontSize": FONT_SIZE,
            "titleFontSize": FONT_SIZE,
            "titleFontWeight": "normal",
            "domainColor": palette["line"],
            "tickColor": palette["line"],
            "gridColor": palette["line"],
            "labelLimit": 220,
        },
        "header": {
            "labelColor": palette["text"],
            "labelFontSize": FONT_SIZE,
            "labelLimit": 400,
            "title": None,
        },
    }
