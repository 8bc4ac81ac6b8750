"""Codex CLI: rollouts of threads and subagents, as they lie on a developer's machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stateanalytics.systems.base import (
    Detecting,
    Ends,
    Files,
    Home,
    Rewinding,
    Runs,
    System,
    Thresholds,
    Words,
    codes_from_csv,
)
from stateanalytics.systems.codex import places

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts, Past
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts

_HERE = "stateanalytics.systems.codex"

NAME = "codex"
# Five idle streams of 300 s, and the waits between them.
LIMITS = {"stalled_after_s": 1800.0}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if chosen := environment.get("CODEX_HOME"):
        yield Path(chosen)
    yield home / ".codex"


@cache
def _detecting() -> Detecting:
    from stateanalytics.systems.codex.detectors import detectors, features

    return Detecting(detectors=detectors(), features=features())


@cache
def _thresholds() -> Thresholds:
    from stateanalytics.systems.codex.detectors import commands, constants, server_tools

    return Thresholds(
        constants=constants, evidence={"commands": commands, "server_tools": server_tools}
    )


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.codex.reading import read

    return read(path, **options)


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.codex.frames import frames

    return frames()


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.codex.reading import rewind

    return rewind(past, facts)


def _rebuilt_sources(facts: Facts) -> pl.Series:
    from stateanalytics.systems.codex.reading import rebuilt_sources

    return rebuilt_sources(facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.reading import used_tokens

    return used_tokens(facts)


def _texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    from stateanalytics.systems.codex.reading import texts

    return texts(facts, entity)


def _turns(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.reading import turns

    return turns(facts)


def _calls(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.reading import calls

    return calls(facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.codex.detectors import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name=NAME,
    title="Codex",
    home=Home(usual_places=_usual_places, variable="CODEX_HOME"),
    files=Files(
        find=places.find,
        evidence=places.is_rollout,
        read=_read_files,
        opens=places.opens,
        version_key="cli_version",
        ignored=("memories", "skills", "shell_snapshots", "vendor_imports", "log", "cache", "tmp"),
    ),
    frames=_frames,
    words=Words(reason_codes=lambda: codes_from_csv(_HERE)),
    runs=Runs(
        meaning="A run is a session (a thread) or a subagent, in the state of its last turn: the "
        "end of a thread is not recorded, so a thread whose last turn ended well waits for a "
        "person. Earlier turns have states of their own. Tool calls are parts, never runs, and a "
        "failed call is not a failure, because the model continues with its result.",
        # What works without a person in between: a thread also waits for its user.
        entity_type="turn",
        part_types=("tool_call",),
        repeated_type="turn",
        texts=_texts,
        calls=_calls,
        turns=_turns,
        stop="Esc in its terminal",
    ),
    limits=MappingProxyType(LIMITS),
    detecting=_detecting,
    thresholds=_thresholds,
    past=Rewinding(
        history="derived",
        rewind=_rewind,
        rebuilt_sources=_rebuilt_sources,
        is_by_links=True,
    ),
    used_tokens=_used_tokens,
    ends=Ends(
        death_codes=("run.aborted.process_dead_no_terminal",),
        are_unsigned_own=True,
        of_silences=_of_silences,
    ),
)
