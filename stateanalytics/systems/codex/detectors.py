"""The features and detectors of Codex: its own timeouts, and what lies beyond them."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.systems.base import Features
from stateanalytics.systems.codex import LIMITS, frames
from stateanalytics.systems.codex.constants import STREAM_RETRIES, STREAM_S
from stateanalytics.systems.codex.tools import GRACE_S, MCP_S, PATIENCE_S, SHELL, SHELL_S
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.threads import features_from

_TOLD = {
    "rollout_age_s": (
        "last_sign_at",
        "since the last record of it, or of the subagents it waits for",
    ),
    "call_patience_s": (
        "patience_s",
        "how long it may be silent, by what it waits for; null: as usual",
    ),
    "open_call_name": ("open_tool", "tool that it waits for"),
    "open_call_age_s": ("open_since", "since that was called"),
    "open_call_timeout_s": ("open_timeout_s", "time limit of that call, where it asked for one"),
}


def features() -> Features:
    """The columns that this system's detectors read: turns have them, others null."""
    return features_from(frames.TURNS, _TOLD)


def detectors() -> tuple[Detector, ...]:
    """The detectors of Codex; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_call_name")
    silent = {"measures": "rollout_age_s", "comparison": ">="}
    waits = silent | {"scope": situation == "awaiting_model"}
    called = {"measures": "open_call_age_s", "scope": situation == "open_tool"}
    usual = pl.col("call_patience_s").fill_null(LIMITS["stalled_after_s"])
    is_open = situation.is_in(["awaiting_model", "awaiting_turn_end", "open_tool"])
    limit = pl.col("open_call_timeout_s").fill_null(SHELL_S) + GRACE_S
    own = f"its own limit, else {how_long(SHELL_S)}, and {how_long(GRACE_S)}"
    others = f"a tool of a server {how_long(MCP_S + GRACE_S)}; all else {how_long(PATIENCE_S)}"
    return catalogue(
        __package__,
        {
            "codex_stalled": silent
            | {
                "threshold_s": usual,
                "scope": is_open,
                "limits": f"{how_long(LIMITS['stalled_after_s'])}; a command {own}; {others}",
            },
            "codex_stream": waits | {"threshold_s": STREAM_S},
            "codex_retries": waits | {"threshold_s": STREAM_S * STREAM_RETRIES},
            "codex_command": called
            | {"threshold_s": limit, "when": tool.is_in(list(SHELL)), "limits": own},
            "codex_mcp": called
            | {
                "threshold_s": MCP_S + GRACE_S,
                "when": tool.str.starts_with("mcp__"),
                "limits": f"{how_long(MCP_S)}, and {how_long(GRACE_S)}",
            },
        },
    )
