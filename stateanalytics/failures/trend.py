"""How counts go over time: a list of equal steps for each group, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.windows import Window

#: Lengths of a step; the first that cuts the span into at most `N_STEPS` is taken.
STEPS = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 7 * 24, 28 * 24, 364 * 24))
N_STEPS = 31


def span_of(
    rows: pl.DataFrame, window: Window | None, as_of: datetime
) -> tuple[datetime, datetime]:
    """From when to when a trend runs: the window, else from the first failure to as-of."""
    if window is not None:
        return window.since, min(window.until, max(as_of, window.since))
    first = rows["failed_at"].min()
    begin = first if isinstance(first, datetime) else as_of
    return begin.replace(hour=0, minute=0, second=0, microsecond=0), as_of


def step_of(since: datetime, until: datetime) -> timedelta:
    """The length of a step.

    Examples
    --------
    >>> step_of(datetime(2026, 5, 18), datetime(2026, 5, 25))
    datetime.timedelta(seconds=21600)
    """
    return next((step for step in STEPS if (until - since) <= step * N_STEPS), STEPS[-1])


def add_trend(
    groups: pl.DataFrame,
    rows: pl.DataFrame,
    by: Sequence[str],
    *,
    since: datetime,
    until: datetime,
) -> pl.DataFrame:
    """Rows of each group per step of time.

    Parameters
    ----------
    groups : polars.DataFrame
        One row a group, with the columns ``by``.
    rows : polars.DataFrame
        With ``by`` and ``failed_at``.
    by : sequence of str
        What names a group; null is a name, too.
    since, until : datetime
        Steps begin at ``since``; the last one may be shorter.

    Returns
    -------
    polars.DataFrame
        ``groups`` in its order with ``trend`` (list of counts, as long for every group) and
        ``trend_step_s``, the seconds of a step.
    """
    step = step_of(since, until)
    n_steps = max(1, -((since - until) // step))
    passed = (pl.col("failed_at") - since).dt.total_microseconds()
    place = (passed // int(step.total_seconds() * 1e6)).clip(0, n_steps - 1)
    counts = rows.group_by(*by, place=place).agg(n=pl.len().cast(pl.Int64))
    steps = pl.DataFrame({"place": pl.Series(range(n_steps), dtype=pl.Int64)})
    trends = (
        groups.select(by)
        .join(steps, how="cross")
        .join(counts, on=[*by, "place"], how="left", nulls_equal=True)
        .group_by(by)
        .agg(trend=pl.col("n").fill_null(0).sort_by("place"))
    )
    return groups.join(
        trends, on=by, how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(trend_step_s=pl.lit(step.total_seconds()))
