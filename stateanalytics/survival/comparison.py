"""Like with like: differences of durations and outcomes, raw and for the same mix of work."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.shapes import frame
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.stats.distributions import (
    benjamini_hochberg,
    student_quantile,
    student_tail,
)
from stateanalytics.survival.adjustment import (
    FEWEST_UNITS,
    IS_FIRST,
    STRATUM_NAME,
    difference,
    differences,
    differing_projects,
    hazard_ratio,
    horizon,
)
from stateanalytics.survival.frames import Compare
from stateanalytics.survival.incidence import GOOD_END
from stateanalytics.survival.jackknife import (
    UNIT,
    good_shares,
    incidence_and_influence,
    mean_and_influence,
    restricted_means,
    with_units,
)
from stateanalytics.survival.risk_sets import TOLERANCE, strata_of
from stateanalytics.survival.run_spells import spells

MEASURES = {
    "duration": "difference of mean seconds within the horizon, however the run ended",
    "completed": "difference of the shares that completed within the horizon",
    "hazard_ratio": "ratio of the rates at which runs end, by Cox's regression; 1: equal",
}
METHODS = ("raw", "adjusted")
VERDICTS = ("higher", "lower", "no_difference", "not_enough_data")
_COLUMNS = frame(Compare).dtypes
_JUDGED = ("q_value", "verdict", "is_reversed")
_MEASURED = {name: dtype for name, dtype in _COLUMNS.items() if name not in _JUDGED}


def compare(
    runs: pl.DataFrame | Facts,
    by: str = "model",
    *,
    adjust: str | Sequence[str] = ("kind", "project"),
    against: str | None = None,
    until_s: float | None = None,
    conf_level: float = 0.95,
    fdr: float = 0.1,
    least: int = 10,
    regression: bool = False,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Compare models (agents, projects …) by duration and outcome, raw and for the same work.

    Parameters
    ----------
    runs : polars.DataFrame, Snapshot or Facts
        From `spells`, or a snapshot, of which all runs are taken.
    by : str
        Column whose values are compared; runs without a value are in no group.
    adjust : str or sequence of str
        Columns that define the mix, other than ``by``; null is a stratum of its own.
    against : str, optional
        The value that the others are compared with; by default the one with most runs.
    until_s : float, optional
        Horizon in seconds; by default, for each pair, the duration by which nine in ten have
        ended, or the longest follow-up of both, whichever comes first.
    conf_level : float
        Level of each interval.
    fdr : float
        False discovery rate over all comparisons of one method.
    least : int
        Units (invocations) that each group needs; with fewer there is no conclusion.
    regression : bool
        Add Cox's regression, which needs the extra ``stateanalytics[models]``.
    policy : Policy, optional
        For computing states, where a snapshot is given.

    Returns
    -------
    polars.DataFrame, shape (n_values * n_measures * 2, 21)
        ``dimension``, ``value``, ``against``; ``measure``, a key of `MEASURES`;
        ``method``: raw, adjusted; ``until_s``; ``n_runs`` and ``n_units`` compared, of the
        value and of the one it is compared with; ``estimate`` (value minus against, or the
        ratio) with its interval and ``p_value``; ``log_rank_p``, for a duration the p-value of
        the log-rank test, stratified where adjusted; ``compared``, the share of runs in strata
        that both have, and ``not_compared``, the largest other strata; ``q_value``;
        ``verdict``, one of `VERDICTS`; ``is_reversed``: raw and adjusted have opposite signs,
        one of them significant (Simpson's paradox); ``in_words``. Reversed rows first.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or an argument makes no sense.
    MissingComponentError
        If ``regression`` is set and its library is not installed.

    Notes
    -----
    Adjusted differences are standardised directly: the difference within each stratum that
    both groups have, weighted by the runs of both in it [1]_. A stratum counts if each group
    has three units in it and is known up to the horizon. The variance is the jackknife's by
    unit, because runs of one fan-out are not independent, with Welch's degrees of freedom;
    with eight or more projects that are not adjusted for, it is that by project, if larger.
    Weights are held fixed: conclusions hold for this mix. With fewer than 15 units in a group,
    all of them large fan-outs of very similar runs, a 95 % interval covers in 90 to 93 %. A
    run that timed out is censored for a duration and has ended for an outcome.
    No adjustment helps against confounders outside the columns: harder work that only one
    model gets looks like a slower model.

    References
    ----------
    .. [1] Royston, P. and Parmar, M. (2013). Restricted mean survival time: an alternative
       to the hazard ratio. BMC Medical Research Methodology 13, 152.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> compare(demo(), by="model", adjust="kind")["method"].unique().sort().to_list()
    ['adjusted', 'raw']
    """
    known = runs if isinstance(runs, pl.DataFrame) else spells(runs, policy=policy)
    columns = [name for name in strata_of(adjust) if name != by]
    check_columns(known, ["duration_s", "ended", "ending", by, *columns], "compare")
    if not columns:
        raise ArgumentError(
            f"adjust needs columns other than {by!r}; found {adjust!r}.", 'adjust=("kind",)'
        )
    check_share("conf_level", conf_level, 0.95)
    check_share("fdr", fdr, 0.1)
    check_number("least", least, 10, least=FEWEST_UNITS)
    if until_s is not None:
        check_number("until_s", until_s, 3600, is_above=True)
    options = _Options(columns, until_s, conf_level, fdr, least, regression)
    kept = _prepared(known, by, columns)
    base, others = _values(kept, by, against)
    return _with_verdicts(_rows(kept, by, base, others, options), fdr)


def reversals(runs: pl.DataFrame, by: str = "model") -> pl.DataFrame:
    """Rows of `compare` with ``is_reversed``, without log-rank tests."""
    options = _Options(["kind", "project"], has_log_rank=False)
    kept = _prepared(runs, by, options.columns)
    base, others = _values(kept, by, None)
    # Variances take most of the time, so first they are computed where signs may differ. If
    # nothing is significant there, nothing is reversed; else q-values need all comparisons.
    suspects = _with_opposite_signs(kept, by, base, others)
    rows = _rows(kept, by, base, suspects, options)
    if not any(row["p_value"] is not None and row["p_value"] <= options.fdr for row in rows):
        others = []
    return _with_verdicts(_rows(kept, by, base, others, options), options.fdr).filter("is_reversed")


def _with_opposite_signs(
    kept: pl.DataFrame, by: str, base: str | None, others: Sequence[str]
) -> list[str]:
    """Values with raw and adjusted differences that may have opposite signs."""
    if base is None:
        return []
    until_s = {value: horizon(_pair(kept, by, value, base)) for value in others}
    measures = ((kept, restricted_means), (kept.with_columns(ended="has_ended"), good_shares))
    estimates = [
        tuple(
            differences(stratified, by, base, until_s, estimate)
            for stratified in (runs.with_columns(pl.lit("all").alias(STRATUM_NAME)), runs)
        )
        for runs, estimate in measures
    ]
    return [
        value
        for value in others
        if any(raw[value] * adjusted[value] <= TOLERANCE for raw, adjusted in estimates)
    ]


class _Options(NamedTuple):
    """Options of `compare`."""

    columns: Sequence[str]
    until_s: float | None = None
    conf_level: float = 0.95
    fdr: float = 0.1
    least: int = 10
    regression: bool = False
    has_log_rank: bool = True


def _values(kept: pl.DataFrame, by: str, against: str | None) -> tuple[str | None, list[str]]:
    """The value to compare with, by default the one with most runs, and the other values."""
    sizes = kept.group_by(by).len().sort(-pl.col("len").cast(pl.Int64), by)[by].to_list()
    if against is not None and against not in sizes:
        raise ArgumentError(f"against needs a value of {by}; found {against!r}.", f"{sizes[:3]}")
    base = against if against is not None else next(iter(sizes), None)
    return base, sorted(value for value in sizes if value != base)


def _pair(kept: pl.DataFrame, by: str, value: str, base: str | None) -> pl.DataFrame:
    runs = kept.filter(pl.col(by).is_in([value, base]))
    return runs.with_columns((pl.col(by) == value).alias(IS_FIRST))


def _rows(
    kept: pl.DataFrame, by: str, base: str | None, others: Sequence[str], options: _Options
) -> list[dict[str, Any]]:
    """Every measure of several values against one value."""
    return [
        row
        for value in others
        for row in _pair_rows(
            _pair(kept, by, value, base),
            {"dimension": by, "value": value, "against": base},
            options,
        )
    ]


def _prepared(runs: pl.DataFrame, by: str, columns: Sequence[str]) -> pl.DataFrame:
    """The counted runs, with their unit, the name of their stratum, and how they ended."""
    runs = with_units(runs)
    if "left_out" in runs.columns:
        runs = runs.filter(pl.col("left_out").is_null())
    is_stopped = (pl.col("ending") == "timed_out").fill_null(value=False)
    levels = (
        pl.format(f"{name} {{}}", pl.col(name).cast(pl.String).fill_null("not recorded"))
        for name in columns
    )
    # Only needed columns, because each pair copies them.
    kept = dict.fromkeys(("duration_s", UNIT, *columns))
    return runs.filter(pl.col(by).is_not_null()).select(
        *kept,
        pl.col("^(entry_s|weights?)$"),
        *({"project"} & {*runs.columns} - {*kept, by}),
        pl.col(by).cast(pl.String),
        pl.concat_str(*levels, separator=", ").alias(STRATUM_NAME),
        ended=pl.col("ended") & ~is_stopped,
        has_ended=pl.col("ended") | is_stopped,
        is_good=(pl.col("ending") == GOOD_END).fill_null(value=False),
    )


def _pair_rows(
    runs: pl.DataFrame, names: dict[str, Any], options: _Options
) -> list[dict[str, Any]]:
    """Every measure of one value against another, raw and adjusted."""
    columns = options.columns
    until = horizon(runs) if options.until_s is None else options.until_s
    is_unadjusted = "project" in runs.columns and "project" not in columns
    rows = []
    for method in METHODS:
        stratified = (
            runs if method == "adjusted" else runs.with_columns(pl.lit("all").alias(STRATUM_NAME))
        )
        measures = {
            "duration": (stratified, mean_and_influence),
            "completed": (stratified.with_columns(ended="has_ended"), incidence_and_influence),
        }
        projects = differing_projects(runs) if is_unadjusted or method == "raw" else None
        for measure, (counted, estimate) in measures.items():
            has_log_rank = options.has_log_rank and measure == "duration"
            row = difference(counted, estimate, until, projects, has_log_rank=has_log_rank)
            rows += [{**row, "measure": measure, "method": method}]
        if options.regression:
            terms = columns if method == "adjusted" else []
            rows += [
                {
                    **rows[-2],
                    "log_rank": None,
                    "measure": "hazard_ratio",
                    **hazard_ratio(stratified, IS_FIRST, terms),
                }
            ]
    return [_with_interval(row | names | {"until_s": until}, options) for row in rows]


def _with_interval(row: dict[str, Any], options: _Options) -> dict[str, Any]:
    """A row with its interval, where there are enough units, and its sentence."""
    if min(row["n_units"], row["n_units_against"]) >= options.least:
        row |= _interval(row, options.conf_level)
    row["in_words"] = _in_words(row, options.columns, options.least)
    return {name: row.get(name) for name in _MEASURED}


def _interval(row: dict[str, Any], conf_level: float) -> dict[str, Any]:
    """Interval and p-value by Student's distribution; for a ratio on the log scale."""
    if row["estimate"] is None or not row["variance"]:
        return {}
    is_ratio = row["measure"] == "hazard_ratio"
    centre = log(row["estimate"]) if is_ratio else row["estimate"]
    error = row["variance"] ** 0.5
    spread = student_quantile(conf_level, row["degrees"]) * error
    low, high = centre - spread, centre + spread
    return {
        "low": exp(low) if is_ratio else low,
        "high": exp(high) if is_ratio else high,
        "p_value": student_tail(centre / error, row["degrees"]),
        "log_rank_p": row["log_rank"],
    }


def _with_verdicts(rows: list[dict[str, Any]], fdr: float) -> pl.DataFrame:
    """The table of rows with q-values (one family per method), verdicts and reversals."""
    table = pl.DataFrame(rows, schema=_MEASURED)
    neutral = pl.when(pl.col("measure") == "hazard_ratio").then(1.0).otherwise(0.0)
    is_up = pl.col("estimate") > neutral
    is_significant = (pl.col("q_value") <= fdr).fill_null(value=False)
    verdict = (
        pl.when(pl.col("p_value").is_null())
        .then(pl.lit("not_enough_data"))
        .when(~is_significant)
        .then(pl.lit("no_difference"))
        .when(is_up)
        .then(pl.lit("higher"))
        .otherwise(pl.lit("lower"))
    )
    has_opposite_signs = is_up.n_unique() == len(METHODS)
    is_reversed = (
        has_opposite_signs & is_significant.any() & pl.col("p_value").is_not_null().all()
    ).over("value", "measure")
    order = pl.col("measure").replace_strict({name: i for i, name in enumerate(MEASURES)})
    return (
        table.with_columns(benjamini_hochberg(over="method"))
        .with_columns(verdict=verdict, is_reversed=is_reversed)
        .sort(~pl.col("is_reversed"), "value", order, pl.col("method") == "adjusted")
        .select(list(_COLUMNS))
    )


def _in_words(row: dict[str, Any], columns: Sequence[str], least: int) -> str:
    value, against = row["value"], row["against"]
    mix = f" with the same mix of {' and '.join(columns)}" if row["method"] == "adjusted" else ""
    if row.get("p_value") is None and min(row["n_units"], row["n_units_against"]) >= least:
        return f"{value} against {against}{mix}: cannot tell, nothing varies within either"
    if row.get("p_value") is None:
        units = f"{row['n_units']} and {row['n_units_against']} comparable invocations"
        return (
            f"{value} against {against}{mix}: not enough data, {units} (it takes {least} of each)"
        )
    within = how_long(row["until_s"], is_estimate=True)
    low, high, estimate = row["low"], row["high"], row["estimate"]
    if row["measure"] == "duration":
        ends = " to ".join(how_long(end, is_estimate=True) for end in (low, high))
        longer = "longer" if estimate > 0 else "shorter"
        return (
            f"{value} takes {how_long(abs(estimate), is_estimate=True)} {longer} than {against} "
            f"within {within} ({ends}){mix}"
        )
    if row["measure"] == "completed":
        more = "more" if estimate > 0 else "fewer"
        return (
            f"{value} completes {100 * abs(estimate):.0f} of 100 runs {more} than {against} "
            f"within {within} ({100 * low:+.0f} to {100 * high:+.0f}){mix}"
        )
    return f"{value} ends {estimate:.2f} times as fast as {against} ({low:.2f} to {high:.2f}){mix}"
