"""Sessions that hold one status word and no axes: before April 2026, and the Go rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns


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
    rules = _rules(nw.col("status"), LEGACY_MEANINGS, "run.lifecycle.synthesized")
    for word, meaning in WITH_PULL_REQUEST.items():
        holds = (nw.col("status") == word) & nw.col("has_pr")
        for name, value in meaning._asdict().items():
            rules[name] = nw.when(holds).then(_literal(name, value)).otherwise(rules[name])
    codes = {"reason_codes": rules.pop("reason_codes")}
    return add_columns(frame, ["status", "has_pr"], "map_legacy_words", rules, codes)


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
    rules = _rules(nw.col("status"), GO_MEANINGS, None)
    codes = {"reason_codes": rules.pop("reason_codes")}
    return add_columns(frame, ["status"], "map_go_words", rules, codes)


def _rules(word: Any, table: Mapping[str, WordMeaning], extra: str | None) -> dict[str, Any]:
    unknown = WordMeaning("unknown", "unknown", "unknown", None, 0.0)
    rules = {}
    for name in WordMeaning._fields:
        rule = _literal(name, getattr(unknown, name))
        for known, meaning in table.items():
            value = _literal(name, getattr(meaning, name))
            rule = nw.when(word == known).then(value).otherwise(rule)
        rules[name] = rule
    code = nw.concat_str(nw.lit("run."), nw.col("lifecycle"), nw.lit("."), word)
    for known, value in _CODES.items():
        code = nw.when(word == known).then(nw.lit(value)).otherwise(code)
    unrecognized = nw.lit("run.lifecycle.status_unrecognized")
    code = nw.when(word.is_in(list(table))).then(code).otherwise(unrecognized)
    rules["reason_codes"] = nw.concat_str(code, nw.lit(f", {extra}")) if extra else code
    return rules


def _literal(name: str, value: str | float | None) -> Any:
    dtype = nw.Float64() if name == "confidence" else nw.String()
    return nw.lit(value, dtype)
