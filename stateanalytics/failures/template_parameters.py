"""What stood where templates say ``<*>``: the values of every placeholder of a cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import check_number
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.masking import reduced
from stateanalytics.failures.placeholders import WILDCARD

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

N_VALUES = 5
#: What stands between two placeholders in the pattern that finds their values.
_VALUE = "(.*?)"


def parameters(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    n_values: int = N_VALUES,
) -> pl.DataFrame:
    """The most frequent values of every placeholder of every cluster.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`; what a rule named or merged has no
        placeholders.
    n_values : int
        How many values of each, at least 1.

    Returns
    -------
    polars.DataFrame, shape (n_clusters x n_placeholders x n_values, 8)
        ``cluster_id``, ``code``, ``template``; ``position`` of the placeholder, from 1;
        ``value``, its ``n_rows`` and ``share`` of the cluster's rows; ``n_distinct``
        values there are. By cluster, position, then most frequent first.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense or ``n_values`` is below 1.

    Notes
    -----
    Values are those of the cleaned message: without colours, on one line. They may hold
    secrets: mask them where they are shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> values = parameters(demo())
    >>> conflicts = values.filter(pl.col("template").str.contains("could not apply"))
    >>> conflicts["position"].unique().sort().to_list()
    [1, 2]
    """
    check_number("n_values", n_values, N_VALUES, least=1, is_whole=True)
    rows = find_members(snap, window=window, policy=policy, rules=rules)
    has_any = pl.col("template").str.contains(WILDCARD, literal=True)
    values = _values(rows.filter(has_any))
    of_place = ["cluster_id", "code", "template", "position"]
    counts = values.group_by(*of_place, "value").agg(n_rows=pl.len().cast(pl.Int64))
    return (
        counts.with_columns(
            share=pl.col("n_rows") / pl.col("n_rows").sum().over("cluster_id", "position"),
            n_distinct=pl.len().over("cluster_id", "position").cast(pl.Int64),
        )
        .sort("cluster_id", "position", "n_rows", "value", descending=[False, False, True, False])
        .group_by("cluster_id", "position", maintain_order=True)
        .head(n_values)
        .select(*of_place, "value", "n_rows", "share", "n_distinct")
    )


def _values(rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each row of a cluster and each of its placeholders."""
    texts = rows.select("message").unique().with_row_index("number")
    clean = reduced(texts).join(texts, on="number").select("message", "text")
    with_text = rows.select("cluster_id", "code", "template", "message").join(clean, on="message")
    parts = [
        part.select(
            "cluster_id",
            "code",
            "template",
            value=pl.concat_list(
                pl.col("text").str.extract(_pattern(template), group)
                for group in range(1, template.count(WILDCARD) + 1)
            ),
        )
        .with_columns(position=pl.int_ranges(1, pl.col("value").list.len() + 1))
        .explode("value", "position")
        for (template,), part in with_text.partition_by("template", as_dict=True).items()
    ]
    empty = with_text.select(
        "cluster_id", "code", "template", value="message", position=pl.lit(0, pl.Int64)
    ).clear()
    return pl.concat([empty, *parts]).drop_nulls("value")


def _pattern(template: str) -> str:
    """A regular expression that finds the values; linear in the text, as all of polars' are."""
    return "^" + _VALUE.join(map(re.escape, template.split(WILDCARD))) + "$"
