"""The sections of a report: each makes plain data from the same material."""

from stateanalytics.report.sections.appendix import summarize_appendix
from stateanalytics.report.sections.attention import summarize_attention
from stateanalytics.report.sections.durations import summarize_durations
from stateanalytics.report.sections.failures import summarize_failures
from stateanalytics.report.sections.headline import summarize_headline
from stateanalytics.report.sections.provenance import summarize_provenance

__all__ = [
    "summarize_appendix",
    "summarize_attention",
    "summarize_durations",
    "summarize_failures",
    "summarize_headline",
    "summarize_provenance",
]
