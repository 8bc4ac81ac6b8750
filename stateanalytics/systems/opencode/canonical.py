"""From opencode's detail frames to entities, transitions and events."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.io.json_lines import moment
from stateanalytics.systems.opencode.details import ENTITY_IDS
from stateanalytics.systems.opencode.frames import STEPS
from stateanalytics.systems.opencode.log import (
    QUIET,
    SESSION_KEY,
    SPENT_BESIDE,
    TERMINALS,
    Ordered,
)
from stateanalytics.systems.opencode.mapping import SYSTEM
from stateanalytics.systems.opencode.record_frames import OF_EVENTS
from stateanalytics.systems.opencode.recorded import add_recorded, turn_id

_STEP_WORDS = {
    "step.started": "started",
    "step.ended": "ended",
    "step.failed": "failed",
    "retry.scheduled": "retry",
}
_LAST_OF_TURN = (
    "ended_at", "last_activity_at", "raw_status", "reason_message", "agent", "model",
    "provider", "is_end_approximate",
)  # fmt: skip


def entities_of(details: Mapping[str, pl.DataFrame], session_rows: pl.DataFrame) -> pl.DataFrame:
    """Sessions, turns, executions, steps and tool calls as entities.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
    session_rows : polars.DataFrame
        What is known of each session beyond its events.
    """
    executions = details["opencode_executions"]
    runs = executions.with_columns(
        raw_status="outcome",
        last_activity_at=pl.coalesce("last_active_at", "started_at"),
        is_end_approximate=pl.col("is_end_inferred") & pl.col("ended_at").is_not_null(),
        reason_message="error_message",
    )
    of_executions = runs.with_columns(
        entity_type=pl.lit("execution"), parent_type=pl.lit("turn"), parent_id=turn_id()
    )
    key = [*SESSION_KEY, "turn_no"]
    execution = [*SESSION_KEY, "exec_no"]
    of_turns = (
        runs.group_by(key, maintain_order=True)
        .agg(
            started_at=pl.col("started_at").first(),
            attempt=pl.len().cast(pl.Int64),
            n_turns=pl.lit(1, pl.Int64),
            **{
                name: pl.col(name).last()
                for name in _LAST_OF_TURN
            },
            **{
                name: pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum())
                for name in ("n_input_tokens", "n_output_tokens", "cost_usd")
            },
        )
        .with_columns(
            entity_type=pl.lit("turn"),
            entity_id=turn_id(),
            parent_type=pl.lit("session"),
            parent_id="session_id",
        )
    )  # fmt: skip
    numbers = executions.select(*execution, run_id="entity_id")
    of_steps = (
        details["opencode_steps"]
        .join(numbers, on=execution, how="left", maintain_order="left")
        .with_columns(
            entity_type=pl.lit("step"),
            parent_type=pl.lit("execution"),
            parent_id="run_id",
            raw_status="state",
            attempt="n_attempts",
            last_activity_at=pl.max_horizontal("started_at", "ended_at"),
            reason_message="error_message",
        )
    )
    of_tools = (
        details["opencode_tools"]
        .join(numbers, on=execution, how="left", maintain_order="left")
        .with_columns(
            entity_type=pl.lit("tool_call"),
            kind="name",
            parent_type=pl.lit("step"),
            parent_id=ENTITY_IDS["step"],
            raw_status="state",
            last_activity_at=pl.max_horizontal("started_at", "called_at", "ended_at"),
            reason_message="error_message",
        )
    )
    of_sessions = _sessions(details, session_rows)
    parts = (of_sessions, of_turns, of_executions, of_steps, of_tools)
    stacked = pl.concat(
        [
            schema.ENTITIES.conform(
                part.with_columns(
                    system=pl.lit(SYSTEM),
                    run_id=pl.col("run_id")
                    if "run_id" in part.columns
                    else pl.lit(None, pl.String),
                )
            )
            for part in parts
        ]
    )
    return add_recorded(_with_all_tokens(stacked, of_steps, executions, of_sessions), details)


_BESIDE = ("n_cache_read_tokens", "n_cache_write_tokens", "n_reasoning_tokens")


def _with_all_tokens(
    entities: pl.DataFrame, steps: pl.DataFrame, runs: pl.DataFrame, sessions: pl.DataFrame
) -> pl.DataFrame:
    """Entities whose tokens are those read and written in whatever way, as everywhere.

    opencode counts caches and reasoning beside them.
    """
    turns = runs.select(*SESSION_KEY, "exec_no", turn=turn_id())
    known = steps.join(turns, on=[*SESSION_KEY, "exec_no"], how="left", maintain_order="left")
    # What no step reported is not known, and not nothing.
    sums = [pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()) for name in _BESIDE]
    named = {"step": "entity_id", "execution": "run_id", "turn": "turn", "session": "session_id"}
    of_steps = [
        known.group_by("source", named=name).agg(sums).with_columns(entity_type=pl.lit(kind))
        for kind, name in named.items()
    ]
    # The row of a session counts all of it; events may begin in its middle.
    of_rows = sessions.filter(pl.col("row_input_tokens").is_not_null()).select(
        "source",
        *(pl.col(f"row_{name.removeprefix('n_')}").alias(name) for name in _BESIDE),
        named="session_id",
        entity_type=pl.lit("session"),
    )
    key = ["source", "entity_type", "entity_id"]
    beside = (
        pl.concat([of_rows, *of_steps], how="diagonal_relaxed")
        .rename({"named": "entity_id"})
        .unique(key, keep="first", maintain_order=True)
    )
    used = entities.drop(_BESIDE, strict=False).join(
        beside, on=key, how="left", maintain_order="left"
    )
    read, put, thought = (pl.col(name).fill_null(0) for name in _BESIDE)
    return schema.ENTITIES.conform(
        used.with_columns(
            pl.col("n_input_tokens") + read + put, pl.col("n_output_tokens") + thought
        )
    )


def _sessions(details: Mapping[str, pl.DataFrame], session_rows: pl.DataFrame) -> pl.DataFrame:
    last = (
        details["opencode_executions"]
        .filter("is_last")
        .select(
            *SESSION_KEY,
            raw_status="outcome",
            last_ended_at=pl.when(pl.col("outcome") != "open").then("ended_at"),
            active_at=pl.coalesce("last_active_at", "started_at"),
            reason_message="error_message",
            is_end_inferred="is_end_inferred",
            **{f"last_{name}": name for name in ("agent", "model", "provider")},
        )
    )
    first = (
        details["opencode_executions"]
        .group_by(SESSION_KEY)
        .agg(
            first_started_at=pl.col("started_at").min(),
            step_input_tokens=pl.col("n_input_tokens").sum(),
            step_output_tokens=pl.col("n_output_tokens").sum(),
        )
    )
    own = details["opencode_sessions"].select(
        *SESSION_KEY, "last_at", "n_turns", event_cost_usd="event_cost_usd", place="directory"
    )
    joined = own
    for part in (session_rows, last, first):
        joined = joined.join(part, on=SESSION_KEY, how="left", maintain_order="left")
    children = joined.group_by("source", session_id="parent_id").agg(
        n_children=pl.len().cast(pl.Int64)
    )
    return joined.join(
        children, on=SESSION_KEY, how="left", maintain_order="left"
    ).with_columns(
        entity_type=pl.lit("session"),
        entity_id="session_id",
        parent_type=pl.when(pl.col("parent_id").is_not_null()).then(pl.lit("session")),
        kind=pl.when(pl.col("parent_id").is_not_null())
        .then(pl.lit("subagent"))
        .otherwise(pl.lit("session")),
        name="title",
        project=pl.coalesce("directory", "place", "project_id"),
        directory=pl.coalesce("directory", "place"),
        agent=pl.coalesce("last_agent", "agent"),
        model=pl.coalesce("last_model", "model"),
        provider=pl.coalesce("last_provider", "provider"),
        created_at=moment("created_ms"),
        updated_at=moment("updated_ms"),
        started_at=pl.coalesce("first_started_at", moment("created_ms")),
        ended_at="last_ended_at",
        last_activity_at=pl.coalesce("last_at", "active_at", moment("created_ms")),
        last_message_at="active_at",
        is_end_approximate=pl.col("is_end_inferred"),
        # The row of a session counts all of it; events may begin in its middle.
        n_input_tokens=pl.coalesce("row_input_tokens", "step_input_tokens"),
        n_output_tokens=pl.coalesce("row_output_tokens", "step_output_tokens"),
        cost_usd=pl.coalesce("row_cost_usd", "event_cost_usd"),
    )  # fmt: skip


def transitions_of(
    order: Ordered, log_steps: pl.DataFrame, executions_of_messages: pl.DataFrame
) -> pl.DataFrame:
    """Starts and ends of executions and steps, as they were written.

    Parameters
    ----------
    order : Ordered
    log_steps : polars.DataFrame
        Step events with their ``message_id``.
    executions_of_messages : polars.DataFrame
        Executions that only messages tell of, ``frames.EXECUTIONS``.
    """
    entity = ("source", "entity_type", "entity_id")
    words = {kind: kind.removeprefix("execution.") for kind in TERMINALS}
    runs = (
        order.events.filter(pl.col("is_start") | pl.col("kind").is_in(list(TERMINALS)))
        .with_columns(
            entity_type=pl.lit("execution"),
            entity_id=ENTITY_IDS["execution"],
            status=pl.when("is_start")
            .then(pl.lit("started"))
            .otherwise(pl.col("kind").replace_strict(words, default=None)),
        )
        .select(*entity, "at_ms", "seq", "status")
    )
    steps = log_steps.with_columns(
        entity_type=pl.lit("step"),
        entity_id=ENTITY_IDS["step"],
        status=pl.col("kind").replace_strict(_STEP_WORDS),
    ).select(*entity, "at_ms", "seq", "status")
    both = pl.concat([runs, steps]).with_columns(
        at=moment("at_ms"),
        previous_status=pl.col("status").shift(1).over(entity),
    )
    frames = [_named(both, schema.TRANSITIONS)]
    if executions_of_messages.height:
        begun = executions_of_messages.select(
            "source",
            "entity_id",
            at="started_at",
            status=pl.lit("started"),
            previous_status=pl.lit(None, pl.String),
        )
        ended = executions_of_messages.filter(pl.col("ended_at").is_not_null()).select(
            "source",
            "entity_id",
            at="ended_at",
            status="outcome",
            previous_status=pl.lit("started"),
        )
        rows = pl.concat([begun, ended]).with_columns(entity_type=pl.lit("execution"))
        frames.append(_named(rows.sort("source", "entity_id", "at"), schema.TRANSITIONS))
    return pl.concat(frames).filter(pl.col("at").is_not_null())


def events_of(order: Ordered, messages: pl.DataFrame) -> pl.DataFrame:
    """Every durable event, and the messages of sessions that have none, as events."""
    rows = order.events.select(
        "source",
        entity_type=pl.lit("session"),
        entity_id="session_id",
        at=moment("at_ms"),
        seq="seq",
        kind="type",
        is_activity=~pl.col("kind").is_in(list(QUIET)),
    )
    written = messages.sort(*SESSION_KEY, "created_ms", "message_id").select(
        "source",
        entity_type=pl.lit("session"),
        entity_id="session_id",
        at=moment("created_ms"),
        seq=pl.lit(None, pl.Int64),
        kind=pl.lit("message"),
        is_activity=pl.lit(value=True),
        role="role",
    )
    return pl.concat([_named(rows, schema.EVENTS), _named(written, schema.EVENTS)])


def _named(frame: pl.DataFrame, shape: schema.Frame) -> pl.DataFrame:
    return shape.conform(frame.with_columns(system=pl.lit(SYSTEM)))


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each step used, and each title and summary beside them.

    Caches and reasoning are no part of what is read and written there.
    """
    events = facts.detail(OF_EVENTS["session"])
    is_spent = pl.any_horizontal(pl.col("type").str.ends_with(kind) for kind in SPENT_BESIDE)
    in_all = (
        ("n_input_tokens", ("n_cache_read_tokens", "n_cache_write_tokens")),
        ("n_output_tokens", ("n_reasoning_tokens",)),
    )
    spent = pl.concat(
        [facts.detail(STEPS).with_columns(at="started_at"), events.filter(is_spent)],
        how="diagonal",
    )
    return spent.with_columns(
        *(pl.col(name) + pl.sum_horizontal(*others) for name, others in in_all),
        # What a migration could not infer of old summaries it calls so.
        *(
            pl.when(pl.col(name) != "unknown").then(name).alias(name)
            for name in ("model", "provider")
        ),
        entity_id="session_id",
    )
