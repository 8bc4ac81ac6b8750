"""What a kind of work with few runs borrows from the other kinds: an estimate, for context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Any

import polars as pl

from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.shrinkage import borrowed

FEWEST_KINDS = 3
"""Other kinds that it takes to see what kinds have in common."""
BORROWED = ("borrowed_low_s", "borrowed_s", "borrowed_high_s")


def healthy_lengths(
    seen: pl.DataFrame, *, is_silence: bool, by: Sequence[str] = ()
) -> pl.DataFrame:
    """How long each unit was silent, or took, at most, as far as it was fine.

    Parameters
    ----------
    seen : polars.DataFrame
        Silences or runs, see `evidence`.
    is_silence : bool
        Which of both.
    by : sequence of str
        Columns to tell apart besides the unit.

    Returns
    -------
    polars.DataFrame, shape (n_units, n_by + 2)
        ``unit`` and ``longest_s``; infinite where a run was cut off. Runs of one unit are
        alike, so it counts once.
    """
    if is_silence:
        fine = seen.filter(pl.col("closed_by").is_in(["sign_of_life", "own_end"]))
        return fine.group_by(*by, "unit").agg(longest_s=pl.col("gap_s").max())
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    known = pl.when(is_good).then("duration_s").otherwise(float("inf"))
    return seen.filter(is_good | ~pl.col("ended")).group_by(*by, "unit").agg(longest_s=known.max())


def borrow(
    seen: pl.DataFrame,
    is_own: pl.Expr,
    *,
    prob: float,
    is_silence: bool,
    conf_level: float = 0.95,
) -> dict[str, Any]:
    """A length that a share of the healthy units of a kind stays below, with its range.

    Parameters
    ----------
    seen : polars.DataFrame
        Evidence of a whole system, with ``kind``.
    is_own : polars.Expr
        Which rows are of the kind in question.
    prob : float
        The share, such as .95.
    is_silence : bool
        Whether it is evidence on silences.
    conf_level : float
        Of the range.

    Returns
    -------
    dict
        `BORROWED`, each one of `CANDIDATES_S` (None: beyond them, or cut off before), and
        ``n_kinds_borrowed``. Empty where the kind is not there or fewer than three others are.

    Notes
    -----
    At each candidate the units of a kind that went beyond it are binomial, and the shares
    of kinds are beta-distributed (`stats.shrinkage.borrowed`). The estimate is the first
    candidate beyond which probably no more than ``1 - prob`` go; the range ends where that
    is nearly excluded, and nearly sure. Kinds are taken for alike in nothing but that: a
    kind of its own sort is drawn towards others that it has nothing to do with.
    """
    kinds = seen.filter(is_own | pl.col("kind").is_not_null()).with_columns(
        kind=pl.when(~is_own).then("kind")
    )
    lengths = healthy_lengths(kinds, is_silence=is_silence, by=["kind"])
    of_kinds = {kind: group["longest_s"].sort() for (kind,), group in lengths.group_by("kind")}
    own = of_kinds.pop(None, None)
    if own is None or len(of_kinds) < FEWEST_KINDS:
        return {}

    def beyond(longest: pl.Series, limit_s: float) -> tuple[int, int]:
        return longest.len() - int(longest.search_sorted(limit_s, side="right")), longest.len()

    @cache
    def chance(limit_s: float) -> float:
        """How probable it is that few enough go beyond a candidate."""
        others = [beyond(longest, limit_s) for longest in of_kinds.values()]
        return beta_cdf(1 - prob, *borrowed(beyond(own, limit_s), others))

    tail = (1 - conf_level) / 2
    places = [bisect_left(CANDIDATES_S, level, key=chance) for level in (tail, 0.5, 1 - tail)]
    found = [CANDIDATES_S[place] if place < len(CANDIDATES_S) else None for place in places]
    return {**dict(zip(BORROWED, found, strict=True)), "n_kinds_borrowed": len(of_kinds)}
