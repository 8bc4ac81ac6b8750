"""Agent Orchestrator: session files of every generation, their logs, and two databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stateanalytics.systems.agent_orchestrator import places
from stateanalytics.systems.base import (
    Auditing,
    Detecting,
    Ends,
    Files,
    Home,
    Links,
    Rewinding,
    Runs,
    Stores,
    System,
    Thresholds,
    Words,
    codes_from_csv,
    expanded,
)

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts, Past
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.sqlite import Store
    from stateanalytics.systems.base import Tables

_HERE = "stateanalytics.systems.agent_orchestrator"


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield home / ".agent-orchestrator"
    folder = environment.get("AO_DATA_DIR")
    yield expanded(folder) if folder else home / ".ao"


def _recognises(store: Store) -> bool:
    from stateanalytics.systems.agent_orchestrator.go_sessions import recognises

    return recognises(store)


def _read_store(store: Store, **options: Any) -> Parts:
    from stateanalytics.systems.agent_orchestrator.reading import read_store

    return read_store(store, **options)


@cache
def _detecting() -> Detecting:
    from stateanalytics.systems.agent_orchestrator.detectors import agent_orchestrator, features

    return Detecting(
        detectors=agent_orchestrator(),
        releases=("2026-05-15", "2026-05-17", "the Go rewrite"),
        features=features(),
    )


@cache
def _thresholds() -> Thresholds:
    from stateanalytics.systems.agent_orchestrator import constants

    return Thresholds(
        constants=constants.constants,
        evidence={
            "detecting": constants.detecting_episodes,
            "first_report": constants.first_reports,
            "reports": constants.report_silences,
        },
    )


@cache
def _auditing() -> Auditing:
    from stateanalytics.systems.agent_orchestrator.findings import audits

    return Auditing(
        checks=audits(),
        advice={
            "audit.open_without_sign_of_life": "check whether its process is alive; if not, "
            "`ao session kill ID`",
        },
    )


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.agent_orchestrator.reading import read

    return read(path, **options)


def _tables() -> Tables:
    from stateanalytics.systems.agent_orchestrator.go_sessions import tables

    return tables()


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.agent_orchestrator.frames import frames

    return frames()


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.agent_orchestrator.reading import rewind

    return rewind(past, facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.go_work import used_tokens

    return used_tokens(facts)


def _calls(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.frames import CALLS
    from stateanalytics.systems.tool_calls import in_order

    return in_order(facts.detail(CALLS).with_columns(thread_id="session_id"))


def _never_there(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.findings import without_ends

    return without_ends(facts)


SYSTEM = System(
    name="agent_orchestrator",
    title="Agent Orchestrator",
    home=Home(usual_places=_usual_places, variable="AO_DATA_DIR"),
    stores=Stores(recognises=_recognises, read=_read_store),
    files=Files(
        find=places.find,
        evidence=places.evidence,
        read=_read_files,
        opens=places.opens,
        skips=("worktrees", "archive"),
        version=places.version,
    ),
    tables=_tables,
    frames=_frames,
    words=Words(
        reason_codes=lambda: codes_from_csv(_HERE),
        working_states=MappingProxyType(
            {
                "spawning": "queued",
                "needs_input": "waiting",
                "idle": "waiting",
                "review_pending": "waiting",
                "approved": "waiting",
                "mergeable": "waiting",
                "stuck": "stalled",
                "detecting": "stalled",
            }
        ),
    ),
    runs=Runs(
        calls=_calls,
        meaning="A run is a session, worker or orchestrator, however many records and archives "
        "it has.",
        failure_meaning="A session that died is a failure, too: its agent exited, its runtime was "
        "lost, it was removed as dead, or it was killed by an unknown cause. A session that a "
        "person killed or a merge closed is not.",
        stop="ao session kill ID",
    ),
    detecting=_detecting,
    thresholds=_thresholds,
    auditing=_auditing,
    past=Rewinding(rewind=_rewind),
    used_tokens=_used_tokens,
    ends=Ends(
        statuses=MappingProxyType(
            {
                "killed": "aborted",
                "terminated": "aborted",
                "done": "completed",
                "cleanup": "aborted",
                "errored": "failed",
                "merged": "merged",
            }
        ),
        # The poller records every end within seconds, but for deaths: it only finds them.
        own_writers=("agent_report", "poll"),
        death_codes=(
            # The names in transitions.
            *("agent_process_exited", "process_missing", "runtime_lost", "auto_cleanup"),
            "run.aborted.agent_process_exited",
            "run.aborted.runtime_lost",
            "run.aborted.auto_cleanup",
        ),
        failure_codes=(
            "run.aborted.agent_process_exited",
            "run.aborted.runtime_lost",
            "run.aborted.auto_cleanup",
            "run.aborted.killed_unspecified",
            "run.aborted.terminated",
            "run.aborted.cleanup",
        ),
        never_there=_never_there,
    ),
    links=Links(drives_agents=True),
)
