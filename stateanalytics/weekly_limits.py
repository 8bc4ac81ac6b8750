"""Control limits over many weeks, and an alarm on this week that may be checked at any time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean, median
from typing import Any, Literal

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected, collected_each, connected_components, left_joined
from stateanalytics.core.schema import MOMENT, TEXT
from stateanalytics.core.shapes import Columns, Integer, Moment, Real, Text, Words, YesNo, frame
from stateanalytics.core.windows import Window, instant, iso_week, weeks_up_to
from stateanalytics.core.words import first_word
from stateanalytics.errors import check_columns, check_share
from stateanalytics.failures.counting import count_run_incidents
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows
from stateanalytics.failures.incident_grouping import members_within_each
from stateanalytics.failures.weekly_change import dispersions
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import count_headlines, unit_of, within
from stateanalytics.stats import process_control as chart
from stateanalytics.stats.intervals import two_sided_z
from stateanalytics.stats.process_control import evidence_of_more, usual_rate
from stateanalytics.survival.run_spells import to_completion
from stateanalytics.systems.history import begins_of
from stateanalytics.weekly import TIME_TO_COMPLETE, WEEKS, Weeks, median_times

FEWEST_WEEKS = 8
"""This week and those before it: with fewer, their variation cannot be estimated."""
MOST_WEEKS = 26
"""Older weeks are no evidence about today."""

SHARES = ("completed", "timed_out", "unresolved")
PER_RUN = ("incidents", "failure_incidents")
"""Counts that grow with the runs that ended: twice the work, twice the incidents."""
MEASURES = ("runs", *SHARES, *PER_RUN, TIME_TO_COMPLETE)
"""What has limits: what is independent is counted once, so rows and causes have none."""
WORSE: Mapping[str, int] = {
    "completed": -1,
    "timed_out": 1,
    "unresolved": 1,
    "incidents": 1,
    TIME_TO_COMPLETE: 1,
}
"""The direction in which each number of the headline gets worse."""

LEAST_VARIANCE = 0.01
"""Of the logarithm of a duration: runs that are all the same are no proof against a second more."""
USUAL_VARIANCE = math.pi / 2
"""Of the median of logarithms that vary by a factor of e, times their number."""

OF_ALL = "value_of_all"
VERDICTS = ("above", "below", "within")
NEEDED = (
    *("week", "coverage", "measure", "group_kind", "group_id"),
    *("value", "lower", "upper", "n", "n_of", "n_effective"),
)


class ControlLimits(Weeks, key=WEEKS.key):
    """One number of one ISO week, with its control limits."""

    expected = Real("by the weeks before its level; null: no limits")
    limit_low = Real("below it, a week is below by itself")
    limit_high = Real("above it, a week is above by itself")
    p_value = Real("probability of so clear a change by chance")
    q_value = Real("p-value adjusted for the number of series")
    verdict = Words(VERDICTS, "the level of the week: above, below or within")
    level_since = Text("the first ISO week of the level; within: of the series")
    level = Real("the level at the runs of this week")
    level_before = Real("the level before, at the runs of this week; null: none")


LIMITS = frame(ControlLimits)
_SERIES = ["measure", "group_kind", "group_id"]
_NUMBERS = (
    *("expected", "limit_low", "limit_high", "p_value", "q_value", "level", "level_before"),
)
_FOUND = pl.Schema(
    {**dict.fromkeys(_NUMBERS, pl.Float64()), "level_since": pl.String(), "is_above": pl.Boolean()}
)


def control_limits(weeks: pl.DataFrame, *, fdr: float = 0.05) -> pl.DataFrame:
    """Whether each number of each week has changed against the weeks before it, and since when.

    Parameters
    ----------
    weeks : polars.DataFrame
        From `Snapshot.weeks`, ideally of 26 weeks; no more are used.
    fdr : float
        Probability that anything of a week is said to have changed where nothing did.

    Returns
    -------
    polars.DataFrame
        ``weeks`` in its order, each with the verdict of the test of reports, at its end:
        ``expected`` by the weeks before its level, at this week's runs; ``limit_low`` to
        ``limit_high``, outside of which a week is a change by itself; the ``verdict``, above or
        below also where several newest weeks are another level only together; ``p_value``, and
        ``q_value``, at most ``fdr`` where it changed; ``level_since``, the first week of the
        level; ``level`` and ``level_before``, it and the one before at this week's runs (null:
        within). All null where there are no limits: of weeks that the data cover in part, of
        the first `FEWEST_WEEKS` - 1 weeks, of causes, rows and sums.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If ``fdr`` is not between 0 and 1.

    Notes
    -----
    The test is that of reports, `stats.process_control.newest_change`; a report has a budget of
    false alarms of its own for each number, and joins runs that share an incident. Counts and
    shares are compared as roots and angles, durations as logarithms of medians. Incidents are
    compared with the runs that ended; for ``runs``, most of the error budget is spent on increases.
    The series of a ``group_kind`` are one family: ``fdr`` is divided by twice their number, because
    weeks that vary beyond chance are called changed about twice as often as the level of the test.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> control_limits(demo().weeks(3))["verdict"].count()  # three weeks are too few
    0
    """
    check_columns(weeks, NEEDED, "control_limits")
    check_share("fdr", fdr, 0.05)
    rows = weeks.with_row_index("_row")
    judged = rows.filter(pl.col("measure").is_in(MEASURES), coverage="whole")
    recent = judged["week"].unique().sort().tail(MOST_WEEKS)
    n_ended = judged.filter(pl.col("group_kind").is_null(), measure="completed")
    ended = judged.filter(pl.col("week").is_in(recent.to_list())).join(
        n_ended.select("week", n_ended="n_of"), on="week", how="left", maintain_order="left"
    )
    n_series = dict(ended.select(_SERIES).unique()["group_kind"].value_counts().iter_rows())
    found = [
        limited
        for series in ended.partition_by(_SERIES, maintain_order=True)
        for limited in _of_series(series, fdr, n_series[series["group_kind"][0]])
    ]
    schema = {"_row": rows.schema["_row"], **_FOUND}
    verdict = first_word("below", within=pl.col("level_before").is_null(), above="is_above")
    is_known = pl.col("p_value").is_not_null()
    return (
        rows.join(
            pl.DataFrame(found, schema=schema, orient="row"),
            on="_row", how="left", maintain_order="left",
        )
        .with_columns(verdict=pl.when(is_known).then(verdict).cast(pl.Enum(VERDICTS)))
        .select(*weeks.columns, *_NUMBERS[:5], "verdict", "level_since", *_NUMBERS[5:])
    )  # fmt: skip


def _point(row: Mapping[str, Any]) -> chart.Point | None:
    """A number on the scale that it is compared on; None: of nothing."""
    if row["measure"] in SHARES:
        return chart.share_point(row["n"], row["n_of"]) if row["n_of"] else None
    if row["measure"] == TIME_TO_COMPLETE:
        is_known = (row["value"] or 0) > 0 and row["n"]
        return chart.duration_point(row["value"], row["n"]) if is_known else None
    return chart.count_point(row["n"], _exposure(row)) if _exposure(row) else None


def back(value: float, row: Mapping[str, Any]) -> float:
    """A value on the scale of a number, in the unit of the number, at the runs of its week."""
    if row["measure"] in SHARES:
        return chart.share_back(value, row["n_of"])
    if row["measure"] == TIME_TO_COMPLETE:
        return chart.duration_back(value)
    return chart.count_back(value, _exposure(row))


def _exposure(row: Mapping[str, Any]) -> float:
    return float(row["n_ended"] or 0) if row["measure"] in PER_RUN else 1.0


def points_of(series: pl.DataFrame) -> tuple[list[dict[str, Any]], list[chart.Point]]:
    """The weeks of one number that have a point, and these points.

    With ``n_effective``, the independent units of each week, the inverse of a weight is the
    variance by chance. What units have in common is that of the usual week, or of the week
    itself where that is more: estimates of single weeks are far apart by chance.
    """
    pairs = [(row, _point(row)) for row in series.iter_rows(named=True)]
    rows, points = [row for row, point in pairs if point], [point for _, point in pairs if point]
    if points and all(row.get("n_effective") for row in rows):
        is_time = rows[0]["measure"] == TIME_TO_COMPLETE
        of_units = _weights_of_times if is_time else _weights_of_shares
        points = [
            replace(point, weight=weight)
            for point, weight in zip(points, of_units(rows, points), strict=True)
        ]
    return rows, points


def _weights_of_shares(rows: list[dict[str, Any]], points: list[chart.Point]) -> list[float]:
    effects = [row["n_of"] / row["n_effective"] for row in rows]
    usual = median(effects)
    return [
        point.weight / max(effect, usual) for point, effect in zip(points, effects, strict=True)
    ]


def _weights_of_times(rows: list[dict[str, Any]], _: list[chart.Point]) -> list[float]:
    """From the intervals of the medians: their variance falls with the number of units."""
    spreads = [
        ((math.log(row["upper"]) - math.log(row["lower"])) / (2 * two_sided_z(0.95))) ** 2
        * row["n_effective"]
        for row in rows
        if row["upper"] and row["lower"]
    ]
    spread = max(fmean(spreads), LEAST_VARIANCE) if spreads else USUAL_VARIANCE
    return [row["n_effective"] / spread for row in rows]


def _of_series(series: pl.DataFrame, fdr: float, n_series: int) -> Iterator[tuple[Any, ...]]:
    """Row number, limits and level of each week that has enough weeks before it."""
    worse, in_order = WORSE.get(series["measure"][0], 1), series.sort("week")
    n_tests = chart.CHANGES_PER_ALARM * n_series
    for n in range(FEWEST_WEEKS, series.height + 1):
        # What later weeks show about chance was not known at the end of this one.
        rows, points = points_of(in_order.head(n))
        row = in_order.row(n - 1, named=True)
        if len(rows) < FEWEST_WEEKS or rows[-1]["_row"] != row["_row"]:
            continue
        if not (found := chart.newest_change(points, alpha=fdr / n_tests, worse=worse)):
            continue
        expected, low, high, level = (
            back(value, row) for value in (found.before, found.low, found.high, found.level)
        )
        q_value = min(1.0, found.p_value * n_tests)
        limits = (row["_row"], expected, low, high, found.p_value, q_value)
        if found.start is None:
            yield *limits, expected, None, rows[0]["week"], None
        else:
            # By the scale: back from it, ends of shares meet.
            is_above = found.level > found.before
            yield *limits, level, expected, rows[found.start]["week"], is_above


_COUNTED = (
    *("source", "entity_type", "entity_id", "session_id", "invocation_id", "show_id", "project"),
    *("created_at", "started_at", "ended_at", "placed_at", "is_open", "left_out"),
    *("outcome", "severity"),
)
"""Columns of runs for their place in time and the numbers of a headline."""


def numbers_of_ended(
    ever: pl.DataFrame,
    failed: pl.DataFrame,
    windows: Mapping[Window, pl.DataFrame],
    as_of: datetime,
) -> pl.DataFrame:
    """The headline numbers of windows as they are known now, of the runs that had ended.

    Parameters
    ----------
    ever : polars.DataFrame
        The `population` of all time.
    failed : polars.DataFrame
        The `members` of all time.
    windows : mapping of Window to polars.DataFrame
        The `members_within` each; their labels are the weeks.
    as_of : datetime
        The instant that states were read at.

    Returns
    -------
    polars.DataFrame
        What `control_limits` takes, with ``n_ended`` runs of the week, and ``n_effective``, how
        many independent runs a share rests on: those of one incident count as one.
    """
    key = ("source", "entity_type", "entity_id")
    incidents = failed[[*key, "incident_id"]].unique(key, keep="first", maintain_order=True)
    ended = left_joined(ended_runs(ever[list(_COUNTED)]), incidents, on=key)
    # A fan-out of which some runs failed in an incident is no two units.
    links = (pl.lit("i") + pl.col("incident_id"), pl.lit("u") + unit_of())
    runs = ended.lazy()
    pairs = [runs.select(node=pl.int_range(pl.len()), id=link).drop_nulls() for link in links]
    units = connected_components(ended.height, pl.concat(pairs))
    united = runs.with_columns(incident_id=pl.lit(units).cast(pl.String))
    of_windows = collected_each([within(united, window, as_of=as_of) for window in windows])
    counted = count_headlines(of_windows, count_run_incidents(*windows.values()))
    rows = [
        (window.label, measure, count.n, count.of, n_effective, counts["completed"].of)
        for window, counts in zip(windows, counted, strict=True)
        for measure, count in counts.items()
        for n_effective in [count.sure and count.sure.n_effective]
    ]
    dtypes = {"n": pl.Int64, "n_of": pl.Int64, "n_effective": pl.Float64, "n_ended": pl.Int64}
    schema = {"week": pl.String, "measure": pl.String, **dtypes}
    absent, is_share = pl.lit(None, pl.String), pl.col("measure").is_in(SHARES)
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        coverage=pl.lit("whole"),
        group_kind=absent,
        group_id=absent,
        value=pl.when(is_share).then((pl.col("n") / pl.col("n_of")).fill_nan(None)).otherwise("n"),
    )


def times_of_started(
    runs: pl.DataFrame, windows: Sequence[Window], as_of: datetime
) -> pl.DataFrame:
    """Median times to complete of the runs that started in each of adjacent windows.

    Parameters
    ----------
    runs : polars.DataFrame
        The `spells` of all time.
    windows : sequence of Window
        In the order of time; their labels are the weeks.
    as_of : datetime
        The instant that states were read at.

    Returns
    -------
    polars.DataFrame
        What `control_limits` takes: by kind, and of all runs for the mix of the last window:
        durations are compared in multiples of what is usual for their kind. ``value_of_all``
        is the same, in such multiples, where runs that did not complete never do. ``own_lower``
    and ``own_upper``: the interval of the last window's median itself, whatever its mix.
    """
    last = windows[-1]
    starts = pl.LazyFrame(
        [(week.since, week.label, min(week.until, as_of)) for week in windows],
        schema={"started_at": MOMENT, "week": TEXT, "until": MOMENT}, orient="row",
    )  # fmt: skip
    placed = (
        runs.lazy()
        .filter(pl.col("started_at") < instant(last.until))
        .sort("started_at")
        .join_asof(starts, on="started_at")
        .drop_nulls("week")
        .pipe(collected)
    )
    until, by = pl.col("until"), ["week", "group_kind", "group_id"]
    followed = to_completion(placed, until)
    completed_s = pl.col("duration_s").filter("ended").median()
    of_kinds = followed.lazy().with_columns(of_all_s=completed_s).group_by(group_id="kind")
    usual = of_kinds.agg(
        usual_s=pl.coalesce(completed_s, pl.col("of_all_s").first(), 1.0).clip(1e-3)
    ).pipe(collected)

    def times(others: Literal["cut_off", "never"]) -> pl.DataFrame:
        runs = (
            to_completion(placed, until, others=others)
            .lazy()
            .join(usual.lazy(), left_on="kind", right_on="group_id", nulls_equal=True)
            .with_columns(pl.col("duration_s") / pl.col("usual_s"), group_kind=pl.lit("kind"))
        )
        all_runs = runs.with_columns(group_kind=pl.lit(None, TEXT), group_id=pl.lit(None, TEXT))
        kinds = runs.with_columns(group_id=pl.col("kind").cast(TEXT))
        return median_times(collected(pl.concat([all_runs, kinds])), by)

    is_last = pl.col("week") == last.label
    of_all = times("never").lazy().select(*by, pl.col("value").alias(OF_ALL))
    relative = times("cut_off").lazy().join(of_all, on=by, nulls_equal=True)
    now = median_times(followed.filter(is_last), ["week"])
    value = pl.col("value").filter(is_last, pl.col("group_kind").is_null())
    of_mix_s = now["value"].sum() / value.sum()
    in_kind = usual.lazy().with_columns(pl.col("group_id").cast(TEXT), group_kind=pl.lit("kind"))
    own = now.lazy().select("week", own_lower="lower", own_upper="upper")
    return (
        relative.join(own, on="week", how="left")
        .join(in_kind, on=by[1:], how="left", nulls_equal=True)
        .with_columns(pl.col("usual_s").fill_null(of_mix_s))
        .with_columns(pl.col("value", "lower", "upper") * pl.col("usual_s"))
        .with_columns(measure=pl.lit(TIME_TO_COMPLETE), n_effective="n_units")
        .filter(is_last.any().over(by[1:]))
        .sort(by, nulls_last=True)
        .pipe(collected)
    )


class FailureAlarm(Columns, key=("week",)):
    """Whether this week has more incidents of failed runs so far than chance explains."""

    week = Text("the ISO week that holds as-of")
    at = Moment("when it was evaluated")
    n_incidents = Integer("incidents of failed runs so far")
    n_runs = Integer("runs that ended so far")
    n_expected = Real("incidents of as many runs in the weeks before")
    n_weeks = Integer("earlier weeks that the estimate is based on")
    dispersion = Real("number of incidents that count as one, because they come in bursts")
    evidence = Real("how many times more likely at a higher rate; null: too few weeks")
    is_alarm = YesNo("whether chance alone gives this in at most one of 20 weeks")
    in_words = Text("the same as a sentence")


ALARM = frame(FailureAlarm)


def failure_alarm(
    snap: Facts, *, policy: Policy | None = None, alpha: float = 0.05
) -> pl.DataFrame:
    """Whether more runs failed this week so far than chance explains, however often it is checked.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`; its as-of is the moment of the check.
    policy : Policy, optional
        Which states count; v1 by default.
    alpha : float
        Largest share of usual weeks with a false alarm, however often it is checked.

    Returns
    -------
    polars.DataFrame, shape (1, 10)
        `ALARM`.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or ``alpha`` is not between 0 and 1.

    Notes
    -----
    Limits for a whole week are exceeded by chance far more often than their level if they are
    checked every hour. The evidence of a sequential test is not: see `evidence_of_more`. Incidents
    are compared with the runs that ended, so that a quiet Sunday is no good news and a busy Monday
    no bad news. The rate of a week varies as it did in 8 to 26 whole weeks before, and incidents in
    bursts count less (`dispersions`).

    Examples
    --------
    >>> from stateanalytics import demo
    >>> failure_alarm(demo())["in_words"].item()
    '7 incidents in 20 ended runs of 2026-W22 so far, 3.3 expected from 11 earlier weeks: no alarm.'
    """
    checked_snapshot(snap, "failure_alarm")
    check_share("alpha", alpha, 0.05)
    *before, now = (
        replace(week, label=iso_week(week.since))
        for week in weeks_up_to(snap.as_of, MOST_WEEKS + 1)
    )
    ever = judged_rows(snap, policy)
    ended = ended_runs(ever)
    known = ended.select(pl.min_horizontal("created_at", "started_at", "ended_at").min()).item()
    weeks = [week for week in before if known is not None and known <= week.since]
    failed = find_members(snap, policy=policy, rows=ever)
    windows = members_within_each(failed, (*weeks, now), snap.as_of, begins_of(snap.entities))
    incidents = numbers_of_ended(ever, failed, windows, snap.as_of).filter(measure="incidents")
    counts = incidents.select("week", n_incidents="n", n_runs="n_ended")
    *earlier, this = counts.iter_rows(named=True)
    known = [week for week in earlier if week["n_runs"]]
    row: dict[str, Any] = {**this, "at": snap.as_of, "n_weeks": len(known), "is_alarm": False}
    if len(known) < FEWEST_WEEKS:
        row["in_words"] = (
            f"Too little history: {len(known)} of the {FEWEST_WEEKS} whole earlier weeks that are "
            "needed."
        )
        return ALARM.conform(pl.DataFrame([row]))
    bursts = _dispersion(failed, ended, weeks, now)
    usual = usual_rate(
        [week["n_incidents"] / bursts for week in known],
        [week["n_runs"] / bursts for week in known],
    )
    row |= {
        "n_expected": usual.mean * this["n_runs"],
        "dispersion": bursts,
        "evidence": evidence_of_more(this["n_incidents"] / bursts, this["n_runs"] / bursts, usual),
    }
    row["is_alarm"] = row["evidence"] >= 1 / alpha
    row["in_words"] = _alarm_in_words(row, alpha)
    return ALARM.conform(pl.DataFrame([row]))


def _dispersion(
    failed: pl.DataFrame, ended: pl.DataFrame, weeks: list[Window], now: Window
) -> float:
    """By how much more than by chance incidents vary from day to day within weeks.

    Of the weeks before alone: what this week brings must not change how it is read.
    """
    is_before = pl.col("at").is_between(weeks[0].since, now.since, closed="left")
    first = (
        failed.filter(pl.col("entity_type") == "session")
        .group_by(incident=pl.coalesce("incident_id", "cause"))
        .agg(at=pl.col("failed_at").min())
    )
    seen = first.filter(is_before).with_columns(cluster_id=pl.lit("all"))
    found = dispersions(seen, ended.select(at="placed_at").filter(is_before), now)
    return float(found["dispersion"][0]) if found.height else 1.0


def _alarm_in_words(row: dict[str, Any], alpha: float) -> str:
    n, of = row["n_incidents"], row["n_runs"]
    seen = (
        f"{n} incident{'' if n == 1 else 's'} in {of:,} ended runs of {row['week']} so far, "
        f"{row['n_expected']:.1f} expected from {row['n_weeks']} earlier weeks"
    )
    if not row["is_alarm"]:
        return f"{seen}: no alarm."
    often = f"{100 * alpha:g} of 100 weeks"
    return f"{seen}: by chance this happens in at most {often}, however often it is checked."
