"""What detectors read: every entity with its ages, the clock applied once.

`feature_columns` names those that a detector may use. Which of them a system has is seen in
the frame: a column that no input fills is absent, and detectors that read it cover
nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

import polars as pl

from stateanalytics.core.facts import beside, once
from stateanalytics.core.schema import ENTITIES, ENTITY_KEY
from stateanalytics.systems import all_systems, system_named
from stateanalytics.systems.base import Features
from stateanalytics.systems.detector import Detector
from stateanalytics.systems.history import LOST, Past

EVERYWHERE = MappingProxyType(
    {
        "status": "the stored status at the instant",
        **{
            column.name: column.meaning
            for column in ENTITIES.named(
                *("kind", "n_messages", "n_turns", "n_model_turns", "n_children", "agent"),
                *("project", "recorded_by"),
                *("reason_code", "reason_message"),
                *("process_alive", "has_artifacts", "has_stale_locks"),
            )
        },
        "is_foreign": "does it run on another machine; null: not recorded",
        "created_age_s": "since its row was made",
        "started_age_s": "since it started",
        "ended_age_s": "since it ended",
        "elapsed_s": "from its start to its end, or to now",
        "elapsed_whole_s": "the same in whole seconds, as a browser counts them",
        "updated_age_s": "since its row was last written",
        "touched_age_s": "since its row was last written, else since it started",
        "last_message_age_s": "since its last message",
        "silence_s": "since its last message, else update, else start",
        "policy_health": "ADR-0033's health of it, by the policy",
    }
)
_LOST_EVERYWHERE = MappingProxyType(
    {
        "status": ("status",),
        "raw_status": ("status",),
        "reason_code": ("reason",),
        "reason_message": ("reason",),
        "n_messages": ("n_messages",),
        "n_turns": ("record",),
        "n_model_turns": ("record",),
        "updated_age_s": ("updated",),
        "touched_age_s": ("updated",),
        "last_message_age_s": ("message",),
        "silence_s": ("silence",),
        "policy_health": ("status", "silence", "record", "schedule"),
    }
)


@cache
def _features() -> tuple[Features, ...]:
    return tuple(known.features() for known in all_systems() if known.features is not None)


@cache
def feature_columns() -> Mapping[str, str]:
    """Every column that a detector may read, and what it says; ages in seconds."""
    own = (column for features in _features() for column in features.columns.items())
    return MappingProxyType({**EVERYWHERE, **dict(own)})


@cache
def _lost_of() -> Mapping[str, tuple[str, ...]]:
    own = (column for features in _features() for column in features.lost_of.items())
    return MappingProxyType({**_LOST_EVERYWHERE, **dict(own)})


def features_of(past: Past, system: str, states: pl.DataFrame) -> pl.DataFrame:
    """What detectors read of one system's entities at an instant.

    Parameters
    ----------
    past : Past
        From `history.facts_at`.
    system : str
        The name of a system.
    states : polars.DataFrame
        The states at that instant, for ``policy_health``.

    Returns
    -------
    polars.DataFrame
        A row an entity: ``schema.ENTITIES``, the columns of `feature_columns` that there are, and
        a Boolean ``lost_<what>`` for each of `history.LOST`.
    """
    columns = ("is_terminal", "is_legacy", "age_s")
    judged = states.select(*ENTITY_KEY, *columns, health=pl.col("health").cast(pl.String))
    known = beside(past.facts.entities.select(ENTITY_KEY), once(judged, keep="last"))
    own = past.facts.entities.with_columns(
        policy_health=known["health"],
        health=known["health"],
        **{name: known[name] for name in columns},
        **{f"lost_{name}": past.lost[name] for name in LOST},
    ).filter(pl.col("system") == system)
    rows = with_ages(own, past)
    features = system_named(system).features
    return rows if features is None else features().add(rows, past)


def with_ages(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Entities with the ages that all systems share."""
    now = pl.lit(past.at)

    def age(moment: str) -> pl.Expr:
        return (now - pl.col(moment)).dt.total_microseconds() / 1e6

    begun, ended = age("started_at"), age("ended_at")
    return rows.with_columns(
        status="raw_status",
        is_foreign=pl.lit(None, pl.Boolean),
        session_id=pl.coalesce("session_id", "entity_id"),
        created_age_s=age("created_at"),
        started_age_s=begun,
        ended_age_s=ended,
        elapsed_s=begun - ended.fill_null(0.0),
        elapsed_whole_s=(begun - ended.fill_null(0.0)).floor(),
        updated_age_s=age("updated_at"),
        touched_age_s=age("updated_at").fill_null(begun),
        last_message_age_s=age("last_message_at"),
        silence_s=age("last_activity_at"),
    )


def lost(detector: Detector, columns: Iterable[str]) -> pl.Expr:
    """Is anything that a detector reads of a row lost at the instant; never null."""
    there, lost_of = set(columns), _lost_of()

    def gone(name: str) -> pl.Expr:
        flags = [f"lost_{what}" for what in lost_of.get(name, ()) if f"lost_{what}" in there]
        is_lost = (pl.col(flag).fill_null(value=False) for flag in flags)
        return pl.any_horizontal(is_lost) if flags else pl.lit(value=False)

    # A later measure counts only where the ones before it are unknown.
    of_measures = pl.lit(value=False)
    for name in reversed(detector.compares):
        of_measures = gone(name) | (pl.col(name).is_null() & of_measures)
    others = (gone(name) for name in detector.reads if name not in detector.compares)
    return pl.any_horizontal(of_measures, *others)
