"""The Go rewrite: its tables, its sessions and their changes, and their circumstances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl
import polars.selectors as cs

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.core.package_tables import table_rows
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.io.cells import Cell, cells_from_csv
from stateanalytics.io.findings import all_findings
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.agent_orchestrator import mapping
from stateanalytics.systems.agent_orchestrator.columns import (
    counted,
    first_true,
    flag,
    json_value,
    look_up,
    stored_moment,
    unreadable_times,
)
from stateanalytics.systems.agent_orchestrator.logs import EVENTS, EVENTS_TABLE
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.base import Tables

NEEDED = ("sessions", "pr", "change_log")
"""The tables that every version of the Go rewrite has."""

ASIDE = (
    *("app_settings", "agent_model_catalog", "shell_terminals", "workspace_repos"),
    *("projects", "review", "goose_db_version"),
)
"""Settings, caches and names, which hold nothing on work: not read on purpose."""

NEWEST_VERSION = 103
"""The greatest migration that the columns were read from."""

_OWN = {"sessions": {"has_prompt": Cell("yes_no", "prompt <> ''", ("prompt",))}}
TABLES: Mapping[str, Mapping[str, Cell]] = cells_from_csv(__package__, _OWN)
"""Every table of the Go rewrite that is read, and the type of its columns.

Texts that people, models and tools wrote are not read, but for the errors of what failed.
"""


GoTables = Mapping[str, pl.DataFrame]
"""Every table of `TABLES` of one database, moments in UTC; an absent one has no rows."""


def is_go(store: Store) -> bool:
    """Is this store a database of the Go rewrite, whichever of its tables hold rows."""
    return set(NEEDED) <= set(store.tables)


def read_go(store: Store) -> tuple[GoTables, pl.DataFrame]:
    """Tables of the Go rewrite on state, failure, usage and time, and findings on their cells.

    It writes an empty text where it knows nothing, which is null here.
    """
    frames, findings = {}, []
    filled = pl.when(pl.col(pl.String) != "").then(pl.col(pl.String))
    for table, columns in TABLES.items():
        rows, wrong = read_table(store, table, columns, system=SYSTEM)
        moments = [name for name in columns if name.endswith("_at")]
        texts = {name: _without_zero_time(pl.col(name)) for name in moments}
        findings += [wrong, unreadable_times(rows, store.label, table, texts, go_moment)]
        findings += [_local_clock(rows[name], store.label, table) for name in moments]
        frames[table] = rows.with_columns(filled).with_columns(
            go_moment(pl.col(name)).alias(name) for name in moments
        )
    sessions, ids = frames["sessions"], frames["sessions"]["id"]
    frames["sessions"] = sessions.filter(ids.is_first_distinct() & ids.is_not_null())
    n_lost = sessions.height - frames["sessions"].height
    findings.append(counted(store.label, "id.unusable", n_lost, table="sessions"))
    return frames, all_findings(*findings)


def go_moment(text: pl.Expr) -> pl.Expr:
    """Moment as Go's drivers write it: with the name of its zone, or as an epoch number."""
    # The offset counts; the zone's name and the reading of a monotonic clock add nothing.
    written = _without_zero_time(text).str.replace(r" ([+-][0-9]{4})(?: .*)?$", "$1")
    return stored_moment(written)


def _without_zero_time(text: pl.Expr) -> pl.Expr:
    """Text of a stored moment; null for the year 1, which Go writes where it has none."""
    text = text.cast(pl.String)
    return pl.when(~text.str.starts_with("0001-01-01")).then(text)


def _local_clock(texts: pl.Series, label: str, table: str) -> pl.DataFrame:
    """Finding on moments that were written with an offset, which only older builds do."""
    local = texts.filter(texts.str.contains(r" [+-]\d*[1-9]\d*(?: |$)"))
    more = {"table": table, "column": texts.name, "example": local.min()}
    return counted(label, "time.local_clock", local.len(), **more)


def canonical_url(column: str, tables: GoTables) -> pl.Expr:
    """Present address of a pull request, where its repository was renamed since."""
    aliases = tables["pr_url_alias"]
    known = dict(zip(aliases["alias_url"], aliases["canonical_url"], strict=True))
    return pl.col(column).replace(known)


def tables() -> Tables:
    """Tables of both databases that are read, and those that are not on purpose."""
    is_applied = "CASE WHEN is_applied THEN version_id END"
    return Tables(
        read={EVENTS_TABLE: EVENTS, **TABLES},
        ignored=ASIDE,
        version=("goose_db_version", Cell("integer", is_applied, ("is_applied", "version_id"))),
        newest=NEWEST_VERSION,
    )


def recognises(store: Store) -> bool:
    """Is this store a database of Agent Orchestrator."""
    return EVENTS_TABLE in store.tables or is_go(store)


HOOKED = (
    "claude-code", "grok", "muse", "codex", "droid", "agy", "kimchi", "opencode", "prime-agent",
    "goose", "devin", "cursor", "qwen", "copilot", "kimi", "cline", "kiro", "kilocode",
    "autohand", "vibe", "fake",
)  # fmt: skip
"""Harnesses that signal by themselves, so that in a terminal their silence means something."""
UNHOOKED = ("aider", "amp", "crush", "auggie", "continue", "pi", "omp", "qm")


_COLUMNS = table_rows(__package__, "session_columns.csv")
"""Columns of sessions, and of their pull requests, that are what they are in a record."""


def read_go_sessions(tables: GoTables, statuses: pl.DataFrame, *, path: str) -> pl.DataFrame:
    """Sessions as records, with the status that is derived on every read.

    Parameters
    ----------
    tables : GoTables
        Of one database.
    statuses : polars.DataFrame
        Its `go_statuses`.
    path : str
        Path of the database below the input.

    Returns
    -------
    polars.DataFrame
        Columns of `frames.SESSIONS`, one row per session.

    Notes
    -----
    No reason of an end is stored; its moment is that of the change that made it one. The one
    rule that needs a clock is left to `add_silence`, which sees more than one table.
    """
    details = (_pull_requests(tables), _ends(statuses), _native_ids(tables))
    named = tables["sessions"].with_columns(session_id="id")
    joined = left_joined(named, *details, on="session_id").drop("session_id")
    # Turns show that a chat is alive, in place of signals.
    has_hooks = pl.col("harness").is_in(HOOKED) & pl.col("session_mode").ne_missing(pl.lit("chat"))
    no, yes = pl.lit(value=False), pl.lit(value=True)
    return joined.with_columns(
        has_hooks=has_hooks.fill_null(value=False), status=mapping.go_status()
    ).select(
        pl.col("n_prs").fill_null(0),
        path=pl.format("{}#{}", pl.lit(path), "id"),
        layout=pl.lit("database"),
        generation=pl.lit("G3"),
        directory=pl.lit(""),
        is_migrated_original=no,
        is_readable=yes,
        is_synthesized=no,
        is_ao_terminal=flag("is_terminated") | flag("has_merged_pr"),
        terminated_at=pl.when(pl.col("status").is_in(mapping.GO_ENDS)).then("over_since"),
        evidence_text=pl.format("activity={}", "activity_state"),
        is_pr_mergeable=pl.col("mergeability") == "mergeable",
        is_pr_draft=pl.col("worst_pr_status") == "draft",
        has_pr_conflicts=pl.col("mergeability") == "conflicting",
        **{row["column"]: pl.coalesce(row["read_from"].split("|")) for row in _COLUMNS},
    )


def add_silence(sessions: pl.DataFrame, others: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sessions with the status that needs a clock: no signal for 90 seconds.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records of one input, as now or at an instant; only the Go rewrite's are changed.
    others : sequence of polars.DataFrame
        Every other frame of the input up to that instant. The newest moment of all is
        *now*, but for those of a single clock that ran ahead.
    """
    is_go = pl.col("generation") == "G3"
    written = sessions.filter(is_go).select("activity_last_at", "last_transition_at")
    now = pl.lit(newest_moment([written, *others]), schema.MOMENT)
    age_s = (now - pl.col("activity_last_at")).dt.total_seconds(fractional=True)
    never_signalled = flag("has_hooks") & pl.col("first_signal_at").is_null()
    rests = is_go & pl.col("legacy_status").is_in(("idle", "no_signal"))
    status = first_true(
        (rests & never_signalled & (age_s > mapping.NO_SIGNAL_S), "no_signal"),
        (rests, "idle"),
        default=pl.col("legacy_status"),
    )
    return sessions.with_columns(legacy_status=status)


def newest_moment(frames: Sequence[pl.DataFrame]) -> datetime | None:
    """Newest moment of some rows, but for those of a single clock that ran ahead."""
    kinds = [frame.select(cs.datetime(time_zone="UTC")).get_columns() for frame in frames]
    return newest_in_company(kinds, [column for columns in kinds for column in columns])


def _native_ids(tables: GoTables) -> pl.DataFrame:
    """Transcripts of each session, that of its present agent first, separated by blanks."""
    sessions = tables["sessions"].rename({"id": "session_id"})
    ids = pl.concat(
        [
            sessions.select("session_id", native="agent_session_id"),
            sessions.select("session_id", native="provider_conversation_id"),
            tables["usage_bindings"]
            .sort("updated_at", "id", descending=True)
            .select("session_id", native="native_root_id"),
            tables["agent_native_sessions"]
            .sort("last_used_at", "native_session_id", descending=True)
            .select(session_id="ao_session_id", native="native_session_id"),
        ]
    )
    distinct = ids.drop_nulls().filter(pl.col("native") != "").unique(maintain_order=True)
    by_session = distinct.group_by("session_id", maintain_order=True)
    return by_session.agg(native_ids=pl.col("native").str.join(" "))


def _ends(statuses: pl.DataFrame) -> pl.DataFrame:
    """Since when each session has been over, by the changes up to the last one."""
    # A pull request may be merged after its session was ended: that is no second end.
    is_over = pl.col("decided_status").is_in(mapping.GO_ENDS)
    runs = statuses.sort("at", "seq").with_columns(run=is_over.rle_id().over("session_id"))
    last = runs.filter(is_over & (pl.col("run") == pl.col("run").max().over("session_id")))
    return last.group_by("session_id").agg(over_since=pl.col("at").min())


def _pull_requests(tables: GoTables) -> pl.DataFrame:
    """Pull requests of each session in one row: that of the worst open one."""
    # A bot's comments wait for nobody; earlier versions do not record who is one.
    open_comments = (
        tables["pr_comment"]
        .filter(~pl.any_horizontal(pl.col("resolved", "is_bot").fill_null(value=False)))
        .group_by(url=canonical_url("pr_url", tables))
        .agg(n_unresolved_comments=pl.len().cast(pl.Int64))
    )
    pulls = (
        tables["pr"]
        .join(open_comments, on="url", how="left", maintain_order="left")
        .with_columns(pl.col("n_unresolved_comments").fill_null(0))
    )
    shown = pl.first(
        "url", "number", "title", "ci_state", "review_decision", "mergeability",
        "additions", "deletions", "n_unresolved_comments",
    )  # fmt: skip
    return _worst_pull_requests(pulls, "session_id", shown, pl.len().cast(pl.Int64).alias("n_prs"))


_COUNTS_IN_A_STACK = ("ci_failed", "changes_requested", "draft")


def _worst_pull_requests(pulls: pl.DataFrame, group: str, *details: pl.Expr) -> pl.DataFrame:
    """Status of the worst open pull request of each group; ``details`` are of that one.

    One that is to be merged into the branch of another open one waits for that: only its
    own failures, drafts and changes count, unless no other is open.
    """
    ranks = {status: rank for rank, status in enumerate(mapping.PULL_REQUEST_STATUSES)}
    judged = pulls.with_columns(pr_status=mapping.go_pull_request_status()).with_columns(
        pr_rank=look_up(pl.col("pr_status"), ranks, dtype=pl.Int64())
    )
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
        & ~pl.col("pr_status").is_in(_COUNTS_IN_A_STACK)
    )
    order = (group, ~is_open, "waits", "pr_rank", "url")
    ranked = stacked.sort(order, nulls_last=True).group_by(group, maintain_order=True)
    worst = pl.when(pl.col("pr_rank").first().is_not_null()).then(pl.col("pr_status").first())
    is_merged = pl.col("pr_state") == "merged"
    return ranked.agg(*details, has_merged_pr=is_merged.any(), worst_pr_status=worst)


def go_changes(tables: GoTables, statuses: pl.DataFrame, *, bodies: bool) -> pl.DataFrame:
    """Log of changes as entries of a log, each with the status that it leads to."""
    decided = statuses.sort("at", "seq").with_columns(
        decided_previous=pl.col("decided_status").shift(1).over("session_id")
    )
    return (
        tables["change_log"]
        .join(decided.drop("session_id", "at"), on="seq", how="left", maintain_order="left")
        .select(
            *("decided_previous", "decided_status", "evidence_text", "session_id", "seq"),
            log=pl.lit("change"),
            project="project_id",
            at="created_at",
            previous="decided_previous",
            status="decided_status",
            kind=pl.format("change.{}", "event_type"),
            name=json_value("payload", "activity", "state", "status", "phase"),
            is_activity=flag("is_entered").cast(pl.String),
            size=pl.col("payload").str.len_bytes().cast(pl.String),
            body=pl.when(bodies).then("payload"),
        )
    )


_PULL_REQUEST_FACTS = (
    "pr_state",
    "ci_state",
    "review_decision",
    "mergeability",
    "n_unresolved_comments",
)
_SESSION_FACTS = ("activity_state", "is_terminated")


def go_statuses(tables: GoTables) -> pl.DataFrame:
    """Status of a session after each change of it or of its pull requests, by ``seq``.

    Returns
    -------
    polars.DataFrame
        ``seq``, ``session_id``, ``at``, ``decided_status``, ``evidence_text`` and
        ``is_entered``: did its agent begin to work.

    Notes
    -----
    A change holds neither previous values nor those of the other table, so each value holds
    until the next change of the same row. A message or a turn copies the session's activity
    of any earlier moment, which is no change.
    """
    kind, order = pl.col("event_type"), ("at", "seq")
    of_session = (
        kind.is_in(("session_created", "session_updated"))
        & json_value("payload", "sessionId").is_null()
    )
    of_pull = kind.is_in(("pr_created", "pr_updated"))
    is_move = kind == "pr_session_changed"
    of_thread = kind.is_in(("pr_review_thread_added", "pr_review_thread_resolved"))
    of_a_person = json_value("payload", "isBot").is_null() | (
        json_value("payload", "isBot") == "false"
    )
    lines = (
        tables["change_log"]
        .select(
            *("seq", "session_id"),
            at="created_at",
            activity_state=pl.when(of_session).then(json_value("payload", "activity")),
            is_terminated=pl.when(of_session).then(json_value("payload", "isTerminated") == "true"),
            url=pl.when(of_pull | is_move)
            .then(json_value("payload", "url"))
            .when(of_thread)
            .then(json_value("payload", "pr")),
            thread=pl.when(of_thread).then(json_value("payload", "thread")),
            is_unresolved=pl.when(of_thread).then(
                ((json_value("payload", "resolved") == "false") & of_a_person).cast(pl.Int64)
            ),
            pr_state=pl.when(of_pull).then(json_value("payload", "state")),
            ci_state=pl.when(of_pull).then(json_value("payload", "ci")),
            review_decision=pl.when(of_pull).then(json_value("payload", "review")),
            mergeability=pl.when(of_pull).then(json_value("payload", "mergeability")),
        )
        .with_columns(url=canonical_url("url", tables))
        .filter(pl.any_horizontal(pl.col("activity_state", "url").is_not_null()))
        .sort(order)
    )
    branches = tables["pr"].select("url", "source_branch", "target_branch")
    pull_requests = _pull_requests_by_change(lines, branches)
    active = (pl.col("activity_state") == "active").fill_null(value=False)
    known = (
        lines.select("session_id", *order, *_SESSION_FACTS)
        .with_columns(pl.col(_SESSION_FACTS).forward_fill().over("session_id"))
        .filter(pl.col("activity_state").is_not_null())
        .join(pull_requests, on="seq", how="left")
        .with_columns(is_entered=active & ~active.shift(1, fill_value=False).over("session_id"))
    )
    return known.select(
        *("seq", "session_id", "at", "is_entered"),
        decided_status=mapping.go_status(),
        evidence_text=pl.format("activity={}", "activity_state"),
    )


def _pull_requests_by_change(lines: pl.DataFrame, branches: pl.DataFrame) -> pl.DataFrame:
    """Pull requests of a session at each of its changes in one row, by ``seq``.

    A pull request may be given to another session: its change belongs to its present owner.
    """
    order: Sequence[str] = ("at", "seq")
    was_unresolved = pl.col("is_unresolved").shift().over("url", "thread").fill_null(0)
    threads = lines.with_columns(
        n_unresolved_comments=(pl.col("is_unresolved") - was_unresolved).cum_sum().over("url")
    )
    pulls = threads.drop_nulls("url").select(
        "url", *order, *_PULL_REQUEST_FACTS, owner="session_id"
    )
    owners = pulls.select("url", session_id="owner").unique()
    questions = lines.select("session_id", *order, is_asked=pl.lit(value=True))
    filled = (
        pl.concat(
            [pulls.join(owners, on="url"), questions.join(owners, on="session_id")], how="diagonal"
        )
        .sort(*order, "is_asked", nulls_last=False)
        .with_columns(
            pl.col("owner", *_PULL_REQUEST_FACTS).forward_fill().over("session_id", "url")
        )
        .filter("is_asked", pl.col("owner") == pl.col("session_id"))
        .filter(pl.col("pr_state").is_not_null())
        .with_columns(pl.col("n_unresolved_comments").fill_null(0))
        .join(branches, on="url", how="left")
    )
    return _worst_pull_requests(filled, "seq")


# --- circumstances -----------------------------------------------------------------------

_FULL = 100.0
"""Per cent of a rate limit from which on it refuses."""


def with_session(tables: GoTables, table: str) -> pl.DataFrame:
    """Rows of a table with ``session_id``: that of their conversation, or their pull request."""
    rows = tables[table]
    if "pr_url" in rows.columns:
        pulls = tables["pr"].select("session_id", pr_url="url")
        return rows.with_columns(canonical_url("pr_url", tables)).join(
            pulls, on="pr_url", how="left", maintain_order="left"
        )
    if "conversation_id" in rows.columns:
        chats = tables["conversations"].select(
            conversation_id="id", chat_session_id=pl.coalesce("session_id", "current_session_id")
        )
        linked = rows.join(chats, on="conversation_id", how="left", maintain_order="left")
        # A project's chat goes on from one session to the next: turns record which had it.
        handled = tables["conversation_turns"].select("handled_by_session_id", turn_id="id")
        if "turn_id" in rows.columns:
            linked = linked.join(handled, on="turn_id", how="left", maintain_order="left")
        own = [name for name in ("session_id", "handled_by_session_id") if name in linked.columns]
        return linked.with_columns(session_id=pl.coalesce(*own, "chat_session_id"))
    if "transition_id" in rows.columns:
        switches = tables["session_interface_transitions"].select("session_id", transition_id="id")
        return rows.join(switches, on="transition_id", how="left", maintain_order="left")
    native = {"ao_session_id": "session_id"} if "ao_session_id" in rows.columns else {}
    return rows.rename(native)


_CHAT_SESSION = pl.coalesce("session_id", "current_session_id")
_limits = pl.max_horizontal("rate_limit_primary_percent", "rate_limit_secondary_percent")
_reauth_at = go_moment(json_value("account_json", "reauthRequiredAt"))
_thread_status = json_value("thread_state_json", "status")
_rerouted_to = json_value("model_reroute_json", "toModel")
_failed_server = pl.col("mcp_servers_json").str.json_path_match('$[?(@.status == "failed")].name')
_disposition = pl.col("workspace_disposition")


class _Circumstance(NamedTuple):
    """What must hold of a row of a table for a code, since when it does, and a detail."""

    table: str
    code: str
    holds: pl.Expr
    at: pl.Expr | str
    detail: pl.Expr


_CIRCUMSTANCES = (
    _Circumstance(
        "conversations", "run.health.reauth_required", _reauth_at.is_not_null(),
        _reauth_at, json_value("account_json", "reauthReason"),
    ),
    _Circumstance(
        "conversations", "run.health.rate_limited", _limits >= _FULL, "updated_at", _limits
    ),
    _Circumstance(
        "conversations", "run.health.provider_thread_error", _thread_status == "system_error",
        go_moment(json_value("thread_state_json", "updatedAt")), _thread_status,
    ),
    _Circumstance(
        "conversations", "run.health.tool_server_failed",
        pl.col("mcp_servers_json").str.contains(r'"status"\s*:\s*"failed"'),
        "updated_at", _failed_server,
    ),
    _Circumstance(
        "conversations", "run.health.model_rerouted", _rerouted_to.is_not_null(),
        go_moment(json_value("model_reroute_json", "at")), _rerouted_to,
    ),
    _Circumstance(
        "conversation_activities", "run.health.awaiting_decision",
        pl.col("kind").is_in(["approval", "user_input"]) & (pl.col("status") == "pending"),
        "created_at", pl.col("kind"),
    ),
    _Circumstance(
        "agent_switches", "run.health.switch_unconfirmed",
        pl.col("error_code").str.ends_with("_unconfirmed")
        & ~pl.col("state").is_in(["completed", "failed"]),
        "updated_at", pl.col("error_code"),
    ),
    _Circumstance(
        "session_interface_transition_messages", "run.health.message_held",
        pl.col("delivered_at").is_null(), "created_at", pl.col("id"),
    ),
    *(
        _Circumstance(
            "session_cleanup_facts", f"run.health.cleanup_{word}", _disposition == word,
            "last_attempt_at", _disposition,
        )
        for word in ("preserved_dirty", "failed")
    ),
    _Circumstance(
        "session_worktrees", "run.health.cleanup_retry_remove", pl.col("state") == "retry_remove",
        pl.lit(None, schema.MOMENT), pl.col("state"),
    ),
)  # fmt: skip


_WHILE_ALIVE = ("run.health.awaiting_decision", "run.health.switch_unconfirmed")


def circumstances(tables: GoTables, work: pl.DataFrame) -> pl.DataFrame:
    """Facts on sessions beyond their status, in the columns of `frames.CIRCUMSTANCES`."""
    pieces = [
        with_session(tables, table)
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
    """Add ``more_codes`` to records: the codes of `circumstances` of their sessions."""
    bare = sessions.drop("more_codes", strict=False)
    over = bare.filter("is_ao_terminal").select("entity_id", is_over=pl.lit(value=True)).unique()
    # A session that is over waits for nobody, whatever was still open at its end.
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

    A daemon that was started by hand keeps no telemetry, so that nothing else shows it.
    """
    is_dead = pl.all_horizontal(
        pl.col("is_terminated"),
        pl.col("session_mode").ne_missing("chat"),
        pl.col("first_signal_at").is_null(),
        pl.col("runtime_handle_id").is_null(),
    )
    return tables["sessions"].filter(is_dead).select(session_id="id", at="updated_at")


def _unfinished(tables: GoTables) -> pl.DataFrame:
    """Rows that a spawn wrote first and never completed."""
    rows, grace = tables["sessions"], timedelta(seconds=mapping.NO_SIGNAL_S)
    newest = newest_moment([rows.select("activity_last_at", "updated_at")])
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
