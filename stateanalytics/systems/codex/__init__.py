"""Codex CLI: rollouts of threads and subagents, as they lie on a developer's machine."""

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
    from stateanalytics.state.policy import Policy
    from stateanalytics.systems.base import Constant, Features
    from stateanalytics.systems.detector import Detector
    from stateanalytics.systems.history import Past

_HERE = "stateanalytics.systems.codex"

NAME = "codex"
# Five idle streams of 300 s, and the waits between them.
LIMITS = {"stalled_after_s": 1800.0}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if chosen := environment.get("CODEX_HOME"):
        yield Path(chosen)
    yield home / ".codex"


def _find(path: Path) -> list[Path]:
    from stateanalytics.systems.codex.places import find

    return find(path)


def _is_evidence(path: Path) -> bool:
    from stateanalytics.systems.codex.places import is_rollout

    return is_rollout(path)


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.codex.reading import read

    return read(path, **options)


def _opens(path: Path) -> Iterable[str | Path]:
    from stateanalytics.systems.codex.places import opens

    return opens(path)


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.codex.frames import frames

    return frames()


def _detectors() -> Sequence[Detector]:
    from stateanalytics.systems.codex.detectors import detectors

    return detectors()


def _features() -> Features:
    from stateanalytics.systems.codex.detectors import features

    return features()


def _constants(policy: Policy) -> Sequence[Constant]:
    from stateanalytics.systems.codex.detectors import constants

    return constants(policy)


def _commands(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.codex.detectors import commands

    return commands(facts, gaps)


def _server_tools(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    from stateanalytics.systems.codex.detectors import server_tools

    return server_tools(facts, gaps)


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.codex.reading import rewind

    return rewind(past, facts)


def _rebuilt_sources(facts: Facts) -> pl.Series:
    from stateanalytics.systems.codex.reading import rebuilt_sources

    return rebuilt_sources(facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.reading import used_tokens

    return used_tokens(facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.detectors import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name=NAME,
    title="Codex",
    run_is="A run is a session (a thread) or a subagent, in the state of its last turn: the end "
    "of a thread is not recorded, so a thread whose last turn ended well waits for a person. "
    "Earlier turns have states of their own. Tool calls are parts, never runs, and a failed "
    "call is not a failure, because the model continues with its result.",
    usual_places=_usual_places,
    variable="CODEX_HOME",
    files=Files(
        find=_find,
        evidence=_is_evidence,
        read=_read_files,
        opens=_opens,
        version_key="cli_version",
        ignored=("memories", "skills", "shell_snapshots", "vendor_imports", "log", "cache", "tmp"),
    ),
    frames=_frames,
    reason_codes=lambda: codes_from_csv(_HERE),
    # What works without a person in between: a thread also waits for its user.
    run_type="turn",
    part_types=("tool_call",),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=_detectors,
    features=_features,
    constants=_constants,
    evidence=MappingProxyType(
        {
            "commands": _commands,
            "server_tools": _server_tools,
        }
    ),
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
