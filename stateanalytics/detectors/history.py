"""What a row said at an earlier instant, by its history: expressions, and what is lost."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.vocabulary import STATUS_WORDS

KEY = list(schema.ENTITY_KEY)
LOST = (
    *("status", "updated", "message", "silence", "n_messages", "reason", "report"),
    *("record", "present"),
)
"""What can be lost of a row; `instant.Past.lost` has a Boolean column for each.

``record``: the row was written since; ``present``: it is only ever known of the present.
"""


def told(entities: pl.DataFrame, facts: Facts, at: datetime) -> pl.DataFrame:
    """Each entity with what its transitions and events say of the instant."""
    changes = facts.transitions.sort("at", "seq", nulls_last=True)
    is_before = pl.col("at") <= at
    of_history = changes.group_by(KEY, maintain_order=True).agg(
        status_then=pl.col("status").filter(is_before).last(),
        changed_at=pl.col("at").filter(is_before).last(),
        code_then=pl.col("reason_code").filter(is_before).last(),
        message_then=pl.col("message").filter(is_before).last(),
        was_changed=is_before.any(),
        next_previous=pl.col("previous_status").filter(~is_before).first(),
    )
    is_message = pl.col("kind") == "message"
    of_events = facts.events.group_by(KEY).agg(
        said_at=pl.col("at").filter(is_message & is_before).max(),
        n_said=(is_message & is_before).sum(),
        has_messages=is_message.any(),
        has_reports=pl.col("kind").str.starts_with("report.").any(),
        active_at=pl.col("at").filter(pl.col("is_activity") & is_before).max(),
    )
    of_sessions = (
        entities.filter(pl.col("entity_type") == "session", pl.col("invocation_id").is_not_null())
        .group_by("source", "system", entity_id="invocation_id")
        .agg(n_begun=pl.len().cast(pl.Int64))
        .with_columns(entity_type=pl.lit("invocation"))
    )
    joined = entities.join(of_history, on=KEY, how="left", maintain_order="left")
    heard = joined.join(of_events, on=KEY, how="left", maintain_order="left")
    return heard.join(of_sessions, on=KEY, how="left", maintain_order="left")


_OVER = [f"{one.entity_type}:{one.raw_status}" for one in STATUS_WORDS if one.is_terminal]


def _is_untouched(at: datetime) -> pl.Expr:
    """Was the row last written before the instant, so that it still says what it said."""
    return (pl.coalesce("updated_at", "ended_at") <= at).fill_null(value=False)


def then(at: datetime) -> dict[str, pl.Expr]:
    """The columns that are written over, or looked at once, as they were then; over `told`."""
    untouched = _is_untouched(at)
    said_before = (pl.col("last_message_at") <= at).fill_null(value=False)
    is_told = pl.col("has_messages").fill_null(value=False)
    updated = pl.when(untouched).then("updated_at")
    said = pl.when(said_before).then("last_message_at").when(is_told).then("said_at")
    # Work that was resumed later has an end of its own only in its history.
    was_closed = ~untouched & pl.concat_str("entity_type", "status_then", separator=":").is_in(
        _OVER
    )
    ended = (
        pl.when(pl.col("ended_at") <= at)
        .then("ended_at")
        .when(was_closed.fill_null(value=False))
        .then("changed_at")
    )
    was_active = pl.when(pl.col("last_activity_at") <= at).then("last_activity_at")
    started = pl.when(pl.col("started_at") <= at).then("started_at")
    of_lionagi = pl.coalesce(said, updated, started)
    of_others = pl.coalesce("active_at", started)
    by_event = pl.when(pl.col("system") == "lionagi").then(of_lionagi).otherwise(of_others)
    was_over = ended.is_not_null() & untouched
    return {
        "raw_status": _status(at),
        "started_at": started,
        "ended_at": ended,
        "updated_at": updated,
        "last_message_at": said,
        "last_activity_at": pl.coalesce(was_active, by_event),
        "n_messages": pl.when(said_before | untouched)
        .then("n_messages")
        .when(is_told)
        .then(pl.col("n_said").cast(pl.Int64)),
        "n_turns": pl.when(was_over).then("n_turns"),
        "n_children": pl.when(pl.col("entity_type") == "invocation")
        .then(pl.col("n_begun").fill_null(0))
        .otherwise("n_children"),
        "reason_code": pl.when(untouched).then("reason_code").otherwise("code_then"),
        "reason_message": pl.when(untouched).then("reason_message").otherwise("message_then"),
        # These were looked at now, not then.
        "process_alive": pl.lit(None, pl.Boolean),
        "has_stale_locks": pl.lit(None, pl.Boolean),
        "exit_code": pl.when(was_over).then("exit_code"),
    }


def _status(at: datetime) -> pl.Expr:
    was_changed = pl.col("was_changed").fill_null(value=False)
    by_history = pl.coalesce(pl.when(was_changed).then("status_then"), "next_previous")
    return pl.when(_is_untouched(at)).then("raw_status").otherwise(by_history)


def lost(at: datetime) -> dict[str, pl.Expr]:
    """A Boolean for each of `LOST`, over what `told` gives; never null."""
    untouched = _is_untouched(at)
    is_told = pl.col("has_messages").fill_null(value=False)
    is_changed = pl.col("was_changed").fill_null(value=False)
    later = pl.col("next_previous").is_not_null()
    updated = ~untouched & pl.col("updated_at").is_not_null()
    said_later = (pl.col("last_message_at") > at).fill_null(value=False)
    message = said_later & ~is_told
    # A message, where there is one, is younger than any update that would count.
    has_said = (
        pl.when(is_told)
        .then(pl.col("said_at").is_not_null())
        .otherwise(pl.col("last_message_at").is_not_null() & ~said_later)
    )
    by_event = pl.col("active_at").is_null() & (pl.col("last_activity_at") > at)
    of_lionagi = message | (updated & ~has_said)
    return {
        "status": ~untouched & ~is_changed & ~later,
        "updated": updated,
        "message": message,
        "silence": pl.when(pl.col("system") == "lionagi")
        .then(of_lionagi)
        .otherwise(by_event.fill_null(value=False)),
        "n_messages": message & ~untouched,
        "reason": ~untouched & ~is_changed & ~later,
        "report": ~untouched & ~pl.col("has_reports").fill_null(value=False),
        "record": ~untouched,
        "present": pl.lit(value=True),
    }
