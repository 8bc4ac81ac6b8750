"""Family B: what lionagi's lists and dashboards call stuck, slow, stale, or in need."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.detector import Detector, Limits, catalogued
from stateanalytics.systems.lionagi.detectors.stored import (
    BAD_HEALTHS,
    READ_BY_HEALTH,
    health_by,
    limits_of,
)

RUNNING = ("running", "executing", "in_progress", "director-managed", "open")
DONE = (
    *("completed", "done", "success", "finished", "running_complete"),
    "director-managed-complete",
)
GATED = ("needs_review", "blocked", "gated")
FAILED = ("failed", "error", "failure")
DAY_S = 86_400.0
DEAD = ("stale", "orphaned", "zombie")
REAPED_MESSAGE = "phantom_reaped"

_is_running = pl.col("status").is_in(RUNNING)
# A row without a status arrives on these pages as completed.
_shown = pl.col("status").fill_null("completed")
IN_RANGE = ((pl.col("started_age_s") <= DAY_S) | (pl.col("ended_age_s") <= DAY_S)).fill_null(
    value=False
)
"""The dashboard's default range: what began or ended within the last day."""

_DASHBOARD: dict[str, Any] = {
    "family": "lionagi B",
    "system": "lionagi",
    "page": "dashboard",
    "until": "2026-07-04",
    "clock": "the browser's, in whole seconds, looked at every 30 s",
}
_RANGE = "that began or ended within the last 24 h"


def pages() -> tuple[Detector, ...]:
    """The detectors of the family, in the order of the catalogue."""
    return (_design(), *_dashboard(), *_runs_list())


def assumed_alive(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
    """The word of the runs list of 0.26: every process alive, unresponsive called stale."""
    seen = rows.with_columns(process_alive=pl.lit(value=True), has_stale_locks=pl.lit(value=False))
    return health_by("0.26.1")(seen, limits).replace("unresponsive", "stale")


def _design() -> Detector:
    return catalogued(
        "adr0017_slow",
        known_as="B1",
        family="lionagi B",
        system="lionagi",
        measures="started_age_s",
        threshold_s=1800.0,
        scope=pl.col("status") == "running",
        scope_words="running sessions, however old",
        label="slow",
        question="slow",
        restarts_on="start",
        origin="ADR-0017, SQL; never in code",
        since="2026-05-20",
        rule="running, and started more than 30 minutes ago",
    )


def _dashboard() -> tuple[Detector, ...]:
    stuck: dict[str, Any] = {
        "measures": "elapsed_whole_s",
        "scope": _is_running & IN_RANGE,
        "scope_words": f"running sessions {_RANGE}",
        "label": "stuck",
        "construct": "elapsed",
        "question": "stuck",
        "restarts_on": "start",
        "listed_s": DAY_S,
        "origin": "frontend app/page.tsx",
        "version_of": "stuck runs",
        "rule": "running for longer, whatever it says meanwhile",
    }
    slow: dict[str, Any] = {
        **stuck,
        "scope": _shown.is_in(DONE) & IN_RANGE,
        "scope_words": f"completed sessions {_RANGE}",
        "label": "slow",
        "question": "slow",
        "restarts_on": None,
        "listed_s": None,
        "version_of": "slow runs",
        "rule": "completed, and took longer; without an end: up to now",
    }

    def of(name: str, number: str, limit: float, shared: dict[str, Any], **own: Any) -> Detector:
        return catalogued(
            name, known_as=number, threshold_s=limit, **{**_DASHBOARD, **shared, **own}
        )

    is_stale = pl.col("list_health_0_26") == "stale"
    is_slow = _is_running & (pl.col("elapsed_whole_s") > 3600)
    return (
        of("dashboard_stuck_30m", "B2/30", 1800.0, stuck, since="2026-05-21", until="0.26.0"),
        of("dashboard_stuck_60m", "B2", 3600.0, stuck, since="0.26.1"),
        of("dashboard_slow_30m", "B3/30", 1800.0, slow, since="2026-05-21", until="0.26.0"),
        of("dashboard_slow_60m", "B3", 3600.0, slow, since="0.26.1"),
        catalogued(
            "dashboard_stale_card",
            known_as="B4",
            measures="silence_s",
            threshold_s=limits_of("0.26.1"),
            scope=_is_running & IN_RANGE,
            scope_words=f"running sessions {_RANGE}",
            label="stale",
            construct="silence",
            question="stale",
            liveness="assumed",
            restarts_on="message",
            listed_s=DAY_S,
            since="0.26.1",
            origin="frontend app/page.tsx, the Stale card",
            inputs=READ_BY_HEALTH,
            classify=assumed_alive,
            bad=("stale",),
            rule="silent for longer than its kind may be",
            **{**_DASHBOARD, "clock": "the server's"},
        ),
        catalogued(
            "dashboard_attention",
            known_as="B5",
            fires=_shown.is_in((*FAILED, *GATED)) | is_stale | is_slow,
            scope=IN_RANGE,
            scope_words=f"sessions {_RANGE}; the page showed the first eight",
            label="needs attention",
            inputs=("elapsed_whole_s", *READ_BY_HEALTH),
            question="attention",
            liveness="assumed",
            since="0.26.1",
            origin="frontend app/page.tsx",
            rule="failed, stale, stuck for 60 min, or waiting for a review",
            **_DASHBOARD,
        ),
    )


def _runs_list() -> tuple[Detector, ...]:
    common: dict[str, Any] = {
        "family": "lionagi B",
        "system": "lionagi",
        "page": "runs list",
        "question": "stale",
        "construct": "silence",
        "measures": "silence_s",
        "restarts_on": "message",
        "inputs": READ_BY_HEALTH,
        "origin": "studio/services/runs.py, effective_health",
        "version_of": "effective health",
    }

    def listed(name: str, number: str, version: str, **own: Any) -> Detector:
        given = {"classify": health_by(version), "bad": BAD_HEALTHS, **common, **own}
        return catalogued(name, known_as=number, threshold_s=limits_of(version), **given)

    return (
        listed(
            "runs_list_0_26",
            "B6/0.26",
            "0.26.1",
            classify=assumed_alive,
            since="0.26.1",
            until="2026-07-04",
            liveness="assumed",
            scope_words="all sessions",
            rule="A3 with every process alive and no locks, where unresponsive is called stale",
        ),
        listed(
            "runs_list_0_28",
            "B6/0.28",
            "0.28",
            since="0.28.0",
            until="2026-08-15",
            liveness="unknown stays unknown",
            scope_words="all sessions",
            rule="the classifier's word as it is",
        ),
        listed(
            "runs_list_0_35",
            "B6",
            "0.36",
            since="2026-08-15",
            scope=pl.col("status") == "running",
            scope_words="sessions whose status is exactly `running`",
            liveness="unknown stays unknown",
            rule="the classifier's word, of running sessions only",
        ),
    )
