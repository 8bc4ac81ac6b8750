"""The frames that only Claude Code fills."""

from __future__ import annotations

from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Column, Frame

_SOURCE = Column("source", TEXT, "the input")
_THREAD = Column("thread_id", TEXT, "the session, or its subagent: an id in `entities`")
_TURN = Column("turn_no", INTEGER, "number of the turn in it, from 1; 0: before any prompt")
_MODEL = Column("model", TEXT, "model id; null: no model wrote it")
_STOP = Column("stop_reason", TEXT, "why the answer stopped, as stored; null: not told")
_LINE_NO = Column("line_no", INTEGER, "line of the file, from 1")
_FILE = Column("file", TEXT, "transcript, as its way from the input")
_ERROR = (
    Column("error_type", TEXT, "tag of an error, as stored"),
    Column("error_status", INTEGER, "HTTP status of an error"),
    Column("error_message", TEXT, "words of an error (at most 500 characters)"),
)
USAGE = (
    Column("n_input_tokens", INTEGER, "tokens read anew, neither from cache nor into it", "tokens"),
    Column("n_cache_creation_tokens", INTEGER, "tokens read and put into the cache", "tokens"),
    Column("n_cache_read_tokens", INTEGER, "tokens read from the cache", "tokens"),
    Column("n_output_tokens", INTEGER, "tokens written", "tokens"),
)
LINES = Frame(
    "claude_lines",
    "one record of a transcript of Claude Code, and what states read of it",
    ("source", "file", "line_no"),
    (
        _SOURCE,
        _FILE,
        _LINE_NO,
        Column("at", MOMENT, "when it was written; null: it does not say"),
        Column("type", TEXT, "type as stored"),
        Column("subtype", TEXT, "subtype, attachment or operation as stored"),
        Column("what", TEXT, "what it is: prompt, tool_result, assistant, retry, …, other"),
        Column("uuid", TEXT, "id of the record"),
        Column("parent_uuid", TEXT, "id of the record before it"),
        Column("session_id", TEXT, "session, as stored"),
        Column("agent_id", TEXT, "subagent, as stored"),
        Column("is_sidechain", YES_NO, "record of a subagent or of a side question"),
        Column("forked_from", TEXT, "session that it was copied from"),
        Column("program_version", TEXT, "version of Claude Code that wrote it"),
        Column("directory", TEXT, "working directory"),
        Column("title", TEXT, "title or name of the session that it gives"),
        Column("permission_mode", TEXT, "who is asked before tools run"),
        Column("message_id", TEXT, "the provider's id of the answer"),
        Column("request_id", TEXT, "the provider's id of the request"),
        _MODEL,
        _STOP,
        *USAGE,
        Column("n_text_chars", INTEGER, "characters of text"),
        *_ERROR,
        Column("retry_at", MOMENT, "when the retry that it tells of is due"),
        Column("result_agent_id", TEXT, "subagent whose result or progress it is"),
        Column("result_tool_id", TEXT, "tool call whose progress it is"),
        Column("denial", TEXT, "who denied a tool call, as stored"),
    ),
)
BLOCKS = Frame(
    "claude_blocks",
    "one block of a message of Claude Code: text, thought, call or result of a tool",
    ("source", "file", "line_no", "place"),
    (
        _SOURCE,
        _FILE,
        _LINE_NO,
        Column("place", INTEGER, "place in the message, from 0"),
        Column("type", TEXT, "type as stored"),
        Column("tool_id", TEXT, "id of the tool call"),
        Column("name", TEXT, "tool"),
        Column("timeout_s", REAL, "time limit that the call asks for", "s"),
        Column("is_error", YES_NO, "the result says that it failed, was denied or interrupted"),
        Column("error_message", TEXT, "words of that (at most 500 characters)"),
    ),
)
MESSAGES = Frame(
    "claude_messages",
    "one answer of a model in Claude Code, counted once however often its lines repeat it",
    ("source", "thread_id", "message_id", "request_id"),
    (
        _SOURCE,
        _THREAD,
        _TURN,
        Column("message_id", TEXT, "the provider's id; that of its line where it has none"),
        Column("request_id", TEXT, "the provider's id of the request"),
        Column("at", MOMENT, "when its first line was written"),
        _MODEL,
        _STOP,
        *USAGE,
        Column("n_lines", INTEGER, "lines that tell of it, repeats included"),
        Column("naive_output_tokens", INTEGER, "tokens written, were each line added", "tokens"),
    ),
)
TOOLS = Frame(
    "claude_tools",
    "one tool call of Claude Code",
    ("source", "thread_id", "tool_id"),
    (
        _SOURCE,
        _THREAD,
        _TURN,
        Column("tool_id", TEXT, "the provider's id of the call"),
        Column("entity_id", TEXT, "its id in `entities`"),
        Column("name", TEXT, "tool"),
        Column("started_at", MOMENT, "when it was called"),
        Column("ended_at", MOMENT, "when its result was written; null: none was"),
        Column("timeout_s", REAL, "its time limit, where it says one or Bash has one", "s"),
        Column("patience_s", REAL, "how long it may be silent while it is open", "s"),
        Column("is_error", YES_NO, "it failed, was denied or was interrupted; null: open"),
        Column("cause", TEXT, "of an error: exit_nonzero, denied, not_found, timeout, …"),
        Column("error_message", TEXT, "words of the error"),
        Column("child_thread_id", TEXT, "the subagent that it started"),
    ),
)
_COUNTS = (
    Column("n_prompts", INTEGER, "prompts of a person"),
    Column("n_answers", INTEGER, "answers of models, each once"),
    *USAGE,
    Column("n_tool_calls", INTEGER, "tool calls"),
    Column("n_tool_errors", INTEGER, "results that say that they failed"),
    Column("n_open_tools", INTEGER, "tool calls without a result"),
    Column("n_retries", INTEGER, "retries of requests"),
)
TURNS = Frame(
    "claude_turns",
    "one turn of Claude Code: from a prompt to the next",
    ("source", "thread_id", "turn_no"),
    (
        _SOURCE,
        _THREAD,
        _TURN,
        Column("entity_id", TEXT, "its id in `entities`"),
        Column("situation", TEXT, "what its records show: good, failed, open_tool, …"),
        Column("is_last", YES_NO, "the last turn: its session shows its state"),
        Column("started_at", MOMENT, "its first record"),
        Column("ended_at", MOMENT, "the record that ended it; null: none did"),
        Column("last_activity_at", MOMENT, "its last sign of life"),
        Column("last_sign_at", MOMENT, "the same, of the subagents that it waits for too"),
        _MODEL,
        _STOP,
        Column("permission_mode", TEXT, "who is asked before tools run"),
        *_ERROR,
        Column("cause", TEXT, "what its error means, as in reason codes"),
        Column("retry_at", MOMENT, "when the retry that it waits for is due"),
        Column("open_tool", TEXT, "tool that it waits for"),
        Column("open_since", MOMENT, "when the first tool that it waits for was called"),
        Column("open_timeout_s", REAL, "time limit of that call", "s"),
        Column("patience_s", REAL, "how long it may be silent; null: as usual", "s"),
        Column("is_recovered", YES_NO, "an answer came after a retry"),
        Column("has_output", YES_NO, "there is text, or a tool succeeded"),
        Column("n_text_chars", INTEGER, "characters of answer text"),
        *_COUNTS,
    ),
)
SESSIONS = Frame(
    "claude_sessions",
    "one session or subagent of Claude Code: what its transcript says beyond `entities`",
    ("source", "thread_id"),
    (
        _SOURCE,
        _THREAD,
        Column("session_id", TEXT, "the session that it belongs to"),
        Column("agent_id", TEXT, "the subagent; null: the session itself"),
        Column("parent_thread_id", TEXT, "who started the subagent, or was forked"),
        Column("parent_tool_id", TEXT, "the tool call that started it"),
        Column("file", TEXT, "its transcript; of several the first"),
        Column("n_files", INTEGER, "transcripts that tell of it"),
        Column("title", TEXT, "its title"),
        Column("directory", TEXT, "its working directory at the end"),
        Column("program_version", TEXT, "version that wrote its last record"),
        Column("first_at", MOMENT, "its first record of its own"),
        Column("last_activity_at", MOMENT, "its last sign of life"),
        Column("n_turns", INTEGER, "its turns"),
        Column("n_copied", INTEGER, "records copied from another session: not counted"),
        Column("n_repeated", INTEGER, "records that are there twice: not counted"),
        Column("n_compactions", INTEGER, "times that the conversation was summarised"),
        *_COUNTS,
        Column("naive_output_tokens", INTEGER, "tokens written, were each line added", "tokens"),
    ),
)


def frames() -> tuple[Frame, ...]:
    """Every frame of this system."""
    return (SESSIONS, TURNS, MESSAGES, TOOLS, LINES, BLOCKS)
