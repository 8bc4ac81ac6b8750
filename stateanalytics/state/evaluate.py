"""All rules over all rows: from entities to the small numbers that states are read from.

The steps are: drop columns without values, turn times into ages and statuses into cells, apply
the rules that need only the row itself, join facts of linked rows, and apply the rules that
need those.

Only plays, shows, engine runs and schedules depend on other rows. The facts for them are
collected in one small frame with unique keys and joined. Without such entities this is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import narwhals as nw

from stateanalytics.core import engines, schema
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Moment, read_moment
from stateanalytics.errors import ArgumentError, found
from stateanalytics.state.definitions import SILENT_HEALTHS
from stateanalytics.state.health import (
    BLOCKED_LIKE,
    DUE_AGE,
    FIRST_RECORDED,
    HAS_BLOCKED,
    HAS_RUNNING,
    HEALTH,
    HEALTH_RULE,
    IS_QUIET,
    MESSAGE_AGE,
    RECORDED_WORDS,
    RULES,
    RUNNING_LIKE,
    SESSION_RULE,
    SIGN_AGE,
    add_limits,
    entity_rules,
    health_values,
    numbered,
    open_work_rules,
    session_rules,
)
from stateanalytics.state.lifecycle import (
    DELIVERY,
    DELIVERY_RULE,
    NO_DELIVERY,
    RECORDED_DELIVERIES,
    StatusTable,
    delivery_rules,
    delivery_values,
)
from stateanalytics.state.policy import Policy, checked_policy

_LINKED = ("play", "engine_run", "show", "schedule")
_ROW = f"{engines.TEMPORARY}row"
_SESSION = f"{engines.TEMPORARY}session"
_SESSION_KEY = ["source", "system", _SESSION]
_SESSION_DELIVERY = f"{engines.TEMPORARY}session_delivery"
_ADDED = (IS_QUIET, _SESSION_DELIVERY, HAS_RUNNING, HAS_BLOCKED)
_HEALTH, _DELIVERY = f"{engines.TEMPORARY}recorded_health", f"{engines.TEMPORARY}recorded_delivery"

_KIND_OF: dict[Any, engines.Kind] = {
    **{schema.TEXT: engines.TEXT, schema.MOMENT: engines.MOMENT, schema.YES_NO: engines.YES_NO},
    **dict.fromkeys((schema.INTEGER, schema.REAL), engines.NUMBER),
}


def kinds_of(*names: str) -> dict[str, engines.Kind]:
    """The kind of each of these columns of ``entities``."""
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
"""Further columns of ``entities`` that states use if they exist."""


@dataclass(frozen=True)
class Evaluation:
    """Every entity with the rules that fired, as numbers and not yet in words.

    Attributes
    ----------
    adapter : EngineAdapter
        Converts the result to the kind of frame of the caller.
    frame : narwhals.LazyFrame
        One row per entity, in the order of the input, with ``age_s``, ``silence_s``,
        ``updated_age_s`` and the positions that the rules found.
    table : StatusTable
        The meaning of the positions of statuses.
    policy : Policy
    as_of : datetime
    has_unnamed : bool
        Whether there are statuses that no table has; assumed if the frame is not in memory.
    """

    adapter: engines.EngineAdapter
    frame: engines.Frame
    table: StatusTable
    policy: Policy
    as_of: datetime
    has_unnamed: bool


def evaluate(
    facts: Any,
    function: str,
    *,
    policy: Policy | None,
    as_of: Moment | None,
    also: dict[str, engines.Kind] | None = None,
) -> Evaluation:
    """Apply the rules to facts, or to a frame of entities.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        See `states.states`.
    function : str
        The caller's name, for messages.
    policy, as_of
        See `states.states`.
    also : dict of str to Kind, optional
        Further columns to keep.
    """
    entities, moment = _entities_and_instant(facts, function, as_of)
    chosen = checked_policy(policy)
    needed = {**NEEDED, **(also or {})}
    native = nw.from_native(entities, pass_through=True)
    names = native.collect_schema().names() if hasattr(native, "collect_schema") else ()
    optional = {
        name: kind
        for name, kind in (OPTIONAL | RECORDED).items()
        if name in names and name not in needed
    }
    adapter = engines.adapt(entities, {**needed, **optional}, function)
    frame, has_recorded = _without_empty_columns(adapter, needed, optional)
    rules = _rules(chosen, has_recorded=has_recorded)
    own = _with_own_rules(rules.table.add(engines.add_ages(frame, moment, _AGES)), rules, chosen)
    has_others = has_links = has_unnamed = True
    if adapter.is_eager:
        # This shows which kinds of rows exist, so that rules for others are skipped.
        own = own.collect().lazy()
        has_others, has_links, has_unnamed = own.select(rules.contents).collect().row(0)
    if has_links:
        linked = add_links(own, rules.table)
    else:
        linked = own.with_columns(nw.lit(None, nw.Int16).alias(name) for name in _ADDED)
    ruled = linked.with_columns(
        rules.of_all if has_others else [nw.col(SESSION_RULE).alias(HEALTH_RULE)]
    )
    judged = engines.lookup(ruled, {HEALTH: (HEALTH_RULE, health_values())})
    return Evaluation(adapter, judged, rules.table, chosen, moment, has_unnamed)


def _entities_and_instant(facts: Any, function: str, as_of: Moment | None) -> tuple[Any, datetime]:
    is_facts = hasattr(facts, "entities") and hasattr(facts, "as_of")
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
    return facts.entities if is_facts else facts, read_moment(moment, "as_of")


def _without_empty_columns(
    adapter: engines.EngineAdapter,
    needed: dict[str, engines.Kind],
    optional: dict[str, engines.Kind],
) -> tuple[engines.Frame, bool]:
    """The columns that rules need, null where absent; and whether any state is recorded.

    A column without any value counts as absent, which saves the time of its rules. DuckDB
    counts values faster than it plans such rules; on Spark it would need a job, so it is not done.
    """
    frame, filled = adapter.frame, set(optional)
    if optional and (adapter.is_eager or frame.implementation.is_duckdb()):
        counts = frame.select(nw.col(*optional).count()).collect("polars")
        filled = {name for name in optional if counts[name].item()}
    has_recorded = not filled.isdisjoint(RECORDED)
    every = OPTIONAL | (RECORDED if has_recorded else {})
    wanted = {name: kind for name, kind in every.items() if name not in needed}
    kept = frame.select(*needed, *(name for name in wanted if name in filled))
    absent = [
        nw.lit(None, kind.dtype).alias(name) for name, kind in wanted.items() if name not in filled
    ]
    return kept.with_columns(absent) if absent else kept, has_recorded


_AGES = {
    "age_s": "started_at",
    "silence_s": "last_activity_at",
    "updated_age_s": "updated_at",
    MESSAGE_AGE: "last_message_at",
    SIGN_AGE: "last_sign_at",
    DUE_AGE: "due_at",
}


@dataclass(frozen=True)
class _Rules:
    """The expressions of one policy.

    Attributes
    ----------
    table : StatusTable
    of_row : tuple of narwhals.Expr
        Numbers of the rules that need only the row: the health of sessions, and the delivery.
    of_all : tuple of narwhals.Expr
        The rule of every health, and the delivery, with the facts of linked rows.
    contents : tuple of narwhals.Expr
        Over all rows: whether there are entities other than sessions, entities that depend on
        other rows, and statuses that no table has.
    """

    table: StatusTable
    of_row: tuple[nw.Expr, ...]
    of_all: tuple[nw.Expr, ...]
    contents: tuple[nw.Expr, ...]


# Cached, because for a small store building the expressions takes longer than applying them.
@lru_cache(maxsize=8)
def _rules(policy: Policy, *, has_recorded: bool) -> _Rules:
    table = StatusTable(policy, has_recorded)
    of_session = session_rules(table, policy)
    if has_recorded:
        of_session = numbered(open_work_rules(table)) | of_session
    health = engines.first_true(of_session)
    delivery = engines.first_true(dict(enumerate(delivery_rules(table).values())))
    if has_recorded:
        health = nw.coalesce(nw.col(_HEALTH).cast(nw.Int16) + FIRST_RECORDED, health)
        delivery = nw.when(nw.col("recorded_delivery").is_null()).then(delivery)
    is_play = table.where(lambda cell: cell.entity_type == "play" and not cell.is_without_evidence)
    of_session_delivery = nw.col(_SESSION_DELIVERY)
    by_session = nw.when(is_play & (of_session_delivery != NO_DELIVERY)).then(of_session_delivery)
    others = engines.first_true(entity_rules(table, policy))
    is_unnamed = table.where(lambda cell: not cell.is_known_text)
    return _Rules(
        table,
        of_row=(health.alias(SESSION_RULE), delivery.alias(DELIVERY_RULE)),
        of_all=(
            nw.coalesce(nw.col(SESSION_RULE), others).alias(HEALTH_RULE),
            nw.coalesce(by_session, nw.col(DELIVERY)).alias(DELIVERY),
        ),
        contents=(
            (~table.is_type("session")).any().alias("has_others"),
            table.is_type(*_LINKED).any().alias("has_links"),
            is_unnamed.any().alias("has_unnamed"),
        ),
    )


def _with_own_rules(frame: engines.Frame, rules: _Rules, policy: Policy) -> engines.Frame:
    """Rows with the health of sessions and the delivery, which need no other rows."""
    if not rules.table.has_recorded:
        ruled = frame.with_columns(rules.of_row)
        return engines.lookup(ruled, {DELIVERY: (DELIVERY_RULE, delivery_values())})
    words = {
        _HEALTH: ("recorded_health", RECORDED_WORDS),
        _DELIVERY: ("recorded_delivery", RECORDED_DELIVERIES),
    }
    ruled = engines.encode(add_limits(frame, policy), words).with_columns(rules.of_row)
    derived = engines.lookup(ruled, {DELIVERY: (DELIVERY_RULE, delivery_values())})
    recorded = nw.col(_DELIVERY).cast(nw.Int16)
    return derived.with_columns(nw.coalesce(recorded, nw.col(DELIVERY)).alias(DELIVERY))


def add_links(own: engines.Frame, table: StatusTable) -> engines.Frame:
    """Add facts of linked rows: of the session that works for a row, and of its children.

    Parameters
    ----------
    own : narwhals.LazyFrame
        Entities with their cell, their session's rule and their delivery.
    table : StatusTable
        The meaning of cells.

    Returns
    -------
    narwhals.LazyFrame
        The same rows.
    """
    sessions, children = _linked_sessions(own, table), _children(own, table)
    if not own.implementation.is_polars():
        with_session = own.with_columns(_session_id(table))
        return with_session.join(sessions, on=_SESSION_KEY, how="left").join(
            children, on=list(ENTITY_KEY), how="left"
        )
    # Joined by row number, so that one integer is compared instead of four texts.
    rows = own.to_native().with_row_index(_ROW)
    wrapped: engines.Frame = nw.from_native(rows)
    linked = wrapped.filter(table.is_type(*_LINKED)).select(_ROW, *ENTITY_KEY, _session_id(table))
    by_row = (
        linked.join(sessions, on=_SESSION_KEY, how="left")
        .join(children, on=list(ENTITY_KEY), how="left")
        .select(_ROW, *_ADDED)
    )
    joined: engines.Frame = nw.from_native(
        rows.join(by_row.to_native(), on=_ROW, how="left", maintain_order="left")
    )
    return joined.drop(_ROW)


def _session_id(table: StatusTable) -> nw.Expr:
    """The session that works for the row; null: none does."""
    return nw.when(table.is_type("play", "engine_run")).then(nw.col("session_id")).alias(_SESSION)


def _linked_sessions(own: engines.Frame, table: StatusTable) -> engines.Frame:
    """Facts of the sessions that work for other rows, one row per session."""
    quiet = [n for n, rule in enumerate(RULES.values()) if rule.health in SILENT_HEALTHS]
    workers = own.select("source", "system", _session_id(table))
    sessions = own.filter(table.is_type("session")).select(
        "source",
        "system",
        **{
            _SESSION: nw.col("entity_id"),
            IS_QUIET: nw.col(SESSION_RULE).is_in(quiet).cast(nw.Int16),
            _SESSION_DELIVERY: nw.col(DELIVERY).cast(nw.Int16),
        },
    )
    return (
        sessions.join(workers.filter(~nw.col(_SESSION).is_null()), on=_SESSION_KEY, how="semi")
        .group_by(*_SESSION_KEY)
        .agg(nw.col(IS_QUIET, _SESSION_DELIVERY).max())
    )


def _children(own: engines.Frame, table: StatusTable) -> engines.Frame:
    """Facts of the plays of shows and the runs of schedules, one row per parent."""
    is_child = (table.is_type("play") & (nw.col("parent_type") == "show")) | (
        table.is_type("schedule_run") & (nw.col("parent_type") == "schedule")
    )
    is_running = table.has_status("play", *RUNNING_LIKE) | table.has_status(
        "schedule_run", "running"
    )
    is_blocked = table.has_status("play", *BLOCKED_LIKE)
    parents = own.filter(is_child & ~nw.col("parent_id").is_null()).select(
        "source",
        "system",
        nw.col("parent_type").alias("entity_type"),
        nw.col("parent_id").alias("entity_id"),
        is_running.cast(nw.Int16).alias(HAS_RUNNING),
        is_blocked.cast(nw.Int16).alias(HAS_BLOCKED),
    )
    return parents.group_by(*ENTITY_KEY).agg(nw.col(HAS_RUNNING, HAS_BLOCKED).max())
