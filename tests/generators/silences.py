"""Silences of sessions, some of which die: with known truth for thresholds of silence."""

from __future__ import annotations

import polars as pl

from tests.generators import draws
from tests.generators.distributions import log_normal
from tests.generators.spells import message_gaps


def silences(
    n_sessions: int,
    *,
    seed: int = 0,
    n_gaps: int = 40,
    death_share: float = 0.1,
    median_s: float = 30.0,
    sigma: float = 1.2,
    long_share: float = 0.004,
    long_median_s: float = 5_400.0,
) -> pl.DataFrame:
    """Every silence of sessions that end well or die, as a detector would see them.

    ``n_gaps`` of each session end with a sign of life, and one with its end. The truth: a live
    session is silent for longer than t in ``n_gaps * S(t)`` places on average, with ``S`` the
    tail of `message_gaps`; it dies with probability ``death_share``. Every price of the two
    gives one best threshold.
    """
    spoken = message_gaps(
        n_sessions,
        seed=seed,
        n_gaps=n_gaps,
        median_s=median_s,
        sigma=sigma,
        long_share=long_share,
        long_median_s=long_median_s,
    )
    row = pl.col("session")
    dies = draws.uniform(row, seed, "dies") < death_share
    last = pl.select(session=pl.int_range(n_sessions, dtype=pl.Int64)).with_columns(
        seq=pl.lit(n_gaps, dtype=pl.Int64),
        gap_s=log_normal(row, seed, "last gap", median=median_s, sigma=sigma),
        closed_by=pl.when(dies).then(pl.lit("death")).otherwise(pl.lit("own_end")),
    )
    return (
        pl.concat([spoken.with_columns(closed_by=pl.lit("sign_of_life")).drop("is_long"), last])
        .sort("session", "seq")
        .select(
            "session",
            "gap_s",
            "closed_by",
            kind=pl.lit("agent"),
            is_last=pl.col("closed_by") != "sign_of_life",
            is_dead=pl.col("closed_by") == "death",
        )
        .select("session", "kind", "gap_s", "closed_by", "is_last", "is_dead")
    )
