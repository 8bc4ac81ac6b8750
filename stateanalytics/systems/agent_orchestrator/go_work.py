"""Work of the Go rewrite next to its sessions: turns, reviews, spawns; its events, and usage.

``data/situations.csv`` holds the meaning of each status of a piece of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import json_value
from stateanalytics.systems.agent_orchestrator.go_sessions import GoTables, with_session
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.history import has_begun
from stateanalytics.systems.provider_errors import cause_by_words
from stateanalytics.systems.situations import add_situations, situations_from_csv

_SITUATIONS = situations_from_csv(__package__)
_CUT_OFF = "controller ended before the turn completed"
_FIRST = {
    "turn": "queued",
    "agent_switch": "preparing_handoff",
    "interface_transition": "requested",
}
VERDICTS = ("approved", "changes_requested")
_SAME_SPAWN = timedelta(seconds=2)
"""A spawn that failed is written this close to the end of the row that it leaves."""

WORK_TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "turn": (
        "conversation_turns",
        {
            "session_id": "handled_by_session_id",
            "raw_status": "state",
            "error_message": "error_message",
            "created_at": "requested_at",
            "started_at": "started_at",
            "ended_at": "completed_at",
        },
    ),
    "review_run": (
        "review_run",
        {
            "session_id": "session_id",
            "agent": "harness",
            "raw_status": "status",
            "verdict": "verdict",
            "error_message": "body",
            "created_at": "created_at",
            "started_at": "created_at",
            "ended_at": "delivered_at",
        },
    ),
    "agent_switch": (
        "agent_switches",
        {
            "session_id": "session_id",
            "agent": "target_harness",
            "raw_status": "state",
            "error_code": "error_code",
            "created_at": "requested_at",
            "started_at": "requested_at",
            "ended_at": "updated_at",
        },
    ),
    "interface_transition": (
        "session_interface_transitions",
        {
            "session_id": "session_id",
            "kind": "target_mode",
            "raw_status": "phase",
            "error_code": "error_code",
            "error_message": "error_detail",
            "created_at": "created_at",
            "started_at": "created_at",
            "ended_at": "completed_at",
        },
    ),
}
"""Each type of work: its table, and its canonical columns with the columns they are read from."""


def known_words(entity_type: str) -> list[str]:
    """The statuses of a type of work that have a meaning."""
    situations = [name.partition(".") for name in _SITUATIONS["situation"]]
    own = [word for work, _, word in situations if work == entity_type]
    return [*own, "complete", "delivered"] if entity_type == "review_run" else own


def read_work(tables: GoTables) -> pl.DataFrame:
    """Every piece of work in the columns of `frames.WORK`, its session by its stored name."""
    pieces = [
        tables[table].select(entity_type=pl.lit(entity_type), entity_id="id", **columns)
        for entity_type, (table, columns) in WORK_TABLES.items()
    ]
    work = pl.concat([*pieces, _spawns(tables)], how="diagonal")
    replaced = _replaced_turns(tables).implode()
    return (
        work.join(
            _review_ends(tables), on=["entity_type", "entity_id"], how="left", maintain_order="left"
        )
        .with_columns(
            # A review is over when its pass is, whenever that reaches the provider.
            ended_at=pl.when(_is_over()).then(pl.coalesce("reviewed_at", "ended_at")),
            # The body of a review is an error only where the review failed.
            error_message=pl.when(
                (pl.col("entity_type") != "review_run") | (pl.col("raw_status") == "failed")
            ).then("error_message"),
            is_replaced=pl.when(pl.col("entity_type") == "turn").then(
                pl.col("entity_id").is_in(replaced)
            ),
        )
        .drop("reviewed_at")
    )


def _replaced_turns(tables: GoTables) -> pl.Series:
    """Ids of turns that were rolled back, or are not on the branch that their chat shows.

    Turns of a parent branch are shown up to the fork. A version that does not record which
    branch is shown records for each edit which turn it replaced.
    """
    branches, chats = tables["conversation_branches"], tables["conversations"]
    shown = chats.select("active_branch_id", conversation_id="id")
    levels = [
        shown.select(
            branch_id="active_branch_id",
            fork_after_sequence=pl.lit(None, pl.Int64),
            replaced_turn_id=pl.lit(None, pl.String),
        )
    ]
    unseen = branches
    while levels[-1].height:
        ancestors = unseen.join(levels[-1], left_on="id", right_on="branch_id", how="inner")
        # A damaged store may have its branches in a circle.
        unseen = unseen.join(ancestors, on="id", how="anti")
        forks = pl.min_horizontal("fork_after_sequence", "fork_after_sequence_right")
        levels.append(
            ancestors.select(
                # Turns that a fork excludes stay excluded in every branch after it.
                fork_after_sequence=forks,
                replaced_turn_id="replaced_turn_id",
                branch_id="parent_branch_id",
            ).unique("branch_id", keep="first", maintain_order=True)
        )
    # A branch that is shown itself is shown whole, whatever was forked from it.
    on_path = (
        pl.concat(levels, how="diagonal")
        .drop_nulls("branch_id")
        .unique("branch_id", keep="first", maintain_order=True)
    )
    first_message = (
        tables["conversation_messages"].group_by(id="turn_id").agg(pl.col("sequence").min())
    )
    turns = (
        tables["conversation_turns"]
        .join(first_message, on="id", how="left")
        .join(shown, on="conversation_id", how="left")
        .join(on_path.with_columns(is_on_path=pl.lit(value=True)), on="branch_id", how="left")
    )
    edited, edited_on_path = (
        frame["replaced_turn_id"].drop_nulls().implode() for frame in (branches, on_path)
    )
    is_after_fork = pl.col("sequence") > pl.col("fork_after_sequence")
    is_past = is_after_fork | pl.col("id").is_in(edited_on_path)
    is_away = pl.col("branch_id").is_not_null() & pl.col("is_on_path").is_null()
    is_replaced = (
        pl.when(pl.col("active_branch_id").is_null())
        .then(pl.col("id").is_in(edited))
        .otherwise(is_away | is_past.fill_null(value=False))
    )
    return turns.filter(is_replaced | pl.col("rolled_back_at").is_not_null())["id"]


def _is_over() -> pl.Expr:
    """Is a piece of work over by its status; an unknown status is no end."""
    over = _SITUATIONS.filter(pl.col("outcome").is_not_null())["situation"].implode()
    return _situation().is_in(over)


def _review_ends(tables: GoTables) -> pl.DataFrame:
    """When the pass of each review was over, by the log of changes."""
    ends = (
        tables["change_log"]
        .filter(pl.col("event_type") == "review_run_updated")
        .filter(json_value("payload", "status") != "running")
        .select(
            entity_type=pl.lit("review_run"),
            entity_id=json_value("payload", "id"),
            reviewed_at="created_at",
        )
    )
    return ends.group_by("entity_type", "entity_id").agg(pl.col("reviewed_at").min())


def _spawns(tables: GoTables) -> pl.DataFrame:
    """Every attempt to start a session that telemetry keeps, failed or not.

    One that failed and left a row of a session has no key of it: the row was last written
    at the same moment, by the same project, and never gave a signal.
    """
    statuses = {"ao.session.spawned": "spawned", "ao.session.spawn_failed": "failed"}
    took_ms = json_value("payload_json", "duration_ms").cast(pl.Float64, strict=False)
    began_at = pl.col("occurred_at") - pl.duration(milliseconds=took_ms)
    # A wrong duration may lead out of the calendar of Python's dates.
    started_at = pl.coalesce(pl.when(began_at.dt.year() >= 1).then(began_at), "occurred_at")
    attempts = (
        tables["telemetry_event"]
        .filter(pl.col("name").is_in(list(statuses)))
        .select(
            entity_type=pl.lit("spawn"),
            entity_id="id",
            session_id="session_id",
            project="project_id",
            kind=json_value("payload_json", "kind"),
            agent=json_value("payload_json", "harness"),
            raw_status=pl.col("name").replace_strict(statuses),
            error_code=json_value("payload_json", "error_code", "error_kind"),
            created_at=started_at,
            started_at=started_at,
            ended_at="occurred_at",
        )
    )
    dead = tables["sessions"].filter(pl.col("is_terminated") & pl.col("first_signal_at").is_null())
    left_behind = (
        attempts.filter(pl.col("session_id").is_null())
        .join(dead.select("updated_at", project="project_id", left="id"), on="project")
        .filter((pl.col("updated_at") - pl.col("ended_at")).abs() <= _SAME_SPAWN)
        .sort("left")
        .group_by("entity_id")
        .agg(pl.col("left").first())
    )
    linked = attempts.join(left_behind, on="entity_id", how="left", maintain_order="left")
    return linked.with_columns(session_id=pl.coalesce("session_id", "left")).drop("left")


def work_at(work: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """`frames.WORK` as it was at an instant, by its own moments."""
    is_over = (pl.col("ended_at") <= at).fill_null(value=False)
    has_started = (pl.col("started_at") <= at).fill_null(value=False)
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    is_same = is_over | pl.col("ended_at").is_null()
    before = pl.when(has_started & (pl.col("entity_type") == "turn")).then(pl.lit("running"))
    results = ("error_code", "error_message", "verdict")
    # When a turn was replaced is not recorded.
    not_replaced = pl.when(~pl.col("is_replaced")).then(pl.lit(value=False))
    return work.filter(has_begun(at)).with_columns(
        raw_status=pl.when(is_same).then("raw_status").otherwise(pl.coalesce(before, first)),
        started_at=pl.when(has_started).then("started_at"),
        ended_at=pl.when(is_over).then("ended_at"),
        is_replaced=not_replaced,
        **{name: pl.when(is_over).then(name) for name in results},
    )


def _situation() -> pl.Expr:
    word = pl.format("{}.{}", "entity_type", "raw_status")
    is_review = (pl.col("entity_type") == "review_run") & pl.col("raw_status").is_in(
        ["complete", "delivered"]
    )
    is_known = pl.col("verdict").is_in(VERDICTS)
    verdict = pl.when(is_known).then("verdict").otherwise(pl.lit("no_verdict"))
    return (
        pl.when(is_review)
        .then(pl.format("review_run.{}", verdict))
        .when((pl.col("raw_status") == "failed") & (pl.col("error_message") == _CUT_OFF))
        .then(pl.lit("turn.controller_ended"))
        .otherwise(word)
    )


def with_turns(sessions: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Entities of sessions with their number of chat turns; null: none is recorded."""
    turns = work.filter(pl.col("entity_type") == "turn")
    counts = turns.group_by("source", entity_id="session_id").agg(_n=pl.len().cast(pl.Int64))
    return (
        sessions.join(counts, on=["source", "entity_id"], how="left", maintain_order="left")
        .with_columns(n_turns="_n")
        .drop("_n")
    )


def work_entities(work: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Pieces of work as entities; a spawn only where it failed and left no session.

    Parameters
    ----------
    work : polars.DataFrame
        `frames.WORK`, as now or at an instant.
    sessions : polars.DataFrame
        Entities of the sessions.
    """
    has_session = (pl.col("entity_type") == "spawn") & (
        pl.col("session_id").is_not_null() | (pl.col("raw_status") != "failed")
    )
    parents = sessions.select("source", session_id="entity_id", in_project="project")
    has_parent = pl.col("session_id").is_not_null()
    rows = (
        work.filter(~has_session)
        .join(parents, on=["source", "session_id"], how="left", maintain_order="left")
        .with_columns(
            system=pl.lit(SYSTEM),
            project=pl.coalesce("project", "in_project"),
            parent_type=pl.when(has_parent).then(pl.lit("session")),
            parent_id="session_id",
            reason_message="error_message",
            recorded_by=pl.lit("live"),
            last_activity_at=pl.coalesce("ended_at", "started_at", "created_at"),
            situation=_situation(),
            has_output=pl.lit(value=True),
            n_turns=pl.when(pl.col("entity_type") == "turn").then(pl.lit(1, pl.Int64)),
            # The provider's message is all that is recorded of why a turn failed.
            cause=pl.coalesce(
                pl.col("error_code").str.to_lowercase(),
                pl.when(pl.col("entity_type") == "turn").then(
                    pl.coalesce(cause_by_words(pl.lit(None, pl.Int64)), pl.lit("provider"))
                ),
            ),
            detail=pl.coalesce("error_code", "error_message"),
        )
    )
    key = [*schema.ENTITY_KEY, "situation", "has_output", "cause", "error_message", "detail"]
    nothing = pl.lit([], pl.List(pl.String))
    return add_situations(schema.ENTITIES.conform(rows), rows.select(key), _SITUATIONS, nothing)


def work_transitions(work: pl.DataFrame) -> pl.DataFrame:
    """The beginning and the end of each piece of work, in the columns of `schema.TRANSITIONS`."""
    is_turn = pl.col("entity_type") == "turn"
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    begins = work.filter(is_turn).select(
        *("source", "entity_type", "entity_id"),
        at="started_at",
        previous_status=first,
        status=pl.lit("running"),
    )
    previous = pl.when(is_turn & pl.col("started_at").is_not_null()).then(pl.lit("running"))
    over = work.filter(pl.col("entity_type") != "spawn").select(
        *("source", "entity_type", "entity_id"),
        at="ended_at",
        previous_status=pl.coalesce(previous, first),
        status="raw_status",
        reason_code="error_code",
        message="error_message",
    )
    both = pl.concat([begins, over], how="diagonal").filter(pl.col("at").is_not_null())
    return schema.TRANSITIONS.conform(
        both.sort("at", "entity_id").with_columns(
            system=pl.lit(SYSTEM), seq=pl.int_range(pl.len()), writer=pl.lit("daemon")
        )
    )


_USD_PER_NANO = 1e-9
_REPORTED = ("n_input_tokens", "n_output_tokens", "cost_usd")
SUMS = (*_REPORTED, "n_cache_read_tokens", "n_cache_write_tokens")


def _measured(tables: GoTables) -> pl.DataFrame:
    """Usage events by transcripts, with null tokens where they were not measured."""
    # A provider without such a counter has a number there all the same.
    known = {
        f"{name}_tokens": pl.when(
            pl.col(f"{name}_provenance").ne_missing("unsupported") & (pl.col(f"{name}_tokens") >= 0)
        ).then(f"{name}_tokens")
        for name in ("input", "cached_input", "output")
    }
    events = tables["model_usage_events"].filter(pl.col("model_id").ne_missing("<synthetic>"))
    return events.with_columns(**known)


def unknown_events(tables: GoTables) -> pl.DataFrame:
    """Usage events of which a part should have been measured, and is not known."""
    is_lost = (
        pl.col(f"{name}_tokens").is_null() & pl.col(f"{name}_provenance").ne_missing("unsupported")
        for name in ("input", "output")
    )
    return _measured(tables).filter(pl.any_horizontal(is_lost))


def read_usage(tables: GoTables) -> pl.DataFrame:
    """Usage by transcripts and by chats, in the columns of `frames.USAGE`.

    Notes
    -----
    Both may cover the same work: tokens of a chat count where its session has no events. The
    usage of a chat is its sum up to its last write; a project's chat is of no single session.
    """
    bindings = tables["usage_bindings"].select("session_id", "initial_model_id", binding_id="id")
    openai = tables["openai_usage_event_details"].rename({"event_id": "id"})
    anthropic = tables["anthropic_usage_event_details"].rename({"event_id": "id"})
    events = (
        _measured(tables)
        .join(bindings, on="binding_id", how="left", maintain_order="left")
        .join(openai, on="id", how="left", maintain_order="left")
        .join(anthropic, on="id", how="left", maintain_order="left")
        .select(
            "session_id",
            at="created_at",
            measured=pl.lit("event"),
            provider="provider_id",
            model=pl.coalesce("model_id", "initial_model_id"),
            n_input_tokens="input_tokens",
            n_cache_read_tokens="cached_input_tokens",
            n_cache_write_tokens=pl.coalesce(
                "openai_cache_write_input_tokens", "anthropic_cache_creation_input_tokens"
            ),
            n_output_tokens="output_tokens",
            n_reasoning_tokens="openai_reasoning_output_tokens",
            estimated_cost=pl.col("estimated_cost_nanos") * _USD_PER_NANO,
        )
    )
    is_usd = pl.col("usage_currency").fill_null("") == "USD"
    chats = tables["conversations"].select(
        session_id=pl.when(pl.col("scope") == "session").then("session_id"),
        project="project_id",
        at="updated_at",
        measured=pl.lit("chat"),
        model="model",
        n_input_tokens="usage_input_tokens",
        n_cache_read_tokens="usage_cached_tokens",
        n_output_tokens="usage_output_tokens",
        cost_usd=pl.when(is_usd).then("usage_cost"),
    )
    is_measured = pl.col("session_id").is_in(events["session_id"].drop_nulls().unique().implode())
    # Tokens would count twice; costs are recorded by chats only.
    tokens = pl.col("^n_.*_tokens$")
    counted = chats.with_columns(pl.when(~is_measured.fill_null(value=False)).then(tokens)).filter(
        pl.any_horizontal(pl.col(_REPORTED).is_not_null())
    )
    return pl.concat([events, counted], how="diagonal")


def summed(usage: pl.DataFrame) -> pl.DataFrame:
    """Usage of each session: null where nothing was measured, a lower bound where not all was."""
    sums = [
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
        for name in SUMS
    ]
    last = (
        pl.col(name).drop_nulls().last().alias(f"used_{name}") for name in ("model", "provider")
    )
    rows = usage.filter(pl.col("entity_id").is_not_null())
    return (
        rows.sort("at", "model", nulls_last=True)
        .group_by("entity_id")
        .agg(*sums, *last, used_at=pl.col("at").filter(measured="event").max())
    )


def used_tokens(facts: Facts) -> pl.DataFrame:
    """Usage of sessions: the rows of `frames.USAGE` that belong to one."""
    return facts.detail(frames.USAGE).drop_nulls("entity_id")


# --- events ------------------------------------------------------------------------------

_ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "telemetry_event": {
        "kind": pl.format("telemetry.{}", "name"),
        "at": "occurred_at",
        "project": "project_id",
        "role": "source",
        "level": "level",
        "name": json_value(
            "payload_json", "error_code", "error_kind", "exited_to", "state", "harness"
        ),
        "detail": json_value("payload_json", "path", "fingerprint"),
        "duration_ms": json_value("payload_json", "duration_ms", "dwell_ms", "duration"),
    },
    "conversation_messages": {
        "kind": pl.lit("message"),
        "at": "created_at",
        "role": "role",
        "name": "origin",
        "is_activity": pl.col("role") == "assistant",
    },
    "conversation_activities": {
        "kind": pl.format("activity.{}", "kind"),
        "at": "created_at",
        "name": "status",
        "is_activity": pl.lit(value=True),
    },
    "conversation_provider_events": {
        "kind": pl.format("provider.{}", "method"),
        "at": "received_at",
    },
    "notifications": {
        "kind": pl.format("attention.{}", "type"),
        "at": "created_at",
        "project": "project_id",
        "name": "status",
    },
    "agent_native_sessions": {
        "kind": pl.lit("native_session"),
        "at": "last_used_at",
        "role": "harness",
        "name": "native_session_id",
    },
    "pr_reviews": {"kind": pl.format("review.{}", "state"), "at": "submitted_at", "role": "author"},
    "pr_review_threads": {
        "kind": pl.lit("review_thread"),
        "at": "updated_at",
        "role": pl.when("is_bot").then(pl.lit("bot")).otherwise(pl.lit("person")),
        "name": pl.when("resolved").then(pl.lit("resolved")).otherwise(pl.lit("open")),
    },
    "pr_checks": {
        "kind": pl.format("check.{}", pl.coalesce("conclusion", "status")),
        "at": "created_at",
        "name": "name",
    },
}
"""Each table of which the rows are entries of a log, and the columns of these."""
_LATE_ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "conversation_turns": {
        "kind": pl.lit("turn.started"),
        "at": "started_at",
        "is_activity": pl.lit(value=True),
    },
    "notifications": {
        "kind": pl.format("attention.{}.resolved", "type"),
        "at": "resolved_at",
        "project": "project_id",
        "duration_ms": (pl.col("resolved_at") - pl.col("created_at"))
        .dt.total_milliseconds()
        .cast(pl.String),
    },
}
"""Entries of moments that a row reaches later, if ever."""


def go_entries(tables: GoTables) -> pl.DataFrame:
    """Rows of several tables as entries of a log, in the shape of `logs.read_logs`."""
    pieces = []
    for table, columns in (*_ENTRIES.items(), *_LATE_ENTRIES.items()):
        rows = with_session(tables, table)
        if columns is _LATE_ENTRIES.get(table):
            rows = rows.drop_nulls(columns["at"])
        is_activity = columns.get("is_activity", pl.lit(value=False))
        texts = {"is_activity": is_activity.fill_null(value=False).cast(pl.String)}
        pieces.append(rows.select("session_id", log=pl.lit("store"), **{**columns, **texts}))
    return pl.concat(pieces, how="diagonal")
