"""The thresholds, features and detectors of Codex, and its own timeouts."""

from __future__ import annotations

from functools import cache

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import how_long
from stateanalytics.systems.base import Detecting, today_s_of
from stateanalytics.systems.codex import LIMITS, NAME, folding, frames
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.situations import silence_ends_of
from stateanalytics.systems.threads import features_from, tool_runs

_STREAM_S, _STREAM_RETRIES = today_s_of(__package__)["codex.stream"], 5


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row per turn that is over; a death is noticed when the next turn begins."""
    return silence_ends_of(facts.detail(frames.TURNS), NAME, folding.OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of commands with a time limit, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, folding.is_shell(), "shell")


def server_tools(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of calls of MCP servers, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, folding.is_mcp_tool(), "mcp")


@cache
def detecting() -> Detecting:
    """The detectors, and the columns that only they read: null for everything but turns."""
    return Detecting(detectors=detectors(), features=features_from(__package__, frames.TURNS))


def detectors() -> tuple[Detector, ...]:
    """The detectors of Codex; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_call_name")
    waits, called = ({"scope": situation == word} for word in ("awaiting_model", "open_tool"))
    limit = pl.col("open_call_timeout_s").fill_null(folding.SHELL_S) + folding.GRACE_S
    shell_limit = (
        f"its own limit, else {how_long(folding.SHELL_S)}, and {how_long(folding.GRACE_S)}"
    )
    server_limit = f"a tool of a server {how_long(folding.MCP_S + folding.GRACE_S)}"
    return catalogue(
        __package__,
        {
            "codex_stalled": {
                "threshold_s": pl.col("call_patience_s").fill_null(LIMITS["stalled_after_s"]),
                "scope": situation.is_in(list(folding.OPEN)) & (situation != "question"),
                "limits": f"{how_long(LIMITS['stalled_after_s'])}; a command {shell_limit}; "
                f"{server_limit}; all else {how_long(folding.PATIENCE_S)}",
            },
            "codex_stream": waits | {"threshold_s": _STREAM_S},
            "codex_retries": waits | {"threshold_s": _STREAM_S * _STREAM_RETRIES},
            "codex_command": called
            | {
                "threshold_s": limit,
                "when": tool.is_in(list(folding.SHELL)),
                "limits": shell_limit,
            },
            "codex_mcp": called
            | {
                "threshold_s": folding.MCP_S + folding.GRACE_S,
                "when": tool.str.starts_with("mcp__"),
                "limits": f"{how_long(folding.MCP_S)}, and {how_long(folding.GRACE_S)}",
            },
        },
    )
