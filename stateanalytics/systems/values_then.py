"""What each column of a row held at an earlier instant, as far as anything says it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, beside
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.systems import all_systems

KEY = list(schema.ENTITY_KEY)
UNTOUCHED, SEEN_LATER, HAS_ENDS = "_is_untouched", "_is_seen_later", "_has_ends"
_IS_CUT = "_is_cut"
_BY_HISTORY = "_status_by_history"
_OF_CHANGE = ("previous_status", "status", "reason_code", "message", "evidence")
_MESSAGES = ("message", "team_message")
_NO_HISTORY = (
    *("verdict", "is_verdict_valid", "n_required_missing", "n_optional_missing", "n_produced"),
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("cost_usd", "stored_duration_s", "attempt"),
    *("n_turns", "n_model_turns", "n_chat_messages", "starts", "exit_code"),
    *("stored_health", "stored_delivery", "stored_reason_codes"),
    *("due_at", "retry_code", "n_running", "n_questions", "n_unknown_finishes"),
    "patience_s",
    *("is_resume_claimed", "recorded_health", "recorded_delivery", "recorded_display"),
    *("recorded_reason_codes", "recorded_reasons", "recorded_lifecycle", "recorded_outcome"),
)
"""Columns that are written over and of which no system keeps an earlier value."""


def born() -> pl.Expr:
    """When a row came to be, as far as it says."""
    return pl.coalesce("created_at", "started_at")


def has_begun(at: datetime) -> pl.Expr:
    """Was the row there at an instant; one that names no moment always was."""
    return (born() <= at).fill_null(value=True)


def with_history(
    facts: Facts,
    at: datetime,
    rewritten: Sequence[str],
    seen_later: Sequence[str],
) -> pl.DataFrame:
    """Each entity that was there, with what its history says of an instant.

    Parameters
    ----------
    facts : Facts
        With the history, later rows included.
    at : datetime
        The instant.
    rewritten, seen_later : sequence of str
        The inputs with anything later, and those that were looked at later.
    """
    told = facts.transitions.select(*KEY, "at", "seq", *_OF_CHANGE)
    changes = told.sort("at", "seq", nulls_last=True)
    is_before, is_after = pl.col("at") <= at, pl.col("at") > at
    # Which change was the last and which the next are numbers: their texts are looked up after.
    places = (
        changes.with_row_index("place")
        .group_by(KEY)
        .agg(
            last=pl.when(is_before).then("place").max(), next=pl.when(is_after).then("place").min()
        )
    )
    last, following = changes[places["last"]], changes[places["next"]]
    of_history = places.select(
        *KEY,
        last["status"].alias("status_then"),
        last["at"].alias("changed_at"),
        last["reason_code"].alias("code_then"),
        last["message"].alias("message_then"),
        last["evidence"].alias("evidence_then"),
        was_changed=pl.col("last").is_not_null(),
        is_changed_later=pl.col("next").is_not_null(),
        next_previous=following["previous_status"],
    )
    is_message = pl.col("kind").is_in(_MESSAGES)
    of_events = facts.events.group_by(KEY).agg(
        said_at=pl.when(is_message & is_before).then("at").max(),
        n_said=(is_message & is_before).sum(),
        n_said_later=(is_message & is_after).sum(),
        has_messages=is_message.any(),
        has_reports=pl.col("kind").str.starts_with("report.").any(),
        active_at=pl.when(pl.col("is_activity") & is_before).then("at").max(),
    )
    is_caused = (pl.col("entity_type") == "session") & pl.col("invocation_id").is_not_null()
    of_sessions = (
        facts.entities.filter(is_caused)
        .group_by("source", "system", entity_id="invocation_id")
        .agg(
            n_begun=has_begun(at).sum().cast(pl.Int64),
            n_begun_later=(~has_begun(at)).sum().cast(pl.Int64),
        )
        .with_columns(entity_type=pl.lit("invocation"))
    )
    told = facts.entities.filter(has_begun(at))
    for each in (of_history, of_events, of_sessions):
        told = beside(told, each)
    # What is over, and says nowhere since when, may have been open.
    has_no_moment = pl.all_horizontal(pl.col("updated_at", "ended_at", "was_changed").is_null())
    is_later = (
        (pl.max_horizontal("updated_at", "ended_at") > at)
        | pl.col("is_changed_later")
        | (has_no_moment & _is_over("raw_status"))
    )
    was_changed = pl.col("was_changed").fill_null(value=False)
    by_history = pl.coalesce(pl.when(was_changed).then("status_then"), "next_previous")
    return told.with_columns(
        by_history.alias(_BY_HISTORY),
        (~(is_later.fill_null(value=False) & pl.col("source").is_in(rewritten))).alias(UNTOUCHED),
        pl.col("source").is_in(rewritten).alias(_IS_CUT),
        pl.col("source").is_in(seen_later).alias(SEEN_LATER),
        # Ends are not written of a type of which some work is over and none has an end.
        (pl.col("ended_at").is_not_null().any() | ~_is_over("raw_status").any())
        .over("system", "entity_type")
        .alias(HAS_ENDS),
    )


def _is_over(status: str, *, is_terminal: bool = True) -> pl.Expr:
    """Is a status an end (or not), by ADR-0033's words or those of its own system; never null."""
    typed = pl.concat_str("entity_type", status, separator=":")
    shared = [
        f"{word.entity_type}:{word.raw_status}"
        for word in STATUS_WORDS
        if word.is_terminal is is_terminal
    ]
    own = [
        f"{known.name}:{word.entity_type}:{word.raw_status}"
        for known in all_systems()
        for word in known.vocabulary
        if word.is_terminal is is_terminal
    ]
    told = typed.is_in(shared) | pl.concat_str("system", typed, separator=":").is_in(own)
    return told.fill_null(value=False)


def _is_life_written() -> pl.Expr:
    """Is the row of a system in which a write counts as a sign of life."""
    return pl.col("system").is_in(
        [known.name for known in all_systems() if known.last_update_is_life]
    )


def values_at(at: datetime) -> dict[str, pl.Expr]:
    """The columns that are written over, or looked at once, as they were at the instant."""
    untouched = pl.col(UNTOUCHED)
    said_before = (pl.col("last_message_at") <= at).fill_null(value=False)
    is_told = pl.col("has_messages").fill_null(value=False)
    n_said_later = pl.col("n_said_later").fill_null(0).cast(pl.Int64)
    updated = pl.when(pl.col("updated_at") <= at).then("updated_at")
    last_message = pl.when(said_before).then("last_message_at").when(is_told).then("said_at")
    started = pl.when(pl.col("started_at") <= at).then("started_at")
    ended = _ended(at)
    was_active = pl.when(pl.col("last_activity_at") <= at).then("last_activity_at")
    by_row = pl.coalesce(last_message, updated, started)
    by_events = pl.coalesce("active_at", started)
    last_sign = pl.when(_is_life_written()).then(by_row).otherwise(by_events)
    # A list of messages that were pruned still counts them.
    # A count that nobody kept up says less than the messages that came later.
    n_before = (pl.col("n_messages") - n_said_later).clip(lower_bound=0)
    n_left = pl.coalesce(n_before, pl.col("n_said").cast(pl.Int64))
    is_same = said_before | untouched | (pl.col("n_messages") == 0)
    n_messages = pl.when(is_told).then(n_left).when(is_same).then("n_messages")
    is_complete = untouched & (pl.col("n_begun_later").fill_null(0) == 0)
    then = {
        "raw_status": pl.when(untouched).then("raw_status").otherwise(_BY_HISTORY),
        "started_at": started,
        "ended_at": ended,
        "is_end_approximate": pl.when(ended == pl.col("ended_at")).then("is_end_approximate"),
        "end_written_by": pl.when(ended == pl.col("ended_at")).then("end_written_by"),
        "updated_at": updated,
        "last_message_at": last_message,
        "last_activity_at": pl.coalesce(was_active, last_sign),
        "last_sign_at": pl.when(pl.col("last_sign_at") <= at).then("last_sign_at"),
        "n_messages": n_messages,
        "n_children": pl.when(is_complete | (pl.col("entity_type") != "invocation"))
        .then("n_children")
        .otherwise(pl.col("n_begun").fill_null(0)),
        "reason_code": pl.when(untouched).then("reason_code").otherwise("code_then"),
        "reason_message": pl.when(untouched).then("reason_message").otherwise("message_then"),
        "evidence": pl.when(untouched).then("evidence").otherwise("evidence_then"),
        **{name: pl.when(untouched).then(name) for name in _NO_HISTORY},
    }
    return {
        **{name: pl.when(_IS_CUT).then(value).otherwise(name) for name, value in then.items()},
        # These were looked at once, and not then.
        **{name: pl.when(~pl.col(SEEN_LATER)).then(name) for name in _LOOKED_AT},
    }


_LOOKED_AT = ("process_alive", "has_stale_locks")


def _ended(at: datetime) -> pl.Expr:
    """The end that the work had: its row's, else (it was resumed later) its history's."""
    untouched = pl.col(UNTOUCHED)
    # An observer that came later may have written an end that lies before the instant.
    was_open = ~untouched & _is_over(_BY_HISTORY, is_terminal=False)
    was_closed = ~untouched & pl.col(HAS_ENDS) & _is_over("status_then")
    return (
        pl.when(was_open)
        .then(None)
        .when(pl.col("ended_at") <= at)
        .then("ended_at")
        .when(was_closed)
        .then("changed_at")
    )


def lost(at: datetime) -> dict[str, pl.Expr]:
    """A Boolean for each of `history.LOST`, over what `with_history` gives; never null."""
    untouched = pl.col(UNTOUCHED)
    is_told = pl.col("has_messages").fill_null(value=False)
    is_unsaid = ~untouched & ~pl.col("was_changed").fill_null(value=False)
    status = is_unsaid & pl.col("next_previous").is_null()
    updated = (pl.col("updated_at") > at).fill_null(value=False)
    said_later = (pl.col("last_message_at") > at).fill_null(value=False)
    message = said_later & ~is_told
    # A message, where there is one, is younger than any update that would count.
    has_said = (
        pl.when(is_told)
        .then(pl.col("said_at").is_not_null())
        .otherwise(pl.col("last_message_at").is_not_null() & ~said_later)
    )
    by_event = pl.col("active_at").is_null() & (pl.col("last_activity_at") > at)
    by_row = message | (updated & ~has_said)
    gone = {
        "status": status,
        "updated": updated,
        "message": message,
        "silence": pl.when(_is_life_written())
        .then(by_row)
        .otherwise(by_event.fill_null(value=False)),
        "n_messages": message & ~untouched,
        "reason": status,
        "report": ~untouched & ~pl.col("has_reports").fill_null(value=False),
        "record": ~untouched,
    }
    of_cut = {name: pl.col(_IS_CUT) & is_gone for name, is_gone in gone.items()}
    return {**of_cut, "present": pl.col(SEEN_LATER)}
