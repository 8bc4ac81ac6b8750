"""The frames that public functions return and SQL cannot name.

A name in angle brackets stands for columns that the call chooses: ``<by>`` for those that
its ``by`` names, ``<given>`` for those of the frame given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import polars as pl

from stateanalytics.core.schema import ENTITIES, RETURNED, SPELLS, Column, Frame
from stateanalytics.core.shapes import SHAPE, dtype_name
from stateanalytics.detectors import frames as of_detectors
from stateanalytics.failures import frames as of_failures
from stateanalytics.sql.tables import FRAMES
from stateanalytics.summaries.shapes import COMPARED, shapes_of
from stateanalytics.survival import frames as of_durations
from stateanalytics.systems.archiving import ARCHIVED
from stateanalytics.thresholds import frames as of_thresholds
from stateanalytics.timeline import TIMELINE
from stateanalytics.weekly_limits import ALARM, LIMITS

_TABLES = {frame.name for frame in FRAMES}


def _in_namespace(namespace: str, frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The frames with their names for users: ``failures.clusters``."""
    return tuple(
        replace(frame, name=f"{namespace}.{frame.name}")
        for frame in frames
        if frame.name not in _TABLES or namespace == "summary"
    )


_SUMMARY = _in_namespace("summary", shapes_of(("<by>",), ("<detector>",)).values())

FRAMES_RETURNED: tuple[Frame, ...] = (
    *RETURNED,
    *(LIMITS, ALARM, TIMELINE, ARCHIVED, COMPARED),
    *_in_namespace("failures", of_failures.FRAMES),
    *_in_namespace("survival", of_durations.FRAMES),
    *_in_namespace("detectors", of_detectors.FRAMES),
    *_in_namespace("thresholds", of_thresholds.FRAMES),
    *_SUMMARY,
)
"""Every documented frame that is no table of SQL."""

RETURNED_BY: Mapping[str, tuple[str, ...]] = {
    "archive": (ARCHIVED.name,),
    "compare": (COMPARED.name,),
    "collect": (ARCHIVED.name,),
    "session": (TIMELINE.name,),
    "watch": ("severity_changes",),
    "summarize": tuple(frame.name for frame in _SUMMARY),
    "merge": tuple(frame.name for frame in _SUMMARY),
    "failures.own": ("failures.owners",),
    "detectors.known": ("detectors.detectors",),
    "detectors.detect": tuple(
        f"detectors.{name}" for name in ("detections", "detection_units", "detection_answers")
    ),
    "detectors.agreement": ("detectors.agreement_pairs", "detectors.agreement_overall"),
    "detectors.disagreements": ("detectors.disagreement_rows", "detectors.disagreement_causes"),
    "detectors.merge_gap_sums": ("detectors.gap_sums",),
    "thresholds.recommend": ("thresholds.advice", "thresholds.advice_curves"),
}
"""The frames of functions that do not have their function's name."""


def frames_named(name: str) -> tuple[Frame, ...]:
    """The documented frames of a table, a frame or a function, by its name.

    Parameters
    ----------
    name : str
        With or without its namespace: ``failures.clusters``, ``clusters``.

    Returns
    -------
    tuple of Frame
        Empty where there is none.

    Examples
    --------
    >>> [frame.name for frame in frames_named("clusters")]
    ['failures.clusters']
    >>> [frame.name for frame in frames_named("sa.thresholds.recommend")]
    ['thresholds.advice', 'thresholds.advice_curves']
    """
    name = name.removeprefix("sa.")
    frames = {frame.name: frame for frame in (*FRAMES, *FRAMES_RETURNED)}
    for full in (*RETURNED_BY, *frames):
        if name in (full, full.rpartition(".")[2]):
            return tuple(frames[returned] for returned in RETURNED_BY.get(full, (full,)))
    # A function of a namespace that returns a table of SQL: survival.spells.
    table = name.rpartition(".")[2]
    return (frames[table],) if table in _TABLES else ()


def described(result: pl.DataFrame) -> pl.DataFrame:
    """The columns of a result, explained by the documented frame that has most of them.

    Parameters
    ----------
    result : polars.DataFrame
        What a function returned, or a part of it.

    Returns
    -------
    polars.DataFrame
        The shape of `data_dictionary`, in the order of the result. ``frame`` is null and
        ``meaning`` empty where no frame has the column; it may come from `ENTITIES`.
    """
    columns = set(result.schema.items())

    def fit(frame: Frame) -> tuple[int, int]:
        n_shared = len(columns & set(frame.dtypes.items()))
        return n_shared, -len(frame.columns)

    nearest = max((*FRAMES, *FRAMES_RETURNED), key=fit)
    known = {
        (column.name, column.dtype): (frame.name, column)
        for frame in (ENTITIES, SPELLS, nearest)
        for column in frame.columns
    }
    rows = [
        (name, *known.get((name, dtype), (None, Column(name, dtype, ""))))
        for name, dtype in result.schema.items()
    ]
    return pl.DataFrame(
        [(full, name, dtype_name(c.dtype), c.unit, c.meaning) for name, full, c in rows],
        schema=SHAPE,
        orient="row",
    )
