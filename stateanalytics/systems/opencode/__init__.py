"""opencode: databases, event logs, streams and exports of every era."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from stateanalytics.systems.base import Ends, Files, System, codes_from_csv, later

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


SYSTEM = System(
    name=NAME,
    title="opencode",
    run_is="A run is a session, as its last turn left it. Turns, executions, steps and "
    "tool calls are its parts, never runs.",
    usual_places=_usual_places,
    files=Files(
        find=later(f"{_HERE}.places:find"),
        evidence=later(f"{_HERE}.places:evidence"),
        read=later(f"{_HERE}.reading:read"),
        read_many=later(f"{_HERE}.reading:read_many"),
        companions=later(f"{_HERE}.places:companions"),
        skips=("session", "message", "part"),
        unread_kinds=later(f"{_HERE}.places:unread"),
    ),
    tables=later(f"{_HERE}.tables:tables"),
    frames=later(f"{_HERE}.frames:frames"),
    working_states=MappingProxyType({"session.retry.scheduled": "retrying"}),
    reason_codes=lambda: codes_from_csv(_HERE, "mapped_codes.csv"),
    # What works without a person in between: a session also waits for its user.
    run_type="turn",
    part_types=("execution", "step", "tool_call"),
    repeated_type="turn",
    limits=MappingProxyType(LIMITS),
    detectors=later(f"{_HERE}.detectors:detectors"),
    features=later(f"{_HERE}.detectors:features"),
    constants=later(f"{_HERE}.detectors:constants"),
    audits=later(f"{_HERE}.findings:audits"),
    history="derived",
    rewind=later(f"{_HERE}.reading:rewind"),
    used_tokens=later(f"{_HERE}.canonical:used_tokens"),
    ends=Ends(
        death_codes=(
            "system.health.process_dead_no_terminal",
            "run.aborted.process_dead_no_terminal",
        ),
        are_unsigned_own=True,
        of_attempts=later(f"{_HERE}.detectors:attempt_ends"),
        of_silences=later(f"{_HERE}.detectors:silence_ends"),
    ),
)
