"""Frames to plain data: every number of a report, before anything is drawn."""

from __future__ import annotations

from stateanalytics.report import sections
from stateanalytics.report.material import Material, Plain, iso
from stateanalytics.report.redact import clean
from stateanalytics.windows import TICK, WEEK, Window

SHAPE_VERSION = 1
"""Of the summary: changes when a key changes its meaning or goes away."""


def summarize(material: Material, *, title: str | None = None, redact: bool = True) -> Plain:
    """The whole report as dicts, lists, texts and numbers.

    Parameters
    ----------
    material : Material
        Facts, states and reasons, narrowed to a window.
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
        "headline": sections.summarize_headline(material),
        "provenance": sections.summarize_provenance(material),
        "attention": sections.summarize_attention(material),
        "failures": sections.summarize_failures(material),
        "durations": sections.summarize_durations(material),
        "appendix": sections.summarize_appendix(material),
    }
    cleaned, found = clean(raw, secrets=redact)
    kinds = [{"kind": kind, "n": n} for kind, n in sorted(found.items())]
    return {
        **cleaned,
        "redactions": {"is_on": redact, "n": sum(found.values()), "kinds": kinds},
    }


def _title(window: Window) -> str:
    return "Weekly report" if window.until - window.since == WEEK else f"Report on {_days(window)}"


def _days(window: Window) -> str:
    days = round(window.days, 1)
    return "1 day" if days == 1 else f"{days:,g} days"
