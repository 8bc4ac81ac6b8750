"""Charts in a notebook: tooltips, selections, movable axes, and a safe way to display them.

A drag selects a range and a click a mark (with shift: one more); a double click clears the
selection. With shift a drag moves the axis, and with ctrl the wheel zooms it: without a key the
wheel belongs to the notebook. Text of a store is data here as well: it stands in no expression,
no name and no address.

Altair displays a chart by a script that holds its data as text, with libraries from a network: a
failure message with ``</script>`` in it would break out, and without a network there is nothing
to see. Ours hand over data as data, in the MIME types that JupyterLab, VS Code and marimo draw
themselves, together with the drawing that a report shows. Colours and fonts are added when a
chart is complete, so that it can be layered, concatenated and configured like any other.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stateanalytics.charts.style import FONT_SIZE, VARIABLES, Palette, Source, field, wrapped
from stateanalytics.core.redaction import redact_texts
from stateanalytics.core.text import shortened, texts_within, visible
from stateanalytics.core.words import dollars_each, how_long_each
from stateanalytics.errors import needing

if TYPE_CHECKING:
    from stateanalytics.charts.selecting import SelectableChart


LONGEST_TOOLTIP = 240
FAINT = 0.25
"""Opacity of marks that are not selected."""
_DRAG = "[pointerdown[{key}event.shiftKey], window:pointerup] > window:pointermove!"


def with_tooltips(frame: pl.DataFrame, **columns: str) -> tuple[pl.DataFrame, list[Spec]]:
    """A frame with the texts of tooltips, and the tooltips: names and their columns.

    Parameters
    ----------
    frame : polars.DataFrame
        What is drawn.
    **columns : str
        Displayed name, with ``_`` for blanks, to column; absent columns are skipped.

    Returns
    -------
    tuple of polars.DataFrame and list of dict
        The frame with a text for each column: moments in UTC, durations in words, amounts in USD.

    Examples
    --------
    >>> runs = pl.DataFrame({"elapsed_s": [5400.0], "cost_usd": [0.5]})
    >>> frame, tips = with_tooltips(runs, took="elapsed_s", cost="cost_usd", agent="agent")
    >>> frame.row(0)
    (5400.0, 0.5, '1 h 30 min', '$0.50')
    >>> [tip["title"] for tip in tips]
    ['took', 'cost']
    """
    known = {name: column for name, column in columns.items() if column in frame.columns}
    texts = [
        _text(column, frame.schema[column]).fill_null("–").alias(f"tooltip_{name}")
        for name, column in known.items()
    ]
    tips = [field(f"tooltip_{name}:N", title=name.strip("_").replace("_", " ")) for name in known]
    return frame.with_columns(texts), tips


def _text(column: str, dtype: pl.DataType) -> pl.Expr:
    value = pl.col(column)
    if dtype == pl.Datetime:
        return value.dt.strftime("%Y-%m-%d %H:%M:%S UTC")
    if dtype.is_numeric() and column.endswith("_s"):
        return how_long_each(column)
    if dtype.is_numeric() and column.endswith("_usd"):
        return dollars_each(value.round(2))
    if dtype.is_float() and column.startswith("share"):
        return (100 * value).map_elements("{:.3g} %".format, return_dtype=pl.String)
    if dtype.is_float():
        return value.map_elements("{:,.4g}".format, return_dtype=pl.String)
    return value.cast(pl.String).map_elements(
        lambda text: shortened(visible(text), LONGEST_TOOLTIP), return_dtype=pl.String
    )


def fading(selection: str) -> Spec:
    """The opacity of a mark: less where others are selected."""
    return {"condition": [{"param": selection, "value": 1.0}], "value": FAINT}


Spec = dict[str, Any]
"""A Vega-Lite specification in which ``data`` is a frame.

In a notebook marks can be selected by the values of ``clicks`` (a name and columns), also in the
legend (``in_legend``), or by a range of ``drags`` (a name and channels), ``moves`` (the same) moves
the axes, and such marks and those with ``has_tips`` show ``tooltips``, columns of `with_tooltips`.
"""
_LIVE = ("tooltips", "clicks", "in_legend", "drags", "moves", "has_tips")


def as_chart(spec: Spec, tips: Sequence[Spec] = ()) -> Any:
    """The Altair chart of a specification, with tooltips and selections."""
    import altair as alt

    parts = {name: part for name, part in spec.items() if name not in _LIVE}
    if "tooltips" in spec:
        parts["data"], tips = with_tooltips(spec["data"], **spec["tooltips"])
    if "spec" in spec:
        return alt.FacetChart(**parts | {"spec": as_chart(spec["spec"], tips)})
    if "layer" in spec:
        return alt.LayerChart(**parts | {"layer": [as_chart(one, tips) for one in spec["layer"]]})
    encoding, selections = dict(spec["encoding"]), []
    if "clicks" in spec:
        name, *columns = spec["clicks"]
        encoding["opacity"] = fading(name)
        legend: dict[str, Any] = {"bind": "legend"} if "in_legend" in spec else {}
        selections.append(alt.selection_point(name=name, fields=columns, **legend))
    if "drags" in spec:
        name, *axes = spec["drags"]
        drag: Any = {"name": name, "encodings": axes, "on": _DRAG.format(key="!"), "zoom": False}
        selections.append(alt.selection_interval(**drag))
    if "moves" in spec:
        name, *axes = spec["moves"]
        drag = {"on": _DRAG.format(key=""), "translate": _DRAG.format(key="")}
        wheel = "wheel![event.ctrlKey]"
        bound: Any = {"name": name, "encodings": axes, "bind": "scales", "zoom": wheel, **drag}
        selections.append(alt.selection_interval(**bound))
    if spec.get("has_tips", selections):
        encoding["tooltip"] = tips
    chart = alt.Chart(**parts | {"encoding": alt.FacetedEncoding(**encoding)})
    return chart.add_params(*selections) if selections else chart


def for_page(spec: Spec) -> Spec:
    """The specification as a page draws it: plain data, in the colours that the page defines."""
    return {**_still(spec), "config": {**_style(VARIABLES), "background": "transparent"}}


def _still(spec: Spec) -> Spec:
    parts = {name: part for name, part in spec.items() if name not in _LIVE}
    if "data" in spec:
        parts["data"] = {"values": spec["data"].to_dicts()}
    if "spec" in spec:
        parts["spec"] = _still(spec["spec"])
    if "layer" in spec:
        parts["layer"] = [_still(one) for one in spec["layer"]]
    if "clicks" in spec:
        parts["encoding"] = {**spec["encoding"], "opacity": {"value": 1.0}}
    return parts


Chart = TypeVar("Chart")
Kind = TypeVar("Kind")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
# JupyterLab 4 draws only the fifth major version; ours use nothing that it lacks.
_SCHEMA = "https://vega.github.io/schema/vega-lite"
TYPES = {f"application/vnd.vegalite.v{major}+json": f"{_SCHEMA}/v{major}.json" for major in (6, 5)}


# On a page, charts align with the text. In a notebook they are cards with a margin, on the paper
# of a report: JupyterLab saves a copy of pixels, so one ground has to serve every theme.
_ON_A_PAGE: Any = {"left": 2, "right": 16, "top": 4, "bottom": 4}
_ON_ITS_OWN: Any = {"left": 16, "right": 20, "top": 16, "bottom": 14}


def displayable(chart: Chart, palette: Palette, source: Source | None = None) -> Chart:
    """The chart with our fonts, grid and colours, which displays itself safely in a notebook.

    Parameters
    ----------
    chart : altair top-level chart
        Is not changed.
    palette : mapping of str to str
        `LIGHT`, `DARK` or `VARIABLES`.
    source : Source, optional
        The table of the rows behind its marks.
    """
    plain: Any = getattr(chart, "_plain", type(chart))
    kind = _displayable_class(plain, tuple(palette.items()), source)
    result: Chart = kind(**_parts(chart, plain))
    return result


@cache
def _displayable_class(
    plain: type, colours: tuple[tuple[str, str], ...], source: Source | None
) -> type:
    own = {"_palette": dict(colours), "_source": source, "_plain": plain}
    return type(plain.__name__, (_Displayable, plain), own)


def _parts(chart: Any, plain: type) -> dict[str, Any]:
    """The parts of a chart by their names in the Vega-Lite schema."""
    parts = {}
    for name in _names(plain):
        # A method may have the name of a part, so parts are read as items.
        with suppress(KeyError):
            parts[name] = chart[name]
    return parts


@cache
def _names(plain: type) -> tuple[str, ...]:
    is_spec = re.compile("TopLevel.+Spec").fullmatch
    spec = next(kind for kind in plain.__mro__ if is_spec(kind.__name__))
    return tuple(name for name in signature(spec).parameters if name != "self")


class _Displayable:
    """Methods that replace those of Altair; this class comes before the chart's own.

    A copy has the class of its original and only the parts of the chart, so the class keeps
    the colours.
    """

    _palette: Palette
    _source: Source | None
    _plain: type

    def to_dict(self, *args: Any, context: dict[str, Any] | None = None, **options: Any) -> Any:
        """The specification, with our style unless the chart is a part of another."""
        plain: Any = self
        if context is None or context.get("top_level", True):
            plain = plain.copy(deep=False)
            own: Any = _parts(plain, self._plain).get("config")
            custom = own.to_dict() if hasattr(own, "to_dict") else own
            style = _style(self._palette)
            plain["config"] = _merged(style, custom) if isinstance(custom, Mapping) else style
        return super(_Displayable, plain).to_dict(*args, context=context, **options)  # type: ignore[misc]

    def live(self) -> SelectableChart:
        """The chart as a widget with the selection in ``selected`` and ``sql``."""
        from stateanalytics.charts.selecting import SelectableChart

        instead = "show the chart itself"
        with needing("anywidget", "A chart to choose from", extra="notebook", instead=instead):
            return SelectableChart(self)

    def __add__(self, other: Any) -> Any:
        """Draw another chart over this one; where a table stands below it, over the first."""
        whole: Any = self
        if self._plain.__name__ == "VConcatChart":
            both = whole.copy(deep=False)
            both.vconcat = [whole.vconcat[0] + other, *whole.vconcat[1:]]
        else:
            both = super().__add__(other)  # type: ignore[misc]
        return displayable(both, self._palette, self._source)

    def __or__(self, other: Any) -> Any:
        with shared_selections():
            return displayable(super().__or__(other), self._palette)  # type: ignore[misc]

    def __and__(self, other: Any) -> Any:
        with shared_selections():
            return displayable(super().__and__(other), self._palette)  # type: ignore[misc]

    def _repr_mimebundle_(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        from stateanalytics.charts.svg import as_file, tame

        chart: Any = self
        description = chart.description if isinstance(chart.description, str) else "chart"
        # A notebook is saved with its outputs, and shared.
        spec = _without_secrets(tame(chart.to_dict()))
        description = _without_secrets(description)
        # A dark VS Code writes in white unless the background is set here.
        with_background = {"background": spec["config"]["background"], **spec}
        return {
            **{kind: {**with_background, "$schema": schema} for kind, schema in TYPES.items()},
            "image/svg+xml": as_file(spec, label=description),
            "text/plain": f"{type(self).__name__}: {description}",
        }


@contextmanager
def shared_selections() -> Iterator[None]:
    """Concatenate charts of a kind that share a selection, without Altair's warning about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection")
        yield


def _without_secrets(spec: Any) -> Any:
    """A specification with masked secrets; equal secrets get equal masks."""
    texts = pl.Series(list(dict.fromkeys(texts_within(spec))), dtype=pl.String)
    masked = dict(zip(texts, redact_texts(texts)[0], strict=True))

    def walk(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: walk(value) for key, value in part.items()}
        if isinstance(part, list):
            return [walk(value) for value in part]
        return masked[part] if isinstance(part, str) else part

    return walk(spec)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings merged; where both have a value, that of ``above``."""
    return {
        **below,
        **{
            name: _merged(below[name], part)
            if isinstance(part, Mapping) and isinstance(below.get(name), Mapping)
            else part
            for name, part in above.items()
        },
    }


def _style(palette: Palette) -> dict[str, Any]:
    return {
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


def finished(
    kind: type[Kind],
    chart: Any,
    sentence: str,
    *,
    palette: Palette,
    width: int,
    source: Source | None = None,
) -> Kind:
    """The chart in our colours (see `displayable`), under its sentence, also for screen readers.

    Parameters
    ----------
    kind : type
        What the chart is: altair's methods return wider types.
    chart : dict or altair top-level chart
        A specification, or a chart made of several.
    sentence : str
        May hold text of a store, which is drawn as text. "" adds no title.
    palette : mapping of str to str
        Colours by name.
    width : int
        Available width, in pixels.
    source : Source, optional
        The rows that its marks stand for.
    """
    if isinstance(chart, dict):
        chart = as_chart(chart)
    if sentence:
        shown = visible(sentence)
        title = {
            "text": wrapped(shown, max(width, 130), FONT_SIZE + 1, is_bold=True),
            "anchor": "start",
            "fontSize": FONT_SIZE + 1,
            "fontWeight": "bold",
            "color": palette["text"],
            "offset": 10,
        }
        chart = chart.properties(title=title, description=shown)
    result: Kind = displayable(chart, palette, source)
    return result
