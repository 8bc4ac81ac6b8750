"""All rules over all rows: from entities to the small numbers that states are read off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import (
    MOMENT,
    NUMBER,
    TEMPORARY,
    TEXT,
    YES_NO,
    EngineAdapter,
    Frame,
    Kind,
    adapt,
    add_ages,
    encode,
    first_true,
    lookup,
)
from stateanalytics.core.windows import Moment, read_moment
from stateanalytics.errors import ArgumentError, found, in_short
from stateanalytics.state.delivery import (
    DELIVERY,
    DELIVERY_RULE,
    NO_DELIVERY,
    RECORDED_DELIVERIES,
    delivery_rules,
    delivery_values,
)
from stateanalytics.state.health import (
    FIRST_RECORDED,
    HEALTH,
    HEALTH_RULE,
    MESSAGE_AGE,
    RECORDED_WORDS,
    SESSION_RULE,
    START_AGE,
    entity_rules,
    health_values,
    numbered,
    session_rules,
)
from stateanalytics.state.lifecycle import StatusTable
from stateanalytics.state.links import (
    SESSION_DELIVERY,
    add_links,
    needs_links,
    without_links,
)
from stateanalytics.state.open_work import DUE_AGE, SIGN_AGE, add_limits, open_work_rules
from stateanalytics.state.policy import Policy

_HEALTH, _DELIVERY = f"{TEMPORARY}recorded_health", f"{TEMPORARY}recorded_delivery"

_KIND_OF: dict[Any, Kind] = {
    **{schema.TEXT: TEXT, schema.MOMENT: MOMENT, schema.YES_NO: YES_NO},
    **dict.fromkeys((schema.INTEGER, schema.REAL), NUMBER),
}


def kinds_of(*names: str) -> dict[str, Kind]:
    """What columns of ``entities`` hold."""
    return {column.name: _KIND_OF[column.dtype] for column in schema.ENTITIES.named(*names)}


NEEDED = kinds_of(
    *schema.ENTITY_KEY,
    *("parent_type", "parent_id", "session_id", "kind", "raw_status"),
    *("started_at", "ended_at", "updated_at", "last_activity_at", "n_messages"),
    *("process_alive", "has_artifacts", "has_stale_locks"),
    *("has_contract", "is_contract_valid", "is_verdict_valid", "verdict", "n_expected"),
    "reason_code",
)
"""The columns of ``entities`` that states are derived from."""

OPTIONAL = kinds_of(
    *("cadence_s", "n_running", "last_sign_at", "due_at", "last_message_at", "reason_message")
)
RECORDED = kinds_of(
    *(
        name
        for name in schema.ENTITIES.dtypes
        if name.startswith("recorded_") and name != "recorded_by"
    ),
    *("retry_code", "n_questions", "n_unknown_finishes", "is_resume_claimed"),
    "patience_s",
)
"""The columns of ``entities`` that states are read off too, where there are any."""


@dataclass(frozen=True)
class Contents:
    """What a frame holds, so that rules for what it does not hold cost nothing.

    Only a frame whose rows are at hand is looked at; of any other all is assumed.

    Attributes
    ----------
    has_others : bool
        Are there entities that are no sessions.
    has_links : bool
        Are there entities that depend on other rows.
    has_unnamed : bool
        Are there statuses that no table has.
    """

    has_others: bool = True
    has_links: bool = True
    has_unnamed: bool = True


@dataclass(frozen=True)
class Evaluation:
    """Every entity with the rules that fired, before anything is put into words.

    Attributes
    ----------
    adapter : EngineAdapter
        How the result goes back to the caller.
    frame : narwhals.LazyFrame
        One row an entity, in the order of the input, with ``age_s``, ``silence_s``,
        ``updated_age_s`` and the positions that the rules found.
    table : StatusTable
        What the positions of statuses mean.
    policy : Policy
    as_of : datetime
    contents : Contents
    """

    adapter: EngineAdapter
    frame: Frame
    table: StatusTable
    policy: Policy
    as_of: datetime
    contents: Contents


def evaluate(
    facts: Any,
    function: str,
    *,
    policy: Policy | None,
    as_of: Moment | None,
    also: dict[str, Kind] | None = None,
) -> Evaluation:
    """Apply the rules to facts, or to a frame of entities.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        See `states.states`.
    function : str
        Who asks, for messages.
    policy, as_of
        See `states.states`.
    also : dict of str to Kind, optional
        Further columns to keep.
    """
    is_facts = hasattr(facts, "entities") and hasattr(facts, "as_of")
    entities = facts.entities if is_facts else facts
    moment = facts.as_of if is_facts and as_of is None else as_of
    if moment is None and not hasattr(nw.from_native(facts, pass_through=True), "collect_schema"):
        place = repr(facts) if isinstance(facts, str) else "'state.db'"
        raise ArgumentError(
            f"{function} needs a snapshot, or a frame of entities; found {found(facts)}.",
            f"read one first: sa.{function}(sa.read({place}), …)",
        )
    if moment is None:
        raise ArgumentError(
            f"{function} of a bare frame needs to know when: as_of is not given.",
            f'{function}(frame, as_of="2026-05-27T00:00Z")',
        )
    chosen = Policy.v1() if policy is None else policy
    if not isinstance(chosen, Policy):
        raise ArgumentError(
            f"{function} needs a Policy; found {in_short(chosen)}.",
            'policy=Policy.named("operator"), or one of your own from Policy.v1().replace(…)',
        )
    at = read_moment(moment, "as_of")
    needed = {**NEEDED, **(also or {})}
    there = nw.from_native(entities, pass_through=True)
    names = there.collect_schema().names() if hasattr(there, "collect_schema") else ()
    optional = {
        name: kind
        for name, kind in (OPTIONAL | RECORDED).items()
        if name in names and name not in needed
    }
    adapter = adapt(entities, {**needed, **optional}, function)
    rows, has_recorded, only = _looked_over(adapter, needed, optional)
    table = status_table(chosen, has_recorded=has_recorded)
    own = _own(rows, table, chosen, at, only)
    contents = Contents()
    if adapter.is_eager:
        own, contents = _surveyed(own, table)
    linked = add_links(own, table) if contents.has_links else without_links(own)
    ruled = _everyones(linked, table, chosen, at) if contents.has_others else _sessions(linked, at)
    judged = lookup(ruled, {HEALTH: (HEALTH_RULE, health_values())})
    return Evaluation(adapter, judged, table, chosen, at, contents)


@lru_cache(maxsize=8)
def status_table(policy: Policy, *, has_recorded: bool = False) -> StatusTable:
    """The table of statuses under a policy; made once, for it never changes."""
    return StatusTable(policy, has_recorded)


def _looked_over(
    adapter: EngineAdapter, needed: dict[str, Kind], optional: dict[str, Kind]
) -> tuple[Frame, bool, str | None]:
    """The columns that count, is anything recorded, and the one type that all rows have.

    A column without a value is as good as none: rules for it would only cost time. DuckDB
    counts values faster than it plans those rules; Spark would start a job for it.
    """
    frame, filled = adapter.frame, set(optional)
    only = None
    if adapter.is_eager or frame.implementation.is_duckdb():
        is_session = (nw.col("entity_type").cast(nw.String) == "session").fill_null(value=False)
        counts = {name: nw.col(name).count() for name in optional}
        looked = frame.select(is_session.all().alias("only"), **counts).collect("polars")
        filled = {name for name in optional if looked[name].item()}
        # An empty relation of another engine has no answer: then no type is assumed.
        only = "session" if adapter.is_eager and looked["only"].item() else None
    has_recorded = not filled.isdisjoint(RECORDED)
    every = OPTIONAL | (RECORDED if has_recorded else {})
    wanted = {name: kind for name, kind in every.items() if name not in needed}
    held = frame.select(*needed, *(name for name in wanted if name in filled))
    absent = [
        nw.lit(None, kind.dtype).alias(name) for name, kind in wanted.items() if name not in filled
    ]
    return held.with_columns(absent) if absent else held, has_recorded, only


def _own(
    frame: Frame, table: StatusTable, policy: Policy, as_of: datetime, only: str | None = None
) -> Frame:
    """What a row says by itself: its cell, its silence, a session's health, the delivery."""
    ages = {
        "silence_s": "last_activity_at",
        MESSAGE_AGE: "last_message_at",
        START_AGE: "started_at",
    }
    ready = table.add(add_ages(frame, as_of, ages), only)
    if table.has_recorded:
        aged = add_ages(ready, as_of, {SIGN_AGE: "last_sign_at", DUE_AGE: "due_at"})
        words = {
            _HEALTH: ("recorded_health", RECORDED_WORDS),
            _DELIVERY: ("recorded_delivery", RECORDED_DELIVERIES),
        }
        ready = encode(add_limits(aged, policy), words)
    ruled = ready.with_columns(_own_rules(table, policy))
    derived = lookup(ruled, {DELIVERY: (DELIVERY_RULE, delivery_values())})
    if not table.has_recorded:
        return derived
    given = nw.col(_DELIVERY).cast(nw.Int16)
    return derived.with_columns(nw.coalesce(given, nw.col(DELIVERY)).alias(DELIVERY))


@lru_cache(maxsize=16)
def _own_rules(table: StatusTable, policy: Policy) -> tuple[nw.Expr, nw.Expr]:
    """The numbers of the rules that say a session's health, and the delivery."""
    rules = session_rules(table, policy)
    if table.has_recorded:
        rules = numbered(open_work_rules(table)) | rules
    judged = first_true(rules)
    delivered = first_true(dict(enumerate(delivery_rules(table).values())))
    if table.has_recorded:
        judged = nw.coalesce(nw.col(_HEALTH).cast(nw.Int16) + FIRST_RECORDED, judged)
        delivered = nw.when(nw.col("recorded_delivery").is_null()).then(delivered)
    return judged.alias(SESSION_RULE), delivered.alias(DELIVERY_RULE)


def _surveyed(own: Frame, table: StatusTable) -> tuple[Frame, Contents]:
    held = own.collect()
    answers = held.select(_contents(table)).row(0)
    return held.lazy(), Contents(*answers)


@lru_cache(maxsize=16)
def _contents(table: StatusTable) -> tuple[nw.Expr, ...]:
    """The fields of `Contents`, of all rows."""
    asked = {
        "has_others": ~table.of("session"),
        "has_links": needs_links(table),
        "has_unnamed": table.where(lambda cell: not cell.is_known_text),
    }
    return tuple(is_so.any().alias(name) for name, is_so in asked.items())


def _sessions(frame: Frame, as_of: datetime) -> Frame:
    aged = add_ages(frame, as_of, {"age_s": "started_at"})
    return aged.with_columns(
        nw.col(SESSION_RULE).alias(HEALTH_RULE), updated_age_s=nw.lit(None, nw.Float64)
    )


def _everyones(frame: Frame, table: StatusTable, policy: Policy, as_of: datetime) -> Frame:
    """What follows once the links are known: everyone's health, a play's delivery."""
    ages = {"age_s": "started_at", "updated_age_s": "updated_at"}
    if not table.has_recorded:
        ages |= {SIGN_AGE: "last_sign_at", DUE_AGE: "due_at"}
    return add_ages(frame, as_of, ages).with_columns(_everyones_rules(table, policy))


@lru_cache(maxsize=16)
def _everyones_rules(table: StatusTable, policy: Policy) -> tuple[nw.Expr, nw.Expr]:
    """The number of the rule that says the health of whatever it is, and the delivery."""
    rules = first_true(entity_rules(table, policy))
    worked = table.where(lambda cell: cell.entity_type == "play" and not cell.is_without_evidence)
    theirs = nw.when(worked & (SESSION_DELIVERY != NO_DELIVERY)).then(SESSION_DELIVERY)
    return (
        nw.coalesce(nw.col(SESSION_RULE), rules).alias(HEALTH_RULE),
        nw.coalesce(theirs, nw.col(DELIVERY)).alias(DELIVERY),
    )
