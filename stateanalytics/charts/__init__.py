"""Frames drawn with Altair. No statistics: every number is in the frame already.

A chart is an Altair chart in the colours of the report: it can be layered, concatenated and
configured, and shows itself in a notebook without a network.
"""

import lazy_loader

from stateanalytics.errors import with_gone

_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_INSTEAD = {"chart_rate": 'chart_compare(snap.compare("failed", by=["project"], every="1d"))'}
__getattr__ = with_gone(_loaded, "charts", _INSTEAD)
