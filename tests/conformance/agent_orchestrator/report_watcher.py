"""What the report watcher says at one poll, in its own words."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns
from stateanalytics.systems.agent_orchestrator.constants import (
    WatcherThresholds,
    watcher_audits,
    watcher_trigger,
)

REACTION_KEYS = {
    "agent_needs_input": "report-needs-input",
    "no_acknowledge": "report-no-acknowledge",
    "stale_report": "report-stale",
}
"""Trigger to the key of the reaction that a user may configure; none is by default."""


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
