"""The frames that only Agent Orchestrator fills; their columns are ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame
from stateanalytics.systems.columns import frames_from_csv

_FRAMES = frames_from_csv(
    __package__,
    {
        "ao_sessions": (
            "one session record of Agent Orchestrator: a file of any generation, "
            "a row of the Go database",
            ("source", "path"),
        ),
        "ao_decisions": (
            "what one line of a log says of a session's axes: how they stood from then on",
            ("source", "entity_id", "at", "seq"),
        ),
        "ao_work": (
            "one turn, review, switch of agent or interface, or start of a session: Go",
            ("source", "entity_type", "entity_id"),
        ),
        "ao_usage": (
            "what one answer used, or one chat up to its last write: Go",
            ("source", "entity_id", "at", "measured", "model"),
        ),
        "ao_circumstances": (
            "what else is known of a session: Go",
            ("source", "entity_id", "code", "at", "detail"),
        ),
    },
)
SESSIONS, DECISIONS, WORK, USAGE, CIRCUMSTANCES = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return _FRAMES
