"""The signs of lionagi: what its classifier says, its pages show, and its schedules do."""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

from stateanalytics.core.session_health import HEALTH_ORDER
from stateanalytics.systems.base import Features
from stateanalytics.systems.history import Past
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.detectors.pages import assumed_alive
from stateanalytics.systems.lionagi.detectors.stored import health_by
from stateanalytics.systems.lionagi.display_status import with_display_status
from stateanalytics.systems.lionagi.phantoms import with_phantom_reason, with_relatives
from stateanalytics.systems.lionagi.schedule_health import schedule_ages, with_schedule_health

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
_SCHEDULE = ("record", "schedule")
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

_SEEN = ("last_executed_at", "last_fired_at", "last_evaluated_at", "last_healthy_poll_at")


def features() -> Features:
    """The columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features, lost_of=LOST_OF)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Entities of lionagi with the columns of `COLUMNS`.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.features.with_ages`.
    past : Past
        The facts at the instant.
    """
    judged = add_words(with_relatives(rows, past.facts))
    with_children = _add_children(judged)
    return _add_schedules(with_children, past)


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
    known = judged.select(
        "source",
        "schedule_health",
        "n_failed_in_row",
        "n_missed",
        entity_id="schedule_id",
        entity_type=pl.lit("schedule"),
        schedule_silence_s="silence_s",
        schedule_limit_s=pl.when(cadence > 0).then(pl.max_horizontal(3 * cadence, cadence + 300)),
        next_fire_overdue_s=-pl.col("next_fire_in_s"),
        # A run or a look after the instant: what was known then is written over.
        lost_schedule=pl.any_horizontal(
            (pl.col(name) > past.at).fill_null(value=False) for name in _SEEN
        ),
    )
    return rows.join(
        known, on=["source", "entity_type", "entity_id"], how="left", maintain_order="left"
    )
