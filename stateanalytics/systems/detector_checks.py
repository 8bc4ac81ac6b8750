"""What is wrong with a detector, said when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.systems.constructs import (
    COMPARISONS,
    CONSTRUCTS,
    LIVENESS,
    QUESTIONS,
    RESTARTS,
)

if TYPE_CHECKING:
    from stateanalytics.systems.detector import Detector


def check(detector: Detector) -> None:
    """Refuse a detector that makes no sense, with what to type instead.

    Raises
    ------
    ArgumentError
        If it has no name, no rule or two, or a word or limit that is none.
    """
    if not isinstance(detector.name, str) or not detector.name.strip():
        raise ArgumentError(
            f"A detector needs a name; found {detector.name!r:.60}.",
            'sa.detectors.Detector("quiet_20m", …)',
        )
    for what, known in (
        ("comparison", COMPARISONS),
        ("construct", tuple(CONSTRUCTS)),
        ("question", QUESTIONS),
        ("liveness", tuple(LIVENESS)),
        ("restarts_on", (*RESTARTS, None)),
    ):
        word = getattr(detector, what)
        if word not in known:
            shown = ", ".join(repr(choice) for choice in known if choice is not None)
            raise ArgumentError(
                f"{what} of detector {detector.name!r} needs one of {shown}; found {word!r:.60}.",
                "use one of these"
                + did_you_mean(str(word), [choice for choice in known if choice]),
            )
    if detector.why_not:
        return
    is_compared = bool(detector.compares) and detector.threshold_s is not None
    if detector.fires is None and detector.classify is None and not is_compared:
        raise ArgumentError(
            f"Detector {detector.name!r} has no rule.",
            'give measures="silence_s", threshold_s=1200, or fires=pl.col("n_messages") > 500',
        )
    if detector.fires is not None and detector.threshold_s is not None:
        raise ArgumentError(
            f"Detector {detector.name!r} has a whole rule and a threshold, which it would not use.",
            "give measures and threshold_s, and what else makes it fire as also=…; or fires alone",
        )
    _check_limits(detector)


def _check_limits(detector: Detector) -> None:
    limits = detector.threshold_s
    if limits is None:
        return
    if isinstance(limits, pl.Expr):
        if detector.classify is not None:
            raise ArgumentError(
                f"The classifier of {detector.name!r} needs limits in seconds; found {limits}.",
                'such as threshold_s=1200, or {"flow": 43200, "default": 21600}',
            )
        return
    if isinstance(limits, Mapping) and "default" not in limits:
        raise ArgumentError(
            f"The thresholds of {detector.name!r} lack a 'default'; found {sorted(limits)}.",
            'such as threshold_s={"flow": 43200, "default": 21600}',
        )
    for value in limits.values() if isinstance(limits, Mapping) else (limits,):
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise ArgumentError(
                f"The threshold of {detector.name!r} needs seconds, zero or more; "
                f"found {value!r:.60}.",
                "such as threshold_s=1200",
            )
