"""The constants of lionagi 0.36, with today's values, and the ends of silences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.vocabulary import words_of
from stateanalytics.systems.base import NO_SETTING, OTHER, Constant
from stateanalytics.systems.lionagi import SYSTEM

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy


STALE_KINDS = ("agent", "play", "flow", "fanout", "show-play", "engine")
"""The kinds of work in lionagi's table of staleness."""

_STALENESS = "lionagi/state/staleness.py"
_DASHBOARD = "apps/studio/frontend/src/routes/index.tsx"
_ENVIRONMENT = "environment"


def constants(policy: Policy) -> list[Constant]:
    """The constants that do not depend on the kinds of work in a store."""
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
            policy_field="stalled_after_default_s", other_kinds=STALE_KINDS,
        ),
        Constant(
            "phantom", "lionagi", _ENVIRONMENT, ("LIONAGI_STUDIO_PHANTOM_STALE_HOURS",),
            policy.phantom_after_s,
            "no write for so long, and no process: the reaper closes it as failed",
            "silences", unit="h", mistake="lost_run", at_least=True,
            policy_field="phantom_after_s", is_configurable=True,
        ),
        Constant(
            "worker.idle", "lionagi", _ENVIRONMENT, ("LIONAGI_WORKER_IDLE_TIMEOUT",), 600.0,
            "a worker without output for longer is ended", "silences", kind="agent",
            mistake="lost_run", is_configurable=True,
        ),
    ]  # fmt: skip


def kind_constants(policy: Policy, kinds: pl.DataFrame) -> list[Constant]:
    """The dashboard's slow threshold and the time limit, for each kind of work."""
    slow = next(constant for constant in constants(policy) if constant.name == "slow")
    return [
        # The dashboard has one threshold for all kinds of work: advice may ask for one per kind.
        *(
            replace(
                slow,
                name=f"slow.{kind}",
                place=f"{NO_SETTING}: one value for every kind",
                path=(slow.path[-1], kind),
                kind=kind,
                policy_field=None,
                is_configurable=False,
            )
            for kind in kinds["kind"]
        ),
        *(
            time_limit(kind, limit_s, is_inferred=bool(is_inferred), is_mixed=bool(is_mixed))
            for kind, limit_s, is_inferred, is_mixed in kinds.iter_rows()
        ),
    ]


def time_limit(
    kind: str, today_s: float | None, *, is_inferred: bool = False, is_mixed: bool = False
) -> Constant:
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
        is_mixed=is_mixed,
    )


_ENDED = tuple(word.raw_status for word in words_of("session") if word.is_terminal)


def silence_ends(facts: Facts) -> pl.DataFrame:
    """Terminal statuses of sessions, without those of reapers, which may have closed a live run."""
    return facts.transitions.filter(
        pl.col("entity_type") == "session",
        pl.col("system") == SYSTEM.name,
        pl.col("status").is_in(_ENDED),
        ~pl.col("reason_code").is_in(SYSTEM.ends.death_codes).fill_null(value=False),
    ).select("source", "system", "entity_id", "at", boundary=pl.lit("other_end"))
