"""The mapped axes and reasons of read sessions, as `states` and `reasons` ask for them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.mapping import REASON_CODES
from stateanalytics.systems.agent_orchestrator.mapping_reasons import list_reasons

_KEY = ("source", "system", "entity_type", "entity_id")
_ENTITY_TYPE, _SYSTEM = "session", "agent_orchestrator"
_WORDS_ONLY = "run.lifecycle.synthesized"


def axes(details: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Lifecycle, outcome, health and delivery of every session, by its current record.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
        With ``ao_sessions``; without it there are no sessions.

    Returns
    -------
    polars.DataFrame
        ``source``, ``entity_type``, ``entity_id``, the four axes and ``reason_codes``.
    """
    return _current(details).select(
        "source",
        "entity_type",
        "entity_id",
        "lifecycle",
        "outcome",
        "health",
        "delivery",
        "reason_codes",
    )


def reasons(details: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Why every session is in its state, in the shape of `schema.REASONS`.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
        With ``ao_sessions``.

    Returns
    -------
    polars.DataFrame
        One row a reason, most direct first. Where two writers disagreed, or an event told
        what a record no longer says, the first reason is inferred, with the confidence of
        that; a record that holds a status word only is worth half.
    """
    sessions = _current(details).with_columns(
        evidence=_evidence(), _confidence="confidence", system=pl.lit(_SYSTEM)
    )
    codes = pl.col("reason_codes").str.split(", ")
    coded = sessions.with_columns(
        **{name: codes.list.get(place, null_on_oob=True) for place, name in enumerate(REASON_CODES)}
    )
    told = coded.with_columns(evidence="evidence_text")
    listed = list_reasons(told, key=_KEY).drop("evidence")
    known = coded.select(*_KEY, "evidence", "_confidence", "reattribution")
    joined = listed.join(known, on=list(_KEY), how="left", maintain_order="left")
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


def _current(details: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    found = details.get(schema.AO_SESSIONS.name)
    sessions = schema.AO_SESSIONS.empty() if found is None else found
    return sessions.filter("is_current").with_columns(entity_type=pl.lit(_ENTITY_TYPE))


def _evidence() -> pl.Expr:
    """What the last poll saw, as a list of one reference."""
    reference = pl.struct(kind=pl.lit("tool_result"), detail="evidence_text").struct.json_encode()
    return pl.when(pl.col("evidence_text").is_not_null()).then(pl.format("[{}]", reference))


def _in_words() -> pl.Expr:
    """A code without a message of its own, read out: its last part."""
    return pl.col("code").str.extract(r"([a-z_]+)$").str.replace_all("_", " ")
