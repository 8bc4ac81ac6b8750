"""What is counted of every group of failures, whatever it is grouped by."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.failures.costs import sum_costs
from stateanalytics.stats.intervals import wilson_columns


def count_groups(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Count failures by group.

    Parameters
    ----------
    rows : polars.DataFrame
        `failure_members`; ``cause`` may be missing in no row.
    by : sequence of str
        What names a group; null is a name, too.

    Returns
    -------
    polars.DataFrame
        ``by``; ``n_rows`` (``n_failed``, ``n_timed_out``), ``n_sessions``, ``n_causes``;
        ``share`` of all distinct causes, from ``share_low`` to ``share_high`` (Wilson,
        95 %); ``first_at``, ``last_at``; the `sum_costs`; ``systems`` and
        ``entity_types``, joined by ', '. In any order.
    """
    sessions = pl.struct("source", "session_id").filter(pl.col("session_id").is_not_null())
    n_all = rows["cause"].n_unique()
    return (
        rows.group_by(by)
        .agg(
            n_rows=pl.len().cast(pl.Int64),
            n_failed=(pl.col("outcome") == "failed").sum().cast(pl.Int64),
            n_timed_out=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64),
            n_sessions=sessions.n_unique().cast(pl.Int64),
            n_causes=pl.col("cause").n_unique().cast(pl.Int64),
            first_at=pl.col("failed_at").min(),
            last_at=pl.col("failed_at").max(),
            **sum_costs(),
            systems=pl.col("system").unique().sort().str.join(", "),
            entity_types=pl.col("entity_type").unique().sort().str.join(", "),
        )
        .with_columns(n_all=pl.lit(n_all, pl.Int64))
        .with_columns(wilson_columns("n_causes", "n_all"))
        .drop("n_all")
    )
