"""Why work fails: reason codes, message templates, clusters of both, each cause counted once."""

import lazy_loader

from stateanalytics.errors import with_gone

_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_INSTEAD = {"rates": 'snap.compare("failed", by=["project"], every="1d")'}
__getattr__ = with_gone(_loaded, "failures", _INSTEAD)
