"""Where Agent Orchestrator contradicts itself: findings of the store, and checks of the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, moment, word
from stateanalytics.core.facts import Facts, pool
from stateanalytics.core.package_tables import table_rows
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.decisions import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.places import SYSTEM


class Words(NamedTuple):
    """What is said of one kind of finding; braces stand for what a row adds."""

    severity: str
    column: str | None
    message: str
    action: str


KINDS: Mapping[str, Words] = {
    row["code"]: Words(row["severity"], row["column"] or None, row["message"], row["action"])
    for row in table_rows(__package__, "findings.csv")
}
"""Code of a finding to what is said of it."""

TRAPS: Mapping[str, str] = {
    "is_status_stale": "status.stale_cache",
    "is_kill_doubtful": "end.kill_doubtful",
    "is_flickering": "status.flickering",
    "looks_ended_after_restore": "status.ended_after_restore",
    "has_stale_end": "end.stale",
    "is_zombie": "runtime.gone",
    "is_spawn_race": "end.spawn_race",
}
"""Column of `mapped_axes.add_meaning` to the finding it makes."""


def _each(rows: pl.DataFrame, label: str, code: str, example: str, of: str = "") -> pl.DataFrame:
    """One finding a session; ``of`` is the column that its message tells of."""
    severity, column, message, action = KINDS[code]
    return per_entity(
        rows.with_columns(entity_type=pl.lit("session")),
        label,
        SYSTEM,
        code,
        severity,
        message=pl.format(message, of) if of else message,
        column=column or pl.col(of),
        example=pl.col(example),
        action=action,
    )


def _all(rows: pl.DataFrame, label: str, code: str, example: str | None = None) -> pl.DataFrame:
    """One finding about all rows, with the least of the examples: files have no order."""
    severity, column, message, action = KINDS[code]
    examples = rows[example].drop_nulls() if example else pl.Series([], dtype=pl.String)
    return counted(
        label,
        SYSTEM,
        code,
        severity,
        message.format(examples.n_unique()),
        n_rows=rows.height,
        column=column,
        example=str(examples.min()) if examples.len() else None,
        action=action,
    )


def record_findings(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """What single records hold: traps, words that are not known, made-up axes, orders of time."""
    readable = sessions.filter("is_readable")
    current = readable.filter("is_current").with_columns(
        _skewed=_before_creation(),
        _disagreement=pl.format("status={}, axes say {}", "stored_status", "legacy_status"),
    )
    findings = [
        _each(
            current.filter(flag),
            label,
            code,
            "_disagreement" if flag == "is_status_stale" else "session_reason",
        )
        for flag, code in TRAPS.items()
    ]
    rejected = current.filter(pl.col("reject_reason").is_not_null())
    made_up = current.filter(pl.col("is_synthesized").fill_null(value=False))
    # The Go rewrite keeps each change in a log.
    is_json = pl.col("generation") != "G3"
    moved = current.filter(is_json & pl.col("last_transition_at").is_not_null())
    renamed = current.filter(pl.col("entity_id") != pl.col("session_id"))
    skewed = current.filter(pl.col("_skewed") != "")
    findings += [
        _each(rejected, label, "record.would_reject", "legacy_status", "reject_reason"),
        _all(made_up, label, "record.synthesized"),
        _all(moved, label, "time.no_dwell"),
        _each(skewed, label, "time.before_creation", "created_at", "_skewed"),
        _each(renamed, label, "id.shared", "path", "session_id"),
        _all(readable.filter(~pl.col("is_current")), label, "record.superseded", "path"),
    ]
    return pool(findings, schema.FINDINGS)


def _before_creation() -> pl.Expr:
    """Moments in an order that cannot be: another clock wrote one of them."""
    later = ("started_at", "terminated_at", "completed_at", "last_transition_at", "report_at")
    columns = [
        pl.when(pl.col(name) < pl.col("created_at") - pl.duration(seconds=1)).then(pl.lit(name))
        for name in later
    ]
    return pl.concat_str(columns, separator=", ", ignore_nulls=True)


def log_findings(entries: pl.DataFrame, sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """What logs hold: sessions without a record, times that cannot be read, overwritten kills."""
    killed = entries.filter(
        pl.col("kind").is_in(KILL_EVENTS) & pl.col("code").is_not_null()
    ).select("entity_id", killed_for="code")
    rewritten = sessions.filter(
        pl.col("is_current") & (pl.col("session_reason") == "runtime_lost")
    ).join(killed.unique("entity_id", keep="last", maintain_order=True), on="entity_id")
    orphans = entries.filter("is_orphaned")
    undated = entries.filter(pl.col("at").is_null())
    findings = [
        _each(rewritten, label, "end.reason_overwritten", "killed_for", "killed_for"),
        _all(orphans, label, "event.no_record", "session_id"),
        _all(undated, label, "event.no_time", "kind"),
    ]
    return pool(findings, schema.FINDINGS)


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only this system's data allow."""
    return (records,)


def records(cases: Cases) -> pl.DataFrame:
    """Records of Agent Orchestrator that exclude themselves or their log."""
    current = (
        cases.facts.detail(frames.SESSIONS)
        .filter(pl.col("is_current"), pl.col("entity_id").is_not_null())
        .with_columns(system=pl.lit(SYSTEM), entity_type=pl.lit("session"))
    )
    axes = pl.format(
        "the axes say {} for {}, its runtime {}",
        word("session_state"),
        word("session_reason"),
        word("runtime_state"),
    )
    itself = {
        "is_status_stale": (
            pl.format("flat status {}", word("stored_status")),
            pl.format("the axes say {}", word("legacy_status")),
        ),
        "looks_ended_after_restore": (pl.format("restored {}", moment("restored_at")), axes),
        "has_stale_end": (pl.format("status {}", word("legacy_status")), pl.lit("it has an end")),
        "is_flickering": (
            pl.format("flat status {}", word("stored_status")),
            pl.lit("two writers disagree from poll to poll"),
        ),
    }
    lost = current.filter(
        pl.col("session_reason") == "runtime_lost", pl.col("has_kill_event").fill_null(value=False)
    )
    return pl.concat(
        [
            *(
                audit_rows(
                    current.filter(pl.col(flag).fill_null(value=False)),
                    "audit.record_contradicts_itself",
                    at="last_transition_at",
                    says=says,
                    against=against,
                )
                for flag, (says, against) in itself.items()
            ),
            audit_rows(
                lost,
                "audit.record_contradicts_log",
                at="terminated_at",
                says=pl.lit("its record says that its runtime was lost"),
                against=pl.lit("its log says that a person killed it"),
            ),
        ]
    )


def without_ends(facts: Facts) -> pl.DataFrame:
    """Sessions of Agent Orchestrator that never had a place for an end.

    Records without axes have no moments at all, and a session whose pull request was
    merged ends only when it is terminated.
    """
    records = facts.detail(frames.SESSIONS).filter("is_current")
    ends_in_time = pl.col("session_state").is_in(["terminated", "done"])
    return records.filter(pl.col("is_synthesized") | ~ends_in_time).select(
        "source",
        "entity_id",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
