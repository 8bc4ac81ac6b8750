"""From flat session records to their three axes, and to `frames.SESSIONS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import (
    EPOCH,
    MOST_DETAIL,
    filled,
    first_true,
    flag,
    look_up,
    stored_moment,
    unreadable_times,
    with_defaults,
    yes_no,
)
from stateanalytics.systems.agent_orchestrator.mapping import (
    AXES,
    LEGACY_STATUSES,
    PAYLOAD_WORDS,
    legacy_status,
)
from stateanalytics.systems.agent_orchestrator.places import Kind
from stateanalytics.systems.agent_orchestrator.records import (
    pull_request_number,
    read_reports,
    text_of,
)

RECORD_KEYS = (
    "sessionId",
    "status",
    "lifecycle",
    "stateVersion",
    "statePayload",
    "pr",
    "createdAt",
    "runtimeHandle",
    "tmuxName",
    "role",
)
"""The keys of a flat session record that decide its lifecycle, named as they are stored."""


class Field(NamedTuple):
    """Where a payload holds a column, and of what kind its value is (`_CHECKS`)."""

    axis: str
    key: str
    column: str
    kind: str


_FIELDS = tuple(
    Field(*field)
    for field in (
        ("session", "kind", "kind", "word"),
        ("session", "state", "session_state", "word"),
        ("session", "reason", "session_reason", "word"),
        ("session", "startedAt", "started_at", "text or null"),
        ("session", "completedAt", "completed_at", "text or null"),
        ("session", "terminatedAt", "terminated_at", "text or null"),
        ("session", "lastTransitionAt", "last_transition_at", "text"),
        ("pr", "state", "pr_state", "word"),
        ("pr", "reason", "pr_reason", "word"),
        ("pr", "number", "pr_number", "integer"),
        ("pr", "url", "pr_url", "text or null"),
        ("pr", "lastObservedAt", "pr_observed_at", "text or null"),
        ("runtime", "state", "runtime_state", "word"),
        ("runtime", "reason", "runtime_reason", "word"),
        ("runtime", "lastObservedAt", "runtime_observed_at", "text or null"),
        ("runtime", "handle", "runtime_handle", "handle"),
        ("runtime", "tmuxName", "tmux_name", "text or null"),
    )
)
_AXES = ("session", "pr", "runtime")
_COLUMNS = tuple(field.column for field in _FIELDS)
LIFECYCLE_COLUMNS: dict[str, pl.DataType] = {
    name: schema.MOMENT if name.endswith("_at") else pl.String() for name in _COLUMNS
} | {"pr_number": pl.Int64()}
"""The columns of a lifecycle: three axes, flat."""

PAYLOAD_TIMES = {
    f"lifecycle.{field.axis}.{field.key}": f"payload_{field.column}"
    for field in _FIELDS
    if field.key.endswith("At")
}
"""Place of each time in a record to the column of `read_payloads` that holds its text."""

# --- the payload -------------------------------------------------------------------------

_PAYLOAD: dict[str, pl.DataType] = {
    "reject_reason": pl.String(),
    "is_synthesized": pl.Boolean(),
    **{f"has_{name}": pl.Boolean() for name in _COLUMNS},
    **{f"payload_{name}": pl.String() for name in _COLUMNS},
    "payload_pr_number": pl.Int64(),
}
_VERSION = 2
_INT64 = 2**63
_WORDS = {column: frozenset(words) for column, words in PAYLOAD_WORDS.items()}


def read_payloads(records: pl.DataFrame) -> pl.DataFrame:
    """Add the fields of every record's lifecycle payload.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        Flat records. The payload is in ``lifecycle`` (JSON text), or in ``statePayload``
        where ``stateVersion`` is "2".

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 37)
        With ``payload_key`` (``lifecycle``, ``statePayload`` or null), ``reject_reason``
        (null: nothing is wrong with the payload), ``is_synthesized`` (no payload can be
        used), and for every lifecycle column ``has_<column>`` (Boolean: is the key there,
        and to be used) and ``payload_<column>`` (its value; moments as they were written).

    Notes
    -----
    Agent Orchestrator rejects a payload as a whole: one unknown word loses all three axes.
    Here its good fields are used: words are kept as they are, also unknown ones, and
    fields of a wrong type count as absent.

    Examples
    --------
    >>> records = pl.DataFrame({"lifecycle": ['{"version":2,"pr":{"state":"lost"}}']})
    >>> read_payloads(records)["reject_reason"].item()
    "pr.state has the unknown word 'lost'"
    """
    names = ("lifecycle", "stateVersion", "statePayload")
    has_first = filled("lifecycle").is_not_null()
    has_second = (pl.col("stateVersion") == "2") & filled("statePayload").is_not_null()
    keyed = with_defaults(records, dict.fromkeys(names, pl.String())).with_columns(
        payload_key=first_true((has_first, "lifecycle"), (has_second, "statePayload"))
    )
    texts = keyed.select(
        pl.when(pl.col("payload_key") == "lifecycle")
        .then("lifecycle")
        .when(pl.col("payload_key") == "statePayload")
        .then("statePayload")
    ).to_series()
    rows = list(zip(*map(_read_payload, texts), strict=True)) or [()] * len(_PAYLOAD)
    return keyed.with_columns(
        pl.Series(name, values, dtype)
        for (name, dtype), values in zip(_PAYLOAD.items(), rows, strict=True)
    )


def _read_payload(text: str | None) -> tuple[object, ...]:
    """One payload as a row of `_PAYLOAD`."""
    if text is None:
        return (None, True, *([False] * len(_FIELDS)), *([None] * len(_FIELDS)))
    axes, problems = _axes(text)
    fields = dict(_read_fields(axes or {}, problems))
    return (
        problems[0] if problems else None,
        axes is None,
        *(name in fields for name in _COLUMNS),
        *(fields.get(name) for name in _COLUMNS),
    )


def _axes(text: str) -> tuple[dict[str, dict[str, Any]] | None, list[str]]:
    """The axes of a payload that are objects, and what is wrong with it as a whole."""
    try:
        payload = orjson.loads(text)
    except ValueError:
        return None, ["it is no JSON"]
    if not isinstance(payload, dict):
        return None, ["it is no object"]
    problems = []
    version = payload.get("version")
    if isinstance(version, bool) or version != _VERSION:
        problems.append(f"version is {_shown(version)}, not 2")
    for name in _AXES:
        if name in payload and not isinstance(payload[name], dict):
            problems.append(f"{name} is no object")
    return {name: payload[name] for name in _AXES if isinstance(payload.get(name), dict)}, problems


def _read_fields(
    axes: Mapping[str, dict[str, Any]], problems: list[str]
) -> Iterator[tuple[str, object]]:
    """Each field that is there with a usable value; what is wrong goes to ``problems``."""
    for axis, key, column, kind in _FIELDS:
        fields = axes.get(axis)
        if fields is None or key not in fields:
            continue
        value = fields[key]
        is_good, wanted = _CHECKS[kind]
        if not is_good(value):
            problems.append(f"{axis}.{key} is {_shown(value)}, not {wanted}")
            continue
        if kind == "word" and value not in _WORDS[column]:
            problems.append(f"{axis}.{key} has the unknown word {value[:40]!r}")
        elif kind == "handle" and value is not None:
            value = _handle_text(value)
        elif kind == "integer" and value is not None:
            value = int(value) if -_INT64 <= value < _INT64 else None
        yield column, value


def _is_text_or_null(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_integer_or_null(value: object) -> bool:
    # JavaScript has one type of numbers: 42.0 is a whole one.
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return value is None or (is_whole and not isinstance(value, bool))


def _is_handle_or_null(value: object) -> bool:
    return value is None or (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("id", "runtimeName"))
    )


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "word": (lambda value: isinstance(value, str), "a word"),
    "text": (lambda value: isinstance(value, str), "a text"),
    "text or null": (_is_text_or_null, "a text"),
    "integer": (_is_integer_or_null, "a whole number"),
    "handle": (_is_handle_or_null, "an object with a text id and runtimeName"),
}


def _shown(value: object) -> str:
    """The beginning of a value as JSON text."""
    return f'"{value[:38]}"' if isinstance(value, str) else str(text_of(value))[:40]


def _handle_text(handle: Mapping[str, Any]) -> str | None:
    data = handle.get("data")
    kept = {name: handle[name] for name in ("id", "runtimeName")}
    return text_of(kept | {"data": data if isinstance(data, dict) else {}})


# --- the axes of a record without a payload ----------------------------------------------

# Legacy status -> session state, session reason, is started, is completed, is terminated.
_FROM_STATUS = {
    "spawning": ("not_started", "spawn_requested", False, False, False),
    "idle": ("idle", "awaiting_external_review", True, False, False),
    "needs_input": ("needs_input", "awaiting_user_input", True, False, False),
    "stuck": ("stuck", "probe_failure", True, False, False),
    "merged": ("idle", "merged_waiting_decision", True, False, False),
    "done": ("done", "research_complete", True, True, False),
    "errored": ("terminated", "error_in_process", True, False, False),
    "killed": ("terminated", "manually_killed", True, False, True),
    "terminated": ("terminated", "manually_killed", True, False, True),
    "cleanup": ("terminated", "manually_killed", True, False, True),
}
_AT_WORK = ("working", "task_in_progress", True, False, False)
_SYNTHESIS = pl.DataFrame(
    [(status, *_FROM_STATUS.get(status, _AT_WORK)) for status in LEGACY_STATUSES],
    schema=["_status", "session_state", "session_reason", "_started", "_completed", "_terminated"],
    orient="row",
)
_EMPTY_HANDLES = ("0", "false", '""')


def synthesize_lifecycle(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the three axes that Agent Orchestrator makes up for a record without them.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records: one text column per stored key (`RECORD_KEYS`). An absent
        column counts as an absent key.
    now : datetime
        Stands for a creation time that cannot be read, in UTC.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 17)
        With `LIFECYCLE_COLUMNS`. Moments are ``Datetime("us", "UTC")``;
        ``runtime_handle`` is JSON text.

    Notes
    -----
    Agent Orchestrator's ``synthesizeCanonicalLifecycle``. It forgets review and CI states
    (``ci_failed`` becomes working on a task), and all its times are the creation time:
    none of them is an observation.

    Examples
    --------
    >>> records = pl.DataFrame({"status": ["errored"], "createdAt": ["2026-04-01"]})
    >>> synthesize_lifecycle(records).select(
    ...     "session_state", "session_reason", "runtime_state"
    ... ).row(0)
    ('terminated', 'error_in_process', 'unknown')
    """
    status, handle = pl.col("status"), pl.col("runtime_handle")
    created_at = pl.coalesce(stored_moment("createdAt"), pl.lit(now).cast(schema.MOMENT))
    tmux_name = pl.col("tmuxName").str.strip_chars()
    has_name = tmux_name != ""
    has_handle = ~handle.is_in(_EMPTY_HANDLES)
    is_orchestrator = (pl.col("role") == "orchestrator").fill_null(value=False) | pl.col(
        "sessionId"
    ).str.ends_with("-orchestrator").fill_null(value=False)
    is_merged, has_url = pl.col("_status") == "merged", filled("pr").is_not_null()
    return (
        with_defaults(records, dict.fromkeys(RECORD_KEYS, pl.String()))
        .with_columns(
            # A word of today's vocabulary; anything unknown counts as spawning.
            _status=first_true(
                (status == "starting", "working"),
                (status.is_in(LEGACY_STATUSES), status),
                default="spawning",
            ),
            _at=created_at,
            # Null where it is no JSON.
            runtime_handle=pl.when(
                pl.col("runtimeHandle").str.json_path_match("$").is_not_null()
            ).then("runtimeHandle"),
        )
        .join(_SYNTHESIS, on="_status", how="left", maintain_order="left")
        .with_columns(
            kind=first_true((is_orchestrator, "orchestrator"), default="worker"),
            started_at=pl.when("_started").then("_at"),
            completed_at=pl.when("_completed").then("_at"),
            terminated_at=pl.when("_terminated").then("_at"),
            last_transition_at=pl.col("_at"),
            pr_state=first_true((is_merged, "merged"), (has_url, "open"), default="none"),
            pr_reason=first_true(
                (is_merged, "merged"), (has_url, "in_progress"), default="not_created"
            ),
            pr_number=pull_request_number(filled("pr")),
            pr_url=filled("pr"),
            pr_observed_at=pl.when(has_url).then("_at"),
            runtime_state=pl.lit("unknown"),
            runtime_reason=pl.lit("spawn_incomplete"),
            runtime_observed_at=pl.when(
                has_handle.fill_null(value=False) | has_name.fill_null(value=False)
            ).then("_at"),
            tmux_name=pl.when(has_name).then(tmux_name),
        )
        .select(*records.columns, *LIFECYCLE_COLUMNS)
    )


def parse_lifecycle(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the three axes of every session record: the payload's, else synthesized ones.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records with the columns of `read_payloads`.
    now : datetime
        Stands for a creation time that cannot be read, in UTC.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 17)
        With `LIFECYCLE_COLUMNS`, without the single fields of the payload.

    Notes
    -----
    Each field that a payload lacks is filled from `synthesize_lifecycle`. Agent
    Orchestrator's readers first replace the flat ``status`` by that of the payload, good
    or bad: see `refresh_status`.

    Examples
    --------
    >>> payload = '{"version":2,"session":{"state":"stuck","reason":"probe_failure"}}'
    >>> records = pl.DataFrame({"status": ["working"] * 2, "lifecycle": [payload, "[]"]})
    >>> parse_lifecycle(read_payloads(records)).select(
    ...     "session_state", "pr_state", "reject_reason"
    ... ).rows()
    [('stuck', 'none', None), ('working', 'none', 'it is no object')]
    """
    merged = {}
    for name, dtype in LIFECYCLE_COLUMNS.items():
        value, has_value = pl.col(f"payload_{name}"), flag(f"has_{name}")
        if dtype == schema.MOMENT:
            value = stored_moment(value)
        if name == "last_transition_at":
            has_value &= value.is_not_null()
        merged[name] = pl.when(has_value).then(value).otherwise(name).cast(dtype)
    fields = [f"{prefix}_{name}" for prefix in ("has", "payload") for name in _COLUMNS]
    return synthesize_lifecycle(records, now=now).with_columns(**merged).drop(fields)


def refresh_status(records: pl.DataFrame) -> pl.DataFrame:
    """Replace the flat status by that of the payload in ``lifecycle``, valid or not.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records with ``status`` and the columns of `read_payloads`.

    Notes
    -----
    Agent Orchestrator's ``readMetadataRaw``. Apply it before `parse_lifecycle`: what a
    damaged payload lacks is then synthesized from the words that it does hold.

    Examples
    --------
    >>> payload = '{"session":{"state":"terminated","reason":"migrated_from_archive"}}'
    >>> records = pl.DataFrame({"status": ["working"], "lifecycle": [payload]})
    >>> refresh_status(read_payloads(records))["status"].item()
    'terminated'
    """
    by_payload = pl.when(pl.col("payload_key") == "lifecycle").then(legacy_status("payload_"))
    return with_defaults(records, {"status": pl.String()}).with_columns(
        status=pl.coalesce(by_payload, "status")
    )


# --- records in the shape of their frame -------------------------------------------------

_MADE_UP = (
    "started_at",
    "completed_at",
    "terminated_at",
    "last_transition_at",
    "pr_observed_at",
    "runtime_observed_at",
)
_MOMENTS = {
    "restored_at": "restoredAt",
    "detecting_started_at": "detectingStartedAt",
    "detecting_escalated_at": "detectingEscalatedAt",
    "watcher_activated_at": "reportWatcherTriggerActivatedAt",
    "merge_cleanup_since": "mergedPendingCleanupSince",
    "escalated_at": "escalatedAt",
    "_flat_terminated_at": "terminatedAt",
    "created_at": "createdAt",
}
_KEPT = {
    "evidence_text": "lifecycleEvidence",
    "detecting_evidence_hash": "detectingEvidenceHash",
    "stored_watcher_trigger": "reportWatcherActiveTrigger",
    "escalation_reason": "escalationReason",
    "termination_reason": "terminationReason",
    "pr_urls": "prs",
}
_USED_UP = (
    "lifecycle", "statePayload", "stateVersion", "runtimeHandle", "runtime_handle", "status", "pr",
    "prEnrichment", "prReviewComments", "_flat_terminated_at",
)  # fmt: skip


def interpret(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the axes of every record, and the status that they imply.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        Records with the columns of `read_payloads`.
    now : datetime
        Stands for the creation time of a record that has none.

    Returns
    -------
    polars.DataFrame
        With the columns of `parse_lifecycle`, ``legacy_status``, and ``stored_status`` (the
        flat one).
    """
    parsed = parse_lifecycle(refresh_status(records.with_columns(stored_status="status")), now=now)
    return parsed.with_columns(legacy_status=legacy_status())


def read_sessions(records: pl.DataFrame) -> pl.DataFrame:
    """One row per record in the shape of `frames.SESSIONS`, not yet linked to an entity.

    Parameters
    ----------
    records : polars.DataFrame
        Records with the columns of `read_payloads`.

    Returns
    -------
    polars.DataFrame, shape (n_records, ...)
        Everything that follows from one record alone; what depends on other records and
        logs (``entity_id``, ``is_current``, ``has_kill_event``) is added by `events`, and
        what follows from all (traps, mapping) by `meaning`.
    """
    with_reports = read_reports(interpret(records))
    is_made_up, epoch, created = (
        pl.col("is_synthesized"),
        pl.lit(EPOCH),
        stored_moment("createdAt"),
    )
    sessions = with_reports.with_columns(
        generation=_generation(),
        stored_status=filled("stored_status"),
        **{name: stored_moment(key) for name, key in _MOMENTS.items()},
        **{name: filled(key) for name, key in _KEPT.items()},
        # What a payload lacks is filled with the time of creation, which is no observation.
        **{
            name: pl.when(
                ~is_made_up & pl.col(name).ne(epoch) & pl.col(name).ne_missing(created)
            ).then(name)
            for name in _MADE_UP
        },
        detecting_attempts=_leading_integer("detectingAttempts"),
        n_watcher_polls=_leading_integer("reportWatcherTriggerCount"),
        n_recoveries=_leading_integer("recoveryCount"),
        report_note=pl.col("report_note").str.slice(0, MOST_DETAIL),
        agent_session_id=pl.coalesce(
            filled("claudeSessionUuid"), filled("codexThreadId"), filled("opencodeSessionId")
        ),
        is_pr_auto_detected=look_up(
            pl.col("prAutoDetect"),
            {"on": True, "true": True, "off": False, "false": False},
            dtype=pl.Boolean(),
        ),
        issue=filled("issue"),
        branch=filled("branch"),
        worktree=filled("worktree"),
        runtime_name=pl.col("runtime_handle").str.json_path_match("$.runtimeName"),
        name=pl.coalesce(filled("displayName"), filled("issueTitle"), filled("issue")),
        model=filled("codexModel"),
    )
    return (
        _with_pull_request(sessions)
        .with_columns(terminated_at=pl.coalesce("terminated_at", "_flat_terminated_at"))
        .drop(_USED_UP)
    )


def time_findings(records: pl.DataFrame, label: str) -> pl.DataFrame:
    """Findings on stored times that cannot be read, flat ones and those of payloads."""
    stored = {key: key for key in (*_MOMENTS.values(), "agentReportedAt")} | PAYLOAD_TIMES
    columns = {place: pl.col(column) for place, column in stored.items()}
    return unreadable_times(records, label, None, columns)


def _leading_integer(name: str) -> pl.Expr:
    return pl.col(name).str.extract(r"^\s*([+-]?[0-9]+)").cast(pl.Int64, strict=False)


def _generation() -> pl.Expr:
    is_json = pl.col("layout").is_in([str(Kind.JSON_RECORD), str(Kind.JSON_ARCHIVE)])
    has_payload = pl.col("statePayload").is_not_null()
    by_lines = pl.when(has_payload).then(pl.lit("G1")).otherwise(pl.lit("G0"))
    return pl.when(is_json).then(pl.lit("G2")).otherwise(by_lines)


def _with_pull_request(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the pull request: of the axis, else of the flat key that is written first; its detail."""
    url = pl.coalesce(filled("pr_url"), filled("pr"))
    unnumbered = pl.when(pl.col("pr_number").is_null()).then(url)
    return (
        sessions.hstack(read_enrichment(sessions["prEnrichment"]).rename(_ENRICHED))
        .with_columns(
            pr_url=url,
            pr_number=pl.coalesce("pr_number", pull_request_number(unnumbered)),
            n_prs=pl.coalesce(
                pl.col("pr_urls").str.count_matches("[^,]+"), url.is_not_null().cast(pl.UInt32)
            ).cast(pl.Int64),
            is_pr_mergeable=yes_no("mergeable"),
            is_pr_draft=pl.coalesce(yes_no("isDraft"), "report_is_draft"),
            has_pr_conflicts=yes_no("hasConflicts"),
            is_pr_behind=yes_no("isBehind"),
            n_pr_additions=pl.col("additions").cast(pl.Int64, strict=False),
            n_pr_deletions=pl.col("deletions").cast(pl.Int64, strict=False),
            n_pr_unresolved_threads=pl.col("prReviewComments")
            .str.json_path_match("$.unresolvedThreads")
            .cast(pl.Int64, strict=False),
            pr_enriched_at=stored_moment("enrichedAt"),
        )
        .drop(set(_ENRICHED_KEYS) - set(_ENRICHED))
    )


_ENRICHED = {
    "title": "pr_title",
    "ciStatus": "pr_ci_status",
    "reviewDecision": "pr_review_decision",
}
_ENRICHED_KEYS = (
    *_ENRICHED, "mergeable", "isDraft", "hasConflicts", "isBehind", "additions", "deletions",
    "enrichedAt",
)  # fmt: skip


def read_enrichment(texts: pl.Series) -> pl.DataFrame:
    """Details of pull requests, which are kept as JSON inside of JSON: one text column per key.

    Null where a key is absent, or the text no JSON.

    Examples
    --------
    >>> texts = pl.Series(['{"title": "Fix it", "additions": 3}', "{"])
    >>> read_enrichment(texts).select("title", "additions").rows()
    [('Fix it', '3'), (None, None)]
    """
    rows = [_enrichment(text) for text in texts]
    schema = dict.fromkeys(_ENRICHED_KEYS, pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _enrichment(text: str | None) -> tuple[str | None, ...]:
    try:
        details = orjson.loads(text or "null")
    except ValueError:
        details = None
    keys = details if isinstance(details, dict) else {}
    return tuple(text_of(keys.get(key)) for key in _ENRICHED_KEYS)


def shaped(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """Records in the shape of `frames.SESSIONS`, without axes where a file cannot be read."""
    interpreted = [
        "kind", "legacy_status", "is_ao_terminal", "is_synthesized",
        "event_priority", "primary_reason", *AXES,
    ]  # fmt: skip
    readable = pl.when("is_readable").then(pl.col(interpreted)).name.keep()
    return frames.SESSIONS.conform(sessions.with_columns(readable, source=pl.lit(label)))
