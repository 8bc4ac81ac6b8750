"""What other rows say about an entity: its session, its children.

Only plays, shows, engine runs and schedules depend on other rows. The facts for them
are gathered into one small frame with unique keys and joined once; a polars frame that
holds none of them pays nothing.
"""

from __future__ import annotations

from functools import lru_cache

import narwhals as nw

from stateanalytics.core.engines import TEMPORARY, Frame
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.state.delivery import DELIVERY
from stateanalytics.state.health import (
    BLOCKED_LIKE,
    HAS_BLOCKED,
    HAS_RUNNING,
    IS_QUIET,
    QUIET_SESSION,
    RULES,
    RUNNING_LIKE,
    SESSION_RULE,
)
from stateanalytics.state.lifecycle import StatusTable

_LINKED = ("play", "engine_run", "show", "schedule")
_ROW = f"{TEMPORARY}row"
_SESSION = f"{TEMPORARY}session"
_SESSION_KEY = ["source", "system", _SESSION]
_DELIVERED = f"{TEMPORARY}delivered"
_ADDED = (IS_QUIET, _DELIVERED, HAS_RUNNING, HAS_BLOCKED)

SESSION_DELIVERY = nw.col(_DELIVERED)
"""Position of the delivery of the session that works for a play; null: no such session."""


def needs_links(table: StatusTable) -> nw.Expr:
    """Is a row of a type that depends on other rows; never null."""
    return table.of(*_LINKED)


def without_links(own: Frame) -> Frame:
    """What `add_links` gives where nothing is linked."""
    return own.with_columns(nw.lit(None, nw.Int16).alias(name) for name in _ADDED)


def add_links(own: Frame, table: StatusTable) -> Frame:
    """Add what other rows say, one row in, one row out.

    Parameters
    ----------
    own : narwhals.LazyFrame
        Entities with their cell, their session's rule and their delivery.
    table : StatusTable
        What cells mean.
    """
    sessions = _of_sessions(own, table)
    children = _of_children(own, table)
    if not own.implementation.is_polars():
        worked = own.with_columns(_session_id(table))
        return worked.join(sessions, on=_SESSION_KEY, how="left").join(
            children, on=list(ENTITY_KEY), how="left"
        )
    # Rows are found again by number: one integer to compare instead of four texts.
    numbered = own.to_native().with_row_index(_ROW)
    rows: Frame = nw.from_native(numbered)
    linked = rows.filter(needs_links(table)).select(_ROW, *ENTITY_KEY, _session_id(table))
    by_row = (
        linked.join(sessions, on=_SESSION_KEY, how="left")
        .join(children, on=list(ENTITY_KEY), how="left")
        .select(_ROW, *_ADDED)
    )
    joined: Frame = nw.from_native(
        numbered.join(by_row.to_native(), on=_ROW, how="left", maintain_order="left")
    )
    return joined.drop(_ROW)


@lru_cache(maxsize=16)
def _session_id(table: StatusTable) -> nw.Expr:
    """The session that works for the row, where one does."""
    worked = nw.when(table.of("play", "engine_run")).then(nw.col("session_id"))
    return worked.alias(_SESSION)


def _of_sessions(own: Frame, table: StatusTable) -> Frame:
    """The sessions that work for others, each once."""
    quiet = [n for n, rule in enumerate(RULES.values()) if rule.health in QUIET_SESSION]
    workers = own.select("source", "system", _session_id(table))
    sessions = own.filter(table.of("session")).select(
        "source",
        "system",
        **{
            _SESSION: nw.col("entity_id"),
            IS_QUIET: nw.col(SESSION_RULE).is_in(quiet).cast(nw.Int16),
            _DELIVERED: nw.col(DELIVERY).cast(nw.Int16),
        },
    )
    return (
        sessions.join(workers.filter(~nw.col(_SESSION).is_null()), on=_SESSION_KEY, how="semi")
        .group_by(*_SESSION_KEY)
        .agg(nw.col(IS_QUIET, _DELIVERED).max())
    )


def _of_children(own: Frame, table: StatusTable) -> Frame:
    is_child, columns = _parents(table)
    by_parent = own.filter(is_child).select("source", "system", *columns)
    return by_parent.group_by(*ENTITY_KEY).agg(nw.col(HAS_RUNNING, HAS_BLOCKED).max())


@lru_cache(maxsize=16)
def _parents(table: StatusTable) -> tuple[nw.Expr, tuple[nw.Expr, ...]]:
    """Is the row a child of another one; and that one's key, with what the child says of it."""
    is_child = (table.of("play") & (nw.col("parent_type") == "show")) | (
        table.of("schedule_run") & (nw.col("parent_type") == "schedule")
    )
    running = table.reads("play", *RUNNING_LIKE) | table.reads("schedule_run", "running")
    blocked = table.reads("play", *BLOCKED_LIKE)
    columns = {
        "entity_type": nw.col("parent_type"),
        "entity_id": nw.col("parent_id"),
        HAS_RUNNING: running.cast(nw.Int16),
        HAS_BLOCKED: blocked.cast(nw.Int16),
    }
    return (
        is_child & ~nw.col("parent_id").is_null(),
        tuple(column.alias(name) for name, column in columns.items()),
    )
