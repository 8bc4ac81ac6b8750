"""Time limits that nobody declared: many ends at the same second."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.errors import MissingColumnsError
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.multiplicity import benjamini_hochberg
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.words import span

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
    ...     {"system": "lionagi", "kind": "flow", "ending": "failed", "timeout_s": None,
    ...      "duration_s": [900.2] * 12 + [float(61 * i) for i in range(1, 29)],
    ...      "left_out": None}
    ... )
    >>> implicit_timeouts(runs).select("at_s", "n_at", "n_ended").row(0)
    (900, 12, 40)
    """
    strata = strata_of(by)
    needed = ["duration_s", "ending", "timeout_s", "left_out", *strata]
    if missing := [name for name in needed if name not in spells.columns]:
        raise MissingColumnsError.of(missing, spells.columns, "implicit_timeouts")
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
    found = (
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
        span(pl.col("at_s").cast(pl.Float64)),
    )
    return found.join(names, on=STRATUM, how="left", maintain_order="left").select(
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
