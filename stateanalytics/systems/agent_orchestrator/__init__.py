"""Agent Orchestrator: session files of every generation, their logs, and two databases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stateanalytics.systems.base import (
    Ends,
    Files,
    Stores,
    System,
    codes_from_csv,
    expanded,
)

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.sqlite import Store
    from stateanalytics.state.policy import Policy
    from stateanalytics.systems.base import Constant, Features, Tables
    from stateanalytics.systems.detector import Detector
    from stateanalytics.systems.history import Past

_HERE = "stateanalytics.systems.agent_orchestrator"


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield home / ".agent-orchestrator"
    folder = environment.get("AO_DATA_DIR")
    yield expanded(folder) if folder else home / ".ao"


def _recognises(store: Store) -> bool:
    from stateanalytics.systems.agent_orchestrator.databases import recognises

    return recognises(store)


def _read_store(store: Store, **options: Any) -> Parts:
    from stateanalytics.systems.agent_orchestrator.reading import read_store

    return read_store(store, **options)


def _find(path: Path) -> list[Path]:
    from stateanalytics.systems.agent_orchestrator.places import find

    return find(path)


def _is_evidence(path: Path) -> bool:
    from stateanalytics.systems.agent_orchestrator.places import evidence

    return evidence(path)


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.agent_orchestrator.reading import read

    return read(path, **options)


def _opens(path: Path) -> Iterable[str | Path]:
    from stateanalytics.systems.agent_orchestrator.places import opens

    return opens(path)


def _version(path: Path) -> str:
    from stateanalytics.systems.agent_orchestrator.places import version

    return version(path)


def _tables() -> Tables:
    from stateanalytics.systems.agent_orchestrator.databases import tables

    return tables()


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.agent_orchestrator.frames import frames

    return frames()


def _detectors() -> Sequence[Detector]:
    from stateanalytics.systems.agent_orchestrator.detectors import agent_orchestrator

    return agent_orchestrator()


def _features() -> Features:
    from stateanalytics.systems.agent_orchestrator.detectors import features

    return features()


def _constants(policy: Policy) -> Sequence[Constant]:
    from stateanalytics.systems.agent_orchestrator.constants import constants

    return constants(policy)


def _detecting(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.constants import detecting_episodes

    return detecting_episodes(facts, gaps)


def _first_report(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.constants import first_reports

    return first_reports(facts, gaps)


def _reports(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.constants import report_silences

    return report_silences(facts, gaps)


def _audits() -> Sequence[Callable[..., pl.DataFrame]]:
    from stateanalytics.systems.agent_orchestrator.findings import audits

    return audits()


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.agent_orchestrator.rewind import rewind

    return rewind(past, facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.go_work import used_tokens

    return used_tokens(facts)


def _never_there(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.agent_orchestrator.findings import without_ends

    return without_ends(facts)


SYSTEM = System(
    name="agent_orchestrator",
    title="Agent Orchestrator",
    run_is="A run is a session, worker or orchestrator, however many records and archives it has.",
    failure_is="A session that died is a failure, too: its agent exited, its runtime was lost, "
    "it was removed as dead, or it was killed by an unknown cause. A session that a person "
    "killed or a merge closed is not.",
    usual_places=_usual_places,
    variable="AO_DATA_DIR",
    stores=Stores(recognises=_recognises, read=_read_store),
    files=Files(
        find=_find,
        evidence=_is_evidence,
        read=_read_files,
        opens=_opens,
        skips=("worktrees", "archive"),
        version=_version,
    ),
    tables=_tables,
    frames=_frames,
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
    reason_codes=lambda: codes_from_csv(_HERE),
    detectors=_detectors,
    releases=("2026-05-15", "2026-05-17", "the Go rewrite"),
    features=_features,
    constants=_constants,
    evidence={
        "detecting": _detecting,
        "first_report": _first_report,
        "reports": _reports,
    },
    audits=_audits,
    rewind=_rewind,
    used_tokens=_used_tokens,
    advice={
        "audit.open_without_sign_of_life": "check whether its process is alive; if not, "
        "`ao session kill ID`",
    },
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
    drives_agents=True,
)
