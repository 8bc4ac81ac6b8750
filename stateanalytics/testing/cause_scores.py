"""How well causes of failures were grouped and related, against labels of them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.errors import check_columns


@dataclass(frozen=True)
class CauseScores:
    """Two measures, each from 0 to 1.

    Attributes
    ----------
    pair_f1 : float
        The harmonic mean of two shares: of pairs in one cause group, those of one cause;
        of pairs of one cause, those in one group. What has no group is alone.
    precision_at_1 : float
        Of templates whose cause others have too, those whose first related one has it.
    """

    pair_f1: float
    precision_at_1: float


def cause_scores(clusters: pl.DataFrame, related: pl.DataFrame) -> CauseScores:
    """Compare cause groups and related clusters with labels.

    Parameters
    ----------
    clusters : polars.DataFrame
        ``cluster_id``, ``cause_group`` (null: none) and ``cause``, the label.
    related : polars.DataFrame
        ``cluster_id`` and ``related_id``, the first of each cluster that has one.

    Returns
    -------
    CauseScores

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> clusters = {"cluster_id": [1, 2], "cause_group": ["a", "a"], "cause": ["x", "x"]}
    >>> related = {"cluster_id": [1], "related_id": [2]}
    >>> cause_scores(pl.DataFrame(clusters), pl.DataFrame(related))
    CauseScores(pair_f1=1.0, precision_at_1=0.5)
    """
    check_columns(clusters, ["cluster_id", "cause_group", "cause"], "cause_scores")
    check_columns(related, ["cluster_id", "related_id"], "cause_scores (related)")
    # What has no group is told from the groups, and from whatever else has none.
    alone = pl.when(pl.col("cause_group").is_null()).then("cluster_id").alias("alone")
    own = ("cause_group", alone)
    n_both, n_found, n_true = (
        _n_pairs(clusters.group_by(by).len()) for by in (("cause", *own), own, ("cause",))
    )
    causes = clusters.select("cluster_id", "cause")
    several = causes.filter(pl.len().over("cause") > 1)
    first = several.join(related, on="cluster_id").join(
        causes, left_on="related_id", right_on="cluster_id", suffix="_related"
    )
    n_right = first.filter(pl.col("cause") == pl.col("cause_related")).height
    return CauseScores(
        pair_f1=2 * n_both / max(n_found + n_true, 1),
        precision_at_1=n_right / max(several.height, 1),
    )


def _n_pairs(sizes: pl.DataFrame) -> int:
    n = pl.col("len").cast(pl.Int64)
    return int(sizes.select((n * (n - 1) // 2).sum()).item())
