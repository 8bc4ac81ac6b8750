"""What is wrong or unusual in an opencode input, and where opencode contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, word
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.systems.opencode import frames
from stateanalytics.systems.opencode.causes import UNRECOGNIZED
from stateanalytics.systems.opencode.executions import Folded
from stateanalytics.systems.opencode.gathered import Gathered
from stateanalytics.systems.opencode.mapping import SYSTEM
from stateanalytics.systems.recorded import is_content_filter

USUAL_RETRIES = 5
CLOCK_STEP_MS = 1000
"""Moments of two writers may cross by less."""
INTERRUPT_REASONS = ("user", "shutdown", "superseded", "inactivity")
FINISHES = ("stop", "length", "tool-calls", "error", "unknown")


def findings_of(
    gathered: Gathered,
    folded: Folded,
    details: Mapping[str, pl.DataFrame],
    label: str,
    *,
    is_table: bool,
) -> pl.DataFrame:
    """The findings of one input, in the shape of the schema."""
    order = folded.order
    executions, steps = details["opencode_executions"], details["opencode_steps"]
    lost = gathered.log.events.filter(
        pl.col("seq").is_not_null() & pl.col("session_id").is_null()
    ).height

    def say(code: str, severity: str, message: str, n: int, **more: str | None) -> pl.DataFrame:
        return counted(label, SYSTEM, code, severity, message, n_rows=n, **more)

    findings = [
        *(
            say(
                broken.code,
                broken.severity,
                broken.message,
                broken.n_rows,
                example=broken.example,
                table=broken.table,
                action="left out",
            )
            for broken in gathered.broken
        ),
        say("event.duplicate", "info", "the same event, seen before", order.n_duplicates,
            action="counted once"),
        say("event.misplaced", "warning", "a sequence number that cannot be one",
            order.n_misplaced, column="seq", action="left out"),
        say("event.without_session", "warning", "an event of no session", lost, action="left out"),
        per_entity(
            order.conflicts.group_by(entity_id="session_id").agg(
                n=pl.len(), seq=pl.col("seq").min()
            ).with_columns(entity_type=pl.lit("session")),
            label, SYSTEM, "event.conflict", "warning",
            message=pl.format("{} places are claimed by different events", "n"),
            column="seq", example=pl.col("seq"), action="the most trusted origin was kept",
        ),
        *(
            _unknown_words(frame.filter(pl.col("cause") == UNRECOGNIZED), "error_type",
                           "error.unrecognized", label, "an error of a type that is not known")
            for frame in (executions, details["opencode_tools"])
        ),
        _unknown_words(
            executions.filter(~pl.col("interrupt_reason").is_in(list(INTERRUPT_REASONS))),
            "interrupt_reason", "interrupt.unrecognized", label,
            "an interruption for a reason that is not known"),
        _unknown_words(
            steps.filter(
                ~pl.col("finish").is_in(list(FINISHES)), ~is_content_filter("finish")
            ),
            "finish", "finish.unrecognized", label, "a finish that is not known"),
        _of(executions.filter(pl.col("n_terminals") > 1), label, "end.late",
            "it ended more than once; the last end counts", column="end_seq"),
        _of(executions.filter("is_head_truncated"), label, "execution.head_missing",
            "its start is not in the input", column="start_seq"),
        _of(steps.filter(pl.col("n_retries") > USUAL_RETRIES), label, "retry.unusual",
            "more retries than opencode schedules by itself", column="n_retries",
            entity_type="step"),
        _of(executions.filter(pl.col("is_blocked") & (pl.col("outcome") == "succeeded")), label,
            "outcome.blocked_as_success", "stored as a success, but the content filter stopped it",
            column="outcome", severity="warning"),
        _backwards(folded, label),
        _gaps(gathered, folded, label) if is_table else schema.FINDINGS.empty(),
        _pending(details["opencode_inputs"], label),
    ]  # fmt: skip
    return pool(findings, schema.FINDINGS)


def _of(
    rows: pl.DataFrame,
    label: str,
    code: str,
    message: str,
    *,
    column: str,
    severity: str = "info",
    entity_type: str = "execution",
) -> pl.DataFrame:
    return per_entity(
        rows.select(entity_type=pl.lit(entity_type), entity_id="entity_id"),
        label,
        SYSTEM,
        code,
        severity,
        message=message,
        column=column,
        action="kept",
    )


def _unknown_words(
    strange: pl.DataFrame, column: str, code: str, label: str, message: str
) -> pl.DataFrame:
    """One finding for each word of ``strange`` rows, most frequent first."""
    words = (
        strange.filter(pl.col(column).is_not_null())
        .group_by(column)
        .agg(n=pl.len())
        .sort("n", column, descending=[True, False])
    )
    return pool(
        [
            counted(
                label,
                SYSTEM,
                code,
                "info",
                message,
                n_rows=n,
                column=column,
                example=word,
                action="kept under its own name",
            )
            for word, n in words.head(50).rows()
        ],
        schema.FINDINGS,
    )


def _backwards(folded: Folded, label: str) -> pl.DataFrame:
    """Moments that run back within a session: its clock was set, or two machines wrote it."""
    at, before = pl.col("at_ms"), pl.col("at_ms").shift(1)
    is_same = pl.col("sid") == pl.col("sid").shift(1)
    sessions = (
        folded.order.events.with_columns(back_ms=pl.when(is_same).then(before - at))
        .filter(pl.col("back_ms") > CLOCK_STEP_MS)
        .group_by(entity_id="session_id")
        .agg(n=pl.len(), most_s=pl.col("back_ms").max() // 1000)
        .with_columns(entity_type=pl.lit("session"))
    )
    return per_entity(
        sessions,
        label,
        SYSTEM,
        "time.backwards",
        "warning",
        message=pl.format("time runs back {} times, by up to {} s", "n", "most_s"),
        column="created",
        action="kept; events are ordered by their number, never by time",
    )


def _gaps(gathered: Gathered, folded: Folded, label: str) -> pl.DataFrame:
    """Missing sequence numbers: suspicious in a table, except after a fork."""
    forked = folded.order.events.filter(pl.col("kind") == "forked").select("session_id").unique()
    gaps = (
        gathered.log.events.filter(pl.col("seq").is_not_null())
        .group_by("session_id")
        .agg(n=pl.col("seq").max() - pl.col("seq").min() + 1 - pl.col("seq").n_unique())
        .filter(pl.col("n") > 0)
        .join(forked, on="session_id", how="anti")
        .select(entity_type=pl.lit("session"), entity_id="session_id", n="n")
    )
    return per_entity(
        gaps,
        label,
        SYSTEM,
        "event.gap",
        "warning",
        message=pl.format("{} sequence numbers are missing", "n"),
        table="event",
        column="seq",
        action="kept; what happened there is not known",
    )


def _pending(inputs: pl.DataFrame, label: str) -> pl.DataFrame:
    """Inputs that wait by their events and not by their table, or the other way round."""
    differ = inputs.filter(
        pl.col("is_stored_pending").is_not_null(),
        pl.col("admitted_seq").is_not_null(),
        pl.col("is_stored_pending") != pl.col("is_pending"),
    )
    return counted(
        label,
        SYSTEM,
        "input.disagrees",
        "warning",
        "events and the table of waiting inputs disagree whether it waits",
        n_rows=differ.height,
        table="session_pending",
        column="id",
        example=None if differ.is_empty() else str(differ["input_id"].min()),
        action="the events count",
    )


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only this system's data allow."""
    return (executions,)


def executions(cases: Cases) -> pl.DataFrame:
    """Executions of opencode with several ends, or a success that was none."""
    rows = cases.facts.detail(frames.EXECUTIONS).with_columns(
        system=pl.lit("opencode"), entity_type=pl.lit("execution")
    )
    blocked = pl.col("is_blocked") & (pl.col("outcome") == "succeeded")
    return pl.concat(
        [
            audit_rows(
                rows.filter(pl.col("n_terminals") > 1),
                "audit.ended_twice",
                at="ended_at",
                says=pl.format("its last end says {}", word("outcome")),
                against=pl.format(
                    "{} ends were written, the first says {}", "n_terminals", word("first_outcome")
                ),
            ),
            audit_rows(
                rows.filter(blocked.fill_null(value=False)),
                "audit.success_was_blocked",
                at="ended_at",
                says=pl.format("outcome {}", word("outcome")),
                against=pl.lit("the provider's content filter stopped it"),
            ),
        ]
    )
