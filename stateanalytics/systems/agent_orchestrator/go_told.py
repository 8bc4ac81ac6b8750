"""What else the Go rewrite's tables tell: entries of its logs, and circumstances of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.go_sessions import newest_of
from stateanalytics.systems.agent_orchestrator.go_tables import (
    GoTables,
    canonical_url,
    go_moment,
)
from stateanalytics.systems.agent_orchestrator.statuses import NO_SIGNAL_S

_FULL = 100.0
"""Per cent of a rate limit from which on it refuses."""


def _said(column: str, *keys: str) -> pl.Expr:
    return pl.coalesce(pl.col(column).str.json_path_match(f"$.{key}") for key in keys)


def _when(column: str, key: str) -> pl.Expr:
    return go_moment(_said(column, key))


_ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "telemetry_event": {
        "kind": pl.format("telemetry.{}", "name"),
        "at": "occurred_at",
        "project": "project_id",
        "role": "source",
        "level": "level",
        "name": _said("payload_json", "error_code", "error_kind", "exited_to", "state", "harness"),
        "detail": _said("payload_json", "path", "fingerprint"),
        "duration_ms": _said("payload_json", "duration_ms", "dwell_ms", "duration"),
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
"""Each table whose rows are entries of a log, and which columns they give."""
_LATER: Mapping[str, Mapping[str, Any]] = {
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
"""The same of moments that a row reaches later, if ever."""


def go_entries(tables: GoTables) -> pl.DataFrame:
    """Rows of several tables as entries of a log, in the shape of `logs.read_logs`."""
    pieces = []
    for table, columns in (*_ENTRIES.items(), *_LATER.items()):
        active = columns.get("is_activity", pl.lit(value=False))
        rows = _with_session(tables, table)
        if columns is _LATER.get(table):
            rows = rows.drop_nulls(columns["at"])
        pieces.append(
            rows.select(
                "session_id",
                log=pl.lit("store"),
                **{**columns, "is_activity": active.replace_strict(_TEXTS, default="false")},
            )
        )
    return pl.concat(pieces, how="diagonal")


_TEXTS = {True: "true", False: "false"}


def _with_session(tables: GoTables, table: str) -> pl.DataFrame:
    """The rows of a table with ``session_id``: of their conversation, or their pull request."""
    rows = tables[table]
    if "pr_url" in rows.columns:
        pulls = tables["pr"].select("session_id", pr_url="url")
        return rows.with_columns(canonical_url("pr_url", tables)).join(
            pulls, on="pr_url", how="left", maintain_order="left"
        )
    if "conversation_id" in rows.columns:
        chats = tables["conversations"].select(
            conversation_id="id", of_chat=pl.coalesce("session_id", "current_session_id")
        )
        linked = rows.join(chats, on="conversation_id", how="left", maintain_order="left")
        # A project's chat goes on from one session to the next: turns say which had it.
        handled = tables["conversation_turns"].select("handled_by_session_id", turn_id="id")
        if "turn_id" in rows.columns:
            linked = linked.join(handled, on="turn_id", how="left", maintain_order="left")
        own = [name for name in ("session_id", "handled_by_session_id") if name in linked.columns]
        return linked.with_columns(session_id=pl.coalesce(*own, "of_chat"))
    if "transition_id" in rows.columns:
        switches = tables["session_interface_transitions"].select("session_id", transition_id="id")
        return rows.join(switches, on="transition_id", how="left", maintain_order="left")
    native = {"ao_session_id": "session_id"} if "ao_session_id" in rows.columns else {}
    return rows.rename(native)


_CHAT_SESSION = pl.coalesce("session_id", "current_session_id")
_FAILED_SERVER = '$[?(@.status == "failed")].name'
_limits = pl.max_horizontal("rate_limit_primary_percent", "rate_limit_secondary_percent")
_CIRCUMSTANCES: tuple[tuple[str, str, pl.Expr, pl.Expr | str, pl.Expr], ...] = (
    (
        "conversations",
        "run.health.reauth_required",
        _when("account_json", "reauthRequiredAt").is_not_null(),
        _when("account_json", "reauthRequiredAt"),
        _said("account_json", "reauthReason"),
    ),
    ("conversations", "run.health.rate_limited", _limits >= _FULL, "updated_at", _limits),
    (
        "conversations",
        "run.health.provider_thread_error",
        _said("thread_state_json", "status") == "system_error",
        _when("thread_state_json", "updatedAt"),
        _said("thread_state_json", "status"),
    ),
    (
        "conversations",
        "run.health.tool_server_failed",
        pl.col("mcp_servers_json").str.contains(r'"status"\s*:\s*"failed"'),
        "updated_at",
        pl.col("mcp_servers_json").str.json_path_match(_FAILED_SERVER),
    ),
    (
        "conversations",
        "run.health.model_rerouted",
        _said("model_reroute_json", "toModel").is_not_null(),
        _when("model_reroute_json", "at"),
        _said("model_reroute_json", "toModel"),
    ),
    (
        "conversation_activities",
        "run.health.awaiting_decision",
        pl.col("kind").is_in(["approval", "user_input"]) & (pl.col("status") == "pending"),
        "created_at",
        pl.col("kind"),
    ),
    (
        "agent_switches",
        "run.health.switch_unconfirmed",
        pl.col("error_code").str.ends_with("_unconfirmed")
        & ~pl.col("state").is_in(["completed", "failed"]),
        "updated_at",
        pl.col("error_code"),
    ),
    (
        "session_interface_transition_messages",
        "run.health.message_held",
        pl.col("delivered_at").is_null(),
        "created_at",
        pl.col("id"),
    ),
    *(
        (
            "session_cleanup_facts",
            f"run.health.cleanup_{word}",
            pl.col("workspace_disposition") == word,
            "last_attempt_at",
            pl.col("workspace_disposition"),
        )
        for word in ("preserved_dirty", "failed")
    ),
    (
        "session_worktrees",
        "run.health.cleanup_retry_remove",
        pl.col("state") == "retry_remove",
        pl.lit(None, schema.MOMENT),
        pl.col("state"),
    ),
)
"""The table, the code, what must hold, since when, and a detail."""


_WHILE_ALIVE = ("run.health.awaiting_decision", "run.health.switch_unconfirmed")


def circumstances(tables: GoTables, work: pl.DataFrame) -> pl.DataFrame:
    """What else is known of sessions, in the columns of `frames.CIRCUMSTANCES`."""
    pieces = [
        _with_session(tables, table)
        .filter(holds.fill_null(value=False))
        .select(
            session_id=_CHAT_SESSION if table == "conversations" else "session_id",
            code=pl.lit(code),
            at=at,
            detail=detail.cast(pl.String),
        )
        for table, code, holds, at, detail in _CIRCUMSTANCES
    ]
    failed = work.filter((pl.col("entity_type") == "spawn") & (pl.col("raw_status") == "failed"))
    spawns = failed.select("session_id", at="ended_at", detail="error_code")
    stillborn = _stillborn(tables).join(spawns, on="session_id", how="anti")
    starts = pl.concat([spawns, stillborn], how="diagonal").select(
        "session_id", code=pl.lit("run.aborted.spawn_failed"), at="at", detail="detail"
    )
    known = pl.concat([*pieces, starts, _unfinished(tables)])
    return known.filter(pl.col("session_id").is_not_null()).sort("session_id", "code", "at")


def with_circumstances(sessions: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add ``more_codes`` to records: what else is known of their sessions."""
    bare = sessions.drop("more_codes", strict=False)
    over = bare.filter("is_ao_terminal").select("entity_id", is_over=pl.lit(value=True)).unique()
    # What is over waits for nobody, whatever was still open when it was.
    waits = pl.col("code").is_in(_WHILE_ALIVE) & pl.col("is_over").is_not_null()
    codes = (
        known.join(over, on="entity_id", how="left")
        .filter(~waits)
        .group_by("entity_id")
        .agg(more_codes=pl.col("code").unique().sort().str.join(", "))
    )
    return bare.join(codes, on="entity_id", how="left", maintain_order="left")


def _stillborn(tables: GoTables) -> pl.DataFrame:
    """Sessions that were ended before they had a terminal or gave a signal.

    A daemon that was started by hand keeps no telemetry, so that nothing else tells it.
    """
    is_dead = pl.all_horizontal(
        pl.col("is_terminated"),
        pl.col("session_mode").ne_missing("chat"),
        pl.col("first_signal_at").is_null(),
        pl.col("runtime_handle_id").is_null(),
    )
    return tables["sessions"].filter(is_dead).select(session_id="id", at="updated_at")


def _unfinished(tables: GoTables) -> pl.DataFrame:
    """Rows that a spawn wrote first and never came back to."""
    rows, grace = tables["sessions"], timedelta(seconds=NO_SIGNAL_S)
    newest = newest_of([rows.select("activity_last_at", "updated_at")])
    is_bare = pl.all_horizontal(
        ~pl.col("is_terminated"),
        ~pl.col("has_prompt").fill_null(value=True),
        pl.col("workspace_path").is_null(),
        pl.col("runtime_handle_id").is_null(),
        pl.lit(newest, schema.MOMENT) - pl.col("created_at") > grace,
    )
    return rows.filter(is_bare).select(
        session_id="id",
        code=pl.lit("run.health.spawn_unfinished"),
        at=pl.col("created_at") + grace,
        detail=pl.lit(None, pl.String),
    )
