"""Clusters of failures: a reason code and a message template, ranked by what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.failures.counting import (
    add_trend,
    by_cost,
    count_groups,
    span_of,
    without_nested,
)
from stateanalytics.failures.failure_rows import find_members, window_of
from stateanalytics.state.reason_codes import with_code_facts

if TYPE_CHECKING:
    from datetime import datetime

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.windows import Window
    from stateanalytics.state.policy import Policy

KEY = ("cluster_id", "code", "template", "template_id")
COLUMNS = (
    *(*KEY, "cause_group", "rule_name"),
    *("n_rows", "n_failed", "n_timed_out", "n_sessions", "n_causes", "n_incidents"),
    *("share", "share_low", "share_high", "first_at", "last_at", "trend", "trend_step_s"),
    *("run_s", "n_tokens", "cost_usd", "n_work"),
    *("n_run_unreported", "n_tokens_unreported", "n_cost_unreported"),
    *("rank", "example_shortest", "example_median", "example_newest"),
    *("systems", "entity_types", "meaning", "what_to_do"),
)


def clusters(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    nested: bool = False,
) -> pl.DataFrame:
    """What failed, one row for each reason code and message template, by what it cost.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, which win over the mined ones: see `Rules.of`.
    earlier : polars.DataFrame, optional
        Templates mined before, with ``pattern``, as for `mine_templates`.
    nested : bool
        ``trend`` as a list of numbers, for charts; else as text, which fits into CSV.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 34)
        ``cluster_id`` (of code and template: the same next week), ``code`` (null: none was
        stored), ``template`` (without a message: what the run did last), ``template_id``,
        ``cause_group`` (null: not known), ``rule_name``; ``n_rows``
        (``n_failed``, ``n_timed_out``), ``n_sessions``, ``n_causes`` (`cause_key`),
        ``n_incidents`` (`incidents`, and causes that stand alone);
        ``share`` of all distinct causes, from ``share_low`` to ``share_high`` (Wilson);
        ``first_at``, ``last_at`` in the window; ``trend`` (rows for each
        ``trend_step_s`` seconds, oldest first); ``run_s``, ``n_tokens``, ``cost_usd`` of
        ``n_work`` pieces of work, each counted once (null: none reported it;
        ``n_…_unreported`` did not); ``rank``, the place in the order of `life` and of the
        report: by ``cost_usd``, ``run_s``, ``n_causes``, ``n_rows``; three examples; ``systems``,
        ``entity_types``; ``meaning`` and ``what_to_do`` where the registry knows the code.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or a rule cannot be used.

    Notes
    -----
    One failure may be several rows: a play, its session and its invocation all fail;
    causes say how many different things went wrong. The interval of the share takes
    causes to be independent. Messages are as they are stored: mask secrets and escape
    them where they are shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> ranked = clusters(demo(), window="2026-W21")
    >>> ranked.filter(pl.col("n_rows") > 5 * pl.col("n_causes"))["code"].to_list()
    ['run.failed.provider_retryable']
    """
    chosen = window_of(snap, window)
    rows = find_members(snap, window=chosen, policy=policy, rules=rules, earlier=earlier)
    counted = count_clusters(rows, window=chosen, as_of=snap.as_of)
    return counted if nested else without_nested(counted)


def count_clusters(rows: pl.DataFrame, *, window: Window | None, as_of: datetime) -> pl.DataFrame:
    """Count `members` by cluster; see `clusters` for the columns."""
    since, until = span_of(rows, window, as_of)
    named = rows.group_by(KEY).agg(
        pl.col("cause_group").first(), pl.col("rule_name").sort().first()
    )
    clusters: pl.DataFrame = (
        count_groups(rows, KEY)
        .join(named, on=KEY, nulls_equal=True)
        .join(_examples(rows), on="cluster_id", how="left")
        .pipe(add_trend, rows, ["cluster_id"], since=since, until=until)
        .pipe(by_cost, "cluster_id")
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
        .pipe(with_code_facts, column="code")
        .rename({"code_meaning": "meaning", "code_what_to_do": "what_to_do"})
        .select(COLUMNS)
    )
    return clusters


def _examples(rows: pl.DataFrame) -> pl.DataFrame:
    """The shortest, the median and the newest message of each cluster."""
    texts = rows.filter(pl.col("message").str.len_bytes() > 0)
    in_order = pl.struct(pl.col("message").str.len_chars().alias("length"), "message")
    by_length = texts.group_by("cluster_id").agg(
        example_shortest=pl.col("message").sort_by(in_order).first(),
        example_median=pl.col("message").sort_by(in_order).get((pl.len() - 1) // 2),
    )
    newest = texts.sort(
        "failed_at", "source", "entity_type", "entity_id", descending=[True, *[False] * 3]
    )
    return by_length.join(
        newest.unique("cluster_id", keep="first", maintain_order=True).select(
            "cluster_id", example_newest="message"
        ),
        on="cluster_id",
        how="left",
    )
