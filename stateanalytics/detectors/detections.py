"""Every detector over every entity, at any instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.units import how_long_each
from stateanalytics.detectors.catalogue import Chosen, chosen_detectors
from stateanalytics.detectors.features import features_of, lost
from stateanalytics.detectors.frames import DETECTIONS
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import Detector
from stateanalytics.systems.history import facts_at

# Where no row of a source has one of these, the source does not record it.
_RECORDED = ("last_message_age_s", "updated_age_s", "started_age_s", "created_age_s")


def detect(
    snap: Facts,
    *,
    at: object = None,
    detectors: Chosen | None = None,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """What every detector says of every entity at one instant.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    at : datetime, date, ISO text or epoch seconds, optional
        The instant; by default the snapshot's as-of. Only rows up to it are read.
    detectors : sequence of str or Detector, optional
        Names, numbers of the catalogue (``"B2"``), or rules of your own; by default all
        that can be evaluated from data.
    policy : Policy, optional
        For the detector ``policy``; ADR-0033's by default.
    states : polars.DataFrame, optional
        The states under that policy at as-of, where they are at hand. At another instant
        they were others, and are derived.

    Returns
    -------
    polars.DataFrame
        `frames.DETECTIONS`: a row an entity and detector that is about its type and
        system, sorted by entity, detectors in the order they were asked for. A row that a
        detector does not look at, or whose inputs its source lacks, has ``covered`` false
        and ``fires`` null: it never means fine. Where what a rule reads was written over
        since the instant, ``is_knowable`` is false and ``fires`` null.

    Raises
    ------
    ArgumentError
        If a detector is unknown or cannot be evaluated, the selection is empty, or the
        instant lies outside the data.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> detections = detect(demo(), detectors=["B2", "B4"])
    >>> detections.group_by("detector").agg(pl.col("fires").sum()).sort("detector").rows()
    [('dashboard_stale_card', 5), ('dashboard_stuck_60m', 11)]
    """
    checked = checked_snapshot(snap, "detectors.detect")
    chosen = chosen_detectors(detectors)
    past = facts_at(checked, at)
    here = past.facts.entities["system"].unique()
    given = states if past.at == snap.as_of else None
    judged = states_at_hand(past.facts, given, policy=policy)
    parts = [
        judge(features_of(past, system, judged), _about(chosen, system), at=past.at)
        for system in (known.name for known in all_systems())
        if system in here and _about(chosen, system)
    ]
    detections = pl.concat([DETECTIONS.empty(), *parts])
    return detections.sort(*schema.ENTITY_KEY, maintain_order=True)


def judge(rows: pl.DataFrame, detectors: Sequence[Detector], *, at: datetime) -> pl.DataFrame:
    """What detectors say of rows: any frame with the columns that they read.

    Parameters
    ----------
    rows : polars.DataFrame
        The columns that `detectors` read, of those that `features.feature_columns` names,
        and the key of an entity.
    detectors : sequence of Detector
        Each answers for the rows of its entity types.
    at : datetime
        Written beside each answer; the ages in ``rows`` were measured at it.

    Returns
    -------
    polars.DataFrame
        `frames.DETECTIONS`, detector by detector.
    """
    # One after another and eager: planning all of them together takes five times as long as
    # answering, and no less for a hundred thousand rows.
    answers = [_answers(rows, detector, at) for detector in detectors]
    return pl.concat([DETECTIONS.empty(), *answers])


def _about(chosen: Sequence[Detector], system: str) -> list[Detector]:
    return [detector for detector in chosen if detector.system in (None, system)]


def _answers(rows: pl.DataFrame, detector: Detector, at: datetime) -> pl.DataFrame:
    own = rows.filter(pl.col("entity_type").is_in(detector.entity_types))
    missing = [name for name in detector.reads if name not in rows.columns]
    if missing:
        return _uncovered(own, detector, at, f"it needs {', '.join(missing)}, which is not there")
    if detector.classify is not None:
        limits = detector.threshold_s
        seconds = None if isinstance(limits, pl.Expr) else limits
        own = own.with_columns(detector.classify(own, seconds).alias(detector.word))
    is_lost = lost(detector, rows.columns)
    in_scope = pl.lit(value=True) if detector.scope is None else detector.scope.fill_null(False)
    recorded = _is_recorded(detector, is_lost)
    covered = in_scope & recorded
    measured, limit = detector.measured(), detector.threshold()
    fires = pl.when(covered & ~is_lost).then(detector.verdict())
    why = (
        pl.when(is_lost)
        .then(pl.lit("what it reads was written over since"))
        .when(~recorded)
        .then(pl.lit(f"this source does not record {', '.join(detector.compares)}"))
        .when(~in_scope)
        .then(pl.lit(f"it only looks at {detector.entry.scope_words or 'other rows'}"))
        .otherwise(_compared(detector, measured, limit))
    )
    return own.select(
        *_shown(detector, at),
        covered=covered,
        fires=fires,
        is_knowable=~is_lost,
        label=pl.when(fires).then(_label(detector)),
        measured_s=pl.when(covered & ~is_lost).then(measured),
        threshold_s=pl.when(covered & ~is_lost).then(limit),
        input=pl.lit(", else ".join(detector.compares) or None, pl.String),
        why=why,
    )


def _uncovered(rows: pl.DataFrame, detector: Detector, at: datetime, why: str) -> pl.DataFrame:
    return rows.select(
        *_shown(detector, at),
        covered=pl.lit(value=False),
        fires=pl.lit(None, pl.Boolean),
        is_knowable=pl.lit(value=True),
        label=pl.lit(None, pl.String),
        measured_s=pl.lit(None, pl.Float64),
        threshold_s=pl.lit(None, pl.Float64),
        input=pl.lit(", else ".join(detector.compares) or None, pl.String),
        why=pl.lit(why),
    )


def _shown(detector: Detector, at: datetime) -> list[pl.Expr]:
    return [
        *(pl.col(name) for name in (*schema.ENTITY_KEY, "session_id", "kind")),
        pl.lit(detector.name).alias("detector"),
        pl.lit(at).dt.cast_time_unit("us").alias("at"),
    ]


def _is_recorded(detector: Detector, is_lost: pl.Expr) -> pl.Expr:
    """Does the source of a row record what the detector compares, for anything of its type."""
    if not detector.compares or not set(detector.compares) <= set(_RECORDED):
        return pl.lit(value=True)
    any_known = pl.any_horizontal(pl.col(name).is_not_null() for name in detector.compares)
    return (any_known | is_lost).any().over("source", "entity_type")


def _label(detector: Detector) -> pl.Expr:
    if isinstance(detector.label, pl.Expr):
        return detector.label.cast(pl.String)
    if detector.classify is not None and not detector.label:
        return pl.col(detector.word)
    return pl.lit(detector.label or detector.name)


SINCE = MappingProxyType(
    {
        "started_age_s": "since start",
        "elapsed_s": "since start",
        "elapsed_whole_s": "since start",
        "created_age_s": "since creation",
        "updated_age_s": "since its row was written",
        "touched_age_s": "since its row was written",
        "last_message_age_s": "since the last message",
        "silence_s": "of silence",
        "activity_age_s": "since the last activity",
        "report_age_s": "since the last report",
        "event_age_s": "since the last event",
        "detecting_age_s": "of doubt",
        "merge_wait_s": "since the merge",
        "retry_overdue_s": "since the retry was due",
        "schedule_silence_s": "since the last proof of work",
        "next_fire_overdue_s": "since the next fire was due",
    }
)
"""How people say what each measure counts."""


def since(measures: tuple[str, ...]) -> str:
    """What a detector's first measure counts, as people say it."""
    if not measures:
        return ""
    if len(measures) > 1 and measures[0] == "last_message_age_s":
        return "of silence"
    return SINCE.get(measures[0], f"of {measures[0].removesuffix('_s').replace('_', ' ')}")


def _compared(detector: Detector, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """``9 h since start, limit 1 h``; the rule in words where nothing is compared."""
    if not detector.compares:
        return pl.lit(detector.entry.rule or detector.construct)
    counted = (
        pl.when(measured.is_not_null())
        .then(
            pl.concat_str(how_long_each(measured, "never"), pl.lit(f" {since(detector.compares)}"))
        )
        .otherwise(pl.lit("no such time is recorded"))
    )
    allowed = pl.concat_str(pl.lit(", limit "), how_long_each(limit, "never"))
    return pl.concat_str(counted, pl.when(limit.is_not_null()).then(allowed).otherwise(pl.lit("")))
