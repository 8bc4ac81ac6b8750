"""The thresholds, features and detectors of Claude Code, and its own timeouts."""

from __future__ import annotations

from functools import cache

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import how_long
from stateanalytics.systems.base import Detecting, today_s_of
from stateanalytics.systems.claude_code import LIMITS, NAME, folding, frames
from stateanalytics.systems.claude_code.folding import BASH_GRACE_S, BASH_S, OPEN, PATIENCE_S
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.situations import silence_ends_of
from stateanalytics.systems.threads import features_from, tool_runs

_TODAY_S = today_s_of(__package__)


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row per turn that is over; a death is noticed at the next prompt."""
    return silence_ends_of(facts.detail(frames.TURNS), NAME, OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of Bash calls, in the shape of `thresholds.evidence.RUNS`."""
    is_bash = pl.col("name") == "Bash"
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, is_bash, "Bash")


@cache
def detecting() -> Detecting:
    """The detectors, and the columns that only they read: null for everything but turns."""
    return Detecting(detectors=detectors(), features=features_from(__package__, frames.TURNS))


def detectors() -> tuple[Detector, ...]:
    """The detectors of Claude Code; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_tool_name")
    waits, called = ({"scope": situation == word} for word in ("awaiting_model", "open_tool"))
    is_bash = tool == "Bash"
    limit = pl.col("open_tool_timeout_s").fill_null(BASH_S) + BASH_GRACE_S
    bash_limit = f"its own limit, else {how_long(BASH_S)}, and {how_long(BASH_GRACE_S)}"
    return catalogue(
        __package__,
        {
            "claude_code_stalled": {
                "threshold_s": pl.col("own_patience_s").fill_null(LIMITS["stalled_after_s"]),
                "scope": situation.is_in(["awaiting_model", "open_tool"]),
                "limits": f"{how_long(LIMITS['stalled_after_s'])}; a command {bash_limit}; "
                f"a tool of a server {how_long(folding.MCP_PATIENCE_S)}",
            },
            "claude_code_stream": waits | {"threshold_s": _TODAY_S["claude_code.stream"]},
            "claude_code_subagent": waits
            | {
                "threshold_s": _TODAY_S["claude_code.subagent"],
                "when": pl.col("kind") == "subagent",
            },
            "claude_code_command": called
            | {"threshold_s": limit, "when": is_bash, "limits": bash_limit},
            "claude_code_tool": called
            | {"threshold_s": PATIENCE_S, "when": ~is_bash & ~tool.str.starts_with("mcp__")},
            "claude_code_retry_overdue": {
                "threshold_s": LIMITS["retry_grace_s"],
                "scope": situation == "retrying",
            },
        },
    )
