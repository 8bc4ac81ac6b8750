"""Scores against labels: how well messages were parsed and grouped, and causes related."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.errors import check_columns


@dataclass(frozen=True)
class ParsingScores:
    """The four measures of the log parsing literature, each from 0 to 1.

    Attributes
    ----------
    ga : float
        Grouping accuracy: messages whose found group holds exactly the messages of
        their true group. Weighted by messages, so large groups decide it.
    fga : float
        F1 of grouping: the harmonic mean of the shares of found and of true groups that
        are exactly right. Weighted by groups.
    pa : float
        Parsing accuracy: messages whose template is exactly the true text.
    fta : float
        F1 of templates: as ``fga``, where the text of the template must be right, too.
    """

    ga: float
    fga: float
    pa: float
    fta: float


def parsing_scores(truth: pl.Series, found: pl.Series) -> ParsingScores:
    """Compare the templates of messages with the true ones.

    Parameters
    ----------
    truth, found : polars.Series, length n_messages
        The template of each message: its text, or for ``ga`` and ``fga`` alone any name.

    Returns
    -------
    ParsingScores
        All 1.0 for no messages.

    References
    ----------
    .. [1] Khan, Z. A. et al. (2022). Guidelines for assessing the accuracy of log message
       template identification techniques. ICSE 2022.
    .. [2] Jiang, Z. et al. (2024). A large-scale evaluation for log parsing techniques: how
       far are we? ISSTA 2024.

    Examples
    --------
    >>> truth, found = pl.Series(["a", "a", "b", "b"]), pl.Series(["a", "a", "b", "c"])
    >>> parsing_scores(truth, found)
    ParsingScores(ga=0.5, fga=0.4, pa=0.75, fta=0.4)
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
    """Two measures, each from 0 to 1.

    Attributes
    ----------
    pair_f1 : float
        The harmonic mean of two shares: of pairs in one cause group, those of one cause;
        of pairs of one cause, those in one group. A cluster without a group is alone.
    precision_at_1 : float
        Of clusters that share their cause, those whose first related cluster has it.
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
