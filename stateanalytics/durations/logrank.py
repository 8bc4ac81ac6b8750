"""Do groups of spells end at different speed: the log-rank test."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.distributions import chi_square_tail
from stateanalytics.durations.risk_sets import checked_spells
from stateanalytics.errors import ArgumentError


def logrank(spells: pl.DataFrame, by: str | Sequence[str], rho: float = 0.0) -> pl.DataFrame:
    """Test whether groups of spells share one curve.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 3)
        As for `kaplan_meier`; ``by`` names the groups.
    by : str or sequence of str
        The groups that are compared.
    rho : float
        Weight S(t-)**rho of the pooled curve: 0 is the log-rank test, 1 Peto's, which
        looks harder at early ends.

    Returns
    -------
    polars.DataFrame, shape (1, 5)
        ``statistic`` (chi-square), ``df``, ``p_value`` (both null with fewer than two
        groups or no ends), ``n_groups``, ``n_events``.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`.

    Notes
    -----
    Observed minus expected ends per group, with the hypergeometric variance; the p-value
    is the upper tail of chi-square. It says *that* curves differ, not by how much.

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
    strata = [by] if isinstance(by, str) else list(by)
    if not strata:
        raise ArgumentError("logrank needs groups to compare; found none.", "by='kind'")
    spells = checked_spells(spells, strata, "logrank")
    numbered = spells.with_columns(group=pl.struct(strata).rank("dense").cast(pl.Int64) - 1)
    table = _counts(numbered, rho)
    n_groups = numbered["group"].n_unique()
    n_events = int(spells["ended"].sum())
    statistic = _statistic(table, n_groups) if n_groups > 1 and n_events else None
    df = n_groups - 1
    return pl.DataFrame(
        {
            "statistic": [statistic],
            "df": [df],
            "p_value": [None if statistic is None else chi_square_tail(statistic, df)],
            "n_groups": [n_groups],
            "n_events": [n_events],
        },
        schema_overrides={"statistic": pl.Float64, "p_value": pl.Float64},
    )


def _counts(spells: pl.DataFrame, rho: float) -> pl.DataFrame:
    """Per distinct duration and group: at risk, ended, and both pooled, with the weight."""
    grid = spells.select("duration_s").unique().join(spells.select("group").unique(), how="cross")
    leaving = spells.group_by("group", "duration_s").agg(
        n_leaving=pl.len(), n_events=pl.col("ended").sum()
    )
    entry = pl.col("entry_s") if "entry_s" in spells.columns else pl.lit(None, pl.Float64)
    entries = spells.select("group", entry_s=entry.cast(pl.Float64).fill_null(float("-inf")))
    entering = entries.sort("entry_s").with_columns(
        n_entered=pl.int_range(1, pl.len() + 1).over("group")
    )
    per_group = (
        grid.join(leaving, on=["group", "duration_s"], how="left")
        .with_columns(pl.col("n_leaving", "n_events").fill_null(0).cast(pl.Int64))
        .sort("duration_s")
        .join_asof(
            entering,
            left_on="duration_s",
            right_on="entry_s",
            by="group",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .with_columns(
            n_gone=(pl.col("n_leaving").cum_sum() - pl.col("n_leaving")).over("group"),
        )
        .with_columns(n_at_risk=pl.col("n_entered").fill_null(0) - pl.col("n_gone"))
    )
    pooled = (
        per_group.group_by("duration_s")
        .agg(n=pl.col("n_at_risk").sum(), d=pl.col("n_events").sum())
        .sort("duration_s")
        .with_columns(survival=(1 - pl.col("d") / pl.col("n")).cum_prod())
        .with_columns(weight=pl.col("survival").shift(1, fill_value=1.0).pow(rho))
    )
    return per_group.join(pooled.filter(pl.col("d") > 0), on="duration_s")


def _statistic(table: pl.DataFrame, n_groups: int) -> float:
    """Quadratic form of observed minus expected over all groups but the last."""
    n, d, n_g = pl.col("n"), pl.col("d"), pl.col("n_at_risk")
    difference = (
        table.group_by("group")
        .agg(u=(pl.col("weight") * (pl.col("n_events") - n_g * d / n)).sum())
        .sort("group")["u"]
    )
    spread = pl.when(n > 1).then(pl.col("weight").pow(2) * d * (n - d) / (n.pow(2) * (n - 1)))
    shared = table.with_columns(spread=spread.otherwise(0.0))
    pairs = shared.join(shared.select("duration_s", "group", "n_at_risk"), on="duration_s")
    same = (pl.col("group") == pl.col("group_right")).cast(pl.Float64)
    covariance = (
        pairs.group_by("group", "group_right")
        .agg(v=(pl.col("spread") * n_g * (same * n - pl.col("n_at_risk_right"))).sum())
        .sort("group", "group_right")["v"]
        .to_list()
    )
    kept = range(n_groups - 1)
    matrix = [[covariance[i * n_groups + j] for j in kept] for i in kept]
    vector = [difference[i] for i in kept]
    solution = _solve(matrix, vector)
    return float(sum(u * x for u, x in zip(vector, solution, strict=True)))


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
