"""opencode's executions, sessions, steps and tool calls in ADR-0033's terms.

Each situation has a name; `EXECUTIONS` and `CALLS` say what it means. The first
situation that holds counts. What a provider's content filter stopped is failed, in
every era and whatever else was recorded about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core.package_tables import read_table
from stateanalytics.core.schema import DELIVERIES, HEALTHS, LIFECYCLES, OUTCOMES
from stateanalytics.systems.opencode.causes import DEGRADING
from stateanalytics.systems.situations import Meaning, first_that_holds, with_axes

SYSTEM = "opencode"


class _Situation(NamedTuple):
    of: Annotated[str, ("execution", "call")]
    situation: str
    lifecycle: Annotated[str, LIFECYCLES]
    outcome: Annotated[str, OUTCOMES] | None
    health: Annotated[str, HEALTHS] | None
    delivery: Annotated[str, DELIVERIES] | None
    delivery_without_output: Annotated[str, DELIVERIES] | None


def _situations(of: str) -> Mapping[str, Meaning]:
    return {
        situation.situation: Meaning(*situation[2:])
        for situation in read_table(__package__, "situations.csv", _Situation)
        if situation.of == of
    }


EXECUTIONS = _situations("execution")
"""Every situation of an execution, turn or session; the last two have no execution.

The health of an open one depends on the instant: the shared rules judge it, by the limits
of its system.
"""
CALLS = _situations("call")
"""Every situation of a step or a tool call."""

AXES = ("lifecycle", "outcome", "health", "delivery")
OPEN_FACTS = (
    *("last_sign_at", "due_at", "retry_code", "n_running", "n_questions", "is_resume_claimed"),
    "n_unknown_finishes",
)
"""Columns of ``entities`` that `situations` fills for open executions."""
_CUT = ("by_user", "superseded", "declined", "declined_inferred")


def situations(executions: pl.DataFrame) -> pl.DataFrame:
    """Name the situation of every execution, and add the four axes.

    Parameters
    ----------
    executions : polars.DataFrame
        ``frames.EXECUTIONS``.

    Returns
    -------
    polars.DataFrame
        The same rows with ``situation``, ``lifecycle``, ``outcome_word``, ``health``,
        ``delivery`` and `OPEN_FACTS`.
    """
    named = executions.with_columns(
        situation=first_that_holds(_rules()).replace({"rejected": "declined"})
    )
    return with_axes(named.with_columns(**_open_facts()), EXECUTIONS)


def _open_facts() -> dict[str, pl.Expr]:
    """What the shared rules judge an open execution by; null where it is over."""
    is_open = pl.when(pl.col("situation") == "open")
    waits = pl.when((pl.col("situation") == "open") & pl.col("is_retry_pending"))
    cause = pl.col("retry_cause").fill_null("unknown")
    newest = pl.coalesce("session_last_at", "last_active_at", "started_at")
    return {
        "last_sign_at": is_open.then(newest),
        "due_at": waits.then("retry_at"),
        "retry_code": waits.then(pl.format("run.health.{}", cause)),
        "n_running": is_open.then("n_tools_running"),
        "n_questions": is_open.then("n_pending_asks"),
        "is_resume_claimed": is_open.then("is_claimed"),
        "n_unknown_finishes": pl.col("n_unknown_finishes"),
    }


def _rules() -> dict[str, pl.Expr]:
    def yes(name: str) -> pl.Expr:
        return pl.col(name).fill_null(value=False)

    def word(column: str, *words: str) -> pl.Expr:
        return pl.col(column).is_in(list(words)).fill_null(value=False)

    over = word("outcome", "succeeded", "failed")
    good, cut = word("outcome", "succeeded"), word("outcome", "interrupted")
    stopped = cut & word("interrupt_reason", "shutdown")
    # V1 ends a turn itself where permission is rejected; later eras write it as a shutdown.
    rejected = cut & word("era", "V1") & yes("is_declined")
    return {
        "blocked": yes("is_blocked") & over,
        "rejected": rejected,
        "without_steps": good & (pl.col("n_steps") == 0),
        # V1 writes the limit of output as a finish or as an error.
        "truncated": (good & word("last_finish", "length"))
        | (word("outcome", "failed") & word("cause", "truncated_length")),
        "unknown_finish": good & word("last_finish", "unknown", "error"),
        "empty": good & ~yes("has_output"),
        "good": good,
        "failed_degraded": word("outcome", "failed") & word("cause", *DEGRADING),
        "failed": word("outcome", "failed"),
        "by_user": cut & word("interrupt_reason", "user"),
        "superseded": cut & word("interrupt_reason", "superseded"),
        "inactive": cut & word("interrupt_reason", "inactivity"),
        "declined": stopped & yes("is_declined"),
        "declined_inferred": stopped & yes("has_others_running"),
        "shutdown_resumed": stopped & yes("is_resumed"),
        "shutdown_claimed": stopped & yes("is_claimed"),
        "shutdown": stopped,
        "unrecognized_reason": cut,
        "crashed": word("outcome", "crashed"),
        "open": word("outcome", "open"),
        "unrecorded": word("outcome", "unknown"),
    }


def session_situations(sessions: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """The axes of every session: those of its last execution, and whether inputs wait.

    Parameters
    ----------
    sessions : polars.DataFrame
        ``frames.SESSIONS``.
    executions : polars.DataFrame
        From `situations`.
    """
    key = ["source", "session_id"]
    last = executions.filter("is_last").select(
        *key, "exec_no", "situation", "lifecycle", "outcome_word", "health", "delivery", *OPEN_FACTS
    )
    joined = sessions.join(last, on=key, how="left", maintain_order="left")
    waits = pl.col("n_pending_inputs").fill_null(0) > 0
    idle = pl.col("situation").is_null()
    named = joined.with_columns(
        has_waiting_input=waits
        & (idle | pl.col("outcome_word").is_not_null())
        & (pl.col("health").is_null() | (pl.col("health") == "ok")),
        situation=pl.coalesce(
            "situation", pl.when(waits).then(pl.lit("waiting")).otherwise(pl.lit("new"))
        ),
    )
    fresh = with_axes(named.select(*key, "situation"), EXECUTIONS)
    return named.with_columns(
        pl.coalesce(name, fresh[name].alias(name)).alias(name)
        for name in ("lifecycle", "outcome_word", "health", "delivery")
    ).with_columns(
        health=pl.when("has_waiting_input").then(pl.lit("idle")).otherwise(pl.col("health"))
    )


def call_situations(
    calls: pl.DataFrame, executions: pl.DataFrame, *, is_tool: bool
) -> pl.DataFrame:
    """Name the situation of every step or tool call, and add its axes.

    Parameters
    ----------
    calls : polars.DataFrame
        ``frames.STEPS`` or ``frames.TOOLS``.
    executions : polars.DataFrame
        From `situations`: what became of the execution decides what an abort means.
    is_tool : bool
    """
    key = ["source", "session_id", "exec_no"]
    of_execution = executions.select(
        *key,
        execution_situation="situation",
        is_execution_over=pl.col("lifecycle") != "running",
        is_execution_crashed=pl.col("situation") == "crashed",
        is_execution_cancelled=pl.col("situation").is_in(list(_CUT)),
    )
    joined = calls.join(of_execution, on=key, how="left", maintain_order="left")
    stale = pl.col("is_stale") if is_tool else pl.lit(value=False)
    ended = pl.col("state") == ("completed" if is_tool else "ended")
    failed = pl.col("state") == ("error" if is_tool else "failed")
    blocked = pl.lit(value=False) if is_tool else pl.col("is_blocked")
    aborted = pl.col("error_type").is_in(["aborted", "MessageAbortedError"])
    cancelled = pl.col("is_execution_cancelled")
    # Only of a tool call a cause can stand beside its success: its command failed.
    cause = pl.col("cause")
    rules = {
        "blocked": blocked,
        "stopped": ended & (cause == "interrupted"),
        "timed_out": ended & (cause == "timeout"),
        "succeeded": ended & cause.is_null(),
        "failed_command": ended,
        "cancelled": failed & aborted & cancelled & ~stale.fill_null(value=False),
        "failed": failed,
        "cancelled_open": cancelled,
        # Only a crash leaves nobody to write an end; any other end of the work cut it off.
        "abandoned": pl.col("is_execution_crashed"),
        "left_open": pl.col("is_execution_over"),
        "running": pl.lit(value=True),
    }
    named = joined.with_columns(
        situation=first_that_holds(rules).replace(
            {"cancelled_open": "cancelled", "failed_command": "failed", "stopped": "cancelled"}
        )
    )
    return with_axes(named, CALLS)
