"""Situations of opencode, with the facts of open work, in the canonical columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.opencode.mapping import (
    OPEN_FACTS,
    SYSTEM,
    call_situations,
    session_situations,
    situations,
)
from stateanalytics.systems.opencode.mapping_reasons import (
    REASONS,
    RUN_KEY,
    call_reasons,
    execution_reasons,
)
from stateanalytics.systems.situations import add_axes, evidence, numbered, with_recorded

BLOCKED = "Failed · Blocked by provider content filter · {}"


def add_recorded(entities: pl.DataFrame, details: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Add what the rules read of every entity, and the code of what ended it.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`, without its ``recorded_`` columns filled.
    details : mapping of str to polars.DataFrame
        The detail frames that the entities were made from.

    Returns
    -------
    polars.DataFrame
        The same rows. opencode stores the error of what failed; the code is its name.
    """
    executions = situations(details["opencode_executions"])
    sessions = session_situations(details["opencode_sessions"], executions)
    steps = call_situations(details["opencode_steps"], executions, is_tool=False)
    tools = call_situations(details["opencode_tools"], executions, is_tool=True)
    turns = executions.filter("is_last_of_turn").with_columns(entity_id=turn_id())
    own = sessions.with_columns(entity_id="session_id", has_output=pl.lit(value=True))
    axes = pl.concat(
        [
            _axes(own, "session"),
            _axes(turns, "turn"),
            _axes(executions, "execution"),
            _axes(steps, "step"),
            _axes(tools, "tool_call"),
        ],
        how="diagonal",
    )
    reasons = _reasons(executions, turns, sessions, (steps, tools))
    return with_recorded(entities, axes, reasons)


def turn_id() -> pl.Expr:
    """The id of the turn that an execution belongs to."""
    return pl.concat_str("session_id", pl.lit(":turn:"), "turn_no")


def _axes(frame: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    is_empty = pl.col("delivery") == "missing"
    if entity_type == "step":
        is_empty = pl.col("n_text_chars").fill_null(0) == 0
    kept = pl.when(is_empty).then(pl.lit("No output"))
    display = pl.when(pl.col("situation") == "blocked").then(
        pl.format(BLOCKED, kept.otherwise(pl.lit("Partial output kept")))
    )
    # The shared rules judge the health of what is open; its parts have none.
    is_judged = pl.col("situation") == "open"
    recorded = add_axes(frame, "lifecycle", "outcome_word", "health", "delivery").with_columns(
        recorded_health=pl.when(~is_judged.fill_null(value=False)).then("recorded_health")
    )
    return recorded.select(
        "source",
        *(name for name in OPEN_FACTS if name in frame.columns),
        "recorded_lifecycle",
        "recorded_outcome",
        "recorded_health",
        "recorded_delivery",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit(entity_type),
        entity_id="entity_id",
        recorded_display=display,
    ).select(*schema.ENTITY_KEY, pl.exclude(schema.ENTITY_KEY))


def _reasons(
    executions: pl.DataFrame,
    turns: pl.DataFrame,
    sessions: pl.DataFrame,
    calls: tuple[pl.DataFrame, pl.DataFrame],
) -> pl.DataFrame:
    steps, tools = calls
    of_run = execution_reasons(executions)
    key = list(RUN_KEY)

    def reasons_of(frame: pl.DataFrame, entity_type: str) -> pl.DataFrame:
        mine = frame.select(*key, "entity_id").drop_nulls("exec_no")
        rows = mine.join(of_run, on=key, how="inner", maintain_order="left_right")
        return rows.drop("session_id", "exec_no").with_columns(entity_type=pl.lit(entity_type))

    own = sessions.with_columns(entity_id="session_id")
    pending = REASONS.filter(why="input_pending").drop(own.columns, strict=False)
    waiting = (
        own.filter("has_waiting_input")
        .join(pending, how="cross")
        .select(
            *("source", "entity_id", "dimension", "code", "message", "confidence"),
            place=pl.col("place").cast(pl.Int32),
            claim_status="claim",
            event_id=pl.lit(None, pl.String),
            evidence=evidence(
                pl.lit("rule"),
                pl.lit("input_pending"),
                pl.format("{} inputs wait", "n_pending_inputs"),
            ),
            entity_type=pl.lit("session"),
        )
    )
    of_sessions = reasons_of(own, "session").with_columns(place=pl.col("order").cast(pl.Int32))
    both = pl.concat([of_sessions.drop("order"), waiting.select(of_sessions.drop("order").columns)])
    parts = [
        numbered(both, ("source", "entity_id")),
        reasons_of(turns, "turn"),
        reasons_of(executions, "execution"),
        call_reasons(steps, is_tool=False).with_columns(entity_type=pl.lit("step")),
        call_reasons(tools, is_tool=True).with_columns(entity_type=pl.lit("tool_call")),
    ]
    columns = [
        *("source", "entity_type", "entity_id", "order", "dimension", "code", "message"),
        *("claim_status", "confidence", "event_id", "evidence"),
    ]
    return pl.concat([part.select(columns) for part in parts]).with_columns(system=pl.lit(SYSTEM))
