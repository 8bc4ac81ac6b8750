"""Is work that is not over well: by its age, its retries, its questions and its steps.

How long it may be silent is a limit of its system, or its own (``patience_s``), where that
depends on what it waits for. Without ``dead_after_s`` silence alone never makes it dead.

Only systems with limits of their own (`System.limits`) are judged so, and only where
they recorded no health. All other open work is judged by the silence of its kind.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType

import narwhals as nw

from stateanalytics.core.engines import TEMPORARY, Frame, encode, lookup
from stateanalytics.state.lifecycle import StatusTable
from stateanalytics.state.policy import Policy
from stateanalytics.systems import limits_of_systems

LIMITS = MappingProxyType(
    {
        "stalled_after_s": "silent for at least so long: stalled",
        "dead_after_s": "silent for at least so long, and nothing claims to resume it: dead",
        "tool_factor": "so many times longer for both, while a part of it is at work",
        "retry_grace_s": "a retry that is later than that is overdue: stalled",
        "min_runaway_steps": "steps that ended for no known reason make it degraded: it runs away",
    }
)
"""Every limit that a system can have, and what follows beyond it."""

SIGN_AGE, DUE_AGE = f"{TEMPORARY}sign_age_s", f"{TEMPORARY}due_age_s"
"""Ages of the last sign of life, and of what is due; negative: it is due later."""

RUNAWAY = f"{TEMPORARY}is_runaway"
_SYSTEM = f"{TEMPORARY}system"
_LIMIT = {name: f"{TEMPORARY}{name}" for name in LIMITS}


def add_limits(frame: Frame, policy: Policy) -> Frame:
    """Add the limits of each row's system, and `RUNAWAY`: has it run in circles for too long."""
    systems = tuple(limits_of_systems())
    coded = encode(frame, {_SYSTEM: ("system", systems)})
    limits = {
        column: (_SYSTEM, [policy.limit(system, name) for system in systems])
        for name, column in _LIMIT.items()
    }
    runs_away = nw.col("n_unknown_finishes") >= nw.col(_LIMIT["min_runaway_steps"])
    return lookup(coded, limits).with_columns(runs_away.fill_null(value=False).alias(RUNAWAY))


@lru_cache(maxsize=8)
def open_work_rules(table: StatusTable) -> dict[str, nw.Expr]:
    """The rules as expressions by name, over `SIGN_AGE`, `DUE_AGE` and what `add_limits` added."""
    is_open = table.where(lambda cell: cell.is_recorded and cell.lifecycle == "running")
    is_judged = is_open & ~nw.col(_SYSTEM).is_null() & nw.col("recorded_health").is_null()
    waits = ~nw.col("retry_code").is_null()
    silence_s = nw.col(SIGN_AGE)
    factor = nw.when(nw.col("n_running") > 0).then(nw.col(_LIMIT["tool_factor"]))
    times = nw.coalesce(factor, nw.lit(1.0))
    patience_s = nw.coalesce(nw.col("patience_s"), nw.col(_LIMIT["stalled_after_s"]) * times)
    is_late = (silence_s >= nw.col(_LIMIT["dead_after_s"]) * times).fill_null(value=False)
    is_claimed = nw.col("is_resume_claimed").fill_null(value=False)
    rules = {
        "process_gone": (~nw.col("process_alive")).fill_null(value=False),
        "retry_overdue": waits & (nw.col(DUE_AGE) > nw.col(_LIMIT["retry_grace_s"])),
        "retry_scheduled": waits,
        "question_open": nw.col("n_questions") > 0,
        "dead": is_late & ~is_claimed,
        "stalled": silence_s >= patience_s,
        "runaway": nw.col(RUNAWAY),
        "active": nw.lit(value=True),
    }
    return {f"open_{name}": is_judged & rule for name, rule in rules.items()}
