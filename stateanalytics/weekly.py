"""The numbers of every ISO week as they stood at its end, as one tidy frame.

Each week is read off the facts of its own end, so that a week that is over never changes
but by rows that came late. Clusters are named by the templates of all weeks together: a
failure keeps its name from week to week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT
from stateanalytics.core.shapes import Columns, Integer, Moment, Real, Text, frame
from stateanalytics.core.windows import Window, iso_week, weeks_up_to
from stateanalytics.core.words import first_word
from stateanalytics.errors import ArgumentError, check_number
from stateanalytics.failures import failure_rows
from stateanalytics.failures.counting import add_costs, count_groups, count_run_incidents
from stateanalytics.failures.incident_grouping import add_incidents, observed_s
from stateanalytics.state.definitions import RUN
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import HEADLINE, count_headline, counted, rows_of, within
from stateanalytics.stats.intervals import poisson_columns, wilson_columns
from stateanalytics.survival.curves import kaplan_meier, quantiles
from stateanalytics.survival.run_spells import spells, to_completion
from stateanalytics.systems.history import begins_at, begins_of, facts_at


class Weeks(Columns, key=("week", "measure", "group_kind", "group_id")):
    """One number of one ISO week, as of its end."""

    week = Text("the ISO week, such as 2026-W21; Monday to Monday in UTC")
    week_start_at = Moment("its Monday")
    known_at = Moment("when it was looked at: its end, or as-of; null: no data yet")
    coverage = Text("what of it the data cover: whole, part, none")
    measure = Text("what is measured: the five numbers, failure_…, time_to_complete")
    group_kind = Text("kind, cluster or code; null: everything together")
    group_id = Text("which of them; null in a group: none was stored")
    group_label = Text("the same for people: of a cluster its template")
    value = Real("the number; null: no data, no runs to share, not identified")
    lower = Real("lower end of its 95 % interval; null: a count of everything")
    upper = Real("upper end of its 95 % interval; null also: not bounded")
    n = Integer("what was counted: runs, causes, rows, ends, pieces of work")
    n_of = Integer("of how many; null: of no whole")
    unit = Text("what the value is counted in")
    n_effective = Real("independent runs of its interval; null: a count or a sum")


WEEKS = frame(Weeks)

FAILED: Mapping[str, str] = {
    "failure_causes": "causes",
    "failure_incidents": "incidents",
    "failure_rows": "rows",
    "failure_run_s": "s",
    "failure_cost_usd": "USD",
}
TIME_TO_COMPLETE = "time_to_complete"
UNITS: Mapping[str, str] = {**HEADLINE, **FAILED, TIME_TO_COMPLETE: "s"}
"""Every measure and its unit, in the order of the frame."""

_COUNTS = ("runs", "incidents", "failure_causes", "failure_incidents", "failure_rows")
_SHARES = ("completed", "timed_out", "unresolved")
_MOST_WEEKS = 520
_UNIT = ("source", "show_id", "invocation_id", "session_id", "entity_id", "project")
_GROUP = ["group_kind", "group_id"]
_SERIES = ["measure", *_GROUP]
_KNOWN = {
    **{name: WEEKS.dtypes[name] for name in ("week", *_SERIES, "group_label")},
    **{name: WEEKS.dtypes[name] for name in ("n", "n_of", "value", "lower", "upper")},
    "n_effective": REAL,
}


def weekly_numbers(
    snap: Facts, n: int = 12, *, policy: Policy | None = None, top: int | None = 10
) -> pl.DataFrame:
    """The last ISO weeks, each as it stood at its end; see `Snapshot.weeks`."""
    checked_snapshot(snap, "report")
    check_number("n", n, 12, least=1, is_whole=True)
    if n > _MOST_WEEKS:
        raise ArgumentError(
            f"n needs at most {_MOST_WEEKS} weeks; found {n}.", "n=52", shell="--weeks 52"
        )
    if top is not None:
        check_number("top", top, 10, is_whole=True)
    calendar = _calendar(weeks_up_to(snap.as_of, n), begins_at(snap.entities), snap.as_of)
    reached = calendar.filter(pl.col("coverage") != "none")
    weeks = [
        _Week.of(snap, Window(since, until, name), known_at, policy or Policy.v1())
        for name, since, until, known_at, _ in reached.iter_rows()
    ]
    failed = _failed(weeks)
    known = [*_headline(weeks, failed), *_failures(failed, top), *_durations(weeks, top)]
    return _grid(calendar, pl.concat([pl.DataFrame(schema=_KNOWN), *known], how="diagonal_relaxed"))


class _Week(NamedTuple):
    """What is kept of one week: its rows under its name, and every message that ever failed."""

    name: str
    runs: pl.DataFrame
    failed: pl.DataFrame
    spells: pl.DataFrame
    messages: pl.Series

    @classmethod
    def of(cls, snap: Facts, window: Window, known_at: datetime, policy: Policy) -> _Week:
        past = facts_at(snap, known_at).facts
        ever = rows_of(past, policy=policy)
        rows = within(ever, window, as_of=past.as_of, sources=snap.sources)
        started = to_completion(spells(past, window=window, rows=ever), pl.lit(known_at))
        week = pl.lit(window.label).alias("week")
        span_s = observed_s(window, past.as_of, begins_of(past.entities)).alias("observed_s")
        failed = add_costs(failure_rows.select_failures(rows), past.entities)
        return cls(
            window.label,
            counted(rows, RUN).select("is_open", "outcome", "severity", *_UNIT),
            failure_rows.named(failed, past).with_columns(week, span_s),
            started.select("kind", "duration_s", "ended", week, *_UNIT[:-1]),
            failure_rows.select_failures(ever)["reason_message"],
        )


def _calendar(weeks: Sequence[Window], begins: datetime | None, as_of: datetime) -> pl.DataFrame:
    """The weeks themselves, and how far the data reach into each."""
    since, until, first = pl.col("week_start_at"), pl.col("week_end_at"), pl.lit(begins, MOMENT)
    known_at = pl.min_horizontal(until, pl.lit(as_of, MOMENT))
    is_reached = (first < known_at).fill_null(value=False)
    is_whole = (first <= since) & (known_at == until)
    rows = [(iso_week(week.since), week.since, week.until) for week in weeks]
    names = {"week": TEXT, "week_start_at": MOMENT, "week_end_at": MOMENT}
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        known_at=pl.when(is_reached).then(known_at),
        coverage=first_word("part", whole=is_whole, none=~is_reached),
    )


def _grid(calendar: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Every series in every week: 0 where a week had none, null where it is not known."""
    found = known.select(*_SERIES, "group_label").unique(_SERIES, keep="first", maintain_order=True)
    missing = pl.DataFrame({"measure": list(UNITS)}).join(found, on="measure", how="anti")
    place = pl.col("measure").replace_strict({name: i for i, name in enumerate(UNITS)})
    series = pl.concat([found, missing], how="diagonal_relaxed").sort(place, maintain_order=True)
    is_covered, measure = pl.col("coverage") != "none", pl.col("measure")
    n, n_of = pl.col("n"), pl.col("n_of")
    is_sum = measure.is_in(list(FAILED))
    is_nothing = is_sum & (n_of == 0)
    is_share, is_rate = (
        measure.is_in(_SHARES),
        measure.is_in(["failure_causes", "failure_incidents"]),
    )
    return WEEKS.conform(
        calendar.join(series, how="cross", maintain_order="left")
        .join(known.drop("group_label"), on=["week", *_SERIES], how="left", nulls_equal=True,
              maintain_order="left")
        .with_columns(
            n=pl.when(is_covered).then(n.fill_null(0)),
            n_of=pl.when(is_covered & ~measure.is_in(_COUNTS)).then(n_of.fill_null(0)),
            a_week=pl.lit(1.0),
        )
        # Runs of one unit are similar: the interval is that of the effective sample size.
        .with_columns(n_effective=pl.when(~is_sum).then(pl.col("n_effective").fill_null(n_of)))
        .with_columns(hits_effective=pl.col("n_effective") * pl.col("n") / pl.col("n_of"))
        .with_columns(
            *wilson_columns("hits_effective", "n_effective"), *poisson_columns("n", "a_week")
        )
        .with_columns(
            value=pl.when(measure.is_in(_COUNTS)).then(n.cast(REAL)).when(is_share).then("share")
            .when(is_nothing).then(0.0).otherwise("value"),
            lower=pl.when(is_share).then("share_low").when(is_rate).then("rate_low")
            .otherwise("lower"),
            upper=pl.when(is_share).then("share_high").when(is_rate).then("rate_high")
            .otherwise("upper"),
            unit=measure.replace_strict(UNITS),
        )
    )  # fmt: skip


def _headline(weeks: Sequence[_Week], failed: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = [
        (week.name, measure, count.n, count.of, count.sure.effective()[1] if count.sure else None)
        for week in weeks
        for measure, count in count_headline(
            week.runs, count_run_incidents(failed.filter(pl.col("week") == week.name))[0]
        ).items()
    ]
    yield pl.DataFrame(rows, schema=["week", "measure", "n", "n_of", "n_effective"], orient="row")


def _failed(weeks: Sequence[_Week]) -> pl.DataFrame:
    """What failed in each week, with the clusters of all weeks and the incidents of its own."""
    if not weeks:
        return pl.DataFrame()
    messages = pl.concat([week.messages for week in weeks])
    rows = (
        failure_rows.add_templates(pl.concat([week.failed for week in weeks]), messages)
        .with_columns(rule_name=pl.lit(None, pl.String))
        .pipe(failure_rows.add_clusters)
        .sort("failed_at", "source", "entity_type", "entity_id")
    )
    # Week by week, so that a count does not depend on how many weeks were asked for.
    return add_incidents(rows, span_s=pl.col("observed_s"), apart=pl.col("week"))


def _failures(rows: pl.DataFrame, top: int | None) -> Iterator[pl.DataFrame]:
    """What failed in each week: altogether, by cluster and by reason code."""
    if rows.is_empty():
        return
    label = pl.coalesce("template", "code")
    for kind, identity, name in ((None, None, None), ("cluster", "cluster_id", label),
                                 ("code", "code", pl.col("code"))):  # fmt: skip
        named = rows.with_columns(
            group_kind=pl.lit(kind, TEXT),
            group_id=pl.lit(None, TEXT) if identity is None else identity,
            group_label=pl.lit(None, TEXT) if name is None else name,
        )
        groups = count_groups(named, ["week", *_GROUP, "group_label"])
        yield from _long(_largest(groups, top, "n_causes", "n_rows"))


def _long(groups: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The measures of groups of failures, one frame per measure."""
    n_work = pl.col("n_work")
    run, cost = n_work - pl.col("n_run_unreported"), n_work - pl.col("n_cost_unreported")
    columns: Mapping[str, Mapping[str, pl.Expr]] = {
        "failure_causes": {"n": pl.col("n_causes")},
        "failure_incidents": {"n": pl.col("n_incidents")},
        "failure_rows": {"n": pl.col("n_rows")},
        "failure_run_s": {"n": run, "n_of": n_work, "value": pl.col("run_s")},
        "failure_cost_usd": {"n": cost, "n_of": n_work, "value": pl.col("cost_usd")},
    }
    for measure, own in columns.items():
        yield groups.select("week", *_GROUP, "group_label", measure=pl.lit(measure), **own)


def _durations(weeks: Sequence[_Week], top: int | None) -> Iterator[pl.DataFrame]:
    """The median time to complete of the runs that started in each week, also by kind."""
    if not weeks:
        return
    runs = pl.concat([week.spells for week in weeks])
    for kind, identity in ((None, pl.lit(None, TEXT)), ("kind", pl.col("kind").cast(TEXT))):
        named = runs.with_columns(
            group_kind=pl.lit(kind, TEXT), group_id=identity, group_label=identity
        )
        by = ["week", *_GROUP, "group_label"]
        yield _largest(median_times(named, by), top, "n_of").with_columns(
            measure=pl.lit(TIME_TO_COMPLETE), n_effective="n_units"
        )


def median_times(runs: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The median time to complete of the runs of each group, from `to_completion`.

    Its interval is by invocation where runs have their keys; ``n`` of ``n_of`` completed.
    """
    counts = (
        runs.lazy()
        .group_by(by)
        .agg(n=pl.col("ended").sum().cast(INTEGER), n_of=pl.len().cast(INTEGER))
    )
    medians = (
        quantiles(kaplan_meier(runs, by=by), 0.5)
        .lazy()
        .select(*by, "n_units", value="duration_s", lower="duration_low_s", upper="duration_high_s")
    )
    return collected(counts.join(medians, on=by, how="left", nulls_equal=True))


def _largest(groups: pl.DataFrame, top: int | None, *weights: str) -> pl.DataFrame:
    """The groups that weigh most over all weeks together, heaviest first."""
    ranks = (
        groups.group_by(_GROUP)
        .agg(pl.col(weights).sum())
        .sort(*weights, "group_id", descending=[*(True for _ in weights), False], nulls_last=True)
        .with_row_index("rank")
    )
    kept = ranks if top is None else ranks.head(top)
    return groups.join(kept.select(*_GROUP, "rank"), on=_GROUP, nulls_equal=True).sort(
        "rank", "week"
    )
