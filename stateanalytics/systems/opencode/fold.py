"""From a log of events to the tables of what happened: one function for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.systems.opencode.executions import fold_executions, fold_sessions
from stateanalytics.systems.opencode.log import Log
from stateanalytics.systems.opencode.order import Ordered, ordered
from stateanalytics.systems.opencode.steps import fold_inputs, fold_steps, fold_tools


@dataclass(frozen=True)
class Folded:
    """What the events of some sessions add up to.

    Attributes
    ----------
    executions, steps, tools, inputs, sessions : polars.DataFrame
        One row each, sorted by session and sequence.
    order : order.Ordered
        The events behind them, in order, and what was left out.
    """

    executions: pl.DataFrame
    steps: pl.DataFrame
    tools: pl.DataFrame
    inputs: pl.DataFrame
    sessions: pl.DataFrame
    order: Ordered


def fold(log: Log) -> Folded:
    """Fold a log: the same tables for whatever order and repetition of the same events.

    Parameters
    ----------
    log : Log

    Returns
    -------
    Folded
    """
    order = ordered(log)
    steps = fold_steps(order.events, log)
    tools = fold_tools(order.events, log, steps)
    inputs = fold_inputs(order.events, log)
    executions = fold_executions(order.events, log, steps, tools)
    sessions = fold_sessions(order.events, log, executions, inputs)
    return Folded(executions, steps, tools, inputs, sessions, order)
