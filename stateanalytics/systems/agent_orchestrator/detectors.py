"""Agent Orchestrator's detectors: probes, doubt, and what is derived from its record."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.silence_detectors import (
    FAMILY,
    IS_OPEN,
    IS_TYPESCRIPT,
    OPEN_WORDS,
    reports,
    silence,
)
from stateanalytics.systems.agent_orchestrator.statuses import NO_SIGNAL_S
from stateanalytics.systems.detector import Detector, catalogued

_go = pl.col("generation") == "G3"
_state, _runtime = pl.col("session_state"), pl.col("runtime_state")


def agent_orchestrator() -> tuple[Detector, ...]:
    """The detectors of Agent Orchestrator, in the order of its catalogue."""
    return (*_probes(), *silence(), *reports(), *_rest(), *_rewrite())


def _probes() -> tuple[Detector, ...]:
    said: dict[str, Any] = {**FAMILY, "construct": "liveness", "question": "dead"}
    return (
        catalogued(
            "ao_runtime_probe",
            known_as="D1",
            fires=_runtime.is_in(("missing", "probe_failed")),
            scope=_runtime.is_not_null() & IS_OPEN,
            scope_words=OPEN_WORDS,
            label=_runtime,
            rule="the last probe did not find its terminal",
            origin="lifecycle manager",
            **said,
        ),
        catalogued(
            "ao_process_probe",
            known_as="D2",
            fires=_runtime == "exited",
            scope=_runtime.is_not_null() & IS_OPEN,
            scope_words=OPEN_WORDS,
            label="exited",
            rule="the last probe did not find its process",
            origin="lifecycle manager",
            **said,
        ),
        catalogued(
            "ao_detecting",
            known_as="D3",
            fires=pl.col("status") == "detecting",
            scope=IS_OPEN & IS_TYPESCRIPT,
            scope_words=OPEN_WORDS,
            label="detecting",
            rule="its probes disagree",
            origin="lifecycle manager",
            **said,
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
            rule="in doubt for more than three polls, or for five minutes",
            origin="lifecycle manager",
            **{**said, "construct": "count", "question": "stuck"},
        ),
        catalogued(
            "ao_both_dead",
            known_as="D5",
            fires=(_state == "terminated") & (pl.col("session_reason") == "runtime_lost"),
            scope=_state.is_not_null(),
            scope_words="all sessions",
            label="killed",
            rule="terminal and process were both gone at one poll",
            origin="lifecycle manager",
            **said,
        ),
    )


def _rest() -> tuple[Detector, ...]:
    web = pl.col("web_attention")
    is_over = _state.is_in(("done", "terminated"))

    def listed(name: str, number: str, rule: str, why_not: str) -> Detector:
        return catalogued(name, known_as=number, rule=rule, why_not=why_not, **FAMILY)

    return (
        listed(
            "ao_list_latch",
            "D16",
            "one failed probe while sessions are listed: terminated (until 2026-05-15)",
            "of its probes only the verdict is kept, and D5 writes the same one",
        ),
        catalogued(
            "ao_is_terminal",
            known_as="D17",
            fires=pl.col("is_ao_terminal") & ~is_over,
            scope=_state.is_not_null(),
            scope_words="all sessions",
            label="terminal",
            question="dead",
            origin="isTerminal",
            rule="its runtime is gone, so it counts as over, though its session is not",
            **FAMILY,
        ),
        listed(
            "ao_recovery",
            "D18",
            "sorts sessions into live, dead, partial and unrecoverable at a restart",
            "its probes are made at the restart and not kept",
        ),
        catalogued(
            "ao_web_attention",
            known_as="D19",
            fires=web.is_in(("respond", "review")),
            scope=web.is_not_null(),
            scope_words="all sessions",
            label=web,
            page="dashboard",
            origin="getAttentionLevel",
            rule="stuck, in doubt, asking, failing checks or in need of changes",
            **FAMILY,
        ),
        catalogued(
            "ao_merge_cleanup",
            known_as="D20",
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
            **FAMILY,
        ),
        listed(
            "ao_reaction_escalation",
            "D21",
            "a reaction was tried too often, or for too long",
            "its attempts are counted in memory",
        ),
        listed(
            "ao_process_indeterminate",
            "D22",
            "a probe timed out: the poll is skipped, and nothing is said",
            "it gives no verdict; its events are in snap.events",
        ),
    )


def _rewrite() -> tuple[Detector, ...]:
    said: dict[str, Any] = {**FAMILY, "since": "the Go rewrite", "construct": "silence"}

    def listed(name: str, number: str, rule: str, why_not: str) -> Detector:
        return catalogued(name, known_as=number, rule=rule, why_not=why_not, **FAMILY)

    return (
        listed(
            "ao_go_reaper",
            "D23",
            "its runtime is dead, and it was silent for 60 s",
            "it asks the runtime; of that the database keeps the verdict only",
        ),
        catalogued(
            "ao_go_no_signal",
            known_as="D24",
            fires=pl.col("status") == "no_signal",
            scope=_go & IS_OPEN,
            scope_words="sessions of the Go rewrite that are not over",
            label="no_signal",
            question="stale",
            origin="derived on every read",
            rule=f"its harness has hooks, and never signalled within {NO_SIGNAL_S:g} s",
            **said,
        ),
        listed(
            "ao_go_observer",
            "D25",
            "activity older than two minutes is read again",
            "it corrects the stored word, of which the old value is gone",
        ),
    )
