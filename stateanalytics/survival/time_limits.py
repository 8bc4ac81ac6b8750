"""Time limits of runs: the configured ones, and those that only show in the ends."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY, TIMEOUTS
from stateanalytics.core.words import how_long_each
from stateanalytics.errors import check_columns, check_number, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.stats.distributions import benjamini_hochberg, beta_cdf
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.run_spells import spells

# A limit that the data do not tell is looked for among work that may share one.
SHARES_A_LIMIT = ("system", "kind")


def timeouts(
    snap: Facts,
    *,
    window: object = None,
    tolerance_s: float = 5.0,
    states: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
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
    rows : polars.DataFrame, optional
        The `population` of all time, where it is at hand.
    policy : Policy, optional
        For computing them.

    Returns
    -------
    polars.DataFrame, shape (n_attempts, 20)
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
    check_number("tolerance_s", tolerance_s, 5)
    runs = spells(
        snap, window=window, timeouts="event", states=states, rows=rows, policy=policy
    ).filter(pl.col("left_out").is_null())
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
            has_no_turns=pl.col("n_model_turns") == 0,
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
    check_columns(timeouts, needed, "count_timeouts")
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


_KEY = (*ENTITY_KEY, "n_resumed")


NEIGHBOURS_S = 60
# Of a short duration, neighbours are what is within a quarter of it: most failures come at
# once, and that steep slope is no limit.
NEAR = 4
SHORTEST_S = 10
FEWEST = 5


def implicit_timeouts(
    spells: pl.DataFrame, by: str | Sequence[str] = ("system", "kind"), *, fdr: float = 0.05
) -> pl.DataFrame:
    """Durations at which so many runs ended without success that a limit must be there.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave. Looked at are counted runs that ended other than well, but not
        those that hit a limit that is known.
    by : str or sequence of str
        Kinds of work that may have limits of their own.
    fdr : float
        False discovery rate over all seconds that were looked at.

    Returns
    -------
    polars.DataFrame, shape (n_limits, n_by + 7)
        ``at_s`` (whole seconds), ``n_at`` (ends within a second of it), ``n_ended`` (ends
        of that kind that were looked at), ``expected`` (of them, by the rate around),
        ``p_value``, ``q_value``, ``in_words``; sorted by stratum and ``at_s``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    The ends within a second are compared with those within a minute: given both, the
    first are binomial if no second is special. Every second up to the longest duration
    counts as a test, whether something ended there or not. At least 5 ends, and 10
    seconds, are needed. What is found is *inferred*: many runs can also end together
    because one machine died.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"system": "some_system", "kind": "flow", "ending": "failed", "timeout_s": None,
    ...      "duration_s": [900.2] * 12 + [float(61 * i) for i in range(1, 29)],
    ...      "left_out": None}
    ... )
    >>> implicit_timeouts(runs).select("at_s", "n_at", "n_ended").row(0)
    (900, 12, 40)
    """
    strata = strata_of(by)
    needed = ["duration_s", "ending", "timeout_s", "left_out", *strata]
    check_columns(spells, needed, "implicit_timeouts")
    check_share("fdr", fdr, 0.05)
    is_over = pl.col("ending").is_not_null() & ~pl.col("ending").is_in(["completed", "running"])
    is_declared = (pl.col("ending") == "timed_out") & pl.col("timeout_s").is_not_null()
    ends = spells.filter(
        pl.col("left_out").is_null(), is_over, ~is_declared, pl.col("duration_s").is_not_null()
    )
    numbered, names = number(ends, strata)
    seconds = (
        numbered.group_by(
            STRATUM, second=pl.col("duration_s").cast(pl.Float64).round().cast(pl.Int64)
        )
        .agg(n=pl.len().cast(pl.Int64))
        .sort("second")
        .with_columns(
            n_up_to=pl.col("n").cum_sum().over(STRATUM), n_ended=pl.col("n").sum().over(STRATUM)
        )
    )
    second = pl.col("second")
    around = pl.min_horizontal(second // NEAR, pl.lit(NEIGHBOURS_S))
    counted = seconds.with_columns(around=around)
    for name, bound in {
        "_near_high": second + 1,
        "_near_low": second - 2,
        "_wide_high": second + pl.col("around"),
        "_wide_low": second - pl.col("around") - 1,
    }.items():
        counted = _ends_up_to(counted, seconds, bound, name)
    n_seconds = seconds.group_by(STRATUM).agg(pl.col("second").max() + 1)["second"].sum()
    tested = counted.with_columns(
        n_at=pl.col("_near_high") - pl.col("_near_low"),
        n_around=pl.col("_wide_high") - pl.col("_wide_low"),
    ).filter(pl.col("n_at") >= FEWEST, second >= SHORTEST_S)
    p_values = [
        # At least n_at of n_around, where 3 seconds of all would be its share.
        beta_cdf(3 / (2 * wide + 1), n_at, n_around - n_at + 1)
        for n_at, n_around, wide in tested.select("n_at", "n_around", "around").iter_rows()
    ]
    width = 2 * pl.col("around") + 1
    heaps = (
        tested.with_columns(p_value=pl.Series(p_values, dtype=pl.Float64))
        .with_columns(
            benjamini_hochberg(n_tests=int(n_seconds or 0)),
            expected=3 * (pl.col("n_around") - pl.col("n_at")) / (width - 3),
        )
        .filter(pl.col("q_value") <= fdr)
        .sort(STRATUM, "second")
        .with_columns(heap=(second.diff() > 2).fill_null(value=True).cum_sum().over(STRATUM))
        # Of neighbours that share their ends, the fullest; then the roundest.
        .sort(-pl.col("n_at"), second % 60 != 0, second % 10 != 0, "second")
        .unique([STRATUM, "heap"], keep="first", maintain_order=True)
        .sort(STRATUM, "second")
        .rename({"second": "at_s"})
    )
    words = pl.format(
        "{} of {} ends without success come at {} (± 1 s): probably an undeclared timeout",
        "n_at",
        "n_ended",
        how_long_each(pl.col("at_s").cast(pl.Float64)),
    )
    return heaps.join(names, on=STRATUM, how="left", maintain_order="left").select(
        *strata, "at_s", "n_at", "n_ended", "expected", "p_value", "q_value", in_words=words
    )


def _ends_up_to(
    frame: pl.DataFrame, seconds: pl.DataFrame, bound: pl.Expr, name: str
) -> pl.DataFrame:
    """Add how many ends of the stratum came no later than a bound."""
    known = seconds.select(STRATUM, pl.col("second").alias("_bound"), pl.col("n_up_to").alias(name))
    return (
        frame.with_columns(_bound=bound)
        .sort("_bound")
        .join_asof(known, on="_bound", by=STRATUM, check_sortedness=False)
        .with_columns(pl.col(name).fill_null(0))
        .drop("_bound")
    )
