"""Clusters of failures: by reason code and message template, by code, and their placeholders."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from itertools import accumulate

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected
from stateanalytics.core.windows import Window
from stateanalytics.errors import check_number
from stateanalytics.failures import counting
from stateanalytics.failures.call_outcomes import NONE_ENDED, OF, RUNS, call_rows, calls, runs_ended
from stateanalytics.failures.failure_rows import find_members, window_of
from stateanalytics.failures.fault_registry import with_registered
from stateanalytics.failures.fault_table import KEY, titled_clusters
from stateanalytics.failures.frames import CLUSTERS, CODES
from stateanalytics.failures.masking import WILDCARD, clean_lines
from stateanalytics.state.policy import Policy
from stateanalytics.state.reasons import with_meanings

N_VALUES = 5
# The group that stands for a placeholder in the pattern that extracts values.
_VALUE = "(.*?)"


def clusters(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    nested: bool = False,
    of: str = RUNS,
    registry: object = None,
) -> pl.DataFrame:
    """Clusters of failures by reason code and message template, the most expensive first.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, which override the mined ones: see `Rules.of`.
    earlier : polars.DataFrame, optional
        Templates mined before, with ``pattern``, as for `mine_templates`.
    nested : bool
        ``trend`` as a list of numbers, for charts; else as text, which fits into CSV.
    of : str
        runs, or calls: the calls of tools inside of runs.
    registry : path or polars.DataFrame, optional
        Ids of faults from a file that `register` wrote.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 39)
        ``cluster_id`` (of code and template: the same next week), ``code`` (null: none was
        stored), ``template`` (without a message: the run's last activities), ``template_id``,
        ``title`` for people, ``fault_id`` (`faults`: what one person would fix),
        ``cause_group`` (null: not known, and then perhaps ``cause_proposed``, a proposal of
        `proposed_cause`), ``rule_name``; ``n_rows``
        (``n_failed``, ``n_timed_out``), ``n_sessions``, ``n_causes`` (`cause_key`),
        ``n_incidents`` (`incidents`, and causes that are in none);
        ``share`` of all distinct causes, from ``share_low`` to ``share_high`` (Wilson);
        ``first_at``, ``last_at`` in the window; ``trend`` (rows for each
        ``trend_step_s`` seconds, oldest first); ``run_s``, ``n_tokens``, ``cost_usd`` of
        ``n_work`` pieces of work, without double counting (null: none reported it;
        ``n_…_unreported`` did not); ``rank``, the place in the order of `life` and of the
        report: by ``cost_usd``, ``run_s``, ``n_causes``, ``n_rows``; of calls,
        ``run_cluster_id`` and ``n_runs_ended``: the runs that ended with such a call, which are
        the same fault; three examples; ``systems``,
        ``entity_types``; ``meaning`` and ``what_to_do`` where the registry knows the code.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, or a rule or the registry
        cannot be used.

    Notes
    -----
    One failure may be several rows: a play, its session and its invocation all fail;
    causes count how many different things went wrong. The interval of the share assumes
    independent causes. Messages are as they are stored: mask secrets and escape
    them where they are shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> ranked = clusters(demo(), window="2026-W21")
    >>> ranked.filter(pl.col("n_rows") > 5 * pl.col("n_causes"))["code"].to_list()
    ['run.failed.provider_retryable']
    """
    chosen = window_of(snap, window)
    find = partial(find_members, snap, window=chosen, policy=policy, rules=rules, earlier=earlier)
    # Calls are computed once, for their failures and for the last one of each run.
    called = calls(snap) if of == OF[1] else None
    rows = find(of=of, rows=None if called is None else call_rows(snap, called))
    ended = None if called is None else runs_ended(find(), rows, called)
    rows = with_registered(rows, registry, "failures.clusters")
    counted = count_clusters(rows, window=chosen, as_of=snap.as_of, ended=ended)
    return counted if nested else counting.without_nested(counted)


def count_clusters(
    rows: pl.DataFrame, *, window: Window | None, as_of: datetime, ended: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Count `members` by cluster, with their `runs_ended`; see `clusters` for the columns."""
    since, until = counting.trend_span(rows, window, as_of)
    counted = collected(
        counting.count_groups(rows, KEY)
        .lazy()
        .join(titled_clusters(rows).lazy(), on=KEY, nulls_equal=True)
        .join(_examples(rows.lazy()), on="cluster_id", how="left")
    )
    clusters: pl.DataFrame = (
        counting.add_trend(counted, rows, ["cluster_id"], since=since, until=until)
        .lazy()
        .pipe(counting.sorted_by_cost, "cluster_id")
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
        .pipe(with_meanings)
        .join((NONE_ENDED if ended is None else ended).lazy(), on="cluster_id", how="left")
        .select(CLUSTERS.dtypes.names())
        .pipe(collected)
    )
    return clusters


def _examples(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The shortest, the median and the newest message of each cluster."""
    message = pl.col("message")
    texts = rows.filter(message.str.len_bytes() > 0)
    by_length = message.sort_by(pl.struct(message.str.len_chars().alias("length"), "message"))
    key = ("failed_at", "source", "entity_type", "entity_id")
    newest = texts.sort(key, descending=[True, *[False] * 3])
    return newest.group_by("cluster_id", maintain_order=True).agg(
        example_shortest=by_length.first(),
        example_median=by_length.get((pl.len() - 1) // 2),
        example_newest=message.first(),
    )


def codes(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    nested: bool = False,
    of: str = RUNS,
) -> pl.DataFrame:
    """Failures by reason code, one row for every node of the namespace.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    nested : bool
        ``trend`` as a list of numbers; else as text, which fits into CSV.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_nodes, 29)
        Every parent before its children, most causes first. ``code`` is the node
        (``run``, ``run.failed``, ``run.failed.exception``), ``parent`` the node above it
        (null: none), ``depth`` from 1, ``is_leaf`` whether rows carry exactly this code.
        Failures without a code are one row with a null ``code``, the last. The other columns
        count the rows of the node and of all below it, as `clusters` does:
        ``share`` is of all distinct causes.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the window makes no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> nodes = codes(demo())
    >>> nodes["code"].head(2).to_list(), nodes["code"].to_list()[-1]
    (['run', 'run.failed'], 'run.timed_out.deadline')
    """
    chosen = window_of(snap, window)
    rows = find_members(snap, window=chosen, policy=policy, rules=rules, of=of)
    since, until = counting.trend_span(rows, chosen, snap.as_of)
    stored = rows["code"].unique().drop_nulls()
    nodes = _nodes(stored)
    below = pl.concat(
        [
            rows.join(nodes.select("code", "node"), on="code", maintain_order="left"),
            rows.filter(pl.col("code").is_null()).with_columns(node=pl.lit(None, pl.String)),
        ]
    )
    code, n_clusters = pl.col("code"), pl.col("cluster_id").n_unique().cast(pl.Int64)
    counted = (
        counting.count_groups(below, ["node"])
        .join(below.group_by("node").agg(n_clusters=n_clusters), on="node", nulls_equal=True)
        .pipe(counting.add_trend, below, ["node"], since=since, until=until)
        .rename({"node": "code"})
        .with_columns(
            parent=code.str.extract(r"(?s)^(.*)\.[^.]*$"),
            depth=code.str.count_matches(".", literal=True).cast(pl.Int64).fill_null(0) + 1,
            is_leaf=code.is_in(stored.implode()).fill_null(True),
        )
        .pipe(with_meanings)
        .select(CODES.dtypes.names())
        .pipe(_in_tree_order)
    )
    return counted if nested else counting.without_nested(counted)


def _nodes(codes: pl.Series) -> pl.DataFrame:
    """Every code with each of its nodes: itself and everything above it."""
    words = pl.col("code").str.split(".")
    return (
        codes.to_frame("code")
        .with_columns(depth=pl.int_ranges(1, words.list.len() + 1))
        .explode("depth")
        .select("code", node=words.list.head(pl.col("depth")).list.join("."))
    )


def _in_tree_order(nodes: pl.DataFrame) -> pl.DataFrame:
    """Nodes, parents before children, siblings by causes, then rows, then name; null last."""
    order = nodes.sort("n_causes", "n_rows", "code", descending=[True, True, False])
    place = {code: place for place, code in enumerate(order["code"])}

    def path(code: str | None) -> list[float]:
        if code is None:
            return [float("inf")]
        return [place[part] for part in accumulate(code.split("."), "{}.{}".format)]

    codes = nodes["code"].to_list()
    return nodes[sorted(range(nodes.height), key=lambda i: path(codes[i]))]


def parameters(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    n_values: int = N_VALUES,
    of: str = RUNS,
) -> pl.DataFrame:
    """The most frequent values of every placeholder of every cluster.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`; those that a rule merged have no placeholders.
    n_values : int
        Number of values for each placeholder, at least 1.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_clusters x n_placeholders x n_values, 8)
        ``cluster_id``, ``code``, ``template``; ``position`` of the placeholder, from 1;
        ``value``, its ``n_rows`` and ``share`` of the cluster's rows; ``n_distinct``,
        the number of distinct values. By cluster, position, then most frequent first.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense or ``n_values`` is below 1.

    Notes
    -----
    Values come from the cleaned message: without colours, on one line. They may hold
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
    rows = find_members(snap, window=window, policy=policy, rules=rules, of=of)
    values = _values(rows.filter(pl.col("template").str.contains(WILDCARD, literal=True)))
    placeholder = ["cluster_id", "code", "template", "position"]
    counts = values.group_by(*placeholder, "value").agg(n_rows=pl.len().cast(pl.Int64))
    return (
        counts.with_columns(
            share=pl.col("n_rows") / pl.col("n_rows").sum().over("cluster_id", "position"),
            n_distinct=pl.len().over("cluster_id", "position").cast(pl.Int64),
        )
        .sort("cluster_id", "position", "n_rows", "value", descending=[False, False, True, False])
        .group_by("cluster_id", "position", maintain_order=True)
        .head(n_values)
        .select(*placeholder, "value", "n_rows", "share", "n_distinct")
    )


def _values(rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each row of a cluster and each of its placeholders."""
    texts = rows.select("message").unique().with_row_index("number")
    clean = clean_lines(texts).join(texts, on="number").select("message", "text")
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
    """A regular expression for the values; linear in the text, as all of polars' are."""
    return "^" + _VALUE.join(map(re.escape, template.split(WILDCARD))) + "$"
