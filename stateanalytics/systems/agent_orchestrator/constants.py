"""The constants of Agent Orchestrator's last TypeScript version."""

from __future__ import annotations

from stateanalytics.systems.agent_orchestrator.thresholds import STUCK_THRESHOLD_S
from stateanalytics.systems.base import NO_SETTING, Constant

_CORE, _YAML = "packages/core/src", "agent-orchestrator.yaml"
_DECISIONS = f"{_CORE}/lifecycle-status-decisions.ts"


def constants(_policy: object) -> list[Constant]:
    """Every constant that is judged; no policy of ours holds one of them."""
    system = "agent_orchestrator"
    return [
        Constant(
            "ao.stuck", system, _YAML, ("reactions", "agent-stuck", "threshold"),
            STUCK_THRESHOLD_S, "idle for longer: stuck, and a person is notified", "silences",
            unit="duration", kind="worker", is_configurable=True,
        ),
        Constant(
            "ao.stuck.orchestrator", system, f"{NO_SETTING}: workers' value holds for them",
            ("reactions", "agent-stuck", "threshold", "orchestrator"), STUCK_THRESHOLD_S,
            "idle for longer: stuck, though orchestrators wait by design", "silences",
            unit="duration", kind="orchestrator",
        ),
        Constant(
            "ao.ready", system, _YAML, ("readyThresholdMs",), 300.0,
            "no activity for longer: idle", "silences", unit="ms", is_configurable=True,
        ),
        Constant(
            "ao.fresh", system, _CORE, ("activity freshness: weak",), 300.0,
            "activity that is older proves nothing any more", "silences", unit="ms",
        ),
        Constant(
            "ao.detecting.duration", system, _DECISIONS, ("DETECTING_MAX_DURATION_MS",), 300.0,
            "probes disagree for longer: stuck", "detecting", unit="ms",
        ),
        Constant(
            "ao.detecting.attempts", system, _DECISIONS, ("DETECTING_MAX_ATTEMPTS",), 90.0,
            "more polls in a row that disagree in the same way: stuck", "detecting", unit="polls",
        ),
        Constant(
            "ao.acknowledge", system, f"{_CORE} (report watcher)", ("acknowledge timeout",),
            600.0, "no report so long after the start: no_acknowledge", "first_report",
            unit="ms", at_least=True,
        ),
        Constant(
            "ao.report", system, f"{_CORE} (report watcher)", ("stale report",), 1800.0,
            "no report for so long: stale_report", "reports", unit="ms", at_least=True,
        ),
    ]  # fmt: skip
