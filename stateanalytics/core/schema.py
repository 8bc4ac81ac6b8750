"""Every canonical frame: its row, key and columns, each said once.

Everything that leaves `sources` has the shape written here, whatever system it
came from. The page `stateanalytics schema`, ``snap.schema()`` and the tables that
SQL sees are all made from this module.

Conventions, everywhere: moments are ``Datetime("us", "UTC")`` and end in ``_at``;
durations are float seconds and end in ``_s``; counts start with ``n_``; Booleans
with ``is_`` or ``has_``; ids are strings; **null means not known**.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

MOMENT = pl.Datetime("us", "UTC")

# --- vocabularies (ADR-0033's words; what is closed there is an Enum here) -------------

SYSTEMS = ("lionagi", "agent_orchestrator", "opencode")

LIFECYCLES = (
    "draft",
    "planned",
    "pending",
    "queued",
    "enabled",
    "active",
    "running",
    "idle",
    "paused",
    "blocked",
    "run_complete",
    "completed",
    "succeeded",
    "merged",
    "failed",
    "timed_out",
    "cancelled",
    "aborted",
    "skipped",
    "archived",
    "closed",
    "disabled",
    "unknown",
)
OUTCOMES = (
    "succeeded",
    "completed",
    "merged",
    "failed",
    "timed_out",
    "cancelled",
    "aborted",
    "skipped",
    "unknown",
)
HEALTHS = (
    "ok",
    "running",
    "due",
    "idle",
    "degraded",
    "disconnected",
    "blocked",
    "stalled",
    "misfired",
    "process_dead",
    "orphaned",
    "unknown",
)
DELIVERIES = ("passed", "partial", "missing", "invalid", "not_expected", "unknown")
SEVERITIES = ("critical", "warning", "info", "neutral")
TONES = ("danger", "warning", "info", "success", "neutral")
CLAIM_STATUSES = ("observed", "inferred", "hypothesis", "verified", "disputed", "superseded")
DIMENSIONS = ("lifecycle", "health", "delivery")
END_WRITERS = ("executor", "observer", "import")
FINDING_SEVERITIES = ("error", "warning", "info")

TEXT, INTEGER, REAL, YES_NO = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()


@dataclass(frozen=True)
class Column:
    """One column of a canonical frame."""

    name: str
    dtype: pl.DataType
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Frame:
    """One canonical frame: what a row is, what identifies it, its columns."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def dtypes(self) -> pl.Schema:
        """The frame's columns and dtypes, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @cached_property
    def _without_rows(self) -> pl.DataFrame:
        # A small store asks for ninety of these, a quarter of the time it takes to read.
        return pl.DataFrame(schema=self.dtypes)

    def empty(self) -> pl.DataFrame:
        """A frame of this shape without rows."""
        return self._without_rows.clone()

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give ``frame`` exactly these columns: in order, cast, absent ones null."""
        there = set(frame.columns)
        return frame.select(
            given if name in there else absent for name, (given, absent) in self._written.items()
        )

    @cached_property
    def _written(self) -> dict[str, tuple[pl.Expr, pl.Expr]]:
        """Each column as `conform` takes it: cast where it is there, null where it is not."""
        return {
            name: (pl.col(name).cast(dtype), pl.lit(None, dtype=dtype).alias(name))
            for name, dtype in self.dtypes.items()
        }


NO_WORD = "none"
"""In a ``recorded_`` column: the axis does not apply, which null would leave to the rules."""

CODE_SEPARATOR = ", "
"""What joins reason codes into one text."""

RECORDED_REASON = ("dimension", "code", "message", "claim_status", "confidence", "evidence")
"""The keys of each object in ``recorded_reasons``: columns of `REASONS`."""

ENTITY_KEY = ("source", "system", "entity_type", "entity_id")

_KEY_COLUMNS = (
    Column("source", TEXT, "the input this row came from, as it was named to `read`"),
    Column("system", TEXT, "which orchestrator wrote it: " + ", ".join(SYSTEMS)),
    Column("entity_type", TEXT, "session, branch, show, play, invocation, schedule, …"),
    Column("entity_id", TEXT, "the system's own id"),
)

ENTITIES = Frame(
    "entities",
    "one operational entity, as its row and its files last said",
    ENTITY_KEY,
    (
        *_KEY_COLUMNS,
        Column("parent_type", TEXT, "entity_type of the direct parent"),
        Column("parent_id", TEXT, "id of the direct parent (a branch's session, a play's show)"),
        Column("session_id", TEXT, "the session that does the work (a session's own id)"),
        Column("invocation_id", TEXT, "the request that caused the work; groups causes"),
        Column("run_id", TEXT, "the run directory or execution it belongs to"),
        Column("kind", TEXT, "kind of work: agent, play, flow, fanout, show-play, engine, …"),
        Column("name", TEXT, "name shown to people"),
        Column("project", TEXT, "project the work was for"),
        Column("agent", TEXT, "agent profile"),
        Column("model", TEXT, "model id; null also for placeholders such as <synthetic>"),
        Column("provider", TEXT, "model provider"),
        Column("playbook", TEXT, "playbook or skill that was run"),
        Column("recorded_by", TEXT, "live, imported (files read later) or mirrored (transcript)"),
        Column("raw_status", TEXT, "the status exactly as stored; null: none was stored"),
        Column("attempt", INTEGER, "which attempt at the same work this is, from 1"),
        Column("created_at", MOMENT, "when the row was created"),
        Column("started_at", MOMENT, "when work started"),
        Column("ended_at", MOMENT, "when work ended, by whoever wrote it: see end_written_by"),
        Column("updated_at", MOMENT, "last write of any kind; mutable, so no sign of life"),
        Column("last_message_at", MOMENT, "last message of the work"),
        Column("last_activity_at", MOMENT, "last sign of life: message, else update, else start"),
        Column("is_end_approximate", YES_NO, "the end was repaired or estimated later"),
        Column("end_written_by", TEXT, "who wrote the end: " + ", ".join(END_WRITERS)),
        Column("n_messages", INTEGER, "messages of all roles, over all branches"),
        Column("n_turns", INTEGER, "model turns; 0 with a timeout: the worker never spoke"),
        Column(
            "n_children", INTEGER, "sessions of an invocation, plays of a show, members of a team"
        ),
        Column("process_alive", YES_NO, "is its process alive; offline never known"),
        Column("has_artifacts", YES_NO, "is an artifacts directory recorded (not: does it exist)"),
        Column(
            "has_stale_locks", YES_NO, "are lock files left behind; from the data alone never known"
        ),
        Column("has_contract", YES_NO, "were outputs promised"),
        Column("is_contract_valid", YES_NO, "is the promise well formed; null without one"),
        Column("verdict", TEXT, "the stored verification verdict, verbatim"),
        Column("is_verdict_valid", YES_NO, "is the verdict well formed; null without one"),
        Column("n_expected", INTEGER, "outputs promised"),
        Column("n_required_missing", INTEGER, "required outputs that were not found"),
        Column("n_optional_missing", INTEGER, "optional outputs that were not found"),
        Column("n_produced", INTEGER, "outputs that were found"),
        Column("timeout_s", REAL, "the configured limit", "s"),
        Column("timeout_from", TEXT, "where the limit is known from: checkpoint, metadata"),
        Column("exit_code", INTEGER, "exit code of the process where it was recorded"),
        Column("reason_code", TEXT, "the stored reason code"),
        Column("reason_message", TEXT, "the stored reason in words, or the error text"),
        Column("evidence", TEXT, "stored evidence: JSON list of objects with `kind`"),
        Column("n_input_tokens", INTEGER, "tokens read; null: not reported", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written; null: not reported", "tokens"),
        Column("cost_usd", REAL, "cost; null: not reported, never free", "USD"),
        Column("stored_duration_s", REAL, "the duration the system stored, for cross-checks", "s"),
        Column("stored_health", TEXT, "health as stored (ADR-0033 appendix A), where it is"),
        Column("stored_delivery", TEXT, "delivery as stored (ADR-0033 appendix A), where it is"),
        Column("stored_reason_codes", TEXT, "reason codes as stored: JSON list, where it is"),
        Column("recorded_lifecycle", TEXT, "lifecycle by its system's axes; null: by raw_status"),
        Column("recorded_outcome", TEXT, "the terminal word with that; null: not over"),
        Column("recorded_health", TEXT, "health by its system; none: has none; null: by rules"),
        Column("recorded_delivery", TEXT, "delivery by its system; none: has none; null: by rules"),
        Column("recorded_display", TEXT, "words to show instead of those of the axes"),
        Column("recorded_reason_codes", TEXT, "codes of recorded_reasons, joined by ', '"),
        Column("recorded_reasons", TEXT, "JSON list: why, in the columns of `reasons`"),
        Column("last_sign_at", MOMENT, "what open work's silence is judged from, if not activity"),
        Column("cadence_s", REAL, "time between the fires of a schedule; null: no rhythm", "s"),
        Column("due_at", MOMENT, "when its next fire or retry is due"),
        Column("retry_code", TEXT, "reason code of what it waits to retry; null: no retry waits"),
        Column("n_running", INTEGER, "parts at work: fires of a schedule, calls of tools"),
        Column("n_questions", INTEGER, "questions to a person without an answer"),
        Column("n_unknown_finishes", INTEGER, "steps that finished for no known reason"),
        Column("is_resume_claimed", YES_NO, "its system has claimed to resume it"),
    ),
)

TRANSITIONS = Frame(
    "transitions",
    "one accepted change of status",
    (*ENTITY_KEY, "at", "seq"),
    (
        *_KEY_COLUMNS,
        Column("at", MOMENT, "when it was accepted"),
        Column("seq", INTEGER, "order within the store; breaks ties of `at`"),
        Column("previous_status", TEXT, "status before; null: the first that was recorded"),
        Column("status", TEXT, "status after"),
        Column("reason_code", TEXT, "why, as a code"),
        Column("message", TEXT, "why, in words"),
        Column("writer", TEXT, "which part of the system wrote it (executor, admin, …)"),
        Column("actor", TEXT, "who caused it"),
        Column("evidence", TEXT, "JSON list of objects with `kind`"),
        Column("metadata", TEXT, "JSON object with further facts"),
    ),
)

EVENTS = Frame(
    "events",
    "one thing that happened",
    (*ENTITY_KEY, "at", "seq"),
    (
        *_KEY_COLUMNS,
        Column("at", MOMENT, "when it happened"),
        Column("seq", INTEGER, "order within its log; orders, where the clock does not"),
        Column("kind", TEXT, "message, signal.<Kind>, admin.<action>, attention.<state>, …"),
        Column("is_activity", YES_NO, "counts as a sign of life of the entity"),
        Column("role", TEXT, "role of a message, or who acted"),
        Column("name", TEXT, "operation, tool or item it is about"),
        Column("size_bytes", INTEGER, "size of the body, which is not loaded", "bytes"),
        Column("duration_s", REAL, "how long it took, where it was recorded", "s"),
        Column("detail", TEXT, "a short text (at most 500 characters)"),
        Column("body", TEXT, "the body; null unless `read(bodies=True)`, or `--bodies`"),
    ),
)

FINDINGS = Frame(
    "findings",
    "one problem in the data, and what was done about it",
    ("source", "code", "entity_type", "entity_id"),
    (
        Column("source", TEXT, "the input it was found in"),
        Column("system", TEXT, "which orchestrator wrote the input"),
        Column("code", TEXT, "stable code: cell.wrong_type, status.unknown, show.disk_differs, …"),
        Column("severity", TEXT, ", ".join(FINDING_SEVERITIES)),
        Column("entity_type", TEXT, "type of the entity it is about; null: a table or a file"),
        Column("entity_id", TEXT, "the entity it is about; null: several, see n_rows"),
        Column("table", TEXT, "table or file"),
        Column("column", TEXT, "column or key"),
        Column("n_rows", INTEGER, "how many rows or records it concerns", "rows"),
        Column("message", TEXT, "the problem in words"),
        Column("example", TEXT, "one example, shortened"),
        Column("action", TEXT, "what was done: set to null, left out, kept under its own name"),
    ),
)

STATES = Frame(
    "states",
    "the NormalizedState of one entity at as-of (ADR-0033)",
    ENTITY_KEY,
    (
        *_KEY_COLUMNS,
        Column("lifecycle", pl.Enum(LIFECYCLES), "did the work finish; what happened"),
        Column("outcome", pl.Enum(OUTCOMES), "the terminal word; null while not terminal"),
        Column("health", pl.Enum(HEALTHS), "is the runtime well; null: does not apply"),
        Column("delivery", pl.Enum(DELIVERIES), "did it produce what it promised; null: n/a"),
        Column("severity", pl.Enum(SEVERITIES), "derived: how much attention it needs"),
        Column("tone", pl.Enum(TONES), "derived: how it is coloured"),
        Column("severity_rule", INTEGER, "number of the rule of the cascade that fired"),
        Column("is_terminal", YES_NO, "no further change is expected"),
        Column("is_legacy", YES_NO, "no status, or one outside the vocabulary: kept out of rates"),
        Column("display", TEXT, "the state in words, parts joined by ' · '"),
        Column("effective_state", TEXT, "ADR-0025's word for lists, such as `stale running`"),
        Column("reason_codes", TEXT, "codes of `reasons`, in order, joined by ', '"),
        Column("age_s", REAL, "as-of minus start", "s"),
        Column("silence_s", REAL, "as-of minus the last sign of life", "s"),
        Column("duration_s", REAL, "end minus start; null while running", "s"),
        Column("evaluated_at", MOMENT, "as-of of this evaluation"),
        Column("policy_version", TEXT, "version of the policy that was applied"),
        Column("origin", TEXT, "who derived it (ADR-0033 `source`): always stateanalytics"),
    ),
)

REASONS = Frame(
    "reasons",
    "one reason of one state, most direct first",
    (*ENTITY_KEY, "order"),
    (
        *_KEY_COLUMNS,
        Column("order", INTEGER, "0 is the stored reason, derived ones follow"),
        Column("dimension", pl.Enum(DIMENSIONS), "which axis the reason explains"),
        Column("code", TEXT, "reason code, dotted"),
        Column("message", TEXT, "the reason in words"),
        Column("claim_status", pl.Enum(CLAIM_STATUSES), "observed (stored) or inferred (derived)"),
        Column("confidence", REAL, "that this reason explains the state, 0 to 1"),
        Column("evidence", TEXT, "JSON list of evidence references"),
    ),
)

AUDIT = Frame(
    "audit",
    "one contradiction: what the data say of one entity, and what else they say",
    (*ENTITY_KEY, "code", "at", "says", "against"),
    (
        *_KEY_COLUMNS,
        Column("code", TEXT, "stable code: audit.transition_illegal, audit.end_missing, …"),
        Column("severity", TEXT, "warning: both cannot be true; info: explained by the data"),
        Column("at", MOMENT, "when it happened, as far as that is known"),
        Column("says", TEXT, "one side of the evidence"),
        Column("against", TEXT, "the other side"),
        Column("message", TEXT, "the contradiction in words"),
        Column("what_to_do", TEXT, "the operator's next step"),
    ),
)

SOURCES = Frame(
    "sources",
    "one input that was read, or that could not be",
    ("source",),
    (
        Column("source", TEXT, "the input, as it was named to `read`"),
        Column("system", TEXT, "which orchestrator wrote it"),
        Column("format", TEXT, "storage generation that was recognised"),
        Column("size_bytes", INTEGER, "size of the input", "bytes"),
        Column("n_entities", INTEGER, "entities read"),
        Column("n_transitions", INTEGER, "transitions read"),
        Column("n_events", INTEGER, "events read"),
        Column("n_findings", INTEGER, "findings counted"),
        Column("is_live", YES_NO, "a writer had it open"),
        Column("first_at", MOMENT, "oldest moment in it"),
        Column("last_at", MOMENT, "newest moment that its events prove"),
        Column("fingerprint", TEXT, "digest of what was read; same rows, same digest"),
    ),
)

LIONAGI_SCHEDULES = Frame(
    "lionagi_schedules",
    "one lionagi schedule, with the facts its health is judged by",
    ("source", "schedule_id"),
    (
        Column("source", TEXT, "the input"),
        Column("schedule_id", TEXT, "id of the schedule"),
        Column("is_enabled", YES_NO, "is it switched on"),
        Column("trigger_type", TEXT, "cron, interval, github_poll, at"),
        Column("cron_expr", TEXT, "cron expression"),
        Column(
            "cadence_s", REAL, "interval between fires; null: none (at, or unreadable cron)", "s"
        ),
        Column("next_fire_at", MOMENT, "next planned fire"),
        Column("last_fired_at", MOMENT, "last fire, survives retention of runs"),
        Column("last_evaluated_at", MOMENT, "last threshold evaluation"),
        Column("last_healthy_poll_at", MOMENT, "last poll that worked"),
        Column("has_threshold", YES_NO, "is it a threshold schedule"),
        Column("last_executed_at", MOMENT, "last run that was executed (skips do not count)"),
        Column("last_executed_status", TEXT, "status of that run"),
        Column("n_runs", INTEGER, "runs recorded"),
        Column("n_running", INTEGER, "runs that are running"),
        Column("n_missed", INTEGER, "fires missed (skipped as missed_fire)"),
        Column("n_failed_in_row", INTEGER, "failed or timed-out runs since the last good one"),
    ),
)

LIONAGI_DISPOSITIONS = Frame(
    "lionagi_dispositions",
    "what an operator decided about one attention item (ADR-0030)",
    ("source", "item_id"),
    (
        Column("source", TEXT, "the input"),
        Column("item_id", TEXT, "run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>"),
        Column("entity_type", TEXT, "type of the entity that item_id names; null: not resolved"),
        Column("entity_id", TEXT, "the entity that item_id names; null: not resolved"),
        Column("state", TEXT, "acknowledged, resolved, expected, snoozed"),
        Column("note", TEXT, "the operator's note"),
        Column("actor", TEXT, "who decided"),
        Column("source_status", TEXT, "status the item had then"),
        Column("created_at", MOMENT, "when it was first decided"),
        Column("updated_at", MOMENT, "when it was last decided"),
        Column("expires_at", MOMENT, "end of a snooze"),
    ),
)

LIONAGI_RUNS = Frame(
    "lionagi_runs",
    "one run directory beside the store",
    ("source", "run_id"),
    (
        Column("source", TEXT, "the input"),
        Column("run_id", TEXT, "name of the directory"),
        Column("session_id", TEXT, "session that the directory belongs to, where it is known"),
        Column("status", TEXT, "status in run.json; may lag behind the store"),
        Column("derived_status", TEXT, "status by ADR-0017's import rule"),
        Column("kind", TEXT, "invocation kind in run.json"),
        Column("agent", TEXT, "agent in run.json"),
        Column("model", TEXT, "model in run.json"),
        Column("started_at", MOMENT, "start in run.json, else file time"),
        Column("ended_at", MOMENT, "end in run.json"),
        Column("is_time_from_files", YES_NO, "started_at is only a file time"),
        Column("timeout_s", REAL, "config.timeout of checkpoint.json", "s"),
        Column("n_signals_dropped", INTEGER, "signals that could not be stored"),
        Column("n_planned_ops", INTEGER, "operations in the plan of checkpoint.json"),
    ),
)

LIONAGI_SHOWS_ON_DISK = Frame(
    "lionagi_shows_on_disk",
    "one show or play directory: what the disk says (it wins over the store, #1161)",
    ("source", "topic", "play"),
    (
        Column("source", TEXT, "the input"),
        Column("topic", TEXT, "show"),
        Column("play", TEXT, "play; null: the show itself"),
        Column("disk_status", TEXT, "status by the files"),
        Column("store_status", TEXT, "status by the store; null: not in the store"),
        Column("is_gate_passed", YES_NO, "verdict of the gate"),
        Column("is_show_passed", YES_NO, "final verdict of the show"),
        Column("has_abort_sentinel", YES_NO, "an _ABORT file is there"),
        Column("depends_on", TEXT, "JSON list of plays that must be merged first"),
        Column("feedback", TEXT, "the gate's words, shortened"),
    ),
)

OPENCODE_ERAS = ("V1", "A", "B", "C")

OPENCODE_EXECUTIONS = Frame(
    "opencode_executions",
    "one execution of an opencode session: one time that it worked through its inputs",
    ("source", "session_id", "exec_no"),
    (
        Column("source", TEXT, "the input"),
        Column("session_id", TEXT, "the session"),
        Column("exec_no", INTEGER, "number of the execution in its session, from 1; 0: no start"),
        Column("entity_id", TEXT, "its id in `entities`"),
        Column("turn_no", INTEGER, "number of the turn: executions joined over crash and shutdown"),
        Column("era", TEXT, "who wrote it: " + ", ".join(OPENCODE_ERAS)),
        Column("start_seq", INTEGER, "sequence number of its start"),
        Column("end_seq", INTEGER, "sequence number of its end"),
        Column("started_at", MOMENT, "when it started"),
        Column("ended_at", MOMENT, "when it ended; null: no end was written"),
        Column("last_active_at", MOMENT, "its last step, text or tool event"),
        Column("session_last_at", MOMENT, "the newest event of its session, of any kind"),
        Column("outcome", TEXT, "succeeded, failed, interrupted, crashed (no end), open, unknown"),
        Column("first_outcome", TEXT, "its first end, where several were written"),
        Column("n_terminals", INTEGER, "ends that were written; above 1: a late terminal"),
        Column("interrupt_reason", TEXT, "user, shutdown, superseded, inactivity, or as stored"),
        Column("error_type", TEXT, "type of its error, as stored"),
        Column("error_message", TEXT, "message of its error"),
        Column("error_status", INTEGER, "HTTP status of its error, where it was stored"),
        Column("cause", TEXT, "what the error means, as in reason codes; unrecognized: a new type"),
        Column("cause_confidence", REAL, "1 where the type says so, less where the words do"),
        Column("end_event_id", TEXT, "the event that ended it"),
        Column("is_last", YES_NO, "the last execution of its session"),
        Column("is_last_of_turn", YES_NO, "the last execution of its turn"),
        Column("is_continuation", YES_NO, "it goes on with the turn of the one before"),
        Column("is_head_truncated", YES_NO, "its start is not in the input"),
        Column("is_end_inferred", YES_NO, "no end was stored: it is read off its last message"),
        Column("is_blocked", YES_NO, "the provider's content filter stopped it: never a success"),
        Column("is_recovered", YES_NO, "a step ended well after a retry"),
        Column("has_output", YES_NO, "there is text, or a tool completed"),
        Column("last_finish", TEXT, "why its last step finished, in the provider's words"),
        Column("n_steps", INTEGER, "calls of a model"),
        Column("n_retries", INTEGER, "retries that were scheduled"),
        Column("n_tools", INTEGER, "tool calls"),
        Column("n_tools_running", INTEGER, "tool calls without an end"),
        Column("n_text_chars", INTEGER, "characters of answer text"),
        Column("n_unknown_finishes", INTEGER, "steps that finished for an unknown reason"),
        Column("is_retry_pending", YES_NO, "its last step waits for a retry"),
        Column("retry_attempt", INTEGER, "number of the attempt that is waited for, from 2"),
        Column("retry_at", MOMENT, "when that attempt is due"),
        Column("retry_error_type", TEXT, "type of the error that made it retry"),
        Column("retry_cause", TEXT, "what that error means"),
        Column("n_pending_asks", INTEGER, "permissions and questions without an answer (streams)"),
        Column("is_declined", YES_NO, "a person declined what it asked for, seen in the log"),
        Column("has_others_running", YES_NO, "other sessions ran on after its end"),
        Column("is_claimed", YES_NO, "its session is claimed, to be resumed at the next start"),
        Column("is_resumed", YES_NO, "its session was started again after it"),
        Column(
            "is_resumable", YES_NO, "a server's stop ended it and nothing resumed it; null: not cut"
        ),
        Column("agent", TEXT, "agent of the last step"),
        Column("model", TEXT, "model of the last step"),
        Column("provider", TEXT, "provider of the last step"),
        Column("n_input_tokens", INTEGER, "tokens read; null: not reported", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written; null: not reported", "tokens"),
        Column("cost_usd", REAL, "cost of its steps, failed ones too", "USD"),
    ),
)

OPENCODE_STEPS = Frame(
    "opencode_steps",
    "one step of opencode: one call of a model, with its attempts",
    ("source", "session_id", "message_id"),
    (
        Column("source", TEXT, "the input"),
        Column("session_id", TEXT, "the session"),
        Column("message_id", TEXT, "the assistant message"),
        Column("entity_id", TEXT, "its id in `entities`"),
        Column("exec_no", INTEGER, "execution in which it first started"),
        Column("era", TEXT, "who wrote it: " + ", ".join(OPENCODE_ERAS)),
        Column("start_seq", INTEGER, "sequence number of its start"),
        Column("end_seq", INTEGER, "sequence number of its end"),
        Column("dispatched_at", MOMENT, "when the request was sent (2.0)"),
        Column("started_at", MOMENT, "first output, or failure, of the first attempt"),
        Column("ended_at", MOMENT, "when it ended"),
        Column("first_output_s", REAL, "from request to first output", "s"),
        Column("n_attempts", INTEGER, "times that it started"),
        Column("n_retries", INTEGER, "retries that were scheduled"),
        Column("state", TEXT, "open, ended, failed"),
        Column("finish", TEXT, "why it finished: stop, length, tool-calls, content-filter, …"),
        Column("raw_finish", TEXT, "the provider's own word for that (2.0)"),
        Column("is_blocked", YES_NO, "the provider's content filter stopped it"),
        Column("is_recovered", YES_NO, "it ended well after a retry"),
        Column("is_retry_pending", YES_NO, "it waits for a retry"),
        Column("retry_attempt", INTEGER, "number of the last attempt scheduled, from 2"),
        Column("retry_at", MOMENT, "when that attempt was due"),
        Column("retry_error_type", TEXT, "type of the error that made it retry"),
        Column("retry_wait_s", REAL, "time spent waiting for retries", "s"),
        Column("error_type", TEXT, "type of its error, as stored"),
        Column("error_message", TEXT, "message of its error"),
        Column("error_status", INTEGER, "HTTP status of its error, where it was stored"),
        Column("cause", TEXT, "what the error means, as in reason codes"),
        Column("cause_confidence", REAL, "1 where the type says so, less where the words do"),
        Column("end_event_id", TEXT, "the event that ended it"),
        Column("n_text_chars", INTEGER, "characters of answer text"),
        Column("agent", TEXT, "agent of the last attempt"),
        Column("model", TEXT, "model of the last attempt"),
        Column("provider", TEXT, "provider of the last attempt"),
        Column("n_input_tokens", INTEGER, "tokens read; null: not reported", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written; null: not reported", "tokens"),
        Column("n_reasoning_tokens", INTEGER, "tokens of reasoning; null: not reported", "tokens"),
        Column("n_cache_read_tokens", INTEGER, "tokens read from cache", "tokens"),
        Column("n_cache_write_tokens", INTEGER, "tokens written to cache", "tokens"),
        Column("cost_usd", REAL, "cost; null: not reported", "USD"),
    ),
)

OPENCODE_TOOLS = Frame(
    "opencode_tools",
    "one tool call of opencode",
    ("source", "session_id", "message_id", "call_id"),
    (
        Column("source", TEXT, "the input"),
        Column("session_id", TEXT, "the session"),
        Column("message_id", TEXT, "the assistant message that called it"),
        Column("call_id", TEXT, "the provider's id of the call; unique within the message only"),
        Column("entity_id", TEXT, "its id in `entities`"),
        Column("name", TEXT, "name of the tool"),
        Column("exec_no", INTEGER, "execution of its step"),
        Column("end_exec_no", INTEGER, "execution that wrote its end"),
        Column("era", TEXT, "who wrote it: " + ", ".join(OPENCODE_ERAS)),
        Column("start_seq", INTEGER, "sequence number of its first event"),
        Column("end_seq", INTEGER, "sequence number of its end"),
        Column("started_at", MOMENT, "its first event"),
        Column("called_at", MOMENT, "when it was called with complete input"),
        Column("ended_at", MOMENT, "when it ended"),
        Column("state", TEXT, "streaming, running, completed, error"),
        Column("is_stale", YES_NO, "its end was written by a later execution, after a crash"),
        Column("exit_code", INTEGER, "exit code, which is not its state: 3 can be a success"),
        Column("error_type", TEXT, "type of its error, as stored"),
        Column("error_message", TEXT, "message of its error"),
        Column("error_permission", TEXT, "permission that was refused, where it was stored"),
        Column("error_resource", TEXT, "what it was refused for, where it was stored"),
        Column("cause", TEXT, "what the error means, as in reason codes"),
        Column("cause_confidence", REAL, "1 where the type says so, less where the words do"),
        Column("end_event_id", TEXT, "the event that ended it"),
    ),
)

OPENCODE_INPUTS = Frame(
    "opencode_inputs",
    "one input of an opencode session: a prompt, or what a program put in",
    ("source", "session_id", "input_id"),
    (
        Column("source", TEXT, "the input file"),
        Column("session_id", TEXT, "the session"),
        Column("input_id", TEXT, "id of the input, later of its message"),
        Column("kind", TEXT, "user, synthetic, compaction, move"),
        Column("delivery", TEXT, "steer (joins the running execution) or queue"),
        Column("admitted_seq", INTEGER, "sequence number of its admission"),
        Column("promoted_seq", INTEGER, "sequence number of its promotion to a message"),
        Column("cancelled_seq", INTEGER, "sequence number of its cancellation"),
        Column("admitted_at", MOMENT, "when it was taken in"),
        Column("promoted_at", MOMENT, "when it became a message, so that the model sees it"),
        Column("wait_s", REAL, "from admission to promotion", "s"),
        Column("is_pending", YES_NO, "neither promoted nor cancelled"),
        Column("is_stored_pending", YES_NO, "it is in the table of waiting inputs; null: no table"),
    ),
)

OPENCODE_SESSIONS = Frame(
    "opencode_sessions",
    "one opencode session: what its events and its row say beyond `entities`",
    ("source", "session_id"),
    (
        Column("source", TEXT, "the input"),
        Column("session_id", TEXT, "the session"),
        Column("era", TEXT, "who wrote it: " + ", ".join(OPENCODE_ERAS)),
        Column("program_version", TEXT, "version of opencode that made it"),
        Column("read_from", TEXT, "events, or messages where it has no events of work"),
        Column("directory", TEXT, "working directory"),
        Column("first_seq", INTEGER, "sequence number of its first event"),
        Column("last_seq", INTEGER, "sequence number of its last event"),
        Column("last_type", TEXT, "type of its last event"),
        Column("last_at", MOMENT, "when that was; the session's own update is no activity"),
        Column("n_events", INTEGER, "events, each counted once"),
        Column("n_executions", INTEGER, "executions"),
        Column("n_turns", INTEGER, "turns"),
        Column("n_steps", INTEGER, "calls of a model"),
        Column("n_retries", INTEGER, "retries that were scheduled"),
        Column("n_inputs", INTEGER, "inputs"),
        Column("n_pending_inputs", INTEGER, "inputs that wait"),
        Column("suspended_at", MOMENT, "claim or stamp to resume it; null: none"),
        Column("n_resume_attempts", INTEGER, "times that 2.0 resumed it by itself"),
        Column("idle_outcome", TEXT, "outcome as 2.0 stored it"),
        Column("archived_at", MOMENT, "when it was archived"),
        Column("fork_of", TEXT, "session it was forked from"),
        Column("event_cost_usd", REAL, "cost that its events add up to", "USD"),
    ),
)

AO_SESSIONS = Frame(
    "ao_sessions",
    "one session record of Agent Orchestrator: a file of any generation, a row of the Go database",
    ("source", "path"),
    (
        Column("source", TEXT, "the input"),
        Column("path", TEXT, "the file below the input, with a # and the row in a database"),
        Column("entity_id", TEXT, "the session that it is a record of; null: unreadable"),
        Column("session_id", TEXT, "the session's own name, which several projects may share"),
        Column("is_current", YES_NO, "is the entity told by this record; older ones are kept here"),
        Column("layout", TEXT, "json, kv, kv_archive, json_archive, database"),
        Column("generation", TEXT, "G0 key=value, G1 with statePayload, G2 JSON, G3 Go"),
        Column("directory", TEXT, "name of the project's directory"),
        Column("project", TEXT, "the project by the record, else by its directory"),
        Column("is_migrated_original", YES_NO, "did the storage migration copy and leave it"),
        Column("archived_at", MOMENT, "when it was put away, by the name of the file"),
        Column("modified_at", MOMENT, "last change of the file; a copy has its own"),
        Column("size_bytes", INTEGER, "size of the file", "bytes"),
        Column("is_readable", YES_NO, "could it be parsed"),
        Column("problem", TEXT, "why not"),
        Column("stored_status", TEXT, "the flat status: a cache that goes stale"),
        Column("legacy_status", TEXT, "the status that its axes say, unknown words kept"),
        Column("ao_status", TEXT, "the status that Agent Orchestrator itself would show"),
        Column("trinity_status", TEXT, "the same by the release of April 2026; key=value only"),
        Column("payload_key", TEXT, "lifecycle or statePayload; null: the record has no axes"),
        Column("is_synthesized", YES_NO, "are the axes made up from the flat status"),
        Column("ao_would_reject", YES_NO, "would its own reader discard the payload; null: none"),
        Column("reject_reason", TEXT, "why it would"),
        Column("kind", TEXT, "worker or orchestrator"),
        Column("session_state", TEXT, "session axis: state, as stored"),
        Column("session_reason", TEXT, "session axis: reason, as stored"),
        Column("pr_state", TEXT, "pull request axis: state"),
        Column("pr_reason", TEXT, "pull request axis: reason"),
        Column("runtime_state", TEXT, "runtime axis: state"),
        Column("runtime_reason", TEXT, "runtime axis: reason"),
        Column("is_ao_terminal", YES_NO, "Agent Orchestrator's isTerminal: counts a lost runtime"),
        Column("created_at", MOMENT, "when it was spawned"),
        Column("started_at", MOMENT, "when it first worked; null where made up"),
        Column("completed_at", MOMENT, "when it was done; null where made up"),
        Column("terminated_at", MOMENT, "when it ended; survives an overwritten reason"),
        Column("last_transition_at", MOMENT, "last decision written, changed or not: no dwell"),
        Column("pr_observed_at", MOMENT, "last look at the pull request"),
        Column("runtime_observed_at", MOMENT, "last probe"),
        Column("restored_at", MOMENT, "last restore or recovery"),
        Column("evidence_text", TEXT, "what the last poll saw"),
        Column("detecting_attempts", INTEGER, "polls in doubt in a row; grows after escalation"),
        Column("detecting_started_at", MOMENT, "first of them"),
        Column("detecting_escalated_at", MOMENT, "when the doubt was given up"),
        Column("detecting_evidence_hash", TEXT, "digest of the evidence in doubt"),
        Column("report_state", TEXT, "what its agent last reported"),
        Column("report_at", MOMENT, "when it did"),
        Column("report_note", TEXT, "with which words, at most 500 characters"),
        Column("stored_watcher_trigger", TEXT, "trigger of the report watcher that is on"),
        Column("n_watcher_polls", INTEGER, "polls it has been on for"),
        Column("watcher_activated_at", MOMENT, "since when it is on"),
        Column("merge_cleanup_since", MOMENT, "merged, and waiting for its agent to rest since"),
        Column("n_recoveries", INTEGER, "recoveries"),
        Column("escalated_at", MOMENT, "when recovery gave up"),
        Column("escalation_reason", TEXT, "why it did"),
        Column("termination_reason", TEXT, "flat reason that recovery wrote"),
        Column("pr_number", INTEGER, "number of the pull request"),
        Column("pr_url", TEXT, "its address: of the axis, else the flat key"),
        Column("pr_urls", TEXT, "all of them, comma-separated, where there are several"),
        Column("n_prs", INTEGER, "pull requests it names"),
        Column("pr_title", TEXT, "title, where it was looked up"),
        Column("pr_ci_status", TEXT, "passing, failing, pending, none: the axis forgets it"),
        Column("pr_review_decision", TEXT, "approved, changes_requested, pending, none"),
        Column("is_pr_mergeable", YES_NO, "can it be merged"),
        Column("is_pr_draft", YES_NO, "is it a draft"),
        Column("has_pr_conflicts", YES_NO, "does it conflict"),
        Column("is_pr_behind", YES_NO, "is it behind its base"),
        Column("n_pr_additions", INTEGER, "lines added", "lines"),
        Column("n_pr_deletions", INTEGER, "lines deleted", "lines"),
        Column("n_pr_unresolved_threads", INTEGER, "review threads that wait for an answer"),
        Column("pr_enriched_at", MOMENT, "when all this was looked up"),
        Column("event_priority", TEXT, "priority of its status: urgent, action, warning, info"),
        Column("primary_reason", TEXT, "the reason that its logs give for the three axes"),
        Column("issue", TEXT, "the issue it works on"),
        Column("branch", TEXT, "git branch"),
        Column("worktree", TEXT, "path of its worktree, as stored"),
        Column("agent_session_id", TEXT, "the agent's own session"),
        Column("runtime_name", TEXT, "tmux, process, …"),
        Column("tmux_name", TEXT, "name of its terminal"),
        Column("is_pr_auto_detected", YES_NO, "is its pull request looked for; null: by default"),
        Column("other_keys", TEXT, "keys that no column holds, comma-separated"),
        Column("is_status_stale", YES_NO, "is the flat status another than the axes say"),
        Column("is_kill_doubtful", YES_NO, "lost runtime that may be a kill, written over"),
        Column("is_flickering", YES_NO, "do two writers disagree about it"),
        Column("looks_ended_after_restore", YES_NO, "restored, but still says terminated"),
        Column("has_stale_end", YES_NO, "alive again, but still has an end"),
        Column("is_zombie", YES_NO, "not over, and its process is gone"),
        Column("is_spawn_race", YES_NO, "lost within a minute of its creation"),
        Column("has_kill_event", YES_NO, "does a log say that a person killed it"),
        Column("reattribution", TEXT, "what the mapping replaced: killed_by_event, flicker"),
        Column("reattribution_confidence", REAL, "how sure that is, 0 to 1"),
        Column("lifecycle", TEXT, "mapped: ADR-0033 lifecycle"),
        Column("outcome", TEXT, "mapped: terminal word; null while not over"),
        Column("health", TEXT, "mapped: health"),
        Column("delivery", TEXT, "mapped: delivery"),
        Column("reason_codes", TEXT, "mapped: codes, joined by ', '"),
        Column("confidence", REAL, "that the mapped lifecycle is right, 0 to 1"),
    ),
)

SPELLS = Frame(
    "spells",
    "one run, with how long it took and what is known of its end",
    ENTITY_KEY,
    (
        *_KEY_COLUMNS,
        Column("session_id", TEXT, "the session it belongs to; its own id, but for turns"),
        Column("invocation_id", TEXT, "the request that caused it"),
        Column("kind", TEXT, "kind of work"),
        Column("agent", TEXT, "agent profile"),
        Column("model", TEXT, "model id"),
        Column("playbook", TEXT, "playbook or skill that was run"),
        Column("project", TEXT, "project the work was for"),
        Column("raw_status", TEXT, "status as stored; names what was not understood"),
        Column("started_at", MOMENT, "when it started"),
        Column("ended_at", MOMENT, "its end as it counts here, or where it was cut off"),
        Column("timeout_s", REAL, "the configured limit, where it is known", "s"),
        Column("timeout_from", TEXT, "where the limit is known from: checkpoint, metadata"),
        Column("n_turns", INTEGER, "model turns; 0: it never spoke"),
        Column("entry_s", REAL, "when it came under observation; null: from its start", "s"),
        Column("duration_s", REAL, "how long it took, or at least took; null: left out", "s"),
        Column("ending", TEXT, "completed, failed, timed_out, …, running; null: not understood"),
        Column("ended", YES_NO, "was its end seen; false: it took at least so long"),
        Column("cause", TEXT, "its ending, where that was seen: what incidences count"),
        Column("is_censored", YES_NO, "the opposite of `ended`"),
        Column("cut_off_by", TEXT, "as_of, last_activity, time_limit, window_end; null: it ended"),
        Column("end_from", TEXT, "recorded, or last_activity where an observer found it dead"),
        Column("end_width_s", REAL, "its true end lies this much or less after that", "s"),
        Column("left_out", TEXT, "why it does not count; null: it does"),
    ),
)

TIMEOUTS = Frame(
    "timeouts",
    "one run that has a time limit, or ended at one",
    ENTITY_KEY,
    (
        *_KEY_COLUMNS,
        Column("session_id", TEXT, "the session it belongs to"),
        Column("kind", TEXT, "kind of work"),
        Column("agent", TEXT, "agent profile"),
        Column("model", TEXT, "model id"),
        Column("playbook", TEXT, "playbook or skill that was run"),
        Column("project", TEXT, "project the work was for"),
        Column("started_at", MOMENT, "when it started"),
        Column("ending", TEXT, "how it ended: timed_out, completed, …, running"),
        Column("elapsed_s", REAL, "how long it took, or has taken", "s"),
        Column("limit_s", REAL, "its limit; null: not known", "s"),
        Column("limit_from", TEXT, "checkpoint, metadata, or inferred from many ends there"),
        Column("over_s", REAL, "elapsed minus limit", "s"),
        Column("fits", TEXT, "at_limit, before, after (another deadline); null: no limit"),
        Column("n_turns", INTEGER, "model turns"),
        Column("has_no_turns", YES_NO, "it never spoke; null: not known"),
    ),
)

PHANTOMS = Frame(
    "phantoms",
    "one entity that one reaper would close at as-of",
    (*ENTITY_KEY, "reaper"),
    (
        *_KEY_COLUMNS,
        Column("reaper", TEXT, "which rule would close it"),
        Column("known_as", TEXT, "that rule's number among the detectors, or its document"),
        Column("raw_status", TEXT, "the status it has now"),
        Column("target_status", TEXT, "the status it would get"),
        Column("reason_code", TEXT, "the reason that would be written"),
        Column("message", TEXT, "the words that would be written"),
        Column("actor", TEXT, "whom the history would name"),
        Column("age_s", REAL, "the age that the rule looks at; null: never written", "s"),
        Column("limit_s", REAL, "the limit of that age", "s"),
        Column("is_certain", YES_NO, "false: only if its process is not alive"),
        Column("n_reapers", INTEGER, "how many rules would close this entity"),
        Column("has_dispute", YES_NO, "would they write different statuses"),
    ),
)

FACTS = (ENTITIES, TRANSITIONS, EVENTS, FINDINGS, SOURCES)
DERIVED = (STATES, REASONS, AUDIT, SPELLS, TIMEOUTS)
DETAILS = (
    LIONAGI_SCHEDULES,
    LIONAGI_DISPOSITIONS,
    LIONAGI_RUNS,
    LIONAGI_SHOWS_ON_DISK,
    OPENCODE_EXECUTIONS,
    OPENCODE_INPUTS,
    OPENCODE_SESSIONS,
    OPENCODE_STEPS,
    OPENCODE_TOOLS,
    AO_SESSIONS,
)
FRAMES = {frame.name: frame for frame in (*FACTS, *DERIVED, *DETAILS)}
