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
    from stateanalytics.advice import Advice, Costs, recommend_thresholds
    from stateanalytics.advice.worksheet import stale_thresholds
    from stateanalytics.answers import attention, phantoms
    from stateanalytics.audit import audit
    from stateanalytics.detectors.alarms import alarms
    from stateanalytics.detectors.comparing import agreement
    from stateanalytics.detectors.detect import detect
    from stateanalytics.detectors.detector import Detector
    from stateanalytics.detectors.disagreements import disagreements
    from stateanalytics.detectors.gaps import silence_gaps
    from stateanalytics.detectors.intersections import intersections
    from stateanalytics.detectors.phi import phi, phi_threshold
    from stateanalytics.detectors.quality import quality_of_service
    from stateanalytics.detectors.registry import detectors
    from stateanalytics.detectors.sums import gap_sums, merge_gap_sums
    from stateanalytics.durations.bands import confidence_band
    from stateanalytics.durations.candidates import timeout_candidates
    from stateanalytics.durations.change import duration_change
    from stateanalytics.durations.completion import completion_times
    from stateanalytics.durations.curves import kaplan_meier
    from stateanalytics.durations.heaping import implicit_timeouts
    from stateanalytics.durations.incidence import cumulative_incidence
    from stateanalytics.durations.logrank import logrank
    from stateanalytics.durations.read_off import quantiles, restricted_mean
    from stateanalytics.durations.slow import slow_thresholds
    from stateanalytics.durations.spells import spells
    from stateanalytics.durations.timeouts import timeouts
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
    from stateanalytics.failures.change import failure_change
    from stateanalytics.failures.clusters import failure_clusters
    from stateanalytics.failures.codes import failure_codes
    from stateanalytics.failures.incidents import failure_incidents
    from stateanalytics.failures.lift import failure_lift
    from stateanalytics.failures.members import failure_members, failure_rules
    from stateanalytics.failures.parameters import failure_parameters
    from stateanalytics.failures.rules_file import FailureRules
    from stateanalytics.failures.templates import merge_templates, mine_templates
    from stateanalytics.live import severity_changes, watch
    from stateanalytics.report import Report, report
    from stateanalytics.report.diff import diff
    from stateanalytics.rules.comparison import compare_policies
    from stateanalytics.rules.policy import Policy
    from stateanalytics.rules.reason_codes import reason_codes
    from stateanalytics.rules.session_health import classify_session_health
    from stateanalytics.rules.severity import derive_severity
    from stateanalytics.rules.states import reasons, states
    from stateanalytics.snapshot import Snapshot, demo, read
    from stateanalytics.summaries import Summary, merge, summarize
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
    "recommend_thresholds": "advice",
    "Advice": "advice",
    "Costs": "advice",
    "DetectorExplorer": "widgets",
    "FailureExplorer": "widgets",
    "ThresholdWorksheet": "widgets",
    "states": "rules.states",
    "reasons": "rules.states",
    "derive_severity": "rules.severity",
    "classify_session_health": "rules.session_health",
    "attention": "answers",
    "audit": "audit",
    "phantoms": "answers",
    "Policy": "rules.policy",
    "compare_policies": "rules.comparison",
    "reason_codes": "rules.reason_codes",
    "failure_clusters": "failures.clusters",
    "failure_members": "failures.members",
    "failure_rules": "failures.members",
    "failure_codes": "failures.codes",
    "failure_change": "failures.change",
    "failure_lift": "failures.lift",
    "failure_incidents": "failures.incidents",
    "failure_parameters": "failures.parameters",
    "FailureRules": "failures.rules_file",
    "mine_templates": "failures.templates",
    "merge_templates": "failures.templates",
    "Detector": "detectors.detector",
    "detectors": "detectors.registry",
    "detect": "detectors.detect",
    "intersections": "detectors.intersections",
    "alarms": "detectors.alarms",
    "agreement": "detectors.comparing",
    "disagreements": "detectors.disagreements",
    "silence_gaps": "detectors.gaps",
    "gap_sums": "detectors.sums",
    "merge_gap_sums": "detectors.sums",
    "quality_of_service": "detectors.quality",
    "phi": "detectors.phi",
    "phi_threshold": "detectors.phi",
    "severity_changes": "live",
    "watch": "live",
    "stale_thresholds": "advice.worksheet",
    "Summary": "summaries",
    "merge": "summaries",
    "summarize": "summaries",
    "diff": "report.diff",
    "report": "report",
    "Report": "report",
    "spells": "durations.spells",
    "kaplan_meier": "durations.curves",
    "confidence_band": "durations.bands",
    "cumulative_incidence": "durations.incidence",
    "quantiles": "durations.read_off",
    "restricted_mean": "durations.read_off",
    "logrank": "durations.logrank",
    "timeouts": "durations.timeouts",
    "implicit_timeouts": "durations.heaping",
    "timeout_candidates": "durations.candidates",
    "completion_times": "durations.completion",
    "slow_thresholds": "durations.slow",
    "duration_change": "durations.change",
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
