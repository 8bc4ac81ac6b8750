"""Do groups of spells end at different speed: the log-rank test, with a variance by unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.stats.distributions import beta_cdf, chi_square_tail
from stateanalytics.survival.jackknife import UNIT, with_known_units
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
FEWEST_UNITS = 4
"""Units of each group: with two, one null test in eight rejects at 5 %, with four one in 20."""
_TEST = "_test"
_CELL = [STRATUM, "group"]
_GROUP = [_TEST, "group"]
_Result: TypeAlias = tuple[float, float, float, float] | tuple[None, None, None, None]


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
        spells of one unit are not independent; without, each is a unit of its own.
    by : str or sequence of str
        Columns that define the groups, at most 200; null is a group.
    rho : float
        Weight S(t-)**rho of the pooled curve: 0 is the log-rank test, 1 Peto's, which
        gives more weight to early ends.
    within : str or sequence of str
        A separate test in each group of these columns; none: one test.
    strata : str or sequence of str
        Spells are only compared with those of their own stratum, and one test sums over all
        strata: differences in the mix of work then have no effect.

    Returns
    -------
    polars.DataFrame, shape (n_tests, n_within + 6)
        The columns of ``within``; ``statistic`` (chi-square, by unit), ``df``, ``p_value``
        (statistic and p-value null with fewer than two groups at risk at any end, and where a
        group of fan-outs has fewer than 4 units), ``n_groups``, ``n_events``, ``n_units``.
        Without ``within`` one row, whatever the input.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also for more than 200 groups, or none.

    Notes
    -----
    Observed minus expected ends per group, with the hypergeometric variance [1]_; the
    p-value is the upper tail of chi-square. As in R's survdiff, groups without a spell at
    risk at the first end do not count as degrees of freedom. The test shows *that* curves
    differ, not by how much. For many tests see `benjamini_hochberg`.

    Where units have several spells, the variance is that of the contributions of units to
    observed minus expected, never below that of independent spells: for two groups the robust
    score test of Cox's regression [2]_, with Welch's degrees of freedom; for more, the
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
    """The result of `logrank`, with its design ``effect`` and the ``degrees`` of freedom of that.

    Both are null where a group has too few units.
    """
    groups, test_columns, stratum_columns = strata_of(by), strata_of(within), strata_of(strata)
    if not groups:
        raise ArgumentError("logrank needs groups to compare; found none.", "by='kind'")
    needed = [*test_columns, *stratum_columns, *groups]
    spells = with_ties(checked_spells(with_known_units(spells), needed, "logrank"))
    names = spells.select(groups).unique().sort(groups).with_row_index("group")
    if names.height > MOST_GROUPS:
        raise ArgumentError(
            f"logrank compares at most {MOST_GROUPS} groups; found {names.height}.",
            "compare fewer, or one test each: logrank(spells, by='week', within='agent')",
        )
    numbered, tests = number(spells, test_columns, _TEST)
    numbered = _with_unit_numbers(numbered.join(names, on=groups, how="left", nulls_equal=True))
    totals = numbered.group_by(_TEST).agg(
        n_groups=pl.col("group").n_unique().cast(pl.Int64),
        n_events=pl.col("ended").sum().cast(pl.Int64),
        n_units=pl.col("unit").n_unique().cast(pl.Int64),
    )
    numbered = number(numbered, [_TEST, *stratum_columns])[0]
    table = _counts_at_ends(numbered, rho)
    statistics = _statistics(table, *_covariance_by_unit(numbered, table))
    results = (
        tests.collect().join(totals, on=_TEST, how="left").join(statistics, on=_TEST, how="left")
    )
    counts = pl.col("n_groups", "n_events", "n_units", "df").fill_null(0)
    return results.sort(_TEST).with_columns(counts).drop(_TEST)


def _with_unit_numbers(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with ``unit`` as a number; without units, each spell is a unit of its own."""
    unit = pl.col(UNIT).rank("dense") if UNIT in spells.columns else pl.int_range(pl.len())
    return spells.with_columns(unit=unit.cast(pl.Int64))


def _counts_at_ends(spells: pl.DataFrame, rho: float) -> pl.DataFrame:
    """Spells at risk and ends per stratum, distinct duration and group, with pooled counts."""
    ends = spells.filter("ended").select(STRATUM, "duration_s").unique()
    grid = ends.join(spells.select(*_CELL, _TEST).unique(), on=STRATUM)
    ended = spells.group_by(*_CELL, "duration_s").agg(n_events=pl.col("ended").sum())
    entry = pl.col("entry_s") if "entry_s" in spells.columns else pl.lit(None, pl.Float64)

    def running_count(moment: pl.Expr, name: str) -> pl.DataFrame:
        return (
            spells.select(*_CELL, at=moment)
            .sort("at")
            .with_columns(pl.int_range(1, pl.len() + 1).over(_CELL).alias(name))
        )

    at_risk = grid.sort("duration_s")
    for moves in (
        running_count(pl.when(entry > 0).then(entry).otherwise(-1.0), "n_entered"),
        running_count(pl.col("duration_s"), "n_exited"),
    ):
        at_risk = at_risk.join_asof(
            moves,
            left_on="duration_s",
            right_on="at",
            by=_CELL,
            # At risk at t: entry < t <= duration.
            allow_exact_matches=False,
            check_sortedness=False,
        ).drop("at", strict=False)
    per_group = at_risk.join(ended, on=[*_CELL, "duration_s"], how="left").with_columns(
        n_at_risk=pl.col("n_entered").fill_null(0) - pl.col("n_exited").fill_null(0),
        n_events=pl.col("n_events").fill_null(0).cast(pl.Int64),
    )
    pooled = (
        per_group.group_by(STRATUM, "duration_s")
        .agg(n=pl.col("n_at_risk").sum(), d=pl.col("n_events").sum())
        .sort(STRATUM, "duration_s")
        .with_columns(survival=product_limit(pl.col("d") / pl.col("n")).over(STRATUM))
        .with_columns(
            # Fleming and Harrington: survival just before the end.
            weight=pl.col("survival").shift(1, fill_value=1.0).over(STRATUM).pow(rho)
        )
    )
    return per_group.join(pooled, on=[STRATUM, "duration_s"])


def _statistics(
    table: pl.DataFrame, unit_covariance: pl.DataFrame, degrees: pl.DataFrame
) -> pl.DataFrame:
    """Chi-square of each test: observed minus expected over all groups but the last.

    Groups that are never at risk together, as in strata of their own, have no covariance: the
    degrees of freedom are the rank of it, which is then less than the number of groups but one.
    Where all at risk end at one instant it is zero, and nothing differs.
    """
    n, d, n_g = pl.col("n"), pl.col("d"), pl.col("n_at_risk")
    # Sorted, because the last digit of a float sum depends on the order.
    difference = (
        table.group_by(_GROUP)
        .agg(
            u=(pl.col("weight") * (pl.col("n_events") - n_g * d / n)).sort().sum(),
            expected=(n_g * d / n).sort().sum(),
        )
        .filter(pl.col("expected") > 0)
        .sort(_GROUP)
    )
    # Of the hypergeometric covariance the factor that all pairs of groups share.
    shared = pl.when(n > 1).then(pl.col("weight").pow(2) * d * (n - d) / (n.pow(2) * (n - 1)))
    factors = table.with_columns(shared=shared.otherwise(0.0))
    pairs = factors.join(
        factors.select(STRATUM, "duration_s", "group", "n_at_risk"), on=[STRATUM, "duration_s"]
    )
    same = (pl.col("group") == pl.col("group_right")).cast(pl.Float64)
    covariance = pairs.group_by(*_GROUP, "group_right").agg(
        v=(pl.col("shared") * n_g * (same * n - pl.col("n_at_risk_right"))).sort().sum()
    )
    independent, by_unit = (
        {row[:3]: row[3] for row in frame.select(*_GROUP, "group_right", "v").iter_rows()}
        for frame in (covariance, unit_covariance)
    )
    clustered = {
        test: rest
        for test, *rest in degrees.select(_TEST, "degrees", "n", "has_enough_units").rows()
    }
    compared = {*table.filter(n_g > 0, n_g < n)[_TEST]}
    rows = []
    for (test,), groups in difference.group_by(_TEST):
        kept = groups["group"].to_list()[:-1]
        if not kept or test not in compared:
            continue
        vector = groups["u"].to_list()[:-1]
        v_independent, v_units = (
            [[v.get((test, row, column), 0.0) for column in kept] if v else [] for row in kept]
            for v in (independent, by_unit if test in clustered else {})
        )
        # One elimination solves V x = u for the statistic, and V X = V_units for its effects.
        right = [[u, *row] for u, row in zip(vector, v_units, strict=True)]
        solved, rank = _solve(v_independent, right)
        df = rank or len(kept)
        statistic = math.fsum(u * row[0] for u, row in zip(vector, solved, strict=True))
        result: _Result = (statistic, chi_square_tail(statistic, df), 1.0, math.inf)
        if test in clustered:
            effects = [row[1:] for row in solved]
            result = _clustered_test(statistic, effects, *clustered[test], size=df)
        rows.append((test, df, *result))
    names = ("statistic", "p_value", "effect", "degrees")
    shape = {_TEST: pl.UInt32, "df": pl.Int64, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame(rows, schema=shape, orient="row")


def _clustered_test(
    statistic: float,
    effects: list[list[float]],
    unit_degrees: float,
    n: int,
    has_enough_units: bool,
    *,
    size: int,
) -> _Result:
    """Statistic, p-value, design effect and its degrees of freedom; None with too few units.

    For two groups it is the robust score test. For more, the mean of the design effects is
    estimated more precisely than each of them: Rao and Scott's second-order correction.
    """
    if not has_enough_units:
        return None, None, None, None
    places = range(len(effects))
    trace = math.fsum(effects[i][i] for i in places)
    # At least 1: few units that happen to be similar understate their variance.
    effect = max(trace / size, 1.0)
    # Only the part of the variance that is due to units has their few degrees of freedom.
    due = 1 - 1 / effect
    degrees = 1 / (due / unit_degrees + (1 - due) / n)
    df = float(size)
    if due:
        df = trace**2 / math.fsum(effects[i][j] * effects[j][i] for i in places for j in places)
    # The tail of Fisher's F with df and degrees, as a beta probability.
    ratio = degrees / (degrees + df * statistic / effect / size)
    return statistic / effect, beta_cdf(ratio, degrees / 2, df / 2), effect, degrees


def _solve(matrix: list[list[float]], right: list[list[float]]) -> tuple[list[list[float]], int]:
    """Gaussian elimination with pivoting, for a handful of unknowns (groups), and the rank."""
    size = len(matrix)
    rows = [[*row, *values] for row, values in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        # Without variance, but for rounding: columns are not swapped, so this is its own.
        if abs(rows[i][i]) <= 1e-9 * matrix[i][i]:
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
    return solution, sum(1 for i in range(size) if rows[i][i])


def _covariance_by_unit(
    spells: pl.DataFrame, table: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Covariance of observed minus expected ends, from the contributions of units [1]_.

    Parameters
    ----------
    spells : polars.DataFrame
        With the numbers `_TEST`, `STRATUM`, ``group`` and ``unit``.
    table : polars.DataFrame
        Their `_counts_at_ends`.

    Returns
    -------
    covariances : polars.DataFrame
        `_TEST`, ``group``, ``group_right`` and ``v``, of tests with units of several spells.
    degrees : polars.DataFrame
        For the same tests ``degrees`` of freedom of the covariance, ``n`` spells, and
        ``has_enough_units``: each group has `FEWEST_UNITS`, or units of one spell only.

    Notes
    -----
    A unit contributes its own ends minus those expected by the hazard of its group, so that a
    group which ends faster does not look as if its units differed. The contribution is
    corrected for the leverage of the unit, which draws the hazard of its group to itself
    (CR2 [2]_).

    References
    ----------
    .. [1] Lin, D. Y. and Wei, L. J. (1989). The robust inference for the Cox proportional
       hazards model. JASA 84, 1074-1078.
    .. [2] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for
       linear regression with multi-stage samples. Survey Methodology 28, 169-181.
    """
    clustered = spells.filter(pl.struct(_TEST, "unit").is_duplicated()).select(_TEST).unique()
    spells = spells.join(clustered, on=_TEST, how="semi")
    steps = (
        table.join(clustered, on=_TEST, how="semi")
        .sort(*_CELL, "duration_s")
        .with_columns(
            hazard=pl.when(pl.col("n_at_risk") > 0)
            .then(pl.col("weight") * pl.col("n_events") / pl.col("n_at_risk"))
            .otherwise(0.0)
        )
        .with_row_index("step")
    )
    placed = _with_steps(spells, steps)
    # By the pooled hazard, so that a group without any end has expected ends as well.
    pooled = (pl.col("weight") * pl.col("d") / pl.col("n")).cum_sum().over(_CELL)
    columns = {"expected": _since_entry(steps.select(pooled).to_series())}
    groups = steps["group"].unique().sort().to_list()
    for group in groups:
        columns[f"u{group}"] = _contribution(steps, group)
    by_unit = (
        placed.select(*_GROUP, "unit", **columns)
        # Float sums depend on the order, so rows get one of their own.
        .sort(pl.all())
        .group_by(*_GROUP, "unit", maintain_order=True)
        .agg(pl.len().alias("m"), pl.col(list(columns)).sum())
        .filter(pl.col("expected") > 0)
    )
    leverage = pl.col("expected") / pl.col("expected").sum().over(_GROUP)
    names = [f"u{group}" for group in groups]
    correction = pl.when(leverage < 1).then((1 - leverage) ** -0.5).otherwise(0.0)
    contributions = (
        by_unit.with_columns(pl.col(names) * correction)
        .group_by(_TEST, "unit", maintain_order=True)
        .agg(pl.col(names).sum())
    )
    products = [
        contributions.group_by(_TEST).agg(
            group=pl.lit(group, pl.UInt32),
            group_right=pl.lit(group_right, pl.UInt32),
            v=(pl.col(f"u{group}") * pl.col(f"u{group_right}")).sum(),
        )
        for group in groups
        for group_right in groups
    ]
    shape = {_TEST: pl.UInt32, "group": pl.UInt32, "group_right": pl.UInt32, "v": pl.Float64}
    return pl.concat([pl.DataFrame(schema=shape), *products]), _degrees(by_unit)


def _with_steps(spells: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spells with the last step of their group up to their exit, and up to their entry."""
    at_step = steps.select(*_CELL, "step", at="duration_s").sort("at")
    moments = {"duration_s": "exit_step"}
    if "entry_s" in spells.columns:
        moments["entry_s"] = "entry_step"
        spells = spells.with_columns(
            pl.when(pl.col("entry_s") > 0).then("entry_s").otherwise(-1.0).alias("entry_s")
        )
    for moment, name in moments.items():
        spells = spells.sort(moment).join_asof(
            at_step.rename({"step": name}),
            left_on=moment,
            right_on="at",
            by=_CELL,
            check_sortedness=False,
            coalesce=True,
        ).drop("at", strict=False)  # fmt: skip
    if "entry_s" in moments:
        return spells
    return spells.with_columns(entry_step=pl.lit(None, pl.UInt32))


def _since_entry(running: pl.Series) -> pl.Expr:
    """Increase of a running sum over steps, between entry and exit of a spell."""
    at_exit, at_entry = (
        pl.lit(running).gather(pl.col(name)).fill_null(0.0) for name in ("exit_step", "entry_step")
    )
    return at_exit - at_entry


def _contribution(steps: pl.DataFrame, group: int) -> pl.Expr:
    """Contribution of a spell to observed minus expected ends of a group."""
    at_risk = steps.filter(group=group).select(
        STRATUM, "duration_s", share=pl.col("n_at_risk") / pl.col("n")
    )
    residuals = steps.join(
        at_risk, on=[STRATUM, "duration_s"], how="left", maintain_order="left"
    ).select(
        *_CELL,
        "weight",
        "hazard",
        residual=(pl.col("group") == group).cast(pl.Float64) - pl.col("share").fill_null(0.0),
    )
    expected = residuals.select((pl.col("residual") * pl.col("hazard")).cum_sum().over(_CELL))
    per_end = residuals.select(pl.col("residual") * pl.col("weight")).to_series()
    own = pl.when("ended").then(pl.lit(per_end).gather(pl.col("exit_step"))).otherwise(0.0)
    return own - _since_entry(expected.to_series())


def _degrees(by_unit: pl.DataFrame) -> pl.DataFrame:
    """Welch's degrees of freedom of each test, and whether its groups have enough units."""
    e, m = pl.col("expected"), pl.col("m")
    by_group = by_unit.group_by(_GROUP, maintain_order=True).agg(
        e.sum(),
        squares=(e**2).sum(),
        degrees=((e**2).sum() ** 2 / (e**4).sum() - 1).clip(1.0),
        n=m.sum(),
        has_enough_units=(pl.len() >= FEWEST_UNITS) | (m == 1).all(),
    )
    # A group's part of the variance: units of a small group weigh more, and so do its ends.
    weight = (1 - e / e.sum().over(_TEST)) * pl.col("squares") / e
    return (
        by_group.with_columns(weight=weight)
        .group_by(_TEST)
        .agg(
            degrees=pl.col("weight").sum() ** 2 / (pl.col("weight") ** 2 / pl.col("degrees")).sum(),
            n=pl.col("n").sum(),
            has_enough_units=pl.col("has_enough_units").all(),
        )
    )
