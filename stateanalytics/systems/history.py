"""The facts as they were at an earlier instant, and what of them is lost.

Time never leaks backwards: a row counts only if its time is not after the instant. Some
columns are written over (`updated_at`, the status, the last message); their old values
are taken from transitions and events, or, where the present value is itself older than
the instant, from the row. Where neither says it, the value is lost, and is said to be.
An input without anything later stays as it is.
"""

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
    once,
    pool,
    unmade,
)
from stateanalytics.core.windows import in_utc, read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.io.findings import counted
from stateanalytics.io.parts import Parts
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System
from stateanalytics.systems.recorded import add_words, has_own_words
from stateanalytics.systems.values_then import (
    UNTOUCHED,
    born,
    has_begun,
    lost,
    values_at,
    with_history,
)

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


def _has_happened(at: datetime) -> pl.Expr:
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
        if system.tells_anew is not None:
            sources = _where(facts.entities, "source", pl.col("system") == system.name)
            if set(sources.unique()) <= set(system.tells_anew(facts)):
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
        "events": facts.events.filter(_has_happened(at)),
        "transitions": facts.transitions.filter(_has_happened(at)),
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
        _where(frame, "entity_id", ~_has_happened(at))
        for frame in (facts.transitions, facts.events)
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


def with_notes(facts: Facts, past: Past) -> Facts:
    """The facts of then, with findings on what of them is left out or was not recorded."""
    notes = [left_out(facts, past), not_recorded(facts, past)]
    findings = pool([past.facts.findings, *notes], schema.FINDINGS)
    return changed_facts(past.facts, findings=findings)


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


_MOSTLY_AT_THE_END = (
    *("verdict", "is_verdict_valid", "n_required_missing", "n_optional_missing", "n_produced"),
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("cost_usd", "stored_duration_s", "n_turns", "n_model_turns", "n_chat_messages"),
    *("exit_code", "stored_health", "stored_delivery", "stored_reason_codes"),
)


def not_recorded(facts: Facts, past: Past) -> pl.DataFrame:
    """What of the rows of then nobody recorded: a finding per input and column, counted.

    Parameters
    ----------
    facts : Facts
        As they are.
    past : Past
        What `rewound` made of them.

    Returns
    -------
    polars.DataFrame
        ``time.not_recorded``, in the shape of `schema.FINDINGS`.
    """
    if not any(column.any() for column in past.lost):
        return schema.FINDINGS.empty()
    then = past.facts.entities
    # A system may tell of other rows then, or in another order.
    now = beside(then.select(schema.ENTITY_KEY), once(facts.entities))
    is_gone = {
        "raw_status": past.lost["status"],
        "reason_code": past.lost["reason"],
        "last_message_at": past.lost["message"],
        "n_messages": past.lost["n_messages"],
        **dict.fromkeys(("updated_at", "due_at", "attempt"), past.lost["record"]),
        # What is mostly written with the end was not there to be recorded before.
        **dict.fromkeys(
            _MOSTLY_AT_THE_END,
            past.lost["record"] & (then["ended_at"].is_not_null() | past.lost["status"]),
        ),
        **dict.fromkeys(("process_alive", "has_stale_locks"), past.lost["present"]),
    }
    missing = [
        now.select("source", "system", column=pl.lit(column)).filter(
            gone & now[column].is_not_null() & then[column].is_null()
        )
        for column, gone in is_gone.items()
    ]
    counts = pl.concat(missing).group_by("source", "system", "column", maintain_order=True).len()
    return pool(
        [
            counted(
                source,
                system,
                "time.not_recorded",
                "info",
                f"written over after as-of ({past.at.isoformat()}); nobody recorded what was there",
                n_rows=n,
                table="entities",
                column=column,
                action="set to null",
            )
            for source, system, column, n in counts.iter_rows()
        ],
        schema.FINDINGS,
    )


def left_out(facts: Facts, past: Past) -> pl.DataFrame:
    """What began only after the instant: a finding per input, table and type, counted.

    Returns
    -------
    polars.DataFrame
        ``time.after_as_of``, in the shape of `schema.FINDINGS`.
    """
    later = [
        facts.entities.filter(~has_begun(past.at)).select(
            "source", "system", "entity_type", table=pl.lit("entities")
        ),
        *(
            frame.filter(~_has_happened(past.at)).select(
                "source", "system", entity_type=pl.lit(None, pl.String), table=pl.lit(name)
            )
            for name, frame in (("transitions", facts.transitions), ("events", facts.events))
        ),
    ]
    key = ("source", "system", "table", "entity_type")
    counts = pl.concat(later).group_by(key).len().sort(key)
    return pool(
        [
            counted(
                source,
                system,
                "time.after_as_of",
                "info",
                f"began after as-of ({past.at.isoformat()})",
                n_rows=n,
                table=table,
                entity_type=entity_type,
                action="left out",
            )
            for source, system, table, entity_type, n in counts.iter_rows()
        ],
        schema.FINDINGS,
    )
