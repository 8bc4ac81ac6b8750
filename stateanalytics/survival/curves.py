"""How many are still open after each duration: the Kaplan-Meier curve."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.survival.confidence import ConfType, interval
from stateanalytics.survival.risk_sets import STRATUM, checked_spells, risk_sets, strata_of

CURVE = (
    "duration_s",
    "n_at_risk",
    "n_events",
    "survival",
    "survival_se",
    "survival_low",
    "survival_high",
)


def kaplan_meier(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
) -> pl.DataFrame:
    """Probability that a spell is still open after each duration, with its interval.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        One row per spell: ``duration_s`` (seconds, >= 0); ``ended`` (Boolean), False where
        the log stopped first; optional ``entry_s``: the duration at which the spell came
        under observation (left truncation), null or 0 for from its start; optional
        ``left_out``: spells where it is set are not counted.
    by : str or sequence of str
        Strata; null is a stratum of its own.
    conf_level : float
        Level of the pointwise interval.
    conf_type : {"log-log", "log", "plain"}
        Its scale. R's default is ``log``: say which one a number was made with.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 7)
        Sorted by stratum and ``duration_s``; ``n_at_risk``, ``n_events`` count spells,
        ``survival`` is a probability, ``survival_se`` its standard error (Greenwood; null
        where the curve is 0), ``survival_low`` and ``survival_high`` the interval, null
        where it is not defined (at 0, and for log-log at 1).

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a duration is null, negative or not finite, or an entry is not before its end.

    Notes
    -----
    Ends and cut-offs at the same duration: all are at risk there, ends first [1]_.
    Durations that differ by less than R's ``timefix`` are the same. With ``entry_s`` a
    spell is at risk from just after its entry: entry < t <= duration.
    The interval is pointwise: it says nothing about the whole curve at once. Independent
    censoring is assumed: stratify by configured timeout where limits differ.
    No spells give no rows; where every spell is cut off, the curve stays at 1.

    References
    ----------
    .. [1] Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete
       observations. JASA 53, 457-481.

    Examples
    --------
    >>> spells = pl.DataFrame({"duration_s": [5.0, 8.0, 8.0], "ended": [True, True, False]})
    >>> kaplan_meier(spells)["survival"].round(3).to_list()
    [0.667, 0.333]
    """
    strata = strata_of(by)
    ends = interval("survival", conf_level, conf_type)
    sets = risk_sets(checked_spells(spells, strata, "kaplan_meier"), strata)
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    # Greenwood's sum is infinite from where everyone at risk ended.
    greenwood = (d / (n * (n - d))).cum_sum().over(STRATUM)
    curve = (
        sets.table.with_columns(survival=survival(), _greenwood=greenwood)
        .with_columns(survival_se=pl.col("survival") * pl.col("_greenwood").sqrt())
        .with_columns(pl.col("survival_se").fill_nan(None))
        .with_columns(ends)
    )
    return sets.named(curve, CURVE)


def survival() -> pl.Expr:
    """The product of shares that stay open, over a table of risk sets."""
    return (1 - pl.col("n_events") / pl.col("n_at_risk")).cum_prod().over(STRATUM)
