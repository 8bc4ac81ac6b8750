"""The page's side of `explore`: what is told to it, and what it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent


class ExploringPanel(anywidget.AnyWidget):
    """Places and texts go there, chosen places come back; nothing else crosses."""

    _esm = (_HERE / "exploring.js").read_text("utf-8")
    _css = (_HERE / "exploring.css").read_text("utf-8")

    dimensions: traitlets.List[Any] = traitlets.List().tag(sync=True)
    answer: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    chosen: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
