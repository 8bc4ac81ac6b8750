"""The detecting budget: how long probes may disagree before a session counts as stuck."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
from stateanalytics.systems.agent_orchestrator.stored_values import (
    SPACE_CLASS,
    WHITE_SPACE,
    leading_integer,
    trim,
)
from tests.conformance.agent_orchestrator.javascript_dates import milliseconds, moment

_NOT_SPACE = f"[^{WHITE_SPACE}]"
POLL_INTERVAL_S = 30.0
"""How often Agent Orchestrator looks at a session."""


@dataclass(frozen=True)
class DetectingBudget:
    """How many polls, and how long, a session may stay detecting.

    Parameters
    ----------
    max_attempts : int, default 3
        Polls with the same evidence; one more is too many.
    max_duration_s : float, default 300
        Time since the first of them; longer is too long.

    Raises
    ------
    ArgumentError
        If one is negative.

    Examples
    --------
    >>> DetectingBudget(max_attempts=5)
    DetectingBudget(max_attempts=5, max_duration_s=300.0)
    """

    max_attempts: int = 3
    max_duration_s: float = 300.0

    def __post_init__(self) -> None:
        if self.max_attempts < 0 or self.max_duration_s < 0:
            raise ArgumentError(
                f"A detecting budget needs limits of 0 or more, found {self!r}.",
                "pass DetectingBudget(max_attempts=3, max_duration_s=300)",
            )


class Detecting(NamedTuple):
    """One decision of the detecting budget, as expressions."""

    is_escalated: pl.Expr
    session_reason: pl.Expr
    attempts: pl.Expr
    started_ms: pl.Expr
    keeps_start: pl.Expr
    evidence_hash: pl.Expr


def normal_evidence(evidence: pl.Expr) -> pl.Expr:
    """The part of an evidence text that the budget compares.

    Parameters
    ----------
    evidence : polars.Expr of String
        Evidence as stored in ``lifecycleEvidence``.

    Returns
    -------
    polars.Expr of String
        Without `` activity=…`` and `` at=…``, and without white space around it.

    Examples
    --------
    >>> import polars as pl
    >>> pl.select(normal_evidence(pl.lit("process=dead activity=idle at=noon"))).item()
    'process=dead'
    """
    without_activity = evidence.str.replace_all(f"{SPACE_CLASS}activity={_NOT_SPACE}+", "")
    return trim(without_activity.str.replace_all(f"{SPACE_CLASS}at={_NOT_SPACE}+", ""))


def evidence_hash(evidence: pl.Expr) -> pl.Expr:
    """The hash by which Agent Orchestrator knows evidence again.

    Parameters
    ----------
    evidence : polars.Expr of String
        Evidence as stored.

    Returns
    -------
    polars.Expr of String
        First 12 hex digits of the SHA-256 of `normal_evidence`; each distinct text is
        hashed once. Null where the evidence is null.

    Examples
    --------
    >>> import polars as pl
    >>> pl.select(evidence_hash(pl.lit("a"))).item()
    'ca978112ca1b'
    """
    return normal_evidence(evidence).map_batches(_hashes, return_dtype=pl.String)


def _hashes(texts: pl.Series) -> pl.Series:
    distinct = texts.drop_nulls().unique().to_list()
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in distinct]
    return texts.replace_strict(distinct, hashes, default=None, return_dtype=pl.String)


def stored_attempts(text: pl.Expr) -> pl.Expr:
    """The attempts that a stored ``detectingAttempts`` counts for.

    Parameters
    ----------
    text : polars.Expr of String
        The stored text.

    Returns
    -------
    polars.Expr of Float64
        A whole number; 0 where it is absent, no number, or not positive.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"stored": ["4abc", "-2", None]})
    >>> frame.select(stored_attempts(pl.col("stored")))["stored"].to_list()
    [4.0, 0.0, 0.0]
    """
    number = leading_integer(text)
    return pl.when(number > 0).then(number).otherwise(pl.lit(0.0)).name.keep()


def detecting_rule(
    budget: DetectingBudget,
    *,
    now_ms: pl.Expr,
    evidence: pl.Expr,
    attempts: pl.Expr,
    started_ms: pl.Expr,
    has_start: pl.Expr,
    previous_hash: pl.Expr,
    is_blocked: pl.Expr,
    reason: pl.Expr,
) -> Detecting:
    """One decision of the budget, as expressions over one frame; see `decide_detecting`."""
    hashed = evidence_hash(evidence)
    is_changed = (previous_hash != hashed).fill_null(False)
    keeps_start = has_start & ~is_changed
    count = pl.when(is_changed).then(pl.lit(1)).otherwise(attempts.fill_null(0) + 1)
    started = pl.when(keeps_start).then(started_ms).otherwise(now_ms)
    is_too_long = (now_ms - started > budget.max_duration_s * 1000).fill_null(False)
    is_escalated = (count > budget.max_attempts) | is_too_long
    stuck_reason = (
        pl.when(is_blocked.fill_null(False))
        .then(pl.lit("error_in_process"))
        .otherwise(pl.lit("probe_failure"))
    )
    return Detecting(
        is_escalated=is_escalated,
        session_reason=pl.when(is_escalated)
        .then(stuck_reason)
        .otherwise(reason.fill_null("probe_failure")),
        attempts=count,
        started_ms=started,
        keeps_start=keeps_start,
        evidence_hash=hashed,
    )


def decide_detecting(frame: pl.DataFrame, *, budget: DetectingBudget | None = None) -> pl.DataFrame:
    """Decide for sessions whose probes disagree: detecting, or by now stuck.

    Parameters
    ----------
    frame : polars.DataFrame
        ``at`` (the clock, a moment in UTC), ``evidence`` (text), and what was stored by
        the poll before: ``detecting_attempts`` (integer), ``detecting_started_at``
        (moment; null: none), ``detecting_hash`` (text; null: none. Empty is a hash of its
        own, which never matches). Optional: ``is_idle_blocked`` (Boolean, the agent
        said it is blocked), ``detecting_reason`` (text, default probe_failure) and
        ``is_start_unreadable`` (Boolean: a start is stored that is no date).
    budget : DetectingBudget, optional
        The limits; Agent Orchestrator's where absent.

    Returns
    -------
    polars.DataFrame
        The stored columns as they are after the poll, and ``status``, ``session_state``,
        ``session_reason``, ``is_escalated`` (Boolean).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``createDetectingDecision``. The same evidence every 30 seconds:
    three polls detecting, the fourth stuck. Evidence that changes every time never
    escalates; a start that is unreadable, or in the future, never times out.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "at": [datetime(2026, 5, 1, 12, tzinfo=UTC)],
    ...         "evidence": ["a"],
    ...         "detecting_attempts": [3],
    ...         "detecting_started_at": [datetime(2026, 5, 1, 11, 59, tzinfo=UTC)],
    ...         "detecting_hash": ["ca978112ca1b"],
    ...     }
    ... )
    >>> decide_detecting(frame).select("status", "detecting_attempts").row(0)
    ('stuck', 4)
    >>> decide_detecting(frame, budget=DetectingBudget(max_attempts=5))["status"].item()
    'detecting'
    """
    names = ["at", "evidence", "detecting_attempts", "detecting_started_at", "detecting_hash"]
    need(frame, names, "decide_detecting")
    filled = with_defaults(
        frame,
        {
            "detecting_attempts": pl.Int64(),
            "detecting_hash": pl.String(),
            "is_idle_blocked": pl.Boolean(),
            "detecting_reason": pl.String(),
            "is_start_unreadable": pl.Boolean(),
        },
    )
    is_unreadable = pl.col("is_start_unreadable").fill_null(False)
    started = pl.col("detecting_started_at")
    decision = detecting_rule(
        budget or DetectingBudget(),
        now_ms=milliseconds(pl.col("at")),
        evidence=pl.col("evidence"),
        attempts=pl.col("detecting_attempts"),
        started_ms=milliseconds(started),
        has_start=started.is_not_null() | is_unreadable,
        previous_hash=pl.col("detecting_hash"),
        is_blocked=pl.col("is_idle_blocked"),
        reason=pl.col("detecting_reason"),
    )
    word = pl.when(decision.is_escalated).then(pl.lit("stuck")).otherwise(pl.lit("detecting"))
    return filled.with_columns(
        status=word,
        session_state=word,
        session_reason=decision.session_reason,
        is_escalated=decision.is_escalated,
        detecting_attempts=decision.attempts,
        detecting_started_at=moment(decision.started_ms),
        is_start_unreadable=is_unreadable & decision.keeps_start,
        detecting_hash=decision.evidence_hash,
    )
