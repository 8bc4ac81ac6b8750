"""The detecting budget replayed over recorded evidence, with any limits."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need
from tests.conformance.agent_orchestrator.detecting import (
    DetectingBudget,
    decide_detecting,
    evidence_hash,
)


def replay_detecting(
    polls: pl.DataFrame, *, by: str = "session_id", budget: DetectingBudget | None = None
) -> pl.DataFrame:
    """Replay the budget over recorded evidence, for every session at once.

    Parameters
    ----------
    polls : polars.DataFrame, shape (n_polls, ...)
        ``by`` (which session), ``at`` (moment in UTC), ``evidence`` (text; null: a poll
        that decided something else, which resets the budget), optionally
        ``is_idle_blocked`` and ``detecting_reason``. In any order.
    by : str, default "session_id"
        The column that names the session.
    budget : DetectingBudget, optional
        The limits to try; Agent Orchestrator's where absent.

    Returns
    -------
    polars.DataFrame, shape (n_polls, ... + 7)
        Sorted by ``by`` and ``at``: ``status`` (detecting, stuck; null where reset),
        ``session_state``, ``session_reason``, ``is_escalated``, ``detecting_attempts``
        (0 where reset), ``detecting_started_at`` and ``detecting_hash``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    The budget counts the polls of a run of equal evidence, so a window over runs says the
    same as one `decide_detecting` after the other; a test holds that.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> polls = pl.DataFrame(
    ...     {
    ...         "session_id": ["app-4"] * 4,
    ...         "at": [datetime(2026, 5, 1, 12, minute, tzinfo=UTC) for minute in range(4)],
    ...         "evidence": ["signal_disagreement"] * 4,
    ...     }
    ... )
    >>> replay_detecting(polls)["status"].to_list()
    ['detecting', 'detecting', 'detecting', 'stuck']
    >>> replay_detecting(polls, budget=DetectingBudget(max_attempts=5))["is_escalated"].any()
    False
    """
    need(polls, [by, "at", "evidence"], "replay_detecting")
    in_order = polls.sort(by, "at", maintain_order=True).with_columns(
        detecting_hash=evidence_hash(pl.col("evidence"))
    )
    runs = in_order.with_columns(_run=pl.struct(by, "detecting_hash").rle_id())
    is_reset = pl.col("evidence").is_null()
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("_run")
    before = runs.with_columns(
        detecting_attempts=place,
        detecting_started_at=pl.when(place > 0).then(pl.col("at").first().over("_run")),
        detecting_hash=pl.when(place > 0).then("detecting_hash"),
    )
    decided = decide_detecting(before, budget=budget).drop("_run", "is_start_unreadable")
    resets = ("status", "session_state", "session_reason", "detecting_started_at")
    return decided.with_columns(
        *(pl.when(~is_reset).then(name).alias(name) for name in resets),
        is_escalated=pl.col("is_escalated") & ~is_reset,
        detecting_attempts=pl.when(is_reset).then(0).otherwise("detecting_attempts"),
    )
