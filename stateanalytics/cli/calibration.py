"""How soon a report finds what changed, and how often it is wrong, on simulated fleets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITIES
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.reporting import report
from stateanalytics.reporting.first_screen import direction_of
from stateanalytics.snapshot import demo, read
from stateanalytics.state.definitions import ended_well
from stateanalytics.state.population import rows_of
from stateanalytics.thresholds.choice import Costs, choose
from stateanalytics.thresholds.counts import elapsed_counts, support

N_WEEKS = 12
"""Weeks of a simulated fleet; the newest one or two are changed."""
WEEK = timedelta(days=7)
_COPIED = ("source", "system", "entity_type", "kind", "raw_status", "end_written_by", "provider")
_CAUSES = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
_GROWS, _IS_NEW = "golf", "hotel"
_ICC, _MEDIAN_S, _SIGMA = 0.2, 600.0, 0.8


class Size(NamedTuple):
    """Runs that a fleet ends in a week, and the share of them that completes."""

    runs: int
    completed: float = 0.9


class Change(NamedTuple):
    """What becomes of a fleet: factors of rates and durations, and failures a week."""

    failures: float = 1.0
    completed: float = 1.0
    durations: float = 1.0
    grows: tuple[int, int] = (0, 0)
    new: int = 0
    expected: tuple[str, ...] = ()


CHANGES = {
    "failures × 2": Change(failures=2.0, expected=("worse than before",)),
    "completed × 0.8": Change(completed=0.8, expected=("worse than before",)),
    "durations × 1.5": Change(durations=1.5, expected=("takes longer",)),
    "a cause from 10 to 20 a week, a new one of 8": Change(
        grows=(10, 20), new=8, expected=("a cause grows", "a cause is new")
    ),
}
"""With what a report is expected to say of each."""


def size_of(snap: Facts) -> Size:
    """The usual week of a store: runs that ended in it, and how many of them completed."""
    ended = (
        rows_of(snap)
        .filter(pl.col("entity_type") == "session", pl.col("ended_at").is_not_null())
        .select(pl.col("ended_at").dt.truncate("1w"), is_good=ended_well())
    )
    weeks = ended.group_by("ended_at").agg(n=pl.len().cast(pl.Float64), n_good=pl.sum("is_good"))
    usual, n, n_good = weeks.select(pl.median("n"), n_all=pl.sum("n"), n_good=pl.sum("n_good")).row(
        0
    )
    return Size(max(10, round(usual or 0)), min(0.98, n_good / n if n_good else 0.9))


def fleet(like: Facts, size: Size, change: Change, seed: int) -> Facts:
    """A simulated fleet whose two newest weeks are changed.

    Runs come alone or in fan-outs of up to six, which fail and take long together.

    Parameters
    ----------
    like : Facts
        Data whose most frequent kind of session the runs are like.
    size, change : Size, Change
        Its usual week, and what becomes of it.
    seed : int
    """
    draw, until = Random(seed), like.as_of
    rows: list[dict[str, Any]] = []
    good, bad = _templates(like)

    def add(ended: datetime, unit: str, seconds: float, cause: str | None) -> None:
        row: dict[str, Any] = {**(bad if cause else good), "entity_id": f"run-{len(rows)}"}
        row |= dict.fromkeys(("created_at", "started_at"), ended - timedelta(seconds=seconds))
        row |= dict.fromkeys(("ended_at", "last_message_at", "last_activity_at"), ended)
        message = cause and f"the {cause} service said {cause} is not {cause} at all"
        row |= {"session_id": row["entity_id"], "invocation_id": unit, "reason_message": message}
        rows.append(row)

    for week in range(N_WEEKS):
        is_changed = week >= N_WEEKS - 2
        fails = 1 - size.completed
        if is_changed:
            fails = max(fails * change.failures, 1 - size.completed * change.completed)
        fails = min(fails, 0.98)
        n, most = 0, draw.gauss(size.runs, 1.5 * math.sqrt(size.runs))

        def moment(week: int = week) -> datetime:
            return until - WEEK * (N_WEEKS - week - draw.random())

        while n < most:
            unit, ended = f"unit-{week}-{n}", moment()
            chance = draw.betavariate(*((1 / _ICC - 1) * p for p in (fails, 1 - fails)))
            cause, pace = draw.choice(_CAUSES), draw.gauss(math.log(_MEDIAN_S), _SIGMA / 2)
            pace += math.log(change.durations) if is_changed else 0.0
            for _ in range(draw.choice((1, 1, 1, 2, 6))):
                seconds = math.exp(pace + draw.gauss(0, _SIGMA * 0.75**0.5))
                add(ended, unit, seconds, cause if draw.random() < chance else None)
                n += 1
        for cause, often in (
            (_GROWS, change.grows[is_changed]),
            (_IS_NEW, is_changed * change.new),
        ):
            for i in range(max(0, round(draw.gauss(often, math.sqrt(often))))):
                add(moment(), f"{cause}-{week}-{i}", _MEDIAN_S, cause)
    entities = pl.DataFrame(rows, schema=ENTITIES.dtypes).sort("ended_at", "entity_id")
    nothing = {name: getattr(like, name).clear() for name in ("transitions", "events", "findings")}
    return Facts(entities, **nothing, sources=like.sources.clear(), as_of=until)


def _templates(like: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """A session of the most frequent kind that completed, and one that failed.

    Of the sample, where the data have none of either.
    """
    sessions = rows_of(like).filter(pl.col("entity_type") == "session")
    failed = pl.col("outcome") == "failed"
    both = sessions.group_by("system", "kind").agg(
        n=pl.len(), has_both=ended_well().any() & failed.any()
    )
    usual = both.filter("has_both").sort("n", "system", "kind", descending=True).head(1)
    if usual.is_empty():
        return _templates(demo())
    chosen = sessions.join(usual, on=["system", "kind"], how="semi", nulls_equal=True)
    good, bad = (
        chosen.filter(which).sort("entity_id").select(_COPIED).row(0, named=True)
        for which in (ended_well(), failed)
    )
    return good, bad | {"kind": good["kind"], "provider": good["provider"]}


BETTER = "better than before"


def statements(facts: Facts, weeks_ago: int) -> set[str]:
    """What the report of one week says has changed."""
    until = facts.as_of - WEEK * weeks_ago
    summary = report(facts, window=(until - WEEK, until), sections=["headline", "failures"]).summary
    said = set()
    for number in summary["headline"]["numbers"]:
        direction = direction_of(number)
        if number["name"] == "time_to_complete" and direction > 0:
            said.add("takes longer")
        elif direction:
            said.add("worse than before" if direction > 0 else BETTER)
    names = {"growing": "a cause grows", "new": "a cause is new"}
    news = summary["failures"]["news"]
    return said | {name for state, name in names.items() if news.get(state)}


def calibrated(like: Facts, size: Size, n_fleets: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Of each statement: in how many fleets it is found, and in how many reports it is wrong.

    Parameters
    ----------
    like, size : Facts, Size
        See `fleet`.
    n_fleets, seed : int
        Simulated fleets of each change and of none, and the first seed.

    Yields
    ------
    dict
        ``change``, ``statement``, ``week_1`` and ``week_2`` (shares of fleets in which it is
        found in the first week, and by the second), ``wrong`` (share of reports of unchanged
        weeks that have the statement).
    """
    wrong: Counter[str] = Counter()
    for each in range(n_fleets):
        same = fleet(like, size, Change(), seed + each)
        for weeks_ago in (1, 0):
            said = statements(same, weeks_ago)
            wrong.update(said | ({"any"} if said else set()))
    n_reports = 2 * n_fleets
    for name, change in CHANGES.items():
        found: Counter[tuple[str, int]] = Counter()
        for each in range(n_fleets):
            changed = fleet(like, size, change, seed + each)
            first = statements(changed, 1)
            by_second = first | statements(changed, 0)
            found.update((statement, week) for week, said in ((1, first), (2, by_second))
                         for statement in said)  # fmt: skip
        for statement in change.expected:
            weeks = {f"week_{week}": found[statement, week] / n_fleets for week in (1, 2)}
            is_wrong = wrong[statement] / n_reports
            yield {"change": name, "statement": statement, **weeks, "wrong": is_wrong}
    for statement in (BETTER, "any"):
        row = {"change": "none", "statement": statement, "week_1": None, "week_2": None}
        yield {**row, "wrong": wrong[statement] / n_reports}


_TODAY_S, _BEST_S, _TAIL = 900.0, 10_800.0, 1.0
N_RUNS = (120, 300)


def _runs(n: int, draw: Random) -> pl.DataFrame:
    """Runs of which 85 % end well, lognormal with a median of ten minutes; the rest go on."""
    rows = []
    for unit in range(n):
        is_good = draw.random() < 0.85
        seconds = draw.lognormvariate(math.log(_MEDIAN_S), _TAIL)
        rows.append((unit, seconds if is_good else draw.uniform(0, 21_600), True, is_good))
    return pl.DataFrame(rows, schema=("unit", "duration_s", "ended", "is_good"), orient="row")


def _advised(runs: pl.DataFrame, today_s: float) -> tuple[str, float | None, Any]:
    """Verdict of a time limit, the value that it leads to, and the choice."""
    costs, reach = Costs(), support(runs, CANDIDATES_S)
    counts = elapsed_counts(runs, reach.candidates_s, mistake="lost_run")
    choice = choose(counts, reach, price=costs.lost_run, hour=costs.run_hour, today_s=today_s)
    if choice is None:
        return "not_enough_data", None, None
    return choice.verdict, choice.recommended_s or choice.bound_s, choice


def advice_calibrated(n_fleets: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Of the advice on a time limit: how often it is useful, and how often it is wrong.

    Yields
    ------
    dict
        ``n``, runs; ``useful``, the share of fleets in which a limit that costs three times
        the best is to be changed, or raised, to a value that costs less in truth; ``wrong``,
        the share in which a limit that costs as little as the best is to be another one that
        costs more.
    """
    truth = _advised(_runs(30_000, Random(seed - 1)), _TODAY_S)[2].curve
    cost = dict(truth.select("threshold_s", "loss").iter_rows())
    for n in N_RUNS:
        useful = wrong = 0
        for each in range(n_fleets):
            runs = _runs(n, Random(seed + each))
            to_s = _advised(runs, _TODAY_S)[1]
            useful += to_s is not None and cost[to_s] < cost[_TODAY_S]
            to_s = _advised(runs, _BEST_S)[1]
            wrong += to_s is not None and cost[to_s] > 1.05 * cost[_BEST_S]
        yield {"n": n, "useful": useful / n_fleets, "wrong": wrong / n_fleets}


SIZES = (Size(100), Size(300))


def page(sources: Sequence[str], n_fleets: int, seed: int = 0) -> Iterator[str]:
    """The lines of tables in Markdown, as each is known.

    Parameters
    ----------
    sources : sequence of str
        Stores, whose size the fleets have; without any, they have `SIZES`.
    n_fleets, seed : int
        See `calibrated`.
    """
    with read(*sources) if sources else demo() as like:
        for size in [size_of(like)] if sources else SIZES:
            yield f"**{size.runs:,} runs a week, of which {size.completed:.0%} complete**\n"
            yield "| change | statement | in week one | by week two | of unchanged weeks |"
            yield "|---|---|---:|---:|---:|"
            for row in calibrated(like, size, n_fleets, seed):
                weeks = [row[at] for at in ("week_1", "week_2")]
                shown = ["·" if share is None else f"{share:.0%}" for share in weeks]
                cells = (row["change"], row["statement"], *shown, f"{row['wrong']:.1%}")
                yield f"| {' | '.join(cells)} |"
            yield ""
    yield "| runs that ended | a limit that is too short is raised | a good limit is replaced |"
    yield "|---:|---:|---:|"
    for row in advice_calibrated(3 * n_fleets, seed):
        yield f"| {row['n']} | {row['useful']:.0%} | {row['wrong']:.1%} |"
