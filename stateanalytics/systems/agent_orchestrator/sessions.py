"""From flat session records to `frames.SESSIONS`, and from those to canonical entities."""

from __future__ import annotations

from datetime import datetime

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
    references,
    stored_moment,
    unreadable_times,
    yes_no,
)
from stateanalytics.systems.agent_orchestrator.events import canonical
from stateanalytics.systems.agent_orchestrator.go_work import SUMS, summed
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    PAYLOAD_TIMES,
    parse_lifecycle,
    refresh_status,
)
from stateanalytics.systems.agent_orchestrator.mapping import AXES
from stateanalytics.systems.agent_orchestrator.meaning import first_reasons, recorded_reasons
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
from stateanalytics.systems.situations import add_axes, add_reasons

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


_SEEN_AT = (
    r"activity_signal=valid\b.*\bactivity=(?:active|ready|idle|blocked|waiting_input) at=(\S+)"
)
_OBSERVED_ENDS = ("runtime_lost", "agent_process_exited", "probe_failure", "auto_cleanup")


def proven_at(sessions: pl.DataFrame, entities: pl.DataFrame) -> pl.Series:
    """Newest moment that each record proves, in `frames.SESSIONS` and its entity.

    Notes
    -----
    One per record, so that one clock that ran ahead is one moment and has no company. When
    the file was changed proves nothing: that of a copy is of whoever copied it.
    """
    moments = [
        name
        for name, dtype in frames.SESSIONS.dtypes.items()
        if dtype == schema.MOMENT and name != "modified_at"
    ]
    by_record = sessions.select(pl.max_horizontal(moments).alias("at"))
    by_entity = entities.select(pl.max_horizontal("ended_at", "last_activity_at").alias("at"))
    return pl.concat([by_record, by_entity])["at"].drop_nulls()


def session_entities(
    sessions: pl.DataFrame, events: pl.DataFrame, label: str, usage: pl.DataFrame
) -> pl.DataFrame:
    """Entities of an input with their reasons, in the shape of `schema.ENTITIES`.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with the columns of `add_meaning`, as now or at an instant.
    events : polars.DataFrame
        Canonical events of the input up to that instant.
    label : str
        The input.
    usage : polars.DataFrame
        `frames.USAGE` of the input up to that instant.

    Notes
    -----
    One row per session, in the order of the records: its current record, and its signs of
    life. The end of a session that was archived without one is the moment it was archived,
    of the Go rewrite that of its last write, and counts as approximate. ``raw_status`` is the
    one word that Agent Orchestrator shows, and the stored one where there are no axes.
    """
    current = sessions.filter("is_current")
    messages = first_reasons(current, key=["entity_id"]).select("entity_id", "message")
    for details in (_signs_of_life(events), messages, summed(usage)):
        current = current.join(details, on="entity_id", how="left", maintain_order="left")
    is_over = pl.col("outcome").is_not_null() & (pl.col("outcome") != "unknown")
    declared = pl.when(
        (pl.col("session_reason") == "research_complete") & (pl.col("report_state") == "completed")
    ).then("report_at")
    stored_end = pl.coalesce("terminated_at", "completed_at", declared)
    # The Go rewrite writes a row for the last time when it is over, or after that.
    last_written = pl.when(pl.col("generation") == "G3").then("last_transition_at")
    ended_at = pl.coalesce(stored_end, "archived_at", last_written)
    seen_at = stored_moment(pl.col("evidence_text").str.extract(_SEEN_AT))
    axes = ("lifecycle", "outcome", "health", "delivery")
    entities = add_axes(_with_parents(current), *axes).select(
        pl.col("^recorded_.*$"),
        entity_type=pl.lit("session"),
        entity_id="entity_id",
        parent_type=pl.when(pl.col("parent_id").is_not_null()).then(pl.lit("session")),
        parent_id="parent_id",
        session_id="entity_id",
        kind="kind",
        name="name",
        project="project",
        directory="worktree",
        native_session_id="agent_session_id",
        agent="agent",
        model=pl.coalesce("model", "used_model"),
        provider="used_provider",
        n_messages="n_messages",
        # Its chats list no messages of tools.
        n_chat_messages="n_messages",
        last_message_at="last_message_at",
        **{name: name for name in SUMS},
        recorded_by=pl.lit("live"),
        raw_status=pl.when(flag("is_synthesized")).then("stored_status").otherwise("legacy_status"),
        created_at="created_at",
        started_at=pl.coalesce("started_at", "created_at"),
        # A session that is alive again still holds its old end: only what is over has one.
        ended_at=pl.when(is_over).then(ended_at),
        updated_at="last_transition_at",
        last_activity_at=pl.coalesce(
            pl.max_horizontal("signed_at", "used_at", "report_at", "activity_last_at", seen_at),
            "started_at",
            "created_at",
        ),
        is_end_approximate=pl.when(is_over & ended_at.is_not_null()).then(stored_end.is_null()),
        end_written_by=pl.when(is_over & stored_end.is_not_null()).then(
            first_true(
                (pl.col("session_reason").is_in(_OBSERVED_ENDS), "observer"), default="executor"
            )
        ),
        n_children="n_children",
        reason_code="reason_0",
        reason_message="message",
        evidence=references(tool_result="evidence_text", url="pr_url", message="report_note"),
    )
    return add_reasons(
        canonical(entities, schema.ENTITIES, label), recorded_reasons(shaped(sessions, label))
    )


def _signs_of_life(events: pl.DataFrame) -> pl.DataFrame:
    is_message = pl.col("kind") == "message"
    n_messages = is_message.sum().cast(pl.Int64)
    return (
        events.filter(pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(
            signed_at=pl.col("at").filter("is_activity").max(),
            last_message_at=pl.col("at").filter(is_message).max(),
            n_messages=pl.when(n_messages > 0).then(n_messages),
        )
    )


def _with_parents(current: pl.DataFrame) -> pl.DataFrame:
    """Add the orchestrator of each worker: none is stored, so only that of its project counts."""
    is_boss = pl.col("kind") == "orchestrator"
    bosses = (
        current.filter(is_boss & pl.col("project").is_not_null())
        .unique("project", keep="none")
        .select("project", _boss="entity_id")
    )
    workers = current.filter(~is_boss).group_by("project").agg(_n=pl.len().cast(pl.Int64))
    linked = current.join(bosses, on="project", how="left", maintain_order="left").join(
        workers, on="project", how="left", maintain_order="left"
    )
    is_the_boss = is_boss & (pl.col("_boss") == pl.col("entity_id"))
    return linked.with_columns(
        parent_id=pl.when(~is_boss).then("_boss"),
        n_children=pl.when(is_the_boss).then(pl.col("_n").fill_null(0)),
    )
