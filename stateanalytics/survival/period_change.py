"""Durations and failure rates of one period, compared with those of the period before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import left_joined, with_own_column
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Window, read_window
from stateanalytics.core.words import each_in_words, first_word, say
from stateanalytics.errors import check_number, check_one_of, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.stats.bursts import burst_number
from stateanalytics.stats.distributions import benjamini_hochberg, student_quantiles
from stateanalytics.stats.intervals import RateRatio, rate_ratio
from stateanalytics.survival.curves import kaplan_meier, quantiles, restricted_mean
from stateanalytics.survival.frames import DurationChange, fixed_columns
from stateanalytics.survival.jackknife import with_units
from stateanalytics.survival.log_rank import logrank_by_unit
from stateanalytics.survival.risk_sets import strata_of
from stateanalytics.survival.run_spells import spells

DIMENSIONS = ("kind", "agent", "model", "playbook")
ALL = "all"
PERIODS = ("before", "now")
# Ways to end, and whether more of them is worse.
RATES = {"failed": True, "timed_out": True, "completed": False}
VERDICTS = ("worse", "better", "no_difference", "not_enough_data")
_GROUP = ("dimension", "value")


def two_windows(
    snap: Facts,
    window: object = None,
    *,
    states: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Runs of a window and of the window before it, each followed up to the end of its own.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : optional
        As for `report`; None: the seven days up to as-of.
    states : polars.DataFrame, optional
        States of the snapshot, if already computed.
    policy : Policy, optional
        For computing states.

    Returns
    -------
    polars.DataFrame
        ``schema.SPELLS`` (a timeout counts as an end) and ``period``: before or now. Runs
        belong to the period in which they started, and are censored at its end, so that both
        periods have the same follow-up.

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
        spells(snap, window=within, timeouts="event", states=states).with_columns(
            period=pl.lit(period)
        )
        for period, within in zip(PERIODS, (before, now), strict=True)
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
    """Changes of durations and rates from one window to the next, by kind, agent, model, playbook.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : optional
        As for `report`; None: the seven days up to as-of. It is compared with the window of
        the same length just before.
    by : str or sequence of str
        Columns of ``schema.SPELLS``, or of a table of `Snapshot.with_table`, such as
        ``teams.owner``; each of their values is compared with itself. Where the column is
        null, the run is in none of its groups.
    fdr : float
        False discovery rate over all comparisons.
    least : int
        Runs that each window needs; with fewer nothing is compared.
    conf_level : float
        Level of each interval.
    states : polars.DataFrame, optional
        States of the snapshot, if already computed.
    policy : Policy, optional
        For computing states.

    Returns
    -------
    polars.DataFrame, shape (n_groups * 4, 14)
        ``dimension`` and ``value`` (``all`` and null: every run); ``measure``: duration,
        failed, timed_out, completed; ``n_before`` and ``n_now``, runs for a duration and
        ends of that kind for a rate; ``before`` and ``now``: the median in seconds (null:
        not identified), or ends per run-hour; ``ratio`` with its interval (null: not known);
        ``p_value``, ``q_value``; ``verdict``, one of `VERDICTS`; ``in_words``. Worse first,
        then by q-value.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or the window, the rate or a column is not valid.

    Notes
    -----
    Durations: log-rank test, and the ratio of restricted means within the longest duration of
    both windows. Rates: the conditional exact test of two Poisson counts. The unit is the
    invocation, or the outage in which runs failed (`burst_number`): where its runs are similar,
    statistic and counts are divided by the design effect, and Student's distribution accounts
    for few or unequal units. A window with a single unit is not compared. The family of
    Benjamini and Hochberg's procedure is this
    table. A duration is the time to completion: runs that failed, timed out or were stopped
    are censored where they ended, so that failing sooner is never faster.

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
        check_one_of(name, runs.columns, "column of spells")
    check_share("fdr", fdr, 0.1)
    check_share("conf_level", conf_level, 0.95)
    check_number("least", least, 5)
    said = pl.concat_str("reason_code", pl.col("reason_message").str.head(20), ignore_nulls=True)
    reasons = snap.entities.select(*ENTITY_KEY, reason=said).unique(ENTITY_KEY, keep="first")
    runs = runs.join(reasons, on=ENTITY_KEY, how="left", maintain_order="left")
    groups = _grouped(runs.filter(pl.col("left_out").is_null()), dimensions)
    compared = pl.concat([_durations(groups, conf_level), _rates(groups, conf_level, least)])
    enough = pl.min_horizontal("runs_before", "runs_now") >= least
    more_is_worse = pl.col("measure").replace_strict(
        {"duration": True, **RATES}, return_dtype=pl.Boolean
    )
    is_up = pl.col("ratio").fill_null(float("inf")) > 1
    is_significant = (pl.col("q_value") <= fdr).fill_null(value=False)
    verdict = first_word(
        "better",
        not_enough_data=pl.col("p_value").is_null(),
        no_difference=~is_significant,
        worse=is_up == more_is_worse,
    )
    rank = pl.col("verdict").replace_strict({word: i for i, word in enumerate(VERDICTS)})
    return (
        compared.with_columns(
            pl.when(enough).then(name).alias(name)
            for name in ("ratio", "ratio_low", "ratio_high", "p_value")
        )
        .with_columns(benjamini_hochberg())
        .with_columns(verdict=verdict)
        .with_columns(in_words=each_in_words(_in_words))
        .sort(rank, "q_value", "dimension", "value", "measure", nulls_last=True)
        .select(fixed_columns(DurationChange))
    )


def _with_outages(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs whose unit is the outage in which they failed: it proves something once."""
    ended_at = pl.col("started_at") + pl.duration(microseconds=pl.col("duration_s") * 1e6)
    is_failed = pl.col("ending").is_in(["failed", "timed_out"])
    runs = runs.with_columns(outage=pl.lit(None, pl.String))
    # What hit one project alone is no burst among the runs of all.
    for where in ([], ["project"]):
        part = ["period", *where]
        numbered = runs.drop_nulls(part).with_columns(
            place=ended_at.rank("ordinal").over(part), n=pl.len().over(part)
        )
        # Within a period: that one has more is no burst, but what is to be found.
        reason = [*part, "ending", "reason"]
        bursts = (
            numbered.filter(is_failed, pl.col("reason") != "", pl.col("outage").is_null())
            .group_by(*reason, "unit")
            .agg(pl.col("place").min(), pl.col("n").first())
            .sort("place")
            .with_columns(burst=burst_number(pl.col("place"), pl.col("n").first()).over(reason))
            .filter(pl.len().over(*reason, "burst") > 1)
            .select(
                *(*reason, "unit"),
                found=pl.concat_str(*reason, pl.lit(len(part)), "burst", separator="|"),
            )
        )
        joined = left_joined(runs, bursts, on=[*reason, "unit"])
        runs = joined.with_columns(outage=pl.coalesce("outage", "found")).drop("found")
    return runs.with_columns(unit=pl.coalesce("outage", "unit"))


def _grouped(runs: pl.DataFrame, dimensions: Sequence[str]) -> pl.DataFrame:
    """One row per run and group that it belongs to."""
    runs = _with_outages(with_units(runs))
    kept = ("unit", "period", "duration_s", "ended", "ending")
    all_runs = runs.select(
        pl.lit(ALL).alias("dimension"), pl.lit(None, pl.String).alias("value"), *kept
    )
    parts = [
        runs.filter(pl.col(name).is_not_null()).select(
            pl.lit(name).alias("dimension"), pl.col(name).cast(pl.String).alias("value"), *kept
        )
        for name in dimensions
    ]
    return pl.concat([all_runs, *parts])


def _durations(groups: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """Medians, the ratio of restricted means up to a common horizon, and the log-rank test."""
    # Time to completion: other ends are censored, so that failing sooner is never faster.
    to_completion = groups.with_columns(
        ended=pl.col("ended") & (pl.col("ending") == "completed").fill_null(value=False)
    )
    key = [*_GROUP, "period"]
    # As if runs were independent: the design effect of the test accounts for units below.
    curve = kaplan_meier(to_completion.drop("unit"), by=key)
    horizon = pl.col("duration_s").max().over(key).min().over(_GROUP)
    means = restricted_mean(
        curve.with_columns(horizon_s=horizon).filter(pl.col("horizon_s") > 0), "horizon_s"
    )
    medians = quantiles(curve, [0.5]).select(*key, median="duration_s")
    sizes = to_completion.group_by(key).agg(n=pl.len().cast(pl.Int64))
    measured = sizes.join(medians, on=key, how="left", nulls_equal=True).join(
        means.select(*key, "mean_s", "mean_se"), on=key, how="left", nulls_equal=True
    )
    groups = _with_both_periods(measured, ["n", "median", "mean_s", "mean_se"])
    tests = logrank_by_unit(to_completion, by="period", within=_GROUP).select(
        *_GROUP, "p_value", "effect", "degrees"
    )
    ratio = pl.col("mean_s_now") / pl.col("mean_s_before")
    squares = [(pl.col(f"mean_se_{part}") / pl.col(f"mean_s_{part}")).pow(2) for part in PERIODS]
    spread = student_quantiles(conf_level, pl.col("degrees")) * (squares[0] + squares[1]).sqrt()
    is_known = ratio.is_finite() & (ratio > 0)
    return (
        groups.join(tests, on=_GROUP, how="left", nulls_equal=True)
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
            *("ratio", "ratio_low", "ratio_high"),
            before="median_before",
            now="median_now",
            p_value=pl.when(is_known).then("p_value"),
        )
    )


def _unit_variances(rows: pl.DataFrame) -> pl.DataFrame:
    """Variance of the ratio of counts to weights in each period, between its units.

    Each residual is corrected for the leverage of its own unit (CR2 [1]_): otherwise few or
    unequal units would understate the variance. Null with a single unit.

    References
    ----------
    .. [1] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for
       linear regression with multi-stage samples. Survey Methodology 28, 169-181.
    """
    key = [*_GROUP, "period"]
    total = pl.col("weight").sum()
    leverage = pl.col("weight") / total.over(key)
    residual = pl.col("count") - leverage * pl.col("count").sum().over(key)
    squares, fourths = (pl.col("weight") ** 2).sum(), (pl.col("weight") ** 4).sum()
    return (
        rows.group_by(*key, "unit")
        .agg(pl.col("count", "weight").sort().sum())
        .sort(*key, "unit")
        .filter((pl.col("weight") > 0) | (pl.col("count") > 0))
        .with_columns(square=pl.when(leverage < 1).then(residual**2 / (1 - leverage)))
        .group_by(key)
        .agg(
            variance=pl.when(pl.len() > 1).then(pl.col("square").sum() / total**2),
            by_weight=squares / total**2,
            # Satterthwaite: a few large units that dominate leave few degrees of freedom.
            degrees=(squares**2 / fourths - 1).clip(lower_bound=1.0),
        )
    )


def _rates(groups: pl.DataFrame, conf_level: float, least: int) -> pl.DataFrame:
    """Ends per run-hour of both periods, compared exactly."""
    counts = groups.group_by(*_GROUP, "period").agg(
        n=pl.len().cast(pl.Int64),
        # The last digit of a float sum depends on the order.
        hours=pl.col("duration_s").sort().sum() / 3600,
        **{
            name: (pl.col("ended") & (pl.col("ending") == name)).sum().cast(pl.Int64)
            for name in RATES
        },
    )
    both = _with_both_periods(counts, ["n", "hours", *RATES])
    both = both.with_columns(pl.col(name).fill_null(0) for name in both.columns[len(_GROUP) :])
    return pl.concat(
        _rate(
            both.join(_dispersions(groups, name), on=_GROUP, how="left", nulls_equal=True),
            name,
            conf_level,
            least,
        )
        for name in RATES
    )


def _rate(both: pl.DataFrame, name: str, conf_level: float, least: int) -> pl.DataFrame:
    now, before = f"{name}_now", f"{name}_before"
    counts = both.select(
        now, "hours_now", before, "hours_before", "n_before", "n_now", "effect", "degrees"
    )
    ratios = [
        # Without an end in either window there is nothing to compare, though p would be 1.
        rate_ratio(*row[:4], confidence=conf_level, dispersion=row[6], degrees=row[7])
        if min(row[4:6]) >= least and row[0] + row[2] and row[6] is not None
        else RateRatio(None, None, None, None)
        for row in counts.iter_rows()
    ]
    names = ("ratio", "ratio_low", "ratio_high", "p_value")
    results = pl.DataFrame(ratios, schema=dict.fromkeys(names, pl.Float64), orient="row")
    return pl.concat([both, results], how="horizontal").select(
        *_GROUP,
        pl.lit(name).alias("measure"),
        pl.col(before).alias("n_before"),
        pl.col(now).alias("n_now"),
        pl.col("n_before").alias("runs_before"),
        pl.col("n_now").alias("runs_now"),
        *("ratio", "ratio_low", "ratio_high"),
        before=pl.when(pl.col("hours_before") > 0).then(pl.col(before) / pl.col("hours_before")),
        now=pl.when(pl.col("hours_now") > 0).then(pl.col(now) / pl.col("hours_now")),
        p_value="p_value",
    )


def _dispersions(groups: pl.DataFrame, name: str) -> pl.DataFrame:
    """Design effect of ends per run-hour, and its degrees of freedom.

    ``effect`` is the variance between invocations over that of Poisson counts, at least 1 and
    null where a period has a single unit; ``degrees`` are Welch's, as far as the variance is
    due to units.
    """
    key = [*_GROUP, "period"]
    is_counted = pl.col("ended") & (pl.col("ending") == name)
    rows = groups.select(
        *(*key, "unit"), count=is_counted.cast(pl.Float64), weight=pl.col("duration_s") / 3600
    )
    poisson = rows.group_by(key).agg(
        poisson=pl.col("count").sum() / pl.col("weight").sort().sum() ** 2, n=pl.len()
    )
    by_weight = pl.col("by_weight")
    due = 1 - 1 / pl.col("effect")
    return (
        _unit_variances(rows)
        .join(poisson, on=key, nulls_equal=True)
        .group_by(_GROUP)
        .agg(
            effect=pl.when(pl.col("variance").is_not_null().all() & (pl.len() == len(PERIODS)))
            .then(pl.col("variance").sum() / pl.col("poisson").sum())
            .fill_nan(1.0)
            .clip(lower_bound=1.0),
            unit_degrees=by_weight.sum() ** 2 / (by_weight**2 / pl.col("degrees")).sum(),
            n=pl.col("n").sum(),
        )
        .with_columns(degrees=1 / (due / pl.col("unit_degrees") + (1 - due) / pl.col("n")))
    )


def _with_both_periods(measured: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """One row per group, with each column once per period."""
    groups = measured.select(_GROUP).unique().sort(_GROUP)
    for period in PERIODS:
        part = measured.filter(pl.col("period") == period).select(
            *_GROUP, *(pl.col(name).alias(f"{name}_{period}") for name in names)
        )
        groups = groups.join(part, on=_GROUP, how="left", nulls_equal=True)
    return groups


def _in_words(row: dict[str, Any]) -> str | None:
    is_all, is_duration = row["dimension"] == ALL, row["measure"] == "duration"
    if row["value"] is None and not is_all:
        return None
    group = "all runs" if is_all else f"{row['dimension']} {row['value']}"
    words = say("period.median" if is_duration else "period.rate", group=group, **row)
    if row["q_value"] is None:
        return words + say("period.not_compared")
    if row["ratio"] is None:
        times = say("period.no_ratio" if row["ratio_low"] is None else "period.at_least", **row)
    else:
        is_bounded = None not in (row["ratio_low"], row["ratio_high"])
        # Medians are shown and means compared, so the sentence names them.
        times = "on average " * is_duration + say(
            "period.ratio_with_ends" if is_bounded else "period.ratio", **row
        )
    return words + say("period.compared", times=times, q=round(row["q_value"], 4))
