"""Clusters whose id has changed: what a ledger says of the old one is said of the new one.

An id is a digest of code and template. More messages may make a template wider, and a
better miner words it otherwise; what failed is still what the old template says.
"""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.failures.masking import reduced
from stateanalytics.failures.placeholders import WILDCARD

_ANYTHING = ".*?"
# As it was disarmed for spreadsheets, or as it was mined.
_DISARMED = "'?"


def find_renamed(entries: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Entries of a ledger under the ids that their clusters have now.

    Parameters
    ----------
    entries : polars.DataFrame
        What `owners` gave.
    rows : polars.DataFrame
        `members` of all time.

    Returns
    -------
    polars.DataFrame
        ``entries`` with ``ledger_id``, the id that the ledger has. Where no row has that
        id, ``cluster_id`` is the cluster of the same code that most of the messages are
        of which the entry's template fits; unless the ledger has an entry for that one,
        too, or two entries are found in one: then the one with fewer stays as it is.
    """
    known = rows["cluster_id"].unique()
    lost = entries.filter(~pl.col("cluster_id").is_in(known.implode())).drop_nulls("template")
    named = entries.with_columns(ledger_id="cluster_id")
    free = rows.filter(~pl.col("cluster_id").is_in(entries["cluster_id"].implode()))
    if lost.is_empty() or free.is_empty():
        return named
    messages = free.select("message").drop_nulls().unique().with_row_index("number")
    texts = free.select("code", "cluster_id", "message").join(
        messages.join(reduced(messages), on="number").select("message", "text"), on="message"
    )
    fitting = pl.concat(
        [
            texts.filter(
                pl.col("code").eq_missing(pl.lit(code, pl.String)),
                pl.col("text").str.contains(_pattern(template), strict=False),
            ).select(ledger_id=pl.lit(entry), found="cluster_id")
            for entry, code, template in lost.select("cluster_id", "code", "template").rows()
        ]
    )
    best = (
        fitting.group_by("ledger_id", "found")
        .len()
        .sort("len", "ledger_id", "found", descending=[True, False, False])
        .unique("ledger_id", keep="first", maintain_order=True)
        .unique("found", keep="first", maintain_order=True)
    )
    return (
        named.join(best, on="ledger_id", how="left", maintain_order="left")
        .with_columns(cluster_id=pl.coalesce("found", "cluster_id"))
        .drop("found", "len")
    )


def _pattern(template: str) -> str:
    shown = template.removeprefix("'")
    return f"^{_DISARMED}{_ANYTHING.join(map(re.escape, shown.split(WILDCARD)))}$"
