"""Quantiles and the restricted mean of a survival curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import polars as pl

from stateanalytics.core.words import how_long_each
from stateanalytics.errors import ArgumentError, check_columns, check_number
from stateanalytics.survival.by_unit import FEWEST_UNITS
from stateanalytics.survival.curves import CURVE, greenwood_sum

# Products of floats: R compares with the square root of machine epsilon, we with this.
TOLERANCE = 1e-9


def quantiles(
    curve: pl.DataFrame,
    probs: float | Sequence[float] = (0.25, 0.5, 0.75),
    *,
    flat: Literal["left", "middle"] = "left",
) -> pl.DataFrame:
    """Durations by which given shares of spells have ended, with intervals or honest words.

    Parameters
    ----------
    curve : polars.DataFrame
        What `kaplan_meier` returned; other columns than its own are strata.
    probs : float or sequence of float
        Shares in (0, 1): 0.5 is the median.
    flat : {"left", "middle"}
        What to say where the curve lies exactly on ``1 - prob`` for a while: the duration
        at which it got there, which was observed, or the middle of the flat as R does.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_probs, n_by + 8)
        Sorted by stratum and ``prob``; ``duration_s``, ``duration_low_s``,
        ``duration_high_s`` (null where the data end first), ``n_events`` (the ends behind
        it), ``n_units`` (the units that it rests on), ``is_identified`` and ``in_words``.

    Raises
    ------
    MissingColumnsError
        If it is no curve.
    ArgumentError
        If a share is not in (0, 1), or ``flat`` is another word.

    Notes
    -----
    The quantile is the first duration at which the curve is at or below ``1 - prob``
    (within 1e-9). Its interval inverts the pointwise band [1]_. It is *not identified*
    where the curve never comes down that far: nothing is extrapolated. The words leave
    out an interval with too few ends behind it for any upper bound: that needs
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
    if flat not in ("left", "middle"):
        raise ArgumentError(f"flat is 'left' or 'middle'; found {flat!r}.", "flat='left'")

    def inverted(column: str, prob: float) -> pl.Expr:
        at, level = pl.col("duration_s"), 1 - prob
        first = at.filter(pl.col(column) <= level + TOLERANCE).min()
        if flat == "left":
            return first
        below = at.filter(pl.col(column) < level - TOLERANCE).min()
        is_flat = ((pl.col(column) - level).abs() <= TOLERANCE).any()
        return pl.when(is_flat).then((first + below.fill_null(at.max())) / 2).otherwise(first)

    # Without a stratum one row is asked for even where the curve has none.
    asked = [
        curve.group_by(*strata).agg(_quantile(inverted, prob))
        if strata
        else curve.select(_quantile(inverted, prob))
        for prob in dict.fromkeys(probs)
    ] or [curve.select(*strata, *_quantile(inverted, 0.5)).clear()]
    return (
        pl.concat(asked)
        .sort(*strata, "prob")
        .with_columns(is_identified=pl.col("duration_s").is_not_null(), in_words=_in_words())
        .drop("longest_s", "share_outlasting", "from_s", "is_sure")
    )


def restricted_mean(curve: pl.DataFrame, until_s: float | str) -> pl.DataFrame:
    """Mean duration within the first ``until_s`` seconds: the mean that is always known.

    Parameters
    ----------
    curve : polars.DataFrame
        What `kaplan_meier` returned.
    until_s : float or str
        The horizon in seconds, > 0; or the column of the curve that holds one for each
        stratum.

    Returns
    -------
    polars.DataFrame, shape (n_strata, n_by + 5)
        ``until_s``, ``mean_s``, ``mean_se``, ``longest_s`` (the longest duration in the
        data), ``is_identified`` (False where the horizon lies beyond it and the curve has
        not reached 0: the mean is then null).

    Notes
    -----
    The area under the curve up to the horizon; the variance is the sum over ends u of
    (area from u to the horizon)² d/(n(n-d)). What the curve varies more by unit is added as
    if it moved the whole curve together, which is an upper bound; where units are fewer
    than 5, ``mean_se`` is null. Where medians are not identified, this is
    the honest mean: "within the first hour, 22 minutes". A curve with late entries that
    begins at ``from_s`` gives the mean of those that lasted until then.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> spells = pl.DataFrame({"duration_s": [1.0, 3.0], "ended": [True, True]})
    >>> restricted_mean(kaplan_meier(spells), 3.0)["mean_s"].to_list()
    [2.0]
    """
    strata = _strata_of(curve, "restricted_mean")
    if isinstance(until_s, str):
        check_columns(curve, [until_s], "restricted_mean")
        until = pl.col(until_s).cast(pl.Float64)
        strata = [name for name in strata if name != until_s]
    else:
        check_number("until_s", until_s, 3600, is_above=True)
        until = pl.lit(float(until_s))
    at, n, d = pl.col("duration_s"), pl.col("n_at_risk"), pl.col("n_events")
    following = at.shift(-1).over(strata) if strata else at.shift(-1)
    width = pl.min_horizontal(following.fill_null(pl.col("until_s")), "until_s") - at
    beyond = pl.col("_step").cum_sum(reverse=True)
    weight, greenwood = d / (n * (n - d)), greenwood_sum()
    greenwood = greenwood.over(strata) if strata else greenwood
    alone = pl.col("survival") ** 2 * greenwood
    # What is no more than rounding is not due to units.
    of_units = (pl.col("survival_se") ** 2 - alone * (1 + TOLERANCE)).clip(0).sqrt()
    is_open = (pl.col("survival") > 0) & (at < pl.col("until_s"))
    areas = (
        curve.with_columns(until_s=until)
        .sort(*strata, "duration_s")
        .with_columns(_step=pl.col("survival") * width.clip(lower_bound=0))
        .with_columns(
            _beyond=beyond.over(strata) if strata else beyond,
            _weight=weight,
            _of_units=pl.when(is_open).then(width.clip(0) * of_units),
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
            + pl.col("_of_units").sum().pow(2)
        )
        .sqrt()
        .alias("mean_se"),
        at.max().alias("longest_s"),
        reached.fill_null(value=False).alias("is_identified"),
    ]
    means = areas.group_by(*strata).agg(summary).sort(*strata) if strata else areas.select(summary)
    if not isinstance(until_s, str):
        means = means.with_columns(_until_s=pl.lit(float(until_s)))
    known = pl.col("is_identified")
    return means.select(
        *strata,
        pl.col("_until_s").alias("until_s"),
        pl.when(known).then("mean_s").alias("mean_s"),
        pl.when(known).then("mean_se").alias("mean_se"),
        "longest_s",
        "is_identified",
    )


# --- the pieces ------------------------------------------------------------------------


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


def _in_words() -> pl.Expr:
    share = (pl.col("prob") * 100).round(1).cast(pl.String).str.strip_suffix(".0")
    outlasting = (pl.col("share_outlasting") * 100).round(0).cast(pl.Int64)
    needed = (math.log(0.05) / pl.col("prob").log()).ceil().cast(pl.Int64)
    bounds = pl.format(
        "({} to {})",
        *(
            how_long_each(end, "not identified", is_estimate=True)
            for end in ("duration_low_s", "duration_high_s")
        ),
    )
    too_few = pl.format("(no interval: {} of {} ends needed)", "n_events", needed)
    known = pl.format(
        "{} % end within {} {}",
        share,
        how_long_each("duration_s", is_estimate=True),
        pl.when(pl.col("n_events") < needed)
        .then(too_few)
        .when(~pl.col("is_sure") & (pl.col("n_units") < FEWEST_UNITS))
        .then(pl.format("(no interval: {} of {} units needed)", "n_units", pl.lit(FEWEST_UNITS)))
        .otherwise(bounds),
    )
    unknown = pl.format(
        "not identified: {} % outlast the data, which end at {}",
        outlasting,
        how_long_each("longest_s", is_estimate=True),
    )
    empty = pl.lit("not identified: no spells")
    too_few = pl.lit("not identified: all came late, and too few were there at once")
    late = pl.format("of those that lasted {}: ", how_long_each("from_s", is_estimate=True))
    return (
        pl.when(pl.col("longest_s").is_null())
        .then(empty)
        .when(pl.col("from_s").is_null())
        .then(too_few)
        .otherwise(
            pl.when(pl.col("from_s") > 0).then(late).otherwise(pl.lit(""))
            + pl.when(pl.col("duration_s").is_not_null()).then(known).otherwise(unknown)
        )
    )


def _strata_of(curve: pl.DataFrame, function: str) -> list[str]:
    check_columns(curve, CURVE, function)
    return [name for name in curve.columns if name not in CURVE]
