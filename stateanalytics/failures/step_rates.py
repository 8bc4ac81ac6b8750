"""How many runs ended, how many of them failed and what they cost, over steps of time."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.own_columns import with_group
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, rows_of, within
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.systems import all_systems

OTHERS = "(others)"
UNKNOWN = "(none)"
ALL = "all"
BAD = ("failed", "timed_out")


def rates(
    snap: Facts,
    *,
    by: str | None = None,
    every: str = "1d",
    window: object = None,
    top: int = 5,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Ended runs, failed ones and their share, and costs, by step of time and by a column.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    by : str, optional
        A column of words of ``entity_states``: ``project``, ``model``, ``kind``, …; or of a
        table of yours, joined by the column that both have: ``teams.owner``.
    every : str
        Length of a step, as polars says it: ``1h``, ``1d``, ``1w``.
    window : optional
        As `report` takes it; None: all time.
    top : int
        Values of ``by`` with most runs; the rest are one more, ``(others)``.
    policy : Policy, optional
        Tells outcomes; v1 by default.
    states : polars.DataFrame, optional
        The states of the snapshot, where they are at hand.

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
    The interval takes runs for independent; those of one fan-out are not, so that many
    failures at once prove less than it says.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> days = sa.failures.rates(sa.demo(), window="2026-W21", by="project")
    >>> days["n_ended"].sum() > days["n_failed"].sum() > 0
    True
    """
    checked_snapshot(snap, "failures.rates")
    rows = rows_of(snap, policy=policy, states=states)
    if by is not None:
        own = getattr(snap, "own_tables", {})
        rows = with_group(rows, by, own, 'sa.failures.rates(snap, by="project")')
    if type(top) is not int or top < 0:
        raise ArgumentError(f"top counts values, 0 or more; found {top!r:.40}.", "top=5")
    if window is not None:
        rows = within(rows, read_window(window, as_of=snap.as_of), as_of=snap.as_of)
    run_types = {known.name: known.run_type for known in all_systems()}
    run_type = pl.col("system").replace_strict(run_types, default="session")
    ended = counted(rows.filter(pl.col("entity_type") == run_type), None).filter(
        ~pl.col("is_open"), pl.col("ended_at").is_not_null()
    )
    value = pl.lit(ALL) if by is None else pl.col(by).cast(pl.String).fill_null(UNKNOWN)
    named = ended.with_columns(value=value)
    most = named["value"].value_counts().sort("count", "value", descending=[True, False])
    kept = most["value"].head(top).to_list()
    is_bad = pl.col("outcome").cast(pl.String).is_in(BAD)
    try:
        step = pl.col("ended_at").dt.truncate(every)
        steps = named.with_columns(
            step_at=step,
            until=step.dt.offset_by(every),
            value=pl.when(pl.col("value").is_in(kept)).then("value").otherwise(pl.lit(OTHERS)),
        )
        # Polars takes "0d" and "-1d", too.
        if steps.select((pl.col("until") <= pl.col("step_at")).any()).item():
            raise pl.exceptions.InvalidOperationError("a step without length")
    except pl.exceptions.PolarsError as error:
        raise ArgumentError(
            f"every needs the length of a step; found {every!r:.40}.", 'every="1h", "1d" or "1w"'
        ) from error
    return (
        steps.group_by("step_at", "until", "value")
        .agg(
            n_ended=pl.len().cast(pl.Int64),
            n_failed=is_bad.sum().cast(pl.Int64),
            cost_usd=pl.col("cost_usd").sum(),
            failed_cost_usd=pl.col("cost_usd").filter(is_bad).sum(),
            n_cost_unreported=pl.col("cost_usd").is_null().sum().cast(pl.Int64),
        )
        .with_columns(wilson_columns("n_failed", "n_ended"))
        .sort("step_at", "value")
        .select(
            *("step_at", "until", "value", "n_ended", "n_failed"),
            *("share", "share_low", "share_high"),
            *("cost_usd", "failed_cost_usd", "n_cost_unreported"),
        )
    )
