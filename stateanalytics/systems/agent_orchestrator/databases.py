"""The two databases of Agent Orchestrator: activity events, and the tables of the Go rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.io.cells import INTEGER, JSON, REAL, TEXT, YES_NO, Cell
from stateanalytics.io.findings import counted
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.agent_orchestrator.columns import (
    MOST_DETAIL,
    json_value,
    moment,
    stored_moment,
    unreadable_times,
)
from stateanalytics.systems.agent_orchestrator.logs import ALIVE
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.base import Tables

NEEDED = ("sessions", "pr", "change_log")
"""The tables that every version of the Go rewrite has."""

# What ends in `_at` is a moment, in `_json` a document, in `_tokens` a count. Texts that people,
# models and tools wrote are not in the list, but for the errors of what failed.
_COLUMNS = {
    "sessions": "id project_id kind harness session_mode activity_state activity_last_at "
    "first_signal_at is_terminated branch workspace_path runtime_handle_id agent_session_id "
    "provider_conversation_id display_name issue_id model has_prompt created_at updated_at",
    "pr": "url session_id number pr_state review_decision ci_state mergeability title additions "
    "deletions source_branch target_branch updated_at observed_at",
    "pr_url_alias": "alias_url canonical_url",
    "pr_comment": "pr_url resolved is_bot created_at",
    "pr_checks": "pr_url name status conclusion created_at",
    "pr_review_threads": "pr_url resolved is_bot updated_at",
    "pr_reviews": "pr_url state author is_bot submitted_at",
    "change_log": "seq project_id session_id event_type payload created_at",
    "telemetry_event": "id occurred_at name source level project_id session_id payload_json",
    "conversations": "id scope project_id session_id current_session_id active_branch_id model "
    "updated_at "
    "usage_input_tokens usage_output_tokens usage_cached_tokens usage_cost usage_currency "
    "rate_limit_primary_percent rate_limit_secondary_percent model_reroute_json account_json "
    "thread_state_json mcp_servers_json",
    "conversation_branches": "id parent_branch_id replaced_turn_id fork_after_sequence",
    "conversation_turns": "id conversation_id handled_by_session_id state error_message "
    "requested_at started_at completed_at rolled_back_at branch_id",
    "conversation_messages": "id conversation_id turn_id sequence role origin created_at",
    "conversation_activities": "id conversation_id turn_id kind status created_at updated_at",
    "conversation_provider_events": "id conversation_id session_id method received_at",
    "review_run": "id session_id harness status verdict body created_at delivered_at",
    "agent_switches": "id session_id from_harness target_harness state error_code requested_at "
    "updated_at",
    "agent_native_sessions": "ao_session_id harness native_session_id last_used_at",
    "session_interface_transitions": "id session_id source_mode target_mode phase error_code "
    "error_detail created_at updated_at completed_at",
    "session_interface_transition_messages": "id transition_id created_at delivered_at",
    "session_cleanup_facts": "session_id workspace_disposition last_attempt_at",
    "session_worktrees": "session_id state",
    "notifications": "session_id project_id type status created_at resolved_at",
    "usage_bindings": "id session_id native_root_id initial_model_id state last_error_code "
    "updated_at",
    "usage_sources": "binding_id anomaly_count last_error_code",
    "model_usage_events": "id binding_id provider_id model_id input_tokens input_provenance "
    "cached_input_tokens cached_input_provenance output_tokens output_provenance "
    "estimated_cost_nanos created_at",
    "openai_usage_event_details": "event_id openai_reasoning_output_tokens "
    "openai_cache_write_input_tokens",
    "anthropic_usage_event_details": "event_id anthropic_cache_creation_input_tokens",
}
ASIDE = (
    *("app_settings", "agent_model_catalog", "shell_terminals", "workspace_repos"),
    *("projects", "review", "goose_db_version"),
)
"""Settings, caches and names, which hold nothing on work: not read on purpose."""

NEWEST_VERSION = 103
"""The greatest migration that the columns were read from."""

_KINDS: Mapping[str, Cell] = {
    **dict.fromkeys(("resolved", "is_bot", "is_terminated"), YES_NO),
    **dict.fromkeys(
        (
            *("number", "additions", "deletions", "seq", "sequence", "anomaly_count"),
            *("estimated_cost_nanos", "event_id", "binding_id", "fork_after_sequence"),
        ),
        INTEGER,
    ),
    **dict.fromkeys(
        ("usage_cost", "rate_limit_primary_percent", "rate_limit_secondary_percent"), REAL
    ),
    "payload": JSON,
    "has_prompt": Cell("yes_no", "prompt <> ''", ("prompt",)),
}
_NUMBERED = ("usage_bindings", "model_usage_events")
"""Tables of which the id is a number."""


def _cell(table: str, column: str) -> Cell:
    if (column == "id" and table in _NUMBERED) or column.endswith("_tokens"):
        return INTEGER
    return _KINDS.get(column, JSON if column.endswith("_json") else TEXT)


TABLES: Mapping[str, Mapping[str, Cell]] = {
    table: {column: _cell(table, column) for column in columns.split()}
    for table, columns in _COLUMNS.items()
}
"""Every table of the Go rewrite that is read, and the type of its columns."""


@dataclass(frozen=True)
class GoTables:
    """The tables of one database of the Go rewrite, moments in UTC.

    Attributes
    ----------
    frames : mapping of str to polars.DataFrame
        Every table of `TABLES`; an absent one has no rows.
    findings : polars.DataFrame
        What was wrong with their cells.
    """

    frames: Mapping[str, pl.DataFrame]
    findings: pl.DataFrame

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self.frames[table]


def is_go(store: Store) -> bool:
    """Is this store a database of the Go rewrite, whichever of its tables hold rows."""
    return set(NEEDED) <= set(store.tables)


def read_go(store: Store) -> GoTables:
    """Tables of the Go rewrite on state, failure, usage and time.

    It writes an empty text where it knows nothing, which is null here.
    """
    frames, findings = {}, []
    filled = pl.when(pl.col(pl.String) != "").then(pl.col(pl.String))
    for table, columns in TABLES.items():
        rows, wrong = read_table(store, table, columns, system=SYSTEM)
        moments = [name for name in columns if name.endswith("_at")]
        texts = {name: _without_zero_time(pl.col(name)) for name in moments}
        findings += [wrong, unreadable_times(rows, store.label, table, texts, go_moment)]
        findings += [_local_clock(rows[name], store.label, table) for name in moments]
        frames[table] = rows.with_columns(filled).with_columns(
            go_moment(pl.col(name)).alias(name) for name in moments
        )
    return GoTables(frames, pool(findings, schema.FINDINGS))


def go_moment(text: pl.Expr) -> pl.Expr:
    """Moment as Go's drivers write it: with the name of its zone, or as an epoch number."""
    # The offset counts; the zone's name and the reading of a monotonic clock add nothing.
    written = _without_zero_time(text).str.replace(r" ([+-][0-9]{4})(?: .*)?$", "$1")
    return stored_moment(written)


def _without_zero_time(text: pl.Expr) -> pl.Expr:
    """Text of a stored moment; null for the year 1, which Go writes where it has none."""
    text = text.cast(pl.String)
    return pl.when(~text.str.starts_with("0001-01-01")).then(text)


def _local_clock(texts: pl.Series, label: str, table: str) -> pl.DataFrame:
    """Finding on moments that were written with an offset, which only older builds do."""
    local = texts.filter(texts.str.contains(r" [+-]\d*[1-9]\d*(?: |$)"))
    return counted(
        label,
        SYSTEM,
        "time.local_clock",
        "info",
        "moments of a local clock",
        n_rows=local.len(),
        table=table,
        column=texts.name,
        example=local.min(),  # type: ignore[arg-type]
        action="read by their offset",
    )


def canonical_url(column: str, tables: GoTables) -> pl.Expr:
    """Present address of a pull request, where its repository was renamed since."""
    aliases = tables["pr_url_alias"]
    known = dict(zip(aliases["alias_url"], aliases["canonical_url"], strict=True))
    return pl.col(column).replace(known)


EVENTS_TABLE = "activity_events"

_EVENTS: Mapping[str, Cell] = {
    "id": INTEGER,
    "ts_epoch": INTEGER,
    "ts": TEXT,
    **dict.fromkeys(("project_id", "session_id", "source", "type", "log_level", "summary"), TEXT),
    "data": JSON,
}


def tables() -> Tables:
    """Tables of both databases that are read, and those that are not on purpose."""
    is_applied = "CASE WHEN is_applied THEN version_id END"
    return Tables(
        read={EVENTS_TABLE: _EVENTS, **TABLES},
        ignored=ASIDE,
        version=("goose_db_version", Cell("integer", is_applied, ("is_applied", "version_id"))),
        newest=NEWEST_VERSION,
    )


def recognises(store: Store) -> bool:
    """Is this store a database of Agent Orchestrator."""
    return EVENTS_TABLE in store.tables or is_go(store)


def read_activity_events(store: Store, *, bodies: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Activity events as entries of a log, and what was wrong with their cells.

    ``bodies`` keeps the ``data`` of each event. The entries are in the shape of
    `logs.read_logs`, without the columns that no event has.
    """
    rows, findings = read_table(store, EVENTS_TABLE, _EVENTS, system=SYSTEM)
    is_status = pl.col("type") == "lifecycle.transition"
    is_seen = pl.col("type") == "activity.transition"
    entries = rows.select(
        log=pl.lit("event"),
        project="project_id",
        session_id="session_id",
        at=pl.coalesce(moment(pl.col("ts_epoch")), stored_moment("ts")),
        kind="type",
        previous=pl.when(is_status).then(json_value("data", "from")),
        status=pl.when(is_status).then(json_value("data", "to")),
        code=json_value("data", "reason", "cause", "trigger"),
        name=json_value("data", "reactionKey", "to", "agent"),
        role="source",
        detail=pl.col("summary").str.slice(0, MOST_DETAIL),
        level="log_level",
        is_activity=(is_seen & json_value("data", "to").is_in(ALIVE))
        .fill_null(value=False)
        .cast(pl.String),
        duration_ms=json_value("data", "durationMs"),
        size=pl.col("data").str.len_bytes().cast(pl.String),
        body=pl.when(bodies).then("data"),
        seq="id",
    )
    # The number is what the store sorts by; its text counts only where there is no number.
    texts = rows.filter(pl.col("ts_epoch").is_null())
    unreadable = unreadable_times(texts, store.label, EVENTS_TABLE, {"ts": pl.col("ts")})
    return entries, pl.concat([findings, unreadable])
