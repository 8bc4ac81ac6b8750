"""Where Agent Orchestrator contradicts itself: findings of the store, and checks of the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, moment, word
from stateanalytics.core.facts import Facts, pool
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.mapped_axes import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.places import SYSTEM


class Trap(NamedTuple):
    """One contradiction that a record may hold, and what a reader should know."""

    code: str
    severity: str
    message: str
    column: str
    action: str


TRAPS: Mapping[str, Trap] = {
    "is_status_stale": Trap(
        "status.stale_cache",
        "info",
        "the flat status is a cache and says something else than the axes",
        "status",
        "the axes count",
    ),
    "is_kill_doubtful": Trap(
        "end.kill_doubtful",
        "warning",
        "its runtime counts as lost, but it may have been killed: the poll after a kill "
        "writes over its reason",
        "lifecycle.session.reason",
        "kept as lost; terminated_at is the moment of the kill",
    ),
    "is_flickering": Trap(
        "status.flickering",
        "warning",
        "two writers disagree from poll to poll; the record shows whoever came last",
        "lifecycle.session",
        "mapped by the flat status, with confidence 0.5",
    ),
    "looks_ended_after_restore": Trap(
        "status.ended_after_restore",
        "warning",
        "it was restored, but its record still says terminated",
        "lifecycle.session.state",
        "kept as stored",
    ),
    "has_stale_end": Trap(
        "end.stale",
        "info",
        "it is alive again, but still has an end",
        "lifecycle.session.terminatedAt",
        "the end is not used",
    ),
    "is_zombie": Trap(
        "runtime.gone",
        "warning",
        "it is not over, and its process is gone: Agent Orchestrator never ends such a session",
        "lifecycle.runtime.state",
        "kept open, with health process_dead",
    ),
    "is_spawn_race": Trap(
        "end.spawn_race",
        "info",
        "it was lost within a minute of its creation: probed before its agent had started",
        "lifecycle.session.reason",
        "kept as lost",
    ),
}
"""Column of `mapped_axes.add_meaning` to the finding it makes."""


def record_findings(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """What single records hold: traps, words that are not known, made-up axes, orders of time."""
    current = sessions.filter("is_current").with_columns(entity_type=pl.lit("session"))
    findings = [
        per_entity(
            current.filter(name),
            label,
            SYSTEM,
            trap.code,
            trap.severity,
            message=trap.message,
            column=trap.column,
            example=_said(name),
            action=trap.action,
        )
        for name, trap in TRAPS.items()
    ]
    findings += [
        per_entity(
            current.filter(pl.col("ao_would_reject").fill_null(value=False)),
            label,
            SYSTEM,
            "record.would_reject",
            "warning",
            message=pl.format("Agent Orchestrator would discard its axes: {}", "reject_reason"),
            column="lifecycle",
            example=pl.col("ao_status"),
            action="the words are kept as they are stored",
        ),
        counted(
            label,
            SYSTEM,
            "record.synthesized",
            "info",
            "records without axes: Agent Orchestrator makes them up, and their times with them",
            n_rows=current.filter(pl.col("is_synthesized").fill_null(value=False)).height,
            column="lifecycle",
            action="mapped by the stored status word; made-up times are left out",
        ),
        counted(
            label,
            SYSTEM,
            "time.no_dwell",
            "info",
            "lastTransitionAt is when a decision was last written, changed or not: it says "
            "nothing about how long a state has lasted",
            n_rows=current.filter(pl.col("last_transition_at").is_not_null()).height,
            column="lifecycle.session.lastTransitionAt",
            action="kept as updated_at; durations come from transitions",
        ),
        _clock_findings(current, label),
        _duplicates(sessions, label),
    ]
    return pool(findings, schema.FINDINGS)


def _said(name: str) -> pl.Expr:
    """The two words that disagree, for an example."""
    if name != "is_status_stale":
        return pl.col("session_reason")
    return pl.format("status={}, axes say {}", "stored_status", "legacy_status")


def _first(values: pl.Series) -> str | None:
    """The least of some texts, so that the order of files changes no example."""
    least = values.min()
    return None if least is None else str(least)


def _clock_findings(current: pl.DataFrame, label: str) -> pl.DataFrame:
    """Moments in an order that cannot be: another clock wrote one of them."""
    earlier = ("started_at", "terminated_at", "completed_at", "last_transition_at", "report_at")
    columns = [
        pl.when(pl.col(name) < pl.col("created_at") - pl.duration(seconds=1)).then(pl.lit(name))
        for name in earlier
    ]
    skewed = current.with_columns(
        _skewed=pl.concat_str(columns, separator=", ", ignore_nulls=True)
    ).filter(pl.col("_skewed") != "")
    return per_entity(
        skewed,
        label,
        SYSTEM,
        "time.before_creation",
        "warning",
        message=pl.format("{} lies before its creation: two clocks disagree", "_skewed"),
        column=pl.col("_skewed"),
        example=pl.col("created_at"),
        action="kept as stored",
    )


def _duplicates(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """Sessions of one name in two directories, and older records of one session."""
    readable = sessions.filter("is_readable").with_columns(entity_type=pl.lit("session"))
    renamed = readable.filter(pl.col("is_current") & (pl.col("entity_id") != pl.col("session_id")))
    older = readable.filter(~pl.col("is_current"))
    return pool(
        [
            per_entity(
                renamed,
                label,
                SYSTEM,
                "id.shared",
                "warning",
                message=pl.format("another directory holds a session {} too", "session_id"),
                column="path",
                example=pl.col("path"),
                action="kept as a session of its own, named with its directory",
            ),
            counted(
                label,
                SYSTEM,
                "record.superseded",
                "info",
                "older records of sessions that have a newer one: archives, and originals that "
                "the storage migration left behind",
                n_rows=older.height,
                example=_first(older["path"]),
                action="in ao_sessions with is_current false; no entities of their own",
            ),
        ],
        schema.FINDINGS,
    )


def log_findings(entries: pl.DataFrame, sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """What logs hold: sessions without a record, times that cannot be read, overwritten kills."""
    orphans = entries.filter("is_orphaned")
    killed = entries.filter(
        pl.col("kind").is_in(KILL_EVENTS) & pl.col("code").is_not_null()
    ).select("entity_id", killed_for="code")
    rewritten = (
        sessions.filter(pl.col("is_current") & (pl.col("session_reason") == "runtime_lost"))
        .join(killed.unique("entity_id", keep="last", maintain_order=True), on="entity_id")
        .with_columns(entity_type=pl.lit("session"))
    )
    return pool(
        [
            per_entity(
                rewritten,
                label,
                SYSTEM,
                "end.reason_overwritten",
                "warning",
                message=pl.format(
                    "its record says runtime_lost, but its log says it was killed: {}",
                    "killed_for",
                ),
                column="lifecycle.session.reason",
                example=pl.col("killed_for"),
                action="mapped as killed where a person did it just before",
            ),
            counted(
                label,
                SYSTEM,
                "event.no_record",
                "info",
                f"lines about {orphans['session_id'].n_unique()} sessions that have no record here",
                n_rows=orphans.height,
                example=_first(orphans["session_id"]),
                action="kept under the name of the session",
            ),
            counted(
                label,
                SYSTEM,
                "event.no_time",
                "warning",
                "lines without a time that can be read",
                n_rows=entries.filter(pl.col("at").is_null()).height,
                example=_first(entries.filter(pl.col("at").is_null())["kind"]),
                action="kept without one",
            ),
        ],
        schema.FINDINGS,
    )


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only this system's data allow."""
    return (records,)


def records(cases: Cases) -> pl.DataFrame:
    """Records of Agent Orchestrator that exclude themselves or their log."""
    current = (
        cases.facts.detail(frames.SESSIONS)
        .filter(pl.col("is_current"), pl.col("entity_id").is_not_null())
        .with_columns(system=pl.lit("agent_orchestrator"), entity_type=pl.lit("session"))
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
        "looks_ended_after_restore": (
            pl.format("restored {}", moment("restored_at")),
            axes,
        ),
        "has_stale_end": (pl.format("status {}", word("ao_status")), pl.lit("it has an end")),
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
        system=pl.lit("agent_orchestrator"),
        entity_type=pl.lit("session"),
    )
