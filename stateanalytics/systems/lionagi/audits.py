"""Where lionagi contradicts itself: files, roll-ups, and reasons of other entities."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, family, word
from stateanalytics.core.facts import Facts
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.rollups import roll_up
from stateanalytics.systems.lionagi.transitions import (
    LIFECYCLES,
    OVERRIDE_EVENT,
    classify_transitions,
)

_KEY = list(schema.ENTITY_KEY)
_OF_REQUESTS = (
    *("invocation_id", "raw_status", "ended_at", "last_activity_at"),
    *("is_open", "is_over", "n_children"),
)


ADMIN_TARGETS = ("failed", "aborted", "cancelled")


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only this system's data allow."""
    return (reasons, roll_ups, shows_on_disk, run_directories, admin_targets)


def judge_transitions(facts: Facts) -> pl.DataFrame:
    """The changes of the entity types whose lifecycle is declared, with their verdict."""
    changes = facts.transitions.filter(
        pl.col("system") == "lionagi",
        pl.col("entity_type").is_in([cycle.entity_type for cycle in LIFECYCLES]),
    )
    # Mostly nobody overrode anything: then no change is looked for beside those that did.
    overrides = facts.events.filter(pl.col("kind") == OVERRIDE_EVENT)
    judged: pl.DataFrame = classify_transitions(
        changes, events=None if overrides.is_empty() else overrides
    )
    return judged


def shows_on_disk(cases: Cases) -> pl.DataFrame:
    """Shows and plays whose directory says something else than their row (#1161)."""
    rows = _rows(cases)
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
    differing = cases.facts.detail(frames.SHOWS_ON_DISK).filter(
        pl.col("store_status").is_not_null(), pl.col("disk_status") != pl.col("store_status")
    )
    both = differing.join(named, on=["source", "topic", "play"], how="inner", nulls_equal=True)
    return audit_rows(
        both,
        "audit.disk_differs",
        says=pl.format("the store says {}", word("store_status")),
        against=pl.format("its directory says {}", word("disk_status")),
    )


def run_directories(cases: Cases) -> pl.DataFrame:
    """Sessions whose run.json holds another status."""
    sessions = _rows(cases).filter(pl.col("entity_type") == "session")
    runs = cases.facts.detail(frames.RUNS).select(
        "source", "session_id", "run_id", file_status="status"
    )
    both = sessions.drop("run_id").join(runs, on=["source", "session_id"], how="inner")
    return audit_rows(
        both.filter(pl.col("file_status") != pl.col("raw_status")),
        "audit.run_file_differs",
        at="ended_at",
        says=pl.format("the store says {}", word("raw_status")),
        against=pl.format("run.json of {} says {}", word("run_id"), word("file_status")),
    )


def roll_ups(cases: Cases) -> pl.DataFrame:
    """Requests whose sessions have all ended: what the three rules say, and the request."""
    asked = _rows(cases).select(*_KEY, *_OF_REQUESTS)
    whole = family(asked, "invocation", "session", "invocation_id").filter(
        "is_over", pl.col("n_open") == 0, pl.col("n_legacy") == 0
    )
    numbered = whole.with_row_index("parent").with_columns(pl.col("parent").cast(pl.Int64))
    children = (
        cases.rows.lazy()  # which takes the columns that are asked for only
        .filter(pl.col("entity_type") == "session", system="lionagi")
        .sort("created_at", nulls_last=False, maintain_order=True)
        .select("source", "system", "invocation_id", "reason_code", status="raw_status")
        .join(
            numbered.lazy().select("source", "system", "parent", invocation_id="entity_id"),
            on=["source", "system", "invocation_id"],
            how="inner",
            maintain_order="left",
        )
        .collect()
        .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("parent"))
    )
    rolled = roll_up(numbered.select("parent"), children, by="parent").drop("n_children")
    answers = ("invocation_status", "grading_status", "lifecycle_status", "worst_status")
    both = numbered.join(rolled, on="parent", how="inner").with_columns(
        is_agreed=pl.all_horizontal(pl.col(answers[0]) == pl.col(name) for name in answers[1:3]),
        is_backed=pl.any_horizontal(pl.col("raw_status") == pl.col(name) for name in answers),
    )
    sentence = pl.format("invocation {} of {} sessions", word("raw_status"), "n_children")
    against = pl.format(
        "scheduler {}, run view {}, li lifecycle {}, worst {}", *(word(name) for name in answers)
    )
    return pl.concat(
        [
            audit_rows(
                both.filter(~pl.col("is_backed")),
                "audit.parent_contradicts_children",
                at="ended_at",
                says=sentence,
                against=against,
            ),
            audit_rows(
                both.filter(pl.col("is_backed") & ~pl.col("is_agreed")),
                "audit.rollups_disagree",
                at="ended_at",
                says=sentence,
                against=against,
            ),
        ]
    )


def reasons(cases: Cases) -> pl.DataFrame:
    """Reason codes from a domain that the entity type does not declare as its own."""
    own = {
        cycle.entity_type: [f"{prefix}." for prefix in cycle.reason_prefixes]
        for cycle in LIFECYCLES
        if cycle.has_reason_columns
    }
    code = pl.col("reason_code")
    foreign = pl.any_horizontal(
        (pl.col("entity_type") == entity_type)
        & ~pl.any_horizontal(code.str.starts_with(prefix) for prefix in prefixes)
        for entity_type, prefixes in own.items()
    )
    # `legacy.imported` is everybody's.
    rows = _rows(cases).filter(foreign, ~code.str.starts_with("legacy."))
    return audit_rows(
        rows,
        "audit.reason_of_other_entity",
        at=pl.coalesce("ended_at", "updated_at"),
        says=pl.format("a {} with status {}", "entity_type", word("raw_status")),
        against=pl.format("reason {}", word("reason_code")),
    )


def admin_targets(cases: Cases) -> pl.DataFrame:
    """Sessions that an admin gave a status which only the system may give (ADR-0025)."""
    by_admin = cases.facts.transitions.filter(
        pl.any_horizontal(pl.col(name) == "admin" for name in ("writer", "actor")),
        ~pl.col("status").is_in(ADMIN_TARGETS),
        system="lionagi",
        entity_type="session",
    )
    return audit_rows(
        by_admin,
        "audit.admin_target",
        at="at",
        says=pl.format("an admin set it to {}", word("status")),
        against=pl.lit(f"an admin may only set {', '.join(ADMIN_TARGETS)}"),
    )


def _rows(cases: Cases) -> pl.DataFrame:
    return cases.rows.filter(system="lionagi")
