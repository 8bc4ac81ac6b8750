"""Other time limits that could be set: completions gained, hours spent, runs cut."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.words import CANDIDATES_S, how_long_each
from stateanalytics.errors import check_columns, check_number
from stateanalytics.survival.curves import kaplan_meier
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.time_limits import implicit_timeouts

SHORTEST_S, LONGEST_S = 300.0, 86_400.0
"""Limits beyond these are tried where they are asked for."""
GOOD_END = "completed"
WORK = "_work"
NEEDED = ("duration_s", "ended", "ending", "timeout_s", "left_out")
RESULT = (
    "candidate_s",
    "is_today",
    "n_runs",
    "n_longer",
    "completed",
    "completed_low",
    "completed_high",
    "cut",
    "cut_low",
    "cut_high",
    "run_hours",
    "gained_per_hour",
    "rescued",
    "rescued_low",
    "rescued_high",
    "is_identified",
    "identified_until_s",
    "in_words",
)


def timeout_candidates(
    spells: pl.DataFrame,
    candidates_s: Sequence[float] | None = None,
    *,
    by: str | Sequence[str] = ("kind",),
    conf_level: float = 0.95,
) -> pl.DataFrame:
    """For each time limit one could set: what completes, what is cut, and what it costs.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave. Runs that timed out count as cut off at their limit, however
        they were asked for: what they would have done later is the question.
    candidates_s : sequence of float, optional
        Limits in seconds, > 0; by default 5 min to 24 h. Today's limits are added.
    by : str or sequence of str
        Kinds of work that could get limits of their own.
    conf_level : float
        Level of the intervals.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_candidates, n_by + 18)
        ``candidate_s``; ``is_today`` (the most common limit of the stratum, declared or
        inferred); ``n_runs``, and ``n_longer`` of them that took longer; ``completed`` and
        ``cut``, shares of runs with intervals; ``run_hours``, the mean hours a run takes
        under that limit; ``gained_per_hour``, completions per extra run-hour since the
        candidate before; ``rescued``, the share of the runs that today's limit cuts which
        would have completed by this one, with its interval (null up to today's limit);
        ``is_identified`` and ``identified_until_s`` (null: without end), where the data
        end: beyond it everything but the counts is null; ``in_words``.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a candidate is not above 0.

    Notes
    -----
    ``completed`` is the incidence of completion and ``cut`` the survival at the
    candidate; ``run_hours`` is the restricted mean. They hold if limits were not chosen
    by how long the work was going to take: where harder work gets longer limits,
    stratify by ``timeout_s`` too. What runs beyond today's limit would do is only known
    from runs that had a longer one; without any it is not identified, and not guessed.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"kind": "flow", "duration_s": [60.0, 240.0, 600.0, 900.0],
    ...      "ended": [True, True, True, False], "left_out": None, "timeout_s": 900.0,
    ...      "ending": ["completed", "completed", "failed", "timed_out"]}
    ... )
    >>> table = timeout_candidates(runs, [300.0, 3600.0])
    >>> table.select("candidate_s", "completed", "is_today", "is_identified").rows()
    [(300.0, 0.5, False, True), (900.0, 0.5, True, True), (3600.0, None, False, False)]
    """
    strata = strata_of(by)
    check_columns(spells, (*NEEDED, *strata), "timeout_candidates")
    usual = [limit for limit in CANDIDATES_S if SHORTEST_S <= limit <= LONGEST_S]
    asked = usual if candidates_s is None else tuple(candidates_s)
    for limit in asked:
        check_number("Each of candidates_s", limit, 1800, is_above=True)
    kept = spells.filter(pl.col("left_out").is_null()).with_columns(
        ended=pl.col("ended") & (pl.col("ending") != "timed_out")
    )
    runs, names = (frame.rename({STRATUM: WORK}) for frame in number(kept, strata))
    runs = runs.with_columns(cause=pl.when("ended").then("ending"))
    today = _todays_limits(runs)
    grid = _grid(names, today, asked)
    curve = kaplan_meier(runs, by=WORK, conf_level=conf_level)
    placed = (
        grid.pipe(_at, _with_area(curve))
        .pipe(_at, _completions(runs, conf_level, "completed"))
        .pipe(_at_late, _rescued(runs, today, conf_level))
        .join(_ends_of_data(curve), on=WORK, how="left")
        .pipe(_count_longer, runs)
        .sort(WORK, "candidate_s")
    )
    hours = (
        pl.col("area").fill_null(0.0)
        + pl.col("cut").fill_null(1.0) * (pl.col("candidate_s") - pl.col("from_s").fill_null(0.0))
    ) / 3600
    is_known = (
        pl.col("identified_until_s").is_null() | (pl.col("candidate_s") <= pl.col("longest_s"))
    ) & pl.col("longest_s").is_not_null()
    measured = placed.with_columns(
        is_identified=is_known.fill_null(value=False),
        run_hours=hours,
        cut=pl.col("cut").fill_null(1.0),
        completed=pl.col("completed").fill_null(0.0),
    ).with_columns(
        pl.when("is_identified").then(name).alias(name)
        for name in (
            *("completed", "completed_low", "completed_high", "cut", "cut_low", "cut_high"),
            *("run_hours", "rescued", "rescued_low", "rescued_high"),
        )
    )
    gained, spent = (
        pl.col(name) - pl.col(name).shift(1, fill_value=0.0).over(WORK)
        for name in ("completed", "run_hours")
    )
    return (
        measured.with_columns(gained_per_hour=pl.when(spent > 0).then(gained / spent))
        .with_columns(in_words=_in_words())
        .join(names, on=WORK, how="left", maintain_order="left")
        .select(*strata, *RESULT)
    )


def _todays_limits(runs: pl.DataFrame) -> pl.DataFrame:
    """The most common limit of each stratum; where none is declared, the fullest heap."""
    declared = (
        runs.filter(pl.col("timeout_s") > 0)
        .group_by(WORK, today_s="timeout_s")
        .agg(n=pl.len())
        .sort("n", "today_s", descending=True)
        .unique(WORK, keep="first", maintain_order=True)
        .select(WORK, "today_s")
    )
    inferred = (
        implicit_timeouts(runs, by=WORK)
        .sort("n_at", "at_s", descending=True)
        .unique(WORK, keep="first", maintain_order=True)
        .select(WORK, today_s=pl.col("at_s").cast(pl.Float64))
        .join(declared, on=WORK, how="anti")
    )
    return pl.concat([declared, inferred])


def _grid(names: pl.DataFrame, today: pl.DataFrame, asked: Sequence[float]) -> pl.DataFrame:
    candidates = pl.DataFrame({"candidate_s": asked}, schema={"candidate_s": pl.Float64})
    return (
        pl.concat(
            [
                names.select(WORK).join(candidates, how="cross"),
                today.select(WORK, candidate_s="today_s"),
            ]
        )
        .unique()
        .join(today, on=WORK, how="left")
        .with_columns(is_today=(pl.col("candidate_s") == pl.col("today_s")).fill_null(value=False))
        .sort("candidate_s")
    )


def _with_area(curve: pl.DataFrame) -> pl.DataFrame:
    """The curve at each step, and the area below it up to there."""
    at = pl.col("duration_s")
    before = pl.col("survival").shift(1, fill_value=1.0)
    width = at - at.shift(1, fill_value=0.0)
    return curve.with_columns(area=(before * width).cum_sum().over(WORK)).select(
        WORK,
        "duration_s",
        "area",
        from_s="duration_s",
        cut="survival",
        cut_low="survival_low",
        cut_high="survival_high",
    )


def _completions(runs: pl.DataFrame, conf_level: float, name: str) -> pl.DataFrame:
    incidence = cumulative_incidence(runs, by=WORK, conf_level=conf_level)
    return incidence.filter(pl.col("cause") == GOOD_END).select(
        WORK,
        "duration_s",
        pl.col("incidence").alias(name),
        pl.col("incidence_low").alias(f"{name}_low"),
        pl.col("incidence_high").alias(f"{name}_high"),
    )


def _rescued(runs: pl.DataFrame, today: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """Completions among runs that went on beyond today's limit, as they did from there."""
    entry = pl.col("entry_s") if "entry_s" in runs.columns else pl.lit(None, pl.Float64)
    late = (
        runs.join(today, on=WORK, how="inner")
        .filter(pl.col("duration_s") > pl.col("today_s"))
        .with_columns(entry_s=pl.max_horizontal(entry, "today_s"))
        .filter(pl.col("duration_s") > pl.col("entry_s"))
    )
    longest = late.group_by(WORK).agg(late_until_s=pl.col("duration_s").max())
    # At today's limit itself nobody is rescued yet.
    start = longest.join(today, on=WORK).select(
        WORK,
        duration_s="today_s",
        rescued=pl.lit(0.0),
        rescued_low=pl.lit(None, pl.Float64),
        rescued_high=pl.lit(None, pl.Float64),
    )
    rescued = pl.concat([start, _completions(late, conf_level, "rescued")])
    return rescued.join(longest, on=WORK, how="left").sort("duration_s")


def _at(grid: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The step that holds at each candidate."""
    return grid.join_asof(
        steps.sort("duration_s"),
        left_on="candidate_s",
        right_on="duration_s",
        by=WORK,
        check_sortedness=False,
    ).drop("duration_s", strict=False)


def _at_late(grid: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The same beyond today's limit, as far as any run went on."""
    is_later = (pl.col("candidate_s") > pl.col("today_s")) & (
        pl.col("candidate_s") <= pl.col("late_until_s")
    )
    return _at(grid, steps).with_columns(
        pl.when(is_later).then(name).alias(name)
        for name in ("rescued", "rescued_low", "rescued_high")
    )


def _ends_of_data(curve: pl.DataFrame) -> pl.DataFrame:
    return (
        curve.group_by(WORK)
        .agg(longest_s=pl.col("duration_s").max(), left=pl.col("survival").min())
        .with_columns(identified_until_s=pl.when(pl.col("left") > 1e-9).then("longest_s"))
    )


def _count_longer(grid: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    lengths = runs.select(WORK, "duration_s").sort("duration_s")
    up_to = lengths.with_columns(n_up_to=pl.int_range(1, pl.len() + 1).over(WORK))
    sizes = runs.group_by(WORK).agg(n_runs=pl.len().cast(pl.Int64))
    return (
        _at(grid, up_to)
        .join(sizes, on=WORK, how="left")
        .with_columns(n_longer=pl.col("n_runs") - pl.col("n_up_to").fill_null(0))
    )


def _in_words() -> pl.Expr:
    known = pl.format(
        "with a limit of {}, {} % of runs complete and {} % are cut, at {} h a run",
        how_long_each("candidate_s"),
        _percent("completed"),
        _percent("cut"),
        pl.col("run_hours").round(2),
    )
    rescued = pl.format(
        "; of those that today's {} cuts, {} % ({} to {}) would have completed",
        how_long_each("today_s"),
        _percent("rescued"),
        _percent("rescued_low").fill_null("?"),
        _percent("rescued_high").fill_null("?"),
    )
    unknown = pl.format(
        "a limit of {} is not identified: the data end at {}, where {} % still run",
        how_long_each("candidate_s"),
        how_long_each("longest_s", is_estimate=True),
        _percent("left"),
    )
    return (
        pl.when("is_identified")
        .then(known + pl.when(pl.col("rescued").is_not_null()).then(rescued).otherwise(pl.lit("")))
        .otherwise(unknown.fill_null("not identified: no runs"))
    )


def _percent(share: str) -> pl.Expr:
    """A share as a whole number of percent, without the sign.

    Examples
    --------
    >>> pl.DataFrame({"x": [0.123]}).select(_percent("x"))["x"].to_list()
    ['12']
    """
    return (pl.col(share) * 100).round(0).cast(pl.Int64).cast(pl.String)
