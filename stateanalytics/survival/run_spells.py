"""How long runs took: one row an attempt, with how it ended and what must be left out.

A duration is only what it seems where work was seen to begin and seen to end. A run
that is still going, or that its time limit stopped, says "at least this long"
(censored). An end that somebody else wrote later, or that lies before its start, says
nothing about the run: such rows keep their place here, with the reason in `left_out`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import SPELLS
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.state.definitions import LEFT_OUT_OF_DURATIONS, ended_well, is_found_dead
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.survival.attempts import split_into_attempts
from stateanalytics.systems import all_systems

SILENT = ("stalled", "process_dead", "orphaned")
# A century: more would leave the calendar.
_LONGEST_S = 3.2e9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_RUNS = {
    *SPELLS.dtypes,
    *("session_id", "invocation_id", "show_id", "created_at", "last_activity_at", "placed_at"),
    "last_sign_at",
    *("health", "outcome", "raw_status", "delivery", "reason_code", "reason_message"),
    *("is_open", "is_end_approximate", "end_written_by", "timeout_s", "left_out", "n_model_turns"),
}
"""What of a run its spells and its stretches are made from, and what they tell of it."""


def spells(
    snap: Facts,
    *,
    window: object = None,
    per: Literal["attempt", "work"] = "attempt",
    cohort: Literal["started", "active"] = "started",
    timeouts: Literal["cut_off", "event"] = "cut_off",
    silent_runs: Literal["last_activity", "as_of"] = "last_activity",
    observed_ends: Literal["last_activity", "left_out"] = "last_activity",
    states: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Duration of every attempt at a run, how it ended, and whether that was seen.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave. Runs are sessions, or what else works in a system without a
        person in between (`System.run_type`).
    window : optional
        As `report` takes it; None: all time. What is cut off at as-of otherwise is cut
        off at the end of the window.
    per : {"attempt", "work"}
        A run that ended and was resumed is several attempts, each with its own start, end
        and limit; or one work, from its first start to its last end.
    cohort : {"started", "active"}
        Runs that *started* in the window; or all that were active in it, which then come
        under observation late: ``entry_s``. Runs without a start are placed by their end
        or creation, those without any time in every window; both are left out.
    timeouts : {"cut_off", "event"}
        What a run that hit its limit says: "at least so long" (how long would it have
        taken?), or that it ended so (what becomes of runs?).
    silent_runs : {"last_activity", "as_of"}
        Until when a run counts that still is called running but fell silent.
    observed_ends : {"last_activity", "left_out"}
        What a run says that an observer found dead: that it ended at its last sign of
        life, give or take ``end_width_s``; or nothing.
    states : polars.DataFrame, optional
        States of the snapshot where they are at hand; else they are computed.
    rows : polars.DataFrame, optional
        The `population` of all time, where it is at hand.
    policy : Policy, optional
        For computing them.

    Returns
    -------
    polars.DataFrame, shape (n_attempts, 29)
        ``schema.SPELLS``, in the order of the entities, then of attempts.

    Raises
    ------
    ArgumentError
        If it is no snapshot, or an option or the window makes no sense.

    Notes
    -----
    Runs are chosen by their start: choosing by end prefers short ones in a fleet that
    grows. A run whose health is stalled, process_dead or orphaned is cut off at its last
    sign of life, not at as-of: a dead row that is called running would grow for ever; a
    curve with ``silent_runs="as_of"`` beside it shows what that assumes. A run that its
    time limit ended is cut off at the limit, or at its end where that came earlier or no
    limit is known. Aborted and cancelled runs *ended*: people abort what looks stuck, so
    cutting them off would flatter the tail. The reaper's clock is no time of death.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> runs = spells(demo())
    >>> runs["cut_off_by"].drop_nulls().unique().sort().to_list()
    ['as_of', 'last_activity', 'time_limit']
    """
    checked_snapshot(snap, "survival.spells")
    _check_option("per", per, ("attempt", "work"))
    _check_option("cohort", cohort, ("started", "active"))
    _check_option("timeouts", timeouts, ("cut_off", "event"))
    _check_option("silent_runs", silent_runs, ("last_activity", "as_of"))
    _check_option("observed_ends", observed_ends, ("last_activity", "left_out"))
    as_of = snap.as_of
    within = None if window is None else read_window(window, as_of=as_of)
    runs = runs_of(rows_of(snap, policy=policy, states=states, rows=rows))
    attempts = (
        split_into_attempts(runs, snap)
        if per == "attempt"
        else runs.with_columns(n_resumed=pl.lit(0, pl.Int64))
    )
    rows = (
        attempts.with_columns(is_found_dead=_is_found_dead() & (observed_ends == "last_activity"))
        .with_columns(
            ending=ending(),
            cut_off_by=_cut_off_by(silent_runs, is_limit_an_end=timeouts == "event"),
        )
        .with_columns(ending_at=_ending_at(as_of))
        .with_columns(duration_s=_seconds(pl.col("ending_at") - pl.col("started_at")))
        .with_columns(left_out=_left_out(as_of))
    )
    if within is not None:
        rows = _narrowed(rows, within, cohort)
    is_counted, is_cut = pl.col("left_out").is_null(), pl.col("cut_off_by").is_not_null()
    found_dead = pl.col("is_found_dead") & ~is_cut
    return SPELLS.conform(
        rows.with_columns(
            duration_s=pl.when(is_counted).then("duration_s"),
            ended=~is_cut,
            is_censored=is_cut,
            cause=pl.when(~is_cut).then("ending"),
            end_from=pl.when(found_dead)
            .then(pl.lit("last_activity"))
            .when(~is_cut)
            .then(pl.lit("recorded")),
            end_width_s=pl.when(found_dead).then(
                _seconds(pl.col("ended_at") - pl.col("ending_at"))
            ),
            ended_at=pl.when(is_counted).then("ending_at").otherwise("ended_at"),
        )
    )


def runs_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The entities that are runs, as far as lives tell of them; of turns their session's work."""
    own_types = {
        known.name: known.run_type for known in all_systems() if known.run_type != "session"
    }
    run_type = pl.col("system").replace_strict(own_types, default="session")
    rows = rows.select(name for name in rows.columns if name in OF_RUNS)
    runs = rows.filter(pl.col("entity_type") == run_type)
    borrowed = ("kind", "project", "agent", "model", "playbook")
    key = ["source", "system", "session_id"]
    sessions = rows.filter(
        pl.col("entity_type") == "session", pl.col("system").is_in(list(own_types))
    ).select(
        "source",
        "system",
        pl.col("entity_id").alias("session_id"),
        *(pl.col(name).alias(f"session_{name}") for name in borrowed),
    )
    return runs.join(
        sessions.unique(key, keep="first"), on=key, how="left", maintain_order="left"
    ).with_columns(pl.coalesce(name, f"session_{name}").alias(name) for name in borrowed)


def _is_found_dead() -> pl.Expr:
    """Ended by an observer who found it gone; and since its start it had given a sign of life."""
    return (
        ~pl.col("is_open") & is_found_dead() & (pl.col("last_activity_at") > pl.col("started_at"))
    ).fill_null(value=False)


def ending() -> pl.Expr:
    """How a run ended: completed, else its outcome; running."""
    return (
        pl.when("is_open")
        .then(pl.lit("running"))
        .when(ended_well())
        .then(pl.lit("completed"))
        .when(pl.col("outcome") != "unknown")
        .then(pl.col("outcome").cast(pl.String))
    )


def _cut_off_by(silent_runs: str, *, is_limit_an_end: bool) -> pl.Expr:
    is_silent = pl.col("health").is_in(list(SILENT)) & pl.col("last_activity_at").is_not_null()
    return (
        pl.when(pl.col("is_open") & is_silent & (silent_runs == "last_activity"))
        .then(pl.lit("last_activity"))
        .when("is_open")
        .then(pl.lit("as_of"))
        .when((pl.col("outcome") == "timed_out") & (not is_limit_an_end))
        .then(pl.lit("time_limit"))
    )


def _ending_at(as_of: datetime) -> pl.Expr:
    limit_us = pl.col("timeout_s").clip(upper_bound=_LONGEST_S) * 1e6
    limit_at = pl.col("started_at") + pl.duration(microseconds=limit_us)
    last_sign_at = pl.min_horizontal("last_activity_at", pl.lit(as_of))
    return (
        pl.when(pl.col("cut_off_by") == "last_activity")
        .then(pl.max_horizontal("started_at", last_sign_at))
        .when("is_open")
        .then(pl.lit(as_of))
        .when("is_found_dead")
        .then(pl.min_horizontal("last_activity_at", "ended_at"))
        .when((pl.col("cut_off_by") == "time_limit") & pl.col("ended_at").is_not_null())
        .then(pl.min_horizontal("ended_at", limit_at))
        .otherwise("ended_at")
    )


def _left_out(as_of: datetime) -> pl.Expr:
    is_observed = (pl.col("end_written_by") != "executor") & ~pl.col("is_found_dead")
    reasons = {
        "no_start": pl.col("started_at").is_null() | (pl.col("started_at") <= _EPOCH),
        "starts_later": pl.col("started_at") > as_of,
        "no_end": pl.col("ending_at").is_null(),
        "ends_before_start": pl.col("duration_s") < 0,
        "end_approximate": ~pl.col("is_open") & pl.col("is_end_approximate"),
        "end_observed": ~pl.col("is_open") & is_observed,
    }
    first_true = [pl.when(is_so).then(pl.lit(name)) for name, is_so in reasons.items()]
    return pl.coalesce("left_out", *first_true)


def _narrowed(rows: pl.DataFrame, window: Window, cohort: str) -> pl.DataFrame:
    """Only the runs of a cohort, observed until the window ends."""
    if cohort == "started":
        placed = pl.coalesce("started_at", "placed_at")
        kept = rows.filter(
            placed.is_between(window.since, window.until, closed="left").fill_null(True)
        ).with_columns(entry_s=pl.lit(None, pl.Float64))
    else:
        began = (pl.col("started_at") < window.until).fill_null(True)
        went_on = (pl.coalesce("ending_at", "placed_at") > window.since).fill_null(True)
        late_s = _seconds(pl.lit(window.since) - pl.col("started_at"))
        kept = rows.filter(began & went_on).with_columns(
            entry_s=pl.when((late_s > 0) & pl.col("left_out").is_null()).then(late_s)
        )
    is_later = (pl.col("ending_at") > window.until) & pl.col("left_out").is_null()
    until = pl.lit(window.until)
    return kept.with_columns(
        ending=pl.when(is_later).then(pl.lit("running")).otherwise("ending"),
        cut_off_by=pl.when(is_later).then(pl.lit("window_end")).otherwise("cut_off_by"),
        ending_at=pl.when(is_later).then(until).otherwise("ending_at"),
        duration_s=pl.when(is_later)
        .then(_seconds(until - pl.col("started_at")))
        .otherwise("duration_s"),
    )


def _check_option(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ArgumentError(
            f"{name} is {' or '.join(known)}; found {value!r}.", f"{name}={known[0]!r}"
        )


def _seconds(how_long: pl.Expr) -> pl.Expr:
    return how_long.dt.total_microseconds() / 1e6


# About a factor of two each, on moments that people name: equal widths on a log axis.
EDGES_S = (
    0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0,
    7200.0, 14400.0, 28800.0, 57600.0, 115200.0, 230400.0, 460800.0, 921600.0, 1843200.0,
)  # fmt: skip


def count_left_out(spells: pl.DataFrame) -> pl.DataFrame:
    """How many runs do not count, and why.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave.

    Returns
    -------
    polars.DataFrame, shape (n_reasons, 3)
        ``left_out``, its ``meaning``, ``n``; in the order of `LEFT_OUT_OF_DURATIONS`,
        without zeros.

    Examples
    --------
    >>> runs = pl.DataFrame({"left_out": ["no_end", None, "legacy", "no_end"]})
    >>> count_left_out(runs).select("left_out", "n").rows()
    [('legacy', 1), ('no_end', 2)]
    """
    check_columns(spells, ["left_out"], "count_left_out")
    counts = spells.group_by("left_out").agg(n=pl.len().cast(pl.Int64))
    words = LEFT_OUT_OF_DURATIONS
    reasons = pl.DataFrame({"left_out": list(words), "meaning": list(words.values())})
    return reasons.join(counts, on="left_out", how="inner", maintain_order="left")


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
    check_columns(spells, needed, "count_spells")
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
