"""The facts as they were at an earlier instant, and what of them is lost.

Time never leaks backwards: a row counts only if its time is not after the instant. Some
columns are written over (`updated_at`, the status, the last message); their old values
are taken from transitions and events, or, where the present value is itself older than
the instant, from the row. Where neither says it, the value is lost, and is said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import in_utc, read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.systems import all_systems
from stateanalytics.systems.recorded import add_words, has_own_words

KEY = list(schema.ENTITY_KEY)
LOST = (
    *("status", "updated", "message", "silence", "n_messages", "reason", "report"),
    *("record", "present"),
)
"""What can be lost of a row; `Past.lost` has a Boolean column for each.

``record``: the row was written since; ``present``: it is only ever known of the present.
"""


@dataclass(frozen=True)
class Past:
    """Facts at an instant.

    Attributes
    ----------
    facts : Facts
        With ``as_of`` at the instant and nothing younger.
    lost : polars.DataFrame
        A row for each row of ``facts.entities``, in its order; a Boolean for each of
        `LOST`: is the value that the row had then not known any more.
    """

    facts: Facts
    lost: pl.DataFrame

    @property
    def at(self) -> datetime:
        """The instant."""
        return self.facts.as_of


def facts_at(facts: Facts, at: object = None) -> Past:
    """The facts as they were known at an instant.

    Parameters
    ----------
    facts : Facts
        What `read` gave.
    at : datetime, date, ISO text or epoch seconds, optional
        By default the facts' own as-of, where nothing is lost.

    Returns
    -------
    Past

    Raises
    ------
    ArgumentError
        If the instant is after as-of, or before anything began.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> past = facts_at(demo(), "2026-05-20T12:00Z")
    >>> past.facts.entities.height, past.lost.height == past.facts.entities.height
    (506, True)
    """
    instant = facts.as_of if at is None else read_moment(at, "at")
    if instant >= facts.as_of:
        _refuse_future(instant, facts)
        none = {name: pl.lit(value=False) for name in LOST}
        return Past(facts, facts.entities.with_columns(**none).select(LOST))
    born = pl.min_horizontal("created_at", "started_at")
    existing = facts.entities.filter((born <= instant) | born.is_null())
    if existing.is_empty() or existing.select(born.is_null().all()).item():
        first = facts.entities.select(born.min()).item()
        raise ArgumentError(
            f"Nothing had begun at {in_utc(instant)}; "
            + (f"the data begin at {in_utc(first)}." if first else "the data name no beginning."),
            "choose a later instant, or leave it out for as-of",
        )
    known = with_history(existing, facts, instant)
    rows = {
        "entities": _with_words_then(known, instant),
        "events": facts.events.filter(pl.col("at") <= instant),
        "transitions": facts.transitions.filter(pl.col("at") <= instant),
    }
    gone = known.with_columns(**lost(instant)).select(LOST)
    past = Past(changed_facts(facts, **rows, as_of=instant, as_of_from="given"), gone)
    for system in all_systems():
        if system.rewind is not None and (existing["system"] == system.name).any():
            past = system.rewind(past, facts)
    return past


def _with_words_then(known: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with the values they had, and what their own words meant then."""
    entities = schema.ENTITIES.conform(known.with_columns(**values_at(at)))
    later = known.select(~_is_untouched(at)).to_series()
    for system in all_systems():
        mine = (entities["system"] == system.name).fill_null(value=False)
        if not has_own_words(system.vocabulary) or not mine.any():
            continue
        # What was recorded is of the present: a run that was written since has the status of
        # its history, so that its axes are read off that.
        open_again = pl.when(~later.filter(mine))
        theirs = entities.filter(mine).with_columns(
            open_again.then(name).alias(name) for name in ("recorded_lifecycle", "recorded_outcome")
        )
        places = pl.int_range(entities.height, eager=True)
        order = pl.concat([places.filter(~mine), places.filter(mine)]).arg_sort()
        entities = pl.concat([entities.filter(~mine), add_words(theirs, system.vocabulary)])[order]
    return entities


def _refuse_future(instant: datetime, facts: Facts) -> None:
    if instant > facts.as_of:
        raise ArgumentError(
            f"The facts hold up to {in_utc(facts.as_of)}; {in_utc(instant)} lies after that, "
            "and nothing is known of it.",
            "choose an earlier instant, or read the store with a later as_of",
            shell="choose an earlier instant, or a later --as-of",
        )


def with_history(entities: pl.DataFrame, facts: Facts, at: datetime) -> pl.DataFrame:
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


def _is_over(status: str) -> pl.Expr:
    """Is a status of the history an end, by ADR-0033's words or those of its own system."""
    typed = pl.concat_str("entity_type", status, separator=":")
    shared = [f"{word.entity_type}:{word.raw_status}" for word in STATUS_WORDS if word.is_terminal]
    own = [
        f"{known.name}:{word.entity_type}:{word.raw_status}"
        for known in all_systems()
        for word in known.vocabulary
        if word.is_terminal
    ]
    return typed.is_in(shared) | pl.concat_str("system", typed, separator=":").is_in(own)


def _is_life_written() -> pl.Expr:
    """Is the row of a system in which a write counts as a sign of life."""
    return pl.col("system").is_in(
        [known.name for known in all_systems() if known.last_update_is_life]
    )


def _is_untouched(at: datetime) -> pl.Expr:
    """Was the row last written before the instant, so that it still says what it said."""
    return (pl.coalesce("updated_at", "ended_at") <= at).fill_null(value=False)


def values_at(at: datetime) -> dict[str, pl.Expr]:
    """The columns that are written over, or looked at once, as they were at the instant."""
    untouched = _is_untouched(at)
    said_before = (pl.col("last_message_at") <= at).fill_null(value=False)
    is_told = pl.col("has_messages").fill_null(value=False)
    updated = pl.when(untouched).then("updated_at")
    last_message = pl.when(said_before).then("last_message_at").when(is_told).then("said_at")
    # Work that was resumed later has an end of its own only in its history.
    was_closed = ~untouched & _is_over("status_then")
    ended = (
        pl.when(pl.col("ended_at") <= at)
        .then("ended_at")
        .when(was_closed.fill_null(value=False))
        .then("changed_at")
    )
    was_active = pl.when(pl.col("last_activity_at") <= at).then("last_activity_at")
    started = pl.when(pl.col("started_at") <= at).then("started_at")
    by_row = pl.coalesce(last_message, updated, started)
    by_events = pl.coalesce("active_at", started)
    last_sign = pl.when(_is_life_written()).then(by_row).otherwise(by_events)
    was_over = ended.is_not_null() & untouched
    return {
        "raw_status": _status(at),
        "started_at": started,
        "ended_at": ended,
        "updated_at": updated,
        "last_message_at": last_message,
        "last_activity_at": pl.coalesce(was_active, last_sign),
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
    """A Boolean for each of `LOST`, over what `with_history` gives; never null."""
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
    by_row = message | (updated & ~has_said)
    return {
        "status": ~untouched & ~is_changed & ~later,
        "updated": updated,
        "message": message,
        "silence": pl.when(_is_life_written())
        .then(by_row)
        .otherwise(by_event.fill_null(value=False)),
        "n_messages": message & ~untouched,
        "reason": ~untouched & ~is_changed & ~later,
        "report": ~untouched & ~pl.col("has_reports").fill_null(value=False),
        "record": ~untouched,
        "present": pl.lit(value=True),
    }
