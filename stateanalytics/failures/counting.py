"""Counts, costs and trends of groups of failures, whatever they are grouped by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from stateanalytics.core.joins import Rows, collected, total
from stateanalytics.core.windows import Window, instant
from stateanalytics.state.definitions import RUN
from stateanalytics.stats.intervals import wilson_columns

COSTS = ("run_s", "n_tokens", "cost_usd")

#: Entities that only group the work of others; their time is the time of their parts.
CONTAINERS = ("invocation", "show", "team", "schedule", "branch")


def add_costs(failed: pl.DataFrame, entities: pl.DataFrame) -> pl.DataFrame:
    """Add the unit of work behind each failed row, and its cost.

    Parameters
    ----------
    failed : polars.DataFrame
        Failed rows of ``entities``, possibly with more columns.
    entities : polars.DataFrame
        All of them: the sessions behind plays are looked up here.

    Returns
    -------
    polars.DataFrame
        ``failed`` in its order, with ``unit`` (the work, as text: the session of a play; a
        turn itself where its session did not fail; null where the row only groups the work of
        others), ``run_s`` (seconds), ``n_tokens`` and ``cost_usd`` of that work. Null: not
        reported, never free.

    Notes
    -----
    An end that a reaper wrote, or that is approximate, is the time of the observation: such
    work ends at its last message, and without one its length is not known. A session is worked
    on during its turns (`turn_times`). Rows share a unit: sum over distinct units.
    """
    row_key = pl.concat_str("source", "system", "entity_type", "entity_id", separator="|")
    session_key = pl.concat_str("source", "system", pl.lit("session"), "session_id", separator="|")
    # Filtering by id first leaves few rows for which the keys have to be built.
    ids = pl.concat([failed["entity_id"], failed["session_id"]]).unique().implode()
    needed, of_sessions = (
        entities.lazy().filter(pl.col(name).is_in(ids)) for name in ("entity_id", "session_id")
    )
    priced = (
        needed.join(turn_times(of_sessions), on=[*SESSION_KEY, "entity_type"], how="left")
        .select(row_key.alias("unit"), _tokens(), "cost_usd", run_s=during_turns(worked_s()))
        .unique(subset="unit", keep="first", maintain_order=True)
    )
    is_container = pl.col("entity_type").is_in(CONTAINERS)
    # A turn that failed in a session that went on is not all of the session.
    has_session = (pl.col("entity_type") == RUN).any().over(SESSION_KEY)
    is_alone = (pl.col("entity_type") == "turn") & ~has_session
    unit = (
        pl.when(is_alone).then(row_key).when(~is_container).then(pl.coalesce(session_key, row_key))
    )
    return collected(
        failed.lazy()
        .drop(COSTS, strict=False)
        .with_columns(unit=unit)
        .join(priced, on="unit", how="left", maintain_order="left")
    )


SESSION_KEY = ("source", "system", "session_id")


def turn_times(entities: Rows) -> pl.LazyFrame:
    """How long the turns of each session took together; a wait for the next prompt is no work.

    Returns
    -------
    polars.LazyFrame
        `SESSION_KEY`, ``entity_type`` (``session``) and ``turns_s`` (seconds; null where no
        turn has a time). A session without turns has no row.

    Notes
    -----
    A turn without an end lasted up to its last sign of life; one without a start, or with an end
    before it, adds nothing.
    """
    turns = entities.lazy().filter(pl.col("entity_type") == "turn")
    alive_s = (pl.col("last_activity_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    seconds = pl.coalesce(worked_s(), pl.when(alive_s >= 0).then(alive_s))
    return (
        turns.select(*SESSION_KEY, run_s=seconds)
        .group_by(SESSION_KEY)
        .agg(turns_s=total("run_s"))
        .with_columns(entity_type=pl.lit("session"))
    )


def during_turns(seconds: pl.Expr) -> pl.Expr:
    """A time from start to end, without what lies between the turns of `turn_times`.

    Of a session that is open, the time of its turns so far.
    """
    return pl.min_horizontal(seconds, "turns_s")


def sum_costs() -> dict[str, pl.Expr]:
    """Sums over distinct units of a group, and how many units reported nothing.

    Returns
    -------
    dict of str to polars.Expr
        ``run_s``, ``n_tokens``, ``cost_usd``: null where no unit reported any; ``n_work``,
        the number of units; ``n_run_unreported``, ``n_tokens_unreported``, ``n_cost_unreported``.
    """
    is_first = pl.col("unit").is_first_distinct() & pl.col("unit").is_not_null()
    of_units = {name: pl.col(name).filter(is_first) for name in COSTS}
    sums = {name: pl.when(cost.count() > 0).then(cost.sum()) for name, cost in of_units.items()}
    unreported = {
        f"n_{short}_unreported": cost.null_count().cast(pl.Int64)
        for short, cost in zip(("run", "tokens", "cost"), of_units.values(), strict=True)
    }
    return {**sums, "n_work": is_first.sum().cast(pl.Int64), **unreported}


def worked_s() -> pl.Expr:
    """How long ended work took: up to its last message where somebody else wrote its end later."""
    is_observed = (pl.col("end_written_by") == "observer").fill_null(False)
    is_observed |= pl.col("is_end_approximate").fill_null(False)
    last = pl.col("last_message_at")
    seen = pl.when(last.is_not_null()).then(pl.min_horizontal(last, "ended_at"))
    end = pl.when(is_observed).then(seen).otherwise("ended_at")
    seconds = (end - pl.col("started_at")).dt.total_microseconds() / 1e6
    return pl.when(seconds >= 0).then(seconds).alias("run_s")


def _tokens() -> pl.Expr:
    parts = ("n_input_tokens", "n_output_tokens")
    is_reported = pl.any_horizontal(pl.col(part).is_not_null() for part in parts)
    return pl.when(is_reported).then(pl.sum_horizontal(parts)).alias("n_tokens")


def count_run_incidents(*members: pl.DataFrame) -> list[int]:
    """The number of incidents among the runs of each of these `members`."""
    runs = [rows.lazy().filter(pl.col("entity_type") == RUN) for rows in members]
    return pl.concat(rows.select(n=incident_count()) for rows in runs).collect()["n"].to_list()


def incident_count() -> pl.Expr:
    """The number of incidents in a group of `members`; without an incident, of causes."""
    return pl.coalesce("incident_id", "cause").n_unique()


def session_count() -> pl.Expr:
    """The number of runs in a group of failures, or of runs that its failed calls are in.

    The session of a play that failed may itself have completed, so it does not count.
    """
    is_own = pl.col("entity_type").is_in([RUN, "tool_call"]) & pl.col("session_id").is_not_null()
    return pl.struct("source", "session_id").filter(is_own).n_unique().cast(pl.Int64)


def count_groups(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Count failures by group.

    Parameters
    ----------
    rows : polars.DataFrame
        `members`; ``cause`` is never null.
    by : sequence of str
        Columns to group by; null is a group of its own.

    Returns
    -------
    polars.DataFrame
        ``by``; ``n_rows`` (``n_failed``, ``n_timed_out``), ``n_sessions``, ``n_causes``,
        ``n_incidents`` (`incident_count`);
        ``share`` of all distinct causes, from ``share_low`` to ``share_high`` (Wilson,
        95 %); ``first_at``, ``last_at``; the `sum_costs`; ``systems`` and
        ``entity_types``, joined by ', '. In any order.
    """
    n_all = rows["cause"].n_unique()
    return collected(
        rows.lazy()
        .group_by(by)
        .agg(
            n_rows=pl.len().cast(pl.Int64),
            n_failed=(pl.col("outcome") != "timed_out").sum().cast(pl.Int64),
            n_timed_out=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64),
            n_sessions=session_count(),
            n_causes=pl.col("cause").n_unique().cast(pl.Int64),
            n_incidents=incident_count().cast(pl.Int64),
            first_at=pl.col("failed_at").min(),
            last_at=pl.col("failed_at").max(),
            **sum_costs(),
            systems=pl.col("system").unique().sort().str.join(", "),
            entity_types=pl.col("entity_type").unique().sort().str.join(", "),
        )
        .with_columns(n_all=pl.lit(n_all, pl.Int64))
        .with_columns(wilson_columns("n_causes", "n_all"))
        .drop("n_all")
    )


def is_code(code: str, of: pl.Expr | None = None) -> pl.Expr:
    """Whether a row (or ``of``) has a reason code, or one below it."""
    own = pl.col("code") if of is None else of
    return (own == code) | own.str.starts_with(f"{code}.")


def sorted_by_cost(groups: Rows, name: str) -> Rows:
    """Groups of failures in the order of every page, the most expensive first.

    By ``cost_usd`` (not reported: as none), then ``run_s``, then ``n_causes`` and ``n_rows``,
    then the group's name.
    """
    return groups.sort(
        pl.col("cost_usd").fill_null(0.0),
        *("run_s", "n_causes", "n_rows", name),
        descending=[True, True, True, True, False],
        nulls_last=True,
    )


#: Lengths of a step of a trend: the first that gives at most `N_STEPS` steps is used.
STEPS = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 7 * 24, 28 * 24, 364 * 24))
N_STEPS = 31


def trend_span(
    rows: pl.DataFrame, window: Window | None, as_of: datetime
) -> tuple[datetime, datetime]:
    """Start and end of a trend: the window, else from the first failure to as-of."""
    if window is not None:
        return window.since, min(window.until, max(as_of, window.since))
    first = rows["failed_at"].min()
    begin = first if isinstance(first, datetime) else as_of
    return begin.replace(hour=0, minute=0, second=0, microsecond=0), as_of


def add_trend(
    groups: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], *, since: datetime, until: datetime
) -> pl.DataFrame:
    """Add the number of rows of each group per step of time.

    Parameters
    ----------
    groups : polars.DataFrame
        One row per group, with the columns ``by``.
    rows : polars.DataFrame
        With ``by`` and ``failed_at``.
    by : sequence of str
        Columns to group by; null is a group of its own.
    since, until : datetime
        Steps begin at ``since``; the last one may be shorter.

    Returns
    -------
    polars.DataFrame
        ``groups`` in its order with ``trend`` (lists of counts, all of one length) and
        ``trend_step_s``, the seconds of a step.
    """
    step = next((step for step in STEPS if (until - since) <= step * N_STEPS), STEPS[-1])
    n_steps = max(1, -((since - until) // step))
    elapsed_us = (pl.col("failed_at") - instant(since)).dt.total_microseconds()
    place = (elapsed_us // int(step.total_seconds() * 1e6)).clip(0, n_steps - 1)
    counts = rows.lazy().group_by(*by, place=place).agg(n=pl.len().cast(pl.Int64))
    steps = pl.LazyFrame({"place": pl.Series(range(n_steps), dtype=pl.Int64)})
    grid = groups.lazy().select(by).join(steps, how="cross")
    of_grid = grid.join(counts, on=[*by, "place"], how="left", nulls_equal=True)
    trends = of_grid.group_by(by).agg(trend=pl.col("n").fill_null(0).sort_by("place"))
    on_group: Any = {"on": by, "how": "left", "nulls_equal": True, "maintain_order": "left"}
    joined = groups.lazy().join(trends, **on_group)
    return joined.with_columns(trend_step_s=pl.lit(step.total_seconds())).pipe(collected)


def without_nested(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with each list as text, joined by ', ', so that it fits into CSV.

    Examples
    --------
    >>> without_nested(pl.DataFrame({"n": [1], "trend": [[0, 3]]})).row(0)
    (1, '0, 3')
    """
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    return frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(", "))
