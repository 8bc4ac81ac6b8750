"""Failures by reason code: rows, sessions, distinct causes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import polars as pl

from stateanalytics.core.schema import OUTCOMES
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, MissingColumnsError, did_you_mean
from stateanalytics.failures.causes import NEEDED, cause_key
from stateanalytics.state.population import counted, population

FAILURES = ("failed", "timed_out")


class HasFacts(Protocol):
    """What is needed of facts: a `Facts`, or a snapshot."""

    @property
    def entities(self) -> pl.DataFrame:
        """Canonical entities."""
        ...

    @property
    def as_of(self) -> object:
        """The instant the facts hold for."""
        ...


def by_reason_code(
    facts: HasFacts,
    states: pl.DataFrame,
    *,
    window: object = None,
    outcomes: Collection[str] = FAILURES,
) -> pl.DataFrame:
    """What failed, by the reason that was stored.

    Parameters
    ----------
    facts : Facts or Snapshot
        Anything with ``entities`` and ``as_of``.
    states : polars.DataFrame
        What `states` gave for them.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    outcomes : collection of str
        What counts as a failure; failed and timed_out, as lionagi counts causes.

    Returns
    -------
    polars.DataFrame, shape (n_codes, 10)
        ``code`` (null: none was stored), ``n_rows`` (entities of every type),
        ``n_failed`` and ``n_timed_out`` (parts of it), ``n_sessions``, ``n_causes``
        (`cause_key`), ``share`` (``n_rows`` of the rows of all codes), ``first_at``,
        ``last_at``, ``example`` (newest message). Most causes first, then rows, then code.

    Raises
    ------
    ArgumentError
        If an outcome is not in the vocabulary, or the window makes no sense.

    Notes
    -----
    Legacy, mirrored and imported rows are left out (`population`). One failure may be
    several rows: a play, its session and its invocation all fail; causes say how many
    different things went wrong.
    """
    if wrong := sorted(set(outcomes) - set(OUTCOMES)):
        raise ArgumentError(
            f"outcomes needs words of {list(OUTCOMES)}; found {wrong}.",
            "outcomes=('failed', 'timed_out')" + did_you_mean(wrong[0], OUTCOMES),
        )
    as_of = facts.as_of
    chosen = None if window is None else read_window(window, as_of=as_of)  # type: ignore[arg-type]
    rows = population(facts.entities, states, as_of=as_of, window=chosen)  # type: ignore[arg-type]
    return count_by_reason_code(select_failures(rows, outcomes))


def select_failures(rows: pl.DataFrame, outcomes: Collection[str] = FAILURES) -> pl.DataFrame:
    """The rows of a `population` that count as failures.

    Each failed work once: a branch only repeats what became of its session, and so do
    the parts of a turn (`rules.mirrors`).
    """
    return counted(rows).filter(pl.col("outcome").is_in(list(outcomes)))


def count_by_reason_code(failed: pl.DataFrame) -> pl.DataFrame:
    """Count failed rows by reason code; see `by_reason_code` for the columns."""
    needed = (*NEEDED, "outcome", "placed_at", "reason_message")
    if missing := [name for name in needed if name not in failed.columns]:
        raise MissingColumnsError.of(missing, failed.columns, "count_by_reason_code")
    newest_first = pl.struct(
        -pl.col("placed_at").dt.epoch("us").fill_null(0), "entity_type", "entity_id"
    )
    has_message = pl.col("reason_message").str.len_bytes() > 0
    return (
        failed.with_columns(cause_key())
        .group_by(pl.col("reason_code").alias("code"))
        .agg(
            n_rows=pl.len().cast(pl.Int64),
            n_failed=(pl.col("outcome") == "failed").sum().cast(pl.Int64),
            n_timed_out=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64),
            n_sessions=pl.struct("source", "session_id")
            .filter(pl.col("session_id").is_not_null())
            .n_unique()
            .cast(pl.Int64),
            n_causes=pl.col("cause").n_unique().cast(pl.Int64),
            first_at=pl.col("placed_at").min(),
            last_at=pl.col("placed_at").max(),
            example=pl.col("reason_message")
            .filter(has_message)
            .sort_by(newest_first.filter(has_message))
            .first(),
        )
        # By a whole column: polars divides by one number through its rounded inverse.
        .with_columns(share=pl.col("n_rows") / pl.col("n_rows").sum().over(pl.lit(1)))
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
        .select(
            "code",
            "n_rows",
            "n_failed",
            "n_timed_out",
            "n_sessions",
            "n_causes",
            "share",
            "first_at",
            "last_at",
            "example",
        )
    )
