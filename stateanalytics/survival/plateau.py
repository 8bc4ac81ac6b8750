"""The share that never ends: what a curve comes down to, where it was watched long enough."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import polars as pl

from stateanalytics.core.words import how_long_each
from stateanalytics.errors import check_share
from stateanalytics.stats.distributions import student_quantile
from stateanalytics.survival.by_unit import with_units
from stateanalytics.survival.influence import CELL, incidence_and_influence
from stateanalytics.survival.risk_sets import STRATUM, checked_spells, number, strata_of

FEWEST_AT_RISK = 10
"""Units that must have been watched for twice as long as the last end took."""
RESULT = (
    *("share", "share_low", "share_high", "n_units", "n_watched"),
    *("watched_s", "last_end_s", "is_identified", "in_words"),
)
_OF = "_of"


def never_ending(
    spells: pl.DataFrame, by: str | Sequence[str] = (), conf_level: float = 0.95
) -> pl.DataFrame:
    """Share of runs that would never end: "8 % (4 to 13)", or that nobody can tell.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave, or any frame for `kaplan_meier`; ``unit``, or the keys of runs,
        say which of them are alike. Without, each is a unit of its own.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the interval.

    Returns
    -------
    polars.DataFrame, shape (n_strata, n_by + 9)
        ``share`` with ``share_low`` and ``share_high``; ``n_units``; ``n_watched`` of them
        were still watched after ``watched_s``; ``last_end_s``; ``is_identified``;
        ``in_words``. Where it is not identified, only ``share_high`` is known (null: not even
        that): more than outlast the data cannot be endless.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`.

    Notes
    -----
    The cure fraction is the height of the plateau of the Kaplan-Meier curve [1]_, and it
    is one only if follow-up was long enough. It counts as long enough here where ten units
    were watched for twice as long as the last end took. If k units were, and none of them
    ended while time doubled, at most 1 - (1 - conf_level)**(1/k) of those left would: the
    lower end is lowered by as much. Maller and Zhou's own test asks for less: it promises to
    err in one of twenty curves, and calls more than one in four with exponential tails a
    plateau.
    Where everything ended the share is 0, with an exact upper end; where the last of all
    ended, it is 0, too, but what outlasted ten units is the upper end. The variance is by unit.

    References
    ----------
    .. [1] Maller, R. A. and Zhou, S. (1992). Estimating the proportion of immunes in a
       censored sample. Biometrika 79, 731-739.

    Examples
    --------
    >>> runs = pl.DataFrame({"duration_s": [1.0] * 60 + [9.0] * 40})
    >>> runs = runs.with_columns(ended=pl.col("duration_s") < 9)
    >>> never_ending(runs)["in_words"].item()
    '40 % (28 to 50) never end: none of 40 did between 1 s and 9 s'
    """
    check_share("conf_level", conf_level, 0.95)
    strata = strata_of(by)
    checked = checked_spells(with_units(spells), strata, "never_ending", also=["unit"])
    kept, names = (frame.rename({STRATUM: _OF}) for frame in number(checked, strata))
    watched = _watched(kept)
    facts = names.join(watched, on=_OF, how="left").join(
        _left(kept.join(watched, on=_OF)), on=_OF, how="left"
    )
    n, left = pl.col("n_units"), pl.col("left")
    quantile = n.map_elements(
        lambda n_units: student_quantile(conf_level, max(1, n_units - 1)), return_dtype=pl.Float64
    )
    # On the scale of log(-log), as the curve itself.
    spread = (quantile * pl.col("error") / (left * left.log()).abs()).exp()
    rare = (1 - conf_level) / 2
    all_ended = pl.col("last_open_s").is_null() & pl.col("last_end_s").is_not_null()
    is_over = all_ended | (
        (pl.col("last_open_s") < pl.col("last_end_s")) & pl.col("watched_s").is_not_null()
    )
    # A curve of late entries may begin after the last end: then it came down to nothing.
    is_flat = (pl.col("last_end_s") <= pl.col("watched_s") / 2) & (left < 1)
    unseen = (1 - conf_level) ** (1 / pl.col("n_watched"))
    return (
        facts.sort(_OF)
        .with_columns(is_identified=(is_over | is_flat).fill_null(value=False))
        .with_columns(
            share=pl.when("is_identified").then(pl.when(is_over).then(0.0).otherwise(left)),
            share_low=pl.when("is_identified").then(
                pl.when(is_over).then(0.0).otherwise(left**spread * unseen)
            ),
            share_high=pl.when(all_ended)
            .then(1 - rare ** (1 / n))
            .when((left > 0) & (left < 1) & (n > 1))
            .then(left ** (1 / spread)),
        )
        .with_columns(in_words=_in_words())
        .select(*strata, *RESULT)
    )


def _watched(kept: pl.DataFrame) -> pl.DataFrame:
    """How long ten units were watched for at least the second half, and when the last end came."""
    length = pl.col("duration_s")
    is_watched = pl.lit(value=True)
    if "entry_s" in kept.columns:
        is_watched = pl.col("entry_s").fill_null(0.0) <= length / 2
    longest = kept.filter(is_watched).group_by(_OF, "unit").agg(length.max())
    tenth = longest.group_by(_OF).agg(
        watched_s=length.sort(descending=True).get(FEWEST_AT_RISK - 1, null_on_oob=True)
    )
    n_watched = (
        longest.join(tenth, on=_OF)
        .filter(length >= pl.col("watched_s"))
        .group_by(_OF)
        .agg(n_watched=pl.len().cast(pl.Int64))
    )
    ends = kept.group_by(_OF).agg(
        last_end_s=length.filter("ended").max(),
        last_open_s=length.filter(~pl.col("ended")).max(),
        n_units=pl.col("unit").n_unique().cast(pl.Int64),
    )
    return ends.join(tenth, on=_OF, how="left").join(n_watched, on=_OF, how="left")


def _left(kept: pl.DataFrame) -> pl.DataFrame:
    """What of the curve is left where so many were watched, and its standard error by unit."""
    until = pl.col("watched_s").fill_null(inf)
    is_seen = pl.col("ended") & (pl.col("duration_s") <= until)
    seen = kept.with_columns(
        pl.min_horizontal("duration_s", until), ended=is_seen, is_good=pl.lit(value=True)
    )
    if "entry_s" in kept.columns:
        seen = seen.filter(pl.col("entry_s").fill_null(0.0) < pl.col("duration_s"))
    estimates, moved = incidence_and_influence(seen, [_OF], inf)
    by_unit = moved.group_by(CELL, "unit", maintain_order=True).agg(pl.col("influence").sum())
    n = pl.len()
    errors = by_unit.group_by(CELL, maintain_order=True).agg(
        error=((pl.col("influence") ** 2).sum() * n / (n - 1)).sqrt()
    )
    return estimates.join(errors, on=CELL).select(_OF, "error", left=1 - pl.col("estimate"))


def _in_words() -> pl.Expr:
    percent = {
        name: (100 * pl.col(name)).round(0).cast(pl.Int64).cast(pl.String)
        for name in ("share", "share_low", "share_high")
    }
    known = pl.format("{} % ({} to {}) never end", *percent.values())
    flat = pl.format(
        "{}: none of {} did between {} and {}",
        known,
        "n_watched",
        how_long_each("last_end_s", is_estimate=True),
        how_long_each("watched_s", is_estimate=True),
    )
    unknown = pl.format(
        "cannot tell how many never end, at most {} %: ends still came after {}",
        percent["share_high"],
        how_long_each("last_end_s", is_estimate=True),
    )
    return (
        pl.when("is_identified")
        .then(pl.when(pl.col("share") > 0).then(flat).otherwise(known))
        .when(pl.col("last_end_s").is_null())
        .then(pl.lit("cannot tell how many never end: no end was seen"))
        .otherwise(pl.coalesce(unknown, pl.lit("cannot tell how many never end: too few runs")))
    )
