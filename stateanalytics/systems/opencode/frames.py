"""The frames that only opencode fills: the tables of ``data/``, and `record_frames.RECORDS`."""

from __future__ import annotations

from stateanalytics.core.schema import Frame, frames_of
from stateanalytics.systems.opencode.record_frames import RECORDS

_FRAMES = frames_of(__package__)
EXECUTIONS, INPUTS, SESSIONS, STEPS, TOOLS = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return (*_FRAMES, *RECORDS)
