"""The frames that only Agent Orchestrator fills: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame, frames_of

_FRAMES = frames_of(__package__)
SESSIONS, DECISIONS, WORK, USAGE, CIRCUMSTANCES = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return _FRAMES
