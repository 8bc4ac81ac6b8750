"""Agent Orchestrator's own rules over frames: what its code decides, recomputed in bulk.

Each public function takes a frame with named columns and gives the same rows back with
columns added. Rules over words and ages take a frame of any engine; what reads stored
text, or replays polls, takes a polars DataFrame.
"""

from stateanalytics.systems.agent_orchestrator.activity import classify_activity, decay_log_entries
from stateanalytics.systems.agent_orchestrator.agent_report import (
    interpret_reports,
    judge_report_freshness,
    normalize_report_words,
    read_reports,
    validate_reports,
)
from stateanalytics.systems.agent_orchestrator.agent_report_effect import apply_reports
from stateanalytics.systems.agent_orchestrator.detecting import (
    DetectingBudget,
    decide_detecting,
    evidence_hash,
    normal_evidence,
    stored_attempts,
)
from stateanalytics.systems.agent_orchestrator.detecting_replay import replay_detecting
from stateanalytics.systems.agent_orchestrator.determine_status import determine_status
from stateanalytics.systems.agent_orchestrator.event_kinds import event_kinds
from stateanalytics.systems.agent_orchestrator.go_status import (
    classify_go_pull_requests,
    derive_go_status,
)
from stateanalytics.systems.agent_orchestrator.javascript_dates import (
    date_ms,
    iso_text,
    parse_dates,
)
from stateanalytics.systems.agent_orchestrator.legacy_status import (
    classify_terminality,
    derive_legacy_status,
)
from stateanalytics.systems.agent_orchestrator.lifecycle import parse_lifecycle, refresh_status
from stateanalytics.systems.agent_orchestrator.mapping import map_axes
from stateanalytics.systems.agent_orchestrator.mapping_detectors import add_detector_reasons
from stateanalytics.systems.agent_orchestrator.mapping_reasons import list_reasons
from stateanalytics.systems.agent_orchestrator.mapping_words import map_go_words, map_legacy_words
from stateanalytics.systems.agent_orchestrator.probe import resolve_probes
from stateanalytics.systems.agent_orchestrator.pull_request import (
    decide_pull_request,
    pull_request_events,
)
from stateanalytics.systems.agent_orchestrator.pull_request_url import parse_pull_request_urls
from stateanalytics.systems.agent_orchestrator.recovery import classify_recovery
from stateanalytics.systems.agent_orchestrator.replay import PollSettings, replay_polls
from stateanalytics.systems.agent_orchestrator.report_watcher import (
    WatcherThresholds,
    watch_reports,
)
from stateanalytics.systems.agent_orchestrator.roles import find_orchestrators
from stateanalytics.systems.agent_orchestrator.status_events import (
    classify_events,
    classify_status_changes,
    name_primary_reason,
)
from stateanalytics.systems.agent_orchestrator.synthesis import synthesize_lifecycle
from stateanalytics.systems.agent_orchestrator.thresholds import duration_s
from stateanalytics.systems.agent_orchestrator.traps import find_traps, reattribute_ends
from stateanalytics.systems.agent_orchestrator.web_attention import classify_web_attention

__all__ = [
    "DetectingBudget",
    "PollSettings",
    "WatcherThresholds",
    "add_detector_reasons",
    "apply_reports",
    "classify_activity",
    "classify_events",
    "classify_go_pull_requests",
    "classify_recovery",
    "classify_status_changes",
    "classify_terminality",
    "classify_web_attention",
    "date_ms",
    "decay_log_entries",
    "decide_detecting",
    "decide_pull_request",
    "derive_go_status",
    "derive_legacy_status",
    "determine_status",
    "duration_s",
    "event_kinds",
    "evidence_hash",
    "find_orchestrators",
    "find_traps",
    "interpret_reports",
    "iso_text",
    "judge_report_freshness",
    "list_reasons",
    "map_axes",
    "map_go_words",
    "map_legacy_words",
    "name_primary_reason",
    "normal_evidence",
    "normalize_report_words",
    "parse_dates",
    "parse_lifecycle",
    "parse_pull_request_urls",
    "pull_request_events",
    "read_reports",
    "reattribute_ends",
    "refresh_status",
    "replay_detecting",
    "replay_polls",
    "resolve_probes",
    "stored_attempts",
    "synthesize_lifecycle",
    "validate_reports",
    "watch_reports",
]
