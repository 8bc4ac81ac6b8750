"""Durations of runs: one row per attempt, with how it ended and why it may not count.

A duration is only what it seems where work was seen to begin and seen to end. A run
that is still going, or that its time limit stopped, shows "at least this long"
(censored). An end that somebody else wrote later, or that lies before its start, shows
nothing about the run: such rows stay in the frame, with the reason in `left_out`.
A run that ended and was resumed is several attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY, MOMENT, SPELLS
from stateanalytics.core.windows import Window, instant, read_window
from stateanalytics.core.words import first_word
from stateanalytics.errors import check_columns, check_option
from stateanalytics.state.definitions import (
    LEFT_OUT_OF_DURATIONS,
    SILENT_HEALTHS,
    ended_well,
    is_found_dead,
)
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System

# A century: more would leave the calendar.
_LONGEST_S = 3.2e9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RUN_COLUMNS = {
    *SPELLS.dtypes,
    *("session_id", "invocation_id", "show_id", "created_at", "last_activity_at", "placed_at"),
    "last_sign_at",
    *("health", "outcome", "raw_status", "delivery", "reason_code", "reason_message"),
    *("is_open", "is_end_approximate", "end_written_by", "timeout_s", "left_out", "n_model_turns"),
}
"""Columns of a run that its spells and stretches need or carry over."""


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
    """Duration of every attempt at a run, how it ended, and whether the end was observed.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`. Runs are sessions, or whatever works in a system without a person in
        between (`Runs.entity_type`).
    window : optional
        As for `report`; None: all time. Spells are then censored at the end of the window
        instead of at as-of.
    per : {"attempt", "work"}
        A run that ended and was resumed is several attempts, each with its own start, end
        and limit; or one work, from its first start to its last end.
    cohort : {"started", "active"}
        Runs that *started* in the window; or all that were active in it, with late entry
        (``entry_s``). Runs without a start are placed by their end or creation, those without
        any time are in every window; neither counts.
    timeouts : {"cut_off", "event"}
        A run that hit its limit is censored (how long would it have taken?), or that is how
        it ended (what becomes of runs?).
    silent_runs : {"last_activity", "as_of"}
        Where a run is censored whose status is running although it fell silent.
    observed_ends : {"last_activity", "left_out"}
        A run that an observer found dead ended at its last sign of life, at most
        ``end_width_s`` earlier than recorded; or it does not count.
    states : polars.DataFrame, optional
        States of the snapshot, if already computed.
    rows : polars.DataFrame, optional
        The `population` of all time, if already computed.
    policy : Policy, optional
        For computing states.

    Returns
    -------
    polars.DataFrame, shape (n_attempts, 29)
        ``schema.SPELLS``, in the order of the entities, then of attempts.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or an option or the window is not valid.

    Notes
    -----
    Runs are chosen by their start: choosing by end prefers short runs in a fleet that
    grows. A run with health stalled, process_dead or orphaned is censored at its last sign of
    life, not at as-of: a dead row with status running would grow for ever; a curve with
    ``silent_runs="as_of"`` next to it shows the effect of this assumption. A run that its
    time limit ended is censored at the limit, or at its end where that came earlier or no
    limit is known. Aborted and cancelled runs *ended*: people abort what looks stuck, so
    censoring them would flatter the tail. The reaper's clock is no time of death.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> runs = spells(demo())
    >>> runs["cut_off_by"].drop_nulls().unique().sort().to_list()
    ['as_of', 'last_activity', 'time_limit']
    """
    checked_snapshot(snap, "survival.spells")
    check_option("per", per, ("attempt", "work"))
    check_option("cohort", cohort, ("started", "active"))
    check_option("timeouts", timeouts, ("cut_off", "event"))
    check_option("silent_runs", silent_runs, ("last_activity", "as_of"))
    check_option("observed_ends", observed_ends, ("last_activity", "left_out"))
    as_of = snap.as_of
    within = None if window is None else read_window(window, as_of=as_of)
    runs = runs_of(rows_of(snap, policy=policy, states=states, rows=rows))
    attempts = (
        split_into_attempts(runs, snap)
        if per == "attempt"
        else runs.with_columns(n_resumed=pl.lit(0, pl.Int64))
    )
    judged = (
        attempts.lazy()
        .with_columns(is_found_dead=_is_found_dead() & (observed_ends == "last_activity"))
        .with_columns(
            ending=ending(),
            cut_off_by=_cut_off_by(silent_runs, is_limit_an_end=timeouts == "event"),
        )
        .with_columns(ending_at=_ending_at(as_of))
        .with_columns(duration_s=_seconds(pl.col("ending_at") - pl.col("started_at")))
        .with_columns(left_out=_left_out(as_of))
    )
    if within is not None:
        judged = _within_window(judged, within, cohort)
    is_counted, is_censored = pl.col("left_out").is_null(), pl.col("cut_off_by").is_not_null()
    found_dead = pl.col("is_found_dead") & ~is_censored
    return SPELLS.conform(
        judged.with_columns(
            duration_s=pl.when(is_counted).then("duration_s"),
            ended=~is_censored,
            is_censored=is_censored,
            cause=pl.when(~is_censored).then("ending"),
            end_from=first_word(last_activity=found_dead, recorded=~is_censored),
            end_width_s=pl.when(found_dead).then(
                _seconds(pl.col("ended_at") - pl.col("ending_at"))
            ),
            ended_at=pl.when(is_counted).then("ending_at").otherwise("ended_at"),
        ).pipe(collected)
    )


def to_completion(
    spells: pl.DataFrame, until: pl.Expr, *, others: Literal["cut_off", "never"] = "cut_off"
) -> pl.DataFrame:
    """Counted spells that only completion ends, watched up to ``until``.

    What ended otherwise is cut off there: how long would it have taken? Or it never completes,
    so that the curve is one minus the share that had completed, with other ends competing: what
    fails sooner completes no sooner.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> runs = to_completion(spells(demo()), pl.lit(demo().as_of))
    >>> runs.filter("ended")["ending"].unique().to_list()
    ['completed']
    """
    watched_s = _seconds(until - pl.col("started_at")).clip(0.0)
    is_seen = (pl.col("ending") == "completed") & (pl.col("duration_s") <= watched_s)
    is_completed = (pl.col("ended") & is_seen).fill_null(value=False)
    is_whole = is_completed if others == "never" else pl.col("duration_s") <= watched_s
    counted = spells.lazy().filter(pl.col("left_out").is_null())
    duration_s = pl.when(is_whole).then("duration_s").otherwise(watched_s)
    return counted.with_columns(ended=is_completed, duration_s=duration_s).pipe(collected)


def runs_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The entities that are runs; those that are parts of a session inherit its kind of work."""
    own_types = {
        known.name: known.runs.entity_type
        for known in all_systems()
        if known.runs.entity_type != "session"
    }
    run_type = pl.col("system").replace_strict(own_types, default="session")
    known = rows.lazy().select(name for name in rows.columns if name in RUN_COLUMNS)
    inherited = ("kind", "project", "agent", "model", "playbook")
    key = ["source", "system", "session_id"]
    sessions = known.filter(
        pl.col("entity_type") == "session", pl.col("system").is_in(list(own_types))
    ).select(
        "source",
        "system",
        pl.col("entity_id").alias("session_id"),
        *(pl.col(name).alias(f"session_{name}") for name in inherited),
    )
    return collected(
        known.filter(pl.col("entity_type") == run_type)
        .join(sessions.unique(key, keep="first"), on=key, how="left", maintain_order="left")
        .with_columns(pl.coalesce(name, f"session_{name}").alias(name) for name in inherited)
    )


def _is_found_dead() -> pl.Expr:
    """Whether an observer ended the run after it had died, with a sign of life since its start."""
    return (
        ~pl.col("is_open") & is_found_dead() & (pl.col("last_activity_at") > pl.col("started_at"))
    ).fill_null(value=False)


def ending() -> pl.Expr:
    """How a run ended: completed, or its outcome; running if it did not."""
    outcome = pl.when(pl.col("outcome") != "unknown").then(pl.col("outcome").cast(pl.String))
    return pl.coalesce(first_word(running="is_open", completed=ended_well()), outcome)


def _cut_off_by(silent_runs: str, *, is_limit_an_end: bool) -> pl.Expr:
    is_silent = (
        pl.col("health").is_in(list(SILENT_HEALTHS)) & pl.col("last_activity_at").is_not_null()
    )
    return first_word(
        last_activity=pl.col("is_open") & is_silent & (silent_runs == "last_activity"),
        as_of="is_open",
        time_limit=(pl.col("outcome") == "timed_out") & (not is_limit_an_end),
    )


def _ending_at(as_of: datetime) -> pl.Expr:
    limit_us = pl.col("timeout_s").clip(upper_bound=_LONGEST_S) * 1e6
    limit_at = pl.col("started_at") + pl.duration(microseconds=limit_us)
    last_sign_at = pl.min_horizontal("last_activity_at", instant(as_of))
    return (
        pl.when(pl.col("cut_off_by") == "last_activity")
        .then(pl.max_horizontal("started_at", last_sign_at))
        .when("is_open")
        .then(instant(as_of))
        .when("is_found_dead")
        .then(pl.min_horizontal("last_activity_at", "ended_at"))
        .when((pl.col("cut_off_by") == "time_limit") & pl.col("ended_at").is_not_null())
        .then(pl.min_horizontal("ended_at", limit_at))
        .otherwise("ended_at")
    )


def _left_out(as_of: datetime) -> pl.Expr:
    is_observed = (pl.col("end_written_by") != "executor") & ~pl.col("is_found_dead")
    reasons = {
        "no_start": pl.col("started_at").is_null() | (pl.col("started_at") <= instant(_EPOCH)),
        "starts_later": pl.col("started_at") > instant(as_of),
        "no_end": pl.col("ending_at").is_null(),
        "ends_before_start": pl.col("duration_s") < 0,
        "end_approximate": ~pl.col("is_open") & pl.col("is_end_approximate"),
        "end_observed": ~pl.col("is_open") & is_observed,
    }
    first_true = [pl.when(is_so).then(pl.lit(name)) for name, is_so in reasons.items()]
    return pl.coalesce("left_out", *first_true)


def _within_window(rows: pl.LazyFrame, window: Window, cohort: str) -> pl.LazyFrame:
    """Runs of the cohort, censored at the end of the window."""
    since, until = instant(window.since), instant(window.until)
    if cohort == "started":
        placed = pl.coalesce("started_at", "placed_at")
        kept = rows.filter(
            placed.is_between(since, until, closed="left").fill_null(True)
        ).with_columns(entry_s=pl.lit(None, pl.Float64))
    else:
        started = (pl.col("started_at") < until).fill_null(True)
        was_open = (pl.coalesce("ending_at", "placed_at") > since).fill_null(True)
        late_s = _seconds(since - pl.col("started_at"))
        kept = rows.filter(started & was_open).with_columns(
            entry_s=pl.when((late_s > 0) & pl.col("left_out").is_null()).then(late_s)
        )
    is_later = (pl.col("ending_at") > until) & pl.col("left_out").is_null()
    return kept.with_columns(
        ending=pl.when(is_later).then(pl.lit("running")).otherwise("ending"),
        cut_off_by=pl.when(is_later).then(pl.lit("window_end")).otherwise("cut_off_by"),
        ending_at=pl.when(is_later).then(until).otherwise("ending_at"),
        duration_s=pl.when(is_later)
        .then(_seconds(until - pl.col("started_at")))
        .otherwise("duration_s"),
    )


def _seconds(duration: pl.Expr) -> pl.Expr:
    return duration.dt.total_microseconds() / 1e6


# Round values about a factor of two apart: equal widths on a log axis.
EDGES_S = (
    0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0,
    7200.0, 14400.0, 28800.0, 57600.0, 115200.0, 230400.0, 460800.0, 921600.0, 1843200.0,
)  # fmt: skip


def count_left_out(spells: pl.DataFrame) -> pl.DataFrame:
    """Number of runs that do not count, by reason.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`.

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
    counts = spells.group_by("left_out").agg(n=pl.len().cast(pl.Int64))
    words = LEFT_OUT_OF_DURATIONS
    reasons = pl.DataFrame({"left_out": list(words), "meaning": list(words.values())})
    return reasons.join(counts, on="left_out", how="inner", maintain_order="left")


def count_spells(spells: pl.DataFrame, by: str = "ending") -> pl.DataFrame:
    """Histogram of counted spells over the steps of `EDGES_S`.

    Parameters
    ----------
    spells : polars.DataFrame
        From `spells`; excluded rows are not counted.
    by : str
        Column to group by, for example ``ending`` or ``kind``.

    Returns
    -------
    polars.DataFrame, shape (n_filled_steps, 5)
        ``by``, ``low_s`` and ``high_s`` (low included; the last step has no high),
        ``n``, and ``n_cut_off`` (the censored ones among them). Sorted.

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
    check_columns(spells, (by, "duration_s", "ended", "left_out"), "count_spells")
    steps = pl.LazyFrame(
        {"low_s": EDGES_S, "high_s": [*EDGES_S[1:], None]},
        schema={"low_s": pl.Float64, "high_s": pl.Float64},
    )
    return collected(
        spells.lazy()
        .filter(pl.col("left_out").is_null(), pl.col("duration_s").is_not_null())
        .sort("duration_s")
        .join_asof(steps, left_on="duration_s", right_on="low_s", coalesce=False)
        .group_by(by, "low_s", "high_s")
        .agg(n=pl.len().cast(pl.Int64), n_cut_off=(~pl.col("ended")).sum().cast(pl.Int64))
        .sort(by, "low_s", nulls_last=True)
    )


# --- attempts: a run that ended and was resumed is several ------------------------------

_MOMENTS = ("ended_at", "resumed_at", "last_sign_at")
_END_COLUMNS = ("outcome", "raw_status", "reason_code", "reason_message", "end_written_by")
_ATTEMPT_COLUMNS = (*ENTITY_KEY, *_MOMENTS, *_END_COLUMNS)
_NO_ATTEMPTS = pl.DataFrame(
    schema={**dict.fromkeys(_ATTEMPT_COLUMNS, pl.String), **dict.fromkeys(_MOMENTS, MOMENT)}
)


def split_into_attempts(runs: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """One row per attempt, where transitions show that a run ended and was resumed.

    Parameters
    ----------
    runs : polars.DataFrame
        Rows of `population` that are runs.
    snap : Snapshot or Facts
        With the transitions and events of earlier attempts.

    Returns
    -------
    polars.DataFrame
        ``runs`` in their order, with ``n_resumed``: how often the work had been resumed
        before, 0 for its first attempt. Earlier attempts have their own start, end, outcome,
        reason and writer; the last keeps those of the run, except for its start.

    Notes
    -----
    The time between an end and the resumption belongs to no attempt. Counts of a whole run,
    such as its turns, are unknown for runs of several attempts.
    """
    never = pl.Series("n_resumed", [0], pl.Int64).new_from_index(0, runs.height)
    runs, ends = runs.hstack([never]), _attempt_ends(runs, snap)
    if ends.is_empty():
        return runs
    runs = runs.with_row_index("_run")
    numbered = ends.sort(*ENTITY_KEY, "ended_at").with_columns(
        resumed_before_at=pl.col("resumed_at").shift(1).over(ENTITY_KEY),
        number=pl.int_range(pl.len(), dtype=pl.Int64).over(ENTITY_KEY),
    )
    earlier = runs.join(numbered, on=ENTITY_KEY, how="inner", suffix="_of_attempt").with_columns(
        n_resumed="number",
        started_at=pl.coalesce("resumed_before_at", "started_at"),
        ended_at="ended_at_of_attempt",
        last_activity_at="last_sign_at_of_attempt",
        is_open=pl.lit(value=False),
        is_end_approximate=pl.lit(value=False),
        health=pl.lit(None, runs.schema["health"]),
        n_model_turns=pl.lit(None, runs.schema["n_model_turns"]),
        **{name: pl.col(f"{name}_of_attempt").cast(runs.schema[name]) for name in _END_COLUMNS},
    )
    resumed = ends.group_by(ENTITY_KEY).agg(
        pl.col("resumed_at").max(), number=pl.len().cast(pl.Int64)
    )
    last = runs.join(resumed, on=ENTITY_KEY, how="left", maintain_order="left").with_columns(
        started_at=pl.coalesce("resumed_at", "started_at"),
        n_resumed=pl.col("number").fill_null(0),
        n_model_turns=pl.when(pl.col("number").is_null()).then("n_model_turns"),
    )
    return (
        pl.concat([earlier.select(runs.columns), last.select(runs.columns)])
        .sort("_run", "n_resumed", maintain_order=True)
        .drop("_run")
    )


def _attempt_ends(runs: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Ends of attempts that were followed by more work, with the moment of resumption."""
    ends = [
        system.ends.of_attempts(snap).select(_ATTEMPT_COLUMNS)
        if system.ends.of_attempts is not None
        else _ends_in_transitions(system, snap)
        for system in all_systems()
        if (runs["system"] == system.name).any()
    ]
    if all(rows.is_empty() for rows in ends):
        return _NO_ATTEMPTS
    return collected(
        pl.concat([_NO_ATTEMPTS, *ends], how="vertical_relaxed")
        .lazy()
        .join(runs.lazy().select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
        .filter(pl.col("resumed_at") <= instant(snap.as_of))
    )


def _ends_in_transitions(system: System, snap: Facts) -> pl.DataFrame:
    """Terminal transitions of a system's runs that a status of work follows."""
    outcomes: Mapping[str, str | None] = system.ends.statuses or {
        word.raw_status: word.outcome
        for word in system.words.vocabulary
        if word.entity_type == system.runs.entity_type and word.is_terminal
    }
    ends = list(outcomes)
    is_end = pl.col("status").is_in(ends)
    is_death = pl.col("reason_code").is_in(system.ends.death_codes).fill_null(value=False)
    is_own = pl.col("writer").is_in(system.ends.own_writers) & ~is_death
    columns = ("at", "seq", "status", "reason_code", "message", "writer")
    every = snap.transitions.lazy().select(*ENTITY_KEY, *columns)
    known = every.filter(
        pl.col("system") == system.name,
        pl.col("entity_type") == system.runs.entity_type,
        pl.col("at") <= instant(snap.as_of),
    )
    # Hardly any run is resumed, so candidates are found first, by id alone, at a third of the
    # cost; two runs may share an id, so the whole key decides.
    by_id = known.group_by("entity_id").agg(
        first_end_at=pl.when(is_end).then("at").min(),
        last_work_at=pl.when(~is_end).then("at").max(),
    )
    candidates = by_id.filter(pl.col("last_work_at") >= pl.col("first_end_at"))
    resumed = known.join(candidates, on="entity_id", how="semi").collect()
    if resumed.is_empty():
        return _NO_ATTEMPTS
    changes = resumed.lazy()
    first_ends = changes.filter(is_end).group_by(ENTITY_KEY).agg(first_end_at=pl.col("at").min())
    work_after_end = (
        changes.filter(~is_end)
        .join(first_ends, on=ENTITY_KEY)
        .filter(pl.col("at") >= pl.col("first_end_at"))
    )
    ended = (
        changes.join(work_after_end, on=ENTITY_KEY, how="semi")
        .sort(*ENTITY_KEY, "at", "seq")
        # Of two ends in a row the first counts.
        .filter(~(is_end & is_end.shift(1, fill_value=False).over(ENTITY_KEY)))
        .with_columns(
            resumed_at=pl.col("at").shift(-1).over(ENTITY_KEY),
            is_resumed=~pl.col("status").shift(-1).over(ENTITY_KEY).is_in(ends),
        )
        .filter(is_end, "is_resumed")
        .select(
            *ENTITY_KEY,
            "resumed_at",
            "reason_code",
            ended_at="at",
            outcome=pl.col("status").replace_strict(outcomes, default=None, return_dtype=pl.String),
            raw_status="status",
            reason_message="message",
            end_written_by=pl.when(is_own.fill_null(value=False))
            .then(pl.lit("executor"))
            .otherwise(pl.lit("observer")),
        )
        .collect()
        .lazy()
    )
    key = [*ENTITY_KEY, "ended_at"]
    last_signs = (
        snap.events.lazy()
        .filter("is_activity")
        .select(*ENTITY_KEY, "at")
        .join(ended.select(key), on=ENTITY_KEY, how="inner")
        .filter(pl.col("at") <= pl.col("ended_at"))
        .group_by(key)
        .agg(last_sign_at=pl.col("at").max())
    )
    return ended.join(last_signs, on=key, how="left").select(_ATTEMPT_COLUMNS).collect()
