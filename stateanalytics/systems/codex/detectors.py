"""The thresholds, features and detectors of Codex, and its own timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import how_long
from stateanalytics.systems.base import Constant, Features
from stateanalytics.systems.codex import LIMITS, NAME, frames
from stateanalytics.systems.codex.folding import (
    GRACE_S,
    MCP_S,
    OPEN,
    PATIENCE_S,
    SHELL,
    SHELL_S,
    is_mcp_tool,
    is_shell,
)
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.threads import features_from, silence_ends_of, tool_runs

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

_PROGRAM, _SETTINGS = "Codex", "config.toml"
_STREAM_S, _STREAM_RETRIES = 300.0, 5
_FEATURES = {
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


def constants(policy: Policy) -> list[Constant]:
    """Our limit of silence, and the timeouts that Codex has itself."""
    return [
        Constant(
            "codex.stalled", NAME, "stateanalytics policy",
            ("limits", NAME, "stalled_after_s"), policy.limit(NAME, "stalled_after_s"),
            "no record for so long while it waits for the model: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        Constant(
            "codex.stream", NAME, _SETTINGS, ("model_providers", "stream_idle_timeout_ms"),
            _STREAM_S, "the model's stream is silent for longer: it is tried again, five times",
            "silences", unit="ms", is_configurable=True,
        ),
        Constant(
            "codex.shell", NAME, _PROGRAM, ("timeout_ms",), SHELL_S,
            "a longer command that asked for no limit of its own is killed",
            "commands", unit="ms", mistake="lost_run",
        ),
        Constant(
            "codex.mcp", NAME, _SETTINGS, ("mcp_servers", "tool_timeout_sec"), MCP_S,
            "a longer call of a server's tool fails",
            "server_tools", mistake="lost_run", is_configurable=True,
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row per turn that is over; a death is noticed when the next turn begins."""
    return silence_ends_of(facts, frames.TURNS, NAME, OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of commands with a time limit, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, is_shell(), "shell")


def server_tools(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of calls of MCP servers, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, is_mcp_tool(), "mcp")


def features() -> Features:
    """The columns that this system's detectors read; null for everything but turns."""
    return features_from(frames.TURNS, _FEATURES)


def detectors() -> tuple[Detector, ...]:
    """The detectors of Codex; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_call_name")
    silent = {"measures": "rollout_age_s", "comparison": ">="}
    waits = silent | {"scope": situation == "awaiting_model"}
    called = {"measures": "open_call_age_s", "scope": situation == "open_tool"}
    limit = pl.col("open_call_timeout_s").fill_null(SHELL_S) + GRACE_S
    shell_limit = f"its own limit, else {how_long(SHELL_S)}, and {how_long(GRACE_S)}"
    server_limit = f"a tool of a server {how_long(MCP_S + GRACE_S)}"
    return catalogue(
        __package__,
        {
            "codex_stalled": silent
            | {
                "threshold_s": pl.col("call_patience_s").fill_null(LIMITS["stalled_after_s"]),
                "scope": situation.is_in(list(OPEN)),
                "limits": f"{how_long(LIMITS['stalled_after_s'])}; a command {shell_limit}; "
                f"{server_limit}; all else {how_long(PATIENCE_S)}",
            },
            "codex_stream": waits | {"threshold_s": _STREAM_S},
            "codex_retries": waits | {"threshold_s": _STREAM_S * _STREAM_RETRIES},
            "codex_command": called
            | {"threshold_s": limit, "when": tool.is_in(list(SHELL)), "limits": shell_limit},
            "codex_mcp": called
            | {
                "threshold_s": MCP_S + GRACE_S,
                "when": tool.str.starts_with("mcp__"),
                "limits": f"{how_long(MCP_S)}, and {how_long(GRACE_S)}",
            },
        },
    )
