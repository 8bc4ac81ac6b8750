"""Claude Code: transcripts of sessions and subagents, as they lie on a developer's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stateanalytics.systems import base
from stateanalytics.systems.claude_code import places

_later = partial(base.when_called, __name__)

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


SYSTEM = base.System(
    name=NAME,
    title="Claude Code",
    home=base.Home(usual_places=_usual_places, variable="CLAUDE_CONFIG_DIR"),
    files=base.Files(
        find=places.find,
        never=re.compile(r".*(?<!\.jsonl)"),
        evidence=places.evidence,
        read=_later("reading:read"),
        companions=places.companions,
        opens=places.opens,
        version_key="version",
        processes=places.processes,
        ignored=_OTHER_DIRECTORIES,
    ),
    frames=_later("frames:frames"),
    words=base.Words(
        reason_codes=lambda: base.codes_from_csv(__name__),
        working_states={"retry": "retrying"},
        log_kinds=r"^(?:attachment|queue-operation|api-request.*|system)$",
    ),
    runs=base.Runs(
        meaning="A run is a session or a subagent, in the state of its last turn: the end of a "
        "session is not recorded, so a session whose last turn ended well waits for a person. "
        "Earlier turns have states of their own. Tool calls are parts, never runs, and a failed "
        "call is not a failure, because the model continues with its result.",
        # What works without a person in between: a session also waits for its user.
        entity_type="turn",
        part_types=("tool_call",),
        repeated_type="turn",
        texts=_later("reading:texts"),
        calls=_later("reading:calls"),
        turns=_later("reading:turns"),
        stop="Esc in its terminal",
    ),
    limits=LIMITS,
    detecting=_later("detectors:detecting"),
    thresholds=lambda: base.Thresholds(
        constants=partial(base.constants_from_csv, __name__),
        evidence={"commands": _later("detectors:commands")},
    ),
    past=base.Rewinding(
        history="derived",
        rewind=_later("reading:rewind"),
        rebuilt_sources=_later("reading:rebuilt_sources"),
        is_by_links=True,
    ),
    used_tokens=_later("reading:used_tokens"),
    ends=base.Ends(
        death_codes=("run.aborted.process_dead_no_terminal",),
        are_unsigned_own=True,
        of_silences=_later("detectors:silence_ends"),
    ),
)
