"""lionagi's detectors and thresholds, the columns that they read, and the words of its pages.

The texts of detectors, and those that cannot be evaluated from data, are rows of
``data/detectors.csv``, in the order of the catalogue: family A classifies a stored session,
B is what lists and dashboards show, C what closes dead work, D watches inside processes, E is
about schedules.

The six words of its pages are kept exact, quirks included: whatever the pages do not know
(an empty completion, a merged play, a failed gate) is shown as *running*, and a timeout as
*cancelled*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core import session_health
from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.joins import Rows, left_joined
from stateanalytics.core.session_health import DEFAULT_STALE_AFTER_S, HEALTH_ORDER
from stateanalytics.core.vocabulary import words_of
from stateanalytics.systems import base
from stateanalytics.systems.detector import Classifier, Detector, Limits, catalogue
from stateanalytics.systems.lionagi import SYSTEM, audits, frames
from stateanalytics.systems.lionagi.schedules import (
    schedule_ages,
    schedule_limit_s,
    with_schedule_health,
)
from stateanalytics.systems.situations import first_that_holds

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy


def kind_constants(policy: Policy, kinds: pl.DataFrame) -> list[base.Constant]:
    """The dashboard's slow threshold and the time limit, for each kind of work."""
    slow, *_ = base.constants_from_csv(__package__, policy)
    return [
        # The dashboard has one threshold for all kinds of work: advice may ask for one per kind.
        *(
            replace(
                slow,
                name=f"slow.{kind}",
                place=f"{base.NO_SETTING}: one value for every kind",
                path=(slow.path[-1], kind),
                kind=kind,
                policy_field=None,
                is_configurable=False,
            )
            for kind in kinds["kind"]
        ),
        *(
            time_limit(kind, limit_s, is_inferred=bool(is_inferred), is_mixed=bool(is_mixed))
            for kind, limit_s, is_inferred, is_mixed in kinds.iter_rows()
        ),
    ]


def time_limit(
    kind: str, today_s: float | None, *, is_inferred: bool = False, is_mixed: bool = False
) -> base.Constant:
    """The time limit of a kind of work, which playbooks and command lines set."""
    inferred = "; today's value is inferred because many runs end there"
    return base.Constant(
        f"timeout.{kind}",
        "lionagi",
        "playbook or command line",
        ("timeout", kind),
        today_s,
        "a run that takes longer is ended" + (inferred if is_inferred else ""),
        "runs",
        kind=kind,
        mistake="lost_run",
        is_configurable=True,
        is_mixed=is_mixed,
    )


_ENDED = tuple(word.raw_status for word in words_of("session") if word.is_terminal)


def silence_ends(facts: Facts) -> pl.DataFrame:
    """Terminal statuses of sessions, without those of reapers, which may have closed a live run."""
    ends = facts.transitions.lazy().filter(
        pl.col("entity_type") == "session",
        pl.col("system") == SYSTEM.name,
        pl.col("status").is_in(_ENDED),
        ~pl.col("reason_code").is_in(SYSTEM.ends.death_codes).fill_null(value=False),
    )
    boundary = pl.lit("other_end")
    return ends.select("source", "system", "entity_id", "at", boundary=boundary).collect()


DAY_S = 86_400.0
IN_RANGE = ((pl.col("started_age_s") <= DAY_S) | (pl.col("ended_age_s") <= DAY_S)).fill_null(
    value=False
)
"""The dashboard's default range: what began or ended within the last day."""

_DEAD = ("stale", "orphaned", "zombie")
_BAD_HEALTHS = ("unresponsive", *_DEAD)
_REAPED_MESSAGE = "phantom_reaped"
_LOCKS_CODE = "session.zombie.stale_locks"
# Words of a status as the pages group them; many stores hold words that no release writes.
_RUNNING = ("running", "executing", "in_progress", "director-managed", "open")
_DONE = (
    *("completed", "done", "success", "finished", "running_complete"),
    "director-managed-complete",
)
_GATED = ("needs_review", "blocked", "gated")
_FAILED = ("failed", "error", "failure")
_DISPLAYED = {
    "running": (*_RUNNING, *_GATED),
    "completed": _DONE,
    "failed": _FAILED,
    "cancelled": ("cancelled", "canceled", "aborted", "timed_out", "timeout"),
    "queued": ("queued", "pending", "planned", "received", "waiting", "scheduled"),
    "orphaned": ("orphaned",),
}
_DISPLAY_STATUS = {status: word for word, statuses in _DISPLAYED.items() for status in statuses}

_Rules = Mapping[str, Mapping[str, Any]]
_status = pl.col("status")
_is_running, _is_gated = _status == "running", _status.is_in(_GATED)
# Pages of lists count more words as running.
_is_shown_running = _status.is_in(_RUNNING)
# These pages get a row without a status as completed.
_shown = _status.fill_null("completed")
_health, _listed = pl.col("health_0_28"), pl.col("list_health_0_36")
_listed_0_26 = pl.col("list_health_0_26")


def detectors() -> tuple[Detector, ...]:
    """Every rule of lionagi that calls work stale, stuck, slow or dead."""
    groups = (_classifiers(), _dashboard(), _attention(), _chips(), _closers(), _schedules())
    rules = {name: rule for group in groups for name, rule in group.items()}
    return catalogue("stateanalytics.systems.lionagi", rules)


def _column_by(judge: Callable[..., pl.DataFrame], column: str, version: str) -> Classifier:
    """The classifier of one version, which fills a column."""

    def classify(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
        return judge(rows, thresholds=_limits_by_kind(limits), version=version)[column]

    return classify


_health_by = partial(_column_by, session_health.classify_session_health_by_age, "session_health")
_stale_by = partial(_column_by, session_health.staleness_by_age, "staleness")


def _limits_by_kind(limits: Limits | None) -> Mapping[str, float] | None:
    """Limits by kind of work; one number holds for every kind."""
    if limits is None or isinstance(limits, Mapping):
        return limits
    return dict.fromkeys(("default", *session_health.STALLED_AFTER_S), limits)


def _list_health_0_26(rows: pl.DataFrame, limits: Limits | None) -> pl.Series:
    """Health as the runs list of 0.26: every process alive, unresponsive shown as stale."""
    seen = rows.with_columns(process_alive=pl.lit(value=True), has_stale_locks=pl.lit(value=False))
    return _health_by("0.26.1")(seen, limits).replace("unresponsive", "stale")


def _by_health(version: str, **other: Any) -> dict[str, Any]:
    limits = {"default": DEFAULT_STALE_AFTER_S, **session_health.VERSIONS[version].stale_after_s}
    return {"threshold_s": limits, "classify": _health_by(version), **other}


def _by_staleness(version: str) -> dict[str, Any]:
    limits = {"default": DEFAULT_STALE_AFTER_S, **session_health.STALENESS_VERSIONS[version]}
    return {"threshold_s": limits, "classify": _stale_by(version), "scope": _is_running}


def _classifiers() -> _Rules:
    return {
        "staleness_v1": _by_staleness("v1"),
        "staleness_v2": _by_staleness("v2"),
        "health_0_26": _by_health("0.26.1"),
        "health_2026_07_04": _by_health("2026-07-04a"),
        "health_0_28": _by_health("0.28"),
        "health_0_29": _by_health("0.29.1"),
        "health_0_36": _by_health("0.36"),
        "runs_list_0_26": _by_health("0.26.1", classify=_list_health_0_26),
        "runs_list_0_28": _by_health("0.28"),
        "runs_list_0_35": _by_health("0.36", scope=_is_running),
    }


def _dashboard() -> _Rules:
    going_on = {"scope": _is_shown_running & IN_RANGE}
    running, done = {"scope": _is_running}, {"scope": _shown.is_in(_DONE) & IN_RANGE}
    is_slow = _is_shown_running & (pl.col("elapsed_whole_s") > 3600)
    is_failed = _shown.is_in((*_FAILED, *_GATED))
    return {
        **dict.fromkeys(("adr0017_slow", "adr0030_stuck", "adr0030_slow"), running),
        **dict.fromkeys(("dashboard_stuck_30m", "dashboard_stuck_60m"), going_on),
        **dict.fromkeys(("dashboard_slow_30m", "dashboard_slow_60m"), done),
        "dashboard_stale_card": _by_health("0.26.1", classify=_list_health_0_26) | going_on,
        "dashboard_attention": {
            "fires": is_failed | (_listed_0_26 == "stale") | is_slow,
            "scope": IN_RANGE,
        },
    }


def _first_word(**cases: pl.Expr) -> dict[str, Any]:
    """A detector that shows the word of the first case that holds; any word asks for attention."""
    word = first_that_holds(cases)
    return {"fires": word.is_not_null(), "label": word}


def _attention() -> _Rules:
    failed_today = _status.is_in(_FAILED) & (pl.coalesce("ended_age_s", "started_age_s") <= DAY_S)
    is_not_reaped = ~(pl.col("reason_message") == _REAPED_MESSAGE).fill_null(value=False)
    of_fleet = {"scope": _is_shown_running}
    return {
        "mission_attention_v1": _first_word(
            failed=failed_today,
            stale=_listed_0_26.is_in(("stale", "orphaned")),
            stuck=_is_shown_running & (pl.col("started_age_s") > 3600),
            gated=_is_gated,
        ),
        "mission_attention_v2": _first_word(
            failed=failed_today, stuck=_health == "unresponsive", stale=_health.is_in(_DEAD)
        ),
        "mission_attention_0_35": _first_word(
            failed=failed_today & is_not_reaped,
            stuck=(_listed == "unresponsive") & is_not_reaped,
            stale=_listed.is_in(_DEAD) & is_not_reaped,
        ),
        "fleet_attention_v1": of_fleet,
        "fleet_attention_v2": of_fleet | {"fires": _health.is_in(_BAD_HEALTHS)},
        "fleet_attention_0_35": of_fleet
        | {"fires": _listed.is_in(_BAD_HEALTHS) & pl.col("is_effectively_active")},
    }


def _chips() -> _Rules:
    chip = pl.col("display_status")
    latest, children = pl.col("health_0_36"), pl.col("children_health")
    is_own = pl.col("recorded_by").fill_null("live") == "live"
    running = {"scope": _is_running}
    return {
        "effectively_inactive": {
            "fires": ~pl.col("is_effectively_active"),
            "scope": chip.is_in(("running", "queued")),
        },
        "live_board_quiet": running | {"fires": _listed.is_in(_BAD_HEALTHS)},
        "status_dot_stale": running | {"fires": _listed.is_in((*_DEAD, "unknown"))},
        "display_orphaned": {"fires": chip == "orphaned"},
        "admin_rebucketed": {
            "fires": latest.is_in(_DEAD),
            "label": latest,
            "scope": _is_running & (pl.col("update_rank") <= 500),
        },
        "invocation_health": {
            "fires": children.is_in(_BAD_HEALTHS),
            "label": children,
            "scope": children.is_not_null(),
        },
        "ended_at_mismatch": running | {"fires": pl.col("ended_age_s").is_not_null()},
        "status_degraded": {
            "fires": is_own & pl.col("n_model_turns").is_null(),
            "scope": _status.is_in(("completed", "completed_empty", "merged")),
        },
    }


# Reapers of which the detector has another name.
_DETECTORS_OF_REAPERS = {
    "phantom_session": "phantom_v2",
    "doctor": "state_doctor",
    "kill_stale": "kill_all_stale",
    "kill_stale_play": "kill_all_stale_plays",
    "kill_stale_show": "kill_all_stale_shows",
}


def _closers() -> _Rules:
    """What closes dead work, as detectors that only report."""
    is_mirror = (pl.col("recorded_by") == "mirrored") | (pl.col("agent") == audits.MIRROR_AGENT)
    from_reapers = {
        _DETECTORS_OF_REAPERS.get(reaper.name, reaper.name): {
            "measures": reaper.ages,
            "comparison": reaper.comparison,
            "threshold_s": reaper.limit_s,
            "counts_never": not reaper.ignores_liveness,
            "when": reaper.when & pl.col("is_foreign").ne_missing(pl.lit(value=True)),
            "scope": _status.is_in(reaper.statuses) if reaper.statuses else _status.is_null(),
            "label": reaper.written[0],
        }
        for reaper in audits.reapers()
        # ADR-0033's two close by health, and no release has that rule.
        if reaper.actor != "watchdog"
    }
    return {
        **from_reapers,
        "phantom_v1": {"scope": _is_running, "when": audits.NOT_ALIVE},
        "mirror_idle": {"scope": _is_running & is_mirror, "population": is_mirror},
    }


def _schedules() -> _Rules:
    word, enabled = pl.col("schedule_health"), {"scope": _status == "enabled"}
    return {
        "schedule_overdue": enabled | {"threshold_s": pl.col("schedule_limit_s")},
        "schedule_unwell": {
            "fires": word.is_in(("overdue", "failing", "never-fired", "no-evidence")),
            "label": word,
            "scope": word.is_not_null() & (word != "disabled"),
        },
        "schedule_card_overdue": enabled,
        "schedule_streak": {"fires": pl.col("n_failed_in_row") >= 3},
        "schedule_missed_fire": {"fires": pl.col("n_missed") > 0},
    }


# --- the columns that only these detectors read ------------------------------------------


def with_display_status(rows: Rows) -> Rows:
    """Runs with the word that a page shows for each, and three judgements that follow from it.

    Parameters
    ----------
    rows : polars.DataFrame
        ``status``, ``reason_code``, ``reason_message`` as stored and ``session_health``
        (ADR-0024's word): text.

    Returns
    -------
    polars.DataFrame
        The same rows with ``display_status`` (queued, running, completed, failed,
        cancelled, orphaned) and the Booleans ``is_orphaned_reason``,
        ``is_unsuccessful_terminal`` and ``is_effectively_active``.

    Examples
    --------
    >>> row = {"status": "completed_empty", "reason_code": None, "reason_message": None,
    ...        "session_health": "stale"}
    >>> with_display_status(pl.DataFrame([row]))["display_status"].to_list()
    ['running']
    """
    status = pl.col("status").str.strip_chars().str.to_lowercase()
    is_reaped = (pl.col("reason_message") == _REAPED_MESSAGE).fill_null(value=False)
    has_locks = (pl.col("reason_code") == _LOCKS_CODE).fill_null(value=False)
    is_dead = pl.col("session_health").is_in(_DEAD).fill_null(value=False)
    display = pl.col("display_status")
    return rows.with_columns(
        is_orphaned_reason=is_reaped & ~has_locks,
        display_status=pl.when(is_reaped & ~has_locks)
        .then(pl.lit("orphaned"))
        .otherwise(status.replace_strict(_DISPLAY_STATUS, default="running"))
        .fill_null("running"),
    ).with_columns(
        is_unsuccessful_terminal=display.is_in(("failed", "cancelled", "orphaned")),
        is_effectively_active=(display == "queued") | ((display == "running") & ~is_dead),
    )


_HEALTH_COLUMNS = {"health_0_28": "0.28", "health_0_36": "0.36"}
"""ADR-0024's word by the versions of the classifier that other pages build on."""

_JUDGED = ("status", "silence", "n_messages")
_RELEASES = (
    *("2026-05-20", "2026-05-21", "0.26.0", "2026-05-23", "0.26.1", "0.26.7", "2026-05-30"),
    *("0.27.0", "0.27.2", "2026-07", "2026-07-04", "0.28.0", "2026-07-05", "2026-07-06"),
    *("2026-07-08", "0.29.0", "2026-07-12", "2026-07-13", "0.29.1", "2026-08", "2026-08-06"),
    *("2026-08-09", "2026-08-15", "0.34", "0.35", "0.36"),
)


@cache
def detecting() -> base.Detecting:
    """The detectors, their releases, and the columns that only they read."""
    features = base.features_from_csv(__package__, add_features)
    return base.Detecting(detectors=detectors(), releases=_RELEASES, features=features)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Entities of lionagi with the columns that only its detectors read.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.detections.with_ages`.
    past : Past
        The facts at the instant.
    """
    return _add_schedules(_add_children(add_words(audits.with_relatives(rows, past.facts))), past)


def add_words(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the words of the health classifiers, and what pages show for them.

    Parameters
    ----------
    rows : polars.DataFrame
        The key; ``status``, ``kind``, ``n_messages``, ``last_message_age_s``, ``updated_age_s``,
        ``started_age_s``, ``process_alive``, ``has_artifacts``, ``has_stale_locks``,
        ``reason_code``, ``reason_message``.
    """
    named = rows.with_columns(invocation_kind="kind", message_count="n_messages")
    named = named.hstack(
        [
            _health_by(version)(named, None).alias(column)
            for column, version in _HEALTH_COLUMNS.items()
        ]
    )
    named = named.with_columns(
        list_health_0_26=_list_health_0_26(named, None),
        list_health_0_36=pl.when(pl.col("status") == "running").then("health_0_36"),
    )
    # The pages get a row without a status as completed.
    rows_of_pages = named.lazy().with_columns(
        session_health="list_health_0_36", status=pl.col("status").fill_null("completed")
    )
    shown = with_display_status(rows_of_pages).with_columns(status=named["status"])
    rank = pl.col("updated_age_s").rank("ordinal").over("source", "entity_type")
    return audits.with_phantom_reason(shown).with_columns(update_rank=rank).collect()


def _add_children(rows: pl.DataFrame) -> pl.DataFrame:
    """Invocations with the worst health of their sessions, as their page shows it."""
    is_session = pl.col("entity_type") == "session"
    # The page takes a recorded directory as existing, looks for no locks, and counts a
    # session that does not run as healthy, however it ended.
    is_running = pl.col("status") == "running"
    seen = pl.when(is_running).then("health_0_28").otherwise(pl.lit("healthy"))
    ranks = {word: place for place, word in enumerate(HEALTH_ORDER)}
    children = (
        rows.lazy()
        .filter(is_session & pl.col("invocation_id").is_not_null())
        .group_by("source", "invocation_id")
        .agg(
            _rank=seen.replace_strict(ranks, return_dtype=pl.Int8).max(),
            lost_children=pl.any_horizontal(f"lost_{what}" for what in _JUDGED).any(),
        )
        .select(
            "source",
            "lost_children",
            pl.col("_rank").replace_strict(dict(enumerate(HEALTH_ORDER))).alias("children_health"),
            entity_id="invocation_id",
            entity_type=pl.lit("invocation"),
        )
    )
    joined = left_joined(rows.lazy(), children, on=["source", "entity_type", "entity_id"])
    return joined.collect()


def _add_schedules(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    schedules = past.facts.detail(frames.SCHEDULES)
    judged = with_schedule_health(schedule_ages(schedules.lazy(), past.at)).select(
        "source",
        "schedule_health",
        "n_failed_in_row",
        "n_missed",
        entity_id="schedule_id",
        entity_type=pl.lit("schedule"),
        schedule_silence_s="silence_s",
        schedule_limit_s=schedule_limit_s(),
        next_fire_overdue_s=-pl.col("next_fire_in_s"),
    )
    return left_joined(rows.lazy(), judged, on=["source", "entity_type", "entity_id"]).collect()
