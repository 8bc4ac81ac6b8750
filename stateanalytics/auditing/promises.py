"""Verdicts about outputs, reasons and statuses against each other."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.audit import Cases, told, word

_MISSING = "run.failed.missing_artifact"


def verdicts(cases: Cases) -> pl.DataFrame:
    """Verdicts that the reason, the status or the verdict's own counts exclude."""
    rows = cases.rows.filter(pl.col("verdict").is_not_null())
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
