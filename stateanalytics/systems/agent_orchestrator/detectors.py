"""Agent Orchestrator's detectors: probes, doubt, silence, and reports that do not come."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.constants import (
    FRESH_S,
    READY_THRESHOLD_S,
    STICKY_S,
    STUCK_THRESHOLD_S,
    WatcherThresholds,
)
from stateanalytics.systems.agent_orchestrator.statuses import NO_SIGNAL_S
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES
from stateanalytics.systems.detector import Detector, catalogued

IS_OPEN = ~pl.col("status").is_in(TERMINAL_STATUSES).fill_null(value=False)
IS_TYPESCRIPT = pl.col("generation").ne_missing(pl.lit("G3"))
# An open pull request in one of these states decides before silence is looked at.
_REVIEWED = (
    *("ci_failing", "changes_requested", "approved", "merge_ready", "review_pending"),
    *("merged", "closed_unmerged"),
)
_state, _runtime = pl.col("session_state"), pl.col("runtime_state")

_FAMILY: dict[str, Any] = {"family": "agent_orchestrator", "system": "agent_orchestrator"}
_ALL = _FAMILY | {"scope": _state.is_not_null(), "scope_words": "all sessions"}
_OPEN = _FAMILY | {"scope": IS_OPEN & IS_TYPESCRIPT, "scope_words": "sessions that are not over"}
_PROBED = {"construct": "liveness", "question": "dead", "origin": "lifecycle manager"}


def agent_orchestrator() -> tuple[Detector, ...]:
    """The detectors of Agent Orchestrator, in the order of its catalogue."""
    return (*_probes(), *_silence(), *_reports(), *_rest(), *_rewrite())


def _listed(name: str, number: str, rule: str, why_not: str) -> Detector:
    """A detector that the catalogue has and the data cannot evaluate."""
    return catalogued(name, known_as=number, rule=rule, why_not=why_not, **_FAMILY)


def _probes() -> tuple[Detector, ...]:
    """D1 to D5: by what the last probes found."""
    words = _OPEN | _PROBED
    found = words | {"scope": _runtime.is_not_null() & IS_OPEN}
    return (
        catalogued(
            "ao_runtime_probe",
            known_as="D1",
            is_chosen=False,
            fires=_runtime.is_in(("missing", "probe_failed")),
            label=_runtime,
            rule="the last probe did not find its terminal",
            **found,
        ),
        catalogued(
            "ao_process_probe",
            known_as="D2",
            is_chosen=False,
            fires=_runtime == "exited",
            label="exited",
            rule="the last probe did not find its process",
            **found,
        ),
        catalogued(
            "ao_detecting",
            known_as="D3",
            fires=pl.col("status") == "detecting",
            label="detecting",
            rule="its probes disagree",
            **words,
        ),
        catalogued(
            "ao_detecting_budget",
            known_as="D4",
            measures="detecting_age_s",
            threshold_s=300.0,
            also=pl.col("detecting_attempts") > 3,
            scope=pl.col("detecting_attempts").is_not_null() & IS_OPEN,
            scope_words="sessions in doubt",
            label="stuck",
            construct="count",
            question="stuck",
            rule="in doubt for more than three polls, or for five minutes",
            origin="lifecycle manager",
            **_FAMILY,
        ),
        catalogued(
            "ao_both_dead",
            known_as="D5",
            fires=(_state == "terminated") & (pl.col("session_reason") == "runtime_lost"),
            label="killed",
            rule="terminal and process were both gone at one poll",
            **(_ALL | _PROBED),
        ),
    )


def _silence() -> tuple[Detector, ...]:
    """D6 to D11: by the activity in the agent's log."""
    logged = _OPEN | {"origin": "activity of the agent's log"}
    words = logged | {"measures": "activity_age_s", "construct": "silence", "question": "stale"}
    fresh_report = (pl.col("report_age_s") <= FRESH_S).fill_null(value=False)
    decided = pl.col("pr_reason").is_in(_REVIEWED).fill_null(value=False)
    waits = (pl.col("activity") == "waiting_input").fill_null(value=False)
    blocked = (pl.col("activity") == "blocked").fill_null(value=False)
    may_be_stuck = ~decided & ~fresh_report & ~waits
    stuck = {"label": "stuck", "question": "stuck", "page": "session list"}
    beyond = words | stuck | {"threshold_s": STUCK_THRESHOLD_S}
    return (
        catalogued(
            "ao_activity_stale",
            known_as="D6",
            is_chosen=False,
            threshold_s=FRESH_S,
            label="stale",
            rule="no activity for five minutes: too old to prove anything",
            **words,
        ),
        catalogued(
            "ao_activity_idle",
            known_as="D7",
            threshold_s=READY_THRESHOLD_S,
            when=~waits & ~blocked,
            label="idle",
            rule="no activity for five minutes (readyThresholdMs): idle",
            **words,
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
            is_chosen=False,
            when=may_be_stuck & blocked,
            rule="blocked for ten minutes",
            **beyond,
        ),
        catalogued(
            "ao_waiting_input",
            known_as="D10",
            fires=waits,
            label="needs_input",
            question="waiting",
            rule="its agent waits for a person, however long ago it said so",
            **logged,
        ),
        catalogued(
            "ao_call_decayed",
            known_as="D11",
            threshold_s=STICKY_S,
            when=waits | blocked,
            label="idle",
            until="2026-05-17",
            rule="a call for help older than five minutes was taken for idleness",
            **words,
        ),
    )


def _reports() -> tuple[Detector, ...]:
    """D12 to D15: by what the agent reports itself."""
    limits = WatcherThresholds()
    is_watched = pl.col("kind").ne_missing(pl.lit("orchestrator"))
    watched = _FAMILY | {
        "scope": IS_OPEN & IS_TYPESCRIPT & is_watched,
        "population": is_watched,
        "scope_words": "sessions that are not over, orchestrators left out",
        "origin": "report watcher",
    }
    state = pl.col("report_state")
    silent = {"construct": "silence", "question": "stale", "restarts_on": "report"}
    return (
        catalogued(
            "ao_report_ignored",
            known_as="D12",
            is_chosen=False,
            measures="report_age_s",
            threshold_s=FRESH_S,
            scope=IS_OPEN & IS_TYPESCRIPT & state.is_not_null(),
            scope_words="sessions that ever reported",
            label="ignored",
            origin="agent report",
            rule="its last report is older than five minutes, and does not count any more",
            **(_FAMILY | silent),
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
            rule="its last report is half an hour old, though it may be in review, or done",
            **(watched | silent),
        ),
        catalogued(
            "ao_agent_needs_input",
            known_as="D15",
            fires=(state == "needs_input").fill_null(value=False),
            label="agent_needs_input",
            question="waiting",
            rule="its last report asked for input, however long ago",
            **watched,
        ),
    )


def _rest() -> tuple[Detector, ...]:
    """D16 to D22: whatever else the TypeScript versions judge by."""
    web = pl.col("web_attention")
    return (
        _listed(
            "ao_list_latch",
            "D16",
            "one failed probe while sessions are listed: terminated (until 2026-05-15)",
            "of its probes only the verdict is kept, and D5 writes the same one",
        ),
        catalogued(
            "ao_is_terminal",
            known_as="D17",
            is_chosen=False,
            fires=pl.col("is_ao_terminal") & ~_state.is_in(("done", "terminated")),
            label="terminal",
            question="dead",
            origin="isTerminal",
            rule="its runtime is gone, so it counts as over, though its session is not",
            **_ALL,
        ),
        _listed(
            "ao_recovery",
            "D18",
            "sorts sessions into live, dead, partial and unrecoverable at a restart",
            "its probes are made at the restart and not kept",
        ),
        catalogued(
            "ao_web_attention",
            known_as="D19",
            fires=web.is_in(("respond", "review")),
            label=web,
            page="dashboard",
            origin="getAttentionLevel",
            rule="stuck, in doubt, asking, failing checks or in need of changes",
            **(_ALL | {"scope": web.is_not_null()}),
        ),
        catalogued(
            "ao_merge_cleanup",
            known_as="D20",
            is_chosen=False,
            measures="merge_wait_s",
            comparison=">=",
            threshold_s=300.0,
            scope=pl.col("merge_wait_s").is_not_null(),
            scope_words="merged sessions whose agent is busy",
            label="cleanup forced",
            construct="elapsed",
            question="overdue",
            origin="lifecycle manager",
            rule="merged five minutes ago, and closed though its agent is busy",
            **_FAMILY,
        ),
        _listed(
            "ao_reaction_escalation",
            "D21",
            "a reaction was tried too often, or for too long",
            "its attempts are counted in memory",
        ),
        _listed(
            "ao_process_indeterminate",
            "D22",
            "a probe timed out: the poll is skipped, and nothing is said",
            "it gives no verdict; its events are in snap.events",
        ),
    )


def _rewrite() -> tuple[Detector, ...]:
    """D23 to D25: those of the Go rewrite."""
    return (
        _listed(
            "ao_go_reaper",
            "D23",
            "its runtime is dead, and it was silent for 60 s",
            "it asks the runtime; of that the database keeps the verdict only",
        ),
        catalogued(
            "ao_go_no_signal",
            known_as="D24",
            fires=pl.col("status") == "no_signal",
            scope=(pl.col("generation") == "G3") & IS_OPEN,
            scope_words="sessions of the Go rewrite that are not over",
            label="no_signal",
            construct="silence",
            question="stale",
            origin="derived on every read",
            since="the Go rewrite",
            rule=f"its harness has hooks, and never signalled within {NO_SIGNAL_S:g} s",
            **_FAMILY,
        ),
        _listed(
            "ao_go_observer",
            "D25",
            "activity older than two minutes is read again",
            "it corrects the stored word, of which the old value is gone",
        ),
    )
