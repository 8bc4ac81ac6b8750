"""Durations and rates of ends of one period against those of the period before."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import with_own_column
from stateanalytics.core.windows import Window, read_window
from stateanalytics.core.words import how_long_each
from stateanalytics.errors import ArgumentError, check_number, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.stats.distributions import (
    benjamini_hochberg,
    student_quantile,
)
from stateanalytics.stats.intervals import RateRatio, rate_ratio
from stateanalytics.survival.by_unit import with_units
from stateanalytics.survival.curves import kaplan_meier
from stateanalytics.survival.estimates import quantiles, restricted_mean
from stateanalytics.survival.log_rank import logrank_by_unit
from stateanalytics.survival.risk_sets import strata_of
from stateanalytics.survival.run_spells import spells

DIMENSIONS = ("kind", "agent", "model", "playbook")
ALL = "all"
PERIODS = ("before", "now")
# What happens to runs, and whether more of it is bad.
RATES = {"failed": True, "timed_out": True, "completed": False}
VERDICTS = ("worse", "better", "no_difference", "not_enough_data")
RESULT = (
    "dimension",
    "value",
    "measure",
    "n_before",
    "n_now",
    "before",
    "now",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "q_value",
    "verdict",
    "in_words",
)
_GROUP = ("dimension", "value")


def two_windows(
    snap: Facts,
    window: object = None,
    *,
    states: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Runs of a window and of the one just before it, each observed until its own end.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : optional
        As `report` takes it; None: the seven days up to as-of.
    states : polars.DataFrame, optional
        States of the snapshot where they are at hand.
    policy : Policy, optional
        For computing them.

    Returns
    -------
    polars.DataFrame
        ``schema.SPELLS`` (a timeout counts as an end) and ``period``: before or now. Runs
        are in the period that they started in, and cut off where it ended, so that none
        of the two was watched for longer.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> two_windows(demo())["period"].unique().sort().to_list()
    ['before', 'now']
    """
    checked_snapshot(snap, "survival.duration_change")
    now = read_window(window, as_of=snap.as_of)
    before = Window(now.since - (now.until - now.since), now.since, "the window before")
    states = states_at_hand(snap, states, policy=policy)
    return pl.concat(
        spells(snap, window=stretch, timeouts="event", states=states).with_columns(
            period=pl.lit(period)
        )
        for period, stretch in zip(PERIODS, (before, now), strict=True)
    )


def duration_change(
    snap: Facts,
    window: object = None,
    *,
    by: str | Sequence[str] = DIMENSIONS,
    fdr: float = 0.1,
    least: int = 5,
    conf_level: float = 0.95,
    states: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """What changed from one window to the next, for each kind, agent, model and playbook.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : optional
        As `report` takes it; None: the seven days up to as-of. It is compared with the
        stretch of the same length just before.
    by : str or sequence of str
        Columns of ``schema.SPELLS``, or of a table of `Snapshot.with_table`, such as
        ``teams.owner``; each of their values is compared with itself. Where the column is
        null, the run is in none of its groups.
    fdr : float
        False discovery rate over all comparisons that were made.
    least : int
        Runs that each window needs; with fewer nothing is compared.
    conf_level : float
        Level of the intervals, each by itself.
    states : polars.DataFrame, optional
        States of the snapshot where they are at hand.
    policy : Policy, optional
        For computing them.

    Returns
    -------
    polars.DataFrame, shape (n_groups * 4, 14)
        ``dimension`` and ``value`` (``all`` and null: every run); ``measure``: duration,
        failed, timed_out, completed; ``n_before`` and ``n_now``, runs for a duration and
        ends of that kind for a rate; ``before`` and ``now``: the median in seconds (null:
        not identified), or ends per run-hour; ``ratio`` with its interval (null where one
        is not known); ``p_value``, ``q_value``; ``verdict``, one of `VERDICTS`;
        ``in_words``. Worse first, then by q-value.

    Raises
    ------
    ArgumentError
        If it is no snapshot, or the window, the rate or a column makes no sense.

    Notes
    -----
    Durations: log-rank test, and the ratio of mean durations within the longest time that
    both windows saw. Rates: the conditional exact test of two Poisson counts. The unit is the
    invocation: where runs of one are alike, the statistic is divided by its design effect,
    and so many ends count as one; how well few units, or unequal ones, tell it, Student's
    distribution says. A window with a single unit is not compared. The family of
    Benjamini and Hochberg's procedure is this table. A duration is the time to completion:
    runs that failed, timed out or were stopped are cut off where they ended, so that failing
    sooner is never faster.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> change = duration_change(demo(), by="kind")
    >>> change["verdict"].is_in(list(VERDICTS)).all()
    True
    """
    dimensions = strata_of(by)
    runs = two_windows(snap, window, states=states, policy=policy)
    for name in dimensions:
        runs = with_own_column(runs, name, getattr(snap, "own_tables", {}))
    if missing := [name for name in dimensions if name not in runs.columns]:
        raise ArgumentError(
            f"duration_change compares values of columns of spells; unknown are {missing}.",
            f"by={list(DIMENSIONS)}",
        )
    check_share("fdr", fdr, 0.1)
    check_share("conf_level", conf_level, 0.95)
    check_number("least", least, 5)
    groups = _grouped(runs.filter(pl.col("left_out").is_null()), dimensions)
    compared = pl.concat([_durations(groups, conf_level), _rates(groups, conf_level, least)])
    enough = pl.min_horizontal("runs_before", "runs_now") >= least
    more_is_worse = pl.col("measure").replace_strict(
        {"duration": True, **RATES}, return_dtype=pl.Boolean
    )
    is_up = pl.col("ratio").fill_null(float("inf")) > 1
    is_found = (pl.col("q_value") <= fdr).fill_null(value=False)
    verdict = (
        pl.when(pl.col("p_value").is_null())
        .then(pl.lit("not_enough_data"))
        .when(~is_found)
        .then(pl.lit("no_difference"))
        .when(is_up == more_is_worse)
        .then(pl.lit("worse"))
        .otherwise(pl.lit("better"))
    )
    rank = pl.col("verdict").replace_strict({word: i for i, word in enumerate(VERDICTS)})
    return (
        compared.with_columns(
            pl.when(enough).then(name).alias(name)
            for name in ("ratio", "ratio_low", "ratio_high", "p_value")
        )
        .with_columns(benjamini_hochberg())
        .with_columns(verdict=verdict)
        .with_columns(in_words=_in_words())
        .sort(rank, "q_value", "dimension", "value", "measure", nulls_last=True)
        .select(RESULT)
    )


def _grouped(runs: pl.DataFrame, dimensions: Sequence[str]) -> pl.DataFrame:
    """Each run once for every group that it is in."""
    runs = with_units(runs)
    kept = ("unit", "period", "duration_s", "ended", "ending")
    everything = runs.select(
        pl.lit(ALL).alias("dimension"), pl.lit(None, pl.String).alias("value"), *kept
    )
    parts = [
        runs.filter(pl.col(name).is_not_null()).select(
            pl.lit(name).alias("dimension"), pl.col(name).cast(pl.String).alias("value"), *kept
        )
        for name in dimensions
    ]
    return pl.concat([everything, *parts])


def _durations(groups: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """Medians, the ratio of mean durations within a common horizon, and the log-rank test."""
    # Time to completion: what failed, was stopped or reached its limit is cut off there, so that
    # a group that fails sooner is never the faster for it.
    taken = groups.with_columns(
        ended=pl.col("ended") & (pl.col("ending") == "completed").fill_null(value=False)
    )
    key = [*_GROUP, "period"]
    # As if each run were alone: the design effect says how alike those of a unit are.
    curve = kaplan_meier(taken.drop("unit"), by=key)
    horizon = pl.col("duration_s").max().over(key).min().over(_GROUP)
    means = restricted_mean(
        curve.with_columns(horizon_s=horizon).filter(pl.col("horizon_s") > 0), "horizon_s"
    )
    medians = quantiles(curve, [0.5]).select(*key, median="duration_s")
    sizes = taken.group_by(key).agg(n=pl.len().cast(pl.Int64))
    measured = sizes.join(medians, on=key, how="left", nulls_equal=True).join(
        means.select(*key, "mean_s", "mean_se"), on=key, how="left", nulls_equal=True
    )
    both = _side_by_side(measured, ["n", "median", "mean_s", "mean_se"])
    tests = logrank_by_unit(taken, by="period", within=_GROUP).select(
        *_GROUP, "p_value", "effect", "degrees"
    )
    ratio = pl.col("mean_s_now") / pl.col("mean_s_before")
    spread = (
        pl.col("degrees").map_elements(
            lambda degrees: student_quantile(conf_level, degrees), return_dtype=pl.Float64
        )
        * (
            (pl.col("mean_se_now") / pl.col("mean_s_now")).pow(2)
            + (pl.col("mean_se_before") / pl.col("mean_s_before")).pow(2)
        ).sqrt()
    )
    is_known = ratio.is_finite() & (ratio > 0)
    return (
        both.join(tests, on=_GROUP, how="left", nulls_equal=True)
        .with_columns(
            ratio=pl.when(is_known).then(ratio),
            ratio_low=pl.when(is_known).then(ratio * (-spread * pl.col("effect").sqrt()).exp()),
            ratio_high=pl.when(is_known).then(ratio * (spread * pl.col("effect").sqrt()).exp()),
        )
        .select(
            *_GROUP,
            pl.lit("duration").alias("measure"),
            pl.col("n_before", "n_now").fill_null(0),
            pl.col("n_before").fill_null(0).alias("runs_before"),
            pl.col("n_now").fill_null(0).alias("runs_now"),
            before="median_before",
            now="median_now",
            ratio="ratio",
            ratio_low="ratio_low",
            ratio_high="ratio_high",
            p_value=pl.when(is_known).then("p_value"),
        )
    )


def _variances(rows: pl.DataFrame) -> pl.DataFrame:
    """Variance of the ratio of counts to weights in each period, as its units show it.

    Each residual is raised for the weight of its own unit (CR2 [1]_), so that few units or
    unequal ones do not look steadier than they are. Null where one unit is all there is.

    References
    ----------
    .. [1] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for
       linear regression with multi-stage samples. Survey Methodology 28, 169-181.
    """
    own = [*_GROUP, "period"]
    whole = pl.col("weight").sum()
    part = pl.col("weight") / whole.over(own)
    rest = pl.col("count") - part * pl.col("count").sum().over(own)
    squares, fourths = (pl.col("weight") ** 2).sum(), (pl.col("weight") ** 4).sum()
    return (
        rows.group_by(*own, "unit")
        .agg(pl.col("count", "weight").sum())
        # Floats add up to the same only in the same order.
        .sort(*own, "unit")
        .filter((pl.col("weight") > 0) | (pl.col("count") > 0))
        .with_columns(square=pl.when(part < 1).then(rest**2 / (1 - part)))
        .group_by(own)
        .agg(
            variance=pl.when(pl.len() > 1).then(pl.col("square").sum() / whole**2),
            by_weight=squares / whole**2,
            # As many units as would vary alike.
            degrees=(squares**2 / fourths - 1).clip(lower_bound=1.0),
            n_runs=pl.col("count").sum(),
        )
    )


def _effects(rows: pl.DataFrame, by_chance: pl.DataFrame) -> pl.DataFrame:
    """How many times as much the two ratios vary as by chance, and how well that is known.

    ``effect`` is at least 1, and null where a period has a single unit; ``degrees`` are
    Welch's of its units, as far as the variance is due to them.
    """
    own = [*_GROUP, "period"]
    due = 1 - 1 / pl.col("effect")
    of_units = pl.col("by_weight").sum() ** 2 / (pl.col("by_weight") ** 2 / pl.col("degrees")).sum()
    return (
        _variances(rows)
        .join(by_chance.select(*own, chance="variance"), on=own, nulls_equal=True)
        .join(rows.group_by(own).agg(n=pl.len()), on=own, nulls_equal=True)
        .group_by(_GROUP)
        .agg(
            effect=pl.when(pl.col("variance").is_not_null().all() & (pl.len() == len(PERIODS)))
            .then(pl.col("variance").sum() / pl.col("chance").sum())
            .fill_nan(1.0)
            .clip(lower_bound=1.0),
            of_units=of_units,
            n=pl.col("n").sum(),
        )
        .with_columns(degrees=1 / (due / pl.col("of_units") + (1 - due) / pl.col("n")))
    )


def _rates(groups: pl.DataFrame, conf_level: float, least: int) -> pl.DataFrame:
    """Ends per run-hour, compared exactly."""
    counts = groups.group_by(*_GROUP, "period").agg(
        n=pl.len().cast(pl.Int64),
        hours=pl.col("duration_s").sum() / 3600,
        **{
            name: (pl.col("ended") & (pl.col("ending") == name)).sum().cast(pl.Int64)
            for name in RATES
        },
    )
    both = _side_by_side(counts, ["n", "hours", *RATES])
    both = both.with_columns(pl.col(name).fill_null(0) for name in both.columns[len(_GROUP) :])
    parts = []
    for name in RATES:
        own = _dispersions(groups, name)
        known = both.join(own, on=_GROUP, how="left", nulls_equal=True)
        parts.append(_rate(known, name, conf_level, least))
    return pl.concat(parts)


def _rate(both: pl.DataFrame, name: str, conf_level: float, least: int) -> pl.DataFrame:
    now, before = f"{name}_now", f"{name}_before"
    counts = both.select(
        now, "hours_now", before, "hours_before", "n_before", "n_now", "effect", "degrees"
    )
    ratios = [
        # With no end in either window there is nothing to compare, though p would be 1.
        rate_ratio(*row[:4], confidence=conf_level, dispersion=row[6], degrees=row[7])
        if min(row[4:6]) >= least and row[0] + row[2] and row[6] is not None
        else RateRatio(None, None, None, None)
        for row in counts.iter_rows()
    ]
    return both.with_columns(
        pl.Series("ratio", [rate.ratio for rate in ratios], pl.Float64),
        pl.Series("ratio_low", [rate.low for rate in ratios], pl.Float64),
        pl.Series("ratio_high", [rate.high for rate in ratios], pl.Float64),
        pl.Series("p_value", [rate.p_value for rate in ratios], pl.Float64),
    ).select(
        *_GROUP,
        pl.lit(name).alias("measure"),
        pl.col(before).alias("n_before"),
        pl.col(now).alias("n_now"),
        pl.col("n_before").alias("runs_before"),
        pl.col("n_now").alias("runs_now"),
        before=pl.when(pl.col("hours_before") > 0).then(pl.col(before) / pl.col("hours_before")),
        now=pl.when(pl.col("hours_now") > 0).then(pl.col(now) / pl.col("hours_now")),
        ratio="ratio",
        ratio_low="ratio_low",
        ratio_high="ratio_high",
        p_value="p_value",
    )


def _dispersions(groups: pl.DataFrame, name: str) -> pl.DataFrame:
    """How many times as much as by chance ends vary between invocations, per run-hour."""
    is_it = pl.col("ended") & (pl.col("ending") == name)
    rows = groups.select(
        *_GROUP, "period", "unit", count=is_it.cast(pl.Float64), weight=pl.col("duration_s") / 3600
    )
    hours = pl.col("weight").sum()
    poisson = rows.group_by(*_GROUP, "period").agg(variance=pl.col("count").sum() / hours**2)
    return _effects(rows, poisson)


def _side_by_side(measured: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """One row a group: every column once for each period."""
    groups = measured.select(_GROUP).unique().sort(_GROUP)
    for period in PERIODS:
        part = measured.filter(pl.col("period") == period).select(
            *_GROUP, *(pl.col(name).alias(f"{name}_{period}") for name in names)
        )
        groups = groups.join(part, on=_GROUP, how="left", nulls_equal=True)
    return groups


def _in_words() -> pl.Expr:
    group = (
        pl.when(pl.col("dimension") == ALL)
        .then(pl.lit("all runs"))
        .otherwise(pl.format("{} {}", "dimension", "value"))
    )
    is_duration = pl.col("measure") == "duration"
    now, before = (
        pl.when(is_duration)
        .then(pl.format("{}", how_long_each(name, "not identified", is_estimate=True)))
        .otherwise(pl.format("{} a run-hour", pl.col(name).round(2).cast(pl.String).fill_null("?")))
        for name in ("now", "before")
    )
    what = pl.when(is_duration).then(pl.lit("half end within")).otherwise("measure")
    ratio, low, high = (
        pl.col(name).round(2).cast(pl.String) for name in ("ratio", "ratio_low", "ratio_high")
    )
    # Medians are told and means compared, so the words say which; what is null drops out.
    on_average = pl.when(is_duration).then(pl.lit("on average ")).otherwise(pl.lit(""))
    times = pl.coalesce(
        pl.format("{}{} times, {} to {}", on_average, ratio, low, high),
        pl.format("{}{} times", on_average, ratio),
        pl.format("at least {} times", low),
        pl.lit("no ratio"),
    )
    times = pl.format(" ({}; q {})", times, pl.col("q_value").round(4))
    return pl.format("{}: {} {}, before {}", group, what, now, before) + pl.when(
        pl.col("q_value").is_not_null()
    ).then(times).otherwise(pl.lit(" (not enough data to compare)"))
