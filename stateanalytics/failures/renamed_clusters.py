"""Clusters whose id has changed: what a ledger says of the old one is said of the new one.

An id is a digest of code and template. More messages, or a better miner, may make a template
wider or narrower; one with few words of the old one tells of another failure.
"""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.failures.masking import reduced
from stateanalytics.failures.placeholders import WILDCARD

_ANYTHING = ".*?"
# As it was disarmed for spreadsheets, or as it was mined.
_DISARMED = "'?"
_MOST = 0.5


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
        id, ``cluster_id`` is a cluster of the same code whose template is the entry's made
        wider or narrower, with more than half of the words of either in both; the entry's
        fits most of its messages, or any, where it is wider now. Of several the one with
        most such messages; unless the ledger has an entry for that one, too, or two entries
        are found in one: then the one with fewer stays as it is.
    """
    known = rows["cluster_id"].unique()
    lost = entries.filter(~pl.col("cluster_id").is_in(known.implode())).drop_nulls("template")
    named = entries.with_columns(ledger_id="cluster_id")
    free = rows.filter(~pl.col("cluster_id").is_in(entries["cluster_id"].implode()))
    if lost.is_empty() or free.is_empty():
        return named
    messages = free.select("message").drop_nulls().unique().with_row_index("number")
    clusters = free.drop_nulls("template").group_by("code", "cluster_id", "template").len("n_rows")
    texts = free.select("cluster_id", "message").join(
        messages.join(reduced(messages), on="number").select("message", "text"), on="message"
    )
    fitting = pl.concat(
        [
            _reworded(clusters, code, template)
            .join(texts, on="cluster_id")
            .filter(pl.col("text").str.contains(_pattern(template), strict=False))
            .group_by("cluster_id", "n_rows", "is_wider")
            .len()
            .filter(pl.col("is_wider") | (pl.col("len") > _MOST * pl.col("n_rows")))
            .select("len", ledger_id=pl.lit(entry), found="cluster_id")
            for entry, code, template in lost.select("cluster_id", "code", "template").rows()
        ]
    )
    best = (
        fitting.sort("len", "ledger_id", "found", descending=[True, False, False])
        .unique("ledger_id", keep="first", maintain_order=True)
        .unique("found", keep="first", maintain_order=True)
    )
    return (
        named.join(best, on="ledger_id", how="left", maintain_order="left")
        .with_columns(cluster_id=pl.coalesce("found", "cluster_id"))
        .drop("found", "len")
    )


def _reworded(clusters: pl.DataFrame, code: str | None, template: str) -> pl.DataFrame:
    """The clusters of a code with this template made wider or narrower, and which."""
    shown = template.removeprefix("'")
    words = pl.col("words")
    near = (
        clusters.filter(pl.col("code").eq_missing(pl.lit(code, pl.String)))
        .with_columns(words=_words(pl.col("template")), said=_words(pl.lit(shown)))
        .filter(
            words.list.set_intersection("said").list.len()
            > _MOST * pl.max_horizontal(words.list.len(), pl.col("said").list.len())
        )
    )
    patterns = pl.lit(pl.Series(map(_pattern, near["template"]), dtype=pl.String))
    return near.with_columns(
        is_wider=pl.lit(shown).str.contains(patterns, strict=False),
        is_narrower=pl.col("template").str.contains(_pattern(shown), strict=False),
    ).filter(pl.col("is_wider") | pl.col("is_narrower"))


def _words(template: pl.Expr) -> pl.Expr:
    literal = template.str.replace_all(WILDCARD, " ", literal=True)
    return literal.str.extract_all(r"\w+").list.unique()


def _pattern(template: str) -> str:
    shown = template.removeprefix("'")
    return f"^{_DISARMED}{_ANYTHING.join(map(re.escape, shown.split(WILDCARD)))}$"
