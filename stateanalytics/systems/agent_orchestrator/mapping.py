"""What each word means in ADR-0033's terms, as tables: of three axes, and of lone status words.

The mapping is ours: Agent Orchestrator has none. Its session axis decides lifecycle and
outcome, the worst of session and runtime decides health, the pull request decides
delivery; a conflict becomes two reasons, never a compromise. Lone status words are those of
sessions before April 2026 and of the Go rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

import narwhals as nw

from stateanalytics.core.package_tables import read_table
from stateanalytics.core.schema import (
    CLAIM_STATUSES,
    DELIVERIES,
    HEALTHS,
    LIFECYCLES,
    NO_WORD,
    OUTCOMES,
)
from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    Steps,
    add_columns,
    drop_columns,
    first_true,
    look_up,
)
from stateanalytics.systems.agent_orchestrator.statuses import SESSION_REASONS


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

    state: str
    reason: str
    lifecycle: Annotated[str, LIFECYCLES]
    outcome: Annotated[str, OUTCOMES] | None
    health: Annotated[str, HEALTHS]
    code: str
    claim: Annotated[str, CLAIM_STATUSES]
    confidence: float


SESSION_MEANINGS: Mapping[tuple[str, str], SessionMeaning] = {
    (meaning.state, meaning.reason): meaning
    for meaning in read_table(__package__, "session_meanings.csv", SessionMeaning)
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

    of: Annotated[str, ("legacy", "with_pull_request", "go")]
    word: str
    lifecycle: Annotated[str, LIFECYCLES]
    outcome: Annotated[str, OUTCOMES] | None
    health: Annotated[str, (*HEALTHS, NO_WORD)] | None
    delivery: Annotated[str, (*DELIVERIES, NO_WORD)] | None
    confidence: float


MEANT = ("lifecycle", "outcome", "health", "delivery", "confidence")
"""Columns that a status word gives."""


def _meanings(of: str) -> Mapping[str, WordMeaning]:
    return {
        meaning.word: meaning
        for meaning in read_table(__package__, "word_meanings.csv", WordMeaning)
        if meaning.of == of
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
        for name in MEANT:
            rules[name] = (
                nw.when(holds)
                .then(nw.lit(getattr(meaning, name), _DTYPES.get(name, nw.String())))
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
    unknown = WordMeaning("go", "", "unknown", "unknown", "unknown", None, 0.0)
    rules = {
        name: look_up(
            word,
            {known: getattr(meaning, name) for known, meaning in table.items()},
            getattr(unknown, name),
            dtype=_DTYPES.get(name),
        )
        for name in MEANT
    }
    by_default = nw.concat_str(nw.lit("run."), nw.col("lifecycle"), nw.lit("."), word)
    unrecognized = nw.lit("run.lifecycle.status_unrecognized")
    is_known = word.is_in(list(table))
    code = nw.when(is_known).then(look_up(word, _CODES, by_default)).otherwise(unrecognized)
    rules["reason_codes"] = nw.concat_str(code, nw.lit(f", {extra}")) if extra else code
    return rules


_DTYPES = {"confidence": nw.Float64()}


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

ODD_CODES = ("run.lifecycle.pair_unreachable", "run.lifecycle.reason_unrecognized")
"""Of known words that never go together, and of a reason that is no known word."""

_OVERRIDDEN = ("running", "pending", "cancelled", "aborted")
_CUT_SHORT = ("cancelled", "aborted", "failed")
_GONE = ("exited", "missing")
_OVER = ("terminated", "done")
_DEAD = "process_dead"


def map_axes(frame: FrameT) -> FrameT:
    """Add lifecycle, outcome, health and delivery of every session, and the reasons.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        The six words: ``session_state``, ``session_reason``, ``pr_state``,
        ``pr_reason``, ``runtime_state``, ``runtime_reason``.

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
    added = add_columns(frame, AXES, "map_axes", *_steps())
    return drop_columns(added, "_pair", "_life", "_out", "_own", "_code", "_runtime")


@cache
def _steps() -> Steps:
    merged = {
        "lifecycle": first_true((_is_overridden(), "completed"), default=_col("_life")),
        "outcome": first_true((_is_overridden(), "merged"), default=_col("_out")),
    }
    steps = (
        # What many rules read is a column: Narwhals would make it again in each of them.
        {"_pair": nw.concat_str(_col("session_state"), _col("session_reason"), separator=" ")},
        _session() | {"_runtime": _runtime_health()},
        merged,
        {"health": _health(), "delivery": _delivery()},
        _reasons(),
    )
    joined = nw.concat_str(
        *(nw.col(name) for name in REASON_CODES), separator=", ", ignore_nulls=True
    )
    return (*steps, {"reason_codes": joined})


def _col(name: str) -> Any:
    return nw.col(name)


def _session() -> dict[str, Any]:
    """Lifecycle, outcome, health and code of the session axis alone."""
    state, reason = _col("session_state"), _col("session_reason")
    rules = {}
    fields = {"_life": "lifecycle", "_out": "outcome", "_own": "health", "_code": "code"}
    for place, (name, field) in enumerate(fields.items()):
        table = {" ".join(words): getattr(row, field) for words, row in SESSION_MEANINGS.items()}
        if name == "_code":
            is_known = reason.is_in(SESSION_REASONS)
            odd = first_true((is_known, ODD_CODES[0]), default=ODD_CODES[1])
        else:
            odd = look_up(state, {word: odd[place] for word, odd in ODD_PAIRS.items()}, "unknown")
        rules[name] = look_up(_col("_pair"), table, odd)
    return rules


def _is_overridden() -> Any:
    return (_col("pr_state") == "merged") & _col("_life").is_in(_OVERRIDDEN)


def _is_terminal() -> Any:
    return ~_col("outcome").is_null() & (_col("outcome") != "unknown")


def _health() -> Any:
    state, runtime, own = _col("session_state"), _col("runtime_state"), _col("_own")
    on_purpose = (
        (state == "done")
        | _col("session_reason").is_in(("manually_killed", "pr_merged"))
        | (_col("outcome") == "merged")
    )
    after_end = first_true((runtime == "alive", "orphaned"), (on_purpose, "ok"), default=_DEAD)
    at_rest = first_true((own.is_in(("running", "unknown")), "ok"), default=own)
    ended = first_true((state.is_in(_OVER), after_end), default=at_rest)
    return first_true((_is_terminal(), ended), default=_worst())


def _runtime_health() -> Any:
    """What the runtime says of the health; little while its end is in doubt."""
    runtime = _col("runtime_state")
    in_doubt = (_col("session_state") == "detecting") & runtime.is_in(_GONE)
    by_table = look_up(runtime, RUNTIME_HEALTHS, "unknown")
    return first_true((in_doubt, "disconnected"), default=by_table)


def _worst() -> Any:
    """The worse of what the session and the runtime say, while it is not over."""
    either = (
        ((_col("_own") == health) | (_col("_runtime") == health), health)
        for health in HEALTHS_BY_WEIGHT
    )
    return first_true(*either, default="unknown")


def _delivery() -> Any:
    state, reason, outcome = _col("pr_state"), _col("pr_reason"), _col("outcome")
    is_short = outcome.is_in(("merged", *_CUT_SHORT))
    missing = outcome.is_in(("merged", "failed", "aborted"))
    pending = reason.is_in(SAYS_NOTHING_YET) & is_short
    opened = first_true((pending, "partial"), default=look_up(reason, OPEN_DELIVERIES))
    none = first_true((outcome.is_in(("completed", "cancelled")), "not_expected"))
    return first_true(
        (state == "merged", "passed"),
        (state == "closed", "invalid"),
        ((state == "none") & ~missing, none),
        ((state == "none") & missing, "missing"),
        (state == "open", opened),
    )


def _reasons() -> dict[str, Any]:
    """One reason code a column: session, override, health (2), delivery (2), left open."""
    state, runtime, pr_state = _col("session_state"), _col("runtime_state"), _col("pr_state")
    is_over, is_gone = state.is_in(_OVER), runtime.is_in(_GONE)
    is_dead = is_gone & ~_is_terminal() & (state != "detecting")
    health = first_true(
        # A session that was done has the health, not the code: the table says so.
        ((_col("health") == "orphaned") & (state != "done"), "run.health.orphaned_runtime"),
        ((runtime == "probe_failed") & ~is_over, "run.health.probe_error"),
        (is_dead, "run.health.process_dead"),
    )
    cause = first_true((is_gone & ~is_over, look_up(_col("runtime_reason"), RUNTIME_CODES)))
    is_cleared = (pr_state == "none") & (_col("pr_reason") == "cleared_on_restore")
    is_left_open = (pr_state == "open") & _col("outcome").is_in(_CUT_SHORT)
    columns = (
        _col("_code"),
        first_true((_is_overridden(), "run.completed.pr_merged")),
        health,
        cause,
        _delivery_code(),
        first_true((is_cleared, "run.delivery.cleared_on_restore")),
        first_true((is_left_open, "run.delivery.pr_left_open")),
    )
    return dict(zip(REASON_CODES, columns, strict=True))


def _delivery_code() -> Any:
    state = _col("pr_state")
    codes = {word: f"run.delivery.{word}" for word in (*OPEN_DELIVERIES, "review_pending")}
    return first_true(
        (state == "closed", "run.delivery.pr_closed_unmerged"),
        ((state == "none") & (_col("delivery") == "missing"), "run.delivery.missing"),
        (state == "open", look_up(_col("pr_reason"), codes)),
    )
