"""Vega and Vega-Lite, in a JavaScript engine that has no files, no network and no page.

Both are as their makers publish them on npm (``vega`` 6.2.0, ``vega-lite`` 6.4.1); the
licence of both lies beside them.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stateanalytics.charts.text_width import WIDTHS
from stateanalytics.errors import ArgumentError

if TYPE_CHECKING:
    import quickjs

VERSIONS = {"vega": "6.2.0", "vega-lite": "6.4.1"}
STACK_BYTES = 8 * 2**20
"""Of the thread that draws, three quarters for QuickJS, whose megabyte is too little for Vega."""


def drawn(spec: dict[str, Any]) -> str:
    """A Vega-Lite specification as an SVG document.

    Raises
    ------
    ArgumentError
        If Vega does not draw it.
    """
    thread, engine = _engine(os.getpid())
    asked = json.dumps(spec, allow_nan=False)
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
    # QuickJS collects its garbage as it needs room; to ask it would collect all of Python's too.
    return str(draw(None))


@functools.cache
def _engine(_process_id: int) -> tuple[ThreadPoolExecutor, quickjs.Context]:
    """Everything loaded, and the one thread that may use it, which a fork would not have."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = ThreadPoolExecutor(1, thread_name_prefix="vega")
        # A thread is begun with its first work.
        engine = thread.submit(_loaded).result()
    finally:
        threading.stack_size(before)
    return thread, engine


def _loaded() -> quickjs.Context:
    import quickjs

    engine = quickjs.Context()
    engine.set_max_stack_size(STACK_BYTES * 3 // 4)
    engine.eval(f"var WIDTHS = {json.dumps(WIDTHS)};")
    for name in ("drawing.js", "vega.min.js", "vega-lite.min.js"):
        engine.eval(files(__name__).joinpath(name).read_text("utf-8"))
    return engine
