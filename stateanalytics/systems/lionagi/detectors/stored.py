"""Family A: lionagi's classifiers of a stored session, in every version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stateanalytics.core.session_health import VERSIONS, classify_session_health_by_age
from stateanalytics.core.staleness import (
    DEFAULT_STALE_AFTER_S,
    STALENESS_VERSIONS,
    STALLED_AFTER_S,
    staleness_by_age,
)
from stateanalytics.systems.detector import Classifier, Detector, Limits, catalogued

BAD_HEALTHS = ("unresponsive", "stale", "orphaned", "zombie")
READ_BY_HEALTH = (
    *("status", "kind", "silence_s", "n_messages"),
    *("process_alive", "has_artifacts", "has_stale_locks"),
)
_SIGNS_OF_LIFE = ("last_message_age_s", "updated_age_s", "started_age_s")


def stored() -> tuple[Detector, ...]:
    """The detectors of the family, in the order of the catalogue."""
    return (*_staleness(), *_health(), *_not_offline())


def limits_of(version: str) -> dict[str, float]:
    """The limits of silence of one version of the classifier, by kind of work."""
    return {"default": DEFAULT_STALE_AFTER_S, **VERSIONS[version].stale_after_s}


def health_by(version: str) -> Classifier:
    """The classifier of one version, as detectors take it."""

    def classify(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
        judged: pl.DataFrame = classify_session_health_by_age(
            rows, thresholds=_of_kinds(limits), version=version
        )
        return judged["session_health"]

    return classify


def _of_kinds(limits: Limits | None) -> Mapping[str, float] | None:
    """Limits by kind of work; one number holds for every kind."""
    if limits is None or isinstance(limits, Mapping):
        return limits
    return dict.fromkeys(("default", *STALLED_AFTER_S), limits)


def _stale_by(version: str) -> Classifier:
    def classify(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
        judged: pl.DataFrame = staleness_by_age(rows, thresholds=_of_kinds(limits), version=version)
        return judged["staleness"]

    return classify


def _staleness() -> tuple[Detector, ...]:
    def check(name: str, number: str, version: str, **words: Any) -> Detector:
        # Until 0.29.0 a start was no sign of life.
        measures = _SIGNS_OF_LIFE[:2] if version == "v1" else _SIGNS_OF_LIFE
        return catalogued(
            name,
            known_as=number,
            family="lionagi A",
            system="lionagi",
            measures=measures,
            threshold_s={"default": DEFAULT_STALE_AFTER_S, **STALENESS_VERSIONS[version]},
            counts_never=True,
            classify=_stale_by(version),
            bad=("stale",),
            scope=pl.col("status") == "running",
            scope_words="sessions whose status is exactly `running`",
            inputs=("status", "kind", *measures),
            label="stale",
            construct="silence",
            question="stale",
            restarts_on="message",
            origin="state/staleness.py",
            page="runs list",
            version_of="staleness check",
            **words,
        )

    return (
        check(
            "staleness_v1",
            "A1",
            "v1",
            since="0.26.1",
            until="0.29.0",
            rule="no message, else no update, for longer than its kind may be silent; "
            "a row with neither is always stale",
        ),
        check(
            "staleness_v2",
            "A2",
            "v2",
            since="0.29.1",
            rule="no message, else no update, else no start, for longer than its kind may "
            "be silent; engines may for 12 h since 0.35",
        ),
    )


def _health() -> tuple[Detector, ...]:
    spans = (
        ("health_0_26", "A3", "0.26.1", "0.26.1", "0.27.2", "unknown is dead"),
        ("health_2026_07_04", "A4", "2026-07-04a", "2026-07-04", "2026-07-04", "unknown is dead"),
        ("health_0_28", "A5", "0.28", "0.28.0", "0.29.0", "unknown stays unknown"),
        ("health_0_29", "A6/0.29", "0.29.1", "0.29.1", "0.34", "unknown stays unknown"),
        ("health_0_36", "A6", "0.36", "0.35", "", "unknown stays unknown"),
    )
    rules = {
        "A3": "not alive is stale at once, or orphaned where nothing came out; alive and "
        "silent for too long is unresponsive; over with locks left is a zombie",
        "A4": "as 0.26, but what is not alive and not silent for long is idle or healthy",
        "A5": "known dead is stale at once; of unknown liveness it is stale by silence",
        "A6/0.29": "as 0.28, but only the status `running` can be stale by silence",
        "A6": "as 0.29, and engines may be silent for 12 h",
    }
    return tuple(
        catalogued(
            name,
            known_as=number,
            family="lionagi A",
            system="lionagi",
            measures="silence_s",
            threshold_s=limits_of(version),
            classify=health_by(version),
            bad=BAD_HEALTHS,
            inputs=READ_BY_HEALTH,
            construct="silence",
            question="stale",
            liveness=liveness,
            # By the first version, what nobody saw alive is stale at once.
            restarts_on=None if number == "A3" else "message",
            origin="state/health.py, classify_session_health",
            page="admin console",
            version_of="session health",
            since=since,
            until=until,
            scope_words="all sessions; what is over is healthy, or a zombie",
            rule=rules[number],
        )
        for name, number, version, since, until, liveness in spans
    )


def _not_offline() -> tuple[Detector, ...]:
    def listed(name: str, number: str, **words: Any) -> Detector:
        return catalogued(name, known_as=number, family="lionagi A", system="lionagi", **words)

    return (
        listed(
            "stale_locks_v1",
            "A8",
            construct="lock",
            question="dead",
            label="zombie",
            origin="studio admin",
            since="0.26.1",
            until="2026-08-09",
            rule="any *.lock below the artifacts that is older than an hour, uv.lock too",
            why_not="lock files lie in the artifacts directory, of which a store keeps the path",
        ),
        listed(
            "stale_locks_v2",
            "A9",
            construct="lock",
            question="dead",
            label="zombie",
            origin="studio admin",
            since="2026-08-09",
            rule="job.lock or finalize.lock older than an hour",
            why_not="lock files lie in the artifacts directory, of which a store keeps the path",
        ),
        listed(
            "process_liveness",
            "A10",
            construct="liveness",
            question="dead",
            label="dead",
            origin="studio admin",
            since="0.26.1",
            rule="pid file or stored pid, compared with the process that has it now",
            why_not="it looks at the processes of the machine, at that moment",
        ),
    )
