"""New, growing, shrinking and vanished clusters, compared with an earlier period, and why.

Counts of incidents are overdispersed: they vary more than a Poisson process would. The
dispersion is estimated from the days of earlier periods.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.windows import Window, instant, minute_of, read_window
from stateanalytics.core.words import first_word
from stateanalytics.errors import ArgumentError, check_share
from stateanalytics.failures.call_outcomes import RUNS
from stateanalytics.failures.counting import incident_count, sum_costs
from stateanalytics.failures.failure_rates import without_mass
from stateanalytics.failures.failure_rows import (
    find_members,
    judged_rows,
    placed_runs,
    select_failures,
)
from stateanalytics.failures.fault_table import KEY
from stateanalytics.failures.frames import CHANGE
from stateanalytics.failures.incident_grouping import members_within
from stateanalytics.failures.templates import merge_templates, mine_templates
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import within
from stateanalytics.stats.distributions import benjamini_hochberg, beta_cdf
from stateanalytics.stats.intervals import rate_ratio
from stateanalytics.systems.history import begins_of

STATUSES = ("new", "back", "growing", "unclear", "steady", "shrinking", "gone")
QUIET_WEEKS = 2
"""A cluster is *back* only after at least so many weeks without a failure."""
QUIET_CHANCE = 0.01
"""A cluster is *back* or *gone* only if so long a silence has a lower chance at its own rate."""
NEWS_CHANCE = 0.05
"""A new cluster is news only if its absence from the earlier history has a lower chance."""
STEADY = 2.0
"""A cluster is *steady* if the interval of its ratio lies between the inverse of this and this."""

PERIODS = 8
"""The number of earlier periods from which the dispersion is estimated."""
PARTS = 7
"""The number of parts of a period: the days of a week."""
PRIOR = 20.0
"""Weight, in incidents, of the dispersion of all clusters when that of one is estimated.

It is also the weight of a dispersion of 1 when that of all clusters is estimated.
"""

USUAL = 24
"""The number of earlier periods that show the usual rate of a cluster."""
SPANS = {1: 2, 2: 2, 4: 1}
"""Growth is tested over the last one, two and four periods: each length and its weight.

One and two periods have twice the weight of four, because growth should be found early.
"""
N_ERRORS = 1.0
"""So many standard errors are added to the estimated variance between periods."""

MOST_WEIGHT = 100
"""The most weight of a cluster. With more earlier incidents, growth is found in any case."""

COSTS = ("run_s", "cost_usd")


def change(
    snap: Facts,
    *,
    window: object = None,
    before: object = None,
    earlier: Facts | None = None,
    policy: Policy | None = None,
    rules: object = None,
    fdr: float = 0.05,
    leave_out_mass: bool = False,
    of: str = RUNS,
) -> pl.DataFrame:
    """How often each cluster fails now, compared with an earlier period.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        Now: as in `read_window`; None: the seven days up to as-of.
    before : str, pair of moments or Window, optional
        The period to compare with; None: the same length, just before.
    earlier : Snapshot or Facts, optional
        Where the earlier period is read from, if not from ``snap``: last week's copy.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    fdr : float
        The share of false alarms among growing and shrinking clusters that is accepted.
    leave_out_mass : bool
        Exclude runs that started in a mass failure, failed or not: see `mass_failures`.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 30)
        The key of `clusters` and ``rule_name``; ``status``: new where there was no failure
        before the window, back after at least `QUIET_WEEKS` weeks without one and gone where
        there is none now, both only where chance does not explain it (`quiet_chance`), growing and
        shrinking where ``q_value`` is at most ``fdr``, steady where the interval of the ratio lies
        between a half and two, else unclear; ``why`` in words; ``n_causes``, ``incident_count`` and
        ``n_rows`` of both periods; ``n_runs``, the runs that ended; ``run_s`` and ``cost_usd`` of
        both (null: not reported, or no failure); ``dispersion``, how many times as much as by
        chance incidents vary from day to day, now and in the periods before; ``rate``, incidents
        per run, and their ``ratio`` with its exact 95 % interval; ``p_value`` and ``q_value``
        (null: no runs to compare); ``is_seen_before``: also before both periods; ``first_at``,
        ``last_at`` of all time. In the order of `STATUSES`; the smallest p-value first.

    Raises
    ------
    ArgumentError
        If a snapshot is none, a window makes no sense or they overlap, or ``fdr`` is not
        between 0 and 1.

    Notes
    -----
    Incidents are compared and not rows or causes, since the sessions of a fan-out and of an
    outage fail together. The test is exact and conditional on the incidents of both
    periods (`rate_ratio`), with runs as exposure; where incidents come in bursts, their
    counts are divided by the dispersion (`dispersions`); the q-value is Benjamini and
    Hochberg's over all clusters. New is a fact and no test; back and gone are judged by the
    rate of the cluster itself (`quiet_chance`). Both snapshots are mined together, so ids agree.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> changed = change(demo(), window="2026-W21")
    >>> changed["status"].dtype == pl.Enum(STATUSES)
    True
    """
    check_share("fdr", fdr, 0.05)
    now = read_window(window, as_of=checked_snapshot(snap, "failures.change").as_of)
    base = snap if earlier is None else checked_snapshot(earlier, "failures.change")
    past = earlier_period(before, now, base)
    every = judged_rows(snap, policy, of)
    every_before = every if earlier is None else judged_rows(base, policy, of)
    known = merge_templates(
        *(mine_templates(select_failures(e)["reason_message"]) for e in (every, every_before))
    )
    rows = find_members(snap, rules=rules, earlier=known, rows=every, of=of)
    rows_before = find_members(base, rules=rules, earlier=known, rows=every_before, of=of)
    if leave_out_mass and of == RUNS:
        # Rows are dropped only after mining, so that templates and ids do not change.
        rows, rows_before = (failed.filter(~pl.col("is_mass")) for failed in (rows, rows_before))
        every, every_before = without_mass(every), without_mass(every_before)
    failed, runs = (rows, rows_before), (placed_runs(every, of), placed_runs(every_before, of))
    periods, as_of = (now, past), (snap.as_of, base.as_of)
    n_runs, n_runs_before = (
        within(ended, period, as_of=instant).height
        for ended, period, instant in zip(runs, periods, as_of, strict=True)
    )
    begins = (begins_of(snap.entities), begins_of(base.entities))
    members, members_before = (
        members_within(found, period, instant, first)
        for found, period, instant, first in zip(failed, periods, as_of, begins, strict=True)
    )
    everything = pl.concat(failed).unique(
        [*KEY, "cause", "failed_at", "entity_type", "entity_id"], maintain_order=True
    )
    counts = (
        everything.group_by(KEY)
        .agg(
            pl.col("rule_name").sort().first(),
            first_at=pl.col("failed_at").min(),
            last_at=pl.col("failed_at").max(),
            is_seen_before=(pl.col("failed_at") < past.since).any(),
            n_quiet_weeks=n_quiet_weeks(now),
            quiet_chance=quiet_chance(now.since, quiet_until(now)),
        )
        .join(_count(members, ""), on="cluster_id", how="left")
        .join(_count(members_before, "_before"), on="cluster_id", how="left")
        .join(
            _dispersions(members, rows_before, runs, periods, as_of, begins=begins[1]),
            on="cluster_id",
            how="left",
        )
        .with_columns(
            *(
                pl.col(f"{name}{suffix}").fill_null(0)
                for name in ("n_causes", "n_incidents", "n_rows")
                for suffix in ("", "_before")
            ),
            pl.col("dispersion").fill_null(1.0),
            n_runs=pl.lit(n_runs, pl.Int64),
            n_runs_before=pl.lit(n_runs_before, pl.Int64),
        )
        .filter((pl.col("n_causes") > 0) | (pl.col("n_causes_before") > 0))
    )
    return _judged(counts, fdr)


def n_quiet_weeks(now: Window) -> pl.Expr:
    """Weeks without a failure before the first one of a window, else its end; null: no earlier."""
    failed_at = pl.col("failed_at")
    quiet = quiet_until(now) - failed_at.filter(failed_at < instant(now.since)).max()
    return (quiet.dt.total_days() // 7).cast(pl.Int64)


def quiet_chance(since: datetime, until: pl.Expr) -> pl.Expr:
    """The chance of so long without a failure, at the rate of a cluster's failures before it.

    Parameters
    ----------
    since : datetime
        Failures before it give the rate; the silence begins at the last of them.
    until : polars.Expr
        The end of that time, such as `quiet_until`.

    Returns
    -------
    polars.Expr
        Of groups with ``failed_at``: between 0 and 1; 1 where all failures before are of one
        day, as they have no rate yet; null: never before.

    Notes
    -----
    Days with a failure are counted, or incidents if those are fewer, because the failures of an
    outage are not independent. With ``n`` such days within a time ``T`` and a constant rate, the
    next silence is longer than ``t`` with the chance ``(T / (T + t)) ** (n - 1)``, since the
    ratio of exponential times has an F distribution. Where the gaps vary more than at a constant
    rate, the exponent is divided by the excess.
    """
    before = pl.col("failed_at").filter(pl.col("failed_at") < instant(since))
    active_s = (before.max() - before.min()).dt.total_seconds()
    gaps = (before - before.min()).dt.total_days().unique().sort().diff()
    # Days that come in bursts count as fewer: their gaps vary more than at a constant rate.
    bursts = (gaps.var() / gaps.mean() ** 2).fill_null(1.0).clip(lower_bound=1.0)
    n = _n_apart(pl.col("failed_at") < instant(since))
    # The silence begins at the end of the time with failures.
    share = active_s / (until - before.min()).dt.total_seconds()
    return pl.when(n > 1).then(share.pow((n - 1) / bursts)).when(n == 1).then(1.0)


def source_histories(runs: pl.DataFrame, now: Window) -> pl.LazyFrame:
    """The first of `placed_runs` of each ``source``, and their number before and in a window."""
    placed_at = pl.col("placed_at")
    return (
        runs.lazy()
        .group_by("source")
        .agg(
            known_since=placed_at.min(),
            n_runs_before=(placed_at < instant(now.since)).sum(),
            n_runs_now=now.holds("placed_at").sum(),
        )
    )


def new_chance(now: Window) -> pl.Expr:
    """The chance that a new cluster did not fail earlier, in the histories of its sources.

    At a constant rate, each of its days or incidents falls into the window with a chance that
    is the window's share of the history, or its share of the runs if that is larger, because
    nothing fails where nothing runs. Only sources with the failure count. The expression needs
    the columns of `source_histories`.
    """
    is_first = pl.col("source").is_first_distinct()
    before, here = (pl.col(f"n_runs_{when}").filter(is_first).sum() for when in ("before", "now"))
    since = pl.min_horizontal(pl.col("known_since").min(), instant(now.since))
    known_s = (instant(now.until) - since).dt.total_microseconds() / 1e6
    share = (now.until - now.since).total_seconds() / known_s
    # 0 / 0 is NaN in polars: no run of these sources has ended.
    share = pl.max_horizontal(share, (here / (here + before)).fill_nan(None)).clip(upper_bound=1.0)
    return share.pow(_n_apart(pl.lit(value=True)))


def _n_apart(is_meant: pl.Expr) -> pl.Expr:
    """The number of independent failures: days with one, or incidents if those are fewer."""
    failed_at = pl.col("failed_at").filter(is_meant)
    incidents = pl.coalesce("incident_id", "cause").filter(is_meant)
    n_days = (failed_at - failed_at.min()).dt.total_days().n_unique()
    return pl.min_horizontal(n_days, incidents.n_unique()).cast(pl.Int64)


def quiet_until(now: Window) -> pl.Expr:
    """The first failure of a window, else its end."""
    failed_at = pl.col("failed_at")
    return failed_at.filter(now.holds("failed_at")).min().fill_null(instant(now.until))


def is_no_chance() -> pl.Expr:
    """Whether chance does not explain a silence at the rate before it."""
    return pl.col("quiet_chance") < QUIET_CHANCE


def is_back() -> pl.Expr:
    """Whether a cluster that fails now is *back*, as `change` and `life` define it."""
    return (pl.col("n_quiet_weeks") >= QUIET_WEEKS) & is_no_chance()


def period_before(now: Window) -> Window:
    """The period of the same length that ends where a window begins."""
    length = now.until - now.since
    return Window(now.since - length, now.since, f"the {now.days:g} days before")


def earlier_period(before: object, now: Window, base: Facts) -> Window:
    """The period to compare with; by default the one of the same length just before."""
    if before is None:
        return period_before(now)
    past = read_window(before, as_of=base.as_of)
    if past.until > now.since:
        raise ArgumentError(
            f"The earlier period ends {minute_of(past.until)}, after the later one began "
            f"({minute_of(now.since)}).",
            "choose one that ended by then, such as 2026-W20 before 2026-W21",
        )
    return past


def _count(rows: pl.DataFrame, suffix: str) -> pl.DataFrame:
    costs = sum_costs()
    counts = rows.group_by("cluster_id").agg(
        n_causes=pl.col("cause").n_unique().cast(pl.Int64),
        n_incidents=incident_count().cast(pl.Int64),
        n_rows=pl.len().cast(pl.Int64),
        **{name: costs[name] for name in COSTS},
    )
    return counts.rename(lambda name: name if name == "cluster_id" else f"{name}{suffix}")


def _dispersions(
    members: pl.DataFrame,
    rows_before: pl.DataFrame,
    runs: tuple[pl.DataFrame, pl.DataFrame],
    periods: tuple[Window, Window],
    as_of: tuple[datetime, datetime],
    *,
    begins: Mapping[str, datetime],
) -> pl.DataFrame:
    """The `dispersions` of clusters, now and in the periods before."""
    now, past = periods
    since = min(past.since, now.since - PERIODS * (now.until - now.since))
    spans = (now, Window(since, past.until, "the periods before"))
    incidents = pl.concat(
        map(_incidents, (members, members_within(rows_before, spans[1], as_of[1], begins)))
    )
    ended = pl.concat(
        within(rows.lazy(), span, as_of=instant).select(at="placed_at").drop_nulls()
        for rows, span, instant in zip(runs, spans, as_of, strict=True)
    ).collect()
    return dispersions(incidents, ended, now)


def _incidents(failed: pl.DataFrame) -> pl.DataFrame:
    """The time of the first failure of each incident, by cluster."""
    incident = pl.coalesce("incident_id", "cause")
    return failed.group_by("cluster_id", incident=incident).agg(at=pl.col("failed_at").min())


def all_periods(now: Window) -> Window:
    """The time that `growth` looks at: a window and the earlier periods it is compared with."""
    n_periods = USUAL + max(SPANS)
    return Window(now.until - n_periods * (now.until - now.since), now.until, "all periods")


def growth(
    rows: pl.DataFrame,
    members: pl.DataFrame,
    ended: pl.DataFrame,
    now: Window,
    *,
    as_of: datetime,
    fdr: float,
) -> pl.DataFrame:
    """Whether each cluster fails more often than in the 24 periods before (`USUAL`).

    Parameters
    ----------
    rows, members, ended : polars.DataFrame
        `members` of all time, those within `all_periods`, and `placed_runs` of all time.
    now : Window
        The newest period; the earlier ones have the same length.
    as_of : datetime
        The end of the data.
    fdr : float
        Tests with too few incidents to ever reach it are skipped, so the p-value of a small
        cluster may depend on it.

    Returns
    -------
    polars.DataFrame
        ``cluster_id``; ``ratio`` of the incidents per run in the window to those in the periods
        before (null: none); ``p_value``, the weighted harmonic mean (`SPANS`) of three chances:
        of so many in the window, in it and one period before, and in it and three, each at the
        rate of the periods before that; ``q_value`` over all clusters, weighted by one
        plus the incidents before the window, at most `MOST_WEIGHT`. Clusters that could not be
        significant have no row.

    Notes
    -----
    The test is that of `change`, but one-sided, with mid-p, and over the time since the first
    failure of a cluster where that is less. Several periods show what one cannot: three
    failures a week that become nine. A harmonic mean of p-values that depend on each other is
    wrong about as often as one of them, and finds more than the least of them, corrected for
    three tests [1]_. Weights give most of the false alarms to clusters in which growth can be
    seen [2]_. Rates differ from week to week, not only by bursts
    (`dispersions`): a count with mean ``m`` has the variance ``m * (1 + a * m)``, as in a
    negative binomial distribution, with ``a`` of the cluster, shrunk towards that of all
    clusters (`PRIOR`), which is `N_ERRORS` above its estimate.

    References
    ----------
    .. [1] Wilson, D. J. (2019). The harmonic mean p-value for combining dependent tests.
       Proceedings of the National Academy of Sciences 116, 1195-1200.
    .. [2] Genovese, C. R., Roeder, K. and Wasserman, L. (2006). False discovery control with
       p-value weighting. Biometrika 93, 509-524.
    """
    length, incidents = now.until - now.since, _incidents(members)
    placed = within(ended.lazy(), all_periods(now), as_of=as_of).select(at="placed_at")
    runs = placed.drop_nulls().sort("at").collect()
    us_ago = (instant(now.until) - pl.col("at")).dt.total_microseconds() - 1
    ago = (us_ago // (length // timedelta(microseconds=1))).alias("ago")
    first = rows.lazy().group_by("cluster_id").agg(born=pl.col("failed_at").min())
    born = first.join(incidents.lazy(), on="cluster_id", how="semi").collect()
    n_since = runs.height - runs["at"].search_sorted(born["born"], side="right")
    # The time of a cluster begins with its first failure, which is therefore not counted.
    began = incidents.lazy().join(born.lazy(), on="cluster_id")
    counts = began.filter(pl.col("at") > pl.col("born"))
    n_later = pl.col("runs").cum_sum() - pl.col("runs")
    counted = (
        runs.lazy()
        .group_by(ago)
        .agg(runs=pl.len().cast(pl.Float64))
        .sort("ago")
        .with_columns(n_later=n_later)
        .join(born.lazy().with_columns(n_since=n_since), how="cross")
        .with_columns(runs=(pl.col("n_since") - pl.col("n_later")).clip(0, pl.col("runs")))
        .filter(pl.col("runs") > 0)
        .join(counts.group_by("cluster_id", ago).agg(n=pl.len()), ["cluster_id", "ago"], "left")
        .with_columns(pl.col("n").fill_null(0).cast(pl.Float64))
        .sort("cluster_id", "ago")
        .join(dispersions(incidents, runs, now).lazy(), on="cluster_id", maintain_order="left")
        .pipe(collected)
    )
    tests = [
        (*row, weight)
        for n_now, weight in SPANS.items()
        for row in _more_than_before(counted, n_now, fdr)
    ]
    numbers = dict.fromkeys(("ratio", "p_value", "weight"), pl.Float64)
    weights = pl.col("weight").sum()
    # Sorted, because the sum of floats depends on their order.
    per_p = (pl.col("weight") / pl.col("p_value")).sort().sum()
    n_before = pl.col("n").sum().clip(upper_bound=MOST_WEIGHT)
    before = counted.lazy().filter(pl.col("ago") > 0).group_by("cluster_id").agg(n_before + 1)
    return (
        pl.LazyFrame(tests, schema={"cluster_id": pl.String, **numbers}, orient="row")
        .group_by("cluster_id")
        .agg(pl.col("ratio").fill_nan(None).drop_nulls().first(), p_value=weights / per_p)
        .join(before, on="cluster_id")
        .with_columns(weighed=pl.col("p_value") * pl.col("n").mean() / pl.col("n"))
        .select("cluster_id", "ratio", "p_value", benjamini_hochberg("weighed"))
        .pipe(collected)
    )


def _more_than_before(counted: pl.DataFrame, n_now: int, fdr: float) -> list[tuple[object, ...]]:
    """Tests of the last periods against the earlier ones, from the counts of each period."""
    ago, n, runs = pl.col("ago"), pl.col("n"), pl.col("runs")
    is_before = ago.is_between(n_now, n_now + USUAL - 1)
    rate_before = n.filter(is_before).sum() / runs.filter(is_before).sum()
    expected = runs * rate_before.over("cluster_id")
    degrees, squares = pl.col("degrees"), pl.col("squares")
    mean = pl.col("n_before") / (degrees + 1)
    excess = squares - degrees
    error = (2 * squares**2 / pl.when(degrees > 0).then(degrees)).sum().sqrt()
    of_all = (excess.sum() + N_ERRORS * error) / ((degrees * mean).sum() + PRIOR)
    own = (excess + PRIOR * of_all) / (degrees * mean + PRIOR)
    varied = pl.max_horizontal(own, pl.lit(0.0))
    sums = (
        counted.lazy()
        .with_columns(squares=((n - expected) ** 2 / expected).fill_nan(0.0))
        .group_by("cluster_id", maintain_order=True)
        .agg(
            pl.col("dispersion").first(),
            pl.col("n", "runs").filter(ago < n_now).sum().name.suffix("_now"),
            pl.col("n", "runs").filter(is_before).sum().name.suffix("_before"),
            n_last=n.filter(ago == 0).sum(),
            rate=n.filter(ago == 0).sum() / runs.filter(ago == 0).sum(),
            squares=pl.col("squares").filter(is_before).sum(),
            degrees=is_before.sum() - 1.0,
        )
        .filter(pl.col("runs_now") > 0, pl.col("runs_before") > 0)
        .with_columns(dispersion=pl.max_horizontal("dispersion", 1 + varied * mean))
        .pipe(collected)
    )
    tested: list[tuple[object, ...]] = []
    for row in sums.iter_rows(named=True):
        share = row["runs_now"] / (row["runs_now"] + row["runs_before"])
        now, before = (row[name] / row["dispersion"] for name in ("n_now", "n_before"))
        if share ** (now + before) / 2 > fdr:
            continue
        usual = row["n_before"] / row["runs_before"]
        p_value = 1.0
        # One incident alone is never growth, even in a short window.
        if row["rate"] > usual and row["n_last"] > 1:
            above = beta_cdf(share, now + 1, before) if before else 0.0
            p_value = (beta_cdf(share, now, before + 1) + above) / 2
        tested.append((row["cluster_id"], row["rate"] / usual if usual else None, p_value))
    return tested


def _judged(counts: pl.DataFrame, fdr: float) -> pl.DataFrame:
    numbers = ("n_incidents", "n_runs", "n_incidents_before", "n_runs_before", "dispersion")
    # A test is slow, and many clusters have the same counts: each distinct pair is tested once.
    pairs = counts.select(numbers).unique()
    ratios = [rate_ratio(*row[:4], dispersion=row[4]) for row in pairs.rows()]
    names = ("ratio", "ratio_low", "ratio_high", "p_value")
    tested = pl.DataFrame(ratios, schema=dict.fromkeys(names, pl.Float64), orient="row")
    is_change = pl.col("q_value") <= fdr
    status = first_word(
        "unclear",
        gone=(pl.col("n_causes") == 0) & is_no_chance(),
        new=pl.col("n_quiet_weeks").is_null(),
        back=is_back(),
        growing=is_change & (pl.col("rate") > pl.col("rate_before")),
        shrinking=is_change & (pl.col("rate") < pl.col("rate_before")),
        steady=(pl.col("ratio_low") >= 1 / STEADY) & (pl.col("ratio_high") <= STEADY),
    )
    return (
        counts.join(pl.concat([pairs, tested], how="horizontal"), on=list(numbers), how="left")
        .with_columns(
            benjamini_hochberg(),
            rate=pl.col("n_incidents") / pl.when(pl.col("n_runs") > 0).then("n_runs"),
            rate_before=pl.col("n_incidents_before")
            / pl.when(pl.col("n_runs_before") > 0).then("n_runs_before"),
        )
        .with_columns(status=status.cast(pl.Enum(STATUSES)))
        .with_columns(why=_why())
        .sort(
            "status",
            "p_value",
            "n_causes",
            "n_rows",
            "cluster_id",
            nulls_last=True,
            descending=[False, False, True, True, False],
        )
        .select(CHANGE.dtypes.names())
    )


def _why() -> pl.Expr:
    """The reason for a status, in words."""
    status, excludes_one = pl.col("status"), (pl.col("ratio_low") > 1) | (pl.col("ratio_high") < 1)
    numbers = (_two_digits(name) for name in ("ratio", "ratio_low", "ratio_high"))
    ratio = pl.format("{} times as often per run (95 %: {} to {})", *numbers)
    few = pl.format("{}, not significant among {} clusters", ratio, pl.len())
    return (
        pl.when(status == "new")
        .then(pl.lit("never before"))
        .when(status == "back")
        .then(pl.format("after {} weeks without it", "n_quiet_weeks"))
        .when(status == "gone")
        .then(pl.lit("none in the window"))
        .when(pl.col("n_causes") == 0, status == "unclear")
        .then(pl.lit("none in the window, which may be chance"))
        .when(pl.col("rate").is_null() | pl.col("rate_before").is_null())
        .then(pl.lit("no run ended in one of the periods"))
        .when(pl.col("ratio").is_null())
        .then(
            pl.when(pl.col("n_quiet_weeks") < QUIET_WEEKS)
            .then(pl.lit("none in the period before, but shortly before that"))
            .otherwise(pl.lit("none in the period before, which may be chance"))
        )
        .when(status != "unclear")
        .then(ratio)
        .when(excludes_one)
        .then(few)
        .otherwise(pl.format("{}: no significant change", ratio))
    )


def _two_digits(name: str) -> pl.Expr:
    """A ratio with two significant digits."""
    value = pl.col(name)
    whole = value.round().cast(pl.Int64, strict=False).cast(pl.String)
    return pl.when(value >= 10).then(whole).otherwise(value.round_sig_figs(2).cast(pl.String))


def dispersions(incidents: pl.DataFrame, runs: pl.DataFrame, now: Window) -> pl.DataFrame:
    """The overdispersion of the daily incidents of each cluster.

    Parameters
    ----------
    incidents : polars.DataFrame
        ``cluster_id`` and ``at``, the moment of its first failure; one row per incident.
    runs : polars.DataFrame
        ``at``, the time of each run, so that weekends with few runs do not look like bursts.
    now : Window
        It has the length of all periods.

    Returns
    -------
    polars.DataFrame
        ``cluster_id`` and ``dispersion``, at least 1: the factor by which variances are
        larger than those of a Poisson process. A cluster without incidents has no row.

    Notes
    -----
    Given the incidents of a period, chance distributes them over its days (or sevenths) in
    proportion to the runs [1]_. The variance beyond that, over all periods and clusters, comes
    from bursts; the estimate of a cluster is shrunk towards it, because a handful of incidents
    shows little. Growth from one period to the next is no dispersion.

    References
    ----------
    .. [1] McCullagh, P. and Nelder, J. A. (1989). Generalized linear models, section 4.5.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> days = [datetime(2026, 5, day, tzinfo=UTC) for day in range(4, 11)]
    >>> week = Window(days[0], days[0] + timedelta(days=7), "a week")
    >>> runs = pl.DataFrame({"at": days * 9})
    >>> steady = pl.DataFrame({"cluster_id": "a", "at": days * 2})
    >>> burst = pl.DataFrame({"cluster_id": "b", "at": days[:1] * 14})
    >>> learned = dispersions(pl.concat([steady, burst]), runs, week).sort("cluster_id")
    >>> learned["dispersion"].round(1).to_list()
    [2.7, 7.9]
    """
    length_us = (now.until - now.since) // timedelta(microseconds=1)
    at_us = (pl.col("at") - instant(now.since)).dt.total_microseconds()
    placed = {"period": at_us // length_us, "part": at_us % length_us * PARTS // length_us}
    ended, seen = (frame.lazy().with_columns(**placed) for frame in (runs, incidents))
    grid = pl.concat([ended.select("period"), seen.select("period")]).unique()
    n_by_part = ended.group_by("period", "part").agg(n_runs=pl.len())
    n_runs = pl.col("n_runs").fill_null(0)
    n_in_period = n_runs.sum().over("period")
    shares = (
        grid.join(pl.LazyFrame({"part": range(PARTS)}), how="cross")
        .join(n_by_part, on=["period", "part"], how="left")
        # In a period without runs all parts are equally likely.
        .with_columns(
            share=pl.when(n_in_period > 0).then(n_runs / n_in_period).otherwise(1 / PARTS)
        )
        .with_columns(same_part=(pl.col("share") ** 2).sort().sum().over("period"))
    )
    counted = (
        seen.group_by("cluster_id", "period", "part")
        .agg(n=pl.len().cast(pl.Float64))
        .join(shares, on=["period", "part"], how="left")
        # Sorted, because the sum of floats depends on their order.
        .sort("cluster_id", "period", "part")
        .group_by("cluster_id", "period", maintain_order=True)
        .agg(
            pl.col("n").sum(),
            pl.col("same_part").first(),
            squares=(pl.col("n") ** 2).sum(),
            crossed=(pl.col("n") * pl.col("share")).sum(),
        )
    )
    n = pl.col("n")
    observed = pl.col("squares") - 2 * n * pl.col("crossed") + n**2 * pl.col("same_part")
    by_chance = n * (1 - pl.col("same_part"))
    own = counted.group_by("cluster_id", maintain_order=True).agg(
        observed=observed.sum(), by_chance=by_chance.sum()
    )
    # With few incidents in all, the estimate stays near 1, which is chance alone.
    of_all = (pl.col("observed").sum() + PRIOR) / (pl.col("by_chance").sum() + PRIOR)
    shrunk = (pl.col("observed") + PRIOR * of_all) / (pl.col("by_chance") + PRIOR)
    return own.select("cluster_id", dispersion=shrunk.clip(lower_bound=1.0)).pipe(collected)
