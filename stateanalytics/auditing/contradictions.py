"""Checks that need no one system: histories, times and promises, parents against children."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, family, moment, word
from stateanalytics.core.facts import Facts, beside
from stateanalytics.core.units import how_long_each
from stateanalytics.core.vocabulary import EXIT_CODES
from stateanalytics.systems import all_systems

_KEY = list(schema.ENTITY_KEY)
# The verdicts that are worth a row, and what they offend; the others are as they should be.
_CODE_OF = {
    "illegal": ("audit.transition_illegal", "the lifecycle has no such edge"),
    "illegal_before_0_28": (
        "audit.transition_illegal_before_0_28",
        "nothing may follow a terminal status",
    ),
    "override": (
        "audit.transition_override",
        "nothing may follow a terminal status unless somebody overrides it",
    ),
    "unknown": ("audit.transition_unknown_status", "no status of that name is declared"),
}


def judged_transitions(facts: Facts) -> pl.DataFrame:
    """The changes that a system can judge (`System.judge_transitions`), with ``verdict``."""
    there = set(facts.transitions["system"].unique())
    judged = [
        known.judge_transitions(facts)
        for known in all_systems()
        if known.judge_transitions is not None and known.name in there
    ]
    nothing = schema.TRANSITIONS.empty().with_columns(verdict=pl.lit(None, pl.String))
    return pl.concat([nothing, *judged], how="diagonal_relaxed")


def changes_against_graphs(judged: pl.DataFrame) -> pl.DataFrame:
    """Changes, judged, that the graph of their entity type does not declare."""
    return pl.concat(
        audit_rows(
            judged.filter(pl.col("verdict") == verdict),
            code,
            at="at",
            says=pl.format("went from {} to {}", word("previous_status"), word("status")),
            against=pl.format(
                "{}, with reason {} by {}",
                pl.lit(expected),
                word("reason_code"),
                word("actor"),
            ),
        )
        for verdict, (code, expected) in _CODE_OF.items()
    )


def changes_against_history(cases: Cases) -> pl.DataFrame:
    """Changes that do not begin where the one before ended; rows that are not where the last did.

    Both are told of each entity's changes in their order, which is looked for once.
    """
    ordered = _ordered(cases)
    # Entity after entity, one shift does for all: one in each group takes ten times as long.
    grouped = ordered.with_row_index("place").group_by(_KEY).agg("place")
    gaps = _gaps(ordered, grouped["place"])
    last = ordered.select("status", "at", is_told=pl.lit(value=True))[grouped["place"].list.last()]
    rows = cases.rows.select(*_KEY, "raw_status", "updated_at")
    both = beside(rows, grouped.drop("place").hstack(last)).filter(
        "is_told",
        pl.col("raw_status").ne_missing(pl.col("status")),
        # A history that is not whole ends before the row does: a record that was written
        # later, by a kill for one, rightly says more.
        pl.col("system").is_in(_with_history("whole")) | (pl.col("at") > pl.col("updated_at")),
    )
    differing = audit_rows(
        both,
        "audit.status_differs_from_history",
        at="at",
        says=pl.format("its row says {}", word("raw_status")),
        against=pl.format("its history ended in {}", word("status")),
    )
    return pl.concat([gaps, differing])


def _gaps(ordered: pl.DataFrame, grouped: pl.Series) -> pl.DataFrame:
    """Changes that do not begin where the one before ended, of the places of each entity's."""
    each = pl.DataFrame({"place": grouped, "first": grouped.list.first()}).explode("place")
    changes = ordered[each["place"]]
    gaps = changes.with_columns(before=pl.col("status").shift(1)).filter(
        each["place"] != each["first"],
        pl.col("before").is_not_null(),
        pl.col("previous_status") != pl.col("before"),
    )
    return audit_rows(
        gaps,
        "audit.history_gap",
        at="at",
        says=pl.format("a change from {} to {}", word("previous_status"), word("status")),
        against=pl.format("the change before it ended in {}", word("before")),
    )


def _ordered(cases: Cases) -> pl.DataFrame:
    """Changes of status in the order in which they were accepted."""
    # Where changes are derived from events, there is nothing to hold against them.
    # All that the checks look at: of a million changes the other columns are a gigabyte.
    changes = cases.facts.transitions.select(*_KEY, "at", "seq", "previous_status", "status")
    kept = changes.filter(~pl.col("system").is_in(_with_history("derived")))
    return kept.sort("at", "seq", nulls_last=False, maintain_order=True)


def _with_history(kind: str) -> list[str]:
    return [known.name for known in all_systems() if known.history == kind]


GRACE_S = 300.0
"""What began a moment ago has had no time to write anything."""

TOLERANCE_S = 1.0
"""Start, end and duration are not taken at one instant."""

SILENT = ("stalled", "process_dead", "orphaned")
_IN_WORDS = {
    "stalled": "silent for longer than its kind of work ever should be",
    "process_dead": "its process was looked for and is gone",
    "orphaned": "it left no output, and its process is gone",
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
    # Without any moment its health is unknown; that its status says open is odd all the same.
    is_timeless = (
        (pl.col("entity_type") == "session")
        & (pl.col("health") == "unknown")
        & pl.all_horizontal(pl.col(name).is_null() for name in ("last_activity_at", "age_s"))
    )
    is_silent = pl.col("health").is_in(SILENT) | is_timeless
    # A team is orphaned by its parent, whatever its members do.
    silent = cases.rows.filter("is_open", is_silent, ~is_young, pl.col("entity_type") != "team")
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
            audit_rows(silent, code, at="last_activity_at", says=_status(), against=since),
            audit_rows(
                empty,
                code,
                at="last_activity_at",
                says=_status(),
                against=pl.format("no session in {}", how_long_each("age_s", "an unknown time")),
            ),
        ]
    )


def end_times(cases: Cases) -> pl.DataFrame:
    """Ends that are missing, too early, or beside a status that is not over."""
    rows = cases.rows
    has_moment = pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("outcome").is_in(outcomes)
        for entity_type, outcomes in _HAS_END.items()
    )
    unended = rows.filter("is_over", has_moment, pl.col("ended_at").is_null())
    for known in all_systems():
        if known.ends.never_there is not None:
            never_had = known.ends.never_there(cases.facts)
            unended = unended.join(never_had, on=list(schema.ENTITY_KEY), how="anti")
    early = rows.filter(pl.col("ended_at") < pl.col("started_at"))
    open_ended = rows.filter(
        "is_open", pl.col("lifecycle").is_in(_AT_WORK), pl.col("ended_at").is_not_null()
    )
    return pl.concat(
        [
            audit_rows(
                unended,
                "audit.end_missing",
                at="last_activity_at",
                says=_status(),
                against=pl.lit("no usable moment of its end was recorded"),
            ),
            audit_rows(
                early,
                "audit.end_before_start",
                at="ended_at",
                says=pl.format("started {}", moment("started_at")),
                against=pl.format("ended {}", moment("ended_at")),
            ),
            audit_rows(
                open_ended,
                "audit.end_while_open",
                at="ended_at",
                says=_status(),
                against=pl.format("ended {}", moment("ended_at")),
            ),
        ]
    )


def stored_durations(cases: Cases) -> pl.DataFrame:
    """Stored durations that are not the distance from start to end."""
    took = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    differing = cases.rows.with_columns(took_s=took).filter(
        pl.col("took_s") >= 0, (pl.col("stored_duration_s") - pl.col("took_s")).abs() > TOLERANCE_S
    )
    return audit_rows(
        differing,
        "audit.duration_differs",
        at="ended_at",
        says=pl.format("stored: {} s", pl.col("stored_duration_s").round(3)),
        against=pl.format("from start to end: {} s", pl.col("took_s").round(3)),
    )


def _status() -> pl.Expr:
    return pl.format("its status is {}", word("raw_status"))


_MISSING = "run.failed.missing_artifact"


def contract_verdicts(cases: Cases) -> pl.DataFrame:
    """Verdicts that the reason, the status or the verdict's own counts exclude."""
    rows = cases.rows.filter(pl.col("verdict").is_not_null())
    n_missing = pl.col("n_required_missing")
    for_nothing = (pl.col("reason_code") == _MISSING) & (
        (n_missing == 0) | pl.col("verdict").is_in(["passed", "warning"])
    )
    despite = (pl.col("raw_status") == "completed") & (pl.col("verdict") == "failed")
    counts = ((pl.col("verdict") == "passed") & (n_missing > 0)) | (
        (pl.col("verdict") == "failed") & (n_missing == 0) & (pl.col("n_produced") > 0)
    )
    said = pl.format(
        "verdict {}, {} required outputs missing",
        word("verdict"),
        n_missing.cast(pl.String).fill_null("an unknown number of"),
    )
    ended = pl.format("status {} with reason {}", word("raw_status"), word("reason_code"))
    return pl.concat(
        [
            audit_rows(
                rows.filter(for_nothing | despite),
                "audit.verdict_contradicts_reason",
                at="ended_at",
                says=ended,
                against=said,
            ),
            audit_rows(
                rows.filter(counts & pl.col("is_verdict_valid").fill_null(value=True)),
                "audit.verdict_contradicts_counts",
                at="ended_at",
                says=pl.format("verdict {}", word("verdict")),
                against=said,
            ),
        ]
    )


_WORK = ["source", "system"]
# (parent, child, the child's column that names the parent). A play does not contain its
# session but follows it, through a gate that may refuse: only their being over is compared.
_FAMILIES = (
    ("invocation", "session", "invocation_id"),
    ("show", "play", "parent_id"),
)
# Words for the same end, where parent and roll-up use different ones.
_OUTCOMES = {"succeeded": "completed"}


def over_or_open(cases: Cases) -> pl.DataFrame:
    """Parents that ended before a child, or stay open after the last one ended."""
    parts = []
    for parent, child, column in _FAMILIES:
        grouped = family(cases.rows, parent, child, column)
        late = grouped.filter("is_over", pl.col("n_open") > 0)
        # A request may go on by itself for a while, and a show waits for its gate.
        quiet_s = cases.policy.idle_after_s
        since_s = (pl.lit(cases.facts.as_of) - pl.col("last_end_at")).dt.total_microseconds() / 1e6
        forgotten = grouped.filter(
            "is_open", pl.col("n_open") == 0, pl.col("n_legacy") == 0, since_s > quiet_s
        )
        status = pl.format("{} {}", pl.lit(parent), word("raw_status"))
        parts += [
            audit_rows(
                late,
                "audit.parent_ended_before_children",
                at="ended_at",
                says=status,
                against=pl.format("{} of {} {}s not over", "n_open", "n_children", pl.lit(child)),
            ),
            audit_rows(
                forgotten,
                "audit.parent_open_after_children",
                at="last_end_at",
                says=status,
                against=pl.format(
                    "{} of {} {}s over, the last since {}",
                    "n_children",
                    "n_children",
                    pl.lit(child),
                    moment("last_end_at"),
                ),
            ),
        ]
    return pl.concat(parts)


def plays_and_sessions(cases: Cases) -> pl.DataFrame:
    """Plays that are over while their session is not, or at work long after it ended."""
    rows = cases.rows
    plays = rows.filter(pl.col("entity_type") == "play")
    sessions = (
        rows.lazy()
        .filter(pl.col("entity_type") == "session")
        .select(
            *_WORK,
            "session_id",
            child_status="raw_status",
            child_is_open="is_open",
            child_is_over="is_over",
            child_ended_at="ended_at",
        )
        .collect()
    )
    both = plays.join(sessions, on=[*_WORK, "session_id"], how="inner")
    # A play is written a while after its session ends: that alone contradicts nothing.
    since_s = (pl.lit(cases.facts.as_of) - pl.col("child_ended_at")).dt.total_microseconds() / 1e6
    status = pl.format("play {}", word("raw_status"))
    return pl.concat(
        [
            audit_rows(
                both.filter("is_over", "child_is_open"),
                "audit.parent_ended_before_children",
                at="ended_at",
                says=status,
                against=pl.format("its session is {}", word("child_status")),
            ),
            audit_rows(
                both.filter(
                    pl.col("lifecycle") == "running",
                    "child_is_over",
                    since_s > cases.policy.idle_after_s,
                ),
                "audit.parent_open_after_children",
                at="child_ended_at",
                says=status,
                against=pl.format(
                    "its session {} since {}", word("child_status"), moment("child_ended_at")
                ),
            ),
            audit_rows(
                both.filter(
                    pl.col("outcome") == "merged",
                    "child_is_over",
                    pl.col("child_status").is_in(["failed", "timed_out", "aborted", "cancelled"]),
                ),
                "audit.parent_contradicts_children",
                at="ended_at",
                says=status,
                against=pl.format("its session {}", word("child_status")),
            ),
        ]
    )


def fires_and_requests(cases: Cases) -> pl.DataFrame:
    """Fires of a schedule that ended well though their request did not, or the reverse."""
    rows, of_type = cases.rows, pl.col("entity_type")
    outcome = pl.col("outcome").replace(_OUTCOMES)
    requests = rows.filter(of_type == "invocation", "is_over").select(
        *_WORK, invocation_id="entity_id", child_status="raw_status", child_outcome=outcome
    )
    both = (
        rows.filter(of_type == "schedule_run", "is_over")
        .join(requests, on=[*_WORK, "invocation_id"], how="inner")
        .filter((outcome == "completed") != (pl.col("child_outcome") == "completed"))
    )
    return audit_rows(
        both,
        "audit.parent_contradicts_children",
        at="ended_at",
        says=pl.format("schedule run {}", word("raw_status")),
        against=pl.format("its invocation {}", word("child_status")),
    )


def exit_codes(cases: Cases) -> pl.DataFrame:
    """Ends whose process returned an exit code that means another end (ADR-0017, ADR-0025).

    What a play came to is decided after its process has ended, so a play that was merged or
    failed its gate has no exit code of its own. A failure may return any code but 0.
    """
    expected = pl.col("raw_status").replace_strict(
        dict(EXIT_CODES), default=None, return_dtype=pl.Int64
    )
    of_signals = [code for code in EXIT_CODES.values() if code > 1]
    code = pl.col("exit_code")
    is_other_signal = code.is_in(of_signals) & expected.is_in(of_signals) & (code != expected)
    differing = cases.rows.filter(((code == 0) != (expected == 0)) | is_other_signal)
    return audit_rows(
        differing,
        "audit.exit_code_differs",
        at="ended_at",
        says=_status(),
        against=pl.format("its process returned {}", "exit_code"),
    )


SHARED_CHECKS = (
    changes_against_history,
    without_sign_of_life,
    end_times,
    stored_durations,
    contract_verdicts,
    over_or_open,
    plays_and_sessions,
    fires_and_requests,
    exit_codes,
)
