"""How sure a number is: whole sessions drawn again and again, with replacement, by a seed.

What happens within one session is not independent, so sessions are drawn and never their
parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import polars as pl

from stateanalytics.stats.agreement import CELLS, score_cells, which_cell
from stateanalytics.stats.draws import multinomial

SCORES = ("kappa", "mcc", "ac1", "pabak")

_ROWS_OF_DRAWS = 2_000_000
_PAIRS_AT_ONCE = 100


def cells_by_class(
    labels: pl.DataFrame, pairs: Sequence[tuple[str, str]], cluster: str
) -> tuple[pl.DataFrame, pl.Series]:
    """The cross table of each pair in each class of clusters, and the class of every cluster.

    Parameters
    ----------
    labels : polars.DataFrame, shape (n_units, >= 1 + n_detectors)
        A Boolean column a detector (null: not covered), and the cluster of each unit.
    pairs : sequence of (str, str)
        Which columns to compare.
    cluster : str
        The column that names the cluster.

    Returns
    -------
    cells : polars.DataFrame
        ``a``, ``b``, ``_class``, ``_size`` (its clusters) and `CELLS` of one of them; only
        classes with units that both cover.
    members : polars.Series, shape (n_clusters,)
        Sorted.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    classes, members = _classes(labels, names, cluster)
    sizes = members.value_counts(name="_size").with_columns(pl.col("_size").cast(pl.Int64))
    parts = []
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        few = pairs[first : first + _PAIRS_AT_ONCE]
        sums = classes.group_by("_class").agg(
            is_it.sum().cast(pl.Int64).alias(f"{place} {name}")
            for place, pair in enumerate(few)
            for name, is_it in which_cell(*pair).items()
        )
        parts += [
            sums.select(
                "_class",
                *(pl.col(f"{place} {name}").alias(name) for name in CELLS),
                a=pl.lit(a),
                b=pl.lit(b),
            ).filter(pl.col("n") > 0)
            for place, (a, b) in enumerate(few)
        ]
    shape = {"a": pl.String, "b": pl.String, **dict.fromkeys(("_size", *CELLS), pl.Int64)}
    if not parts:
        return pl.DataFrame(schema={"_class": pl.UInt32, **shape}), members
    return pl.concat(parts).join(sizes, on="_class").select("_class", *shape), members


def intervals_of_cells(
    cells: pl.DataFrame, members: pl.Series, *, n_resamples: int, conf_level: float, seed: int
) -> pl.DataFrame:
    """Percentile intervals of kappa, MCC, AC1 and PABAK, by resampling clusters.

    Parameters
    ----------
    cells, members
        From `cells_by_class`.
    n_resamples : int
        How often the clusters are drawn, with replacement; 0 gives no intervals.
    conf_level : float
        Between 0 and 1.
    seed : int
        The same seed gives the same intervals.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 10)
        ``a``, ``b``, and ``<score>_low``, ``<score>_high`` for each of `SCORES`; null
        where its score is not defined in any draw.

    Notes
    -----
    Sessions that count the same are drawn as one class, and all pairs share the draws.
    A draw in which a score is not defined (kappa, where all units came out alike) does not
    count.

    References
    ----------
    .. [1] Field, C. A. and Welsh, A. H. (2007). Bootstrapping clustered data. J. R.
       Statist. Soc. B 69, 369-390.

    Examples
    --------
    >>> labels = pl.DataFrame({"who": [1, 2, 3, 4], "a": [True, False] * 2, "b": [True, False] * 2})
    >>> cells, members = cells_by_class(labels, [("a", "b")], "who")
    >>> found = intervals_of_cells(cells, members, n_resamples=50, conf_level=0.95, seed=0)
    >>> found["pabak_low"].item()
    1.0
    """
    ends = [(score, end) for score in SCORES for end in ("low", "high")]
    shape = {"a": pl.String, "b": pl.String, **{"_".join(end): pl.Float64 for end in ends}}
    if cells.is_empty() or n_resamples < 1:
        return pl.DataFrame(schema=shape)
    draws = _draws(members, n_resamples, seed)
    tail = (1 - conf_level) / 2
    # Pairs go by number: millions of rows are grouped by one in half the time of two names.
    pairs = cells.select("a", "b").unique(maintain_order=True).with_row_index("_pair")
    numbered = cells.join(pairs, on=["a", "b"]).drop("a", "b")
    at_once = max(1, _ROWS_OF_DRAWS // draws.height)
    found = pl.concat(
        _ends(_scores(numbered.filter(pl.col("_pair") // at_once == part), draws), tail)
        for part in range(-(-pairs.height // at_once))
    )
    return pairs.join(found, on="_pair").sort("a", "b").select(list(shape))


def _classes(
    labels: pl.DataFrame, names: list[str], cluster: str
) -> tuple[pl.DataFrame, pl.Series]:
    """Units by the class of their cluster, and the class of every cluster.

    Two clusters are of one class where they hold the same units, in whatever order.
    """
    patterns = (
        labels.select(*names, _cluster=cluster)
        .group_by(names)
        .agg("_cluster")
        # Sorted, so that the draws do not depend on the order of the rows.
        .sort(names, nulls_last=True)
        .with_row_index("_pattern")
    )
    of_cluster = (
        patterns.select("_pattern", "_cluster")
        .explode("_cluster", empty_as_null=False, keep_nulls=True)
        .group_by("_cluster")
        .agg(_patterns=pl.col("_pattern").sort())
    )
    held = of_cluster.group_by("_patterns").len().sort("_patterns").with_row_index("_class")
    members = held.select(pl.col("_class").repeat_by("len").list.explode()).to_series()
    units = held.select("_class", _pattern="_patterns").explode("_pattern")
    return units.join(patterns, on="_pattern").select("_class", *names), members


def _draws(members: pl.Series, n_resamples: int, seed: int) -> pl.DataFrame:
    """How often each class came up in each draw: ``_draw``, ``_class``, ``_times``."""
    counts = members.value_counts(name="n").sort(members.name)
    classes, sizes = counts[members.name], counts["n"].to_list()
    random = Random(seed)
    times = [count for _ in range(n_resamples) for count in multinomial(random, sizes)]
    return pl.DataFrame(
        {
            "_draw": pl.int_range(n_resamples, eager=True).repeat_by(len(sizes)).list.explode(),
            "_class": pl.concat([classes] * n_resamples),
            "_times": pl.Series(times, dtype=pl.Float64),
        }
    ).filter(pl.col("_times") > 0)


def _scores(cells: pl.DataFrame, draws: pl.DataFrame) -> pl.DataFrame:
    """The scores of each pair in each draw."""
    summed = (
        draws.lazy()
        .join(cells.lazy(), on="_class")
        .group_by("_pair", "_draw")
        .agg((pl.col(name) * pl.col("_times")).sum() for name in CELLS[1:])
    )
    return summed.with_columns(**score_cells()).collect()


def _ends(scores: pl.DataFrame, tail: float) -> pl.DataFrame:
    return scores.group_by("_pair").agg(
        pl.col(score).quantile(share, "linear").alias(f"{score}_{end}")
        for score in SCORES
        for end, share in (("low", tail), ("high", 1 - tail))
    )
