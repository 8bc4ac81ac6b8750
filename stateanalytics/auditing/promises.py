"""Verdicts about outputs, reasons and statuses against each other."""

from __future__ import annotations

import polars as pl

from stateanalytics.auditing.cases import Cases, told, word
from stateanalytics.state.transition_graphs import LIFECYCLES

_MISSING = "run.failed.missing_artifact"


def verdicts(cases: Cases) -> pl.DataFrame:
    """Verdicts that the reason, the status or the verdict's own counts exclude."""
    rows = cases.of_system("lionagi").filter(pl.col("verdict").is_not_null())
    n_missing = pl.col("n_required_missing")
    for_nothing = (pl.col("reason_code") == _MISSING) & (
        (n_missing == 0) | pl.col("verdict").is_in(["passed", "warning"])
    )
    despite = (pl.col("raw_status") == "completed") & (pl.col("verdict") == "failed")
    counts = ((pl.col("verdict") == "passed") & (n_missing > 0)) | (
        (pl.col("verdict") == "failed") & (n_missing == 0) & (pl.col("n_produced") > 0)
    )
    said = pl.format(
        "verdict {}, {} required outputs missing",
        word("verdict"),
        n_missing.cast(pl.String).fill_null("an unknown number of"),
    )
    ended = pl.format("status {} with reason {}", word("raw_status"), word("reason_code"))
    return pl.concat(
        [
            told(
                rows.filter(for_nothing | despite),
                "audit.verdict_contradicts_reason",
                at="ended_at",
                says=ended,
                against=said,
            ),
            told(
                rows.filter(counts & pl.col("is_verdict_valid").fill_null(value=True)),
                "audit.verdict_contradicts_counts",
                at="ended_at",
                says=pl.format("verdict {}", word("verdict")),
                against=said,
            ),
        ]
    )


def reasons(cases: Cases) -> pl.DataFrame:
    """Reason codes from a domain that the entity type does not declare as its own."""
    own = {
        cycle.entity_type: [f"{prefix}." for prefix in cycle.reason_prefixes]
        for cycle in LIFECYCLES
        if cycle.has_reason_columns
    }
    code = pl.col("reason_code")
    foreign = pl.any_horizontal(
        (pl.col("entity_type") == entity_type)
        & ~pl.any_horizontal(code.str.starts_with(prefix) for prefix in prefixes)
        for entity_type, prefixes in own.items()
    )
    # `legacy.imported` is everybody's.
    rows = cases.of_system("lionagi").filter(foreign, ~code.str.starts_with("legacy."))
    return told(
        rows,
        "audit.reason_of_other_entity",
        at=pl.coalesce("ended_at", "updated_at"),
        says=pl.format("a {} with status {}", "entity_type", word("raw_status")),
        against=pl.format("reason {}", word("reason_code")),
    )
