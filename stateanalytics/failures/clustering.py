"""Clusters of failures: a reason code and a message template, ranked by what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.failures.counting import add_trend, count_groups, span_of, without_nested
from stateanalytics.failures.failure_rows import find_members, window_of
from stateanalytics.state.reason_codes import with_code_facts

if TYPE_CHECKING:
    from datetime import datetime

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.windows import Window
    from stateanalytics.state.policy import Policy

#: What counts how much; only the proportions matter. Causes count more than rows, because
#: a fan-out repeats one cause; hours are what is always known of the costs.
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"causes": 3.0, "rows": 1.0, "recency": 1.0, "run_s": 2.0, "tokens": 1.0, "cost": 2.0}
)
_COLUMNS = {
    "causes": "n_causes",
    "rows": "n_rows",
    "run_s": "run_s",
    "tokens": "n_tokens",
    "cost": "cost_usd",
}


def read_weights(weights: Mapping[str, float] | None) -> dict[str, float]:
    """All weights: the given ones over the usual ones.

    Raises
    ------
    ArgumentError
        If a name is unknown, a weight is negative or no number, or all are 0.

    Examples
    --------
    >>> read_weights({"cost": 10})["cost"]
    10.0
    """
    if not (weights is None or isinstance(weights, Mapping)):
        raise ArgumentError(
            f"weights needs numbers by name; found {weights!r:.60}.", "weights={'cost': 3}"
        )
    given = dict(weights or {})
    if unknown := [name for name in given if name not in WEIGHTS]:
        raise ArgumentError(
            f"weights needs names of {list(WEIGHTS)}; found {unknown[0]!r}.",
            "weights={'cost': 3}" + did_you_mean(str(unknown[0]), WEIGHTS),
            shell="--weight cost=3" + did_you_mean(str(unknown[0]), WEIGHTS),
        )
    for name, value in given.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise ArgumentError(
                f"The weight of {name} needs a number from 0; found {value!r:.60}.",
                f"weights={{'{name}': 1}}",
            )
    chosen = {**WEIGHTS, **{name: float(value) for name, value in given.items()}}
    if not any(chosen.values()):
        raise ArgumentError("All weights are 0, so nothing ranks.", "weights={'causes': 1}")
    return chosen


def add_score(
    clusters: pl.DataFrame,
    *,
    since: datetime,
    until: datetime,
    weights: Mapping[str, float] | None = None,
) -> pl.DataFrame:
    """Rank clusters by what they cost.

    Parameters
    ----------
    clusters : polars.DataFrame
        With ``n_causes``, ``n_rows``, ``last_at``, ``run_s``, ``n_tokens``, ``cost_usd``.
    since, until : datetime
        The stretch of time that is looked at.
    weights : mapping of str to float, optional
        Names of `WEIGHTS`; what is not named keeps its usual weight.

    Returns
    -------
    polars.DataFrame
        ``clusters`` with ``rank`` (from 1), ``score`` (0 to 1) and its parts
        ``score_<name>``, which add up to it. Best rank first.

    Notes
    -----
    A part is the cluster's value over the largest of any cluster, times its weight;
    recency is how late in the stretch the last failure was. What a cluster did not
    report is null and not 0: that weight then goes to its causes, which are always known.
    """
    chosen = read_weights(weights)
    length = max((until - since).total_seconds(), 1e-6)
    lateness = (pl.col("last_at") - since).dt.total_microseconds() / 1e6 / length
    worth = {
        name: (
            lateness.clip(0.0, 1.0)
            if name == "recency"
            else pl.col(_COLUMNS[name]) / _largest(_COLUMNS[name])
        )
        for name in chosen
    }
    total = sum(chosen.values())
    unknown = pl.sum_horizontal(
        pl.when(part.is_null()).then(chosen[name]).otherwise(0.0) for name, part in worth.items()
    )
    parts = {f"score_{name}": part * (chosen[name] / total) for name, part in worth.items()}
    parts["score_causes"] = worth["causes"] * ((unknown + chosen["causes"]) / total)
    return (
        clusters.with_columns(**parts)
        .with_columns(score=pl.sum_horizontal(*parts))
        .sort("score", "n_causes", "n_rows", "cluster_id", descending=[True, True, True, False])
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    )


def _largest(column: str) -> pl.Expr:
    # By a whole column: polars divides by one number through its rounded inverse.
    largest = pl.col(column).max().over(pl.lit(1))
    return pl.when(largest > 0).then(largest.cast(pl.Float64)).otherwise(1.0)


KEY = ("cluster_id", "code", "template", "template_id")
COLUMNS = (
    *(*KEY, "cause_group", "rule_name"),
    *("n_rows", "n_failed", "n_timed_out", "n_sessions", "n_causes", "n_incidents"),
    *("share", "share_low", "share_high", "first_at", "last_at", "trend", "trend_step_s"),
    *("run_s", "n_tokens", "cost_usd", "n_work"),
    *("n_run_unreported", "n_tokens_unreported", "n_cost_unreported"),
    *("rank", "score", *(f"score_{name}" for name in WEIGHTS)),
    *("example_shortest", "example_median", "example_newest"),
    *("systems", "entity_types", "meaning", "what_to_do"),
)


def clusters(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    weights: Mapping[str, float] | None = None,
    earlier: pl.DataFrame | None = None,
    nested: bool = False,
) -> pl.DataFrame:
    """What failed, one row for each reason code and message template, worst first.

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
    weights : mapping of str to float, optional
        What the rank is made of: causes, rows, recency, run_s, tokens, cost. What is not
        named keeps its usual weight (`ranking.WEIGHTS`); 0 leaves a part out.
    earlier : polars.DataFrame, optional
        Templates mined before, with ``pattern``, as for `mine_templates`.
    nested : bool
        ``trend`` as a list of numbers, for charts; else as text, which fits into CSV.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 41)
        ``cluster_id`` (of code and template: the same next week), ``code`` (null: none was
        stored), ``template`` (without a message: what the run did last), ``template_id``,
        ``cause_group`` (null: not known), ``rule_name``; ``n_rows``
        (``n_failed``, ``n_timed_out``), ``n_sessions``, ``n_causes`` (`cause_key`),
        ``n_incidents`` (`incidents`, and causes that stand alone);
        ``share`` of all distinct causes, from ``share_low`` to ``share_high`` (Wilson);
        ``first_at``, ``last_at`` in the window; ``trend`` (rows for each
        ``trend_step_s`` seconds, oldest first); ``run_s``, ``n_tokens``, ``cost_usd`` of
        ``n_work`` pieces of work, each counted once (null: none reported it;
        ``n_…_unreported`` did not); ``rank``, ``score`` and its parts ``score_…``, which
        add up to it (null: not reported); three examples; ``systems``,
        ``entity_types``; ``meaning`` and ``what_to_do`` where the registry knows the code.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, a rule cannot be used, or a
        weight is unknown.

    Notes
    -----
    One failure may be several rows: a play, its session and its invocation all fail;
    causes say how many different things went wrong. The interval of the share takes
    causes to be independent. Messages are as they are stored: mask secrets and escape
    them where they are shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> ranked = clusters(demo())
    >>> ranked.filter(pl.col("n_rows") > 5 * pl.col("n_causes"))["code"].to_list()
    ['run.failed.provider_retryable']
    """
    read_weights(weights)
    chosen = window_of(snap, window)
    rows = find_members(snap, window=chosen, policy=policy, rules=rules, earlier=earlier)
    counted = count_clusters(rows, window=chosen, as_of=snap.as_of, weights=weights)
    return counted if nested else without_nested(counted)


def count_clusters(
    rows: pl.DataFrame,
    *,
    window: Window | None,
    as_of: datetime,
    weights: Mapping[str, float] | None = None,
) -> pl.DataFrame:
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
        .pipe(add_score, since=since, until=until, weights=weights)
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
