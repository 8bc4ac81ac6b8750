"""The folded tables in the shape of the schema: moments, causes, eras, who ran on."""

from __future__ import annotations

import polars as pl

from stateanalytics.io.json_lines import moment
from stateanalytics.systems.opencode import frames
from stateanalytics.systems.opencode.causes import with_cause
from stateanalytics.systems.opencode.executions import Folded
from stateanalytics.systems.opencode.log import SESSION_KEY, Log
from stateanalytics.systems.opencode.message_fold import FoldedMessages
from stateanalytics.systems.situations import first_that_holds

DECLINE_WINDOW_MS = 2000
"""How near to an end a refusal must be, or how far others must have run on."""

COMMANDS = ("bash", "shell")
"""Tools that run a command, by their names of V1 and of 2.0."""

ENTITY_IDS = {
    "execution": pl.concat_str("session_id", pl.lit(":execution:"), "exec_no"),
    "step": pl.concat_str("session_id", pl.lit(":"), "message_id"),
    "tool_call": pl.concat_str("session_id", pl.lit(":"), "message_id", pl.lit(":"), "call_id"),
}


def detail_frames(
    folded: Folded, by_messages: FoldedMessages, log: Log, session_rows: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """The detail frames of some inputs.

    Parameters
    ----------
    folded : executions.Folded
    by_messages : FoldedMessages
        Sessions of which messages alone tell; what only events tell is null there.
    log : Log
        For permissions that were asked and answered, which are not part of the fold.
    session_rows : polars.DataFrame
        Rows of the session table: ``session_id``, ``suspended_ms``, …

    Returns
    -------
    dict of str to polars.DataFrame
        By the name of the schema's frame.
    """
    eras = _eras(folded)

    def both(of_events: pl.DataFrame, of_messages: pl.DataFrame) -> pl.DataFrame:
        of_era = of_events.join(eras, on=SESSION_KEY, how="left", maintain_order="left")
        return pl.concat([of_era, of_messages], how="diagonal_relaxed")

    executions = _with_context(_with_asks(folded.executions, log), folded, session_rows)
    newest = by_messages.sessions.select(*SESSION_KEY, session_last_ms="newest_ms")
    of_messages = by_messages.executions.join(
        newest, on=SESSION_KEY, how="left", maintain_order="left"
    )
    sessions = (
        one.sessions.with_columns(read_from=pl.lit(name))
        for one, name in ((folded, "events"), (by_messages, "messages"))
    )
    return {
        "opencode_executions": _executions(both(executions, of_messages)),
        "opencode_steps": _steps(both(folded.steps, by_messages.steps)),
        "opencode_tools": _tools(both(folded.tools, by_messages.tools)),
        "opencode_inputs": _inputs(
            pl.concat([folded.inputs, by_messages.inputs], how="diagonal_relaxed")
        ),
        "opencode_sessions": _sessions(both(*sessions)),
    }


def _eras(folded: Folded) -> pl.DataFrame:
    """Who wrote the events of each session, by their types alone."""
    of_c = pl.col("type").str.contains(r"^session\.(?:inbox\.|step\.streamed|viewed$)")
    return (
        folded.order.events.group_by(SESSION_KEY)
        .agg(is_a=pl.col("is_era_a").any(), is_c=of_c.any())
        .join(folded.sessions.select(*SESSION_KEY, "program_version"), on=SESSION_KEY, how="left")
        .select(
            *SESSION_KEY,
            era=pl.when("is_a")
            .then(pl.lit("A"))
            .when(pl.col("is_c") | pl.col("program_version").str.starts_with("2."))
            .then(pl.lit("C"))
            .when(pl.col("program_version").str.starts_with("1."))
            .then(pl.lit("V1"))
            .otherwise(pl.lit("B")),
        )
    )


def _with_asks(executions: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Count the questions an open execution waits for; see whether one was declined."""
    asks = (
        log.events.filter(pl.col("kind").str.starts_with("permission."))
        .join(log.payload("ask"), on="row", how="inner")
        .filter(pl.col("session_id").is_not_null(), pl.col("request_id").is_not_null())
        .unique(["source", "event_id"])
    )
    key = [*SESSION_KEY, "request_id"]
    answers = asks.filter(pl.col("kind") != "permission.asked")
    waiting = asks.filter(pl.col("kind") == "permission.asked").join(answers, on=key, how="anti")
    refused = answers.filter(
        (pl.col("reply") == "reject") | (pl.col("kind") == "permission.rejected")
    )
    execution = [*SESSION_KEY, "exec_no"]
    spans = executions.select(*execution, "started_ms", "ended_ms", "outcome")
    open_asks = (
        spans.filter(pl.col("outcome") == "open")
        .join(waiting.select(*SESSION_KEY, "at_ms"), on=SESSION_KEY, how="inner")
        .filter(pl.col("at_ms") >= pl.col("started_ms").fill_null(0))
        .group_by(execution)
        .agg(n_pending_asks=pl.len().cast(pl.Int64))
    )
    declined = (
        spans.filter(pl.col("outcome") == "interrupted")
        .join(refused.select(*SESSION_KEY, "at_ms"), on=SESSION_KEY, how="inner")
        .filter((pl.col("at_ms") - pl.col("ended_ms")).abs() <= DECLINE_WINDOW_MS)
        .select(*execution, is_refused=pl.lit(value=True))
        .unique()
    )
    for part in (open_asks, declined):
        executions = executions.join(part, on=execution, how="left", maintain_order="left")
    is_declined = pl.col("has_declined_tool").fill_null(value=False)
    return executions.with_columns(
        pl.col("n_pending_asks").fill_null(0),
        is_declined=is_declined | pl.col("is_refused").fill_null(value=False),
    )


def _with_context(
    executions: pl.DataFrame, folded: Folded, session_rows: pl.DataFrame
) -> pl.DataFrame:
    """Did others run on after each end; is the session claimed; when did it last stir."""
    until = pl.coalesce("last_active_ms", "first_end_ms", "started_ms")
    known = executions.with_columns(
        started=pl.coalesce("started_ms", "first_active_ms", "ended_ms")
    )
    others = (
        known.select("source", "started", until=until)
        .drop_nulls()
        .sort("started")
        .with_columns(until=pl.col("until").cum_max().over("source"))
    )
    asked = known.filter(pl.col("ended_ms").is_not_null()).sort("ended_ms")
    ran_on = asked.join_asof(
        others,
        left_on="ended_ms",
        right_on="started",
        by="source",
        strategy="backward",
        check_sortedness=False,  # polars cannot look within groups; both are sorted above
    ).select(
        "sid",
        "exec_no",
        has_others_running=pl.col("until") >= pl.col("ended_ms") + DECLINE_WINDOW_MS,
    )
    newest = folded.sessions.select(*SESSION_KEY, session_last_ms="newest_ms")
    claims = session_rows.select(*SESSION_KEY, "suspended_ms")
    return (
        executions.join(ran_on, on=["sid", "exec_no"], how="left", maintain_order="left")
        .join(newest, on=SESSION_KEY, how="left", maintain_order="left")
        .join(claims, on=SESSION_KEY, how="left", maintain_order="left")
        .with_columns(
            is_claimed=pl.col("suspended_ms").is_not_null() & pl.col("is_last"),
            is_resumed=~pl.col("is_last"),
        )
    )


def _executions(frame: pl.DataFrame) -> pl.DataFrame:
    failed = pl.col("outcome") == "failed"
    caused = with_cause(frame, has_error=failed | pl.col("error_type").is_not_null())
    caused = with_cause(
        caused, error_type="retry_error_type", message="retry_error_message", into="retry_cause"
    )
    stopped = (pl.col("outcome") == "interrupted") & (pl.col("reason") == "shutdown")
    declined = pl.col("is_declined") | pl.col("has_others_running").fill_null(value=False)
    return frames.EXECUTIONS.conform(
        caused.with_columns(
            entity_id=ENTITY_IDS["execution"],
            interrupt_reason="reason",
            is_end_inferred="is_end_from_step",
            is_resumable=pl.when(stopped).then(~declined & ~pl.col("is_resumed")),
            is_blocked=pl.col("is_blocked").fill_null(value=False)
            | (pl.col("cause") == "content_filtered").fill_null(value=False),
            is_recovered=pl.col("is_recovered").fill_null(value=False),
            started_at=moment("started_ms"),
            ended_at=moment("ended_ms"),
            last_active_at=moment("last_active_ms"),
            session_last_at=moment("session_last_ms"),
            retry_at=moment("retry_at_ms"),
        )
    )


def _steps(frame: pl.DataFrame) -> pl.DataFrame:
    caused = with_cause(frame, has_error=pl.col("state") == "failed")
    wait = (pl.col("started_ms") - pl.col("dispatched_ms")) / 1000
    return frames.STEPS.conform(
        caused.with_columns(
            entity_id=ENTITY_IDS["step"],
            dispatched_at=moment("dispatched_ms"),
            started_at=moment("started_ms"),
            ended_at=moment("ended_ms"),
            first_output_s=wait,
            retry_at=moment("retry_at_ms"),
            retry_wait_s=pl.col("retry_wait_ms") / 1000,
        )
    )


def _tools(frame: pl.DataFrame) -> pl.DataFrame:
    caused = with_cause(frame, has_error=pl.col("state") == "error")
    # A call whose command failed is stored as completed: the tool itself did its work.
    is_command, is_invalid = pl.col("name").is_in(list(COMMANDS)), pl.col("name") == "invalid"
    is_unknown = pl.col("error_message").str.contains("(?i)unavailable tool|unknown tool")
    causes = {
        "interrupted": is_command & pl.col("is_aborted"),
        "timeout": is_command & pl.col("is_timed_out"),
        "exit_nonzero": pl.col("exit_code") != 0,
        # V1 gives a call that it cannot make to a tool of this name, which explains why.
        "tool_unknown": is_invalid & is_unknown,
        "tool_input_invalid": is_invalid & (pl.col("era") == "V1"),
    }
    of_completed = pl.when(pl.col("state") == "completed").then(first_that_holds(causes))
    return frames.TOOLS.conform(
        caused.with_columns(
            pl.coalesce("cause", of_completed).alias("cause"),
            pl.coalesce("cause_confidence", pl.when(of_completed.is_not_null()).then(1.0)).alias(
                "cause_confidence"
            ),
            entity_id=ENTITY_IDS["tool_call"],
            started_at=moment("started_ms"),
            called_at=moment("called_ms"),
            ended_at=moment("ended_ms"),
        )
    )


def _inputs(frame: pl.DataFrame) -> pl.DataFrame:
    return frames.INPUTS.conform(
        frame.with_columns(
            kind="input_kind",
            admitted_at=moment("admitted_ms"),
            promoted_at=moment("promoted_ms"),
            wait_s=(pl.col("promoted_ms") - pl.col("admitted_ms")) / 1000,
        )
    )


def _sessions(frame: pl.DataFrame) -> pl.DataFrame:
    return frames.SESSIONS.conform(
        frame.with_columns(last_at=moment("last_ms"), event_cost_usd="cost_usd")
    )
