"""Agent Orchestrator's detectors of silence: of activity, and of reports that do not come."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.thresholds import (
    FRESH_S,
    READY_THRESHOLD_S,
    STICKY_S,
    STUCK_THRESHOLD_S,
    WatcherThresholds,
)
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES
from stateanalytics.systems.detector import Detector, catalogued

FAMILY: dict[str, Any] = {"family": "agent_orchestrator", "system": "agent_orchestrator"}
IS_OPEN = ~pl.col("status").is_in(TERMINAL_STATUSES).fill_null(value=False)
OPEN_WORDS = "sessions that are not over"
IS_TYPESCRIPT = pl.col("generation").ne_missing(pl.lit("G3"))
_activity = pl.col("activity")
# An open pull request in one of these states decides before silence is looked at.
_REVIEWED = (
    *("ci_failing", "changes_requested", "approved", "merge_ready", "review_pending"),
    *("merged", "closed_unmerged"),
)


def silence() -> tuple[Detector, ...]:
    """D6 to D11: by the activity in the agent's log."""
    said: dict[str, Any] = {
        **FAMILY,
        "measures": "activity_age_s",
        "construct": "silence",
        "origin": "activity of the agent's log",
    }
    fresh_report = (pl.col("report_age_s") <= FRESH_S).fill_null(value=False)
    decided = pl.col("pr_reason").is_in(_REVIEWED).fill_null(value=False)
    waits = (_activity == "waiting_input").fill_null(value=False)
    blocked = (_activity == "blocked").fill_null(value=False)
    may_be_stuck = ~decided & ~fresh_report & ~waits
    beyond: dict[str, Any] = {
        **said,
        "threshold_s": STUCK_THRESHOLD_S,
        "scope": IS_OPEN & IS_TYPESCRIPT,
        "scope_words": OPEN_WORDS,
        "label": "stuck",
        "question": "stuck",
        "page": "session list",
    }
    return (
        catalogued(
            "ao_activity_stale",
            known_as="D6",
            threshold_s=FRESH_S,
            scope=IS_OPEN & IS_TYPESCRIPT,
            scope_words=OPEN_WORDS,
            label="stale",
            question="stale",
            rule="no activity for five minutes: too old to prove anything",
            **said,
        ),
        catalogued(
            "ao_activity_idle",
            known_as="D7",
            threshold_s=READY_THRESHOLD_S,
            when=~waits & ~blocked,
            scope=IS_OPEN & IS_TYPESCRIPT,
            scope_words=OPEN_WORDS,
            label="idle",
            question="stale",
            rule="no activity for five minutes (readyThresholdMs): idle",
            **said,
        ),
        catalogued(
            "ao_idle_stuck",
            known_as="D8",
            when=may_be_stuck & ~blocked,
            rule="idle for ten minutes, unless a pull request or a fresh report says more",
            **beyond,
        ),
        catalogued(
            "ao_blocked_stuck",
            known_as="D9",
            when=may_be_stuck & blocked,
            rule="blocked for ten minutes",
            **beyond,
        ),
        catalogued(
            "ao_waiting_input",
            known_as="D10",
            fires=waits,
            scope=IS_OPEN & IS_TYPESCRIPT,
            scope_words=OPEN_WORDS,
            label="needs_input",
            question="waiting",
            origin="activity of the agent's log",
            rule="its agent waits for a person, however long ago it said so",
            **FAMILY,
        ),
        catalogued(
            "ao_call_decayed",
            known_as="D11",
            threshold_s=STICKY_S,
            when=waits | blocked,
            scope=IS_OPEN & IS_TYPESCRIPT,
            scope_words=OPEN_WORDS,
            label="idle",
            question="stale",
            until="2026-05-17",
            rule="a call for help older than five minutes was taken for idleness",
            **said,
        ),
    )


def reports() -> tuple[Detector, ...]:
    """D12 to D15: by what the agent reports itself."""
    limits = WatcherThresholds()
    watched: dict[str, Any] = {
        **FAMILY,
        "scope": IS_OPEN & IS_TYPESCRIPT & pl.col("kind").ne_missing(pl.lit("orchestrator")),
        "population": pl.col("kind").ne_missing(pl.lit("orchestrator")),
        "scope_words": "sessions that are not over, orchestrators left out",
        "origin": "report watcher",
    }
    state = pl.col("report_state")
    asks = (state == "needs_input").fill_null(value=False)
    return (
        catalogued(
            "ao_report_ignored",
            known_as="D12",
            measures="report_age_s",
            threshold_s=FRESH_S,
            scope=IS_OPEN & IS_TYPESCRIPT & state.is_not_null(),
            scope_words="sessions that ever reported",
            label="ignored",
            construct="silence",
            question="stale",
            restarts_on="report",
            origin="agent report",
            rule="its last report is older than five minutes, and does not count any more",
            **FAMILY,
        ),
        catalogued(
            "ao_no_acknowledge",
            known_as="D13",
            measures="created_age_s",
            comparison=">=",
            threshold_s=limits.acknowledge_s,
            when=state.is_null(),
            label="no_acknowledge",
            question="attention",
            rule="created ten minutes ago, and never reported; a restore does not restart it",
            **watched,
        ),
        catalogued(
            "ao_stale_report",
            known_as="D14",
            measures="report_age_s",
            comparison=">=",
            threshold_s=limits.stale_s,
            when=~state.is_in(("waiting", "needs_input")),
            label="stale_report",
            page="session list",
            construct="silence",
            question="stale",
            restarts_on="report",
            rule="its last report is half an hour old, though it may be in review, or done",
            **watched,
        ),
        catalogued(
            "ao_agent_needs_input",
            known_as="D15",
            fires=asks,
            label="agent_needs_input",
            question="waiting",
            rule="its last report asked for input, however long ago",
            **watched,
        ),
    )
