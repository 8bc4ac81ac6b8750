"""What ``ao session recover`` makes of a session, from what it probes."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES

NEEDED = (
    "runtime_alive",
    "workspace_exists",
    "agent_running",
    "status",
    "runtime_probe_ok",
    "process_probe_ok",
    "has_handle",
)


def classify_recovery(
    frame: FrameT,
    *,
    escalates_partial: bool | str = True,
    cleans_up: bool | str = True,
) -> FrameT:
    """Add whether a session can be recovered, and what would be done.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        Booleans ``runtime_alive``, ``workspace_exists``, ``agent_running``,
        ``runtime_probe_ok``, ``process_probe_ok``, ``has_handle``, and ``status``.
    escalates_partial, cleans_up : bool or str
        The configuration, or the Boolean column that holds it.

    Returns
    -------
    The same kind of frame
        With ``recovery_class`` (live, dead, partial, unrecoverable),
        ``is_disagreement`` (both probes worked and disagree), ``recovery_rule`` (auto,
        human, skip) and ``recovery_action`` (recover, cleanup, escalate, skip).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "runtime_alive": [False],
    ...         "workspace_exists": [True],
    ...         "agent_running": [False],
    ...         "status": ["working"],
    ...         "runtime_probe_ok": [True],
    ...         "process_probe_ok": [True],
    ...         "has_handle": [True],
    ...     }
    ... )
    >>> classify_recovery(frame).select("recovery_class", "recovery_action").row(0)
    ('dead', 'cleanup')
    """
    first = {"recovery_class": _classification(), "is_disagreement": _disagreement()}
    rule = {"recovery_rule": _rule(_setting(escalates_partial))}
    action = {"recovery_action": _action(_setting(cleans_up))}
    return add_columns(frame, NEEDED, "classify_recovery", first, rule, action)


def _setting(value: bool | str) -> Any:
    return nw.col(value) if isinstance(value, str) else nw.lit(value)


def _disagreement() -> Any:
    both = nw.col("runtime_probe_ok") & nw.col("process_probe_ok")
    return both & (nw.col("runtime_alive") != nw.col("agent_running"))


def _classification() -> Any:
    alive, workspace = nw.col("runtime_alive"), nw.col("workspace_exists")
    probed = nw.col("runtime_probe_ok")
    unsure = (nw.col("status") == "detecting") | ~probed | ~nw.col("process_probe_ok")
    nothing_left = ~workspace & (~nw.col("has_handle") | (probed & ~alive))
    rule: Any = nw.lit("partial")
    for condition, word in (
        (~alive & workspace, "dead"),
        (alive & ~workspace, "partial"),
        (unsure, "partial"),
        (nothing_left, "dead"),
        (alive & workspace & nw.col("agent_running"), "live"),
        (nw.col("status").is_in(TERMINAL_STATUSES), "unrecoverable"),
    ):
        rule = nw.when(condition).then(nw.lit(word)).otherwise(rule)
    return rule


def _rule(escalates_partial: Any) -> Any:
    what = nw.col("recovery_class")
    partial = nw.when(escalates_partial).then(nw.lit("human")).otherwise(nw.lit("auto"))
    rule: Any = partial
    for condition, word in (
        (nw.col("status") == "detecting", "human"),
        (what.is_in(("live", "dead")), "auto"),
        (nw.col("is_disagreement"), "human"),
        (what == "unrecoverable", "skip"),
    ):
        rule = nw.when(condition).then(nw.lit(word)).otherwise(rule)
    return rule


def _action(cleans_up: Any) -> Any:
    what, rule = nw.col("recovery_class"), nw.col("recovery_rule")
    dead = nw.when(cleans_up).then(nw.lit("cleanup")).otherwise(nw.lit("escalate"))
    action: Any = nw.when(what == "live").then(nw.lit("recover")).otherwise(nw.lit("cleanup"))
    action = nw.when(what == "dead").then(dead).otherwise(action)
    action = nw.when(rule == "human").then(nw.lit("escalate")).otherwise(action)
    return nw.when(rule == "skip").then(nw.lit("skip")).otherwise(action)
