"""One fact in two places: files against the store, parts of a record, records against logs."""

from __future__ import annotations

import polars as pl

from stateanalytics.auditing.cases import Cases, moment, told, word
from stateanalytics.core import schema

_KEY = list(schema.ENTITY_KEY)


def shows_on_disk(cases: Cases) -> pl.DataFrame:
    """Shows and plays whose directory says something else than their row (#1161)."""
    rows = cases.of_system("lionagi")
    shows = rows.filter(pl.col("entity_type") == "show")
    names = shows.select("source", parent_id="entity_id", topic="name")
    plays = rows.filter(pl.col("entity_type") == "play").join(names, on=["source", "parent_id"])
    key = (*_KEY, "topic", "play")
    named = pl.concat(
        [
            shows.with_columns(topic="name", play=pl.lit(None, pl.String)).select(key),
            plays.with_columns(play="name").select(key),
        ]
    )
    differing = cases.facts.detail("lionagi_shows_on_disk").filter(
        pl.col("store_status").is_not_null(), pl.col("disk_status") != pl.col("store_status")
    )
    both = differing.join(named, on=["source", "topic", "play"], how="inner", nulls_equal=True)
    return told(
        both,
        "audit.disk_differs",
        says=pl.format("the store says {}", word("store_status")),
        against=pl.format("its directory says {}", word("disk_status")),
    )


def run_directories(cases: Cases) -> pl.DataFrame:
    """Sessions whose run.json holds another status."""
    sessions = cases.of_system("lionagi").filter(pl.col("entity_type") == "session")
    runs = cases.facts.detail("lionagi_runs").select(
        "source", "session_id", "run_id", file_status="status"
    )
    both = sessions.drop("run_id").join(runs, on=["source", "session_id"], how="inner")
    return told(
        both.filter(pl.col("file_status") != pl.col("raw_status")),
        "audit.run_file_differs",
        at="ended_at",
        says=pl.format("the store says {}", word("raw_status")),
        against=pl.format("run.json of {} says {}", word("run_id"), word("file_status")),
    )


def records(cases: Cases) -> pl.DataFrame:
    """Records of Agent Orchestrator that exclude themselves or their log."""
    current = (
        cases.facts.detail("ao_sessions")
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
                told(
                    current.filter(pl.col(flag).fill_null(value=False)),
                    "audit.record_contradicts_itself",
                    at="last_transition_at",
                    says=says,
                    against=against,
                )
                for flag, (says, against) in itself.items()
            ),
            told(
                lost,
                "audit.record_contradicts_log",
                at="terminated_at",
                says=pl.lit("its record says that its runtime was lost"),
                against=pl.lit("its log says that a person killed it"),
            ),
        ]
    )


def executions(cases: Cases) -> pl.DataFrame:
    """Executions of opencode with several ends, or a success that was none."""
    rows = cases.facts.detail("opencode_executions").with_columns(
        system=pl.lit("opencode"), entity_type=pl.lit("execution")
    )
    blocked = pl.col("is_blocked") & (pl.col("outcome") == "succeeded")
    return pl.concat(
        [
            told(
                rows.filter(pl.col("n_terminals") > 1),
                "audit.ended_twice",
                at="ended_at",
                says=pl.format("its last end says {}", word("outcome")),
                against=pl.format(
                    "{} ends were written, the first says {}", "n_terminals", word("first_outcome")
                ),
            ),
            told(
                rows.filter(blocked.fill_null(value=False)),
                "audit.success_was_blocked",
                at="ended_at",
                says=pl.format("outcome {}", word("outcome")),
                against=pl.lit("the provider's content filter stopped it"),
            ),
        ]
    )
