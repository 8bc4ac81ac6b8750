"""The report watcher: sessions whose agent does not report, or asks for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES


@dataclass(frozen=True)
class WatcherThresholds:
    """Ages at which the report watcher speaks up.

    Parameters
    ----------
    acknowledge_s : float, default 600
        Age of a session that never reported.
    stale_s : float, default 1800
        Age of the last report.

    Examples
    --------
    >>> WatcherThresholds(stale_s=3600)
    WatcherThresholds(acknowledge_s=600.0, stale_s=3600)
    """

    acknowledge_s: float = 600.0
    stale_s: float = 1800.0


REACTION_KEYS = {
    "agent_needs_input": "report-needs-input",
    "no_acknowledge": "report-no-acknowledge",
    "stale_report": "report-stale",
}
"""Trigger to the key of the reaction that a user may configure; none is by default."""

_NEVER_STALE = ("waiting", "needs_input")


def watch_reports(frame: FrameT, *, thresholds: WatcherThresholds | None = None) -> FrameT:
    """Add what the report watcher finds at one poll.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``status`` (legacy word), ``kind``, ``created_age_s`` (float seconds; null: not
        known), ``report_state`` (null: no readable report), ``report_age_s``.
    thresholds : WatcherThresholds, optional
        Other ages to try; Agent Orchestrator's are fixed at 10 and 30 minutes.

    Returns
    -------
    The same kind of frame
        With ``is_audited`` (Boolean), ``watcher_trigger`` (agent_needs_input,
        no_acknowledge, stale_report or null), ``watcher_reaction_key``,
        ``watcher_message``, ``time_since_spawn_s`` and ``time_since_report_s``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``auditSession``. Only terminal statuses and orchestrators are
    exempt, so a finished research session, or one in review, is flagged after 30
    minutes. The watcher never changes a state. A session's age counts from its creation,
    also after a restore.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "status": ["working", "idle"],
    ...         "kind": ["worker", "worker"],
    ...         "created_age_s": [600.0, 9000.0],
    ...         "report_state": [None, "completed"],
    ...         "report_age_s": [None, 1800.0],
    ...     }
    ... )
    >>> watch_reports(frame)["watcher_trigger"].to_list()
    ['no_acknowledge', 'stale_report']
    """
    limits = thresholds or WatcherThresholds()
    names = ["status", "kind", "created_age_s", "report_state", "report_age_s"]
    audited = {"is_audited": watcher_audits(nw)}
    triggers = {"watcher_trigger": watcher_trigger(nw, limits)}
    return add_columns(frame, names, "watch_reports", audited, triggers, _words())


def watcher_audits(library: Any) -> Any:
    """Is a session watched at all; as an expression of Narwhals or polars."""
    col = library.col
    is_exempt = col("status").is_in(TERMINAL_STATUSES) | (col("kind") == "orchestrator")
    return ~is_exempt.fill_null(False)


def watcher_trigger(library: Any, limits: WatcherThresholds) -> Any:
    """The trigger of a watched session; as an expression of Narwhals or polars."""
    when, lit, col = library.when, library.lit, library.col
    state, is_audited = col("report_state"), col("is_audited")
    is_silent = state.is_null() & (col("created_age_s") >= limits.acknowledge_s)
    is_stale = ~state.is_in(_NEVER_STALE) & (col("report_age_s") >= limits.stale_s)
    rule = when(is_audited & is_stale).then(lit("stale_report"))
    rule = when(is_audited & is_silent).then(lit("no_acknowledge")).otherwise(rule)
    asks = is_audited & (state == "needs_input")
    return when(asks).then(lit("agent_needs_input")).otherwise(rule)


def _words() -> dict[str, Any]:
    trigger = nw.col("watcher_trigger")
    is_silent, is_stale = trigger == "no_acknowledge", trigger == "stale_report"
    spawned, reported = nw.col("created_age_s"), nw.col("report_age_s")
    texts = {
        "agent_needs_input": nw.lit("Agent needs input: waiting for user decision"),
        "no_acknowledge": nw.concat_str(
            nw.lit("Agent has not acknowledged task after "), _minutes(spawned), nw.lit(" minutes")
        ),
        "stale_report": nw.concat_str(
            nw.lit("Agent report is stale ("),
            _minutes(reported),
            nw.lit(" minutes since last report)"),
        ),
    }
    return {
        "watcher_reaction_key": _by_trigger({k: nw.lit(v) for k, v in REACTION_KEYS.items()}),
        "watcher_message": _by_trigger(texts),
        "time_since_spawn_s": nw.when(is_silent).then(spawned),
        "time_since_report_s": nw.when(is_stale | (trigger == "agent_needs_input")).then(reported),
    }


def _by_trigger(values: dict[str, Any]) -> Any:
    rule = nw.lit(None, nw.String())
    for trigger, value in values.items():
        rule = nw.when(nw.col("watcher_trigger") == trigger).then(value).otherwise(rule)
    return rule


def _minutes(seconds: Any) -> Any:
    """Whole minutes, rounded half up as `Math.round` does."""
    return ((seconds + 30) // 60).cast(nw.Int64()).cast(nw.String())
