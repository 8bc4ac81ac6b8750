"""The constants that somebody once chose: what they are called, where they stand, what they do.

Names, values and comparisons are those of lionagi 0.36 and Agent Orchestrator's last
TypeScript version; opencode has no such constants, so those of our mapping stand there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from stateanalytics.state.policy import Policy
from stateanalytics.systems.agent_orchestrator.thresholds import STUCK_THRESHOLD_S
from stateanalytics.thresholds.counts import Mistake

NO_SETTING = "no setting"
"""Begins the place of a threshold that its system does not tell apart."""
OTHER = "other"
"""In place of a kind: every kind that is not one of `STALE_KINDS`."""
STALE_KINDS = ("agent", "play", "flow", "fanout", "show-play", "engine")
"""The kinds that lionagi's table of staleness names."""

Evidence = Literal["silences", "runs", "detecting", "first_report", "reports"]
UNIT_S = {"s": 1.0, "ms": 0.001, "h": 3600.0, "duration": 1.0, "polls": 30.0}
"""Seconds of a unit; a poll of Agent Orchestrator comes every 30 s. ``duration``: ``10m``."""


@dataclass(frozen=True)
class Constant:
    """One threshold of one system.

    Attributes
    ----------
    name : str
        Ours; unique.
    system : str
        Whose it is.
    place : str
        The file it stands in, or ``environment``, or who else sets it.
    path : tuple of str
        What it is called there, from the outside in.
    today_s : float or None
        Today's value in seconds; None: nobody set one.
    meaning : str
        What happens beyond it.
    evidence : str
        What it is judged by: ``silences`` (between signs of life), ``runs`` (their elapsed
        time), ``detecting`` (time until a probe that failed is understood),
        ``first_report`` and ``reports`` (of agents).
    unit : str
        How it is written, a key of `UNIT_S`.
    kind : str or None
        Kind of work it holds for; `OTHER`; None: every kind.
    mistake : {"false_alarm", "lost_run"}
        What it costs when it hits a run that was fine: a look, or the run.
    prob : float
        The share of healthy work that its evidence must be able to bound: 0.95 where a
        person only looks, 0.99 where observers close runs.
    at_least : bool
        Whether exactly this long is already too long.
    policy_field : str or None
        The field of `Policy` that holds it.
    is_configurable : bool
        Whether users can set it without changing code.
    """

    name: str
    system: str
    place: str
    path: tuple[str, ...]
    today_s: float | None
    meaning: str
    evidence: Evidence
    unit: str = "s"
    kind: str | None = None
    mistake: Mistake = "false_alarm"
    prob: float = 0.95
    at_least: bool = False
    policy_field: str | None = None
    is_configurable: bool = False

    @property
    def setting(self) -> str:
        """What it is called where it stands."""
        return ".".join(self.path)

    @property
    def is_there(self) -> bool:
        """Whether its system has this threshold at all; advice may ask for a new one."""
        return not self.place.startswith(NO_SETTING)


_STALENESS = "lionagi/state/staleness.py"
_DASHBOARD = "apps/studio/frontend/src/routes/index.tsx"
_CORE, _YAML = "packages/core/src", "agent-orchestrator.yaml"
_DECISIONS = f"{_CORE}/lifecycle-status-decisions.ts"
_ENVIRONMENT = "environment"


def constants(policy: Policy | None = None) -> tuple[Constant, ...]:
    """Every constant that is judged, with today's values.

    Parameters
    ----------
    policy : Policy, optional
        Whose thresholds count as today's where it has a field for them; v1 by default,
        which holds lionagi 0.36's.

    Examples
    --------
    >>> next(one for one in constants() if one.name == "stale.flow").today_s
    43200.0
    """
    policy = policy or Policy.v1()
    return (*_lionagi(policy), *_agent_orchestrator(), *_opencode(policy))


def constants_frame(policy: Policy | None = None) -> pl.DataFrame:
    """The constants as a table, one row each: what, where, today's value, what it does."""
    columns = ("name", "system", "place", "setting", "kind", "today_s", "unit", "evidence")
    return pl.DataFrame(
        [
            {name: getattr(one, name) for name in (*columns, "is_configurable", "meaning")}
            for one in constants(policy)
        ],
        infer_schema_length=None,
    )


def time_limit(kind: str, today_s: float | None, *, is_inferred: bool = False) -> Constant:
    """The time limit of a kind of work, which playbooks and command lines set."""
    inferred = "; today's value is inferred from ends that pile up there"
    return Constant(
        f"timeout.{kind}",
        "lionagi",
        "playbook or command line",
        ("timeout", kind),
        today_s,
        "a run that takes longer is ended" + (inferred if is_inferred else ""),
        "runs",
        kind=kind,
        mistake="lost_run",
        is_configurable=True,
    )


def slow_of_kind(slow: Constant, kind: str) -> Constant:
    """The dashboard's slow threshold, as it would be if it had one per kind."""
    return replace(
        slow,
        name=f"slow.{kind}",
        place=f"{NO_SETTING}: one value for every kind",
        path=(slow.path[-1], kind),
        kind=kind,
        policy_field=None,
        is_configurable=False,
    )


def _lionagi(policy: Policy) -> list[Constant]:
    stale = "running and silent for longer: shown as stale"
    return [
        Constant(
            "slow", "lionagi", _DASHBOARD, ("SLOW_RUN_SECONDS",), policy.slow_after_s,
            "finished later: shown as slow", "runs", policy_field="slow_after_s",
        ),
        Constant(
            "stuck", "lionagi", _DASHBOARD, ("STUCK_RUN_SECONDS",), policy.stuck_after_s,
            "running for longer: shown as stuck", "runs", policy_field="stuck_after_s",
        ),
        Constant(
            "idle", "lionagi", "lionagi/state/health.py", ("IDLE_THRESHOLD",),
            policy.idle_after_s, "running and silent for longer: shown as idle", "silences",
            policy_field="idle_after_s",
        ),
        *(
            Constant(
                f"stale.{kind}", "lionagi", _STALENESS, ("STALE_THRESHOLDS", kind),
                policy.stalled_after(kind), stale, "silences", kind=kind,
                policy_field="stalled_after_s",
            )
            for kind in STALE_KINDS
        ),
        Constant(
            "stale.other", "lionagi", _STALENESS, ("DEFAULT_STALE_THRESHOLD",),
            policy.stalled_after_default_s, stale, "silences", kind=OTHER,
            policy_field="stalled_after_default_s",
        ),
        Constant(
            "phantom", "lionagi", _ENVIRONMENT, ("LIONAGI_STUDIO_PHANTOM_STALE_HOURS",),
            policy.phantom_after_s,
            "not written to for so long, and no process found: the reaper closes it as failed",
            "silences", unit="h", mistake="lost_run", prob=0.99, at_least=True,
            policy_field="phantom_after_s", is_configurable=True,
        ),
        Constant(
            "worker.idle", "lionagi", _ENVIRONMENT, ("LIONAGI_WORKER_IDLE_TIMEOUT",), 600.0,
            "a worker without output for longer is ended", "silences", kind="agent",
            mistake="lost_run", prob=0.99, is_configurable=True,
        ),
    ]  # fmt: skip


def _agent_orchestrator() -> list[Constant]:
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


def _opencode(policy: Policy) -> list[Constant]:
    ours = "stateanalytics policy"
    return [
        Constant(
            "opencode.stalled", "opencode", ours, ("opencode_stalled_after_s",),
            policy.opencode_stalled_after_s, "no event for so long: stalled", "silences",
            at_least=True, policy_field="opencode_stalled_after_s", is_configurable=True,
        ),
        Constant(
            "opencode.dead", "opencode", ours, ("opencode_dead_after_s",),
            policy.opencode_dead_after_s, "no event for so long and no claim: process_dead",
            "silences", at_least=True, policy_field="opencode_dead_after_s",
            is_configurable=True,
        ),
    ]  # fmt: skip
