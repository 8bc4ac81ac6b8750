"""What each word means in ADR-0033's terms, as tables: of three axes, and of lone status words.

The mapping is ours: Agent Orchestrator has none. Its session axis decides lifecycle and
outcome, the worst of session and runtime decides health, the pull request decides
delivery; a conflict becomes two reasons, never a compromise. Lone status words are those of
sessions before April 2026 and of the Go rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    Steps,
    add_columns,
    kept,
    look_up,
)


class SessionMeaning(NamedTuple):
    """What a session's state and reason mean.

    Attributes
    ----------
    lifecycle, outcome : str, str or None
        ADR-0033's words; no outcome while it is not over.
    health : str
        What the session axis says of the health, before the runtime has its say.
    code : str
        Reason code.
    claim : str
        Observed, inferred or hypothesis.
    confidence : float
        That the reason explains the state, 0 to 1.
    """

    lifecycle: str
    outcome: str | None
    health: str
    code: str
    claim: str
    confidence: float


def _running(
    health: str, code: str, claim: str = "observed", confidence: float = 1.0
) -> SessionMeaning:
    return SessionMeaning("running", None, health, f"run.{code}", claim, confidence)


def _ended(
    outcome: str, code: str, claim: str = "observed", confidence: float = 1.0
) -> SessionMeaning:
    lifecycle = code.partition(".")[0]
    return SessionMeaning(lifecycle, outcome, "ok", f"run.{code}", claim, confidence)


_REQUESTED = "run.pending.spawn_requested"
SESSION_MEANINGS: Mapping[tuple[str, str], SessionMeaning] = {
    ("not_started", "spawn_requested"): SessionMeaning(
        "pending", None, "unknown", _REQUESTED, "observed", 1.0
    ),
    ("working", "agent_acknowledged"): _running("running", "running.agent_acknowledged"),
    ("working", "task_in_progress"): _running(
        "running", "running.task_in_progress", "inferred", 0.6
    ),
    ("working", "fixing_ci"): _running("running", "running.fixing_ci", "inferred", 0.7),
    ("working", "resolving_review_comments"): _running(
        "running", "running.resolving_review_comments", "inferred", 0.7
    ),
    ("needs_input", "awaiting_user_input"): _running("idle", "health.awaiting_user_input"),
    ("idle", "pr_created"): _running("ok", "running.pr_created"),
    ("idle", "awaiting_external_review"): _running("ok", "running.awaiting_external_review"),
    ("idle", "pr_closed_waiting_decision"): _running("ok", "running.pr_closed_waiting_decision"),
    ("idle", "merged_waiting_decision"): _ended("merged", "completed.merged_waiting_decision"),
    ("idle", "research_complete"): _ended("completed", "completed.agent_declared", "observed", 0.8),
    ("stuck", "probe_failure"): _running("stalled", "health.stalled", "inferred", 0.7),
    ("stuck", "error_in_process"): _running("stalled", "health.stalled_error", "inferred", 0.8),
    ("detecting", "probe_failure"): _running(
        "degraded", "health.probe_inconclusive", "hypothesis", 0.5
    ),
    ("detecting", "runtime_lost"): _running(
        "disconnected", "health.runtime_unconfirmed", "hypothesis", 0.5
    ),
    ("detecting", "agent_process_exited"): _running(
        "disconnected", "health.process_exit_unconfirmed", "hypothesis", 0.5
    ),
    ("done", "research_complete"): _ended("completed", "completed.done"),
    ("terminated", "manually_killed"): _ended("cancelled", "cancelled.manually_killed"),
    ("terminated", "pr_merged"): _ended("merged", "completed.pr_merged_cleanup"),
    ("terminated", "auto_cleanup"): _ended("aborted", "aborted.auto_cleanup"),
    ("terminated", "runtime_lost"): _ended("aborted", "aborted.runtime_lost", "inferred", 0.6),
    ("terminated", "agent_process_exited"): _ended(
        "aborted", "aborted.agent_process_exited", "observed", 0.9
    ),
    ("terminated", "probe_failure"): _ended("failed", "failed.probe_failure", "inferred", 0.6),
    ("terminated", "error_in_process"): _ended(
        "failed", "failed.error_in_process", "observed", 0.9
    ),
}
"""State and reason of a session, in every pair that is written, to their meaning."""

ODD_PAIRS: Mapping[str, tuple[str, str | None, str]] = {
    "not_started": ("pending", None, "unknown"),
    "working": ("running", None, "running"),
    "idle": ("running", None, "ok"),
    "needs_input": ("running", None, "idle"),
    "stuck": ("running", None, "stalled"),
    "detecting": ("running", None, "disconnected"),
    "done": ("completed", "completed", "ok"),
    "terminated": ("aborted", "aborted", "ok"),
}
"""A known state with a reason that never goes with it: lifecycle, outcome, health."""

HEALTHS_BY_WEIGHT = (
    "process_dead",
    "orphaned",
    "stalled",
    "disconnected",
    "degraded",
    "idle",
    "running",
    "ok",
    "unknown",
)
"""From the worst to the one that says nothing."""

RUNTIME_HEALTHS: Mapping[str, str] = {
    "alive": "ok",
    "unknown": "unknown",
    "exited": "process_dead",
    "missing": "process_dead",
    "probe_failed": "disconnected",
}
"""State of the runtime to what it says of the health."""

RUNTIME_CODES: Mapping[str, str] = {
    "tmux_missing": "run.health.tmux_missing",
    "manual_kill_requested": "run.health.manual_kill_requested",
    "pr_merged_cleanup": "run.health.pr_merged_cleanup",
    "auto_cleanup": "run.health.auto_cleanup",
}
"""Reason of a runtime that is gone to a reason code of its own."""

OPEN_DELIVERIES: Mapping[str, str] = {
    "ci_failing": "invalid",
    "changes_requested": "partial",
    "approved": "passed",
    "merge_ready": "passed",
}
"""Reason of an open pull request to the delivery it means; the others say nothing yet."""

SAYS_NOTHING_YET = ("review_pending", "in_progress")


class WordMeaning(NamedTuple):
    """What one status word means on its own."""

    lifecycle: str
    outcome: str | None
    health: str | None
    delivery: str | None
    confidence: float = 0.5


LEGACY_MEANINGS: Mapping[str, WordMeaning] = {
    "spawning": WordMeaning("pending", None, "unknown", None),
    "working": WordMeaning("running", None, "running", None),
    "detecting": WordMeaning("running", None, "degraded", None),
    "pr_open": WordMeaning("running", None, "ok", None),
    "review_pending": WordMeaning("running", None, "ok", None),
    "ci_failed": WordMeaning("running", None, "running", "invalid"),
    "changes_requested": WordMeaning("running", None, "running", "partial"),
    "approved": WordMeaning("running", None, "ok", "passed"),
    "mergeable": WordMeaning("running", None, "ok", "passed"),
    "merged": WordMeaning("completed", "merged", "ok", "passed"),
    "cleanup": WordMeaning("aborted", "aborted", "ok", "missing"),
    "needs_input": WordMeaning("running", None, "idle", None),
    "stuck": WordMeaning("running", None, "stalled", None),
    "idle": WordMeaning("running", None, "ok", None),
    "errored": WordMeaning("failed", "failed", "process_dead", "missing"),
    "killed": WordMeaning("aborted", "aborted", "process_dead", "missing", 0.4),
    "done": WordMeaning("completed", "completed", "ok", "not_expected"),
    "terminated": WordMeaning("aborted", "aborted", "process_dead", "missing", 0.4),
}
"""Legacy status of a record without a lifecycle to its meaning, without a pull request."""

WITH_PULL_REQUEST: Mapping[str, WordMeaning] = {
    "cleanup": WordMeaning("completed", "merged", "ok", "passed"),
    "done": WordMeaning("completed", "completed", "ok", "passed"),
}
"""Words that mean something else where the record names a pull request."""

GO_MEANINGS: Mapping[str, WordMeaning] = {
    "working": WordMeaning("running", None, "running", None, 1.0),
    "idle": WordMeaning("running", None, "ok", None, 1.0),
    "needs_input": WordMeaning("running", None, "idle", None, 1.0),
    "exited": WordMeaning("running", None, "process_dead", None, 1.0),
    "no_signal": WordMeaning("running", None, "disconnected", None, 1.0),
    "pr_open": WordMeaning("running", None, "ok", None, 1.0),
    "draft": WordMeaning("running", None, "ok", None, 1.0),
    "review_pending": WordMeaning("running", None, "ok", None, 1.0),
    "ci_failed": WordMeaning("running", None, "ok", "invalid", 1.0),
    "changes_requested": WordMeaning("running", None, "ok", "partial", 1.0),
    "approved": WordMeaning("running", None, "ok", "passed", 1.0),
    "mergeable": WordMeaning("running", None, "ok", "passed", 1.0),
    "merged": WordMeaning("completed", "merged", "ok", "passed", 1.0),
    "terminated": WordMeaning("aborted", "aborted", "ok", None, 0.4),
}
"""Status of the Go rewrite to its meaning."""

_CODES = {
    "killed": "run.aborted.killed_unspecified",
    "needs_input": "run.health.awaiting_user_input",
    "stuck": "run.health.stalled",
    "no_signal": "run.health.no_signal",
    "exited": "run.health.process_dead",
    "ci_failed": "run.delivery.ci_failing",
    "changes_requested": "run.delivery.changes_requested",
    "approved": "run.delivery.approved",
    "mergeable": "run.delivery.merge_ready",
}


def map_legacy_words(frame: FrameT) -> FrameT:
    """Add what the status word of a record without a lifecycle means.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``status`` (legacy word) and ``has_pr`` (Boolean: does the record name a pull
        request).

    Returns
    -------
    The same kind of frame
        With ``lifecycle``, ``outcome``, ``health``, ``delivery``, ``confidence`` and
        ``reason_codes`` (joined by ", "); an unknown word is lifecycle and outcome
        *unknown*.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Not by way of `synthesize_lifecycle`, which forgets CI and review. ``killed`` may be a
    person or a crash: aborted, with confidence 0.4.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"status": ["ci_failed", "cleanup"], "has_pr": [True, True]})
    >>> map_legacy_words(frame).select("lifecycle", "delivery").rows()
    [('running', 'invalid'), ('completed', 'passed')]
    """
    return add_columns(frame, ["status", "has_pr"], "map_legacy_words", *_legacy_steps())


@cache
def _legacy_steps() -> Steps:
    rules = _rules(nw.col("status"), LEGACY_MEANINGS, "run.lifecycle.synthesized")
    for word, meaning in WITH_PULL_REQUEST.items():
        holds = (nw.col("status") == word) & nw.col("has_pr")
        for name, value in meaning._asdict().items():
            rules[name] = (
                nw.when(holds)
                .then(nw.lit(value, _DTYPES.get(name, nw.String())))
                .otherwise(rules[name])
            )
    codes = {"reason_codes": rules.pop("reason_codes")}
    return kept(rules, codes)


def map_go_words(frame: FrameT) -> FrameT:
    """Add what a status of the Go rewrite means.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``status``: the words of `derive_go_status`.

    Returns
    -------
    The same kind of frame
        With ``lifecycle``, ``outcome``, ``health``, ``delivery``, ``confidence`` and
        ``reason_codes``.

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> map_go_words(pl.DataFrame({"status": ["no_signal"]}))["health"].item()
    'disconnected'
    """
    return add_columns(frame, ["status"], "map_go_words", *_go_steps())


@cache
def _go_steps() -> Steps:
    rules = _rules(nw.col("status"), GO_MEANINGS, None)
    codes = {"reason_codes": rules.pop("reason_codes")}
    return kept(rules, codes)


def _rules(word: Any, table: Mapping[str, WordMeaning], extra: str | None) -> dict[str, Any]:
    unknown = WordMeaning("unknown", "unknown", "unknown", None, 0.0)
    rules = {
        name: look_up(
            word,
            {known: meaning[place] for known, meaning in table.items()},
            unknown[place],
            dtype=_DTYPES.get(name),
        )
        for place, name in enumerate(WordMeaning._fields)
    }
    by_default = nw.concat_str(nw.lit("run."), nw.col("lifecycle"), nw.lit("."), word)
    unrecognized = nw.lit("run.lifecycle.status_unrecognized")
    is_known = word.is_in(list(table))
    code = nw.when(is_known).then(look_up(word, _CODES, by_default)).otherwise(unrecognized)
    rules["reason_codes"] = nw.concat_str(code, nw.lit(f", {extra}")) if extra else code
    return rules


_DTYPES = {"confidence": nw.Float64()}
