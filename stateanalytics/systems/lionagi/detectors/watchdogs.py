"""Families D and E: watchdogs inside processes, schedules, and what was proposed."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.detector import Detector, catalogued

_IN_PROCESS = "it watches from inside a process; a store holds only what it led to"
_CONSTRUCTS = {
    **dict.fromkeys(("D1", "D2", "D6", "D8", "D10", "D11"), "silence"),
    **dict.fromkeys(("D3", "D9"), "elapsed"),
    "D4": "liveness",
}
_RULES: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("worker_first_output", "D1", "dead", "no output for 120 s after a turn began", "failed", ""),
    ("worker_idle", "D2", "dead", "more than 600 s between two pieces of output", "failed", ""),
    ("flow_idle_stall", "D3", "stuck", "an operation takes more than 600 s", "IDLE STALL", ""),
    ("flow_no_descendants", "D4", "dead", "too long, and without children", "NO DESCENDANTS", ""),
    (
        *("agent_progress", "D5", "attention", "prints every 60 s what was done", ""),
        "it gives no verdict",
    ),
    ("canvas_node_stall", "D6", "stuck", "no activity of a node for 12 s", "stall", "an animation"),
    (
        *("data_freshness", "D7", "stale", "the page's data are older than 5 s", "stale"),
        "it is about the page's data; only the word is the same",
    ),
    ("scheduler_readiness", "D8", "dead", "no finished tick for more than 300 s", "stalled", ""),
    ("store_probe", "D9", "slow", "an answer took more than 1000 ms", "slow", ""),
    ("control_claim", "D10", "stuck", "a control was claimed and never applied", "wedged", ""),
    ("stream_done", "D11", "dead", "over and without change for more than 60 s", "done", ""),
)


def watchdogs() -> tuple[Detector, ...]:
    """The detectors of the family: listed, for none can be evaluated from data."""
    common: dict[str, Any] = {"family": "lionagi D", "system": "lionagi"}
    return tuple(
        catalogued(
            name,
            known_as=number,
            question=question,
            construct=_CONSTRUCTS.get(number, "verdict"),
            rule=rule,
            label=label,
            why_not=why_not or _IN_PROCESS,
            **common,
        )
        for name, number, question, rule, label, why_not in _RULES
    )


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


def proposals() -> tuple[Detector, ...]:
    """ADR-0030's two, which no release ever had."""
    running = pl.col("status") == "running"
    return (
        catalogued(
            "adr0030_stuck",
            known_as="B18",
            family="proposals",
            system="lionagi",
            measures="last_message_age_s",
            threshold_s=3600.0,
            scope=running,
            scope_words="running sessions",
            label="stuck",
            construct="silence",
            question="stuck",
            restarts_on="message",
            since="2026-05-23",
            origin="ADR-0030, proposed only",
            rule="no message for more than an hour",
        ),
        catalogued(
            "adr0030_slow",
            known_as="B19",
            family="proposals",
            system="lionagi",
            measures="started_age_s",
            threshold_s=3600.0,
            upper_s=10800.0,
            scope=running,
            scope_words="running sessions",
            label="slow",
            question="slow",
            restarts_on="start",
            since="2026-05-23",
            origin="ADR-0030, proposed only",
            rule="running for one to three hours; how recent a message is was left open",
        ),
    )
