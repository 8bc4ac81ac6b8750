"""How much of a fleet a report covers: what was read, what failed, what stopped long ago."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.windows import WEEK, day_of
from stateanalytics.reporting.material import Plain, iso
from stateanalytics.reporting.phrases import count, listed, number

N_SHOWN = 3
_TIMES = 3


def coverage_of(sources: pl.DataFrame, losses: pl.DataFrame, as_of: datetime) -> Plain | None:
    """What the sources of a fleet cover; None where there is one only.

    Parameters
    ----------
    sources : polars.DataFrame
        One row a source: ``source`` and ``last_at``, its newest moment.
    losses : polars.DataFrame
        What `losses_of` gave.
    as_of : datetime
        The instant of the report.

    Returns
    -------
    dict or None
        ``n_read``, ``n_failed``, ``n_stale``, ``stale`` (each with ``source`` and ``since``),
        and all of it ``in_words``. Stale is what ends more than a week before as-of, and three
        times as long before it as the sources do in the middle.
    """
    failed = losses.filter(pl.col("code") == "archive.not_collected")["source"].n_unique()
    if sources.height + failed < 2:
        return None
    ends = sources.drop_nulls("last_at").with_columns(
        behind=pl.lit(as_of, dtype=pl.Datetime("us", "UTC")) - pl.col("last_at")
    )
    usual = ends["behind"].median()
    limit = max(WEEK, _TIMES * usual) if isinstance(usual, timedelta) else WEEK
    stale = ends.filter(pl.col("behind") > limit).sort("last_at", "source")
    told = [
        {"source": source, "since": iso(since), "day": f"{day_of(since)} {since.year}"}
        for source, since in stale.select("source", "last_at").iter_rows()
    ]
    return {
        "n_read": sources.height,
        "n_failed": failed,
        "n_stale": len(told),
        "stale": told,
        "in_words": _in_words(sources.height, failed, told),
    }


def _in_words(n_read: int, n_failed: int, stale: list[Plain]) -> str:
    parts = [f"{count(n_read, 'source')} read"]
    if n_failed:
        parts.append(f"{number(n_failed)} could not be collected")
    if stale:
        named = [f"{each['source']} since {each['day']}" for each in stale[:N_SHOWN]]
        more = [f"{number(len(stale) - N_SHOWN)} more"] if len(stale) > N_SHOWN else []
        parts.append(f"{number(len(stale))} stale: {listed([*named, *more])}")
    return "; ".join(parts) + "."
