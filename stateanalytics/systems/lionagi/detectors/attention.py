"""Family B, the later pages: who needs attention, what is active, which chip is drawn."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.detector import Detector, catalogued
from stateanalytics.systems.lionagi.detectors.pages import (
    DAY_S,
    DEAD,
    FAILED,
    GATED,
    REAPED_MESSAGE,
    RUNNING,
)
from stateanalytics.systems.lionagi.detectors.stored import BAD_HEALTHS, READ_BY_HEALTH

_is_running = pl.col("status").is_in(RUNNING)
_ended_or_begun = pl.coalesce("ended_age_s", "started_age_s")
_failed_today = pl.col("status").is_in(FAILED) & (_ended_or_begun <= DAY_S)
_is_old = _is_running & (pl.col("started_age_s") > 3600)
_GROUP: dict[str, Any] = {"family": "lionagi B", "system": "lionagi", "question": "attention"}


def attention_pages() -> tuple[Detector, ...]:
    """The detectors of the later pages, in the order of the catalogue."""
    return (*_mission(), *_fleet(), *_chips(), *_consoles(), *_rest())


def _word(**cases: pl.Expr) -> pl.Expr:
    """The first word whose case holds."""
    return pl.coalesce(
        pl.when(case.fill_null(value=False)).then(pl.lit(word)) for word, case in cases.items()
    )


def _mission() -> tuple[Detector, ...]:
    def page(name: str, number: str, word: pl.Expr, **words: Any) -> Detector:
        return catalogued(
            name,
            known_as=number,
            fires=word.is_not_null(),
            label=word,
            page="mission control",
            version_of="mission attention",
            origin="boardReducer.ts",
            scope_words="all sessions of the runs list",
            **{**_GROUP, **words},
        )

    listed, raw, now = (
        pl.col(name) for name in ("list_health_0_26", "health_0_28", "list_health_0_36")
    )
    is_hidden = (pl.col("reason_message") == REAPED_MESSAGE).fill_null(value=False)
    gated = pl.col("status").is_in(GATED)
    return (
        page(
            "mission_attention_v1",
            "B7",
            _word(
                failed=_failed_today,
                stale=listed.is_in(("stale", "orphaned")),
                stuck=_is_old,
                gated=gated,
            ),
            since="2026-07-04",
            until="2026-07-05",
            inputs=("started_age_s", "ended_age_s", *READ_BY_HEALTH),
            rule="failed within a day, else stale, else running for more than an hour: stuck",
        ),
        page(
            "mission_attention_v2",
            "B8/07",
            _word(failed=_failed_today, stuck=raw == "unresponsive", stale=raw.is_in(DEAD)),
            since="2026-07-05",
            until="2026-08-15",
            liveness="unknown stays unknown",
            inputs=("started_age_s", "ended_age_s", *READ_BY_HEALTH),
            rule="failed within a day; unresponsive is stuck, never by age; dead is stale",
        ),
        page(
            "mission_attention_0_35",
            "B8",
            _word(
                failed=_failed_today & ~is_hidden,
                stuck=(now == "unresponsive") & ~is_hidden,
                stale=now.is_in(DEAD) & ~is_hidden,
            ),
            since="2026-08-15",
            liveness="unknown stays unknown",
            inputs=("started_age_s", "ended_age_s", "reason_message", *READ_BY_HEALTH),
            rule="the same of running sessions only; what the reaper took is hidden",
        ),
    )


def _fleet() -> tuple[Detector, ...]:
    common: dict[str, Any] = {
        **_GROUP,
        "page": "fleet",
        "version_of": "fleet attention",
        "origin": "fleetReducer.ts",
        "label": "needs attention",
    }
    raw, now = pl.col("health_0_28"), pl.col("list_health_0_36")
    return (
        catalogued(
            "fleet_attention_v1",
            known_as="B9/04",
            measures="elapsed_whole_s",
            threshold_s=3600.0,
            scope=_is_running,
            scope_words="running sessions, however old",
            restarts_on="start",
            since="2026-07-04",
            until="2026-07-05",
            rule="running for more than an hour",
            **common,
        ),
        catalogued(
            "fleet_attention_v2",
            known_as="B9/05",
            fires=raw.is_in(BAD_HEALTHS),
            scope=_is_running,
            scope_words="running sessions",
            liveness="unknown stays unknown",
            inputs=READ_BY_HEALTH,
            since="2026-07-05",
            until="2026-07-06",
            rule="its health is unresponsive, stale, orphaned or zombie",
            **common,
        ),
        catalogued(
            "fleet_attention_0_35",
            known_as="B9",
            fires=now.is_in(BAD_HEALTHS) & pl.col("is_effectively_active"),
            scope=_is_running,
            scope_words="running sessions",
            liveness="unknown stays unknown",
            inputs=(*READ_BY_HEALTH, "reason_message"),
            since="2026-07-06",
            rule="the same among active ones, so that only unresponsive ones are left",
            **common,
        ),
    )


def _chips() -> tuple[Detector, ...]:
    now = pl.col("list_health_0_36")
    shown = pl.col("display_status")
    health: dict[str, Any] = {
        **_GROUP,
        "liveness": "unknown stays unknown",
        "inputs": (*READ_BY_HEALTH, "reason_message"),
    }
    return (
        catalogued(
            "effectively_inactive",
            known_as="B10",
            fires=~pl.col("is_effectively_active"),
            scope=shown.is_in(("running", "queued")),
            scope_words="what the page shows as running or queued",
            label="not active",
            page="runs list",
            origin="lib/runStatus.ts, isEffectivelyActive",
            since="2026-07-06",
            rule="shown as running, but stale, orphaned or zombie",
            **{**health, "question": "dead"},
        ),
        catalogued(
            "live_board_quiet",
            known_as="B11",
            fires=now.is_in(BAD_HEALTHS),
            scope=pl.col("status") == "running",
            scope_words="running sessions",
            label="quiet — check?",
            page="live board",
            origin="LiveBoard, DEAD_HEALTH",
            since="2026-07",
            rule="its health is stale, orphaned, zombie or unresponsive",
            **{**health, "question": "stale"},
        ),
        catalogued(
            "status_dot_stale",
            known_as="B12",
            fires=now.is_in((*DEAD, "unknown")),
            scope=pl.col("status") == "running",
            scope_words="running sessions",
            label="grey dot",
            page="runs list",
            origin="StatusDot, STALE_STATUSES",
            since="2026-07",
            rule="its health is stale, orphaned, zombie or unknown",
            **{**health, "question": "stale"},
        ),
        catalogued(
            "display_orphaned",
            known_as="B13",
            fires=shown == "orphaned",
            label="orphaned",
            page="runs list",
            origin="lib/runStatus.ts, deriveDisplayStatus",
            since="2026-07-06",
            inputs=("status", "reason_code", "reason_message"),
            scope_words="all sessions",
            rule="the phantom reaper took it, and not for its locks",
            **{**_GROUP, "question": "dead"},
        ),
    )


def _consoles() -> tuple[Detector, ...]:
    raw, children = pl.col("health_0_36"), pl.col("children_health")
    return (
        catalogued(
            "admin_rebucketed",
            known_as="B14",
            fires=raw.is_in(DEAD),
            label=raw,
            scope=(pl.col("status") == "running") & (pl.col("update_rank") <= 500),
            scope_words="running ones of the 500 sessions written last",
            liveness="unknown stays unknown",
            inputs=(*READ_BY_HEALTH, "update_rank"),
            page="admin console",
            origin="admin.py, health_report",
            since="0.28.0",
            rule="counted under its health instead of running where that is stale or worse",
            **{**_GROUP, "question": "stale"},
        ),
        catalogued(
            "invocation_health",
            known_as="A7, B15",
            entity_types=("invocation",),
            fires=children.is_in(BAD_HEALTHS),
            scope=children.is_not_null(),
            scope_words="invocations with sessions; others are unknown",
            label=children,
            liveness="unknown stays unknown",
            inputs=("children_health",),
            page="invocations",
            origin="services/invocations.py, worst_health",
            since="0.28.0",
            rule="the worst health of its running sessions",
            **{**_GROUP, "question": "stale"},
        ),
    )


def _rest() -> tuple[Detector, ...]:
    is_own = pl.col("recorded_by").fill_null("live") == "live"
    return (
        catalogued(
            "ended_at_mismatch",
            known_as="B16",
            fires=pl.col("ended_age_s").is_not_null(),
            scope=pl.col("status") == "running",
            scope_words="running sessions",
            label="mismatch",
            page="runs list",
            origin="runs.py, status_ended_at_mismatches",
            since="2026-08",
            inputs=("status", "ended_age_s"),
            rule="running, and has an end",
            **{**_GROUP, "question": "degraded"},
        ),
        catalogued(
            "status_degraded",
            known_as="B17",
            entity_types=("session", "invocation", "play"),
            fires=is_own & pl.col("n_turns").is_null(),
            scope=pl.col("status").is_in(("completed", "completed_empty", "merged")),
            scope_words="what ended well",
            label="degraded",
            construct="count",
            page="li status",
            origin="cli/status.py",
            since="0.28.0",
            inputs=("status", "recorded_by", "n_turns"),
            rule="its turns were never counted: the normal end probably did not run",
            **{**_GROUP, "question": "degraded"},
        ),
        catalogued(
            "li_monitor",
            known_as="B20",
            page="li monitor",
            origin="cli/monitor.py",
            since="0.26.0",
            rule="shows how long each run has been going on",
            why_not="it gives no verdict: it lists ages, and exits 3 for what is still pending",
            **_GROUP,
        ),
    )
