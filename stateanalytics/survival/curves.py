"""The Kaplan-Meier curve with its intervals, and the quantiles and restricted mean read off it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.words import each_in_words, say
from stateanalytics.errors import (
    ArgumentError,
    check_columns,
    check_number,
    check_option,
    check_share,
)
from stateanalytics.stats.distributions import student_quantiles
from stateanalytics.survival import jackknife
from stateanalytics.survival.frames import KaplanMeier, RestrictedMean, fixed_columns
from stateanalytics.survival.risk_sets import (
    MIN_AT_RISK,
    STRATUM,
    TOLERANCE,
    checked_spells,
    greenwood_sum,
    known_survival,
    product_limit,
    risk_sets,
    strata_of,
    tie,
)

ConfType: TypeAlias = Literal["log-log", "log", "plain"]


def interval(
    name: str, conf_level: float, conf_type: ConfType = "log-log", width: pl.Expr | None = None
) -> list[pl.Expr]:
    """Both ends of the pointwise interval of a curve.

    Parameters
    ----------
    name : str
        Column of the curve; its standard error is in ``<name>_se``.
    conf_level : float
        Between 0 and 1.
    conf_type : {"log-log", "log", "plain"}
        Scale on which the estimate is taken as normal. The first stays within 0 and 1 by
        itself; the others are clipped there.
    width : polars.Expr, optional
        Used in place of the standard error.

    Returns
    -------
    list of polars.Expr
        ``<name>_low`` and ``<name>_high``. Null where the curve is 0, for ``log-log`` also
        where it is 1: the scale is not defined there, and R gives NA as well.

    Raises
    ------
    ArgumentError
        If the level or the type is not valid.
    """
    check_share("conf_level", conf_level, 0.95)
    check_option("conf_type", conf_type, ("log-log", "log", "plain"))
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


CURVE = fixed_columns(KaplanMeier)


def kaplan_meier(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
    least_at_risk: int = MIN_AT_RISK,
) -> pl.DataFrame:
    """Probability that a spell is still open after each duration, with its interval.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        One row per spell: ``duration_s`` (seconds, >= 0); ``ended`` (Boolean), False where
        the log stopped first; optional ``entry_s``: the duration at which the spell came
        under observation (left truncation), null or 0 for from its start; optional
        ``left_out``: spells where it is set are not counted; optional ``unit``, or the keys
        of runs: spells of one unit (one show, one invocation) are not independent. Without
        it, each spell is a unit of its own.
    by : str or sequence of str
        Strata; null is a stratum of its own.
    conf_level : float
        Level of the pointwise interval.
    conf_type : {"log-log", "log", "plain"}
        Its scale. R's default is ``log``, so publish the scale with the number.
    least_at_risk : int
        Where spells enter late, the curve begins with so many at risk; 0: R's curve, which a
        single early spell can take to 0.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 9)
        Sorted by stratum and ``duration_s``; ``n_at_risk``, ``n_events`` count spells,
        ``survival`` is a probability, ``survival_se`` its standard error by unit (null
        where the curve is 0, or with fewer than 5 units, if one has several spells),
        ``survival_low`` and ``survival_high`` the interval, null where it is not defined (at 0,
        and for log-log at 1); ``from_s``, where the curve begins: above 0 it holds for spells
        that lasted until then, and earlier ends are not counted (null: there were never
        ``least_at_risk``, and nothing is known); ``n_units``.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a duration is null, negative or not finite, or an entry is not before its end.

    Notes
    -----
    Ties of ends and censored durations: all are at risk there, ends come first [1]_.
    Durations that differ by less than R's ``timefix`` are equal. With ``entry_s`` a
    spell is at risk from just after its entry: entry < t <= duration.
    The interval is pointwise, not for the whole curve at once. Independent censoring is
    assumed: stratify by configured timeout where limits differ.
    No spells give no rows; if every spell is censored, the curve stays at 1.
    Where every spell is a unit of its own, the variance is Greenwood's. Otherwise it is the
    infinitesimal jackknife by unit, as in R's ``survfit(cluster=)`` [2]_, with each unit
    corrected for its leverage, never below Greenwood's, and drawn towards that of identical
    spells within units where few units show otherwise; Student's quantile applies to the part
    of the variance that is due to units.

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
    check_number("least_at_risk", least_at_risk, MIN_AT_RISK, is_whole=True)
    checked = checked_spells(jackknife.with_known_units(spells), strata, "kaplan_meier")
    sets = risk_sets(checked, strata, least_at_risk=least_at_risk)
    value = pl.col("survival")
    variance = (value**2 * greenwood_sum().over(STRATUM)).fill_nan(None)
    steps = sets.table.with_columns(survival=known_survival()).with_columns(variance=variance)
    # Eight steps need it, and a plan of all would count it for each.
    table = steps.pipe(collected).lazy()
    # One minus the curve is the incidence of any end.
    terms = {
        "incidence": 1 - value,
        "increment": value.shift(1, fill_value=1.0).over(STRATUM) / pl.col("n_at_risk"),
        "n_counted": pl.col("n_events"),
    }
    with_units = jackknife.with_unit_variance(
        table, sets.rows, terms, pl.lit(value=True), conf_level
    )
    curve = (
        jackknife.corrected_variance(with_units, "survival", pl.col(jackknife.UNIT_VARIANCE))
        .with_columns(survival_se=pl.col("variance").sqrt())
        .with_columns(ends)
    )
    named = curve.join(sets.strata, STRATUM, "left", maintain_order="left") if strata else curve
    return named.select(*strata, *CURVE).pipe(collected)


def bare_curve(spells: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """The curve of `kaplan_meier` without strata, intervals and checks, for hundreds of small ones.

    Parameters
    ----------
    spells : polars.DataFrame or LazyFrame
        Valid ``duration_s`` and ``ended``; no late entries.

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
    n_exits, at = pl.col("n_exits"), pl.col("duration_s")
    first = pl.when((at.diff() > tie(at)).fill_null(True)).then(at).forward_fill()
    at_risk = n_exits.sum() - n_exits.cum_sum() + n_exits
    return collected(
        spells.lazy()
        .group_by(at)
        .agg(n_exits=pl.len(), n_events=pl.col("ended").sum())
        .sort(at)
        .group_by(first, maintain_order=True)
        .agg(pl.col("n_exits", "n_events").sum())
        .select(at, "n_events", survival=product_limit(pl.col("n_events") / at_risk))
    )


def quantiles(
    curve: pl.DataFrame,
    probs: float | Sequence[float] = (0.25, 0.5, 0.75),
    *,
    flat: Literal["left", "middle"] = "left",
) -> pl.DataFrame:
    """Durations by which given shares of spells have ended, with intervals.

    Parameters
    ----------
    curve : polars.DataFrame
        From `kaplan_meier`; other columns than its own are strata.
    probs : float or sequence of float
        Shares in (0, 1): 0.5 is the median.
    flat : {"left", "middle"}
        The quantile where the curve lies exactly on ``1 - prob`` for a while: the duration at
        which the flat part begins, which was observed, or its middle, as R does.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_probs, n_by + 8)
        Sorted by stratum and ``prob``; ``duration_s``, ``duration_low_s``,
        ``duration_high_s`` (null where the data end first), ``n_events`` (the ends behind
        it), ``n_units`` (the units behind it), ``is_identified`` and ``in_words``.

    Raises
    ------
    MissingColumnsError
        If a column of the curve is missing.
    ArgumentError
        If a share is not in (0, 1), or ``flat`` is not one of its values.

    Notes
    -----
    The quantile is the first duration at which the curve is at or below ``1 - prob``
    (within 1e-9). Its interval inverts the pointwise interval of the curve [1]_. It is *not
    identified* where the curve never falls that far: nothing is extrapolated. ``in_words``
    omits an interval with too few ends for any upper bound: that needs
    ``log(0.05) / log(prob)`` ends, 59 for p95 and 299 for p99. Never average quantiles
    over weeks or stores: take one curve over all spells.

    References
    ----------
    .. [1] Brookmeyer, R. and Crowley, J. (1982). A confidence interval for the median
       survival time. Biometrics 38, 29-41.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> spells = pl.DataFrame({"duration_s": [5.0, 8.0, 9.0], "ended": [True, True, False]})
    >>> quantiles(kaplan_meier(spells), [0.5, 0.95])["duration_s"].to_list()
    [8.0, None]
    """
    strata = _strata_of(curve, "quantiles")
    probs = (probs,) if isinstance(probs, (int, float)) else probs
    if wrong := [prob for prob in probs if not 0 < prob < 1]:
        raise ArgumentError(
            f"quantiles needs shares between 0 and 1; found {wrong}.",
            "probs=[0.5]",
            shell="a share such as --prob 0.5",
        )
    check_option("flat", flat, ("left", "middle"))

    def inverted(column: str, prob: float) -> pl.Expr:
        at, level = pl.col("duration_s"), 1 - prob
        first = at.filter(pl.col(column) <= level + TOLERANCE).min()
        if flat == "left":
            return first
        below = at.filter(pl.col(column) < level - TOLERANCE).min()
        is_flat = ((pl.col(column) - level).abs() <= TOLERANCE).any()
        return pl.when(is_flat).then((first + below.fill_null(at.max())) / 2).otherwise(first)

    # Without strata there is one row per quantile, even of an empty curve.
    rows = [
        curve.group_by(*strata).agg(_quantile(inverted, prob))
        if strata
        else curve.select(_quantile(inverted, prob))
        for prob in dict.fromkeys(probs)
    ] or [curve.select(*strata, *_quantile(inverted, 0.5)).clear()]
    return collected(
        pl.concat(rows)
        .lazy()
        .sort(*strata, "prob")
        .with_columns(
            is_identified=pl.col("duration_s").is_not_null(), in_words=each_in_words(_in_words)
        )
        .drop("longest_s", "share_outlasting", "from_s", "is_sure")
    )


def restricted_mean(
    curve: pl.DataFrame, until_s: float | str, conf_level: float = 0.95
) -> pl.DataFrame:
    """Restricted mean: each duration counts up to ``until_s``, so that the mean is identified.

    Parameters
    ----------
    curve : polars.DataFrame
        From `kaplan_meier`.
    until_s : float or str
        The horizon in seconds, > 0; or the column of the curve with one for each stratum.
    conf_level : float
        Level of the interval.

    Returns
    -------
    polars.DataFrame, shape (n_strata, n_by + 7)
        ``until_s``, ``mean_s``, ``mean_se``, its interval ``mean_low_s`` to ``mean_high_s`` by
        Student's quantile with one degree of freedom less than units, ``longest_s`` (the
        longest duration in the data), ``is_identified`` (False where the horizon lies beyond it
        and the curve has not reached 0: the mean is then null).

    Notes
    -----
    The area under the curve up to the horizon; the variance is the sum over ends u of
    (area from u to the horizon)² d/(n(n-d)). The additional variance by unit is added as if
    it moved the whole curve together, which is an upper bound. ``mean_se`` is null with fewer
    than 5 units of several spells, and where nothing varies: no end before the horizon, or all
    at once. Where the median is not identified, this is the mean to report: "within the first
    hour, 22 minutes". A curve with late entries that begins at ``from_s`` gives the mean of
    spells that lasted until then.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> spells = pl.DataFrame({"duration_s": [1.0, 3.0], "ended": [True, True]})
    >>> restricted_mean(kaplan_meier(spells), 3.0)["mean_s"].to_list()
    [2.0]
    """
    strata = _strata_of(curve, "restricted_mean")
    check_share("conf_level", conf_level, 0.95)
    if isinstance(until_s, str):
        check_columns(curve, [until_s], "restricted_mean")
        until = pl.col(until_s).cast(pl.Float64)
        strata = [name for name in strata if name != until_s]
    else:
        check_number("until_s", until_s, 3600, is_above=True)
        until = pl.lit(float(until_s))
    at, n, d = pl.col("duration_s"), pl.col("n_at_risk"), pl.col("n_events")
    next_at = at.shift(-1).over(strata) if strata else at.shift(-1)
    width = pl.min_horizontal(next_at.fill_null(pl.col("until_s")), "until_s") - at
    beyond = pl.col("_step").cum_sum(reverse=True)
    weight, greenwood = d / (n * (n - d)), greenwood_sum()
    greenwood = greenwood.over(strata) if strata else greenwood
    independent = pl.col("survival") ** 2 * greenwood
    # The tolerance keeps rounding from counting as variance between units.
    between_units = (pl.col("survival_se") ** 2 - independent * (1 + TOLERANCE)).clip(0).sqrt()
    is_open = (pl.col("survival") > 0) & (at < pl.col("until_s"))
    areas = (
        curve.with_columns(until_s=until)
        .sort(*strata, "duration_s")
        .with_columns(_step=pl.col("survival") * width.clip(lower_bound=0))
        .with_columns(
            _beyond=beyond.over(strata) if strata else beyond,
            _weight=weight,
            _between_units=pl.when(is_open).then(width.clip(0) * between_units),
        )
    )
    until = pl.col("until_s").first()
    reached = (at.max() >= until) | (pl.col("survival").last() <= TOLERANCE)
    reached &= pl.col("from_s").first().is_not_null()
    summary = [
        until.alias("_until_s"),
        (pl.col("_step").sum() + pl.min_horizontal(at.min(), until)).alias("mean_s"),
        pl.when(~(is_open & pl.col("survival_se").is_null()).any())
        .then(
            (pl.col("_beyond").pow(2) * pl.col("_weight"))
            .filter((at < pl.col("until_s")) & pl.col("_weight").is_finite())
            .sum()
            + pl.col("_between_units").sum().pow(2)
        )
        .sqrt()
        # Where nothing varies, nothing is known of its variance.
        .replace(0.0, None)
        .alias("mean_se"),
        (pl.col("n_units").first() - 1).alias("_degrees"),
        at.max().alias("longest_s"),
        reached.fill_null(value=False).alias("is_identified"),
    ]
    means = areas.group_by(*strata).agg(summary).sort(*strata) if strata else areas.select(summary)
    if not isinstance(until_s, str):
        means = means.with_columns(_until_s=pl.lit(float(until_s)))
    known = pl.col("is_identified")
    half_s = pl.col("mean_se") * student_quantiles(conf_level, pl.col("_degrees"))
    mean_s = pl.col("mean_s")
    ends = {"mean_s": mean_s, "mean_low_s": mean_s - half_s, "mean_high_s": mean_s + half_s}
    return means.with_columns(
        *(end.clip(0.0, pl.col("_until_s")).alias(name) for name, end in ends.items()),
        until_s="_until_s",
    ).select(
        *(*strata, "until_s"),
        *(pl.when(known).then(name).alias(name) for name in fixed_columns(RestrictedMean)[1:5]),
        *("longest_s", "is_identified"),
    )


def _quantile(inverted: Callable[[str, float], pl.Expr], prob: float) -> list[pl.Expr]:
    return [
        pl.lit(prob).alias("prob"),
        inverted("survival", prob).alias("duration_s"),
        inverted("survival_low", prob).alias("duration_low_s"),
        inverted("survival_high", prob).alias("duration_high_s"),
        pl.col("n_events").sum(),
        pl.col("duration_s").max().alias("longest_s"),
        pl.col("survival").min().alias("share_outlasting"),
        pl.col("from_s").first(),
        pl.col("n_units").first(),
        pl.col("survival_low").is_not_null().any().alias("is_sure"),
    ]


def _in_words(row: dict[str, Any]) -> str:
    if row["longest_s"] is None:
        return say("quantile.no_spells")
    if row["from_s"] is None:
        return say("quantile.all_late")
    words = _end_in_words(row)
    return say("quantile.late", words=words, **row) if row["from_s"] > 0 else words


def _end_in_words(row: dict[str, Any]) -> str:
    percent = f"{round(100 * row['prob'], 1):g}"
    if row["duration_s"] is None:
        return say("quantile.unknown", percent=percent, **row)
    needed = math.ceil(math.log(0.05) / math.log(row["prob"]))
    if row["n_events"] < needed:
        ends = say("quantile.few_ends", n=row["n_events"], needed=needed)
    elif not row["is_sure"] and row["n_units"] < jackknife.FEWEST_UNITS:
        ends = say("quantile.few_units", n=row["n_units"], needed=jackknife.FEWEST_UNITS)
    elif row["duration_low_s"] is None:
        ends = say("quantile.at_once")
    else:
        ends = say("quantile.ends", **row)
    return say("quantile.known", percent=percent, ends=ends, **row)


def _strata_of(curve: pl.DataFrame, function: str) -> list[str]:
    check_columns(curve, CURVE, function)
    return [name for name in curve.columns if name not in CURVE]
