"""Codex CLI: rollouts of threads and subagents, as they lie on a developer's machine."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from stateanalytics.systems.base import Ends, Files, System, codes_from_csv, later

_HERE = "stateanalytics.systems.codex"

NAME = "codex"
# Five idle streams of 300 s, and the waits between them.
LIMITS = {"stalled_after_s": 1800.0}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if chosen := environment.get("CODEX_HOME"):
        yield Path(chosen)
    yield home / ".codex"


SYSTEM = System(
    name=NAME,
    title="Codex",
    run_is="A run is a session (a thread) or a subagent, as its last turn left it: nobody writes "
    "that a thread is over, so one that ended well waits for its person. Earlier turns keep "
    "states of their own; tool calls are parts, never runs, and one that failed is no failure: "
    "the model goes on with it.",
    usual_places=_usual_places,
    variable="CODEX_HOME",
    files=Files(
        find=later(f"{_HERE}.places:find"),
        evidence=later(f"{_HERE}.places:is_rollout"),
        read=later(f"{_HERE}.reading:read"),
        opens=later(f"{_HERE}.places:opens"),
        version_key="cli_version",
        ignored=("memories", "skills", "shell_snapshots", "vendor_imports", "log", "cache", "tmp"),
    ),
    frames=later(f"{_HERE}.frames:frames"),
    reason_codes=lambda: codes_from_csv(_HERE),
    # What works without a person in between: a thread also waits for its user.
    run_type="turn",
    part_types=("tool_call",),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=later(f"{_HERE}.detectors:detectors"),
    features=later(f"{_HERE}.detectors:features"),
    constants=later(f"{_HERE}.detectors:constants"),
    evidence=MappingProxyType(
        {
            "commands": later(f"{_HERE}.detectors:commands"),
            "server_tools": later(f"{_HERE}.detectors:server_tools"),
        }
    ),
    history="derived",
    rewind=later(f"{_HERE}.reading:rewind"),
    rebuilt_sources=later(f"{_HERE}.reading:rebuilt_sources"),
    rewinds_by_links=True,
    used_tokens=later(f"{_HERE}.reading:used_tokens"),
    ends=Ends(
        death_codes=("run.aborted.process_dead_no_terminal",),
        are_unsigned_own=True,
        of_silences=later(f"{_HERE}.detectors:silence_ends"),
    ),
)
