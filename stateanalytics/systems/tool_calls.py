"""Calls of tools of any system in one shape, each with one outcome."""

from __future__ import annotations

from functools import cache

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import CALLS

_OUTCOMES = {
    "denied": ("permission_rejected", "permission_denied", "hook_blocked", "declined"),
    "timed_out": ("timeout", "timed_out"),
    "interrupted": ("interrupted", "user_interrupt", "cancelled", "aborted", "shutdown"),
}
"""By outcome the causes that mean it; any other cause is a failure."""


@cache
def expected_exits() -> pl.DataFrame:
    """``last_command``, ``exit_code``: exits other than 0 that are an answer, not a failure."""
    rows = pl.DataFrame(table_rows("stateanalytics.core", "expected_exits.csv"))
    return rows.select(
        last_command="command", exit_code=pl.col("exit_code").cast(pl.Int64), is_expected=True
    )


def calls_from(tools: pl.DataFrame, system: str) -> pl.DataFrame:
    """The calls in a system's own frame of them.

    Parameters
    ----------
    tools : polars.DataFrame
        Columns of `schema.CALLS` under their names, as far as the system knows them, and
        ``is_error`` (null: without a result).
    system : str
        Its name.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.CALLS`, in order of time within each thread.

    Notes
    -----
    A command that answers with an exit code, such as ``grep`` without a hit, did not fail:
    ``core/data/expected_exits.csv`` names these, with a source for each.
    """
    shaped = CALLS.conform(tools)
    lasted = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    rows = shaped.with_columns(
        tools["is_error"],
        system=pl.lit(system),
        duration_s=pl.coalesce("duration_s", lasted),
    ).join(expected_exits(), on=["last_command", "exit_code"], how="left", maintain_order="left")
    by_cause = [
        pl.when(pl.col("cause").is_in(list(causes))).then(pl.lit(outcome))
        for outcome, causes in _OUTCOMES.items()
    ]
    is_open = pl.col("ended_at").is_null() | pl.col("is_error").is_null()
    outcome = pl.coalesce(
        *by_cause,
        pl.when(is_open).then(pl.lit("unknown")),
        pl.when(~pl.col("is_error")).then(pl.lit("ok")),
        pl.when("is_expected").then(pl.lit("expected_nonzero")),
        pl.lit("failed"),
    )
    return CALLS.conform(rows.with_columns(outcome=outcome)).sort(
        "source", "thread_id", "started_at", maintain_order=True
    )
