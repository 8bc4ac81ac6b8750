"""When an open execution of opencode counts as stalled or dead, and what ends a silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.base import Constant
from stateanalytics.systems.opencode import frames
from stateanalytics.systems.opencode.recorded import turn_id

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy


def constants(policy: Policy) -> list[Constant]:
    """The limits of our mapping: opencode has no such constants of its own."""
    ours = "stateanalytics policy"
    return [
        Constant(
            "opencode.stalled", "opencode", ours, ("limits", "opencode", "stalled_after_s"),
            policy.limit("opencode", "stalled_after_s"), "no event for so long: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        Constant(
            "opencode.dead", "opencode", ours, ("limits", "opencode", "dead_after_s"),
            policy.limit("opencode", "dead_after_s"),
            "no event for so long and no claim: process_dead",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
    ]  # fmt: skip


def silence_ends(facts: Facts) -> pl.DataFrame:
    """One row an execution; a crash is noticed when work starts again."""
    is_crash = pl.col("outcome") == "crashed"
    started_again = pl.col("started_at").shift(-1).over("source", "session_id")
    return (
        facts.detail(frames.EXECUTIONS)
        .sort("source", "session_id", "exec_no")
        .select(
            "source",
            system=pl.lit("opencode"),
            entity_id="session_id",
            at=pl.when(is_crash).then(started_again).otherwise("ended_at"),
            boundary=pl.when(is_crash).then(pl.lit("crash")).otherwise(pl.lit("own_end")),
        )
    )


def attempt_ends(facts: Facts) -> pl.DataFrame:
    """Executions that crashed or were shut down, where another one went on with their turn."""
    is_crash = pl.col("outcome") == "crashed"
    execution = ["source", "session_id"]
    resumed_at = pl.col("started_at").shift(-1).over(execution)
    return (
        facts.detail(frames.EXECUTIONS)
        .sort(*execution, "exec_no")
        .with_columns(
            resumed_at=resumed_at,
            is_gone_on_with=pl.col("is_continuation").shift(-1).over(execution),
        )
        .filter("is_gone_on_with")
        .select(
            "source",
            "resumed_at",
            system=pl.lit("opencode"),
            entity_type=pl.lit("turn"),
            entity_id=turn_id(),
            # A crash is noticed when work starts again.
            ended_at=pl.coalesce("ended_at", "resumed_at"),
            last_sign_at="last_active_at",
            outcome=pl.lit("aborted"),
            raw_status="outcome",
            reason_code=pl.when(is_crash)
            .then(pl.lit("run.aborted.process_dead_no_terminal"))
            .otherwise(pl.lit("run.aborted.server_shutdown")),
            reason_message="error_message",
            end_written_by=pl.when(is_crash).then(pl.lit("observer")),
        )
    )
