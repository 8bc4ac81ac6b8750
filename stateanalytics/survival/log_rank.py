"""Do groups of spells end at different speed: the log-rank test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.stats.distributions import chi_square_tail
from stateanalytics.survival.risk_sets import (
    STRATUM,
    checked_spells,
    number,
    strata_of,
    with_ties,
)

# The covariance of all pairs of groups is held in memory, and nobody reads such a test.
MOST_GROUPS = 200
_TEST = "_test"


def logrank(
    spells: pl.DataFrame,
    by: str | Sequence[str],
    rho: float = 0.0,
    *,
    within: str | Sequence[str] = (),
    strata: str | Sequence[str] = (),
) -> pl.DataFrame:
    """Test whether groups of spells share one curve.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 3)
        As for `kaplan_meier`; ``by`` names the groups.
    by : str or sequence of str
        The groups that are compared, at most 200; null is a group.
    rho : float
        Weight S(t-)**rho of the pooled curve: 0 is the log-rank test, 1 Peto's, which
        looks harder at early ends.
    within : str or sequence of str
        A test of its own in each group of these columns; none: one test.
    strata : str or sequence of str
        Spells are only compared with those of their own stratum, and one test sums up all
        strata: what work is made of then makes no difference.

    Returns
    -------
    polars.DataFrame, shape (n_tests, n_within + 5)
        The columns of ``within``; ``statistic`` (chi-square), ``df``, ``p_value`` (all but
        ``df`` null with fewer than two groups that were at risk when something ended),
        ``n_groups``, ``n_events``. Without ``within`` one row, whatever the input.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also for more than 200 groups, or none.

    Notes
    -----
    Observed minus expected ends per group, with the hypergeometric variance [1]_; the
    p-value is the upper tail of chi-square. As R's survdiff does, groups that nobody was
    left of when the first end came do not count as degrees of freedom. It says *that*
    curves differ, not by how much. Testing many strata: see `benjamini_hochberg`.

    References
    ----------
    .. [1] Harrington, D. P. and Fleming, T. R. (1982). A class of rank test procedures
       for censored survival data. Biometrika 69, 553-566.

    Examples
    --------
    >>> spells = pl.DataFrame(
    ...     {"duration_s": [1.0, 2.0, 3.0, 4.0], "ended": [True] * 4, "arm": ["a", "a", "b", "b"]}
    ... )
    >>> logrank(spells, by="arm").select(pl.col("statistic").round(3), "df").row(0)
    (2.882, 1)
    """
    groups, tested, alike = strata_of(by), strata_of(within), strata_of(strata)
    if not groups:
        raise ArgumentError("logrank needs groups to compare; found none.", "by='kind'")
    spells = with_ties(checked_spells(spells, [*tested, *alike, *groups], "logrank"))
    names = spells.select(groups).unique().sort(groups).with_row_index("group")
    if names.height > MOST_GROUPS:
        raise ArgumentError(
            f"logrank compares at most {MOST_GROUPS} groups; found {names.height}.",
            "compare fewer, or one test each: logrank(spells, by='week', within='agent')",
        )
    numbered, tests = (frame.rename({STRATUM: _TEST}) for frame in number(spells, tested))
    numbered = numbered.join(names, on=groups, how="left", nulls_equal=True)
    totals = numbered.group_by(_TEST).agg(
        n_groups=pl.col("group").n_unique().cast(pl.Int64),
        n_events=pl.col("ended").sum().cast(pl.Int64),
    )
    statistics = _statistics(counts_at_ends(number(numbered, [_TEST, *alike])[0], rho))
    results = tests.join(totals, on=_TEST, how="left").join(statistics, on=_TEST, how="left")
    counts = pl.col("n_groups", "n_events", "df").fill_null(0)
    return (
        results.sort(_TEST)
        .with_columns(counts)
        .select(*tested, "statistic", "df", "p_value", "n_groups", "n_events")
    )


def counts_at_ends(spells: pl.DataFrame, rho: float) -> pl.DataFrame:
    """Per stratum, distinct duration and group: at risk, ended, both pooled, with the weight."""
    key = [STRATUM, "group"]
    ends = spells.filter("ended").select(STRATUM, "duration_s").unique()
    grid = ends.join(spells.select(*key, pl.col("^_test$")).unique(), on=STRATUM)
    ended = spells.group_by(*key, "duration_s").agg(n_events=pl.col("ended").sum())
    entry = pl.col("entry_s") if "entry_s" in spells.columns else pl.lit(None, pl.Float64)
    is_late = entry > 0

    def before(moment: pl.Expr, count: str) -> pl.DataFrame:
        return (
            spells.select(*key, at=moment)
            .sort("at")
            .with_columns(pl.int_range(1, pl.len() + 1).over(key).alias(count))
        )

    at_risk = grid.sort("duration_s")
    for moves in (
        before(pl.when(is_late).then(entry).otherwise(-1.0), "n_entered"),
        before(pl.col("duration_s"), "n_left"),
    ):
        at_risk = at_risk.join_asof(
            moves,
            left_on="duration_s",
            right_on="at",
            by=key,
            allow_exact_matches=False,
            check_sortedness=False,
        ).drop("at", strict=False)
    per_group = at_risk.join(ended, on=[*key, "duration_s"], how="left").with_columns(
        n_at_risk=pl.col("n_entered").fill_null(0) - pl.col("n_left").fill_null(0),
        n_events=pl.col("n_events").fill_null(0).cast(pl.Int64),
    )
    pooled = (
        per_group.group_by(STRATUM, "duration_s")
        .agg(n=pl.col("n_at_risk").sum(), d=pl.col("n_events").sum())
        .sort(STRATUM, "duration_s")
        .with_columns(survival=(1 - pl.col("d") / pl.col("n")).cum_prod().over(STRATUM))
        .with_columns(
            weight=pl.col("survival").shift(1, fill_value=1.0).over(STRATUM).pow(rho),
        )
    )
    return per_group.join(pooled, on=[STRATUM, "duration_s"])


def _statistics(table: pl.DataFrame) -> pl.DataFrame:
    """Chi-square of each test: observed minus expected over all groups but the last."""
    n, d, n_g = pl.col("n"), pl.col("d"), pl.col("n_at_risk")
    difference = (
        table.group_by(_TEST, "group")
        .agg(
            u=(pl.col("weight") * (pl.col("n_events") - n_g * d / n)).sum(),
            expected=(n_g * d / n).sum(),
        )
        .filter(pl.col("expected") > 0)
        .sort(_TEST, "group")
    )
    spread = pl.when(n > 1).then(pl.col("weight").pow(2) * d * (n - d) / (n.pow(2) * (n - 1)))
    shared = table.with_columns(spread=spread.otherwise(0.0))
    pairs = shared.join(
        shared.select(STRATUM, "duration_s", "group", "n_at_risk"), on=[STRATUM, "duration_s"]
    )
    same = (pl.col("group") == pl.col("group_right")).cast(pl.Float64)
    covariance = pairs.group_by(_TEST, "group", "group_right").agg(
        v=(pl.col("spread") * n_g * (same * n - pl.col("n_at_risk_right"))).sum()
    )
    v = {row[:3]: row[3] for row in covariance.iter_rows()}
    rows = []
    for (test,), groups in difference.group_by(_TEST):
        names = groups["group"].to_list()
        kept = names[:-1]
        if not kept:
            continue
        vector = groups["u"].to_list()[:-1]
        matrix = [[v[test, row, column] for column in kept] for row in kept]
        solution = _solve(matrix, vector)
        statistic = math.fsum(u * x for u, x in zip(vector, solution, strict=True))
        rows.append((test, statistic, len(kept), chi_square_tail(statistic, len(kept))))
    shape = {_TEST: pl.UInt32, "statistic": pl.Float64, "df": pl.Int64, "p_value": pl.Float64}
    return pl.DataFrame(rows, schema=shape, orient="row")


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gaussian elimination with pivoting: as many unknowns as groups, a handful."""
    size = len(vector)
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-12:  # a group without spread says nothing
            rows[i] = [0.0] * (size + 1)
            continue
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - rest) / rows[i][i] if rows[i][i] else 0.0
    return solution
