"""Which cluster to look at first: a weighted sum whose every part is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean

#: What counts how much; only the proportions matter. Causes count more than rows, because
#: a fan-out repeats one cause; hours are what is always known of the costs.
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"causes": 3.0, "rows": 1.0, "recency": 1.0, "run_s": 2.0, "tokens": 1.0, "cost": 2.0}
)
_COLUMNS = {
    "causes": "n_causes",
    "rows": "n_rows",
    "run_s": "run_s",
    "tokens": "n_tokens",
    "cost": "cost_usd",
}


def read_weights(weights: Mapping[str, float] | None) -> dict[str, float]:
    """All weights: the given ones over the usual ones.

    Raises
    ------
    ArgumentError
        If a name is unknown, a weight is negative or no number, or all are 0.

    Examples
    --------
    >>> read_weights({"cost": 10})["cost"]
    10.0
    """
    given = dict(weights or {})
    if unknown := [name for name in given if name not in WEIGHTS]:
        raise ArgumentError(
            f"weights needs names of {list(WEIGHTS)}; found {unknown[0]!r}.",
            "weights={'cost': 3}" + did_you_mean(str(unknown[0]), WEIGHTS),
            shell="--weight cost=3" + did_you_mean(str(unknown[0]), WEIGHTS),
        )
    for name, value in given.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise ArgumentError(
                f"The weight of {name} needs a number from 0; found {value!r:.60}.",
                f"weights={{'{name}': 1}}",
            )
    chosen = {**WEIGHTS, **{name: float(value) for name, value in given.items()}}
    if not any(chosen.values()):
        raise ArgumentError("All weights are 0, so nothing ranks.", "weights={'causes': 1}")
    return chosen


def add_score(
    clusters: pl.DataFrame,
    *,
    since: datetime,
    until: datetime,
    weights: Mapping[str, float] | None = None,
) -> pl.DataFrame:
    """Rank clusters by what they cost.

    Parameters
    ----------
    clusters : polars.DataFrame
        With ``n_causes``, ``n_rows``, ``last_at``, ``run_s``, ``n_tokens``, ``cost_usd``.
    since, until : datetime
        The stretch of time that is looked at.
    weights : mapping of str to float, optional
        Names of `WEIGHTS`; what is not named keeps its usual weight.

    Returns
    -------
    polars.DataFrame
        ``clusters`` with ``rank`` (from 1), ``score`` (0 to 1) and its parts
        ``score_<name>``, which add up to it. Best rank first.

    Notes
    -----
    A part is the cluster's value over the largest of any cluster, times its weight;
    recency is how late in the stretch the last failure was. What a cluster did not
    report is null and not 0: that weight then goes to its causes, which are always known.
    """
    chosen = read_weights(weights)
    length = max((until - since).total_seconds(), 1e-6)
    lateness = (pl.col("last_at") - since).dt.total_microseconds() / 1e6 / length
    worth = {
        name: (
            lateness.clip(0.0, 1.0)
            if name == "recency"
            else pl.col(_COLUMNS[name]) / _largest(_COLUMNS[name])
        )
        for name in chosen
    }
    total = sum(chosen.values())
    unknown = pl.sum_horizontal(
        pl.when(part.is_null()).then(chosen[name]).otherwise(0.0) for name, part in worth.items()
    )
    parts = {f"score_{name}": part * (chosen[name] / total) for name, part in worth.items()}
    parts["score_causes"] = worth["causes"] * ((unknown + chosen["causes"]) / total)
    return (
        clusters.with_columns(**parts)
        .with_columns(score=pl.sum_horizontal(*parts))
        .sort("score", "n_causes", "n_rows", "cluster_id", descending=[True, True, True, False])
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    )


def _largest(column: str) -> pl.Expr:
    # By a whole column: polars divides by one number through its rounded inverse.
    largest = pl.col(column).max().over(pl.lit(1))
    return pl.when(largest > 0).then(largest.cast(pl.Float64)).otherwise(1.0)
