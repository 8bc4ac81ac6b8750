"""Like with like: differences of durations and outcomes, raw and for the same mix of work.

The mix is held equal by direct standardisation over strata, and by Cox's regression.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, log
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, collected_each
from stateanalytics.core.shapes import frame
from stateanalytics.core.words import first_word, how_long
from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share, needing
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.stats.distributions import benjamini_hochberg, student_quantile, student_tail
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
from stateanalytics.survival.log_rank import logrank
from stateanalytics.survival.risk_sets import (
    STRATUM,
    TOLERANCE,
    checked_spells,
    known_survival,
    risk_sets,
    strata_of,
)
from stateanalytics.survival.run_spells import spells

MEASURES = ("duration", "completed", "hazard_ratio")
METHODS = ("raw", "adjusted")
_COLUMNS = frame(Compare).dtypes
_JUDGED = ("q_value", "verdict", "is_reversed")
_MEASURED = {name: dtype for name, dtype in _COLUMNS.items() if name not in _JUDGED}
Estimate: TypeAlias = Callable[[pl.DataFrame, list[str], float], tuple[pl.LazyFrame, pl.DataFrame]]
Estimates: TypeAlias = Callable[[pl.LazyFrame, float], tuple[pl.LazyFrame, pl.LazyFrame]]
IS_FIRST, STRATUM_NAME = "_is_first", "_stratum_name"
"""Columns: whether a run is in the first of the two groups, and the name of its stratum."""
FEWEST_UNITS = 3
"""Units of each group that a stratum needs, so that the variance between units is estimable."""
_MOST_NAMED = 3
_MOST_ENDED, _MOST_TIMES = 0.9, 10
_BOTH = 2
VANISHES = ": the difference vanishes with the same mix"
FEWEST_ENDS = 5
"""Levels of a term of the regression with fewer ends become one level, *other*."""


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
        ended, or the longest follow-up of both, whichever comes first, and at most ten times
        what nine in ten runs took.
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
        ``dimension``, ``value``, ``against``; ``measure``: duration (difference of mean
        seconds within the horizon, however the run ended), completed (difference of the
        shares that completed within it), hazard_ratio (ratio of the rates at which runs end,
        by Cox's regression; 1: equal); ``method``: raw, adjusted; ``until_s``; ``n_runs`` and
        ``n_units`` compared, of the value and of the one it is compared with; ``estimate`` (value
        minus against, or the ratio) with its interval and ``p_value``; ``log_rank_p``, for a
        duration the p-value of the log-rank test, stratified where adjusted; ``compared``, the
        share of runs in strata that both have, and ``not_compared``, the largest other strata;
        ``q_value``; ``verdict``: higher, lower, no_difference, not_enough_data; ``is_reversed``:
        raw and adjusted have opposite signs, both significant (Simpson's paradox); ``in_words``,
        which also says where a difference vanishes: significant, and of the opposite sign but no
        longer significant where adjusted.
        Reversed rows first.

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
    options = _Options(columns, conf_level, fdr, least, regression)
    kept = _prepared(known, by, columns)
    base, others = _values(kept, by, against)
    horizons_s = (
        _horizons(kept, by, base, others) if until_s is None else dict.fromkeys(others, until_s)
    )
    return _with_verdicts(_rows(kept, by, base, horizons_s, options), fdr)


def reversals(runs: pl.DataFrame, by: str = "model") -> pl.DataFrame:
    """Pairs of rows of `compare` that are reversed or vanish, without log-rank tests."""
    options = _Options(["kind", "project"], has_log_rank=False)
    kept = _prepared(runs, by, options.columns)
    base, others = _values(kept, by, None)
    # Variances take most of the time, so first they are computed where signs may differ. If no
    # raw difference is significant there, or among all, nothing is reversed.
    until_s = _horizons(kept, by, base, others)
    suspects = _with_opposite_signs(kept, by, base, until_s)
    of_others = {value: until for value, until in until_s.items() if value not in suspects}
    raw, adjusted = (options._replace(methods=[method]) for method in METHODS)
    rows = _rows(kept, by, base, suspects, raw)
    if any(row["p_value"] is not None and row["p_value"] <= options.fdr for row in rows):
        rows += _rows(kept, by, base, of_others, raw)
        if (_with_verdicts(rows, options.fdr)["q_value"] <= options.fdr).any():
            rows += _rows(kept, by, base, until_s, adjusted)
    judged = _with_verdicts(rows, options.fdr)
    vanishes = pl.col("in_words").str.ends_with(VANISHES).any().over("value", "measure")
    return judged.filter(vanishes | pl.col("is_reversed"))


def _with_opposite_signs(
    kept: pl.DataFrame, by: str, base: str | None, until_s: Mapping[str, float]
) -> dict[str, float]:
    """The horizons of values with raw and adjusted differences that may have opposite signs."""
    if base is None:
        return {}
    measures = ((kept, restricted_means), (kept.with_columns(ended="has_ended"), good_shares))
    estimates = [
        tuple(
            differences(stratified, by, base, until_s, estimate)
            for stratified in (runs.with_columns(pl.lit("all").alias(STRATUM_NAME)), runs)
        )
        for runs, estimate in measures
    ]
    return {
        value: until
        for value, until in until_s.items()
        if any(raw[value] * adjusted[value] <= TOLERANCE for raw, adjusted in estimates)
    }


class _Options(NamedTuple):
    """Options of `compare`."""

    columns: Sequence[str]
    conf_level: float = 0.95
    fdr: float = 0.1
    least: int = 10
    regression: bool = False
    has_log_rank: bool = True
    methods: Sequence[str] = METHODS


def _values(kept: pl.DataFrame, by: str, against: str | None) -> tuple[str | None, list[str]]:
    """The value to compare with, by default the one with most runs, and the other values."""
    counts = kept[by].value_counts(sort=False).iter_rows()
    sizes = [value for value, _ in sorted(counts, key=lambda each: (-each[1], each[0]))]
    if against is not None and against not in sizes:
        raise ArgumentError(f"against needs a value of {by}; found {against!r}.", f"{sizes[:3]}")
    base = against if against is not None else next(iter(sizes), None)
    return base, sorted(value for value in sizes if value != base)


def _pair(kept: pl.DataFrame, by: str, value: str, base: str | None) -> pl.LazyFrame:
    runs = kept.lazy().filter(pl.col(by).is_in([value, base]))
    return runs.with_columns((pl.col(by) == value).alias(IS_FIRST))


def _horizons(
    kept: pl.DataFrame, by: str, base: str | None, others: Sequence[str]
) -> dict[str, float]:
    return {value: horizon(_pair(kept, by, value, base).pipe(collected)) for value in others}


def _rows(
    kept: pl.DataFrame, by: str, base: str | None, until_s: Mapping[str, float], options: _Options
) -> list[dict[str, Any]]:
    """Every measure of several values, within the horizon of each, against one value."""
    return [
        row
        for value, until in until_s.items()
        for row in _pair_rows(
            _pair(kept, by, value, base).pipe(collected),
            {"dimension": by, "value": value, "against": base, "until_s": until},
            options,
        )
    ]


def _prepared(runs: pl.DataFrame, by: str, columns: Sequence[str]) -> pl.DataFrame:
    """The counted runs, with their unit, the name of their stratum, and how they ended."""
    runs = with_units(runs)
    is_counted = pl.col("left_out").is_null() if "left_out" in runs.columns else pl.lit(value=True)
    is_stopped = (pl.col("ending") == "timed_out").fill_null(value=False)
    levels = (
        pl.format(f"{name} {{}}", pl.col(name).cast(pl.String).fill_null("not recorded"))
        for name in columns
    )
    # Only needed columns, because each pair copies them.
    kept = dict.fromkeys(("duration_s", UNIT, *columns))
    prepared = (
        runs.lazy()
        .filter(is_counted, pl.col(by).is_not_null())
        .select(
            *kept,
            pl.col("^(entry_s|weights?)$"),
            *({"project"} & {*runs.columns} - {*kept, by}),
            pl.col(by).cast(pl.String),
            pl.concat_str(*levels, separator=", ").alias(STRATUM_NAME),
            ended=pl.col("ended") & ~is_stopped,
            has_ended=pl.col("ended") | is_stopped,
            is_good=(pl.col("ending") == GOOD_END).fill_null(value=False),
        )
    )
    return collected(prepared)


def _pair_rows(
    runs: pl.DataFrame, names: dict[str, Any], options: _Options
) -> list[dict[str, Any]]:
    """Every measure of one value against another, raw and adjusted."""
    columns = options.columns
    is_unadjusted = "project" in runs.columns and "project" not in columns
    rows = []
    for method in options.methods:
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
            row = difference(
                counted, estimate, names["until_s"], projects, has_log_rank=has_log_rank
            )
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
    return [_with_interval(row | names, options) for row in rows]


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
    verdict = first_word(
        "lower",
        not_enough_data=pl.col("p_value").is_null(),
        no_difference=~is_significant,
        higher=is_up,
    )
    has_opposite_signs = is_up.n_unique() == len(METHODS)
    is_reversed = (has_opposite_signs & is_significant.all()).over("value", "measure")
    is_raw, is_known = pl.col("method") == "raw", pl.col("p_value").is_not_null()
    in_raw = (is_raw & is_significant).any() & has_opposite_signs
    vanishes = ~is_raw & ~is_significant & is_known & in_raw.over("value", "measure")
    order = pl.col("measure").replace_strict({name: i for i, name in enumerate(MEASURES)})
    words = pl.col("in_words")
    return collected(
        table.lazy()
        .with_columns(benjamini_hochberg(over="method"))
        .with_columns(
            verdict=verdict,
            is_reversed=is_reversed,
            in_words=pl.when(vanishes).then(words + pl.lit(VANISHES)).otherwise(words),
        )
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
            f"{value} against {against}{mix}: not enough data, {units} ({least} of each are needed)"
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
        more, n = "more" if estimate > 0 else "fewer", round(100 * abs(estimate))
        return (
            f"{value} completes {n or 'less than 1'} of 100 runs {more} than {against} "
            f"within {within} ({100 * low:+.0f} to {100 * high:+.0f}){mix}"
        )
    return f"{value} ends {estimate:.2f} times as fast as {against} ({low:.2f} to {high:.2f}){mix}"


# --- two groups: direct standardisation, and Cox's regression ------------------------------


def difference(
    runs: pl.DataFrame,
    estimate: Estimate,
    until_s: float,
    projects: pl.DataFrame | None,
    *,
    has_log_rank: bool,
) -> dict[str, Any]:
    """The standardised difference of the two groups, first minus second, and its variance.

    Parameters
    ----------
    runs : polars.DataFrame
        As for ``estimate``, with ``unit``, `IS_FIRST` and `STRATUM_NAME`.
    estimate : callable
        `mean_and_influence` or `incidence_and_influence`.
    until_s : float
        The horizon, in seconds.
    projects : polars.DataFrame, optional
        From `differing_projects`, where projects are not adjusted for.
    has_log_rank : bool
        Whether to run the log-rank test, which takes as long as the rest.

    Returns
    -------
    dict
        ``estimate`` with its ``variance`` and Welch's ``degrees`` of freedom (None where no
        stratum has both groups), what was compared and what was not, and ``log_rank``: the
        p-value of the log-rank test over all strata, by unit.
    """
    key = [STRATUM_NAME, IS_FIRST]
    estimates, influences = estimate(runs, key, until_s)
    sizes = runs.lazy().group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    cells = _comparable(estimates.join(sizes, on=key)).pipe(collected)
    kept = runs.filter(pl.col(STRATUM_NAME).is_in(cells[STRATUM_NAME].to_list()))
    row = _group_sizes(kept) | _coverage(runs, cells)
    if cells.is_empty():
        return row | {"estimate": None, "variance": None, "degrees": None}
    influence = _unit_influence(influences, cells)
    n, square = pl.col("n_units"), pl.col("influence") ** 2
    squares = influence.group_by(STRATUM, "n_units").agg(_total(square))
    sums = [
        influence.group_by("unit").agg(_total("influence")).select(_sum_of_squares()),
        # Welch and Satterthwaite: (sum of variances)² over the sum of variance² / (n - 1).
        squares.select(in_all=_total("influence"), spread=_total(square / (n - 1))),
    ]
    if projects is not None:
        of_projects = influence.join(projects.lazy(), on="unit").group_by("project")
        by_project = of_projects.agg(_total("influence"))
        sums.append(by_project.select(n_projects=pl.len(), of_projects=_sum_of_squares()))
    variance, in_all, spread, *varied = pl.concat(sums, how="horizontal").pipe(collected).row(0)
    if estimate is incidence_and_influence:
        variance += _minimum_variance(cells)
    degrees = in_all**2 / spread if spread else inf
    n_projects, project_variance = varied or (0, 0.0)
    # A single project in these strata does not show how much projects vary.
    if n_projects > 1:
        project_variance *= n_projects / (n_projects - 1)
        if project_variance > variance:
            variance, degrees = project_variance, n_projects - 1
    log_rank = None
    if has_log_rank:
        log_rank = logrank(kept, IS_FIRST, strata=STRATUM_NAME)["p_value"].item()
    return row | {
        "estimate": _weighted_sum(cells),
        "variance": variance,
        "degrees": max(degrees, 1.0),
        "log_rank": log_rank,
    }


def differences(
    runs: pl.DataFrame, by: str, base: str, until_s: Mapping[str, float], estimate: Estimates
) -> dict[str, float]:
    """The standardised differences of several groups from one, without variances: much faster.

    Parameters
    ----------
    runs : polars.DataFrame
        As for `difference`, with the column ``by`` in place of `IS_FIRST`, and ``is_good``.
    by, base : str
        The column of groups, and the group that the others are compared with.
    until_s : mapping of str to float
        Horizon of each other group.
    estimate : callable
        `restricted_means` or `good_shares`.

    Returns
    -------
    dict of str to float
        By group; 0 where no stratum has both groups.
    """
    key, counts = [STRATUM_NAME, by], {"n_good": pl.col("is_good") & pl.col("ended")}
    sizes = runs.lazy().group_by(key).agg(n_runs=pl.len(), n_units=pl.col("unit").n_unique())
    sets = risk_sets(checked_spells(runs, key, "compare", also=["is_good"]), key, counts)
    all_cells = sets.strata.join(sizes, on=key).pipe(collected)
    table = sets.table.pipe(collected).lazy()
    pairs = [
        _comparable(estimate(table, until)[1].join(_pair(all_cells, by, value, base), on=STRATUM))
        for value, until in until_s.items()
    ]
    return dict(zip(until_s, map(_weighted_sum, collected_each(pairs)), strict=True))


def _comparable(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The cells of strata with enough units of both groups, with signed weights."""
    n, sign = pl.col("n_runs"), pl.when(IS_FIRST).then(1.0).otherwise(-1.0)
    return (
        rows.filter("is_reached", pl.col("n_units") >= FEWEST_UNITS)
        .filter(pl.len().over(STRATUM_NAME) == _BOTH)
        .with_columns(weight=n.sum().over(STRATUM_NAME) / n.sum() * sign)
    )


def _weighted_sum(cells: pl.DataFrame) -> float:
    return float((cells["weight"] * cells["estimate"]).sort().sum())


def _unit_influence(influences: pl.DataFrame, cells: pl.DataFrame) -> pl.LazyFrame:
    """Influence of each unit on the difference, per cell; at least that of independent runs.

    Few units that happen to be similar understate the variance between units.
    """
    n, square = pl.col("n_units"), pl.col("influence") ** 2
    # The factor n / (n - 1) turns influences into the differences that leaving one unit out
    # makes (the delete-one jackknife), which holds better with few units.
    weight = pl.col("weight") * n / (n - 1)
    by_unit = (
        influences.lazy()
        .group_by(STRATUM, "unit")
        .agg(_total("influence"), independent=_total(square))
    )
    effect = _total("independent").over(STRATUM) / _total(square).over(STRATUM)
    weights = cells.lazy().select(STRATUM, "n_units", weight=weight)
    widening = effect.fill_nan(1.0).clip(lower_bound=1.0, upper_bound=1e6).sqrt()
    influence = pl.col("influence") * pl.col("weight") * widening
    return by_unit.join(weights, on=STRATUM).select(STRATUM, "unit", "n_units", influence=influence)


def _minimum_variance(cells: pl.DataFrame) -> float:
    """Binomial variance of shares of 0 or 1, which vary between no units: half a run is added.

    In other cells the variance between units is better.
    """
    n, share = pl.col("n_runs"), pl.col("estimate")
    smoothed = (share * n + 0.5) / (n + 1)
    variance = pl.col("weight") ** 2 * smoothed * (1 - smoothed) / (n + 1)
    is_all_or_none = (share <= 0) | (share >= 1 - TOLERANCE)
    return float(cells.select(_total(variance.filter(is_all_or_none))).item())


def _sum_of_squares() -> pl.Expr:
    return _total(pl.col("influence") * pl.col("influence"))


def _group_sizes(kept: pl.DataFrame) -> dict[str, int]:
    """Compared runs and units of both groups."""
    is_value, unit = kept[IS_FIRST], kept["unit"]
    first, second = unit.filter(is_value), unit.filter(~is_value)
    return {
        "n_runs": first.len(),
        "n_units": first.n_unique(),
        "n_runs_against": second.len(),
        "n_units_against": second.n_unique(),
    }


def _coverage(runs: pl.DataFrame, cells: pl.DataFrame) -> dict[str, Any]:
    """Share of runs in strata with both groups, and the largest other strata in words."""
    of_strata, compared = runs[STRATUM_NAME].value_counts().iter_rows(), {*cells[STRATUM_NAME]}
    counts = [(name, n) for name, n in of_strata if name not in compared]
    others = sorted(counts, key=lambda each: (-each[1], each[0]))
    words = [f"{name} ({n} run{'s' * (n > 1)})" for name, n in others[:_MOST_NAMED]]
    n_more = len(others) - len(words)
    words += [f"{n_more} more"] if n_more else []
    return {
        "compared": 1 - sum(n for _, n in others) / runs.height,
        "not_compared": "; ".join(words) or None,
    }


def horizon(runs: pl.DataFrame) -> float:
    """The longest duration to which both groups are known, at most until nine in ten have ended.

    And at most ten times as long as nine in ten runs were observed.
    """
    # Risk sets only: the variance of the curves would take several times as long.
    rows = checked_spells(runs, [IS_FIRST], "compare")
    by_group, pooled = (
        risk_sets(rows, strata).table.with_columns(survival=known_survival())
        for strata in ([IS_FIRST], [])
    )
    at, value = pl.col("duration_s"), pl.col("survival")
    # A curve that reaches 0 is known for all longer durations as well.
    known_s = pl.when(value.min() > TOLERANCE).then(at.max())
    of_groups = by_group.group_by(STRATUM).agg(at.max(), known_s=known_s)
    most_ended = at.filter(value <= 1 - _MOST_ENDED + TOLERANCE).min()
    limits = pl.concat(
        [
            of_groups.select(pl.col("known_s").min(), at.max()),
            pooled.select(most_ended_s=most_ended),
        ],
        how="horizontal",
    )
    # Of a few runs with wrong clocks the last ones may take years.
    most_s = rows["duration_s"].quantile(_MOST_ENDED, "higher")
    known = (*limits.pipe(collected).row(0), most_s * _MOST_TIMES if most_s else None)
    return float(min(limit for limit in known if limit is not None))


def differing_projects(runs: pl.DataFrame) -> pl.DataFrame | None:
    """The project of each unit; None with too few projects to estimate how much they vary."""
    if "project" not in runs.columns or runs["project"].drop_nulls().n_unique() < FEWEST_PROJECTS:
        return None
    # A unit without a project counts as a project of its own.
    own = pl.lit("\n") + pl.col("unit").cast(pl.String)
    projects = runs.group_by("unit").agg(pl.col("project").min())
    return projects.with_columns(pl.coalesce("project", own))


def _total(values: str | pl.Expr) -> pl.Expr:
    """The sum in sorted order: the same to the last digit, whatever the order of the rows."""
    return (pl.col(values) if isinstance(values, str) else values).sort().sum()


# --- Cox's regression, an extra of its own -----------------------------------------------


def hazard_ratio(runs: pl.DataFrame, group: str, terms: Sequence[str]) -> dict[str, Any]:
    """Hazard ratio of a group against the others, given the terms.

    Parameters
    ----------
    runs : polars.DataFrame
        ``duration_s``, ``ended``, ``unit``, the Boolean ``group`` and the terms; optional
        ``entry_s``.
    group : str
        The Boolean column.
    terms : sequence of str
        Columns to adjust for. The one with most levels stratifies (each level has a baseline
        hazard of its own), the others are proportional.

    Returns
    -------
    dict
        ``estimate`` (the ratio), ``variance`` of its logarithm, by unit, and ``degrees`` of
        freedom; None where the groups were never at risk together.

    Raises
    ------
    MissingComponentError
        If statsmodels is not installed.

    Notes
    -----
    Ties as in Breslow's likelihood. Where hazards cross, one ratio is misleading: look at the
    curves.
    """
    with needing(
        "statsmodels", "A regression", extra="models", instead="leave out regression=True"
    ):
        import numpy as np
        from statsmodels.duration.hazard_regression import PHReg
    nothing = {"estimate": None, "variance": None, "degrees": None}
    rows = runs.with_columns(_level(name) for name in terms)
    by_levels = sorted(terms, key=lambda name: (rows[name].n_unique(), name))
    stratum = pl.col(by_levels[-1]).rank("dense") if terms else pl.lit(1)
    if rows.filter("ended")[group].n_unique() < 2:
        return nothing
    design = pl.concat(
        [
            rows.select(pl.col(group).cast(pl.Float64)),
            *(rows.select(name).to_dummies(drop_first=True) for name in by_levels[:-1]),
        ],
        how="horizontal",
    )
    # statsmodels needs positive durations; runs of no length were at risk as well.
    data = rows.select(
        pl.col("duration_s").clip(lower_bound=1e-9),
        pl.col("ended").cast(pl.Int64),
        pl.col("^entry_s$").fill_null(0.0),
        pl.col("unit").rank("dense").cast(pl.Int64),
        stratum=stratum,
    )
    columns = {name: np.array(data[name].to_list()) for name in data.columns}
    model = PHReg(
        columns["duration_s"],
        np.array(design.rows(), dtype=float),
        status=columns["ended"],
        strata=columns["stratum"],
        entry=columns.get("entry_s"),
        ties="breslow",
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ratio = model.fit(disp=False).params
        inverse = np.linalg.inv(model.hessian(ratio))
    except np.linalg.LinAlgError:  # no stratum has both groups
        return nothing
    units = columns["unit"] - 1
    scores = np.zeros((units.max() + 1, design.width))
    # The library gives no residual to a run that was at risk at no end; its influence is 0.
    np.add.at(scores, units, np.nan_to_num(model.score_residuals(ratio)))
    variance = float((inverse @ scores.T @ scores @ inverse)[0, 0])
    if not 0 < variance < float("inf"):
        return nothing
    n_units = rows.group_by(group).agg(pl.col("unit").n_unique())["unit"].to_list()
    return {
        "estimate": float(np.exp(ratio[0])),
        "variance": variance * len(scores) / (len(scores) - 1),
        "degrees": max(1, min(n_units) - 1),
    }


def _level(name: str) -> pl.Expr:
    """Levels of a term, rare ones merged: without ends a level has no hazard of its own."""
    n_ends = pl.col("ended").sum().over(name)
    words = pl.col(name).cast(pl.String).fill_null("not recorded")
    return pl.when(n_ends >= FEWEST_ENDS).then(words).otherwise(pl.lit("other")).alias(name)
