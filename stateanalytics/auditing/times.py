"""Starts, ends and signs of life against the status, and against each other."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, moment, spell, told, word
from stateanalytics.systems import all_systems

GRACE_S = 300.0
"""What began a moment ago has had no time to write anything."""

TOLERANCE_S = 1.0
"""Start, end and duration are not taken at one instant."""

SILENT = ("stalled", "process_dead", "orphaned")
_IN_WORDS = {
    "stalled": "silent for longer than its kind of work ever should be",
    "process_dead": "its process was looked for and is gone",
    "orphaned": "it left no output, and nothing shows its process",
}
# Ends that are a moment of work: a skipped fire or a play that never began has none.
_HAS_END = {
    "session": ("completed", "failed", "timed_out", "aborted", "cancelled"),
    "invocation": ("succeeded", "completed", "failed", "timed_out", "aborted", "cancelled"),
    "schedule_run": ("completed", "failed", "timed_out"),
    "engine_run": ("completed", "failed", "cancelled"),
}
_AT_WORK = ("running", "queued", "pending")


def without_sign_of_life(cases: Cases) -> pl.DataFrame:
    """Open entities that show none, by the health of their state.

    An invocation has no health of its own. One that made no session shows no life
    either; commands are left out, since they never open one.
    """
    grace_s = GRACE_S
    is_young = (pl.col("age_s") <= grace_s).fill_null(value=False)
    # What began a moment ago has had no time to write anything.
    silent = cases.rows.filter("is_open", pl.col("health").is_in(SILENT), ~is_young)
    empty = cases.rows.filter(
        "is_open",
        pl.col("entity_type") == "invocation",
        pl.col("n_children") == 0,
        pl.col("kind").ne_missing("command"),
        (pl.col("silence_s") > grace_s) | pl.col("silence_s").is_null(),
    )
    since = pl.format(
        "{}; last sign of life {}",
        pl.col("health").replace_strict(_IN_WORDS, default="no sign of life"),
        moment("last_activity_at"),
    )
    code = "audit.open_without_sign_of_life"
    return pl.concat(
        [
            told(silent, code, at="last_activity_at", says=_status(), against=since),
            told(
                empty,
                code,
                at="last_activity_at",
                says=_status(),
                against=pl.format("no session in {}", spell(pl.col("age_s"))),
            ),
        ]
    )


def ends(cases: Cases) -> pl.DataFrame:
    """Ends that are missing, too early, or beside a status that is not over."""
    rows = cases.rows
    has_moment = pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("outcome").is_in(outcomes)
        for entity_type, outcomes in _HAS_END.items()
    )
    unended = rows.filter("is_over", has_moment, pl.col("ended_at").is_null())
    for known in all_systems():
        if known.without_ends is not None:
            never_had = known.without_ends(cases.facts)
            unended = unended.join(never_had, on=list(schema.ENTITY_KEY), how="anti")
    early = rows.filter(pl.col("ended_at") < pl.col("started_at"))
    open_ended = rows.filter(
        "is_open", pl.col("lifecycle").is_in(_AT_WORK), pl.col("ended_at").is_not_null()
    )
    return pl.concat(
        [
            told(
                unended,
                "audit.end_missing",
                at="last_activity_at",
                says=_status(),
                against=pl.lit("no usable moment of its end was recorded"),
            ),
            told(
                early,
                "audit.end_before_start",
                at="ended_at",
                says=pl.format("started {}", moment("started_at")),
                against=pl.format("ended {}", moment("ended_at")),
            ),
            told(
                open_ended,
                "audit.end_while_open",
                at="ended_at",
                says=_status(),
                against=pl.format("ended {}", moment("ended_at")),
            ),
        ]
    )


def durations(cases: Cases) -> pl.DataFrame:
    """Stored durations that are not the distance from start to end."""
    took = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    differing = cases.rows.with_columns(took_s=took).filter(
        pl.col("took_s") >= 0, (pl.col("stored_duration_s") - pl.col("took_s")).abs() > TOLERANCE_S
    )
    return told(
        differing,
        "audit.duration_differs",
        at="ended_at",
        says=pl.format("stored: {} s", pl.col("stored_duration_s").round(3)),
        against=pl.format("from start to end: {} s", pl.col("took_s").round(3)),
    )


def _status() -> pl.Expr:
    return pl.format("its status is {}", word("raw_status"))
