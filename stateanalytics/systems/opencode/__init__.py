"""opencode: databases, event logs, streams and exports of every era."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stateanalytics.systems.base import (
    Auditing,
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
from stateanalytics.systems.opencode import places

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts, Past
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts
    from stateanalytics.systems.base import Tables

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


@cache
def _detecting() -> Detecting:
    from stateanalytics.systems.opencode.detectors import detectors, features

    return Detecting(detectors=detectors(), features=features())


def _thresholds() -> Thresholds:
    from stateanalytics.systems.opencode.detectors import constants

    return Thresholds(constants=constants)


def _auditing() -> Auditing:
    from stateanalytics.systems.opencode.findings import executions

    return Auditing(checks=(executions,))


def _read_files(path: Path, **options: Any) -> Parts:
    from stateanalytics.systems.opencode.reading import read

    return read(path, **options)


def _read_many(paths: Sequence[Path], **options: Any) -> Iterator[Parts]:
    from stateanalytics.systems.opencode.reading import read_many

    return read_many(paths, **options)


def _tables() -> Tables:
    from stateanalytics.systems.opencode.tables import tables

    return tables()


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.opencode.frames import FRAMES

    return FRAMES


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.opencode.reading import rewind

    return rewind(past, facts)


def _used_tokens(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.canonical import used_tokens

    return used_tokens(facts)


def _turns(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.reading import turns

    return turns(facts)


def _texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    from stateanalytics.systems.opencode.reading import texts

    return texts(facts, entity)


def _calls(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.reading import calls

    return calls(facts)


def _of_attempts(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.detectors import attempt_ends

    return attempt_ends(facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.opencode.detectors import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name=NAME,
    title="opencode",
    home=Home(usual_places=_usual_places),
    files=Files(
        find=places.find,
        evidence=places.evidence,
        read=_read_files,
        read_many=_read_many,
        companions=places.companions,
        skips=("session", "message", "part"),
        unread_kinds=places.unread,
    ),
    tables=_tables,
    frames=_frames,
    words=Words(
        reason_codes=lambda: codes_from_csv(_HERE, "mapped_codes.csv"),
        working_states=MappingProxyType({"session.retry.scheduled": "retrying"}),
    ),
    runs=Runs(
        meaning="A run is a session, in the state of its last turn. Turns, executions, steps and "
        "tool calls are its parts, never runs.",
        # What works without a person in between: a session also waits for its user.
        entity_type="turn",
        part_types=("execution", "step", "tool_call"),
        repeated_type="turn",
        texts=_texts,
        calls=_calls,
        turns=_turns,
        stop="Esc twice in its terminal",
    ),
    limits=MappingProxyType(LIMITS),
    detecting=_detecting,
    thresholds=_thresholds,
    auditing=_auditing,
    past=Rewinding(history="derived", rewind=_rewind),
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
