"""The features of lionagi: what its classifier says, its pages show, and its schedules do.

The six words of its pages are kept exact, quirks included: whatever the pages do not know
(an empty completion, a merged play, a failed gate) is shown as *running*, and a timeout as
*cancelled*.

A schedule's silence is measured from the last thing that proves it works: a run that was
executed, an evaluation of a threshold, a poll that answered. A skipped run proves
nothing, and neither does the planned next fire, which is a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core.engines import NUMBER, TEXT, YES_NO, adapt, optional
from stateanalytics.core.session_health import HEALTH_ORDER
from stateanalytics.systems.base import Features
from stateanalytics.systems.history import Past
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.classifiers import (
    DEAD,
    DONE,
    FAILED,
    GATED,
    REAPED_MESSAGE,
    RUNNING,
    assumed_alive,
    health_by,
)
from stateanalytics.systems.lionagi.phantoms import with_phantom_reason, with_relatives

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "running": (*RUNNING, *GATED),
        "completed": DONE,
        "failed": FAILED,
        "cancelled": ("cancelled", "canceled", "aborted", "timed_out", "timeout"),
        "queued": ("queued", "pending", "planned", "received", "waiting", "scheduled"),
        "orphaned": ("orphaned",),
    }
)
UNSUCCESSFUL = ("failed", "cancelled", "orphaned")
LOCKS_CODE = "session.zombie.stale_locks"


def with_display_status(frame: Any) -> Any:
    """The word a page shows for each run, and the three judgements that follow from it.

    Parameters
    ----------
    frame : frame
        ``status``, ``reason_code``, ``reason_message`` as stored and ``session_health``
        (ADR-0024's word): text.

    Returns
    -------
    frame
        The same rows and kind with ``display_status`` (queued, running, completed,
        failed, cancelled, orphaned) and the Booleans ``is_orphaned_reason``,
        ``is_unsuccessful_terminal`` and ``is_effectively_active``.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"status": "completed_empty", "reason_code": None, "reason_message": None,
    ...        "session_health": "stale"}
    >>> with_display_status(pl.DataFrame([row]))["display_status"].to_list()
    ['running']
    """
    word = nw.col("status").str.strip_chars().str.to_lowercase()
    is_reaped = (nw.col("reason_message") == REAPED_MESSAGE).fill_null(False)
    has_locks = (nw.col("reason_code") == LOCKS_CODE).fill_null(False)
    display = nw.col("display_status")
    is_dead = nw.col("session_health").is_in(DEAD).fill_null(False)
    is_active = (display == "queued") | ((display == "running") & ~is_dead)
    adapter = adapt(frame, dict.fromkeys(_NEEDED, TEXT), "with_display_status")
    return adapter.give_back(
        adapter.frame.with_columns(is_orphaned_reason=is_reaped & ~has_locks)
        .with_columns(
            display_status=nw.when(nw.col("is_orphaned_reason"))
            .then(nw.lit("orphaned"))
            .otherwise(word.replace_strict(_DISPLAY_OF, default="running", return_dtype=nw.String))
            .fill_null("running")
        )
        .with_columns(
            is_unsuccessful_terminal=display.is_in(UNSUCCESSFUL),
            is_effectively_active=is_active,
        )
    )


_NEEDED = ("status", "reason_code", "reason_message", "session_health")
_DISPLAY_OF = {word: shown for shown, words in ALIASES.items() for word in words}


OVERDUE_FACTOR = 3
OVERDUE_GRACE_S = 300
FAILING_STATUSES = ("failed", "timed_out")

WORDS = MappingProxyType(
    {
        "disabled": "switched off",
        "never-fired": "on, and nothing shows that it ever fired",
        "no-evidence": "on, it fired once, but no executed run is left to judge by",
        "overdue": "silent for longer than three cadences, and five minutes longer than one",
        "failing": "the last executed run failed or timed out",
        "healthy": "none of these",
    }
)
"""E1's words and what they mean; the first that applies wins."""

_AGES = MappingProxyType(
    {
        "since_last_execution_s": "last_executed_at",
        "since_last_evaluation_s": "last_evaluated_at",
        "since_last_healthy_poll_s": "last_healthy_poll_at",
        "since_last_fire_s": "last_fired_at",
    }
)


def schedule_ages(schedules: pl.DataFrame, as_of: datetime) -> pl.DataFrame:
    """Apply the clock once: the moments of ``frames.SCHEDULES`` become ages.

    Adds ``since_last_execution_s``, ``since_last_evaluation_s``,
    ``since_last_healthy_poll_s``, ``since_last_fire_s`` and ``next_fire_in_s``: float
    seconds, null where the moment is not known.

    Examples
    --------
    >>> from datetime import UTC
    >>> from stateanalytics.systems.lionagi import frames
    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> rows = frames.SCHEDULES.conform(pl.DataFrame({"next_fire_at": [noon]}))
    >>> schedule_ages(rows, datetime(2026, 5, 1, 11, tzinfo=UTC))["next_fire_in_s"].to_list()
    [3600.0]
    """
    now = pl.lit(as_of)
    ages = {
        age: (now - pl.col(moment)).dt.total_microseconds() / 1e6 for age, moment in _AGES.items()
    }
    next_fire = (pl.col("next_fire_at") - now).dt.total_microseconds() / 1e6
    return schedules.with_columns(**ages, next_fire_in_s=next_fire)


def with_schedule_health(
    frame: Any,
    *,
    overdue_factor: float = OVERDUE_FACTOR,
    overdue_grace_s: float = OVERDUE_GRACE_S,
) -> Any:
    """The health of each schedule, in lionagi's words and in ADR-0033's.

    Parameters
    ----------
    frame : frame
        ``is_enabled``, ``trigger_type``, ``cadence_s`` (null: never overdue),
        ``since_last_execution_s``, ``last_executed_status``, ``n_runs``. Used if there:
        ``has_threshold``, ``since_last_evaluation_s``, ``since_last_healthy_poll_s``,
        ``since_last_fire_s``, ``n_running``, ``next_fire_in_s``. `schedule_ages` makes
        all of these from ``frames.SCHEDULES``.
    overdue_factor, overdue_grace_s : float
        Overdue is a silence longer than so many cadences, and longer than one cadence
        plus the grace.

    Returns
    -------
    frame
        The same rows and kind with ``schedule_health`` (one of `WORDS`), ``health``
        (ADR-0033: misfired, running, due, ok) and ``silence_s`` (since the last proof of
        work; null without one).

    Notes
    -----
    A schedule that is switched off is ``ok``. One that is ``overdue`` is ``misfired``
    whatever else is true of it; ``failing`` is no matter of health (its runs carry it).
    Not known whether it is switched on counts as off, as in lionagi.

    Examples
    --------
    >>> row = {"is_enabled": True, "trigger_type": "interval", "cadence_s": 60.0, "n_runs": 4,
    ...        "since_last_execution_s": 361.0, "last_executed_status": "completed"}
    >>> with_schedule_health(pl.DataFrame([row])).select("schedule_health", "health").row(0)
    ('overdue', 'misfired')
    """
    needed = {
        "is_enabled": YES_NO,
        "trigger_type": TEXT,
        "cadence_s": NUMBER,
        "since_last_execution_s": NUMBER,
        "last_executed_status": TEXT,
        "n_runs": NUMBER,
    }
    adapter = adapt(frame, needed, "with_schedule_health")
    rows = adapter.frame
    is_on = nw.col("is_enabled").fill_null(False)
    has_threshold = optional(rows, "has_threshold", nw.Boolean).fill_null(False)
    evaluation = optional(rows, "since_last_evaluation_s", nw.Float64)
    poll = optional(rows, "since_last_healthy_poll_s", nw.Float64)
    is_poll = (nw.col("trigger_type") == "github_poll").fill_null(False)
    # Any proof of work ends a silence; a healthy poll is one only of what polls.
    silence = nw.min_horizontal(
        nw.col("since_last_execution_s"),
        nw.when(has_threshold).then(evaluation),
        nw.when(is_poll).then(poll),
    )
    was_fired = ~optional(rows, "since_last_fire_s", nw.Float64).is_null()
    has_runs = (nw.col("n_runs") > 0).fill_null(False)
    n_running = optional(rows, "n_running", nw.Int64)
    next_fire = optional(rows, "next_fire_in_s", nw.Float64)
    is_overdue = nw.col("schedule_health") == "overdue"
    return adapter.give_back(
        rows.with_columns(silence_s=silence)
        .with_columns(
            schedule_health=nw.when(~is_on)
            .then(nw.lit("disabled"))
            .when(nw.col("silence_s").is_null() & ~has_runs & ~was_fired)
            .then(nw.lit("never-fired"))
            .when(nw.col("silence_s").is_null())
            .then(nw.lit("no-evidence"))
            .when(_is_silent_too_long(overdue_factor, overdue_grace_s))
            .then(nw.lit("overdue"))
            .when(nw.col("last_executed_status").is_in(FAILING_STATUSES).fill_null(False))
            .then(nw.lit("failing"))
            .otherwise(nw.lit("healthy"))
        )
        .with_columns(
            health=nw.when(~is_on)
            .then(nw.lit("ok"))
            .when(is_overdue)
            .then(nw.lit("misfired"))
            .when((n_running > 0).fill_null(False))
            .then(nw.lit("running"))
            .when((next_fire <= 0).fill_null(False))
            .then(nw.lit("due"))
            .otherwise(nw.lit("ok"))
        )
    )


def _is_silent_too_long(factor: float, grace_s: float) -> nw.Expr:
    cadence = nw.col("cadence_s")
    limit = nw.max_horizontal(cadence * factor, cadence + grace_s)
    return ((cadence > 0) & (nw.col("silence_s") > limit)).fill_null(False)


VERSIONS = MappingProxyType({"health_0_28": "0.28", "health_0_36": "0.36"})
"""ADR-0024's word by the versions of the classifier that other pages build on."""

COLUMNS = MappingProxyType(
    {
        **{name: f"health by the classifier of {since}" for name, since in VERSIONS.items()},
        "list_health_0_26": "health as the runs list of 0.26 showed it: every process alive",
        "list_health_0_36": "health as the runs list of 0.35 shows it: of running ones only",
        "children_health": "the worst health of the sessions of an invocation",
        "display_status": "the word on the chip",
        "is_effectively_active": "does the page count it as active",
        "phantom_reason": "why the phantom reaper would take it",
        "update_rank": "1: the session that was written last",
        "schedule_health": "E1's word of a schedule",
        "schedule_silence_s": "since the last proof that a schedule works",
        "schedule_limit_s": "how long that may be: three cadences, or one and five minutes",
        "next_fire_overdue_s": "since its next fire was due; negative: still to come",
        "n_failed_in_row": "failed or timed-out runs in a row",
        "n_missed": "fires that were missed",
        "session_alive": "is the process of a play's session alive",
        "session_status": "status of a play's session",
        "n_open_plays": "plays of a show that go on",
    }
)
_JUDGED = ("status", "silence", "n_messages")
_SCHEDULE = ("record",)
LOST_OF = MappingProxyType(
    {
        **dict.fromkeys((*VERSIONS, "list_health_0_26", "list_health_0_36"), _JUDGED),
        "children_health": ("children",),
        "display_status": ("status", "reason"),
        "is_effectively_active": (*_JUDGED, "reason"),
        "phantom_reason": ("updated",),
        "update_rank": ("updated",),
        **dict.fromkeys(
            (
                "schedule_health",
                "schedule_silence_s",
                "schedule_limit_s",
                "next_fire_overdue_s",
                "n_failed_in_row",
            ),
            _SCHEDULE,
        ),
        "n_missed": ("present",),
        "disk_end": ("present",),
    }
)


def features() -> Features:
    """The columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features, lost_of=LOST_OF)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Entities of lionagi with the columns of `COLUMNS`.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.detections.with_ages`.
    past : Past
        The facts at the instant.
    """
    return _add_schedules(_add_children(add_words(with_relatives(rows, past.facts))), past)


def add_words(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the words of the classifier, and what pages make of them.

    Parameters
    ----------
    rows : polars.DataFrame
        The key; ``status``, ``kind``, ``n_messages``, ``last_message_age_s``, ``updated_age_s``,
        ``started_age_s``, ``process_alive``, ``has_artifacts``, ``has_stale_locks``,
        ``reason_code``, ``reason_message``.
    """
    named = rows.with_columns(invocation_kind="kind", message_count="n_messages")
    named = named.with_columns(
        health_by(version)(named, None).alias(column) for column, version in VERSIONS.items()
    )
    named = named.with_columns(
        list_health_0_26=assumed_alive(named, None),
        list_health_0_36=pl.when(pl.col("status") == "running").then("health_0_36"),
    )
    # A row without a status arrives on the pages as completed.
    arriving = named.with_columns(
        session_health="list_health_0_36", status=pl.col("status").fill_null("completed")
    )
    shown = with_display_status(arriving).with_columns(status=named["status"])
    reaped: pl.DataFrame = with_phantom_reason(shown)
    place = pl.col("updated_age_s").rank("ordinal").over("source", "entity_type")
    return reaped.with_columns(update_rank=place)


def _add_children(rows: pl.DataFrame) -> pl.DataFrame:
    """The worst health of the sessions of each invocation, as its page shows it."""
    is_session = pl.col("entity_type") == "session"
    # The page takes a directory that is named for one that is there, looks for no locks,
    # and counts a session that does not run as well, whatever became of it.
    is_running = pl.col("status") == "running"
    seen = pl.when(is_running).then("health_0_28").otherwise(pl.lit("healthy"))
    ranks = {word: place for place, word in enumerate(HEALTH_ORDER)}
    children = (
        rows.filter(is_session & pl.col("invocation_id").is_not_null())
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
    return rows.join(
        children, on=["source", "entity_type", "entity_id"], how="left", maintain_order="left"
    )


def _add_schedules(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    schedules = past.facts.detail(frames.SCHEDULES)
    judged = with_schedule_health(schedule_ages(schedules, past.at))
    cadence = pl.col("cadence_s")
    limit_s = pl.max_horizontal(OVERDUE_FACTOR * cadence, cadence + OVERDUE_GRACE_S)
    known = judged.select(
        "source",
        "schedule_health",
        "n_failed_in_row",
        "n_missed",
        entity_id="schedule_id",
        entity_type=pl.lit("schedule"),
        schedule_silence_s="silence_s",
        schedule_limit_s=pl.when(cadence > 0).then(limit_s),
        next_fire_overdue_s=-pl.col("next_fire_in_s"),
    )
    return rows.join(
        known, on=["source", "entity_type", "entity_id"], how="left", maintain_order="left"
    )
