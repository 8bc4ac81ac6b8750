"""From flat session records to `frames.SESSIONS`: the axes, and what they mean."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.files import EPOCH
from stateanalytics.systems.agent_orchestrator.javascript import leading_integer
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    LIFECYCLE_COLUMNS,
    parse_lifecycle,
    refresh_status,
)
from stateanalytics.systems.agent_orchestrator.lifecycle_payload import PAYLOAD_TIMES
from stateanalytics.systems.agent_orchestrator.moments import stored_moment, unreadable_times
from stateanalytics.systems.agent_orchestrator.places import Kind
from stateanalytics.systems.agent_orchestrator.record_fields import (
    parse_pull_request_urls,
    read_reports,
)
from stateanalytics.systems.agent_orchestrator.status_events import (
    classify_status_changes,
    name_primary_reason,
)
from stateanalytics.systems.agent_orchestrator.statuses import (
    classify_terminality,
    derive_legacy_status,
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
_TIME = r'At":\s*"'
_ISO_TIME = r'At":\s*"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"'
_DETAIL = 500
_USED_UP = (
    "lifecycle", "statePayload", "stateVersion", "runtimeHandle", "runtime_handle", "status", "pr",
    "prEnrichment", "prReviewComments", "_flat_terminated_at",
)  # fmt: skip


def interpret(
    records: pl.DataFrame, *, now: datetime = EPOCH, is_tolerant: bool = True
) -> pl.DataFrame:
    """The axes of every record, and the status they say.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        What `records.read_records` gives.
    now : datetime
        Stands for the creation time of a record that has none.
    is_tolerant : bool
        Keep what is good of a payload that Agent Orchestrator would reject; False gives
        exactly what it reads itself.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 24)
        The lifecycle columns of `parse_lifecycle`,
        ``legacy_status``, ``is_ao_terminal``, and ``stored_status`` (the flat one).
    """
    kept = records.with_columns(stored_status="status")
    read = parse_lifecycle(refresh_status(kept), now=now, is_tolerant=is_tolerant)
    derived = derive_legacy_status(read)
    ended = classify_terminality(
        derived.with_columns(
            has_lifecycle=pl.lit(value=True),
            status="legacy_status",
            activity=pl.lit(None, pl.String),
        )
    )
    return ended.rename({"is_terminal": "is_ao_terminal"}).drop(
        "has_lifecycle", "activity", "is_restorable"
    )


def read_sessions(records: pl.DataFrame) -> pl.DataFrame:
    """One row a record in the shape of `frames.SESSIONS`, not yet linked to an entity.

    Parameters
    ----------
    records : polars.DataFrame
        What `records.read_records` gives.

    Returns
    -------
    polars.DataFrame, shape (n_records, ...)
        Everything that one record says by itself; what other records and logs say
        (``entity_id``, ``is_current``, ``has_kill_event``) is added by `linking`, and what
        follows from all (traps, mapping) by `meaning`.
    """
    tolerant = interpret(records)
    strict = _shown_by_itself(records, tolerant)
    trinity = _shown_by_trinity(records)
    read = tolerant.hstack([strict, trinity])
    with_reports = read_reports(read)
    is_made_up = pl.col("is_synthesized")
    named = with_reports.with_columns(
        generation=_generation(),
        stored_status=_filled("stored_status"),
        **{name: stored_moment(key) for name, key in _MOMENTS.items()},
        **{name: _filled(key) for name, key in _KEPT.items()},
        # What a payload lacks is filled with the time of creation, which is no observation.
        **{
            name: pl.when(
                ~is_made_up
                & pl.col(name).ne(EPOCH)
                & pl.col(name).ne_missing(stored_moment("createdAt"))
            ).then(name)
            for name in _MADE_UP
        },
        detecting_attempts=_whole("detectingAttempts"),
        n_watcher_polls=_whole("reportWatcherTriggerCount"),
        n_recoveries=_whole("recoveryCount"),
        report_note=pl.col("report_note").str.slice(0, _DETAIL),
        agent_session_id=pl.coalesce(
            _filled("claudeSessionUuid"), _filled("codexThreadId"), _filled("opencodeSessionId")
        ),
        is_pr_auto_detected=pl.col("prAutoDetect").replace_strict(
            {"on": True, "true": True, "off": False, "false": False},
            default=None,
            return_dtype=pl.Boolean,
        ),
        issue=_filled("issue"),
        branch=_filled("branch"),
        worktree=_filled("worktree"),
        runtime_name=pl.col("runtime_handle").str.extract(r'"runtimeName":"([^"]*)"'),
        name=pl.coalesce(_filled("displayName"), _filled("issueTitle"), _filled("issue")),
        model=_filled("codexModel"),
    )
    whole = _with_pull_request(_with_priority(named))
    ended = pl.coalesce("terminated_at", "_flat_terminated_at")
    return whole.with_columns(terminated_at=ended).drop(_USED_UP)


def time_findings(records: pl.DataFrame, label: str) -> pl.DataFrame:
    """The stored times of records that cannot be read, flat ones and those of the payload."""
    flat = {key: pl.col(key) for key in (*_MOMENTS.values(), "agentReportedAt")}
    payload = pl.coalesce(_filled("lifecycle"), _filled("statePayload"))
    # Nearly every payload holds nothing but ISO texts, and needs no second look.
    n_texts, n_iso = payload.str.count_matches(_TIME), payload.str.count_matches(_ISO_TIME)
    odd = records.filter(n_texts != n_iso)
    inner = {
        f"lifecycle.{path}": payload.str.json_path_match(f"$.{path}") for path in PAYLOAD_TIMES
    }
    findings = [
        unreadable_times(records, label, None, flat),
        unreadable_times(odd, label, None, inner),
    ]
    return pool(findings, schema.FINDINGS)


def _filled(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != "").then(name)


def _whole(name: str) -> pl.Expr:
    return leading_integer(pl.col(name)).cast(pl.Int64, strict=False)


def _generation() -> pl.Expr:
    is_json = pl.col("layout").is_in([str(Kind.JSON_RECORD), str(Kind.JSON_ARCHIVE)])
    has_payload = pl.col("statePayload").is_not_null()
    return (
        pl.when(is_json)
        .then(pl.lit("G2"))
        .when(has_payload)
        .then(pl.lit("G1"))
        .otherwise(pl.lit("G0"))
    )


def _shown_by_itself(records: pl.DataFrame, tolerant: pl.DataFrame) -> pl.Series:
    """The status that Agent Orchestrator shows: another one where it rejects the payload."""
    rejected = tolerant["ao_would_reject"].fill_null(value=False)
    own = interpret(records.filter(rejected), is_tolerant=False)["legacy_status"]
    n_before = rejected.cast(pl.Int64).cum_sum() - 1
    replaced = own.gather(n_before.clip(lower_bound=0)) if own.len() else tolerant["legacy_status"]
    shown = pl.DataFrame(
        {"rejected": rejected, "own": replaced, "told": tolerant["legacy_status"]}
    ).select(pl.when("rejected").then("own").otherwise("told"))
    is_readable = records["is_readable"]
    return shown.to_series().set(~is_readable, None).rename("ao_status")


def _shown_by_trinity(records: pl.DataFrame) -> pl.Series:
    """The status by the release that wrote statePayload; null for JSON records."""
    is_kv = records["layout"].is_in([str(Kind.RECORD), str(Kind.ARCHIVE)]) & records["is_readable"]
    if not is_kv.any():
        return pl.Series("trinity_status", [None] * records.height, dtype=pl.String)
    read = parse_lifecycle(records, now=EPOCH, version="trinity")
    shown = derive_legacy_status(read.with_columns(previous_status="status"), version="trinity")[
        "legacy_status"
    ]
    return shown.set(~is_kv, None).rename("trinity_status")


def _with_priority(sessions: pl.DataFrame) -> pl.DataFrame:
    events = classify_status_changes(sessions.with_columns(new_status="legacy_status"))
    return name_primary_reason(events)


def _with_pull_request(sessions: pl.DataFrame) -> pl.DataFrame:
    """The pull request: of the axis, else of the flat key that is written first; its detail."""
    url = pl.coalesce(_filled("pr_url"), _filled("pr"))
    numbers = parse_pull_request_urls(sessions.select(pr_url=url, of_axis="pr_number")).select(
        pl.coalesce("of_axis", "pr_number")
    )
    return sessions.with_columns(
        pr_url=url,
        pr_number=numbers.to_series(),
        n_prs=pl.when(pl.col("pr_urls").is_not_null())
        .then(pl.col("pr_urls").str.count_matches("[^,]+"))
        .when(url.is_not_null())
        .then(1)
        .otherwise(0)
        .cast(pl.Int64),
        pr_title=_enriched("title"),
        pr_ci_status=_enriched("ciStatus"),
        pr_review_decision=_enriched("reviewDecision"),
        is_pr_mergeable=_yes_no("mergeable"),
        is_pr_draft=pl.coalesce(_yes_no("isDraft"), "report_is_draft"),
        has_pr_conflicts=_yes_no("hasConflicts"),
        is_pr_behind=_yes_no("isBehind"),
        n_pr_additions=_enriched("additions").cast(pl.Int64, strict=False),
        n_pr_deletions=_enriched("deletions").cast(pl.Int64, strict=False),
        n_pr_unresolved_threads=pl.col("prReviewComments")
        .str.json_path_match("$.unresolvedThreads")
        .cast(pl.Int64, strict=False),
        pr_enriched_at=_enriched("enrichedAt").str.to_datetime(
            "%Y-%m-%dT%H:%M:%S%.fZ", strict=False, time_unit="us", time_zone="UTC"
        ),
    )


def _enriched(key: str) -> pl.Expr:
    """One fact of the pull request, which is kept as JSON inside of JSON."""
    return pl.col("prEnrichment").str.json_path_match(f"$.{key}")


def _yes_no(key: str) -> pl.Expr:
    return _enriched(key).replace_strict(
        {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
    )


AXES = tuple(name for name in LIFECYCLE_COLUMNS if name.endswith(("_state", "_reason")))
"""The six words of the three axes."""


def shaped(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """The records in the shape of `frames.SESSIONS`; nothing of what cannot be read."""
    stored = [
        "kind", "legacy_status", "ao_status", "is_ao_terminal", "is_synthesized",
        "event_priority", "primary_reason", *AXES,
    ]  # fmt: skip
    unread = ~pl.col("is_readable")
    kept = sessions.with_columns(
        pl.when(~unread).then(pl.col(stored)).name.keep(), source=pl.lit(label)
    )
    return frames.SESSIONS.conform(kept)
