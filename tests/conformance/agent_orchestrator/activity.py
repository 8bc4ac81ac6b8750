"""What an agent's activity says: its signal, its strength, its words as evidence."""

from __future__ import annotations

from typing import NamedTuple

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    add_columns,
    choose,
    need,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.constants import (
    FRESH_S,
    READY_THRESHOLD_S,
    STICKY_S,
)
from stateanalytics.systems.agent_orchestrator.words import VERSIONS, Version
from tests.conformance.agent_orchestrator.javascript_dates import iso_text, milliseconds

STRONG_S = 60.0
"""Up to this age a timestamp is strong."""
ACTIVE_WINDOW_S = 30.0
"""Up to this age the last entry of an agent's log means active."""

_AT_REST = ("idle", "blocked")
_AT_WORK = ("active", "ready")


class Signal(NamedTuple):
    """An activity signal, as expressions over one frame."""

    state: pl.Expr
    detail: pl.Expr
    freshness: pl.Expr
    is_idle_evidence: pl.Expr
    is_liveness_evidence: pl.Expr
    is_weak_evidence: pl.Expr
    evidence: pl.Expr


def signal_of(
    detection: pl.Expr, activity: pl.Expr, source: pl.Expr, at_ms: pl.Expr, now_ms: pl.Expr
) -> Signal:
    """Classify one detection of activity.

    Parameters
    ----------
    detection : polars.Expr of String
        ``detected``, ``null`` (nothing found), ``unavailable`` (not looked for) or
        ``probe_failure`` (looking failed).
    activity, source : polars.Expr of String
        The detected word, and where it is from: native, terminal, runtime, hook, none.
    at_ms, now_ms : polars.Expr of Int64
        When it was, and the clock, as milliseconds since the epoch.

    Returns
    -------
    Signal
        Expressions; none of the Booleans is ever null.

    Notes
    -----
    Agent Orchestrator's ``classifyActivitySignal`` and ``formatActivitySignalEvidence``.
    A moment in the future has age 0.
    """
    is_detected = detection == "detected"
    at = pl.when(is_detected).then(at_ms)
    age_s = (now_ms - at).clip(lower_bound=0) / 1000
    is_at_rest = (is_detected & activity.is_in(_AT_REST)).fill_null(False)
    is_at_work = (is_detected & activity.is_in(_AT_WORK)).fill_null(False)
    is_undated = is_at_rest & at.is_null()
    is_outdated = is_at_work & (age_s > FRESH_S).fill_null(False)
    word = pl.when(is_undated | is_outdated).then(pl.lit("stale")).otherwise(pl.lit("valid"))
    state = pl.when(is_detected).then(word).otherwise(detection)
    detail = (
        pl.when(is_undated)
        .then(pl.lit("missing_timestamp"))
        .when(is_outdated)
        .then(pl.lit("stale_timestamp"))
    )
    return Signal(
        state=state,
        detail=detail,
        freshness=_freshness(age_s),
        is_idle_evidence=is_at_rest & at.is_not_null(),
        is_liveness_evidence=is_at_work & at.is_not_null() & ~is_outdated,
        is_weak_evidence=(state != "valid").fill_null(True),
        evidence=_evidence(state, detail, pl.when(is_detected).then(activity), source, at),
    )


def _freshness(age_s: pl.Expr) -> pl.Expr:
    return (
        pl.when(age_s.is_null())
        .then(pl.lit("none"))
        .when(age_s <= STRONG_S)
        .then(pl.lit("strong"))
        .when(age_s <= FRESH_S)
        .then(pl.lit("weak"))
        .otherwise(pl.lit("stale"))
    )


def _evidence(
    state: pl.Expr, detail: pl.Expr, activity: pl.Expr, source: pl.Expr, at_ms: pl.Expr
) -> pl.Expr:
    is_sourced = source.is_not_null() & (source != "none")
    return pl.concat_str(
        pl.lit("activity_signal="),
        state,
        pl.when(is_sourced).then(pl.concat_str(pl.lit(" via_"), source)).otherwise(pl.lit("")),
        _part(" activity=", activity),
        _part(" at=", iso_text(at_ms)),
        _part(" detail=", detail),
    )


def _part(label: str, value: pl.Expr) -> pl.Expr:
    """A labelled value, or nothing where the value is null."""
    return pl.concat_str(pl.lit(label), value).fill_null("")


def classify_activity(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the activity signal that Agent Orchestrator would see.

    Parameters
    ----------
    frame : polars.DataFrame
        ``at`` (the clock) and ``activity_at`` (null: undated) as moments in UTC,
        ``activity`` (text), ``activity_source`` (native, terminal, runtime, hook, none),
        and optionally ``activity_detection`` (``detected``, the default where an
        activity is there; ``null``, the default where not; ``unavailable``,
        ``probe_failure``).

    Returns
    -------
    polars.DataFrame
        With ``signal_state``, ``signal_detail``, ``freshness``, ``is_idle_evidence``,
        ``is_liveness_evidence``, ``is_weak_evidence`` and ``activity_evidence``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    *Weak evidence* is any signal that is not valid; it has nothing to do with the
    freshness *weak* (60 s to 5 min), which no rule reads.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "at": [datetime(2026, 5, 1, 12, tzinfo=UTC)] * 2,
    ...         "activity": ["active", "idle"],
    ...         "activity_source": ["native", "none"],
    ...         "activity_at": [datetime(2026, 5, 1, 11, 54, tzinfo=UTC), None],
    ...     }
    ... )
    >>> classify_activity(frame)["activity_evidence"].to_list()[1]
    'activity_signal=stale activity=idle detail=missing_timestamp'
    """
    need(frame, ["at", "activity", "activity_source", "activity_at"], "classify_activity")
    default = (
        pl.when(pl.col("activity").is_null()).then(pl.lit("null")).otherwise(pl.lit("detected"))
    )
    filled = with_defaults(frame, {"activity_detection": pl.String()}).with_columns(
        activity_detection=pl.coalesce("activity_detection", default)
    )
    signal = signal_of(
        pl.col("activity_detection"),
        pl.col("activity"),
        pl.col("activity_source"),
        milliseconds(pl.col("activity_at")),
        milliseconds(pl.col("at")),
    )
    return filled.with_columns(
        signal_state=signal.state,
        signal_detail=signal.detail,
        freshness=signal.freshness,
        is_idle_evidence=signal.is_idle_evidence,
        is_liveness_evidence=signal.is_liveness_evidence,
        is_weak_evidence=signal.is_weak_evidence,
        activity_evidence=signal.evidence,
    )


def decay_log_entries(
    frame: FrameT,
    *,
    version: Version = "head",
    active_window_s: float = ACTIVE_WINDOW_S,
    ready_threshold_s: float = READY_THRESHOLD_S,
) -> FrameT:
    """Add what the last entry of an activity log means at its age.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``entry_state`` (text) and ``entry_age_s`` (float; null: its time is unreadable).
    version : {"trinity", "head", "final"}, default "head"
        *final* keeps a waiting or blocked entry for ever, the others for 5 minutes.
    active_window_s, ready_threshold_s : float
        The ages up to which an entry means active and ready.

    Returns
    -------
    The same kind of frame
        With ``actionable_state`` (waiting_input, blocked or null) and
        ``fallback_state`` (an activity, or null).

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If the version is unknown.

    Notes
    -----
    Agent Orchestrator's ``checkActivityLogState`` and ``getActivityFallbackState``, as the
    plugins of codex, aider, opencode and cursor use them. An entry is never promoted, and
    an old *exited* reads idle.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"entry_state": ["blocked", "active"], "entry_age_s": [301.0, 31.0]})
    >>> decay_log_entries(frame)["fallback_state"].to_list()
    ['idle', 'ready']
    """
    choose(version, VERSIONS, "version")
    state, age = nw.col("entry_state"), nw.col("entry_age_s")
    is_call = state.is_in(("waiting_input", "blocked"))
    holds = ~age.is_null() if version == "final" else age <= STICKY_S
    is_active = (state == "active") & (age <= min(active_window_s, ready_threshold_s))
    is_ready = state.is_in(("active", "ready")) & (age <= ready_threshold_s)
    is_exited = (state == "exited") & (age <= ready_threshold_s)
    known = state.is_in(("active", "ready", "idle", "waiting_input", "blocked", "exited"))
    fallback: nw.Expr = nw.when(~age.is_null() & known).then(nw.lit("idle"))
    for condition, word in (
        (is_ready, nw.lit("ready")),
        (is_active, nw.lit("active")),
        (is_exited, nw.lit("exited")),
        (is_call & holds, state),
    ):
        fallback = nw.when(condition).then(word).otherwise(fallback)
    rules = {"actionable_state": nw.when(is_call & holds).then(state), "fallback_state": fallback}
    return add_columns(frame, ["entry_state", "entry_age_s"], "decay_log_entries", rules)
