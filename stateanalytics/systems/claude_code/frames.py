"""The frames that only Claude Code fills; their columns are ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame
from stateanalytics.systems.columns import frames_from_csv

USAGE = (
    *("n_input_tokens", "n_cache_creation_tokens", "n_cache_read_tokens"),
    "n_output_tokens",
)
_OF_THREAD, _OF_FILE = ("source", "thread_id"), ("source", "file", "line_no")
_FRAMES = frames_from_csv(
    __package__,
    {
        "claude_sessions": (
            "one session or subagent of Claude Code: what its transcript says beyond `entities`",
            _OF_THREAD,
        ),
        "claude_turns": (
            "one turn of Claude Code: from a prompt to the next",
            (*_OF_THREAD, "turn_no"),
        ),
        "claude_messages": (
            "one answer of a model in Claude Code, counted once however its lines repeat it",
            (*_OF_THREAD, "message_id", "request_id"),
        ),
        "claude_tools": ("one tool call of Claude Code", (*_OF_THREAD, "tool_id")),
        "claude_lines": (
            "one record of a transcript of Claude Code, and what states read of it",
            _OF_FILE,
        ),
        "claude_blocks": (
            "one block of a message of Claude Code: text, thought, call or result of a tool",
            (*_OF_FILE, "place"),
        ),
    },
)
SESSIONS, TURNS, MESSAGES, TOOLS, LINES, BLOCKS = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Every frame of this system."""
    return _FRAMES
