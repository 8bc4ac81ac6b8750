"""The sections of a report, in the order of the page: each makes plain data from one material.

A section is a row of `SECTIONS`, a function that gives its numbers and sentences, and the
template of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.reporting.material import Material, Plain
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

HEADLINE = "headline"
"""The section that every report has: its finding stands at the top of the page."""


class Section(NamedTuple):
    """One part of the page.

    Attributes
    ----------
    name : str
        Its key in the summary, and the name of its template.
    label : str
        Its word in the contents of the page.
    summarize : callable
        Material to plain data.
    """

    name: str
    label: str
    summarize: Callable[[Material], Plain]


SECTIONS = (
    Section("provenance", "Data", summarize_provenance),
    Section(HEADLINE, "Numbers", summarize_headline),
    Section("systems", "Systems", summarize_systems),
    Section("attention", "Attention", summarize_attention),
    Section("failures", "Failures", summarize_failures),
    Section("clusters", "Clusters", summarize_clusters),
    Section("over_time", "Over time", summarize_over_time),
    Section("slow", "Slow", summarize_slow),
    Section("detectors", "Detectors", summarize_detectors),
    Section("durations", "Durations", summarize_durations),
    Section("thresholds", "Thresholds", summarize_thresholds),
    Section("audit", "Audit", summarize_audit),
    Section("appendix", "Definitions", summarize_appendix),
)


def choose_sections(names: Iterable[str] | None) -> tuple[Section, ...]:
    """The sections of those names in the order of the page; all of them for None.

    Raises
    ------
    ArgumentError
        If a name is no section's.
    """
    if names is None:
        return SECTIONS
    wanted = [names] if isinstance(names, str) else list(names)
    known = [section.name for section in SECTIONS]
    for name in wanted:
        if name not in known:
            raise ArgumentError(
                f"A report has no section {name!r:.60}; there are {', '.join(known)}.",
                "name some of these" + did_you_mean(str(name), known),
            )
    return tuple(section for section in SECTIONS if section.name in {*wanted, HEADLINE})
