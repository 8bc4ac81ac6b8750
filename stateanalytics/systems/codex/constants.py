"""When open work of Codex counts as stalled, and what ends a silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.base import Constant
from stateanalytics.systems.codex import frames
from stateanalytics.systems.codex.states import SYSTEM
from stateanalytics.systems.codex.tools import MCP_S, SHELL_S, is_of_server, is_shell
from stateanalytics.systems.codex.turns import OPEN
from stateanalytics.systems.threads import silence_ends_of, tool_runs

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

_PROGRAM, _SETTINGS = "Codex", "config.toml"
STREAM_S, STREAM_RETRIES = 300.0, 5


def constants(policy: Policy) -> list[Constant]:
    """Our limit of silence, and the timeouts that Codex has itself."""
    return [
        Constant(
            "codex.stalled", SYSTEM, "stateanalytics policy",
            ("limits", SYSTEM, "stalled_after_s"), policy.limit(SYSTEM, "stalled_after_s"),
            "no record for so long while it waits for the model: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        Constant(
            "codex.stream", SYSTEM, _SETTINGS, ("model_providers", "stream_idle_timeout_ms"),
            STREAM_S, "the model's stream is silent for longer: it is tried again, five times",
            "silences", unit="ms", is_configurable=True,
        ),
        Constant(
            "codex.shell", SYSTEM, _PROGRAM, ("timeout_ms",), SHELL_S,
            "a longer command that asked for no limit of its own is killed",
            "commands", unit="ms", mistake="lost_run",
        ),
        Constant(
            "codex.mcp", SYSTEM, _SETTINGS, ("mcp_servers", "tool_timeout_sec"), MCP_S,
            "a longer call of a server's tool fails",
            "server_tools", mistake="lost_run", is_configurable=True,
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row a turn that is over; that one died is noticed at the next."""
    return silence_ends_of(facts, frames.TURNS, SYSTEM, OPEN)


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of commands with a time limit, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), SYSTEM, is_shell(), "shell")


def server_tools(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of tools of servers, in the shape of `thresholds.evidence.RUNS`."""
    return tool_runs(facts, (frames.SESSIONS, frames.TOOLS), SYSTEM, is_of_server(), "mcp")
