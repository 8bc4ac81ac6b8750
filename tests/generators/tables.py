"""The tables of a scaled store: names and types of columns as lionagi 0.36.0 has them."""

from __future__ import annotations

SCHEMA_META = {
    "version": "4",
    "lineage": "lionagi",
    "migration.session_ended_at_backfill": "1",
    "migration.dispatched_at_backfill": "1",
}
MESSAGE_TYPES = (
    "__unknown__",
    "lionagi.protocols.messages.system.System",
    "lionagi.protocols.messages.instruction.Instruction",
    "lionagi.protocols.messages.assistant_response.AssistantResponse",
    "lionagi.protocols.messages.action_request.ActionRequest",
    "lionagi.protocols.messages.action_response.ActionResponse",
)

# Only what is read from them: keys and types; no foreign keys and no check on values,
# so that a test can put into a cell whatever SQLite itself would take.
TABLES = {
    "schema_meta": "key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "message_types": "type_id INTEGER NOT NULL PRIMARY KEY, lion_class TEXT NOT NULL",
    "progressions": "id TEXT NOT NULL PRIMARY KEY, created_at FLOAT NOT NULL,"
    " collection TEXT NOT NULL DEFAULT '[]'",
    "messages": "id TEXT NOT NULL PRIMARY KEY, created_at FLOAT NOT NULL, node_metadata JSON,"
    " content JSON NOT NULL, embedding BLOB, sender TEXT, recipient TEXT, channel TEXT,"
    " role TEXT NOT NULL, lion_class INTEGER NOT NULL",
    "sessions": "id TEXT NOT NULL PRIMARY KEY, cc_session_id TEXT, run_id TEXT,"
    " created_at FLOAT NOT NULL, node_metadata JSON, name TEXT, user_label TEXT, user TEXT,"
    " progression_id TEXT NOT NULL, first_msg_id TEXT, last_msg_id TEXT,"
    " updated_at FLOAT NOT NULL, playbook_name TEXT, agent_name TEXT, invocation_kind TEXT,"
    " show_topic TEXT, show_play_name TEXT, artifacts_path TEXT, source_kind TEXT DEFAULT 'live',"
    " status TEXT, started_at FLOAT, ended_at FLOAT,"
    " ended_at_is_approximate INTEGER NOT NULL DEFAULT '0', last_message_at FLOAT,"
    " current_phase TEXT, invocation_id TEXT, model TEXT, provider TEXT, effort TEXT,"
    " agent_hash TEXT, project TEXT, project_source TEXT, status_reason_code TEXT,"
    " status_reason_summary TEXT, status_evidence_refs JSON, artifact_contract_json JSON,"
    " artifact_verification_json JSON, input_tokens INTEGER, output_tokens INTEGER,"
    " total_cost_usd FLOAT, num_turns INTEGER, duration_ms FLOAT",
    "branches": "id TEXT NOT NULL PRIMARY KEY, created_at FLOAT NOT NULL, node_metadata JSON,"
    " user TEXT, name TEXT, session_id TEXT NOT NULL, progression_id TEXT NOT NULL,"
    " system_msg_id TEXT, model TEXT, provider TEXT, agent_name TEXT, status TEXT,"
    " started_at FLOAT, ended_at FLOAT",
    "invocations": "id TEXT NOT NULL PRIMARY KEY, skill TEXT NOT NULL, plugin TEXT, prompt TEXT,"
    " started_at FLOAT NOT NULL, ended_at FLOAT, status TEXT NOT NULL DEFAULT 'running',"
    " session_count INTEGER NOT NULL DEFAULT '0', created_at FLOAT NOT NULL,"
    " updated_at FLOAT NOT NULL, node_metadata JSON, status_reason_code TEXT,"
    " status_reason_summary TEXT, status_evidence_refs JSON",
    "status_transitions": "id TEXT NOT NULL PRIMARY KEY, entity_type TEXT NOT NULL,"
    " entity_id TEXT NOT NULL, previous_status TEXT, status TEXT NOT NULL,"
    " reason_code TEXT NOT NULL, reason_summary TEXT, evidence_refs JSON, source TEXT NOT NULL,"
    " actor TEXT, created_at FLOAT NOT NULL, metadata JSON",
}
