"""How soon they complete, among the runs that do."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.survival.confidence import interval
from stateanalytics.survival.incidence import cause_table, covariance, of_one_cause
from stateanalytics.survival.risk_sets import STRATUM, strata_of

GOOD_END = "completed"
SHARE = ("duration_s", "share", "share_se", "share_low", "share_high", "horizon_s")


def completion_times(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    cause: str = "cause",
) -> pl.DataFrame:
    """Of the runs that complete, the share that has by each duration.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `cumulative_incidence`.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the pointwise interval.
    cause : str
        Column of causes; the good one is ``completed``.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 6)
        ``duration_s``, ``share``, ``share_se``, ``share_low``, ``share_high`` (null where
        the share is 0 or 1), and ``horizon_s``, the longest duration of the stratum.
        Strata where nothing completed have no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `cumulative_incidence`.

    Notes
    -----
    F(t) / F(horizon), with F the incidence of completion: those that complete *within the
    observed horizon*. Dropping what has not ended instead would make runs look fast. The
    variance is that of a ratio, with the covariance of the incidence at two durations.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"duration_s": [1.0, 2.0, 3.0, 4.0],
    ...      "cause": ["completed", "failed", "completed", "completed"]}
    ... )
    >>> completion_times(runs)["share"].round(3).to_list()
    [0.333, 0.333, 0.667, 1.0]
    """
    strata = strata_of(by)
    ends = interval("share", conf_level)
    causes = cause_table(spells, cause, strata, "completion_times")
    words = causes.names["cause"].cast(pl.String).to_list()
    if GOOD_END not in words:
        whose = {name: spells.schema[name] for name in strata}
        return pl.DataFrame(schema={**whose, **dict.fromkeys(SHARE, pl.Float64)})
    f, last = pl.col("incidence"), pl.col("incidence").last().over(STRATUM)
    variances = (
        of_one_cause(causes.table.lazy(), words.index(GOOD_END))
        .with_columns(
            _variance=covariance(f),
            _covariance=covariance(last),
            _last=last,
            horizon_s=pl.col("duration_s").last().over(STRATUM),
        )
        .filter(pl.col("_last") > 0)
        .collect()
    )
    last = pl.col("_last")
    relative = (
        pl.col("_variance") / (f * f)
        + pl.col("_variance").last().over(STRATUM) / (last * last)
        - 2 * pl.col("_covariance") / (f * last)
    )
    shares = (
        # Above 1 by rounding alone, where the last completion has come.
        variances.with_columns(share=(f / last).clip(upper_bound=1.0))
        .with_columns(share=pl.when(pl.col("share") > 1 - 1e-12).then(1.0).otherwise("share"))
        .with_columns(
            share_se=pl.when(f > 0)
            .then(pl.col("share") * relative.clip(lower_bound=0.0).sqrt())
            .otherwise(0.0)
        )
        .with_columns(ends)
    )
    named = shares.join(causes.strata, on=STRATUM, how="left", maintain_order="left")
    return named.select(*strata, *SHARE)
