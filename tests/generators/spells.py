"""How long work takes and how long it is silent, with known truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tests.generators import draws
from tests.generators.distributions import log_normal


@dataclass(frozen=True)
class Kind:
    """One kind of work: how common it is beside others, how long it takes, where it is cut off.

    Its time is log-normal (``median_s``, ``sigma``) unless ``timeout_s`` cuts it off.
    """

    name: str | None
    share: float
    median_s: float
    sigma: float
    timeout_s: float


KINDS = (
    Kind("agent", 0.55, 600.0, 0.9, 1_800.0),
    Kind("play", 0.15, 2_700.0, 0.6, 7_200.0),
    Kind("flow", 0.12, 3_900.0, 0.45, 7_200.0),
    Kind("fanout", 0.08, 1_200.0, 0.7, 3_600.0),
    Kind("show-play", 0.06, 4_500.0, 0.45, 10_800.0),
    Kind("engine", 0.02, 2_400.0, 0.6, 7_200.0),
    Kind(None, 0.02, 600.0, 0.9, 1_800.0),
)
FATES = {"completed": 0.82, "failed": 0.12, "aborted": 0.03, "cancelled": 0.03}
# How long until each end, as a multiple of the time until a good end.
PACE = {"completed": 1.0, "failed": 0.5, "aborted": 0.7, "cancelled": 0.6}


def durations(n_spells: int, *, seed: int = 0, kinds: Sequence[Kind] = KINDS) -> pl.DataFrame:
    """Spells of work, with what would have happened without the timeout.

    ``latent_s`` and ``fate`` are what it would have taken and how it would have ended,
    ``duration_s`` and ``end`` what was seen: at most ``timeout_s``, and then ``timed_out``.

    The truth for a kind, with ``F`` the log-normal distribution function of its median
    and sigma: the share that has ended with fate k by t, below the limit, is
    ``FATES[k] * F(t / PACE[k])``; the share that times out is the rest at the limit.
    """
    row = pl.col("row")
    return (
        pl.select(row=pl.int_range(n_spells, dtype=pl.UInt64))
        .with_columns(kind=kind_of(row, seed, kinds))
        .pipe(add_spells, seed=seed, kinds=kinds)
        .select("kind", "timeout_s", "latent_s", "fate", "duration_s", "end")
    )


def message_gaps(
    n_sessions: int,
    *,
    seed: int = 0,
    n_gaps: int = 40,
    median_s: float = 30.0,
    sigma: float = 1.2,
    long_share: float = 0.004,
    long_median_s: float = 5_400.0,
) -> pl.DataFrame:
    """Silences between the messages of sessions that are alive; ``is_long`` are false alarms.

    Ordinary ones are log-normal (``median_s``, ``sigma``), long ones (a build, a download, a
    person who thinks) too, with a sigma of 0.5.
    """
    row = pl.col("row")
    ordinary = log_normal(row, seed, "gap", median=median_s, sigma=sigma)
    long = log_normal(row, seed, "long gap", median=long_median_s, sigma=0.5)
    return (
        pl.select(row=pl.int_range(n_sessions * n_gaps, dtype=pl.UInt64))
        .with_columns(is_long=draws.uniform(row, seed, "is long") < long_share)
        .select(
            session=(row // n_gaps).cast(pl.Int64),
            seq=(row % n_gaps).cast(pl.Int64),
            gap_s=pl.when("is_long").then(long).otherwise(ordinary),
            is_long="is_long",
        )
    )


def kind_of(row: pl.Expr, seed: int, kinds: Sequence[Kind] = KINDS) -> pl.Expr:
    """A kind of work for each row number, as common as its share."""
    return draws.weighted(row, seed, "kind", {kind.name: kind.share for kind in kinds})


def add_spells(rows: pl.DataFrame, *, seed: int, kinds: Sequence[Kind] = KINDS) -> pl.DataFrame:
    """Add the columns of `durations` to rows that have ``row`` and ``kind``, in their order."""
    row = pl.col("row")
    traits = pl.DataFrame(
        {
            "kind": [kind.name for kind in kinds],
            "median_s": [kind.median_s for kind in kinds],
            "sigma": [kind.sigma for kind in kinds],
            "timeout_s": [kind.timeout_s for kind in kinds],
        },
        schema_overrides={"kind": pl.String},
    )
    pace = pl.col("fate").replace_strict(PACE, return_dtype=pl.Float64)
    latent = log_normal(
        row, seed, "latent", median=pl.col("median_s") * pace, sigma=pl.col("sigma")
    )
    is_cut = pl.col("latent_s") > pl.col("timeout_s")
    return (
        rows.join(traits, on="kind", how="left", nulls_equal=True, maintain_order="left")
        .with_columns(fate=draws.weighted(row, seed, "fate", FATES))
        .with_columns(latent_s=latent)
        .with_columns(
            duration_s=pl.min_horizontal("latent_s", "timeout_s"),
            end=pl.when(is_cut).then(pl.lit("timed_out")).otherwise("fate"),
        )
        .drop("median_s", "sigma")
    )
