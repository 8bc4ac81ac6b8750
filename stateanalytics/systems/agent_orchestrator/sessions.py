"""From flat session records to `frames.SESSIONS`, and from those to canonical entities."""

from __future__ import annotations

from datetime import datetime

import orjson
import polars as pl

from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import (
    EPOCH,
    MOST_DETAIL,
    filled,
    look_up,
    stored_moment,
    unreadable_times,
    yes_no,
)
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    PAYLOAD_TIMES,
    parse_lifecycle,
    refresh_status,
)
from stateanalytics.systems.agent_orchestrator.mapping import AXES
from stateanalytics.systems.agent_orchestrator.places import Kind
from stateanalytics.systems.agent_orchestrator.records import (
    pull_request_number,
    read_reports,
    text_of,
)
from stateanalytics.systems.agent_orchestrator.statuses import (
    EVENT_PRIORITIES,
    is_terminal,
    legacy_status,
    primary_reason,
)

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
        With the columns of `parse_lifecycle`, ``legacy_status``, ``is_ao_terminal``, and
        ``stored_status`` (the flat one).
    """
    parsed = parse_lifecycle(refresh_status(records.with_columns(stored_status="status")), now=now)
    return parsed.with_columns(legacy_status=legacy_status(), is_ao_terminal=is_terminal())


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
        event_priority=look_up(pl.col("legacy_status"), EVENT_PRIORITIES),
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
        .with_columns(
            primary_reason=primary_reason(),
            terminated_at=pl.coalesce("terminated_at", "_flat_terminated_at"),
        )
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
