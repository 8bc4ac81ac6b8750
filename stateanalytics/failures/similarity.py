"""Which clusters may have one cause: the same cause group, and texts that look alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import check_columns, check_number
from stateanalytics.failures.cause_groups import TITLES
from stateanalytics.failures.clustering import clusters

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

N_RELATED = 5
GRAM = 4
"""How many characters are compared at once."""

SAME_GROUP = 0.5
"""What a common cause group adds to the similarity of two texts, which is at most 1."""

LEAST = 0.35
"""Texts of different groups that are less alike than this are not suggested."""

_LONGEST = 300
# What stands in more texts than this tells little and would cost their square.
_COMMONEST = 100
_AT_ONCE = 500
COLUMNS = (
    *("cluster_id", "code", "template", "systems", "cause_group", "cause_title", "place"),
    *("related_id", "related_code", "related_template", "related_systems"),
    *("is_same_group", "similarity", "score"),
)


def related(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    n: int = N_RELATED,
) -> pl.DataFrame:
    """Which clusters may have the same cause, across tools and systems.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    n : int
        How many of each cluster at most.

    Returns
    -------
    polars.DataFrame, shape (n_suggestions, 14)
        See `relate`; clusters in the order of `clusters`.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or ``n`` is no number from 1.

    Notes
    -----
    A suggestion for a person: no id and no count rests on it.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> limits = related(demo(), n=1).filter(pl.col("cause_group") == "provider_limit")
    >>> limits["is_same_group"].all()
    True
    """
    return relate(clusters(snap, window=window, policy=policy, rules=rules), n=n)


def relate(ranked: pl.DataFrame, *, n: int = N_RELATED) -> pl.DataFrame:
    """The clusters that each cluster may have its cause in common with.

    Parameters
    ----------
    ranked : polars.DataFrame
        What `clusters` gave.
    n : int
        How many of each cluster at most.

    Returns
    -------
    polars.DataFrame, shape (n_suggestions, 14)
        ``cluster_id``, ``code``, ``template``, ``systems`` and ``cause_group`` with its
        ``cause_title``; ``place`` from 1, the same of the ``related_…`` cluster;
        ``is_same_group``; ``similarity`` of the texts, 0 to 1 (cosine of their n-grams,
        rare ones weighing more); ``score``, the similarity and `SAME_GROUP` where the
        group is the same, by which they are placed. In the order of ``ranked``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If ``n`` is no number from 1.
    """
    needed = ["cluster_id", "code", "template", "systems", "cause_group"]
    check_columns(ranked, needed, "relate")
    check_number("n", n, N_RELATED, least=1, is_whole=True)
    numbered = ranked.select(needed).with_row_index("i")
    group = numbered.select("i", "cause_group")
    pairs = (
        pl.concat([_alike(numbered), _heaviest_of_group(group, n)], how="diagonal_relaxed")
        .group_by("i", "j")
        # Rounded, so that the order of sums cannot order what is equally alike.
        .agg(pl.col("similarity").max().fill_null(0.0).round(6))
        .join(group, on="i")
        .join(group.select(j="i", other="cause_group"), on="j")
        .with_columns(is_same_group=(pl.col("cause_group") == pl.col("other")).fill_null(False))
        .filter(pl.col("is_same_group") | (pl.col("similarity") >= LEAST))
        .with_columns(score=pl.col("similarity") + SAME_GROUP * pl.col("is_same_group"))
        .sort("i", "score", "j", descending=[False, True, False])
        .with_columns(place=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("i"))
        .filter(pl.col("place") <= n)
    )
    others = numbered.select(
        j="i",
        related_id="cluster_id",
        related_code="code",
        related_template="template",
        related_systems="systems",
    )
    return (
        pairs.drop("cause_group")
        .join(numbered, on="i", maintain_order="left")
        .join(others, on="j", maintain_order="left")
        .with_columns(
            cause_title=pl.col("cause_group").replace_strict(
                dict(TITLES), default=None, return_dtype=pl.String
            )
        )
        .select(COLUMNS)
    )


def _heaviest_of_group(group: pl.DataFrame, n: int) -> pl.DataFrame:
    """The first clusters of each group beside all of it; not all pairs, which are too many."""
    named = group.drop_nulls("cause_group")
    # One more than are asked for, since none is related to itself.
    first = named.group_by("cause_group", maintain_order=True).head(n + 1)
    return (
        named.join(first.rename({"i": "j"}), on="cause_group")
        .filter(pl.col("i") != pl.col("j"))
        .select("i", "j")
    )


def _alike(texts: pl.DataFrame) -> pl.DataFrame:
    """The similarity of all texts that share an n-gram."""
    grams = _grams(texts)
    other = grams.rename({"i": "j", "weight": "other"})
    nothing = pl.DataFrame(schema={"i": grams.schema["i"], "j": grams.schema["i"]}).with_columns(
        similarity=pl.lit(None, pl.Float64)
    )
    return pl.concat(
        [
            nothing,
            *(
                grams.filter(pl.col("i") // _AT_ONCE == part)
                .join(other, on="gram")
                .filter(pl.col("i") != pl.col("j"))
                .group_by("i", "j")
                .agg(similarity=(pl.col("weight") * pl.col("other")).sum())
                for part in range(-(-texts.height // _AT_ONCE))
            ),
        ]
    )


def _grams(texts: pl.DataFrame) -> pl.DataFrame:
    """The n-grams of each text with their weights, as a vector of length 1."""
    words = pl.col("template").str.head(_LONGEST).str.to_lowercase()
    spaced = words.str.replace_all(r"<[a-z*]*>|[^\p{L}\d]+", " ").str.replace_all(r"\s+", " ")
    counts = (
        texts.select("i", text=pl.lit(" ") + spaced + pl.lit(" "))
        .drop_nulls()
        # Signed: a text may be shorter than what is compared at once.
        .with_columns(n_starts=pl.col("text").str.len_chars().cast(pl.Int64) - GRAM + 1)
        .with_columns(at=pl.int_ranges(pl.col("n_starts").clip(1)))
        .explode("at")
        .group_by("i", gram=pl.col("text").str.slice("at", GRAM))
        .agg(n=pl.len())
    )
    n_with = pl.len().over("gram")
    rarity = ((1.0 + texts.height) / (1.0 + pl.col("n_with"))).log() + 1.0
    weight = (1.0 + pl.col("n").cast(pl.Float64).log()) * rarity
    length = (pl.col("weight") ** 2).sum().over("i").sqrt()
    return (
        counts.with_columns(n_with=n_with)
        .with_columns(weight=weight)
        .with_columns(weight=pl.when(length > 0).then(pl.col("weight") / length).otherwise(0.0))
        .filter(pl.col("n_with") > 1, pl.col("n_with") <= _COMMONEST)
        .sort("gram", "i")
        .select("i", "gram", "weight")
    )
