"""Like with like: differences of durations and outcomes, raw and for the same mix of work."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share
from stateanalytics.state.policy import Policy
from stateanalytics.stats.distributions import (
    benjamini_hochberg,
    student_quantile,
    student_tail,
)
from stateanalytics.survival.by_unit import UNIT, with_units
from stateanalytics.survival.estimates import TOLERANCE
from stateanalytics.survival.influence import (
    incidence_and_influence,
    mean_and_influence,
    means,
    shares,
)
from stateanalytics.survival.regression import hazard_ratio
from stateanalytics.survival.risk_sets import strata_of
from stateanalytics.survival.run_spells import spells
from stateanalytics.survival.standardised import (
    FEWEST_UNITS,
    IS_FIRST,
    STRATUM_NAME,
    difference,
    differences,
    differing_projects,
    horizon,
)

GOOD_END = "completed"
MEASURES = {
    "duration": "difference of mean seconds within the horizon, however the run ended",
    "completed": "difference of the shares that completed within the horizon",
    "hazard_ratio": "how many times as fast runs end, by Cox's regression; 1: as fast",
}
METHODS = ("raw", "adjusted")
VERDICTS = ("higher", "lower", "no_difference", "not_enough_data")
RESULT = {
    **dict.fromkeys(("dimension", "value", "against", "measure", "method"), pl.String),
    "until_s": pl.Float64,
    **dict.fromkeys(("n_runs", "n_units", "n_runs_against", "n_units_against"), pl.Int64),
    **dict.fromkeys(("estimate", "low", "high", "p_value", "log_rank_p"), pl.Float64),
    "compared": pl.Float64,
    "not_compared": pl.String,
}


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
    """Which model (agent, project …) is slower, raw and with the same mix of work.

    Parameters
    ----------
    runs : polars.DataFrame, Snapshot or Facts
        What `spells` gave, or a snapshot, of which all runs are taken.
    by : str
        Column whose values are compared; runs without a value are in no group.
    adjust : str or sequence of str
        Columns that make up the mix, other than ``by``; null is a stratum of its own.
    against : str, optional
        The value that the others are compared with; by default that with most runs.
    until_s : float, optional
        Horizon in seconds; by default of each pair the duration by which nine in ten have
        ended, or the longest that both were seen for, whichever comes first.
    conf_level : float
        Level of the intervals, each by itself.
    fdr : float
        False discovery rate over all comparisons of one method.
    least : int
        Units (invocations) that each group needs; with fewer nothing is concluded.
    regression : bool
        Add Cox's regression, which needs the extra ``stateanalytics[models]``.
    policy : Policy, optional
        For computing states, where a snapshot is given.

    Returns
    -------
    polars.DataFrame, shape (n_values * n_measures * 2, 21)
        ``dimension``, ``value``, ``against``; ``measure``, a key of `MEASURES`;
        ``method``: raw, adjusted; ``until_s``; ``n_runs`` and ``n_units`` of the value and
        of what it is compared with, as far as they were compared; ``estimate`` (of value
        minus against, or the ratio) with its interval and ``p_value``; ``log_rank_p``, of
        a duration that of the log-rank test, stratified where adjusted; ``compared``, the
        share of runs in strata that both have, and ``not_compared``, the largest others;
        ``q_value``; ``verdict``, one of `VERDICTS`; ``is_reversed``: raw and adjusted point
        in opposite directions, one of them beyond chance (Simpson's paradox);
        ``in_words``. Reversed ones first.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or an argument makes no sense.
    MissingComponentError
        If a regression is asked for and its library is not installed.

    Notes
    -----
    Adjusted differences are standardised directly: the difference within each stratum that
    both have, weighed by the runs of both in it [1]_. A stratum counts where each group has
    three units in it that can be followed up to the horizon. The variance is the
    jackknife's by unit, so that runs of one fan-out are no witnesses of their own, with
    Welch's degrees of freedom; where eight projects or more are not adjusted for, it is
    that by project, if that is larger. Weights are held fixed: what is said holds for this
    mix. With fewer than 15 units in a group, all of them large fan-outs of runs much alike,
    an interval of 95 % holds the truth in 90 to 93 %. A run that timed out is cut off for a
    duration and has ended for an outcome.
    No adjustment helps against what is in none of the columns: harder work that only one
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
    asked = _Asked(columns, until_s, conf_level, fdr, least, regression)
    kept = _prepared(known, by, columns)
    base, others = _values(kept, by, against)
    return _judged(_rows(kept, by, base, others, asked), fdr)


def reversals(runs: pl.DataFrame, by: str = "model") -> pl.DataFrame:
    """Those rows of `compare` that the mix of work turns round, without log-rank tests."""
    asked = _Asked(["kind", "project"], has_log_rank=False)
    kept = _prepared(runs, by, asked.columns)
    base, others = _values(kept, by, None)
    # How much a difference varies takes most of the time: it is asked where that can matter.
    suspects = _turned(kept, by, base, others)
    told = _rows(kept, by, base, suspects, asked)
    if not any(row["p_value"] is not None and row["p_value"] <= asked.fdr for row in told):
        others = []
    return _judged(_rows(kept, by, base, others, asked), asked.fdr).filter("is_reversed")


def _turned(kept: pl.DataFrame, by: str, base: str | None, others: Sequence[str]) -> list[str]:
    """Values whose differences, raw and adjusted, may point in opposite directions."""
    if base is None:
        return []
    until_s = {value: horizon(_pair_of(kept, by, value, base)) for value in others}
    of_measures = ((kept, means), (kept.with_columns(ended="has_ended"), shares))
    found = [
        tuple(
            differences(rows, by, base, until_s, estimate)
            for rows in (counted.with_columns(pl.lit("all").alias(STRATUM_NAME)), counted)
        )
        for counted, estimate in of_measures
    ]
    return [
        value
        for value in others
        if any(raw[value] * adjusted[value] <= TOLERANCE for raw, adjusted in found)
    ]


class _Asked(NamedTuple):
    """What `compare` is asked for, beside what it compares."""

    columns: Sequence[str]
    until_s: float | None = None
    conf_level: float = 0.95
    fdr: float = 0.1
    least: int = 10
    regression: bool = False
    has_log_rank: bool = True


def _values(kept: pl.DataFrame, by: str, against: str | None) -> tuple[str | None, list[str]]:
    """What is compared with, by default what most runs have, and the other values."""
    sizes = kept.group_by(by).len().sort(-pl.col("len").cast(pl.Int64), by)[by].to_list()
    if against is not None and against not in sizes:
        raise ArgumentError(f"against needs a value of {by}; found {against!r}.", f"{sizes[:3]}")
    base = against if against is not None else next(iter(sizes), None)
    return base, sorted(value for value in sizes if value != base)


def _pair_of(kept: pl.DataFrame, by: str, value: str, base: str | None) -> pl.DataFrame:
    of_both = kept.filter(pl.col(by).is_in([value, base]))
    return of_both.with_columns((pl.col(by) == value).alias(IS_FIRST))


def _rows(
    kept: pl.DataFrame, by: str, base: str | None, others: Sequence[str], asked: _Asked
) -> list[dict[str, Any]]:
    """Every measure of several values against one."""
    return [
        row
        for value in others
        for row in _pair(
            _pair_of(kept, by, value, base),
            {"dimension": by, "value": value, "against": base},
            asked,
        )
    ]


def _prepared(runs: pl.DataFrame, by: str, columns: Sequence[str]) -> pl.DataFrame:
    """Runs that count, with their unit, the words of their stratum, and how they ended."""
    runs = with_units(runs)
    if "left_out" in runs.columns:
        runs = runs.filter(pl.col("left_out").is_null())
    is_stopped = (pl.col("ending") == "timed_out").fill_null(value=False)
    words = (
        pl.format(f"{name} {{}}", pl.col(name).cast(pl.String).fill_null("not recorded"))
        for name in columns
    )
    # What nobody asks for would be copied for each pair.
    kept = dict.fromkeys(("duration_s", UNIT, *columns))
    return runs.filter(pl.col(by).is_not_null()).select(
        *kept,
        pl.col("^(entry_s|weights?)$"),
        *({"project"} & {*runs.columns} - {*kept, by}),
        pl.col(by).cast(pl.String),
        pl.concat_str(*words, separator=", ").alias(STRATUM_NAME),
        ended=pl.col("ended") & ~is_stopped,
        has_ended=pl.col("ended") | is_stopped,
        is_good=(pl.col("ending") == GOOD_END).fill_null(value=False),
    )


def _pair(runs: pl.DataFrame, named: dict[str, Any], asked: _Asked) -> list[dict[str, Any]]:
    """Every measure of one value against another, raw and adjusted."""
    columns = asked.columns
    until = horizon(runs) if asked.until_s is None else asked.until_s
    is_unadjusted = "project" in runs.columns and "project" not in columns
    rows = []
    for method in METHODS:
        mixed = (
            runs if method == "adjusted" else runs.with_columns(pl.lit("all").alias(STRATUM_NAME))
        )
        measures = {
            "duration": (mixed, mean_and_influence),
            "completed": (mixed.with_columns(ended="has_ended"), incidence_and_influence),
        }
        projects = differing_projects(runs) if is_unadjusted or method == "raw" else None
        for measure, (counted, estimate) in measures.items():
            has_log_rank = asked.has_log_rank and measure == "duration"
            found = difference(counted, estimate, until, projects, has_log_rank=has_log_rank)
            rows += [{**found, "measure": measure, "method": method}]
        if asked.regression:
            terms = columns if method == "adjusted" else []
            rows += [
                {
                    **rows[-2],
                    "log_rank": None,
                    "measure": "hazard_ratio",
                    **hazard_ratio(mixed, IS_FIRST, terms),
                }
            ]
    told = (row | named | {"until_s": until} for row in rows)
    return [_told(row, columns, asked.conf_level, asked.least) for row in told]


def _told(
    row: dict[str, Any], columns: Sequence[str], conf_level: float, least: int
) -> dict[str, Any]:
    """A row with its interval, where there are units enough for one, and its words."""
    is_enough = min(row["n_units"], row["n_units_against"]) >= least
    whole = row | (_interval(row, conf_level) if is_enough else {})
    whole["in_words"] = _in_words(whole, columns, least)
    return {name: whole.get(name) for name in (*RESULT, "in_words")}


def _interval(row: dict[str, Any], conf_level: float) -> dict[str, Any]:
    """Interval and p-value by Student's distribution; of a ratio on the scale of its logarithm."""
    if row["estimate"] is None or not row["variance"]:
        return {}
    is_ratio = row["measure"] == "hazard_ratio"
    middle = log(row["estimate"]) if is_ratio else row["estimate"]
    error = row["variance"] ** 0.5
    spread = student_quantile(conf_level, row["degrees"]) * error
    low, high = middle - spread, middle + spread
    return {
        "low": exp(low) if is_ratio else low,
        "high": exp(high) if is_ratio else high,
        "p_value": student_tail(middle / error, row["degrees"]),
        "log_rank_p": row["log_rank"],
    }


def _judged(told: list[dict[str, Any]], fdr: float) -> pl.DataFrame:
    """Verdicts, with all comparisons of one method as a family, and who is turned round."""
    rows = pl.DataFrame(told, schema={**RESULT, "in_words": pl.String})
    neutral = pl.when(pl.col("measure") == "hazard_ratio").then(1.0).otherwise(0.0)
    is_up = pl.col("estimate") > neutral
    is_found = (pl.col("q_value") <= fdr).fill_null(value=False)
    verdict = (
        pl.when(pl.col("p_value").is_null())
        .then(pl.lit("not_enough_data"))
        .when(~is_found)
        .then(pl.lit("no_difference"))
        .when(is_up)
        .then(pl.lit("higher"))
        .otherwise(pl.lit("lower"))
    )
    of_both = ["value", "measure"]
    is_reversed = (
        (is_up.n_unique() == len(METHODS)) & is_found.any() & pl.col("p_value").is_not_null().all()
    ).over(of_both)
    order = pl.col("measure").replace_strict({name: i for i, name in enumerate(MEASURES)})
    return (
        rows.with_columns(benjamini_hochberg(over="method"))
        .with_columns(verdict=verdict, is_reversed=is_reversed)
        .sort(~pl.col("is_reversed"), "value", order, pl.col("method") == "adjusted")
        .select(*RESULT, "q_value", "verdict", "is_reversed", "in_words")
    )


def _in_words(row: dict[str, Any], columns: Sequence[str], least: int) -> str:
    value, against = row["value"], row["against"]
    mix = f" with the same mix of {' and '.join(columns)}" if row["method"] == "adjusted" else ""
    if row.get("p_value") is None and min(row["n_units"], row["n_units_against"]) >= least:
        return f"{value} against {against}{mix}: cannot tell, nothing varies within either"
    if row.get("p_value") is None:
        found = f"{row['n_units']} and {row['n_units_against']} comparable invocations"
        return (
            f"{value} against {against}{mix}: not enough data, {found} (it takes {least} of each)"
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
