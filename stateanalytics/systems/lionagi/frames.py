"""The frames that only lionagi fills: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame, frames_of

_FRAMES = frames_of(__package__)
SCHEDULES, FIRES, DISPOSITIONS, DECISIONS, RUNS, SHOWS_ON_DISK = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return _FRAMES


def dispositions() -> Frame:
    """The one of what operators decided."""
    return DISPOSITIONS
