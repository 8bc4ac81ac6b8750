"""The Kaplan-Meier curve with its pointwise interval, and a band for the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, TypeAlias

import polars as pl

from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share
from stateanalytics.stats.distributions import kolmogorov_quantile
from stateanalytics.survival.by_unit import OF_UNITS, widened, with_known_units, with_units_of
from stateanalytics.survival.risk_sets import (
    LEAST_AT_RISK,
    STRATUM,
    checked_spells,
    product_limit,
    risk_sets,
    strata_of,
    tie,
)

ConfType: TypeAlias = Literal["log-log", "log", "plain"]
CONF_TYPES: tuple[ConfType, ...] = ("log-log", "log", "plain")


def interval(
    name: str, conf_level: float, conf_type: ConfType = "log-log", width: pl.Expr | None = None
) -> list[pl.Expr]:
    """Both ends of the interval of a curve, from its column and that of its standard error.

    Parameters
    ----------
    name : str
        Column of the curve; its standard error is in ``<name>_se``.
    conf_level : float
        Between 0 and 1.
    conf_type : {"log-log", "log", "plain"}
        Scale on which the estimate is taken as normal. The first stays within 0 and 1 by
        itself; the others are cut off there.
    width : polars.Expr, optional
        What to take for the standard error instead.

    Returns
    -------
    list of polars.Expr
        ``<name>_low`` and ``<name>_high``. Null where the curve is 0, for ``log-log`` also
        where it is 1: no scale is defined there, and R says NA, too.

    Raises
    ------
    ArgumentError
        If the level or the type is none.
    """
    check_share("conf_level", conf_level, 0.95)
    if conf_type not in CONF_TYPES:
        raise ArgumentError(
            f"conf_type must be one of {', '.join(CONF_TYPES)}; found {conf_type!r}.",
            'conf_type="log-log"',
        )
    z = NormalDist().inv_cdf(0.5 + conf_level / 2)
    value, se = pl.col(name), pl.col(f"{name}_se") if width is None else width
    if conf_type == "log-log":
        log = value.log()
        spread = z * se / (value * log).abs()
        low, high = ((log * (sign * spread).exp()).exp() for sign in (1, -1))
        is_defined = (value > 0) & (value < 1)
    elif conf_type == "log":
        low, high = (value * (sign * z * se / value).exp() for sign in (-1, 1))
        is_defined = value > 0
    else:
        low, high = (value + sign * z * se for sign in (-1, 1))
        is_defined = value > 0
    return [
        pl.when(is_defined).then(low.clip(lower_bound=0.0)).alias(f"{name}_low"),
        pl.when(is_defined).then(high.clip(upper_bound=1.0)).alias(f"{name}_high"),
    ]


CURVE = (
    "duration_s",
    "n_at_risk",
    "n_events",
    "survival",
    "survival_se",
    "survival_low",
    "survival_high",
    "from_s",
    "n_units",
)


def kaplan_meier(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
    least_at_risk: int = LEAST_AT_RISK,
) -> pl.DataFrame:
    """Probability that a spell is still open after each duration, with its interval.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        One row per spell: ``duration_s`` (seconds, >= 0); ``ended`` (Boolean), False where
        the log stopped first; optional ``entry_s``: the duration at which the spell came
        under observation (left truncation), null or 0 for from its start; optional
        ``left_out``: spells where it is set are not counted; optional ``unit``, or the keys
        of runs: which spells are alike (one show, one invocation). Without, each is alone.
    by : str or sequence of str
        Strata; null is a stratum of its own.
    conf_level : float
        Level of the pointwise interval.
    conf_type : {"log-log", "log", "plain"}
        Its scale. R's default is ``log``: say which one a number was made with.
    least_at_risk : int
        Where spells enter late, the curve begins with so many under observation; 0: R's
        curve, which a single early one can take to 0.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 9)
        Sorted by stratum and ``duration_s``; ``n_at_risk``, ``n_events`` count spells,
        ``survival`` is a probability, ``survival_se`` its standard error by unit (null
        where the curve is 0, or units are fewer than 5), ``survival_low`` and
        ``survival_high`` the interval, null where it is not defined (at 0, and for log-log
        at 1); ``from_s``, where the curve begins: above 0 it holds for spells that lasted
        until then, and ends before are not counted (null: there were never
        ``least_at_risk``, and nothing is known); ``n_units``.

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
    Where every spell is a unit of its own, the variance is Greenwood's. Else it is the
    infinitesimal jackknife by unit, as of R's ``survfit(cluster=)`` [2]_, with each unit
    raised for its own weight, never below Greenwood's, drawn towards that of units alike
    throughout where few show it; Student's quantile stands for what is due to units.

    References
    ----------
    .. [1] Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete
       observations. JASA 53, 457-481.
    .. [2] Williams, R. L. (1995). Product-limit survival functions with correlated survival
       times. Lifetime Data Analysis 1, 171-186.

    Examples
    --------
    >>> spells = pl.DataFrame({"duration_s": [5.0, 8.0, 8.0], "ended": [True, True, False]})
    >>> kaplan_meier(spells)["survival"].round(3).to_list()
    [0.667, 0.333]
    """
    strata = strata_of(by)
    ends = interval("survival", conf_level, conf_type, pl.col("width").sqrt())
    check_number("least_at_risk", least_at_risk, LEAST_AT_RISK, is_whole=True)
    checked = checked_spells(with_known_units(spells), strata, "kaplan_meier")
    sets = risk_sets(checked, strata, least_at_risk=least_at_risk)
    n, d, left = pl.col("n_at_risk"), pl.col("n_events"), pl.col("survival")
    table = sets.table.with_columns(survival=known_survival()).with_columns(
        variance=(left**2 * greenwood_sum().over(STRATUM)).fill_nan(None)
    )
    parts = {
        "incidence": 1 - left,
        "each": left.shift(1, fill_value=1.0).over(STRATUM) / n,
        "n_counted": d,
    }
    known = with_units_of(table, sets.rows, parts, pl.lit(value=True), conf_level)
    curve = (
        widened(known, "survival", pl.col(OF_UNITS))
        .with_columns(survival_se=pl.col("variance").sqrt())
        .with_columns(ends)
    )
    return sets.named(curve, CURVE)


def bare_curve(spells: pl.DataFrame) -> pl.DataFrame:
    """The curve of `kaplan_meier` alone: in a seventh of the steps, for hundreds of small ones.

    Parameters
    ----------
    spells : polars.DataFrame
        ``duration_s`` and ``ended``, which are known to be right; none enters late.

    Returns
    -------
    polars.DataFrame
        ``duration_s``, ``n_events`` and ``survival``.

    Examples
    --------
    >>> spells = pl.DataFrame({"duration_s": [5.0, 8.0, 8.0], "ended": [True, True, False]})
    >>> bare_curve(spells)["survival"].round(3).to_list()
    [0.667, 0.333]
    """
    left, sums = pl.col("n_leaving"), pl.col("n_leaving", "n_events")
    table = (
        spells.group_by("duration_s")
        .agg(n_leaving=pl.len(), n_events=pl.col("ended").sum())
        .sort("duration_s")
    )
    at = table["duration_s"]
    is_first = (at.diff() > tie(at)).fill_null(True)
    if not is_first.all():
        first = pl.when(is_first).then("duration_s").forward_fill()
        table = table.group_by(first, maintain_order=True).agg(sums.sum())
    at_risk = left.sum() - left.cum_sum() + left
    survival = product_limit(pl.col("n_events") / at_risk)
    return table.select("duration_s", "n_events", survival=survival)


def greenwood_sum() -> pl.Expr:
    """Variance of the logarithm of a curve; infinite from where everyone at risk ended."""
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    return (d / (n * (n - d))).cum_sum()


def survival() -> pl.Expr:
    """The product of shares that stay open, over a table of risk sets."""
    return product_limit(pl.col("n_events") / pl.col("n_at_risk")).over(STRATUM)


def known_survival() -> pl.Expr:
    """The same where the stratum has begun to be known at all."""
    return pl.when(pl.col("from_s").is_not_null()).then(survival())


def confidence_band(curve: pl.DataFrame, conf_level: float = 0.95) -> pl.DataFrame:
    """Add a band that holds the whole curve with the given confidence.

    Parameters
    ----------
    curve : polars.DataFrame
        What `kaplan_meier` returned, without late entries; other columns are strata.
    conf_level : float
        That the true curve lies within, everywhere at once.

    Returns
    -------
    polars.DataFrame
        ``curve`` with ``band_low`` and ``band_high``; null where it is 0 or 1.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If it is no curve, or the level is not in (0, 1).

    Notes
    -----
    Hall and Wellner's band [1]_ on the log(-log) scale, with the quantile for the whole
    range of durations. Somewhere, a pointwise interval misses the curve much more often
    than it says: "the curves differ at some duration" needs this band, or `logrank`. It
    is wider in the middle, and says most there.

    References
    ----------
    .. [1] Hall, W. J. and Wellner, J. A. (1980). Confidence bands for a survival curve
       from censored data. Biometrika 67, 133-143.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> spells = pl.DataFrame({"duration_s": [float(i) for i in range(1, 41)], "ended": True})
    >>> half = confidence_band(kaplan_meier(spells)).filter(pl.col("duration_s") == 20)
    >>> half.select(pl.col("survival", "band_low", "band_high").round(2)).row(0)
    (0.5, 0.28, 0.69)
    """
    check_columns(curve, CURVE, "confidence_band")
    check_share("conf_level", conf_level, 0.95)
    strata = [name for name in curve.columns if name not in CURVE]
    value, log = pl.col("survival"), pl.col("survival").log()
    n, greenwood = pl.col("n_at_risk").max(), greenwood_sum()
    n, greenwood = (part.over(strata) if strata else part for part in (n, greenwood))
    # Runs of one unit are worth fewer: as many fewer as their variance is larger.
    effect = (pl.col("survival_se") / value).pow(2) / greenwood
    width = kolmogorov_quantile(conf_level) * (1 + n * greenwood) * (effect / n).sqrt() / log.abs()
    inside = (value > 0) & (value < 1)
    return curve.with_columns(
        pl.when(inside).then((log * (sign * width).exp()).exp()).alias(name)
        for name, sign in (("band_low", 1), ("band_high", -1))
    )
