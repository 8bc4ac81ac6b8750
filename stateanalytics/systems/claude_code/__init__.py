"""Claude Code: transcripts of sessions and subagents, as they lie on a developer's machine."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from stateanalytics.systems.base import Ends, Files, System, codes_from_csv, later

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

SYSTEM = System(
    name=NAME,
    title="Claude Code",
    run_is="A run is a session or a subagent, as its last turn left it: nobody writes that a "
    "session is over, so one that ended well waits for its person. Earlier turns keep states of "
    "their own; tool calls are parts, never runs, and one that failed is no failure: the model "
    "goes on with it.",
    usual_places=_usual_places,
    variable="CLAUDE_CONFIG_DIR",
    files=Files(
        find=later(f"{_HERE}.places:find"),
        evidence=later(f"{_HERE}.places:evidence"),
        read=later(f"{_HERE}.reading:read"),
        companions=later(f"{_HERE}.places:companions"),
        opens=later(f"{_HERE}.places:opens"),
        version_key="version",
        processes=later(f"{_HERE}.places:processes"),
        ignored=_OTHER_DIRECTORIES,
    ),
    frames=later(f"{_HERE}.frames:frames"),
    reason_codes=lambda: codes_from_csv(_HERE),
    working_states=MappingProxyType({"retry": "retrying"}),
    # What works without a person in between: a session also waits for its user.
    run_type="turn",
    part_types=("tool_call",),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=later(f"{_HERE}.detectors:detectors"),
    features=later(f"{_HERE}.detectors:features"),
    constants=later(f"{_HERE}.detectors:constants"),
    evidence=MappingProxyType({"commands": later(f"{_HERE}.detectors:commands")}),
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
