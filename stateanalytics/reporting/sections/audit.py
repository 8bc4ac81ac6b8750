"""Contradictions in the data, such as histories that their status graphs do not allow."""

from __future__ import annotations

import polars as pl

from stateanalytics.auditing import CODES, audited
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.words import count, say
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows

N_EXAMPLES = 3
# How the page names the verdicts on a status change.
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
    """Contradictions by code with examples, and status changes by their legality."""
    whole = material.whole
    contradictions, transitions = audited(whole.facts, policy=whole.policy, states=whole.states)
    by_code = {rows["code"][0]: rows for rows in contradictions.partition_by("code")}
    return {
        "finding": _finding(contradictions, transitions),
        "denominator": say("audit.counted"),
        "n": contradictions.height,
        "n_warnings": contradictions.filter(pl.col("severity") == "warning").height,
        "codes": [
            _code(code, rows)
            for code in sorted(CODES, key=lambda code: CODES[code].severity == "info")
            if (rows := by_code.get(code)) is not None
        ],
        "transitions": _transitions(transitions),
    }


def _code(code: str, rows: pl.DataFrame) -> Plain:
    about = CODES[code]
    evidence = ("entity_type", "entity_id", "at", "says", "against")
    examples = plain_rows(rows.head(N_EXAMPLES), evidence)
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
    """Counts by entity type (rows) and verdict (columns); only verdicts that occur."""
    occurring = [verdict for verdict in VERDICTS if verdict in counts["verdict"].to_list()]
    by_type = {(row[0], row[1]): row[2] for row in counts.iter_rows()}
    return {
        "columns": [VERDICTS[verdict] for verdict in occurring],
        "rows": [
            {
                "entity_type": entity_type,
                "counts": [by_type.get((entity_type, verdict), 0) for verdict in occurring],
            }
            for entity_type in counts["entity_type"].unique().sort()
        ],
    }


def _finding(contradictions: pl.DataFrame, transitions: pl.DataFrame) -> str:
    n_changes = int(transitions["n"].sum())
    counts = transitions[["verdict", "n"]].iter_rows()
    n_illegal = sum(n for verdict, n in counts if verdict.startswith("illegal"))
    valid = "audit.only_valid" if n_changes == 1 else "audit.all_valid"
    name = "audit.illegal" if n_illegal else valid if n_changes else "audit.no_change"
    changes = say(name, n=n_changes, n_illegal=n_illegal)
    if contradictions.is_empty():
        return say("audit.none", changes=changes)
    n_warnings = int((contradictions["severity"] == "warning").sum())
    kinds = {"contradiction": n_warnings, "explained exception": contradictions.height - n_warnings}
    return say(
        "audit.found",
        kinds=[count(n, noun) for noun, n in kinds.items() if n],
        n=contradictions[list(ENTITY_KEY)].n_unique(),
        changes=changes,
    )


SECTION = Section("audit", "Audit", summarize_audit, place=120, needs=("n",))
