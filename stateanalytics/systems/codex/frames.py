"""The frames that only Codex fills: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame, frames_of

USAGE = ("n_input_tokens", "n_cached_tokens", "n_output_tokens", "n_reasoning_tokens")
SUMS = ("sum_input_tokens", "sum_cached_tokens", "sum_output_tokens", "sum_reasoning_tokens")
"""Usage of one answer, and of all up to it."""
_FRAMES = frames_of(__package__)
SESSIONS, TURNS, TOOLS, LINES = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Every frame of this system."""
    return _FRAMES
