"""How much of a fleet a report covers: what was read, what failed, what stopped long ago."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.windows import day_of
from stateanalytics.io.archive.manifests import stale
from stateanalytics.reporting.material import Plain, iso
from stateanalytics.reporting.phrases import count, listed, number

N_SHOWN = 3


def coverage_of(sources: pl.DataFrame, losses: pl.DataFrame) -> Plain | None:
    """What the sources of a fleet cover; None where there is one only.

    Parameters
    ----------
    sources : polars.DataFrame
        One row a source: ``source``, and of archives ``looked_at`` and ``is_unchanged``, as
        of `schema.SOURCES`.
    losses : polars.DataFrame
        What `losses_of` gave.

    Returns
    -------
    dict or None
        ``n_read``, ``n_unchanged``, ``n_failed``, ``n_stale``, ``stale`` (each with ``source``
        and ``since``), and all of it ``in_words``. Stale is what was collected for the last
        time more than a week before the last time that any of them was: a store may well
        have had nothing new for longer.
    """
    failed = losses.filter(pl.col("code") == "archive.not_collected")["source"].n_unique()
    if sources.height + failed < 2:
        return None
    n_unchanged = int(sources["is_unchanged"].sum())
    told = [
        {"source": source, "since": iso(since), "day": f"{day_of(since)} {since.year}"}
        for source, since in stale(sources).iter_rows()
    ]
    return {
        "n_read": sources.height,
        "n_unchanged": n_unchanged,
        "n_failed": failed,
        "n_stale": len(told),
        "stale": told,
        "in_words": _in_words(sources.height, n_unchanged, failed, told),
    }


def _in_words(n_read: int, n_unchanged: int, n_failed: int, told: list[Plain]) -> str:
    parts = [f"{count(n_read, 'source')} read"]
    if n_unchanged:
        parts[0] += f", {number(n_unchanged)} of them unchanged when they were collected last"
    if n_failed:
        parts.append(f"{number(n_failed)} could not be collected")
    if told:
        named = [f"{each['source']} since {each['day']}" for each in told[:N_SHOWN]]
        more = [f"{number(len(told) - N_SHOWN)} more"] if len(told) > N_SHOWN else []
        parts.append(f"{number(len(told))} stale: {listed([*named, *more])}")
    return "; ".join(parts) + "."
