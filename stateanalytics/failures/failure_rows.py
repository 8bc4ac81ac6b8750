"""The rows behind every cluster of failures, and what your rules made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import checked_snapshot
from stateanalytics.core.windows import read_window
from stateanalytics.failures.cause_groups import add_cause_groups
from stateanalytics.failures.counting import add_costs, without_nested
from stateanalytics.failures.failing_intervals import add_mass
from stateanalytics.failures.incident_grouping import (
    GAP_S,
    add_incidents,
    count_incidents,
    seen_s,
)
from stateanalytics.failures.last_steps import add_last_steps
from stateanalytics.failures.rules_file import Rules, apply_rules, rules_applied
from stateanalytics.failures.templates import mine_templates, template_id, versioned_id
from stateanalytics.state.definitions import cause_key, is_failure
from stateanalytics.state.population import is_counted, rows_of, within

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.core.windows import Window
    from stateanalytics.state.policy import Policy

#: Templates of at most so many texts are kept, for the next who asks for them.
N_KEPT = 100_000
_LAST_MINED: deque[tuple[pl.Series, pl.Series | None, pl.DataFrame]] = deque(maxlen=4)


def members(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Every failed row with the cluster it belongs to.

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

    Returns
    -------
    polars.DataFrame
        A row for each failed or timed-out entity of every type but branches (and what died,
        where a system calls that failed though its ``outcome`` is aborted), newest first.
        Beside canonical columns: ``code`` (null: none was stored), ``message``,
        ``template`` and ``template_id`` (without a message: what the run did last; null:
        nothing), ``cluster_id`` (of code and template), ``cause_group`` (a key of
        `cause_groups.TITLES`; null: not known), ``rule`` and ``rule_name`` (which of your
        rules claimed it), ``cause`` (`cause_key`), ``incident_id`` (`incidents`; null: it
        stands alone), ``is_mass`` (started in a stretch of `mass_failures`),
        ``failed_at``, and the ``unit`` of work with its ``run_s``,
        ``n_tokens`` and ``cost_usd`` (null: not reported).

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or a rule cannot be used.

    Notes
    -----
    Templates are mined from the failures of all time, so that a cluster keeps its id
    whatever the window. Legacy, mirrored and imported rows are left out (`population`).
    The text is as it is stored: mask secrets and escape it where it is shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> rows = members(demo(), window="2026-W21")
    >>> rows["code"].drop_nulls().str.starts_with("run.").any()
    True
    """
    return find_members(snap, window=window, policy=policy, rules=rules, earlier=earlier)


def rules(
    snap: Facts, rules: object, *, window: object = None, policy: Policy | None = None
) -> pl.DataFrame:
    """What each of your rules claims, and what an earlier one had claimed before it.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    rules : path, mapping or Rules
        See `Rules.of`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_rules, 9)
        In the order of the rules: ``rule`` (from 1), ``name``, ``action``, ``code``,
        ``message``, ``into_code``; ``n_rows`` that it claimed (0: it is idle); ``n_lost``
        that fit it too, but that the earlier rules ``lost_to`` (names) had claimed.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, or a rule cannot be used.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> limits = {"name": "limits", "action": "merge", "message": "(?i)rate limit|overloaded"}
    >>> slow_down = {"name": "slow down", "action": "name", "message": "Error: 429"}
    >>> applied = rules(demo(), {"rule": [limits, slow_down]})
    >>> applied.select("name", "n_rows", "lost_to").rows()[1]
    ('slow down', 0, 'limits')
    """
    return rules_applied(failed_rows(snap, window=window, policy=policy), Rules.of(rules))


def incidents(
    snap: Facts,
    *,
    window: object = None,
    gap_s: float = GAP_S,
    policy: Policy | None = None,
    rules: object = None,
    nested: bool = False,
) -> pl.DataFrame:
    """Failures that hang together, one row an incident.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    gap_s : float
        Failures further apart than this are not linked by time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    nested : bool
        ``cluster_ids``, ``codes``, ``providers`` and ``systems`` as lists; else as text, which
        fits into CSV.

    Returns
    -------
    polars.DataFrame, shape (n_incidents, 19)
        At least two pieces of work each, newest first. ``incident_id`` (of its earliest
        row); ``since`` and ``until``, the first and last failure, ``duration_s`` between
        them; ``n_rows``, ``n_sessions``, ``n_causes``, ``n_clusters``; ``linked_by``, words
        of `LINKS` joined by ', '; ``code`` and ``template`` of its largest cluster;
        ``cluster_ids``, ``codes``, ``providers`` and ``systems``, joined by ', '; ``run_s``,
        ``n_tokens`` and ``cost_usd`` of ``n_work`` pieces of work (null: none reported it).
        `members` names the incident of every row.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense or ``gap_s`` is negative.

    Notes
    -----
    Two failures of a cluster, or of a provider, are linked in time where they are at most
    ``gap_s`` apart and at most a hundredth of the usual distance between its causes in the
    window, whatever came before it: what fails every minute anyway makes no incident.
    Links are hypotheses about a common cause, not proof of one.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> incidents(demo()).sort("n_rows")["n_rows"][-1] > 10
    True
    """
    rows = find_members(snap, window=window, policy=policy, rules=rules)
    linked = add_incidents(rows, gap_s=gap_s, span_s=_span_s(snap, window))
    counted = count_incidents(linked)
    return counted if nested else without_nested(counted)


def _span_s(snap: Facts, window: object) -> float:
    """How many seconds a window looks at; without one, those since anything began."""
    chosen = window_of(snap, window)
    if chosen is not None:
        return seen_s(chosen, snap.as_of)
    first = snap.entities["created_at"].min()
    return max((snap.as_of - first).total_seconds(), 0.0) if isinstance(first, datetime) else 0.0


COLUMNS = (
    *("source", "system", "entity_type", "entity_id", "session_id", "invocation_id"),
    *("kind", "name", "agent", "model", "provider", "project", "playbook", "outcome"),
    *("code", "message", "template", "template_id", "cluster_id", "cause_group"),
    *("rule", "rule_name"),
    *("cause", "incident_id", "is_mass", "failed_at", "unit", "run_s", "n_tokens", "cost_usd"),
)


def find_members(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """What `members` gives, for the functions that count it.

    ``rows`` are the `population` of all time, where it is at hand.
    """
    chosen_rules = Rules.of(rules)
    failed = failed_rows(snap, window=window, policy=policy, earlier=earlier, rows=rows)
    return (
        apply_rules(failed, chosen_rules)
        .with_columns(reason_code="code")
        .with_columns(cause_key().alias("cause"))
        .pipe(add_cluster_ids)
        .pipe(add_incidents, span_s=_span_s(snap, window))
        .sort("failed_at", "source", "entity_type", "entity_id", descending=[True, *[False] * 3])
        .select(COLUMNS)
    )


def failed_rows(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    earlier: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Failed rows with ``code``, ``message``, mined ``template`` and costs, before any rule."""
    chosen = window_of(snap, window)
    population = judged_rows(snap, policy) if rows is None else rows
    everything = add_mass(select_failures(population), population)
    failed = everything if chosen is None else within(everything, chosen, as_of=snap.as_of)
    return add_templates(priced(failed, snap), everything["reason_message"], earlier=earlier)


def priced(failed: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Failures of a `population` under the names they have here, with costs and last steps."""
    return (
        add_costs(failed, snap.entities)
        .rename({"reason_code": "code", "reason_message": "message", "placed_at": "failed_at"})
        .with_columns(outcome=pl.col("outcome").cast(pl.String))
        .pipe(add_last_steps, snap.events)
    )


def add_templates(
    failed: pl.DataFrame, messages: pl.Series, *, earlier: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Failed rows with the ``template`` of their message, mined from all these messages.

    Without a message, what the run did last takes its place.
    """
    templates = _mined(messages.unique(maintain_order=True).drop_nulls(), earlier)
    return failed.join(templates, on="message", how="left", maintain_order="left").with_columns(
        template=pl.coalesce("last_steps", pl.col("template").replace("", None))
    )


def _mined(texts: pl.Series, earlier: pl.DataFrame | None) -> pl.DataFrame:
    """The ``template`` of each ``message``; those of the same texts are mined once.

    One look at a store asks for clusters, rows and incidents of the same failures.
    """
    known = None if earlier is None else earlier["pattern"]
    # A copy, because another thread may add its own meanwhile.
    for asked, asked_before, templates in tuple(_LAST_MINED):
        if _are_equal(asked, texts) and _are_equal(asked_before, known):
            return templates
    templates = mine_templates(texts, earlier=earlier).select("template", message=texts)
    if texts.len() <= N_KEPT:
        _LAST_MINED.appendleft((texts, known, templates))
    return templates


def _are_equal(a: pl.Series | None, b: pl.Series | None) -> bool:
    return a is b or (a is not None and b is not None and a.equals(b))


def select_failures(rows: pl.DataFrame, outcomes: Collection[str] | None = None) -> pl.DataFrame:
    """The rows of a `population` that count as failures (`is_failure`), or that ended so.

    Each failed work once: a branch only repeats what became of its session, and so do
    the parts of a turn (`rules.mirrors`).
    """
    is_asked = is_failure() if outcomes is None else pl.col("outcome").is_in(list(outcomes))
    return rows.filter(is_counted(), is_asked)


def judged_rows(snap: Facts, policy: Policy | None) -> pl.DataFrame:
    """The `population` of all time of what was given as a snapshot."""
    return rows_of(checked_snapshot(snap, "failures.clusters"), policy=policy)


def ended_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Of a `population`, the runs that rates count and that have ended."""
    return rows.filter(is_counted("session"), ~pl.col("is_open"))


def placed_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """`ended_runs` with no more of each than its place in time: most of them are all there is."""
    return ended_runs(rows.select("entity_type", "left_out", *_PLACE))


_PLACE = ("is_open", "created_at", "started_at", "ended_at", "placed_at")


def window_of(snap: Facts, window: object) -> Window | None:
    """The stretch of time that was asked for; None: all time."""
    as_of = checked_snapshot(snap, "failures.clusters").as_of
    return None if window is None else read_window(window, as_of=as_of)


def cluster_id(code: str | None, template: str | None, version: str | None = None) -> str:
    """The id of a cluster: of its code and template alone, so that it outlives the week.

    ``version`` is that of the miner; None: this one.

    Examples
    --------
    >>> cluster_id("run.failed.exception", "worker <*> died")[:3]
    'v1:'
    >>> cluster_id(None, "x") == cluster_id("", "x")
    False
    """
    parts = "".join(f"{part is None:d}{part or ''}\0" for part in (code, template))
    return versioned_id(parts, version)


def add_cluster_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Failed rows with the ids of their cluster and template, and its cause group."""
    pairs = rows.select("code", "template").unique()
    ids = add_cause_groups(pairs).with_columns(
        cluster_id=pl.Series([cluster_id(*pair) for pair in pairs.rows()], dtype=pl.String),
        template_id=pl.Series(
            [None if text is None else template_id(text) for text in pairs["template"]],
            dtype=pl.String,
        ),
    )
    return rows.join(
        ids, on=["code", "template"], how="left", nulls_equal=True, maintain_order="left"
    )
