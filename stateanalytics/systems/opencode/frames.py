"""The frames that only opencode fills: folded work, and the records that it was folded from.

The records are kept as frames, so that any instant is read as the present is: later records
are excluded, and the rest is folded again. They contain no text of a person or a model.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.schema import Inputs, OfInput, Results, Said
from stateanalytics.core.shapes import Columns, Frame, Integer, Moment, Real, Text, YesNo, frame
from stateanalytics.io.json_lines import moment
from stateanalytics.systems.opencode.gathered import (
    ERA_A_PREFIX,
    EVENTS,
    MESSAGES,
    PARTS,
    PAYLOADS,
    PROJECTED,
    SESSION_KEY,
    SESSION_ROWS,
    Gathered,
    Log,
    Ordered,
    family_of,
    kind_of,
    rows_of,
)


class OpencodeExecutions(OfInput, key=("source", "session_id", "exec_no")):
    """One execution of an opencode session: one time that it worked through its inputs."""

    session_id = Text("the session")
    exec_no = Integer("number of the execution in its session, from 1; 0: no start")
    entity_id = Text("its id in `entities`")
    turn_no = Integer("number of the turn: executions joined over crash, shutdown and own prompts")
    era = Text("who wrote it: V1, A, B, C")
    start_seq = Integer("sequence number of its start")
    end_seq = Integer("sequence number of its end")
    started_at = Moment("when it started")
    ended_at = Moment("when it ended; null: no end was written")
    last_active_at = Moment("its last step, text or tool event")
    session_last_at = Moment("the newest event of its session, of any kind")
    outcome = Text("succeeded, failed, interrupted, crashed (no end), open, unknown")
    first_outcome = Text("its first end, where several were written")
    n_terminals = Integer("ends that were written; above 1: a late terminal")
    interrupt_reason = Text("user, shutdown, superseded, inactivity, or as stored")
    error_type = Text("type of its error, as stored")
    error_message = Text("message of its error")
    error_status = Integer("HTTP status of its error, where it was stored")
    cause = Text("what the error means, as in reason codes; unrecognized: a new type")
    cause_confidence = Real("1 where the type names it, less where it follows from words")
    end_event_id = Text("the event that ended it")
    is_last = YesNo("the last execution of its session")
    is_last_of_turn = YesNo("the last execution of its turn")
    is_continuation = YesNo("it continues the turn of the one before")
    is_head_truncated = YesNo("its start is not in the input")
    is_end_inferred = YesNo("no end was stored: it follows from its last message")
    is_blocked = YesNo("the provider's content filter stopped it: never a success")
    is_recovered = YesNo("a step ended well after a retry")
    has_output = YesNo("there is text, or a tool completed")
    last_finish = Text("why its last step finished, in the provider's words")
    n_steps = Integer("calls of a model")
    n_retries = Integer("retries that were scheduled; null: not recorded in messages")
    n_compactions = Integer("1 where a full context had to be compacted for it; of V1 alone")
    n_tools = Integer("tool calls")
    n_tools_running = Integer("tool calls without an end")
    n_text_chars = Integer("characters of answer text")
    n_final_chars = Integer("characters of its last answer")
    said = Said
    is_correction = YesNo("its prompt corrects the answer before: a hypothesis; of V1 alone")
    n_unknown_finishes = Integer("steps that finished for an unknown reason")
    is_retry_pending = YesNo("its last step waits for a retry")
    retry_attempt = Integer("number of the attempt that is waited for, from 2")
    retry_at = Moment("when that attempt is due")
    retry_error_type = Text("type of the error that made it retry")
    retry_cause = Text("what that error means")
    n_pending_asks = Integer("questions without an answer; permissions too, in streams")
    is_declined = YesNo("a person declined what it asked for, seen in the log")
    has_others_running = YesNo("other sessions ran on after its end")
    is_claimed = YesNo("its session is claimed, to be resumed at the next start")
    is_resumed = YesNo("its session was restarted after it")
    is_resumable = YesNo("a server's stop ended it and nothing resumed it; null: not cut")
    agent = Text("agent of the last step")
    model = Text("model of the last step")
    provider = Text("provider of the last step")
    n_input_tokens = Integer("tokens read; null: not reported", unit="tokens")
    n_output_tokens = Integer("tokens written; null: not reported", unit="tokens")
    cost_usd = Real("cost of its steps, failed ones too", unit="USD")


EXECUTIONS = frame(OpencodeExecutions)


class OpencodeInputs(Columns, key=("source", "session_id", "input_id")):
    """One input of an opencode session: a prompt, or what a program put in."""

    source = Text("the input file")
    session_id = Text("the session")
    input_id = Text("id of the input, later of its message")
    kind = Text("user, synthetic, compaction, move")
    delivery = Text("steer (joins the running execution) or queue")
    admitted_seq = Integer("sequence number of its admission")
    promoted_seq = Integer("sequence number of its promotion to a message")
    cancelled_seq = Integer("sequence number of its cancellation")
    admitted_at = Moment("when it was taken in")
    promoted_at = Moment("when it became a message, so that the model sees it")
    wait_s = Real("from admission to promotion", unit="s")
    is_pending = YesNo("neither promoted nor cancelled")
    is_stored_pending = YesNo("it is in the table of waiting inputs; null: no table")


INPUTS = frame(OpencodeInputs)


class OpencodeSessions(OfInput, key=("source", "session_id")):
    """One opencode session: what its events and its row add to `entities`."""

    session_id = Text("the session")
    era = Text("who wrote it: V1, A, B, C")
    program_version = Text("version of opencode that made it")
    read_from = Text("events, or messages where it has no events of work")
    directory = Text("working directory")
    first_seq = Integer("sequence number of its first event")
    last_seq = Integer("sequence number of its last event")
    last_type = Text("type of its last event")
    last_at = Moment("when that was; the session's own update is no activity")
    n_events = Integer("distinct events")
    n_executions = Integer("executions")
    n_turns = Integer("turns")
    n_steps = Integer("calls of a model")
    n_retries = Integer("retries that were scheduled; null: not recorded in messages")
    n_inputs = Integer("inputs")
    n_pending_inputs = Integer("inputs that wait")
    suspended_at = Moment("claim or stamp to resume it; null: none")
    n_resume_attempts = Integer("times that 2.0 resumed it by itself")
    idle_outcome = Text("outcome as 2.0 stored it")
    archived_at = Moment("when it was archived")
    fork_of = Text("session it was forked from")
    event_cost_usd = Real("cost that its events add up to", unit="USD")


SESSIONS = frame(OpencodeSessions)


class OpencodeSteps(OfInput, key=("source", "session_id", "message_id")):
    """One step of opencode: one call of a model, with its attempts."""

    session_id = Text("the session")
    message_id = Text("the assistant message")
    entity_id = Text("its id in `entities`")
    exec_no = Integer("execution in which it first started")
    era = Text("who wrote it: V1, A, B, C")
    start_seq = Integer("sequence number of its start")
    end_seq = Integer("sequence number of its end")
    dispatched_at = Moment("when the request was sent (2.0)")
    started_at = Moment("first output, or failure, of the first attempt")
    ended_at = Moment("when it ended")
    first_output_s = Real("from request to first output", unit="s")
    n_attempts = Integer("times that it started")
    n_retries = Integer("retries that were scheduled; null: not recorded in messages")
    state = Text("open, ended, failed")
    finish = Text("why it finished: stop, length, tool-calls, content-filter, …")
    raw_finish = Text("the provider's own word for that (2.0)")
    is_blocked = YesNo("the provider's content filter stopped it")
    is_recovered = YesNo("it ended well after a retry")
    is_retry_pending = YesNo("it waits for a retry")
    retry_attempt = Integer("number of the last attempt scheduled, from 2")
    retry_at = Moment("when that attempt was due")
    retry_error_type = Text("type of the error that made it retry")
    retry_wait_s = Real("time spent waiting for retries", unit="s")
    error_type = Text("type of its error, as stored")
    error_message = Text("message of its error")
    error_status = Integer("HTTP status of its error, where it was stored")
    cause = Text("what the error means, as in reason codes")
    cause_confidence = Real("1 where the type names it, less where it follows from words")
    end_event_id = Text("the event that ended it")
    n_text_chars = Integer("characters of answer text")
    agent = Text("agent of the last attempt")
    model = Text("model of the last attempt")
    provider = Text("provider of the last attempt")
    n_input_tokens = Integer("tokens read; null: not reported", unit="tokens")
    n_output_tokens = Integer("tokens written; null: not reported", unit="tokens")
    n_reasoning_tokens = Integer("tokens of reasoning; null: not reported", unit="tokens")
    n_cache_read_tokens = Integer("tokens read from cache", unit="tokens")
    n_cache_write_tokens = Integer("tokens written to cache", unit="tokens")
    cost_usd = Real("cost; null: not reported", unit="USD")


STEPS = frame(OpencodeSteps)


class OpencodeTools(OfInput, key=("source", "session_id", "message_id", "call_id")):
    """One tool call of opencode."""

    session_id = Text("the session")
    message_id = Text("the assistant message that called it")
    call_id = Text("the provider's id of the call; unique within the message only")
    entity_id = Text("its id in `entities`")
    name = Text("name of the tool")
    exec_no = Integer("execution of its step")
    end_exec_no = Integer("execution that wrote its end")
    era = Text("who wrote it: V1, A, B, C")
    start_seq = Integer("sequence number of its first event")
    end_seq = Integer("sequence number of its end")
    started_at = Moment("its first event")
    called_at = Moment("when it was called with complete input")
    ended_at = Moment("when it ended")
    state = Text("streaming, running, completed, error")
    is_stale = YesNo("its end was written by a later execution, after a crash")
    exit_code = Integer("exit code; one other than 0 is a failure, whatever the state")
    error_type = Text("type of its error, as stored")
    error_message = Text("message of its error")
    error_permission = Text("permission that was refused, where it was stored")
    error_resource = Text("what it was refused for, where it was stored")
    cause = Text(
        "what its error means, or how the command of a completed call failed, as in reason codes"
    )
    cause_confidence = Real("1 where the type names it, less where it follows from words")
    end_event_id = Text("the event that ended it")
    inputs = Inputs
    results = Results


TOOLS = frame(OpencodeTools)


class _Records(OfInput):
    """One record: each column means the same in every frame of records."""

    event_id = Text("the event")
    seq = Integer("its place in the session; null: it was only in a live stream")
    at = Moment("when it happened")
    type = Text("its type, without version")
    agent = Text("agent")
    archived_at = Moment("when it was archived")
    attempt = Integer("number of the attempt that a retry is for")
    call_id = Text("the provider's id of the tool call")
    completed_at = Moment("when it was complete; null: it was not")
    cost_usd = Real("cost; null: not reported", unit="USD")
    created_at = Moment("when it was created")
    delivery = Text("steer or queue")
    directory = Text("working directory")
    dispatched_at = Moment("when the request was sent (2.0)")
    end_at = Moment("when it ended")
    era = Text("who wrote it")
    error_message = Text("message of its error")
    error_permission = Text("permission that was refused")
    error_resource = Text("what it was refused for")
    error_status = Integer("HTTP status of its error")
    error_type = Text("type of its error, as stored")
    exit_code = Integer("exit code of the tool's program")
    finish = Text("why the step finished, in the provider's words")
    fork_of = Text("session it was forked from")
    idle_outcome = Text("outcome as 2.0 stored it")
    input_id = Text("the input")
    input_kind = Text("user, synthetic, compaction, move")
    is_aborted = YesNo("its command says that a person stopped it")
    is_timed_out = YesNo("its command says that its time limit ended it")
    message_id = Text("the message")
    model = Text("model")
    n_cache_read_tokens = Integer("tokens read from cache", unit="tokens")
    n_cache_write_tokens = Integer("tokens written to cache", unit="tokens")
    n_chars = Integer("characters of text")
    n_content_chars = Integer("characters of text, where a message holds its own parts")
    n_content_tools = Integer("completed tool calls, where a message holds its own parts")
    n_input_tokens = Integer("tokens read", unit="tokens")
    n_output_tokens = Integer("tokens written", unit="tokens")
    n_reasoning_tokens = Integer("tokens of reasoning", unit="tokens")
    n_resume_attempts = Integer("times that 2.0 resumed it by itself")
    parent_id = Text("of a message its prompt, of a session the one that began it")
    part_id = Text("the part")
    is_auto = YesNo("of a compaction: a full context began it, not a person")
    part_type = Text("text, tool, …")
    program_version = Text("version of opencode")
    project_id = Text("the project")
    provider = Text("provider of the model")
    raw_finish = Text("the provider's own word for that (2.0)")
    reason = Text("why an execution was interrupted")
    reply = Text("the answer to a permission")
    request_id = Text("the permission or question")
    retry_at = Moment("when the next attempt is due")
    retry_attempt = Integer("number of that attempt")
    retry_error_type = Text("type of the error that made it retry")
    role = Text("user, assistant, …")
    row_cache_read_tokens = Integer(
        "tokens read from cache in the whole session, as its row says", unit="tokens"
    )
    row_cache_write_tokens = Integer(
        "tokens written to cache in the whole session, as its row says", unit="tokens"
    )
    row_cost_usd = Real("cost of the whole session, as its row says", unit="USD")
    row_input_tokens = Integer("tokens read in the whole session, as its row says", unit="tokens")
    row_output_tokens = Integer(
        "tokens written in the whole session, as its row says", unit="tokens"
    )
    row_reasoning_tokens = Integer(
        "tokens of reasoning in the whole session, as its row says", unit="tokens"
    )
    session_id = Text("the session")
    start_at = Moment("when it began")
    status = Text("pending, running, completed, error")
    suspended_at = Moment("claim or stamp to resume it")
    title = Text("its title")
    tool = Text("name of the tool")
    updated_at = Moment("when its row was last written")
    written_at = Moment("when a stream reported it; null: from a row, which is overwritten")
    says = Text("gives_up, asks, corrects: a hypothesis; ran: a person's command; goes_on: its own")
    inputs = Inputs
    results = Results


def _as_moment(name: str) -> str:
    """The name of a column of milliseconds as a moment: `a_ms` is `a_at`."""
    bare = name.removesuffix("_ms")
    return bare if bare in {name, "at"} or bare.endswith("_at") else f"{bare}_at"


def _of_records(what: str, row: str, key: tuple[str, ...], *names: str) -> Frame:
    columns = dict.fromkeys(_as_moment(name) for name in ("source", *names))
    return Frame(f"opencode_{what}", row, ("source", *key), frame(_Records).named(*columns))


_EVENT = ("session_id", "event_id", "seq", "at", "type")
OF_EVENTS: Mapping[str, Frame] = {
    family: _of_records(
        f"{family}_events",
        f"one event of opencode of the kind '{family}', and what states read of it",
        ("session_id", "event_id"),
        *_EVENT,
        *(name for name in shape if name != "row"),
    )
    for family, shape in PAYLOADS.items()
}
"""A frame for each of `gathered.FAMILIES`; events without a payload are in ``events`` only."""
OF_MESSAGES = _of_records(
    "messages",
    "one message of opencode, and what states read of it",
    ("session_id", "message_id", "era"),
    *MESSAGES,
)
OF_PARTS = _of_records(
    "parts",
    "one part of a message of opencode, and what states read of it",
    ("message_id", "part_id"),
    *PARTS,
)
OF_SESSIONS = _of_records(
    "session_rows", "one session of opencode, as its own row says", ("session_id",), *SESSION_ROWS
)
RECORDS = (*OF_EVENTS.values(), OF_MESSAGES, OF_PARTS, OF_SESSIONS)


def kept_records(gathered: Gathered, order: Ordered) -> dict[str, pl.DataFrame]:
    """The records that states are made from, as the detail frames of `RECORDS`.

    Parameters
    ----------
    gathered : Gathered
    order : Ordered
        Its durable events without repetitions.
    """
    frames = {
        frame.name: rows_of(order.events, gathered.log, family)
        for family, frame in OF_EVENTS.items()
    }
    asked = gathered.log.events.filter(
        pl.col("seq").is_null(), pl.col("session_id").is_not_null()
    ).unique(["source", "event_id"], keep="first", maintain_order=True)
    live = rows_of(asked, gathered.log, "ask")
    asks = OF_EVENTS["ask"].name
    frames[asks] = pl.concat([frames[asks].select(live.columns), live])
    frames |= {
        OF_MESSAGES.name: pl.concat([gathered.messages, gathered.projections]).unique(
            maintain_order=True
        ),
        OF_PARTS.name: gathered.parts.unique(maintain_order=True),
        OF_SESSIONS.name: gathered.session_rows.unique(maintain_order=True),
    }
    return {shape.name: conformed(frames[shape.name], shape) for shape in RECORDS}


def conformed(frame: pl.DataFrame, shape: Frame) -> pl.DataFrame:
    """A frame in one of these shapes, with its moments from columns of milliseconds."""
    return shape.conform(
        frame.with_columns(
            moment(name).alias(_as_moment(name))
            for name in frame.columns
            if name.endswith("_ms") and _as_moment(name) in shape.dtypes
        )
    )


def _with_milliseconds(frame: pl.DataFrame, shape: pl.Schema) -> pl.DataFrame:
    return frame.select(
        pl.col(_as_moment(name)).dt.epoch("ms").alias(name) if name.endswith("_ms") else name
        for name in shape
    )


def gathered_from(details: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Gathered:
    """The contents of inputs, from the frames that were kept: the inverse of `kept_records`.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
        With the frames of `RECORDS`.
    events : polars.DataFrame
        `schema.EVENTS` of these inputs; those with a ``seq`` are durable.

    Returns
    -------
    Gathered
        Without losses, and without the table of waiting inputs, which shows only the present.
    """

    def own(frame: Frame) -> pl.DataFrame:
        return details.get(frame.name, frame.empty())

    messages = _with_milliseconds(own(OF_MESSAGES), MESSAGES)
    is_projected = (pl.col("era") == PROJECTED).fill_null(value=False)
    return Gathered(
        log=_log_from({family: own(frame) for family, frame in OF_EVENTS.items()}, events),
        messages=messages.filter(~is_projected),
        parts=_with_milliseconds(own(OF_PARTS), PARTS),
        projections=messages.filter(is_projected),
        session_rows=_with_milliseconds(
            own(OF_SESSIONS).sort("written_at", "updated_at", descending=True, nulls_last=True),
            SESSION_ROWS,
        ),
    )


def _log_from(kept: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Log:
    """The log of the durable events in ``events``, with their kept payloads."""
    place = [*SESSION_KEY, "seq"]
    heads = [frame.select(*place, "event_id", "at", "type") for frame in kept.values()]
    named = pl.concat(heads)
    durable = events.filter(pl.col("seq").is_not_null()).select(
        "source", pl.col("entity_id").alias("session_id"), "seq", "at", type="kind"
    )
    ids = named.filter(pl.col("seq").is_not_null()).select(*place, "event_id")
    known = durable.join(ids, on=place, how="left", maintain_order="left")
    rows = pl.concat(
        [known.select(named.columns), named.filter(pl.col("seq").is_null())]
    ).with_columns(
        row=pl.int_range(pl.len(), dtype=pl.UInt32),
        at_ms=pl.col("at").dt.epoch("ms"),
        kind=kind_of(pl.col("type")),
        is_era_a=pl.col("type").str.starts_with(ERA_A_PREFIX),
        origin=pl.lit(0, pl.UInt8),
        digest=pl.lit(0, pl.UInt64),
    )
    numbers = rows.select(*place, "event_id", "row")
    payloads = {
        family: _with_milliseconds(
            frame.join(numbers, on=[*place, "event_id"], how="inner", nulls_equal=True),
            PAYLOADS[family],
        )
        for family, frame in kept.items()
    }
    return Log(rows.with_columns(family=family_of(pl.col("kind"))).select(EVENTS.names()), payloads)


def frames() -> tuple[Frame, ...]:
    """Every frame of opencode, in the order of the schema."""
    return (EXECUTIONS, INPUTS, SESSIONS, STEPS, TOOLS, *RECORDS)
