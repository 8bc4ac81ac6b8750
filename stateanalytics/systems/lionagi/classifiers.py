"""lionagi's classifiers of a stored session in every version, and the words of its pages."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.session_health import VERSIONS, classify_session_health_by_age
from stateanalytics.core.staleness import DEFAULT_STALE_AFTER_S, STALLED_AFTER_S, staleness_by_age
from stateanalytics.systems.detector import Classifier, Limits

DEAD = ("stale", "orphaned", "zombie")
BAD_HEALTHS = ("unresponsive", *DEAD)
READ_BY_HEALTH = (
    *("status", "kind", "silence_s", "n_messages"),
    *("process_alive", "has_artifacts", "has_stale_locks"),
)
REAPED_MESSAGE = "phantom_reaped"
# Words of a status as the pages group them; many stores hold words that no release writes.
RUNNING = ("running", "executing", "in_progress", "director-managed", "open")
DONE = (
    *("completed", "done", "success", "finished", "running_complete"),
    "director-managed-complete",
)
GATED = ("needs_review", "blocked", "gated")
FAILED = ("failed", "error", "failure")


def limits_of(version: str) -> dict[str, float]:
    """The limits of silence of one version of the classifier, by kind of work."""
    return {"default": DEFAULT_STALE_AFTER_S, **VERSIONS[version].stale_after_s}


def health_by(version: str) -> Classifier:
    """The classifier of one version."""

    def classify(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
        judged: pl.DataFrame = classify_session_health_by_age(
            rows, thresholds=_of_kinds(limits), version=version
        )
        return judged["session_health"]

    return classify


def stale_by(version: str) -> Classifier:
    """The check for staleness of one version."""

    def classify(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
        judged: pl.DataFrame = staleness_by_age(rows, thresholds=_of_kinds(limits), version=version)
        return judged["staleness"]

    return classify


def assumed_alive(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
    """The word of the runs list of 0.26: every process alive, unresponsive called stale."""
    seen = rows.with_columns(process_alive=pl.lit(value=True), has_stale_locks=pl.lit(value=False))
    return health_by("0.26.1")(seen, limits).replace("unresponsive", "stale")


def _of_kinds(limits: Limits | None) -> Mapping[str, float] | None:
    """Limits by kind of work; one number holds for every kind."""
    if limits is None or isinstance(limits, Mapping):
        return limits
    return dict.fromkeys(("default", *STALLED_AFTER_S), limits)
