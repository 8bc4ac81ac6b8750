"""Scores against labels: how well messages were parsed and grouped, and causes related."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.errors import check_columns


@dataclass(frozen=True)
class ParsingScores:
    """The four measures of the log parsing literature, each from 0 to 1.

    ``ga``: messages whose found group is exactly their true one, so that large groups decide;
    ``fga``: F1 of such groups; ``pa``: messages with exactly the true template; ``fta``: F1 of
    such groups whose text is right, too.
    """

    ga: float
    fga: float
    pa: float
    fta: float


def parsing_scores(truth: pl.Series, found: pl.Series) -> ParsingScores:
    """Compare the templates of messages with the true ones; all 1.0 for no messages.

    Khan, Z. A. et al. (2022), ICSE; Jiang, Z. et al. (2024), ISSTA.
    """
    if not truth.len():
        return ParsingScores(1.0, 1.0, 1.0, 1.0)
    pairs = pl.DataFrame({"truth": truth.alias("truth"), "found": found.alias("found")})
    n_true, n_found = truth.n_unique(), found.n_unique()
    exact = (
        pairs.group_by("truth", "found")
        .agg(n=pl.len())
        .with_columns(n_groups=pl.len().over("truth"), n_others=pl.len().over("found"))
        .filter((pl.col("n_groups") == 1) & (pl.col("n_others") == 1))
    )
    right = exact.filter(pl.col("truth") == pl.col("found"))
    return ParsingScores(
        ga=float(exact["n"].sum()) / truth.len(),
        fga=2 * exact.height / (n_true + n_found),
        pa=float((pairs["truth"] == pairs["found"]).sum()) / truth.len(),
        fta=2 * right.height / (n_true + n_found),
    )


@dataclass(frozen=True)
class CauseScores:
    """F1 of pairs of one cause in one group; first related clusters that have the cause."""

    pair_f1: float
    precision_at_1: float


def cause_scores(clusters: pl.DataFrame, related: pl.DataFrame) -> CauseScores:
    """Compare cause groups (null: none) and first related clusters with the label ``cause``."""
    check_columns(clusters, ["cluster_id", "cause_group", "cause"], "cause_scores")
    check_columns(related, ["cluster_id", "related_id"], "cause_scores (related)")
    # A cluster without a group is in a group of its own.
    alone = pl.when(pl.col("cause_group").is_null()).then("cluster_id").alias("alone")
    own = ("cause_group", alone)
    n_both, n_grouped, n_true = (
        _n_pairs(clusters.group_by(by).len()) for by in (("cause", *own), own, ("cause",))
    )
    causes = clusters.select("cluster_id", "cause")
    several = causes.filter(pl.len().over("cause") > 1)
    first = several.join(related, on="cluster_id").join(
        causes, left_on="related_id", right_on="cluster_id", suffix="_related"
    )
    n_right = first.filter(pl.col("cause") == pl.col("cause_related")).height
    return CauseScores(
        pair_f1=2 * n_both / max(n_grouped + n_true, 1),
        precision_at_1=n_right / max(several.height, 1),
    )


def _n_pairs(sizes: pl.DataFrame) -> int:
    n = pl.col("len").cast(pl.Int64)
    return int(sizes.select((n * (n - 1) // 2).sum()).item())
