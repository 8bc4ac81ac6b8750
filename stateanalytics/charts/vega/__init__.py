"""Vega and Vega-Lite, in a JavaScript engine that has no files, no network and no page.

Both are as their makers publish them on npm (``vega`` 6.2.0, ``vega-lite`` 6.4.1); the
licence of both lies beside them.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stateanalytics.charts.text_width import WIDTHS
from stateanalytics.errors import ArgumentError

if TYPE_CHECKING:
    import quickjs

VERSIONS = {"vega": "6.2.0", "vega-lite": "6.4.1"}


def drawn(spec: dict[str, Any]) -> str:
    """A Vega-Lite specification as an SVG document.

    Raises
    ------
    ArgumentError
        If Vega does not draw it.
    """
    engine, turn = _engine(os.getpid())
    with turn:
        engine(json.dumps(spec, allow_nan=False))
        while engine.execute_pending_job():
            pass
        svg, problem = json.loads(engine(None))
    if problem:
        raise ArgumentError(
            f"Vega cannot draw this chart: {problem:.300}",
            "chart.to_dict() shows what it was given; data at an address are not fetched",
        )
    return str(svg)


@functools.cache
def _engine(_process_id: int) -> tuple[quickjs.Function, threading.Lock]:
    """Everything loaded, in a thread of its own, which a fork would not have."""
    import quickjs

    here = files(__name__)
    names = ("drawing.js", "vega.min.js", "vega-lite.min.js")
    code = [f"var WIDTHS = {json.dumps(WIDTHS)};"]
    code += [here.joinpath(name).read_text("utf-8") for name in names]
    return quickjs.Function("draw", "\n".join(code), own_executor=True), threading.Lock()
