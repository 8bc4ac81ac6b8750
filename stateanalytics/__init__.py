"""Analytics for fleets of coding agents, from the stores that orchestrators leave behind.

::

    import stateanalytics as sa

    snap = sa.read("state.db")
    snap.sql("SELECT severity, count(*) AS n FROM attention GROUP BY ALL ORDER BY severity")
    sa.report(snap).write_html("week.html")

What a week needs stands at the top; the rest in `failures`, `survival`, `detectors`,
`thresholds` and `errors`. The names are listed once, in the stub next to this file, and
loaded when they are first used, so that this import costs next to nothing.
"""

from typing import Any

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext stateanalytics``: SQL cells with ``%%statesql``."""
    from stateanalytics.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext stateanalytics``."""
    from stateanalytics.magics import unload

    unload(shell)
