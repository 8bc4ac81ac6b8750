"""The rows behind every cluster of failures, and what your rules made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.failures.gathering import failed_rows, find_members
from stateanalytics.failures.incident_grouping import add_incidents
from stateanalytics.failures.rule_effects import rules_applied
from stateanalytics.failures.rules_file import FailureRules

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy


def failure_members(
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
    rules : path, mapping or FailureRules, optional
        Your own clusters, which win over the mined ones: see `FailureRules.of`.
    earlier : polars.DataFrame, optional
        Templates mined before, with ``pattern``, as for `mine_templates`.

    Returns
    -------
    polars.DataFrame
        A row for each failed or timed-out entity of every type but branches, newest
        first. Beside canonical columns: ``code`` (null: none was stored), ``message``,
        ``template`` and ``template_id`` (null without a message), ``cluster_id`` (of code
        and template), ``rule`` and ``rule_name`` (which of your rules claimed it),
        ``cause`` (`cause_key`), ``incident_id`` (`failure_incidents`; null: it stands
        alone), ``failed_at``, and the ``unit`` of work with its
        ``run_s``, ``n_tokens`` and ``cost_usd`` (null: not reported).

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
    >>> rows = failure_members(demo(), window="2026-W21")
    >>> rows["code"].drop_nulls().str.starts_with("run.").any()
    True
    """
    rows = find_members(snap, window=window, policy=policy, rules=rules, earlier=earlier)
    at = rows.columns.index("failed_at")
    named = add_incidents(rows)
    return named.select(*rows.columns[:at], "incident_id", *rows.columns[at:])


def failure_rules(
    snap: Facts, rules: object, *, window: object = None, policy: Policy | None = None
) -> pl.DataFrame:
    """What each of your rules claims, and what an earlier one had claimed before it.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    rules : path, mapping or FailureRules
        See `FailureRules.of`.
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
    >>> slow_down = {"name": "slow down", "action": "name", "message": "429"}
    >>> applied = failure_rules(demo(), {"rule": [limits, slow_down]})
    >>> applied.select("name", "n_rows", "lost_to").rows()[1]
    ('slow down', 0, 'limits')
    """
    return rules_applied(failed_rows(snap, window=window, policy=policy), FailureRules.of(rules))
