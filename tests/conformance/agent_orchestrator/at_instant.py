"""What Agent Orchestrator would say of read sessions at one instant."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need
from stateanalytics.systems.agent_orchestrator.constants import WatcherThresholds
from tests.conformance.agent_orchestrator.agent_report import judge_report_freshness
from tests.conformance.agent_orchestrator.report_watcher import watch_reports

_NEEDED = ("ao_status", "kind", "created_at", "report_state", "report_at")


def judge_sessions(
    sessions: pl.DataFrame, *, as_of: datetime, thresholds: WatcherThresholds | None = None
) -> pl.DataFrame:
    """Add what depends on the clock: is the last report fresh, what would the watcher say.

    Parameters
    ----------
    sessions : polars.DataFrame, shape (n_records, ...)
        ``ao_sessions``, or a frame with ``ao_status``, ``kind``, ``created_at``,
        ``report_state`` and ``report_at``.
    as_of : datetime
        The instant.
    thresholds : WatcherThresholds, optional
        Other ages to try.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 5)
        With ``created_age_s``, ``report_age_s`` (seconds; null: no such time),
        ``is_report_fresh`` (never null), ``watcher_trigger`` and ``watcher_message``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> import polars as pl
    >>> noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    >>> session = {"ao_status": "working", "kind": "worker", "report_state": "started",
    ...            "created_at": noon, "report_at": noon + timedelta(minutes=1)}
    >>> later = judge_sessions(pl.DataFrame([session]), as_of=noon + timedelta(minutes=31))
    >>> later.select("is_report_fresh", "watcher_trigger").row(0)
    (False, 'stale_report')
    """
    need(sessions, _NEEDED, "judge_sessions")
    aged = sessions.with_columns(
        **{
            age: (pl.lit(as_of) - pl.col(at)).dt.total_seconds(fractional=True)
            for age, at in (("created_age_s", "created_at"), ("report_age_s", "report_at"))
        }
    )
    watched = watch_reports(
        judge_report_freshness(aged).with_columns(status="ao_status"), thresholds=thresholds
    )
    added = (
        "created_age_s", "report_age_s", "is_report_fresh", "watcher_trigger", "watcher_message",
    )  # fmt: skip
    return watched.select(*sessions.columns, *added)
