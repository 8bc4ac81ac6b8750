"""Agent Orchestrator's detectors: probes, doubt, silence, missing reports; and their columns."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import polars as pl

from stateanalytics.core.facts import Past
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import first_true
from stateanalytics.systems.agent_orchestrator.constants import (
    ACKNOWLEDGE_S,
    DETECTING_S,
    FRESH_S,
    READY_THRESHOLD_S,
    STALE_REPORT_S,
    STICKY_S,
    STUCK_THRESHOLD_S,
)
from stateanalytics.systems.agent_orchestrator.mapping import NO_SIGNAL_S, TERMINAL_STATUSES
from stateanalytics.systems.base import Features
from stateanalytics.systems.detector import Detector, catalogued

IS_OPEN = ~pl.col("status").is_in(TERMINAL_STATUSES).fill_null(value=False)
IS_TYPESCRIPT = pl.col("generation").ne_missing(pl.lit("G3"))
# An open pull request in one of these states decides before silence is looked at.
_REVIEWED = (
    *("ci_failing", "changes_requested", "approved", "merge_ready", "review_pending"),
    *("merged", "closed_unmerged"),
)
_state, _runtime = pl.col("session_state"), pl.col("runtime_state")

_FAMILY: dict[str, Any] = {"family": "agent_orchestrator", "system": "agent_orchestrator"}
_ALL = _FAMILY | {"scope": _state.is_not_null(), "scope_words": "all sessions"}
_OPEN = _FAMILY | {"scope": IS_OPEN & IS_TYPESCRIPT, "scope_words": "sessions that are not over"}
_PROBED = {"construct": "liveness", "question": "dead", "origin": "lifecycle manager"}


def agent_orchestrator() -> tuple[Detector, ...]:
    """The detectors of Agent Orchestrator, in the order of its catalogue."""
    return (*_probes(), *_silence(), *_reports(), *_rest(), *_rewrite())


def _listed(name: str, number: str, rule: str, why_not: str) -> Detector:
    """A detector of the catalogue that the data cannot evaluate."""
    return catalogued(name, known_as=number, rule=rule, why_not=why_not, **_FAMILY)


def _probes() -> tuple[Detector, ...]:
    """D1 to D5: by the results of the last probes."""
    words = _OPEN | _PROBED
    probed = words | {"scope": _runtime.is_not_null() & IS_OPEN}
    return (
        catalogued(
            "ao_runtime_probe",
            known_as="D1",
            is_chosen=False,
            fires=_runtime.is_in(("missing", "probe_failed")),
            label=_runtime,
            rule="the last probe did not find its terminal",
            **probed,
        ),
        catalogued(
            "ao_process_probe",
            known_as="D2",
            is_chosen=False,
            fires=_runtime == "exited",
            label="exited",
            rule="the last probe did not find its process",
            **probed,
        ),
        catalogued(
            "ao_detecting",
            known_as="D3",
            fires=pl.col("status") == "detecting",
            label="detecting",
            rule="its probes disagree",
            **words,
        ),
        catalogued(
            "ao_detecting_budget",
            known_as="D4",
            measures="detecting_age_s",
            threshold_s=DETECTING_S,
            also=pl.col("detecting_attempts") > 3,
            scope=pl.col("detecting_attempts").is_not_null() & IS_OPEN,
            scope_words="sessions in doubt",
            label="stuck",
            construct="count",
            question="stuck",
            rule="in doubt for more than three polls, or for five minutes",
            origin="lifecycle manager",
            **_FAMILY,
        ),
        catalogued(
            "ao_both_dead",
            known_as="D5",
            fires=(_state == "terminated") & (pl.col("session_reason") == "runtime_lost"),
            label="killed",
            rule="neither terminal nor process existed at one poll",
            **(_ALL | _PROBED),
        ),
    )


def _silence() -> tuple[Detector, ...]:
    """D6 to D11: by the activity in the agent's log."""
    logged = _OPEN | {"origin": "activity of the agent's log"}
    words = logged | {"measures": "activity_age_s", "construct": "silence", "question": "stale"}
    fresh_report = (pl.col("report_age_s") <= FRESH_S).fill_null(value=False)
    decided = pl.col("pr_reason").is_in(_REVIEWED).fill_null(value=False)
    waits = (pl.col("activity") == "waiting_input").fill_null(value=False)
    blocked = (pl.col("activity") == "blocked").fill_null(value=False)
    may_be_stuck = ~decided & ~fresh_report & ~waits
    stuck = {"label": "stuck", "question": "stuck", "page": "session list"}
    beyond = words | stuck | {"threshold_s": STUCK_THRESHOLD_S}
    return (
        catalogued(
            "ao_activity_stale",
            known_as="D6",
            is_chosen=False,
            threshold_s=FRESH_S,
            label="stale",
            rule="no activity for five minutes: too old to prove anything",
            **words,
        ),
        catalogued(
            "ao_activity_idle",
            known_as="D7",
            threshold_s=READY_THRESHOLD_S,
            when=~waits & ~blocked,
            label="idle",
            rule="no activity for five minutes (readyThresholdMs): idle",
            **words,
        ),
        catalogued(
            "ao_idle_stuck",
            known_as="D8",
            when=may_be_stuck & ~blocked,
            rule="idle for ten minutes, unless a pull request or a fresh report says more",
            **beyond,
        ),
        catalogued(
            "ao_blocked_stuck",
            known_as="D9",
            is_chosen=False,
            when=may_be_stuck & blocked,
            rule="blocked for ten minutes",
            **beyond,
        ),
        catalogued(
            "ao_waiting_input",
            known_as="D10",
            fires=waits,
            label="needs_input",
            question="waiting",
            rule="its agent waits for a person, however long ago it reported that",
            **logged,
        ),
        catalogued(
            "ao_call_decayed",
            known_as="D11",
            threshold_s=STICKY_S,
            when=waits | blocked,
            label="idle",
            until="2026-05-17",
            rule="a call for help older than five minutes was taken for idleness",
            **words,
        ),
    )


def _reports() -> tuple[Detector, ...]:
    """D12 to D15: by what the agent reports itself."""
    is_watched = pl.col("kind").ne_missing(pl.lit("orchestrator"))
    watched = _FAMILY | {
        "scope": IS_OPEN & IS_TYPESCRIPT & is_watched,
        "population": is_watched,
        "scope_words": "open sessions, without orchestrators",
        "origin": "report watcher",
    }
    state = pl.col("report_state")
    silent = {"construct": "silence", "question": "stale", "restarts_on": "report"}
    return (
        catalogued(
            "ao_report_ignored",
            known_as="D12",
            is_chosen=False,
            measures="report_age_s",
            threshold_s=FRESH_S,
            scope=IS_OPEN & IS_TYPESCRIPT & state.is_not_null(),
            scope_words="sessions that ever reported",
            label="ignored",
            origin="agent report",
            rule="its last report is older than five minutes, and does not count any more",
            **(_FAMILY | silent),
        ),
        catalogued(
            "ao_no_acknowledge",
            known_as="D13",
            measures="created_age_s",
            comparison=">=",
            threshold_s=ACKNOWLEDGE_S,
            when=state.is_null(),
            label="no_acknowledge",
            question="attention",
            rule="created ten minutes ago, and never reported; a restore does not restart it",
            **watched,
        ),
        catalogued(
            "ao_stale_report",
            known_as="D14",
            measures="report_age_s",
            comparison=">=",
            threshold_s=STALE_REPORT_S,
            when=~state.is_in(("waiting", "needs_input")),
            label="stale_report",
            page="session list",
            rule="its last report is half an hour old, though it may be in review, or done",
            **(watched | silent),
        ),
        catalogued(
            "ao_agent_needs_input",
            known_as="D15",
            fires=(state == "needs_input").fill_null(value=False),
            label="agent_needs_input",
            question="waiting",
            rule="its last report asked for input, however long ago",
            **watched,
        ),
    )


def _rest() -> tuple[Detector, ...]:
    """D16 to D22: the other rules of the TypeScript versions."""
    web = pl.col("web_attention")
    return (
        _listed(
            "ao_list_latch",
            "D16",
            "one failed probe while sessions are listed: terminated (until 2026-05-15)",
            "of its probes only the verdict is kept, and D5 writes the same one",
        ),
        catalogued(
            "ao_is_terminal",
            known_as="D17",
            is_chosen=False,
            fires=pl.col("is_ao_terminal") & ~_state.is_in(("done", "terminated")),
            label="terminal",
            question="dead",
            origin="isTerminal",
            rule="its runtime no longer exists, so it counts as ended, though its session is open",
            **_ALL,
        ),
        _listed(
            "ao_recovery",
            "D18",
            "sorts sessions into live, dead, partial and unrecoverable at a restart",
            "its probes are made at the restart and not kept",
        ),
        catalogued(
            "ao_web_attention",
            known_as="D19",
            fires=web.is_in(("respond", "review")),
            label=web,
            page="dashboard",
            origin="getAttentionLevel",
            rule="stuck, in doubt, asking, failing checks or in need of changes",
            **(_ALL | {"scope": web.is_not_null()}),
        ),
        catalogued(
            "ao_merge_cleanup",
            known_as="D20",
            is_chosen=False,
            measures="merge_wait_s",
            comparison=">=",
            threshold_s=300.0,
            scope=pl.col("merge_wait_s").is_not_null(),
            scope_words="merged sessions whose agent is busy",
            label="cleanup forced",
            construct="elapsed",
            question="overdue",
            origin="lifecycle manager",
            rule="merged five minutes ago, and closed though its agent is busy",
            **_FAMILY,
        ),
        _listed(
            "ao_reaction_escalation",
            "D21",
            "a reaction was tried too often, or for too long",
            "its attempts are counted in memory",
        ),
        _listed(
            "ao_process_indeterminate",
            "D22",
            "a probe timed out: the poll is skipped, and nothing is said",
            "it gives no verdict; its events are in snap.events",
        ),
    )


def _rewrite() -> tuple[Detector, ...]:
    """D23 to D25: those of the Go rewrite."""
    return (
        _listed(
            "ao_go_reaper",
            "D23",
            "its runtime is dead, and it was silent for 60 s",
            "it asks the runtime; of that the database keeps the verdict only",
        ),
        catalogued(
            "ao_go_no_signal",
            known_as="D24",
            fires=pl.col("status") == "no_signal",
            scope=(pl.col("generation") == "G3") & IS_OPEN,
            scope_words="sessions of the Go rewrite that are not over",
            label="no_signal",
            construct="silence",
            question="stale",
            origin="derived on every read",
            since="the Go rewrite",
            rule=f"its harness has hooks, and never signalled within {NO_SIGNAL_S:g} s",
            **_FAMILY,
        ),
        _listed(
            "ao_go_observer",
            "D25",
            "activity older than two minutes is read again",
            "it corrects the stored word, and the old value is lost",
        ),
    )


# --- the columns that these detectors read -----------------------------------------------


def web_attention() -> pl.Expr:
    """Attention that Agent Orchestrator's dashboard asks for, from done to working.

    Notes
    -----
    Agent Orchestrator's ``getAttentionLevel``, without the live details of a pull request.
    An approved pull request beats a stuck session: it is shown as merge. Where there is no
    lifecycle (``session_state`` is null), the words of the status stand for those of the axes.

    Examples
    --------
    >>> words = {"session_state": ["stuck"] * 2, "pr_state": ["open", "none"]}
    >>> words |= {"pr_reason": ["approved", "not_created"]}
    >>> sessions = pl.DataFrame({**words, "status": ["stuck"] * 2, "activity": ["idle"] * 2})
    >>> sessions.select(web_attention()).to_series().to_list()
    ['merge', 'respond']
    """
    state, reason, status = pl.col("session_state"), pl.col("pr_reason"), pl.col("status")
    is_bare = state.is_null()
    is_over = (
        state.is_in(("done", "terminated"))
        | (pl.col("pr_state") == "merged")
        | (is_bare & status.is_in(("merged", "killed", "cleanup", "done", "terminated")))
    )
    is_mergeable = reason.is_in(("merge_ready", "approved")) | status.is_in(
        ("mergeable", "approved")
    )
    asks = ("detecting", "needs_input", "stuck")
    needs_response = (
        state.is_in(asks)
        | (status == "errored")
        | (is_bare & status.is_in(asks))
        | pl.col("activity").is_in(("waiting_input", "blocked", "exited"))
    )
    needs_review = reason.is_in(("ci_failing", "changes_requested")) | (
        is_bare & status.is_in(("ci_failed", "changes_requested"))
    )
    is_pending = reason.is_in(("review_pending", "closed_unmerged")) | (
        is_bare & (status == "review_pending")
    )
    return first_true(
        (is_over, "done"),
        (is_mergeable, "merge"),
        (needs_response, "respond"),
        (needs_review, "review"),
        (is_pending, "pending"),
        default="working",
    )


def is_watched() -> pl.Expr:
    """Does the report watcher look at a session."""
    is_exempt = pl.col("status").is_in(TERMINAL_STATUSES) | (pl.col("kind") == "orchestrator")
    return ~is_exempt.fill_null(value=False)


def watcher_trigger() -> pl.Expr:
    """Trigger of the report watcher, null where it is content or does not watch."""
    state = pl.col("report_state")
    is_silent = state.is_null() & (pl.col("created_age_s") >= ACKNOWLEDGE_S)
    is_stale = ~state.is_in(_NEVER_STALE) & (pl.col("report_age_s") >= STALE_REPORT_S)
    return first_true(
        (is_watched() & (state == "needs_input"), "agent_needs_input"),
        (is_watched() & is_silent, "no_acknowledge"),
        (is_watched() & is_stale, "stale_report"),
    )


_NEVER_STALE = ("waiting", "needs_input")

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
        "watcher_trigger": "trigger of the report watcher",
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
    """Columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features, lost_of=LOST_OF)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Sessions of Agent Orchestrator with the columns of `COLUMNS`.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.detections.with_ages`.
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
    with_activity = joined.join(
        _last_activities(past), on=["source", "entity_id"], how="left", maintain_order="left"
    )
    return _judged(with_activity, past)


def _last_activities(past: Past) -> pl.DataFrame:
    """Last activity word of each session, by its log."""
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
        # Without a log only the evidence of the last poll is known.
        lost_activity=pl.col("lost_record") & pl.col("logged_activity_at").is_null(),
        detecting_age_s=age(pl.col("detecting_started_at")),
        merge_wait_s=age(pl.col("merge_cleanup_since")),
        status=pl.coalesce("legacy_status", "status"),
    )
    return aged.with_columns(watcher_trigger=watcher_trigger(), web_attention=web_attention())
