"""Cox's regression, by a library that knows many terms: an extra of its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.errors import needing

FEWEST_ENDS = 5
"""Levels of a term with fewer ends are one level, *other*: alone they have no hazard."""


def hazard_ratio(runs: pl.DataFrame, group: str, terms: Sequence[str]) -> dict[str, Any]:
    """How many times as fast runs of a group end as the others, given the terms.

    Parameters
    ----------
    runs : polars.DataFrame
        ``duration_s``, ``ended``, ``unit``, the Boolean ``group`` and the terms; optional
        ``entry_s``.
    group : str
        Whose ratio is asked for.
    terms : sequence of str
        What is held fixed. The one with most levels stratifies (each level has a hazard of
        its own, which may have any shape), the others multiply.

    Returns
    -------
    dict
        ``estimate`` (the ratio), ``variance`` of its logarithm, by unit, and ``degrees``;
        None where the groups never ran side by side.

    Raises
    ------
    MissingComponentError
        If statsmodels is not installed.

    Notes
    -----
    Ties as in Breslow's likelihood. Where hazards cross, one ratio says little: look at
    the curves.
    """
    with needing("statsmodels", "A regression", extra="models", instead="omit regression=True"):
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
    # What took no time was at risk, too.
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
    except np.linalg.LinAlgError:  # one group ran only where the other did not
        return nothing
    units = columns["unit"] - 1
    scores = np.zeros((units.max() + 1, design.width))
    # Who was at risk at no end has no residual by the library, and moves nothing.
    np.add.at(scores, units, np.nan_to_num(model.score_residuals(ratio)))
    variance = float((inverse @ scores.T @ scores @ inverse)[0, 0])
    if not 0 < variance < float("inf"):
        return nothing
    of_groups = rows.group_by(group).agg(pl.col("unit").n_unique())["unit"].to_list()
    return {
        "estimate": float(np.exp(ratio[0])),
        "variance": variance * len(scores) / (len(scores) - 1),
        "degrees": max(1, min(of_groups) - 1),
    }


def _level(name: str) -> pl.Expr:
    """Levels of a term, those that hardly ever ended as one."""
    n_ends = pl.col("ended").sum().over(name)
    words = pl.col(name).cast(pl.String).fill_null("not recorded")
    return pl.when(n_ends >= FEWEST_ENDS).then(words).otherwise(pl.lit("other")).alias(name)
