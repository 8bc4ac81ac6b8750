"""Mass failures: hours in which almost every start failed.

A mass failure shows an outage, not the quality of the work, and dominates every rate that
it belongs to.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import left_joined
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, check_number, check_share
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import is_counted, rows_of

UNKNOWN = "(none)"

STEP_S = 3600.0
MOST_STEP_S = 366 * 86_400.0
SHARE = 0.8
"""In a mass failure more than this share of the starts of an interval fails."""

LEAST = 5
"""An interval with fewer starts is no mass failure, however many of them fail."""


def mass_failures(
    snap: Facts,
    *,
    window: object = None,
    step_s: float = STEP_S,
    share: float = SHARE,
    least: int = LEAST,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """How many of the runs that started in each interval failed, and whether it is a mass failure.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        Only intervals that overlap the window, each with all of its starts; as in
        `read_window`; None: all time.
    step_s : float
        Seconds of an interval, at most 366 days; intervals are counted from 1970-01-01 (UTC),
        so that lengths that divide a day begin at midnight.
    share : float
        An interval is a mass failure if more than this share of its starts failed.
    least : int
        And if it has at least this many starts.
    policy : Policy, optional
        Which states count; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_intervals, 6)
        ``since``, ``until``; ``n_starts`` that rates may count, ``n_failed`` of them
        (failed or timed out, whenever), ``share``; ``is_mass``. Only intervals with
        starts, oldest first.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the window or a number makes no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> mass_failures(demo(), window="2026-W16").filter("is_mass")["n_failed"].to_list()
    [7, 7]
    """
    check_number("step_s", step_s, STEP_S, least=1)
    if step_s > MOST_STEP_S:
        raise ArgumentError(
            f"step_s needs at most {MOST_STEP_S:.0f} s (366 days); found {step_s!r:.40}.",
            f"step_s={STEP_S:.0f}",
        )
    check_share("share", share, SHARE)
    check_number("least", least, LEAST, least=1, is_whole=True)
    intervals = count_starts(rows_of(snap, policy=policy), step_s=step_s, share=share, least=least)
    if window is None:
        return intervals
    chosen = read_window(window, as_of=snap.as_of)
    return intervals.filter(pl.col("until") > chosen.since, pl.col("since") < chosen.until)


def count_starts(
    rows: pl.DataFrame, *, step_s: float = STEP_S, share: float = SHARE, least: int = LEAST
) -> pl.DataFrame:
    """Count the starts of a `population` by interval; see `mass_failures` for the columns."""
    return (
        _starts(rows, step_s=step_s, share=share, least=least)
        .lazy()
        .group_by(since="interval_at")
        .agg(
            n_starts=pl.len().cast(pl.Int64),
            n_failed=pl.col("has_failed").sum().cast(pl.Int64),
            share=pl.col("has_failed").mean(),
            is_mass=pl.col("is_mass").first(),
        )
        .with_columns(until=pl.col("since") + timedelta(seconds=step_s))
        .sort("since")
        .select("since", "until", "n_starts", "n_failed", "share", "is_mass")
        .collect()
    )


def _starts(
    rows: pl.DataFrame, *, step_s: float = STEP_S, share: float = SHARE, least: int = LEAST
) -> pl.DataFrame:
    """The started runs that rates may count, with ``interval_at``, ``has_failed``, ``is_mass``."""
    is_mass = (pl.col("has_failed").mean() > share) & (pl.len() >= least)
    started_at = pl.coalesce("started_at", "created_at")
    return (
        rows.lazy()
        .filter(is_counted(RUN))
        .select(
            *("source", "session_id", "invocation_id"),
            interval_at=started_at.dt.truncate(f"{int(step_s * 1e6)}us"),
            has_failed=is_failure().fill_null(value=False),
        )
        .drop_nulls("interval_at")
        .with_columns(is_mass=is_mass.over("interval_at"))
        .collect()
    )


def without_mass(rows: pl.DataFrame) -> pl.DataFrame:
    """A `population` without the rows that belong to a mass failure."""
    return rows.filter(~add_mass(rows, rows)["is_mass"])


def add_mass(failed: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_mass`` to rows: whether their session, or one of their request, started in one."""
    starts = _starts(rows).lazy().filter("is_mass")
    # Rows that only group the work of others have no session of their own.
    applies = {"session_id": pl.lit(value=True), "invocation_id": pl.col("session_id").is_null()}
    marked = failed.lazy()
    for key, condition in applies.items():
        ids = starts.select("source", key).drop_nulls().unique()
        is_known = pl.lit(value=True).alias(f"_by_{key}")
        joined = left_joined(marked, ids.with_columns(is_known), on=["source", key])
        marked = joined.with_columns((pl.col(f"_by_{key}") & condition).fill_null(value=False))
    is_mass = pl.any_horizontal(f"_by_{key}" for key in applies)
    return marked.with_columns(is_mass=is_mass).drop(f"_by_{key}" for key in applies).collect()
