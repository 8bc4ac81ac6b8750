"""The sections of a report: each makes plain data from the same material."""

from stateanalytics.reporting.sections.appendix import summarize_appendix
from stateanalytics.reporting.sections.attention import summarize_attention
from stateanalytics.reporting.sections.audit import summarize_audit
from stateanalytics.reporting.sections.clusters import summarize_clusters
from stateanalytics.reporting.sections.detectors import summarize_detectors
from stateanalytics.reporting.sections.durations import summarize_durations
from stateanalytics.reporting.sections.failures import summarize_failures
from stateanalytics.reporting.sections.headline import summarize_headline
from stateanalytics.reporting.sections.over_time import summarize_over_time
from stateanalytics.reporting.sections.provenance import summarize_provenance
from stateanalytics.reporting.sections.slow import summarize_slow
from stateanalytics.reporting.sections.systems import summarize_systems
from stateanalytics.reporting.sections.thresholds import summarize_thresholds

__all__ = [
    "summarize_appendix",
    "summarize_attention",
    "summarize_audit",
    "summarize_clusters",
    "summarize_detectors",
    "summarize_durations",
    "summarize_failures",
    "summarize_headline",
    "summarize_over_time",
    "summarize_provenance",
    "summarize_slow",
    "summarize_systems",
    "summarize_thresholds",
]
