"""A curve of spells of which some ended nobody knows quite when: found dead, some time later."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.survival.risk_sets import STRATUM, checked_spells, number, strata_of

RESULT = ("duration_s", "n_events", "n_between", "survival")
_CLOSE, _MOST_ROUNDS = 1e-7, 1000


def turnbull(spells: pl.DataFrame, by: str | Sequence[str] = ()) -> pl.DataFrame:
    """Probability that a spell is still open, where ends are known to lie between two moments.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave, or any frame for `kaplan_meier` without late entries;
        ``end_width_s``: the spell ended so many seconds after ``duration_s`` or less (null,
        0: just then). Where it was cut off, the width says nothing.
    by : str or sequence of str
        Strata.

    Returns
    -------
    polars.DataFrame, shape (n_moments, n_by + 4)
        Sorted by stratum and ``duration_s``, every moment at which an end may lie:
        ``n_events`` known to be just there, ``n_between`` expected there of the others,
        ``survival``.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also for late entries, or a width that is negative.

    Notes
    -----
    The self-consistent estimate [1]_: each end that lies between two moments is shared
    among them as the curve itself would, until nothing moves. Within a stretch in which no
    moment is told apart the mass stands at its end. `kaplan_meier` takes such ends for as
    early as they may have been; how far both are apart is what that guess is worth.

    References
    ----------
    .. [1] Turnbull, B. W. (1976). The empirical distribution function with arbitrarily
       grouped, censored and truncated data. JRSS B 38, 290-295.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"duration_s": [10.0, 20.0, 5.0], "ended": True, "end_width_s": [None, None, 30.0]}
    ... )
    >>> turnbull(runs).select("duration_s", pl.col("survival").round(2)).rows()
    [(5.0, 1.0), (10.0, 0.5), (20.0, 0.0), (35.0, 0.0)]
    """
    strata = strata_of(by)
    check_columns(spells, ["end_width_s"], "turnbull")
    kept = checked_spells(spells, strata, "turnbull", also=["end_width_s"])
    _check(kept)
    width = pl.when("ended").then(pl.col("end_width_s").cast(pl.Float64)).fill_null(0.0)
    kept, names = number(kept.with_columns(until_s=pl.col("duration_s") + width), strata)
    is_between = pl.col("until_s") > pl.col("duration_s")
    moments = _moments(kept)
    between = _places(kept.filter("ended", is_between), moments)
    named = (
        _shared(moments, between).join(names, on=STRATUM, how="left").sort(STRATUM, "duration_s")
    )
    return named.select(*strata, *RESULT)


def _check(kept: pl.DataFrame) -> None:
    width = pl.col("end_width_s")
    if "entry_s" in kept.columns and (kept["entry_s"] > 0).any():
        raise ArgumentError(
            "turnbull takes spells from their start; found some that came late.",
            ".filter(pl.col('entry_s').is_null()), or kaplan_meier",
        )
    if n_wrong := kept.filter((width < 0) | width.is_infinite() | width.is_nan()).height:
        raise ArgumentError(
            f"turnbull needs widths from 0 on; found {n_wrong} others.",
            ".with_columns(pl.col('end_width_s').clip(lower_bound=0))",
        )


def _moments(kept: pl.DataFrame) -> pl.DataFrame:
    """Every moment at which a spell of a stratum may end, with what is known to happen there."""
    is_exact = pl.col("ended") & (pl.col("until_s") == pl.col("duration_s"))
    ends = kept.filter("ended").select(STRATUM, duration_s="until_s").unique()
    known = kept.group_by(STRATUM, "duration_s").agg(
        n_events=(is_exact).sum().cast(pl.Float64), n_open=(~pl.col("ended")).sum()
    )
    return (
        pl.concat([ends, known.select(STRATUM, "duration_s")])
        .unique()
        .join(known, on=[STRATUM, "duration_s"], how="left")
        .with_columns(pl.col("n_events", "n_open").fill_null(0))
        .sort("duration_s")
        .sort(STRATUM, maintain_order=True)
        .with_row_index("place")
    )


def _places(between: pl.DataFrame, moments: pl.DataFrame) -> pl.DataFrame:
    """The first and the last moment at which each of the others may have ended, and how many."""
    at = moments.select(STRATUM, "duration_s", "place")
    left = at.rename({"place": "before"})
    right = at.rename({"duration_s": "until_s", "place": "last"})
    return (
        between.join(left, on=[STRATUM, "duration_s"])
        .join(right, on=[STRATUM, "until_s"])
        .group_by(first=pl.col("before") + 1, last="last")
        .agg(n=pl.len())
        .sort("first", "last")
    )


def _shared(moments: pl.DataFrame, between: pl.DataFrame) -> pl.DataFrame:
    """The curve by which ends are shared among moments as it would share them itself."""
    at_latest = between.group_by(place="last").agg(n_between=pl.col("n").sum().cast(pl.Float64))
    curve = _stepped(
        moments.join(at_latest, on="place", how="left", maintain_order="left").with_columns(
            pl.col("n_between").fill_null(0.0)
        )
    )
    for _ in range(_MOST_ROUNDS if between.height else 0):
        upto = pl.concat([pl.Series([0.0]), curve["mass"].cum_sum()])
        inside = upto.gather(between["last"] + 1) - upto.gather(between["first"])
        each = between.with_columns(share=pl.col("n") / inside)
        begin = each.group_by(place="first").agg(begin=pl.col("share").sum())
        stop = each.group_by(place=pl.col("last") + 1).agg(stop=pl.col("share").sum())
        open_ = (
            curve.join(begin, on="place", how="left", maintain_order="left")
            .join(stop, on="place", how="left", maintain_order="left")
            .select((pl.col("begin").fill_null(0.0) - pl.col("stop").fill_null(0.0)).cum_sum())
            .to_series()
        )
        after = _stepped(curve.with_columns(n_between=(curve["mass"] * open_).clip(lower_bound=0)))
        moved = (after["survival"] - curve["survival"]).abs().max()
        curve = after
        if moved is None or float(moved) < _CLOSE:  # type: ignore[arg-type]
            break
    return curve.sort("duration_s")


def _stepped(moments: pl.DataFrame) -> pl.DataFrame:
    """The product-limit curve of ends that may be fractions, and the mass at each moment."""
    ended = pl.col("n_events") + pl.col("n_between")
    at_risk = (ended + pl.col("n_open")).cum_sum(reverse=True).over(STRATUM)
    open_share = (1 - ended / at_risk).clip(lower_bound=0).fill_nan(1.0)
    return (
        moments.with_columns(survival=open_share.cum_prod().over(STRATUM))
        .with_columns(
            mass=pl.col("survival").shift(1, fill_value=1.0).over(STRATUM) - pl.col("survival")
        )
        .with_columns(pl.col("mass").clip(lower_bound=0))
    )
