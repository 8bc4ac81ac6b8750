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
    is_dead = pl.col("situation") == "aborted"
    next_at = pl.col("started_at").shift(-1).over("source", "thread_id", order_by="turn_no")
    return (
        facts.detail(frames.TURNS)
        .with_columns(next_at=next_at)
        .filter(~pl.col("situation").is_in(list(OPEN)))
        .select(
            "source",
            system=pl.lit(SYSTEM),
            entity_id="thread_id",
            at=pl.when(is_dead).then("next_at").otherwise("ended_at"),
            boundary=pl.when(is_dead).then(pl.lit("crash")).otherwise(pl.lit("own_end")),
        )
    )


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of commands with a time limit, in the shape of `thresholds.evidence.RUNS`."""
    return _runs(facts, is_shell(), "shell")


def server_tools(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of tools of servers, in the shape of `thresholds.evidence.RUNS`."""
    return _runs(facts, is_of_server(), "mcp")


def _runs(facts: Facts, which: pl.Expr, kind: str) -> pl.DataFrame:
    elapsed = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    places = facts.detail(frames.SESSIONS).select("source", "thread_id", project="directory")
    return (
        facts.detail(frames.TOOLS)
        .filter(which, pl.col("ended_at").is_not_null())
        .join(places, on=["source", "thread_id"], how="left", maintain_order="left")
        .select(
            pl.concat_str("source", pl.lit("/"), "thread_id").alias("unit"),
            "project",
            pl.lit(SYSTEM).alias("system"),
            pl.lit(kind).alias("kind"),
            pl.coalesce("duration_s", elapsed).alias("duration_s"),
            pl.lit(value=True).alias("ended"),
            (~pl.col("is_error")).alias("is_good"),
            "timeout_s",
        )
    )
