"""Ages at which Agent Orchestrator changes its mind, and its report watcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES

STUCK_THRESHOLD_S = 600.0
"""``reactions.agent-stuck.threshold`` by default: idle for longer means stuck."""
FRESH_S = 300.0
"""Up to this age a sign of activity counts, past it it is stale."""
READY_THRESHOLD_S = 300.0
"""Up to this age an entry of an agent's log means ready (``readyThresholdMs``), past it idle."""
STICKY_S = 300.0
"""How long a waiting or blocked entry counted before it became sticky (17 May 2026)."""


@dataclass(frozen=True)
class WatcherThresholds:
    """Ages at which the report watcher speaks up.

    Parameters
    ----------
    acknowledge_s : float, default 600
        Age of a session that never reported.
    stale_s : float, default 1800
        Age of the last report.

    Examples
    --------
    >>> WatcherThresholds(stale_s=3600)
    WatcherThresholds(acknowledge_s=600.0, stale_s=3600)
    """

    acknowledge_s: float = 600.0
    stale_s: float = 1800.0


_NEVER_STALE = ("waiting", "needs_input")


def watcher_audits(library: Any) -> Any:
    """Is a session watched at all; as an expression of Narwhals or polars."""
    col = library.col
    is_exempt = col("status").is_in(TERMINAL_STATUSES) | (col("kind") == "orchestrator")
    return ~is_exempt.fill_null(False)


def watcher_trigger(library: Any, limits: WatcherThresholds) -> Any:
    """The trigger of a watched session; as an expression of Narwhals or polars."""
    when, lit, col = library.when, library.lit, library.col
    state, is_audited = col("report_state"), col("is_audited")
    is_silent = state.is_null() & (col("created_age_s") >= limits.acknowledge_s)
    is_stale = ~state.is_in(_NEVER_STALE) & (col("report_age_s") >= limits.stale_s)
    rule = when(is_audited & is_stale).then(lit("stale_report"))
    rule = when(is_audited & is_silent).then(lit("no_acknowledge")).otherwise(rule)
    asks = is_audited & (state == "needs_input")
    return when(asks).then(lit("agent_needs_input")).otherwise(rule)
