"""Where Agent Orchestrator contradicts itself: parts of a record, and records against logs."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from stateanalytics.core.audit import Cases, audit_rows, moment, word
from stateanalytics.core.facts import Facts
from stateanalytics.systems.agent_orchestrator import frames


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
