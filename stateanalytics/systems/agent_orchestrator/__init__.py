"""Agent Orchestrator: session files of every generation, their logs, and two databases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stateanalytics.systems import base
from stateanalytics.systems.agent_orchestrator import places

_later = partial(base.when_called, __name__)
_DEATHS = (
    *("run.aborted.agent_process_exited", "run.aborted.runtime_lost"),
    "run.aborted.auto_cleanup",
)


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield home / ".agent-orchestrator"
    folder = environment.get("AO_DATA_DIR")
    yield base.expanded(folder) if folder else home / ".ao"


SYSTEM = base.System(
    name="agent_orchestrator",
    title="Agent Orchestrator",
    home=base.Home(usual_places=_usual_places, variable="AO_DATA_DIR"),
    stores=base.Stores(
        recognises=_later("go_sessions:recognises"), read=_later("reading:read_store")
    ),
    files=base.Files(
        find=places.find,
        # Its two databases have names of their own.
        never=re.compile(r"(?!activity-events\.db|ao\.db).*\.(?:db|sqlite3?)"),
        evidence=places.evidence,
        read=_later("reading:read"),
        opens=places.opens,
        skips=("worktrees", "archive"),
        version=places.version,
    ),
    tables=_later("go_sessions:tables"),
    frames=_later("frames:frames"),
    words=base.Words(
        reason_codes=lambda: base.codes_from_csv(__name__),
        working_states={
            "spawning": "queued",
            "needs_input": "waiting",
            "idle": "waiting",
            "review_pending": "waiting",
            "approved": "waiting",
            "mergeable": "waiting",
            "stuck": "stalled",
            "detecting": "stalled",
        },
    ),
    runs=base.Runs(
        calls=_later("go_work:calls"),
        turns=_later("go_work:turns"),
        meaning="A run is a session, worker or orchestrator, however many records and archives "
        "it has.",
        failure_meaning="A session that died is aborted, and a failure, too: its agent exited, its "
        "runtime was lost, it was removed as dead, or it was killed by an unknown cause. A session "
        "that a person killed or a merge closed is not.",
        stop="ao session kill ID",
    ),
    detecting=_later("detectors:detecting"),
    thresholds=lambda: base.Thresholds(
        constants=partial(base.constants_from_csv, __name__),
        evidence={
            "detecting": _later("detectors:detecting_episodes"),
            "first_report": _later("detectors:first_reports"),
            "reports": _later("detectors:report_silences"),
        },
    ),
    auditing=lambda: base.Auditing(
        checks=(_later("findings:records"),),
        advice={
            "audit.open_without_sign_of_life": "check whether its process is alive; if not, "
            "`ao session kill ID`"
        },
    ),
    past=base.Rewinding(rewind=_later("reading:rewind")),
    used_tokens=_later("go_work:used_tokens"),
    ends=base.Ends(
        statuses={
            "killed": "aborted",
            "terminated": "aborted",
            "done": "completed",
            "cleanup": "aborted",
            "errored": "failed",
            "merged": "merged",
        },
        # The poller records every end within seconds, but for deaths: it only finds them.
        own_writers=("agent_report", "poll"),
        death_codes=(
            # The names in transitions.
            *("agent_process_exited", "process_missing", "runtime_lost", "auto_cleanup"),
            *_DEATHS,
        ),
        failure_codes=(
            *_DEATHS,
            "run.aborted.killed_unspecified",
            "run.aborted.terminated",
            "run.aborted.cleanup",
        ),
        never_there=_later("findings:without_ends"),
    ),
    links=base.Links(drives_agents=True),
)
