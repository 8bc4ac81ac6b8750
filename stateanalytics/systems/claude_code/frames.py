"""The frames that only Claude Code fills: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame, frames_of

USAGE = (
    *("n_input_tokens", "n_cache_creation_tokens", "n_cache_read_tokens"),
    "n_output_tokens",
)
_FRAMES = frames_of(__package__)
SESSIONS, TURNS, MESSAGES, COSTS, TOOLS, LINES, BLOCKS = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Every frame of this system."""
    return _FRAMES
