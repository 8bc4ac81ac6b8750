"""The features of Agent Orchestrator: axes of a record, ages of its log, its dashboard column."""

from __future__ import annotations

from types import MappingProxyType

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns, first_true
from stateanalytics.systems.agent_orchestrator.constants import (
    WatcherThresholds,
    watcher_audits,
    watcher_trigger,
)
from stateanalytics.systems.base import Features
from stateanalytics.systems.history import Past


def classify_web_attention(frame: FrameT) -> FrameT:
    """Add how much attention Agent Orchestrator's dashboard asks for.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``pr_state``, ``pr_reason`` (null: the record has no lifecycle),
        ``status`` (legacy word) and ``activity``.

    Returns
    -------
    The same kind of frame
        With ``web_attention``: done, merge, respond, review, pending or working.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``getAttentionLevel``, without the live details of a pull request.
    An approved pull request beats a stuck session: it is shown as merge. Where there is no
    lifecycle, the words of the status stand for those of the axes.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck", "stuck"],
    ...         "pr_state": ["open", "none"],
    ...         "pr_reason": ["approved", "not_created"],
    ...         "status": ["stuck", "stuck"],
    ...         "activity": ["idle", "idle"],
    ...     }
    ... )
    >>> classify_web_attention(frame)["web_attention"].to_list()
    ['merge', 'respond']
    """
    state, reason, status = nw.col("session_state"), nw.col("pr_reason"), nw.col("status")
    bare = state.is_null()
    levels = {
        "pending": reason.is_in(("review_pending", "closed_unmerged"))
        | (bare & (status == "review_pending")),
        "review": reason.is_in(("ci_failing", "changes_requested"))
        | (bare & status.is_in(("ci_failed", "changes_requested"))),
        "respond": state.is_in(("detecting", "needs_input", "stuck"))
        | (status == "errored")
        | (bare & status.is_in(("detecting", "needs_input", "stuck")))
        | nw.col("activity").is_in(("waiting_input", "blocked", "exited")),
        "merge": reason.is_in(("merge_ready", "approved"))
        | status.is_in(("mergeable", "approved")),
        "done": state.is_in(("done", "terminated"))
        | (nw.col("pr_state") == "merged")
        | (bare & status.is_in(("merged", "killed", "cleanup", "done", "terminated"))),
    }
    rules = ((levels[word].fill_null(False), word) for word in reversed(levels))
    level = {"web_attention": first_true(*rules, default="working")}
    names = ["session_state", "pr_state", "pr_reason", "status", "activity"]
    return add_columns(frame, names, "classify_web_attention", level)


_RECORD = (
    *("session_state", "session_reason", "pr_state", "pr_reason"),
    *("runtime_state", "runtime_reason", "is_ao_terminal", "detecting_attempts"),
    *("evidence_text", "n_recoveries"),
)
COLUMNS = MappingProxyType(
    {
        "generation": "of the storage: G0 to G2, G3 the Go rewrite",
        "session_state": "session axis: state",
        "session_reason": "session axis: reason",
        "pr_state": "pull request axis: state",
        "pr_reason": "pull request axis: reason",
        "runtime_state": "runtime axis: state",
        "runtime_reason": "runtime axis: reason",
        "is_ao_terminal": "its own isTerminal",
        "detecting_attempts": "polls in doubt in a row",
        "detecting_age_s": "since the first of them",
        "is_escalated": "was the doubt given up",
        "activity": "the agent's last activity word",
        "activity_age_s": "since the last activity of its agent",
        "report_state": "what its agent last reported",
        "report_age_s": "since it did",
        "watcher_trigger": "what the report watcher says",
        "web_attention": "the column of the dashboard",
        "merge_wait_s": "since it was merged, and waits for its agent to rest",
        "evidence_text": "what the last poll saw",
        "n_recoveries": "recoveries so far",
    }
)
LOST_OF = MappingProxyType(
    {
        **dict.fromkeys((*_RECORD, "detecting_age_s", "is_escalated", "merge_wait_s"), ("record",)),
        **dict.fromkeys(("report_state", "report_age_s"), ("report",)),
        "activity": ("activity",),
        "activity_age_s": ("activity",),
        "watcher_trigger": ("status", "report"),
        "web_attention": ("record",),
    }
)
_AT = r"\bat=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z"


def features() -> Features:
    """The columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features, lost_of=LOST_OF)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Sessions of Agent Orchestrator with the columns of `COLUMNS`.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.features.with_ages`.
    past : Past
        The facts at the instant.
    """
    records = past.facts.detail(frames.SESSIONS).filter(pl.col("is_current").fill_null(value=False))
    own = records.select(
        "source",
        "entity_id",
        "generation",
        *_RECORD,
        "legacy_status",
        "report_state",
        "report_at",
        "detecting_started_at",
        "merge_cleanup_since",
        is_escalated=pl.col("detecting_escalated_at").is_not_null(),
    ).unique(["source", "entity_id"], keep="last", maintain_order=True)
    joined = rows.join(own, on=["source", "entity_id"], how="left", maintain_order="left")
    with_words = joined.join(
        _last_words(past), on=["source", "entity_id"], how="left", maintain_order="left"
    )
    return _judged(with_words, past)


def _last_words(past: Past) -> pl.DataFrame:
    """Of each session the last activity word, by its log."""
    events = past.facts.events.filter(pl.col("system") == "agent_orchestrator").sort(
        "at", "seq", nulls_last=True
    )
    kind = pl.col("kind")
    # The agent's own log; `activity.transition` is what polls noticed, and later.
    is_activity = kind.str.starts_with("activity.") & (kind != "activity.transition")
    return events.group_by("source", "entity_id", maintain_order=True).agg(
        logged_activity=pl.col("name").filter(is_activity).last(),
        logged_activity_at=pl.col("at").filter(is_activity).last(),
    )


def _judged(sessions: pl.DataFrame, past: Past) -> pl.DataFrame:
    now = pl.lit(past.at)

    def age(moment: pl.Expr) -> pl.Expr:
        return (now - moment).dt.total_microseconds() / 1e6

    seen = pl.col("evidence_text")
    seen_at = seen.str.extract(_AT).str.to_datetime(
        time_zone="UTC", time_unit="us", strict=False, ambiguous="earliest"
    )
    aged = sessions.with_columns(
        report_age_s=age(pl.col("report_at")),
        activity=pl.when(seen_at >= pl.col("logged_activity_at").fill_null(seen_at))
        .then(seen.str.extract(r"\bactivity=(\w+)"))
        .otherwise("logged_activity"),
        activity_age_s=age(pl.max_horizontal(seen_at, "logged_activity_at")),
        # Without a log only what the last poll saw is known.
        lost_activity=pl.col("lost_record") & pl.col("logged_activity_at").is_null(),
        detecting_age_s=age(pl.col("detecting_started_at")),
        merge_wait_s=age(pl.col("merge_cleanup_since")),
        status=pl.coalesce("legacy_status", "status"),
    )
    watched = aged.with_columns(is_audited=watcher_audits(pl)).with_columns(
        watcher_trigger=watcher_trigger(pl, WatcherThresholds())
    )
    attended: pl.DataFrame = classify_web_attention(watched)
    return attended
