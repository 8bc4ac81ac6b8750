"""Executions, steps, tool calls, inputs and sessions of opencode, folded from its events."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.systems.opencode.causes import is_content_filtered
from stateanalytics.systems.opencode.log import (
    ERROR,
    MODEL,
    SESSION_KEY,
    SPENT_OUTSIDE_STEPS,
    TERMINALS,
    USAGE,
    Log,
    Ordered,
    ordered,
    rows_of,
    with_session_ids,
)
from stateanalytics.systems.situations import is_content_filter

_EXECUTION = ["sid", "exec_no"]
_STEP = ["sid", "message_id"]
_TOOL = [*_STEP, "call_id"]
_ACTIVITY = ("step.", "text.", "reasoning.", "tool.", "retry.", "compaction.", "shell.")
"""Prefixes of the kinds that only a working execution writes."""
_ENDS = ("ended_ms", "end_seq", "end_event_id", "error_type", "error_message")
SUMS = ("cost_usd", "n_input_tokens", "n_output_tokens")


def fold_steps(events: pl.DataFrame, log: Log) -> pl.DataFrame:
    """One row per step, which is one call of a model with all its attempts.

    Parameters
    ----------
    events : polars.DataFrame
        `log.Ordered.events`.
    log : Log
        Their payloads.

    Returns
    -------
    polars.DataFrame, shape (n_steps, 33)
        ``state`` is ``open``, ``ended`` or ``failed``: by the last of started, ended and
        failed, so that a start after a failure reopens the step. A step belongs to the
        execution in which it first started.
    """
    rows = rows_of(events, log, "step").filter(pl.col("message_id").is_not_null())
    starts = rows.filter(pl.col("kind") == "step.started")
    ends = rows.filter(pl.col("kind").is_in(["step.ended", "step.failed"]))
    retries = rows.filter(pl.col("kind") == "retry.scheduled")
    seen = rows.group_by(_STEP, maintain_order=True).agg(
        exec_no=pl.col("exec_no").first(),
        start_seq=pl.col("seq").first(),
        started_ms=pl.col("at_ms").first(),
        last_kind=pl.col("kind").last(),
        last_ms=pl.col("at_ms").max(),
        is_era_a=pl.col("is_era_a").last(),
    )
    begun = starts.group_by(_STEP).agg(
        n_attempts=pl.len().cast(pl.Int64),
        begun_in=pl.col("exec_no").first(),
        last_start_seq=pl.col("seq").last(),
        **{name: pl.col(name).last() for name in MODEL},
        dispatched_ms=pl.col("dispatched_ms").first(),
        first_ms=pl.col("at_ms").first(),
        first_seq=pl.col("seq").first(),
    )
    ended = ends.unique(_STEP, keep="last", maintain_order=True).select(
        *_STEP,
        *USAGE,
        end_kind="kind",
        last_end_seq="seq",
        end_ms="at_ms",
        end_event_id="event_id",
        last_finish=pl.coalesce(
            "finish", pl.when(pl.col("kind") == "step.failed").then(pl.lit("error"))
        ),
        last_raw_finish="raw_finish",
        **{f"end_{name}": name for name in ERROR},
    )
    retried = retries.group_by(_STEP).agg(
        n_retries=pl.len().cast(pl.Int64),
        retry_at_ms=pl.col("retry_at_ms").last(),
        retry_attempt=pl.col("attempt").last(),
        retry_error_type=pl.col("error_type").last(),
        retry_error_message=pl.col("error_message").last(),
        retry_wait_ms=(pl.col("retry_at_ms") - pl.col("at_ms")).sum(),
    )
    texts = (
        rows_of(events, log, "text")
        .filter(pl.col("message_id").is_not_null())
        .group_by(_STEP)
        .agg(n_text_chars=pl.col("n_chars").sum(), says=pl.col("says").last())
    )
    joined = with_session_ids(seen, events)
    for part in (begun, ended, retried, texts):
        joined = joined.join(part, on=_STEP, how="left", maintain_order="left")
    # A failure ends a step only until it is started again.
    is_over = pl.col("last_end_seq") > pl.col("last_start_seq").fill_null(-1)
    return (
        joined.with_columns(
            # In a log without its beginning, the first event of a step stands for its start.
            exec_no=pl.coalesce("begun_in", "exec_no"),
            started_ms=pl.coalesce("first_ms", "started_ms"),
            start_seq=pl.coalesce("first_seq", "start_seq"),
            is_over=is_over.fill_null(value=False),
        )
        .with_columns(
            state=pl.when(~pl.col("is_over"))
            .then(pl.lit("open"))
            .when(pl.col("end_kind") == "step.ended")
            .then(pl.lit("ended"))
            .otherwise(pl.lit("failed")),
            is_retry_pending=pl.col("last_kind") == "retry.scheduled",
            **{
                new: pl.when("is_over").then(pl.col(old))
                for new, old in {
                    "finish": "last_finish",
                    "raw_finish": "last_raw_finish",
                    "end_seq": "last_end_seq",
                    "ended_ms": "end_ms",
                    **{name: f"end_{name}" for name in ERROR},
                }.items()
            },
        )
        .with_columns(
            pl.col("n_attempts", "n_retries", "n_text_chars").fill_null(0),
            is_recovered=(pl.col("n_retries").fill_null(0) > 0) & (pl.col("state") == "ended"),
            is_blocked=is_content_filtered(),
        )
        .select(
            *SESSION_KEY,
            *_STEP,
            *("exec_no", "start_seq", "end_seq", "started_ms", "ended_ms", "last_ms"),
            *("dispatched_ms", "n_attempts", "n_retries", "agent", "model", "provider", "state"),
            *("finish", "raw_finish", *ERROR, "end_event_id", "n_text_chars", "says", *USAGE),
            *("retry_at_ms", "retry_attempt", "retry_error_type", "retry_error_message"),
            *("retry_wait_ms", "is_retry_pending", "is_recovered", "is_blocked", "is_era_a"),
        )
        .sort("sid", "start_seq")
    )


def fold_tools(events: pl.DataFrame, log: Log, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per tool call, in the execution of its step, whichever execution wrote its end."""
    rows = rows_of(events, log, "tool").filter(
        pl.col("message_id").is_not_null(), pl.col("call_id").is_not_null()
    )
    seen = rows.group_by(_TOOL, maintain_order=True).agg(
        start_seq=pl.col("seq").first(),
        started_ms=pl.col("at_ms").first(),
        seen_in=pl.col("exec_no").first(),
        last_ms=pl.col("at_ms").max(),
        name=pl.col("tool").drop_nulls().first(),
    )
    calls = rows.filter(pl.col("kind") == "tool.called").group_by(_TOOL)
    called = calls.agg(
        pl.col(*INPUTS.dtypes).drop_nulls().first(), called_ms=pl.col("at_ms").first()
    )
    ends = rows.filter(pl.col("kind").is_in(["tool.success", "tool.failed"]))
    # A success counts before a failure, and the first of several ends of a kind.
    ended = (
        ends.sort(pl.col("kind") != "tool.success", maintain_order=True)
        .unique(_TOOL, keep="first", maintain_order=True)
        .select(
            *_TOOL,
            *("exit_code", "is_timed_out", "error_permission", "error_resource", *ERROR),
            *RESULTS.dtypes,
            end_kind="kind",
            end_seq="seq",
            ended_ms="at_ms",
            end_event_id="event_id",
            end_exec_no="exec_no",
        )
    )
    return (
        with_session_ids(seen, events)
        .join(called, on=_TOOL, how="left", maintain_order="left")
        .join(ended, on=_TOOL, how="left", maintain_order="left")
        .join(steps.select(*_STEP, "exec_no"), on=_STEP, how="left", maintain_order="left")
        .with_columns(
            exec_no=pl.coalesce("exec_no", "seen_in"),
            state=pl.when(pl.col("end_kind") == "tool.success")
            .then(pl.lit("completed"))
            .when(pl.col("end_kind") == "tool.failed")
            .then(pl.lit("error"))
            .when(pl.col("called_ms").is_not_null())
            .then(pl.lit("running"))
            .otherwise(pl.lit("streaming")),
        )
        .with_columns(is_stale=(pl.col("end_exec_no") != pl.col("exec_no")).fill_null(value=False))
        .drop("seen_in", "end_kind")
        .sort("sid", "start_seq")
    )


def fold_inputs(events: pl.DataFrame, log: Log) -> pl.DataFrame:
    """One row per input, with when it was admitted and when the model saw it."""
    key = ["sid", "input_id"]
    rows = rows_of(events, log, "input").filter(pl.col("input_id").is_not_null())
    folded = rows.group_by(key, maintain_order=True).agg(
        input_kind=pl.col("input_kind").drop_nulls().first(),
        delivery=pl.col("delivery").drop_nulls().last(),
        first_seq=pl.col("seq").first(),
    )
    for word in ("admitted", "promoted", "cancelled"):
        part = rows.filter(pl.col("kind") == f"input.{word}").unique(
            key, keep="first", maintain_order=True
        )
        folded = folded.join(
            part.select(*key, **{f"{word}_seq": "seq", f"{word}_ms": "at_ms"}),
            on=key,
            how="left",
            maintain_order="left",
        )
    return (
        with_session_ids(folded, events)
        .with_columns(
            input_kind=pl.col("input_kind").fill_null("user"),
            is_pending=pl.col("promoted_seq").is_null() & pl.col("cancelled_seq").is_null(),
        )
        .sort("sid", "first_seq")
    )


def fold_executions(
    events: pl.DataFrame, log: Log, steps: pl.DataFrame, tools: pl.DataFrame
) -> pl.DataFrame:
    """One row per execution, which is one time that a session worked through its inputs.

    Parameters
    ----------
    events : polars.DataFrame
        `log.Ordered.events`.
    log : Log
    steps, tools : polars.DataFrame
        From `fold_steps` and `fold_tools`.

    Returns
    -------
    polars.DataFrame
        ``outcome`` is succeeded, failed, interrupted, ``crashed`` (no end, and the session
        was restarted) or ``open``. The last end counts; a second one is a *late terminal*.
        ``turn_no`` joins executions over crashes and shutdowns.
    """
    starts = events.filter("is_start").select(
        *_EXECUTION, start_seq="seq", started_ms="at_ms", is_era_a="is_era_a"
    )
    ends = rows_of(events, log, "execution").filter(pl.col("kind").is_in(list(TERMINALS)))
    outcome = pl.col("kind").str.strip_prefix("execution.")
    first = ends.unique(_EXECUTION, keep="first", maintain_order=True).select(
        *_EXECUTION, first_outcome=outcome, first_end_ms="at_ms"
    )
    last = ends.unique(_EXECUTION, keep="last", maintain_order=True).select(
        *_EXECUTION,
        *ERROR,
        "reason",
        end_seq="seq",
        ended_ms="at_ms",
        end_event_id="event_id",
        outcome=outcome,
    )
    n_ends = ends.group_by(_EXECUTION).agg(n_terminals=pl.len().cast(pl.Int64))
    active = (
        events.filter(
            pl.any_horizontal(pl.col("kind").str.starts_with(prefix) for prefix in _ACTIVITY)
        )
        .group_by(_EXECUTION)
        .agg(last_active_ms=pl.col("at_ms").max(), first_active_ms=pl.col("at_ms").min())
    )
    known = pl.concat(
        [starts.select(_EXECUTION), ends.select(_EXECUTION), steps.select(_EXECUTION)]
    )
    frame = with_session_ids(known.unique().sort("sid", "exec_no"), events)
    declined = pl.col("error_message").str.starts_with("The user declined")
    of_tools = tools.group_by(_EXECUTION).agg(
        n_tools=pl.len().cast(pl.Int64),
        n_tools_completed=(pl.col("state") == "completed").sum().cast(pl.Int64),
        n_tools_running=(pl.col("state") == "running").sum().cast(pl.Int64),
        has_declined_tool=declined.fill_null(value=False).any(),
    )
    for part in (starts, last, first, n_ends, active, _step_totals(steps), of_tools):
        frame = frame.join(part, on=_EXECUTION, how="left", maintain_order="left")
    # Era A has no starts of executions: before its first prompt only its steps have the era.
    counts = ("n_terminals", "n_steps", "n_retries", "n_tools", "n_text_chars", "n_tools_completed")
    filled = frame.with_columns(
        pl.col(*counts, "n_tools_running", "n_unknown_finishes").fill_null(0),
        pl.col("is_era_a").fill_null(pl.col("is_step_era_a")).fill_null(value=False),
        is_head_truncated=pl.col("start_seq").is_null(),
        is_last=(pl.col("sid") != pl.col("sid").shift(-1)).fill_null(value=True),
        has_output=(pl.col("n_text_chars").fill_null(0) > 0)
        | (pl.col("n_tools_completed").fill_null(0) > 0),
    )
    return _with_turns(_with_outcomes(filled)).drop("is_step_era_a", "last_state")


def _step_totals(steps: pl.DataFrame) -> pl.DataFrame:
    """Totals over the steps of each execution, and values of the step that began last."""
    unknown = pl.col("finish").is_in(["unknown", "error"]) & (pl.col("state") == "ended")
    last = (
        *("is_retry_pending", "retry_at_ms", "retry_attempt", "retry_error_type"),
        *("retry_error_message", *MODEL),
    )
    last_renamed = {
        "last_state": "state",
        "last_finish": "finish",
        "is_step_era_a": "is_era_a",
        **{f"last_step_{name}": name for name in _ENDS},
    }
    return steps.group_by(_EXECUTION, maintain_order=True).agg(
        pl.col(last).last(),
        n_steps=pl.len().cast(pl.Int64),
        n_retries=pl.col("n_retries").sum(),
        n_text_chars=pl.col("n_text_chars").sum(),
        n_idle_answers=(pl.col("finish") == "stop").sum().cast(pl.Int64),
        n_final_chars=pl.col("n_text_chars").last(),
        gives_up=pl.col("says").last().eq_missing("gives_up"),
        **{name: total(name) for name in SUMS},
        is_blocked=pl.col("is_blocked").any(),
        is_recovered=pl.col("is_recovered").any(),
        n_unknown_finishes=unknown.sum().cast(pl.Int64),
        **{new: pl.col(old).last() for new, old in last_renamed.items()},
    )


def total(name: str) -> pl.Expr:
    """The sum of the reported values; null if none was reported."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum())


def _with_outcomes(frame: pl.DataFrame) -> pl.DataFrame:
    """Add an outcome where there is no end: from the last step in era A, else by later work."""
    is_end = pl.col("last_finish").is_in(["stop", "length", "unknown", "error"])
    of_last_step = (
        pl.when(pl.col("last_state") == "failed")
        .then(pl.lit("failed"))
        .when((pl.col("last_state") == "ended") & (is_end | is_content_filter("last_finish")))
        .then(pl.lit("succeeded"))
    )
    by_last_step = pl.when("is_era_a").then(of_last_step)
    is_from_step = pl.col("outcome").is_null() & by_last_step.is_not_null()
    outcome = pl.coalesce(
        "outcome",
        by_last_step,
        # Only the last execution of a session can still end; an earlier one was left behind.
        pl.when("is_last").then(pl.lit("open")).otherwise(pl.lit("crashed")),
    )
    return frame.with_columns(
        outcome=outcome,
        is_end_from_step=is_from_step,
        **{
            name: pl.coalesce(name, pl.when(is_from_step).then(pl.col(f"last_step_{name}")))
            for name in _ENDS
        },
    )


def _with_turns(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``: an execution after a crash or shutdown continues the turn."""
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
    """One row per session: its first and last event, its description and waiting inputs."""
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
    spent = rows.filter(pl.col("kind").is_in(list(SPENT_OUTSIDE_STEPS)))
    usage = spent.group_by(key).agg(extra_cost_usd=total("cost_usd"))
    ran = executions.group_by(key, maintain_order=True).agg(
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.col("turn_no").max(),
        last_exec_no=pl.col("exec_no").last(),
        n_steps=pl.col("n_steps").sum(),
        n_retries=pl.col("n_retries").sum(),
        step_cost_usd=total("cost_usd"),
        n_input_tokens=total("n_input_tokens"),
        n_output_tokens=total("n_output_tokens"),
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
    """The executions, steps, tool calls, inputs and sessions of some events.

    Attributes
    ----------
    executions, steps, tools, inputs, sessions : polars.DataFrame
        Sorted by session and sequence number.
    order : log.Ordered
        The events in order, and those that were excluded.
    """

    executions: pl.DataFrame
    steps: pl.DataFrame
    tools: pl.DataFrame
    inputs: pl.DataFrame
    sessions: pl.DataFrame
    order: Ordered


def fold(log: Log) -> Folded:
    """Fold a log: the same tables for any order and repetition of the same events."""
    order = ordered(log)
    steps = fold_steps(order.events, log)
    tools = fold_tools(order.events, log, steps)
    inputs = fold_inputs(order.events, log)
    executions = fold_executions(order.events, log, steps, tools)
    sessions = fold_sessions(order.events, log, executions, inputs)
    return Folded(executions, steps, tools, inputs, sessions, order)
