"""Failures by reason code: rows, sessions, distinct causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import check_columns
from stateanalytics.failures.counting import (
    CAUSE_COLUMNS,
    add_trend,
    count_groups,
    span_of,
    without_nested,
)
from stateanalytics.failures.failure_rows import (
    find_members,
    window_of,
)
from stateanalytics.state.definitions import cause_key
from stateanalytics.state.reason_codes import with_code_facts

if TYPE_CHECKING:
    from datetime import datetime

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.windows import Window
    from stateanalytics.state.policy import Policy


def count_by_reason_code(failed: pl.DataFrame) -> pl.DataFrame:
    """What failed, by the reason that was stored.

    Parameters
    ----------
    failed : polars.DataFrame
        What `select_failures` gave.

    Returns
    -------
    polars.DataFrame, shape (n_codes, 10)
        ``code`` (null: none was stored), ``n_rows`` (entities of every type),
        ``n_failed`` and ``n_timed_out`` (parts of it), ``n_sessions``, ``n_causes``
        (`cause_key`), ``share_of_rows`` (of the rows of all codes), ``first_at``,
        ``last_at``, ``example`` (newest message). Most causes first, then rows, then code.

    Notes
    -----
    One failure may be several rows: a play, its session and its invocation all fail;
    causes say how many different things went wrong.
    """
    needed = (*CAUSE_COLUMNS, "outcome", "placed_at", "reason_message")
    check_columns(failed, needed, "count_by_reason_code")
    newest_first = pl.struct(
        -pl.col("placed_at").dt.epoch("us").fill_null(0), "entity_type", "entity_id"
    )
    has_message = pl.col("reason_message").str.len_bytes() > 0
    return (
        failed.with_columns(cause_key())
        .group_by(pl.col("reason_code").alias("code"))
        .agg(
            n_rows=pl.len().cast(pl.Int64),
            n_failed=(pl.col("outcome") == "failed").sum().cast(pl.Int64),
            n_timed_out=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64),
            n_sessions=pl.struct("source", "session_id")
            .filter(pl.col("session_id").is_not_null())
            .n_unique()
            .cast(pl.Int64),
            n_causes=pl.col("cause").n_unique().cast(pl.Int64),
            first_at=pl.col("placed_at").min(),
            last_at=pl.col("placed_at").max(),
            example=pl.col("reason_message")
            .filter(has_message)
            .sort_by(newest_first.filter(has_message))
            .first(),
        )
        # By a whole column: polars divides by one number through its rounded inverse.
        .with_columns(share_of_rows=pl.col("n_rows") / pl.col("n_rows").sum().over(pl.lit(1)))
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
        .select(
            "code",
            "n_rows",
            "n_failed",
            "n_timed_out",
            "n_sessions",
            "n_causes",
            "share_of_rows",
            "first_at",
            "last_at",
            "example",
        )
    )


NODE_COLUMNS = (
    *("code", "parent", "depth", "is_leaf"),
    *("n_rows", "n_failed", "n_timed_out", "n_sessions", "n_causes", "n_incidents", "n_clusters"),
    *("share", "share_low", "share_high", "first_at", "last_at", "trend", "trend_step_s"),
    *("run_s", "n_tokens", "cost_usd", "n_work"),
    *("n_run_unreported", "n_tokens_unreported", "n_cost_unreported"),
    *("systems", "entity_types", "meaning", "what_to_do"),
)


def codes(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    nested: bool = False,
) -> pl.DataFrame:
    """What failed by reason code, one row for every node of the namespace.

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
    nested : bool
        ``trend`` as a list of numbers; else as text, which fits into CSV.

    Returns
    -------
    polars.DataFrame, shape (n_nodes, 29)
        Every parent before its children, most causes first. ``code`` is the node
        (``run``, ``run.failed``, ``run.failed.exception``), ``parent`` the node above it
        (null: none), ``depth`` from 1, ``is_leaf`` whether rows carry this very code. A
        row without a code has a null ``code`` and stands alone, last. The other columns
        count the rows of the node and of all below it, as `clusters` does:
        ``share`` is of all distinct causes.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or the window makes no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> nodes = codes(demo())
    >>> nodes["code"].head(2).to_list(), nodes["code"].to_list()[-1]
    (['run', 'run.failed'], 'run.timed_out.deadline')
    """
    chosen = window_of(snap, window)
    rows = find_members(snap, window=chosen, policy=policy, rules=rules)
    counted = count_codes(rows, window=chosen, as_of=snap.as_of)
    return counted if nested else without_nested(counted)


def count_codes(rows: pl.DataFrame, *, window: Window | None, as_of: datetime) -> pl.DataFrame:
    """Count `members` over the namespace; see `codes` for the columns."""
    since, until = span_of(rows, window, as_of)
    nodes = _nodes(rows["code"].unique().drop_nulls())
    below = pl.concat(
        [
            rows.join(nodes.select("code", "node"), on="code"),
            rows.filter(pl.col("code").is_null()).with_columns(node=pl.lit(None, pl.String)),
        ]
    )
    places = (
        nodes.select(code="node")
        .unique()
        .with_columns(
            parent=pl.when(pl.col("code").str.contains(".", literal=True)).then(
                pl.col("code").str.replace(r"\.[^.]*$", "")
            ),
            depth=pl.col("code").str.count_matches(".", literal=True).cast(pl.Int64) + 1,
        )
    )
    n_clusters = below.group_by("node").agg(n_clusters=pl.col("cluster_id").n_unique())
    counted = (
        count_groups(below, ["node"])
        .join(n_clusters, on="node", nulls_equal=True)
        .pipe(add_trend, below, ["node"], since=since, until=until)
        .rename({"node": "code"})
        .join(places, on="code", how="left")
        .with_columns(
            pl.col("n_clusters").cast(pl.Int64),
            pl.col("depth").fill_null(1),
            is_leaf=pl.col("code")
            .is_in(rows["code"].unique().drop_nulls().implode())
            .fill_null(True),
        )
        .pipe(with_code_facts, column="code")
        .rename({"code_meaning": "meaning", "code_what_to_do": "what_to_do"})
        .select(NODE_COLUMNS)
    )
    return _in_tree_order(counted)


def _nodes(codes: pl.Series) -> pl.DataFrame:
    """Every code with itself and everything above it."""
    parts = codes.to_frame("code").with_columns(part=pl.col("code").str.split("."))
    return (
        parts.with_columns(depth=pl.int_ranges(1, pl.col("part").list.len() + 1))
        .explode("depth")
        .select("code", node=pl.col("part").list.head(pl.col("depth")).list.join("."))
    )


def _in_tree_order(nodes: pl.DataFrame) -> pl.DataFrame:
    """Parents before children, siblings by causes, then rows, then name; null last."""
    order = nodes.sort("n_causes", "n_rows", "code", descending=[True, True, False])
    place = dict(zip(order["code"], range(order.height), strict=True))
    paths = [
        [float("inf")]
        if code is None
        else [place[".".join(code.split(".")[:n])] for n in range(1, code.count(".") + 2)]
        for code in nodes["code"]
    ]
    by_path = sorted(range(nodes.height), key=lambda i: paths[i])
    return nodes[by_path]
