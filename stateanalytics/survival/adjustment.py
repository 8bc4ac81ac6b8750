"""Two groups compared for the same mix of work: direct standardisation, and Cox's regression."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.errors import needing
from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.survival.jackknife import incidence_and_influence
from stateanalytics.survival.log_rank import logrank
from stateanalytics.survival.risk_sets import (
    STRATUM,
    TOLERANCE,
    checked_spells,
    known_survival,
    risk_sets,
)

Estimate: TypeAlias = Callable[[pl.DataFrame, list[str], float], tuple[pl.DataFrame, pl.DataFrame]]
Estimates: TypeAlias = Callable[[pl.DataFrame, float], tuple[pl.DataFrame, pl.DataFrame]]
IS_FIRST, STRATUM_NAME = "_is_first", "_stratum_name"
"""Columns: whether a run is in the first of the two groups, and the name of its stratum."""
FEWEST_UNITS = 3
"""Units of each group that a stratum needs, so that the variance between units is estimable."""
_MOST_NAMED = 3
_MOST_ENDED = 0.9
_BOTH = 2
FEWEST_ENDS = 5
"""Levels of a term of the regression with fewer ends become one level, *other*."""


def difference(
    runs: pl.DataFrame,
    estimate: Estimate,
    until_s: float,
    projects: pl.DataFrame | None,
    *,
    has_log_rank: bool,
) -> dict[str, Any]:
    """The standardised difference of the two groups, first minus second, and its variance.

    Parameters
    ----------
    runs : polars.DataFrame
        As for ``estimate``, with ``unit``, `IS_FIRST` and `STRATUM_NAME`.
    estimate : callable
        `mean_and_influence` or `incidence_and_influence`.
    until_s : float
        The horizon, in seconds.
    projects : polars.DataFrame, optional
        From `differing_projects`, where projects are not adjusted for.
    has_log_rank : bool
        Whether to run the log-rank test, which takes as long as the rest.

    Returns
    -------
    dict
        ``estimate`` with its ``variance`` and Welch's ``degrees`` of freedom (None where no
        stratum has both groups), what was compared and what was not, and ``log_rank``: the
        p-value of the log-rank test over all strata, by unit.
    """
    key = [STRATUM_NAME, IS_FIRST]
    estimates, influences = estimate(runs, key, until_s)
    sizes = runs.group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    strata, cells = _comparable(estimates.join(sizes, on=key))
    kept = runs.join(strata, on=STRATUM_NAME, how="semi")
    row = _group_sizes(kept) | _coverage(runs, strata)
    if strata.is_empty():
        return row | {"estimate": None, "variance": None, "degrees": None}
    influence = _unit_influence(influences, cells)
    variance = _sum_of_squares(influence.group_by("unit").agg(_total("influence")))
    n = pl.col("n_units")
    squares = influence.group_by(STRATUM, "n_units").agg(_total(pl.col("influence") ** 2))
    if estimate is incidence_and_influence:
        variance += _minimum_variance(cells)
    # Welch and Satterthwaite: (sum of variances)² over the sum of variance² / (n - 1).
    spread = squares.select(_total(pl.col("influence") ** 2 / (n - 1))).item()
    degrees = squares.select(_total("influence")).item() ** 2 / spread if spread else inf
    if projects is not None:
        by_project = (
            influence.join(projects, on="unit").group_by("project").agg(_total("influence"))
        )
        n_projects = by_project.height
        # A single project in these strata does not show how much projects vary.
        if n_projects > 1:
            project_variance = _sum_of_squares(by_project) * n_projects / (n_projects - 1)
            if project_variance > variance:
                variance, degrees = project_variance, n_projects - 1
    log_rank = None
    if has_log_rank:
        log_rank = logrank(kept, IS_FIRST, strata=STRATUM_NAME)["p_value"].item()
    return row | {
        "estimate": _weighted_sum(cells),
        "variance": variance,
        "degrees": max(degrees, 1.0),
        "log_rank": log_rank,
    }


def differences(
    runs: pl.DataFrame, by: str, base: str, until_s: Mapping[str, float], estimate: Estimates
) -> dict[str, float]:
    """The standardised differences of several groups from one, without variances: much faster.

    Parameters
    ----------
    runs : polars.DataFrame
        As for `difference`, with the column ``by`` in place of `IS_FIRST`, and ``is_good``.
    by, base : str
        The column of groups, and the group that the others are compared with.
    until_s : mapping of str to float
        Horizon of each other group.
    estimate : callable
        `restricted_means` or `good_shares`.

    Returns
    -------
    dict of str to float
        By group; 0 where no stratum has both groups.
    """
    key, counts = [STRATUM_NAME, by], {"n_good": pl.col("is_good") & pl.col("ended")}
    sizes = runs.group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    sets = risk_sets(checked_spells(runs, key, "compare", also=["is_good"]), key, counts)
    all_cells = sets.strata.join(sizes, on=key)
    results = {}
    for value, until in until_s.items():
        pair = all_cells.filter(pl.col(by).is_in([value, base])).with_columns(
            (pl.col(by) == value).alias(IS_FIRST)
        )
        table = sets.table.filter(pl.col(STRATUM).is_in(pair[STRATUM].implode()))
        _, cells = _comparable(estimate(table, until)[1].join(pair, on=STRATUM))
        results[value] = _weighted_sum(cells)
    return results


def _comparable(cells: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Strata with enough units of both groups, and their cells with signed weights."""
    strata = (
        cells.filter("is_reached", pl.col("n_units") >= FEWEST_UNITS)
        .group_by(STRATUM_NAME)
        .agg(n_groups=pl.len(), weight=pl.col("n_runs").sum())
        .filter(pl.col("n_groups") == _BOTH)
        .with_columns(pl.col("weight") / pl.col("weight").sum())
    )
    return strata, cells.join(strata, on=STRATUM_NAME).with_columns(
        weight=pl.col("weight") * pl.when(IS_FIRST).then(1.0).otherwise(-1.0)
    )


def _weighted_sum(cells: pl.DataFrame) -> float:
    return float(cells.select(_total(pl.col("weight") * pl.col("estimate"))).item())


def _unit_influence(influences: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Influence of each unit on the difference, per cell; at least that of independent runs.

    Few units that happen to be similar understate the variance between units.
    """
    n, square = pl.col("n_units"), pl.col("influence") ** 2
    # The factor n / (n - 1) turns influences into the differences that leaving one unit out
    # makes (the delete-one jackknife), which holds better with few units.
    weight = pl.col("weight") * n / (n - 1)
    by_unit = influences.group_by(STRATUM, "unit").agg(
        _total("influence"), independent=_total(square)
    )
    effect = _total("independent").over(STRATUM) / _total(square).over(STRATUM)
    return by_unit.join(cells.select(STRATUM, "n_units", weight=weight), on=STRATUM).select(
        STRATUM,
        "unit",
        "n_units",
        influence=pl.col("influence")
        * pl.col("weight")
        * effect.fill_nan(1.0).clip(lower_bound=1.0, upper_bound=1e6).sqrt(),
    )


def _minimum_variance(cells: pl.DataFrame) -> float:
    """Binomial variance of shares of 0 or 1, which vary between no units: half a run is added.

    In other cells the variance between units is better.
    """
    n, share = pl.col("n_runs"), pl.col("estimate")
    smoothed = (share * n + 0.5) / (n + 1)
    variance = pl.col("weight") ** 2 * smoothed * (1 - smoothed) / (n + 1)
    is_all_or_none = (share <= 0) | (share >= 1 - TOLERANCE)
    return float(cells.select(_total(variance.filter(is_all_or_none))).item())


def _sum_of_squares(influence: pl.DataFrame) -> float:
    return float(influence.select(_total(pl.col("influence") ** 2)).item())


def _group_sizes(kept: pl.DataFrame) -> dict[str, int]:
    """Compared runs and units of both groups."""
    sizes: dict[str, int] = {}
    for suffix, is_value in (("", True), ("_against", False)):
        group = kept.filter(pl.col(IS_FIRST) == is_value)
        sizes |= {f"n_runs{suffix}": group.height, f"n_units{suffix}": group["unit"].n_unique()}
    return sizes


def _coverage(runs: pl.DataFrame, strata: pl.DataFrame) -> dict[str, Any]:
    """Share of runs in strata with both groups, and the largest other strata in words."""
    others = (
        runs.join(strata, on=STRATUM_NAME, how="anti")
        .group_by(STRATUM_NAME)
        .len()
        .sort(-pl.col("len").cast(pl.Int64), STRATUM_NAME)
    )
    words = [f"{name} ({n} run{'s' * (n > 1)})" for name, n in others.head(_MOST_NAMED).rows()]
    n_more = others.height - len(words)
    words += [f"{n_more} more"] if n_more else []
    return {
        "compared": 1 - others["len"].sum() / runs.height,
        "not_compared": "; ".join(words) or None,
    }


def horizon(runs: pl.DataFrame) -> float:
    """The longest duration to which both groups are known, at most until nine in ten have ended."""
    # Risk sets only: the variance of the curves would take several times as long.
    rows = checked_spells(runs, [IS_FIRST], "compare")
    by_group, pooled = (
        risk_sets(rows, strata).table.with_columns(survival=known_survival())
        for strata in ([IS_FIRST], [])
    )
    at, value = pl.col("duration_s"), pl.col("survival")
    # A curve that reaches 0 is known for all longer durations as well.
    reached = by_group.group_by(STRATUM).agg(pl.when(value.min() > TOLERANCE).then(at.max()))
    most_ended = pooled.filter(value <= 1 - _MOST_ENDED + TOLERANCE)["duration_s"].min()
    limits = (*reached["duration_s"], most_ended, by_group["duration_s"].max())
    return float(min(limit for limit in limits if limit is not None))


def differing_projects(runs: pl.DataFrame) -> pl.DataFrame | None:
    """The project of each unit; None with too few projects to estimate how much they vary."""
    if "project" not in runs.columns or runs["project"].drop_nulls().n_unique() < FEWEST_PROJECTS:
        return None
    # A unit without a project counts as a project of its own.
    own = pl.lit("\n") + pl.col("unit").cast(pl.String)
    projects = runs.group_by("unit").agg(pl.col("project").min())
    return projects.with_columns(pl.coalesce("project", own))


def _total(values: str | pl.Expr) -> pl.Expr:
    """The sum in sorted order: the same to the last digit, whatever the order of the rows."""
    return (pl.col(values) if isinstance(values, str) else values).sort().sum()


# --- Cox's regression, an extra of its own -----------------------------------------------


def hazard_ratio(runs: pl.DataFrame, group: str, terms: Sequence[str]) -> dict[str, Any]:
    """Hazard ratio of a group against the others, given the terms.

    Parameters
    ----------
    runs : polars.DataFrame
        ``duration_s``, ``ended``, ``unit``, the Boolean ``group`` and the terms; optional
        ``entry_s``.
    group : str
        The Boolean column.
    terms : sequence of str
        Columns to adjust for. The one with most levels stratifies (each level has a baseline
        hazard of its own), the others are proportional.

    Returns
    -------
    dict
        ``estimate`` (the ratio), ``variance`` of its logarithm, by unit, and ``degrees`` of
        freedom; None where the groups were never at risk together.

    Raises
    ------
    MissingComponentError
        If statsmodels is not installed.

    Notes
    -----
    Ties as in Breslow's likelihood. Where hazards cross, one ratio is misleading: look at the
    curves.
    """
    with needing(
        "statsmodels", "A regression", extra="models", instead="leave out regression=True"
    ):
        import numpy as np
        from statsmodels.duration.hazard_regression import PHReg
    nothing = {"estimate": None, "variance": None, "degrees": None}
    rows = runs.with_columns(_level(name) for name in terms)
    by_levels = sorted(terms, key=lambda name: (rows[name].n_unique(), name))
    stratum = pl.col(by_levels[-1]).rank("dense") if terms else pl.lit(1)
    if rows.filter("ended")[group].n_unique() < 2:
        return nothing
    design = pl.concat(
        [
            rows.select(pl.col(group).cast(pl.Float64)),
            *(rows.select(name).to_dummies(drop_first=True) for name in by_levels[:-1]),
        ],
        how="horizontal",
    )
    # statsmodels needs positive durations; runs of no length were at risk as well.
    data = rows.select(
        pl.col("duration_s").clip(lower_bound=1e-9),
        pl.col("ended").cast(pl.Int64),
        pl.col("^entry_s$").fill_null(0.0),
        pl.col("unit").rank("dense").cast(pl.Int64),
        stratum=stratum,
    )
    columns = {name: np.array(data[name].to_list()) for name in data.columns}
    model = PHReg(
        columns["duration_s"],
        np.array(design.rows(), dtype=float),
        status=columns["ended"],
        strata=columns["stratum"],
        entry=columns.get("entry_s"),
        ties="breslow",
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ratio = model.fit(disp=False).params
        inverse = np.linalg.inv(model.hessian(ratio))
    except np.linalg.LinAlgError:  # no stratum has both groups
        return nothing
    units = columns["unit"] - 1
    scores = np.zeros((units.max() + 1, design.width))
    # The library gives no residual to a run that was at risk at no end; its influence is 0.
    np.add.at(scores, units, np.nan_to_num(model.score_residuals(ratio)))
    variance = float((inverse @ scores.T @ scores @ inverse)[0, 0])
    if not 0 < variance < float("inf"):
        return nothing
    n_units = rows.group_by(group).agg(pl.col("unit").n_unique())["unit"].to_list()
    return {
        "estimate": float(np.exp(ratio[0])),
        "variance": variance * len(scores) / (len(scores) - 1),
        "degrees": max(1, min(n_units) - 1),
    }


def _level(name: str) -> pl.Expr:
    """Levels of a term, rare ones merged: without ends a level has no hazard of its own."""
    n_ends = pl.col("ended").sum().over(name)
    words = pl.col(name).cast(pl.String).fill_null("not recorded")
    return pl.when(n_ends >= FEWEST_ENDS).then(words).otherwise(pl.lit("other")).alias(name)
