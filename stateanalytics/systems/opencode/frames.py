"""The frames that only opencode fills."""

from __future__ import annotations

from stateanalytics.core.schema import Inputs, Results
from stateanalytics.core.shapes import Columns, Frame, Integer, Moment, Real, Text, YesNo, frame
from stateanalytics.systems.opencode.gathered import RECORDS


class OpencodeExecutions(Columns, key=("source", "session_id", "exec_no")):
    """One execution of an opencode session: one time that it worked through its inputs."""

    source = Text("the input")
    session_id = Text("the session")
    exec_no = Integer("number of the execution in its session, from 1; 0: no start")
    entity_id = Text("its id in `entities`")
    turn_no = Integer("number of the turn: executions joined over crash and shutdown")
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
    is_continuation = YesNo("it goes on with the turn of the one before")
    is_head_truncated = YesNo("its start is not in the input")
    is_end_inferred = YesNo("no end was stored: it is read off its last message")
    is_blocked = YesNo("the provider's content filter stopped it: never a success")
    is_recovered = YesNo("a step ended well after a retry")
    has_output = YesNo("there is text, or a tool completed")
    last_finish = Text("why its last step finished, in the provider's words")
    n_steps = Integer("calls of a model")
    n_retries = Integer("retries that were scheduled; null: not recorded in messages")
    n_tools = Integer("tool calls")
    n_tools_running = Integer("tool calls without an end")
    n_text_chars = Integer("characters of answer text")
    n_final_chars = Integer("characters of its last answer")
    n_idle_answers = Integer("answers after which nothing was called")
    gives_up = YesNo("its last answer says that it was not done: a hypothesis")
    is_correction = YesNo("its prompt corrects the answer before: a hypothesis; of V1 alone")
    n_unknown_finishes = Integer("steps that finished for an unknown reason")
    is_retry_pending = YesNo("its last step waits for a retry")
    retry_attempt = Integer("number of the attempt that is waited for, from 2")
    retry_at = Moment("when that attempt is due")
    retry_error_type = Text("type of the error that made it retry")
    retry_cause = Text("what that error means")
    n_pending_asks = Integer("permissions and questions without an answer (streams)")
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


class OpencodeSessions(Columns, key=("source", "session_id")):
    """One opencode session: what its events and its row add to `entities`."""

    source = Text("the input")
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


class OpencodeSteps(Columns, key=("source", "session_id", "message_id")):
    """One step of opencode: one call of a model, with its attempts."""

    source = Text("the input")
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


class OpencodeTools(Columns, key=("source", "session_id", "message_id", "call_id")):
    """One tool call of opencode."""

    source = Text("the input")
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
        "what its error means, or how the command of a completed call failed, as in reason codes",
    )
    cause_confidence = Real("1 where the type names it, less where it follows from words")
    end_event_id = Text("the event that ended it")
    inputs = Inputs
    results = Results


TOOLS = frame(OpencodeTools)


FRAMES = (*(EXECUTIONS, INPUTS, SESSIONS, STEPS, TOOLS), *RECORDS)


def frames() -> tuple[Frame, ...]:
    """Every frame of opencode, in the order of the schema."""
    return FRAMES
