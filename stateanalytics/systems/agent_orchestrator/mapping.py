"""The three axes of Agent Orchestrator in ADR-0033's terms: lifecycle, health, delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns, drop_columns
from stateanalytics.systems.agent_orchestrator.mapping_table import (
    HEALTHS_BY_WEIGHT,
    ODD_PAIRS,
    OPEN_DELIVERIES,
    RUNTIME_CODES,
    RUNTIME_HEALTHS,
    SAYS_NOTHING_YET,
    SESSION_MEANINGS,
)
from stateanalytics.systems.agent_orchestrator.words import SESSION_REASONS

AXES = (
    "session_state",
    "session_reason",
    "pr_state",
    "pr_reason",
    "runtime_state",
    "runtime_reason",
)
REASON_CODES = tuple(f"reason_{place}" for place in range(7))
"""The columns of `map_axes` that hold one reason code each, most direct first."""

_OVERRIDDEN = ("running", "pending", "cancelled", "aborted")
_CUT_SHORT = ("cancelled", "aborted", "failed")
_GONE = ("exited", "missing")
_OVER = ("terminated", "done")


def map_axes(frame: FrameT, *, is_strict: bool = False) -> FrameT:
    """Add lifecycle, outcome, health and delivery of every session, and the reasons.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        The six words: ``session_state``, ``session_reason``, ``pr_state``,
        ``pr_reason``, ``runtime_state``, ``runtime_reason``.
    is_strict : bool, default False
        Keep a session running whose agent declared it complete, as Agent Orchestrator
        does.

    Returns
    -------
    The same kind of frame
        With ``lifecycle``, ``outcome`` (null while not over), ``health``, ``delivery``
        (null: nothing to say yet), ``reason_codes`` (joined by ", ") and the same codes one
        a column (`REASON_CODES`; null: none at that place).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    A merged pull request outranks the process: unless the session failed, it is completed
    and merged, with its first reason kept. A pair of known words that is never written
    counts by its state alone, with ``run.lifecycle.pair_unreachable``; an unknown reason
    adds ``run.lifecycle.reason_unrecognized``; an unknown state is lifecycle *unknown*.

    References
    ----------
    ADR-0033, "Normalized state".

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck"],
    ...         "session_reason": ["probe_failure"],
    ...         "pr_state": ["open"],
    ...         "pr_reason": ["ci_failing"],
    ...         "runtime_state": ["missing"],
    ...         "runtime_reason": ["tmux_missing"],
    ...     }
    ... )
    >>> mapped = map_axes(frame)
    >>> mapped.select("lifecycle", "outcome", "health", "delivery").row(0)
    ('running', None, 'process_dead', 'invalid')
    >>> mapped["reason_codes"].item().split(", ")[1:]
    ['run.health.process_dead', 'run.health.tmux_missing', 'run.delivery.ci_failing']
    """
    session = _session(is_strict)
    merged = {
        "lifecycle": nw.when(_is_overridden()).then(nw.lit("completed")).otherwise(_col("_life")),
        "outcome": nw.when(_is_overridden()).then(nw.lit("merged")).otherwise(_col("_out")),
    }
    steps = (session, merged, {"health": _health(), "delivery": _delivery()}, _reasons())
    joined = nw.concat_str(
        *(nw.col(name) for name in REASON_CODES), separator=", ", ignore_nulls=True
    )
    added = add_columns(frame, AXES, "map_axes", *steps, {"reason_codes": joined})
    return drop_columns(added, "_life", "_out", "_own", "_code")


def _col(name: str) -> Any:
    return nw.col(name)


def _session(is_strict: bool) -> dict[str, Any]:
    """Lifecycle, outcome, health and code of the session axis alone."""
    state, reason = _col("session_state"), _col("session_reason")
    is_known = reason.is_in(SESSION_REASONS)
    odd_code = (
        nw.when(is_known)
        .then(nw.lit("run.lifecycle.pair_unreachable"))
        .otherwise(nw.lit("run.lifecycle.reason_unrecognized"))
    )
    fallbacks = {
        "_life": _lookup(state, {word: odd[0] for word, odd in ODD_PAIRS.items()}, "unknown"),
        "_out": _lookup(state, {word: odd[1] for word, odd in ODD_PAIRS.items()}, "unknown"),
        "_own": _lookup(state, {word: odd[2] for word, odd in ODD_PAIRS.items()}, "unknown"),
        "_code": odd_code,
    }
    fields = {"_life": "lifecycle", "_out": "outcome", "_own": "health", "_code": "code"}
    rules = {}
    for name, attribute in fields.items():
        rule = fallbacks[name]
        for (of_state, of_reason), meaning in SESSION_MEANINGS.items():
            value = getattr(meaning, attribute)
            if is_strict and (of_state, of_reason) == ("idle", "research_complete"):
                value = {"_life": "running", "_out": None}.get(name, value)
            is_pair = (state == of_state) & (reason == of_reason)
            rule = nw.when(is_pair).then(_text(value)).otherwise(rule)
        rules[name] = rule
    return rules


def _is_overridden() -> Any:
    return (_col("pr_state") == "merged") & _col("_life").is_in(_OVERRIDDEN)


def _is_terminal() -> Any:
    return ~_col("outcome").is_null() & (_col("outcome") != "unknown")


def _health() -> Any:
    state, runtime = _col("session_state"), _col("runtime_state")
    is_over = state.is_in(_OVER)
    on_purpose = (
        (state == "done")
        | _col("session_reason").is_in(("manually_killed", "pr_merged"))
        | (_col("outcome") == "merged")
    )
    after_end = nw.when(on_purpose).then(nw.lit("ok")).otherwise(nw.lit("process_dead"))
    after_end = nw.when(runtime == "alive").then(nw.lit("orphaned")).otherwise(after_end)
    at_rest = (
        nw.when(_col("_own").is_in(("running", "unknown")))
        .then(nw.lit("ok"))
        .otherwise(_col("_own"))
    )
    ended = nw.when(is_over).then(after_end).otherwise(at_rest)
    return nw.when(_is_terminal()).then(ended).otherwise(_worst())


def _worst() -> Any:
    """The worse of what the session and the runtime say, while it is not over."""
    by_runtime = _lookup(_col("runtime_state"), RUNTIME_HEALTHS, "unknown")
    in_doubt = (_col("session_state") == "detecting") & _col("runtime_state").is_in(_GONE)
    by_runtime = nw.when(in_doubt).then(nw.lit("disconnected")).otherwise(by_runtime)
    rule = nw.lit("unknown")
    for health in reversed(HEALTHS_BY_WEIGHT):
        is_either = (_col("_own") == health) | (by_runtime == health)
        rule = nw.when(is_either).then(nw.lit(health)).otherwise(rule)
    return rule


def _delivery() -> Any:
    state, reason = _col("pr_state"), _col("pr_reason")
    outcome = _col("outcome")
    is_short = outcome.is_in(("merged", *_CUT_SHORT))
    opened = _lookup(reason, OPEN_DELIVERIES, None)
    pending = reason.is_in(SAYS_NOTHING_YET) & is_short
    opened = nw.when(pending).then(nw.lit("partial")).otherwise(opened)
    missing = outcome.is_in(("merged", "failed", "aborted"))
    none: Any = nw.when(outcome.is_in(("completed", "cancelled"))).then(nw.lit("not_expected"))
    rule: Any = nw.when(state == "open").then(opened)
    rule = nw.when((state == "none") & missing).then(nw.lit("missing")).otherwise(rule)
    rule = nw.when((state == "none") & ~missing).then(none).otherwise(rule)
    rule = nw.when(state == "closed").then(nw.lit("invalid")).otherwise(rule)
    return nw.when(state == "merged").then(nw.lit("passed")).otherwise(rule)


def _reasons() -> dict[str, Any]:
    """One reason code a column: session, override, health (2), delivery (2), left open."""
    state, runtime = _col("session_state"), _col("runtime_state")
    is_over, is_gone = state.is_in(_OVER), runtime.is_in(_GONE)
    is_dead = is_gone & ~_is_terminal() & (state != "detecting")
    health: Any = nw.when(is_dead).then(nw.lit("run.health.process_dead"))
    health = (
        nw.when((runtime == "probe_failed") & ~is_over)
        .then(nw.lit("run.health.probe_error"))
        .otherwise(health)
    )
    # A session that was done has the health, not the code: the table says so.
    orphaned = nw.lit("run.health.orphaned_runtime")
    health = (
        nw.when((_col("health") == "orphaned") & (state != "done")).then(orphaned).otherwise(health)
    )
    cause = nw.when(is_gone & ~is_over).then(_lookup(_col("runtime_reason"), RUNTIME_CODES, None))
    left_open = (_col("pr_state") == "open") & _col("outcome").is_in(_CUT_SHORT)
    columns = (
        _col("_code"),
        nw.when(_is_overridden()).then(nw.lit("run.completed.pr_merged")),
        health,
        cause,
        _delivery_code(),
        nw.when((_col("pr_state") == "none") & (_col("pr_reason") == "cleared_on_restore")).then(
            nw.lit("run.delivery.cleared_on_restore")
        ),
        nw.when(left_open).then(nw.lit("run.delivery.pr_left_open")),
    )
    return dict(zip(REASON_CODES, columns, strict=True))


def _delivery_code() -> Any:
    state, reason = _col("pr_state"), _col("pr_reason")
    codes = {word: f"run.delivery.{word}" for word in (*OPEN_DELIVERIES, "review_pending")}
    rule: Any = nw.when(state == "open").then(_lookup(reason, codes, None))
    missing = (state == "none") & (_col("delivery") == "missing")
    rule = nw.when(missing).then(nw.lit("run.delivery.missing")).otherwise(rule)
    closed = nw.lit("run.delivery.pr_closed_unmerged")
    return nw.when(state == "closed").then(closed).otherwise(rule)


def _lookup(column: Any, table: Mapping[str, str | None], default: str | None) -> Any:
    rule = _text(default)
    for word, value in table.items():
        rule = nw.when(column == word).then(_text(value)).otherwise(rule)
    return rule


def _text(value: str | None) -> Any:
    return nw.lit(value, nw.String())
