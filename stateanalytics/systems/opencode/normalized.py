"""The normalized axes and reasons of every opencode entity, from its detail frames."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Protocol

import polars as pl

from stateanalytics.core import schema
from stateanalytics.state.derived_codes import SEPARATOR
from stateanalytics.state.open_work import Thresholds
from stateanalytics.systems.opencode.mapping import call_situations, session_situations, situations
from stateanalytics.systems.opencode.mapping_reasons import (
    INPUT_PENDING,
    RUN_KEY,
    call_reasons,
    evidence,
    execution_reasons,
    numbered,
)


class HasLimits(Protocol):
    """What is needed of a policy."""

    @property
    def opencode(self) -> Thresholds:
        """Its limits for open executions."""
        ...


SYSTEM = "opencode"
BLOCKED = "Failed · Blocked by provider content filter · {}"


def normalize(
    facts: Any, *, as_of: datetime, thresholds: Thresholds | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The axes of every opencode entity, and why.

    Parameters
    ----------
    facts : Facts
        With the detail frames of opencode.
    as_of : datetime
        The instant to judge at.
    thresholds : Thresholds, optional

    Returns
    -------
    axes : polars.DataFrame
        ``schema.ENTITY_KEY``, ``lifecycle``, ``outcome``, ``health``, ``delivery`` and
        ``display``: what is to be shown instead of the usual words, null for those.
    reasons : polars.DataFrame
        ``schema.ENTITY_KEY``, ``order``, ``dimension``, ``code``, ``message``,
        ``claim_status``, ``confidence``, ``event_id``, ``evidence``.
    """
    limits = thresholds or Thresholds()
    frames = {
        shape.name: _detail(facts, shape)
        for shape in (
            schema.OPENCODE_EXECUTIONS,
            schema.OPENCODE_SESSIONS,
            schema.OPENCODE_STEPS,
            schema.OPENCODE_TOOLS,
        )
    }
    executions = situations(frames["opencode_executions"], as_of, limits)
    sessions = session_situations(frames["opencode_sessions"], executions)
    steps = call_situations(frames["opencode_steps"], executions, is_tool=False)
    tools = call_situations(frames["opencode_tools"], executions, is_tool=True)
    turns = executions.filter("is_last_of_turn").with_columns(entity_id=turn_id())
    own = sessions.with_columns(entity_id="session_id", has_output=pl.lit(value=True))
    axes = pl.concat(
        [
            _axes(own, "session"),
            _axes(turns, "turn"),
            _axes(executions, "execution"),
            _axes(steps, "step"),
            _axes(tools, "tool_call"),
        ]
    )
    return axes, _reasons(executions, turns, sessions, (steps, tools), limits)


def axes(details: Mapping[str, pl.DataFrame], as_of: datetime, policy: HasLimits) -> pl.DataFrame:
    """The axes of every entity, with ``reason_codes`` and its own ``display``, as `states` asks."""
    found, why = normalize(
        SimpleNamespace(details=details), as_of=as_of, thresholds=policy.opencode
    )
    codes = (
        why.sort("order", maintain_order=True)
        .group_by(*schema.ENTITY_KEY)
        .agg(reason_codes=pl.col("code").str.join(SEPARATOR))
    )
    return found.join(codes, on=list(schema.ENTITY_KEY), how="left", maintain_order="left")


def reasons(
    details: Mapping[str, pl.DataFrame], as_of: datetime, policy: HasLimits
) -> pl.DataFrame:
    """Why every entity is in its state, in the shape of `schema.REASONS`."""
    _, why = normalize(SimpleNamespace(details=details), as_of=as_of, thresholds=policy.opencode)
    return schema.REASONS.conform(why)


def turn_id() -> pl.Expr:
    """The id of the turn that an execution belongs to."""
    return pl.concat_str("session_id", pl.lit(":turn:"), "turn_no")


def _detail(facts: Any, shape: schema.Frame) -> pl.DataFrame:
    found = facts.details.get(shape.name)
    return shape.empty() if found is None else found


def _axes(frame: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    is_empty = pl.col("delivery") == "missing"
    if entity_type == "step":
        is_empty = pl.col("n_text_chars").fill_null(0) == 0
    kept = pl.when(is_empty).then(pl.lit("No output"))
    return frame.select(
        "source",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit(entity_type),
        entity_id="entity_id",
        lifecycle="lifecycle",
        outcome="outcome_word",
        health="health",
        delivery="delivery",
        display=pl.when(pl.col("situation") == "blocked").then(
            pl.format(BLOCKED, kept.otherwise(pl.lit("Partial output kept")))
        ),
    )


def _reasons(
    executions: pl.DataFrame,
    turns: pl.DataFrame,
    sessions: pl.DataFrame,
    calls: tuple[pl.DataFrame, pl.DataFrame],
    limits: Thresholds,
) -> pl.DataFrame:
    steps, tools = calls
    of_run = execution_reasons(executions, limits)
    key = list(RUN_KEY)

    def told(frame: pl.DataFrame, entity_type: str) -> pl.DataFrame:
        mine = frame.select(*key, "entity_id").drop_nulls("exec_no")
        rows = mine.join(of_run, on=key, how="inner", maintain_order="left_right")
        return rows.drop("session_id", "exec_no").with_columns(entity_type=pl.lit(entity_type))

    own = sessions.with_columns(entity_id="session_id")
    waiting = own.filter("has_waiting_input").select(
        "source",
        "entity_id",
        place=pl.lit(99),
        dimension=pl.lit(INPUT_PENDING.dimension),
        code=pl.lit(INPUT_PENDING.code),
        message=pl.lit(INPUT_PENDING.message),
        claim_status=pl.lit(INPUT_PENDING.claim),
        confidence=pl.lit(INPUT_PENDING.confidence),
        event_id=pl.lit(None, pl.String),
        evidence=evidence(
            pl.lit("rule"),
            pl.lit("input_pending"),
            pl.format("{} inputs wait", "n_pending_inputs"),
        ),
        entity_type=pl.lit("session"),
    )
    of_sessions = told(own, "session").with_columns(place=pl.col("order").cast(pl.Int32))
    both = pl.concat([of_sessions.drop("order"), waiting.select(of_sessions.drop("order").columns)])
    parts = [
        numbered(both, ("source", "entity_id")),
        told(turns, "turn"),
        told(executions, "execution"),
        call_reasons(steps, is_tool=False).with_columns(entity_type=pl.lit("step")),
        call_reasons(tools, is_tool=True).with_columns(entity_type=pl.lit("tool_call")),
    ]
    columns = [
        *("source", "entity_type", "entity_id", "order", "dimension", "code", "message"),
        *("claim_status", "confidence", "event_id", "evidence"),
    ]
    return pl.concat([part.select(columns) for part in parts]).with_columns(system=pl.lit(SYSTEM))
