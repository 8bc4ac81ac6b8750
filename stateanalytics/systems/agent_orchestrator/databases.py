"""The two databases: activity events beside the JSON records, and all that the Go rewrite keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.sqlite import INTEGER, JSON, TEXT, YES_NO, Cell, Store, read_table
from stateanalytics.systems.agent_orchestrator.logs import ALIVE
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.agent_orchestrator.statuses import (
    classify_go_pull_requests,
    derive_go_status,
)
from stateanalytics.systems.agent_orchestrator.stored_values import (
    moment,
    stored_moment,
    unreadable_times,
)

EVENTS_TABLE = "activity_events"
GO_TABLES = ("sessions", "pr", "change_log")
HOOKED = ("claude-code", "codex")
"""Harnesses of the Go rewrite that signal by themselves, so that their silence says something."""

_DETAIL = 500
_EVENTS: Mapping[str, Cell] = {
    "id": INTEGER,
    "ts_epoch": INTEGER,
    "ts": TEXT,
    **dict.fromkeys(("project_id", "session_id", "source", "type", "log_level", "summary"), TEXT),
    "data": JSON,
}
_SESSIONS: Mapping[str, Cell] = {
    **dict.fromkeys(
        (
            "id", "project_id", "kind", "harness", "activity_state", "activity_last_at",
            "first_signal_at", "branch", "workspace_path", "runtime_handle_id",
            "agent_session_id", "created_at", "updated_at", "display_name", "issue_id", "model",
        ),
        TEXT,
    ),
    "is_terminated": YES_NO,
}  # fmt: skip
_PULL_REQUESTS: Mapping[str, Cell] = {
    **dict.fromkeys(
        ("url", "session_id", "pr_state", "review_decision", "ci_state", "mergeability", "title"),
        TEXT,
    ),
    "number": INTEGER,
    **dict.fromkeys(("additions", "deletions"), INTEGER),
    "updated_at": TEXT,
}
_COMMENTS: Mapping[str, Cell] = {"pr_url": TEXT, "resolved": YES_NO, "is_bot": YES_NO}
_CHANGES: Mapping[str, Cell] = {
    "seq": INTEGER,
    **dict.fromkeys(("project_id", "session_id", "event_type", "created_at"), TEXT),
    "payload": JSON,
}


def recognises(store: Store) -> bool:
    """Is this store one of Agent Orchestrator's two."""
    return EVENTS_TABLE in store.tables or is_go(store)


def is_go(store: Store) -> bool:
    """Is it the database of the Go rewrite, whichever of its tables hold rows."""
    return set(GO_TABLES) <= set(store.tables)


def read_activity_events(store: Store, *, bodies: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Activity events as entries of a log, and what was wrong with their cells.

    Parameters
    ----------
    store : Store
        With the table ``activity_events``; any other gives no rows.
    bodies : bool
        Whether to keep the ``data`` of each event.

    Returns
    -------
    entries : polars.DataFrame
        In the shape of `logs.read_logs`, without the columns that no event has.
    findings : polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    rows, findings = read_table(store, EVENTS_TABLE, _EVENTS, system=SYSTEM)
    is_status = pl.col("type") == "lifecycle.transition"
    is_seen = pl.col("type") == "activity.transition"
    entries = rows.select(
        log=pl.lit("event"),
        project="project_id",
        session_id="session_id",
        at=pl.coalesce(moment(pl.col("ts_epoch")), stored_moment("ts")),
        kind="type",
        previous=pl.when(is_status).then(_fact("from")),
        status=pl.when(is_status).then(_fact("to")),
        code=pl.coalesce(_fact("reason"), _fact("cause"), _fact("trigger")),
        name=pl.coalesce(_fact("reactionKey"), _fact("to"), _fact("agent")),
        role="source",
        detail=pl.col("summary").str.slice(0, _DETAIL),
        level="log_level",
        is_activity=(is_seen & _fact("to").is_in(ALIVE))
        .fill_null(value=False)
        .replace_strict({True: "true", False: "false"}, return_dtype=pl.String),
        duration_ms=_fact("durationMs"),
        size=pl.col("data").str.len_bytes().cast(pl.String),
        body=pl.when(bodies).then("data"),
        seq="id",
    )
    # The number is what the store sorts by; its text counts only where there is no number.
    texts = rows.filter(pl.col("ts_epoch").is_null())
    unreadable = unreadable_times(texts, store.label, EVENTS_TABLE, {"ts": pl.col("ts")})
    return entries, pl.concat([findings, unreadable])


def _fact(key: str) -> pl.Expr:
    return pl.col("data").str.json_path_match(f"$.{key}")


def read_go_sessions(store: Store, *, path: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sessions of the Go rewrite as records, with the status that it derives on every read.

    Parameters
    ----------
    store : Store
        With the tables `GO_TABLES`; any other gives no rows.
    path : str
        How the database is called below the input.

    Returns
    -------
    sessions : polars.DataFrame
        Columns of `frames.SESSIONS`, one row a session.
    findings : polars.DataFrame
        In the shape of `schema.FINDINGS`.

    Notes
    -----
    It stores neither reasons nor the time of an end. Its one clock rule (no signal for 90
    seconds after the start) is judged at the newest moment in the database.
    """
    rows, wrong = read_table(store, "sessions", _SESSIONS, system=SYSTEM)
    pulls, odd = read_table(store, "pr", _PULL_REQUESTS, system=SYSTEM)
    comments, strange = read_table(store, "pr_comment", _COMMENTS, system=SYSTEM)
    times = ("activity_last_at", "first_signal_at", "created_at", "updated_at")
    findings = pl.concat([wrong, odd, strange, _unreadable(rows, store, "sessions", times)])
    timed = rows.with_columns(**{name: go_moment(pl.col(name)) for name in times})
    newest = timed.select(pl.max_horizontal(pl.col("activity_last_at", "updated_at").max())).item()
    joined = timed.join(
        _of_session(pulls, comments),
        left_on="id",
        right_on="session_id",
        how="left",
        maintain_order="left",
    )
    aged = joined.with_columns(
        activity_age_s=(
            pl.lit(newest, schema.MOMENT) - pl.col("activity_last_at")
        ).dt.total_seconds(fractional=True),
        has_hooks=pl.col("harness").is_in(HOOKED).fill_null(value=False),
        has_signal=pl.col("first_signal_at").is_not_null(),
        is_terminated=pl.col("is_terminated").fill_null(value=False),
        has_merged_pr=pl.col("has_merged_pr").fill_null(value=False),
    )
    derived = derive_go_status(aged)
    is_merged = pl.col("has_merged_pr")
    sessions = derived.select(
        *("kind", "created_at", "activity_last_at", "first_signal_at"),
        *("branch", "model", "agent_session_id"),
        pl.col("n_prs").fill_null(0),
        path=pl.format("{}#{}", pl.lit(path), "id"),
        session_id="id",
        layout=pl.lit("database"),
        generation=pl.lit("G3"),
        directory=pl.lit(""),
        project="project_id",
        is_migrated_original=pl.lit(value=False),
        is_readable=pl.lit(value=True),
        legacy_status="status",
        ao_status="status",
        is_ao_terminal=pl.col("is_terminated") | is_merged,
        started_at="created_at",
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
        name=pl.coalesce("display_name", "issue_id"),
        tmux_name="runtime_handle_id",
        is_synthesized=pl.lit(value=False),
    )
    return sessions, findings


def _of_session(pulls: pl.DataFrame, comments: pl.DataFrame) -> pl.DataFrame:
    """What the pull requests of each session say together: the worst open one speaks."""
    # What a bot remarks waits for nobody; earlier versions do not say who is one.
    open_comments = (
        comments.filter(~pl.any_horizontal(pl.col("resolved", "is_bot").fill_null(value=False)))
        .group_by("pr_url")
        .agg(n_unresolved_comments=pl.len().cast(pl.Int64))
    )
    known = pulls.join(
        open_comments, left_on="url", right_on="pr_url", how="left", maintain_order="left"
    ).with_columns(pl.col("n_unresolved_comments").fill_null(0))
    judged = classify_go_pull_requests(known).sort("session_id", "pr_rank", "url", nulls_last=True)
    return judged.group_by("session_id", maintain_order=True).agg(
        pl.first(
            "url", "number", "title", "ci_state", "review_decision", "mergeability",
            "additions", "deletions", "n_unresolved_comments",
        ),
        has_merged_pr=(pl.col("pr_state") == "merged").any(),
        worst_pr_status=pl.when(pl.col("pr_rank").first().is_not_null()).then(
            pl.col("pr_status").first()
        ),
        n_prs=pl.len().cast(pl.Int64),
    )  # fmt: skip


def read_go_changes(store: Store, *, bodies: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The change log of the Go rewrite as entries of a log, and what was wrong with it."""
    rows, findings = read_table(store, "change_log", _CHANGES, system=SYSTEM)
    stood = _go_statuses(rows)
    entries = rows.join(stood, on="seq", how="left", maintain_order="left").select(
        *("decided_status", "evidence_text"),
        log=pl.lit("change"),
        project="project_id",
        session_id="session_id",
        at=go_moment(pl.col("created_at")),
        kind=pl.format("change.{}", "event_type"),
        name=pl.col("payload").str.json_path_match("$.activity_state"),
        is_activity=pl.lit("false"),
        size=pl.col("payload").str.len_bytes().cast(pl.String),
        body=pl.when(bodies).then("payload"),
        seq="seq",
    )
    unreadable = _unreadable(rows, store, "change_log", ("created_at",))
    return entries, pl.concat([findings, unreadable])


def _go_statuses(changes: pl.DataFrame) -> pl.DataFrame:
    """The status of a session after each change of it or of its pull requests, by ``seq``.

    No change holds the values of before, nor those of the other table, so that each stands
    until the next change of its own. A message or a turn copies the session's activity as
    it was whenever, which is no change.
    """

    def said(key: str) -> pl.Expr:
        return pl.col("payload").str.json_path_match(f"$.{key}")

    kind, order = pl.col("event_type"), ("at", "seq")
    of_session = kind.is_in(("session_created", "session_updated")) & said("sessionId").is_null()
    of_pull = kind.is_in(("pr_created", "pr_updated"))
    of_thread = kind.is_in(("pr_review_thread_added", "pr_review_thread_resolved"))
    of_a_person = said("isBot").is_null() | (said("isBot") == "false")
    lines = (
        changes.select(
            *("seq", "session_id"),
            at=go_moment(pl.col("created_at")),
            activity_state=pl.when(of_session).then(said("activity")),
            is_terminated=pl.when(of_session).then(said("isTerminated") == "true"),
            url=pl.when(of_pull).then(said("url")).when(of_thread).then(said("pr")),
            thread=pl.when(of_thread).then(said("thread")),
            is_unresolved=pl.when(of_thread).then(
                ((said("resolved") == "false") & of_a_person).cast(pl.Int64)
            ),
            pr_state=pl.when(of_pull).then(said("state")),
            ci_state=pl.when(of_pull).then(said("ci")),
            review_decision=pl.when(of_pull).then(said("review")),
            mergeability=pl.when(of_pull).then(said("mergeability")),
        )
        .filter(pl.any_horizontal(pl.col("activity_state", "url").is_not_null()))
        .sort(order)
    )
    was_unresolved = pl.col("is_unresolved").shift().over("url", "thread").fill_null(0)
    threads = lines.with_columns(
        n_unresolved_comments=(pl.col("is_unresolved") - was_unresolved).cum_sum().over("url")
    )
    facts = ("pr_state", "ci_state", "review_decision", "mergeability", "n_unresolved_comments")
    pulls = threads.filter(pl.col("url").is_not_null()).select("session_id", "url", "seq", *facts)
    each = lines.select("session_id", *order).join(
        pulls.select("session_id", "url").unique(), on="session_id"
    )
    filled = (
        each.join(pulls, on=["session_id", "url", "seq"], how="left")
        .sort(order)
        .with_columns(pl.col(facts).forward_fill().over("session_id", "url"))
        .filter(pl.col("pr_state").is_not_null())
        .with_columns(pl.col("n_unresolved_comments").fill_null(0))
    )
    ranked = classify_go_pull_requests(filled).sort("seq", "pr_rank", nulls_last=True)
    together = ranked.group_by("seq", maintain_order=True).agg(
        has_merged_pr=(pl.col("pr_state") == "merged").any(),
        worst_pr_status=pl.col("pr_status").filter(pl.col("pr_rank").is_not_null()).first(),
    )
    known = (
        lines.select("session_id", *order, "activity_state", "is_terminated")
        .with_columns(pl.col("activity_state", "is_terminated").forward_fill().over("session_id"))
        .filter(pl.col("activity_state").is_not_null())
        .join(together, on="seq", how="left")
        .with_columns(
            pl.col("has_merged_pr").fill_null(value=False),
            activity_age_s=pl.lit(0.0),
            has_hooks=pl.lit(value=False),
            has_signal=pl.lit(value=False),
        )
    )
    return derive_go_status(known).select(
        "seq",
        decided_status="status",
        evidence_text=pl.format("activity={}", "activity_state"),
    )


def _unreadable(
    rows: pl.DataFrame, store: Store, table: str, columns: Sequence[str]
) -> pl.DataFrame:
    texts = {name: pl.col(name).cast(pl.String) for name in columns}
    return unreadable_times(rows, store.label, table, texts, go_moment)


def go_moment(text: pl.Expr) -> pl.Expr:
    """A moment as Go's drivers write it: with the name of its zone, or as an epoch number."""
    # The offset counts; the zone's name and the reading of a monotonic clock say no more.
    written = text.cast(pl.String).str.replace(r" ([+-][0-9]{4})(?: .*)?$", "$1")
    number = text.cast(pl.String).str.extract(r"^(\d+)$").cast(pl.Int64, strict=False)
    epoch_ms = pl.when(number > 10**11).then(number).otherwise(number * 1000)
    return pl.coalesce(moment(epoch_ms), stored_moment(written))
