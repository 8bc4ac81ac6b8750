"""opencode: databases, event logs, streams and exports of every era."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stateanalytics.systems import base
from stateanalytics.systems.opencode import places

_later = partial(base.when_called, __name__)

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


SYSTEM = base.System(
    name=NAME,
    title="opencode",
    home=base.Home(usual_places=_usual_places),
    files=base.Files(
        find=places.find,
        evidence=places.evidence,
        read=_later("reading:read"),
        read_many=_later("reading:read_many"),
        companions=places.companions,
        skips=("session", "message", "part"),
        unread_kinds=places.unread,
    ),
    tables=_later("reading:tables"),
    frames=_later("frames:frames"),
    words=base.Words(
        reason_codes=lambda: base.codes_from_csv(__name__, "mapped_codes.csv"),
        working_states={"session.retry.scheduled": "retrying"},
        log_kinds=r"^session\.(?:execution|step|text|reasoning|tool|instructions|usage|input\.pro)",
    ),
    runs=base.Runs(
        meaning="A run is a session, in the state of its last turn. Turns, executions, steps and "
        "tool calls are its parts, never runs.",
        # A turn is uninterrupted work; a session also waits for its user.
        entity_type="turn",
        part_types=("execution", "step", "tool_call"),
        repeated_type="turn",
        texts=_later("reading:texts"),
        calls=_later("reading:calls"),
        turns=_later("reading:turns"),
        stop="Esc twice in its terminal",
    ),
    limits=LIMITS,
    detecting=_later("detectors:detecting"),
    thresholds=lambda: base.Thresholds(constants=partial(base.constants_from_csv, __name__)),
    auditing=lambda: base.Auditing(checks=(_later("reading:executions"),)),
    past=base.Rewinding(history="derived", rewind=_later("reading:rewind")),
    used_tokens=_later("canonical:used_tokens"),
    ends=base.Ends(
        death_codes=(
            "system.health.process_dead_no_terminal",
            "run.aborted.process_dead_no_terminal",
        ),
        are_unsigned_own=True,
        of_attempts=_later("detectors:attempt_ends"),
        of_silences=_later("detectors:silence_ends"),
    ),
)
