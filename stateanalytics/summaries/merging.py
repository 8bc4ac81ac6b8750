"""Counts of several stores, added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from stateanalytics.core.text import visible
from stateanalytics.detectors.sums import merge_gap_sums
from stateanalytics.errors import ArgumentError
from stateanalytics.summaries.summary import FAILED, Summary


def merge(summaries: Iterable[Summary]) -> Summary:
    """The summary of all inputs together, as if they had been read at once.

    Parameters
    ----------
    summaries : iterable of Summary
        Counted at the same instant, by the same policy, columns and thresholds.

    Returns
    -------
    Summary
        In whatever order and grouping parts are merged, the counts are the same.

    Raises
    ------
    ArgumentError
        If there is none, they do not fit together, or one input is in several.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> week = sa.summarize(sa.demo())
    >>> merge([week]).states.equals(week.states)
    True
    """
    parts = list(summaries)
    _check_fit(parts)
    first = parts[0]
    return Summary(
        as_of=first.as_of,
        policy=first.policy,
        sources=pl.concat([one.sources for one in parts]).sort("source", "system"),
        states=added([one.states for one in parts]),
        spells=added([one.spells for one in parts]),
        silences=merge_gap_sums(one.silences for one in parts),
        detections=in_order(added([one.detections for one in parts])),
        templates=failed(pl.concat([one.templates for one in parts])),
    )


def added(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Equal rows of all parts as one, with their ``n`` added; sorted."""
    rows = pl.concat(parts, how="diagonal")
    keys = [name for name in rows.columns if name != "n"]
    return rows.group_by(keys).agg(pl.col("n").sum()).sort(keys)


def in_order(detections: pl.DataFrame) -> pl.DataFrame:
    """Detectors by name: stores of different systems have different ones."""
    names = sorted(name for name in detections.columns if name != "n")
    return detections.select(*names, "n").sort(names)


def failed(rows: pl.DataFrame) -> pl.DataFrame:
    """Failures by system, code and pattern, sorted."""
    keys = ["system", "code", "pattern"]
    return rows.group_by(keys).agg(FAILED).sort(keys)


def _check_fit(parts: Sequence[Summary]) -> None:
    if not parts:
        raise ArgumentError(
            "merge needs at least one summary; found none.", "sa.merge([sa.summarize(path)])"
        )
    for name in ("as_of", "policy"):
        if len(different := {str(getattr(one, name)) for one in parts}) > 1:
            raise ArgumentError(
                f"merge needs summaries of one {name}; found {', '.join(sorted(different)[:3])}.",
                f"sa.summarize(path, {name}=…) with the same {name} for all",
            )
    if len({tuple(one.spells.columns) for one in parts}) > 1:
        raise ArgumentError("merge needs summaries by the same columns.", "one `by` for all")
    sources = pl.concat([one.sources for one in parts])
    again = sources.filter(pl.col("fingerprint").is_duplicated(), pl.col("n_entities") > 0)
    if again.height:
        names = ", ".join(visible(name) for name in again["source"].unique().sort().head(3))
        raise ArgumentError(
            f"The same data is in more than one summary: {names}.",
            "leave copies and backups of a store out",
        )
