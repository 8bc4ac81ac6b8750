"""The features and detectors of Claude Code: its own timeouts, and what lies beyond them."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.systems.base import Features
from stateanalytics.systems.claude_code import LIMITS, frames
from stateanalytics.systems.claude_code.constants import STREAM_S, SUBAGENT_S
from stateanalytics.systems.claude_code.folding import (
    BASH_GRACE_S,
    BASH_S,
    MCP_PATIENCE_S,
    PATIENCE_S,
)
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.threads import features_from

_TOLD = {
    "record_age_s": (
        "last_sign_at",
        "since the last sign of life of it, or of the subagents it waits for",
    ),
    "own_patience_s": (
        "patience_s",
        "how long it may be silent, by what it waits for; null: as usual",
    ),
    "open_tool_name": ("open_tool", "tool that it waits for"),
    "open_tool_age_s": ("open_since", "since that was called"),
    "open_tool_timeout_s": ("open_timeout_s", "time limit of that call, where it asked for one"),
    "retry_due_age_s": (
        "retry_at",
        "since a retry was due that nothing followed; negative: to come",
    ),
}


def features() -> Features:
    """The columns that this system's detectors read: turns have them, others null."""
    return features_from(frames.TURNS, _TOLD)


def detectors() -> tuple[Detector, ...]:
    """The detectors of Claude Code; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_tool_name")
    silent = {"measures": "record_age_s", "comparison": ">="}
    waits = silent | {"scope": situation == "awaiting_model"}
    called = {"measures": "open_tool_age_s", "scope": situation == "open_tool"}
    is_bash = tool == "Bash"
    usual = pl.col("own_patience_s").fill_null(LIMITS["stalled_after_s"])
    is_open = situation.is_in(["awaiting_model", "open_tool"])
    limit = pl.col("open_tool_timeout_s").fill_null(BASH_S) + BASH_GRACE_S
    own = f"its own limit, else {how_long(BASH_S)}, and {how_long(BASH_GRACE_S)}"
    by_wait = f"; a command {own}; a tool of a server {how_long(MCP_PATIENCE_S)}"
    return catalogue(
        __package__,
        {
            "claude_code_stalled": silent
            | {
                "threshold_s": usual,
                "scope": is_open,
                "limits": how_long(LIMITS["stalled_after_s"]) + by_wait,
            },
            "claude_code_stream": waits | {"threshold_s": STREAM_S},
            "claude_code_subagent": waits
            | {"threshold_s": SUBAGENT_S, "when": pl.col("kind") == "subagent"},
            "claude_code_command": called | {"threshold_s": limit, "when": is_bash, "limits": own},
            "claude_code_tool": called
            | {"threshold_s": PATIENCE_S, "when": ~is_bash & ~tool.str.starts_with("mcp__")},
            "claude_code_retry_overdue": {
                "measures": "retry_due_age_s",
                "threshold_s": LIMITS["retry_grace_s"],
                "scope": situation == "retrying",
            },
        },
    )
