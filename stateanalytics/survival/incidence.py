"""Competing ends: the share that ends each way by each duration, and the share that never ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.words import each_in_words, say
from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share
from stateanalytics.stats.distributions import student_quantiles
from stateanalytics.survival import frames, jackknife
from stateanalytics.survival.curves import ConfType, interval
from stateanalytics.survival.risk_sets import (
    MIN_AT_RISK,
    STRATUM,
    checked_spells,
    known_survival,
    number,
    risk_sets,
    strata_of,
)

INCIDENCE = frames.fixed_columns(frames.CumulativeIncidence)


def cumulative_incidence(
    spells: pl.DataFrame,
    cause: str = "cause",
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
    least_at_risk: int = MIN_AT_RISK,
) -> pl.DataFrame:
    """Probability to have ended by each duration, for each way to end (cause).

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        As for `kaplan_meier`, with the column ``cause``: how the spell ended. A spell is
        censored where ``ended`` is False or, without a column ``ended``, where the cause is
        null.
    cause : str
        Name of the column of causes.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the pointwise interval.
    conf_type : {"log-log", "log", "plain"}
        Its scale; R's survfit prints ``log``.
    least_at_risk : int
        As for `kaplan_meier`.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations * n_causes, n_by + 8)
        ``cause``, ``duration_s``, ``incidence``, ``incidence_se``, ``incidence_low``,
        ``incidence_high`` (null where the interval is not defined), ``from_s`` and
        ``n_units`` as for `kaplan_meier`, sorted by stratum, cause and duration. Every cause
        has a row at every distinct duration of its stratum; no ends at all give no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also if a spell ended without a cause.

    Notes
    -----
    The Aalen-Johansen estimate [1]_ with its delta-method variance, equal to R survfit's
    on unweighted data without late entries. With late entries R takes the infinitesimal
    jackknife, which sums over spells instead of durations and differs in small samples. Where
    units have several spells, the variance is by unit, as for `kaplan_meier`. One minus the
    Kaplan-Meier curve of one cause overstates its incidence, because it treats the other ends
    as if they had not happened. The sum of all incidences and the all-cause survival is 1 at
    every duration.

    References
    ----------
    .. [1] Aalen, O. O. and Johansen, S. (1978). An empirical transition matrix for
       non-homogeneous Markov chains. Scand. J. Statist. 5, 141-150.

    Examples
    --------
    >>> spells = pl.DataFrame(
    ...     {"duration_s": [1.0, 2.0, 3.0, 4.0], "cause": ["done", "failed", None, "done"]}
    ... )
    >>> cumulative_incidence(spells).filter(cause="done")["incidence"].to_list()
    [0.25, 0.25, 0.25, 0.75]
    """
    strata = strata_of(by)
    ends = interval("incidence", conf_level, conf_type, pl.col("width").sqrt())
    check_number("least_at_risk", least_at_risk, MIN_AT_RISK, is_whole=True)
    causes = cause_table(spells, cause, strata, "cumulative_incidence", least_at_risk)
    if causes.names.is_empty():
        numbers = {**dict.fromkeys(INCIDENCE[1:], pl.Float64), "n_units": pl.Int64}
        key = {name: spells.schema[name] for name in strata}
        return pl.DataFrame(schema={**key, "cause": spells.schema[cause], **numbers})
    curves = [
        jackknife.corrected_variance(
            causes.by_unit(number, conf_level), "incidence", pl.col(jackknife.UNIT_VARIANCE)
        )
        .with_columns(incidence_se=pl.col("variance").sqrt())
        .select(*INCIDENCE[1:4], *ends, *INCIDENCE[-2:])
        .pipe(collected)
        for number in range(causes.names.height)
    ]
    counted = causes.table.group_by(STRATUM, maintain_order=True).agg(_n_rows=pl.len())
    n_rows, last = counted["_n_rows"], counted["_n_rows"].cum_sum()
    # Rows of a stratum are contiguous, so slices are put in order instead of sorting rows.
    parts = [
        curve.slice(first, n)
        for first, n in zip(last - n_rows, n_rows, strict=True)
        for curve in curves
    ]
    named = counted.join(causes.strata, on=STRATUM, maintain_order="left").join(
        causes.names, how="cross", maintain_order="left_right"
    )
    repeated = [
        pl.concat(named[name].new_from_index(row, n) for row, n in enumerate(named["_n_rows"]))
        for name in (*strata, "cause")
    ]
    return pl.concat([pl.DataFrame(repeated), pl.concat(parts)], how="horizontal").rechunk()


@dataclass(frozen=True)
class Causes:
    """Risk sets with the ends of each cause.

    Attributes
    ----------
    table : polars.DataFrame, shape (n_distinct_durations, ...)
        Sorted by stratum number and ``duration_s``, with a count for each cause and the
        terms of the variance that all causes share.
    names : polars.DataFrame, shape (n_causes, 1)
        ``cause``, in order.
    strata : polars.DataFrame
        One row per stratum number.
    rows : polars.DataFrame
        The spells, with the number of their stratum.
    cause : str
        Their column of causes.
    """

    table: pl.DataFrame
    names: pl.DataFrame
    strata: pl.DataFrame
    rows: pl.DataFrame
    cause: str

    def by_unit(self, number: int, conf_level: float) -> pl.LazyFrame:
        """The table of one cause, with the columns for `covariance` and `corrected_variance`."""
        terms = {"increment": pl.col("_increment"), "n_counted": pl.col(_count(number))}
        return jackknife.with_unit_variance(
            with_incidence(self.table.lazy(), number).with_columns(
                variance=covariance(pl.col("incidence")).clip(0.0)
            ),
            self.rows.lazy(),
            terms,
            pl.col("ended") & (pl.col(self.cause) == self.names["cause"][number]),
            conf_level,
        )


def cause_table(
    spells: pl.DataFrame,
    cause: str,
    strata: Sequence[str],
    function: str,
    least_at_risk: int = MIN_AT_RISK,
) -> Causes:
    """Count ends of each cause, per stratum and distinct duration."""
    check_columns(spells, [cause], function)
    if "ended" not in spells.columns:
        spells = spells.with_columns(ended=pl.col(cause).is_not_null())
    spells = checked_spells(jackknife.with_known_units(spells), strata, function, also=[cause])
    ended = spells.lazy().filter("ended").group_by(cause=cause).len()
    causes = ended.sort("cause", nulls_last=True).pipe(collected)
    names = causes[["cause"]].head(causes.height - causes["cause"].null_count())
    if n_without := causes["len"].tail(causes.height - names.height).sum():
        raise ArgumentError(
            f"{function} needs a {cause!r} for every spell that ended; "
            f"{n_without} of {spells.height} have none.",
            f".with_columns(pl.col({cause!r}).fill_null('unknown')), or set `ended` to False",
        )
    counts = {
        _count(number): pl.col("ended") & (pl.col(cause) == word)
        for number, word in enumerate(names["cause"])
    }
    sets = risk_sets(spells, strata, counts, least_at_risk=least_at_risk)
    n, d = pl.col("n_at_risk").cast(pl.Float64), pl.col("n_events")
    is_known = pl.col("from_s").is_not_null()
    before = pl.when(is_known).then(pl.col("_survival").shift(1, fill_value=1.0).over(STRATUM))
    table = collected(
        sets.table.with_columns(_survival=known_survival(), _n=n)
        # Where all at risk ended, Greenwood's term is infinite, but its factor is 0.
        .with_columns(
            _increment=before / n, _greenwood=pl.when(n > d).then(d / (n * (n - d))).otherwise(0.0)
        )
        .with_columns(_weight=pl.col("_greenwood").cum_sum().over(STRATUM))
    )
    return Causes(table, names, collected(sets.strata), collected(sets.rows), cause)


def with_incidence(table: pl.LazyFrame, number: int) -> pl.LazyFrame:
    """Add the incidence of a cause, and the sums over ends u <= t that `covariance` needs.

    With F the incidence and S the all-cause survival before u, the variance at t sums
    (F(t)-F(u))² d/(n(n-d)) + S² d_k (n-d_k)/n³ - 2 (F(t)-F(u)) S d_k/n² over ends u <= t.
    Expanding the squares leaves sums over u alone: the coefficients of F(t)², of F(t), and
    the rest. Where all at risk ended (n = d), F(t) = F(u) and the first term is 0.
    """
    n, increment, weight = pl.col("_n"), pl.col("_increment"), pl.col("_greenwood")
    d_k, f = pl.col(_count(number)), pl.col("incidence")
    step = increment * d_k
    linear = f * weight + step / n
    rest = f * (linear + step / n) + increment * step * (n - d_k) / n
    return table.with_columns(incidence=step.cum_sum().over(STRATUM)).with_columns(
        _linear=linear.cum_sum().over(STRATUM), _rest=rest.cum_sum().over(STRATUM)
    )


def covariance(later: pl.Expr) -> pl.Expr:
    """Covariance of the incidence at a duration with ``later``, its value at or after it.

    With itself: the variance, which rounding of the expanded squares can make slightly negative.
    """
    f = pl.col("incidence")
    return f * later * pl.col("_weight") - (f + later) * pl.col("_linear") + pl.col("_rest")


def _count(number: int) -> str:
    return f"_n_{number}"


GOOD_END = "completed"
SHARE = frames.fixed_columns(frames.CompletionTimes)


def completion_times(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    cause: str = "cause",
) -> pl.DataFrame:
    """Share of the completing runs that have completed by each duration.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `cumulative_incidence`.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the pointwise interval.
    cause : str
        Column of causes; completion is ``completed``.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 6)
        ``duration_s``, ``share``, ``share_se``, ``share_low``, ``share_high`` (null where
        the share is 0 or 1), and ``horizon_s``, the longest duration of the stratum.
        Strata without a completed run have no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `cumulative_incidence`.

    Notes
    -----
    F(t) / F(horizon), with F the incidence of completion: runs that complete *within the
    observed horizon*. Dropping unfinished runs instead would make runs look fast. The
    variance is that of a ratio, with the covariance of the incidence at two durations, by
    unit as for `kaplan_meier`.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"duration_s": [1.0, 2.0, 3.0, 4.0],
    ...      "cause": ["completed", "failed", "completed", "completed"]}
    ... )
    >>> completion_times(runs)["share"].round(3).to_list()
    [0.333, 0.333, 0.667, 1.0]
    """
    strata = strata_of(by)
    ends = interval("share", conf_level, width=pl.col("width").sqrt())
    causes = cause_table(spells, cause, strata, "completion_times")
    words = causes.names["cause"].cast(pl.String).to_list()
    if GOOD_END not in words:
        key = {name: spells.schema[name] for name in strata}
        return pl.DataFrame(schema={**key, **dict.fromkeys(SHARE, pl.Float64)})
    f, last = pl.col("incidence"), pl.col("_last")
    table = (
        causes.by_unit(words.index(GOOD_END), conf_level)
        .with_columns(
            _last=f.last().over(STRATUM), horizon_s=pl.col("duration_s").last().over(STRATUM)
        )
        .filter(last > 0)
    )
    relative = _relative_variance(pl.col("variance"), covariance(last))
    by_unit = _relative_variance(pl.col(jackknife.UNIT_VARIANCE), pl.col(jackknife.LAST_COVARIANCE))
    # After the last completion it exceeds 1 by rounding.
    share = (f / last).clip(upper_bound=1.0)
    table = table.with_columns(
        share=pl.when(share > 1 - 1e-12).then(1.0).otherwise(share), variance=share**2 * relative
    )
    shares = (
        jackknife.corrected_variance(table, "share", pl.col("share") ** 2 * by_unit)
        .with_columns(
            pl.when(f > 0).then(name).otherwise(0.0).alias(name) for name in ("variance", "width")
        )
        .with_columns(share_se=pl.col("variance").sqrt())
        .with_columns(ends)
    )
    named = shares.join(causes.strata.lazy(), on=STRATUM, how="left", maintain_order="left")
    return named.select(*strata, *SHARE).pipe(collected)


def _relative_variance(variance: pl.Expr, with_last: pl.Expr) -> pl.Expr:
    """Squared coefficient of variation of F(t) / F(horizon), by the delta method."""
    f, last = pl.col("incidence"), pl.col("incidence").last().over(STRATUM)
    last_variance = variance.last().over(STRATUM)
    return (variance / (f * f) + last_variance / (last * last) - 2 * with_last / (f * last)).clip(
        0.0
    )


FEWEST_AT_RISK = 10
"""Units that must have been followed up for twice as long as the last end took."""
_GROUP = "_group"


def never_ending(
    spells: pl.DataFrame, by: str | Sequence[str] = (), conf_level: float = 0.95
) -> pl.DataFrame:
    """Share of runs that would never end (cure fraction), where follow-up was long enough.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`, or any frame for `kaplan_meier`; ``unit``, or the keys of runs, name the
        independent units. Without them, each spell is a unit of its own.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the interval.

    Returns
    -------
    polars.DataFrame, shape (n_strata, n_by + 9)
        ``share`` with ``share_low`` and ``share_high``; ``n_units``; ``n_watched``, the units
        still followed up after ``watched_s``; ``last_end_s``; ``is_identified``; ``in_words``.
        Where it is not identified, only ``share_high`` may be known: no more can be endless
        than outlast the data.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`.

    Notes
    -----
    The cure fraction is the height of the plateau of the Kaplan-Meier curve [1]_, provided
    that follow-up was long enough: here, that ten units were followed up for twice as long as
    the last end took. If none of k such units ended while time doubled, at most
    1 - (1 - conf_level)**(1/k) of the remaining ones would; the lower end is lowered by that
    factor. Maller and Zhou's own test requires less: nominally wrong for one curve in twenty,
    it finds a plateau in more than one in four curves with exponential tails.
    If all spells ended, the share is 0, with an exact upper end; if the longest spell ended,
    it is 0 as well, with the share that outlasted ten units as the upper end. The variance is
    by unit.

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
    checked = checked_spells(jackknife.with_units(spells), strata, "never_ending", also=["unit"])
    # Not STRATUM, which the risk sets of `_plateau` use for their own strata.
    kept, names = number(checked, strata, _GROUP)
    follow_up = _follow_up(kept).pipe(collected).lazy()
    facts = names.join(follow_up, on=_GROUP, how="left").join(
        _plateau(kept.lazy().join(follow_up, on=_GROUP)), on=_GROUP, how="left"
    )
    n, plateau = pl.col("n_units"), pl.col("plateau")
    quantile = student_quantiles(conf_level, n - 1)
    # On the scale of log(-log), as the curve itself.
    spread = (quantile * pl.col("error") / (plateau * plateau.log()).abs()).exp()
    tail = (1 - conf_level) / 2
    all_ended = pl.col("last_open_s").is_null() & pl.col("last_end_s").is_not_null()
    is_zero = all_ended | (
        (pl.col("last_open_s") < pl.col("last_end_s")) & pl.col("watched_s").is_not_null()
    )
    # A curve of late entries may begin after the last end: its height of 1 is no plateau.
    is_flat = (pl.col("last_end_s") <= pl.col("watched_s") / 2) & (plateau < 1)
    # The share that at least stays, though none of `n_watched` units ended (rule of three).
    staying = (1 - conf_level) ** (1 / pl.col("n_watched"))
    return (
        facts.sort(_GROUP)
        .with_columns(is_identified=(is_zero | is_flat).fill_null(value=False))
        .with_columns(
            share=pl.when("is_identified").then(pl.when(is_zero).then(0.0).otherwise(plateau)),
            share_low=pl.when("is_identified").then(
                pl.when(is_zero).then(0.0).otherwise(plateau**spread * staying)
            ),
            share_high=pl.when(all_ended)
            .then(1 - tail ** (1 / n))
            .when((plateau > 0) & (plateau < 1) & (n > 1))
            .then(plateau ** (1 / spread)),
        )
        .pipe(collected)
        .with_columns(in_words=each_in_words(_never_ending_in_words))
        .select(*strata, *frames.fixed_columns(frames.NeverEnding))
    )


def _follow_up(kept: pl.DataFrame) -> pl.LazyFrame:
    """How long ten units were followed up, for at least the second half, and the last end."""
    length = pl.col("duration_s")
    is_watched = pl.lit(value=True)
    if "entry_s" in kept.columns:
        is_watched = pl.col("entry_s").fill_null(0.0) <= length / 2
    longest = kept.lazy().filter(is_watched).group_by(_GROUP, "unit").agg(length.max())
    tenth = longest.group_by(_GROUP).agg(
        watched_s=length.sort(descending=True).get(FEWEST_AT_RISK - 1, null_on_oob=True)
    )
    n_watched = (
        longest.join(tenth, on=_GROUP)
        .filter(length >= pl.col("watched_s"))
        .group_by(_GROUP)
        .agg(n_watched=pl.len().cast(pl.Int64))
    )
    ends = (
        kept.lazy()
        .group_by(_GROUP)
        .agg(
            last_end_s=length.filter("ended").max(),
            last_open_s=length.filter(~pl.col("ended")).max(),
            n_units=pl.col("unit").n_unique().cast(pl.Int64),
        )
    )
    return ends.join(tenth, on=_GROUP, how="left").join(n_watched, on=_GROUP, how="left")


def _plateau(kept: pl.LazyFrame) -> pl.LazyFrame:
    """Height of the curve after ``watched_s``, and its standard error by unit."""
    until = pl.col("watched_s").fill_null(inf)
    is_seen = pl.col("ended") & (pl.col("duration_s") <= until)
    seen = kept.with_columns(
        pl.min_horizontal("duration_s", until), ended=is_seen, is_good=pl.lit(value=True)
    )
    if "entry_s" in kept.collect_schema():
        seen = seen.filter(pl.col("entry_s").fill_null(0.0) < pl.col("duration_s"))
    estimates, influences = jackknife.incidence_and_influence(seen.pipe(collected), [_GROUP], inf)
    by_unit = (
        influences.lazy()
        .group_by(STRATUM, "unit", maintain_order=True)
        .agg(pl.col("influence").sum())
    )
    n = pl.len()
    errors = by_unit.group_by(STRATUM, maintain_order=True).agg(
        error=((pl.col("influence") ** 2).sum() * n / (n - 1)).sqrt()
    )
    named = estimates.join(errors, on=STRATUM)
    return named.select(_GROUP, "error", plateau=1 - pl.col("estimate"))


def _never_ending_in_words(row: dict[str, Any]) -> str | None:
    if row["is_identified"]:
        if None in (row["share"], row["share_low"], row["share_high"]):
            return None
        return say("never.flat" if row["share"] > 0 else "never.known", **row)
    if row["last_end_s"] is None:
        return say("never.no_end")
    return say("never.too_few" if row["share_high"] is None else "never.unknown", **row)
