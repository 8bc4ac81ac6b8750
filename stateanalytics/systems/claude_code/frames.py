"""The frames that only Claude Code fills."""

from __future__ import annotations

from stateanalytics.core.schema import Inputs, OfInput, Results, Said
from stateanalytics.core.shapes import Columns, Frame, Integer, Moment, Real, Text, YesNo, frame

USAGE = (*("n_input_tokens", "n_cache_creation_tokens", "n_cache_read_tokens"), "n_output_tokens")


class Used(Columns):
    """The tokens of answers."""

    n_input_tokens = Integer(
        "input tokens neither read from nor written to the cache", unit="tokens"
    )
    n_cache_creation_tokens = Integer("tokens read and put into the cache", unit="tokens")
    n_cache_read_tokens = Integer("tokens read from the cache", unit="tokens")
    n_output_tokens = Integer("tokens written", unit="tokens")


class ToolCounts(Columns):
    """Calls of tools, and retries."""

    n_tool_calls = Integer("tool calls")
    n_tool_errors = Integer("tool results marked as failed")
    n_open_tools = Integer("tool calls without a result")
    n_retries = Integer("retries of requests")


class ClaudeSessions(OfInput, key=("source", "thread_id")):
    """One session or subagent of Claude Code: what its transcript adds to `entities`."""

    thread_id = Text("the session, or its subagent: an id in `entities`")
    session_id = Text("the session that it belongs to")
    agent_id = Text("the subagent; null: the session itself")
    parent_thread_id = Text("who started the subagent, or was forked or continued")
    parent_tool_id = Text("the tool call that started it")
    file = Text("its transcript; of several the first")
    n_files = Integer("transcripts that record it")
    title = Text("its title")
    directory = Text("its working directory at the end")
    program_version = Text("version that wrote its last record")
    first_at = Moment("its first record of its own")
    last_activity_at = Moment("its last sign of life")
    n_turns = Integer("its turns")
    n_copied = Integer("records copied from another session: not counted")
    n_repeated = Integer("records that are there twice: not counted")
    n_compactions = Integer("times that the conversation was summarised")
    n_prompts = Integer("prompts of a person or of another session")
    n_answers = Integer("distinct answers of models")
    used = Used
    n_input_tokens = Integer(
        "input tokens neither read from nor written to the cache, with those of side requests",
        unit="tokens",
    )
    tools = ToolCounts
    cost_usd = Real(
        "recorded cost of it and its subagents, without what a fork inherited; null: none recorded",
        unit="USD",
    )
    inherited_cost_usd = Real(
        "recorded cost that a fork began with: that of its origin", unit="USD"
    )
    api_s = Real("time in requests to the model, as recorded", unit="s")
    tool_s = Real("time in tools, as recorded", unit="s")
    n_lines_added = Integer("lines of code added, as recorded")
    n_lines_removed = Integer("lines of code removed, as recorded")
    naive_output_tokens = Integer("tokens written, repeated lines included", unit="tokens")


SESSIONS = frame(ClaudeSessions)


class ClaudeTurns(OfInput, key=("source", "thread_id", "turn_no")):
    """One turn of Claude Code: from a prompt to the next."""

    thread_id = Text("the session, or its subagent: an id in `entities`")
    turn_no = Integer("number of the turn in it, from 1; 0: before any prompt")
    entity_id = Text("its id in `entities`")
    situation = Text("what its records show: good, failed, open_tool, …")
    is_last = YesNo("the last turn: its session shows its state")
    started_at = Moment("its first record")
    ended_at = Moment("the record that ended it; null: none did")
    last_activity_at = Moment("its last sign of life")
    last_sign_at = Moment("the same, of the subagents that it waits for too")
    model = Text("model id; null: no model wrote it")
    stop_reason = Text("why the answer stopped, as stored; null: not recorded")
    permission_mode = Text("who is asked before tools run")
    error_type = Text("tag of an error, as stored")
    error_status = Integer("HTTP status of an error")
    error_message = Text("words of an error (at most 500 characters)")
    cause = Text("what its error means, as in reason codes")
    retry_at = Moment("when the retry that it waits for is due")
    open_tool = Text("tool that it waits for")
    open_since = Moment("when the first tool that it waits for was called")
    open_timeout_s = Real("time limit of that call", unit="s")
    patience_s = Real("how long it may be silent; null: the usual limit", unit="s")
    is_recovered = YesNo("an answer came after a retry")
    has_output = YesNo("there is text, or a tool succeeded")
    n_text_chars = Integer("characters of answer text")
    n_prompts = Integer("prompts of a person or of another session")
    n_answers = Integer("distinct answers of models")
    used = Used
    tools = ToolCounts
    retry_s = Real("waited for retries", unit="s")
    n_compactions = Integer("times that its conversation was compacted")
    n_final_chars = Integer(
        "characters of its last answer; null: a tool ended it, or its version did not keep it"
    )
    said = Said


TURNS = frame(ClaudeTurns)


class ClaudeMessages(OfInput, key=("source", "thread_id", "message_id", "request_id")):
    """One answer of a model in Claude Code, counted once; or a request without an answer."""

    thread_id = Text("the session, or its subagent: an id in `entities`")
    turn_no = Integer("number of the turn in it, from 1; 0: before any prompt; null: side requests")
    message_id = Text(
        "the provider's id; that of its line where it has none; of side requests their cost record"
    )
    request_id = Text("the provider's id of the request")
    at = Moment("when its first line was written")
    model = Text("model id; null: no model wrote it")
    stop_reason = Text("why the answer stopped, as stored; null: not recorded")
    speed = Text("standard, or fast at another price; null: not recorded")
    used = Used
    n_cache_1h_tokens = Integer(
        "of those put into the cache: for an hour, not five minutes; null: not recorded",
        unit="tokens",
    )
    n_lines = Integer("lines that record it")
    is_side_request = YesNo(
        "no answer but all requests that only a cost record shows: compaction, titles"
    )
    is_cost_recorded = YesNo("its cost is part of a recorded one")


MESSAGES = frame(ClaudeMessages)


class ClaudeCosts(OfInput, key=("source", "thread_id", "model")):
    """What Claude Code itself recorded that one session cost with one model."""

    thread_id = Text("the session; its subagents are part of it")
    model = Text("model id, as the cost record names it")
    cost_usd = Real("recorded cost, without what a fork inherited", unit="USD")
    used = Used
    n_cache_1h_tokens = Integer("put into the cache for an hour, not five minutes", unit="tokens")


COSTS = frame(ClaudeCosts)


class ClaudeTools(OfInput, key=("source", "thread_id", "tool_id")):
    """One tool call of Claude Code."""

    thread_id = Text("the session, or its subagent: an id in `entities`")
    turn_no = Integer("number of the turn in it, from 1; 0: before any prompt")
    tool_id = Text("the provider's id of the call")
    entity_id = Text("its id in `entities`")
    name = Text("tool")
    started_at = Moment("when it was called")
    ended_at = Moment("when its result or its end in the background was written; null: none was")
    timeout_s = Real("its time limit, its own or that of Bash", unit="s")
    patience_s = Real("how long it may be silent while it is open", unit="s")
    is_error = YesNo("it failed, was denied or was interrupted; null: open")
    is_background = YesNo("its process ran on when the result came, and no end of it was written")
    is_replaced = YesNo(
        "another answer was given in place of the one that called it, or after it though no result "
        "is recorded: nothing waits for it"
    )
    cause = Text("of an error: exit_nonzero, permission_rejected, not_found, timeout, …")
    error_message = Text("words of the error")
    child_thread_id = Text("the subagent that it started")
    inputs = Inputs
    results = Results
    n_answer_tokens = Integer("tokens of the answer that asked for it", unit="tokens")


TOOLS = frame(ClaudeTools)


class ClaudeLines(OfInput, key=("source", "file", "line_no")):
    """One record of a transcript of Claude Code, and what states read of it."""

    file = Text("path of the transcript, from the input")
    line_no = Integer("line of the file, from 1")
    at = Moment("when it was written; null: not recorded", read_from="timestamp")
    type = Text("type as stored", read_from="type")
    subtype = Text(
        "subtype, attachment or operation as stored",
        read_from="subtype|attachment.type|operation|data.type",
    )
    what = Text("what it is: prompt, tool_result, assistant, retry, …, other")
    uuid = Text("id of the record", read_from="uuid")
    parent_uuid = Text("id of the record before it", read_from="parentUuid")
    session_id = Text("session, as stored", read_from="sessionId")
    agent_id = Text("subagent, as stored", read_from="agentId")
    is_sidechain = YesNo("record of a subagent or of a side question", read_from="isSidechain")
    forked_from = Text("session that it was copied from", read_from="forkedFrom.sessionId")
    continued_in = Text("session in which this one goes on", read_from="continuedInSessionId")
    program_version = Text("version of Claude Code that wrote it", read_from="version")
    directory = Text("working directory", read_from="cwd")
    title = Text(
        "title or name of the session that it gives", read_from="customTitle|aiTitle|agentName"
    )
    permission_mode = Text("who is asked before tools run", read_from="permissionMode")
    message_id = Text(
        "the provider's id of the answer, or of the one that an interrupt stopped",
        read_from="message.id|interruptedMessageId",
    )
    request_id = Text("the provider's id of the request", read_from="requestId")
    model = Text("model id; null: no model wrote it", read_from="message.model")
    stop_reason = Text(
        "why the answer stopped, as stored; null: not recorded", read_from="message.stop_reason"
    )
    speed = Text("of the answer, as stored", read_from="message.usage.speed")
    n_input_tokens = Integer(
        "input tokens neither read from nor written to the cache",
        unit="tokens",
        read_from="message.usage.input_tokens",
    )
    n_cache_creation_tokens = Integer("tokens read and put into the cache", unit="tokens")
    n_cache_1h_tokens = Integer(
        "of these: for an hour, not five minutes; null: not recorded", unit="tokens"
    )
    n_cache_read_tokens = Integer(
        "tokens read from the cache",
        unit="tokens",
        read_from="message.usage.cache_read_input_tokens",
    )
    n_output_tokens = Integer(
        "tokens written", unit="tokens", read_from="message.usage.output_tokens"
    )
    n_text_chars = Integer("characters of text")
    error_type = Text("tag of an error, as stored", read_from="error")
    error_kind = Text("exact kind of an error, as stored", read_from="apiErrorParams.cut|apiError")
    error_status = Integer("HTTP status of an error", read_from="apiErrorStatus")
    error_message = Text("words of an error (at most 500 characters)")
    says = Text("gives_up or asks of an answer, corrects of a prompt, by first words: a hypothesis")
    retry_at = Moment("when the retry that it announces is due")
    result_agent_id = Text(
        "subagent that it is a result or progress of",
        read_from="toolUseResult.agentId|data.agentId",
    )
    result_tool_id = Text("tool call that it is progress of", read_from="parentToolUseID")
    task_id = Text(
        "command that goes on in the background from here, or is stopped here",
        read_from="toolUseResult.backgroundTaskId|toolUseResult.task_id|toolUseResult.shell_id",
    )
    result_status = Text(
        "how that subagent ended, by its parent's record", read_from="toolUseResult.status"
    )
    n_result_output_tokens = Integer(
        "tokens written by the last answer of that subagent, by its parent's record",
        unit="tokens",
        read_from="toolUseResult.usage.output_tokens",
    )
    cost_usd = Real(
        "of a cost record: all that its session has cost so far, its origin's part too",
        unit="USD",
        read_from="totalCostUSD",
    )
    api_s = Real("of a cost record: time in requests to the model so far", unit="s")
    tool_s = Real("of a cost record: time in tools so far", unit="s")
    n_lines_added = Integer(
        "of a cost record: lines of code added so far", read_from="totalLinesAdded"
    )
    n_lines_removed = Integer(
        "of a cost record: lines of code removed so far", read_from="totalLinesRemoved"
    )
    counted_since = Moment(
        "of a cost record: since when it counts, the same after a resume and in a fork"
    )
    exited_at = Moment("of a cost record: when a process ended that was its session's only one")
    is_cost_approximate = YesNo(
        "of a cost record: Claude Code had no price for a model", read_from="hasUnknownModelCost"
    )
    model_usage = Text("of a cost record: tokens and cost by model so far, as JSON")
    budget_usd = Real("cost that a run was limited to", unit="USD", read_from="attachment.total")
    denial = Text(
        "why a tool call did not run to its end: as stored, interrupted or timeout",
        read_from="toolDenialKind",
    )
    ends_turn = Text(
        "of a tool's result that ends its turn, so that no answer follows: tool or denial"
    )


LINES = frame(ClaudeLines)


class ClaudeBlocks(OfInput, key=("source", "file", "line_no", "place")):
    """One block of a message of Claude Code: text, thought, call or result of a tool."""

    file = Text("path of the transcript, from the input")
    line_no = Integer("line of the file, from 1")
    place = Integer("place in the message, from 0")
    type = Text("type as stored")
    tool_id = Text("id of the tool call")
    name = Text("tool")
    timeout_s = Real("time limit that the call asks for", unit="s")
    is_error = YesNo("the result is marked as failed, denied or interrupted")
    is_background = YesNo("a result that came while the process ran on")
    error_message = Text("its error in words (at most 500 characters)")
    inputs = Inputs
    results = Results


BLOCKS = frame(ClaudeBlocks)


FRAMES = (SESSIONS, TURNS, MESSAGES, COSTS, TOOLS, LINES, BLOCKS)


def frames() -> tuple[Frame, ...]:
    """Every frame of Claude Code, in the order of the schema."""
    return FRAMES
