"""Frames to plain data: every number of a report, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from stateanalytics.core.facts import losses_of
from stateanalytics.core.windows import TICK, WEEK, Window
from stateanalytics.reporting.comparison import compared_with, with_changes
from stateanalytics.reporting.ledger import write_ledger
from stateanalytics.reporting.material import Material, Plain, Section, iso, plain_rows
from stateanalytics.reporting.redact import clean
from stateanalytics.reporting.sections import HEADLINE, SECTIONS
from stateanalytics.reporting.sections.headline import summarize_headline

SHAPE_VERSION = 1
"""Of the summary: changes when a key changes its meaning or goes away."""


def summarize(
    material: Material,
    *,
    sections: Sequence[Section] = SECTIONS,
    earlier: Window | None = None,
    title: str | None = None,
    redact: bool = True,
) -> Plain:
    """The whole report as dicts, lists, texts and numbers.

    Parameters
    ----------
    material : Material
        Facts, states and reasons, narrowed to a window.
    sections : sequence of Section
        What to tell; the headline is among them.
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
        Fit for JSON. Keys are fixed, and each section that was asked for is one; texts of a store
        stand only in values. The same input gives the same summary.
    """
    window = material.window
    before = material.over(earlier) if earlier else None
    summaries = {section.name: section.summarize(material) for section in sections}
    if before:
        headline = summaries[HEADLINE]
        numbers = with_changes(headline["numbers"], summarize_headline(before)["numbers"])
        summaries[HEADLINE] = {**headline, "numbers": numbers}
    raw: Plain = {
        "shape_version": SHAPE_VERSION,
        "made_by": version("stateanalytics"),
        "title": title or _title(window),
        "window": {
            "label": window.label,
            "since": iso(window.since),
            "until": iso(window.until),
            "days": round(window.days, 3),
            "is_over": window.until <= material.facts.as_of + TICK,
        },
        "compared_with": compared_with(earlier, material, before),
        "losses": plain_rows(
            losses_of(material.facts.findings),
            ("source", "table", "code", "n_rows", "message", "example"),
        ),
        **summaries,
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
