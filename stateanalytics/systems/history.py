"""Facts as of an earlier instant, and which values of theirs are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import (
    Facts,
    Frames,
    beside,
    changed_facts,
    later,
    unmade,
)
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import in_utc, read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.io.parts import Parts
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System
from stateanalytics.systems.situations import add_axes_of_statuses, has_own_statuses

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


LOST = (
    *("status", "updated", "message", "silence", "n_messages", "reason", "report"),
    *("record", "present"),
)
"""What can be lost of a row; `Past.lost` has a Boolean column for each.

``record``: the row was written since; ``present``: it is only ever known of the present.
"""
_MOMENTS = ("created_at", "started_at", "ended_at", "updated_at", "last_message_at")
_SIGNS = ("last_activity_at", "last_sign_at")


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
    (2838, True)
    """
    instant = facts.as_of if at is None else read_moment(at, "at")
    if instant >= facts.as_of:
        _refuse_future(instant, facts)
        none = {name: pl.lit(value=False) for name in LOST}
        return Past(facts, facts.entities.with_columns(**none).select(LOST))
    existing = facts.entities.filter(has_begun(instant))
    if existing.is_empty() or existing.select(born().is_null().all()).item():
        first = facts.entities.select(born().min()).item()
        raise ArgumentError(
            f"Nothing had begun at {in_utc(instant)}; "
            + (f"the data begin at {in_utc(first)}." if first else "the data name no beginning."),
            "choose a later instant, or leave it out for as-of",
        )
    return rewound(facts, instant)


def has_happened(at: datetime) -> pl.Expr:
    """Was a row there at an instant; one without a moment always was."""
    return (pl.col("at") <= at).fill_null(value=True)


def rewound(facts: Facts, at: datetime) -> Past:
    """The facts as they were at any instant, one before everything or after it included.

    Parameters
    ----------
    facts : Facts
        Pooled, each thing once.
    at : datetime
        The instant.

    Returns
    -------
    Past
        With as-of at the instant.
    """
    later, seen_later = sources_with_later(facts, at), sources_of_the_past(facts, at)
    if not later and not seen_later:
        none = {name: pl.lit(value=False) for name in LOST}
        same = changed_facts(facts, as_of=at, as_of_from="given")
        return Past(same, facts.entities.with_columns(**none).select(LOST))
    # Where the data prove nothing later, a later moment is a clock that ran ahead.
    # A detail frame may hold later moments than its entities do.
    is_asked = pl.col("source").is_in([*later, *seen_later])
    asked = set(_where(facts.entities, "system", is_asked))
    rewritten = [each for each in all_systems() if each.rewind and each.name in asked]
    shared = _without_told_anew(facts, rewritten)
    past = _by_history(shared, at, sorted({*later} & {*seen_later}), seen_later)
    for system in rewritten:
        assert system.rewind is not None
        past = system.rewind(past, facts)
    return past


def _without_told_anew(facts: Facts, rewritten: Sequence[System]) -> Facts:
    """The facts without the rows of systems that tell all of theirs anew."""
    anew = []
    for system in rewritten:
        if system.rebuilt_sources is not None:
            sources = _where(facts.entities, "source", pl.col("system") == system.name)
            if set(sources.unique()) <= set(system.rebuilt_sources(facts)):
                anew.append(system.name)
    is_shared = ~pl.col("system").is_in(anew).fill_null(value=False)
    rows = {name: getattr(facts, name) for name in ("entities", "transitions", "events")}
    shared = {name: frame.filter(is_shared) for name, frame in rows.items()}
    return changed_facts(facts, **shared) if anew else facts


def _by_history(
    facts: Facts, at: datetime, rewritten: Sequence[str], seen_later: Sequence[str]
) -> Past:
    """An instant, as the shared history tells it."""
    known = with_history(facts, at, rewritten, seen_later)
    rows = {
        "entities": _with_words_then(known, at),
        "events": facts.events.filter(has_happened(at)),
        "transitions": facts.transitions.filter(has_happened(at)),
    }
    gone = known.with_columns(**lost(at)).select(LOST)
    return Past(changed_facts(facts, **rows, as_of=at, as_of_from="given"), gone)


def _where(frame: pl.DataFrame, column: str, is_asked: pl.Expr) -> pl.Series:
    """One column of the rows that are asked for, without a copy of the others."""
    return frame.select(pl.col(column).filter(is_asked)).to_series()


_LINKS = ("entity_id", "session_id", "parent_id", "invocation_id")


def in_question(facts: Facts, at: datetime, is_open: pl.Series) -> Facts:
    """The facts without work that was over at an instant and has been left alone since.

    Parameters
    ----------
    facts : Facts
        Pooled, each thing once.
    at : datetime
        The instant.
    is_open : polars.Series of Boolean
        Which of the entities are open now.

    Returns
    -------
    Facts
        What `rewound` makes of them are the rows that it makes of all, but for some that had
        ended by then, as they have now. All facts where a system cannot tell so.
    """
    entities = facts.entities
    systems = entities["system"].unique()
    told_by_links = {known.name for known in all_systems() if known.rewinds_by_links}
    # Where one system tells what another drove, anything may hang together with anything.
    if systems.len() > 1 or not told_by_links.issuperset(systems):
        return facts
    since = pl.concat(
        _where(frame, "entity_id", ~has_happened(at)) for frame in (facts.transitions, facts.events)
    )
    is_later = pl.any_horizontal(
        pl.col("entity_id").is_in(since.unique().implode()),
        pl.col(*_MOMENTS, *_SIGNS) > at,
    )
    was_over = pl.max_horizontal("updated_at", "ended_at") <= at
    was_left = (was_over & ~is_later.fill_null(value=False)).fill_null(value=False) & ~is_open
    # What is told of a type or an input as a whole is told by any row of each kind.
    kind = pl.struct(
        *("source", "entity_type", "raw_status"),
        pl.col("ended_at").is_null(),
        has_begun(at).alias("has_begun"),
    )
    links = entities.select(_LINKS)
    kept = entities.select((has_begun(at) & ~was_left) | kind.is_first_distinct()).to_series()
    newest = kept
    while newest.any():
        ids = pl.concat(links.filter(newest)).unique().implode()
        is_linked = pl.any_horizontal(pl.col(_LINKS).is_in(ids)).fill_null(value=False)
        newest = links.select(is_linked).to_series() & ~kept
        kept |= newest
    known = entities["entity_id"].filter(kept).unique().implode()
    is_known = pl.col("entity_id").is_in(known).fill_null(value=True)
    asked = changed_facts(
        facts,
        entities=entities.filter(kept),
        transitions=facts.transitions.filter(is_known),
        events=facts.events.filter(is_known),
    )
    # Of an input later rows may be of no entity that is there.
    is_same = sources_with_later(asked, at) == sources_with_later(facts, at)
    return asked if is_same else facts


def sources_with_later(facts: Facts, at: datetime) -> list[str]:
    """The inputs that tell of anything after an instant; the others stay as they are."""
    is_later = pl.any_horizontal(pl.col(*_MOMENTS, *_SIGNS) > at)
    found = [
        _where(facts.entities, "source", is_later),
        *(
            _where(frame, "source", pl.col("at") > at)
            for frame in (facts.transitions, facts.events)
        ),
    ]
    return pl.concat(found).drop_nulls().unique().sort().to_list()


def sources_of_the_past(facts: Facts, at: datetime) -> list[str]:
    """The inputs that were looked at after an instant, as far as they prove one."""
    seen_by_then = facts.sources.filter(pl.col("last_at") <= at)["source"].implode()
    sources = facts.entities["source"].unique()
    return sources.filter(~sources.is_in(seen_by_then)).sort().to_list()


def _with_words_then(known: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with the values they had, and what their own words meant then."""
    entities = schema.ENTITIES.conform(known.with_columns(**values_at(at)))
    later = ~known[UNTOUCHED]
    for system in all_systems():
        mine = (entities["system"] == system.name).fill_null(value=False)
        if not has_own_statuses(system.vocabulary) or not mine.any():
            continue
        # What was recorded is of the present: a run that was written since has the status of
        # its history, so that its axes are read off that.
        open_again = pl.when(~later.filter(mine))
        theirs = entities.filter(mine).with_columns(
            open_again.then(name).alias(name) for name in ("recorded_lifecycle", "recorded_outcome")
        )
        places = pl.int_range(entities.height, eager=True)
        order = pl.concat([places.filter(~mine), places.filter(mine)]).arg_sort()
        entities = pl.concat(
            [entities.filter(~mine), add_axes_of_statuses(theirs, system.vocabulary)]
        )[order]
    return entities


def _refuse_future(instant: datetime, facts: Facts) -> None:
    if instant > facts.as_of:
        raise ArgumentError(
            f"The facts hold up to {in_utc(facts.as_of)}; {in_utc(instant)} lies after that, "
            "and nothing is known of it.",
            "choose an earlier instant, or read the store with a later as_of",
            shell="choose an earlier instant, or a later --as-of",
        )


def with_rows_of(past: Past, part: Parts, labels: pl.Series, lost: pl.DataFrame) -> Past:
    """An instant, with the rows of one system as its reader would have found them then.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    part : Parts
        The rows of then, of the inputs ``labels``.
    labels : polars.Series
    lost : polars.DataFrame
        A row for each entity of ``part``, in the order of their sources.
    """
    known = past.facts
    is_told = pl.col("source").is_in(labels.implode())
    others = ~((pl.col("system") == part.system) & is_told)

    rows = {
        name: _beside(others, labels.len(), getattr(known, name), getattr(part, name))
        for name in ("entities", "transitions", "events")
    }
    with_others = partial(_beside, ~is_told, labels.len())
    details, of_part = dict(unmade(known.details)), unmade(part.details)
    for name in details.keys() & of_part.keys():
        details[name] = later(with_others, details[name], of_part[name])
    is_other = known.entities.select(others).to_series()
    return Past(
        changed_facts(known, **rows, details=Frames(details)),
        pl.concat([past.lost.filter(is_other), lost]),
    )


def _beside(
    others: pl.Expr, n_inputs: int, before: pl.DataFrame, mine: pl.DataFrame
) -> pl.DataFrame:
    """Rows of others, and then those of one system, by its inputs where it has several."""
    in_order = mine if n_inputs < 2 else mine.sort("source", maintain_order=True)
    theirs = before.filter(others)
    # In one piece, where there is nothing else: whoever puts columns beside pieces copies all.
    return pl.concat([theirs, in_order]) if theirs.height else in_order
