"""The reasons of a mapped session as rows: code, claim, confidence, evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
from stateanalytics.systems.agent_orchestrator.mapping import REASON_CODES
from stateanalytics.systems.agent_orchestrator.mapping_table import SESSION_MEANINGS
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

MESSAGES: Mapping[str, str] = {
    "run.completed.pr_merged": "its pull request is merged",
    "run.health.process_dead": "its process is gone",
    "run.health.probe_error": "the probe of its runtime failed",
    "run.health.orphaned_runtime": "it is over, but its runtime still runs",
    "run.health.tmux_missing": "its terminal is gone",
    "run.health.manual_kill_requested": "a person asked for its end",
    "run.health.pr_merged_cleanup": "its runtime was removed after the merge",
    "run.health.auto_cleanup": "its runtime was removed as dead",
    "run.delivery.missing": "it ended without a pull request",
    "run.delivery.pr_closed_unmerged": "its pull request was closed unmerged",
    "run.delivery.ci_failing": "its pull request fails CI",
    "run.delivery.changes_requested": "its pull request needs changes",
    "run.delivery.approved": "its pull request is approved",
    "run.delivery.merge_ready": "its pull request can be merged",
    "run.delivery.review_pending": "its pull request waits for review",
    "run.delivery.cleared_on_restore": "its earlier pull request was set aside on restore",
    "run.delivery.pr_left_open": "it ended and left its pull request open",
    "run.health.stalled_idle": "silent for longer than its threshold",
    "run.health.stalled_detecting_exhausted": "its probes never agreed",
    "run.health.stalled_recovery_exhausted": "its recovery gave up",
    "run.health.no_acknowledge": "its agent never reported",
    "run.health.agent_needs_input": "its agent said it needs input",
    "run.health.stale_report": "its agent has not reported for long",
    "run.health.activity_stale": "its last activity is old or undated",
    "run.health.activity_unknown": "no activity was found",
    "run.health.activity_unavailable": "activity could not be looked for",
    "run.health.activity_probe_failure": "looking for activity failed",
    "run.completed.cleanup_deferred": "merged, and closed once its agent rests",
    "run.lifecycle.pair_unreachable": "its state and reason never go together",
    "run.lifecycle.reason_unrecognized": "its reason is no known word",
}
"""Reason code to words, for the codes that no session meaning has."""

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
    return {meaning.code: meaning.message for meaning in SESSION_MEANINGS.values()} | dict(MESSAGES)


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
        evidence=_evidence(),
        _confidence="confidence",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
    codes = pl.col("reason_codes").str.split(", ")
    coded = current.with_columns(
        **{name: codes.list.get(place, null_on_oob=True) for place, name in enumerate(REASON_CODES)}
    )
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
            message=pl.when(pl.col("code") == _WORDS_ONLY)
            .then(pl.lit("its record holds a status word and no axes"))
            .otherwise(pl.coalesce("message", _in_words())),
        )
    )


def _evidence() -> pl.Expr:
    """What the last poll saw, as a list of one reference."""
    reference = pl.struct(kind=pl.lit("tool_result"), detail="evidence_text").struct.json_encode()
    return pl.when(pl.col("evidence_text").is_not_null()).then(pl.format("[{}]", reference))


def _in_words() -> pl.Expr:
    """A code without a message of its own, read out: its last part."""
    return pl.col("code").str.extract(r"([a-z_]+)$").str.replace_all("_", " ")
