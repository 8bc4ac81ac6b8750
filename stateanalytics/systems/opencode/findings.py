"""Findings about opencode inputs: losses, oddities, and contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, word
from stateanalytics.core.joins import pool
from stateanalytics.io.findings import per_entity, rows_counted
from stateanalytics.systems.opencode import NAME, frames
from stateanalytics.systems.opencode.gathered import (
    KINDS,
    SESSION_KEY,
    Broken,
    Gathered,
    Ordered,
    n_by_source,
)
from stateanalytics.systems.opencode.states import UNRECOGNIZED
from stateanalytics.systems.situations import is_content_filter

_USUAL_RETRIES = 5
_MOST_WORDS = 50
_CLOCK_STEP_MS = 1000
"""Clocks of two writers may differ by less."""
_INTERRUPT_REASONS = ("user", "shutdown", "superseded", "inactivity")
_IDLE_OUTCOMES = ("succeeded", "failed", "interrupted")
_FINISHES = ("stop", "length", "tool-calls", "error", "unknown")


def findings_of(
    gathered: Gathered, order: Ordered, details: Mapping[str, pl.DataFrame], *, is_table: bool
) -> pl.DataFrame:
    """The findings of some inputs, in the shape of the schema."""
    executions, steps = details["opencode_executions"], details["opencode_steps"]
    without_session = gathered.log.events.filter(
        pl.col("seq").is_not_null() & pl.col("session_id").is_null()
    )
    conflicts = order.conflicts.group_by("source", entity_id="session_id").agg(
        n=pl.len(), seq=pl.col("seq").min()
    )
    findings = [
        _broken(gathered.broken),
        _counted(order.duplicates, "event.duplicate", "info", "the same event, seen before",
                 action="counted once"),
        _counted(order.misplaced, "event.misplaced", "warning",
                 "a sequence number that cannot be one", column="seq"),
        _unknown_words(
            gathered.log.events.filter(
                pl.col("session_id").is_not_null(), ~pl.col("kind").is_in(list(KINDS))
            ),
            "type", "event.unknown_type", "an event of a type that no known version writes"),
        _counted(n_by_source(without_session), "event.without_session", "warning",
                 "an event of no session"),
        _per_entity(
            conflicts, "event.conflict", "warning", entity_type="session",
            message=pl.format("{} sequence numbers belong to different events", "n"),
            column="seq", example=pl.col("seq"), action="the most trusted origin was kept",
        ),
        *(
            _unknown_words(frame.filter(pl.col("cause") == UNRECOGNIZED), "error_type",
                           "error.unrecognized", "an error of a type that is not known")
            for frame in (executions, details["opencode_tools"])
        ),
        _unknown_words(
            executions.filter(~pl.col("interrupt_reason").is_in(list(_INTERRUPT_REASONS))),
            "interrupt_reason", "interrupt.unrecognized",
            "an interruption for a reason that is not known"),
        _unknown_words(
            steps.filter(
                ~pl.col("finish").is_in(list(_FINISHES)), ~is_content_filter("finish")
            ),
            "finish", "finish.unrecognized", "a finish that is not known"),
        _unknown_words(
            details["opencode_sessions"].filter(
                ~pl.col("idle_outcome").is_in(list(_IDLE_OUTCOMES))
            ),
            "idle_outcome", "outcome.unrecognized", "an outcome that is not known"),
        _per_entity(executions.filter(pl.col("n_terminals") > 1), "end.late",
              message="it ended more than once; the last end counts", column="end_seq"),
        _per_entity(executions.filter("is_head_truncated"), "execution.head_missing",
              message="its start is not in the input", column="start_seq"),
        _per_entity(steps.filter(pl.col("n_retries") > _USUAL_RETRIES), "retry.unusual",
              message="more retries than opencode schedules by itself", column="n_retries",
              entity_type="step"),
        _per_entity(executions.filter(pl.col("is_blocked") & (pl.col("outcome") == "succeeded")),
              "outcome.blocked_as_success", "warning",
              message="stored as a success, but the content filter stopped it",
              column="outcome"),
        _backward_times(order.events),
        _gaps(gathered.log.events, order.events) if is_table else schema.FINDINGS.empty(),
        _disagreeing_inputs(details["opencode_inputs"]),
    ]  # fmt: skip
    return pool(findings, schema.FINDINGS)


def _broken(losses: Sequence[Broken]) -> pl.DataFrame:
    columns = ("source", "code", "severity", "message", "n_rows", "example", "table")
    dtypes = {name: schema.FINDINGS.dtypes[name] for name in columns}
    rows = pl.DataFrame(
        [tuple(getattr(loss, name) for name in columns) for loss in losses],
        schema=dtypes,
        orient="row",
    )
    return _counted(rows, pl.col("code"), pl.col("severity"), pl.col("message"),
                    table=pl.col("table"), example=pl.col("example"))  # fmt: skip


def _counted(
    rows: pl.DataFrame,
    code: str | pl.Expr,
    severity: str | pl.Expr,
    message: str | pl.Expr,
    *,
    action: str = "excluded",
    **more: str | pl.Expr | None,
) -> pl.DataFrame:
    """One finding per row, which has ``source`` and ``n_rows``."""
    return rows_counted(rows, NAME, code, severity, message, action=action, **more)


def _per_entity(
    rows: pl.DataFrame,
    code: str,
    severity: str = "info",
    *,
    message: str | pl.Expr,
    entity_type: str = "execution",
    action: str = "kept",
    **more: Any,
) -> pl.DataFrame:
    """One finding per entity, up to a maximum per source."""
    return per_entity(
        rows.with_columns(entity_type=pl.lit(entity_type)),
        pl.col("source"),
        NAME,
        code,
        severity,
        message=message,
        action=action,
        **more,
    )


def _unknown_words(strange: pl.DataFrame, column: str, code: str, message: str) -> pl.DataFrame:
    """One finding per word of the ``strange`` rows of a source, most frequent first."""
    words = (
        strange.filter(pl.col(column).is_not_null())
        .group_by("source", column)
        .agg(n_rows=pl.len().cast(pl.Int64))
        .sort("n_rows", column, descending=[True, False])
        .group_by("source", maintain_order=True)
        .head(_MOST_WORDS)
    )
    return _counted(words, code, "info", message, column=column, example=pl.col(column),
                    action="kept under its own name")  # fmt: skip


def _backward_times(events: pl.DataFrame) -> pl.DataFrame:
    """Sessions in which time runs back: a clock was set, or two machines wrote them."""
    at, before = pl.col("at_ms"), pl.col("at_ms").shift(1)
    is_same = pl.col("sid") == pl.col("sid").shift(1)
    sessions = (
        events.with_columns(back_ms=pl.when(is_same).then(before - at))
        .filter(pl.col("back_ms") > _CLOCK_STEP_MS)
        .group_by("source", entity_id="session_id")
        .agg(n=pl.len(), most_s=pl.col("back_ms").max() // 1000)
    )
    return _per_entity(
        sessions,
        "time.backwards",
        "warning",
        entity_type="session",
        message=pl.format("time runs back {} times, by up to {} s", "n", "most_s"),
        column="created",
        action="kept; events are ordered by their number, never by time",
    )


def _gaps(recorded: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Missing sequence numbers: suspicious in a table, except after a fork."""
    forked = events.filter(pl.col("kind") == "forked").select(SESSION_KEY).unique()
    gaps = (
        recorded.filter(pl.col("seq").is_not_null())
        .group_by(SESSION_KEY)
        .agg(n=pl.col("seq").max() - pl.col("seq").min() + 1 - pl.col("seq").n_unique())
        .filter(pl.col("n") > 0)
        .join(forked, on=SESSION_KEY, how="anti")
        .rename({"session_id": "entity_id"})
    )
    return _per_entity(
        gaps,
        "event.gap",
        "warning",
        entity_type="session",
        message=pl.format("{} sequence numbers are missing", "n"),
        table="event",
        column="seq",
        action="kept; what happened there is not known",
    )


def _disagreeing_inputs(inputs: pl.DataFrame) -> pl.DataFrame:
    """Inputs that wait by their events and not by their table, or vice versa."""
    differ = inputs.filter(
        pl.col("is_stored_pending").is_not_null(),
        pl.col("admitted_seq").is_not_null(),
        pl.col("is_stored_pending") != pl.col("is_pending"),
    )
    return _counted(
        differ.group_by("source").agg(
            n_rows=pl.len().cast(pl.Int64), first=pl.col("input_id").min()
        ),
        "input.disagrees",
        "warning",
        "events and the table of waiting inputs disagree whether it waits",
        table="session_pending",
        column="id",
        example=pl.col("first"),
        action="the events count",
    )


def executions(cases: Cases) -> pl.DataFrame:
    """Executions with several ends, or with a success that the content filter stopped."""
    rows = cases.facts.detail(frames.EXECUTIONS).with_columns(
        system=pl.lit(NAME), entity_type=pl.lit("execution")
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
