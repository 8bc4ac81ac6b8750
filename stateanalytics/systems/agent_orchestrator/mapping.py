"""The three axes of Agent Orchestrator in ADR-0033's terms, with their reasons."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    add_columns,
    drop_columns,
    look_up,
    need,
    references,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.mapping_table import (
    HEALTHS_BY_WEIGHT,
    ODD_PAIRS,
    OPEN_DELIVERIES,
    RUNTIME_CODES,
    RUNTIME_HEALTHS,
    SAYS_NOTHING_YET,
    SESSION_MEANINGS,
)
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.agent_orchestrator.words import SESSION_REASONS
from stateanalytics.systems.base import codes_from_csv

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
    merged = {
        "lifecycle": nw.when(_is_overridden()).then(nw.lit("completed")).otherwise(_col("_life")),
        "outcome": nw.when(_is_overridden()).then(nw.lit("merged")).otherwise(_col("_out")),
    }
    steps = (_session(), merged, {"health": _health(), "delivery": _delivery()}, _reasons())
    joined = nw.concat_str(
        *(nw.col(name) for name in REASON_CODES), separator=", ", ignore_nulls=True
    )
    added = add_columns(frame, AXES, "map_axes", *steps, {"reason_codes": joined})
    return drop_columns(added, "_life", "_out", "_own", "_code")


def _col(name: str) -> Any:
    return nw.col(name)


def _session() -> dict[str, Any]:
    """Lifecycle, outcome, health and code of the session axis alone."""
    state, reason = _col("session_state"), _col("session_reason")
    unreachable = nw.lit("run.lifecycle.pair_unreachable")
    pair = nw.concat_str(state, reason, separator=" ")
    rules = {}
    for place, name in enumerate(("_life", "_out", "_own", "_code")):
        table = {" ".join(words): meaning[place] for words, meaning in SESSION_MEANINGS.items()}
        if name == "_code":
            is_known = reason.is_in(SESSION_REASONS)
            unrecognized = nw.lit("run.lifecycle.reason_unrecognized")
            odd = nw.when(is_known).then(unreachable).otherwise(unrecognized)
        else:
            odd = look_up(state, {word: odd[place] for word, odd in ODD_PAIRS.items()}, "unknown")
        rules[name] = look_up(pair, table, odd)
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
    by_runtime = look_up(_col("runtime_state"), RUNTIME_HEALTHS, "unknown")
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
    opened = look_up(reason, OPEN_DELIVERIES, None)
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
    cause = nw.when(is_gone & ~is_over).then(look_up(_col("runtime_reason"), RUNTIME_CODES, None))
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
    rule: Any = nw.when(state == "open").then(look_up(reason, codes, None))
    missing = (state == "none") & (_col("delivery") == "missing")
    rule = nw.when(missing).then(nw.lit("run.delivery.missing")).otherwise(rule)
    closed = nw.lit("run.delivery.pr_closed_unmerged")
    return nw.when(state == "closed").then(closed).otherwise(rule)


_SHARED = {
    "run.health.process_dead": "its process is gone",
    "run.delivery.missing": "it ended without a pull request",
}
"""Words for the codes that are not this system's own."""
_WORDS_ONLY = "run.lifecycle.synthesized"
_SEEN = ("agent_report:", "activity_signal=valid")
_BY_CI = ("run.running.fixing_ci", "run.running.resolving_review_comments")
_ODD = ("run.lifecycle.pair_unreachable", "run.lifecycle.reason_unrecognized")


def list_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """The reasons of each session, one a row, most direct first.

    Parameters
    ----------
    mapped : polars.DataFrame, shape (n_sessions, ...)
        What `map_axes` gives, with the columns ``key``;
        optionally ``evidence`` (the stored text) and ``is_synthesized`` (of
        `parse_lifecycle`).
    key : sequence of str
        The columns that name a session.

    Returns
    -------
    polars.DataFrame, shape (n_reasons, len(key) + 7)
        ``key``, ``order`` (from 0), ``dimension`` (lifecycle, health, delivery), ``code``,
        ``message``, ``claim_status`` (observed, inferred, hypothesis), ``confidence`` (0 to
        1) and ``evidence``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    *Working* is what Agent Orchestrator falls back to: it counts as observed only where the
    evidence is a report or a valid signal. A made-up record is worth half.

    Examples
    --------
    >>> import polars as pl
    >>> from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
    >>> words = ["terminated", "runtime_lost", "none", "not_created", "exited", "process_missing"]
    >>> frame = pl.DataFrame([["app-5", *words]], schema=["session_id", *AXES], orient="row")
    >>> list_reasons(map_axes(frame), key=["session_id"]).select("code", "confidence").rows()
    [('run.aborted.runtime_lost', 0.6), ('run.delivery.missing', 1.0)]
    """
    need(mapped, [*key, *REASON_CODES], "list_reasons")
    filled = with_defaults(mapped, {"evidence": pl.String(), "is_synthesized": pl.Boolean()})
    rows = (
        filled.with_row_index("_row")
        .unpivot(
            _codes_of(mapped), index=["_row", *key, "evidence", "is_synthesized"], value_name="code"
        )
        .filter(pl.col("code").is_not_null())
        .sort("_row", "variable", maintain_order=True)
    )
    in_order = rows.with_columns(order=pl.int_range(pl.len(), dtype=pl.Int64).over("_row"))
    return in_order.with_columns(
        dimension=_dimension(),
        message=pl.col("code").replace_strict(_messages(), default=None, return_dtype=pl.String),
        claim_status=_claim(),
        confidence=_confidence(),
    ).select(
        *key, "order", "dimension", "code", "message", "claim_status", "confidence", "evidence"
    )


def _codes_of(mapped: pl.DataFrame) -> list[str]:
    """`REASON_CODES`, and what else a caller has numbered in the same way."""
    return [name for name in mapped.columns if re.fullmatch(r"reason_\d", name)]


def _messages() -> dict[str, str]:
    """Reason code to words, as they stand within a sentence."""
    codes = codes_from_csv("stateanalytics.systems.agent_orchestrator")
    # A word of a generation that keeps no reasons is not explained by being said again.
    said = (code for code in codes if "generation" not in code.meaning)
    return _SHARED | {code.code: code.meaning[0].lower() + code.meaning[1:] for code in said}


def _dimension() -> pl.Expr:
    family = pl.col("code").str.extract(r"^run\.([a-z]+)\.")
    is_named = family.is_in(("health", "delivery"))
    return pl.when(is_named).then(family).otherwise(pl.lit("lifecycle"))


def _is_seen() -> pl.Expr:
    """Was the state seen, and not only fallen back to."""
    evidence = pl.col("evidence")
    is_signal = evidence.str.starts_with(_SEEN[1]) & (
        pl.col("code") == "run.running.task_in_progress"
    )
    is_guess = pl.col("code").is_in(("run.running.task_in_progress", *_BY_CI))
    return (is_guess & (evidence.str.starts_with(_SEEN[0]) | is_signal)).fill_null(False)


def _is_made_up() -> pl.Expr:
    return pl.col("is_synthesized").fill_null(False) & (pl.col("order") == 0)


def _claim() -> pl.Expr:
    claims = {meaning.code: meaning.claim for meaning in SESSION_MEANINGS.values()}
    claim = pl.col("code").replace_strict(claims, default="observed", return_dtype=pl.String)
    is_odd = pl.col("code").is_in(_ODD)
    return (
        pl.when(_is_seen())
        .then(pl.lit("observed"))
        .when(is_odd | _is_made_up())
        .then(pl.lit("inferred"))
        .otherwise(claim)
    )


def _confidence() -> pl.Expr:
    weights = {meaning.code: meaning.confidence for meaning in SESSION_MEANINGS.values()}
    weights |= dict.fromkeys(_ODD, 0.4)
    weight = pl.col("code").replace_strict(weights, default=1.0, return_dtype=pl.Float64)
    halved = pl.when(_is_made_up()).then(pl.min_horizontal(weight, pl.lit(0.5))).otherwise(weight)
    return pl.when(_is_seen()).then(pl.lit(1.0)).otherwise(halved)


def split_codes(mapped: pl.DataFrame) -> pl.DataFrame:
    """The codes of ``reason_codes`` one a column, as `map_axes` gives them."""
    codes = pl.col("reason_codes").str.split(", ")
    return mapped.with_columns(
        codes.list.get(place, null_on_oob=True).alias(name)
        for place, name in enumerate(REASON_CODES)
    )


def recorded_reasons(sessions: pl.DataFrame) -> pl.DataFrame:
    """Why every session is in its state by its current record, as `schema.REASONS`.

    Parameters
    ----------
    sessions : polars.DataFrame
        `frames.SESSIONS`.

    Returns
    -------
    polars.DataFrame
        One row a reason, most direct first. Where two writers disagreed, or an event told
        what a record no longer says, the first reason is inferred, with the confidence of
        that; a record that holds a status word only is worth half.
    """
    current = sessions.filter("is_current").with_columns(
        evidence=references(tool_result="evidence_text"),
        _confidence="confidence",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
    coded = split_codes(current)
    worded = coded.with_columns(evidence="evidence_text")
    listed = list_reasons(worded, key=schema.ENTITY_KEY).drop("evidence")
    known = coded.select(*schema.ENTITY_KEY, "evidence", "_confidence", "reattribution")
    joined = listed.join(known, on=list(schema.ENTITY_KEY), how="left", maintain_order="left")
    is_first, was_replaced = pl.col("order") == 0, pl.col("reattribution").is_not_null()
    return schema.REASONS.conform(
        joined.with_columns(
            confidence=pl.when(is_first)
            .then(pl.coalesce("_confidence", "confidence"))
            .otherwise("confidence"),
            claim_status=pl.when(is_first & was_replaced)
            .then(
                pl.when(pl.col("reattribution") == "flicker")
                .then(pl.lit("hypothesis"))
                .otherwise(pl.lit("inferred"))
            )
            .when(pl.col("code") == _WORDS_ONLY)
            .then(pl.lit("inferred"))
            .otherwise("claim_status"),
            # A code without a message of its own is read out: its last part.
            message=pl.coalesce(
                "message", pl.col("code").str.extract(r"([a-z_]+)$").str.replace_all("_", " ")
            ),
        )
    )
