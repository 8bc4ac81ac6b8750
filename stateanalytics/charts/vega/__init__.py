"""Vega: run without a browser for pages, and as a module of JavaScript for notebooks.

The files are as their authors publish them on npm, in the versions of `VERSIONS` and under the
licence in ``LICENSE``.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import ArgumentError

if TYPE_CHECKING:
    import quickjs

VERSIONS = {"vega": "6.2.0", "vega-lite": "6.4.1"}
"""Versions of the libraries that draw the charts of a page."""
_EMBED = "vega-embed"
"""7.3.0: tooltips and interaction in a notebook."""
# Thousandths of the font size, from the blank to the tilde.
LETTERS = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
    636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
    1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
    603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
    500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
    635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
)  # fmt: skip
OTHER, BOLD = 1000, 1.13
"""How wide text is in the widest of the fonts that a page may have (see `style`)."""
STACK_BYTES = 8 * 2**20
"""Stack of the drawing thread, three quarters of it for QuickJS: its default is too small."""


def drawn(spec: dict[str, Any]) -> str:
    """A Vega-Lite specification as an SVG document.

    Raises
    ------
    ArgumentError
        If Vega does not draw it.
    """
    thread, engine = started(os.getpid())
    # No labels of single marks, a tenth of the work: the whole drawing gets one (`svg.inert`).
    config = {**spec.get("config", {}), "aria": False}
    asked = json.dumps({**spec, "config": config}, allow_nan=False)
    svg, problem = json.loads(thread.submit(_answer, engine, asked).result())
    if problem:
        raise ArgumentError(
            f"Vega cannot draw this chart: {problem:.300}",
            "chart.to_dict() shows what it was given; data at an address are not fetched",
        )
    return str(svg)


def _answer(engine: quickjs.Context, specification: str) -> str:
    draw = engine.get("draw")
    draw(specification)
    while engine.execute_pending_job():
        pass
    # QuickJS collects its garbage by itself; an explicit collection would run Python's, too.
    return str(draw(None))


@functools.cache
def started(_process_id: int) -> tuple[ThreadPoolExecutor, quickjs.Context]:
    """The loaded engine and the only thread that may use it; a forked process needs its own."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = ThreadPoolExecutor(1, thread_name_prefix="vega")
        # The thread starts with its first task.
        engine = thread.submit(_loaded).result()
    finally:
        threading.stack_size(before)
    return thread, engine


def _loaded() -> quickjs.Context:
    import quickjs

    engine = quickjs.Context()
    engine.set_max_stack_size(STACK_BYTES * 3 // 4)
    widths = {"ascii": LETTERS, "other": OTHER, "bold": BOLD}
    engine.eval(f"var WIDTHS = {json.dumps(widths)};")
    for name in ("drawing.js", *(f"{library}.min.js" for library in VERSIONS)):
        engine.eval(_text(name))
    return engine


def bundled(module: str) -> str:
    """The module of a widget, with bundled libraries in place of imports from a network.

    Parameters
    ----------
    module : str
        JavaScript that imports ``vegaEmbed`` and ``lodashDebounce``, as Altair's widget does.
    """
    lines = module.splitlines()
    own = [line for line in lines if not line.startswith("import ")]
    if own == lines:  # `alt.JupyterChart.enable_offline()` has bundled it already.
        return module
    # Each library gets its own exports, because the page may have another module loader.
    loads = (
        f"load({json.dumps(name)}, function (exports, module, require, define) {{\n"
        f"{_text(f'{name}.min.js')}\n}});"
        for name in (*VERSIONS, _EMBED)
    )
    return "\n".join([_text("notebook.js"), *loads, f'const vegaEmbed = loaded["{_EMBED}"];', *own])


def _text(name: str) -> str:
    # As in `package_text`: to import `importlib.resources` takes a tenth of the time.
    return Path(__file__).with_name(name).read_text("utf-8")
