"""The sections of a report: each makes plain data from the same material."""

from stateanalytics.report.sections.appendix import summarize_appendix
from stateanalytics.report.sections.attention import summarize_attention
from stateanalytics.report.sections.audit import summarize_audit
from stateanalytics.report.sections.clusters import summarize_clusters
from stateanalytics.report.sections.detectors import summarize_detectors
from stateanalytics.report.sections.durations import summarize_durations
from stateanalytics.report.sections.failures import summarize_failures
from stateanalytics.report.sections.headline import summarize_headline
from stateanalytics.report.sections.over_time import summarize_over_time
from stateanalytics.report.sections.provenance import summarize_provenance
from stateanalytics.report.sections.slow import summarize_slow
from stateanalytics.report.sections.systems import summarize_systems
from stateanalytics.report.sections.thresholds import summarize_thresholds

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
