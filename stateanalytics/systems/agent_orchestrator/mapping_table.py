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

from stateanalytics.core.package_tables import table_rows
from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    Steps,
    add_columns,
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


SESSION_MEANINGS: Mapping[tuple[str, str], SessionMeaning] = {
    (row["state"], row["reason"]): SessionMeaning(
        row["lifecycle"],
        row["outcome"] or None,
        row["health"],
        row["code"],
        row["claim"],
        float(row["confidence"]),
    )
    for row in table_rows(__package__, "session_meanings.csv")
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
    confidence: float


def _meanings(of: str) -> Mapping[str, WordMeaning]:
    return {
        row["word"]: WordMeaning(
            row["lifecycle"],
            row["outcome"] or None,
            row["health"] or None,
            row["delivery"] or None,
            float(row["confidence"]),
        )
        for row in table_rows(__package__, "word_meanings.csv")
        if row["of"] == of
    }


LEGACY_MEANINGS = _meanings("legacy")
"""Legacy status of a record without a lifecycle to its meaning, without a pull request."""
WITH_PULL_REQUEST = _meanings("with_pull_request")
"""Words that mean something else where the record names a pull request."""
GO_MEANINGS = _meanings("go")
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
    return rules, codes


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
    return rules, codes


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
