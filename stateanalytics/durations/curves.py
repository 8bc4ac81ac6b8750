"""Curves of time-to-end with censoring: Kaplan-Meier, Aalen-Johansen and what is read off them.

Polars expressions over small tables of distinct durations, one per stratum. Sums over
spells are the only statistics, so tables of several stores can be added up exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import polars as pl

from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError

CURVE = (
    "duration_s",
    "n_at_risk",
    "n_events",
    "survival",
    "survival_se",
    "survival_low",
    "survival_high",
)


def kaplan_meier(
    spells: pl.DataFrame, by: str | Sequence[str] = (), conf_level: float = 0.95
) -> pl.DataFrame:
    """Probability that a spell is still open after each duration, with its interval.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 2)
        One row per spell: ``duration_s`` (float, >= 0); ``ended`` (Boolean), False where
        the log stopped first; optional ``entry_s``: the duration at which the spell came
        under observation (left truncation), null for from the start.
    by : str or sequence of str
        Strata; null is a stratum of its own.
    conf_level : float
        Level of the pointwise interval.

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations, n_by + 7)
        Sorted by stratum and ``duration_s``; ``n_at_risk``, ``n_events`` count spells,
        ``survival`` is a probability, ``survival_se`` its standard error (Greenwood),
        ``survival_low`` and ``survival_high`` the log-log interval, null where the curve
        is exactly 0 or 1 and the interval is not defined.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a duration is null, negative or not finite, or an entry is not before its end.

    Notes
    -----
    Ends and cut-offs at the same duration: all are at risk there, ends first [1]_.
    With ``entry_s`` a spell is at risk from just after its entry: entry < t <= duration.
    The interval is pointwise: it says nothing about the whole curve at once. Independent
    censoring is assumed: stratify by configured timeout where limits differ.

    References
    ----------
    .. [1] Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete
       observations. JASA 53, 457-481.

    Examples
    --------
    >>> spells = pl.DataFrame({"duration_s": [5.0, 8.0, 8.0], "ended": [True, True, False]})
    >>> kaplan_meier(spells)["survival"].round(3).to_list()
    [0.667, 0.333]
    """
    strata = _strata(by)
    spells = checked_spells(spells, strata, "kaplan_meier")
    table = _at_risk(spells, strata, {"n_events": pl.col("ended").sum().cast(pl.Int64)})
    return (
        table.lazy()
        .with_columns(survival=_over((1 - _hazard("n_events")).cum_prod(), strata))
        .with_columns(survival_se=pl.col("survival") * _over(_greenwood(), strata).sqrt())
        .with_columns(_log_log("survival", conf_level))
        .with_columns(survival_se=pl.col("survival_se").fill_nan(None))
        .select(*strata, *CURVE)
        .collect()
    )


def cumulative_incidence(
    spells: pl.DataFrame,
    cause: str = "cause",
    by: str | Sequence[str] = (),
    conf_level: float = 0.95,
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

    Returns
    -------
    polars.DataFrame, shape (n_distinct_durations * n_causes, n_by + 6)
        ``cause``, ``duration_s``, ``incidence``, ``incidence_se``, ``incidence_low``,
        ``incidence_high`` (log-log scale; null where the incidence is 0 or 1), sorted by
        stratum, cause and duration. Every cause has a row at every distinct duration of
        its stratum.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `kaplan_meier`; also where a spell ended without a cause.

    Notes
    -----
    The Aalen-Johansen estimate with its delta-method variance, equal to R survfit's on
    unweighted data. One minus the Kaplan-Meier curve of one cause overstates its
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
    strata = _strata(by)
    if cause not in spells.columns:
        raise MissingColumnsError.of([cause], spells.columns, "cumulative_incidence")
    if "ended" not in spells.columns:
        spells = spells.with_columns(ended=pl.col(cause).is_not_null())
    spells = checked_spells(spells, strata, "cumulative_incidence")
    if nameless := spells.filter(pl.col("ended") & pl.col(cause).is_null()).height:
        raise ArgumentError(
            f"cumulative_incidence needs a {cause!r} for every spell that ended; "
            f"{nameless} of {spells.height} have none.",
            f".with_columns(pl.col({cause!r}).fill_null('unknown')), or set `ended` to False",
        )
    ended = spells.filter(pl.col("ended"))
    causes = ended.select(cause=pl.col(cause)).unique().sort("cause")
    table = _at_risk(spells, strata, {"n_events": pl.col("ended").sum().cast(pl.Int64)})
    per_cause = ended.group_by(*strata, "duration_s", pl.col(cause).alias("cause")).agg(
        n_cause=pl.len()
    )
    alive = _over((1 - _hazard("n_events")).cum_prod(), strata)
    return (
        table.lazy()
        .with_columns(alive=alive)
        .with_columns(alive_before=_over(pl.col("alive").shift(1, fill_value=1.0), strata))
        .join(causes.lazy(), how="cross")
        .join(per_cause.lazy(), on=[*strata, "duration_s", "cause"], how="left", nulls_equal=True)
        .with_columns(pl.col("n_cause").fill_null(0))
        .sort(*strata, "cause", "duration_s")
        .with_columns(_incidence([*strata, "cause"]))
        .with_columns(_log_log("incidence", conf_level))
        .select(
            *strata,
            pl.col("cause"),
            "duration_s",
            "incidence",
            "incidence_se",
            "incidence_low",
            "incidence_high",
        )
        .collect()
    )


# --- the pieces ------------------------------------------------------------------------


def _at_risk(spells: pl.DataFrame, strata: list[str], counts: dict[str, pl.Expr]) -> pl.DataFrame:
    """One row per stratum and distinct duration, with ``n_at_risk`` just before it."""
    leaving = spells.group_by(*strata, "duration_s").agg(n_leaving=pl.len(), **counts)
    if "entry_s" not in spells.columns:
        reverse = _over(pl.col("n_leaving").cum_sum(reverse=True), strata)
        return leaving.sort(*strata, "duration_s").with_columns(n_at_risk=reverse.cast(pl.Int64))
    # A spell observed from its start enters before every duration, 0 included.
    entering = spells.group_by(
        *strata, duration_s=pl.col("entry_s").cast(pl.Float64).fill_null(float("-inf"))
    ).agg(n_entering=pl.len())
    before = pl.col("n_entering").cum_sum() - pl.col("n_entering")
    gone = pl.col("n_leaving").cum_sum() - pl.col("n_leaving")
    return (
        leaving.join(
            entering, on=[*strata, "duration_s"], how="full", coalesce=True, nulls_equal=True
        )
        .with_columns(pl.col("n_leaving", "n_entering").fill_null(0).cast(pl.Int64))
        .sort(*strata, "duration_s")
        .with_columns(n_at_risk=_over(before - gone, strata))
        .filter(pl.col("n_leaving") > 0)
        .drop("n_entering")
    )


def _hazard(events: str) -> pl.Expr:
    return pl.col(events) / pl.col("n_at_risk")


def _greenwood() -> pl.Expr:
    """Greenwood's sum: d / (n (n - d)), infinite from where everyone at risk ended."""
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    return (d / (n * (n - d))).cum_sum()


def _log_log(name: str, conf_level: float) -> list[pl.Expr]:
    """Interval on the log(-log) scale: stays within 0 and 1; not defined at 0 and 1."""
    if not 0 < conf_level < 1:
        raise ArgumentError(
            f"conf_level needs to be between 0 and 1; found {conf_level!r}.", "conf_level=0.95"
        )
    z = NormalDist().inv_cdf(0.5 + conf_level / 2)
    value, se = pl.col(name), pl.col(f"{name}_se")
    spread = z * se / (value * value.log()).abs()
    inside = (value > 0) & (value < 1)
    return [
        pl.when(inside).then(value.pow(spread.exp())).alias(f"{name}_low"),
        pl.when(inside).then(value.pow((-spread).exp())).alias(f"{name}_high"),
    ]


def _incidence(groups: list[str]) -> list[pl.Expr]:
    """Incidence and standard error per cause, as four running sums.

    The variance at t sums over ends u <= t, with F the incidence and S the all-cause
    survival before u: (F(t)-F(u))² d/(n(n-d)) + S² d_k (n-d_k)/n³ - 2 (F(t)-F(u)) S d_k/n².
    Expanding the squares leaves sums that run over u alone. Where everyone at risk ended
    (n = d), F(t) = F(u) and the first term is 0.
    """
    n, d = pl.col("n_at_risk").cast(pl.Float64), pl.col("n_events")
    d_k, s = pl.col("n_cause"), pl.col("alive_before")
    f = (s * d_k / n).cum_sum()
    weight = pl.when(n > d).then(d / (n * (n - d))).otherwise(0.0)
    cross = s * d_k / n**2
    variance = (
        f.pow(2) * weight.cum_sum()
        - 2 * f * (f * weight).cum_sum()
        + (f.pow(2) * weight).cum_sum()
        + (s.pow(2) * d_k * (n - d_k) / n**3).cum_sum()
        - 2 * f * cross.cum_sum()
        + 2 * (f * cross).cum_sum()
    )
    return [
        f.over(groups).alias("incidence"),
        # Rounding of the expanded squares can leave a variance just below 0.
        variance.clip(lower_bound=0.0).sqrt().over(groups).alias("incidence_se"),
    ]


def _over(expression: pl.Expr, strata: list[str]) -> pl.Expr:
    return expression.over(strata) if strata else expression


def _strata(by: str | Sequence[str]) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def checked_spells(spells: pl.DataFrame, strata: list[str], function: str) -> pl.DataFrame:
    """The spells with durations as floats; what has no meaning is refused in words."""
    needed = ["duration_s", "ended", *strata]
    if missing := [name for name in needed if name not in spells.columns]:
        raise MissingColumnsError.of(missing, spells.columns, function)
    if not spells["duration_s"].dtype.is_numeric() and spells.height:
        raise ColumnTypeError(
            f"{function} needs `duration_s` as seconds; found {spells['duration_s'].dtype}.",
            ".with_columns(pl.col('duration_s').dt.total_seconds(fractional=True))",
        )
    if spells["ended"].dtype != pl.Boolean and spells.height:
        raise ColumnTypeError(
            f"{function} needs `ended` as true or false; found {spells['ended'].dtype}.",
            ".with_columns(pl.col('ended').cast(pl.Boolean))",
        )
    duration = pl.col("duration_s").cast(pl.Float64)
    problems = {
        "null durations": duration.is_null(),
        "durations that are not finite": ~duration.is_finite(),
        "negative durations": duration < 0,
        "spells that neither ended nor were cut off (`ended` is null)": pl.col("ended").is_null(),
    }
    if "entry_s" in spells.columns:
        problems["spells that end before they are entered"] = pl.col("entry_s") >= duration
    counts = spells.select(
        problem.fill_null(False).sum().alias(words) for words, problem in problems.items()
    ).row(0, named=True)
    if found := [f"{count} {words}" for words, count in counts.items() if count]:
        raise ArgumentError(
            f"{function} needs finite durations of at least 0 seconds; among {spells.height} "
            f"spells it found {', '.join(found)}.",
            "spells.filter(pl.col('duration_s').is_finite() & (pl.col('duration_s') >= 0))",
        )
    return spells.with_columns(duration)
