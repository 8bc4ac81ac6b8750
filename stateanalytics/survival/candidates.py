"""Limits that could be set: other time limits, and other thresholds for "slow"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.schema import MOMENT
from stateanalytics.core.words import CANDIDATES_S, each_in_words, say
from stateanalytics.errors import check_columns, check_number
from stateanalytics.stats.shares import share_of_units
from stateanalytics.survival.curves import kaplan_meier
from stateanalytics.survival.frames import SlowThresholds, TimeoutCandidates, fixed_columns
from stateanalytics.survival.incidence import GOOD_END, completion_times, cumulative_incidence
from stateanalytics.survival.jackknife import UNIT, with_units
from stateanalytics.survival.risk_sets import MIN_AT_RISK, number, strata_of
from stateanalytics.survival.time_limits import N_NEWEST, implicit_timeouts

SHORTEST_S, LONGEST_S = 300.0, 86_400.0
"""Range of the default candidates."""
_WORK = "_work"


def timeout_candidates(
    spells: pl.DataFrame,
    candidates_s: Sequence[float] | None = None,
    *,
    by: str | Sequence[str] = ("kind",),
    conf_level: float = 0.95,
) -> pl.DataFrame:
    """Outcome of each time limit that could be set: completed and cut runs, and run-hours.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`. Runs that timed out count as censored at their limit, with either
        option of ``timeouts``: what they would have done later is the question.
    candidates_s : sequence of float, optional
        Limits in seconds, > 0; by default 5 min to 24 h. Today's limits are added.
    by : str or sequence of str
        Kinds of work that could get limits of their own.
    conf_level : float
        Level of the intervals.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_candidates, n_by + 18)
        ``candidate_s``; ``is_today`` (the most common limit of the newest runs of the stratum,
        or an inferred one); ``n_runs``, and ``n_longer`` runs that took longer; ``completed`` and
        ``cut``, shares of runs with intervals; ``run_hours``, the mean hours of a run under
        that limit; ``gained_per_hour``, completions per extra run-hour since the previous
        candidate; ``rescued``, the share of runs cut by today's limit that would have
        completed by this one, with its interval (null up to today's limit, and where fewer than
        five runs had a longer one); ``is_identified`` and ``identified_until_s`` (null:
        unlimited), where the data end: beyond it everything but the counts is null;
        ``in_words``.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a candidate is not above 0.

    Notes
    -----
    ``completed`` is the incidence of completion and ``cut`` the survival at the
    candidate; ``run_hours`` is the restricted mean. They hold if limits do not depend on how
    long the work was going to take: where harder work gets longer limits, stratify by
    ``timeout_s`` as well. Outcomes beyond today's limit are only known from runs that had a
    longer one; without any they are not identified, and not guessed.

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
    check_columns(
        spells,
        ("duration_s", "ended", "ending", "timeout_s", "left_out", *strata),
        "timeout_candidates",
    )
    defaults = [limit for limit in CANDIDATES_S if SHORTEST_S <= limit <= LONGEST_S]
    candidates = defaults if candidates_s is None else tuple(candidates_s)
    for limit in candidates:
        check_number("Each of candidates_s", limit, 1800, is_above=True)
    kept = spells.filter(pl.col("left_out").is_null()).with_columns(
        ended=pl.col("ended") & (pl.col("ending") != "timed_out")
    )
    runs, names = number(kept, strata, _WORK)
    runs = runs.with_columns(cause=pl.when("ended").then("ending"))
    today = _todays_limits(runs)
    grid = _grid(names.collect(), today, candidates)
    curve = kaplan_meier(runs, by=_WORK, conf_level=conf_level)
    estimated = (
        grid.pipe(_at_candidate, _with_area(curve))
        .pipe(_at_candidate, _completions(runs, conf_level, "completed"))
        .pipe(_with_rescued, _rescued(runs, today, conf_level))
        .join(_limits_of_data(curve), on=_WORK, how="left")
        .pipe(_count_longer, runs)
        .sort(_WORK, "candidate_s")
    )
    # The area up to the last step, and the rectangle from there to the candidate.
    hours = (
        pl.col("area").fill_null(0.0)
        + pl.col("cut").fill_null(1.0) * (pl.col("candidate_s") - pl.col("from_s").fill_null(0.0))
    ) / 3600
    is_known = (
        pl.col("identified_until_s").is_null() | (pl.col("candidate_s") <= pl.col("longest_s"))
    ) & pl.col("longest_s").is_not_null()
    results = estimated.with_columns(
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
        pl.col(name) - pl.col(name).shift(1, fill_value=0.0).over(_WORK)
        for name in ("completed", "run_hours")
    )
    return (
        results.with_columns(gained_per_hour=pl.when(spent > 0).then(gained / spent))
        .with_columns(in_words=each_in_words(_candidate_in_words))
        .join(names.collect(), on=_WORK, how="left", maintain_order="left")
        .select(*strata, *fixed_columns(TimeoutCandidates))
    )


def _todays_limits(runs: pl.DataFrame) -> pl.DataFrame:
    """The most common declared limit of newest runs, else the inferred one with most ends."""
    newest = runs.filter(pl.col("timeout_s") > 0)
    if "started_at" in runs.columns:
        newest = newest.sort("started_at", descending=True, nulls_last=True)
        newest = newest.group_by(_WORK, maintain_order=True).head(N_NEWEST)
    declared = (
        newest.group_by(_WORK, today_s="timeout_s")
        .agg(n=pl.len())
        .sort("n", "today_s", descending=True)
        .unique(_WORK, keep="first", maintain_order=True)
        .select(_WORK, "today_s")
    )
    inferred = (
        implicit_timeouts(runs, by=_WORK)
        .sort("n_at", "at_s", descending=True)
        .unique(_WORK, keep="first", maintain_order=True)
        .select(_WORK, today_s=pl.col("at_s").cast(pl.Float64))
        .join(declared, on=_WORK, how="anti")
    )
    return pl.concat([declared, inferred])


def _grid(names: pl.DataFrame, today: pl.DataFrame, candidates: Sequence[float]) -> pl.DataFrame:
    limits = pl.DataFrame({"candidate_s": candidates}, schema={"candidate_s": pl.Float64})
    return (
        pl.concat(
            [
                names.select(_WORK).join(limits, how="cross"),
                today.select(_WORK, candidate_s="today_s"),
            ]
        )
        .unique()
        .join(today, on=_WORK, how="left")
        .with_columns(is_today=(pl.col("candidate_s") == pl.col("today_s")).fill_null(value=False))
        .sort("candidate_s")
    )


def _with_area(curve: pl.DataFrame) -> pl.DataFrame:
    """The curve at each step, and the area under it up to that step."""
    at = pl.col("duration_s")
    before = pl.col("survival").shift(1, fill_value=1.0)
    width = at - at.shift(1, fill_value=0.0)
    return curve.with_columns(area=(before * width).cum_sum().over(_WORK)).select(
        _WORK,
        "duration_s",
        "area",
        from_s="duration_s",
        cut="survival",
        cut_low="survival_low",
        cut_high="survival_high",
    )


def _completions(runs: pl.DataFrame, conf_level: float, name: str) -> pl.DataFrame:
    incidence = cumulative_incidence(runs, by=_WORK, conf_level=conf_level)
    return incidence.filter(pl.col("cause") == GOOD_END).select(
        _WORK,
        "duration_s",
        pl.col("incidence").alias(name),
        pl.col("incidence_low").alias(f"{name}_low"),
        pl.col("incidence_high").alias(f"{name}_high"),
    )


def _rescued(runs: pl.DataFrame, today: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """Incidence of completion among runs that lasted beyond today's limit, entering there."""
    entry = pl.col("entry_s") if "entry_s" in runs.columns else pl.lit(None, pl.Float64)
    late = (
        runs.join(today, on=_WORK, how="inner")
        .filter(pl.col("duration_s") > pl.col("today_s"))
        .with_columns(entry_s=pl.max_horizontal(entry, "today_s"))
        .filter(pl.col("duration_s") > pl.col("entry_s"))
    )
    # At today's limit itself nothing is rescued yet; of too few nothing is known.
    nothing = pl.when(pl.len() >= MIN_AT_RISK).then(0.0)
    longest = late.group_by(_WORK).agg(late_until_s=pl.col("duration_s").max(), rescued=nothing)
    start = longest.join(today, on=_WORK).select(
        _WORK,
        duration_s="today_s",
        rescued="rescued",
        rescued_low=pl.lit(None, pl.Float64),
        rescued_high=pl.lit(None, pl.Float64),
    )
    rescued = pl.concat([start, _completions(late, conf_level, "rescued")])
    return rescued.join(longest.drop("rescued"), on=_WORK, how="left").sort("duration_s")


def _at_candidate(
    grid: pl.DataFrame, steps: pl.DataFrame, candidate: str = "candidate_s"
) -> pl.DataFrame:
    """The last step at or before each candidate."""
    return grid.join_asof(
        steps.sort("duration_s"),
        left_on=candidate,
        right_on="duration_s",
        by=_WORK,
        check_sortedness=False,
    ).drop("duration_s", strict=False)


def _with_rescued(grid: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The same beyond today's limit, up to the longest run."""
    is_later = (pl.col("candidate_s") > pl.col("today_s")) & (
        pl.col("candidate_s") <= pl.col("late_until_s")
    )
    return _at_candidate(grid, steps).with_columns(
        pl.when(is_later).then(name).alias(name)
        for name in ("rescued", "rescued_low", "rescued_high")
    )


def _limits_of_data(curve: pl.DataFrame) -> pl.DataFrame:
    return (
        curve.group_by(_WORK)
        .agg(longest_s=pl.col("duration_s").max(), left=pl.col("survival").min())
        .with_columns(identified_until_s=pl.when(pl.col("left") > 1e-9).then("longest_s"))
    )


def _count_longer(grid: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    lengths = runs.select(_WORK, "duration_s").sort("duration_s")
    up_to = lengths.with_columns(n_up_to=pl.int_range(1, pl.len() + 1).over(_WORK))
    sizes = runs.group_by(_WORK).agg(n_runs=pl.len().cast(pl.Int64))
    return (
        _at_candidate(grid, up_to)
        .join(sizes, on=_WORK, how="left")
        .with_columns(n_longer=pl.col("n_runs") - pl.col("n_up_to").fill_null(0))
    )


def _candidate_in_words(row: dict[str, Any]) -> str:
    if row["is_identified"]:
        words = say("candidate.known", **row)
        if row["today_s"] is None or row["candidate_s"] <= row["today_s"]:
            return words
        name = "candidate.rescued_alone" if row["rescued_low"] is None else "candidate.rescued"
        return words + say("candidate.not_rescued" if row["rescued"] is None else name, **row)
    is_seen = None not in (row["longest_s"], row["left"])
    return say("candidate.unknown" if is_seen else "candidate.no_runs", **row)


# --- thresholds for "slow" ---------------------------------------------------------------

# Rules in use and their source, so that a chart can mark them.
KNOWN_AS = {1800.0: "30 min (ADR-0017)", 3600.0: "1 h (ADR-0025, policy v1)"}
THRESHOLDS_S = (
    600.0, 900.0, 1800.0, 2700.0, 3600.0, 5400.0, 7200.0, 10800.0, 14400.0, 21600.0,
)  # fmt: skip
WEEK, WELL = "week", ("well", "well_low", "well_high")


def slow_thresholds(
    spells: pl.DataFrame,
    thresholds_s: Sequence[float] | None = None,
    *,
    by: str | Sequence[str] = (WEEK, "kind"),
    conf_level: float = 0.95,
) -> pl.DataFrame:
    """Runs that each threshold for "slow" would have flagged, and how they ended.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`.
    thresholds_s : sequence of float, optional
        Ages in seconds, > 0; by default 10 min to 6 h. Those in use, 30 min and 1 h, are
        added.
    by : str or sequence of str
        Columns to group by; ``week`` is the ISO week in which a run started.
    conf_level : float
        Level of the intervals.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 16)
        ``threshold_s``; ``known_as`` (the rule that uses it today; null: none); ``n_runs``;
        ``n_flagged``, runs that got older than it; among these ``n_finished_well``,
        ``n_ended_otherwise`` (a time limit included) and ``n_open``; ``n_unknown``, runs
        censored before that age; ``well``, the share of ended flagged runs that finished well,
        with Wilson's interval by unit; ``healthy_flagged``, the share of all completing runs that
        it flags (`completion_times`), with its interval, and ``horizon_s``, up to which that
        ``is_identified``.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a threshold is not above 0.

    Notes
    -----
    A flag on a run that finished well is a false alarm; a threshold that flags half of
    the healthy runs is useless. Ages are compared with ``>``.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> runs = pl.DataFrame(
    ...     {"kind": "flow", "started_at": datetime(2026, 5, 18, tzinfo=UTC), "left_out": None,
    ...      "duration_s": [600.0, 4000.0, 5000.0], "ended": True,
    ...      "ending": ["completed", "completed", "failed"],
    ...      "cause": ["completed", "completed", "failed"]}
    ... )
    >>> slow_thresholds(runs, [3600]).select("week", "n_flagged", "n_finished_well").row(1)
    ('2026-W21', 2, 1)
    """
    strata = strata_of(by)
    needed = ["started_at", "duration_s", "ending", "ended", "left_out"]
    needed += [name for name in strata if name != WEEK]
    check_columns(spells, needed, "slow_thresholds")
    ages = THRESHOLDS_S if thresholds_s is None else tuple(thresholds_s)
    for age in ages:
        check_number("Each of thresholds_s", age, 3600, is_above=True)
    counted = with_units(spells.filter(pl.col("left_out").is_null())).with_columns(
        pl.col("started_at").cast(MOMENT).dt.strftime("%G-W%V").alias(WEEK)
    )
    runs, names = number(counted, strata, _WORK)
    thresholds = sorted({*map(float, ages), *KNOWN_AS})
    flagged = pl.concat([_count_flagged(runs, threshold, conf_level) for threshold in thresholds])
    shares = completion_times(runs, by=_WORK, conf_level=conf_level)
    horizons = shares.select(_WORK, "horizon_s").unique()
    known_as = pl.col("threshold_s").replace_strict(KNOWN_AS, default=None, return_dtype=pl.String)
    is_known = pl.col("threshold_s") <= pl.col("horizon_s")
    return (
        flagged.sort("threshold_s")
        .pipe(_at_candidate, shares.drop("horizon_s"), "threshold_s")
        .join(horizons, on=_WORK, how="left")
        .with_columns(known_as=known_as, is_identified=is_known.fill_null(value=False))
        .with_columns(
            pl.when("is_identified").then(1 - pl.col(share).fill_null(missing)).alias(name)
            for name, share, missing in (
                ("healthy_flagged", "share", pl.lit(0.0)),
                ("healthy_flagged_low", "share_high", pl.lit(None, pl.Float64)),
                ("healthy_flagged_high", "share_low", pl.lit(None, pl.Float64)),
            )
        )
        .join(names.collect(), on=_WORK, how="left")
        .sort(_WORK, "threshold_s")
        .select(*strata, *fixed_columns(SlowThresholds))
    )


def _count_flagged(runs: pl.DataFrame, threshold: float, conf_level: float) -> pl.DataFrame:
    is_flagged = pl.col("duration_s") > threshold
    is_open, is_well = pl.col("ending") == "running", pl.col("ending") == "completed"
    counts = {
        "n_runs": pl.len(),
        "n_flagged": is_flagged.sum(),
        "n_finished_well": (is_flagged & is_well).sum(),
        "n_ended_otherwise": (is_flagged & ~is_well & ~is_open).sum(),
        "n_open": (is_flagged & is_open).sum(),
        "n_unknown": (~is_flagged & ~pl.col("ended")).sum(),
    }
    ended = runs.lazy().filter(is_flagged, ~is_open).group_by(_WORK, UNIT)
    by_unit = ended.agg(x=is_well.sum(), m=pl.len()).with_columns(times=1).pipe(collected)
    shares = [
        (work, share.n_hits / share.n, *(share.interval(confidence=conf_level) or ()))
        for (work,), units in by_unit.partition_by(_WORK, as_dict=True).items()
        for share in (share_of_units(units),)
    ]
    schema = [(_WORK, pl.UInt32), *((name, pl.Float64) for name in WELL)]
    return (
        runs.group_by(_WORK)
        .agg(count.cast(pl.Int64).alias(name) for name, count in counts.items())
        .with_columns(threshold_s=pl.lit(threshold))
        .join(pl.DataFrame(shares, schema, orient="row"), on=_WORK, how="left")
    )
