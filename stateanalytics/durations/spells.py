"""How long runs took: one row a run, with how it ended and what must be left out.

A duration is only what it seems where work was seen to begin and seen to end. A run
that is still going, or that its time limit stopped, says "at least this long"
(censored). An end that somebody else wrote later, or that lies before its start, says
nothing about the run: such rows keep their place here, with the reason in `left_out`.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.errors import MissingColumnsError
from stateanalytics.population import LEFT_OUT as LEFT_OUT_OF_ALL
from stateanalytics.population import population
from stateanalytics.schema import ENTITY_KEY
from stateanalytics.windows import Window

# In the order in which they are read from a row: what is known least comes first.
LEFT_OUT = {
    **LEFT_OUT_OF_ALL,
    "no_start": "no start time",
    "starts_later": "starts after as-of",
    "no_end": "ended, but no end time",
    "ends_before_start": "ends before it starts",
    "end_approximate": "the end was repaired or estimated",
    "end_observed": "the end was written by an observer or an import, not by the run",
}
ENDINGS = ("completed", "failed", "timed_out", "aborted", "cancelled", "skipped", "running")
GOOD_ENDS = ("succeeded", "completed", "merged")
SILENT = ("stalled", "process_dead", "orphaned")

# About a factor of two each, on moments that people name: equal widths on a log axis.
EDGES_S = (
    0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0,
    7200.0, 14400.0, 28800.0, 57600.0, 115200.0, 230400.0, 460800.0, 921600.0, 1843200.0,
)  # fmt: skip


def spells(
    entities: pl.DataFrame,
    states: pl.DataFrame,
    *,
    as_of: datetime,
    window: Window | None = None,
) -> pl.DataFrame:
    """Duration of every run that started in a window, and how it ended.

    Parameters
    ----------
    entities, states : polars.DataFrame
        Canonical frames; only sessions are runs.
    as_of : datetime
        The instant that the states were read at; open runs are cut off there.
    window : Window, optional
        Runs that *started* in it; None: all. Runs without a start are placed by their
        end or creation, those without any time in every window; both are left out.

    Returns
    -------
    polars.DataFrame, shape (n_runs, 14)
        The key, ``kind``, ``started_at``, ``timeout_s``, ``duration_s``, ``ending`` (one of
        `ENDINGS`; null: not understood), ``ended`` (False: cut off, it lasted at least so
        long), ``cut_off_by`` (as_of, last_activity, time_limit; null where it ended) and
        ``left_out`` (null: counted; else a key of `LEFT_OUT`).

    Notes
    -----
    Runs are chosen by their start: choosing by end prefers short ones in a fleet that
    grows. A run whose health is stalled, process_dead or orphaned is cut off at its last
    sign of life, not at as-of: a dead row that is called running would grow for ever.
    A run that its time limit ended counts as cut off at its end.
    """
    rows = population(entities, states, as_of=as_of).filter(pl.col("entity_type") == "session")
    if window is not None:
        rows = rows.filter(
            pl.coalesce("started_at", "placed_at")
            .is_between(window.since, window.until, closed="left")
            .fill_null(True)
        )
    return (
        rows.with_columns(ending=_ending(), cut_off_by=_cut_off_by())
        .with_columns(last_seen_at=_last_seen_at(as_of))
        .with_columns(duration_s=_seconds(pl.col("last_seen_at") - pl.col("started_at")))
        .with_columns(left_out=_left_out(as_of), ended=pl.col("cut_off_by").is_null())
        .with_columns(duration_s=pl.when(pl.col("left_out").is_null()).then("duration_s"))
        .select(
            *ENTITY_KEY,
            "session_id",
            "invocation_id",
            "kind",
            "started_at",
            "timeout_s",
            "duration_s",
            "ending",
            "ended",
            "cut_off_by",
            "left_out",
        )
    )


def count_spells(spells: pl.DataFrame, by: str = "ending") -> pl.DataFrame:
    """How many counted spells fall into each step of `EDGES_S`.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave; rows that are left out are not counted.
    by : str
        Column to count apart, for example ``ending`` or ``kind``.

    Returns
    -------
    polars.DataFrame, shape (n_filled_steps, 5)
        ``by``, ``low_s`` and ``high_s`` (low included; the last step has no high),
        ``n``, and ``n_cut_off`` (of them, those that lasted at least so long). Sorted.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "ending": ["completed", "completed", "running"],
    ...         "duration_s": [61.0, 119.0, 7200.0],
    ...         "ended": [True, True, False],
    ...         "left_out": pl.Series([None] * 3, dtype=pl.String),
    ...     }
    ... )
    >>> count_spells(runs).rows()
    [('completed', 60.0, 120.0, 2, 0), ('running', 7200.0, 14400.0, 1, 1)]
    """
    needed = (by, "duration_s", "ended", "left_out")
    if missing := [name for name in needed if name not in spells.columns]:
        raise MissingColumnsError.of(missing, spells.columns, "count_spells")
    steps = pl.DataFrame(
        {"low_s": EDGES_S, "high_s": [*EDGES_S[1:], None]},
        schema={"low_s": pl.Float64, "high_s": pl.Float64},
    )
    return (
        spells.filter(pl.col("left_out").is_null(), pl.col("duration_s").is_not_null())
        .sort("duration_s")
        .join_asof(steps, left_on="duration_s", right_on="low_s", coalesce=False)
        .group_by(by, "low_s", "high_s")
        .agg(
            n=pl.len().cast(pl.Int64),
            n_cut_off=(~pl.col("ended")).sum().cast(pl.Int64),
        )
        .sort(by, "low_s", nulls_last=True)
    )


def _ending() -> pl.Expr:
    return (
        pl.when("is_open")
        .then(pl.lit("running"))
        .when(pl.col("outcome").is_in(list(GOOD_ENDS)))
        .then(pl.lit("completed"))
        .when(pl.col("outcome") != "unknown")
        .then(pl.col("outcome").cast(pl.String))
    )


def _cut_off_by() -> pl.Expr:
    is_silent = pl.col("health").is_in(list(SILENT)) & pl.col("last_activity_at").is_not_null()
    return (
        pl.when(pl.col("is_open") & is_silent)
        .then(pl.lit("last_activity"))
        .when("is_open")
        .then(pl.lit("as_of"))
        .when(pl.col("outcome") == "timed_out")
        .then(pl.lit("time_limit"))
    )


def _last_seen_at(as_of: datetime) -> pl.Expr:
    return (
        pl.when(pl.col("cut_off_by") == "last_activity")
        .then(pl.max_horizontal("started_at", pl.min_horizontal("last_activity_at", pl.lit(as_of))))
        .when("is_open")
        .then(pl.lit(as_of))
        .otherwise("ended_at")
    )


def _left_out(as_of: datetime) -> pl.Expr:
    reasons = {
        "no_start": pl.col("started_at").is_null(),
        "starts_later": pl.col("started_at") > as_of,
        "no_end": pl.col("last_seen_at").is_null(),
        "ends_before_start": pl.col("duration_s") < 0,
        "end_approximate": ~pl.col("is_open") & pl.col("is_end_approximate"),
        "end_observed": ~pl.col("is_open") & (pl.col("end_written_by") != "executor"),
    }
    first_true = [pl.when(is_so).then(pl.lit(name)) for name, is_so in reasons.items()]
    return pl.coalesce("left_out", *first_true)


def _seconds(how_long: pl.Expr) -> pl.Expr:
    return how_long.dt.total_microseconds() / 1e6
