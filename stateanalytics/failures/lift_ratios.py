"""What distinguishes a cluster: the agents, models, hours it has more of than all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import check_share
from stateanalytics.failures.clustering import KEY
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows, window_of
from stateanalytics.state.population import within
from stateanalytics.stats.distributions import benjamini_hochberg, hypergeometric_tail
from stateanalytics.stats.intervals import wilson_columns

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

DIMENSIONS = ("agent", "model", "provider", "playbook", "project", "kind", "hour", "version")
COLUMNS = (
    *(*KEY, "rule_name", "dimension", "value", "n_in", "n_cluster", "n_value", "n_all"),
    *("share_in", "share_all", "lift", "lift_low", "lift_high", "p_value", "q_value"),
    "is_over_represented",
)


def lift(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    fdr: float = 0.05,
) -> pl.DataFrame:
    """How much more often each cluster has an agent, a model, an hour … than all runs have.

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
    fdr : float
        The share of false findings that is accepted.

    Returns
    -------
    polars.DataFrame, shape (n_findings, 19)
        The key of `clusters`, ``rule_name``, ``dimension`` (of `DIMENSIONS`) and
        ``value``; ``n_in`` of ``n_cluster`` requests of the cluster, one an incident, have the
        value, and ``n_value`` of ``n_all`` requests of all; the two shares, and ``lift``, the first
        over the second, with its 95 % interval; ``p_value`` and ``q_value``;
        ``is_over_represented`` where the q-value is at most ``fdr``. Smallest p-value
        first. Values that no failure of the cluster has are not listed.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or ``fdr`` is not between 0
        and 1.

    Notes
    -----
    Counted are requests (an invocation, else a session) whose runs have ended, each once
    for every value that one of its runs has: the sessions of a fan-out are alike and would
    prove anything. Of the requests of a cluster that one incident took, only the first counts:
    what fails together shares its hour and project anyway. Requests for which a dimension was
    not recorded are left out of it.
    The test is Fisher's, one-sided; the interval is Wilson's for the share in the cluster,
    with the share of all taken as known. ``hour`` is that of the start, UTC; ``version``
    is what wrote the store. Tested are clusters with at least two requests and dimensions
    with at least two values; the q-value is Benjamini and Hochberg's over all of these.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> lift(demo())["lift"].min() > 0
    True
    """
    check_share("fdr", fdr, 0.05)
    chosen = window_of(snap, window)
    rows = judged_rows(snap, policy)
    members = find_members(snap, window=chosen, rules=rules, rows=rows)
    here = rows if chosen is None else within(rows, chosen, as_of=snap.as_of)
    values = _values(ended_runs(here), snap.sources)
    return _compared(members.with_columns(request=_request()), values, fdr)


def _request() -> pl.Expr:
    request = pl.coalesce(
        pl.lit("invocation:") + pl.col("invocation_id"), pl.lit("session:") + pl.col("session_id")
    )
    return pl.concat_str("source", request, separator="|")


def _values(runs: pl.DataFrame, sources: pl.DataFrame) -> pl.DataFrame:
    """Every value that a run of a request has: one row a request, dimension and value."""
    versions = sources.select("source", version="format").unique("source", keep="first")
    described = runs.join(versions, on="source", how="left", maintain_order="left").with_columns(
        request=_request(), hour=pl.col("started_at").dt.strftime("%H:00")
    )
    return (
        described.unpivot(DIMENSIONS, index="request", variable_name="dimension")
        .drop_nulls()
        .unique()
    )


def _compared(rows: pl.DataFrame, values: pl.DataFrame, fdr: float) -> pl.DataFrame:
    whole = ["dimension"]
    of_all = (
        values.group_by("dimension", "value")
        .agg(n_value=pl.len().cast(pl.Int64))
        .join(
            values.group_by(whole).agg(
                n_all=pl.col("request").n_unique().cast(pl.Int64),
                n_values=pl.col("value").n_unique(),
            ),
            on=whole,
        )
    )
    # Failures of one incident happen to like requests for one reason: its first speaks for all.
    theirs = (
        rows.join(values, on="request", how="semi")
        .with_columns(unit=pl.coalesce("incident_id", "request"))
        .sort("failed_at", "request")
        .unique(["cluster_id", "unit"], keep="first", maintain_order=True)
        .select(*KEY, "rule_name", "request")
        .unique()
        .join(values, on="request")
    )
    of_cluster = theirs.group_by("cluster_id", "dimension").agg(
        n_cluster=pl.col("request").n_unique().cast(pl.Int64)
    )
    counts = (
        theirs.group_by(*KEY, "dimension", "value")
        .agg(pl.col("rule_name").first(), n_in=pl.col("request").n_unique().cast(pl.Int64))
        .join(of_cluster, on=["cluster_id", "dimension"])
        .join(of_all, on=["dimension", "value"])
        .filter(pl.col("n_cluster") > 1, pl.col("n_values") > 1)
        .with_columns(
            *wilson_columns("n_in", "n_cluster", prefix="share_in"),
            share_all=pl.col("n_value") / pl.col("n_all"),
        )
    )
    tables = ["n_in", "n_cluster", "n_value", "n_all"]
    distinct = counts.select(tables).unique()
    p_values = pl.Series([hypergeometric_tail(*row) for row in distinct.rows()], dtype=pl.Float64)
    return (
        counts.join(distinct.with_columns(p_value=p_values), on=tables, how="left")
        .with_columns(
            benjamini_hochberg(),
            lift=pl.col("share_in") / pl.col("share_all"),
            lift_low=pl.col("share_in_low") / pl.col("share_all"),
            lift_high=pl.col("share_in_high") / pl.col("share_all"),
        )
        .with_columns(is_over_represented=pl.col("q_value") <= fdr)
        .sort(
            "p_value",
            "lift",
            "cluster_id",
            "dimension",
            "value",
            descending=[False, True, False, False, False],
        )
        .select(COLUMNS)
    )
