"""One grammar for questions: a measure, in groups, over a window, compared with another one.

The measures stand in ``core/data/measures.csv``. Each number is that of the report, `costs` and
the durations, of the same rows; its interval and its difference count independent units.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import polars as pl

from stateanalytics.core import windows
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import own_column, with_group
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.tables import as_html
from stateanalytics.core.text import as_written
from stateanalytics.core.windows import DAYS, TICK, Window, period_before, read_window, zone_of
from stateanalytics.core.words import first_word
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.failures import run_costs
from stateanalytics.failures.call_outcomes import OF_SESSION, call_rows, calls, share_by_session
from stateanalytics.failures.failure_rows import ended_runs, find_members
from stateanalytics.failures.incident_grouping import members_within_each
from stateanalytics.failures.weekly_change import earlier_period
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.conditions import (
    COUNTED,
    PLACE,
    is_failed,
    is_open_before,
    literal,
    with_own_columns,
)
from stateanalytics.state.definitions import RUN, ended_well, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import (
    counted,
    is_open_in,
    outdated_sources,
    rows_of,
    sampling_units,
    share_of,
    within,
)
from stateanalytics.stats.distributions import benjamini_hochberg
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.summaries.shapes import COMPARED
from stateanalytics.survival.curves import kaplan_meier, quantiles
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems.history import begins_of
from stateanalytics.systems.linking import used_tokens
from stateanalytics.weekly_limits import FEWEST_WEEKS, MOST_WEEKS
from stateanalytics.weekly_limits import MEASURES as JUDGED

BEFORE = "before"
LEAST = 5
"""A share or a median of fewer is compared with nothing."""
FDR = 0.05
_HOW = 'snap.compare("failed", by=["project"], window="2026-05", against="before")'
STEPS = {"1h": "hour", "1d": "day", "1w": "week", "1mo": "month", "1q": "quarter", "1y": "year"}
PERIODS = {"hour": "%H:00", "weekday": "%a", **run_costs.PERIODS}
"""Groups that are read off the end of a run (of a duration or a call: its start)."""
_MOST_CELLS = 200_000


class Measure(NamedTuple):
    """What can be asked for.

    Attributes
    ----------
    name, unit : str
    rows : str
        What it counts: runs (open ones too), ended, failed, attempts or calls.
    kind : str
        share, sum, incidents or median.
    worse : str
        more, less, or empty: neither.
    per : str
        What two windows have to have as many of: day, run (that ended), or empty.
    sql : str
        The aggregate that its query selects.
    meaning : str
    """

    name: str
    unit: str
    rows: Annotated[str, ("runs", "ended", "failed", "attempts", "calls")]
    kind: Annotated[str, ("share", "sum", "incidents", "median")]
    worse: Annotated[str, ("more", "less", "")]
    per: Annotated[str, ("day", "run", "")]
    sql: str
    meaning: str


MEASURES: Mapping[str, Measure] = {
    row.name: row for row in package_table("stateanalytics.core", "measures.csv", Measure)
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    frame : polars.DataFrame
        One row per group and step.
    measure : Measure
        What was asked for, with its unit and meaning.
    by : tuple of str
    every : str, optional
    tz : str, optional
    table, where : str
        The same rows in SQL.
    conditions : tuple of tuple of str
        A column of the frame, and the condition of its rows; ``{}`` is its value.
    selected : tuple of str
        What `sql` selects.
    judged_by : str
        What its verdicts rest on, in a sentence; empty where nothing is compared.
    """

    frame: pl.DataFrame
    measure: Measure
    by: tuple[str, ...]
    every: str | None
    tz: str | None
    table: str
    where: str
    conditions: tuple[tuple[str, str], ...]
    selected: tuple[str, ...]
    judged_by: str = ""

    @property
    def sql(self) -> str:
        """A query for `Snapshot.sql` of the same rows, by the same groups.

        What SQL cannot compute, intervals, estimates and censoring, is only in the frame.
        """
        rows = f"{self.table} WHERE {self.where}"
        return f"SELECT {', '.join(self.selected)} FROM {rows} GROUP BY ALL ORDER BY ALL"

    def chart(self, **options: Any) -> Any:
        """The numbers with their intervals: over time if there are steps, else side by side.

        Parameters
        ----------
        **options
            As for `charts.chart_compare`: ``sentence``, ``changes``, ``palette``, ``width``.
        """
        draw: Any = import_module("stateanalytics.charts").chart_compare
        return draw(self, **options)

    @property
    def title(self) -> str:
        """The measure with its unit and meaning."""
        return f"{self.measure.name} ({self.measure.unit}): {self.measure.meaning}"

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.title, str(self.frame), self.judged_by)))

    def _repr_html_(self) -> str:
        note = f"<p>{html.escape(self.judged_by)}</p>" if self.judged_by else ""
        return as_written(f"<p>{html.escape(self.title)}</p>{as_html(self.frame)}{note}")


def compare(
    snap: Facts,
    measure: str,
    *,
    by: str | Sequence[str] = (),
    window: object = None,
    against: object = None,
    every: str | None = None,
    tz: str | None = None,
    prices: str | Path | None = None,
    policy: Policy | None = None,
) -> Comparison:
    """A measure by any columns, over a window or its steps, compared with another window.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    measure : str
        A rate (``completed``, ``failed``, ``timed_out``, ``retried``), a count (``runs``,
        ``failures``, ``incidents``, ``calls``), a cost (``cost_usd``, ``lost_usd``,
        ``retry_usd``, ``tokens``), ``duration`` or ``failed_calls``.
    by : str or sequence of str
        Columns of ``entity_states`` (of ``calls`` for calls), several at once; columns of your
        own tables, such as ``teams.owner``; ``hour``, ``weekday``, ``day``, ``week``, ``month``.
    window : str, pair of moments or Window, optional
        ``"2026-05"``, ``"2026-W21"``, ``"2026-05-21"``, ``"2026-Q2"``, ``"2026"``, a pair, as
        in `read_window`; None: all time.
    against : str, pair of moments or Window, optional
        An earlier window; or ``"before"``: the month before a month and so on, and with ``every``
        the step before each step.
    every : str, optional
        A row for each ``1h``, ``1d``, ``1w``, ``1mo``, ``1q`` or ``1y``.
    tz : str, optional
        The time zone of windows, steps and periods, such as ``"Europe/Berlin"``; UTC by default.
    prices : str or pathlib.Path, optional
        Your own prices, as for `failures.prices`.
    policy : Policy, optional
        Determines outcomes; v1 by default.

    Returns
    -------
    Comparison
        ``.frame`` with the groups, ``since`` and ``until``, ``value`` and its 95 % interval;
        ``n`` that have it (or whose value is known) of ``n_of``; ``n_units``, the independent
        ones behind it; then, with ``against``, the value and number before, the difference
        with its interval, ``q_value`` and ``verdict``. ``.chart()``, and ``.sql``.

    Raises
    ------
    ArgumentError
        If there is no such measure, column, window, step or time zone, or the other window
        ends after the first one began: what both hold is no evidence of a change.

    Notes
    -----
    Shares have Wilson's interval at the effective sample size of independent units, sums Fay
    and Feuer's over the sums of units, medians Brookmeyer and Crowley's. A difference has the
    two intervals squared and added, as in Newcombe's method. Failures, incidents and lost cost
    are compared for as many ended runs, other sums for as many days of data. The verdict
    holds at a false discovery rate of 5 % over the table; with too few it is
    *not_enough_data*, and a value that no system records is null.

    A run belongs to the step in which it ended, an open one to the last; a duration and a
    call to that of its start.
    By ``model`` a cost counts for each model of a run.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> teams = compare(demo(), "failed", by="project", window="2026-W21", against="before")
    >>> teams.frame.filter(project="billing").select("n", "n_before", "verdict").rows()
    [(17, 2, 'worse')]
    """
    checked_snapshot(snap, "compare")
    asked = _measure(measure)
    groups = tuple(dict.fromkeys([by] if isinstance(by, str) else by or ()))
    zone = zone_of(tz)
    if every is not None and every not in STEPS:
        raise ArgumentError(
            f"every needs the length of a step; found {every!r:.40}.",
            f"every=one of {', '.join(STEPS)}",
        )
    first = snap.entities.select(pl.coalesce("started_at", "created_at").min()).item()
    whole = Window(min(first or snap.as_of, snap.as_of), snap.as_of + TICK, "all time")
    now = None if window is None else read_window(window, as_of=snap.as_of, tz=tz)
    population = rows_of(snap, policy=policy)
    ask = _Asked(snap, asked, groups, every, str(tz or "UTC"), prices, population, whole)
    rows, steps = ask.rows_and_steps(now)
    past = None
    if against == BEFORE and every is None:
        if now is None:
            raise ArgumentError("There is no earlier window than all time.", _HOW)
        past = period_before(now, window, zone)
    elif against is not None and against != BEFORE:
        past = read_window(against, as_of=snap.as_of, tz=tz)
        past = earlier_period(past, now or whole, snap)
    then = rows.clear() if past is None else ask.rows(past)
    values = pl.concat([rows.select(groups), then.select(groups)]).unique(maintain_order=True)
    # Of a step that the window cuts, only the days within it are counted.
    seen = Window(max(now.since, whole.since), min(now.until, whole.until), "") if now else whole
    cells = ask.cells(rows, values, steps, now or whole).pipe(_with_days, seen)
    if against is not None:
        cells = ask.with_runs(cells, steps, now)
    if past is not None:
        before = ask.cells(then, values, None, past).pipe(_with_days, whole)
        before = ask.with_runs(before, None, past)
        before = before.select(*groups, pl.col(_SIDE).name.suffix("_before"))
        both = (
            cells.join(before, on=groups, how="left", nulls_equal=True, maintain_order="left")
            if groups
            else cells.join(before, how="cross")
        )
        cells = _compared(both, asked)
    elif against is not None:
        step_before = pl.col(_SIDE).shift(1)
        step_before = step_before.over(groups) if groups else step_before
        both = cells.with_columns(step_before.name.suffix("_before"))
        cells = _compared(both, asked)
    # In the order of time, then the largest first.
    times = [*(["since"] if every else ()), *(name for name in groups if name in PERIODS)]
    order = [*times, "n_of", *(name for name in groups if name not in times)]
    ranks = [name == "n_of" for name in order]
    shown = [name for name in COMPARED.dtypes if name in cells.columns]
    cells = cells.sort(order, descending=ranks, nulls_last=True).select(
        *groups, *(pl.col(name).cast(COMPARED.dtypes[name]) for name in shown)
    )
    judged_by = ""
    if against is not None:
        is_on_page = asked.name in JUDGED and not groups
        judged_by = _judged_by(now or whole, whole, every, past, is_on_page=is_on_page)
    return Comparison(cells, asked, groups, every, tz, **ask.query(now), judged_by=judged_by)


def _judged_by(
    now: Window, whole: Window, every: str | None, past: Window | None, *, is_on_page: bool
) -> str:
    """What a verdict on two windows rests on, next to that of a page, which knows more of them."""
    if past is None:
        alone = "Each step is judged by the one before it alone"
        return f"{alone}; snap.control_limits() by all weeks." if is_on_page else f"{alone}."
    if every:
        return "Each step is judged by the earlier window alone."
    alone = "Judged by these two windows alone"
    if not is_on_page:
        return f"{alone}."
    n = 1 + min(MOST_WEEKS - 1, max(0, (now.since - whole.since) // (now.until - now.since)))
    if n < FEWEST_WEEKS:
        return f"{alone}: there are fewer than {FEWEST_WEEKS} windows of this length."
    return f"{alone}; a report judges by all earlier windows of this length."


_VALUES = {
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "n_of", "n_units"), pl.Int64),
}
_SIDE = (*_VALUES, "n_runs", "days", "is_covered")
_Cell = tuple[float | None, float | None, float | None, int, int, int]


def _measure(name: object) -> Measure:
    if isinstance(name, str) and name in MEASURES:
        return MEASURES[name]
    raise ArgumentError(
        f"There is no measure {in_short(name)}; there are {', '.join(MEASURES)}.",
        _HOW + did_you_mean(str(name)[:80], MEASURES),
    )


class _Asked(NamedTuple):
    """What was asked, and the population that it is asked of."""

    snap: Facts
    measure: Measure
    by: tuple[str, ...]
    every: str | None
    tz: str
    prices: str | Path | None
    population: pl.DataFrame
    whole: Window

    def rows_and_steps(self, window: Window | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The `rows` of a window, and its steps, each of which counts as a window of its own."""
        of, snap = self.measure.rows, self.snap
        failed = find_members(snap, window=window, rows=self.population) if of == "failed" else None
        rows = self.rows(window, failed)
        if self.every is None:
            return rows, None
        steps = _steps(rows, window, self.whole, self.every, self.tz)
        windows = [Window(since, until, "") for since, until in steps.rows()]
        if failed is not None:
            parts = members_within_each(failed, windows, snap.as_of, begins_of(snap.entities))
            rows = self.rows(window, pl.concat([failed.clear(), *parts.values()], how="diagonal"))
        if of == "runs":
            rows = rows.filter(~is_open_in(outdated_sources(snap.sources, windows[-1])))
        return rows, steps

    def rows(self, window: Window | None, failed: pl.DataFrame | None = None) -> pl.DataFrame:
        """The rows that the measure counts, with the groups, ``hit`` or ``weight``, ``unit``.

        ``failed`` are the `members`, where they are known.
        """
        name, as_of = self.measure.name, self.snap.as_of
        here, sources = self.population, self.snap.sources
        if window is not None:
            here = within(here, window, as_of=as_of, sources=sources)
        match self.measure.rows:
            case "failed":
                if failed is None:
                    failed = find_members(self.snap, window=window, rows=self.population)
                kept = failed.select(*ENTITY_KEY, "incident_id", "cause", placed_at="failed_at")
                rows = _described(kept.filter(entity_type=RUN), self.population)
            case "attempts":
                timed = spells(self.snap, window=window, rows=self.population)
                timed = timed.filter(pl.col("left_out").is_null()).drop("left_out")
                rows = _described(timed.with_columns(placed_at="started_at"), self.population)
            case "calls":
                called = calls(self.snap).filter(pl.col("outcome") != "unknown")
                at = pl.coalesce("started_at", "ended_at")
                rows = call_rows(self.snap, called).with_columns(
                    placed_at=at, unit=pl.concat_str("source", "session_id", ignore_nulls=True)
                )
                rows = rows if window is None else rows.filter(window.holds("placed_at"))
            case "ended":
                rows = ended_runs(here)
            case _:
                rows = counted(here, RUN)
        if name.endswith("_usd"):
            by_model = "model" in self.by
            table = run_costs.prices(self.prices)
            used = used_tokens(self.snap)
            rows = run_costs.priced(rows, used, table, by_model=by_model).collect()
        if name in ("retried", "retry_usd"):
            rows = rows.with_columns(
                is_retry=run_costs.is_retry(rows, self.population, self.snap.events)
            )
            rows = rows.filter(pl.col("is_retry").is_not_null()) if name == "retried" else rows
        local = pl.col("placed_at").dt.convert_time_zone(self.tz)
        for group in self.by:
            if group in PERIODS:
                dtype = pl.Enum(DAYS) if group == "weekday" else pl.String
                rows = rows.with_columns(local.dt.strftime(PERIODS[group]).cast(dtype).alias(group))
            else:
                rows = with_group(rows, group, getattr(self.snap, "own_tables", {}), _HOW)
        return rows.with_columns(own() for own in (_OF_ROW.get(name),) if own)

    def with_runs(
        self, cells: pl.DataFrame, steps: pl.DataFrame | None, window: Window | None
    ) -> pl.DataFrame:
        """The `cells` of a window, each with the runs that a number per run is of."""
        if self.measure.per != "run" or self.measure.rows == "ended":
            return cells.with_columns(n_runs="n_of")
        ended = self._replace(measure=MEASURES["failures"])
        values = cells.select(self.by).unique(maintain_order=True)
        runs = ended.cells(ended.rows(window), values, steps, window or self.whole)
        return cells.with_columns(n_runs=runs["n_of"])

    def cells(
        self, rows: pl.DataFrame, values: pl.DataFrame, steps: pl.DataFrame | None, span: Window
    ) -> pl.DataFrame:
        """A row for each of the values of the groups, and each step, with its number."""
        keys = list(self.by)
        wanted = values if keys else pl.DataFrame([{}])
        if steps is not None:
            edges = steps.select("since")
            if edges.height * max(wanted.height, 1) > _MOST_CELLS:
                raise ArgumentError("The window has too many steps for a table.", _HOW)
            dated = rows.drop_nulls("placed_at").sort("placed_at")
            rows = dated.join_asof(edges, left_on="placed_at", right_on="since")
            rows = rows.drop_nulls("since")
            keys = [*keys, "since"]
            wanted = wanted.join(edges, how="cross") if self.by else edges
        parts = rows.partition_by(keys, as_dict=True) if keys else {(): rows}
        numbers = {name: self._cell(some) for name, some in parts.items()}
        nothing = self._cell(rows.clear())
        names = wanted.rows() if keys else [()]
        found = [(*name, *numbers.get(name, nothing)) for name in names]
        schema = {name: wanted.schema[name] for name in keys} | _VALUES
        frame = pl.DataFrame(found, schema=schema, orient="row")
        if steps is not None:
            return frame.join(steps, on="since", how="left", maintain_order="left")
        return frame.with_columns(since=pl.lit(span.since), until=pl.lit(span.until))

    def _cell(self, rows: pl.DataFrame) -> _Cell:
        """Value, interval, and how many of how many, by how many independent units."""
        match self.measure.kind:
            case "share":
                is_call = self.measure.rows == "calls"
                sure = share_by_session(rows) if is_call else share_of(rows, pl.col("hit")).sure
                if sure is None or not sure.n:
                    return None, None, None, 0, 0, 0
                low, high = sure.interval() or (None, None)
                return sure.n_hits / sure.n, low, high, sure.n_hits, sure.n, sure.n_units
            case "incidents":
                n = rows.select(pl.coalesce("incident_id", "cause").n_unique()).item()
                return float(n), *weighted_count(n, n, 1), n, rows.height, n
            case "median":
                shown = ["duration_s", "duration_low_s", "duration_high_s", "n_units"]
                found = quantiles(kaplan_meier(rows), 0.5).select(shown)
                *ends_s, n_units = found.row(0) if found.height else (None, None, None, 0)
                return *ends_s, int(rows["ended"].sum()), rows.height, n_units
        return self._sum(rows)

    def _sum(self, rows: pl.DataFrame) -> _Cell:
        known = rows.filter(pl.col("weight").is_not_null())
        if (own := _WHOSE_COST.get(self.measure.name)) is not None:
            # Other runs weigh 0, so they must not make an unknown cost look like $0.
            meant = rows.filter(own())["weight"]
            known = known.clear() if meant.len() and not meant.count() else known
        are_calls, is_count = self.measure.rows == "calls", self.measure.unit in ("runs", "calls")
        # No calls at all are calls that nobody recorded.
        is_unknown = rows.height or (are_calls and known.is_empty() and calls(self.snap).is_empty())
        if known.is_empty() and (is_unknown or not is_count):
            return (None if is_unknown else 0.0), None, None, 0, rows.height, 0
        units = known["unit"] if are_calls else sampling_units(known)[0]
        sums = known.group_by(units.alias("unit")).agg(pl.col("weight").sort().sum())["weight"]
        total = float(known["weight"].sort().sum())
        # Where nothing was lost, the most that one more run could add is what one costs.
        costs = known.get_column("total_usd", default=pl.Series([1.0]))
        heaviest = sums.max() or costs.max() or 1.0
        low, high = weighted_count(total, float((sums.sort() ** 2).sum()), float(heaviest))  # type: ignore[arg-type]
        n = round(total) if is_count else known.height
        # As costs are rounded, and not to the even digit.
        return pl.Series([total]).round(6).item(), low, high, n, rows.height, sums.len()

    def query(self, window: Window | None) -> dict[str, Any]:
        """The same rows in SQL, and what to select of them."""
        of = self.measure.rows
        table, place, conditions = _TABLES[of]
        where = [*conditions]
        if window is not None:
            since, until = literal(window.since), literal(window.until)
            is_in = f"{place} >= {since} AND {place} < {until}"
            is_open_in = " AND ".join(is_open_before(window, self.snap.sources))
            is_in_or_open = f"(CASE WHEN is_terminal THEN {is_in} ELSE {is_open_in} END)"
            where.append(is_in_or_open if of == "runs" else is_in)
        own = getattr(self.snap, "own_tables", {})
        joined = [own_column(self.population, name, own) for name in self.by] if own else []
        if of == "calls" and {*self.by, *(one.key for one in joined if one)} & {*OF_SESSION}:
            table = _CALLS_OF_SESSIONS
        placed = f"CASE WHEN is_terminal THEN {place} ELSE as_of() END" if of == "runs" else place
        at = f"timezone({literal(self.tz)}, {placed})"
        periods = {name: f"strftime({at}, {literal(form)})" for name, form in PERIODS.items()}
        groups = {name: periods.get(name, quoted(name)) for name in self.by}
        names = [f"{text} AS {quoted(name)}" for name, text in groups.items()]
        if self.every:
            names.append(f"date_trunc({literal(STEPS[self.every])}, {at}) AS step")
        return {
            "table": with_own_columns(table, [one for one in joined if one]),
            "where": " AND ".join(where),
            "conditions": (
                *((name, f"{text} = {{}}") for name, text in groups.items()),
                *(("since", f"{placed} >= {{}}"), ("until", f"{placed} < {{}}")),
            ),
            "selected": (*names, self.measure.sql.format(failed=is_failed()), "count(*) AS n_of"),
        }


_RUNS = ("entity_type = 'session'", *COUNTED)
_TABLES = {
    "runs": ("entity_states", PLACE, _RUNS),
    "ended": ("entity_states", PLACE, (*_RUNS, "is_terminal")),
    "failed": ("failures", "failed_at", ("entity_type = 'session'",)),
    "attempts": ("spells", "started_at", ("left_out IS NULL",)),
    "calls": ("calls", "coalesce(started_at, ended_at)", ("outcome <> 'unknown'",)),
}
"""Of each kind of rows: their table, the moment that places them, and which of them count."""
_CALLS_OF_SESSIONS = (
    "(SELECT * FROM calls LEFT JOIN (SELECT DISTINCT ON (source, thread_id) source, "
    f"entity_id AS thread_id, {', '.join(OF_SESSION)} FROM entities "
    "WHERE entity_type = 'session') USING (source, thread_id))"
)
"""Calls with the columns of their session, where these are asked for."""


_WHOSE_COST: Mapping[str, Callable[[], pl.Expr]] = {
    "lost_usd": lambda: is_failure().fill_null(value=False),
    "retry_usd": lambda: pl.col("is_retry"),
}
"""Of a cost of some of the runs: which ones."""


def _usd(name: str) -> pl.Expr:
    """The cost of rows that are meant, 0 of others; null where it is not known."""
    is_in, usd = _WHOSE_COST[name](), pl.col("total_usd")
    return pl.when(is_in).then(usd).when(~is_in & usd.is_not_null()).then(0.0).alias("weight")


_OF_ROW: Mapping[str, Callable[[], pl.Expr]] = {
    "completed": lambda: ended_well().alias("hit"),
    "failed": lambda: is_failure().alias("hit"),
    "timed_out": lambda: (pl.col("outcome") == "timed_out").alias("hit"),
    "retried": lambda: pl.col("is_retry").alias("hit"),
    **dict.fromkeys(("runs", "calls"), lambda: pl.lit(1.0).alias("weight")),
    "failures": lambda: is_failure().fill_null(value=False).cast(pl.Float64).alias("weight"),
    "cost_usd": lambda: pl.col("total_usd").alias("weight"),
    "lost_usd": lambda: _usd("lost_usd"),
    "retry_usd": lambda: _usd("retry_usd"),
    "tokens": lambda: (
        (pl.col("n_input_tokens") + pl.col("n_output_tokens")).cast(pl.Float64).alias("weight")
    ),
}
"""Whether a row has what a share counts, or what it adds to a sum; by measure."""


def _described(rows: pl.DataFrame, population: pl.DataFrame) -> pl.DataFrame:
    """Rows with the other columns of their run."""
    other = [name for name in population.columns if name not in rows.columns]
    runs = population.select(*ENTITY_KEY, *other).unique(ENTITY_KEY, keep="first")
    return rows.join(runs, on=ENTITY_KEY, how="left", maintain_order="left")


def _steps(
    rows: pl.DataFrame, window: Window | None, whole: Window, every: str, tz: str
) -> pl.DataFrame:
    """Every step of a window from the first to the last one with data, by the clock of a zone."""
    first: Any = rows["placed_at"].min() or whole.since
    since = max(window.since, whole.since) if window else first
    until = min(window.until, whole.until) if window else whole.until
    if (until - since) / timedelta(hours=1) > _MOST_CELLS and every == "1h":
        raise ArgumentError("The window has too many hours for a table.", 'every="1d"')
    steps = windows.steps_between(since, max(since, until - TICK), every, tz).rename(
        {"from_at": "since"}
    )
    return steps.with_columns(pl.col("since", "until").dt.convert_time_zone("UTC")).collect()


def _with_days(cells: pl.DataFrame, whole: Window) -> pl.DataFrame:
    """Cells with the days that the data cover of them."""
    until = pl.min_horizontal("until", pl.lit(whole.until))
    since = pl.max_horizontal("since", pl.lit(whole.since))
    days = pl.max_horizontal((until - since) / timedelta(days=1), pl.lit(0.0))
    # Of a step that has just begun, nights and weekends would be all.
    is_covered = days * 2 >= (pl.col("until") - pl.col("since")) / timedelta(days=1)
    return cells.with_columns(days=days, is_covered=is_covered)


def _compared(cells: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Differences of the two sides of each row, and what they prove."""
    names = ("value", "low", "high")
    value, low, high = map(pl.col, names)
    per, factor = {"day": "days", "run": "n_runs"}.get(measure.per), pl.lit(1.0)
    if per:
        factor = pl.col(per) / pl.col(f"{per}_before").replace(0, None)
    was, was_low, was_high = (pl.col(f"{name}_before") * factor for name in names)
    change = value - was
    below = ((value - low) ** 2 + (was_high - was) ** 2).sqrt()
    above = ((high - value) ** 2 + (was - was_low) ** 2).sqrt()
    normal = NormalDist()
    z = normal.inv_cdf(0.975)
    is_up = pl.col("difference") > 0
    half = pl.when(is_up).then(below).otherwise(above)
    is_covered = pl.all_horizontal("is_covered", "is_covered_before")
    is_many = pl.min_horizontal("n_runs", "n_runs_before") >= LEAST
    enough = is_covered if measure.per == "day" else is_many
    p_value = (z * pl.col("difference").abs() / half).map_elements(
        lambda at: 2 * normal.cdf(-at), return_dtype=pl.Float64
    )
    q_value, is_worse = pl.col("q_value"), is_up == (measure.worse == "more")
    words = {"worse": is_worse} if measure.worse else {"more": is_up}
    return (
        cells.with_columns(
            difference=change, difference_low=change - below, difference_high=change + above
        )
        .with_columns(p_value=pl.when(enough, half > 0).then(p_value))
        .with_columns(benjamini_hochberg())
        .with_columns(
            verdict=first_word(
                "better" if measure.worse else "less",
                not_enough_data=q_value.is_null(),
                no_difference=q_value > FDR,
                **words,
            )
        )
    )
