"""lionagi's detectors: what each looks at and when it fires.

Their words, and those that cannot be evaluated from data, are rows of
``data/detectors.csv``, in the order of the catalogue: family A classifies a stored session,
B is what lists and dashboards say, C what closes dead work, D watches inside processes, E is
about schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stateanalytics.core.staleness import DEFAULT_STALE_AFTER_S, STALENESS_VERSIONS
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.lionagi.classifiers import (
    BAD_HEALTHS,
    DEAD,
    DONE,
    FAILED,
    GATED,
    READ_BY_HEALTH,
    REAPED_MESSAGE,
    RUNNING,
    assumed_alive,
    health_by,
    limits_of,
    stale_by,
)
from stateanalytics.systems.lionagi.reaper_rules import (
    MIRROR_AGENT,
    NOT_ALIVE,
    REAPABLE_PLAYS,
    REAPABLE_SHOWS,
    reapers,
)

DAY_S = 86_400.0
IN_RANGE = ((pl.col("started_age_s") <= DAY_S) | (pl.col("ended_age_s") <= DAY_S)).fill_null(
    value=False
)
"""The dashboard's default range: what began or ended within the last day."""

_Rules = Mapping[str, Mapping[str, Any]]
_status = pl.col("status")
_is_running, _is_gated = _status == "running", _status.is_in(GATED)
# Pages of lists count more words as running.
_is_shown_running = _status.is_in(RUNNING)
# A row without a status arrives on these pages as completed.
_shown = _status.fill_null("completed")
_health, _listed, _listed_0_26 = map(
    pl.col, ("health_0_28", "list_health_0_36", "list_health_0_26")
)


def detectors() -> tuple[Detector, ...]:
    """Every rule of lionagi that calls work stale, stuck, slow or dead."""
    rules = {
        **_classifiers(),
        **_dashboard(),
        **_attention(),
        **_chips(),
        **_closers(),
        **_schedules(),
    }
    return catalogue("stateanalytics.systems.lionagi", rules)


def _by_health(version: str, **other: Any) -> dict[str, Any]:
    return {
        "measures": "silence_s",
        "threshold_s": limits_of(version),
        "classify": health_by(version),
        "bad": BAD_HEALTHS,
        "inputs": READ_BY_HEALTH,
        **other,
    }


def _by_staleness(version: str, *measures: str) -> dict[str, Any]:
    return {
        "measures": measures,
        "threshold_s": {"default": DEFAULT_STALE_AFTER_S, **STALENESS_VERSIONS[version]},
        "counts_never": True,
        "classify": stale_by(version),
        "bad": ("stale",),
        "scope": _is_running,
        "inputs": ("status", "kind", *measures),
    }


def _past(measure: str, limit_s: float | pl.Expr, scope: pl.Expr, **other: Any) -> dict[str, Any]:
    return {"measures": measure, "threshold_s": limit_s, "scope": scope, **other}


def _classifiers() -> _Rules:
    # Until 0.29.0 a start was no sign of life.
    signs_of_life = ("last_message_age_s", "updated_age_s")
    return {
        "staleness_v1": _by_staleness("v1", *signs_of_life),
        "staleness_v2": _by_staleness("v2", *signs_of_life, "started_age_s"),
        "health_0_26": _by_health("0.26.1"),
        "health_2026_07_04": _by_health("2026-07-04a"),
        "health_0_28": _by_health("0.28"),
        "health_0_29": _by_health("0.29.1"),
        "health_0_36": _by_health("0.36"),
        "runs_list_0_26": _by_health("0.26.1", classify=assumed_alive),
        "runs_list_0_28": _by_health("0.28"),
        "runs_list_0_35": _by_health("0.36", scope=_is_running),
    }


def _dashboard() -> _Rules:
    going_on, done = _is_shown_running & IN_RANGE, _shown.is_in(DONE) & IN_RANGE
    is_slow = _is_shown_running & (pl.col("elapsed_whole_s") > 3600)
    return {
        "adr0017_slow": _past("started_age_s", 1800.0, _is_running),
        "dashboard_stuck_30m": _past("elapsed_whole_s", 1800.0, going_on, listed_s=DAY_S),
        "dashboard_stuck_60m": _past("elapsed_whole_s", 3600.0, going_on, listed_s=DAY_S),
        "dashboard_slow_30m": _past("elapsed_whole_s", 1800.0, done),
        "dashboard_slow_60m": _past("elapsed_whole_s", 3600.0, done),
        "dashboard_stale_card": _by_health(
            "0.26.1", scope=going_on, listed_s=DAY_S, classify=assumed_alive, bad=("stale",)
        ),
        "dashboard_attention": {
            "fires": _shown.is_in((*FAILED, *GATED)) | (_listed_0_26 == "stale") | is_slow,
            "scope": IN_RANGE,
            "inputs": ("elapsed_whole_s", *READ_BY_HEALTH),
        },
        "adr0030_stuck": _past("last_message_age_s", 3600.0, _is_running),
        "adr0030_slow": _past("started_age_s", 3600.0, _is_running, upper_s=10800.0),
    }


def _first_of(inputs: tuple[str, ...], **cases: pl.Expr) -> dict[str, Any]:
    """The first word whose case holds is shown, and any word asks for attention."""
    word = pl.coalesce(
        pl.when(case.fill_null(value=False)).then(pl.lit(word)) for word, case in cases.items()
    )
    return {"fires": word.is_not_null(), "label": word, "inputs": inputs}


def _attention() -> _Rules:
    failed_today = _status.is_in(FAILED) & (pl.coalesce("ended_age_s", "started_age_s") <= DAY_S)
    is_old = _is_shown_running & (pl.col("started_age_s") > 3600)
    is_kept = ~(pl.col("reason_message") == REAPED_MESSAGE).fill_null(value=False)
    ages = ("started_age_s", "ended_age_s")
    return {
        "mission_attention_v1": _first_of(
            (*ages, *READ_BY_HEALTH),
            failed=failed_today,
            stale=_listed_0_26.is_in(("stale", "orphaned")),
            stuck=is_old,
            gated=_is_gated,
        ),
        "mission_attention_v2": _first_of(
            (*ages, *READ_BY_HEALTH),
            failed=failed_today,
            stuck=_health == "unresponsive",
            stale=_health.is_in(DEAD),
        ),
        "mission_attention_0_35": _first_of(
            (*ages, "reason_message", *READ_BY_HEALTH),
            failed=failed_today & is_kept,
            stuck=(_listed == "unresponsive") & is_kept,
            stale=_listed.is_in(DEAD) & is_kept,
        ),
        "fleet_attention_v1": _past("elapsed_whole_s", 3600.0, _is_shown_running),
        "fleet_attention_v2": {
            "fires": _health.is_in(BAD_HEALTHS),
            "scope": _is_shown_running,
            "inputs": READ_BY_HEALTH,
        },
        "fleet_attention_0_35": {
            "fires": _listed.is_in(BAD_HEALTHS) & pl.col("is_effectively_active"),
            "scope": _is_shown_running,
            "inputs": (*READ_BY_HEALTH, "reason_message"),
        },
    }


def _chips() -> _Rules:
    chip = pl.col("display_status")
    latest, children = pl.col("health_0_36"), pl.col("children_health")
    is_own = pl.col("recorded_by").fill_null("live") == "live"
    read = (*READ_BY_HEALTH, "reason_message")
    return {
        "effectively_inactive": {
            "fires": ~pl.col("is_effectively_active"),
            "scope": chip.is_in(("running", "queued")),
            "inputs": read,
        },
        "live_board_quiet": {
            "fires": _listed.is_in(BAD_HEALTHS),
            "scope": _is_running,
            "inputs": read,
        },
        "status_dot_stale": {
            "fires": _listed.is_in((*DEAD, "unknown")),
            "scope": _is_running,
            "inputs": read,
        },
        "display_orphaned": {
            "fires": chip == "orphaned",
            "inputs": ("status", "reason_code", "reason_message"),
        },
        "admin_rebucketed": {
            "fires": latest.is_in(DEAD),
            "label": latest,
            "scope": _is_running & (pl.col("update_rank") <= 500),
            "inputs": (*READ_BY_HEALTH, "update_rank"),
        },
        "invocation_health": {
            "fires": children.is_in(BAD_HEALTHS),
            "label": children,
            "scope": children.is_not_null(),
            "inputs": ("children_health",),
        },
        "ended_at_mismatch": {
            "fires": pl.col("ended_age_s").is_not_null(),
            "scope": _is_running,
            "inputs": ("status", "ended_age_s"),
        },
        "status_degraded": {
            "fires": is_own & pl.col("n_model_turns").is_null(),
            "scope": _status.is_in(("completed", "completed_empty", "merged")),
            "inputs": ("status", "recorded_by", "n_model_turns"),
        },
    }


# Detectors that go by another name than the reaper whose rule they are.
_REAPER_OF = {
    "phantom_v2": "phantom_session",
    "state_doctor": "doctor",
    "kill_all_stale": "kill_stale",
    "kill_all_stale_plays": "kill_stale_play",
    "kill_all_stale_shows": "kill_stale_show",
}
_SCOPES = {
    "null_status": _status.is_null(),
    "stale_play": _status.is_in(REAPABLE_PLAYS),
    "stale_show": _status.is_in(REAPABLE_SHOWS),
    "kill_stale_show": _status == "active",
}


def _closers() -> _Rules:
    """What closes dead work, as detectors that only tell."""
    detector_of = {reaper: name for name, reaper in _REAPER_OF.items()}
    is_mirror = (pl.col("recorded_by") == "mirrored") | (pl.col("agent") == MIRROR_AGENT)
    of_reapers = {
        detector_of.get(reaper.name, reaper.name): {
            "measures": reaper.ages,
            "comparison": reaper.past[0],
            "threshold_s": float(reaper.past[1]),
            "counts_never": reaper.counts_never,
            "when": reaper.when & pl.col("is_foreign").ne_missing(pl.lit(value=True)),
            "scope": _SCOPES.get(reaper.name, _is_running),
            "label": reaper.written[0],
        }
        for reaper in reapers()
        # ADR-0033's two close by health, which no release judged so.
        if reaper.actor != "watchdog"
    }
    return {
        **of_reapers,
        "phantom_v1": _past(
            "updated_age_s", 3600.0, _is_running, comparison=">=", counts_never=True, when=NOT_ALIVE
        ),
        "mirror_idle": _past(
            "last_message_age_s", 300.0, _is_running & is_mirror, population=is_mirror
        ),
    }


def _schedules() -> _Rules:
    word, is_enabled = pl.col("schedule_health"), _status == "enabled"
    return {
        "schedule_overdue": _past("schedule_silence_s", pl.col("schedule_limit_s"), is_enabled),
        "schedule_unwell": {
            "fires": word.is_in(("overdue", "failing", "never-fired", "no-evidence")),
            "label": word,
            "scope": word.is_not_null() & (word != "disabled"),
        },
        "schedule_card_overdue": _past("next_fire_overdue_s", 0.0, is_enabled),
        "schedule_streak": {"fires": pl.col("n_failed_in_row") >= 3},
        "schedule_missed_fire": {"fires": pl.col("n_missed") > 0},
    }
