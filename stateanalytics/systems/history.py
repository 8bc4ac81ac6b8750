"""Facts as of an earlier instant, and which values of theirs are lost.

Time never leaks backwards: a row counts only if its time is not after the instant. Some
columns are overwritten (`updated_at`, the status, the last message); their past values are
taken from transitions and events, or from the row itself where its value is older than the
instant. Where neither records the value, it is null, and `Past.lost` marks it. An input that
records nothing later stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, Past, changed_facts, map_frames, unevaluated
from stateanalytics.core.joins import connected_components, left_join
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import in_utc, read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.io.parts import Parts
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System
from stateanalytics.systems.situations import add_axes_of_statuses, has_own_statuses

LOST = (
    *("status", "updated", "message", "silence", "n_messages", "reason", "report"),
    *("record", "present"),
)
"""What can be lost of a row; `Past.lost` has a Boolean column for each.

``record``: the row was overwritten since; ``present``: it is only ever known of the present.
"""
_KEY = list(schema.ENTITY_KEY)
_MOMENTS = (
    *("created_at", "started_at", "ended_at", "updated_at", "last_message_at"),
    *("last_activity_at", "last_sign_at"),
)
_LINKS = ("entity_id", "session_id", "parent_id", "invocation_id")
_IS_UNCHANGED, _IS_SEEN_LATER, _HAS_ENDS = "_is_unchanged", "_is_seen_later", "_has_ends"
_HAS_LATER_RECORDS, _STATUS_BY_HISTORY = "_has_later_records", "_status_by_history"
_OF_CHANGE = ("previous_status", "status", "reason_code", "message", "evidence")
_MESSAGES = ("message", "team_message")
_OBSERVED_AT_READING = ("process_alive", "has_stale_locks")
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
"""Columns that are overwritten and of which no system keeps an earlier value."""


def facts_at(facts: Facts, at: object = None) -> Past:
    """The facts as they were known at an instant.

    Parameters
    ----------
    facts : Facts
        From `read`.
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
    if instant > facts.as_of:
        raise ArgumentError(
            f"The data end at {in_utc(facts.as_of)}; {in_utc(instant)} is later, "
            "and nothing is known about it.",
            "choose an earlier instant, or read the store with a later as_of",
            shell="choose an earlier instant, or a later --as-of",
        )
    if instant == facts.as_of:
        return _nothing_lost(facts)
    existing = facts.entities.filter(has_begun(instant))
    if existing.is_empty() or existing.select(created_or_started().is_null().all()).item():
        first = facts.entities.select(created_or_started().min()).item()
        raise ArgumentError(
            f"Nothing had started at {in_utc(instant)}; "
            + (f"the data begin at {in_utc(first)}." if first else "the data have no start."),
            "choose a later instant, or omit it for as-of",
        )
    return rewound(facts, instant)


def _nothing_lost(facts: Facts) -> Past:
    none = {name: pl.lit(value=False) for name in LOST}
    return Past(facts, facts.entities.with_columns(**none).select(LOST))


def created_or_started() -> pl.Expr:
    """When an entity was created, else when it started; null where neither is recorded."""
    return pl.coalesce("created_at", "started_at")


def has_begun(at: datetime) -> pl.Expr:
    """Whether an entity existed at an instant; one without a moment always did."""
    return (created_or_started() <= at).fill_null(value=True)


def has_happened(at: datetime) -> pl.Expr:
    """Whether a row's ``at`` is not after an instant; true where it has none."""
    return (pl.col("at") <= at).fill_null(value=True)


def rewound(facts: Facts, at: datetime) -> Past:
    """The facts as they were at any instant, even before the first record or after the last.

    Parameters
    ----------
    facts : Facts
        Pooled and deduplicated.
    at : datetime
        The instant.

    Returns
    -------
    Past
        With as-of at the instant.
    """
    with_later, seen_later = sources_with_later(facts, at), sources_seen_later(facts, at)
    if not with_later and not seen_later:
        return _nothing_lost(changed_facts(facts, as_of=at, as_of_from="given"))
    # A detail frame may hold later moments than its entities do, so that systems of inputs
    # that were seen later are asked, too.
    is_asked = pl.col("source").is_in([*with_later, *seen_later])
    asked = set(_values(facts.entities, "system", is_asked))
    systems = [known for known in all_systems() if known.past.rewind and known.name in asked]
    shared = _without_rebuilt(facts, systems)
    # Where an input proves nothing later, a later moment is a clock that ran ahead.
    overwritten = sorted({*with_later} & {*seen_later})
    rows = _with_history(shared, at, overwritten, seen_later)
    past = Past(
        changed_facts(
            shared,
            entities=_with_past_values(rows, at),
            events=shared.events.filter(has_happened(at)),
            transitions=shared.transitions.filter(has_happened(at)),
            as_of=at,
            as_of_from="given",
        ),
        rows.with_columns(**_lost_values(at)).select(LOST),
    )
    for system in systems:
        assert system.past.rewind is not None
        past = system.past.rewind(past, facts)
    return past


def _without_rebuilt(facts: Facts, systems: Sequence[System]) -> Facts:
    """The facts without the rows of systems that rebuild all of their own rows."""
    rebuilt = []
    for system in systems:
        if system.past.rebuilt_sources is not None:
            sources = _values(facts.entities, "source", pl.col("system") == system.name)
            if set(sources.unique()) <= set(system.past.rebuilt_sources(facts)):
                rebuilt.append(system.name)
    if not rebuilt:
        return facts
    is_shared = ~pl.col("system").is_in(rebuilt).fill_null(value=False)
    names = ("entities", "transitions", "events")
    return changed_facts(facts, **{name: getattr(facts, name).filter(is_shared) for name in names})


def _values(frame: pl.DataFrame, column: str, is_asked: pl.Expr) -> pl.Series:
    """One column of some rows, without a copy of the other columns."""
    return frame.select(pl.col(column).filter(is_asked)).to_series()


def sources_with_later(facts: Facts, at: datetime) -> list[str]:
    """The inputs that record anything after an instant; all others stay as they are."""
    later_sources = [
        _values(facts.entities, "source", pl.any_horizontal(pl.col(_MOMENTS) > at)),
        *(
            _values(frame, "source", pl.col("at") > at)
            for frame in (facts.transitions, facts.events)
        ),
    ]
    return pl.concat(later_sources).drop_nulls().unique().sort().to_list()


def sources_seen_later(facts: Facts, at: datetime) -> list[str]:
    """The inputs that were read after an instant, as far as their records prove it."""
    seen_before = facts.sources.filter(pl.col("last_at") <= at)["source"].implode()
    sources = facts.entities["source"].unique()
    return sources.filter(~sources.is_in(seen_before)).sort().to_list()


def without_settled_work(facts: Facts, at: datetime, is_open: pl.Series) -> Facts:
    """The facts without work that had ended by an instant and has not changed since.

    Parameters
    ----------
    facts : Facts
        Pooled and deduplicated.
    at : datetime
        The instant.
    is_open : polars.Series of Boolean
        Which of the entities are open now.

    Returns
    -------
    Facts
        `rewound` gives the same rows of them as of all facts, but for some that had ended by
        the instant. All facts where a system cannot be rewound in part.
    """
    entities = facts.entities
    systems = entities["system"].unique()
    # Where one system records what another one drove, any work may depend on any other.
    if systems.len() > 1 or not {
        known.name for known in all_systems() if known.past.is_by_links
    }.issuperset(systems):
        return facts
    changed_since = pl.concat(
        _values(frame, "entity_id", ~has_happened(at))
        for frame in (facts.transitions, facts.events)
    )
    is_later = pl.any_horizontal(
        pl.col("entity_id").is_in(changed_since.unique().implode()), pl.col(_MOMENTS) > at
    )
    had_ended = pl.max_horizontal("updated_at", "ended_at") <= at
    is_settled = (had_ended & ~is_later.fill_null(value=False)).fill_null(value=False) & ~is_open
    # What is inferred of a whole type or input needs a row of each kind of them.
    kind = pl.struct(
        *("source", "entity_type", "raw_status"),
        pl.col("ended_at").is_null(),
        has_begun(at).alias("has_begun"),
    )
    is_needed = (has_begun(at) & ~is_settled) | kind.is_first_distinct()
    links = pl.concat(
        entities.select(node=pl.int_range(pl.len()), id=column).drop_nulls() for column in _LINKS
    )
    work = connected_components(entities.height, links)
    kept = work.is_in(work.filter(entities.select(is_needed).to_series()).unique().implode())
    ids = entities["entity_id"].filter(kept).unique().implode()
    is_of_kept = pl.col("entity_id").is_in(ids).fill_null(value=True)
    part = changed_facts(
        facts,
        entities=entities.filter(kept),
        transitions=facts.transitions.filter(is_of_kept),
        events=facts.events.filter(is_of_kept),
    )
    # The later rows of an input may belong to no entity that exists.
    is_same = sources_with_later(part, at) == sources_with_later(facts, at)
    return part if is_same else facts


def _with_history(
    facts: Facts,
    at: datetime,
    overwritten: Sequence[str],
    seen_later: Sequence[str],
) -> pl.DataFrame:
    """The entities that existed at an instant, with what transitions and events show of them.

    Parameters
    ----------
    facts : Facts
        With all rows, later ones included.
    at : datetime
        The instant.
    overwritten, seen_later : sequence of str
        The inputs that record anything later, and those that were read later.
    """
    changes = facts.transitions.select(*_KEY, "at", "seq", *_OF_CHANGE).sort(
        "at", "seq", nulls_last=True
    )
    is_before, is_after = pl.col("at") <= at, pl.col("at") > at
    # Rows are found by number first, so that texts are looked up for two changes an entity.
    numbers = (
        changes.with_row_index("number")
        .group_by(_KEY)
        .agg(
            last=pl.when(is_before).then("number").max(),
            next=pl.when(is_after).then("number").min(),
        )
    )
    last, following = changes[numbers["last"]], changes[numbers["next"]]
    of_transitions = numbers.select(
        *_KEY,
        last["status"].alias("past_status"),
        last["at"].alias("changed_at"),
        last["reason_code"].alias("past_code"),
        last["message"].alias("past_message"),
        last["evidence"].alias("past_evidence"),
        was_changed=pl.col("last").is_not_null(),
        is_changed_later=pl.col("next").is_not_null(),
        next_previous=following["previous_status"],
    )
    is_message = pl.col("kind").is_in(_MESSAGES)
    of_events = facts.events.group_by(_KEY).agg(
        message_at=pl.when(is_message & is_before).then("at").max(),
        n_before=(is_message & is_before).sum(),
        n_later=(is_message & is_after).sum(),
        has_messages=is_message.any(),
        has_reports=pl.col("kind").str.starts_with("report.").any(),
        active_at=pl.when(pl.col("is_activity") & is_before).then("at").max(),
    )
    is_caused = (pl.col("entity_type") == "session") & pl.col("invocation_id").is_not_null()
    of_invocations = (
        facts.entities.filter(is_caused)
        .group_by("source", "system", entity_id="invocation_id")
        .agg(
            n_begun=has_begun(at).sum().cast(pl.Int64),
            n_begun_later=(~has_begun(at)).sum().cast(pl.Int64),
        )
        .with_columns(entity_type=pl.lit("invocation"))
    )
    rows = facts.entities.filter(has_begun(at))
    for columns in (of_transitions, of_events, of_invocations):
        rows = left_join(rows, columns)
    # Ended work without any moment may have been open at the instant.
    has_no_moment = pl.all_horizontal(pl.col("updated_at", "ended_at", "was_changed").is_null())
    is_over = _is_status("raw_status", is_terminal=True)
    is_later = (
        (pl.max_horizontal("updated_at", "ended_at") > at)
        | pl.col("is_changed_later")
        | (has_no_moment & is_over)
    )
    was_changed = pl.col("was_changed").fill_null(value=False)
    by_history = pl.coalesce(pl.when(was_changed).then("past_status"), "next_previous")
    return rows.with_columns(
        by_history.alias(_STATUS_BY_HISTORY),
        (~(is_later.fill_null(value=False) & pl.col("source").is_in(overwritten))).alias(
            _IS_UNCHANGED
        ),
        pl.col("source").is_in(overwritten).alias(_HAS_LATER_RECORDS),
        pl.col("source").is_in(seen_later).alias(_IS_SEEN_LATER),
        # A type of which some work is over and no row has an end does not record ends.
        (pl.col("ended_at").is_not_null().any() | ~is_over.any())
        .over("system", "entity_type")
        .alias(_HAS_ENDS),
    )


def _is_status(status: str, *, is_terminal: bool) -> pl.Expr:
    """Whether a status is terminal (or open) for ADR-0033 or for its own system; never null."""
    typed = pl.concat_str("entity_type", status, separator=":")
    shared = [
        f"{word.entity_type}:{word.raw_status}"
        for word in STATUS_WORDS
        if word.is_terminal is is_terminal
    ]
    own = [
        f"{known.name}:{word.entity_type}:{word.raw_status}"
        for known in all_systems()
        for word in known.words.vocabulary
        if word.is_terminal is is_terminal
    ]
    is_own = pl.concat_str("system", typed, separator=":").is_in(own)
    return (typed.is_in(shared) | is_own).fill_null(value=False)


def _is_update_life() -> pl.Expr:
    """Whether a write to the row is a sign of life in its system."""
    return pl.col("system").is_in(
        [known.name for known in all_systems() if known.past.last_update_is_life]
    )


def _with_past_values(rows: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with their past values, and with the axes of their past statuses."""
    entities = schema.ENTITIES.conform(rows.with_columns(**_past_values(at)))
    is_changed = ~rows[_IS_UNCHANGED]
    for system in all_systems():
        mine = (entities["system"] == system.name).fill_null(value=False)
        if not has_own_statuses(system.words.vocabulary) or not mine.any():
            continue
        # Recorded axes are of the present: a run that changed since has a past status, from
        # which its axes are derived.
        is_kept = pl.when(~is_changed.filter(mine))
        own = entities.filter(mine).with_columns(
            is_kept.then(name).alias(name) for name in ("recorded_lifecycle", "recorded_outcome")
        )
        places = pl.int_range(entities.height, eager=True)
        order = pl.concat([places.filter(~mine), places.filter(mine)]).arg_sort()
        own = add_axes_of_statuses(own, system.words.vocabulary)
        entities = pl.concat([entities.filter(~mine), own])[order]
    return entities


def _past_values(at: datetime) -> dict[str, pl.Expr]:
    """The past values of columns that are overwritten, or observed only when a store is read."""
    unchanged = pl.col(_IS_UNCHANGED)
    is_message_older = (pl.col("last_message_at") <= at).fill_null(value=False)
    has_messages = pl.col("has_messages").fill_null(value=False)
    updated = pl.when(pl.col("updated_at") <= at).then("updated_at")
    last_message = (
        pl.when(is_message_older).then("last_message_at").when(has_messages).then("message_at")
    )
    started = pl.when(pl.col("started_at") <= at).then("started_at")
    ended = _ended(at)
    was_active = pl.when(pl.col("last_activity_at") <= at).then("last_activity_at")
    by_row = pl.coalesce(last_message, updated, started)
    by_events = pl.coalesce("active_at", started)
    last_sign = pl.when(_is_update_life()).then(by_row).otherwise(by_events)
    # A list of messages that were pruned still counts them; a count that was not kept up to
    # date may be smaller than the number of later messages.
    n_later = pl.col("n_later").fill_null(0).cast(pl.Int64)
    n_left = pl.coalesce(
        (pl.col("n_messages") - n_later).clip(lower_bound=0), pl.col("n_before").cast(pl.Int64)
    )
    is_count_same = is_message_older | unchanged | (pl.col("n_messages") == 0)
    is_complete = unchanged & (pl.col("n_begun_later").fill_null(0) == 0)
    past = {
        "raw_status": pl.when(unchanged).then("raw_status").otherwise(_STATUS_BY_HISTORY),
        "started_at": started,
        "ended_at": ended,
        "is_end_approximate": pl.when(ended == pl.col("ended_at")).then("is_end_approximate"),
        "end_written_by": pl.when(ended == pl.col("ended_at")).then("end_written_by"),
        "updated_at": updated,
        "last_message_at": last_message,
        "last_activity_at": pl.coalesce(was_active, last_sign),
        "last_sign_at": pl.when(pl.col("last_sign_at") <= at).then("last_sign_at"),
        "n_messages": pl.when(has_messages).then(n_left).when(is_count_same).then("n_messages"),
        "n_children": pl.when(is_complete | (pl.col("entity_type") != "invocation"))
        .then("n_children")
        .otherwise(pl.col("n_begun").fill_null(0)),
        "reason_code": pl.when(unchanged).then("reason_code").otherwise("past_code"),
        "reason_message": pl.when(unchanged).then("reason_message").otherwise("past_message"),
        "evidence": pl.when(unchanged).then("evidence").otherwise("past_evidence"),
        **{name: pl.when(unchanged).then(name) for name in _NO_HISTORY},
    }
    return {
        **{
            name: pl.when(_HAS_LATER_RECORDS).then(value).otherwise(name)
            for name, value in past.items()
        },
        **{name: pl.when(~pl.col(_IS_SEEN_LATER)).then(name) for name in _OBSERVED_AT_READING},
    }


def _ended(at: datetime) -> pl.Expr:
    """The past end of work: its row's, else (it was resumed later) that of its last change."""
    is_changed = ~pl.col(_IS_UNCHANGED)
    # An observer that came later may have written an end that lies before the instant.
    was_open = is_changed & _is_status(_STATUS_BY_HISTORY, is_terminal=False)
    was_closed = is_changed & pl.col(_HAS_ENDS) & _is_status("past_status", is_terminal=True)
    return (
        pl.when(was_open)
        .then(None)
        .when(pl.col("ended_at") <= at)
        .then("ended_at")
        .when(was_closed)
        .then("changed_at")
    )


def _lost_values(at: datetime) -> dict[str, pl.Expr]:
    """A Boolean for each of `LOST`, over the rows of `_with_history`; never null."""
    is_changed = ~pl.col(_IS_UNCHANGED)
    has_messages = pl.col("has_messages").fill_null(value=False)
    is_first_change = is_changed & ~pl.col("was_changed").fill_null(value=False)
    status = is_first_change & pl.col("next_previous").is_null()
    updated = (pl.col("updated_at") > at).fill_null(value=False)
    has_later_message = (pl.col("last_message_at") > at).fill_null(value=False)
    message = has_later_message & ~has_messages
    # A message, where there is one, is younger than any update that would count.
    has_past_message = (
        pl.when(has_messages)
        .then(pl.col("message_at").is_not_null())
        .otherwise(pl.col("last_message_at").is_not_null() & ~has_later_message)
    )
    by_event = pl.col("active_at").is_null() & (pl.col("last_activity_at") > at)
    by_row = message | (updated & ~has_past_message)
    lost = {
        "status": status,
        "updated": updated,
        "message": message,
        "silence": pl.when(_is_update_life())
        .then(by_row)
        .otherwise(by_event.fill_null(value=False)),
        "n_messages": message & is_changed,
        "reason": status,
        "report": is_changed & ~pl.col("has_reports").fill_null(value=False),
        "record": is_changed,
    }
    of_cut = {name: pl.col(_HAS_LATER_RECORDS) & is_lost for name, is_lost in lost.items()}
    return {**of_cut, "present": pl.col(_IS_SEEN_LATER)}


def with_rows_of(past: Past, part: Parts, labels: pl.Series, lost: pl.DataFrame) -> Past:
    """An instant, with the rows of one system replaced by those that it rebuilt.

    Parameters
    ----------
    past : Past
        As transitions and events of all systems show it.
    part : Parts
        The past rows of the inputs ``labels``.
    labels : polars.Series
    lost : polars.DataFrame
        A row for each entity of ``part``, in the order of their sources.
    """
    facts = past.facts
    is_rebuilt = pl.col("source").is_in(labels.implode())
    is_other = ~((pl.col("system") == part.system) & is_rebuilt)
    rows = {
        name: _replaced(is_other, labels.len(), getattr(facts, name), getattr(part, name))
        for name in ("entities", "transitions", "events")
    }
    replaced = partial(_replaced, ~is_rebuilt, labels.len())
    details, of_part = dict(unevaluated(facts.details)), unevaluated(part.details)
    for name in details.keys() & of_part.keys():
        details[name] = map_frames(replaced, details[name], of_part[name])
    return Past(
        changed_facts(facts, **rows, details=Frames(details)),
        pl.concat([past.lost.filter(facts.entities.select(is_other).to_series()), lost]),
    )


def _replaced(
    is_other: pl.Expr, n_inputs: int, rows: pl.DataFrame, rebuilt: pl.DataFrame
) -> pl.DataFrame:
    """Rows of other systems, and below them rebuilt ones, by input where there are several."""
    in_order = rebuilt if n_inputs < 2 else rebuilt.sort("source", maintain_order=True)
    others = rows.filter(is_other)
    # One piece where there is nothing else: adding columns to several pieces copies them all.
    return pl.concat([others, in_order]) if others.height else in_order
