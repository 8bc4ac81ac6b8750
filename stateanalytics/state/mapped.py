"""Systems whose own axes were mapped to ADR-0033's words when they were read.

lionagi stores one status word, from which `evaluate` derives all axes. The other systems
store axes of their own: their mapping is data in `rules.<system>`, its result stands in
the system's detail frame, and `states` and `reasons` take it from there. `MAPPED_SYSTEMS`
is the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.state.display import STALE_HEALTHS, with_display
from stateanalytics.state.policy import Policy
from stateanalytics.state.severity import derive_severity
from stateanalytics.systems.agent_orchestrator import normalized as agent_orchestrator
from stateanalytics.systems.opencode import normalized as opencode

Details = Mapping[str, pl.DataFrame]
_KEY = ["source", "entity_type", "entity_id"]
AXES = ("lifecycle", "outcome", "health", "delivery", "reason_codes")
"""What ``axes`` of a `MappedSystem` gives beside the key."""


@dataclass(frozen=True)
class MappedSystem:
    """Where the axes and reasons of one system come from.

    Attributes
    ----------
    system : str
        One of `schema.SYSTEMS`.
    axes : callable
        Details of the facts, as-of and policy to a frame of ``source``, ``entity_type``,
        ``entity_id`` (a key) and `AXES` (texts; null: does not apply). It may have
        ``display``: words to show instead of the usual chain, null for that.
    reasons : callable
        The same to a frame in the shape of `schema.REASONS`.
    """

    system: str
    axes: Callable[[Details, datetime, Policy], pl.DataFrame]
    reasons: Callable[[Details, datetime, Policy], pl.DataFrame]


def _at_any_instant(
    of_details: Callable[[Details], pl.DataFrame],
) -> Callable[[Details, datetime, Policy], pl.DataFrame]:
    """A mapping that depends on neither the instant nor a threshold."""

    def mapped(details: Details, _as_of: datetime, _policy: Policy) -> pl.DataFrame:
        return of_details(details)

    return mapped


MAPPED_SYSTEMS: tuple[MappedSystem, ...] = (
    MappedSystem(
        "agent_orchestrator",
        _at_any_instant(agent_orchestrator.axes),
        _at_any_instant(agent_orchestrator.reasons),
    ),
    MappedSystem("opencode", opencode.axes, opencode.reasons),
)


def split(facts: Any) -> tuple[Any, pl.DataFrame | None]:
    """Facts without the entities of mapped systems, and those entities.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        A frame by itself has no details: all of it is judged by its status words.

    Returns
    -------
    rest : the same kind of facts
        What `evaluate` can judge; the facts themselves where nothing is mapped.
    mapped : polars.DataFrame or None
        Entities of mapped systems with their place (``index``) among all.
    """
    entities = getattr(facts, "entities", None)
    if not isinstance(entities, pl.DataFrame) or not hasattr(facts, "details"):
        return facts, None
    is_mapped = pl.col("system").is_in([one.system for one in MAPPED_SYSTEMS])
    numbered = entities.with_row_index()
    mapped = numbered.filter(is_mapped)
    if mapped.is_empty():
        return facts, None
    rest = numbered.filter(~is_mapped.fill_null(value=False))
    kept = SimpleNamespace(
        entities=rest.drop("index"), details=facts.details, as_of=facts.as_of, index=rest["index"]
    )
    return kept, mapped


def mapped_states(
    entities: pl.DataFrame, details: Details, *, policy: Policy, as_of: datetime, origin: str
) -> pl.DataFrame:
    """`schema.STATES` of entities whose axes their system's details hold.

    Parameters
    ----------
    entities : polars.DataFrame, shape (n_entities, ...)
        In the shape of `schema.ENTITIES`.
    details : mapping of str to polars.DataFrame
        Detail frames of the facts.
    policy : Policy
        Whose cascade, and whose limits for opencode's open executions; axes that a system
        recorded itself are taken as they are.
    as_of : datetime
    origin : str

    Returns
    -------
    polars.DataFrame, shape (n_entities, 22)
        In the order of ``entities``. An entity that no detail knows is *unknown*.
    """
    axes = pl.concat(
        [
            _with_own_display(one.axes(details, as_of, policy)).select(
                *_KEY, *AXES, "own_display", system=pl.lit(one.system)
            )
            for one in MAPPED_SYSTEMS
        ]
    )
    known = entities.select(
        *schema.ENTITY_KEY, "raw_status", "started_at", "ended_at", "last_activity_at"
    ).join(axes, on=[*schema.ENTITY_KEY], how="left", maintain_order="left")
    worded = known.with_columns(
        pl.col("lifecycle").fill_null("unknown"),
        outcome=pl.when(pl.col("lifecycle").is_null()).then(pl.lit("unknown")).otherwise("outcome"),
    )
    judged = derive_severity(worded, policy=policy)
    shown = with_display(judged, verbose=policy.is_display_verbose).with_columns(
        display=pl.coalesce("own_display", "display")
    )
    is_unknown = pl.col("lifecycle") == "unknown"
    is_over = pl.col("outcome").is_not_null()
    is_stale = pl.col("health").is_in(STALE_HEALTHS) & (pl.col("lifecycle") == "running")
    word = pl.col("lifecycle").str.replace_all("_", " ")
    return schema.STATES.conform(
        shown.with_columns(
            is_terminal=pl.when(~is_unknown).then(is_over),
            is_legacy=is_unknown,
            effective_state=pl.when(is_unknown)
            .then(pl.lit("legacy"))
            .when(is_stale)
            .then(pl.lit("stale running"))
            .otherwise(word),
            age_s=_seconds(pl.lit(as_of), pl.col("started_at")),
            silence_s=_seconds(pl.lit(as_of), pl.col("last_activity_at")),
            duration_s=pl.when(is_over & ~is_unknown).then(
                _seconds(pl.col("ended_at"), pl.col("started_at"))
            ),
            evaluated_at=pl.lit(as_of),
            policy_version=pl.lit(policy.version),
            origin=pl.lit(origin),
        )
    )


def _with_own_display(axes: pl.DataFrame) -> pl.DataFrame:
    own = pl.col("display") if "display" in axes.columns else pl.lit(None, pl.String)
    return axes.with_columns(own_display=own)


def mapped_reasons(
    entities: pl.DataFrame, details: Details, *, policy: Policy, as_of: datetime
) -> pl.DataFrame:
    """`schema.REASONS` of entities whose reasons their system's details hold."""
    found = [schema.REASONS.conform(one.reasons(details, as_of, policy)) for one in MAPPED_SYSTEMS]
    return pl.concat(found).join(
        entities.select(schema.ENTITY_KEY), on=list(schema.ENTITY_KEY), how="semi"
    )


def _seconds(later: pl.Expr, earlier: pl.Expr) -> pl.Expr:
    return (later - earlier).dt.total_seconds(fractional=True)
