"""How a chart shows itself in a notebook: as a drawing, with nothing that runs.

Altair shows a chart by a script that holds its data as JSON, fetched libraries around it:
a failure message with ``</script>`` in it breaks out, and without a network there is
nothing to see. Ours are shown as the same static drawing that stands in the report; the
chart itself stays an Altair chart, with its data in ``.data``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

Chart = TypeVar("Chart")


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
        said = chart.description if isinstance(chart.description, str) else "chart"
        drawn = to_svg(chart, name="chart", label=said)
        # Notebooks may be dark, and the colours are made for light ground.
        ground = f'style="background:#fff;{_STYLE}'
        return {
            "text/html": f"<figure>{drawn.replace(_STYLE_BEGINS, ground, 1)}</figure>",
            "text/plain": f"{type(self).__name__}: {said}",
        }


_STYLE = "padding:8px;box-sizing:content-box;height:auto;"
_STYLE_BEGINS = 'style="'


@cache
def _kind(kind: Any) -> type:
    """A chart class whose instances show themselves as drawings."""
    return kind if issubclass(kind, _Drawing) else type(kind.__name__, (_Drawing, kind), {})
