"""The states of opencode's executions, sessions, steps and tool calls, and their reasons.

Each situation has a name; ``data/situations.csv`` has its meaning in ADR-0033's terms. The
first situation that holds counts. Work that a provider's content filter stopped has failed, in
every era, regardless of anything else that was recorded about it.

The union of error types is open: a type that opencode never wrote, drafted or shipped is
``unrecognized`` and keeps its own name in ``error_type``. A cause that follows only from the
words of a message has a confidence below one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table, table_rows
from stateanalytics.systems import situations
from stateanalytics.systems.opencode import NAME
from stateanalytics.systems.situations import cause_by_words, refined

UNRECOGNIZED = "unrecognized"


CAUSES: Mapping[str, str] = {
    row["type"]: row["cause"] for row in table_rows(__package__, "causes.csv")
}
"""The last segment of the reason code, by the type of an error or its name in V1."""
DEGRADING = (
    "provider_rate_limit", "provider_transport", "provider_internal", "provider_timeout",
)  # fmt: skip
"""Causes outside of the work itself, which leave its health degraded."""
_ABORTED_TEXTS: Mapping[str, str] = {
    "Execution was interrupted repeatedly": "resume_exhausted",
    "Tool execution interrupted: ": "stale_after_crash",
    "The user declined": "permission_declined",
}
"""The cause of an ``aborted`` error by the beginning of its message."""
_VAGUE = ("APIError", "UnknownError", "unknown", "provider.unknown", "provider.error")
"""Types that name no cause; the status or the text of the error does."""
_WORDS_CONFIDENCE = 0.9
_ABORTED_CONFIDENCE = 0.6
"""It is low because V1 writes the same for an interruption and for a stop of the server."""


def with_cause(
    frame: pl.DataFrame,
    error_type: str = "error_type",
    message: str = "error_message",
    status: str = "error_status",
    *,
    has_error: pl.Expr | None = None,
    into: str = "cause",
    vague: Sequence[str] = _VAGUE,
) -> pl.DataFrame:
    """Add the cause of each row's error, with its confidence.

    Parameters
    ----------
    frame : polars.DataFrame
    error_type, message, status : str
        Columns of the error; that of its status may be absent.
    has_error : polars.Expr, optional
        Whether there is an error; by default, whether its type is stored. An error without a
        type is ``unrecognized``.
    into : str
        The column to add; ``<into>_confidence`` comes with it.
    vague : sequence of str
        Types that name no cause; a status or text of the provider does.

    Examples
    --------
    >>> errors = pl.DataFrame({
    ...     "error_type": ["provider.quota", "aborted", "made.up", "unknown"],
    ...     "error_message": ["", "The user declined this tool call", "?", "HTTP 503: busy"]})
    >>> with_cause(errors)["cause"].to_list()
    ['provider_quota', 'permission_declined', 'unrecognized', 'provider_internal']
    """
    kind, text = pl.col(error_type), pl.col(message).fill_null("")
    stored = pl.col(status) if status in frame.columns else pl.lit(None, pl.Int64)
    is_error = kind.is_not_null() if has_error is None else has_error
    is_api = (kind == "APIError").fill_null(value=False)
    is_vague = kind.is_in(vague).fill_null(value=False)
    is_aborted = (kind == "aborted").fill_null(value=False)
    aborted = pl.coalesce(
        pl.when(is_aborted & text.str.starts_with(begin)).then(pl.lit(cause))
        for begin, cause in _ABORTED_TEXTS.items()
    )
    by_type = kind.replace_strict(dict(CAUSES), default=UNRECOGNIZED, return_dtype=pl.String)
    # opencode has its own cause for a timeout of the provider.
    late = pl.when(is_vague & stored.is_in([408, 504])).then(pl.lit("provider_timeout"))
    by_words = pl.when(is_vague).then(cause_by_words(stored, text))
    exact = refined(by_type, text)
    is_from_words = by_words.is_not_null() | (exact != by_type) | aborted.is_not_null()
    is_stated = is_api & stored.is_not_null() & (by_words != "context_overflow")
    confidence = (
        pl.when(is_stated.fill_null(value=False))
        .then(1.0)
        .when(is_from_words)
        .then(_WORDS_CONFIDENCE)
        .when(kind == "MessageAbortedError")
        .then(_ABORTED_CONFIDENCE)
        .otherwise(1.0)
    )
    cause = pl.coalesce(aborted, late, by_words, exact, pl.lit(UNRECOGNIZED))
    return frame.with_columns(
        pl.when(is_error).then(cause).alias(into),
        pl.when(is_error).then(confidence).alias(f"{into}_confidence"),
    )


def is_content_filtered() -> pl.Expr:
    """Whether the provider's content filter stopped a step, whatever else was recorded."""
    is_error = pl.col("error_type").is_in(["provider.content-filter", "ContentFilterError"])
    return (
        is_error.fill_null(value=False)
        | situations.is_content_filter("finish")
        | situations.is_content_filter("raw_finish")
    )


RUN_KEY = ("source", "session_id", "exec_no")


class _Situation(NamedTuple):
    of: Annotated[str, ("execution", "call")]
    situation: str
    lifecycle: Annotated[str, schema.LIFECYCLES]
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, schema.HEALTHS] | None
    delivery: Annotated[str, schema.DELIVERIES] | None
    delivery_without_output: Annotated[str, schema.DELIVERIES] | None


class _Reason(NamedTuple):
    why: str
    place: int
    dimension: Annotated[str, schema.DIMENSIONS]
    code: str
    message: str
    claim: Annotated[str, schema.CLAIM_STATUSES]
    confidence: float
    has_event: bool
    is_quoted: bool


_SITUATIONS = pl.DataFrame(
    package_table(__package__, "situations.csv", _Situation),
    schema=dict.fromkeys(_Situation._fields, pl.String),
    orient="row",
).rename({"outcome": "outcome_word"})
_EXECUTIONS, _CALLS = (_SITUATIONS.filter(of=of).drop("of") for of in ("execution", "call"))
"""Every situation of an execution, turn or session; the last two are of sessions without one.

The health of an open execution depends on the instant: the shared rules judge it, by the
limits of its system. The others are of steps and tool calls.
"""
_AXES = ("lifecycle", "outcome_word", "health", "delivery")
_OPEN_FACTS = (
    *("last_sign_at", "due_at", "retry_code", "n_running", "n_questions", "is_resume_claimed"),
    "n_unknown_finishes",
)
"""Columns of ``entities`` that `_with_situations` fills for open executions."""
_OF_RUN = (
    *("situation", "has_output", *_OPEN_FACTS, "outcome", "is_resumed", "is_recovered", "cause"),
    *("cause_confidence", "error_message", "interrupt_reason", "last_finish", "end_event_id"),
)
_READ = (
    *("source", "entity_id", *_OF_RUN, *_AXES, "has_waiting_input", "n_pending_inputs"),
    *("finish", "exit_code", "is_stale", "n_text_chars"),
)
"""What axes and reasons read of runs, which sessions have from their last one, and of calls."""
_CANCELLED = ("by_user", "superseded", "declined", "declined_inferred")
_BLOCKED_DISPLAY = "Failed · Blocked by provider content filter · {}"
_RESUMED, _RECOVERED = "run.health.resumed_after_shutdown", "run.health.recovered_after_retry"
_PENDING = "input_pending"
_REASONS = pl.DataFrame(package_table(__package__, "execution_reasons.csv", _Reason))
"""The reasons of executions: ``why`` is a situation, or a fact that holds as well.

``place`` is the order among the reasons of one execution; ``{cause}`` in a ``code`` is the
row's own, whose confidence replaces ``confidence``. ``has_event``: the event that ended it is
the evidence, else the rule is; ``is_quoted``: the message is that of the error, if there is one.
"""


def add_recorded(entities: pl.DataFrame, details: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Add the recorded axes, facts of open work, reasons, and the code of the end.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`, without its ``recorded_`` columns filled.
    details : mapping of str to polars.DataFrame
        The detail frames that the entities were made from.

    Returns
    -------
    polars.DataFrame
        The same rows. opencode stores the error of a failure; the code is its name.
    """
    executions = _with_situations(details["opencode_executions"])
    sessions = _session_situations(details["opencode_sessions"], executions)
    turns = executions.filter("is_last_of_turn").with_columns(entity_id=turn_id())
    # Steps and tool calls are both calls; columns that one kind lacks are null or False.
    steps = details["opencode_steps"].with_columns(
        is_stale=pl.lit(value=False), exit_code=pl.lit(None, pl.Int64)
    )
    tools = details["opencode_tools"].with_columns(
        is_blocked=pl.lit(value=False), finish=pl.lit(None, pl.String)
    )
    steps, tools = (_call_situations(calls, executions) for calls in (steps, tools))
    runs = _stacked(session=sessions, turn=turns, execution=executions)
    calls = _stacked(step=steps, tool_call=tools)
    reasons = pl.concat([_run_reasons(runs), _call_reasons(calls)])
    axes = _axes(pl.concat([runs, calls], how="diagonal"))
    return situations.with_recorded(entities, axes, reasons)


def _stacked(**frames: pl.DataFrame) -> pl.DataFrame:
    """Entities of several types in one frame, with the columns that axes and reasons need."""
    return pl.concat(
        [
            rows.select(name for name in _READ if name in rows.columns).with_columns(
                system=pl.lit(NAME), entity_type=pl.lit(entity_type)
            )
            for entity_type, rows in frames.items()
        ],
        how="diagonal",
    )


def turn_id() -> pl.Expr:
    """The id of the turn of an execution."""
    return pl.concat_str("session_id", pl.lit(":turn:"), "turn_no")


def _with_situations(executions: pl.DataFrame) -> pl.DataFrame:
    """Executions with ``situation``, the four axes and `_OPEN_FACTS`, which are null at an end."""
    is_open = pl.when(pl.col("situation") == "open")
    waits = pl.when((pl.col("situation") == "open") & pl.col("is_retry_pending"))
    cause = pl.col("retry_cause").fill_null("unknown")
    newest = pl.coalesce("session_last_at", "last_active_at", "started_at")
    named = executions.with_columns(
        situation=situations.first_that_holds(_situation_rules()).replace({"rejected": "declined"})
    ).with_columns(
        last_sign_at=is_open.then(newest),
        due_at=waits.then("retry_at"),
        retry_code=waits.then(pl.format("run.health.{}", cause)),
        n_running=is_open.then("n_tools_running"),
        n_questions=is_open.then("n_pending_asks"),
        is_resume_claimed=is_open.then("is_claimed"),
    )
    return situations.with_axes(named, _EXECUTIONS)


def _situation_rules() -> dict[str, pl.Expr]:
    """The situations of an execution and the expressions that mean them, by precedence."""

    def yes(name: str) -> pl.Expr:
        return pl.col(name).fill_null(value=False)

    def word(column: str, *words: str) -> pl.Expr:
        return pl.col(column).is_in(list(words)).fill_null(value=False)

    over = word("outcome", "succeeded", "failed")
    good, interrupted = word("outcome", "succeeded"), word("outcome", "interrupted")
    stopped = interrupted & word("interrupt_reason", "shutdown")
    # If permission is rejected, V1 ends the turn itself; later eras write a shutdown.
    rejected = interrupted & word("era", "V1") & yes("is_declined")
    return {
        "blocked": yes("is_blocked") & over,
        "rejected": rejected,
        "without_steps": good & (pl.col("n_steps") == 0),
        # V1 writes the output limit as a finish or as an error.
        "truncated": (good & word("last_finish", "length"))
        | (word("outcome", "failed") & word("cause", "truncated_length")),
        "unknown_finish": good & word("last_finish", "unknown", "error"),
        "empty": good & ~yes("has_output"),
        "good": good,
        "failed_degraded": word("outcome", "failed") & word("cause", *DEGRADING),
        "failed": word("outcome", "failed"),
        "by_user": interrupted & word("interrupt_reason", "user"),
        "superseded": interrupted & word("interrupt_reason", "superseded"),
        "inactive": interrupted & word("interrupt_reason", "inactivity"),
        "declined": stopped & yes("is_declined"),
        "declined_inferred": stopped & yes("has_others_running"),
        "shutdown_resumed": stopped & yes("is_resumed"),
        "shutdown_claimed": stopped & yes("is_claimed"),
        "shutdown": stopped,
        "unrecognized_reason": interrupted,
        "crashed": word("outcome", "crashed"),
        "open": word("outcome", "open"),
        "unrecorded": word("outcome", "unknown"),
    }


def _session_situations(sessions: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """The situation and axes of every session: its last execution's, unless inputs wait."""
    key = ["source", "session_id"]
    last = executions.filter("is_last").select(*key, *_OF_RUN)
    joined = sessions.join(last, on=key, how="left", maintain_order="left")
    waits = pl.col("n_pending_inputs").fill_null(0) > 0
    idle = pl.when(waits).then(pl.lit("waiting")).otherwise(pl.lit("new"))
    named = joined.with_columns(
        entity_id="session_id", situation=pl.coalesce("situation", idle)
    ).pipe(situations.with_axes, _EXECUTIONS)
    is_idle, has_ended = pl.col("health") == "idle", pl.col("outcome_word").is_not_null()
    is_well = pl.col("health").is_null() | (pl.col("health") == "ok")
    waits_idle = waits & (is_idle | (has_ended & is_well)).fill_null(value=False)
    return named.with_columns(
        has_waiting_input=waits_idle,
        health=pl.when(waits_idle).then(pl.lit("idle")).otherwise("health"),
    )


def _call_situations(calls: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """The situation and axes of every step or tool call.

    The end of its execution decides the meaning of an abort.
    """
    of_execution = executions.select(
        *RUN_KEY,
        is_execution_over=pl.col("lifecycle") != "running",
        is_execution_crashed=pl.col("situation") == "crashed",
        is_execution_cancelled=pl.col("situation").is_in(list(_CANCELLED)),
    )
    joined = calls.join(of_execution, on=RUN_KEY, how="left", maintain_order="left")
    ended = pl.col("state").is_in(["ended", "completed"])
    failed = pl.col("state").is_in(["failed", "error"])
    aborted = pl.col("error_type").is_in(["aborted", "MessageAbortedError"])
    cancelled = pl.col("is_execution_cancelled")
    # A tool call with a cause that succeeded is one whose command failed.
    cause = pl.col("cause")
    rules = {
        "blocked": pl.col("is_blocked"),
        "stopped": ended & (cause == "interrupted"),
        "timed_out": cause == "timeout",
        "succeeded": ended & cause.is_null(),
        "failed_command": ended,
        "cancelled": failed & aborted & cancelled & ~pl.col("is_stale").fill_null(value=False),
        "failed": failed,
        "cancelled_open": cancelled,
        # After a crash no process was left to write an end; any other end cut the call off.
        "abandoned": pl.col("is_execution_crashed"),
        "left_open": pl.col("is_execution_over"),
        "running": pl.lit(value=True),
    }
    named = joined.with_columns(
        situation=situations.first_that_holds(rules).replace(
            {"cancelled_open": "cancelled", "failed_command": "failed", "stopped": "cancelled"}
        )
    )
    return situations.with_axes(named, _CALLS)


def _run_reasons(runs: pl.DataFrame) -> pl.DataFrame:
    """The reasons of sessions, turns and executions, most direct first."""
    ended_well = (pl.col("outcome") == "succeeded") & (pl.col("situation") != "blocked")
    stopped = pl.col("situation").is_in(["declined", "declined_inferred", "shutdown_resumed"])
    whys = pl.concat_list(
        "situation",
        pl.when(stopped & pl.col("is_resumed")).then(pl.lit(_RESUMED)),
        pl.when(ended_well & pl.col("is_recovered")).then(pl.lit(_RECOVERED)),
        pl.when("has_waiting_input").then(pl.lit(_PENDING)),
    )
    # A stored cause is certain; a cause that follows from the words of a message is less so.
    is_unsure = (pl.col("cause_confidence") < 1) & pl.col("cause").ne_missing("resume_exhausted")
    is_observed_end = (pl.col("dimension") == "lifecycle") & (
        pl.col("claim") == situations.OBSERVED
    )
    detail = pl.coalesce("error_message", "interrupt_reason", "last_finish", pl.lit(""))
    of_event, if_pending = pl.when("has_event"), pl.when(pl.col("why") == _PENDING)
    rule = if_pending.then("why").otherwise("situation")
    n_waiting = pl.format("{} inputs wait", "n_pending_inputs")
    evidence = situations.evidence(
        of_event.then(pl.lit("message")).otherwise(pl.lit("rule")),
        of_event.then("end_event_id").otherwise(rule),
        of_event.then(detail).otherwise(if_pending.then(n_waiting).otherwise("message")),
    )
    confidence = pl.when(is_observed_end & is_unsure).then("cause_confidence")
    return _worded(runs.with_columns(why=whys).explode("why"), confidence, evidence)


def _worded(rows: pl.DataFrame, confidence: pl.Expr, evidence: pl.Expr) -> pl.DataFrame:
    """Reasons by the ``why`` of each row; ``confidence`` replaces that of the table, if any."""
    error, cause = pl.col("error_message"), pl.col("cause").fill_null("unknown")
    is_quoted = pl.col("is_quoted") & (error.str.strip_chars() != "")
    return rows.join(_REASONS, on="why", maintain_order="left").select(
        *(*schema.ENTITY_KEY, "dimension"),
        order="place",
        code=pl.col("code").str.replace("{cause}", cause, literal=True),
        message=pl.when(is_quoted).then(error).otherwise("message"),
        claim_status=pl.when(confidence < 1).then(pl.lit(situations.INFERRED)).otherwise("claim"),
        confidence=pl.coalesce(confidence, "confidence"),
        evidence=evidence,
    )


def _call_reasons(calls: pl.DataFrame) -> pl.DataFrame:
    """The reason of each step or tool call that has one."""
    situation, finish, exit_code = pl.col("situation"), pl.col("finish"), pl.col("exit_code")
    cause, good = pl.col("cause").fill_null("unknown"), situation == "succeeded"
    is_stale = pl.col("is_stale") & cause.is_in(["aborted", "stale_after_crash"])
    failed, cancelled = situation == "failed", situation == "cancelled"
    whys = {
        "call.blocked": situation == "blocked",
        "call.interrupted": cancelled & (cause == "interrupted"),
        "call.cancelled": cancelled,
        "call.timed_out": situation == "timed_out",
        "call.left_open": situation == "left_open",
        "call.abandoned": situation == "abandoned",
        "call.stale": failed & is_stale,
        "call.exit_nonzero": failed & (cause == "exit_nonzero"),
        "call.failed": failed,
        "call.truncated": good & (finish == "length"),
        "call.unknown_finish": good & finish.is_in(["unknown", "error"]),
    }
    why = situations.first_that_holds(whys)
    has_cause = pl.col("code").str.contains("{cause}", literal=True)
    is_step = pl.col("entity_type") == "step"
    evidence = situations.evidence(
        pl.when(is_step).then(pl.lit("message")).otherwise(pl.lit("tool_result")),
        pl.col("end_event_id"),
        pl.coalesce("error_message", finish, exit_code.cast(pl.String), pl.lit("")),
    )
    confidence = pl.when(has_cause).then("cause_confidence")
    return _worded(calls.with_columns(why=why), confidence, evidence)


def _axes(rows: pl.DataFrame) -> pl.DataFrame:
    """The recorded axes and facts of open work of all entities."""
    is_step, n_chars = pl.col("entity_type") == "step", pl.col("n_text_chars").fill_null(0)
    is_empty = pl.when(is_step).then(n_chars == 0).otherwise(pl.col("delivery") == "missing")
    output = pl.when(is_empty).then(pl.lit("No output")).otherwise(pl.lit("Partial output kept"))
    display = pl.when(pl.col("situation") == "blocked").then(pl.format(_BLOCKED_DISPLAY, output))
    # The shared rules judge the health of open work; its parts have none.
    is_judged = pl.col("situation") == "open"
    recorded = situations.add_axes(rows, "outcome_word")
    return recorded.select(
        *(*schema.ENTITY_KEY, *_OPEN_FACTS),
        *("recorded_lifecycle", "recorded_outcome", "recorded_delivery"),
        recorded_health=pl.when(~is_judged).then("recorded_health"),
        recorded_display=display,
    )
