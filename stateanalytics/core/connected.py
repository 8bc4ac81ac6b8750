"""Connected components: what is linked over any number of steps."""

from __future__ import annotations

import polars as pl


def components(n_nodes: int, links: pl.DataFrame) -> pl.Series:
    """The component of each node: the number of the first node that it is connected with.

    Parameters
    ----------
    n_nodes : int
        Nodes are the numbers from 0.
    links : polars.DataFrame
        ``node`` and ``id``, never null: nodes that share an id are linked. A row may be there
        several times.

    Returns
    -------
    polars.Series of Int64, length n_nodes

    Examples
    --------
    >>> links = pl.DataFrame({"node": [1, 2, 2, 3], "id": ["a", "a", "b", "b"]})
    >>> components(5, links).to_list()
    [0, 1, 1, 1, 4]
    """
    # Most nodes stand alone, so that only ids of several nodes are looked at.
    shared = links.filter(pl.len().over("id") > 1).select(pl.col("node").cast(pl.Int64), "id")
    component = pl.int_range(n_nodes, dtype=pl.Int64, eager=True).alias("component")
    while True:
        marked = shared.with_columns(component=component.gather(shared["node"]))
        least = marked.with_columns(least=pl.col("component").min().over("id"))
        smaller = component.replace(
            *least.group_by("component").agg(pl.col("least").min()).get_columns()
        )
        # A component is the number of a node: taking over that node's own doubles the reach,
        # so that long chains need few rounds.
        smaller = smaller.gather(smaller)
        if smaller.equals(component):
            return component
        component = smaller
