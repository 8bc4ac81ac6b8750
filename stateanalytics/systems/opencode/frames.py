"""The frames that only opencode fills; the columns of most are ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame
from stateanalytics.systems.columns import frames_from_csv
from stateanalytics.systems.opencode.record_frames import RECORDS

_OF_SESSION = ("source", "session_id")
_FRAMES = frames_from_csv(
    __package__,
    {
        "opencode_executions": (
            "one execution of an opencode session: one time that it worked through its inputs",
            (*_OF_SESSION, "exec_no"),
        ),
        "opencode_inputs": (
            "one input of an opencode session: a prompt, or what a program put in",
            (*_OF_SESSION, "input_id"),
        ),
        "opencode_sessions": (
            "one opencode session: what its events and its row say beyond `entities`",
            _OF_SESSION,
        ),
        "opencode_steps": (
            "one step of opencode: one call of a model, with its attempts",
            (*_OF_SESSION, "message_id"),
        ),
        "opencode_tools": (
            "one tool call of opencode",
            (*_OF_SESSION, "message_id", "call_id"),
        ),
    },
)
EXECUTIONS, INPUTS, SESSIONS, STEPS, TOOLS = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return (*_FRAMES, *RECORDS)
