"""Runs that each threshold for "slow" would have flagged, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.schema import MOMENT
from stateanalytics.errors import check_columns, check_number
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.survival.incidence import completion_times
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of

# Where they come from, so that a chart can mark them.
KNOWN_AS = {1800.0: "30 min (ADR-0017)", 3600.0: "1 h (ADR-0025, policy v1)"}
THRESHOLDS_S = (
    600.0, 900.0, 1800.0, 2700.0, 3600.0, 5400.0, 7200.0, 10800.0, 14400.0, 21600.0,
)  # fmt: skip
WEEK = "week"
NEEDED = ("started_at", "duration_s", "ending", "ended", "left_out")
RESULT = (
    "threshold_s",
    "known_as",
    "n_runs",
    "n_flagged",
    "n_finished_well",
    "n_ended_otherwise",
    "n_open",
    "n_unknown",
    "well",
    "well_low",
    "well_high",
    "healthy_flagged",
    "healthy_flagged_low",
    "healthy_flagged_high",
    "horizon_s",
    "is_identified",
)
_WORK = "_work"


def slow_thresholds(
    spells: pl.DataFrame,
    thresholds_s: Sequence[float] | None = None,
    *,
    by: str | Sequence[str] = (WEEK, "kind"),
    conf_level: float = 0.95,
) -> pl.DataFrame:
    """For each threshold of "slow": how many runs it would have flagged, and their end.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave.
    thresholds_s : sequence of float, optional
        Ages in seconds, > 0; by default 10 min to 6 h. Those in use, 30 min and 1 h, are
        added.
    by : str or sequence of str
        Columns to count apart; ``week`` is the ISO week in which a run started.
    conf_level : float
        Level of the intervals.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 16)
        ``threshold_s``; ``known_as`` (whose threshold it is today; null: nobody's);
        ``n_runs``; ``n_flagged``, those that got older than it; of them
        ``n_finished_well``, ``n_ended_otherwise`` (a time limit included) and ``n_open``;
        ``n_unknown``, cut off before that age; ``well``, the share of flagged runs that
        are over which finished well, with Wilson's interval; ``healthy_flagged``, the
        share of all runs that complete which it flags (`completion_times`), with its
        interval, and ``horizon_s``, up to which that ``is_identified``.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a threshold is not above 0.

    Notes
    -----
    A flag on a run that finished well is a false alarm; a threshold that flags half of
    the healthy runs says nothing. Ages are compared with ``>``.

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
    needed = [*NEEDED, *(name for name in strata if name != WEEK)]
    check_columns(spells, needed, "slow_thresholds")
    asked = THRESHOLDS_S if thresholds_s is None else tuple(thresholds_s)
    for age in asked:
        check_number("Each of thresholds_s", age, 3600, is_above=True)
    counted = spells.filter(pl.col("left_out").is_null()).with_columns(
        pl.col("started_at").cast(MOMENT).dt.strftime("%G-W%V").alias(WEEK)
    )
    runs, names = (frame.rename({STRATUM: _WORK}) for frame in number(counted, strata))
    thresholds = sorted({*map(float, asked), *KNOWN_AS})
    flagged = pl.concat([_flagged(runs, threshold) for threshold in thresholds])
    shares = completion_times(runs, by=_WORK, conf_level=conf_level).sort("duration_s")
    horizons = shares.select(_WORK, "horizon_s").unique()
    known = pl.DataFrame({"threshold_s": list(KNOWN_AS), "known_as": list(KNOWN_AS.values())})
    is_known = pl.col("threshold_s") <= pl.col("horizon_s")
    return (
        flagged.sort("threshold_s")
        .join_asof(
            shares.drop("horizon_s"),
            left_on="threshold_s",
            right_on="duration_s",
            by=_WORK,
            check_sortedness=False,
        )
        .join(horizons, on=_WORK, how="left")
        .join(known, on="threshold_s", how="left")
        .with_columns(is_identified=is_known.fill_null(value=False))
        .with_columns(
            pl.when("is_identified").then(1 - pl.col(share).fill_null(missing)).alias(name)
            for name, share, missing in (
                ("healthy_flagged", "share", pl.lit(0.0)),
                ("healthy_flagged_low", "share_high", pl.lit(None, pl.Float64)),
                ("healthy_flagged_high", "share_low", pl.lit(None, pl.Float64)),
            )
        )
        .with_columns(_over=pl.col("n_finished_well") + pl.col("n_ended_otherwise"))
        .with_columns(
            wilson_columns("n_finished_well", "_over", confidence=conf_level, prefix="well")
        )
        .join(names, on=_WORK, how="left")
        .sort(_WORK, "threshold_s")
        .select(*strata, *RESULT)
    )


def _flagged(runs: pl.DataFrame, threshold: float) -> pl.DataFrame:
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
    return (
        runs.group_by(_WORK)
        .agg(count.cast(pl.Int64).alias(name) for name, count in counts.items())
        .with_columns(threshold_s=pl.lit(threshold))
    )
