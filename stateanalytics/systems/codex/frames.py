"""The frames that only Codex fills."""

from __future__ import annotations

from stateanalytics.core.schema import Inputs, OfInput, Results, Said
from stateanalytics.core.shapes import Columns, Frame, Integer, Moment, Real, Text, YesNo, frame

SUMS = ("sum_input_tokens", "sum_cached_tokens", "sum_output_tokens", "sum_reasoning_tokens")
"""Cumulative tokens of all answers so far."""
USAGE = (
    *("n_input_tokens", "n_cached_tokens", "n_output_tokens", "n_reasoning_tokens"),
    "n_cache_write_tokens",
)
"""Tokens of one answer; of the last one there is no sum, and versions before 0.145 have none."""
LONG_PROMPT_TOKENS = 272_000
"""Requests with more tokens cost more, for all models whose price depends on the length."""


class Counts(Columns):
    """Counts of a thread or a turn."""

    n_prompts = Integer("prompts")
    n_answers = Integer("messages of the model")
    n_input_tokens = Integer("tokens read, from the cache too", unit="tokens")
    n_cached_tokens = Integer("tokens read from the cache", unit="tokens")
    n_cache_write_tokens = Integer("read and written to the cache; null: unknown", unit="tokens")
    n_output_tokens = Integer("tokens written, reasoning too", unit="tokens")
    n_reasoning_tokens = Integer("tokens written as reasoning", unit="tokens")
    n_tool_calls = Integer("tool calls")
    n_tool_errors = Integer("calls that failed")
    n_open_tools = Integer("calls without a result")


class CodexSessions(OfInput, key=("source", "thread_id")):
    """One thread of Codex: what its rollout adds to `entities`."""

    thread_id = Text("its id in `entities`")
    session_id = Text("the session at the root of its subagents; its own id where it is none")
    is_subagent = YesNo("another thread started it")
    agent_name = Text("name of the subagent")
    agent_role = Text("role of the subagent")
    parent_thread_id = Text("who started the subagent, or was forked")
    parent_call_id = Text("the call that started it")
    file = Text("its rollout; of several the one that counts")
    n_files = Integer("rollouts that record it")
    title = Text("name that its person gave it")
    directory = Text("its working directory at the end")
    branch = Text("git branch at its start")
    provider = Text("model provider")
    originator = Text("program that began it, as stored")
    program_version = Text("version of Codex that began it")
    first_at = Moment("its first record of its own")
    last_activity_at = Moment("its last record of its own")
    n_turns = Integer("its turns")
    n_copied = Integer("records copied from another thread: not counted")
    n_compactions = Integer("times that the conversation was summarised")
    counts = Counts
    naive_total_tokens = Integer("the file's last total, with what was inherited", unit="tokens")


SESSIONS = frame(CodexSessions)


class CodexTurns(OfInput, key=("source", "thread_id", "turn_no")):
    """One turn of Codex."""

    thread_id = Text("the thread, an id in `entities`")
    turn_no = Integer("number of the turn in it, from 1")
    turn_id = Text("its own id; null: none was written")
    entity_id = Text("its id in `entities`")
    situation = Text("what its records show: good, failed, open_tool, …")
    is_last = YesNo("the last turn that was not rolled back: its thread shows its state")
    is_rolled_back = YesNo("a person took it back")
    is_implicit = YesNo("no start was written: it begins with its prompt")
    started_at = Moment("its first record")
    ended_at = Moment("the record that ended it; null: none did")
    last_activity_at = Moment("its last record")
    last_sign_at = Moment("the same, of the subagents that it waits for too")
    stored_duration_s = Real("how long it took by its own clock", unit="s")
    first_token_s = Real("until the model's first word", unit="s")
    model = Text("model id")
    approval_policy = Text("who is asked before commands run, as stored")
    stop_reason = Text("why it was aborted, as stored")
    error_type = Text("tag of an error, as stored")
    error_status = Integer("HTTP status of an error")
    error_message = Text("words of an error (at most 500 characters)")
    cause = Text("what its error means, as in reason codes")
    rate_limit_reached = Text("limit that was reached in it, as stored")
    rate_limit_used_percent = Real("share of the first limit that was used up at its end", unit="%")
    rate_limit_resets_at = Moment("when that limit resets")
    open_tool = Text("tool that it waits for")
    open_since = Moment("when the first tool that it waits for was called")
    open_timeout_s = Real("time limit of that call", unit="s")
    may_ask = YesNo("a person may have to allow what it waits for")
    patience_s = Real("how long it may be silent; null: the usual limit", unit="s")
    has_output = YesNo("there is text, or a tool succeeded")
    n_text_chars = Integer("characters of the model's messages")
    counts = Counts
    n_long_input_tokens = Integer("of those read: by prompts of over 272,000 tokens", unit="tokens")
    n_long_cached_tokens = Integer("of those: read from the cache", unit="tokens")
    n_long_cache_write_tokens = Integer("of those: written to the cache", unit="tokens")
    n_long_output_tokens = Integer("of those written: in answer to such a prompt", unit="tokens")
    n_compactions = Integer("times that its conversation was compacted")
    is_unanswered = YesNo("its last record is not an answer")
    said = Said


TURNS = frame(CodexTurns)


class CodexTools(OfInput, key=("source", "thread_id", "call_id")):
    """One tool call of Codex."""

    thread_id = Text("the thread, an id in `entities`")
    call_id = Text("id of the call")
    entity_id = Text("its id in `entities`")
    turn_no = Integer("its turn")
    name = Text("tool, with its server")
    started_at = Moment("when it was called")
    ended_at = Moment("when its first result was written; null: it has none")
    duration_s = Real("how long it took, as recorded", unit="s")
    timeout_s = Real("time limit that the call asks for", unit="s")
    exit_code = Integer("exit code of the command")
    is_error = YesNo("it failed; null: it has no result")
    is_background = YesNo("its process ran on when the result came")
    is_escalated = YesNo("it asks to run outside of the sandbox")
    cause = Text("why it did not succeed, as in reason codes")
    error_message = Text("words of a failure (at most 500 characters)")
    patience_s = Real("how long it may be silent", unit="s")
    inputs = Inputs
    results = Results


TOOLS = frame(CodexTools)


class CodexLines(OfInput, key=("source", "file", "line_no")):
    """One record of a rollout of Codex, and what states read of it."""

    file = Text("path of the rollout, from the input")
    line_no = Integer("line of the file, from 1")
    at = Moment("when it was written; null: not recorded", read_from="timestamp|updated_at")
    ordinal = Integer("number of the record, where its thread counts records", read_from="ordinal")
    type = Text("type as stored", read_from="type")
    kind = Text("kind of event or item, as stored", read_from="payload.type")
    item = Text("kind of finished item, as stored", read_from="payload.item.type")
    what = Text("what it is: turn_start, call, result, tokens, …, other")
    own_id = Text("id of the thread, where the record begins one", read_from="payload.id|id")
    turn_id = Text("turn that it belongs to", read_from="payload.turn_id")
    call_id = Text(
        "call that it belongs to", read_from="payload.call_id|payload.event_id|payload.item.id"
    )
    response_id = Text("answer that its usage is of", read_from="payload.response_id")
    title = Text("name of the thread that it gives", read_from="thread_name")
    root_id = Text("the session at the root", read_from="payload.session_id")
    forked_from = Text(
        "thread that it was forked from",
        read_from="payload.forked_from_id|payload.history_base.thread_id",
    )
    parent_thread_id = Text("thread that started it", read_from="payload.parent_thread_id")
    child_thread_id = Text("subagent", read_from="payload.agent_thread_id|payload.new_thread_id")
    origin = Text("what began the thread, as stored", read_from="payload.source")
    thread_source = Text("who began the thread, as stored", read_from="payload.thread_source")
    agent_name = Text("name of the subagent", read_from="payload.agent_nickname")
    agent_role = Text("role of the subagent", read_from="payload.agent_role|payload.agent_type")
    base_id = Text(
        "thread that it points to instead of copying its history",
        read_from="payload.history_base.thread_id",
    )
    own_from = Integer(
        "ordinal of the first record that is not inherited",
        read_from="payload.subagent_history_start_ordinal|payload.forked_from_ordinal_exclusive",
    )
    program_version = Text("version of Codex", read_from="payload.cli_version")
    originator = Text("program that began the thread", read_from="payload.originator")
    provider = Text("model provider", read_from="payload.model_provider")
    directory = Text("working directory", read_from="payload.cwd")
    branch = Text("git branch", read_from="payload.git.branch")
    model = Text("model id", read_from="payload.model")
    approval_policy = Text("who is asked before commands run", read_from="payload.approval_policy")
    role = Text("role of a message, as stored", read_from="payload.role")
    phase = Text("commentary or final_answer", read_from="payload.phase")
    reason = Text("why a turn was aborted, as stored", read_from="payload.reason")
    name = Text("tool", read_from="payload.name|payload.invocation.tool|payload.item.tool")
    namespace = Text(
        "server of the tool",
        read_from="payload.namespace|payload.invocation.server|payload.item.server",
    )
    status = Text("how a call went, as stored", read_from="payload.status|payload.item.status")
    exit_code = Integer(
        "exit code of a command", read_from="payload.exit_code|payload.item.exit_code"
    )
    is_error = YesNo("a result that reports a failed call")
    is_cancelled = YesNo("a result that reports a stopped call, or a call that stops one")
    is_declined = YesNo("a result that reports a call that was not allowed")
    is_timed_out = YesNo("a result that reports a call that took too long")
    is_background = YesNo("a result that came while the process ran on")
    is_escalated = YesNo("a call that asks to run outside of the sandbox")
    timeout_s = Real("time limit that a call asks for", unit="s")
    inputs = Inputs
    results = Results
    duration_s = Real("how long a call or a turn took", unit="s")
    first_token_s = Real("until the model's first word", unit="s")
    n_text_chars = Integer("characters of text")
    error_type = Text(
        "tag of an error, as stored",
        read_from="payload.error.codex_error_info|payload.codex_error_info",
    )
    error_status = Integer("HTTP status of an error")
    error_message = Text(
        "words of an error (at most 500 characters)", read_from="payload.error.message"
    )
    n_input_tokens = Integer(
        "tokens of one answer: read, from the cache too",
        unit="tokens",
        read_from="payload.info.last_token_usage.input_tokens|payload.usage.input_tokens",
    )
    n_cached_tokens = Integer(
        "read from the cache",
        unit="tokens",
        read_from="payload.info.last_token_usage.cached_input_tokens"
        "|payload.usage.cached_input_tokens",
    )
    n_cache_write_tokens = Integer(
        "read and written to the cache",
        unit="tokens",
        read_from="payload.info.last_token_usage.cache_write_input_tokens"
        "|payload.usage.cache_write_input_tokens",
    )
    n_output_tokens = Integer(
        "written, reasoning too",
        unit="tokens",
        read_from="payload.info.last_token_usage.output_tokens|payload.usage.output_tokens",
    )
    n_reasoning_tokens = Integer(
        "written as reasoning",
        unit="tokens",
        read_from="payload.info.last_token_usage.reasoning_output_tokens"
        "|payload.usage.reasoning_output_tokens",
    )
    sum_input_tokens = Integer(
        "tokens of the whole thread so far, inherited ones too: read",
        unit="tokens",
        read_from="payload.info.total_token_usage.input_tokens",
    )
    sum_cached_tokens = Integer(
        "read from the cache",
        unit="tokens",
        read_from="payload.info.total_token_usage.cached_input_tokens",
    )
    sum_output_tokens = Integer(
        "written", unit="tokens", read_from="payload.info.total_token_usage.output_tokens"
    )
    sum_reasoning_tokens = Integer(
        "written as reasoning",
        unit="tokens",
        read_from="payload.info.total_token_usage.reasoning_output_tokens",
    )
    sum_total_tokens = Integer(
        "read and written", unit="tokens", read_from="payload.info.total_token_usage.total_tokens"
    )
    rate_limit_reached = Text(
        "limit that was reached, as stored", read_from="payload.rate_limits.rate_limit_reached_type"
    )
    rate_limit_used_percent = Real(
        "share of the first limit that is used up",
        unit="%",
        read_from="payload.rate_limits.primary.used_percent",
    )
    rate_limit_resets_at = Moment("when that limit resets")
    says = Text("gives_up or asks of an answer, corrects of a prompt, by first words: a hypothesis")
    n_rolled_back = Integer("turns that a person takes back", read_from="payload.num_turns")


LINES = frame(CodexLines)


FRAMES = (SESSIONS, TURNS, TOOLS, LINES)


def frames() -> tuple[Frame, ...]:
    """Every frame of Codex, in the order of the schema."""
    return FRAMES
