"""Files that hang together: what one of them tells changes what another one means.

Resumes and forks copy records, subagents write files of their own: rows of such files are
folded together. Of thousands of files most stand alone or in small families.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.connected import components

FAMILY = "family"


def with_families(nodes: pl.DataFrame, ids: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Add ``family``: a number that is the same of all nodes that share any id, however far round.

    Parameters
    ----------
    nodes : polars.DataFrame
        ``source``, ``node`` and columns of ids, any number of rows a node.
    ids : sequence of sequence of str
        Columns of ids of one kind each: the same id in any of them is the same.

    Returns
    -------
    polars.DataFrame
        Each node once, in the order of the rows: ``source``, ``node``, ``family``.

    Examples
    --------
    >>> rows = pl.DataFrame({"node": list("abcd"), "id": [1, 2, 3, 4], "of": [None, 1, None, 3]})
    >>> named = rows.with_columns(source=pl.lit("s"))
    >>> with_families(named, [("id", "of")])["family"].to_list()
    [0, 0, 2, 2]
    """
    node = ("source", "node")
    numbered = nodes.select(node).unique(maintain_order=True).with_row_index(FAMILY)
    # Nothing beside numbers is joined: of thousands of files the ids are much text.
    own = nodes.select(node).join(numbered, on=node, how="left", maintain_order="left")[FAMILY]
    # Ids as numbers: two that are alike by chance make a family larger, and nothing wrong.
    pairs = pl.concat(
        nodes.select(
            own.alias("node"),
            id=pl.col("source").hash(kind) ^ pl.col(column).hash(kind),
            is_id=pl.col(column).is_not_null(),
        )
        .filter("is_id")
        .drop("is_id")
        for kind, columns in enumerate(ids)
        for column in columns
    ).unique()
    family = components(numbered.height, pairs).cast(numbered[FAMILY].dtype).alias(FAMILY)
    return numbered.select(*node, family)
