"""Why a session is in its state: the codes of the mapping as reasons, with words and weights."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.columns import need, references, with_defaults
from stateanalytics.systems.agent_orchestrator.mapping import ODD_CODES, REASON_CODES
from stateanalytics.systems.agent_orchestrator.mapping_table import SESSION_MEANINGS
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.base import codes_from_csv

_SHARED = {
    "run.health.process_dead": "its process is gone",
    "run.delivery.missing": "it ended without a pull request",
}
"""Words for the codes that are not this system's own."""
_WORDS_ONLY = "run.lifecycle.synthesized"
_SEEN = ("agent_report:", "activity_signal=valid")
_BY_CI = ("run.running.fixing_ci", "run.running.resolving_review_comments")


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
    codes = _codes_of(mapped)
    rows = with_defaults(mapped, _OPTIONAL).select(*key, *_OPTIONAL, *codes).with_row_index("_row")
    # One code of each row at a time: few rows have more than two, and lists are dear.
    listed = pl.concat(
        rows.filter(pl.col(code).is_not_null()).select(
            "_row", *key, *_OPTIONAL, code=code, order=_n_there(codes[:place])
        )
        for place, code in enumerate(codes)
    )
    return _in_words(listed.sort("_row", maintain_order=True), key)


def _n_there(codes: Sequence[str]) -> pl.Expr:
    return pl.sum_horizontal(
        pl.lit(0, pl.Int64), *(pl.col(code).is_not_null() for code in codes)
    ).cast(pl.Int64)


def first_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """Of what `list_reasons` gives the most direct reason of each session."""
    filled = with_defaults(mapped, _OPTIONAL)
    first = filled.select(
        *key, *_OPTIONAL, code=pl.coalesce(_codes_of(mapped)), order=pl.lit(0, pl.Int64)
    )
    return _in_words(first.drop_nulls("code"), key)


def _in_words(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """What the code of each row says, and how sure that is."""
    return rows.select(
        *key,
        "order",
        "code",
        "evidence",
        dimension=_dimension(),
        message=pl.col("code").replace_strict(_messages(), default=None, return_dtype=pl.String),
        claim_status=_claim(),
        confidence=_confidence(),
    ).select(
        *key, "order", "dimension", "code", "message", "claim_status", "confidence", "evidence"
    )


_OPTIONAL: dict[str, pl.DataType] = {"evidence": pl.String(), "is_synthesized": pl.Boolean()}


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
    is_odd = pl.col("code").is_in(ODD_CODES)
    return (
        pl.when(_is_seen())
        .then(pl.lit("observed"))
        .when(is_odd | _is_made_up())
        .then(pl.lit("inferred"))
        .otherwise(claim)
    )


def _confidence() -> pl.Expr:
    weights = {meaning.code: meaning.confidence for meaning in SESSION_MEANINGS.values()}
    weights |= dict.fromkeys(ODD_CODES, 0.4)
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
        _references=references(tool_result="evidence_text"),
        evidence="evidence_text",
        _confidence="confidence",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
    told = ("_references", "_confidence", "reattribution")
    listed = list_reasons(split_codes(current), key=(*schema.ENTITY_KEY, *told))
    is_first, was_replaced = pl.col("order") == 0, pl.col("reattribution").is_not_null()
    return schema.REASONS.conform(
        listed.with_columns(
            evidence="_references",
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
