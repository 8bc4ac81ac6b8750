"""What detectors say of rows: the answers themselves, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.units import how_long_each
from stateanalytics.detectors.features import lost
from stateanalytics.detectors.frames import DETECTIONS
from stateanalytics.systems.detector import Detector

# Where no row of a source has one of these, the source does not record it.
_RECORDED = ("last_message_age_s", "updated_age_s", "started_age_s", "created_age_s")
ANSWERS = ("fires", "covered", "is_knowable")
Truths: TypeAlias = tuple[Detector, pl.DataFrame]
"""A detector, and the rows that it is about with a column for each of `ANSWERS` and why."""


def truths(rows: pl.DataFrame, detectors: Sequence[Detector]) -> list[Truths]:
    """What is true of the rows that each detector is about: what it answers, and why.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_rows, ...)
        The columns that `detectors` read, of those that `features.feature_columns` names,
        and the key of an entity.
    detectors : sequence of Detector
        Each is about the rows of its entity types.
    """
    prepared = _prepared(rows)
    # One after another and eager: planning all of them together takes five times as long as
    # answering, and no less for a hundred thousand rows.
    return [(detector, _with_truths(prepared, detector)) for detector in detectors]


def answers(judged: Sequence[Truths]) -> dict[str, pl.DataFrame]:
    """What detectors say of rows of a type that all of them are about, in columns.

    Returns
    -------
    dict of str to polars.DataFrame, shape (n_rows, n_detectors)
        For each of `ANSWERS` a Boolean column a detector, in the order of the rows.
    """
    return {
        kind: pl.DataFrame(rows[f"_{kind}"].alias(detector.name) for detector, rows in judged)
        for kind in ANSWERS
    }


def in_words(
    judged: Sequence[Truths], *, at: datetime, chosen: pl.DataFrame | None = None
) -> pl.DataFrame:
    """What detectors say of rows, and why.

    Parameters
    ----------
    judged : sequence of Truths
        What `truths` gave.
    at : datetime
        Written beside each answer; the ages of the rows were measured at it.
    chosen : polars.DataFrame, optional
        The entities to tell of, by `schema.ENTITY_KEY`; all by default.

    Returns
    -------
    polars.DataFrame
        `frames.DETECTIONS`, detector by detector.
    """
    said = []
    for detector, rows in judged:
        own = rows
        if chosen is not None:
            own = rows.join(chosen, on=schema.ENTITY_KEY, how="semi", maintain_order="left")
        said.append(_in_words(own, detector, at))
    return pl.concat([DETECTIONS.empty(), *said])


def _prepared(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with what their source records at all, and without losses that none of them has."""
    there = pl.col([name for name in _RECORDED if name in rows.columns])
    none_lost = [name for name in rows.columns if name.startswith("lost_") and not rows[name].any()]
    return rows.drop(none_lost).with_columns(
        there.is_not_null().any().over("source", "entity_type").name.prefix("has_")
    )


def _with_truths(rows: pl.DataFrame, detector: Detector) -> pl.DataFrame:
    """The rows that a detector is about, with what is true of each."""
    own = rows.filter(pl.col("entity_type").is_in(detector.entity_types))
    if _missing(own, detector):
        no = dict.fromkeys(("_covered", "_in_scope", "_is_recorded"), pl.lit(value=False))
        return own.with_columns(**no, _fires=pl.lit(None, pl.Boolean), _is_knowable=True)
    if detector.classify is not None:
        limits = detector.threshold_s
        seconds = None if isinstance(limits, pl.Expr) else limits
        own = own.with_columns(detector.classify(own, seconds).alias(detector.word))
    is_lost = lost(detector, own.columns)
    in_scope = pl.lit(value=True) if detector.scope is None else detector.scope.fill_null(False)
    is_recorded = _is_recorded(detector, is_lost)
    covered = in_scope & is_recorded
    return own.with_columns(
        _covered=covered,
        _fires=pl.when(covered & ~is_lost).then(detector.verdict()),
        _is_knowable=~is_lost,
        _in_scope=in_scope,
        _is_recorded=is_recorded,
    )


def _missing(rows: pl.DataFrame, detector: Detector) -> list[str]:
    return [name for name in detector.reads if name not in rows.columns]


def _is_recorded(detector: Detector, is_lost: pl.Expr) -> pl.Expr:
    """Does the source of a row record what the detector compares, for anything of its type."""
    if not detector.compares or not set(detector.compares) <= set(_RECORDED):
        return pl.lit(value=True)
    any_known = pl.any_horizontal(pl.col(f"has_{name}") for name in detector.compares)
    return any_known | is_lost.any().over("source", "entity_type")


def _in_words(own: pl.DataFrame, detector: Detector, at: datetime) -> pl.DataFrame:
    """What a detector says of rows with truths, what it compared, and why."""
    measured, limit, label = detector.measured(), detector.threshold(), _label(detector)
    if missing := _missing(own, detector):
        measured = limit = pl.lit(None, pl.Float64)
        label = pl.lit(None, pl.String)
        why: pl.Expr = pl.lit(f"it needs {', '.join(missing)}, which is not there")
    else:
        why = (
            pl.when(~pl.col("_is_knowable"))
            .then(pl.lit("what it reads was written over since"))
            .when(~pl.col("_is_recorded"))
            .then(pl.lit(f"this source does not record {', '.join(detector.compares)}"))
            .when(~pl.col("_in_scope"))
            .then(pl.lit(f"it only looks at {detector.entry.scope_words or 'other rows'}"))
            .otherwise(_compared(detector, measured, limit))
        )
    is_answer = pl.col("_covered") & pl.col("_is_knowable")
    return own.select(
        *(pl.col(name) for name in (*schema.ENTITY_KEY, "session_id", "kind")),
        pl.lit(detector.name).alias("detector"),
        pl.lit(at).dt.cast_time_unit("us").alias("at"),
        covered="_covered",
        fires="_fires",
        is_knowable="_is_knowable",
        label=pl.when("_fires").then(label),
        measured_s=pl.when(is_answer).then(measured),
        threshold_s=pl.when(is_answer).then(limit),
        input=pl.lit(", else ".join(detector.compares) or None, pl.String),
        why=why,
    )


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
