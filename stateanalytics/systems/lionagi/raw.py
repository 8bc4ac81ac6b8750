"""Everything that is read from the tables of a lionagi store, and nothing else.

Bodies of messages, prompts, payloads and the large ``node_metadata`` stay in the
file; the few keys of them that facts need are taken out by SQL, guarded, so that no
malformed value can stop a scan.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import pool
from stateanalytics.core.schema import FINDINGS
from stateanalytics.io.parts import Kept, read_appended
from stateanalytics.io.sqlite import (
    INTEGER,
    JSON,
    MOMENT,
    REAL,
    ROWID,
    TEXT,
    YES_NO,
    Cell,
    Store,
    read_table,
)

SYSTEM = "lionagi"


def _object(column: str) -> str:
    """SQL: the JSON object in a column, decoded twice where it was encoded twice."""
    inner = f"json_extract({column}, '$')"
    return (
        f"CASE WHEN typeof({column}) <> 'text' THEN NULL WHEN NOT json_valid({column}) THEN NULL "
        f"ELSE CASE json_type({column}) WHEN 'object' THEN {column} "
        f"WHEN 'text' THEN CASE WHEN json_valid({inner}) THEN {inner} END END END"
    )


def _key(column: str, key: str) -> str:
    """SQL: one key of a JSON object; rows that cannot have it cost one substring search."""
    return (
        f"CASE WHEN instr({column}, '\"{key}\"') THEN "
        f"json_extract({_object(column)}, '$.{key}') END"
    )


def _is_set(column: str) -> Cell:
    return Cell("yes_no", f"coalesce({column}, '') <> ''", (column,))


# SQLite knows the size of a value without reading the pages that hold the rest of it.
def _size_of(column: str) -> Cell:
    return Cell("integer", f"octet_length({column})", (column,))


# Which tool a request calls; answers may be megabytes and are not looked into.
_TOOL = Cell(
    "text",
    "CASE WHEN lion_class = 4 THEN CASE WHEN octet_length(content) < 20000 THEN "
    f"{_key('content', 'function')} END END",
    ("lion_class", "content"),
)


# A contract that is absent is written as NULL, '', 'null' or '{}', by release.
def _promise(column: str) -> Cell:
    return Cell(
        "text", f"CASE WHEN {column} NOT IN ('', 'null', '{{}}') THEN {column} END", (column,)
    )


# Metadata is large and mostly of no use here: a row's is loaded only where it holds a key
# that facts need, or is no JSON object and must be reported.
def _metadata(*keys: str) -> Cell:
    holds = " + ".join(f"instr(node_metadata, '{key}')" for key in keys)
    return Cell(
        "json",
        "CASE WHEN typeof(node_metadata) <> 'text' THEN node_metadata "
        "WHEN NOT json_valid(node_metadata) THEN node_metadata "
        "WHEN unicode(node_metadata) <> unicode('{') THEN node_metadata "
        f"WHEN {holds} THEN node_metadata END",
        ("node_metadata",),
    )


_RUN_ID_OF_OLD_ROWS = Cell(
    "text",
    f"CASE WHEN run_id IS NULL THEN {_key('node_metadata', 'run_id')} END",
    ("node_metadata", "run_id"),
)

_REASON = {
    "status_reason_code": TEXT,
    "status_reason_summary": TEXT,
    "status_evidence_refs": JSON,
}
_STORED_STATE = {"health": TEXT, "delivery": TEXT, "reason_codes": JSON}
_USAGE = {
    "input_tokens": INTEGER,
    "output_tokens": INTEGER,
    "total_cost_usd": REAL,
    "num_turns": INTEGER,
    "duration_ms": REAL,
}

TABLES: Mapping[str, Mapping[str, Cell]] = {
    "sessions": {
        "id": TEXT,
        "status": TEXT,
        "created_at": MOMENT,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        "updated_at": MOMENT,
        "last_message_at": MOMENT,
        "ended_at_is_approximate": YES_NO,
        "run_id": TEXT,
        "invocation_id": TEXT,
        "invocation_kind": TEXT,
        "source_kind": TEXT,
        "name": TEXT,
        "user_label": TEXT,
        "project": TEXT,
        "agent_name": TEXT,
        "model": TEXT,
        "provider": TEXT,
        "playbook_name": TEXT,
        "show_topic": TEXT,
        "show_play_name": TEXT,
        "progression_id": TEXT,
        "artifact_contract_json": _promise("artifact_contract_json"),
        "artifact_verification_json": _promise("artifact_verification_json"),
        "has_artifacts": _is_set("artifacts_path"),
        "is_transcript": _is_set("cc_session_id"),
        "node_metadata": _metadata('"timeout_seconds"', '"external"'),
        # Flows keep it there too; from 0.31 there is a column, and this is only its stand-in.
        "metadata_run_id": Cell("text", _key("node_metadata", "run_id"), ("node_metadata",)),
        **_REASON,
        **_USAGE,
        **_STORED_STATE,
    },
    "branches": {
        "id": TEXT,
        "session_id": TEXT,
        "progression_id": TEXT,
        "name": TEXT,
        "agent_name": TEXT,
        "model": TEXT,
        "provider": TEXT,
        "status": TEXT,
        "created_at": MOMENT,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        **_USAGE,
    },
    "progressions": {
        "id": TEXT,
        "collection": JSON,
        "n_messages": Cell(
            "integer",
            # What is no list has no length: SQLite would say 0.
            "CASE WHEN json_valid(collection) THEN CASE json_type(collection) "
            "WHEN 'array' THEN json_array_length(collection) END END",
            ("collection",),
        ),
    },
    "shows": {
        "id": TEXT,
        "topic": TEXT,
        "status": TEXT,
        "show_dir": TEXT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        **_REASON,
    },
    "plays": {
        "id": TEXT,
        "show_id": TEXT,
        "name": TEXT,
        "playbook": TEXT,
        "status": TEXT,
        "attempt": INTEGER,
        "session_id": TEXT,
        "created_at": MOMENT,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        "updated_at": MOMENT,
        "exit_code": INTEGER,
        "gate_feedback": TEXT,
        **_REASON,
        **_STORED_STATE,
    },
    "invocations": {
        "id": TEXT,
        "skill": TEXT,
        "status": TEXT,
        "session_count": INTEGER,
        "created_at": MOMENT,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        "updated_at": MOMENT,
        "node_metadata": _metadata('"action_kind"'),
        **_REASON,
    },
    "schedules": {
        "id": TEXT,
        "name": TEXT,
        "enabled": YES_NO,
        "trigger_type": TEXT,
        "cron_expr": TEXT,
        "interval_sec": REAL,
        "poll_interval_sec": REAL,
        "resolved_timezone": TEXT,
        "effective_timezone": TEXT,
        "next_fire_at": MOMENT,
        "last_fired_at": MOMENT,
        "last_evaluated_at": MOMENT,
        "last_healthy_poll_at": MOMENT,
        "has_threshold": Cell(
            "yes_no",
            "coalesce(threshold_config, '') NOT IN ('', 'null', '{}')",
            ("threshold_config",),
        ),
        "action_kind": TEXT,
        "action_agent": TEXT,
        "action_model": TEXT,
        "action_playbook": TEXT,
        "action_project": TEXT,
        "project": TEXT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
    },
    "schedule_runs": {
        "id": TEXT,
        "schedule_id": TEXT,
        "invocation_id": TEXT,
        "action_kind": TEXT,
        "status": TEXT,
        "exit_code": INTEGER,
        "chain_parent_id": TEXT,
        "chain_depth": INTEGER,
        "lease_attempts": INTEGER,
        "created_at": MOMENT,
        "fired_at": MOMENT,
        "ended_at": MOMENT,
        "updated_at": MOMENT,
        "error_detail": TEXT,
        **_REASON,
    },
    "teams": {
        "id": TEXT,
        "name": TEXT,
        "status": TEXT,
        "member_count": INTEGER,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        **_REASON,
    },
    "team_messages": {
        "rowid": ROWID,
        "team_id": TEXT,
        "created_at": MOMENT,
        "sender": TEXT,
        "recipient": TEXT,
        "size_bytes": _size_of("content"),
    },
    "engine_runs": {
        "id": TEXT,
        "kind": TEXT,
        "status": TEXT,
        "started_at": MOMENT,
        "ended_at": MOMENT,
        "session_id": TEXT,
        "signal_session_id": TEXT,
        "parent_session_id": TEXT,
        "invocation_id": TEXT,
        "error": TEXT,
    },
    "dispatch_outbox": {
        "id": TEXT,
        "kind": TEXT,
        "deliver_to": TEXT,
        "status": TEXT,
        "attempt": INTEGER,
        "session_id": TEXT,
        "schedule_run_id": TEXT,
        "last_error": TEXT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
    },
    "status_transitions": {
        "rowid": ROWID,
        "entity_type": TEXT,
        "entity_id": TEXT,
        "previous_status": TEXT,
        "status": TEXT,
        "reason_code": TEXT,
        "reason_summary": TEXT,
        "evidence_refs": JSON,
        "source": TEXT,
        "actor": TEXT,
        "created_at": MOMENT,
        "metadata": JSON,
    },
    "session_signals": {
        "session_id": TEXT,
        "seq": INTEGER,
        "kind": TEXT,
        "op_id": TEXT,
        "ts": MOMENT,
        "size_bytes": _size_of("payload"),
        "name": Cell("text", _key("payload", "name"), ("payload",)),
        "point": Cell("text", _key("payload", "point"), ("payload",)),
        "error": Cell("text", f"CAST({_key('payload', 'error')} AS TEXT)", ("payload",)),
        "elapsed": Cell("real", _key("payload", "elapsed"), ("payload",)),
        "duration_ms": Cell("real", _key("payload", "duration_ms"), ("payload",)),
    },
    "admin_events": {
        "rowid": ROWID,
        "created_at": MOMENT,
        "action": TEXT,
        "target_id": TEXT,
        "details": JSON,
        "target_type": Cell("text", _key("details", "entity_type"), ("details",)),
        "actor": TEXT,
    },
    "attention_dispositions": {
        "item_id": TEXT,
        "state": TEXT,
        "note": TEXT,
        "actor": TEXT,
        "source_status": TEXT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "expires_at": MOMENT,
    },
    "attention_disposition_history": {
        "item_id": TEXT,
        "sequence": INTEGER,
        "prior_state": TEXT,
        "new_state": TEXT,
        "note": TEXT,
        "actor": TEXT,
        "created_at": MOMENT,
    },
    "messages": {
        "rowid": ROWID,
        "id": TEXT,
        "created_at": MOMENT,
        "role": TEXT,
        "size_bytes": _size_of("content"),
        "name": _TOOL,
    },
}

# Loaded only on request: they hold what people and models said.
_BODIES: Mapping[str, Mapping[str, Cell]] = {
    "messages": {"body": Cell("text", "CAST(content AS TEXT)", ("content",))},
    "session_signals": {"body": Cell("text", "CAST(payload AS TEXT)", ("payload",))},
    "team_messages": {"body": Cell("text", "CAST(content AS TEXT)", ("content",))},
}

Raw = Mapping[str, pl.DataFrame]


# Each of their rows is written once, and never touched again but to be pruned.
APPENDED = (
    "messages",
    "status_transitions",
    "session_signals",
    "team_messages",
    "admin_events",
    "attention_disposition_history",
)


def read_raw(
    store: Store,
    *,
    bodies: bool = False,
    before: Mapping[str, Kept] | None = None,
) -> tuple[Raw, pl.DataFrame, Mapping[str, Kept]]:
    """Every table that facts need, by name, in the columns of `TABLES`.

    Parameters
    ----------
    store : Store
        An open lionagi store.
    bodies : bool
        Whether to load the texts of messages, signals and team messages too.
    before : mapping of str to Kept, optional
        What an earlier read of the same store kept; of `APPENDED` tables only new rows
        are read then.

    Returns
    -------
    tables : mapping of str to polars.DataFrame
        A table or column that the store does not have is empty or null.
    findings : polars.DataFrame
        Cells that held something else than their column should, counted.
    kept : mapping of str to Kept
        For the next read.
    """
    tables, of_tables, kept = {}, [], {}
    for table, cells in TABLES.items():
        wanted = {**cells, **(_BODIES.get(table, {}) if bodies else {})}
        if table == "sessions" and "run_id" in store.tables[table]:
            wanted["metadata_run_id"] = _RUN_ID_OF_OLD_ROWS
        if table in APPENDED:
            tables[table], findings = read_appended(
                store, table, wanted, (before or {}).get(table), system=SYSTEM
            )
            kept[table] = Kept(store, tables[table], findings)
        else:
            tables[table], findings = read_table(store, table, wanted, system=SYSTEM)
        of_tables.append(findings)
    return tables, pool(of_tables, FINDINGS), kept
