"""Ends before the last one, from the histories that lionagi keeps since 0.28."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.vocabulary import words_of
from stateanalytics.systems.lionagi import SYSTEM

_ENDED = tuple(word.raw_status for word in words_of("session") if word.is_terminal)


def silence_ends(facts: Facts) -> pl.DataFrame:
    """Terminal statuses of sessions; a reaper that called a live run dead ended nothing."""
    return facts.transitions.filter(
        pl.col("entity_type") == "session",
        pl.col("system") == SYSTEM.name,
        pl.col("status").is_in(_ENDED),
        ~pl.col("reason_code").is_in(SYSTEM.death_codes).fill_null(value=False),
    ).select("source", "system", "entity_id", "at", boundary=pl.lit("other_end"))
