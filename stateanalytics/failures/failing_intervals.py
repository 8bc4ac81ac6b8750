"""Mass failures: stretches of time in which almost everything that was started failed.

They tell of an outage, not of the work, and drown every rate that they belong to.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, check_number, check_share
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.state.population import is_counted, rows_of

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

STEP_S = 3600.0
MOST_STEP_S = 366 * 86_400.0
SHARE = 0.8
"""More than this share of the starts of a stretch fails in a mass failure."""

LEAST = 5
"""Fewer starts are no mass, however many of them fail."""


def mass_failures(
    snap: Facts,
    *,
    window: object = None,
    step_s: float = STEP_S,
    share: float = SHARE,
    least: int = LEAST,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """How many of the runs that were started in each stretch of time failed.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        Which stretches are told: those that it touches, each with all of its starts; as in
        `read_window`; None: all time.
    step_s : float
        Seconds of a stretch, at most 366 days; stretches are counted from 1970-01-01 (UTC),
        so that steps that divide a day begin at midnight.
    share : float
        A mass failure fails more than this share of the starts.
    least : int
        And has at least so many starts.
    policy : Policy, optional
        Which states count; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_stretches, 6)
        ``since``, ``until``; ``n_starts`` that rates may count, ``n_failed`` of them
        (failed or timed out, whenever), ``share``; ``is_mass``. Only stretches with
        starts, oldest first.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or a number does not.

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
    stretches = count_starts(rows_of(snap, policy=policy), step_s=step_s, share=share, least=least)
    if window is None:
        return stretches
    asked = read_window(window, as_of=snap.as_of)
    return stretches.filter(pl.col("until") > asked.since, pl.col("since") < asked.until)


def count_starts(
    rows: pl.DataFrame, *, step_s: float = STEP_S, share: float = SHARE, least: int = LEAST
) -> pl.DataFrame:
    """Count the starts of a `population` by stretch; see `mass_failures` for the columns."""
    return (
        mark_mass(rows, step_s=step_s, share=share, least=least)
        .group_by(since="stretch_at")
        .agg(
            n_starts=pl.len().cast(pl.Int64),
            n_failed=pl.col("has_failed").sum().cast(pl.Int64),
            share=pl.col("has_failed").mean(),
            is_mass=pl.col("is_mass").first(),
        )
        .with_columns(until=pl.col("since") + timedelta(seconds=step_s))
        .sort("since")
        .select("since", "until", "n_starts", "n_failed", "share", "is_mass")
    )


def mark_mass(
    rows: pl.DataFrame, *, step_s: float = STEP_S, share: float = SHARE, least: int = LEAST
) -> pl.DataFrame:
    """The runs of a `population` that rates may count, and which were started in a mass failure.

    Parameters
    ----------
    rows : polars.DataFrame
        What `population` gave.
    step_s, share, least : float, float, int
        See `mass_failures`.

    Returns
    -------
    polars.DataFrame
        ``source``, ``session_id``, ``invocation_id``, ``stretch_at`` (when its stretch
        began), ``has_failed`` and ``is_mass``; runs without a start are left out.
    """
    has_failed = pl.col("has_failed")
    is_mass = (has_failed.mean() > share) & (pl.len() >= least)
    started_at = pl.coalesce("started_at", "created_at")
    return (
        rows.lazy()
        .filter(is_counted(RUN))
        .select(
            *("source", "session_id", "invocation_id"),
            stretch_at=started_at.dt.truncate(f"{int(step_s * 1e6)}us"),
            has_failed=is_failure().fill_null(value=False),
        )
        .drop_nulls("stretch_at")
        .with_columns(is_mass=is_mass.over("stretch_at"))
        .collect()
    )


def without_mass(rows: pl.DataFrame) -> pl.DataFrame:
    """A `population` without what was started in a mass failure."""
    return rows.filter(~add_mass(rows, rows)["is_mass"])


def add_mass(failed: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_mass`` to rows: does their session, or one of their request, tell of one."""
    marked = mark_mass(rows).filter("is_mass")
    # What holds the work of others has no session of its own.
    keys = {"session_id": pl.lit(value=True), "invocation_id": pl.col("session_id").is_null()}
    found = failed
    for key, is_asked in keys.items():
        ids = marked.select("source", key).drop_nulls().unique().with_columns(_found=True)
        found = found.join(ids, on=["source", key], how="left", maintain_order="left").rename(
            {"_found": f"_by_{key}"}
        )
        found = found.with_columns((pl.col(f"_by_{key}") & is_asked).fill_null(value=False))
    is_mass = pl.any_horizontal(f"_by_{key}" for key in keys)
    return found.with_columns(is_mass=is_mass).drop(f"_by_{key}" for key in keys)
