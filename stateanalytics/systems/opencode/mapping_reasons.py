"""Why an execution, a session, a step or a tool call is in its state: codes and evidence."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core.package_tables import read_table
from stateanalytics.core.schema import CLAIM_STATUSES, DIMENSIONS
from stateanalytics.systems.situations import INFERRED, OBSERVED, evidence, numbered

RUN_KEY = ("source", "session_id", "exec_no")


_RESUMED, _RECOVERED = "run.health.resumed_after_shutdown", "run.health.recovered_after_retry"


class _Reason(NamedTuple):
    why: str
    place: int
    dimension: Annotated[str, DIMENSIONS]
    code: str
    message: str
    claim: Annotated[str, CLAIM_STATUSES]
    confidence: float
    has_event: bool
    is_quoted: bool


REASONS = pl.DataFrame(read_table(__package__, "execution_reasons.csv", _Reason))
"""What explains an execution: ``why`` it holds (its situation, or what holds besides).

``place`` is that among its reasons; ``{cause}`` in a ``code`` is the row's own, and its
confidence goes before ``confidence``. ``has_event``: the event that ended it is the evidence,
else the rule is; ``is_quoted``: the words of the error are the message, where there are any.
"""


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
        pl.when(stopped & pl.col("is_resumed")).then(pl.lit(_RESUMED)),
        pl.when(ended_well & pl.col("is_recovered")).then(pl.lit(_RECOVERED)),
    )
    rows = executions.with_columns(why=whys).explode("why").join(REASONS, on="why")
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
    situation = pl.col("situation")
    cause = pl.col("cause").fill_null("unknown")
    good = situation == "succeeded"
    is_stale = stale & cause.is_in(["aborted", "stale_after_crash"])
    code = (
        pl.when(situation == "blocked")
        .then(pl.lit("invocation.failed.content_filtered"))
        .when((situation == "cancelled") & (cause == "interrupted"))
        .then(pl.lit("invocation.cancelled.interrupted"))
        .when(situation == "cancelled")
        .then(pl.lit("invocation.cancelled.aborted"))
        .when(situation == "timed_out")
        .then(pl.lit("invocation.timed_out.own_limit"))
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
    exit_code = pl.col("exit_code").cast(pl.String) if is_tool else pl.lit(None, pl.String)
    detail = pl.coalesce("error_message", finish, exit_code, pl.lit(""))
    return coded.select(
        "source",
        "entity_id",
        order=pl.lit(0, pl.Int64),
        dimension=dimension.replace(["failed", "cancelled", "aborted", "timed_out"], "lifecycle"),
        code="code",
        message=quoted(
            pl.when(pl.col("code").str.ends_with("exit_nonzero"))
            .then(pl.lit("The command that it ran returned an error"))
            .when(situation == "timed_out")
            .then(pl.lit("The command took longer than it may"))
            .otherwise(pl.lit("What its own events say"))
        ),
        claim_status=pl.when(pl.col("confidence") < 1)
        .then(pl.lit(INFERRED))
        .otherwise(pl.lit(OBSERVED)),
        confidence="confidence",
        event_id="end_event_id",
        evidence=evidence(
            pl.lit("tool_result" if is_tool else "message"), pl.col("end_event_id"), detail
        ),
    )
