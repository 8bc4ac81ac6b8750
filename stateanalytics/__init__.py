"""Analytics for fleets of coding agents, from the stores that orchestrators leave behind.

::

    import stateanalytics as sa

    snap = sa.read("state.db")
    snap.sql("SELECT severity, count(*) AS n FROM attention GROUP BY ALL ORDER BY severity")
    sa.report(snap).write_html("week.html")

The functions for a weekly review are at the top, the others in `failures`, `survival`, `detectors`,
`thresholds` and `errors`. The names are listed once, in the stub next to this file, and loaded when
they are first used, so that this import costs next to nothing.
"""

import sys
from difflib import get_close_matches
from functools import partial
from typing import Any

import lazy_loader

__version__ = "0.3.0"

_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _loaded(name)
    except AttributeError as error:
        if name in __all__:
            raise
        near = get_close_matches(name, __all__, 1)
        hint = f"Did you mean sa.{near[0]}?" if near else f"There are {', '.join(__all__)}."
        raise AttributeError(f"stateanalytics has no {name}. {hint}") from error


def _show_frames() -> None:
    """Let IPython show frames as `magics` does: with units, colours and notes on columns."""
    if shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)():
        for kind, name in (("text/html", "frame_as_html"), ("text/plain", "write_frame")):
            formatter = shell.display_formatter.formatters[kind]
            show = partial(_show_frame, name)
            formatter.for_type_by_name("polars.dataframe.frame", "DataFrame", show)


def _show_frame(name: str, *given: Any) -> Any:
    from stateanalytics import magics

    return getattr(magics, name)(*given)


_show_frames()


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext stateanalytics``: SQL cells with ``%%statesql``."""
    from stateanalytics.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext stateanalytics``."""
    from stateanalytics.magics import unload

    unload(shell)
