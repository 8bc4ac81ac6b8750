"""opencode: databases, event logs, streams and exports of every era."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    from stateanalytics.systems.base import Constant, Features, Tables
    from stateanalytics.systems.detector import Detector
    from stateanalytics.systems.history import Past

_HERE = "stateanalytics.systems.opencode"

NAME = "opencode"
LIMITS = {
    "stalled_after_s": 600.0,
    "dead_after_s": 3600.0,
    "tool_factor": 6.0,
    "retry_grace_s": 60.0,
    "min_runaway_steps": 10,
}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    data = environment.get("XDG_DATA_HOME")
    yield (Path(data) if data else home / ".local" / "share") / "opencode"


def _find(path: Path) -> list[Path]:
    from stateanalytics.systems.opencode.places import find

    return find(path)


def _is_evidence(path: Path) -> bool:
    from stateanalytics.systems.opencode.places import evidence

    return evidence(path)


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.opencode.reading import read

    return read(path, **options)


def _read_many(paths: Sequence[Path], **options: Any) -> Iterator[Parts]:
    from stateanalytics.systems.opencode.reading import read_many

    return read_many(paths, **options)


def _companions(path: Path) -> Iterable[Path]:
    from stateanalytics.systems.opencode.places import companions

    return companions(path)


def _unread_kinds(path: Path) -> Mapping[str, int]:
    from stateanalytics.systems.opencode.places import unread

    return unread(path)


def _tables() -> Tables:
    from stateanalytics.systems.opencode.tables import tables

    return tables()


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.opencode.frames import frames

    return frames()


def _detectors() -> Sequence[Detector]:
    from stateanalytics.systems.opencode.detectors import detectors

    return detectors()


def _features() -> Features:
    from stateanalytics.systems.opencode.detectors import features

    return features()


def _constants(policy: Policy) -> Sequence[Constant]:
    from stateanalytics.systems.opencode.detectors import constants

    return constants(policy)


def _audits() -> Sequence[Callable[..., pl.DataFrame]]:
    from stateanalytics.systems.opencode.findings import audits

    return audits()


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.opencode.reading import rewind

    return rewind(past, facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.canonical import used_tokens

    return used_tokens(facts)


def _of_attempts(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.detectors import attempt_ends

    return attempt_ends(facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.detectors import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name=NAME,
    title="opencode",
    run_is="A run is a session, in the state of its last turn. Turns, executions, steps and "
    "tool calls are its parts, never runs.",
    usual_places=_usual_places,
    files=Files(
        find=_find,
        evidence=_is_evidence,
        read=_read_files,
        read_many=_read_many,
        companions=_companions,
        skips=("session", "message", "part"),
        unread_kinds=_unread_kinds,
    ),
    tables=_tables,
    frames=_frames,
    working_states=MappingProxyType({"session.retry.scheduled": "retrying"}),
    reason_codes=lambda: codes_from_csv(_HERE, "mapped_codes.csv"),
    # What works without a person in between: a session also waits for its user.
    run_type="turn",
    part_types=("execution", "step", "tool_call"),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=_detectors,
    features=_features,
    constants=_constants,
    audits=_audits,
    history="derived",
    rewind=_rewind,
    used_tokens=_used_tokens,
    ends=Ends(
        death_codes=(
            "system.health.process_dead_no_terminal",
            "run.aborted.process_dead_no_terminal",
        ),
        are_unsigned_own=True,
        of_attempts=_of_attempts,
        of_silences=_of_silences,
    ),
)
