"""Agent Orchestrator's detectors and thresholds, and the durations that judge them."""

from __future__ import annotations

from functools import cache

import polars as pl

from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.joins import left_joined
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import first_true
from stateanalytics.systems.agent_orchestrator.mapping import NO_SIGNAL_S, TERMINAL_STATUSES
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.base import Detecting, features_from_csv, today_s_of
from stateanalytics.systems.detector import Detector, catalogue

_TODAY_S = today_s_of(__package__)

STUCK_THRESHOLD_S = _TODAY_S["ao.stuck"]
"""``reactions.agent-stuck.threshold`` by default: idle for longer means stuck."""
FRESH_S = _TODAY_S["ao.fresh"]
"""Up to this age a sign of activity counts, then it is stale."""
READY_THRESHOLD_S = _TODAY_S["ao.ready"]
"""Up to this age an entry of an agent's log means ready (``readyThresholdMs``), then idle."""
STICKY_S = 300.0
"""How long a waiting or blocked entry counted before it became sticky (17 May 2026)."""
ACKNOWLEDGE_S = _TODAY_S["ao.acknowledge"]
"""Age of a session without a report at which the report watcher speaks up."""
STALE_REPORT_S = _TODAY_S["ao.report"]
"""Age of the last report at which the report watcher speaks up."""
DETECTING_S = _TODAY_S["ao.detecting.duration"]
"""How long probes may disagree (``DETECTING_MAX_DURATION_MS``) before a session is stuck."""


_SESSIONS = {"system": SYSTEM, "entity_type": "session"}
# Statuses while the end is in doubt, and of sessions that are over for good.
_UNSURE = ("detecting", "stuck")
_OVER = ("killed", "terminated", "errored", "done", "cleanup", "exited")


def detecting_episodes(snap: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """How long Agent Orchestrator's sessions stayed in doubt, and whether they recovered.

    Notes
    -----
    An episode begins when a session enters ``detecting`` and ends with the first word
    that is neither that nor ``stuck``: today's budget only renames the doubt, so it does
    not cut the episode off. It is good where the session went on.
    """
    unsure = pl.col("status").is_in(_UNSURE)
    key = ["source", "entity_id"]
    rows = (
        snap.transitions.filter(pl.col("at") <= snap.as_of, **_SESSIONS)
        .sort(*key, "at", "seq")
        .with_columns(
            left_at=pl.when(~unsure).then("at").shift(-1).backward_fill().over(key),
            left_for=pl.when(~unsure).then("status").shift(-1).backward_fill().over(key),
            is_first=~unsure.shift(1, fill_value=False).over(key),
        )
        .filter((pl.col("status") == "detecting") & pl.col("is_first"))
    )
    return _elapsed(
        rows.join(_kinds(snap), on=key, how="left"),
        snap,
        start="at",
        end="left_at",
        is_good=~pl.col("left_for").is_in(_OVER),
    )


def first_reports(snap: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """How long until an agent first reported; good where it did before it ended."""
    key = ["source", "entity_id"]
    first = _reports(snap).group_by(key).agg(reported_at=pl.col("at").min())
    sessions = snap.entities.filter(kind="worker", **_SESSIONS).join(first, on=key, how="left")
    return _elapsed(
        sessions.with_columns(seen_at=pl.coalesce("reported_at", "ended_at")),
        snap,
        start="created_at",
        end="seen_at",
        is_good=pl.col("reported_at").is_not_null(),
    )


def report_silences(snap: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences between an agent's reports; those after the last reveal a death only."""
    key = ["source", "entity_id"]
    dead = gaps.filter("is_dead").select(key).unique()
    reported = _reports(snap).sort(*key, "at").select(*key, "at")
    between = reported.with_columns(
        gap_s=_seconds(pl.col("at").shift(-1).over(key) - pl.col("at"))
    ).join(dead.with_columns(died=pl.lit(True)), on=key, how="left")
    is_last, died = pl.col("gap_s").is_null(), pl.col("died").fill_null(False)
    return between.join(_kinds(snap), on=key, how="left").select(
        _unit(*key),
        system=pl.lit(SYSTEM),
        kind="kind",
        gap_s=pl.col("gap_s").fill_null(0.0),
        closed_by=pl.when(~is_last)
        .then(pl.lit("sign_of_life"))
        .when(died)
        .then(pl.lit("death"))
        .otherwise(pl.lit("as_of")),
        is_dead=is_last & died,
    )


def _reports(snap: Facts) -> pl.DataFrame:
    return snap.events.filter(
        pl.col("kind").str.starts_with("report."),
        pl.col("kind") != "report.rejected",
        pl.col("at") <= snap.as_of,
        **_SESSIONS,
    )


def _kinds(snap: Facts) -> pl.DataFrame:
    return (
        snap.entities.filter(pl.col("entity_type") == "session")
        .select("source", "entity_id", "kind")
        .unique(subset=["source", "entity_id"], keep="first", maintain_order=True)
    )


def _elapsed(
    rows: pl.DataFrame, snap: Facts, *, start: str, end: str, is_good: pl.Expr
) -> pl.DataFrame:
    """Rows as `thresholds.evidence.RUNS`: cut off at as-of, without impossible ones."""
    ended = pl.col(end).is_not_null() & (pl.col(end) <= snap.as_of)
    until = pl.when(ended).then(end).otherwise(pl.lit(snap.as_of))
    return rows.select(
        _unit("source", "entity_id"),
        "system",
        "kind",
        duration_s=_seconds(until - pl.col(start)),
        ended=ended,
        is_good=is_good,
        timeout_s=pl.lit(None, dtype=pl.Float64),
    ).filter(pl.col("duration_s") >= 0)


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")


def _seconds(how_long: pl.Expr) -> pl.Expr:
    return how_long.dt.total_microseconds() / 1e6


IS_OPEN = ~pl.col("status").is_in(TERMINAL_STATUSES).fill_null(value=False)
IS_TYPESCRIPT = pl.col("generation").ne_missing(pl.lit("G3"))
# An open pull request in one of these states decides before silence is looked at.
_REVIEWED = (
    *("ci_failing", "changes_requested", "approved", "merge_ready", "review_pending"),
    *("merged", "closed_unmerged"),
)


def agent_orchestrator() -> tuple[Detector, ...]:
    """The detectors of Agent Orchestrator; their words are ``data/detectors.csv``.

    D1 to D5 go by the last probes, D6 to D11 by the activity in the agent's log, D12 to D15
    by what the agent reports itself, D23 to D25 are those of the Go rewrite.
    """
    state, runtime, report = (
        pl.col(name) for name in ("session_state", "runtime_state", "report_state")
    )
    every, is_open = {"scope": state.is_not_null()}, {"scope": IS_OPEN & IS_TYPESCRIPT}
    probed = {"scope": runtime.is_not_null() & IS_OPEN}
    fresh_report = (pl.col("report_age_s") <= FRESH_S).fill_null(value=False)
    decided = pl.col("pr_reason").is_in(_REVIEWED).fill_null(value=False)
    waits, blocked = (
        (pl.col("activity") == word).fill_null(value=False) for word in ("waiting_input", "blocked")
    )
    may_be_stuck = ~decided & ~fresh_report & ~waits
    beyond = is_open | {"threshold_s": STUCK_THRESHOLD_S}
    no_boss = pl.col("kind").ne_missing(pl.lit("orchestrator"))
    watched = {"scope": IS_OPEN & IS_TYPESCRIPT & no_boss, "population": no_boss}
    merge_wait, web = pl.col("merge_wait_s"), pl.col("web_attention")
    return catalogue(
        __package__,
        {
            "ao_runtime_probe": probed
            | {"fires": runtime.is_in(("missing", "probe_failed")), "label": runtime},
            "ao_process_probe": probed | {"fires": runtime == "exited"},
            "ao_detecting": is_open | {"fires": pl.col("status") == "detecting"},
            "ao_detecting_budget": {
                "threshold_s": DETECTING_S,
                "also": pl.col("detecting_attempts") > 3,
                "scope": pl.col("detecting_attempts").is_not_null() & IS_OPEN,
            },
            "ao_both_dead": every
            | {"fires": (state == "terminated") & (pl.col("session_reason") == "runtime_lost")},
            "ao_activity_stale": is_open | {"threshold_s": FRESH_S},
            "ao_activity_idle": is_open
            | {"threshold_s": READY_THRESHOLD_S, "when": ~waits & ~blocked},
            "ao_idle_stuck": beyond | {"when": may_be_stuck & ~blocked},
            "ao_blocked_stuck": beyond | {"when": may_be_stuck & blocked},
            "ao_waiting_input": is_open | {"fires": waits},
            "ao_call_decayed": is_open | {"threshold_s": STICKY_S, "when": waits | blocked},
            "ao_report_ignored": {
                "threshold_s": FRESH_S,
                "scope": IS_OPEN & IS_TYPESCRIPT & report.is_not_null(),
            },
            "ao_no_acknowledge": watched | {"threshold_s": ACKNOWLEDGE_S, "when": report.is_null()},
            "ao_stale_report": watched
            | {"threshold_s": STALE_REPORT_S, "when": ~report.is_in(("waiting", "needs_input"))},
            "ao_agent_needs_input": watched
            | {"fires": (report == "needs_input").fill_null(value=False)},
            "ao_is_terminal": every
            | {"fires": pl.col("is_ao_terminal") & ~state.is_in(("done", "terminated"))},
            "ao_web_attention": {
                "fires": web.is_in(("respond", "review")),
                "label": web,
                "scope": web.is_not_null(),
            },
            "ao_merge_cleanup": {"threshold_s": 300.0, "scope": merge_wait.is_not_null()},
            "ao_go_no_signal": {
                "fires": pl.col("status") == "no_signal",
                "scope": (pl.col("generation") == "G3") & IS_OPEN,
                "rule": f"its harness has hooks, and never signalled within {NO_SIGNAL_S:g} s",
            },
        },
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
    *("evidence_text", "n_recoveries", "generation", "legacy_status"),
    *("report_state", "report_at", "detecting_started_at", "merge_cleanup_since"),
)
_AT = r"\bat=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z"


@cache
def detecting() -> Detecting:
    """The detectors, and the columns that only they read."""
    return Detecting(
        detectors=agent_orchestrator(),
        releases=("2026-05-15", "2026-05-17", "the Go rewrite"),
        features=features_from_csv(__package__, add_features),
    )


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Sessions of Agent Orchestrator with the columns of ``data/features.csv``.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.detections.with_ages`.
    past : Past
        The facts at the instant.
    """
    records = past.facts.detail(frames.SESSIONS).filter(pl.col("is_current").fill_null(value=False))
    own = records.select(
        "source", "entity_id", *_RECORD, is_escalated=pl.col("detecting_escalated_at").is_not_null()
    ).unique(["source", "entity_id"], keep="last", maintain_order=True)
    joined = rows.join(own, on=["source", "entity_id"], how="left", maintain_order="left")
    with_activity = left_joined(joined, _last_activities(past), on=["source", "entity_id"])
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
