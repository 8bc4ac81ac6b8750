"""What other rows say about an entity: its session, its children, its schedule's record.

Only plays, shows, engine runs and schedules depend on other rows. The facts for them
are gathered into one small frame with unique keys and joined once; a polars frame that
holds none of them pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import narwhals as nw

from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.state.clock import add_ages
from stateanalytics.state.delivery import DELIVERY
from stateanalytics.state.engines import TEMPORARY, Frame
from stateanalytics.state.health import (
    BLOCKED_LIKE,
    OUTCOMES,
    QUIET_SESSION,
    RUNNING_LIKE,
    SESSION_RULE,
    Links,
)
from stateanalytics.state.lifecycle import Cells
from stateanalytics.state.policy import Policy
from stateanalytics.state.schedule_health import with_schedule_health

SCHEDULE_WORDS = ("misfired", "running", "due", "ok")

_LINKED = ("play", "engine_run", "show", "schedule")
_ROW = f"{TEMPORARY}row"
_SESSION = f"{TEMPORARY}session"
_SESSION_KEY = ["source", "system", _SESSION]
_QUIET, _DELIVERED = f"{TEMPORARY}is_quiet", f"{TEMPORARY}delivered"
_RUNNING, _BLOCKED = f"{TEMPORARY}has_running", f"{TEMPORARY}has_blocked"
_SCHEDULE = f"{TEMPORARY}schedule"
_TOLD = (_QUIET, _DELIVERED, _RUNNING, _BLOCKED, _SCHEDULE)

LINKS = Links(
    is_session_quiet=nw.col(_QUIET) == 1,
    has_running_child=nw.col(_RUNNING) == 1,
    has_blocked_child=nw.col(_BLOCKED) == 1,
    schedule_health=nw.col(_SCHEDULE),
)
"""What `add_links` adds, as the health rules read it."""

SESSION_DELIVERY = nw.col(_DELIVERED)
"""Position of the delivery of the session that works for a play; null: no such session."""


def needs_links(cells: Cells) -> nw.Expr:
    """Is a row of a type that depends on other rows; never null."""
    return cells.where(lambda cell: cell.entity_type in _LINKED)


def without_links(own: Frame) -> Frame:
    """What `add_links` gives where nothing is linked."""
    return own.with_columns(nw.lit(None, nw.Int16).alias(name) for name in _TOLD)


def add_links(own: Frame, cells: Cells, policy: Policy, as_of: datetime, schedules: Any) -> Frame:
    """Add what other rows say, one row in, one row out.

    Parameters
    ----------
    own : narwhals.LazyFrame
        Entities with their cell, their session's rule and their delivery.
    cells, policy, as_of
        What the rules are evaluated by.
    schedules : frame or None
        ``schema.LIONAGI_SCHEDULES``, of the same engine.
    """
    sessions = _of_sessions(own, cells)
    told = _of_others(own, cells, policy, as_of, schedules)
    if not own.implementation.is_polars():
        worked = own.with_columns(_session_id(cells).alias(_SESSION))
        return worked.join(sessions, on=_SESSION_KEY, how="left").join(
            told, on=list(ENTITY_KEY), how="left"
        )
    # Rows are found again by number: one integer to compare instead of four texts.
    numbered = own.to_native().with_row_index(_ROW)
    rows: Frame = nw.from_native(numbered)
    linked = rows.filter(needs_links(cells)).select(
        _ROW, *ENTITY_KEY, _session_id(cells).alias(_SESSION)
    )
    by_row = (
        linked.join(sessions, on=_SESSION_KEY, how="left")
        .join(told, on=list(ENTITY_KEY), how="left")
        .select(_ROW, *_TOLD)
    )
    joined: Frame = nw.from_native(
        numbered.join(by_row.to_native(), on=_ROW, how="left", maintain_order="left")
    )
    return joined.drop(_ROW)


def _session_id(cells: Cells) -> nw.Expr:
    """The session that works for the row, where one does."""
    is_worked = cells.where(lambda cell: cell.entity_type in ("play", "engine_run"))
    return nw.when(is_worked).then(nw.col("session_id"))


def _of_sessions(own: Frame, cells: Cells) -> Frame:
    """The sessions that work for others, each once."""
    quiet = [n for n, said in enumerate(OUTCOMES.values()) if said.health in QUIET_SESSION]
    workers = own.select("source", "system", _session_id(cells).alias(_SESSION))
    sessions = own.filter(cells.where(lambda cell: cell.entity_type == "session")).select(
        "source",
        "system",
        **{
            _SESSION: nw.col("entity_id"),
            _QUIET: nw.col(SESSION_RULE).is_in(quiet).cast(nw.Int16),
            _DELIVERED: nw.col(DELIVERY).cast(nw.Int16),
        },
    )
    return (
        sessions.join(workers.filter(~nw.col(_SESSION).is_null()), on=_SESSION_KEY, how="semi")
        .group_by(*_SESSION_KEY)
        .agg(nw.col(_QUIET, _DELIVERED).max())
    )


def _of_others(own: Frame, cells: Cells, policy: Policy, as_of: datetime, schedules: Any) -> Frame:
    """What children and schedules say, under one key each."""
    parts = [_of_children(own, cells)]
    if schedules is not None:
        parts.append(_of_schedules(schedules, policy, as_of))
    told = (_RUNNING, _BLOCKED, _SCHEDULE)
    return (
        nw.concat([_filled(part, told) for part in parts])
        .group_by(*ENTITY_KEY)
        .agg(nw.col(*told).max())
    )


def _filled(part: Frame, columns: Sequence[str]) -> Frame:
    there = part.collect_schema().names()
    return part.select(
        *ENTITY_KEY,
        *(
            (nw.col(name) if name in there else nw.lit(None)).cast(nw.Int16).alias(name)
            for name in columns
        ),
    )


def _of_children(own: Frame, cells: Cells) -> Frame:
    is_child = (
        cells.where(lambda cell: cell.entity_type == "play") & (nw.col("parent_type") == "show")
    ) | (
        cells.where(lambda cell: cell.entity_type == "schedule_run")
        & (nw.col("parent_type") == "schedule")
    )
    running = cells.where(
        lambda cell: (
            cell.word is not None
            and cell.word.raw_status
            in {"play": RUNNING_LIKE, "schedule_run": ("running",)}.get(cell.entity_type or "", ())
        )
    )
    blocked = cells.where(
        lambda cell: (
            cell.entity_type == "play"
            and cell.word is not None
            and cell.word.raw_status in BLOCKED_LIKE
        )
    )
    children = own.filter(is_child & ~nw.col("parent_id").is_null())
    return children.select(
        "source",
        "system",
        entity_type=nw.col("parent_type"),
        entity_id=nw.col("parent_id"),
        **{_RUNNING: running.cast(nw.Int16), _BLOCKED: blocked.cast(nw.Int16)},
    )


def _of_schedules(schedules: Any, policy: Policy, as_of: datetime) -> Frame:
    """Is each schedule misfired, running, due: lionagi's E1 with the policy's limits."""
    moments = {
        "since_last_execution_s": "last_executed_at",
        "since_last_evaluation_s": "last_evaluated_at",
        "since_last_healthy_poll_s": "last_healthy_poll_at",
        "since_last_fire_s": "last_fired_at",
        "next_fire_age_s": "next_fire_at",
    }
    aged = add_ages(nw.from_native(schedules).lazy(), as_of, moments)
    judged: Frame = nw.from_native(with_schedule_health(aged.to_native()))
    cadence = nw.col("cadence_s")
    limit_s = nw.max_horizontal(cadence * policy.overdue_cadences, cadence + policy.overdue_grace_s)
    place = (
        nw.when((cadence > 0) & (nw.col("silence_s") > limit_s))
        .then(nw.lit(0))
        .when(nw.col("n_running") > 0)
        .then(nw.lit(1))
        .when(nw.col("next_fire_age_s") >= 0)
        .then(nw.lit(2))
        .otherwise(nw.lit(3))
    )
    return judged.select(
        "source",
        system=nw.lit("lionagi"),
        entity_type=nw.lit("schedule"),
        entity_id=nw.col("schedule_id"),
        **{_SCHEDULE: place},
    )
