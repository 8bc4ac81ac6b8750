"""When open work of Claude Code counts as stalled, and what ends a silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.base import Constant
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.folding import BASH_S
from stateanalytics.systems.claude_code.states import SYSTEM
from stateanalytics.systems.claude_code.turns import OPEN
from stateanalytics.systems.threads import silence_ends_of, tool_runs

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

_PROGRAM = "Claude Code"
BASH_MOST_S, STREAM_S, SUBAGENT_S = 600.0, 300.0, 600.0


def constants(policy: Policy) -> list[Constant]:
    """Our limit of silence, and the timeouts that Claude Code has itself."""
    bash: dict[str, Any] = {"unit": "ms", "is_configurable": True}
    return [
        Constant(
            "claude_code.stalled", SYSTEM, "stateanalytics policy",
            ("limits", SYSTEM, "stalled_after_s"), policy.limit(SYSTEM, "stalled_after_s"),
            "no record for so long while it waits for the model: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        *(
            Constant(f"{SYSTEM}.{name}", SYSTEM, place, (path,), today_s, meaning, evidence, **more)
            for name, place, path, today_s, meaning, evidence, more in (
                ("stream", _PROGRAM, "stream watchdog", STREAM_S,
                 "the model's stream is silent for longer: aborted and retried", "silences", {}),
                ("subagent", _PROGRAM, "subagent watchdog", SUBAGENT_S,
                 "a subagent's stream is silent for longer: it fails", "silences",
                 {"kind": "subagent", "mistake": "lost_run"}),
                ("bash", "environment", "BASH_DEFAULT_TIMEOUT_MS", BASH_S,
                 "a longer command goes to the background; killed before 2.0.19", "commands", bash),
                ("bash_most", "environment", "BASH_MAX_TIMEOUT_MS", BASH_MOST_S,
                 "no command may ask for a longer limit", "commands", bash),
            )
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row a turn that is over; that one died is noticed at the next prompt."""
    return silence_ends_of(facts, frames.TURNS, SYSTEM, OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of Bash calls, in the shape of `thresholds.evidence.RUNS`."""
    is_bash = pl.col("name") == "Bash"
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), SYSTEM, is_bash, "Bash")
