"""Risk sets: how many spells are at risk and how many end, the table behind every curve.

One row per stratum and distinct duration, with counts only, so that tables of several
stores can be added up exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.errors import ArgumentError, ColumnTypeError, check_columns, in_short

STRATUM = "_stratum"
# R's tolerance for equal durations: the square root of machine epsilon.
TIE = 2.0**-26
# For comparing survival probabilities, which are products of floats; R uses `TIE` here.
TOLERANCE = 1e-9
MIN_AT_RISK = 5
"""Spells at risk that a curve with late entries needs to begin."""


@dataclass(frozen=True)
class RiskSets:
    """Counts per stratum and distinct duration, and the names of the strata.

    Attributes
    ----------
    table : polars.LazyFrame
        Sorted by `STRATUM` (a number) and ``duration_s``; ``n_at_risk`` just before that
        duration, ``n_events``, and the requested counts; ``from_s``, the duration from which
        the stratum is known: nothing is counted before (null: never known).
    strata : polars.LazyFrame
        One row per stratum number: the columns that were stratified by.
    rows : polars.LazyFrame
        The spells, with the number of their stratum.
    """

    table: pl.LazyFrame
    strata: pl.LazyFrame
    rows: pl.LazyFrame


def risk_sets(
    spells: pl.DataFrame,
    strata: Sequence[str],
    counts: Mapping[str, pl.Expr] | None = None,
    *,
    least_at_risk: int = MIN_AT_RISK,
) -> RiskSets:
    """Count spells at risk and ends, per stratum and distinct duration.

    Parameters
    ----------
    spells : polars.DataFrame
        From `checked_spells`.
    strata : sequence of str
        Columns to stratify by; null is a stratum of its own.
    counts : mapping of str to polars.Expr, optional
        Further sums over the spells that leave at a duration.
    least_at_risk : int
        Spells that a stratum with late entries begins with; 0: it begins at 0.

    Returns
    -------
    RiskSets
        A spell is at risk at t where entry < t <= duration.

    Notes
    -----
    Durations that differ by rounding are ties, by R's rule (``timefix``): a difference of at
    most 2**-26 of their mean, or of a second, starts no new duration. The first of them
    represents all.

    Where spells enter late, the first may be alone, and its end would take the whole curve
    to 0. So a stratum begins where ``least_at_risk`` are at risk, and begins again if all of
    them have ended before others entered.
    """
    rows, names = numbered(spells.lazy(), strata)
    sums = {"n_events": pl.col("ended"), **(counts or {})}
    exits = rows.select(
        pl.col(STRATUM), pl.col("duration_s").alias("_at"), n_exits=pl.lit(1, pl.UInt32), **sums
    )
    has_entries = "entry_s" in spells.columns
    moves = exits
    if has_entries:
        longest_s = spells["duration_s"].max() or 0.0
        entries = rows.select(
            pl.col(STRATUM),
            # An entry at 0 lies before every duration, 0 included.
            pl.when(pl.col("entry_s") > 0)
            .then("entry_s")
            .otherwise(-1.0 - pl.lit(longest_s))
            .alias("_at"),
            n_entries=pl.lit(1, pl.UInt32),
        )
        moves = pl.concat([exits, entries], how="diagonal")
    table = _by_distinct_duration(moves)
    # At risk at t: entry < t <= duration. So moves at t itself are not subtracted or added yet.
    exited = pl.col("n_exits").cum_sum() - pl.col("n_exits")
    entered = pl.col("n_exits").sum()
    if has_entries:
        entered = pl.col("n_entries").cum_sum() - pl.col("n_entries")
    table = (
        table.with_columns(n_at_risk=(entered - exited).over(STRATUM))
        .filter(pl.col("n_exits") > 0)
        .select(pl.col(STRATUM).set_sorted(), "duration_s", "n_at_risk", *sums)
    )
    if not (has_entries and least_at_risk):
        return RiskSets(table.with_columns(from_s=pl.lit(0.0)), names, rows)
    is_late = rows.group_by(STRATUM).agg(is_late=(pl.col("entry_s") > 0).any())
    table = table.join(is_late, on=STRATUM, how="left", maintain_order="left")
    return RiskSets(_with_begin(table, least_at_risk, list(sums)), names, rows)


def _with_begin(table: pl.LazyFrame, least_at_risk: int, sums: Sequence[str]) -> pl.LazyFrame:
    """The table with ``from_s``, and counts of 0 before it."""
    at, n = pl.col("duration_s"), pl.col("n_at_risk")
    is_last = pl.int_range(pl.len()).over(STRATUM) == pl.len().over(STRATUM) - 1
    all_ended_at = at.filter((n == pl.col("n_events")) & ~is_last).max()
    is_enough = (n >= least_at_risk) & (at > all_ended_at.fill_null(-1.0).over(STRATUM))
    begins = pl.when("is_late").then(at.filter(is_enough).min().over(STRATUM)).otherwise(0.0)
    return (
        table.with_columns(from_s=begins)
        .with_columns(
            pl.when(at >= pl.col("from_s")).then(name).otherwise(0).alias(name) for name in sums
        )
        .drop("is_late")
        .with_columns(pl.col(STRATUM).set_sorted())
    )


def number(
    spells: pl.DataFrame, strata: Sequence[str], into: str = STRATUM
) -> tuple[pl.DataFrame, pl.LazyFrame]:
    """Spells with the number of their stratum, and the table of strata by number."""
    rows, names = numbered(spells.lazy(), strata, into)
    return collected(rows), names


def numbered(
    spells: pl.LazyFrame, strata: Sequence[str], into: str = STRATUM
) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """The same as a plan: see `number`."""
    if not strata:
        names = pl.LazyFrame({into: [0]}, schema={into: pl.UInt32})
        return spells.with_columns(pl.lit(0, pl.UInt32).alias(into)), names
    names = spells.select(strata).unique().sort(strata).with_row_index(into)
    return spells.join(names, on=strata, how="left", nulls_equal=True), names


def _by_distinct_duration(moves: pl.LazyFrame) -> pl.LazyFrame:
    """Sum counts over equal durations within a stratum."""
    # Two stable sorts by one key each are much faster than one sort by both keys.
    is_later = pl.col("_at").diff() > tie(pl.col("_at"))
    first = pl.when(is_later.fill_null(True)).then("_at").forward_fill()
    is_new = (pl.col("_at").diff() > 0) | (pl.col(STRATUM).diff() != 0)
    return (
        moves.sort("_at")
        .with_columns(first.alias("_at"))
        .sort(STRATUM, maintain_order=True)
        .with_columns(_group=is_new.fill_null(True).cast(pl.UInt32).cum_sum().set_sorted())
        .group_by("_group", maintain_order=True)
        .agg(
            pl.col(STRATUM).first(),
            pl.col("_at").first().alias("duration_s"),
            pl.exclude(STRATUM, "_at", "_group").sum().cast(pl.Int64),
        )
        .with_columns(pl.col(STRATUM).set_sorted())
    )


def with_ties(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with equal durations and entries wherever `risk_sets` treats them as ties."""
    seconds = [name for name in ("duration_s", "entry_s") if name in spells.columns]
    at = pl.col("at")
    moments = pl.concat(spells.lazy().select(at=name) for name in seconds).filter(at >= 0)
    is_first = (at.diff() > tie(at)).fill_null(True)
    distinct = moments.unique().sort("at").with_columns(is_first=is_first).pipe(collected)
    if distinct["is_first"].all():
        return spells
    first = distinct.filter("is_first")["at"]
    return spells.with_columns(
        pl.when(pl.col(name) >= 0)
        .then(pl.lit(first).gather(pl.lit(first).search_sorted(pl.col(name), side="right") - 1))
        .alias(name)
        for name in seconds
    )


def product_limit(hazard: pl.Expr) -> pl.Expr:
    """The share that survives each step, from the share that ends in it.

    Examples
    --------
    >>> steps = pl.DataFrame({"n_events": [1, 1], "n_at_risk": [4, 2]})
    >>> left = product_limit(pl.col("n_events") / pl.col("n_at_risk"))
    >>> steps.select(left=left)["left"].to_list()
    [0.75, 0.375]
    """
    return (1 - hazard).cum_prod()


def greenwood_sum() -> pl.Expr:
    """Greenwood's variance of log survival; infinite from where all at risk ended."""
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    return (d / (n * (n - d))).cum_sum()


def survival() -> pl.Expr:
    """The product-limit estimate, over a table of risk sets."""
    return product_limit(pl.col("n_events") / pl.col("n_at_risk")).over(STRATUM)


def known_survival() -> pl.Expr:
    """`survival`, null in strata that are never known."""
    return pl.when(pl.col("from_s").is_not_null()).then(survival())


def tie(ascending: pl.Expr) -> pl.Expr:
    """The largest difference of two durations that are ties."""
    known = ascending.filter(ascending >= 0)
    distinct = known.filter((known.diff() > 0).fill_null(True))
    return TIE * pl.max_horizontal(distinct.mean(), 1.0)


def checked_spells(
    spells: pl.DataFrame, strata: Sequence[str], function: str, also: Sequence[str] = ()
) -> pl.DataFrame:
    """The counted spells with durations as floats; meaningless input raises an error.

    Parameters
    ----------
    spells : polars.DataFrame
        ``duration_s``, ``ended``, optional ``entry_s`` and ``left_out``: where that is
        set, the spell is not counted, whatever is in its other columns.
    strata, also : sequence of str
        Further required columns.
    function : str
        Name of the caller, for error messages.

    Returns
    -------
    polars.DataFrame
        Only the required columns, and ``unit`` if there is one.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        If a column is absent or of another type, or a duration has no meaning.
    """
    needed = list(dict.fromkeys(["duration_s", "ended", *strata, *also]))
    check_columns(spells, needed, function)
    if "unit" in spells.columns and "unit" not in needed:
        needed.append("unit")
    # Counting a weighted spell once, without a word, would give wrong results.
    if weights := [name for name in ("weight", "weights") if name in spells.columns]:
        raise ArgumentError(
            f"{function} counts every spell once; found a column {weights[0]!r}.",
            f".drop({weights[0]!r}), or .select(pl.all().repeat_by({weights[0]!r})) and "
            ".explode(pl.all()) for spells that stand for several",
        )
    seconds = [name for name in ("duration_s", "entry_s") if name in spells.columns]
    # Spells that are not counted need not be valid.
    counted = spells.lazy()
    if "left_out" in spells.columns:
        counted = counted.filter(pl.col("left_out").is_null())
    for name in seconds:
        if not (spells[name].dtype.is_numeric() or spells[name].dtype == pl.Null):
            raise ColumnTypeError(
                f"{function} needs `{name}` as seconds; found {spells[name].dtype}.",
                f".with_columns(pl.col({name!r}).dt.total_seconds(fractional=True))",
            )
    if not _is_boolean(spells["ended"]):
        raise ColumnTypeError(
            f"{function} needs `ended` as true or false; found {spells['ended'].dtype}.",
            ".with_columns(pl.col('ended').cast(pl.Boolean))",
        )
    counted = counted.select(
        *(pl.col(name) for name in needed if name not in ("ended", *seconds)),
        *(pl.col(name).cast(pl.Float64) for name in seconds),
        pl.col("ended").cast(pl.Boolean),
    )
    duration = pl.col("duration_s")
    problems = {
        "null durations": duration.is_null(),
        "durations that are not finite": ~duration.is_finite(),
        "negative durations": duration < 0,
        "spells that neither ended nor were cut off (`ended` is null)": pl.col("ended").is_null(),
    }
    if "entry_s" in seconds:
        entry = pl.col("entry_s")
        problems["spells that end before they are entered"] = (entry > 0) & (entry >= duration)
        problems["entries that are not finite"] = ~entry.is_finite()
    is_valid = ~pl.any_horizontal(problem.fill_null(False) for problem in problems.values())
    checked = counted.with_columns(_is_valid=is_valid).pipe(collected)
    if not checked.drop_in_place("_is_valid").all():
        n_of = checked.select(problem.sum().alias(words) for words, problem in problems.items())
        invalid = [f"{n} {words}" for words, n in n_of.row(0, named=True).items() if n]
        raise ArgumentError(
            f"{function} needs finite durations of at least 0 seconds; among {checked.height} "
            f"spells it found {', '.join(invalid)}.",
            "spells.filter(pl.col('duration_s').is_finite() & (pl.col('duration_s') >= 0))",
        )
    return checked


def _is_boolean(ended: pl.Series) -> bool:
    """Whether it is Boolean, or the 0 and 1 that files and R use for it."""
    if ended.dtype in (pl.Boolean, pl.Null):
        return True
    return ended.dtype.is_integer() and bool(ended.drop_nulls().is_in([0, 1]).all())


def strata_of(by: str | Sequence[str]) -> list[str]:
    """Column names, from one name or several."""
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else [by]
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ArgumentError(f"by needs names of columns; found {in_short(wrong[0])}.", 'by="kind"')
    return names
