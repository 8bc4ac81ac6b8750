"""Which models each session used, and for how many tokens, as its system's own frames tell."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import INTEGER, KEY_COLUMNS, MOMENT, TEXT, YES_NO, Column, Frame
from stateanalytics.systems import all_systems

COUNTS = (
    *("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("n_cache_write_1h_tokens", "n_output_tokens"),
)
USED = Frame(
    "used_tokens",
    "what one session used of one model at one moment",
    (*(column.name for column in KEY_COLUMNS), "at", "model"),
    (
        *KEY_COLUMNS,
        Column("at", MOMENT, "when; null: nothing says"),
        Column("model", TEXT, "model id; null: nothing says"),
        Column("n_input_tokens", INTEGER, "tokens read in whatever way", "tokens"),
        Column("n_cache_read_tokens", INTEGER, "of those: from a cache", "tokens"),
        Column("n_cache_write_tokens", INTEGER, "of those: put into one", "tokens"),
        Column("n_cache_write_1h_tokens", INTEGER, "of these: for an hour", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written, those of reasoning too", "tokens"),
        Column("is_cost_recorded", YES_NO, "their cost is part of a reported one; null: not known"),
    ),
)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """Tokens of sessions by model, as far as their systems tell them so.

    Parameters
    ----------
    facts : Facts
        With the detail frames.

    Returns
    -------
    polars.DataFrame
        By ``source``, ``system``, ``entity_type``, ``entity_id``, ``model`` and
        ``is_cost_recorded``: `COUNTS`, of all up to as-of. What has no token has no row.
    """
    told = [
        USED.conform(
            known.used_tokens(facts).with_columns(
                system=pl.lit(known.name), entity_type=pl.lit("session")
            )
        )
        for known in all_systems()
        if known.used_tokens is not None and (facts.sources["system"] == known.name).any()
    ]
    by_then = (pl.col("at") <= facts.as_of).fill_null(value=True)
    key = (*(column.name for column in KEY_COLUMNS), "model", "is_cost_recorded")
    sums = [pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()) for name in COUNTS]
    return (
        pl.concat([USED.empty(), *told])
        .filter(by_then, pl.sum_horizontal(COUNTS) > 0)
        .group_by(key, maintain_order=True)
        .agg(total.alias(name) for total, name in zip(sums, COUNTS, strict=True))
    )
