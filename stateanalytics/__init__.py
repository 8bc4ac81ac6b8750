"""Analytics for fleets of coding agents, from the stores that orchestrators leave behind.

::

    import stateanalytics as sa

    snap = sa.read("~/.lionagi/state.db")
    snap.sql("SELECT severity, count(*) AS n FROM states GROUP BY ALL ORDER BY severity")
    sa.report(snap).write_html("week.html")

Names are loaded when they are first used, so that this import costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateanalytics.auditing import audit
    from stateanalytics.detectors.alarm_episodes import alarms
    from stateanalytics.detectors.catalogue import detectors
    from stateanalytics.detectors.comparing import agreement
    from stateanalytics.detectors.detections import detect
    from stateanalytics.detectors.detector import Detector
    from stateanalytics.detectors.disagreeing_pairs import disagreements
    from stateanalytics.detectors.gaps import silence_gaps
    from stateanalytics.detectors.overlaps import intersections
    from stateanalytics.detectors.phi_accrual import phi, phi_threshold
    from stateanalytics.detectors.quality import quality_of_service
    from stateanalytics.detectors.sums import gap_sums, merge_gap_sums
    from stateanalytics.errors import (
        ArgumentError,
        ColumnTypeError,
        DamagedStoreError,
        MissingColumnsError,
        MissingComponentError,
        NoRoomError,
        NotAStoreError,
        QueryError,
        QueryRefusedError,
        QueryTimeoutError,
        SourceError,
        SourceNotFoundError,
        StateAnalyticsError,
        StoreBusyError,
        TruncatedWarning,
    )
    from stateanalytics.failures.by_code import failure_codes
    from stateanalytics.failures.clustering import failure_clusters
    from stateanalytics.failures.failure_rows import (
        failure_incidents,
        failure_members,
        failure_rules,
    )
    from stateanalytics.failures.lift_ratios import failure_lift
    from stateanalytics.failures.rules_file import FailureRules
    from stateanalytics.failures.template_parameters import failure_parameters
    from stateanalytics.failures.templates import merge_templates, mine_templates
    from stateanalytics.failures.weekly_change import failure_change
    from stateanalytics.live import severity_changes, watch
    from stateanalytics.queries import attention, phantoms
    from stateanalytics.reporting import Report, report
    from stateanalytics.reporting.diff import diff
    from stateanalytics.snapshot import Snapshot, demo, read
    from stateanalytics.state.comparison import compare_policies
    from stateanalytics.state.policy import Policy
    from stateanalytics.state.reason_codes import reason_codes
    from stateanalytics.state.session_health import classify_session_health
    from stateanalytics.state.severity import derive_severity
    from stateanalytics.state.states import reasons, states
    from stateanalytics.summaries import Summary, merge, summarize
    from stateanalytics.survival.bands import confidence_band
    from stateanalytics.survival.candidates import timeout_candidates
    from stateanalytics.survival.change import duration_change
    from stateanalytics.survival.completion import completion_times
    from stateanalytics.survival.curves import kaplan_meier
    from stateanalytics.survival.estimates import quantiles, restricted_mean
    from stateanalytics.survival.heaping import implicit_timeouts
    from stateanalytics.survival.incidence import cumulative_incidence
    from stateanalytics.survival.log_rank import logrank
    from stateanalytics.survival.run_spells import spells
    from stateanalytics.survival.slow import slow_thresholds
    from stateanalytics.survival.time_limits import timeouts
    from stateanalytics.thresholds import Advice, Costs, recommend_thresholds
    from stateanalytics.thresholds.worksheet import stale_thresholds
    from stateanalytics.widgets import DetectorExplorer, FailureExplorer, ThresholdWorksheet

_ERRORS = (
    "StateAnalyticsError",
    "SourceError",
    "SourceNotFoundError",
    "NotAStoreError",
    "DamagedStoreError",
    "StoreBusyError",
    "NoRoomError",
    "MissingColumnsError",
    "ColumnTypeError",
    "ArgumentError",
    "QueryError",
    "QueryRefusedError",
    "QueryTimeoutError",
    "MissingComponentError",
    "TruncatedWarning",
)
_WHERE = {
    "read": "snapshot",
    "demo": "snapshot",
    "Snapshot": "snapshot",
    "recommend_thresholds": "thresholds",
    "Advice": "thresholds",
    "Costs": "thresholds",
    "DetectorExplorer": "widgets",
    "FailureExplorer": "widgets",
    "ThresholdWorksheet": "widgets",
    "states": "state.states",
    "reasons": "state.states",
    "derive_severity": "state.severity",
    "classify_session_health": "state.session_health",
    "attention": "queries",
    "audit": "auditing",
    "phantoms": "queries",
    "Policy": "state.policy",
    "compare_policies": "state.comparison",
    "reason_codes": "state.reason_codes",
    "failure_clusters": "failures.clustering",
    "failure_members": "failures.failure_rows",
    "failure_rules": "failures.failure_rows",
    "failure_codes": "failures.by_code",
    "failure_change": "failures.weekly_change",
    "failure_lift": "failures.lift_ratios",
    "failure_incidents": "failures.failure_rows",
    "failure_parameters": "failures.template_parameters",
    "FailureRules": "failures.rules_file",
    "mine_templates": "failures.templates",
    "merge_templates": "failures.templates",
    "Detector": "detectors.detector",
    "detectors": "detectors.catalogue",
    "detect": "detectors.detections",
    "intersections": "detectors.overlaps",
    "alarms": "detectors.alarm_episodes",
    "agreement": "detectors.comparing",
    "disagreements": "detectors.disagreeing_pairs",
    "silence_gaps": "detectors.gaps",
    "gap_sums": "detectors.sums",
    "merge_gap_sums": "detectors.sums",
    "quality_of_service": "detectors.quality",
    "phi": "detectors.phi_accrual",
    "phi_threshold": "detectors.phi_accrual",
    "severity_changes": "live",
    "watch": "live",
    "stale_thresholds": "thresholds.worksheet",
    "Summary": "summaries",
    "merge": "summaries",
    "summarize": "summaries",
    "diff": "reporting.diff",
    "report": "reporting",
    "Report": "reporting",
    "spells": "survival.run_spells",
    "kaplan_meier": "survival.curves",
    "confidence_band": "survival.bands",
    "cumulative_incidence": "survival.incidence",
    "quantiles": "survival.estimates",
    "restricted_mean": "survival.estimates",
    "logrank": "survival.log_rank",
    "timeouts": "survival.time_limits",
    "implicit_timeouts": "survival.heaping",
    "timeout_candidates": "survival.candidates",
    "completion_times": "survival.completion",
    "slow_thresholds": "survival.slow",
    "duration_change": "survival.change",
    **dict.fromkeys(_ERRORS, "errors"),
}

__all__ = [
    "Advice",
    "ArgumentError",
    "ColumnTypeError",
    "Costs",
    "DamagedStoreError",
    "Detector",
    "DetectorExplorer",
    "FailureExplorer",
    "FailureRules",
    "MissingColumnsError",
    "MissingComponentError",
    "NoRoomError",
    "NotAStoreError",
    "Policy",
    "QueryError",
    "QueryRefusedError",
    "QueryTimeoutError",
    "Report",
    "Snapshot",
    "SourceError",
    "SourceNotFoundError",
    "StateAnalyticsError",
    "StoreBusyError",
    "Summary",
    "ThresholdWorksheet",
    "TruncatedWarning",
    "agreement",
    "alarms",
    "attention",
    "audit",
    "classify_session_health",
    "compare_policies",
    "completion_times",
    "confidence_band",
    "cumulative_incidence",
    "demo",
    "derive_severity",
    "detect",
    "detectors",
    "diff",
    "disagreements",
    "duration_change",
    "failure_change",
    "failure_clusters",
    "failure_codes",
    "failure_incidents",
    "failure_lift",
    "failure_members",
    "failure_parameters",
    "failure_rules",
    "gap_sums",
    "implicit_timeouts",
    "intersections",
    "kaplan_meier",
    "logrank",
    "merge",
    "merge_gap_sums",
    "merge_templates",
    "mine_templates",
    "phantoms",
    "phi",
    "phi_threshold",
    "quality_of_service",
    "quantiles",
    "read",
    "reason_codes",
    "reasons",
    "recommend_thresholds",
    "report",
    "restricted_mean",
    "severity_changes",
    "silence_gaps",
    "slow_thresholds",
    "spells",
    "stale_thresholds",
    "states",
    "summarize",
    "timeout_candidates",
    "timeouts",
    "watch",
]


class _Package(ModuleType):
    """The package, where importing the module ``report`` does not hide `report`.

    Importing a submodule binds its name in the package, whoever imports it and whenever;
    here the function of that name stays.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found
    return found


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext stateanalytics``: SQL cells with ``%%statesql``."""
    from stateanalytics.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext stateanalytics``."""
    from stateanalytics.magics import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


sys.modules[__name__].__class__ = _Package
