"""Family E: what lionagi says of schedules."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.detector import Detector, catalogued

_SCHEDULE: dict[str, Any] = {
    "family": "lionagi E",
    "system": "lionagi",
    "entity_types": ("schedule",),
    "construct": "schedule",
    "question": "overdue",
}
_enabled = pl.col("status") == "enabled"


def schedules() -> tuple[Detector, ...]:
    """The detectors of the family, in the order of the catalogue."""
    word = pl.col("schedule_health")
    fleet_wide = (
        "a number about the whole fleet, compared with a limit of the user's own; "
        "detectors.schedule_metrics computes it"
    )
    return (
        catalogued(
            "schedule_overdue",
            known_as="E1",
            measures="schedule_silence_s",
            threshold_s=pl.col("schedule_limit_s"),
            limits="three cadences, and at least a cadence and 5 min",
            scope=_enabled,
            scope_words="schedules that are switched on",
            label="overdue",
            origin="schedule health",
            page="schedule health",
            since="2026-08-06",
            rule="no proof of work for three cadences, and for five minutes more than one",
            **_SCHEDULE,
        ),
        catalogued(
            "schedule_unwell",
            known_as="E1/all",
            fires=word.is_in(("overdue", "failing", "never-fired", "no-evidence")),
            scope=word.is_not_null() & (word != "disabled"),
            scope_words="schedules that are switched on",
            label=word,
            origin="schedule health",
            page="schedule health",
            since="2026-08-06",
            rule="overdue, failing, or without any proof that it works",
            **{**_SCHEDULE, "question": "attention"},
        ),
        catalogued(
            "schedule_card_overdue",
            known_as="E2",
            measures="next_fire_overdue_s",
            threshold_s=0.0,
            scope=_enabled,
            scope_words="schedules that are switched on",
            label="overdue",
            origin="the card of a schedule",
            page="schedules",
            clock="the browser's",
            rule="its next fire lies in the past",
            **_SCHEDULE,
        ),
        catalogued(
            "schedule_streak",
            known_as="E3",
            fires=pl.col("n_failed_in_row") >= 3,
            scope_words="all schedules",
            label="failing",
            page="mission control",
            origin="mission control",
            rule="three failures in a row, or more",
            **{**_SCHEDULE, "construct": "count", "question": "attention"},
        ),
        catalogued(
            "schedule_missed_fire",
            known_as="E4",
            fires=pl.col("n_missed") > 0,
            scope_words="all schedules",
            label="missed_fire",
            origin="scheduler, at its start",
            page="schedule runs",
            rule="a planned fire passed while the scheduler was down",
            **{**_SCHEDULE, "question": "attention"},
        ),
        catalogued(
            "schedule_threshold",
            known_as="E5",
            rule="a fleet-wide number is above a limit: failed sessions, cost, p95 latency, …",
            since="2026-07-08",
            why_not=fleet_wide,
            **{**_SCHEDULE, "question": "attention"},
        ),
        catalogued(
            "schedule_p95_latency",
            known_as="E6",
            rule="nearest rank of the durations of invocations; 0 without any",
            why_not=fleet_wide,
            **{**_SCHEDULE, "question": "slow"},
        ),
        catalogued(
            "schedule_failed_sessions",
            known_as="E7",
            rule="distinct causes of failed and timed-out sessions in a window",
            why_not=fleet_wide,
            **{**_SCHEDULE, "question": "attention"},
        ),
    )
