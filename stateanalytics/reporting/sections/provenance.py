"""Where the numbers come from, and how complete the data behind them are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import capitalised, count, say, share, size
from stateanalytics.reporting.material import (
    Material,
    Plain,
    Section,
    findings_by_code,
    iso,
    plain_rows,
    tally,
)
from stateanalytics.state.definitions import LEFT_OUT

DAY = timedelta(days=1)
# Column and its name on the page, for the runs that ended in the window.
COVERAGE = {
    "ended_at": "end time",
    "reason_code": "reason code",
    "n_input_tokens": "input tokens",
    "n_output_tokens": "output tokens",
    "cost_usd": "cost",
    "timeout_s": "configured time limit",
    "invocation_id": "invocation",
    "model": "model",
}


def summarize_provenance(material: Material) -> Plain:
    """Inputs, as-of, findings by code and coverage of the key columns."""
    findings = plain_rows(findings_by_code(material.facts.findings))
    return {
        "finding": _finding(material, findings),
        "short": _short(material, findings),
        "as_of": {
            "at": iso(material.facts.as_of),
            "from": material.facts.as_of_from,
            "in_words": _as_of(material),
        },
        "policy_version": material.policy.version,
        "sources": [
            {**source, "size": size(source["size_bytes"])}
            for source in plain_rows(material.facts.sources)
        ],
        "entities": _entities(material),
        "findings": findings,
        "coverage": _coverage(material.ended_runs.select(*COVERAGE).collect()),
        "left_out": _left_out(material.rows),
    }


def _as_of(material: Material) -> str:
    """The instant, its origin, and how many inputs end long before it."""
    facts = material.facts
    instant, several = f"{material.as_of}, {facts.why_as_of}", facts.sources.height > 1
    n_behind = several and facts.sources.filter(pl.col("last_at") < facts.as_of - DAY).height
    return say("data.behind", instant=instant, n=n_behind) if n_behind else instant


def _finding(material: Material, findings: list[Plain]) -> str:
    facts, at = material.whole.facts, material.as_of
    if facts.entities.is_empty():
        return say("data.empty", at=at)
    read = say(
        "data.read",
        n=facts.sources.height,
        n_sessions=_n_sessions(facts),
        n_entities=facts.entities.height,
        at=at,
    )
    if not findings:
        return say("data.no_problem", read=capitalised(read))
    # Findings are in the order of their severities.
    by_severity = Counter(finding["severity"] for finding in findings)
    kinds = [count(n, "note" if name == "info" else name) for name, n in by_severity.items()]
    return say("data.problems", read=capitalised(read), n=len(findings), kinds=kinds)


def _short(material: Material, findings: list[Plain]) -> str:
    """For the first screen: how much data, as of when, and how many kinds of warnings.

    A window up to as-of is called so.
    """
    n_warnings = sum(finding["severity"] == "warning" for finding in findings)
    warnings = say("data.warnings", n=n_warnings) if n_warnings else ""
    n_sessions = _n_sessions(material.whole.facts)
    at = "" if material.as_of in material.window.label else say("data.at", at=material.as_of)
    return say("data.short", n_sessions=n_sessions, at=at, warnings=warnings)


def _n_sessions(facts: Facts) -> int:
    return int((facts.entities["entity_type"] == "session").sum())


def _entities(material: Material) -> list[Plain]:
    read = material.whole.facts.entities.lazy().group_by("entity_type").agg(n_read=pl.len())
    shown = material.rows.lazy().group_by("entity_type").agg(n_in_window=pl.len())
    counts = read.join(shown, on="entity_type", how="left")
    counts = counts.with_columns(pl.col("n_in_window").fill_null(0))
    return plain_rows(counts.sort(-pl.col("n_read").cast(pl.Int64), "entity_type").collect())


def _coverage(ended: pl.DataFrame) -> list[Plain]:
    n = ended.height
    return [
        {
            "column": column,
            "title": title,
            "n": n,
            "n_known": (n_known := n - ended[column].null_count()),
            "share": (known := n_known / n if n else None),
            "shown": share(known),
        }
        for column, title in COVERAGE.items()
    ]


def _left_out(rows: pl.DataFrame) -> list[Plain]:
    """Sessions of the window that no rate counts, by reason; also reasons without any."""
    counts = tally(rows.filter(pl.col("entity_type") == "session"), "left_out")
    return [
        {"reason": reason, "meaning": meaning, "n": counts.get(reason, 0)}
        for reason, meaning in LEFT_OUT.items()
    ]


SECTION = Section("provenance", "Data", summarize_provenance, place=125)
