"""Do groups of spells end at different speed: the log-rank test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.stats.distributions import beta_cdf, chi_square_tail
from stateanalytics.survival.by_unit import with_known_units
from stateanalytics.survival.log_rank_by_unit import TEST, covariance_by_unit, numbered_units
from stateanalytics.survival.risk_sets import (
    STRATUM,
    checked_spells,
    number,
    product_limit,
    strata_of,
    with_ties,
)

# The covariance of all pairs of groups is held in memory, and nobody reads such a test.
MOST_GROUPS = 200
_Tested: TypeAlias = tuple[float, float, float, float] | tuple[None, None, None, None]


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
        As for `kaplan_meier`; ``by`` names the groups. With ``unit``, or the keys of runs,
        spells of one unit are no witnesses of their own; without, each is alone.
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
    polars.DataFrame, shape (n_tests, n_within + 6)
        The columns of ``within``; ``statistic`` (chi-square, by unit), ``df``, ``p_value``
        (both null with fewer than two groups that were at risk when something ended, and
        where a group of fan-outs has fewer than 4 units: nobody can tell), ``n_groups``,
        ``n_events``, ``n_units``. Without ``within`` one row, whatever the input.

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

    Where spells come in units that are alike, the variance is that of what units add to
    observed minus expected, never below that of independent spells: of two groups the robust
    score test of Cox's regression [2]_, with Welch's degrees of freedom; of more, the
    statistic divided by the mean of its design effects [3]_. A unit may have spells in
    several groups and strata.

    References
    ----------
    .. [1] Harrington, D. P. and Fleming, T. R. (1982). A class of rank test procedures
       for censored survival data. Biometrika 69, 553-566.
    .. [2] Lin, D. Y. and Wei, L. J. (1989). The robust inference for the Cox proportional
       hazards model. JASA 84, 1074-1078.
    .. [3] Rao, J. N. K. and Scott, A. J. (1984). On chi-squared tests for multiway
       contingency tables with cell proportions estimated from survey data. Annals of
       Statistics 12, 46-60.

    Examples
    --------
    >>> spells = pl.DataFrame(
    ...     {"duration_s": [1.0, 2.0, 3.0, 4.0], "ended": [True] * 4, "arm": ["a", "a", "b", "b"]}
    ... )
    >>> logrank(spells, by="arm").select(pl.col("statistic").round(3), "df").row(0)
    (2.882, 1)
    """
    columns = ["statistic", "df", "p_value", "n_groups", "n_events", "n_units"]
    return logrank_by_unit(spells, by, rho, within=within, strata=strata).select(
        *strata_of(within), *columns
    )


def logrank_by_unit(
    spells: pl.DataFrame,
    by: str | Sequence[str],
    rho: float = 0.0,
    *,
    within: str | Sequence[str] = (),
    strata: str | Sequence[str] = (),
) -> pl.DataFrame:
    """What `logrank` gives, with ``effect``, by which units divide the statistic, and ``degrees``.

    The second are of freedom, that it is known with. Both are null where nobody can tell.
    """
    groups, tested, alike = strata_of(by), strata_of(within), strata_of(strata)
    if not groups:
        raise ArgumentError("logrank needs groups to compare; found none.", "by='kind'")
    known = with_known_units(spells)
    spells = with_ties(checked_spells(known, [*tested, *alike, *groups], "logrank"))
    names = spells.select(groups).unique().sort(groups).with_row_index("group")
    if names.height > MOST_GROUPS:
        raise ArgumentError(
            f"logrank compares at most {MOST_GROUPS} groups; found {names.height}.",
            "compare fewer, or one test each: logrank(spells, by='week', within='agent')",
        )
    numbered, tests = (frame.rename({STRATUM: TEST}) for frame in number(spells, tested))
    numbered = numbered_units(numbered.join(names, on=groups, how="left", nulls_equal=True))
    totals = numbered.group_by(TEST).agg(
        n_groups=pl.col("group").n_unique().cast(pl.Int64),
        n_events=pl.col("ended").sum().cast(pl.Int64),
        n_units=pl.col("unit").n_unique().cast(pl.Int64),
    )
    counted = number(numbered, [TEST, *alike])[0]
    table = counts_at_ends(counted, rho)
    statistics = _statistics(table, *covariance_by_unit(counted, table))
    results = tests.join(totals, on=TEST, how="left").join(statistics, on=TEST, how="left")
    counts = pl.col("n_groups", "n_events", "n_units", "df").fill_null(0)
    return results.sort(TEST).with_columns(counts).drop(TEST)


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
            # Who leaves at a moment is at risk in it, who comes at it is not yet.
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
        .with_columns(survival=product_limit(pl.col("d") / pl.col("n")).over(STRATUM))
        .with_columns(
            # As Fleming and Harrington weigh: by the survival just before.
            weight=pl.col("survival").shift(1, fill_value=1.0).over(STRATUM).pow(rho),
        )
    )
    return per_group.join(pooled, on=[STRATUM, "duration_s"])


def _statistics(table: pl.DataFrame, of_units: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Chi-square of each test: observed minus expected over all groups but the last."""
    n, d, n_g = pl.col("n"), pl.col("d"), pl.col("n_at_risk")
    # Sums are of sorted floats, which add up to the same only in the same order.
    difference = (
        table.group_by(TEST, "group")
        .agg(
            u=(pl.col("weight") * (pl.col("n_events") - n_g * d / n)).sort().sum(),
            expected=(n_g * d / n).sort().sum(),
        )
        .filter(pl.col("expected") > 0)
        .sort(TEST, "group")
    )
    spread = pl.when(n > 1).then(pl.col("weight").pow(2) * d * (n - d) / (n.pow(2) * (n - 1)))
    shared = table.with_columns(spread=spread.otherwise(0.0))
    pairs = shared.join(
        shared.select(STRATUM, "duration_s", "group", "n_at_risk"), on=[STRATUM, "duration_s"]
    )
    same = (pl.col("group") == pl.col("group_right")).cast(pl.Float64)
    covariance = pairs.group_by(TEST, "group", "group_right").agg(
        v=(pl.col("spread") * n_g * (same * n - pl.col("n_at_risk_right"))).sort().sum()
    )
    if_alone, by_unit = (
        {row[:3]: row[3] for row in frame.select(TEST, "group", "group_right", "v").iter_rows()}
        for frame in (covariance, of_units)
    )
    known = {test: rest for test, *rest in facts.select(TEST, "degrees", "n", "is_told").rows()}
    rows = []
    for (test,), groups in difference.group_by(TEST):
        kept = groups["group"].to_list()[:-1]
        if not kept:
            continue
        vector = groups["u"].to_list()[:-1]
        own, alike = (
            [[v[test, row, column] for column in kept] if v else [] for row in kept]
            for v in (if_alone, by_unit if test in known else {})
        )
        solved = _solve(own, [[u, *row] for u, row in zip(vector, alike, strict=True)])
        statistic = math.fsum(u * row[0] for u, row in zip(vector, solved, strict=True))
        tested: _Tested = (statistic, chi_square_tail(statistic, len(kept)), 1.0, math.inf)
        if test in known:
            effects = [row[1:] for row in solved]
            tested = _of_units(statistic, effects, *known[test])
        rows.append((test, len(kept), *tested))
    names = ("statistic", "p_value", "effect", "degrees")
    shape = {TEST: pl.UInt32, "df": pl.Int64, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame(rows, schema=shape, orient="row")


def _of_units(
    statistic: float, effects: list[list[float]], degrees: float, n: int, is_told: bool
) -> _Tested:
    """Statistic, p-value, design effect and its degrees; None where units are too few.

    Of two groups it is the robust score test. Of more, the mean of the design effects in all
    directions is known with more certainty than each: Rao and Scott's second correction.
    """
    if not is_told:
        return None, None, None, None
    size = len(effects)
    total = math.fsum(effects[i][i] for i in range(size))
    # Few units that happen to be alike say too little of how much they vary.
    effect = max(total / size, 1.0)
    due = 1 - 1 / effect
    known_with = 1 / (due / degrees + (1 - due) / n)
    df = float(size)
    if due:
        df = total**2 / math.fsum(
            effects[i][j] * effects[j][i] for i in range(size) for j in range(size)
        )
    share = known_with / (known_with + df * statistic / effect / size)
    return statistic / effect, beta_cdf(share, known_with / 2, df / 2), effect, known_with


def _solve(matrix: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    """Gaussian elimination with pivoting: as many unknowns as groups, a handful."""
    size = len(matrix)
    rows = [[*row, *values] for row, values in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-12:  # a group without spread says nothing
            rows[i] = [0.0] * len(rows[i])
            continue
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    solution = [[0.0] * (len(row) - size) for row in rows]
    for i in reversed(range(size)):
        if not rows[i][i]:
            continue
        for column, value in enumerate(rows[i][size:]):
            rest = sum(rows[i][j] * solution[j][column] for j in range(i + 1, size))
            solution[i][column] = (value - rest) / rows[i][i]
    return solution
