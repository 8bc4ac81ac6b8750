"""Summaries as one: whatever was counted apart adds up to what counting it at once gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from stateanalytics.core.text import visible
from stateanalytics.detectors.quality import merge_gap_sums
from stateanalytics.errors import ArgumentError, in_short
from stateanalytics.failures.masking import WILDCARD
from stateanalytics.summaries.copies import CODE, counted_twice
from stateanalytics.summaries.shapes import FIXED
from stateanalytics.summaries.summary import FAILURE_SUMS, Summary


def merge(summaries: Iterable[Summary]) -> Summary:
    """The summary of all inputs together, as if they had been read at once.

    Parameters
    ----------
    summaries : iterable of Summary
        Counted at the same instant, by the same policy, columns, thresholds and ``k``.

    Returns
    -------
    Summary
        In whatever order and grouping parts are merged, the counts are the same.

    Raises
    ------
    ArgumentError
        If there is none, they do not fit together, or one input is in several.

    Notes
    -----
    A summary has no ids. An input that is in several is refused by its fingerprint. A copy
    that reads another way, such as a later backup, or a store without the run directories that
    lie beside the original, is counted twice, and ``losses`` name it
    (``summary.counted_twice``) by the sample that each summary has of its work: give both to
    one `summarize`, or collect them into an archive, which count their work once.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> week = sa.summarize(sa.demo())
    >>> merge([week]).states.equals(week.states)
    True
    """
    parts = list(summaries) if isinstance(summaries, Iterable) else [summaries]
    _check_fit(parts)
    first = parts[0]
    sources = in_order("sources", [part.sources for part in parts])
    # Of all inputs again, so that it matters not in which order parts are merged.
    losses = [part.losses.filter(pl.col("code") != CODE) for part in parts]
    return Summary(
        as_of=first.as_of,
        policy=first.policy,
        k=first.k,
        by=first.by,
        sources=sources,
        losses=in_order("losses", [*losses, counted_twice(sources)]),
        states=add_counts([part.states for part in parts]),
        codes=add_codes([part.codes for part in parts]),
        groups=add_groups([part.groups for part in parts]),
        units=add_counts([part.units for part in parts]),
        spells=add_counts([part.spells for part in parts]),
        silences=merge_gap_sums(part.silences for part in parts),
        detections=by_name(add_counts([part.detections for part in parts])),
        templates=add_templates([part.templates for part in parts]),
    )


def in_order(name: str, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows that are not added up, in the shape of a frame and in order."""
    shape = FIXED[name]
    return pl.concat([shape.conform(part) for part in parts]).sort(shape.dtypes.names())


def add_counts(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Equal rows of all parts as one, with their ``n`` added; sorted."""
    rows = pl.concat(parts, how="diagonal")
    keys = [name for name in rows.columns if name != "n"]
    counts = rows.group_by(keys).agg(pl.col("n").sum()).select(*keys, "n")
    # Without keys, nothing at all makes one group.
    return counts.filter(pl.col("n") > 0).sort(keys) if keys else counts.clear()


def add_codes(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Failures by week, system and code."""
    return _added("codes", parts, [*_counts("codes"), *FAILURE_SUMS[1:]])


def add_groups(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Ended runs by week, source, system and project."""
    return _added("groups", parts, _counts("groups"))


def add_templates(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Failures by system, code and pattern; of its texts the one that says most."""
    text = pl.col("pattern")
    fewest_open = (
        text.str.count_matches(WILDCARD, literal=True),
        -text.str.len_chars().cast(pl.Int64),
        text,
    )
    shown = text.sort_by(*fewest_open, nulls_last=True).first()
    return _added("templates", parts, [shown, *FAILURE_SUMS])


def by_name(detections: pl.DataFrame) -> pl.DataFrame:
    """Detectors by name: stores of different systems have different ones."""
    names = sorted(name for name in detections.columns if name != "n")
    return detections.select(*names, "n").sort(names)


def _counts(name: str) -> list[pl.Expr]:
    return [pl.col(column.name).sum() for column in FIXED[name].columns if column.dtype == pl.Int64]


def _added(name: str, parts: Sequence[pl.DataFrame], sums: Sequence[pl.Expr]) -> pl.DataFrame:
    shape = FIXED[name]
    rows = pl.concat([shape.conform(part) for part in parts])
    return rows.group_by(shape.key).agg(sums).sort(shape.key).select(shape.dtypes.names())


def _check_fit(parts: Sequence[Summary]) -> None:
    if not parts or not all(isinstance(part, Summary) for part in parts):
        strange = [in_short(part) for part in parts if not isinstance(part, Summary)] or ["none"]
        raise ArgumentError(
            f"merge needs at least one summary; found {strange[0]}.",
            "sa.merge([sa.summarize(path)])",
        )
    for name in ("as_of", "policy", "k"):
        if len(different := {str(getattr(part, name)) for part in parts}) > 1:
            raise ArgumentError(
                f"merge needs summaries of one {name}; found {', '.join(sorted(different)[:3])}.",
                f"sa.summarize(path, {name}=…) with the same {name} for all",
            )
    if len({part.by for part in parts}) > 1:
        raise ArgumentError("merge needs summaries by the same columns.", "one `by` for all")
    # A copy within one summary was counted once, and has nothing of its own there.
    sources = pl.concat([part.sources for part in parts]).filter(pl.col("n_entities") > 0)
    again = sources.filter(pl.col("fingerprint").is_duplicated())
    if again.height:
        names = ", ".join(visible(name) for name in again["source"].unique().sort().head(3))
        raise ArgumentError(
            f"The same data is in more than one summary: {names}.",
            "leave copies and backups of a store out",
        )
