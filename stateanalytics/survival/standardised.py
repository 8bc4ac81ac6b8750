"""The difference of two groups within the strata that both have: direct standardisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.survival.curves import known_survival
from stateanalytics.survival.estimates import TOLERANCE
from stateanalytics.survival.influence import CELL, incidence_and_influence
from stateanalytics.survival.log_rank import logrank
from stateanalytics.survival.risk_sets import STRATUM, checked_spells, risk_sets

Estimate: TypeAlias = Callable[[pl.DataFrame, list[str], float], tuple[pl.DataFrame, pl.DataFrame]]
Estimates: TypeAlias = Callable[[pl.DataFrame, float], tuple[pl.DataFrame, pl.DataFrame]]
IS_FIRST, STRATUM_NAME = "_is_first", "_stratum_name"
"""Columns that say which of the two groups a run is of, and in which stratum."""
FEWEST_UNITS = 3
"""Units of each group that a stratum needs: fewer do not show how much units vary."""
MOST_NAMED = 3
_MOST_ENDED = 0.9
_BOTH = 2


def difference(
    runs: pl.DataFrame,
    estimate: Estimate,
    until_s: float,
    projects: pl.DataFrame | None,
    *,
    has_log_rank: bool,
) -> dict[str, Any]:
    """The difference of the two groups, first minus second, and how much it varies.

    Parameters
    ----------
    runs : polars.DataFrame
        As ``estimate`` needs them, with ``unit``, `IS_FIRST` and `STRATUM_NAME`.
    estimate : callable
        `mean_and_influence` or `incidence_and_influence`.
    until_s : float
        The horizon, in seconds.
    projects : polars.DataFrame, optional
        What `differing_projects` gave, where projects are not adjusted for.
    has_log_rank : bool
        Whether somebody reads the log-rank test, which takes as long as the rest.

    Returns
    -------
    dict
        ``estimate`` with its ``variance`` and Welch's ``degrees`` (None where no stratum has
        both), what was compared and what was not, and ``log_rank``: the p-value of the
        log-rank test over all strata, by unit.
    """
    key = [STRATUM_NAME, IS_FIRST]
    estimates, influences = estimate(runs, key, until_s)
    sizes = runs.group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    both, used = _of_both(estimates.join(sizes, on=key))
    kept = runs.join(both, on=STRATUM_NAME, how="semi")
    row = _sizes(kept) | _left_over(runs, both)
    if both.is_empty():
        return row | {"estimate": None, "variance": None, "degrees": None}
    moved = _moved(influences, used)
    variance = _sum_of_squares(moved.group_by("unit").agg(_total("moved")))
    n = pl.col("n_units")
    of_cells = moved.group_by(CELL, "n_units").agg(_total(pl.col("moved") ** 2))
    if estimate is incidence_and_influence:
        variance += _unseen(used)
    spread = of_cells.select(_total(pl.col("moved") ** 2 / (n - 1))).item()
    degrees = of_cells.select(_total("moved")).item() ** 2 / spread if spread else inf
    if projects is not None:
        shared = moved.join(projects, on="unit").group_by("project").agg(_total("moved"))
        # Of strata that only one project has in common nobody sees how much projects vary.
        others = shared.height - 1
        if others and (of_projects := _sum_of_squares(shared) * shared.height / others) > variance:
            variance, degrees = of_projects, others
    log_rank = None
    if has_log_rank:
        log_rank = logrank(kept, IS_FIRST, strata=STRATUM_NAME)["p_value"].item()
    return row | {
        "estimate": _estimated(used),
        "variance": variance,
        "degrees": max(degrees, 1.0),
        "log_rank": log_rank,
    }


def differences(
    runs: pl.DataFrame, by: str, base: str, until_s: Mapping[str, float], estimate: Estimates
) -> dict[str, float]:
    """The differences of several groups from one, without how much they vary: much quicker.

    Parameters
    ----------
    runs : polars.DataFrame
        As for `difference`, with the column ``by`` in place of `IS_FIRST`, and ``is_good``.
    by, base : str
        The column of groups, and the one that the others are compared with.
    until_s : mapping of str to float
        The other groups, each with its horizon.
    estimate : callable
        `means` or `shares`.

    Returns
    -------
    dict of str to float
        By group; 0 where no stratum has both.
    """
    key, of_good = [STRATUM_NAME, by], {"n_good": pl.col("is_good") & pl.col("ended")}
    sizes = runs.group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    sets = risk_sets(checked_spells(runs, key, "compare", also=["is_good"]), key, of_good)
    cells = sets.strata.join(sizes, on=key)
    found = {}
    for value, until in until_s.items():
        of_pair = cells.filter(pl.col(by).is_in([value, base])).with_columns(
            (pl.col(by) == value).alias(IS_FIRST)
        )
        table = sets.table.filter(pl.col(CELL).is_in(of_pair[CELL].implode()))
        _, used = _of_both(estimate(table, until)[1].join(of_pair, on=CELL))
        found[value] = _estimated(used)
    return found


def _of_both(cells: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Strata with enough of both groups and their weight, and their cells with it as a sign."""
    both = (
        cells.filter("is_reached", pl.col("n_units") >= FEWEST_UNITS)
        .group_by(STRATUM_NAME)
        .agg(n_groups=pl.len(), weight=pl.col("n_runs").sum())
        .filter(pl.col("n_groups") == _BOTH)
        .with_columns(pl.col("weight") / pl.col("weight").sum())
    )
    return both, cells.join(both, on=STRATUM_NAME).with_columns(
        weight=pl.col("weight") * pl.when(IS_FIRST).then(1.0).otherwise(-1.0)
    )


def _estimated(used: pl.DataFrame) -> float:
    return float(used.select(_total(pl.col("weight") * pl.col("estimate"))).item())


def _moved(influences: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """What each unit adds in each cell, no less than its runs would if they were not alike.

    Few units that happen to be alike say too little of how much units vary.
    """
    n, square = pl.col("n_units"), pl.col("influence") ** 2
    # Within a cell, what units add is drawn together by their own mean: as much as leaving one
    # out would move the estimate (the jackknife), which holds better where units are few.
    weight = pl.col("weight") * n / (n - 1)
    by_unit = influences.group_by(CELL, "unit").agg(_total("influence"), alone=_total(square))
    effect = _total("alone").over(CELL) / _total(square).over(CELL)
    return by_unit.join(used.select(CELL, "n_units", weight=weight), on=CELL).select(
        CELL,
        "unit",
        "n_units",
        moved=pl.col("influence")
        * pl.col("weight")
        * effect.fill_nan(1.0).clip(lower_bound=1.0, upper_bound=1e6).sqrt(),
    )


def _unseen(used: pl.DataFrame) -> float:
    """What shares vary by at least where all or none of a cell had it: as if half a run more had.

    In the other cells their own variation says more.
    """
    n, share = pl.col("n_runs"), pl.col("estimate")
    smoothed = (share * n + 0.5) / (n + 1)
    least = pl.col("weight") ** 2 * smoothed * (1 - smoothed) / (n + 1)
    is_all_or_none = (share <= 0) | (share >= 1 - TOLERANCE)
    return float(used.select(_total(least.filter(is_all_or_none))).item())


def _sum_of_squares(moved: pl.DataFrame) -> float:
    return float(moved.select(_total(pl.col("moved") ** 2)).item())


def _sizes(kept: pl.DataFrame) -> dict[str, int]:
    """Runs and units that were compared, of both groups."""
    named: dict[str, int] = {}
    for suffix, is_value in (("", True), ("_against", False)):
        group = kept.filter(pl.col(IS_FIRST) == is_value)
        named |= {f"n_runs{suffix}": group.height, f"n_units{suffix}": group["unit"].n_unique()}
    return named


def _left_over(runs: pl.DataFrame, both: pl.DataFrame) -> dict[str, Any]:
    """The share of runs that have a counterpart, and where the largest others stand."""
    others = (
        runs.join(both, on=STRATUM_NAME, how="anti")
        .group_by(STRATUM_NAME)
        .len()
        .sort(-pl.col("len").cast(pl.Int64), STRATUM_NAME)
    )
    words = [f"{name} ({n} run{'s' * (n > 1)})" for name, n in others.head(MOST_NAMED).rows()]
    n_more = others.height - len(words)
    words += [f"{n_more} more"] if n_more else []
    return {
        "compared": 1 - others["len"].sum() / runs.height,
        "not_compared": "; ".join(words) or None,
    }


def horizon(runs: pl.DataFrame) -> float:
    """How far both groups were seen, but not beyond where nine in ten have ended."""
    # How sure the curves are is not asked, which takes several times as long.
    rows = checked_spells(runs, [IS_FIRST], "compare")
    of_groups, of_all = (
        risk_sets(rows, strata).table.with_columns(survival=known_survival())
        for strata in ([IS_FIRST], [])
    )
    at, left = pl.col("duration_s"), pl.col("survival")
    reached = of_groups.group_by(STRATUM).agg(pl.when(left.min() > TOLERANCE).then(at.max()))
    most = of_all.filter(left <= 1 - _MOST_ENDED + TOLERANCE)["duration_s"].min()
    longest = of_groups["duration_s"].max()
    known = [value for value in (*reached["duration_s"], most, longest) if value is not None]
    return float(min(known))


def differing_projects(runs: pl.DataFrame) -> pl.DataFrame | None:
    """The project of each unit, where there are enough of them to see how much they vary."""
    if "project" not in runs.columns or runs["project"].drop_nulls().n_unique() < FEWEST_PROJECTS:
        return None
    # A unit without a project is of no other's.
    alone = pl.lit("\n") + pl.col("unit").cast(pl.String)
    projects = runs.group_by("unit").agg(pl.col("project").min())
    return projects.with_columns(pl.coalesce("project", alone))


def _total(of: str | pl.Expr) -> pl.Expr:
    """The same sum to the last digit, whatever the order that rows of groups came in."""
    return (pl.col(of) if isinstance(of, str) else of).sort().sum()
