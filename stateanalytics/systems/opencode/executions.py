"""Executions and sessions of opencode, folded from their events."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.systems.opencode.log import (
    SPENT_BESIDE,
    Log,
    Ordered,
    is_terminal,
    ordered,
    rows_of,
    with_session_ids,
)
from stateanalytics.systems.opencode.steps import fold_inputs, fold_steps, fold_tools
from stateanalytics.systems.situations import is_content_filter

EXECUTION = ["sid", "exec_no"]
_WORDS = {
    "execution.succeeded": "succeeded",
    "execution.failed": "failed",
    "execution.interrupted": "interrupted",
}
_END = ("end_seq", "ended_ms", "end_event_id", "outcome", "reason")
_ERROR = ("error_type", "error_message", "error_status")
ACTIVITY = ("step.", "text.", "reasoning.", "tool.", "retry.", "compaction.", "shell.")
"""Beginnings of the kinds that only a working execution writes."""


def fold_executions(
    events: pl.DataFrame, log: Log, steps: pl.DataFrame, tools: pl.DataFrame
) -> pl.DataFrame:
    """One row an execution: one time that a session worked through its inputs.

    Parameters
    ----------
    events : polars.DataFrame
        `order.Ordered.events`.
    log : Log
    steps, tools : polars.DataFrame
        `steps.fold_steps`, `steps.fold_tools`.

    Returns
    -------
    polars.DataFrame
        ``outcome`` is succeeded, failed, interrupted, ``crashed`` (no end, and the
        session was started again) or ``open``. The last end counts; a second one is a
        *late terminal*. ``turn_no`` joins executions over crashes and shutdowns.
    """
    starts = events.filter("is_start").select(
        *EXECUTION, start_seq="seq", started_ms="at_ms", is_era_a="is_era_a"
    )
    ends = rows_of(events, log, "execution").filter(is_terminal())
    first = ends.unique(EXECUTION, keep="first", maintain_order=True).select(
        *EXECUTION, first_outcome=pl.col("kind").replace_strict(_WORDS), first_end_ms="at_ms"
    )
    last = ends.unique(EXECUTION, keep="last", maintain_order=True).select(
        *EXECUTION,
        end_seq="seq",
        ended_ms="at_ms",
        end_event_id="event_id",
        outcome=pl.col("kind").replace_strict(_WORDS),
        reason="reason",
        **{name: name for name in _ERROR},
    )
    n_ends = ends.group_by(EXECUTION).agg(n_terminals=pl.len().cast(pl.Int64))
    active = (
        events.filter(pl.any_horizontal(pl.col("kind").str.starts_with(w) for w in ACTIVITY))
        .group_by(EXECUTION)
        .agg(last_active_ms=pl.col("at_ms").max(), first_active_ms=pl.col("at_ms").min())
    )
    known = pl.concat([starts.select(EXECUTION), ends.select(EXECUTION), steps.select(EXECUTION)])
    frame = with_session_ids(known.unique().sort("sid", "exec_no"), events)
    for part in (starts, last, first, n_ends, active, _of_steps(steps), _of_tools(tools)):
        frame = frame.join(part, on=EXECUTION, how="left", maintain_order="left")
    # Without any start or end, era A's steps before its first prompt tell nothing apart.
    counts = ("n_terminals", "n_steps", "n_retries", "n_tools", "n_text_chars", "n_tools_completed")
    filled = frame.with_columns(
        pl.col(*counts, "n_tools_running", "n_unknown_finishes").fill_null(0),
        pl.col("is_era_a").fill_null(pl.col("is_step_era_a")).fill_null(value=False),
        is_head_truncated=pl.col("start_seq").is_null(),
        is_last=(pl.col("sid") != pl.col("sid").shift(-1)).fill_null(value=True),
        has_output=(pl.col("n_text_chars").fill_null(0) > 0)
        | (pl.col("n_tools_completed").fill_null(0) > 0),
    )
    return _with_turns(_with_outcomes(filled)).drop("is_step_era_a", "last_state", "is_last_stop")


def _of_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """What the steps of an execution add up to; its last step is the one that began last."""
    unknown = pl.col("finish").is_in(["unknown", "error"]) & (pl.col("state") == "ended")
    return steps.group_by(EXECUTION, maintain_order=True).agg(
        n_steps=pl.len().cast(pl.Int64),
        n_retries=pl.col("n_retries").sum(),
        n_text_chars=pl.col("n_text_chars").sum(),
        cost_usd=_total("cost_usd"),
        n_input_tokens=_total("n_input_tokens"),
        n_output_tokens=_total("n_output_tokens"),
        is_blocked=pl.col("is_blocked").any(),
        is_recovered=pl.col("is_recovered").any(),
        last_state=pl.col("state").last(),
        last_finish=pl.col("finish").last(),
        is_last_stop=(pl.col("finish") == "stop").last(),
        last_step_error=pl.col("error_type").last(),
        last_step_error_message=pl.col("error_message").last(),
        last_step_end_event_id=pl.col("end_event_id").last(),
        last_step_ended_ms=pl.col("ended_ms").last(),
        last_step_end_seq=pl.col("end_seq").last(),
        is_retry_pending=pl.col("is_retry_pending").last(),
        retry_at_ms=pl.col("retry_at_ms").last(),
        retry_attempt=pl.col("retry_attempt").last(),
        retry_error_type=pl.col("retry_error_type").last(),
        retry_error_message=pl.col("retry_error_message").last(),
        n_unknown_finishes=unknown.sum().cast(pl.Int64),
        agent=pl.col("agent").last(),
        model=pl.col("model").last(),
        provider=pl.col("provider").last(),
        is_step_era_a=pl.col("is_era_a").last(),
    )


def _total(name: str) -> pl.Expr:
    """The sum of what was reported; null where nothing was."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum())


def _of_tools(tools: pl.DataFrame) -> pl.DataFrame:
    declined = pl.col("error_message").str.starts_with("The user declined")
    return tools.group_by(EXECUTION).agg(
        n_tools=pl.len().cast(pl.Int64),
        n_tools_completed=(pl.col("state") == "completed").sum().cast(pl.Int64),
        n_tools_running=(pl.col("state") == "running").sum().cast(pl.Int64),
        has_declined_tool=declined.fill_null(value=False).any(),
    )


def _with_outcomes(frame: pl.DataFrame) -> pl.DataFrame:
    """Outcome of what has no end: from the last step in era A, else by what came after."""
    is_end = pl.col("last_finish").is_in(["stop", "length", "unknown", "error"])
    of_era_a = (
        pl.when(pl.col("last_state") == "failed")
        .then(pl.lit("failed"))
        .when((pl.col("last_state") == "ended") & (is_end | is_content_filter("last_finish")))
        .then(pl.lit("succeeded"))
    )
    own = pl.when("is_era_a").then(of_era_a)
    took = pl.col("outcome").is_null() & own.is_not_null()
    outcome = pl.coalesce(
        "outcome",
        own,
        # Only the last execution of a session can still end; an earlier one was left behind.
        pl.when("is_last").then(pl.lit("open")).otherwise(pl.lit("crashed")),
    )
    by_step = {
        "ended_ms": "last_step_ended_ms",
        "end_seq": "last_step_end_seq",
        "end_event_id": "last_step_end_event_id",
        "error_type": "last_step_error",
        "error_message": "last_step_error_message",
    }
    return frame.with_columns(
        outcome=outcome,
        is_end_from_step=took,
        **{
            name: pl.coalesce(name, pl.when(took).then(pl.col(step)))
            for name, step in by_step.items()
        },
    )


def _with_turns(frame: pl.DataFrame) -> pl.DataFrame:
    unclosed = (pl.col("outcome") == "crashed") | (
        (pl.col("outcome") == "interrupted")
        & (pl.col("reason") == "shutdown").fill_null(value=False)
    )
    same = pl.col("sid") == pl.col("sid").shift(1)
    continues = (unclosed.shift(1) & same).fill_null(value=False)
    return (
        frame.with_columns(is_continuation=continues)
        .with_columns(turn_no=(~pl.col("is_continuation")).cast(pl.Int64).cum_sum().over("sid"))
        .with_columns(is_last_of_turn=pl.struct("sid", "turn_no").is_last_distinct())
    )


def fold_sessions(
    events: pl.DataFrame, log: Log, executions: pl.DataFrame, inputs: pl.DataFrame
) -> pl.DataFrame:
    """One row a session: its first and last event, what it is, what waits for it."""
    key = ["sid"]
    frame = events.group_by(key, maintain_order=True).agg(
        source=pl.col("source").first(),
        session_id=pl.col("session_id").first(),
        first_seq=pl.col("seq").first(),
        last_seq=pl.col("seq").last(),
        n_events=pl.len().cast(pl.Int64),
        last_type=pl.col("type").last(),
        last_ms=pl.col("at_ms").last(),
        newest_ms=pl.col("at_ms").max(),
        created_ms=pl.col("at_ms").first(),
        is_era_a=pl.col("is_era_a").any(),
    )
    rows = rows_of(events, log, "session")
    words = rows.group_by(key, maintain_order=True).agg(
        pl.col(name).drop_nulls().last()
        for name in ("title", "directory", "project_id", "parent_id", "program_version", "agent")
    )
    spent = rows.filter(pl.col("kind").is_in(list(SPENT_BESIDE)))
    usage = spent.group_by(key).agg(extra_cost_usd=_total("cost_usd"))
    ran = executions.group_by(key, maintain_order=True).agg(
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.col("turn_no").max(),
        last_exec_no=pl.col("exec_no").last(),
        n_steps=pl.col("n_steps").sum(),
        n_retries=pl.col("n_retries").sum(),
        step_cost_usd=_total("cost_usd"),
        n_input_tokens=_total("n_input_tokens"),
        n_output_tokens=_total("n_output_tokens"),
        model=pl.col("model").drop_nulls().last(),
        provider=pl.col("provider").drop_nulls().last(),
        last_agent=pl.col("agent").drop_nulls().last(),
    )
    waiting = inputs.group_by(key).agg(
        n_inputs=pl.len().cast(pl.Int64),
        n_pending_inputs=pl.col("is_pending").sum().cast(pl.Int64),
    )
    for part in (words, usage, ran, waiting):
        frame = frame.join(part, on=key, how="left", maintain_order="left")
    counts = ("n_executions", "n_turns", "n_steps", "n_retries", "n_inputs", "n_pending_inputs")
    return frame.with_columns(
        pl.col(counts).fill_null(0),
        cost_usd=pl.when(
            pl.col("step_cost_usd").is_not_null() | pl.col("extra_cost_usd").is_not_null()
        ).then(pl.col("step_cost_usd").fill_null(0) + pl.col("extra_cost_usd").fill_null(0)),
        agent=pl.coalesce("last_agent", "agent"),
    ).drop("last_agent", "step_cost_usd", "extra_cost_usd")


@dataclass(frozen=True)
class Folded:
    """What the events of some sessions add up to.

    Attributes
    ----------
    executions, steps, tools, inputs, sessions : polars.DataFrame
        One row each, sorted by session and sequence.
    order : order.Ordered
        The events behind them, in order, and what was left out.
    """

    executions: pl.DataFrame
    steps: pl.DataFrame
    tools: pl.DataFrame
    inputs: pl.DataFrame
    sessions: pl.DataFrame
    order: Ordered


def fold(log: Log) -> Folded:
    """Fold a log: the same tables for whatever order and repetition of the same events.

    Parameters
    ----------
    log : Log

    Returns
    -------
    Folded
    """
    order = ordered(log)
    steps = fold_steps(order.events, log)
    tools = fold_tools(order.events, log, steps)
    inputs = fold_inputs(order.events, log)
    executions = fold_executions(order.events, log, steps, tools)
    sessions = fold_sessions(order.events, log, executions, inputs)
    return Folded(executions, steps, tools, inputs, sessions, order)
