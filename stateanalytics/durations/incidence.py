"""What becomes of spells by each duration, where they can end in several ways."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.durations.confidence import ConfType, interval
from stateanalytics.durations.curves import survival
from stateanalytics.durations.risk_sets import STRATUM, checked_spells, risk_sets, strata_of
from stateanalytics.errors import ArgumentError, MissingColumnsError

INCIDENCE = (
    "cause",
    "duration_s",
    "incidence",
    "incidence_se",
    "incidence_low",
    "incidence_high",
)


def cumulative_incidence(
    spells: pl.DataFrame,
    cause: str = "cause",
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
    *,
    conf_type: ConfType = "log-log",
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

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations * n_causes, n_by + 6)
        ``cause``, ``duration_s``, ``incidence``, ``incidence_se``, ``incidence_low``,
        ``incidence_high`` (null where the interval is not defined), sorted by stratum,
        cause and duration. Every cause has a row at every distinct duration of its
        stratum; no ends at all give no rows.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also where a spell ended without a cause.

    Notes
    -----
    The Aalen-Johansen estimate [1]_ with its delta-method variance, equal to R survfit's
    on unweighted data. One minus the Kaplan-Meier curve of one cause overstates its
    incidence, because it treats the other ends as if they had not happened. The sum of
    all incidences and the all-cause survival is 1 at every duration.

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
    ends = interval("incidence", conf_level, conf_type)
    table, names = cause_table(spells, cause, strata, "cumulative_incidence")
    curve = (
        table.with_columns(incidence_of_cause())
        .with_columns(running_sums())
        .with_columns(incidence_se=covariance(pl.col("incidence")).clip(lower_bound=0.0).sqrt())
        .with_columns(ends)
    )
    named = curve.join(names, on=GROUP, how="left", maintain_order="left")
    return named.select(*strata, *INCIDENCE)


# --- the pieces, which `conditional` needs as well --------------------------------------

GROUP = "_group"


def cause_table(
    spells: pl.DataFrame, cause: str, strata: Sequence[str], function: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Risk sets with the ends of each cause, and the names of stratum and cause.

    Returns
    -------
    table : polars.DataFrame, shape (n_distinct_durations * n_causes, ...)
        Sorted by `GROUP` (a number for a stratum and cause) and ``duration_s``; counts
        ``n_at_risk``, ``n_events``, ``n_cause``, and ``alive_before``, the all-cause
        survival just before.
    names : polars.DataFrame
        `GROUP`, the strata, ``cause``.
    """
    if cause not in spells.columns:
        raise MissingColumnsError.of([cause], spells.columns, function)
    if "ended" not in spells.columns:
        spells = spells.with_columns(ended=pl.col(cause).is_not_null())
    spells = checked_spells(spells, strata, function, also=[cause])
    if nameless := spells.filter(pl.col("ended") & pl.col(cause).is_null()).height:
        raise ArgumentError(
            f"{function} needs a {cause!r} for every spell that ended; "
            f"{nameless} of {spells.height} have none.",
            f".with_columns(pl.col({cause!r}).fill_null('unknown')), or set `ended` to False",
        )
    causes = spells.filter("ended").select(cause=pl.col(cause)).unique().sort("cause")
    counts = {
        f"_n_{number}": pl.col("ended") & (pl.col(cause) == word)
        for number, word in enumerate(causes["cause"])
    }
    sets = risk_sets(spells, strata, counts)
    before = pl.col("_alive").shift(1, fill_value=1.0).over(STRATUM)
    table = sets.table.with_columns(_alive=survival()).with_columns(alive_before=before)
    shared = ("duration_s", "n_at_risk", "n_events", "alive_before")
    group = pl.col(STRATUM) * causes.height
    # A list per stratum: putting lists in order costs nothing, millions of rows would.
    in_lists = table.group_by(STRATUM, maintain_order=True).agg(*shared, *counts)
    per_cause = [
        in_lists.select((group + number).alias(GROUP), *shared, pl.col(name).alias("n_cause"))
        for number, name in enumerate(counts)
    ]
    no_cause = in_lists.clear().select(
        pl.col(STRATUM).alias(GROUP), *shared, pl.col("n_at_risk").alias("n_cause")
    )
    stacked = pl.concat([no_cause, *per_cause]).sort(GROUP).explode(*shared, "n_cause")
    names = (
        sets.strata.join(causes.with_row_index("_number"), how="cross")
        .with_columns((group + pl.col("_number")).alias(GROUP))
        .drop(STRATUM, "_number")
    )
    return stacked.with_columns(pl.col(GROUP).set_sorted()), names


def incidence_of_cause() -> pl.Expr:
    """The running sum of the all-cause survival before, times the share that ends so."""
    step = pl.col("alive_before") * pl.col("n_cause") / pl.col("n_at_risk")
    return step.cum_sum().over(GROUP).alias("incidence")


def running_sums() -> list[pl.Expr]:
    """The sums over ends u <= t that `covariance` is made of.

    With F the incidence and S the all-cause survival before u, the variance at t sums
    (F(t)-F(u))² d/(n(n-d)) + S² d_k (n-d_k)/n³ - 2 (F(t)-F(u)) S d_k/n² over ends u <= t.
    Expanding the squares leaves sums that run over u alone. Where everyone at risk ended
    (n = d), F(t) = F(u) and the first term is 0.
    """
    n, d = pl.col("n_at_risk").cast(pl.Float64), pl.col("n_events")
    d_k, s, f = pl.col("n_cause"), pl.col("alive_before"), pl.col("incidence")
    weight = pl.when(n > d).then(d / (n * (n - d))).otherwise(0.0)
    cross = s * d_k / (n * n)
    sums = {
        "_weight": weight,
        "_f_weight": f * weight + cross,
        "_rest": f * f * weight + s * s * d_k * (n - d_k) / (n * n * n) + 2 * f * cross,
    }
    return [term.cum_sum().over(GROUP).alias(name) for name, term in sums.items()]


def covariance(later: pl.Expr) -> pl.Expr:
    """Covariance of the incidence at a duration with ``later``, its value at or after it.

    With itself: the variance, which rounding of the expanded squares can leave just below 0.
    """
    now = pl.col("incidence")
    return now * later * pl.col("_weight") - (now + later) * pl.col("_f_weight") + pl.col("_rest")
