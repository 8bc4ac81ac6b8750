"""Failure rates over time, and mass failures: hours in which almost every start failed.

A mass failure shows an outage, not the quality of the work, and dominates every rate that
it belongs to.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import with_group
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, check_number, check_one_of, check_share
from stateanalytics.failures.call_outcomes import CALL, OF, RUNS, call_rows, share_by_session
from stateanalytics.state.definitions import FAILURES, RUN, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, is_counted, rows_of, within
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.systems import all_systems

OTHERS = "(others)"
UNKNOWN = "(none)"
ALL = "all"

STEP_S = 3600.0
MOST_STEP_S = 366 * 86_400.0
SHARE = 0.8
"""In a mass failure more than this share of the starts of an interval fails."""

LEAST = 5
"""An interval with fewer starts is no mass failure, however many of them fail."""


def rates(
    snap: Facts,
    *,
    by: str | None = None,
    every: str = "1d",
    window: object = None,
    top: int = 5,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
    of: str = RUNS,
) -> pl.DataFrame:
    """Ended runs, failed runs and their share, and costs, by step of time and by a column.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    by : str, optional
        A text column of ``entity_states``: ``project``, ``model``, ``kind``, …; or of a
        table of your own, joined by the column that both have: ``teams.owner``.
    every : str
        Length of a step, as polars writes it: ``1h``, ``1d``, ``1w``.
    window : optional
        As `report` takes it; None: all time.
    top : int
        Number of values of ``by``, those with most runs; the rest become ``(others)``.
    policy : Policy, optional
        Determines outcomes; v1 by default.
    states : polars.DataFrame, optional
        The states of the snapshot, where the caller has them already.
    of : str
        runs, or calls: the calls of tools inside of runs, by ``tool`` too.

    Returns
    -------
    polars.DataFrame, shape (n_steps * n_values, 11)
        ``step_at`` and ``until`` (in UTC, weeks from Monday), ``value``, ``n_ended``,
        ``n_failed`` (timed out too), ``share`` of them with its 95 % interval (``share_low``,
        ``share_high``), ``cost_usd`` of all that ended, ``failed_cost_usd`` and
        ``n_cost_unreported``. Steps in which nothing ended have no row.

    Raises
    ------
    ArgumentError
        If there is no such column, or no such step.

    Notes
    -----
    The interval assumes independent runs; those of one fan-out are not, so that many
    failures at one time prove less than it suggests. That of calls is by session.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> days = sa.failures.rates(sa.demo(), window="2026-W21", by="project")
    >>> days["n_ended"].sum() > days["n_failed"].sum() > 0
    True
    """
    checked_snapshot(snap, "failures.rates")
    check_one_of(of, OF, "kind of failure")
    rows = rows_of(snap, policy=policy, states=states) if of == RUNS else call_rows(snap)
    if by is not None:
        own = getattr(snap, "own_tables", {})
        rows = with_group(rows, by, own, 'sa.failures.rates(snap, by="project")')
    if type(top) is not int or top < 0:
        raise ArgumentError(f"top counts values, 0 or more; found {top!r:.40}.", "top=5")
    if window is not None:
        rows = within(rows, read_window(window, as_of=snap.as_of), as_of=snap.as_of)
    run_types = {known.name: known.runs.entity_type for known in all_systems()}
    run_type = pl.col("system").replace_strict(run_types, default="session")
    run_type = run_type if of == RUNS else pl.lit(CALL)
    ended = counted(rows.filter(pl.col("entity_type") == run_type), None).filter(
        ~pl.col("is_open"), pl.col("ended_at").is_not_null()
    )
    value = pl.lit(ALL) if by is None else pl.col(by).cast(pl.String).fill_null(UNKNOWN)
    named = ended.with_columns(value=value)
    most = named["value"].value_counts().sort("count", "value", descending=[True, False])
    kept = most["value"].head(top).to_list()
    is_bad = pl.col("outcome").cast(pl.String).is_in(FAILURES)
    try:
        step = pl.col("ended_at").dt.truncate(every)
        steps = named.with_columns(
            step_at=step,
            until=step.dt.offset_by(every),
            value=pl.when(pl.col("value").is_in(kept)).then("value").otherwise(pl.lit(OTHERS)),
        )
        # Polars accepts "0d" and "-1d", too.
        if steps.select((pl.col("until") <= pl.col("step_at")).any()).item():
            raise pl.exceptions.InvalidOperationError("no length")
    except pl.exceptions.PolarsError as error:
        raise ArgumentError(
            f"every needs the length of a step; found {every!r:.40}.", 'every="1h", "1d" or "1w"'
        ) from error
    counted_steps = (
        steps.group_by("step_at", "until", "value")
        .agg(
            n_ended=pl.len().cast(pl.Int64),
            n_failed=is_bad.sum().cast(pl.Int64),
            cost_usd=pl.col("cost_usd").sum(),
            failed_cost_usd=pl.col("cost_usd").filter(is_bad).sum(),
            n_cost_unreported=pl.col("cost_usd").is_null().sum().cast(pl.Int64),
        )
        .with_columns(wilson_columns("n_failed", "n_ended"))
    )
    if of != RUNS:
        counted_steps = counted_steps.update(_by_session(steps), on=["step_at", "value"])
    return counted_steps.sort("step_at", "value").select(
        *("step_at", "until", "value", "n_ended", "n_failed"),
        *("share", "share_low", "share_high"),
        *("cost_usd", "failed_cost_usd", "n_cost_unreported"),
    )


def _by_session(steps: pl.DataFrame) -> pl.DataFrame:
    """The intervals of the share of failed calls in each step: those of a session depend."""
    rows = []
    for (step_at, value), some in steps.group_by("step_at", "value"):
        ends = share_by_session(some).interval() or (None, None)
        rows.append((step_at, value, *ends))
    names = ("step_at", "value", "share_low", "share_high")
    dtypes = (steps.schema["step_at"], pl.String, pl.Float64, pl.Float64)
    return pl.DataFrame(rows, schema=dict(zip(names, dtypes, strict=True)), orient="row")


def mass_failures(
    snap: Facts,
    *,
    window: object = None,
    step_s: float = STEP_S,
    share: float = SHARE,
    least: int = LEAST,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """How many of the runs that started in each interval failed, and which are mass failures.

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
        In a mass failure more than this share of the starts failed.
    least : int
        And there were at least so many starts.
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
    )


def _starts(
    rows: pl.DataFrame, *, step_s: float = STEP_S, share: float = SHARE, least: int = LEAST
) -> pl.DataFrame:
    """The started runs that rates may count, with ``interval_at``, ``has_failed``, ``is_mass``."""
    has_failed = pl.col("has_failed")
    is_mass = (has_failed.mean() > share) & (pl.len() >= least)
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
    starts = _starts(rows).filter("is_mass")
    # Rows that only group the work of others have no session of their own.
    applies = {"session_id": pl.lit(value=True), "invocation_id": pl.col("session_id").is_null()}
    marked = failed
    for key, condition in applies.items():
        ids = starts.select("source", key).drop_nulls().unique()
        marked = marked.join(
            ids.with_columns(pl.lit(value=True).alias(f"_by_{key}")),
            on=["source", key],
            how="left",
            maintain_order="left",
        ).with_columns((pl.col(f"_by_{key}") & condition).fill_null(value=False))
    is_mass = pl.any_horizontal(f"_by_{key}" for key in applies)
    return marked.with_columns(is_mass=is_mass).drop(f"_by_{key}" for key in applies)
