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

    def named(self, *names: str) -> tuple[Column, ...]:
        """Its columns of these names, for a frame in which they mean the same."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in names)

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
        if list(frame.schema.items()) == list(self.dtypes.items()):
            return frame
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

KEY_COLUMNS = (
    Column("source", TEXT, "the input this row came from, as it was named to `read`"),
    Column("system", TEXT, "which orchestrator wrote it: the name of a system"),
    Column("entity_type", TEXT, "session, branch, show, play, invocation, schedule, …"),
    Column("entity_id", TEXT, "the system's own id"),
)

ENTITIES = Frame(
    "entities",
    "one operational entity, as its row and its files last said",
    ENTITY_KEY,
    (
        *KEY_COLUMNS,
        Column("parent_type", TEXT, "entity_type of the direct parent"),
        Column("parent_id", TEXT, "id of the direct parent (a branch's session, a play's show)"),
        Column("session_id", TEXT, "the session that does the work (a session's own id)"),
        Column("invocation_id", TEXT, "the request that caused the work; groups causes"),
        Column("run_id", TEXT, "the run directory or execution it belongs to"),
        Column("kind", TEXT, "kind of work: agent, play, flow, fanout, show-play, engine, …"),
        Column("name", TEXT, "name shown to people"),
        Column("project", TEXT, "project the work was for"),
        Column("directory", TEXT, "working directory, as stored"),
        Column("native_session_id", TEXT, "its agent's own session: the id of a transcript"),
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
        Column(
            "n_cache_read_tokens", INTEGER, "of those read: from a cache; null: unknown", "tokens"
        ),
        Column(
            "n_cache_write_tokens", INTEGER, "of those read: put into one; null: unknown", "tokens"
        ),
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
        Column(
            "patience_s", REAL, "silence that open work may have; null: its system's limit", "s"
        ),
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
        *KEY_COLUMNS,
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
        *KEY_COLUMNS,
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
        *KEY_COLUMNS,
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
        *KEY_COLUMNS,
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
        *KEY_COLUMNS,
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
        Column("same_as", TEXT, "the input that tells its work too, later; null: none does"),
        Column("looked_at", MOMENT, "when an archive collected it last; null: read itself"),
        Column("is_unchanged", YES_NO, "nothing was new in it then; null: read itself"),
    ),
)

SPELLS = Frame(
    "spells",
    "one attempt at a run, with how long it took and what is known of its end",
    (*ENTITY_KEY, "n_resumed"),
    (
        *KEY_COLUMNS,
        Column("n_resumed", INTEGER, "how often its work had been resumed before; 0: never"),
        Column("session_id", TEXT, "the session it belongs to; its own id, but for turns"),
        Column("show_id", TEXT, "the show whose play its session works for"),
        *ENTITIES.named("invocation_id", "kind", "agent", "model", "playbook", "project"),
        *ENTITIES.named("raw_status", "started_at"),
        Column("ended_at", MOMENT, "its end as it counts here, or where it was cut off"),
        *ENTITIES.named("timeout_s", "timeout_from", "n_turns"),
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
    "one attempt at a run that has a time limit, or ended at one",
    (*ENTITY_KEY, "n_resumed"),
    (
        *KEY_COLUMNS,
        Column("n_resumed", INTEGER, "how often its work had been resumed before; 0: never"),
        Column("session_id", TEXT, "the session it belongs to"),
        *ENTITIES.named("kind", "agent", "model", "playbook", "project", "started_at"),
        Column("ending", TEXT, "how it ended: timed_out, completed, …, running"),
        Column("elapsed_s", REAL, "how long it took, or has taken", "s"),
        Column("limit_s", REAL, "its limit; null: not known", "s"),
        Column("limit_from", TEXT, "checkpoint, metadata, or inferred from many ends there"),
        Column("over_s", REAL, "elapsed minus limit", "s"),
        Column("fits", TEXT, "at_limit, before, after (another deadline); null: no limit"),
        *ENTITIES.named("n_turns"),
        Column("has_no_turns", YES_NO, "it never spoke; null: not known"),
    ),
)

PHANTOMS = Frame(
    "phantoms",
    "one entity that one reaper would close at as-of",
    (*ENTITY_KEY, "reaper"),
    (
        *KEY_COLUMNS,
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
FRAMES = {frame.name: frame for frame in (*FACTS, *DERIVED)}
"""Every canonical frame; systems add theirs (`systems.detail_frames`)."""
