"""Every rule that calls work stale, stuck, slow or dead, and how far they agree."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
