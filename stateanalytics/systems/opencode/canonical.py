"""From opencode's folds to its detail frames, and from those to entities and transitions."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import left_joined, total
from stateanalytics.io.json_lines import moment
from stateanalytics.systems.opencode import NAME, frames
from stateanalytics.systems.opencode.folding import SUMS, Folded
from stateanalytics.systems.opencode.frames import OF_EVENTS, conformed
from stateanalytics.systems.opencode.gathered import (
    ERROR,
    QUIET,
    SESSION_KEY,
    SPENT_OUTSIDE_STEPS,
    TERMINALS,
    Gathered,
    Log,
    Ordered,
)
from stateanalytics.systems.opencode.states import RUN_KEY, add_recorded, turn_id, with_cause
from stateanalytics.systems.situations import first_that_holds

_DECLINE_WINDOW_MS = 2000
"""The most time from a refusal to the end that it caused, or the least that others ran on."""
_COMMANDS = ("bash", "shell")
"""Tools that run a command: their names in V1 and in 2.0."""
_ENTITY_IDS = {
    "execution": pl.concat_str("session_id", pl.lit(":execution:"), "exec_no"),
    "step": pl.concat_str("session_id", pl.lit(":"), "message_id"),
    "tool_call": pl.concat_str("session_id", pl.lit(":"), "message_id", pl.lit(":"), "call_id"),
}


def detail_frames(
    gathered: Gathered,
    order: Ordered,
    folded: Folded,
    by_messages: Folded,
    session_rows: pl.DataFrame,
) -> dict[str, pl.DataFrame]:
    """The detail frames of some inputs, by name.

    Parameters
    ----------
    gathered : Gathered
        For permissions and the tables of waiting inputs, which are not folded.
    order : Ordered
        The events that were folded.
    folded, by_messages : Folded
        From events, and from messages of sessions without events, where columns that need
        events are null.
    session_rows : polars.DataFrame
        The row of each session, completed from its events and messages.
    """
    eras = _eras(order, folded.sessions)

    def both(by_events: pl.DataFrame, by_messages: pl.DataFrame) -> pl.DataFrame:
        with_eras = by_events.join(eras, on=SESSION_KEY, how="left", maintain_order="left")
        return pl.concat([with_eras, by_messages], how="diagonal_relaxed")

    asked = _with_asks(folded.executions, gathered.log)
    newest = by_messages.sessions.select(*SESSION_KEY, session_last_ms="newest_ms")
    turns = by_messages.executions.join(newest, on=SESSION_KEY, how="left", maintain_order="left")
    inputs = pl.concat([folded.inputs, by_messages.inputs], how="diagonal_relaxed").with_columns(
        kind="input_kind", wait_s=(pl.col("promoted_ms") - pl.col("admitted_ms")) / 1000
    )
    if gathered.waiting is not None:
        stored = pl.col("input_id").is_in(gathered.waiting["input_id"].implode())
        inputs = inputs.with_columns(is_stored_pending=stored)
    sessions = both(
        folded.sessions.with_columns(read_from=pl.lit("events")),
        by_messages.sessions.with_columns(read_from=pl.lit("messages")),
    ).with_columns(event_cost_usd="cost_usd")
    return {
        "opencode_executions": _executions(both(_with_context(asked, folded, session_rows), turns)),
        "opencode_steps": _steps(both(folded.steps, by_messages.steps)),
        "opencode_tools": _tools(both(folded.tools, by_messages.tools)),
        "opencode_inputs": conformed(inputs, frames.INPUTS),
        "opencode_sessions": _all_sessions(conformed(sessions, frames.SESSIONS), session_rows),
    }


def _all_sessions(frame: pl.DataFrame, session_rows: pl.DataFrame) -> pl.DataFrame:
    """One row per session, also for those that have neither events nor messages."""
    ordered = frame.sort(pl.col("n_executions").fill_null(0), descending=True, maintain_order=True)
    distinct = ordered.unique(SESSION_KEY, keep="first", maintain_order=True)
    rows = conformed(session_rows.with_columns(last_ms="created_ms"), frames.SESSIONS)
    counts = ("n_events", "n_executions", "n_turns", "n_steps", "n_inputs", "n_pending_inputs")
    both = rows.update(distinct, on=SESSION_KEY, how="full")
    return both.with_columns(pl.col(counts).fill_null(0)).sort(SESSION_KEY)


def _eras(order: Ordered, sessions: pl.DataFrame) -> pl.DataFrame:
    """The era of opencode that wrote each session, by types of events and versions."""
    only_c = pl.col("type").str.contains(r"^session\.(?:inbox\.|step\.streamed|viewed$)")
    version = pl.col("program_version")
    eras = {
        "A": pl.col("is_a"),
        "C": pl.col("is_c") | version.str.starts_with("2."),
        "V1": version.str.starts_with("1."),
    }
    return (
        order.events.group_by(SESSION_KEY)
        .agg(is_a=pl.col("is_era_a").any(), is_c=only_c.any())
        .join(sessions.select(*SESSION_KEY, "program_version"), on=SESSION_KEY, how="left")
        .select(*SESSION_KEY, era=first_that_holds(eras).fill_null("B"))
    )


def _with_asks(executions: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Add the number of unanswered questions, and whether one was declined at the end."""
    asks = (
        log.events.filter(pl.col("kind").str.starts_with("permission."))
        .join(log.payload("ask"), on="row", how="inner")
        .filter(pl.col("session_id").is_not_null(), pl.col("request_id").is_not_null())
        .unique(["source", "event_id"])
    )
    key = [*SESSION_KEY, "request_id"]
    answers = asks.filter(pl.col("kind") != "permission.asked")
    waiting = asks.filter(pl.col("kind") == "permission.asked").join(answers, on=key, how="anti")
    refused = answers.filter(
        (pl.col("reply") == "reject") | (pl.col("kind") == "permission.rejected")
    )
    execution = [*SESSION_KEY, "exec_no"]
    spans = executions.select(*execution, "started_ms", "ended_ms", "outcome")
    open_asks = (
        spans.filter(pl.col("outcome") == "open")
        .join(waiting.select(*SESSION_KEY, "at_ms"), on=SESSION_KEY, how="inner")
        .filter(pl.col("at_ms") >= pl.col("started_ms").fill_null(0))
        .group_by(execution)
        .agg(n_pending_asks=pl.len().cast(pl.Int64))
    )
    declined = (
        spans.filter(pl.col("outcome") == "interrupted")
        .join(refused.select(*SESSION_KEY, "at_ms"), on=SESSION_KEY, how="inner")
        .filter((pl.col("at_ms") - pl.col("ended_ms")).abs() <= _DECLINE_WINDOW_MS)
        .select(*execution, is_refused=pl.lit(value=True))
        .unique()
    )
    is_declined = pl.col("has_declined_tool").fill_null(value=False)
    return left_joined(executions, open_asks, declined, on=execution).with_columns(
        pl.col("n_pending_asks").fill_null(0),
        is_declined=is_declined | pl.col("is_refused").fill_null(value=False),
    )


def _with_context(
    executions: pl.DataFrame, folded: Folded, session_rows: pl.DataFrame
) -> pl.DataFrame:
    """Add claims, the last event of the session, and whether other sessions ran on."""
    until = pl.coalesce("last_active_ms", "first_end_ms", "started_ms")
    known = executions.with_columns(
        started=pl.coalesce("started_ms", "first_active_ms", "ended_ms")
    )
    others = (
        known.select("source", "started", until=until)
        .drop_nulls()
        .sort("started")
        .with_columns(until=pl.col("until").cum_max().over("source"))
    )
    ended = known.filter(pl.col("ended_ms").is_not_null()).sort("ended_ms")
    ran_on = ended.join_asof(
        others,
        left_on="ended_ms",
        right_on="started",
        by="source",
        strategy="backward",
        check_sortedness=False,  # polars cannot look within groups; both are sorted above
    ).select(
        "sid",
        "exec_no",
        has_others_running=pl.col("until") >= pl.col("ended_ms") + _DECLINE_WINDOW_MS,
    )
    newest = folded.sessions.select(*SESSION_KEY, session_last_ms="newest_ms")
    claims = session_rows.select(*SESSION_KEY, "suspended_ms")
    placed = left_joined(executions, ran_on, on=["sid", "exec_no"])
    return left_joined(placed, newest, claims, on=SESSION_KEY).with_columns(
        is_claimed=pl.col("suspended_ms").is_not_null() & pl.col("is_last"),
        is_resumed=~pl.col("is_last"),
    )


def _executions(frame: pl.DataFrame) -> pl.DataFrame:
    failed = pl.col("outcome") == "failed"
    caused = with_cause(frame, has_error=failed | pl.col("error_type").is_not_null())
    # The error that caused a retry may differ from the error at the end.
    of_retry = [f"retry_{name}" for name in ERROR]
    caused = with_cause(caused, *of_retry, into="retry_cause")
    stopped = (pl.col("outcome") == "interrupted") & (pl.col("reason") == "shutdown")
    declined = pl.col("is_declined") | pl.col("has_others_running").fill_null(value=False)
    return conformed(
        caused.with_columns(
            entity_id=_ENTITY_IDS["execution"],
            interrupt_reason="reason",
            is_end_inferred="is_end_from_step",
            is_resumable=pl.when(stopped).then(~declined & ~pl.col("is_resumed")),
            is_blocked=pl.col("is_blocked").fill_null(value=False)
            | (pl.col("cause") == "content_filtered").fill_null(value=False),
            is_recovered=pl.col("is_recovered").fill_null(value=False),
        ),
        frames.EXECUTIONS,
    )


def _steps(frame: pl.DataFrame) -> pl.DataFrame:
    caused = with_cause(frame, has_error=pl.col("state") == "failed")
    wait = (pl.col("started_ms") - pl.col("dispatched_ms")) / 1000
    return conformed(
        caused.with_columns(
            entity_id=_ENTITY_IDS["step"],
            first_output_s=wait,
            retry_wait_s=pl.col("retry_wait_ms") / 1000,
        ),
        frames.STEPS,
    )


def _tools(frame: pl.DataFrame) -> pl.DataFrame:
    # An HTTP status in the error of a call is from a page that it fetched, not the provider.
    caused = with_cause(frame, has_error=pl.col("state") == "error", vague=())
    # opencode stores a call as completed even if its command failed.
    is_command, is_invalid = pl.col("name").is_in(list(_COMMANDS)), pl.col("name") == "invalid"
    is_unknown = pl.col("error_message").str.contains("(?i)unavailable tool|unknown tool")
    causes = {
        "interrupted": is_command & pl.col("is_aborted"),
        "timeout": is_command & pl.col("is_timed_out"),
        "exit_nonzero": pl.col("exit_code") != 0,
        # V1 replaces a call that it cannot make by one of the tool `invalid`.
        "tool_unknown": is_invalid & is_unknown,
        "tool_input_invalid": is_invalid & (pl.col("era") == "V1"),
    }
    if_completed = pl.when(pl.col("state") == "completed").then(first_that_holds(causes))
    return conformed(
        caused.with_columns(
            pl.coalesce("cause", if_completed),
            pl.coalesce("cause_confidence", pl.when(if_completed.is_not_null()).then(1.0)),
            entity_id=_ENTITY_IDS["tool_call"],
        ),
        frames.TOOLS,
    )


_STEP_STATUS = {
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
        The row of each session, completed from its events and messages.
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
    of_turns = (
        runs.group_by(key, maintain_order=True)
        .agg(
            started_at=pl.col("started_at").first(),
            attempt=1 + pl.col("is_continuation").sum().cast(pl.Int64),
            n_turns=pl.lit(1, pl.Int64),
            **{name: pl.col(name).last() for name in _LAST_OF_TURN},
            **{name: total(name) for name in SUMS},
        )
        .with_columns(
            entity_type=pl.lit("turn"),
            entity_id=turn_id(),
            parent_type=pl.lit("session"),
            parent_id="session_id",
        )
    )  # fmt: skip
    runs_of_calls = executions.select(*RUN_KEY, run_id="entity_id", of_turn=turn_id())
    of_steps = left_joined(details["opencode_steps"], runs_of_calls, on=RUN_KEY).with_columns(
        entity_type=pl.lit("step"),
        parent_type=pl.lit("execution"),
        parent_id="run_id",
        raw_status="state",
        attempt="n_attempts",
        last_activity_at=pl.max_horizontal("started_at", "ended_at"),
        reason_message="error_message",
    )
    of_tools = left_joined(details["opencode_tools"], runs_of_calls, on=RUN_KEY).with_columns(
        entity_type=pl.lit("tool_call"),
        kind="name",
        parent_type=pl.lit("step"),
        parent_id=_ENTITY_IDS["step"],
        raw_status="state",
        last_activity_at=pl.max_horizontal("started_at", "called_at", "ended_at"),
        reason_message="error_message",
    )
    of_sessions = _sessions(details, session_rows)
    parts = (of_sessions, of_turns, of_executions, of_steps, of_tools)
    stacked = pl.concat([_conformed(part, schema.ENTITIES) for part in parts])
    spent = _spent(of_steps, details[OF_EVENTS["session"].name])
    return add_recorded(_with_all_tokens(stacked, spent, of_sessions), details)


_SEPARATE_TOKENS = ("n_cache_read_tokens", "n_cache_write_tokens", "n_reasoning_tokens")
_TOKENS = ("n_input_tokens", "n_output_tokens", *_SEPARATE_TOKENS)


def _spent(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Steps, and the events of sessions with tokens that were used outside of them."""
    is_spent = pl.any_horizontal(pl.col("type").str.ends_with(kind) for kind in SPENT_OUTSIDE_STEPS)
    return pl.concat([steps.with_columns(at="started_at"), events.filter(is_spent)], how="diagonal")


def _with_all_tokens(
    entities: pl.DataFrame, spent: pl.DataFrame, sessions: pl.DataFrame
) -> pl.DataFrame:
    """Entities with all tokens that were read and written, as in other systems.

    opencode counts caches and reasoning separately.
    """
    ids = {"step": "entity_id", "execution": "run_id", "turn": "of_turn", "session": "session_id"}
    by_steps = [
        spent.group_by("source", entity_id=name)
        .agg(total(name) for name in _TOKENS)
        .with_columns(entity_type=pl.lit(kind))
        for kind, name in ids.items()
    ]
    # The row of a session has the totals, even if the events begin in the middle of the session.
    # But the new interface of 1.18 writes only zeros there.
    by_rows = sessions.filter(pl.col("row_input_tokens").is_not_null()).select(
        "source",
        *(pl.col(f"row_{name.removeprefix('n_')}").alias(name) for name in _TOKENS),
        entity_id="session_id",
        entity_type=pl.lit("session"),
    )
    key = ["source", "entity_type", "entity_id"]
    is_counted = pl.any_horizontal(pl.col(_TOKENS) > 0).fill_null(value=False)
    tokens = (
        pl.concat([by_rows, *by_steps], how="diagonal_relaxed")
        .sort(is_counted, descending=True, maintain_order=True)
        .unique(key, keep="first", maintain_order=True)
    )
    used = entities.drop(_TOKENS, strict=False).pipe(left_joined, tokens, on=key)
    cache_read, cache_write, reasoning = (pl.col(name).fill_null(0) for name in _SEPARATE_TOKENS)
    # A session with turns but no reported tokens used none, as in the row of a session.
    none = pl.when(pl.col("n_turns") > 0, entity_type="session").then(0)
    return schema.ENTITIES.conform(
        used.with_columns(
            pl.col("n_input_tokens").fill_null(none) + cache_read + cache_write,
            pl.col("n_output_tokens").fill_null(none) + reasoning,
        )
    )


def _sessions(details: Mapping[str, pl.DataFrame], session_rows: pl.DataFrame) -> pl.DataFrame:
    """Sessions with the columns of entities, without their tokens."""
    last = (
        details["opencode_executions"]
        .filter("is_last")
        .select(
            *SESSION_KEY,
            "is_end_inferred",
            raw_status="outcome",
            last_ended_at=pl.when(pl.col("outcome") != "open").then("ended_at"),
            active_at=pl.coalesce("last_active_at", "started_at"),
            reason_message="error_message",
            **{f"last_{name}": name for name in ("agent", "model", "provider")},
        )
    )
    first = (
        details["opencode_executions"]
        .group_by(SESSION_KEY)
        .agg(first_started_at=pl.col("started_at").min())
    )
    joined = details["opencode_sessions"].select(
        *SESSION_KEY, "last_at", "n_turns", "event_cost_usd"
    )
    joined = left_joined(joined, session_rows, last, first, on=SESSION_KEY)
    children = joined.group_by("source", session_id="parent_id").agg(
        n_children=pl.len().cast(pl.Int64)
    )
    if_child = pl.when(pl.col("parent_id").is_not_null())
    row_cost = pl.col("row_cost_usd")
    return left_joined(joined, children, on=SESSION_KEY).with_columns(
        entity_type=pl.lit("session"),
        entity_id="session_id",
        parent_type=if_child.then(pl.lit("session")),
        kind=if_child.then(pl.lit("subagent")).otherwise(pl.lit("session")),
        name="title",
        project=pl.coalesce("directory", "project_id"),
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
        # As with tokens, a zero in the row may mean that nothing was counted.
        cost_usd=pl.coalesce(row_cost.replace(0.0, None), "event_cost_usd", "row_cost_usd"),
    )


def transitions_of(
    order: Ordered, log_steps: pl.DataFrame, executions_of_messages: pl.DataFrame
) -> pl.DataFrame:
    """Recorded starts and ends of executions and steps.

    Parameters
    ----------
    order : Ordered
    log_steps : polars.DataFrame
        Step events with their ``message_id``.
    executions_of_messages : polars.DataFrame
        Executions that have only messages, ``frames.EXECUTIONS``.
    """
    entity = ("source", "entity_type", "entity_id")
    started = pl.lit("started")
    runs = (
        order.events.filter(pl.col("is_start") | pl.col("kind").is_in(list(TERMINALS)))
        .with_columns(
            entity_type=pl.lit("execution"),
            entity_id=_ENTITY_IDS["execution"],
            # Era A has no start events: the input that begins an execution counts as its start.
            status=pl.when("is_start")
            .then(started)
            .otherwise(pl.col("kind").str.strip_prefix("execution.")),
        )
        .select(*entity, "at_ms", "seq", "status")
    )
    steps = log_steps.with_columns(
        entity_type=pl.lit("step"),
        entity_id=_ENTITY_IDS["step"],
        status=pl.col("kind").replace_strict(_STEP_STATUS),
    ).select(*entity, "at_ms", "seq", "status")
    both = pl.concat([runs, steps]).with_columns(
        at=moment("at_ms"), previous_status=pl.col("status").shift(1).over(entity)
    )
    begun = executions_of_messages.select(
        *("source", "entity_id"),
        at="started_at",
        status=started,
        previous_status=pl.lit(None, pl.String),
    )
    ended = executions_of_messages.filter(pl.col("ended_at").is_not_null()).select(
        "source", "entity_id", at="ended_at", status="outcome", previous_status=started
    )
    of_messages = pl.concat([begun, ended]).with_columns(entity_type=pl.lit("execution"))
    parts = (both, of_messages.sort("source", "entity_id", "at"))
    return pl.concat([_conformed(part, schema.TRANSITIONS) for part in parts]).filter(
        pl.col("at").is_not_null()
    )


def events_of(order: Ordered, messages: pl.DataFrame) -> pl.DataFrame:
    """Every durable event, and the messages of sessions without events, as events."""
    rows = order.events.select(
        *("source", "seq"),
        entity_type=pl.lit("session"),
        entity_id="session_id",
        at=moment("at_ms"),
        kind="type",
        is_activity=~pl.col("kind").is_in(list(QUIET)),
    )
    written = messages.sort(*SESSION_KEY, "created_ms", "message_id").select(
        *("source", "role"),
        entity_type=pl.lit("session"),
        entity_id="session_id",
        at=moment("created_ms"),
        seq=pl.lit(None, pl.Int64),
        kind=pl.lit("message"),
        is_activity=pl.lit(value=True),
    )
    return pl.concat([_conformed(part, schema.EVENTS) for part in (rows, written)])


def _conformed(frame: pl.DataFrame, shape: schema.Frame) -> pl.DataFrame:
    return shape.conform(frame.with_columns(system=pl.lit(NAME)))


def used_tokens(facts: Facts) -> pl.DataFrame:
    """The tokens of each step, title and summary.

    In opencode's frames cached and reasoning tokens are not part of those read and written.
    """
    sums = (
        ("n_input_tokens", ("n_cache_read_tokens", "n_cache_write_tokens")),
        ("n_output_tokens", ("n_reasoning_tokens",)),
    )
    spent = _spent(facts.detail(frames.STEPS), facts.detail(OF_EVENTS["session"]))
    used = {name: pl.col(name) + pl.sum_horizontal(*others) for name, others in sums}
    return spent.with_columns(
        # A migration writes "unknown" for models and providers that it could not infer.
        *(
            pl.when(pl.col(name) != "unknown").then(name).alias(name)
            for name in ("model", "provider")
        ),
        **used,
        longest_prompt_tokens=used["n_input_tokens"],
        entity_id="session_id",
    )
