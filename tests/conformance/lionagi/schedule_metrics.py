"""The numbers about a whole fleet that lionagi's schedules compare with limits (E5 to E7)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.schema import INTEGER, REAL, TEXT, Column
from stateanalytics.detectors.detections import checked_snapshot
from stateanalytics.errors import ArgumentError
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.lionagi import frames as lionagi_frames

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts

METRICS = schema.Frame(
    "schedule_metrics",
    "one number that a schedule may be fired by",
    ("metric",),
    (
        Column("metric", TEXT, "its name in lionagi"),
        Column("value", REAL, "as lionagi computes it; 0 where it has nothing to go by"),
        Column("n", INTEGER, "rows behind it: 0 means that the value says nothing"),
        Column("unit", TEXT, "what it counts"),
    ),
)
_FAILED = ("failed", "timed_out")


def schedule_metrics(snap: Facts, *, at: object = None, window_s: float = 86_400.0) -> pl.DataFrame:
    """The numbers that lionagi's threshold schedules look at, over the last ``window_s``.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    at : datetime, date, ISO text or epoch seconds, optional
        The instant; by default as-of.
    window_s : float
        How far back, in seconds.

    Returns
    -------
    polars.DataFrame
        `METRICS`: ``failed_sessions`` (distinct causes, not rows), ``total_cost_usd``,
        ``p95_latency_ms`` (nearest rank) and ``github_poll_healthy_age_minutes`` (of the
        poll that was well the longest ago).

    Raises
    ------
    ArgumentError
        If the instant lies outside the data, or the window has no length.

    Notes
    -----
    Kept as they are there, to compare with: the p95 of nothing is 0, and runs that were
    never finished do not slow it down. How many answers of 401 came in a row is not
    stored.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> schedule_metrics(demo())["metric"].to_list()[:2]
    ['failed_sessions', 'total_cost_usd']
    """
    if not isinstance(window_s, int | float) or not window_s > 0:
        raise ArgumentError(
            f"window_s needs seconds, more than zero; found {window_s!r:.40}.", "window_s=86400"
        )
    past = facts_at(checked_snapshot(snap, "schedule_metrics"), at)
    since = pl.lit(past.at - timedelta(seconds=window_s))
    rows = past.facts.entities.filter(pl.col("system") == "lionagi")
    sessions = rows.filter(pl.col("entity_type") == "session")
    recent = sessions.filter(pl.coalesce("ended_at", "started_at", "created_at") >= since)
    failed = recent.filter(pl.col("raw_status").is_in(_FAILED))
    causes = failed.select(
        pl.coalesce("invocation_id", "entity_id"), pl.coalesce("reason_code", "entity_id")
    ).n_unique()
    latencies = _latencies_ms(rows, since)
    polls = past.facts.detail(lionagi_frames.SCHEDULES)["last_healthy_poll_at"].drop_nulls()
    ages = ((past.at - one).total_seconds() / 60 for one in polls)
    costs = recent["cost_usd"].drop_nulls()
    found = [
        ("failed_sessions", float(causes), failed.height, "causes"),
        ("total_cost_usd", float(costs.sum()), costs.len(), "USD"),
        ("p95_latency_ms", _nearest_rank(latencies, 95), latencies.len(), "ms"),
        ("github_poll_healthy_age_minutes", max(ages, default=0.0), polls.len(), "min"),
    ]
    return pl.DataFrame(found, schema=METRICS.dtypes, orient="row")


def _latencies_ms(rows: pl.DataFrame, since: pl.Expr) -> pl.Series:
    """Durations of the invocations that began in the window and ended by themselves."""
    is_own = ~pl.col("evidence").str.contains(r'"kind"\s*:\s*"invocation"').fill_null(value=False)
    return (
        rows.filter(
            pl.col("entity_type") == "invocation",
            pl.col("started_at") >= since,
            pl.col("ended_at") >= pl.col("started_at"),
            pl.col("raw_status") != "cancelled",
            is_own,
        )
        .select((pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1000)
        .to_series()
        .sort()
    )


def _nearest_rank(values: pl.Series, percent: int) -> float:
    # In whole numbers: 0.95 n is not exact in floats.
    place = -(-percent * values.len() // 100)
    return float(values[place - 1]) if values.len() else 0.0
