"""Sessions of the Go rewrite as records, and its log of changes as entries of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import polars.selectors as cs

from stateanalytics.core import schema
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.systems.agent_orchestrator.databases import (
    GoTables,
    canonical_url,
    go_moment,
)
from stateanalytics.systems.agent_orchestrator.statuses import (
    NO_SIGNAL_S,
    classify_go_pull_requests,
    derive_go_status,
)

HOOKED = (
    "claude-code", "grok", "muse", "codex", "droid", "agy", "kimchi", "opencode", "prime-agent",
    "goose", "devin", "cursor", "qwen", "copilot", "kimi", "cline", "kiro", "kilocode",
    "autohand", "vibe", "fake",
)  # fmt: skip
"""Harnesses that signal by themselves, so that in a terminal their silence says something."""
UNHOOKED = ("aider", "amp", "crush", "auggie", "continue", "pi", "omp", "qm")

ACTIVITIES = ("active", "idle", "waiting_input", "blocked", "exited")
"""What an agent can be seen doing; any other word stands for itself."""
ENDS = ("terminated", "merged")
"""The words of sessions that are over."""


def signals(harness: str, mode: str) -> pl.Expr:
    """Does a session give signals by itself: a chat is told by its turns instead; never null."""
    return pl.col(harness).is_in(HOOKED).fill_null(value=False) & (
        pl.col(mode).fill_null("tui") != "chat"
    )


def read_go_sessions(tables: GoTables, stood: pl.DataFrame, *, path: str) -> pl.DataFrame:
    """Sessions as records, with the status that is derived on every read.

    Parameters
    ----------
    tables : GoTables
        Of one database.
    stood : polars.DataFrame
        Its `go_statuses`.
    path : str
        How the database is called below the input.

    Returns
    -------
    polars.DataFrame
        Columns of `frames.SESSIONS`, one row a session.

    Notes
    -----
    No reason of an end is stored; its moment is that of the change that made it one. The one
    clock rule is left to `add_silence`, which knows more than one table.
    """
    rows = tables["sessions"]
    joined = rows.join(
        _of_session(tables), left_on="id", right_on="session_id", how="left", maintain_order="left"
    )
    for known in (ends(stood), _native_ids(tables)):
        joined = joined.join(
            known, left_on="id", right_on="session_id", how="left", maintain_order="left"
        )
    aged = joined.with_columns(
        activity_age_s=pl.lit(0.0),
        has_hooks=signals("harness", "session_mode"),
        has_signal=pl.col("first_signal_at").is_not_null(),
        is_terminated=pl.col("is_terminated").fill_null(value=False),
        has_merged_pr=pl.col("has_merged_pr").fill_null(value=False),
    )
    is_merged, no, yes = pl.col("has_merged_pr"), pl.lit(value=False), pl.lit(value=True)
    return _shown(aged).select(
        *("kind", "created_at", "activity_last_at", "first_signal_at"),
        *("branch", "model", "has_hooks"),
        pl.col("n_prs").fill_null(0),
        path=pl.format("{}#{}", pl.lit(path), "id"),
        session_id="id",
        layout=pl.lit("database"),
        generation=pl.lit("G3"),
        directory=pl.lit(""),
        project="project_id",
        is_migrated_original=no,
        is_readable=yes,
        legacy_status="status",
        is_ao_terminal=pl.col("is_terminated") | is_merged,
        started_at="created_at",
        terminated_at=pl.when(pl.col("status").is_in(ENDS)).then("over_since"),
        last_transition_at="updated_at",
        evidence_text=pl.format("activity={}", "activity_state"),
        pr_number="number",
        pr_url="url",
        pr_title="title",
        pr_ci_status="ci_state",
        pr_review_decision="review_decision",
        is_pr_mergeable=pl.col("mergeability") == "mergeable",
        is_pr_draft=pl.col("worst_pr_status") == "draft",
        has_pr_conflicts=pl.col("mergeability") == "conflicting",
        n_pr_additions="additions",
        n_pr_deletions="deletions",
        n_pr_unresolved_threads="n_unresolved_comments",
        issue="issue_id",
        worktree="workspace_path",
        agent="harness",
        agent_session_id="native_ids",
        name=pl.coalesce("display_name", "issue_id"),
        tmux_name="runtime_handle_id",
        is_synthesized=no,
    )


def add_silence(sessions: pl.DataFrame, beside: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sessions with the status that the one clock rule gives: no signal for 90 seconds.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records of one input, as now or at an instant; only the Go rewrite's are changed.
    beside : sequence of polars.DataFrame
        What else the input tells up to then. The newest moment of all is *now*, but for
        those of a single clock that ran ahead.
    """
    is_go = pl.col("generation") == "G3"
    written = sessions.filter(is_go).select("activity_last_at", "last_transition_at")
    now = pl.lit(newest_of([written, *beside]), schema.MOMENT)
    age_s = (now - pl.col("activity_last_at")).dt.total_seconds(fractional=True)
    is_silent = (
        pl.col("has_hooks") & pl.col("first_signal_at").is_null() & (age_s > NO_SIGNAL_S)
    ).fill_null(value=False)
    word = pl.when(is_silent).then(pl.lit("no_signal")).otherwise(pl.lit("idle"))
    rests = is_go & pl.col("legacy_status").is_in(("idle", "no_signal"))
    return sessions.with_columns(legacy_status=pl.when(rests).then(word).otherwise("legacy_status"))


def newest_of(frames: Sequence[pl.DataFrame]) -> datetime | None:
    """The newest moment of some rows that no single clock wrote that ran ahead."""
    kinds = [frame.select(cs.datetime(time_zone="UTC")).get_columns() for frame in frames]
    return newest_in_company(kinds, [column for columns in kinds for column in columns])


def _native_ids(tables: GoTables) -> pl.DataFrame:
    """The transcripts of each session, that of its present agent first, with blanks between."""
    sessions = tables["sessions"].select("agent_session_id", "provider_conversation_id", of="id")
    told = [
        *(sessions.select("of", native=name) for name in sessions.columns if name != "of"),
        tables["usage_bindings"]
        .sort("updated_at", "id", descending=True)
        .select(of="session_id", native="native_root_id"),
        tables["agent_native_sessions"]
        .sort("last_used_at", "native_session_id", descending=True)
        .select(of="ao_session_id", native="native_session_id"),
    ]
    ids = pl.concat(told).drop_nulls().filter(pl.col("native") != "").unique(maintain_order=True)
    of_sessions = ids.group_by("of", maintain_order=True).agg(native_ids="native")
    return of_sessions.select(pl.col("native_ids").list.join(" "), session_id="of")


def _shown(sessions: pl.DataFrame) -> pl.DataFrame:
    """The status that is derived; an activity that is not known is a status of its own."""
    is_odd = ~pl.col("is_terminated") & ~pl.col("activity_state").is_in(ACTIVITIES)
    odd = pl.when(is_odd.fill_null(value=False)).then("activity_state")
    return derive_go_status(sessions).with_columns(status=pl.coalesce(odd, "status"))


def ends(stood: pl.DataFrame) -> pl.DataFrame:
    """Since when each session has been over, by the changes up to the last one."""
    # A pull request may be merged after its session was ended: that is no second end.
    run = pl.col("decided_status").is_in(ENDS).rle_id().over("session_id")
    last = stood.sort("at", "seq").with_columns(run=run).filter(run == run.max().over("session_id"))
    over = last.filter(pl.col("decided_status").is_in(ENDS))
    return over.group_by("session_id").agg(over_since=pl.col("at").min())


def _of_session(tables: GoTables) -> pl.DataFrame:
    """What the pull requests of each session say together: the worst open one speaks."""
    # What a bot remarks waits for nobody; earlier versions do not say who is one.
    open_comments = (
        tables["pr_comment"]
        .filter(~pl.any_horizontal(pl.col("resolved", "is_bot").fill_null(value=False)))
        .group_by(url=canonical_url("pr_url", tables))
        .agg(n_unresolved_comments=pl.len().cast(pl.Int64))
    )
    known = (
        tables["pr"]
        .join(open_comments, on="url", how="left", maintain_order="left")
        .with_columns(pl.col("n_unresolved_comments").fill_null(0))
    )
    shown = pl.first(
        "url", "number", "title", "ci_state", "review_decision", "mergeability",
        "additions", "deletions", "n_unresolved_comments",
    )  # fmt: skip
    return _together(known, "session_id", shown, pl.len().cast(pl.Int64).alias("n_prs"))


_SPEAKS_ON_A_STACK = ("ci_failed", "changes_requested", "draft")


def _together(pulls: pl.DataFrame, group: str, *more: pl.Expr) -> pl.DataFrame:
    """What pull requests of a group say together; ``more`` sees the one that speaks first.

    One that is to be merged into the branch of another open one waits for that: it speaks
    only of its own failures, drafts and changes, unless nothing else is left to speak.
    """
    judged = classify_go_pull_requests(pulls)
    is_open = pl.col("pr_rank").is_not_null()
    bases = (
        judged.filter(is_open & (pl.col("source_branch") != ""))
        .select(group, "url", target_branch="source_branch")
        .join(
            judged.filter(is_open).select(group, "target_branch", "url"),
            on=[group, "target_branch"],
        )
        .filter(pl.col("url") != pl.col("url_right"))
        .select(group, url="url_right", is_stacked=pl.lit(value=True))
        .unique()
    )
    stacked = judged.join(bases, on=[group, "url"], how="left").with_columns(
        waits=pl.col("is_stacked").fill_null(value=False)
        & ~pl.col("pr_status").is_in(_SPEAKS_ON_A_STACK)
    )
    order = (group, ~is_open, "waits", "pr_rank", "url")
    ranked = stacked.sort(order, nulls_last=True).group_by(group, maintain_order=True)
    speaker = pl.when(pl.col("pr_rank").first().is_not_null()).then(pl.col("pr_status").first())
    is_merged = pl.col("pr_state") == "merged"
    return ranked.agg(*more, has_merged_pr=is_merged.any(), worst_pr_status=speaker)


def go_changes(tables: GoTables, stood: pl.DataFrame, *, bodies: bool) -> pl.DataFrame:
    """The log of changes as entries of a log, each with the status that it leads to."""
    previous = pl.col("decided_status").shift(1).over("session_id")
    led_to = stood.sort("at", "seq").with_columns(
        decided_previous=previous,
        is_activity=pl.col("is_entered").replace_strict(
            {True: "true", False: "false"}, default="false", return_dtype=pl.String
        ),
    )
    return (
        tables["change_log"]
        .join(led_to.drop("session_id", "at"), on="seq", how="left", maintain_order="left")
        .select(
            *("decided_previous", "decided_status", "evidence_text", "session_id", "seq"),
            log=pl.lit("change"),
            project="project_id",
            at="created_at",
            previous="decided_previous",
            status="decided_status",
            kind=pl.format("change.{}", "event_type"),
            name=pl.coalesce(
                _payload("activity"), _payload("state"), _payload("status"), _payload("phase")
            ),
            is_activity=pl.col("is_activity").fill_null("false"),
            size=pl.col("payload").str.len_bytes().cast(pl.String),
            body=pl.when(bodies).then("payload"),
        )
    )


def _payload(key: str) -> pl.Expr:
    return _json_text("payload", key)


_FACTS = ("pr_state", "ci_state", "review_decision", "mergeability", "n_unresolved_comments")
_OF_SESSION = ("activity_state", "is_terminated")


def go_statuses(tables: GoTables) -> pl.DataFrame:
    """The status of a session after each change of it or of its pull requests, by ``seq``.

    Returns
    -------
    polars.DataFrame
        ``seq``, ``session_id``, ``at``, ``decided_status``, ``evidence_text`` and
        ``is_entered``: did its agent begin to work.

    Notes
    -----
    No change holds the values of before, nor those of the other table, so that each stands
    until the next change of its own. A message or a turn copies the session's activity as
    it was whenever, which is no change.
    """
    kind, order = pl.col("event_type"), ("at", "seq")
    of_session = (
        kind.is_in(("session_created", "session_updated")) & _payload("sessionId").is_null()
    )
    of_pull = kind.is_in(("pr_created", "pr_updated"))
    is_move = kind == "pr_session_changed"
    of_thread = kind.is_in(("pr_review_thread_added", "pr_review_thread_resolved"))
    of_a_person = _payload("isBot").is_null() | (_payload("isBot") == "false")
    lines = (
        tables["change_log"]
        .select(
            *("seq", "session_id"),
            at="created_at",
            activity_state=pl.when(of_session).then(_payload("activity")),
            is_terminated=pl.when(of_session).then(_payload("isTerminated") == "true"),
            url=pl.when(of_pull | is_move)
            .then(_payload("url"))
            .when(of_thread)
            .then(_payload("pr")),
            thread=pl.when(of_thread).then(_payload("thread")),
            is_unresolved=pl.when(of_thread).then(
                ((_payload("resolved") == "false") & of_a_person).cast(pl.Int64)
            ),
            pr_state=pl.when(of_pull).then(_payload("state")),
            ci_state=pl.when(of_pull).then(_payload("ci")),
            review_decision=pl.when(of_pull).then(_payload("review")),
            mergeability=pl.when(of_pull).then(_payload("mergeability")),
        )
        .with_columns(url=canonical_url("url", tables))
        .filter(pl.any_horizontal(pl.col("activity_state", "url").is_not_null()))
        .sort(order)
    )
    together = _pulls_then(lines, tables["pr"].select("url", "source_branch", "target_branch"))
    active = (pl.col("activity_state") == "active").fill_null(value=False)
    known = (
        lines.select("session_id", *order, *_OF_SESSION)
        .with_columns(pl.col(_OF_SESSION).forward_fill().over("session_id"))
        .filter(pl.col("activity_state").is_not_null())
        .join(together, on="seq", how="left")
        .with_columns(
            pl.col("has_merged_pr").fill_null(value=False),
            is_entered=active & ~active.shift(1, fill_value=False).over("session_id"),
            activity_age_s=pl.lit(0.0),
            has_hooks=pl.lit(value=False),
            has_signal=pl.lit(value=False),
        )
    )
    return _shown(known).select(
        *("seq", "session_id", "at", "is_entered"),
        decided_status="status",
        evidence_text=pl.format("activity={}", "activity_state"),
    )


def _pulls_then(lines: pl.DataFrame, branches: pl.DataFrame) -> pl.DataFrame:
    """What the pull requests of a session said together at each of its changes, by ``seq``.

    A pull request may be given to another session: a change of it is of the one that has it.
    """
    order: Sequence[str] = ("at", "seq")
    was_unresolved = pl.col("is_unresolved").shift().over("url", "thread").fill_null(0)
    threads = lines.with_columns(
        n_unresolved_comments=(pl.col("is_unresolved") - was_unresolved).cum_sum().over("url")
    )
    pulls = threads.drop_nulls("url").select("url", *order, *_FACTS, owner="session_id")
    whose = pulls.select("url", session_id="owner").unique()
    each = lines.select("session_id", *order, is_asked=pl.lit(value=True)).join(
        whose, on="session_id"
    )
    filled = (
        pl.concat([pulls.join(whose, on="url"), each], how="diagonal")
        .sort(*order, "is_asked", nulls_last=False)
        .with_columns(pl.col("owner", *_FACTS).forward_fill().over("session_id", "url"))
        .filter("is_asked", pl.col("owner") == pl.col("session_id"))
        .filter(pl.col("pr_state").is_not_null())
        .with_columns(pl.col("n_unresolved_comments").fill_null(0))
        .join(branches, on="url", how="left")
    )
    return _together(filled, "seq")


_FULL = 100.0
"""Per cent of a rate limit from which on it refuses."""


def _json_text(column: str, *keys: str) -> pl.Expr:
    return pl.coalesce(pl.col(column).str.json_path_match(f"$.{key}") for key in keys)


def _json_moment(column: str, key: str) -> pl.Expr:
    return go_moment(_json_text(column, key))


_ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "telemetry_event": {
        "kind": pl.format("telemetry.{}", "name"),
        "at": "occurred_at",
        "project": "project_id",
        "role": "source",
        "level": "level",
        "name": _json_text(
            "payload_json", "error_code", "error_kind", "exited_to", "state", "harness"
        ),
        "detail": _json_text("payload_json", "path", "fingerprint"),
        "duration_ms": _json_text("payload_json", "duration_ms", "dwell_ms", "duration"),
    },
    "conversation_messages": {
        "kind": pl.lit("message"),
        "at": "created_at",
        "role": "role",
        "name": "origin",
        "is_activity": pl.col("role") == "assistant",
    },
    "conversation_activities": {
        "kind": pl.format("activity.{}", "kind"),
        "at": "created_at",
        "name": "status",
        "is_activity": pl.lit(value=True),
    },
    "conversation_provider_events": {
        "kind": pl.format("provider.{}", "method"),
        "at": "received_at",
    },
    "notifications": {
        "kind": pl.format("attention.{}", "type"),
        "at": "created_at",
        "project": "project_id",
        "name": "status",
    },
    "agent_native_sessions": {
        "kind": pl.lit("native_session"),
        "at": "last_used_at",
        "role": "harness",
        "name": "native_session_id",
    },
    "pr_reviews": {"kind": pl.format("review.{}", "state"), "at": "submitted_at", "role": "author"},
    "pr_review_threads": {
        "kind": pl.lit("review_thread"),
        "at": "updated_at",
        "role": pl.when("is_bot").then(pl.lit("bot")).otherwise(pl.lit("person")),
        "name": pl.when("resolved").then(pl.lit("resolved")).otherwise(pl.lit("open")),
    },
    "pr_checks": {
        "kind": pl.format("check.{}", pl.coalesce("conclusion", "status")),
        "at": "created_at",
        "name": "name",
    },
}
"""Each table whose rows are entries of a log, and which columns they give."""
_LATER: Mapping[str, Mapping[str, Any]] = {
    "conversation_turns": {
        "kind": pl.lit("turn.started"),
        "at": "started_at",
        "is_activity": pl.lit(value=True),
    },
    "notifications": {
        "kind": pl.format("attention.{}.resolved", "type"),
        "at": "resolved_at",
        "project": "project_id",
        "duration_ms": (pl.col("resolved_at") - pl.col("created_at"))
        .dt.total_milliseconds()
        .cast(pl.String),
    },
}
"""The same of moments that a row reaches later, if ever."""


def go_entries(tables: GoTables) -> pl.DataFrame:
    """Rows of several tables as entries of a log, in the shape of `logs.read_logs`."""
    pieces = []
    for table, columns in (*_ENTRIES.items(), *_LATER.items()):
        active = columns.get("is_activity", pl.lit(value=False))
        rows = _with_session(tables, table)
        if columns is _LATER.get(table):
            rows = rows.drop_nulls(columns["at"])
        pieces.append(
            rows.select(
                "session_id",
                log=pl.lit("store"),
                **{**columns, "is_activity": active.replace_strict(_TEXTS, default="false")},
            )
        )
    return pl.concat(pieces, how="diagonal")


_TEXTS = {True: "true", False: "false"}


def _with_session(tables: GoTables, table: str) -> pl.DataFrame:
    """The rows of a table with ``session_id``: of their conversation, or their pull request."""
    rows = tables[table]
    if "pr_url" in rows.columns:
        pulls = tables["pr"].select("session_id", pr_url="url")
        return rows.with_columns(canonical_url("pr_url", tables)).join(
            pulls, on="pr_url", how="left", maintain_order="left"
        )
    if "conversation_id" in rows.columns:
        chats = tables["conversations"].select(
            conversation_id="id", of_chat=pl.coalesce("session_id", "current_session_id")
        )
        linked = rows.join(chats, on="conversation_id", how="left", maintain_order="left")
        # A project's chat goes on from one session to the next: turns say which had it.
        handled = tables["conversation_turns"].select("handled_by_session_id", turn_id="id")
        if "turn_id" in rows.columns:
            linked = linked.join(handled, on="turn_id", how="left", maintain_order="left")
        own = [name for name in ("session_id", "handled_by_session_id") if name in linked.columns]
        return linked.with_columns(session_id=pl.coalesce(*own, "of_chat"))
    if "transition_id" in rows.columns:
        switches = tables["session_interface_transitions"].select("session_id", transition_id="id")
        return rows.join(switches, on="transition_id", how="left", maintain_order="left")
    native = {"ao_session_id": "session_id"} if "ao_session_id" in rows.columns else {}
    return rows.rename(native)


_CHAT_SESSION = pl.coalesce("session_id", "current_session_id")
_FAILED_SERVER = '$[?(@.status == "failed")].name'
_limits = pl.max_horizontal("rate_limit_primary_percent", "rate_limit_secondary_percent")
_CIRCUMSTANCES: tuple[tuple[str, str, pl.Expr, pl.Expr | str, pl.Expr], ...] = (
    (
        "conversations",
        "run.health.reauth_required",
        _json_moment("account_json", "reauthRequiredAt").is_not_null(),
        _json_moment("account_json", "reauthRequiredAt"),
        _json_text("account_json", "reauthReason"),
    ),
    ("conversations", "run.health.rate_limited", _limits >= _FULL, "updated_at", _limits),
    (
        "conversations",
        "run.health.provider_thread_error",
        _json_text("thread_state_json", "status") == "system_error",
        _json_moment("thread_state_json", "updatedAt"),
        _json_text("thread_state_json", "status"),
    ),
    (
        "conversations",
        "run.health.tool_server_failed",
        pl.col("mcp_servers_json").str.contains(r'"status"\s*:\s*"failed"'),
        "updated_at",
        pl.col("mcp_servers_json").str.json_path_match(_FAILED_SERVER),
    ),
    (
        "conversations",
        "run.health.model_rerouted",
        _json_text("model_reroute_json", "toModel").is_not_null(),
        _json_moment("model_reroute_json", "at"),
        _json_text("model_reroute_json", "toModel"),
    ),
    (
        "conversation_activities",
        "run.health.awaiting_decision",
        pl.col("kind").is_in(["approval", "user_input"]) & (pl.col("status") == "pending"),
        "created_at",
        pl.col("kind"),
    ),
    (
        "agent_switches",
        "run.health.switch_unconfirmed",
        pl.col("error_code").str.ends_with("_unconfirmed")
        & ~pl.col("state").is_in(["completed", "failed"]),
        "updated_at",
        pl.col("error_code"),
    ),
    (
        "session_interface_transition_messages",
        "run.health.message_held",
        pl.col("delivered_at").is_null(),
        "created_at",
        pl.col("id"),
    ),
    *(
        (
            "session_cleanup_facts",
            f"run.health.cleanup_{word}",
            pl.col("workspace_disposition") == word,
            "last_attempt_at",
            pl.col("workspace_disposition"),
        )
        for word in ("preserved_dirty", "failed")
    ),
    (
        "session_worktrees",
        "run.health.cleanup_retry_remove",
        pl.col("state") == "retry_remove",
        pl.lit(None, schema.MOMENT),
        pl.col("state"),
    ),
)
"""The table, the code, what must hold, since when, and a detail."""


_WHILE_ALIVE = ("run.health.awaiting_decision", "run.health.switch_unconfirmed")


def circumstances(tables: GoTables, work: pl.DataFrame) -> pl.DataFrame:
    """What else is known of sessions, in the columns of `frames.CIRCUMSTANCES`."""
    pieces = [
        _with_session(tables, table)
        .filter(holds.fill_null(value=False))
        .select(
            session_id=_CHAT_SESSION if table == "conversations" else "session_id",
            code=pl.lit(code),
            at=at,
            detail=detail.cast(pl.String),
        )
        for table, code, holds, at, detail in _CIRCUMSTANCES
    ]
    failed = work.filter((pl.col("entity_type") == "spawn") & (pl.col("raw_status") == "failed"))
    spawns = failed.select("session_id", at="ended_at", detail="error_code")
    stillborn = _stillborn(tables).join(spawns, on="session_id", how="anti")
    starts = pl.concat([spawns, stillborn], how="diagonal").select(
        "session_id", code=pl.lit("run.aborted.spawn_failed"), at="at", detail="detail"
    )
    known = pl.concat([*pieces, starts, _unfinished(tables)])
    return known.filter(pl.col("session_id").is_not_null()).sort("session_id", "code", "at")


def with_circumstances(sessions: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add ``more_codes`` to records: what else is known of their sessions."""
    bare = sessions.drop("more_codes", strict=False)
    over = bare.filter("is_ao_terminal").select("entity_id", is_over=pl.lit(value=True)).unique()
    # What is over waits for nobody, whatever was still open when it was.
    waits = pl.col("code").is_in(_WHILE_ALIVE) & pl.col("is_over").is_not_null()
    codes = (
        known.join(over, on="entity_id", how="left")
        .filter(~waits)
        .group_by("entity_id")
        .agg(more_codes=pl.col("code").unique().sort().str.join(", "))
    )
    return bare.join(codes, on="entity_id", how="left", maintain_order="left")


def _stillborn(tables: GoTables) -> pl.DataFrame:
    """Sessions that were ended before they had a terminal or gave a signal.

    A daemon that was started by hand keeps no telemetry, so that nothing else tells it.
    """
    is_dead = pl.all_horizontal(
        pl.col("is_terminated"),
        pl.col("session_mode").ne_missing("chat"),
        pl.col("first_signal_at").is_null(),
        pl.col("runtime_handle_id").is_null(),
    )
    return tables["sessions"].filter(is_dead).select(session_id="id", at="updated_at")


def _unfinished(tables: GoTables) -> pl.DataFrame:
    """Rows that a spawn wrote first and never came back to."""
    rows, grace = tables["sessions"], timedelta(seconds=NO_SIGNAL_S)
    newest = newest_of([rows.select("activity_last_at", "updated_at")])
    is_bare = pl.all_horizontal(
        ~pl.col("is_terminated"),
        ~pl.col("has_prompt").fill_null(value=True),
        pl.col("workspace_path").is_null(),
        pl.col("runtime_handle_id").is_null(),
        pl.lit(newest, schema.MOMENT) - pl.col("created_at") > grace,
    )
    return rows.filter(is_bare).select(
        session_id="id",
        code=pl.lit("run.health.spawn_unfinished"),
        at=pl.col("created_at") + grace,
        detail=pl.lit(None, pl.String),
    )
