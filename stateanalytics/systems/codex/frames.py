"""The frames that only Codex fills; their columns are ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame
from stateanalytics.systems.columns import frames_from_csv

USAGE = ("n_input_tokens", "n_cached_tokens", "n_output_tokens", "n_reasoning_tokens")
SUMS = ("sum_input_tokens", "sum_cached_tokens", "sum_output_tokens", "sum_reasoning_tokens")
"""Usage of one answer, and of all up to it."""
_OF_THREAD = ("source", "thread_id")
_FRAMES = frames_from_csv(
    __package__,
    {
        "codex_sessions": (
            "one thread of Codex: what its rollout says beyond `entities`",
            _OF_THREAD,
        ),
        "codex_turns": ("one turn of Codex", (*_OF_THREAD, "turn_no")),
        "codex_tools": ("one tool call of Codex", (*_OF_THREAD, "call_id")),
        "codex_lines": (
            "one record of a rollout of Codex, and what states read of it",
            ("source", "file", "line_no"),
        ),
    },
)
SESSIONS, TURNS, TOOLS, LINES = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Every frame of this system."""
    return _FRAMES
