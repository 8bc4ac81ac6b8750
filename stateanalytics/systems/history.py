"""Facts as of an earlier instant, and which values of theirs are lost.

Time never leaks backwards: a row counts only if its time is not after the instant. Some
columns are overwritten (`updated_at`, the status, the last message); their past values are
taken from transitions and events, or from the row itself where its value is older than the
instant. Where neither records the value, it is null, and `Past.lost` marks it. An input that
records nothing later stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, Past, changed_facts, map_frames, unevaluated
from stateanalytics.core.joins import connected_components, left_join
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import instant, minute_of, read_moment
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
_LINKS = ("entity_id", "session_id", "parent_id", "invocation_id")
_MOST_LINKED = 10_000
_MESSAGES = ("message", "team_message")
_WHOLES = (("invocation", "session", "invocation_id"), ("show", "play", "parent_id"))
"""Types of which the children are counted, with those of the children and their link."""


@cache
def clocks_of(package: str) -> dict[str, dict[str, str]]:
    """The clock of each column of each table that a system cuts, by ``data/clocks.csv``.

    The clock of a column says when its value was written: ``own moment``, it is the moment
    itself; the name of a column, at that moment; ``transition``, with each change of a log;
    ``update``, whenever the row was written; ``static``, with the row. Values of ``event``,
    ``end``, ``present`` and ``derived`` follow from others after the cut, and those that are
    ``assembled`` are made again.
    """
    clocks: dict[str, dict[str, str]] = {}
    for row in table_rows(package, "clocks.csv"):
        clocks.setdefault(row["table"], {})[row["column"]] = row["clock"]
    return clocks


_NOT_CUT = ("static", "event", "end", "present", "derived", "assembled")


def values_at(
    at: datetime | int, clocks: Mapping[str, str], is_written: pl.Expr | bool = True
) -> dict[str, pl.Expr]:
    """The values of columns at an instant, by their clocks; null where none is known.

    Parameters
    ----------
    at : datetime or int
        In the unit of the moments of the rows.
    clocks : mapping of str to str
        The clock of each column, as in `clocks_of`.
    is_written : polars.Expr of Boolean
        Whether the row was last written up to the instant. Where not, the columns of
        ``transition`` have the values of the columns ``log_<name>``.

    Examples
    --------
    >>> rows = pl.DataFrame({"end_ms": [3, 9, None], "code": [0, 1, 2], "n_tries": [1, 2, 3]})
    >>> clocks = {"end_ms": "own moment", "code": "end_ms", "n_tries": "update"}
    >>> rows.with_columns(**values_at(5, clocks, pl.col("end_ms") < 5)).rows()
    [(3, 0, 1), (None, None, None), (None, None, None)]
    """
    values = {}
    limit = instant(at) if isinstance(at, datetime) else at
    for name, clock in clocks.items():
        if clock in ("transition", "update"):
            known = pl.when(is_written).then(name)
            values[name] = known.otherwise(f"log_{name}") if clock == "transition" else known
        elif clock not in _NOT_CUT:
            is_past = pl.col(name if clock == "own moment" else clock) <= limit
            # Without a moment, only that of the row shows that a value was not written later.
            values[name] = pl.when(is_past.fill_null(is_written)).then(name)
    return values


CLOCKS = clocks_of(__package__)["entities"]
LOST_OF = {
    row["column"]: row["lost"] for row in table_rows(__package__, "clocks.csv") if row["lost"]
}
"""Columns of which losses are counted, and what must be lost: of `LOST`, or ``end``."""


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
            f"The data end at {minute_of(facts.as_of)}; {minute_of(instant)} is later, "
            "and nothing is known about it.",
            "choose an earlier instant, or read the store with a later as_of",
            shell="choose an earlier instant, or a later --as-of",
        )
    if instant == facts.as_of:
        return Past(facts, losses(facts.entities))
    existing = facts.entities.filter(has_begun(instant))
    if existing.is_empty() or existing.select(created_or_started().is_null().all()).item():
        first = facts.entities.select(created_or_started().min()).item()
        raise ArgumentError(
            f"Nothing had started at {minute_of(instant)}; "
            + (f"the data begin at {minute_of(first)}." if first else "the data have no start."),
            "choose a later instant, or omit it for as-of",
        )
    return rewound(facts, instant)


def losses(entities: pl.DataFrame, **lost: pl.Expr) -> pl.DataFrame:
    """What of some entities is lost, in the shape of `Past.lost`: nothing but what is named."""
    marks = dict.fromkeys(LOST, pl.lit(value=False)) | lost
    return entities.lazy().with_columns(**marks).select(LOST).collect()


def created_or_started() -> pl.Expr:
    """When an entity was created, else when it started; null where neither is recorded."""
    return pl.coalesce("created_at", "started_at")


def begins_at(entities: pl.DataFrame) -> datetime | None:
    """When the data begin: the first moment at which an entity was created, started or ended."""
    return min(begins_of(entities).values(), default=None)


def begins_of(entities: pl.DataFrame) -> dict[str, datetime]:
    """When the data of each source begin; a source without a moment is absent."""
    moments = pl.min_horizontal("created_at", "started_at", "ended_at")
    firsts = entities.group_by("source").agg(moments.min()).rows()
    return {source: first for source, first in firsts if first is not None}


def has_begun(at: datetime) -> pl.Expr:
    """Whether an entity existed at an instant; one without a moment always did."""
    return (created_or_started() <= instant(at)).fill_null(value=True)


def has_happened(at: datetime) -> pl.Expr:
    """Whether a row's ``at`` is not after an instant; true where it has none."""
    return (pl.col("at") <= instant(at)).fill_null(value=True)


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
        same = changed_facts(facts, as_of=at, as_of_from="given")
        return Past(same, losses(facts.entities))
    # A detail frame may hold later moments than its entities do, so that systems of inputs
    # that were seen later are asked, too.
    is_asked = pl.col("source").is_in([*with_later, *seen_later])
    asked = {*_values(facts.entities, "system", is_asked).unique()}
    systems = [known for known in all_systems() if known.past.rewind and known.name in asked]
    shared = _without_rebuilt(facts, systems)
    # Where an input proves nothing later, a later moment is a clock that ran ahead.
    overwritten = sorted({*with_later} & {*seen_later})
    rows = _with_history(shared, at, overwritten, seen_later)
    past = Past(
        _with_history_of(
            shared,
            has_happened(at),
            entities=_with_past_values(rows, at),
            as_of=at,
            as_of_from="given",
        ),
        losses(rows, **_lost_values(at)),
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
    return _with_history_of(facts, is_shared, entities=facts.entities.filter(is_shared))


def _with_history_of(facts: Facts, is_own: pl.Expr, **changes: Any) -> Facts:
    """The facts with other values, and with the transitions and events of a condition."""
    transitions, events = facts.transitions.filter(is_own), facts.events.filter(is_own)
    return changed_facts(facts, transitions=transitions, events=events, **changes)


def _values(frame: pl.DataFrame, column: str, is_asked: pl.Expr) -> pl.Series:
    """One column of some rows, without a copy of the other columns."""
    return frame.select(pl.col(column).filter(is_asked)).to_series()


def sources_with_later(facts: Facts, at: datetime) -> list[str]:
    """The inputs that record anything after an instant; all others stay as they are."""
    is_later = pl.any_horizontal(pl.col(schema.LIFE) > instant(at))
    later_sources = [
        facts.entities.lazy().filter(is_later).select("source"),
        *(
            frame.lazy().filter(pl.col("at") > instant(at)).select("source")
            for frame in (facts.transitions, facts.events)
        ),
    ]
    return sorted(pl.concat(later_sources).drop_nulls().unique().collect().to_series())


def sources_seen_later(facts: Facts, at: datetime) -> list[str]:
    """The inputs that were read after an instant, as far as their records prove it."""
    seen = facts.sources[["source", "last_at"]].rows()
    seen_before = {source for source, last_at in seen if last_at is not None and last_at <= at}
    return sorted({*facts.entities["source"].unique()} - seen_before - {None})


def linked_work(facts: Facts, entity_id: str) -> Facts:
    """The facts of the work that an entity is linked with; all where that is no small part."""
    if not _is_by_links(facts):
        return facts
    ids, n_known = {entity_id}, 0
    while n_known < len(ids) <= _MOST_LINKED:
        n_known, asked = len(ids), list(ids)
        is_linked = pl.any_horizontal(pl.col(column).is_in(asked) for column in _LINKS)
        entities = facts.entities.lazy().filter(is_linked).collect()
        ids.update(*(entities[column].drop_nulls() for column in _LINKS))
    if n_known < len(ids):
        return facts
    return _with_history_of(facts, pl.col("entity_id").is_in(list(ids)), entities=entities)


def _is_by_links(facts: Facts) -> bool:
    """Whether work depends only on what its links show."""
    systems = {*facts.entities["system"].unique()}
    # Where one system records what another one drove, any work may depend on any other.
    by_links = {known.name for known in all_systems() if known.past.is_by_links}
    return len(systems) <= 1 and systems <= by_links


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
    if not _is_by_links(facts):
        return facts
    later = [
        frame.lazy().filter(~has_happened(at)).select("entity_id").unique()
        for frame in (facts.transitions, facts.events)
    ]
    changed_since = pl.lit(pl.concat(later).collect().to_series()).implode()
    is_later = pl.any_horizontal(
        pl.col("entity_id").is_in(changed_since), pl.col(schema.LIFE) > instant(at)
    )
    had_ended = pl.max_horizontal("updated_at", "ended_at") <= instant(at)
    is_settled = (had_ended & ~is_later.fill_null(value=False)).fill_null(value=False) & ~is_open
    # What is inferred of a whole type or input needs a row of each kind of them.
    kind = pl.struct(
        *("source", "entity_type", "raw_status"),
        pl.col("ended_at").is_null(),
        has_begun(at).alias("has_begun"),
    )
    is_needed = (has_begun(at) & ~is_settled) | kind.is_first_distinct()
    links = pl.concat(
        entities.lazy().select(node=pl.int_range(pl.len()), id=column).drop_nulls()
        for column in _LINKS
    )
    work = pl.lit(connected_components(entities.height, links))
    kept = entities.lazy().filter(work.is_in(work.filter(is_needed).implode())).collect()
    is_of_kept = (
        pl.col("entity_id").is_in(pl.lit(kept["entity_id"]).implode()).fill_null(value=True)
    )
    part = _with_history_of(facts, is_of_kept, entities=kept)
    # The later rows of an input may belong to no entity that exists.
    is_same = sources_with_later(part, at) == sources_with_later(facts, at)
    return part if is_same else facts


def _with_history(
    facts: Facts, at: datetime, overwritten: Sequence[str], seen_later: Sequence[str]
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
    changes = (
        facts.transitions.lazy()
        .select(
            *(*_KEY, "at", "seq", "status", "previous_status", "reason_code", "evidence"),
            reason_message="message",
        )
        .sort("at", "seq", nulls_last=True)
        .collect()
    )
    is_before, is_after = pl.col("at") <= instant(at), pl.col("at") > instant(at)
    # Rows are found by number first, so that texts are looked up for two changes an entity.
    numbers = (
        changes.lazy()
        .with_row_index("number")
        .group_by(_KEY)
        .agg(
            last=pl.when(is_before).then("number").max(),
            next=pl.when(is_after).then("number").min(),
        )
        .collect()
    )
    last, following = pl.lit(numbers["last"]), pl.lit(numbers["next"])
    of_transitions = changes.select(
        *(numbers[name] for name in _KEY),
        pl.exclude(_KEY).gather(last).name.prefix("log_"),
        was_changed=last.is_not_null(),
        is_changed_later=following.is_not_null(),
        next_previous=pl.col("previous_status").gather(following),
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
    parts = [
        facts.entities.lazy()
        .filter(pl.col("entity_type") == part)
        .select(
            *("source", "system", has_begun(at).alias("has_begun")),
            entity_type=pl.lit(whole),
            entity_id=link,
        )
        for whole, part, link in _WHOLES
    ]
    of_parts = (
        pl.concat(parts)
        .drop_nulls("entity_id")
        .group_by(_KEY)
        .agg(
            n_begun=pl.col("has_begun").sum().cast(pl.Int64),
            n_begun_later=(~pl.col("has_begun")).sum().cast(pl.Int64),
        )
        .collect()
    )
    rows = facts.entities.filter(has_begun(at))
    for columns in (of_transitions, of_events, of_parts):
        rows = left_join(rows, columns)
    # Ended work without any moment may have been open at the instant.
    has_no_moment = pl.all_horizontal(pl.col("updated_at", "ended_at", "was_changed").is_null())
    is_over = _is_status("raw_status", is_terminal=True)
    is_later = (
        (pl.max_horizontal("updated_at", "ended_at") > instant(at))
        | pl.col("is_changed_later")
        | (has_no_moment & is_over)
    ).fill_null(value=False)
    was_changed = pl.col("was_changed").fill_null(value=False)
    is_cut = pl.col("source").is_in(overwritten)
    return rows.with_columns(
        pl.col("has_messages", "has_reports").fill_null(value=False),
        pl.col("n_begun", "n_begun_later").fill_null(0),
        log_raw_status=pl.coalesce(pl.when(was_changed).then("log_status"), "next_previous"),
        is_unchanged=~(is_later & is_cut),
        is_cut=is_cut,
        is_seen_later=pl.col("source").is_in(seen_later),
        # A type of which some work is over and no row has an end does not record ends.
        has_ends=(pl.col("ended_at").is_not_null().any() | ~is_over.any()).over(
            "system", "entity_type"
        ),
        is_status_lost=~was_changed & pl.col("next_previous").is_null(),
    )


def _is_status(status: str, *, is_terminal: bool) -> pl.Expr:
    """Whether a status is terminal (or open) for ADR-0033 or for its own system; never null."""
    words = [("", STATUS_WORDS), *((known.name, known.words.vocabulary) for known in all_systems())]
    known = [
        f"{system}:{word.entity_type}:{word.raw_status}"
        for system, vocabulary in words
        for word in vocabulary
        if word.is_terminal is is_terminal
    ]
    return pl.any_horizontal(
        pl.concat_str(system, "entity_type", status, separator=":").is_in(known)
        for system in (pl.lit(""), "system")
    ).fill_null(value=False)


def _is_update_life() -> pl.Expr:
    """Whether a write to the row is a sign of life in its system."""
    return pl.col("system").is_in(
        [known.name for known in all_systems() if known.past.last_update_is_life]
    )


def _with_past_values(rows: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with their past values, and with the axes of their past statuses."""
    entities = schema.ENTITIES.conform(rows.with_columns(**_past_values(at)))
    is_unchanged, present = rows["is_unchanged"], {*rows["system"].unique()}
    for system in all_systems():
        if not has_own_statuses(system.words.vocabulary) or system.name not in present:
            continue
        mine = (entities["system"] == system.name).fill_null(value=False)
        # Recorded axes are of the present: a run that changed since has a past status, from
        # which its axes are derived.
        is_kept = pl.when(is_unchanged.filter(mine))
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
    unchanged = pl.col("is_unchanged")
    is_message_older = (pl.col("last_message_at") <= instant(at)).fill_null(value=False)
    has_messages = pl.col("has_messages")
    cut = values_at(at, CLOCKS, unchanged)
    last_message = (
        pl.when(is_message_older).then("last_message_at").when(has_messages).then("message_at")
    )
    ended = _ended(at)
    was_active = pl.when(pl.col("last_activity_at") <= instant(at)).then("last_activity_at")
    by_row = pl.coalesce(last_message, cut["updated_at"], cut["started_at"])
    by_events = pl.coalesce("active_at", cut["started_at"])
    last_sign = pl.when(_is_update_life()).then(by_row).otherwise(by_events)
    # A list of messages that were pruned still counts them; a count that was not kept up to
    # date may be smaller than the number of later messages.
    n_later = pl.col("n_later").fill_null(0).cast(pl.Int64)
    n_left = pl.coalesce(
        (pl.col("n_messages") - n_later).clip(lower_bound=0), pl.col("n_before").cast(pl.Int64)
    )
    is_count_same = is_message_older | unchanged | (pl.col("n_messages") == 0)
    of_end = pl.when(ended == pl.col("ended_at"))
    has_all = unchanged & (pl.col("n_begun_later") == 0)
    is_whole = pl.col("entity_type").is_in([whole for whole, *_ in _WHOLES])
    past = cut | {
        "ended_at": ended,
        "is_end_approximate": of_end.then("is_end_approximate"),
        "end_written_by": of_end.then("end_written_by"),
        "last_message_at": last_message,
        "last_activity_at": pl.coalesce(was_active, last_sign),
        "n_messages": pl.when(has_messages).then(n_left).when(is_count_same).then("n_messages"),
        "n_children": pl.when(is_whole & ~has_all)
        .then("n_begun")
        .when(unchanged | (pl.col("entity_type") != "team"))
        .then("n_children"),
    }
    return {
        **{name: pl.when("is_cut").then(value).otherwise(name) for name, value in past.items()},
        **{
            name: pl.when(~pl.col("is_seen_later")).then(name)
            for name, clock in CLOCKS.items()
            if clock == "present"
        },
    }


def _ended(at: datetime) -> pl.Expr:
    """The past end of work: its row's, else (it was resumed later) that of its last change."""
    is_changed = ~pl.col("is_unchanged")
    # An observer that came later may have written an end that lies before the instant.
    was_open = is_changed & _is_status("log_raw_status", is_terminal=False)
    was_closed = is_changed & pl.col("has_ends") & _is_status("log_status", is_terminal=True)
    return (
        pl.when(was_open)
        .then(None)
        .when(pl.col("ended_at") <= instant(at))
        .then("ended_at")
        .when(was_closed)
        .then("log_at")
    )


def _lost_values(at: datetime) -> dict[str, pl.Expr]:
    """A Boolean for each of `LOST`, over the rows of `_with_history`; never null."""
    is_changed, has_messages = ~pl.col("is_unchanged"), pl.col("has_messages")
    status = is_changed & pl.col("is_status_lost")
    updated = (pl.col("updated_at") > instant(at)).fill_null(value=False)
    has_later_message = (pl.col("last_message_at") > instant(at)).fill_null(value=False)
    message = has_later_message & ~has_messages
    # A message, where there is one, is younger than any update that would count.
    has_past_message = (
        pl.when(has_messages)
        .then(pl.col("message_at").is_not_null())
        .otherwise(pl.col("last_message_at").is_not_null() & ~has_later_message)
    )
    by_event = pl.col("active_at").is_null() & (pl.col("last_activity_at") > instant(at))
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
        "report": is_changed & ~pl.col("has_reports"),
        "record": is_changed,
    }
    of_cut = {name: pl.col("is_cut") & is_lost for name, is_lost in lost.items()}
    return {**of_cut, "present": pl.col("is_seen_later")}


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
