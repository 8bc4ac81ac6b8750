"""Where the numbers come from, and how far the data behind them can be trusted."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.formatting import count, listed, number, share, size
from stateanalytics.core.windows import in_utc
from stateanalytics.reporting.material import Material, Plain, Section, iso, plain_rows
from stateanalytics.state.definitions import LEFT_OUT

DAY = timedelta(days=1)
FINDING_ORDER = ("error", "warning", "info")
# Column -> what people call it. Asked of the runs that ended in the window.
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
    """Inputs, as-of, findings by code and how much of the key columns is filled."""
    findings = _findings(material.facts.findings)
    return {
        "finding": _sentence(material, findings),
        "short": _short(material.facts, findings),
        "as_of": {
            "at": iso(material.facts.as_of),
            "from": material.facts.as_of_from,
            "in_words": _as_of(material.facts),
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


def _as_of(facts: Facts) -> str:
    """The instant, where it is from, and for which inputs it is a late one."""
    instant = f"{in_utc(facts.as_of)}, {facts.why_as_of}"
    if facts.sources.height < 2:
        return instant
    n_behind = facts.sources.filter(pl.col("last_at") < facts.as_of - DAY).height
    if not n_behind:
        return instant
    return (
        f"{instant}; the data of {number(n_behind)} end more than a day before it, and what is "
        "open there looks silent since"
    )


def _sentence(material: Material, findings: list[Plain]) -> str:
    sources, entities = material.facts.sources, material.facts.entities
    n_sessions = entities.filter(pl.col("entity_type") == "session").height
    if entities.is_empty():
        return f"The data hold no entity; they were read as of {in_utc(material.facts.as_of)}."
    read = (
        f"{count(sources.height, 'input').capitalize()} with "
        f"{count(n_sessions, 'session')} among {count(entities.height, 'entity', 'entities')}, "
        f"read as of {in_utc(material.facts.as_of)}"
    )
    if not findings:
        return f"{read}; nothing in the data had to be put right."
    by_severity = dict.fromkeys(FINDING_ORDER, 0)
    for finding in findings:
        by_severity[finding["severity"]] = by_severity.get(finding["severity"], 0) + 1
    kinds = listed(
        f"{number(n)} {'note' if name == 'info' else name}{'' if n == 1 else 's'}"
        for name, n in by_severity.items()
        if n
    )
    return f"{read}; {count(len(findings), 'kind')} of problems in the data ({kinds})."


def _short(facts: Facts, findings: list[Plain]) -> str:
    """The same for the first screen: how much, as of when, and what was wrong with it."""
    n_sessions = facts.entities.filter(pl.col("entity_type") == "session").height
    n_warnings = sum(finding["severity"] == "warning" for finding in findings)
    warnings = f"; {count(n_warnings, 'kind')} of warnings" if n_warnings else ""
    return f"{count(n_sessions, 'session').capitalize()} as of {in_utc(facts.as_of)}{warnings}."


def _findings(findings: pl.DataFrame) -> list[Plain]:
    severity = pl.col("severity").replace_strict(
        {name: place for place, name in enumerate(FINDING_ORDER)},
        default=len(FINDING_ORDER),
        return_dtype=pl.Int8,
    )
    by_code = (
        findings.sort("source", "table", "column", "entity_type", "entity_id", "example")
        .group_by("code", "severity", maintain_order=True)
        .agg(
            n_findings=pl.len(),
            n_rows=pl.col("n_rows").fill_null(1).sum(),
            message=pl.col("message").drop_nulls().first(),
            example=pl.col("example").drop_nulls().first(),
            action=pl.col("action").drop_nulls().first(),
        )
        .sort(severity, "code")
    )
    return plain_rows(by_code)


def _entities(material: Material) -> list[Plain]:
    read = material.facts.entities.group_by("entity_type").agg(n_read=pl.len())
    shown = material.rows.group_by("entity_type").agg(n_in_window=pl.len())
    return plain_rows(
        read.join(shown, on="entity_type", how="left")
        .with_columns(pl.col("n_in_window").fill_null(0))
        .sort(-pl.col("n_read").cast(pl.Int64), "entity_type")
    )


def _coverage(ended: pl.DataFrame) -> list[Plain]:
    return [
        {
            "column": column,
            "title": title,
            "n_known": (n_known := ended[column].drop_nulls().len()),
            "n": ended.height,
            "share": n_known / ended.height if ended.height else None,
            "shown": share(n_known / ended.height if ended.height else None),
        }
        for column, title in COVERAGE.items()
    ]


def _left_out(rows: pl.DataFrame) -> list[Plain]:
    """Sessions of the window that no rate counts, by reason; reasons without rows too."""
    sessions = rows.filter(pl.col("entity_type") == "session")
    return [
        {
            "reason": reason,
            "meaning": meaning,
            "n": sessions.filter(pl.col("left_out") == reason).height,
        }
        for reason, meaning in LEFT_OUT.items()
    ]


SECTION = Section("provenance", "Data", summarize_provenance, place=125)
