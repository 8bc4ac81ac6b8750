"""When open work of Claude Code counts as stalled, and what ends a silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.base import Constant
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.states import SYSTEM
from stateanalytics.systems.claude_code.turns import OPEN

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

RUN_COLUMNS = ("unit", "project", "system", "kind", "duration_s", "ended", "is_good", "timeout_s")
BASH_S, BASH_MOST_S, STREAM_S, SUBAGENT_S = 120.0, 600.0, 300.0, 600.0


def constants(policy: Policy) -> list[Constant]:
    """Our limit of silence, and the timeouts that Claude Code has itself."""
    environment = "environment"
    return [
        Constant(
            "claude_code.stalled", SYSTEM, "stateanalytics policy",
            ("limits", SYSTEM, "stalled_after_s"), policy.limit(SYSTEM, "stalled_after_s"),
            "no record for so long while it waits for the model: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        Constant(
            "claude_code.stream", SYSTEM, "Claude Code", ("stream watchdog",), STREAM_S,
            "the model's stream is silent for longer: the request is aborted and retried",
            "silences",
        ),
        Constant(
            "claude_code.subagent", SYSTEM, "Claude Code", ("subagent watchdog",), SUBAGENT_S,
            "a subagent's stream is silent for longer: the subagent fails",
            "silences", kind="subagent", mistake="lost_run",
        ),
        Constant(
            "claude_code.bash", SYSTEM, environment, ("BASH_DEFAULT_TIMEOUT_MS",), BASH_S,
            "a command that runs for longer goes to the background; killed before 2.0.19",
            "commands", unit="ms", is_configurable=True,
        ),
        Constant(
            "claude_code.bash_most", SYSTEM, environment, ("BASH_MAX_TIMEOUT_MS",), BASH_MOST_S,
            "no command may ask for a longer limit",
            "commands", unit="ms", is_configurable=True,
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row a turn that is over; that one died is noticed at the next prompt."""
    is_dead = pl.col("situation") == "aborted"
    thread = ["source", "thread_id"]
    next_at = pl.col("started_at").shift(-1).over(thread, order_by="turn_no")
    return (
        facts.detail(frames.TURNS)
        .filter(~pl.col("situation").is_in(list(OPEN)) | ~pl.col("is_last"))
        .with_columns(next_at=next_at)
        .select(
            "source",
            system=pl.lit(SYSTEM),
            entity_id="thread_id",
            at=pl.when(is_dead).then("next_at").otherwise("ended_at"),
            boundary=pl.when(is_dead).then(pl.lit("crash")).otherwise(pl.lit("own_end")),
        )
    )


def commands(facts: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of Bash calls, in the shape of `thresholds.evidence.RUNS`."""
    places = facts.detail(frames.SESSIONS).select("source", "thread_id", project="directory")
    return (
        facts.detail(frames.TOOLS)
        .filter(pl.col("name") == "Bash", pl.col("ended_at").is_not_null())
        .join(places, on=["source", "thread_id"], how="left", maintain_order="left")
        .select(
            "project",
            "timeout_s",
            unit=pl.concat_str("source", pl.lit("/"), "thread_id"),
            system=pl.lit(SYSTEM),
            kind=pl.lit("Bash"),
            duration_s=(pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6,
            ended=pl.lit(value=True),
            is_good=~pl.col("is_error"),
        )
        .select(RUN_COLUMNS)
    )
