"""Why an execution, a session, a step or a tool call is in its state: codes and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

import polars as pl

from stateanalytics.systems.recorded import INFERRED, OBSERVED, Because, evidence, numbered

RUN_KEY = ("source", "session_id", "exec_no")


_FAILED = Because("lifecycle", "run.failed.{cause}", "It failed", is_quoted=True)
_SHUTDOWN = Because("lifecycle", "run.aborted.server_shutdown", "The server was stopped")
RESUMED = Because(
    "health",
    "run.health.resumed_after_shutdown",
    "Its session was started again",
    INFERRED,
    0.9,
    has_event=False,
)
RECOVERED = Because(
    "health",
    "run.health.recovered_after_retry",
    "A retry helped",
    has_event=False,
)
INPUT_PENDING = Because(
    "health",
    "run.health.input_pending",
    "An input waits, and nothing works on it",
    INFERRED,
    0.9,
    has_event=False,
)


def _declined(claim: str, confidence: float) -> Because:
    return Because(
        "lifecycle",
        "run.cancelled.permission_declined",
        "A person declined what it asked for",
        claim,
        confidence,
    )


def _dead(entity: str) -> Because:
    return Because(
        "lifecycle" if entity == "run" else "health",
        f"{entity}.{'aborted' if entity == 'run' else 'health'}.process_dead_no_terminal",
        "It was started again, and no end had been written",
        INFERRED,
        0.95,
        has_event=False,
    )


REASONS: Mapping[str, tuple[Because, ...]] = MappingProxyType(
    {
        "blocked": (
            Because(
                "lifecycle",
                "run.failed.content_filtered",
                "The provider's content filter stopped the answer",
            ),
            Because(
                "delivery",
                "run.delivery.blocked_by_provider",
                "What was answered before the block is all there is",
            ),
        ),
        "truncated": (
            Because("delivery", "run.delivery.truncated_length", "The answer was cut off"),
        ),
        "unknown_finish": (
            Because(
                "delivery", "run.delivery.unknown_finish", "The last step ended for no known reason"
            ),
        ),
        "empty": (
            Because(
                "delivery",
                "run.delivery.empty_output",
                "No text and no tool result",
                INFERRED,
                0.7,
            ),
        ),
        "failed_degraded": (_FAILED,),
        "failed": (_FAILED,),
        "by_user": (Because("lifecycle", "run.cancelled.user_interrupt", "A person stopped it"),),
        "superseded": (
            Because("lifecycle", "run.cancelled.superseded", "Other work took its place"),
        ),
        "inactive": (
            Because("lifecycle", "run.timed_out.inactivity", "Nothing happened for too long"),
        ),
        "declined": (_declined(OBSERVED, 0.95),),
        "declined_inferred": (_declined(INFERRED, 0.8),),
        "shutdown_resumed": (_SHUTDOWN,),
        "shutdown": (_SHUTDOWN,),
        "shutdown_claimed": (
            Because(
                "health",
                "run.health.suspended_by_shutdown",
                "The server was stopped and will resume it",
            ),
        ),
        "unrecognized_reason": (
            Because("lifecycle", "run.cancelled.unrecognized", "Interrupted for an unknown reason"),
        ),
        "crashed": (_dead("run"), _dead("system")),
        "unrecorded": (
            Because(
                "lifecycle",
                "run.lifecycle.unrecorded",
                "It was closed without a finish and without an error",
                INFERRED,
                0.6,
            ),
        ),
    }
)
"""Reasons of every situation of an execution that needs explaining, most direct first."""


def _table() -> pl.DataFrame:
    """Every reason, one row each: ``why`` it holds, its ``place``, and what `Because` says."""
    also = ((RESUMED.code, 7, RESUMED), (RECOVERED.code, 8, RECOVERED))
    of_situations = (
        (situation, place, because)
        for situation, all_of_it in REASONS.items()
        for place, because in enumerate(all_of_it)
    )
    return pl.DataFrame(
        {"why": why, "place": place, **asdict(because)}
        for why, place, because in (*of_situations, *also)
    )


_TABLE = _table()


def execution_reasons(executions: pl.DataFrame) -> pl.DataFrame:
    """The reasons of every execution, most direct first.

    Parameters
    ----------
    executions : polars.DataFrame
        From `mapping.situations`.

    Returns
    -------
    polars.DataFrame
        ``source``, ``session_id``, ``exec_no``, ``order``, ``dimension``, ``code``,
        ``message``, ``claim_status``, ``confidence``, ``event_id``, ``evidence``.
    """
    ended_well = (pl.col("outcome") == "succeeded") & (pl.col("situation") != "blocked")
    stopped = pl.col("situation").is_in(["declined", "declined_inferred", "shutdown_resumed"])
    whys = pl.concat_list(
        "situation",
        pl.when(stopped & pl.col("is_resumed")).then(pl.lit(RESUMED.code)),
        pl.when(ended_well & pl.col("is_recovered")).then(pl.lit(RECOVERED.code)),
    )
    rows = executions.with_columns(why=whys).explode("why").join(_TABLE, on="why")
    # A stored end says why by itself; one that is read off a message is less sure.
    is_sure = pl.col("cause_confidence").fill_null(1.0) >= 1.0
    own_claim = (pl.col("dimension") == "lifecycle") & (pl.col("claim") == OBSERVED)
    is_spelled_out = pl.col("cause").fill_null("") == "resume_exhausted"
    keeps = is_sure | is_spelled_out | ~own_claim
    cause = pl.col("cause").fill_null("unknown")
    detail = pl.coalesce("error_message", "interrupt_reason", "last_finish", pl.lit(""))
    of_event = pl.when("has_event")
    reasons = rows.select(
        *RUN_KEY,
        "place",
        "dimension",
        code=pl.col("code").str.replace("{cause}", cause, literal=True),
        message=pl.when("is_quoted").then(quoted(pl.col("message"))).otherwise("message"),
        claim_status=pl.when(keeps).then("claim").otherwise(pl.lit(INFERRED)),
        confidence=pl.when(keeps).then("confidence").otherwise("cause_confidence"),
        event_id=of_event.then("end_event_id"),
        evidence=evidence(
            of_event.then(pl.lit("message")).otherwise(pl.lit("rule")),
            of_event.then("end_event_id").otherwise("situation"),
            of_event.then(detail).otherwise("message"),
        ),
    )
    return numbered(reasons, RUN_KEY)


def quoted(otherwise: pl.Expr) -> pl.Expr:
    """The words of the error; ``otherwise`` where it has none."""
    message = pl.col("error_message")
    return pl.when(message.str.strip_chars() != "").then(message).otherwise(otherwise)


def call_reasons(calls: pl.DataFrame, *, is_tool: bool) -> pl.DataFrame:
    """The reasons of steps or tool calls, by ``entity_id``; from `mapping.call_situations`."""
    stale = pl.col("is_stale").fill_null(value=False) if is_tool else pl.lit(value=False)
    finish = pl.lit(None, pl.String) if is_tool else pl.col("finish")
    exit_code = pl.col("exit_code") if is_tool else pl.lit(None, pl.Int64)
    situation = pl.col("situation")
    cause = pl.col("cause").fill_null("unknown")
    good = situation == "succeeded"
    is_stale = stale & cause.is_in(["aborted", "stale_after_crash"])
    code = (
        pl.when(situation == "blocked")
        .then(pl.lit("invocation.failed.content_filtered"))
        .when(situation == "cancelled")
        .then(pl.lit("invocation.cancelled.aborted"))
        .when(situation == "left_open")
        .then(pl.lit("invocation.aborted.execution_ended"))
        .when((situation == "abandoned") | ((situation == "failed") & is_stale))
        .then(pl.lit("invocation.failed.stale_after_crash"))
        .when(situation == "failed")
        .then(pl.concat_str(pl.lit("invocation.failed."), cause))
        .when(good & (finish == "length").fill_null(value=False))
        .then(pl.lit("invocation.delivery.truncated_length"))
        .when(good & finish.is_in(["unknown", "error"]).fill_null(value=False))
        .then(pl.lit("invocation.delivery.unknown_finish"))
        .when(good & (exit_code != 0).fill_null(value=False))
        .then(pl.lit("invocation.health.exit_nonzero"))
    )
    confidence = (
        pl.when(situation.is_in(["abandoned", "left_open"]))
        .then(0.9)
        .when((situation == "failed") & ~is_stale)
        .then(pl.col("cause_confidence").fill_null(1.0))
        .otherwise(1.0)
    )
    coded = calls.with_columns(code=code, confidence=confidence).filter(
        pl.col("code").is_not_null()
    )
    dimension = coded["code"].str.extract(r"^invocation\.([a-z]+)", 1)
    detail = pl.coalesce("error_message", finish, exit_code.cast(pl.String), pl.lit(""))
    return coded.select(
        "source",
        "entity_id",
        order=pl.lit(0, pl.Int64),
        dimension=dimension.replace(["failed", "cancelled", "aborted"], "lifecycle"),
        code="code",
        message=pl.when(pl.col("code").str.ends_with("exit_nonzero"))
        .then(pl.lit("The program it ran returned an error, which the tool took as its result"))
        .otherwise(quoted(pl.lit("What its own events say"))),
        claim_status=pl.when(pl.col("confidence") < 1)
        .then(pl.lit(INFERRED))
        .otherwise(pl.lit(OBSERVED)),
        confidence="confidence",
        event_id="end_event_id",
        evidence=evidence(
            pl.lit("tool_result" if is_tool else "message"), pl.col("end_event_id"), detail
        ),
    )
