"""Time limits: where they are known from, and whether runs end at them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import TIMEOUTS
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.state.policy import Policy
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.survival.heaping import implicit_timeouts
from stateanalytics.survival.risk_sets import strata_of
from stateanalytics.survival.run_spells import spells

# A limit that the data do not tell is looked for among work that may share one.
SHARES_A_LIMIT = ("system", "kind")


def timeouts(
    snap: Facts,
    *,
    window: object = None,
    tolerance_s: float = 5.0,
    states: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Runs that have a time limit, or ended at one, beside how long they took.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : optional
        Runs that started in it, as `report` takes it; None: all time.
    tolerance_s : float
        How far from its limit a run may end and still have hit it: stopping takes a while.
    states : polars.DataFrame, optional
        States of the snapshot where they are at hand.
    policy : Policy, optional
        For computing them.

    Returns
    -------
    polars.DataFrame, shape (n_runs, 19)
        ``schema.TIMEOUTS``: ``limit_s``, ``limit_from`` (checkpoint, metadata; inferred:
        nobody declared it, but many ends lie there, see `implicit_timeouts`; null: not
        known), ``over_s`` (elapsed minus limit), ``fits`` (at_limit, before, after: it hit
        another deadline; null without a limit) and ``has_no_turns`` (it never spoke; null:
        not known). Runs with no known limit are there if they timed out.

    Raises
    ------
    ArgumentError
        If the tolerance is negative, or the window makes no sense.

    Notes
    -----
    A timeout is no failure: it is a bound that someone chose. Runs whose times cannot be
    trusted, and those that a reaper called timed out, are left out.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> timeouts(demo())["limit_from"].unique().sort().to_list()
    [None, 'checkpoint', 'inferred']
    """
    if not tolerance_s >= 0:
        raise ArgumentError(
            f"tolerance_s needs to be at least 0 seconds; found {tolerance_s!r}.", "tolerance_s=5"
        )
    runs = spells(snap, window=window, timeouts="event", states=states, policy=policy).filter(
        pl.col("left_out").is_null()
    )
    heaps = implicit_timeouts(runs).select(*SHARES_A_LIMIT, "at_s")
    is_over = ~pl.col("ending").is_in(["completed", "running"])
    near = (
        runs.join(heaps, on=list(SHARES_A_LIMIT), how="inner", nulls_equal=True)
        .filter(is_over, pl.col("timeout_s").is_null())
        .filter((pl.col("duration_s").round() - pl.col("at_s")).abs() <= 1)
        .select(*_KEY, "at_s")
        .unique(list(_KEY), keep="first")
    )
    limit = pl.coalesce("timeout_s", pl.col("at_s").cast(pl.Float64))
    is_inferred = pl.col("timeout_s").is_null() & pl.col("at_s").is_not_null()
    over = pl.col("duration_s") - limit
    is_listed = limit.is_not_null() | (pl.col("ending") == "timed_out")
    return TIMEOUTS.conform(
        runs.join(near, on=list(_KEY), how="left", maintain_order="left")
        .filter(is_listed)
        .with_columns(
            elapsed_s="duration_s",
            limit_s=limit,
            limit_from=pl.when(is_inferred).then(pl.lit("inferred")).otherwise("timeout_from"),
            over_s=over,
            fits=pl.when(over.abs() <= tolerance_s)
            .then(pl.lit("at_limit"))
            .when(over < 0)
            .then(pl.lit("before"))
            .when(over > 0)
            .then(pl.lit("after")),
            has_no_turns=pl.col("n_turns") == 0,
        )
    )


def count_timeouts(timeouts: pl.DataFrame, by: str | Sequence[str] = ("kind",)) -> pl.DataFrame:
    """What runs did at each limit: how many it stopped, and how many of those never spoke.

    Parameters
    ----------
    timeouts : polars.DataFrame
        What `timeouts` gave.
    by : str or sequence of str
        Columns to count apart, besides the limit.

    Returns
    -------
    polars.DataFrame, shape (n_limits, n_by + 11)
        ``limit_s`` and ``limit_from``; ``n_runs``; ``n_timed_out`` with its share and
        Wilson interval (``stopped``, ``stopped_low``, ``stopped_high``), of them
        ``n_at_limit``, ``n_elsewhere`` (they hit another deadline), ``n_no_turns`` and
        ``n_turns_unknown``.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> count_timeouts(timeouts(demo()))["n_timed_out"].sum() > 0
    True
    """
    strata = strata_of(by)
    needed = [*strata, "limit_s", "limit_from", "ending", "fits", "has_no_turns"]
    if missing := [name for name in needed if name not in timeouts.columns]:
        raise MissingColumnsError.of(missing, timeouts.columns, "count_timeouts")
    stopped = pl.col("ending") == "timed_out"
    counts = {
        "n_runs": pl.len(),
        "n_timed_out": stopped.sum(),
        "n_at_limit": (stopped & (pl.col("fits") == "at_limit")).sum(),
        "n_elsewhere": (stopped & (pl.col("fits") != "at_limit")).sum(),
        "n_no_turns": (stopped & pl.col("has_no_turns")).sum(),
        "n_turns_unknown": (stopped & pl.col("has_no_turns").is_null()).sum(),
    }
    key = [*strata, "limit_s", "limit_from"]
    names = list(counts)
    return (
        timeouts.group_by(key)
        .agg(count.cast(pl.Int64).alias(name) for name, count in counts.items())
        .with_columns(wilson_columns("n_timed_out", "n_runs", prefix="stopped"))
        .sort(key, nulls_last=True)
        .select(*key, *names[:2], "stopped", "stopped_low", "stopped_high", *names[2:])
    )


_KEY = ("source", "system", "entity_type", "entity_id")
