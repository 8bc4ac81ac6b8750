"""Claude Code: transcripts of sessions and subagents, as they lie on a developer's machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stateanalytics.systems.base import (
    Ends,
    Files,
    System,
    codes_from_csv,
)

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.processes import Process
    from stateanalytics.state.policy import Policy
    from stateanalytics.systems.base import Constant, Features
    from stateanalytics.systems.detector import Detector
    from stateanalytics.systems.history import Past

_HERE = "stateanalytics.systems.claude_code"

NAME = "claude_code"
LIMITS = {"stalled_after_s": 600.0, "retry_grace_s": 60.0}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if chosen := environment.get("CLAUDE_CONFIG_DIR"):
        yield Path(chosen)
    yield home / ".claude"
    yield home / ".config" / "claude"


_OTHER_DIRECTORIES = (
    *("file-history", "todos", "tasks", "plans", "shell-snapshots", "session-env", "tool-results"),
    *("plugins", "skills", "agents", "commands", "memory", "teams", "ide", "chrome"),
    *("cache", "paste-cache", "image-cache", "debug", "telemetry", "statsig", "usage-data"),
    *("backups", "downloads", "sessions"),
)
"""Directories of a home that hold settings, caches and copies, and no transcript."""


def _find(path: Path) -> list[Path]:
    from stateanalytics.systems.claude_code.places import find

    return find(path)


def _is_evidence(path: Path) -> bool:
    from stateanalytics.systems.claude_code.places import evidence

    return evidence(path)


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.claude_code.reading import read

    return read(path, **options)


def _companions(path: Path) -> Iterable[Path]:
    from stateanalytics.systems.claude_code.places import companions

    return companions(path)


def _opens(path: Path) -> Iterable[str | Path]:
    from stateanalytics.systems.claude_code.places import opens

    return opens(path)


def _processes(path: Path) -> Iterable[Process]:
    from stateanalytics.systems.claude_code.places import processes

    return processes(path)


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.claude_code.frames import frames

    return frames()


def _detectors() -> Sequence[Detector]:
    from stateanalytics.systems.claude_code.detectors import detectors

    return detectors()


def _features() -> Features:
    from stateanalytics.systems.claude_code.detectors import features

    return features()


def _constants(policy: Policy) -> Sequence[Constant]:
    from stateanalytics.systems.claude_code.detectors import constants

    return constants(policy)


def _commands(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.claude_code.detectors import commands

    return commands(facts, gaps)


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.claude_code.reading import rewind

    return rewind(past, facts)


def _rebuilt_sources(facts: Facts) -> pl.Series:
    from stateanalytics.systems.claude_code.reading import rebuilt_sources

    return rebuilt_sources(facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.claude_code.reading import used_tokens

    return used_tokens(facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.claude_code.detectors import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name=NAME,
    title="Claude Code",
    run_is="A run is a session or a subagent, in the state of its last turn: the end of a "
    "session is not recorded, so a session whose last turn ended well waits for a person. "
    "Earlier turns have states of their own. Tool calls are parts, never runs, and a failed "
    "call is not a failure, because the model continues with its result.",
    usual_places=_usual_places,
    variable="CLAUDE_CONFIG_DIR",
    files=Files(
        find=_find,
        evidence=_is_evidence,
        read=_read_files,
        companions=_companions,
        opens=_opens,
        version_key="version",
        processes=_processes,
        ignored=_OTHER_DIRECTORIES,
    ),
    frames=_frames,
    reason_codes=lambda: codes_from_csv(_HERE),
    working_states=MappingProxyType({"retry": "retrying"}),
    # What works without a person in between: a session also waits for its user.
    run_type="turn",
    part_types=("tool_call",),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=_detectors,
    features=_features,
    constants=_constants,
    evidence=MappingProxyType({"commands": _commands}),
    history="derived",
    rewind=_rewind,
    rebuilt_sources=_rebuilt_sources,
    rewinds_by_links=True,
    used_tokens=_used_tokens,
    ends=Ends(
        death_codes=("run.aborted.process_dead_no_terminal",),
        are_unsigned_own=True,
        of_silences=_of_silences,
    ),
)
