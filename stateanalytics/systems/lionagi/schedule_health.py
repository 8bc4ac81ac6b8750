"""Is a schedule alive: lionagi's own verdict (detector E1), and ADR-0033's word for it.

Silence is measured from the last thing that proves the schedule works: a run that was
executed, an evaluation of a threshold, a poll that answered. A skipped run proves
nothing, and neither does the planned next fire, which is a promise.
"""

from __future__ import annotations

from datetime import datetime
from types import MappingProxyType
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core.engines import NUMBER, TEXT, YES_NO, adapt, optional

OVERDUE_FACTOR = 3
OVERDUE_GRACE_S = 300
FAILING_STATUSES = ("failed", "timed_out")

WORDS = MappingProxyType(
    {
        "disabled": "switched off",
        "never-fired": "on, and nothing shows that it ever fired",
        "no-evidence": "on, it fired once, but no executed run is left to judge by",
        "overdue": "silent for longer than three cadences, and five minutes longer than one",
        "failing": "the last executed run failed or timed out",
        "healthy": "none of these",
    }
)
"""E1's words and what they mean; the first that applies wins."""

_AGES = MappingProxyType(
    {
        "since_last_execution_s": "last_executed_at",
        "since_last_evaluation_s": "last_evaluated_at",
        "since_last_healthy_poll_s": "last_healthy_poll_at",
        "since_last_fire_s": "last_fired_at",
    }
)


def schedule_ages(schedules: pl.DataFrame, as_of: datetime) -> pl.DataFrame:
    """Apply the clock once: the moments of ``frames.SCHEDULES`` become ages.

    Adds ``since_last_execution_s``, ``since_last_evaluation_s``,
    ``since_last_healthy_poll_s``, ``since_last_fire_s`` and ``next_fire_in_s``: float
    seconds, null where the moment is not known.

    Examples
    --------
    >>> from datetime import UTC
    >>> from stateanalytics.systems.lionagi import frames
    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> rows = frames.SCHEDULES.conform(pl.DataFrame({"next_fire_at": [noon]}))
    >>> schedule_ages(rows, datetime(2026, 5, 1, 11, tzinfo=UTC))["next_fire_in_s"].to_list()
    [3600.0]
    """
    now = pl.lit(as_of)
    ages = {
        age: (now - pl.col(moment)).dt.total_microseconds() / 1e6 for age, moment in _AGES.items()
    }
    next_fire = (pl.col("next_fire_at") - now).dt.total_microseconds() / 1e6
    return schedules.with_columns(**ages, next_fire_in_s=next_fire)


def with_schedule_health(
    frame: Any,
    *,
    overdue_factor: float = OVERDUE_FACTOR,
    overdue_grace_s: float = OVERDUE_GRACE_S,
) -> Any:
    """The health of each schedule, in lionagi's words and in ADR-0033's.

    Parameters
    ----------
    frame : frame
        ``is_enabled``, ``trigger_type``, ``cadence_s`` (null: never overdue),
        ``since_last_execution_s``, ``last_executed_status``, ``n_runs``. Used if there:
        ``has_threshold``, ``since_last_evaluation_s``, ``since_last_healthy_poll_s``,
        ``since_last_fire_s``, ``n_running``, ``next_fire_in_s``. `schedule_ages` makes
        all of these from ``frames.SCHEDULES``.
    overdue_factor, overdue_grace_s : float
        Overdue is a silence longer than so many cadences, and longer than one cadence
        plus the grace.

    Returns
    -------
    frame
        The same rows and kind with ``schedule_health`` (one of `WORDS`), ``health``
        (ADR-0033: misfired, running, due, ok) and ``silence_s`` (since the last proof of
        work; null without one).

    Notes
    -----
    A schedule that is switched off is ``ok``. One that is ``overdue`` is ``misfired``
    whatever else is true of it; ``failing`` is no matter of health (its runs carry it).
    Not known whether it is switched on counts as off, as in lionagi.

    Examples
    --------
    >>> row = {"is_enabled": True, "trigger_type": "interval", "cadence_s": 60.0, "n_runs": 4,
    ...        "since_last_execution_s": 361.0, "last_executed_status": "completed"}
    >>> with_schedule_health(pl.DataFrame([row])).select("schedule_health", "health").row(0)
    ('overdue', 'misfired')
    """
    needed = {
        "is_enabled": YES_NO,
        "trigger_type": TEXT,
        "cadence_s": NUMBER,
        "since_last_execution_s": NUMBER,
        "last_executed_status": TEXT,
        "n_runs": NUMBER,
    }
    adapter = adapt(frame, needed, "with_schedule_health")
    rows = adapter.frame
    is_on = nw.col("is_enabled").fill_null(False)
    has_threshold = optional(rows, "has_threshold", nw.Boolean).fill_null(False)
    evaluation = optional(rows, "since_last_evaluation_s", nw.Float64)
    poll = optional(rows, "since_last_healthy_poll_s", nw.Float64)
    is_poll = (nw.col("trigger_type") == "github_poll").fill_null(False)
    silence = nw.min_horizontal(
        nw.col("since_last_execution_s"),
        nw.when(has_threshold).then(evaluation),
        nw.when(is_poll).then(poll),
    )
    was_fired = ~optional(rows, "since_last_fire_s", nw.Float64).is_null()
    has_runs = (nw.col("n_runs") > 0).fill_null(False)
    n_running = optional(rows, "n_running", nw.Int64)
    next_fire = optional(rows, "next_fire_in_s", nw.Float64)
    is_overdue = nw.col("schedule_health") == "overdue"
    return adapter.give_back(
        rows.with_columns(silence_s=silence)
        .with_columns(
            schedule_health=nw.when(~is_on)
            .then(nw.lit("disabled"))
            .when(nw.col("silence_s").is_null() & ~has_runs & ~was_fired)
            .then(nw.lit("never-fired"))
            .when(nw.col("silence_s").is_null())
            .then(nw.lit("no-evidence"))
            .when(_is_silent_too_long(overdue_factor, overdue_grace_s))
            .then(nw.lit("overdue"))
            .when(nw.col("last_executed_status").is_in(FAILING_STATUSES).fill_null(False))
            .then(nw.lit("failing"))
            .otherwise(nw.lit("healthy"))
        )
        .with_columns(
            health=nw.when(~is_on)
            .then(nw.lit("ok"))
            .when(is_overdue)
            .then(nw.lit("misfired"))
            .when((n_running > 0).fill_null(False))
            .then(nw.lit("running"))
            .when((next_fire <= 0).fill_null(False))
            .then(nw.lit("due"))
            .otherwise(nw.lit("ok"))
        )
    )


def _is_silent_too_long(factor: float, grace_s: float) -> nw.Expr:
    cadence = nw.col("cadence_s")
    limit = nw.max_horizontal(cadence * factor, cadence + grace_s)
    return ((cadence > 0) & (nw.col("silence_s") > limit)).fill_null(False)
