"""Codex CLI: rollouts of threads and subagents, as they lie on a developer's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stateanalytics.systems import base
from stateanalytics.systems.codex import places

_later = partial(base.when_called, __name__)

NAME = "codex"
# Codex tries an idle stream five times for 300 s, with waits in between.
LIMITS = {"stalled_after_s": 1800.0}


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if chosen := environment.get("CODEX_HOME"):
        yield Path(chosen)
    yield home / ".codex"


SYSTEM = base.System(
    name=NAME,
    title="Codex",
    home=base.Home(usual_places=_usual_places, variable="CODEX_HOME"),
    files=base.Files(
        find=places.find,
        never=re.compile(r".*(?<!\.jsonl)(?<!\.jsonl\.zst)"),
        evidence=places.is_rollout,
        read=_later("reading:read"),
        opens=places.opens,
        version_key="cli_version",
        ignored=("memories", "skills", "shell_snapshots", "vendor_imports", "log", "cache", "tmp"),
    ),
    frames=_later("frames:frames"),
    words=base.Words(
        reason_codes=lambda: base.codes_from_csv(__name__),
        log_kinds=r"^(?:meta|context|world_state|thread_settings_\w+|usage|tokens|\w+_text)$",
    ),
    runs=base.Runs(
        meaning="A run is a session (a thread) or a subagent, in the state of its last turn: the "
        "end of a thread is not recorded, so a thread whose last turn ended well waits for a "
        "person. Earlier turns have states of their own. Tool calls are parts, never runs, and a "
        "failed call is not a failure, because the model continues with its result.",
        # A turn is uninterrupted work; a thread also waits for its user.
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
        evidence={
            "commands": _later("detectors:commands"),
            "server_tools": _later("detectors:server_tools"),
        },
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
