"""Time limits of runs: the configured ones, and undeclared ones that show in the durations."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, collected_all
from stateanalytics.core.schema import ENTITY_KEY, TIMEOUTS
from stateanalytics.core.words import each_in_words, first_word, say
from stateanalytics.errors import check_columns, check_number, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.stats.distributions import benjamini_hochberg, beta_cdf
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.run_spells import spells

N_NEWEST = 20
"""Of so many of the newest runs with a declared limit, the most common limit is today's."""
# Columns of work that may share an undeclared limit.
_LIMIT_GROUP = ("system", "kind")


def timeouts(
    snap: Facts,
    *,
    window: object = None,
    tolerance_s: float = 5.0,
    states: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Runs with a time limit, or that ended at one, next to how long they took.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : optional
        Runs that started in it, as for `report`; None: all time.
    tolerance_s : float
        Distance from its limit at which a run still hit it: stopping takes a while.
    states : polars.DataFrame, optional
        States of the snapshot, if already computed.
    rows : polars.DataFrame, optional
        The `population` of all time, if already computed.
    policy : Policy, optional
        For computing states.

    Returns
    -------
    polars.DataFrame, shape (n_attempts, 20)
        ``schema.TIMEOUTS``: ``limit_s``, ``limit_from`` (checkpoint, metadata; inferred: not
        declared, but many ends lie there, see `implicit_timeouts`; null: not known),
        ``over_s`` (elapsed minus limit), ``fits`` (at_limit, before, after: it hit another
        deadline; null without a limit) and ``has_no_turns`` (the model never answered; null:
        not known). Runs without a known limit are included if they timed out.

    Raises
    ------
    ArgumentError
        If the tolerance is negative, or the window is not valid.

    Notes
    -----
    A timeout is no failure: it is a bound that someone chose. Runs with unreliable times, and
    those that a reaper marked as timed out, are excluded.

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
    inferred = implicit_timeouts(runs)[[*_LIMIT_GROUP, "at_s"]]
    is_unsuccessful = ~pl.col("ending").is_in(["completed", "running"])
    near = (
        runs.lazy()
        .join(inferred.lazy(), on=list(_LIMIT_GROUP), how="inner", nulls_equal=True)
        .filter(is_unsuccessful, pl.col("timeout_s").is_null())
        .filter((pl.col("duration_s").round() - pl.col("at_s")).abs() <= 1)
        .select(*_KEY, "at_s")
        .unique(list(_KEY), keep="first")
    )
    limit = pl.coalesce("timeout_s", pl.col("at_s").cast(pl.Float64))
    is_inferred = pl.col("timeout_s").is_null() & pl.col("at_s").is_not_null()
    over = pl.col("duration_s") - limit
    is_listed = limit.is_not_null() | (pl.col("ending") == "timed_out")
    return TIMEOUTS.conform(
        runs.lazy()
        .join(near, on=list(_KEY), how="left", maintain_order="left")
        .filter(is_listed)
        .with_columns(
            elapsed_s="duration_s",
            limit_s=limit,
            limit_from=pl.when(is_inferred).then(pl.lit("inferred")).otherwise("timeout_from"),
            over_s=over,
            fits=first_word(at_limit=over.abs() <= tolerance_s, before=over < 0, after=over > 0),
            has_no_turns=pl.col("n_model_turns") == 0,
        )
        .pipe(collected)
    )


def count_timeouts(timeouts: pl.DataFrame, by: str | Sequence[str] = ("kind",)) -> pl.DataFrame:
    """Runs per limit: how many it stopped, and how many of these never got an answer.

    Parameters
    ----------
    timeouts : polars.DataFrame
        From `timeouts`.
    by : str or sequence of str
        Columns to group by, next to the limit.

    Returns
    -------
    polars.DataFrame, shape (n_limits, n_by + 11)
        ``limit_s`` and ``limit_from``; ``n_runs``; ``n_timed_out`` with its share and
        Wilson interval (``stopped``, ``stopped_low``, ``stopped_high``), and among these
        ``n_at_limit``, ``n_elsewhere`` (they hit another deadline), ``n_no_turns`` and
        ``n_turns_unknown``.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> count_timeouts(timeouts(demo()))["n_timed_out"].sum() > 0
    True
    """
    strata = strata_of(by)
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
# Neighbours of a short duration lie within a quarter of it: most failures come early, and
# this steep slope is no limit.
NEAR = 4
SHORTEST_S = 10
FEWEST_ENDS = 5


def implicit_timeouts(
    spells: pl.DataFrame, by: str | Sequence[str] = ("system", "kind"), *, fdr: float = 0.05
) -> pl.DataFrame:
    """Undeclared time limits: durations at which too many runs ended without success.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`. Only counted runs that ended without success are tested, except those
        that hit a known limit.
    by : str or sequence of str
        Kinds of work that may have limits of their own.
    fdr : float
        False discovery rate over all tested seconds.

    Returns
    -------
    polars.DataFrame, shape (n_limits, n_by + 7)
        ``at_s`` (whole seconds), ``n_at`` (ends within a second of it), ``n_ended`` (tested
        ends of that kind), ``expected`` (ends to expect there by the rate around it),
        ``p_value``, ``q_value``, ``in_words``; sorted by stratum and ``at_s``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Ends within a second are compared with those within a minute: given their total, they are
    binomial if no second is special. Every second up to the longest duration counts as a
    test, whether something ended there or not. At least 5 ends, and 10 seconds, are needed.
    Such a limit is *inferred*: many runs can also end together because one machine died.

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
    # Null, an unknown way to end, is no ending without success.
    is_unsuccessful = ~pl.col("ending").is_in(["completed", "running"]).fill_null(value=True)
    is_declared = (pl.col("ending") == "timed_out") & pl.col("timeout_s").is_not_null()
    ends = spells.filter(
        pl.col("left_out").is_null(),
        is_unsuccessful,
        ~is_declared,
        pl.col("duration_s").is_not_null(),
    )
    numbered, names = number(ends, strata)
    seconds = (
        numbered.lazy()
        .group_by(STRATUM, second=pl.col("duration_s").cast(pl.Float64).round().cast(pl.Int64))
        .agg(n=pl.len().cast(pl.Int64))
        .sort("second")
        .with_columns(
            n_up_to=pl.col("n").cum_sum().over(STRATUM), n_ended=pl.col("n").sum().over(STRATUM)
        )
    )
    second = pl.col("second")
    counted = seconds.with_columns(around=pl.min_horizontal(second // NEAR, pl.lit(NEIGHBOURS_S)))
    for name, bound in {
        "_near_high": second + 1,
        "_near_low": second - 2,
        "_wide_high": second + pl.col("around"),
        "_wide_low": second - pl.col("around") - 1,
    }.items():
        counted = _ends_up_to(counted, seconds, bound, name)
    of_ends = counted.with_columns(
        n_at=pl.col("_near_high") - pl.col("_near_low"),
        n_around=pl.col("_wide_high") - pl.col("_wide_low"),
    ).filter(pl.col("n_at") >= FEWEST_ENDS, second >= SHORTEST_S)
    tested, lasts = collected_all(of_ends, seconds.group_by(STRATUM).agg(second.max() + 1))
    p_values = [
        # P(Binomial(n_around, 3 / width) >= n_at), with the width in whole seconds.
        beta_cdf(3 / (2 * radius + 1), n_at, n_around - n_at + 1)
        for n_at, n_around, radius in tested[["n_at", "n_around", "around"]].iter_rows()
    ]
    width = 2 * pl.col("around") + 1
    limits = collected(
        tested.lazy()
        .with_columns(p_value=pl.Series(p_values, dtype=pl.Float64))
        .with_columns(
            benjamini_hochberg(n_tests=int(lasts["second"].sum() or 0)),
            expected=3 * (pl.col("n_around") - pl.col("n_at")) / (width - 3),
        )
        .filter(pl.col("q_value") <= fdr)
        .sort(STRATUM, "second")
        .with_columns(cluster=(second.diff() > 2).fill_null(value=True).cum_sum().over(STRATUM))
        # Of adjacent seconds, which share their ends, the one with most ends, then the roundest.
        .sort(-pl.col("n_at"), second % 60 != 0, second % 10 != 0, "second")
        .unique([STRATUM, "cluster"], keep="first", maintain_order=True)
        .sort(STRATUM, "second")
        .rename({"second": "at_s"})
        .join(names, on=STRATUM, how="left", maintain_order="left")
    )
    words = each_in_words(lambda row: say("limit.undeclared", **row))
    return limits.select(
        *strata, "at_s", "n_at", "n_ended", "expected", "p_value", "q_value", in_words=words
    )


def _ends_up_to(
    frame: pl.LazyFrame, seconds: pl.LazyFrame, bound: pl.Expr, name: str
) -> pl.LazyFrame:
    """Add the number of ends of the stratum up to a bound."""
    counts = seconds.select(STRATUM, _bound="second", n_ends="n_up_to").rename({"n_ends": name})
    return (
        frame.with_columns(_bound=bound)
        .sort("_bound")
        .join_asof(counts, on="_bound", by=STRATUM, check_sortedness=False)
        .with_columns(pl.col(name).fill_null(0))
        .drop("_bound")
    )
