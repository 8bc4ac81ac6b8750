"""Competing ends: what share came to each end by each duration, and how soon the good ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from stateanalytics.errors import ArgumentError, check_columns, check_number
from stateanalytics.survival.by_unit import (
    OF_UNITS,
    WITH_LAST,
    widened,
    with_known_units,
    with_units_of,
)
from stateanalytics.survival.curves import ConfType, interval, known_survival
from stateanalytics.survival.risk_sets import (
    LEAST_AT_RISK,
    STRATUM,
    checked_spells,
    risk_sets,
    strata_of,
)

INCIDENCE = (
    "cause",
    "duration_s",
    "incidence",
    "incidence_se",
    "incidence_low",
    "incidence_high",
    "from_s",
    "n_units",
)
ENGINE: Final = "in-memory"
"""Of polars: the other one takes four times as long for sums within strata."""


def cumulative_incidence(
    spells: pl.DataFrame,
    cause: str = "cause",
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
    least_at_risk: int = LEAST_AT_RISK,
) -> pl.DataFrame:
    """Probability to have ended by each duration, apart for every way to end.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        As for `kaplan_meier`, with the column ``cause``: how the spell ended. A spell is
        censored where ``ended`` is False; without a column ``ended``, where the cause is
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
        As for `kaplan_meier`; also where a spell ended without a cause.

    Notes
    -----
    The Aalen-Johansen estimate [1]_ with its delta-method variance, equal to R survfit's
    on unweighted data without late entries. With them R takes the infinitesimal jackknife,
    which differs: it sums over spells, of which each was at risk for a stretch only, and
    this one over durations. Both are right for many spells. Where several spells are of one
    unit, the variance is by unit, as for `kaplan_meier`. One minus the Kaplan-Meier
    curve of one cause overstates its incidence, because it treats the other ends as if they
    had not happened. The sum of all incidences and the all-cause survival is 1 at every
    duration.

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
    check_number("least_at_risk", least_at_risk, LEAST_AT_RISK, is_whole=True)
    causes = cause_table(spells, cause, strata, "cumulative_incidence", least_at_risk)
    if causes.names.is_empty():
        return _nothing(spells, cause, strata)
    curves = [
        widened(causes.by_unit(number, conf_level), "incidence", pl.col(OF_UNITS))
        # Both ends of an interval are made of the same logarithms, which a lazy frame takes once.
        .lazy()
        .with_columns(incidence_se=pl.col("variance").sqrt())
        .select(*INCIDENCE[1:4], *ends, *INCIDENCE[-2:])
        .collect(engine=ENGINE)
        for number in range(causes.names.height)
    ]
    counted = causes.table.group_by(STRATUM, maintain_order=True).agg(_n_rows=pl.len())
    n_rows, last = counted["_n_rows"], counted["_n_rows"].cum_sum()
    # A stratum's rows lie together: putting parts in order costs nothing, rows would.
    parts = [
        curve.slice(first, n)
        for first, n in zip(last - n_rows, n_rows, strict=True)
        for curve in curves
    ]
    named = counted.join(causes.strata, on=STRATUM, maintain_order="left").join(
        causes.names, how="cross", maintain_order="left_right"
    )
    repeated = [
        pl.concat(named[name].new_from_index(place, n) for place, n in enumerate(named["_n_rows"]))
        for name in (*strata, "cause")
    ]
    return pl.concat([pl.DataFrame(repeated), pl.concat(parts)], how="horizontal").rechunk()


def _nothing(spells: pl.DataFrame, cause: str, strata: Sequence[str]) -> pl.DataFrame:
    numbers = {**dict.fromkeys(INCIDENCE[1:], pl.Float64), "n_units": pl.Int64}
    key = {name: spells.schema[name] for name in strata}
    return pl.DataFrame(schema={**key, "cause": spells.schema[cause], **numbers})


# --- counts of every cause ---------------------------------------------------------------


@dataclass(frozen=True)
class Causes:
    """Risk sets with the ends of each cause.

    Attributes
    ----------
    table : polars.DataFrame, shape (n_distinct_durations, ...)
        Sorted by stratum number and ``duration_s``, with a count for each cause and the
        terms that all causes share.
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

    def by_unit(self, number: int, conf_level: float) -> pl.DataFrame:
        """The table of one cause, with what `covariance` and `widened` need."""
        parts = {
            "each": pl.col("_each"),
            "n_counted": pl.col(_count(number)),
        }
        return with_units_of(
            of_one_cause(self.table.lazy(), number)
            .with_columns(variance=covariance(pl.col("incidence")).clip(0.0))
            .collect(engine=ENGINE),
            self.rows,
            parts,
            pl.col("ended") & (pl.col(self.cause) == self.names["cause"][number]),
            conf_level,
        )


def cause_table(
    spells: pl.DataFrame,
    cause: str,
    strata: Sequence[str],
    function: str,
    least_at_risk: int = LEAST_AT_RISK,
) -> Causes:
    """Count the ends of each cause, per stratum and distinct duration."""
    check_columns(spells, [cause], function)
    if "ended" not in spells.columns:
        spells = spells.with_columns(ended=pl.col(cause).is_not_null())
    spells = checked_spells(with_known_units(spells), strata, function, also=[cause])
    if nameless := spells.filter(pl.col("ended") & pl.col(cause).is_null()).height:
        raise ArgumentError(
            f"{function} needs a {cause!r} for every spell that ended; "
            f"{nameless} of {spells.height} have none.",
            f".with_columns(pl.col({cause!r}).fill_null('unknown')), or set `ended` to False",
        )
    names = spells.filter("ended").select(cause=pl.col(cause)).unique().sort("cause")
    counts = {
        _count(number): pl.col("ended") & (pl.col(cause) == word)
        for number, word in enumerate(names["cause"])
    }
    sets = risk_sets(spells, strata, counts, least_at_risk=least_at_risk)
    n, d = pl.col("n_at_risk").cast(pl.Float64), pl.col("n_events")
    is_known = pl.col("from_s").is_not_null()
    before = pl.when(is_known).then(pl.col("_alive").shift(1, fill_value=1.0).over(STRATUM))
    table = (
        sets.table.with_columns(_alive=known_survival(), _n=n)
        # Where everyone at risk ended, the term that it weighs is 0.
        .with_columns(
            _each=before / n, _greenwood=pl.when(n > d).then(d / (n * (n - d))).otherwise(0.0)
        )
        .with_columns(_weight=pl.col("_greenwood").cum_sum().over(STRATUM))
    )
    return Causes(table, names, sets.strata, sets.rows, cause)


def of_one_cause(table: pl.LazyFrame, number: int) -> pl.LazyFrame:
    """Incidence of a cause, and the sums over ends u <= t that `covariance` is made of.

    With F the incidence and S the all-cause survival before u, the variance at t sums
    (F(t)-F(u))² d/(n(n-d)) + S² d_k (n-d_k)/n³ - 2 (F(t)-F(u)) S d_k/n² over ends u <= t.
    Expanding the squares leaves sums that run over u alone. Where everyone at risk ended
    (n = d), F(t) = F(u) and the first term is 0.
    """
    n, each, weight = pl.col("_n"), pl.col("_each"), pl.col("_greenwood")
    d_k, f = pl.col(_count(number)), pl.col("incidence")
    step = each * d_k
    f_weight = f * weight + step / n
    rest = f * (f_weight + step / n) + each * step * (n - d_k) / n
    return table.with_columns(incidence=step.cum_sum().over(STRATUM)).with_columns(
        _f_weight=f_weight.cum_sum().over(STRATUM), _rest=rest.cum_sum().over(STRATUM)
    )


def covariance(later: pl.Expr) -> pl.Expr:
    """Covariance of the incidence at a duration with ``later``, its value at or after it.

    With itself: the variance, which rounding of the expanded squares can leave just below 0.
    """
    now = pl.col("incidence")
    return now * later * pl.col("_weight") - (now + later) * pl.col("_f_weight") + pl.col("_rest")


def _count(number: int) -> str:
    return f"_n_{number}"


GOOD_END = "completed"
SHARE = ("duration_s", "share", "share_se", "share_low", "share_high", "horizon_s")


def completion_times(
    spells: pl.DataFrame,
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    cause: str = "cause",
) -> pl.DataFrame:
    """Of the runs that complete, the share that has by each duration.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `cumulative_incidence`.
    by : str or sequence of str
        Strata.
    conf_level : float
        Level of the pointwise interval.
    cause : str
        Column of causes; the good one is ``completed``.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 6)
        ``duration_s``, ``share``, ``share_se``, ``share_low``, ``share_high`` (null where
        the share is 0 or 1), and ``horizon_s``, the longest duration of the stratum.
        Strata where nothing completed have no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `cumulative_incidence`.

    Notes
    -----
    F(t) / F(horizon), with F the incidence of completion: those that complete *within the
    observed horizon*. Dropping what has not ended instead would make runs look fast. The
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
    of_units = _relative_variance(pl.col(OF_UNITS), pl.col(WITH_LAST))
    # Above 1 by rounding alone, where the last completion has come.
    share = (f / last).clip(upper_bound=1.0)
    table = table.with_columns(
        share=pl.when(share > 1 - 1e-12).then(1.0).otherwise(share), variance=share**2 * relative
    )
    shares = (
        widened(table, "share", pl.col("share") ** 2 * of_units)
        .with_columns(
            pl.when(f > 0).then(name).otherwise(0.0).alias(name) for name in ("variance", "width")
        )
        .with_columns(share_se=pl.col("variance").sqrt())
        .with_columns(ends)
    )
    named = shares.join(causes.strata, on=STRATUM, how="left", maintain_order="left")
    return named.select(*strata, *SHARE)


def _relative_variance(variance: pl.Expr, with_last: pl.Expr) -> pl.Expr:
    """Of the incidence over its last value, from its variance and its covariance with that."""
    f, last = pl.col("incidence"), pl.col("incidence").last().over(STRATUM)
    of_last = variance.last().over(STRATUM)
    return (variance / (f * f) + of_last / (last * last) - 2 * with_last / (f * last)).clip(0.0)
