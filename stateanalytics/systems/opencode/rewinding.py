"""opencode at an earlier instant: what was written later is left out, and the rest read again.

A record that is written over says when it was finished: before that, none of what was
written with its end is known. Rows of sessions keep no old values, so that what they add
up to is known only where they were last written before the instant.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.history import LOST, Past, with_rows_of
from stateanalytics.systems.opencode import frames
from stateanalytics.systems.opencode.gathered import Gathered
from stateanalytics.systems.opencode.log import SESSION_KEY, Log
from stateanalytics.systems.opencode.payloads import USAGE
from stateanalytics.systems.opencode.reading import assembled
from stateanalytics.systems.opencode.record_frames import OF_SESSIONS, RECORDS, gathered_again

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WITH_THE_END_OF_A_MESSAGE = (
    *("completed_ms", "finish", "raw_finish", "error_type", "error_message", "error_status"),
    *("n_content_chars", "n_content_tools", "retry_at_ms", "retry_attempt", "retry_error_type"),
    *USAGE,
)
WITH_THE_END_OF_A_PART = (
    *("end_ms", "exit_code", "error_message", "n_chars"),
    *("is_timed_out", "is_aborted"),
)
WITH_THE_UPDATE_OF_A_SESSION = (
    *("updated_ms", "row_cost_usd", "row_input_tokens", "row_output_tokens"),
    *("row_reasoning_tokens", "row_cache_read_tokens", "row_cache_write_tokens"),
    *("agent", "model", "provider", "n_resume_attempts", "idle_outcome"),
)


def rewind(past: Past, facts: Facts) -> Past:
    """The same instant, with opencode's rows as a reader would have found them then.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        Of now, with the frames of `record_frames.RECORDS`.

    Returns
    -------
    Past
        Inputs without those frames stay as they were.
    """
    kept = [facts.detail(frame)["source"] for frame in RECORDS]
    labels = pl.concat(kept).unique().sort()
    if labels.is_empty():
        return past
    at_ms = (past.at - _EPOCH) // timedelta(milliseconds=1)
    is_told = pl.col("source").is_in(labels.implode())
    told = gathered_again(facts.details, facts.events.filter(is_told))
    then = assembled(cut_off(told, at_ms))
    entities = then.entities.sort("source", maintain_order=True)
    gone = _lost(entities, then.details[frames.EXECUTIONS.name], facts, past.at)
    return with_rows_of(past, then, labels, gone)


def _lost(
    entities: pl.DataFrame, executions: pl.DataFrame, facts: Facts, at: datetime
) -> pl.DataFrame:
    """What nobody recorded of then; all else is folded again.

    A row of a session that was written since says neither when it had been written before nor
    whether the session was claimed, which is a question of its executions.
    """
    written = facts.detail(OF_SESSIONS).filter(pl.col("updated_at") > at)
    ids = ["source", "session_id"]
    rows = (
        pl.concat(
            [
                written.select("source", entity_type=pl.lit("session"), entity_id="session_id"),
                executions.join(written, on=ids, how="semi").select(
                    "source", entity_type=pl.lit("execution"), entity_id="entity_id"
                ),
            ]
        )
        .unique()
        .with_columns(is_written=pl.lit(value=True))
    )  # a stream tells a session often
    key = ["source", "entity_type", "entity_id"]
    joined = entities.join(rows, on=key, how="left", maintain_order="left")
    since = pl.col("is_written").fill_null(value=False)
    is_session = pl.col("entity_type") == "session"
    known = dict.fromkeys(LOST, pl.lit(value=False))
    gone = {"updated": since & is_session, "record": since, "present": pl.lit(value=True)}
    return joined.select(**(known | gone))


def cut_off(gathered: Gathered, at_ms: int) -> Gathered:
    """What inputs held at an instant.

    Parameters
    ----------
    gathered : Gathered
        What they hold now.
    at_ms : int
        The instant in epoch milliseconds.

    Returns
    -------
    Gathered
        What began later is gone, and what ended later is open. What has no moment at all is
        kept: nothing says that it was written later.
    """
    return replace(
        gathered,
        log=Log(_events_up_to(gathered.log.events, at_ms), gathered.log.payloads),
        messages=_messages_up_to(gathered.messages, at_ms),
        projections=_messages_up_to(gathered.projections, at_ms),
        parts=_parts_up_to(gathered.parts, gathered.messages, at_ms),
        session_rows=_sessions_up_to(gathered.session_rows, at_ms),
        waiting=None,
    )


def _is_later(name: str, at_ms: int) -> pl.Expr:
    return (pl.col(name) > at_ms).fill_null(value=False)


def _events_up_to(events: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    """An event without a moment came no later than the next one that has one."""
    ordered = events.sort(*SESSION_KEY, "seq", nulls_last=True, maintain_order=True)
    at, is_durable = pl.col("at_ms"), pl.col("seq").is_not_null()
    placed = ordered.with_columns(
        by=pl.coalesce(at, at.backward_fill(), at.forward_fill()).over(*SESSION_KEY, is_durable)
    )
    return placed.filter(~_is_later("by", at_ms)).drop("by")


def _messages_up_to(messages: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    was_open = _is_later("completed_ms", at_ms)
    there = messages.filter(~_is_later("created_ms", at_ms), ~_is_later("written_ms", at_ms))
    return there.with_columns(
        pl.when(~was_open).then(name).alias(name) for name in WITH_THE_END_OF_A_MESSAGE
    )


def _parts_up_to(parts: pl.DataFrame, messages: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    """A part without a moment came with its message."""
    was_waiting, was_open = _is_later("start_ms", at_ms), _is_later("end_ms", at_ms)
    later = messages.filter(_is_later("created_ms", at_ms))
    begun = parts.filter(
        ~(pl.coalesce("created_ms", "start_ms") > at_ms).fill_null(value=False),
        ~_is_later("written_ms", at_ms),
    ).join(later, on=["source", "message_id"], how="anti")
    return begun.with_columns(
        *(pl.when(~was_open).then(name).alias(name) for name in WITH_THE_END_OF_A_PART),
        start_ms=pl.when(~was_waiting).then("start_ms"),
        status=pl.when(pl.col("status").is_null())
        .then(None)
        .when(was_waiting)
        .then(pl.lit("pending"))
        .when(was_open)
        .then(pl.lit("running"))
        .otherwise("status"),
    )


def _sessions_up_to(rows: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    is_written = _is_later("updated_ms", at_ms)
    there = rows.filter(~_is_later("created_ms", at_ms), ~_is_later("written_ms", at_ms))
    return there.with_columns(
        *(pl.when(~is_written).then(name).alias(name) for name in WITH_THE_UPDATE_OF_A_SESSION),
        *(
            pl.when(~_is_later(name, at_ms)).then(name).alias(name)
            for name in ("archived_ms", "suspended_ms")
        ),
    )
