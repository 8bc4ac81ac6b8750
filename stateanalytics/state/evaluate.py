"""All rules over all rows: from entities to the small numbers that states are read off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.windows import Moment, read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.state.clock import add_ages
from stateanalytics.state.delivery import (
    DELIVERY,
    DELIVERY_RULE,
    NO_DELIVERY,
    delivery_rules,
    delivery_values,
)
from stateanalytics.state.engines import (
    MOMENT,
    NUMBER,
    TEXT,
    YES_NO,
    Door,
    Frame,
    Kind,
    first_true,
    lookup,
    opened,
)
from stateanalytics.state.health import (
    HEALTH,
    HEALTH_RULE,
    SESSION_RULE,
    entity_rules,
    health_values,
    session_rules,
)
from stateanalytics.state.lifecycle import Cells
from stateanalytics.state.links import (
    LINKS,
    SESSION_DELIVERY,
    add_links,
    needs_links,
    without_links,
)
from stateanalytics.state.policy import Policy

NEEDED: dict[str, Kind] = {
    **dict.fromkeys(schema.ENTITY_KEY, TEXT),
    **dict.fromkeys(("parent_type", "parent_id", "session_id", "kind", "raw_status"), TEXT),
    **dict.fromkeys(("started_at", "ended_at", "updated_at", "last_activity_at"), MOMENT),
    "n_messages": NUMBER,
    **dict.fromkeys(("process_alive", "has_artifacts", "has_stale_locks"), YES_NO),
    **dict.fromkeys(("has_contract", "is_contract_valid", "is_verdict_valid"), YES_NO),
    "verdict": TEXT,
    "n_expected": NUMBER,
    "reason_code": TEXT,
}
"""The columns of ``entities`` that states are derived from."""


@dataclass(frozen=True)
class Survey:
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
    door : Door
        How the result goes back to the caller.
    frame : narwhals.LazyFrame
        One row an entity, in the order of the input, with ``age_s``, ``silence_s``,
        ``updated_age_s`` and the positions that the rules found.
    cells : Cells
        What the positions of statuses mean.
    policy : Policy
    as_of : datetime
    survey : Survey
    """

    door: Door
    frame: Frame
    cells: Cells
    policy: Policy
    as_of: datetime
    survey: Survey


def evaluate(
    facts: Any,
    function: str,
    *,
    policy: Policy | None,
    as_of: Moment | None,
    schedules: Any = None,
    also: dict[str, Kind] | None = None,
) -> Evaluation:
    """Apply the rules to facts, or to a frame of entities.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        See `states.states`.
    function : str
        Who asks, for messages.
    policy, as_of, schedules
        See `states.states`.
    also : dict of str to Kind, optional
        Further columns to keep.
    """
    is_facts = hasattr(facts, "entities") and hasattr(facts, "as_of")
    entities = facts.entities if is_facts else facts
    if is_facts and schedules is None:
        schedules = facts.details.get("lionagi_schedules")
    moment = facts.as_of if is_facts and as_of is None else as_of
    if moment is None:
        raise ArgumentError(
            f"{function} of a bare frame needs to know when: as_of is not given.",
            f'{function}(frame, as_of="2026-05-27T00:00Z")',
        )
    chosen = Policy.v1() if policy is None else policy
    if not isinstance(chosen, Policy):
        raise ArgumentError(
            f"{function} needs a Policy; found {chosen!r:.60}.",
            'policy=Policy.named("operator"), or one of your own from Policy.v1().replace(…)',
        )
    at = read_moment(moment, "as_of")
    needed = {**NEEDED, **(also or {})}
    door = opened(entities, needed, function)
    cells = cells_of(chosen)
    rows = door.frame.select(*needed)
    only = "session" if door.is_eager and _are_all(rows, "session") else None
    own = _own(rows, cells, chosen, at, only)
    survey = Survey()
    if door.is_eager:
        own, survey = _surveyed(own, cells)
    linked = (
        add_links(own, cells, chosen, at, schedules) if survey.has_links else without_links(own)
    )
    judged = _everyones(linked, cells, chosen, at) if survey.has_others else _sessions(linked, at)
    return Evaluation(door, judged, cells, chosen, at, survey)


@lru_cache(maxsize=8)
def cells_of(policy: Policy) -> Cells:
    """The table of statuses under a policy; made once, for it never changes."""
    return Cells(policy)


def _are_all(frame: Frame, entity_type: str) -> bool:
    is_one = (nw.col("entity_type").cast(nw.String) == entity_type).fill_null(value=False)
    return bool(frame.select(is_one.all()).collect()["entity_type"].item())


def _own(
    frame: Frame, cells: Cells, policy: Policy, as_of: datetime, only: str | None = None
) -> Frame:
    """What a row says by itself: its cell, its silence, a session's health, the delivery."""
    ready = cells.add(add_ages(frame, as_of, {"silence_s": "last_activity_at"}), only)
    ruled = ready.with_columns(
        first_true(session_rules(cells, policy)).alias(SESSION_RULE),
        first_true(dict(enumerate(delivery_rules(cells).values()))).alias(DELIVERY_RULE),
    )
    return lookup(ruled, {DELIVERY: (DELIVERY_RULE, delivery_values())})


def _surveyed(own: Frame, cells: Cells) -> tuple[Frame, Survey]:
    held = own.collect()
    looked = {
        "has_others": ~cells.where(lambda cell: cell.entity_type == "session"),
        "has_links": needs_links(cells),
        "has_unnamed": cells.where(lambda cell: not cell.is_known_text),
    }
    answers = held.select(**{name: expression.any() for name, expression in looked.items()})
    return held.lazy(), Survey(**{name: bool(answers[name].item()) for name in looked})


def _sessions(frame: Frame, as_of: datetime) -> Frame:
    aged = add_ages(frame, as_of, {"age_s": "started_at"})
    named = aged.with_columns(
        nw.col(SESSION_RULE).alias(HEALTH_RULE), updated_age_s=nw.lit(None, nw.Float64)
    )
    return lookup(named, {HEALTH: (HEALTH_RULE, health_values())})


def _everyones(frame: Frame, cells: Cells, policy: Policy, as_of: datetime) -> Frame:
    """What follows once the links are known: everyone's health, a play's delivery."""
    aged = add_ages(frame, as_of, {"age_s": "started_at", "updated_age_s": "updated_at"})
    rules = first_true(entity_rules(cells, policy, LINKS))
    worked = cells.where(lambda cell: cell.entity_type == "play" and not cell.is_without_evidence)
    theirs = nw.when(worked & (SESSION_DELIVERY != NO_DELIVERY)).then(SESSION_DELIVERY)
    ruled = aged.with_columns(
        nw.coalesce(nw.col(SESSION_RULE), rules).alias(HEALTH_RULE),
        nw.coalesce(theirs, nw.col(DELIVERY)).alias(DELIVERY),
    )
    return lookup(ruled, {HEALTH: (HEALTH_RULE, health_values())})
