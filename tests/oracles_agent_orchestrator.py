"""The oracles' door of Agent Orchestrator: each file, and the public rule that must equal it.

An adapter gets the rows of one oracle file as read (all columns text, empty = null;
JSONL: one column ``line``), reads its *input* columns only, calls the public rule, and
returns the *output* columns as text, in the file's order. Objects in JSONL are compact
JSON with the file's own order of keys; a key that a line lacks is null.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.state.severity import derive_severity
from stateanalytics.systems.agent_orchestrator.features import classify_web_attention
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    LIFECYCLE_COLUMNS,
    parse_lifecycle,
    synthesize_lifecycle,
)
from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
from stateanalytics.systems.agent_orchestrator.records import read_reports
from stateanalytics.systems.agent_orchestrator.statuses import (
    derive_legacy_status,
    name_primary_reason,
)
from tests.conformance.agent_orchestrator.activity import classify_activity, decay_log_entries
from tests.conformance.agent_orchestrator.agent_report import (
    interpret_reports,
    judge_report_freshness,
    normalize_report_words,
    validate_reports,
)
from tests.conformance.agent_orchestrator.agent_report_effect import apply_reports
from tests.conformance.agent_orchestrator.detecting import (
    decide_detecting,
    evidence_hash,
    normal_evidence,
    stored_attempts,
)
from tests.conformance.agent_orchestrator.detecting_replay import replay_detecting
from tests.conformance.agent_orchestrator.determine_status import determine_status
from tests.conformance.agent_orchestrator.durations import duration_s
from tests.conformance.agent_orchestrator.event_kinds import event_kinds
from tests.conformance.agent_orchestrator.events import (
    DEFAULT_REACTIONS,
    classify_events,
    classify_status_changes,
)
from tests.conformance.agent_orchestrator.javascript_dates import (
    date_ms,
    iso_text,
    milliseconds,
    moment,
)
from tests.conformance.agent_orchestrator.probe import resolve_probes
from tests.conformance.agent_orchestrator.pull_request import (
    decide_pull_request,
    parse_pull_request_urls,
    pull_request_events,
)
from tests.conformance.agent_orchestrator.recovery import classify_recovery
from tests.conformance.agent_orchestrator.replay import PollSettings, replay_polls
from tests.conformance.agent_orchestrator.report_watcher import watch_reports
from tests.conformance.agent_orchestrator.roles import find_orchestrators
from tests.conformance.agent_orchestrator.terminality import classify_terminality

Adapter = Callable[[pl.DataFrame], pl.DataFrame]

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCENARIO_START = datetime(2026, 5, 4, 9, tzinfo=UTC)
MOMENT = pl.Datetime("us", "UTC")
NO_TEXT, NO_MOMENT = pl.lit(None, pl.String), pl.lit(None, MOMENT)


# --- cells of an oracle file -----------------------------------------------------------


def yes(column: str) -> pl.Expr:
    return pl.col(column) == "true"


def seconds(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64, strict=False) / 1000


def ago(column: str) -> pl.Expr:
    age = pl.duration(milliseconds=pl.col(column).cast(pl.Int64, strict=False))
    return (pl.lit(NOW) - age).cast(MOMENT)


def iso(column: str) -> pl.Expr:
    return iso_text(milliseconds(pl.col(column)))


def ms_text(column: str) -> pl.Expr:
    return (pl.col(column) * 1000).round().cast(pl.Int64).cast(pl.String)


def json_text(column: str) -> pl.Expr:
    return pl.col(column).str.json_decode(pl.String)


def positive(column: str) -> pl.Expr:
    return pl.when(pl.col(column) > 0).then(pl.col(column).cast(pl.String))


def not_empty(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != "").then(column)


def as_text(frame: pl.DataFrame, **columns: str | pl.Expr) -> pl.DataFrame:
    return frame.select(**columns).cast(pl.String)


def compact(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- lifecycle records ------------------------------------------------------------------

CALLER = {
    "sessionId": "sessionId",
    "status": "givenStatus",
    "createdAt": "givenCreatedAt",
    "sessionKind": "givenKind",
    "runtimeHandle": "givenRuntimeHandle",
}


def lines_of(rows: pl.DataFrame) -> list[dict]:
    return [json.loads(line) for line in rows["line"]]


def records_of(lines: Iterable[dict]) -> pl.DataFrame:
    records = [
        line["meta"] | {CALLER[name]: compact(value) for name, value in line["options"].items()}
        for line in lines
    ]
    names = sorted({name for record in records for name in record} | set(CALLER.values()))
    return pl.DataFrame(records, schema=dict.fromkeys(names, pl.String))


def lifecycles_of(frame: pl.DataFrame) -> list[dict]:
    moments = {name: iso(name) for name in LIFECYCLE_COLUMNS if name.endswith("_at")}
    return [nested(row) for row in frame.with_columns(**moments).to_dicts()]


def nested(row: dict) -> dict:
    handle = row["runtime_handle"]
    return {
        "version": 2,
        "session": {
            "kind": row["kind"],
            "state": row["session_state"],
            "reason": row["session_reason"],
            "startedAt": row["started_at"],
            "completedAt": row["completed_at"],
            "terminatedAt": row["terminated_at"],
            "lastTransitionAt": row["last_transition_at"],
        },
        "pr": {
            "state": row["pr_state"],
            "reason": row["pr_reason"],
            "number": row["pr_number"],
            "url": row["pr_url"],
            "lastObservedAt": row["pr_observed_at"],
        },
        "runtime": {
            "state": row["runtime_state"],
            "reason": row["runtime_reason"],
            "lastObservedAt": row["runtime_observed_at"],
            "handle": None if handle is None else json.loads(handle),
            "tmuxName": row["tmux_name"],
        },
    }


def synthesize(rows: pl.DataFrame) -> pl.DataFrame:
    records = records_of(lines_of(rows))
    made_up = synthesize_lifecycle(records, now=NOW, dates=date_ms)
    head = lifecycles_of(made_up)
    trinity = lifecycles_of(
        synthesize_lifecycle(records, now=NOW, dates=date_ms, version="trinity")
    )
    pairs = zip(head, trinity, strict=True)
    return pl.DataFrame(
        {
            "lifecycle": [compact(one) for one in head],
            "legacy_status": derive_legacy_status(made_up)["legacy_status"],
            "lifecycle_trinity": ["same" if a == b else compact(b) for a, b in pairs],
            "error": pl.Series([None] * len(head), dtype=pl.String),
        },
        schema_overrides=dict.fromkeys(("lifecycle", "lifecycle_trinity"), pl.String),
    )


def parse(rows: pl.DataFrame) -> pl.DataFrame:
    records = records_of(lines_of(rows))
    parsed = parse_lifecycle(records, now=NOW, dates=date_ms)
    head, made_up = (
        lifecycles_of(parsed),
        lifecycles_of(synthesize_lifecycle(records, now=NOW, dates=date_ms)),
    )
    final = lifecycles_of(parse_lifecycle(records, now=NOW, dates=date_ms, version="final"))
    trinity = lifecycles_of(parse_lifecycle(records, now=NOW, dates=date_ms, version="trinity"))
    texts = pl.DataFrame(
        {
            "lifecycle": [compact(one) for one in head],
            "differs_from_synthesized": [a != b for a, b in zip(head, made_up, strict=True)],
            "final_ts_same": [a == b for a, b in zip(head, final, strict=True)],
            "trinity_same": [a == b for a, b in zip(head, trinity, strict=True)],
            "trinity": [compact(one) for one in trinity],
        },
        schema_overrides={"lifecycle": pl.String, "trinity": pl.String},
    )
    return as_text(
        texts.with_columns(legacy_status=derive_legacy_status(parsed)["legacy_status"]),
        lifecycle="lifecycle",
        differs_from_synthesized="differs_from_synthesized",
        legacy_status="legacy_status",
        final_ts_same="final_ts_same",
        trinity_same="trinity_same",
        lifecycle_trinity=pl.when(~pl.col("trinity_same")).then("trinity"),
    )


def timestamp_normalize(rows: pl.DataFrame) -> pl.DataFrame:
    payloads = [
        json.dumps({"version": 2, "session": {"lastTransitionAt": text or ""}})
        for text in rows["input"]
    ]
    stored = rows.select(createdAt="input", lifecycle=pl.Series(payloads, dtype=pl.String))
    created = stored.select("createdAt")
    in_2020 = stored.with_columns(createdAt=pl.lit("2020-01-01T00:00:00.000Z"))
    read = rows.select(ms=date_ms("input")).with_columns(
        transition=parse_lifecycle(in_2020, now=NOW, dates=date_ms)["last_transition_at"],
        created=synthesize_lifecycle(created, now=NOW, dates=date_ms)["last_transition_at"],
    )
    return as_text(
        read,
        normalized_or_null=iso_text(pl.col("ms")),
        lastTransitionAt_with_fallback_2020=iso("transition"),
        as_meta_createdAt_fallback_now=iso("created"),
        date_parse_ms=pl.col("ms").cast(pl.String).fill_null("NaN"),
    )


def derive_legacy(rows: pl.DataFrame) -> pl.DataFrame:
    words = rows.select("session_state", "session_reason", "pr_state", "pr_reason")
    words = words.with_columns(previous_status=NO_TEXT)
    return pl.DataFrame(
        {
            "legacy_status": derive_legacy_status(words)["legacy_status"],
            "legacy_status_final_ts": derive_legacy_status(words, version="final")["legacy_status"],
            "legacy_status_trinity_default_prev": derive_legacy_status(words, version="trinity")[
                "legacy_status"
            ],
        }
    )


def derive_legacy_trinity(rows: pl.DataFrame) -> pl.DataFrame:
    words = rows.select("session_state", "pr_state", "pr_reason", "previous_status")
    return derive_legacy_status(words, version="trinity").select("legacy_status")


def terminal_restorable(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select(
        "session_state",
        "pr_state",
        "runtime_state",
        "status",
        "activity",
        has_lifecycle=yes("has_lifecycle"),
    )
    versions = {"head": "", "trinity": "_trinity", "final": "_final_ts"}
    parts = [
        as_text(
            classify_terminality(inputs, version=version),
            **{f"is_terminal{end}": "is_terminal", f"is_restorable{end}": "is_restorable"},
        )
        for version, end in versions.items()
    ]
    return pl.concat(parts, how="horizontal")


def pr_url(rows: pl.DataFrame) -> pl.DataFrame:
    read = parse_pull_request_urls(rows.select("url"), column="url")
    return as_text(
        read,
        parsed=pl.col("pr_number").is_not_null(),
        owner="pr_owner",
        repo="pr_repository",
        number="pr_number",
        final_ts_same=pl.lit(value=True),
    )


def role(rows: pl.DataFrame) -> pl.DataFrame:
    answers = [
        find_orchestrators(
            pl.DataFrame(
                {"session_id": [row["id"]], "role": [row["role"]]},
                schema_overrides={"role": pl.String},
            ),
            prefix=row["prefix"],
            all_prefixes=(row["all_prefixes"] or "").split("|") if row["all_prefixes"] else (),
        )
        for row in rows.iter_rows(named=True)
    ]
    return as_text(pl.concat(answers), is_orchestrator="is_orchestrator")


# --- activity, probes, the detecting budget ---------------------------------------------


def activity_signal(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select(
        at=pl.lit(NOW),
        activity_detection="kind",
        activity="activity",
        activity_source="source",
        activity_at=ago("age_ms"),
    )
    return as_text(
        classify_activity(inputs),
        signal_state="signal_state",
        signal_detail="signal_detail",
        freshness="freshness",
        positive_idle_evidence="is_idle_evidence",
        supports_recent_liveness="is_liveness_evidence",
        weak_evidence="is_weak_evidence",
        evidence="activity_evidence",
    )


def activity_log(rows: pl.DataFrame) -> pl.DataFrame:
    entries = rows.select("entry_state", entry_age_s=seconds("age_ms"))
    head, final = decay_log_entries(entries), decay_log_entries(entries, version="final")
    return pl.DataFrame(
        {
            "check_state": head["actionable_state"],
            "fallback_state": head["fallback_state"],
            "check_state_final_ts": final["actionable_state"],
            "fallback_state_final_ts": final["fallback_state"],
        }
    )


def probe_decision(rows: pl.DataFrame) -> pl.DataFrame:
    state = pl.col("signal_state")
    inputs = rows.select(
        "runtime",
        "process",
        "activity",
        at=pl.lit(NOW),
        is_runtime_failed=yes("runtime_failed"),
        is_process_failed=yes("process_failed"),
        can_probe=yes("can_probe_runtime_identity"),
        is_idle_blocked=yes("idle_was_blocked"),
        is_live=yes("recent_liveness"),
        activity_at=ago("activity_age_ms"),
        activity_detection=pl.when(state.is_in(("valid", "stale")))
        .then(pl.lit("detected"))
        .otherwise(state),
        activity_source=pl.when(state == "unavailable")
        .then(pl.lit("none"))
        .otherwise(pl.lit("native")),
        detecting_attempts=pl.lit(0),
        detecting_started_at=NO_MOMENT,
        detecting_hash=NO_TEXT,
    )
    return as_text(
        resolve_probes(classify_activity(inputs)),
        decision="decision",
        session_state="session_state",
        session_reason="session_reason",
        attempts="detecting_attempts",
        detecting_started_at=iso("detecting_started_at"),
        evidence_hash="detecting_hash",
        evidence="evidence",
    )


# The budget's evidence is no column of the file; this is the one its hash belongs to.
EVIDENCE = (
    "signal_disagreement runtime=alive process=dead "
    "activity_signal=valid via_native activity=exited at=2026-05-01T11:59:59.000Z"
)
HASHES = {"absent": None, "same": "9f6adba924ef", "different": "0" * 12, "empty_string": ""}


def detecting(rows: pl.DataFrame) -> pl.DataFrame:
    has_age = pl.col("started_age_ms").cast(pl.Int64, strict=False).is_not_null()
    inputs = rows.select(
        at=pl.lit(NOW),
        evidence=pl.lit(EVIDENCE),
        detecting_attempts=pl.col("current_attempts").cast(pl.Int64),
        detecting_started_at=pl.when(has_age).then(ago("started_age_ms")),
        is_start_unreadable=pl.col("started_age_ms") == "invalid",
        detecting_hash=pl.col("previous_hash").replace_strict(HASHES, return_dtype=pl.String),
        is_idle_blocked=yes("idle_was_blocked"),
        detecting_reason="reason_input",
    )
    started = (
        pl.when("is_start_unreadable")
        .then(pl.lit("not-a-date"))
        .otherwise(iso("detecting_started_at"))
    )
    return as_text(
        decide_detecting(inputs),
        status="status",
        session_state="session_state",
        session_reason="session_reason",
        attempts="detecting_attempts",
        started_at_out=started,
        started_reset=(pl.col("detecting_started_at") == pl.col("at")).fill_null(value=False)
        & ~pl.col("is_start_unreadable"),
        evidence_hash="detecting_hash",
    )


def detecting_sequences(rows: pl.DataFrame) -> pl.DataFrame:
    numbered = rows.with_row_index("place")
    polls = numbered.select(
        "place",
        "sequence",
        "evidence",
        at=pl.lit(NOW) + pl.duration(milliseconds=pl.col("t_ms").cast(pl.Int64)),
    )
    return as_text(
        replay_detecting(polls, by="sequence").sort("place"),
        status="status",
        session_reason="session_reason",
        attempts="detecting_attempts",
        started_at=iso("detecting_started_at"),
        evidence_hash="detecting_hash",
    )


def evidence_hash_rows(rows: pl.DataFrame) -> pl.DataFrame:
    texts = rows.select(evidence=json_text("evidence"))
    hashed = texts.select(
        normalized=normal_evidence(pl.col("evidence")),
        hash=evidence_hash(pl.col("evidence")),
    )
    encoded = [json.dumps(text, ensure_ascii=False) for text in hashed["normalized"]]
    return hashed.with_columns(normalized=pl.Series(encoded, dtype=pl.String))


def parse_attempts(rows: pl.DataFrame) -> pl.DataFrame:
    stored = pl.when(pl.col("raw_json") != "undefined").then(json_text("raw_json"))
    attempts = rows.select(value=stored).select(value=stored_attempts(pl.col("value")))
    texts = [javascript_number(number) for number in attempts["value"]]
    return pl.DataFrame({"value": texts}, schema={"value": pl.String})


def javascript_number(number: float) -> str:
    if abs(number) < 1e21:
        return str(int(number))
    mantissa, exponent = f"{number!r}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


# --- pull requests, events ---------------------------------------------------------------


def pr_decision(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select(
        scm_state="pr_state_in",
        scm_ci="ci_status",
        scm_review="review_decision",
        scm_is_mergeable=yes("mergeable"),
        is_idle_too_long=yes("idle_beyond_threshold"),
        is_idle_blocked=yes("idle_was_blocked"),
        activity_evidence=pl.lit("AE"),
    )
    return as_text(
        decide_pull_request(inputs),
        status="status",
        session_state="session_state",
        session_reason="session_reason",
        pr_state="pr_state",
        pr_reason="pr_reason",
        attempts=pl.lit("0"),
        evidence="evidence",
    )


def pr_state_events(rows: pl.DataFrame) -> pl.DataFrame:
    changes = rows.select(previous_pr_state="from", pr_state="to")
    return as_text(pull_request_events(changes), event_type="pr_event")


def events(rows: pl.DataFrame) -> pl.DataFrame:
    judged = classify_events(rows.select("event_type"))
    return as_text(judged, inferred_priority="event_priority", reaction_key="reaction_key")


def status_events(rows: pl.DataFrame) -> pl.DataFrame:
    return as_text(
        classify_status_changes(rows.select("new_status")),
        event_type="event_type",
        priority="event_priority",
        reaction_key="reaction_key",
        transition_log_level="log_level",
    )


def primary_reason(rows: pl.DataFrame) -> pl.DataFrame:
    words = rows.select("session_state", "session_reason", "pr_reason", "runtime_reason")
    return name_primary_reason(words).select("primary_reason")


def duration(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(ms=duration_s(pl.col("input"))).select(ms=ms_text("ms"))


# --- agent reports -----------------------------------------------------------------------


def report_aliases(rows: pl.DataFrame) -> pl.DataFrame:
    words = rows.select(report_word=json_text("input"))
    states = normalize_report_words(words)
    # What every JavaScript object inherits leaks through AO's table; ours rejects it.
    leaks = pl.col("report_word").str.to_lowercase().is_in(("constructor", "__proto__"))
    leaked = pl.when(leaks).then(pl.lit("(non-string object leak)"))
    return states.select(normalized=pl.coalesce("report_state", leaked))


def report_map(rows: pl.DataFrame) -> pl.DataFrame:
    meant = interpret_reports(rows.select("report_state"))
    return meant.select("session_state", "session_reason")


def report_freshness(rows: pl.DataFrame) -> pl.DataFrame:
    judged = judge_report_freshness(rows.select(report_age_s=seconds("age_ms")))
    return as_text(judged, fresh="is_report_fresh")


def report_validate(rows: pl.DataFrame) -> pl.DataFrame:
    words = rows.select("kind", "session_state", "pr_state", "runtime_state")
    return as_text(validate_reports(words), ok="is_accepted", rejection_reason="rejection_reason")


REPORT_KEYS = {
    "state": "report_state",
    "timestamp": "report_at",
    "note": "report_note",
    "prNumber": "report_pr_number",
    "prUrl": "report_pr_url",
    "prIsDraft": "report_is_draft",
}


def report_read(rows: pl.DataFrame) -> pl.DataFrame:
    keys = [f"agentReported{key}" for key in ("State", "At", "Note", "PrNumber", "PrUrl")]
    schema = dict.fromkeys([*keys, "agentReportedPrIsDraft"], pl.String)
    records = pl.DataFrame([line["meta"] or {} for line in lines_of(rows)], schema=schema)
    read = read_reports(records, dates=date_ms).with_columns(report_at=iso("report_at")).to_dicts()
    reports = [
        {key: row[name] for key, name in REPORT_KEYS.items() if row[name] is not None} or None
        for row in read
    ]
    return pl.DataFrame({"report": [compact(one) for one in reports]}, schema={"report": pl.String})


def report(rows: pl.DataFrame) -> pl.DataFrame:
    has_pr = pl.col("start_pr_state") != "none"
    inputs = rows.select(
        at=pl.lit(NOW),
        report_state="report_state",
        given_pr_url="in_pr_url",
        given_pr_number=pl.col("in_pr_number").cast(pl.Float64),
        kind=pl.lit("worker"),
        session_state="start_session_state",
        session_reason=pl.lit("task_in_progress"),
        started_at=NO_MOMENT,
        last_transition_at=pl.lit(NOW - timedelta(days=30)).cast(MOMENT),
        pr_state="start_pr_state",
        pr_reason="start_pr_reason",
        pr_number=pl.when(has_pr).then(10).cast(pl.Int64),
        pr_url=pl.when(has_pr).then(pl.lit("https://github.com/acme/app/pull/10")),
        runtime_state=pl.lit("alive"),
    )
    return as_text(
        derive_legacy_status(apply_reports(inputs)),
        accepted="is_accepted",
        error="error",
        audit_lines_written="n_audit_lines",
        out_session_state="session_state",
        out_session_reason="session_reason",
        out_started_at_set=pl.col("started_at").is_not_null(),
        out_last_transition_is_now=pl.col("last_transition_at") == pl.col("at"),
        out_pr_state="pr_state",
        out_pr_reason="pr_reason",
        out_pr_number="pr_number",
        out_pr_url="pr_url",
        out_legacy_status="legacy_status",
        stored_report_state=pl.when("is_accepted").then("report_state"),
        stored_pr_url="stored_pr_url",
        stored_pr_number="stored_pr_number",
        stored_pr_is_draft="stored_is_draft",
        flat_pr=pl.when("is_accepted").then("pr_url"),
        status_key_present=pl.lit(value=False),
    )


def report_watcher(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select(
        "status",
        "kind",
        "report_state",
        created_age_s=seconds("created_age_ms"),
        report_age_s=seconds("report_age_ms"),
    )
    return as_text(
        watch_reports(inputs),
        audited="is_audited",
        trigger="watcher_trigger",
        reaction_key="watcher_reaction_key",
        message="watcher_message",
        time_since_spawn_ms=ms_text("time_since_spawn_s"),
        time_since_report_ms=ms_text("time_since_report_s"),
    )


# --- one poll, and whole trajectories ------------------------------------------------------

STARTS = {
    "not_started": ("not_started", "spawn_requested"),
    "working": ("working", "task_in_progress"),
    "idle": ("idle", "awaiting_external_review"),
    "needs_input": ("needs_input", "awaiting_user_input"),
    "stuck_probe": ("stuck", "probe_failure"),
    "stuck_error": ("stuck", "error_in_process"),
    "detecting": ("detecting", "runtime_lost"),
    "done": ("done", "research_complete"),
    "terminated": ("terminated", "manually_killed"),
}
ACTIVITIES = {
    "active_fresh": ("active", 5_000),
    "ready_fresh": ("ready", 120_000),
    "active_stale": ("active", 360_000),
    "active_nots": ("active", None),
    "idle_6m": ("idle", 360_000),
    "idle_10m": ("idle", 600_000),
    "idle_11m": ("idle", 660_000),
    "idle_nots": ("idle", None),
    "blocked_1m": ("blocked", 60_000),
    "blocked_11m": ("blocked", 660_000),
    "waiting_input": ("waiting_input", 60_000),
    "exited": ("exited", 0),
    "throws": ("throws", None),
}
TERMINALS = {
    "null_term_active": "active",
    "null_term_idle": "idle",
    "null_term_waiting": "waiting_input",
}
# Code -> state, CI, review, mergeable, found in the batch cache.
PULL_REQUESTS = {
    "open_ci_failing": ("open", "failing", "none", False, True),
    "open_review_pending": ("open", "passing", "pending", False, True),
    "open_mergeable": ("open", "passing", "approved", True, True),
    "open_none": ("open", "passing", "none", False, True),
    "merged": ("merged", "passing", "none", False, True),
    "closed": ("closed", "passing", "none", False, True),
    "miss_live_open": ("open", None, None, None, False),
    "miss_live_merged": ("merged", None, None, None, False),
}
REPORTS = {
    "fresh_working": ("working", 60_000),
    "fresh_needs_input": ("needs_input", 60_000),
    "stale_working": ("working", 360_000),
}


def code(column: str, table: dict, place: int, dtype: pl.DataType | None = None) -> pl.Expr:
    values = [entry[place] for entry in table.values()]
    return pl.col(column).replace_strict(
        list(table), values, default=None, return_dtype=dtype or pl.String()
    )


def polls_of(rows: pl.DataFrame) -> pl.DataFrame:
    integer = pl.Int64()
    has_pr, is_new = pl.col("pr") != "none", pl.col("start") == "not_started"
    has_handle = pl.col("runtime") != "no_handle"
    coded = rows.with_columns(
        activity_age=code("activity", ACTIVITIES, 1, integer),
        report_age=code("agent_report", REPORTS, 1, integer),
    )
    return coded.select(
        at=pl.lit(NOW),
        session_state=code("start", STARTS, 0),
        session_reason=code("start", STARTS, 1),
        pr_state=pl.when(has_pr).then(pl.lit("open")).otherwise(pl.lit("none")),
        pr_reason=pl.when(has_pr).then(pl.lit("in_progress")).otherwise(pl.lit("not_created")),
        runtime_state=pl.when(is_new).then(pl.lit("unknown")).otherwise(pl.lit("alive")),
        runtime_reason=pl.when(is_new)
        .then(pl.lit("spawn_incomplete"))
        .otherwise(pl.lit("process_running")),
        has_handle=has_handle,
        runtime_probe=pl.when(has_handle).then("runtime"),
        process_probe="process",
        activity=code("activity", ACTIVITIES, 0),
        activity_at=ago("activity_age"),
        terminal_activity=pl.col("activity").replace_strict(
            TERMINALS, default=None, return_dtype=pl.String
        ),
        scm_state=code("pr", PULL_REQUESTS, 0),
        scm_ci=code("pr", PULL_REQUESTS, 1),
        scm_review=code("pr", PULL_REQUESTS, 2),
        scm_is_mergeable=code("pr", PULL_REQUESTS, 3, pl.Boolean()),
        scm_is_cached=code("pr", PULL_REQUESTS, 4, pl.Boolean()),
        report_state=code("agent_report", REPORTS, 0),
        report_at=ago("report_age"),
    )


def poll_events(polls: pl.DataFrame, polled: pl.DataFrame) -> pl.Series:
    changed = polled.with_columns(
        new_status="status",
        old_status=derive_legacy_status(polls)["legacy_status"],
        previous_pr_state=polls["pr_state"],
    )
    named = pull_request_events(classify_status_changes(changed))
    is_news = pl.col("status") != pl.col("old_status")
    event = pl.concat_str("event_type", pl.lit(":"), "event_priority")
    closing = pl.concat_str("pr_event", pl.lit(":info"))
    joined = pl.concat_str(pl.when(is_news).then(event), closing, separator="|", ignore_nulls=True)
    return named.select(events=joined).select(not_empty("events"))["events"]


def determine_status_rows(rows: pl.DataFrame) -> pl.DataFrame:
    polls = polls_of(rows)
    polled = determine_status(polls)
    told = polled.with_columns(events=poll_events(polls, polled))
    return as_text(
        derive_legacy_status(told),
        assessed_status="status",
        session_state="session_state",
        session_reason="session_reason",
        pr_state="pr_state",
        pr_reason="pr_reason",
        runtime_state="runtime_state",
        runtime_reason="runtime_reason",
        derived_status="legacy_status",
        evidence="evidence",
        detecting_attempts=positive("detecting_attempts"),
        events="events",
        status_key="stored_status",
    )


def read_moment(column: str) -> pl.Expr:
    return moment(date_ms(column))


def poll_trajectories(rows: pl.DataFrame) -> pl.DataFrame:
    numbered = rows.with_row_index("place")
    is_orchestrator = pl.col("session").str.contains("-orchestrator(-[0-9]+)?$")
    polls = numbered.select(
        "place",
        session_id=pl.concat_str("project", pl.lit("/"), "session"),
        at=read_moment("t"),
        created_at=pl.lit(SCENARIO_START).cast(MOMENT),
        # In the scenario other writers act 150 ms before the poll that sees it.
        written_at=read_moment("t") - timedelta(milliseconds=150),
        kind=pl.when(is_orchestrator).then(pl.lit("orchestrator")).otherwise(pl.lit("worker")),
        runtime_probe="runtime_probe",
        process_probe="process_probe",
        activity="activity_state",
        activity_at=read_moment("activity_ts"),
        scm_state="scm_state",
        scm_ci="scm_ci",
        scm_review="scm_review",
        scm_is_mergeable=yes("scm_mergeable"),
        report_state="report_state",
        report_at=read_moment("report_at"),
        before_session_state="before_state",
        before_session_reason="before_reason",
        before_pr_state="before_pr_state",
        before_pr_reason="before_pr_reason",
        before_runtime_state="before_runtime_state",
    )
    configured = {"report-stale": ("notify", "warning")}
    settings = PollSettings(reactions=DEFAULT_REACTIONS | configured)
    replayed = replay_polls(polls, settings=settings).sort("place")
    moments = ("started_at", "completed_at", "terminated_at", "last_transition_at")
    return as_text(
        replayed,
        state="session_state",
        reason="session_reason",
        pr_state="pr_state",
        pr_reason="pr_reason",
        runtime_state="runtime_state",
        runtime_reason="runtime_reason",
        **{name: iso(name) for name in moments},
        status_key="stored_status",
        evidence="evidence",
        detecting_attempts=positive("detecting_attempts"),
        detecting_started_at=iso("detecting_started_at"),
        detecting_hash="detecting_hash",
        detecting_escalated_at=iso("detecting_escalated_at"),
        watcher_trigger="watcher_trigger",
        watcher_count="watcher_count",
        notified_events=not_empty("notified_events"),
    )


# --- mapping, recovery, dashboard, event kinds ----------------------------------------------


def mapping(rows: pl.DataFrame) -> pl.DataFrame:
    judged = derive_severity(map_axes(rows.select(AXES)))
    return as_text(
        judged,
        lifecycle="lifecycle",
        outcome="outcome",
        health="health",
        delivery="delivery",
        severity="severity",
        tone="tone",
        reason_codes=pl.col("reason_codes").str.replace_all(", ", "|", literal=True),
    )


PROBES = (
    "runtime_alive",
    "workspace_exists",
    "agent_running",
    "runtime_probe_ok",
    "process_probe_ok",
    "has_handle",
    "escalate_partial",
    "auto_cleanup",
)


def recovery(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select("status", *(yes(name).alias(name) for name in PROBES))
    judged = classify_recovery(
        inputs, escalates_partial="escalate_partial", cleans_up="auto_cleanup"
    )
    return as_text(
        judged,
        classification="recovery_class",
        signal_disagreement="is_disagreement",
        rule="recovery_rule",
        action="recovery_action",
    )


def web_attention(rows: pl.DataFrame) -> pl.DataFrame:
    names = ("session_state", "pr_state", "pr_reason", "runtime_state", "status", "activity")
    inputs = rows.select(*names, has_lifecycle=pl.col("mode") == "lifecycle")
    judged = classify_terminality(classify_web_attention(inputs))
    return as_text(
        judged,
        attention_detailed="web_attention",
        attention_simple="web_attention_simple",
        done=pl.col("web_attention") == "done",
        terminal="is_terminal",
        restorable="is_restorable",
    )


def event_kinds_rows(rows: pl.DataFrame) -> pl.DataFrame:
    has_id = pl.when("has_session_id").then(pl.lit("True")).otherwise(pl.lit("False"))
    return event_kinds().with_columns(has_session_id=has_id)


FILES: dict[str, Adapter] = {
    "activity_event_kinds_final_ts.csv": event_kinds_rows,
    "mapping_ao_to_normalized.csv": mapping,
    "oracle_activity_log.csv": activity_log,
    "oracle_activity_signal.csv": activity_signal,
    "oracle_agent_report.csv": report,
    "oracle_agent_report_aliases.csv": report_aliases,
    "oracle_agent_report_freshness.csv": report_freshness,
    "oracle_agent_report_map.csv": report_map,
    "oracle_agent_report_read.jsonl": report_read,
    "oracle_agent_report_validate.csv": report_validate,
    "oracle_derive_legacy.csv": derive_legacy,
    "oracle_derive_legacy_trinity_prev.csv": derive_legacy_trinity,
    "oracle_detecting.csv": detecting,
    "oracle_detecting_sequences.csv": detecting_sequences,
    "oracle_determine_status.csv.gz": determine_status_rows,
    "oracle_determine_status_final.csv.gz": determine_status_rows,
    "oracle_duration.csv": duration,
    "oracle_events.csv": events,
    "oracle_evidence_hash.csv": evidence_hash_rows,
    "oracle_parse.jsonl": parse,
    "oracle_parse_attempts.csv": parse_attempts,
    "oracle_poll_trajectories.csv": poll_trajectories,
    "oracle_pr_decision.csv": pr_decision,
    "oracle_pr_state_events.csv": pr_state_events,
    "oracle_pr_url.csv": pr_url,
    "oracle_primary_reason.csv": primary_reason,
    "oracle_probe_decision.csv": probe_decision,
    "oracle_recovery.csv": recovery,
    "oracle_report_watcher.csv": report_watcher,
    "oracle_role.csv": role,
    "oracle_status_events.csv": status_events,
    "oracle_synthesize.jsonl": synthesize,
    "oracle_terminal_restorable.csv": terminal_restorable,
    "oracle_timestamp_normalize.csv": timestamp_normalize,
    "oracle_web_attention.csv": web_attention,
}
ADAPTERS: dict[str, Adapter] = {f"agent-orchestrator/{name}": one for name, one in FILES.items()}
