"""Charts in a notebook: tooltips, selections, moving axes, and a safe way to show themselves."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stateanalytics.charts.style import FONT_SIZE, Palette, wrapped
from stateanalytics.core.formatting import dollars_each, how_long_each
from stateanalytics.core.redaction import redact_texts
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import needing

if TYPE_CHECKING:
    import altair as alt

    from stateanalytics.charts.selecting import SelectableChart


LONGEST_TOLD = 240
FAINT = 0.25
"""How opaque marks are beside those that are chosen."""
_DRAG = "[pointerdown[{key}event.shiftKey], window:pointerup] > window:pointermove!"


def told(frame: pl.DataFrame, **columns: str) -> tuple[pl.DataFrame, list[alt.Tooltip]]:
    """What a mark says of its row: each name, and the column that is told under it.

    Parameters
    ----------
    frame : polars.DataFrame
        What is drawn.
    **columns : str
        Name that people read, with ``_`` for blanks, to column; those that are not there
        are left out.

    Returns
    -------
    tuple of polars.DataFrame and list of altair.Tooltip
        The frame with a text a column: moments in UTC, durations in words, amounts in USD.

    Examples
    --------
    >>> runs = pl.DataFrame({"elapsed_s": [5400.0], "cost_usd": [0.5]})
    >>> frame, tips = told(runs, took="elapsed_s", cost="cost_usd", agent="agent")
    >>> frame.row(0)
    (5400.0, 0.5, '1 h 30 min', '$0.50')
    >>> [tip.to_dict()["title"] for tip in tips]
    ['took', 'cost']
    """
    import altair as alt

    there = {name: column for name, column in columns.items() if column in frame.columns}
    texts = [
        _text(column, frame.schema[column]).fill_null("–").alias(f"told_{name}")
        for name, column in there.items()
    ]
    tips = [
        alt.Tooltip(f"told_{name}:N", title=name.strip("_").replace("_", " ")) for name in there
    ]
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
        lambda text: shortened(visible(text), LONGEST_TOLD), return_dtype=pl.String
    )


def click(name: str, *fields: str, in_legend: bool = False) -> alt.Parameter:
    """Marks are chosen by a click, by what they have in these columns; or in the legend."""
    import altair as alt

    legend: dict[str, Any] = {"bind": "legend"} if in_legend else {}
    return alt.selection_point(name=name, fields=list(fields), **legend)


def drag(name: str, *encodings: str) -> alt.Parameter:
    """A stretch is chosen by a drag."""
    import altair as alt

    axes: Any = list(encodings or ("x",))
    return alt.selection_interval(name=name, encodings=axes, on=_DRAG.format(key="!"), zoom=False)


def moving(name: str, *encodings: str) -> alt.Parameter:
    """Axes are moved by a drag with shift and stretched by the wheel with ctrl."""
    import altair as alt

    axes: Any = list(encodings or ("x",))
    return alt.selection_interval(
        name=name,
        encodings=axes,
        bind="scales",
        on=_DRAG.format(key=""),
        translate=_DRAG.format(key=""),
        zoom="wheel![event.ctrlKey]",
    )


def faint(chosen: alt.Parameter | alt.PredicateComposition, opacity: float = 1.0) -> Any:
    """The opacity of a mark: less where others are chosen."""
    import altair as alt

    return alt.when(chosen).then(alt.value(opacity)).otherwise(alt.value(FAINT * opacity))


Chart = TypeVar("Chart")
Kind = TypeVar("Kind")

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


def titled(chart: Chart, sentence: str, *, palette: Palette, width: int) -> Chart:
    """The chart under its sentence, which is also its description for those who cannot see.

    Parameters
    ----------
    chart : altair top-level chart
    sentence : str
        Text of a store may be in it: it is drawn as text. "" leaves the chart as it is.
    palette : mapping of str to str
        Colours by name.
    width : int
        Room, in pixels.
    """
    import altair as alt

    if not sentence:
        return chart
    plain: Any = chart
    shown = visible(sentence)
    lines = wrapped(shown, max(width, 130), FONT_SIZE + 1, is_bold=True)
    made: Chart = plain.properties(
        title=alt.Title(
            lines,
            anchor="start",
            fontSize=FONT_SIZE + 1,
            fontWeight="bold",
            color=palette["text"],
            offset=10,
        ),
        description=shown,
    )
    return made


def finished(
    kind: type[Kind],
    chart: Any,
    sentence: str,
    *,
    palette: Palette,
    width: int,
    source: Source | None = None,
) -> Kind:
    """The chart, of a kind, under its sentence, in our colours: see `titled` and `living`."""
    made: Kind = living(titled(chart, sentence, palette=palette, width=width), palette, source)
    return made
