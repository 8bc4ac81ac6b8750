"""The tables and columns that are read from a lionagi store.

Bodies of messages, prompts, payloads and the large ``node_metadata`` stay in the
file; the few keys of them that facts need are extracted by SQL, guarded so that no
malformed value can stop a scan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from stateanalytics.core.joins import pool
from stateanalytics.core.schema import FINDINGS
from stateanalytics.io.cells import Cell
from stateanalytics.io.parts import ReadTable, refresh_table
from stateanalytics.io.sqlite import Store
from stateanalytics.systems.base import Tables

SYSTEM = "lionagi"


def _object(column: str) -> str:
    """SQL: the JSON object in a column, decoded twice where it was encoded twice."""
    inner = f"json_extract({column}, '$')"
    return (
        f"CASE WHEN typeof({column}) <> 'text' THEN NULL WHEN NOT json_valid({column}) THEN NULL "
        f"ELSE CASE json_type({column}) WHEN 'object' THEN {column} "
        f"WHEN 'text' THEN CASE WHEN json_valid({inner}) THEN {inner} END END END"
    )


def key_of(column: str, key: str) -> str:
    """SQL: one key of a JSON object; rows without it cost one substring search."""
    last = key.rpartition(".")[2]
    return (
        f"CASE WHEN instr({column}, '\"{last}\"') THEN "
        f"json_extract({_object(column)}, '$.{key}') END"
    )


def _is_set(column: str) -> Cell:
    return Cell("yes_no", f"coalesce({column}, '') <> ''", (column,))


# SQLite gives the size of a value without reading its overflow pages.
def _size(column: str) -> Cell:
    return Cell("integer", f"octet_length({column})", (column,))


# The tool that a request calls; answers may be megabytes and are not parsed.
_TOOL = Cell(
    "text",
    "CASE WHEN lion_class = 4 THEN CASE WHEN octet_length(content) < 20000 THEN "
    f"{key_of('content', 'function')} END END",
    ("lion_class", "content"),
)


# Only the text that `--timeout` puts before a prompt records the second of the deadline.
_DEADLINE = Cell(
    "text",
    "CASE WHEN role = 'user' THEN CASE WHEN typeof(content) = 'text' THEN "
    "CASE WHEN instr(substr(content, 1, 40), '\"[DEADLINE]') THEN substr(content, 1, 160) "
    "END END END",
    ("role", "content"),
)


# A missing contract is stored as NULL, '', 'null' or '{}', by release.
def _contract(column: str) -> Cell:
    return Cell(
        "text", f"CASE WHEN {column} NOT IN ('', 'null', '{{}}') THEN {column} END", (column,)
    )


# Metadata is large and mostly of no use here: it is loaded only where it has a key that
# facts need, or is no JSON object and must be reported.
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
    f"CASE WHEN run_id IS NULL THEN {key_of('node_metadata', 'run_id')} END",
    ("node_metadata", "run_id"),
)


def _columns(**names_by_kind: str) -> dict[str, Cell]:
    """Columns that are read unchanged, by the kind of their cells."""
    return {
        name: Cell(kind)  # type: ignore[arg-type]
        for kind, names in names_by_kind.items()
        for name in names.split()
    }


_REASON = _columns(text="status_reason_code status_reason_summary", json="status_evidence_refs")
_STORED_STATE = _columns(text="health delivery", json="reason_codes")
_USAGE = _columns(integer="input_tokens output_tokens num_turns", real="total_cost_usd duration_ms")

TABLES: Mapping[str, Mapping[str, Cell]] = {
    "sessions": {
        **_columns(
            text="id status run_id invocation_id invocation_kind source_kind name user_label "
            "project agent_name model provider playbook_name show_topic show_play_name "
            "progression_id first_msg_id cc_session_id",
            moment="created_at started_at ended_at updated_at last_message_at",
            yes_no="ended_at_is_approximate",
        ),
        "artifact_contract_json": _contract("artifact_contract_json"),
        "artifact_verification_json": _contract("artifact_verification_json"),
        "has_artifacts": _is_set("artifacts_path"),
        "node_metadata": _metadata('"timeout_seconds"', '"timeout_elapsed"', '"external"'),
        # Flows keep it there too; from 0.31 there is a column, and this is only the fallback.
        "metadata_run_id": Cell("text", key_of("node_metadata", "run_id"), ("node_metadata",)),
        **_REASON,
        **_USAGE,
        **_STORED_STATE,
    },
    "branches": {
        **_columns(
            text="id session_id progression_id name agent_name model provider status",
            moment="created_at started_at ended_at",
        ),
        "launch_dir": Cell(
            "text", key_of("node_metadata", "mcp_launch.launch_dir"), ("node_metadata",)
        ),
        **_USAGE,
    },
    "progressions": {
        **_columns(text="id", json="collection"),
        "n_messages": Cell(
            "integer",
            # Null for what is no list, of which SQLite would give the length 0.
            "CASE WHEN json_valid(collection) THEN CASE json_type(collection) "
            "WHEN 'array' THEN json_array_length(collection) END END",
            ("collection",),
        ),
    },
    "shows": {
        **_columns(text="id topic status show_dir", moment="created_at updated_at"),
        **_REASON,
    },
    "plays": {
        **_columns(
            text="id show_id name playbook status session_id gate_feedback",
            integer="attempt exit_code",
            moment="created_at started_at ended_at updated_at",
            json="depends_on",
        ),
        **_REASON,
        **_STORED_STATE,
    },
    "invocations": {
        **_columns(
            text="id skill status",
            integer="session_count",
            moment="created_at started_at ended_at updated_at",
        ),
        "node_metadata": _metadata('"action_kind"'),
        **_REASON,
    },
    "schedules": {
        **_columns(
            text="id name trigger_type cron_expr resolved_timezone effective_timezone "
            "action_kind action_agent action_model action_playbook action_project project "
            "last_run_outcome",
            yes_no="enabled",
            real="interval_sec poll_interval_sec",
            moment="next_fire_at last_fired_at last_evaluated_at last_healthy_poll_at "
            "created_at updated_at",
        ),
        "has_threshold": Cell(
            "yes_no",
            "coalesce(threshold_config, '') NOT IN ('', 'null', '{}')",
            ("threshold_config",),
        ),
    },
    "schedule_runs": {
        **_columns(
            text="id schedule_id invocation_id action_kind status chain_parent_id error_detail",
            integer="exit_code chain_depth lease_attempts",
            moment="created_at fired_at ended_at updated_at",
        ),
        **_REASON,
    },
    "teams": {
        **_columns(
            text="id name status play_id show_id",
            integer="member_count",
            moment="created_at updated_at",
        ),
        # No release has columns for the parent of a team; writers of one may use either place.
        **{
            f"metadata_{name}": Cell("text", key_of("node_metadata", name), ("node_metadata",))
            for name in ("play_id", "show_id")
        },
        **_REASON,
    },
    "team_messages": {
        **_columns(rowid="rowid", text="team_id sender recipient", moment="created_at"),
        "size_bytes": _size("content"),
    },
    "engine_runs": _columns(
        text="id kind status session_id signal_session_id parent_session_id invocation_id error",
        moment="started_at ended_at",
    ),
    "dispatch_outbox": _columns(
        text="id kind deliver_to status session_id schedule_run_id last_error",
        integer="attempt",
        moment="created_at updated_at",
    ),
    "status_transitions": _columns(
        rowid="rowid",
        text="entity_type entity_id previous_status status reason_code reason_summary source actor",
        json="evidence_refs metadata",
        moment="created_at",
    ),
    "session_signals": {
        **_columns(text="session_id kind op_id", integer="seq", moment="ts"),
        "size_bytes": _size("payload"),
        "name": Cell("text", key_of("payload", "name"), ("payload",)),
        "point": Cell("text", key_of("payload", "point"), ("payload",)),
        "error": Cell("text", f"CAST({key_of('payload', 'error')} AS TEXT)", ("payload",)),
        "elapsed": Cell("real", key_of("payload", "elapsed"), ("payload",)),
        "duration_ms": Cell("real", key_of("payload", "duration_ms"), ("payload",)),
        **{
            name: Cell(
                "integer",
                f"CASE WHEN kind = 'RunEnd' THEN {key_of('payload', name)} END",
                ("kind", "payload"),
            )
            for name in ("input_tokens", "cached_tokens", "cache_write_tokens")
        },
    },
    "admin_events": {
        **_columns(
            rowid="rowid", text="action target_id actor", json="details", moment="created_at"
        ),
        "target_type": Cell("text", key_of("details", "entity_type"), ("details",)),
    },
    "attention_dispositions": _columns(
        text="item_id state note actor source_status",
        moment="created_at updated_at expires_at",
    ),
    "attention_disposition_history": _columns(
        text="item_id prior_state new_state note actor source_status",
        integer="sequence",
        moment="created_at",
    ),
    "messages": {
        **_columns(rowid="rowid", text="id role", moment="created_at"),
        "size_bytes": _size("content"),
        "name": _TOOL,
        "deadline": _DEADLINE,
    },
}

# Loaded only on request: the texts of people and models.
_BODIES = {"messages": "content", "session_signals": "payload", "team_messages": "content"}

Raw = Mapping[str, pl.DataFrame]


def _releases(tables: Mapping[str, Collection[str]]) -> str:
    from stateanalytics.systems.lionagi.reading import generation

    return generation({name: tuple(columns) for name, columns in tables.items()})


def tables() -> Tables:
    """The tables that are read, and those that are ignored on purpose."""
    version = Cell(
        "integer", "CASE WHEN key = 'version' THEN CAST(value AS INTEGER) END", ("key", "value")
    )
    return Tables(
        read=TABLES,
        ignored=(
            *("schema_meta", "message_types", "projects", "definitions", "engine_defs"),
            *("workflow_defs", "workers"),
        ),
        version=("schema_meta", version),
        newest=4,
        in_words=_releases,
    )


def read_raw(
    store: Store,
    *,
    bodies: bool = False,
    before: Mapping[str, ReadTable] | None = None,
) -> tuple[Raw, pl.DataFrame, Mapping[str, ReadTable]]:
    """Every table that facts need, by name, in the columns of `TABLES`.

    Parameters
    ----------
    store : Store
        An open lionagi store.
    bodies : bool
        Whether to load the texts of messages, signals and team messages too.
    before : mapping of str to ReadTable, optional
        What an earlier read of the same store kept: only changed rows are read.

    Returns
    -------
    tables : mapping of str to polars.DataFrame
        A table or column that the store does not have is empty or null.
    findings : polars.DataFrame
        Cells with a value of another kind than their column should have, counted.
    kept : mapping of str to ReadTable
        For the next read.
    """
    tables, findings, kept = {}, [], {}
    for table, cells in TABLES.items():
        wanted = dict(cells)
        if bodies and (column := _BODIES.get(table)):
            wanted["body"] = Cell("text", f"CAST({column} AS TEXT)", (column,))
        if table == "sessions" and "run_id" in store.tables[table]:
            wanted["metadata_run_id"] = _RUN_ID_OF_OLD_ROWS
        kept[table] = refresh_table(store, table, wanted, (before or {}).get(table), system=SYSTEM)
        tables[table] = kept[table].rows
        findings.append(kept[table].findings)
    return tables, pool(findings, FINDINGS), kept
