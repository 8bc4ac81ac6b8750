"""Agent Orchestrator: session files of every generation, their logs, and two databases."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from stateanalytics.systems.base import Ends, Files, Stores, System, codes_from_csv, expanded, later

_HERE = "stateanalytics.systems.agent_orchestrator"


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield home / ".agent-orchestrator"
    folder = environment.get("AO_DATA_DIR")
    yield expanded(folder) if folder else home / ".ao"


SYSTEM = System(
    name="agent_orchestrator",
    title="Agent Orchestrator",
    run_is="A run is a session, worker or orchestrator, however many records and archives it has.",
    failure_is="A failure is also a session that died: its agent exited, its runtime was lost, "
    "it was removed as dead, or it was killed and nobody knows by whom. What a person killed or "
    "a merge closed is none.",
    usual_places=_usual_places,
    variable="AO_DATA_DIR",
    stores=Stores(
        recognises=later(f"{_HERE}.databases:recognises"), read=later(f"{_HERE}.reading:read_store")
    ),
    files=Files(
        find=later(f"{_HERE}.places:find"),
        evidence=later(f"{_HERE}.places:evidence"),
        read=later(f"{_HERE}.reading:read"),
        opens=later(f"{_HERE}.places:opens"),
        skips=("worktrees", "archive"),
        version=later(f"{_HERE}.places:version"),
    ),
    tables=later(f"{_HERE}.databases:tables"),
    frames=later(f"{_HERE}.frames:frames"),
    working_states=MappingProxyType(
        {
            "spawning": "queued",
            "needs_input": "waiting",
            "idle": "waiting",
            "review_pending": "waiting",
            "approved": "waiting",
            "mergeable": "waiting",
            "stuck": "stalled",
            "detecting": "stalled",
        }
    ),
    reason_codes=lambda: codes_from_csv(_HERE),
    detectors=later(f"{_HERE}.detectors:agent_orchestrator"),
    releases=("2026-05-15", "2026-05-17", "the Go rewrite"),
    features=later(f"{_HERE}.detectors:features"),
    constants=later(f"{_HERE}.constants:constants"),
    evidence={
        "detecting": later(f"{_HERE}.constants:detecting_episodes"),
        "first_report": later(f"{_HERE}.constants:first_reports"),
        "reports": later(f"{_HERE}.constants:report_silences"),
    },
    audits=later(f"{_HERE}.findings:audits"),
    rewind=later(f"{_HERE}.rewind:rewind"),
    used_tokens=later(f"{_HERE}.go_work:used_tokens"),
    advice={
        "audit.open_without_sign_of_life": "look whether its process is alive; if not, "
        "`ao session kill ID`",
    },
    ends=Ends(
        statuses=MappingProxyType(
            {
                "killed": "aborted",
                "terminated": "aborted",
                "done": "completed",
                "cleanup": "aborted",
                "errored": "failed",
                "merged": "merged",
            }
        ),
        # The poller records every end within seconds, but for deaths: it only finds them.
        own_writers=("agent_report", "poll"),
        death_codes=(
            # The names in transitions.
            *("agent_process_exited", "process_missing", "runtime_lost", "auto_cleanup"),
            "run.aborted.agent_process_exited",
            "run.aborted.runtime_lost",
            "run.aborted.auto_cleanup",
        ),
        failure_codes=(
            "run.aborted.agent_process_exited",
            "run.aborted.runtime_lost",
            "run.aborted.auto_cleanup",
            "run.aborted.killed_unspecified",
            "run.aborted.terminated",
            "run.aborted.cleanup",
        ),
        never_there=later(f"{_HERE}.findings:without_ends"),
    ),
    drives_agents=True,
)
