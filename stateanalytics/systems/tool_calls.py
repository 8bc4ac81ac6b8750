"""Calls of tools of any system in one shape, each with one outcome."""

from __future__ import annotations

from datetime import datetime
from functools import cache

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import CALLS, RESULTS

MOST_MESSAGE_CHARS = 500
_MOST_CHARS = 4000
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


def ends_of(sql: str) -> str:
    """SQL: a text, or the beginning and the end of a long one, which are all that is needed."""
    both = f"substr({sql}, 1, {_MOST_CHARS}) || substr({sql}, -{_MOST_CHARS})"
    return f"CASE WHEN length({sql}) > {2 * _MOST_CHARS} THEN {both} ELSE {sql} END"


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
        In the shape of `schema.CALLS`, in order of time within each part of a thread.

    Notes
    -----
    A command that answers with an exit code, such as ``grep`` without a hit, did not fail:
    ``core/data/expected_exits.csv`` names these, with a source for each.
    """
    shaped = CALLS.conform(tools)
    lasted = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    # A result that is older than its call has a wrong time.
    lasted = pl.when(lasted >= 0).then(lasted)
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
        "source", "thread_id", "part_id", "started_at", maintain_order=True
    )


def in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls from a system's own frame that has the columns of `schema.CALLS`, in their order."""
    place = ("source", "thread_id", "part_id", "started_at", "entity_id")
    return CALLS.conform(calls).sort(place)


def calls_until(calls: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The calls that had begun at an instant; of those that had not ended, no result."""
    began = calls.filter(pl.coalesce("started_at", "ended_at") <= at)
    is_open = pl.col("ended_at") > at
    of_end = ("ended_at", "duration_s", "cause", "message", "exit_code", *RESULTS.dtypes)
    return began.with_columns(
        outcome=pl.when(is_open).then(pl.lit("unknown")).otherwise("outcome"),
        **{name: pl.when(~is_open.fill_null(value=False)).then(name) for name in of_end},
    )
