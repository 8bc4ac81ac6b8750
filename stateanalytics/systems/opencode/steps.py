"""Steps, tool calls and inputs: what the events of each add up to."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.opencode.log import SESSION_KEY, Log, rows_of, with_session_ids
from stateanalytics.systems.opencode.payloads import USAGE
from stateanalytics.systems.situations import is_content_filter

STEP = ["sid", "message_id"]
TOOL = [*STEP, "call_id"]
_ERROR = ("error_type", "error_message", "error_status")


def fold_steps(events: pl.DataFrame, log: Log) -> pl.DataFrame:
    """One row a step: one call of a model, with all its attempts.

    Parameters
    ----------
    events : polars.DataFrame
        `order.Ordered.events`.
    log : Log
        Whose payloads they have.

    Returns
    -------
    polars.DataFrame, shape (n_steps, 33)
        ``state`` is ``open``, ``ended`` or ``failed``: by the last of started, ended and
        failed, so that a start after a failure opens the step again. A step belongs to
        the execution in which it first started.
    """
    rows = rows_of(events, log, "step").filter(pl.col("message_id").is_not_null())
    starts = rows.filter(pl.col("kind") == "step.started")
    ends = rows.filter(pl.col("kind").is_in(["step.ended", "step.failed"]))
    retries = rows.filter(pl.col("kind") == "retry.scheduled")
    seen = rows.group_by(STEP, maintain_order=True).agg(
        exec_no=pl.col("exec_no").first(),
        start_seq=pl.col("seq").first(),
        started_ms=pl.col("at_ms").first(),
        last_kind=pl.col("kind").last(),
        last_ms=pl.col("at_ms").max(),
        is_era_a=pl.col("is_era_a").last(),
    )
    begun = starts.group_by(STEP).agg(
        n_attempts=pl.len().cast(pl.Int64),
        begun_in=pl.col("exec_no").first(),
        last_start_seq=pl.col("seq").last(),
        **{name: pl.col(name).last() for name in ("agent", "model", "provider")},
        dispatched_ms=pl.col("dispatched_ms").first(),
        first_ms=pl.col("at_ms").first(),
        first_seq=pl.col("seq").first(),
    )
    ended = ends.unique(STEP, keep="last", maintain_order=True).select(
        *STEP,
        end_kind="kind",
        last_end_seq="seq",
        end_ms="at_ms",
        end_event_id="event_id",
        last_finish=pl.coalesce(
            "finish", pl.when(pl.col("kind") == "step.failed").then(pl.lit("error"))
        ),
        last_raw_finish="raw_finish",
        **{f"end_{name}": name for name in _ERROR},
    )
    usage = ends.unique(STEP, keep="last", maintain_order=True).select(*STEP, *USAGE)
    retried = retries.group_by(STEP).agg(
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
        .group_by(STEP)
        .agg(n_text_chars=pl.col("n_chars").sum())
    )
    joined = with_session_ids(seen, events)
    for part in (begun, ended, usage, retried, texts):
        joined = joined.join(part, on=STEP, how="left", maintain_order="left")
    # A failure ends a step only until it is started again.
    is_over = pl.col("last_end_seq") > pl.col("last_start_seq").fill_null(-1)
    return (
        joined.with_columns(
            # Of a log that was cut, whatever is first of a step stands for its start.
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
                    **{name: f"end_{name}" for name in _ERROR},
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
            *STEP,
            *("exec_no", "start_seq", "end_seq", "started_ms", "ended_ms", "last_ms"),
            *("dispatched_ms", "n_attempts", "n_retries", "agent", "model", "provider", "state"),
            *("finish", "raw_finish", *_ERROR, "end_event_id", "n_text_chars", *USAGE),
            *("retry_at_ms", "retry_attempt", "retry_error_type", "retry_error_message"),
            *("retry_wait_ms", "is_retry_pending", "is_recovered", "is_blocked", "is_era_a"),
        )
        .sort("sid", "start_seq")
    )


CONTENT_FILTER_ERRORS = ("provider.content-filter", "ContentFilterError")


def is_content_filtered() -> pl.Expr:
    """Did the provider's content filter stop a step, whatever else was recorded about it."""
    is_error = pl.col("error_type").is_in(list(CONTENT_FILTER_ERRORS)).fill_null(value=False)
    return is_error | is_content_filter("finish") | is_content_filter("raw_finish")


def fold_tools(events: pl.DataFrame, log: Log, steps: pl.DataFrame) -> pl.DataFrame:
    """One row a tool call; it belongs to its step's execution, whoever wrote its end."""
    rows = rows_of(events, log, "tool").filter(
        pl.col("message_id").is_not_null(), pl.col("call_id").is_not_null()
    )
    seen = rows.group_by(TOOL, maintain_order=True).agg(
        start_seq=pl.col("seq").first(),
        started_ms=pl.col("at_ms").first(),
        seen_in=pl.col("exec_no").first(),
        last_ms=pl.col("at_ms").max(),
        name=pl.col("tool").drop_nulls().first(),
    )
    calls = rows.filter(pl.col("kind") == "tool.called").group_by(TOOL)
    called = calls.agg(called_ms=pl.col("at_ms").first())
    ends = rows.filter(pl.col("kind").is_in(["tool.success", "tool.failed"]))
    # A success counts whatever else was written; of several ends of a kind the first does.
    ended = (
        ends.sort(pl.col("kind") != "tool.success", maintain_order=True)
        .unique(TOOL, keep="first", maintain_order=True)
        .select(
            *TOOL,
            end_kind="kind",
            end_seq="seq",
            ended_ms="at_ms",
            end_event_id="event_id",
            end_exec_no="exec_no",
            exit_code="exit_code",
            is_timed_out="is_timed_out",
            error_permission="error_permission",
            error_resource="error_resource",
            **{name: name for name in _ERROR},
        )
    )
    of_step = steps.select(*STEP, exec_no="exec_no")
    return (
        with_session_ids(seen, events)
        .join(called, on=TOOL, how="left", maintain_order="left")
        .join(ended, on=TOOL, how="left", maintain_order="left")
        .join(of_step, on=STEP, how="left", maintain_order="left")
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
    """One row an input: when it was taken in, and when the model saw it."""
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
