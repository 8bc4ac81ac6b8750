"""From flat session records to `frames.SESSIONS`, and from those to canonical entities."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import (
    leading_integer,
    look_up,
    references,
    stored_moment,
    unreadable_times,
)
from stateanalytics.systems.agent_orchestrator.events import named
from stateanalytics.systems.agent_orchestrator.go_work import SUMS, summed
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    LIFECYCLE_COLUMNS,
    PAYLOAD_TIMES,
    parse_lifecycle,
    read_payloads,
    refresh_status,
)
from stateanalytics.systems.agent_orchestrator.meaning import first_reasons, recorded_reasons
from stateanalytics.systems.agent_orchestrator.places import EPOCH, Kind
from stateanalytics.systems.agent_orchestrator.records import (
    pull_request_number,
    read_reports,
)
from stateanalytics.systems.agent_orchestrator.statuses import (
    EVENT_PRIORITIES,
    derive_legacy_status,
    is_terminal_rule,
    name_primary_reason,
)
from stateanalytics.systems.recorded import add_axes, add_reasons

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


def interpret(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """The axes of every record, and the status they say.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        What `records.read_records` gives.
    now : datetime
        Stands for the creation time of a record that has none.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 23)
        The columns of `parse_lifecycle`,
        ``legacy_status``, ``is_ao_terminal``, and ``stored_status`` (the flat one).
    """
    kept = records.with_columns(stored_status="status")
    payloads = read_payloads(kept["lifecycle"])
    parsed = parse_lifecycle(refresh_status(kept, payloads), now=now, read=payloads)
    derived = derive_legacy_status(parsed)
    return derived.with_columns(is_ao_terminal=is_terminal_rule(pl))


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
    with_reports = read_reports(interpret(records))
    is_made_up, epoch, created = (
        pl.col("is_synthesized"),
        pl.lit(EPOCH),
        stored_moment("createdAt"),
    )
    named = with_reports.with_columns(
        generation=_generation(),
        event_priority=look_up(pl.col("legacy_status"), EVENT_PRIORITIES, library=pl),
        stored_status=_filled("stored_status"),
        **{name: stored_moment(key) for name, key in _MOMENTS.items()},
        **{name: _filled(key) for name, key in _KEPT.items()},
        # What a payload lacks is filled with the time of creation, which is no observation.
        **{
            name: pl.when(
                ~is_made_up & pl.col(name).ne(epoch) & pl.col(name).ne_missing(created)
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
    whole = name_primary_reason(_with_pull_request(named))
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
    by_lines = pl.when(has_payload).then(pl.lit("G1")).otherwise(pl.lit("G0"))
    return pl.when(is_json).then(pl.lit("G2")).otherwise(by_lines)


def _with_pull_request(sessions: pl.DataFrame) -> pl.DataFrame:
    """The pull request: of the axis, else of the flat key that is written first; its detail."""
    url = pl.coalesce(_filled("pr_url"), _filled("pr"))
    unnumbered = pl.when(pl.col("pr_number").is_null()).then(url)
    enriched = read_enrichment(sessions["prEnrichment"])
    return (
        sessions.hstack(enriched.rename(_ENRICHED))
        .with_columns(
            pr_url=url,
            pr_number=pl.coalesce("pr_number", pull_request_number(unnumbered)),
            n_prs=pl.coalesce(
                pl.col("pr_urls").str.count_matches("[^,]+"), url.is_not_null().cast(pl.UInt32)
            ).cast(pl.Int64),
            is_pr_mergeable=_yes_no("mergeable"),
            is_pr_draft=pl.coalesce(_yes_no("isDraft"), "report_is_draft"),
            has_pr_conflicts=_yes_no("hasConflicts"),
            is_pr_behind=_yes_no("isBehind"),
            n_pr_additions=pl.col("additions").cast(pl.Int64, strict=False),
            n_pr_deletions=pl.col("deletions").cast(pl.Int64, strict=False),
            n_pr_unresolved_threads=pl.col("prReviewComments")
            .str.json_path_match("$.unresolvedThreads")
            .cast(pl.Int64, strict=False),
            pr_enriched_at=pl.col("enrichedAt").str.to_datetime(
                "%Y-%m-%dT%H:%M:%S%.fZ", strict=False, time_unit="us", time_zone="UTC"
            ),
        )
        .drop(set(enriched.columns) - set(_ENRICHED))
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
_SIMPLE = r'(?:"[^"\\\x00-\x1f]*"|0|-?[1-9][0-9]{0,14}|true|false|null)'
_KEY = r'"[^"\\\x00-\x1f]*": ?'
_FLAT = rf"\{{(?:{_KEY}{_SIMPLE}(?:, ?{_KEY}{_SIMPLE})*)?\}}"
_ITEM = rf"(?:{_SIMPLE}|{_FLAT})"
_PAIR = rf"{_KEY}(?:{_ITEM}|\[(?:{_ITEM}(?:, ?{_ITEM})*)?\])"
_USUAL_ENRICHMENT = rf"^\{{{_PAIR}(?:, ?{_PAIR})*\}}$"


def read_enrichment(texts: pl.Series) -> pl.DataFrame:
    """What was looked up of pull requests, which is kept as JSON inside of JSON, as texts.

    Parameters
    ----------
    texts : polars.Series of String, length n

    Returns
    -------
    polars.DataFrame, shape (n, 10)
        One column a key; null where it is absent, or the text no JSON.

    Notes
    -----
    A path is looked for in all of a text, so that ten take ten times as long as all at once:
    that is how unusual texts are read: with escapes, with a list under one of the keys, or
    with a key twice, of which the last counts.

    Examples
    --------
    >>> texts = pl.Series(['{"title": "Fix it", "additions": 3}', "{"])
    >>> read_enrichment(texts).select("title", "additions").rows()
    [('Fix it', '3'), (None, None)]
    """
    text = pl.col("text")
    n_keys = pl.sum_horizontal(
        text.str.contains(f'"{key}":', literal=True) for key in _ENRICHED_KEYS
    )
    any_key = f'"(?:{"|".join(_ENRICHED_KEYS)})": ?'
    is_usual = (
        text.str.contains(_USUAL_ENRICHMENT)
        & (text.str.count_matches(any_key) == n_keys)
        & ~text.str.contains(any_key + r"[\[{]")
    )
    rows = texts.alias("text").to_frame().with_columns(is_usual=is_usual)
    shape = pl.Struct(dict.fromkeys(_ENRICHED_KEYS, pl.String))
    decoded = pl.when("is_usual").then("text").alias("text")
    read = rows.select(decoded).to_series().str.json_decode(shape).struct.unnest()
    odd = rows.select((~pl.col("is_usual")).arg_true()).to_series()
    if odd.is_empty():
        return read
    paths = rows[odd].select(
        text.str.json_path_match(f"$.{key}").alias(key) for key in _ENRICHED_KEYS
    )
    return read.with_columns(read[key].scatter(odd, paths[key]) for key in _ENRICHED_KEYS)


def _yes_no(key: str) -> pl.Expr:
    return pl.col(key).replace_strict(
        {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
    )


AXES = tuple(name for name in LIFECYCLE_COLUMNS if name.endswith(("_state", "_reason")))
"""The six words of the three axes."""


def shaped(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """The records in the shape of `frames.SESSIONS`; nothing of what cannot be read."""
    stored = [
        "kind", "legacy_status", "is_ao_terminal", "is_synthesized",
        "event_priority", "primary_reason", *AXES,
    ]  # fmt: skip
    unread = ~pl.col("is_readable")
    kept = sessions.with_columns(
        pl.when(~unread).then(pl.col(stored)).name.keep(), source=pl.lit(label)
    )
    return frames.SESSIONS.conform(kept)


_SEEN_AT = (
    r"activity_signal=valid\b.*\bactivity=(?:active|ready|idle|blocked|waiting_input) at=(\S+)"
)
_OBSERVED_ENDS = ("runtime_lost", "agent_process_exited", "probe_failure", "auto_cleanup")


_OF_THE_FILE = ("modified_at",)


def proven_at(sessions: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """The newest moment that each record proves, in `frames.SESSIONS` and its entity.

    Notes
    -----
    One a record, so that one clock that ran ahead is one moment and no company. When the
    file was changed proves nothing: that of a copy is of whoever copied it.
    """
    moments = [
        name
        for name, dtype in frames.SESSIONS.dtypes.items()
        if dtype == schema.MOMENT and name not in _OF_THE_FILE
    ]
    seen = known.select(pl.max_horizontal("ended_at", "last_activity_at").alias("at"))
    told = sessions.select(pl.max_horizontal(moments).alias("at"))
    return pl.concat([told, seen])["at"].drop_nulls()


def tell(
    sessions: pl.DataFrame, events: pl.DataFrame, label: str, usage: pl.DataFrame
) -> pl.DataFrame:
    """The entities of an input with their reasons, in the shape of `schema.ENTITIES`.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with their meaning (`mapped_axes.add_meaning`), as now or at an instant.
    events : polars.DataFrame
        Canonical events of the input up to then.
    label : str
        The input.
    usage : polars.DataFrame
        `frames.USAGE` of the input up to then.
    """
    known = named(entities(sessions, events, usage), schema.ENTITIES, label)
    return add_reasons(known, recorded_reasons(shaped(sessions, label)))


def entities(sessions: pl.DataFrame, events: pl.DataFrame, usage: pl.DataFrame) -> pl.DataFrame:
    """One row a session, told by its current record and by its signs of life.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with their meaning (`mapped_axes.add_meaning`).
    events : polars.DataFrame
        Canonical events of the input.
    usage : polars.DataFrame
        `frames.USAGE` of the input.

    Returns
    -------
    polars.DataFrame
        Columns of `schema.ENTITIES`, in the order of the records.

    Notes
    -----
    The end of a session that was put away without one is the moment it was put away, of the
    Go rewrite that of its last write, and counts as approximate. ``raw_status`` is the one
    word that Agent Orchestrator shows, and the stored one where there are no axes.
    """
    current = sessions.filter("is_current")
    is_over = pl.col("outcome").is_not_null() & (pl.col("outcome") != "unknown")
    declared = pl.when(
        (pl.col("session_reason") == "research_complete") & (pl.col("report_state") == "completed")
    ).then("report_at")
    stored_end = pl.coalesce("terminated_at", "completed_at", declared)
    # The Go rewrite writes a row for the last time when it is over, or after that.
    last_written = pl.when(pl.col("generation") == "G3").then("last_transition_at")
    late_end = pl.coalesce("archived_at", last_written)
    has_words = pl.col("is_synthesized").fill_null(value=False)
    seen_at = stored_moment(pl.col("evidence_text").str.extract(_SEEN_AT))
    joined = current
    for told in (_signs(events), _messages(current), summed(usage)):
        joined = joined.join(told, on="entity_id", how="left", maintain_order="left")
    axes = ("lifecycle", "outcome", "health", "delivery")
    return add_axes(_with_parents(joined), *axes).select(
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
        last_message_at="said_at",
        **{name: name for name in SUMS},
        recorded_by=pl.lit("live"),
        raw_status=pl.when(has_words).then("stored_status").otherwise("legacy_status"),
        created_at="created_at",
        started_at=pl.coalesce("started_at", "created_at"),
        # A session that is alive again still holds its old end: only what is over has one.
        ended_at=pl.when(is_over).then(pl.coalesce(stored_end, late_end)),
        updated_at="last_transition_at",
        last_activity_at=pl.coalesce(
            pl.max_horizontal("signed_at", "used_at", "report_at", "activity_last_at", seen_at),
            "started_at",
            "created_at",
        ),
        is_end_approximate=pl.when(is_over & pl.coalesce(stored_end, late_end).is_not_null()).then(
            stored_end.is_null()
        ),
        end_written_by=pl.when(is_over & stored_end.is_not_null()).then(
            pl.when(pl.col("session_reason").is_in(_OBSERVED_ENDS))
            .then(pl.lit("observer"))
            .otherwise(pl.lit("executor"))
        ),
        n_children="n_children",
        reason_code="reason_0",
        reason_message="message",
        evidence=references(tool_result="evidence_text", url="pr_url", message="report_note"),
    )


def _signs(events: pl.DataFrame) -> pl.DataFrame:
    is_message = pl.col("kind") == "message"
    n_messages = is_message.sum().cast(pl.Int64)
    return (
        events.filter(pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(
            signed_at=pl.col("at").filter("is_activity").max(),
            said_at=pl.col("at").filter(is_message).max(),
            n_messages=pl.when(n_messages > 0).then(n_messages),
        )
    )


def _messages(current: pl.DataFrame) -> pl.DataFrame:
    return first_reasons(current, key=["entity_id"]).select("entity_id", "message")


def _with_parents(current: pl.DataFrame) -> pl.DataFrame:
    """The orchestrator of a worker: none is stored, so that only a project's one counts."""
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
