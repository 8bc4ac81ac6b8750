"""What agents report about themselves: words, freshness, validation, effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    add_columns,
    need,
)
from stateanalytics.systems.agent_orchestrator.stored_values import trim
from stateanalytics.systems.agent_orchestrator.words import REPORT_STATES

FRESH_S = 300.0
"""Up to this age a report decides the state of a session."""
SKEW_S = 60.0
"""How far in the future a report may lie."""


class ReportMeaning(NamedTuple):
    """What one report makes of a session and of its pull request."""

    session_state: str
    session_reason: str
    pr_reason: str | None = None
    is_draft: bool | None = None


REPORT_MEANINGS: Mapping[str, ReportMeaning] = {
    "started": ReportMeaning("working", "agent_acknowledged"),
    "working": ReportMeaning("working", "task_in_progress"),
    "waiting": ReportMeaning("idle", "awaiting_external_review"),
    "needs_input": ReportMeaning("needs_input", "awaiting_user_input"),
    "fixing_ci": ReportMeaning("working", "fixing_ci"),
    "addressing_reviews": ReportMeaning("working", "resolving_review_comments"),
    "pr_created": ReportMeaning("idle", "pr_created", "in_progress", is_draft=False),
    "draft_pr_created": ReportMeaning("working", "task_in_progress", "in_progress", is_draft=True),
    "ready_for_review": ReportMeaning(
        "idle", "awaiting_external_review", "review_pending", is_draft=False
    ),
    "completed": ReportMeaning("idle", "research_complete"),
}
"""Report state to its meaning, in Agent Orchestrator's order."""

_ALIASES = {
    "start": "started",
    "work": "working",
    "wait": "waiting",
    "input": "needs_input",
    "ci": "fixing_ci",
    "reviews": "addressing_reviews",
    "complete": "completed",
}
_WORDS = (
    {state: state for state in REPORT_STATES}
    | {state.replace("_", "-"): state for state in REPORT_STATES}
    | _ALIASES
)


def normalize_report_words(frame: pl.DataFrame, *, column: str = "report_word") -> pl.DataFrame:
    """Add the report state that a typed word means.

    Parameters
    ----------
    frame : polars.DataFrame
        With the text column ``column``.
    column : str, default "report_word"
        What the agent typed.

    Returns
    -------
    polars.DataFrame
        With ``report_state``: one of `REPORT_STATES`; null where the word is rejected.

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Notes
    -----
    Agent Orchestrator's ``normalizeAgentReportedState``: trimmed, any letter case, hyphens
    for underscores, some short forms. (It also lets ``constructor`` through, as a property
    that every JavaScript object has; here that is rejected.)

    Examples
    --------
    >>> import polars as pl
    >>> words = pl.DataFrame({"report_word": [" Fixing-CI ", "done"]})
    >>> normalize_report_words(words)["report_state"].to_list()
    ['fixing_ci', None]
    """
    need(frame, [column], "normalize_report_words")
    word = trim(pl.col(column)).str.to_lowercase()
    state = word.replace_strict(
        list(_WORDS), list(_WORDS.values()), default=None, return_dtype=pl.String
    )
    return frame.with_columns(report_state=state)


def interpret_reports(frame: FrameT) -> FrameT:
    """Add the session state and reason that a report state stands for.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``report_state`` (text).

    Returns
    -------
    The same kind of frame
        With ``session_state`` and ``session_reason``; null for other words.

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> interpret_reports(pl.DataFrame({"report_state": ["completed"]}))["session_reason"].item()
    'research_complete'
    """
    rules = {name: _meaning(name) for name in _SESSION}
    return add_columns(frame, ["report_state"], "interpret_reports", rules)


_SESSION = ("session_state", "session_reason")


def report_meaning(report_state: pl.Expr, name: str) -> pl.Expr:
    """One field of `REPORT_MEANINGS`, as a polars expression; null for other words."""
    values = [getattr(meaning, name) for meaning in REPORT_MEANINGS.values()]
    dtype = pl.Boolean() if name == "is_draft" else pl.String()
    return report_state.replace_strict(
        list(REPORT_MEANINGS), values, default=None, return_dtype=dtype
    )


def _meaning(name: str) -> Any:
    rule: Any = nw.lit(None, nw.String())
    for word, meaning in REPORT_MEANINGS.items():
        is_word = nw.col("report_state") == word
        rule = nw.when(is_word).then(nw.lit(getattr(meaning, name))).otherwise(rule)
    return rule


def judge_report_freshness(frame: FrameT) -> FrameT:
    """Add whether a report is recent enough to decide a session's state.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``report_age_s`` (float seconds; null: no readable report).

    Returns
    -------
    The same kind of frame
        With the Boolean ``is_report_fresh``: at most 5 minutes old, at most 1 minute in the
        future; never null.

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> ages = pl.DataFrame({"report_age_s": [300.0, 300.001, None]})
    >>> judge_report_freshness(ages)["is_report_fresh"].to_list()
    [True, False, False]
    """
    age = nw.col("report_age_s")
    rules = {"is_report_fresh": ((age >= -SKEW_S) & (age <= FRESH_S)).fill_null(False)}
    return add_columns(frame, ["report_age_s"], "judge_report_freshness", rules)


def validate_reports(frame: FrameT) -> FrameT:
    """Add whether Agent Orchestrator accepts a report from a session in this state.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``kind``, ``session_state``, ``pr_state``, ``runtime_state``.

    Returns
    -------
    The same kind of frame
        With ``is_accepted`` (Boolean) and ``rejection_reason`` (text; null if accepted).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``validateAgentReportTransition``; the first reason counts, and
    what is reported never matters.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "kind": ["worker"],
    ...         "session_state": ["stuck"],
    ...         "pr_state": ["open"],
    ...         "runtime_state": ["missing"],
    ...     }
    ... )
    >>> validate_reports(frame)["rejection_reason"].item()
    'runtime is not alive'
    """
    names = ["kind", "session_state", "pr_state", "runtime_state"]
    rules = {"rejection_reason": _rejection(nw)}
    accepted = {"is_accepted": nw.col("rejection_reason").is_null()}
    return add_columns(frame, names, "validate_reports", rules, accepted)


def _rejection(library: Any) -> Any:
    when, lit, col = library.when, library.lit, library.col
    # From the last reason to the first: the first one wins.
    rule = when(col("runtime_state").is_in(("missing", "exited"))).then(lit("runtime is not alive"))
    for column, word, reason in (
        ("pr_state", "closed", "PR already closed"),
        ("pr_state", "merged", "PR already merged"),
        ("session_state", "done", "session is already done"),
        ("session_state", "terminated", "session is terminated"),
        ("kind", "orchestrator", "orchestrator sessions cannot self-report"),
    ):
        rule = when(col(column) == word).then(lit(reason)).otherwise(rule)
    return rule
