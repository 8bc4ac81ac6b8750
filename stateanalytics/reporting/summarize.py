"""Frames to plain data: every number of a report, before anything is drawn."""

from __future__ import annotations

from stateanalytics.core.windows import TICK, WEEK, Window
from stateanalytics.reporting import sections
from stateanalytics.reporting.comparison import compared_with, with_changes
from stateanalytics.reporting.ledger import write_ledger
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.reporting.redact import clean

SHAPE_VERSION = 1
"""Of the summary: changes when a key changes its meaning or goes away."""


def summarize(
    material: Material,
    *,
    earlier: Window | None = None,
    title: str | None = None,
    redact: bool = True,
) -> Plain:
    """The whole report as dicts, lists, texts and numbers.

    Parameters
    ----------
    material : Material
        Facts, states and reasons, narrowed to a window.
    earlier : Window, optional
        A window that the headline is compared with.
    title : str, optional
        Heading of the report.
    redact : bool
        Whether to mask what looks like a secret. Control characters are made visible
        and long texts cut in any case.

    Returns
    -------
    dict
        Fit for JSON. Keys are fixed; texts of a store stand only in values. The same
        input gives the same summary.
    """
    window = material.window
    then = material.over(earlier) if earlier else None
    headline = sections.summarize_headline(material)
    if then:
        before = sections.summarize_headline(then)["numbers"]
        headline = {**headline, "numbers": with_changes(headline["numbers"], before)}
    raw: Plain = {
        "shape_version": SHAPE_VERSION,
        "title": title or _title(window),
        "window": {
            "label": window.label,
            "since": iso(window.since),
            "until": iso(window.until),
            "days": round(window.days, 3),
            "is_over": window.until <= material.facts.as_of + TICK,
        },
        "compared_with": compared_with(earlier, material, then),
        "headline": headline,
        "systems": sections.summarize_systems(material),
        "provenance": sections.summarize_provenance(material),
        "attention": sections.summarize_attention(material),
        "failures": sections.summarize_failures(material),
        "clusters": sections.summarize_clusters(material),
        "over_time": sections.summarize_over_time(material),
        "slow": sections.summarize_slow(material),
        "detectors": sections.summarize_detectors(material),
        "durations": sections.summarize_durations(material),
        "thresholds": sections.summarize_thresholds(material),
        "audit": sections.summarize_audit(material),
        "appendix": sections.summarize_appendix(material),
    }
    cleaned, found = clean(raw, secrets=redact)
    kinds = [{"kind": kind, "n": n} for kind, n in sorted(found.items())]
    return {
        **cleaned,
        # Digests, which a mask for secrets must not touch: two reports are compared by them.
        "ledger": write_ledger(material),
        "redactions": {"is_on": redact, "n": sum(found.values()), "kinds": kinds},
    }


def _title(window: Window) -> str:
    return "Weekly report" if window.until - window.since == WEEK else f"Report on {_days(window)}"


def _days(window: Window) -> str:
    days = round(window.days, 1)
    return "1 day" if days == 1 else f"{days:,g} days"
