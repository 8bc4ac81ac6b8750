"""The ids that a cluster is known by: its own, and every other that it had or would have had.

An id is a digest of code and template, so it changes where more messages make a template
wider, and where a new version of the miner words it otherwise. What has one of the ids of
a cluster, or a template that is mined into it, is that cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from stateanalytics.failures import templates
from stateanalytics.failures.failure_rows import cluster_id, find_members

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy


class Miner(NamedTuple):
    """How a release made templates: what `templates.mine_with_parts` does, under its version."""

    version: str
    mine: Callable[[pl.Series], pl.DataFrame]


#: Where the rules that make ids change, the ones before stand here for one release.
FORMER: tuple[Miner, ...] = ()

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "alias_id": pl.String,
    "cluster_id": pl.String,
    "code": pl.String,
    "template": pl.String,
    "n_rows": pl.Int64,
    "last_at": pl.Datetime("us", "UTC"),
}


def aliases(snap: Facts, *, policy: Policy | None = None, rules: object = None) -> pl.DataFrame:
    """Under which other ids each cluster is known, over all history.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.

    Returns
    -------
    polars.DataFrame, shape (n_aliases, 6)
        ``alias_id``, once; ``cluster_id``, ``code`` and ``template`` of today; ``n_rows`` and
        ``last_at`` of the rows that have, or would have had, that id. An alias is the id of
        messages that were mined without the others, or of those of a former release of the
        miner. Where several clusters have it, the one with most such rows.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or a rule cannot be used.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> known = aliases(demo())
    >>> known["alias_id"].is_unique().all()
    True
    """
    return find_aliases(find_members(snap, policy=policy, rules=rules))


def find_aliases(rows: pl.DataFrame) -> pl.DataFrame:
    """The `aliases` of `members` of all time."""
    now = Miner(templates.VERSION, templates.mine_with_parts)
    return _ids(rows, (now, *FORMER), ("template", "alone"))


def former_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """What former releases called the clusters of `members`: ``cluster_id``, ``former_ids``."""
    found = _ids(rows, FORMER, ("template",)) if FORMER else pl.DataFrame(schema=SCHEMA)
    return found.group_by("cluster_id").agg(former_ids=pl.col("alias_id").sort())


def _ids(rows: pl.DataFrame, miners: tuple[Miner, ...], columns: Iterable[str]) -> pl.DataFrame:
    said = rows.group_by("cluster_id", "code", "template", "message", "rule").agg(
        n_rows=pl.len().cast(pl.Int64), last_at=pl.col("failed_at").max()
    )
    texts = said["message"].drop_nulls().unique().sort()
    names = [
        mined.select(pl.lit(miner.version).alias("version"), message=texts, named=column)
        for miner in miners
        for mined in [miner.mine(texts)]
        for column in columns
    ]
    # Rules and last steps name a cluster as its template says, in every version.
    not_mined = said.filter(pl.col("message").is_null() | pl.col("rule").is_not_null())
    own = [not_mined.with_columns(version=pl.lit(m.version), named="template") for m in miners]
    pairs = (
        pl.concat([said.join(pl.concat(names), on="message"), *own], how="diagonal")
        .group_by("cluster_id", "code", "template", "version", "named")
        .agg(pl.col("n_rows").sum(), pl.col("last_at").max())
    )
    ids = [cluster_id(*named) for named in pairs.select("code", "named", "version").rows()]
    return (
        pairs.with_columns(alias_id=pl.Series(ids, dtype=pl.String))
        .filter(~pl.col("alias_id").is_in(rows["cluster_id"].unique().implode()))
        .sort("n_rows", "cluster_id", descending=[True, False])
        .unique("alias_id", keep="first", maintain_order=True)
        .sort("alias_id")
        .select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
    )


def find_entries(entries: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
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
        ``entries`` with ``ledger_id``, the id that the ledger has, and ``last_of_it_at``,
        when it failed last. Where no row has that id, ``cluster_id`` is the cluster that has
        it among its `aliases`, or else the one of the same code that the entry's template is
        mined into (``last_of_it_at`` is null then: other failures may be in it, too); unless
        the ledger has an entry for that one as well. Of two entries that are found in one
        cluster, the one with fewer rows stays as it is.
    """
    named = entries.with_columns(ledger_id="cluster_id")
    own = rows.group_by("cluster_id").agg(last_of_it_at=pl.col("failed_at").max())
    lost = named.join(own, on="cluster_id", how="anti")
    if lost.is_empty() or rows.is_empty():
        return named.join(own, on="cluster_id", how="left", maintain_order="left")
    by_id = lost.join(find_aliases(rows), left_on="ledger_id", right_on="alias_id").select(
        "ledger_id", "n_rows", found="cluster_id_right", last_found_at="last_at"
    )
    by_text = _mined_into(lost.join(by_id, on="ledger_id", how="anti"), rows)
    best = (
        pl.concat([by_id, by_text], how="diagonal_relaxed")
        .filter(~pl.col("found").is_in(entries["cluster_id"].implode()))
        .sort("n_rows", "ledger_id", "found", descending=[True, False, False])
        .unique("ledger_id", keep="first", maintain_order=True)
        .unique("found", keep="first", maintain_order=True)
    )
    return (
        named.join(best, on="ledger_id", how="left", maintain_order="left")
        .join(own, on="cluster_id", how="left", maintain_order="left")
        .with_columns(
            cluster_id=pl.coalesce("found", "cluster_id"),
            last_of_it_at=pl.coalesce("last_found_at", "last_of_it_at"),
        )
        .drop("found", "n_rows", "last_found_at")
    )


def _mined_into(lost: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The cluster that the template of an entry falls into, as one more message would."""
    # As it was disarmed for spreadsheets, or as it was mined.
    entries = lost.drop_nulls("template").select(
        "ledger_id", "code", message=pl.col("template").str.strip_prefix("'")
    )
    messages = rows.select("code", "message", found="cluster_id").drop_nulls("message")
    texts = pl.concat([entries["message"], messages["message"]]).unique().sort()
    mined = templates.mine_templates(texts).select("template", message=texts)
    of_rows = (
        messages.join(mined, on="message")
        .group_by("code", "template", "found")
        .agg(n_rows=pl.len().cast(pl.Int64))
    )
    return (
        entries.join(mined, on="message")
        .join(of_rows, on=["code", "template"], nulls_equal=True)
        .select("ledger_id", "n_rows", "found")
    )
