"""Quality of service of silence detectors, in hindsight: how often wrong, how late.

A silence detector flags a run that has been silent for longer than its threshold. Every
threshold is judged from the silences alone; no instant is sampled. One pass puts every silence
between two thresholds; running sums over the thresholds give the rest. Time is summed in whole
microseconds, so that the sums of parts are the sums of the whole, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.detectors.gaps import lean_gaps
from stateanalytics.errors import (
    ArgumentError,
    ColumnTypeError,
    MissingColumnsError,
    check_columns,
    in_short,
)
from stateanalytics.state.policy import Policy
from stateanalytics.stats.intervals import poisson_columns, wilson_columns

SUMS = (
    *("n_gaps", "n_mistakes", "mistaken_us", "alive_us", "suspected_us"),
    *("n_ended", "n_ended_flagged", "n_cut_off", "n_cut_off_flagged"),
    *("n_dead", "n_found", "late_us"),
)
"""The columns of `gap_sums` that add up."""

_US_PER_S = 1_000_000
# Longer silences are milliseconds taken for seconds; and nine thousand such fit a sum.
_LONGEST_S = 1e9
_CLOSED = {"sign_of_life": "alive", "own_end": "ended", "death": "dead"}
_UNIT_S = 100 * 3_600.0


def quality_of_service(
    silences: Facts | pl.DataFrame | pl.LazyFrame,
    *,
    thresholds_s: Iterable[float] | None = None,
    by: str | Sequence[str] = ("kind",),
    conf_level: float = 0.95,
    at_least: bool = False,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """How often each silence threshold is wrong, for how long, and how late it is right.

    Parameters
    ----------
    silences : Snapshot, polars.DataFrame or LazyFrame
        A snapshot; or silences as `silence_gaps` gives them; or the result of `gap_sums` or
        `merge_gap_sums`, with its thresholds and columns.
    thresholds_s : iterable of float, optional
        Seconds of silence after which a run is flagged; by default common settings from 10 s
        to a week.
    by : str or sequence of str
        Columns to group by: of the silences, or of ``entities`` for a snapshot.
    conf_level : float
        Level of the intervals.
    at_least : bool
        Also flag a silence of exactly the threshold (>=); by default only longer ones (>).
    policy : Policy, optional
        Decides which sessions of a snapshot have ended; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 21)
        Sorted by ``by`` and ``threshold_s``:

        - ``n_gaps``, silences behind the row; ``alive_s``, time that is proven alive;
        - ``n_mistakes``: the run was flagged and then gave a sign of life;
          ``mistakes_per_100h`` of alive time with ``mistakes_per_100h_low`` and ``_high``
          (exact Poisson), null without alive time; ``mistake_recurrence_s``, mean time from
          mistake to mistake, and ``mean_mistake_s``, their mean length, null without mistakes;
        - ``query_accuracy``: share of alive time in which the run was not flagged;
        - ``n_dead``, runs that an observer found dead; ``n_found``, of them, those flagged
          before that; ``share_found`` with ``share_found_low`` and ``_high`` (Wilson);
          ``detection_low_s`` and ``detection_high_s``, bounds of the mean time from death to
          flag, null where no run was found dead;
        - ``n_ended`` and ``n_ended_flagged``: runs that wrote their own end, and those
          flagged just before; ``n_cut_off`` and ``n_cut_off_flagged``: runs whose last
          silence was cut off, and those flagged then.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a threshold, a silence or the level makes no sense.

    Notes
    -----
    The measures of Chen, Toueg and Aguilera [1]_ (the May printing), with the mistakes,
    not the polls, counted. A last silence is never a mistake, however long: nobody knows
    what would have followed. Silences of dead runs count as no alive time.

    The death of a run lies somewhere between its last sign of life and the moment it was
    found out, so the detection time is bounded, not measured: ``detection_high_s`` is the
    threshold (death came at once), ``detection_low_s`` takes the latest moment. A poller
    adds up to one of its intervals.

    The interval takes mistakes to be independent; for those of one session, which are
    not, resample sessions.

    References
    ----------
    .. [1] Chen, W., Toueg, S. and Aguilera, M. K. (2002). On the quality of service of
       failure detectors. IEEE Trans. Computers 51(5), 561-580.

    Examples
    --------
    >>> gaps = pl.DataFrame({"kind": "agent", "gap_s": [60.0, 1800.0, 5400.0, 10740.0]})
    >>> hourly = quality_of_service(gaps, thresholds_s=[3600])
    >>> hourly.select("alive_s", "n_mistakes", "mistakes_per_100h", "mean_mistake_s").row(0)
    (18000.0, 2, 40.0, 4470.0)
    """
    if isinstance(silences, pl.DataFrame) and set(SUMS) <= set(silences.columns):
        if thresholds_s is not None:
            raise ArgumentError(
                "Sums already have their thresholds; found thresholds_s as well.",
                "gap_sums(gaps, thresholds_s), then quality_of_service(sums)",
            )
        sums = silences
    else:
        if not isinstance(silences, (pl.DataFrame, pl.LazyFrame)):
            facts = checked_snapshot(silences, "detectors.quality_of_service")
            silences = lean_gaps(facts, policy=policy, by=by)
        sums = gap_sums(silences, thresholds_s, by=by, at_least=at_least)
    strata = [name for name in sums.columns if name not in (*SUMS, "threshold_s")]
    mistakes = pl.when(pl.col("n_mistakes") > 0).then("n_mistakes")
    alive_s = pl.when(pl.col("alive_us") > 0).then(pl.col("alive_us") / _US_PER_S)
    dead = pl.when(pl.col("n_dead") > 0).then("n_dead")
    return (
        sums.lazy()
        .with_columns(units=alive_s / _UNIT_S)
        .with_columns(
            *poisson_columns(
                "n_mistakes", "units", confidence=conf_level, prefix="mistakes_per_100h"
            ),
            *wilson_columns("n_found", "n_dead", confidence=conf_level, prefix="share_found"),
        )
        .select(
            *(*strata, "threshold_s", "n_gaps"),
            (pl.col("alive_us") / _US_PER_S).alias("alive_s"),
            *("n_mistakes", "mistakes_per_100h"),
            *("mistakes_per_100h_low", "mistakes_per_100h_high"),
            (alive_s / mistakes).alias("mistake_recurrence_s"),
            (pl.col("mistaken_us") / _US_PER_S / mistakes).alias("mean_mistake_s"),
            (1 - pl.col("suspected_us") / _US_PER_S / alive_s).alias("query_accuracy"),
            *("n_dead", "n_found", "share_found", "share_found_low", "share_found_high"),
            (pl.col("late_us") / _US_PER_S / dead).alias("detection_low_s"),
            pl.when(dead.is_not_null()).then("threshold_s").alias("detection_high_s"),
            *("n_ended", "n_ended_flagged", "n_cut_off", "n_cut_off_flagged"),
        )
        .collect()
    )


def gap_sums(
    gaps: pl.DataFrame | pl.LazyFrame,
    thresholds_s: Iterable[float] | None = None,
    *,
    by: str | Sequence[str] = ("kind",),
    at_least: bool = False,
) -> pl.DataFrame:
    """Sums over silences for every threshold, which can be added up over stores.

    Parameters
    ----------
    gaps : polars.DataFrame or LazyFrame, shape (n_gaps, ...)
        One row per silence: ``gap_s`` in seconds and ``closed_by``, as `silence_gaps` gives them;
        without ``closed_by``, ``is_last`` and ``is_dead`` are read, each False where it is absent.
        Rows with a ``left_out`` are not counted. A LazyFrame is streamed, so it may be larger than
        memory.
    thresholds_s : iterable of float, optional
        Seconds; by default common settings from 10 s to a week.
    by : str or sequence of str
        Columns to group by; null is a group of its own.
    at_least : bool
        Also flag a silence of exactly the threshold; by default only longer ones.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 13)
        ``by`` and ``threshold_s``, sorted, and sums:

        - ``n_gaps``, silences counted;
        - ``n_mistakes``, those that were flagged and then closed by a sign of life;
          ``mistaken_us``, how long they were flagged;
        - ``alive_us``, time proven alive: in silences closed by a sign of life, or by an
          end that the run wrote itself; ``suspected_us``, the part of it that was flagged;
        - ``n_ended``, last silences closed by such an end, and ``n_ended_flagged`` of them;
        - ``n_cut_off``, last silences cut off at as-of, or by an end that proves nothing,
          and ``n_cut_off_flagged`` of them;
        - ``n_dead``, runs found dead; ``n_found``, of them, those flagged before the death
          was observed; ``late_us``, how much later than that the others are flagged.

        Times are whole microseconds. No silences give no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a gap is null, negative, not finite or above 1e9 s, or a threshold makes no sense.

    Notes
    -----
    Silences and thresholds are compared in whole microseconds, as stores write them.

    Examples
    --------
    >>> gaps = pl.DataFrame({"kind": "agent", "gap_s": [5.0, 60.0, 90.0]})
    >>> gap_sums(gaps, [60])["n_mistakes", "mistaken_us"].row(0)
    (1, 30000000)
    >>> gap_sums(gaps, [60], at_least=True)["n_mistakes"].item()
    2
    """
    strata = [by] if isinstance(by, str) else list(by)
    limits = _limits_us(thresholds_s)
    if not isinstance(gaps, pl.LazyFrame):
        check_columns(gaps, ("gap_s", *strata), "gap_sums")
    binned, flags = _binned(gaps.lazy(), strata, limits, at_least=at_least)
    table = (
        binned.group_by(*dict.fromkeys((*strata, *flags, "bin")))
        .agg(n=pl.len().cast(pl.Int64), us=pl.col("us").sum(), n_bad=pl.col("us").null_count())
        .collect(engine="streaming")
    )
    if n_bad := table["n_bad"].sum():
        raise ArgumentError(
            f"gap_sums needs gap_s as seconds from 0 to {_LONGEST_S:g}; {n_bad} of "
            f"{table['n'].sum()} are null, negative, not finite or longer.",
            'gaps.filter(pl.col("gap_s").is_between(0, 1e9)); divide milliseconds by 1000',
        )
    return _running_sums(table.with_columns(closed=_closed(flags)), strata, limits)


def merge_gap_sums(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The sums of several results of `gap_sums`, as if all silences had been counted together.

    Parameters
    ----------
    parts : iterable of polars.DataFrame
        Results of `gap_sums`, all with the same ``by`` and thresholds.

    Returns
    -------
    polars.DataFrame
        Of the same shape.

    Raises
    ------
    ArgumentError
        If there is no part, or parts differ in their columns or thresholds.

    Examples
    --------
    >>> parts = [gap_sums(pl.DataFrame({"gap_s": [x]}), [60], by=()) for x in (50.0, 70.0)]
    >>> merge_gap_sums(parts)["n_gaps", "n_mistakes"].row(0)
    (2, 1)
    """
    parts = list(parts) if isinstance(parts, Iterable) else [parts]
    for part in parts:
        check_columns(part, ("threshold_s",), "merge_gap_sums")
    if not parts:
        raise ArgumentError("merge_gap_sums needs at least one part; found none.", "[gap_sums(…)]")
    # A part without silences has no rows, so no thresholds either.
    grids = {tuple(part["threshold_s"].unique().sort()) for part in parts if part.height}
    if len({tuple(part.columns) for part in parts}) > 1 or len(grids) > 1:
        raise ArgumentError(
            "merge_gap_sums needs parts with the same columns and thresholds; these differ.",
            "give every gap_sums the same `thresholds_s` and `by`",
        )
    columns = parts[0].columns
    keys = [name for name in columns if name not in SUMS]
    return pl.concat(parts).group_by(keys).agg(pl.col(SUMS).sum()).sort(keys).select(columns)


def _binned(
    gaps: pl.LazyFrame, strata: list[str], limits: pl.Series, *, at_least: bool
) -> tuple[pl.LazyFrame, list[str]]:
    """Each counted silence with its length and the number of thresholds that flag it.

    Also the names of the columns with what closed it. They are read in the small table of
    counts: every step here must stream, and costs a pass over all silences.
    """
    available = gaps.collect_schema()
    if missing := [name for name in (*strata, "gap_s") if name not in available]:
        raise MissingColumnsError.of(missing, available.names(), "gap_sums")
    if not available["gap_s"].is_numeric():
        raise ColumnTypeError(
            f"gap_sums needs gap_s as a number of seconds; found {available['gap_s']}.",
            'pl.col("gap_s").dt.total_microseconds() / 1e6',
        )
    if "left_out" in available:
        gaps = gaps.filter(pl.col("left_out").is_null())
    length_s = pl.col("gap_s").cast(pl.Float64)
    us = pl.when(length_s.is_between(0, _LONGEST_S)).then((length_s * _US_PER_S).round())
    side: Literal["left", "right"] = "right" if at_least else "left"
    usable = ["closed_by"] if "closed_by" in available else ["is_last", "is_dead"]
    flags = [name for name in usable if name in available]
    columns = dict.fromkeys((*strata, *flags))
    kept = gaps.select(*columns, us=us.cast(pl.Int64)).with_columns(
        bin=pl.col("us").map_batches(
            lambda us: limits.search_sorted(us, side=side),
            return_dtype=pl.UInt32,
            is_elementwise=True,
        )
    )
    return kept, flags


def _closed(flags: list[str]) -> pl.Expr:
    """What closed a silence: alive (a sign of life), ended, dead or cut (off)."""
    if "closed_by" in flags:
        closed_by = pl.col("closed_by").cast(pl.String)
        return closed_by.replace_strict(_CLOSED, default="cut", return_dtype=pl.String)
    is_last, is_dead = (
        pl.col(name).fill_null(value=False) if name in flags else pl.lit(value=False)
        for name in ("is_last", "is_dead")
    )
    cut_or_alive = pl.when(is_last).then(pl.lit("cut")).otherwise(pl.lit("alive"))
    return pl.when(is_dead).then(pl.lit("dead")).otherwise(cut_or_alive)


def _running_sums(table: pl.DataFrame, strata: list[str], limits: pl.Series) -> pl.DataFrame:
    """The sums at each threshold, from counts between thresholds."""
    # The last step lies above every threshold. `whole` keeps one group where `by` is empty.
    limits_us = limits.to_list()
    thresholds_s = [limit / _US_PER_S for limit in limits_us]
    steps = pl.DataFrame(
        {"limit_us": [*limits_us, None], "threshold_s": [*thresholds_s, None]},
        schema={"limit_us": pl.Int64, "threshold_s": pl.Float64},
    ).with_row_index("bin")
    keys = [*strata, "whole"]
    plan = table.lazy().with_columns(whole=0)
    ends = ("alive", "ended", "dead", "cut")
    counted = plan.group_by(*keys, "bin").agg(
        *(pl.col("n").filter(closed=end).sum().alias(f"n_{end}") for end in ends),
        *(pl.col("us").filter(closed=end).sum().alias(f"us_{end}") for end in ends),
    )
    grid = plan.select(keys).unique().join(steps.lazy(), how="cross")
    rows = grid.join(counted, on=[*keys, "bin"], how="left", nulls_equal=True)
    return (
        rows.with_columns(pl.col("^(n|us)_(alive|ended|dead|cut)$").fill_null(0))
        .sort(*keys, "bin")
        .with_columns(**_sums(keys))
        .filter(pl.col("limit_us").is_not_null())
        .select(*strata, "threshold_s", *SUMS)
        .collect()
    )


def _sums(keys: list[str]) -> dict[str, pl.Expr]:
    def total(name: str) -> pl.Expr:
        return pl.col(name).sum().over(keys)

    def kept(name: str) -> pl.Expr:
        """Up to the threshold: not flagged."""
        return pl.col(name).cum_sum().over(keys)

    def flagged(end: str) -> pl.Expr:
        return total(f"n_{end}") - kept(f"n_{end}")

    def flagged_us(end: str) -> pl.Expr:
        """Total length of silences past the threshold: sum of (gap - threshold)+."""
        return total(f"us_{end}") - kept(f"us_{end}") - pl.col("limit_us") * flagged(end)

    return {
        "n_gaps": sum((total(f"n_{end}") for end in ("ended", "dead", "cut")), total("n_alive")),
        "n_mistakes": flagged("alive"),
        "mistaken_us": flagged_us("alive"),
        "alive_us": total("us_alive") + total("us_ended"),
        "suspected_us": flagged_us("alive") + flagged_us("ended"),
        "n_ended": total("n_ended"),
        "n_ended_flagged": flagged("ended"),
        "n_cut_off": total("n_cut"),
        "n_cut_off_flagged": flagged("cut"),
        "n_dead": total("n_dead"),
        "n_found": flagged("dead"),
        "late_us": pl.col("limit_us") * kept("n_dead") - kept("us_dead"),
    }


def _limits_us(thresholds_s: Iterable[float] | None) -> pl.Series:
    """Distinct thresholds as sorted whole microseconds."""
    limits = CANDIDATES_S if thresholds_s is None else list(thresholds_s)
    for limit in limits:
        is_number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not is_number or not math.isfinite(limit) or not 0 <= limit <= _LONGEST_S:
            raise ArgumentError(
                f"thresholds_s needs seconds from 0 to {_LONGEST_S:g}; found {in_short(limit)}.",
                "thresholds_s=[600, 3600, 21600]",
            )
    if not limits:
        raise ArgumentError("thresholds_s needs at least one threshold; found none.", "[3600]")
    return pl.Series(sorted({round(limit * _US_PER_S) for limit in limits}), dtype=pl.Int64)
