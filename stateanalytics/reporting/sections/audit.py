"""Where the data contradict themselves: histories against their graphs, and all the rest."""

from __future__ import annotations

import polars as pl

from stateanalytics.auditing import CODES, audited
from stateanalytics.core.formatting import count, listed, number
from stateanalytics.reporting.material import Material, Plain, Section, iso

N_EXAMPLES = 3
# Verdicts of a change of status -> what people call it.
VERDICTS = {
    "first": "first on record",
    "legal": "legal",
    "same_status": "same status again",
    "override": "override",
    "illegal_before_0_28": "illegal, before 0.28",
    "illegal": "illegal",
    "unknown": "unknown word",
}


def summarize_audit(material: Material) -> Plain:
    """Contradictions by code with examples, and changes of status by their legality."""
    facts, policy = material.facts, material.policy
    contradictions, transitions = audited(facts, policy=policy, states=material.states)
    return {
        "finding": _sentence(contradictions, transitions),
        "denominator": "all entities and changes of status that were read, of any time",
        "n": contradictions.height,
        "n_warnings": contradictions.filter(pl.col("severity") == "warning").height,
        "codes": [
            _code(code, rows)
            for code in sorted(CODES, key=lambda code: CODES[code].severity == "info")
            if (rows := contradictions.filter(pl.col("code") == code)).height
        ],
        "transitions": _transitions(transitions),
    }


def _code(code: str, rows: pl.DataFrame) -> Plain:
    about = CODES[code]
    examples = [
        {
            "entity_type": row["entity_type"],
            "entity_id": row["entity_id"],
            "at": iso(row["at"]),
            "says": row["says"],
            "against": row["against"],
        }
        for row in rows.head(N_EXAMPLES).iter_rows(named=True)
    ]
    return {
        "code": code,
        "severity": about.severity,
        "n": rows.height,
        "message": about.message,
        # Systems may each have a command of their own for it.
        "what_to_do": "; ".join(rows["what_to_do"].unique(maintain_order=True)),
        "examples": examples,
        "n_not_shown": rows.height - len(examples),
    }


def _transitions(counts: pl.DataFrame) -> Plain:
    """Rows by entity type, columns by verdict; verdicts that do not occur have no column."""
    there = [verdict for verdict in VERDICTS if verdict in counts["verdict"].to_list()]
    by_type = {(row[0], row[1]): row[2] for row in counts.iter_rows()}
    types = counts["entity_type"].unique().sort().to_list()
    return {
        "columns": [VERDICTS[verdict] for verdict in there],
        "rows": [
            {
                "entity_type": entity_type,
                "counts": [by_type.get((entity_type, verdict), 0) for verdict in there],
            }
            for entity_type in types
        ],
    }


def _sentence(contradictions: pl.DataFrame, transitions: pl.DataFrame) -> str:
    n_changes = int(transitions["n"].sum())
    illegal = transitions.filter(pl.col("verdict").str.starts_with("illegal"))
    n_illegal = int(illegal["n"].sum())
    changes = "no status change is recorded"
    if n_illegal:
        are = "is" if n_illegal == 1 else "are"
        changes = f"of {count(n_changes, 'status change')} {number(n_illegal)} {are} illegal"
    elif n_changes:
        changes = (
            "the only status change is valid"
            if n_changes == 1
            else f"all {number(n_changes)} status changes are valid"
        )
    if contradictions.is_empty():
        return f"The data nowhere contradict themselves; {changes}."
    n_warnings = contradictions.filter(pl.col("severity") == "warning").height
    what = listed(
        [count(n_warnings, "contradiction")] * bool(n_warnings)
        + [count(contradictions.height - n_warnings, "explained exception")]
        * (contradictions.height > n_warnings)
    )
    n_entities = contradictions.select("source", "system", "entity_type", "entity_id").n_unique()
    return f"{what} in {count(n_entities, 'entity', 'entities')}; {changes}."


SECTION = Section("audit", "Audit", summarize_audit, place=120)
