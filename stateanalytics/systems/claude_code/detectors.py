"""The thresholds, features and detectors of Claude Code, and its own timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import how_long
from stateanalytics.systems.base import Constant, Features
from stateanalytics.systems.claude_code import LIMITS, NAME, frames
from stateanalytics.systems.claude_code.folding import (
    BASH_GRACE_S,
    BASH_S,
    MCP_PATIENCE_S,
    OPEN,
    PATIENCE_S,
)
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.threads import features_from, silence_ends_of, tool_runs

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

_PROGRAM = "Claude Code"
_LONGEST_BASH_S, _STREAM_S, _SUBAGENT_S = 600.0, 300.0, 600.0
_FEATURES = {
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


def constants(policy: Policy) -> list[Constant]:
    """Our limit of silence, and the timeouts that Claude Code has itself."""
    bash: dict[str, Any] = {"unit": "ms", "is_configurable": True}
    return [
        Constant(
            "claude_code.stalled", NAME, "stateanalytics policy",
            ("limits", NAME, "stalled_after_s"), policy.limit(NAME, "stalled_after_s"),
            "no record for so long while it waits for the model: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        *(
            Constant(f"{NAME}.{name}", NAME, place, (path,), today_s, meaning, evidence, **more)
            for name, place, path, today_s, meaning, evidence, more in (
                ("stream", _PROGRAM, "stream watchdog", _STREAM_S,
                 "the model's stream is silent for longer: aborted and retried", "silences", {}),
                ("subagent", _PROGRAM, "subagent watchdog", _SUBAGENT_S,
                 "a subagent's stream is silent for longer: it fails", "silences",
                 {"kind": "subagent", "mistake": "lost_run"}),
                ("bash", "environment", "BASH_DEFAULT_TIMEOUT_MS", BASH_S,
                 "a longer command goes to the background; killed before 2.0.19", "commands", bash),
                ("bash_most", "environment", "BASH_MAX_TIMEOUT_MS", _LONGEST_BASH_S,
                 "no command may ask for a longer limit", "commands", bash),
            )
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row per turn that is over; a death is noticed at the next prompt."""
    return silence_ends_of(facts, frames.TURNS, NAME, OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of Bash calls, in the shape of `thresholds.evidence.RUNS`."""
    is_bash = pl.col("name") == "Bash"
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), NAME, is_bash, "Bash")


def features() -> Features:
    """The columns that this system's detectors read; null for everything but turns."""
    return features_from(frames.TURNS, _FEATURES)


def detectors() -> tuple[Detector, ...]:
    """The detectors of Claude Code; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_tool_name")
    silent = {"measures": "record_age_s", "comparison": ">="}
    waits = silent | {"scope": situation == "awaiting_model"}
    called = {"measures": "open_tool_age_s", "scope": situation == "open_tool"}
    is_bash = tool == "Bash"
    limit = pl.col("open_tool_timeout_s").fill_null(BASH_S) + BASH_GRACE_S
    bash_limit = f"its own limit, else {how_long(BASH_S)}, and {how_long(BASH_GRACE_S)}"
    return catalogue(
        __package__,
        {
            "claude_code_stalled": silent
            | {
                "threshold_s": pl.col("own_patience_s").fill_null(LIMITS["stalled_after_s"]),
                "scope": situation.is_in(["awaiting_model", "open_tool"]),
                "limits": f"{how_long(LIMITS['stalled_after_s'])}; a command {bash_limit}; "
                f"a tool of a server {how_long(MCP_PATIENCE_S)}",
            },
            "claude_code_stream": waits | {"threshold_s": _STREAM_S},
            "claude_code_subagent": waits
            | {"threshold_s": _SUBAGENT_S, "when": pl.col("kind") == "subagent"},
            "claude_code_command": called
            | {"threshold_s": limit, "when": is_bash, "limits": bash_limit},
            "claude_code_tool": called
            | {"threshold_s": PATIENCE_S, "when": ~is_bash & ~tool.str.starts_with("mcp__")},
            "claude_code_retry_overdue": {
                "measures": "retry_due_age_s",
                "threshold_s": LIMITS["retry_grace_s"],
                "scope": situation == "retrying",
            },
        },
    )
