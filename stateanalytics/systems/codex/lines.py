"""The records of rollouts, one row per line.

Text of people and models is measured and classified, never kept; the words of errors are kept.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import MOMENT
from stateanalytics.io.json_lines import Fields, Parser
from stateanalytics.systems.codex.frames import FRAMES, SUMS, USAGE
from stateanalytics.systems.tool_calls import POLLS, ends_in, inputs_of, phrase_of, results_of
from stateanalytics.systems.transcripts import fields_read, whole_numbers, with_any_number

_WORDS = pl.DataFrame(table_rows(__package__, "known_words.csv"))
"""The types, kinds and items of all versions (``of``, ``word``), and their meaning."""
_MOST_ERROR_CHARS = 500
_MOST_SEARCHED_CHARS = 4000
_CONTENT = [dict.fromkeys(("type", "text"), "VARCHAR")]
_TEXTS = ("message", "last_agent_message", "review_output", "item.review_output", "item.text")
_COUNTS = (*USAGE, *SUMS, "sum_total_tokens")
FIELDS: Fields = {
    **with_any_number(fields_read(*FRAMES), _COUNTS),
    "text": (tuple(f"payload.{name}" for name in _TEXTS), "VARCHAR"),
    "content": (("payload.content", "payload.item.content"), _CONTENT),
    "asked": (("payload.arguments", "payload.input", "payload.action"), "VARCHAR"),
    "output": (("payload.output", "payload.result.Err"), "VARCHAR"),
    "is_success": (("payload.success",), "BOOLEAN"),
    "is_wrong": (("payload.result.Ok.isError", "payload.result.Ok.is_error"), "BOOLEAN"),
    "refused": (("payload.result.Err", "payload.item.error.message"), "VARCHAR"),
    "printed": (("payload.item.aggregated_output",), "VARCHAR"),
    "reply": (("payload.result.Ok.content", "payload.item.result.content"), "VARCHAR"),
    "run_secs": (("payload.duration.secs", "payload.item.duration.secs"), "DOUBLE"),
    "run_nanos": (("payload.duration.nanos", "payload.item.duration.nanos"), "DOUBLE"),
    "run_ms": (("payload.duration_ms", "payload.item.duration_ms"), "DOUBLE"),
    "first_ms": (("payload.time_to_first_token_ms",), "DOUBLE"),
    "resets_s": (("payload.rate_limits.primary.resets_at",), "DOUBLE"),
}
# Patterns in the texts of results, used where there is no event. Codex itself reads these.
_EXIT = r"(?m)^(?:Process exited with code|Exit code:)\s*(-?\d{1,9})"
_EXIT_IN_JSON = r'"exit_code"\s*:\s*(-?\d{1,9})'
_TOOK = r'(?m)(?:^Wall time:?|^Duration:|"duration_seconds"\s*:)\s*(\d{1,9}(?:\.\d+)?)'
_OUTPUT, _MOST_CHARS_ABOVE, _COMMAND = "\nOutput:\n", 400, r"(?s)^Command: .*?\nChunk ID: "
# Errors that the start of a shell prints in a sandbox do not belong to the command.
_START_UP = r"/\S+/shellenv\.sh: line \d+: \S+: Operation not permitted(?:\n|\\n)?"
_OUTPUT_IN_JSON = r'(?s)^\{"output":"(.*)","metadata":\{'
_OUTPUT_BEGINS = r"(?s)^(.*?\n)Output:"
# A script runs tools by itself. Its result begins with a text on how the script ended; the
# result of a command is only there if the script printed it.
_SCRIPT = (
    r'^(?:\[\{"type":"input_text","text":")?'
    r"Script (completed|failed|running|terminated)[^\n\\]{0,100}(?:\n|\\n)Wall time \d"
)
_NOTHING_BELOW = r"\nOutput:\s*$"
_TEXT_BEGINS = '{"type":"input_text","text":"'
_BETWEEN_TEXTS = f'"}},{_TEXT_BEGINS}'
_RESULT_IN_SCRIPT = r'\{\s*"(?:chunk_id|wall_time_seconds)"\s*:[^{}]{0,200}'
_THROWN = r"(?m)^Script error:\nExit code: (-?\d{1,9})\n(?:.*\n){1,3}?Output:\n?"
_HEAD_IN_SCRIPT = (
    rf"^\s*(?:{_RESULT_IN_SCRIPT}\}}|(?:Warning: truncated output.*\n)?Total output lines: \d+\s)"
)
_EXIT_IN_SCRIPT = rf'{_RESULT_IN_SCRIPT}"exit_code"\s*:\s*(%s)\b'
_OUTPUT_IN_SCRIPT = rf'{_RESULT_IN_SCRIPT}"output"\s*:\s*"'
# Without an exit code, a command that has a session runs on; some scripts print only that, as a
# text of its own, which the output of a command is not: that ends its line.
_RUNS_ON_IN_SCRIPT = rf'(?i){_RESULT_IN_SCRIPT}"session_id"\s*:\s*\d|^session_id\W{{1,3}}\d+$'
_UNESCAPED = {"\\n": "\n", "\\r": "\r", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
_QUOTED = r"""(?:"((?:[^"\\]|\\.)*)"|(?:String\.raw)?['`]((?:[^'`\\]|\\.)*)['`])"""
_COMMAND_IN_SCRIPT = rf'\bcmd"?\s*[:=]\s*{_QUOTED}'
_RUNS_ON = r"(?m)^Process running with session ID"
_STOPS = r"\bchars\b.{0,9}\\(?:u00|x)03"
"""Ctrl+C, as ``write_stdin`` gives it to a command."""
_ABORTED = r"(?i)^(?:Wall time: [\d.]+ seconds\n)?aborted (?:by user|before dispatch)"
_ABORTED_COMMAND = r"(?im)^(?:command )?aborted by user"
# A call that never ran has no event and no exit code, only a text such as these.
_FAILED_IN_WORDS = (
    r"^(?:unsupported (?:custom tool )?call: |apply_patch verification failed"
    r"|failed to parse function arguments|(?:exec_command|shell|write_stdin) failed\b"
    r"|unable to (?:locate|read|process|resolve) image\b|image path `|request_user_input is un"
    r"|(?:invalid agent id|agent with id|unknown agent_type|unknown MCP server|cannot create a new"
    r"|cannot update|Provide one of:|agent ids must be|execution error:) )"
)
# The same holds for a call that a person or a rule refused.
_DECLINED_IN_WORDS = (
    r"^(?:(?:exec command|patch|apply_patch) )?rejected by user|^This action was rejected\b"
    r"|user (?:rejected|cancelled) MCP tool call\s*$|rejected: (?:blocked by policy|approval)"
    r'|\bRejected\(\\?"|^MCP tool call cancelled'
    r"|^(?:MCP tool call requires approval, but )?approval policy is (?i:never)\b"
)
_ESCALATED = r'require_escalated|"with_escalated_permissions"\s*:\s*true'
_FRAGMENT = r"^\s*<[a-z_]+[ >]"
"""The beginning of context that is recorded in the place of prompts."""
_SPAWNED_BY = r'"parent_thread_id"\s*:\s*"([^"]{1,100})"'
SEARCH = "web_search_call"


def typed(rows: pl.DataFrame, _texts: pl.DataFrame, _parser: Parser) -> tuple[pl.DataFrame]:
    """The rows of `frames.LINES`, without ``source``.

    Parameters
    ----------
    rows : polars.DataFrame
        The `FIELDS` of records, with ``file`` and ``line_no``.
    """
    known = pl.col("at").dt.year().is_between(2001, 2099)
    words = pl.col("content").list.eval(pl.element().struct.field("text").drop_nulls())
    seconds = pl.col("resets_s")
    tag = pl.col("error_type")
    output = ends_in(pl.col("output"), _MOST_SEARCHED_CHARS)
    rows = _with_scripts(rows.with_columns(pl.col("output").str.replace(_START_UP, "")))
    classified = rows.with_columns(
        whole_numbers(_COUNTS),
        at=pl.when(known).then(pl.col("at").cast(MOMENT)),
        what=_what(words.list.first()),
        # Line breaks are escaped if the output is a list of texts.
        result=pl.when(output.str.starts_with("["))
        .then(output.str.extract(r'"text"\s*:\s*"(.*)').str.replace_all("\\n", "\n", literal=True))
        .otherwise(output),
    ).with_columns(
        # Patterns are searched only above the output: a command may print the same words.
        head=pl.coalesce(pl.col("result").str.extract(_OUTPUT_BEGINS), "result")
    )
    what = pl.col("what")
    ms, run_s = pl.col("run_ms") / 1000, pl.col("run_secs") + pl.col("run_nanos").fill_null(0) / 1e9
    in_json = pl.when(pl.col("result").str.starts_with("{")).then(
        pl.col("output").str.tail(_MOST_SEARCHED_CHARS).str.extract(_EXIT_IN_JSON)
    )
    exit_code = pl.coalesce(pl.col("head").str.extract(_EXIT), in_json)
    timeout_ms = pl.col("asked").str.extract(r'"timeout(?:_ms)?"\s*:\s*(\d{1,9})\b')
    if_call, if_result = pl.when(what == "call"), pl.when(what == "result")
    read = classified.with_columns(
        parent_thread_id=pl.coalesce("parent_thread_id", pl.col("origin").str.extract(_SPAWNED_BY)),
        error_type=tag.str.extract("([A-Za-z_]+)").str.to_lowercase(),
        error_status=tag.str.extract(r'"http_status_code"\s*:\s*(\d{3})\b').cast(pl.Int64),
        error_message=pl.when(what == "error")
        .then(pl.coalesce("text", "error_message"))
        .otherwise("error_message"),
        # A web search of the provider is one record, call and result, mostly without an id.
        call_id=pl.coalesce(
            "call_id", pl.when(pl.col("kind") == SEARCH).then(pl.format("{}:{}", "kind", "line_no"))
        ),
        exit_code=pl.coalesce("exit_code", if_result.then(exit_code)),
        duration_s=pl.coalesce(run_s, ms, if_result.then(pl.col("result").str.extract(_TOOK))),
        first_token_s=pl.col("first_ms") / 1000,
        timeout_s=if_call.then(timeout_ms.cast(pl.Float64) / 1000),
        is_escalated=if_call.then(pl.col("asked").str.contains(_ESCALATED)),
        is_background=if_result.then(
            pl.col("head").str.contains(_RUNS_ON) | pl.col("script").eq_missing("running")
        ),
        n_text_chars=pl.coalesce(
            pl.col("text").str.len_chars(), words.list.eval(pl.element().str.len_chars()).list.sum()
        ),
        rate_limit_resets_at=pl.when(seconds.is_between(1e9, 4e9)).then(
            (seconds * 1e6).cast(pl.Int64).cast(MOMENT)
        ),
    )
    # The text above an output has durations, which would make equal outputs differ; older
    # releases write an object with the duration next to the output.
    in_object = pl.col("output").str.extract(_OUTPUT_IN_JSON).str.replace_many({"\\n": "\n"})
    given = if_result.then(pl.coalesce(_below(pl.col("output")), in_object, "output"))
    asked, results = (read.select(texts).to_series() for texts in (_asked(), given))
    read = read.hstack([*inputs_of(asked), *results_of(results)])
    polls = asked.str.extract(rf"\btools\.({'|'.join(POLLS)})\(")
    read = read.with_columns(pl.coalesce("target", polls))
    first = pl.coalesce("text", words.list.first()).str.slice(0, _MOST_ERROR_CHARS)
    is_answer, is_prompt = (what.str.starts_with(f"{kind}_") for kind in ("answer", "prompt"))
    says = phrase_of(first, gives_up=is_answer, asks=is_answer, corrects=is_prompt)
    return (_with_results(read.with_columns(says=says)),)


def _with_scripts(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with how scripts ended, their output as plain text, and the exit codes in it."""
    output, is_list = pl.col("output"), pl.col("output").str.starts_with("[")
    # Results of other tools may look similar, but only scripts return lists or nothing.
    is_custom = pl.col("kind") == "custom_tool_call_output"
    is_known = is_list | is_custom | output.str.contains(_NOTHING_BELOW)
    rows = rows.with_columns(script=pl.when(is_known).then(output.str.extract(_SCRIPT)))
    is_printed = is_list & pl.col("script").is_not_null()
    listed = pl.when(is_printed).then(output).otherwise(pl.lit("[")).str.strip_suffix('"}]')
    split, text = listed.str.slice(len(_TEXT_BEGINS) + 1).str.split(_BETWEEN_TEXTS), pl.element()
    texts = split.list.eval(_unescaped(text))
    result = text.str.replace_all(_OUTPUT_IN_SCRIPT, "\n").str.strip_chars_end("]} \n")
    result = pl.when(text.str.contains(_OUTPUT_IN_SCRIPT)).then(
        _unescaped(result.str.strip_suffix('"'))
    )
    printed = texts.list.eval(pl.coalesce(result, text.str.replace(_THROWN, ""))).list.join("\n")
    # If a script ran several commands, a nonzero exit code takes precedence.
    exits = (_THROWN, *(_EXIT_IN_SCRIPT % code for code in (r"-?[1-9]\d*", "0")))
    code = pl.coalesce(*(texts.list.join("\n").str.extract(exited) for exited in exits))
    is_done = (pl.col("script") == "completed") & code.is_null()
    runs_on = is_done & texts.list.eval(text.str.contains(_RUNS_ON_IN_SCRIPT)).list.any()
    return rows.with_columns(
        output=pl.when(is_printed).then(printed).otherwise(output),
        exit_code=pl.coalesce(pl.col("exit_code").cast(pl.String), code),
        script=pl.when(runs_on).then(pl.lit("running")).otherwise("script"),
    )


def _asked() -> pl.Expr:
    """The input of a call; for a script, with its command in front, in quotes like others."""
    is_script = (pl.col("kind") == "custom_tool_call") & (pl.col("name") == "exec")
    script = pl.when(is_script).then("asked").otherwise(pl.lit(""))
    in_script = script.str.extract_groups(_COMMAND_IN_SCRIPT).struct
    others = in_script.field("2").str.replace_all('"', '\\"', literal=True)
    # If a script has several commands, it is not known which one a result belongs to.
    is_one = script.str.count_matches(_COMMAND_IN_SCRIPT) < 2
    command = pl.when(is_one).then(pl.coalesce(in_script.field("1"), others)).otherwise(pl.lit(""))
    asked = pl.coalesce(pl.format('"cmd":"{}"\n{}', command, "asked"), "asked")
    return pl.when(pl.col("what") == "call").then(asked)


def _below(text: pl.Expr) -> pl.Expr:
    """The output below the text of Codex; null if there is no such text."""
    parts = text.str.replace(_COMMAND, "").str.splitn(_OUTPUT, 2).struct
    is_note = parts.field("field_0").str.len_chars() <= _MOST_CHARS_ABOVE
    return pl.when(is_note).then(parts.field("field_1"))


def _unescaped(text: pl.Expr) -> pl.Expr:
    return text.str.replace_many(list(_UNESCAPED), list(_UNESCAPED.values()))


def _with_results(rows: pl.DataFrame) -> pl.DataFrame:
    """Add how calls ended; null where the record is no result."""
    # The message has no text from above the output, because other columns have its content.
    output, exited = pl.col("_output"), pl.format("exited with code {}", "exit_code")
    reply = pl.col("reply").str.extract(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)"')
    printed = pl.col("printed").str.strip_chars().replace("", None)
    message = pl.coalesce("error_message", "refused", _unescaped(reply), output.replace("", None),
                          pl.when(output == "").then(exited), "result", printed)  # fmt: skip
    # In two steps, because in one expression each use of a column would compute it again.
    typed = rows.with_columns(
        pl.col("exit_code").cast(pl.Int64, strict=False),
        pl.col("duration_s").cast(pl.Float64, strict=False),
        # A script may print the whole result of a command; the head is removed from the output.
        _output=_below(pl.col("result")).str.replace(_HEAD_IN_SCRIPT, "").str.strip_chars(),
    ).with_columns(_message=message)
    is_result = pl.col("what").is_in(["result", "tool_end"])
    is_event, status = pl.col("what") == "tool_end", pl.col("status").str.to_lowercase()
    has_status = status.is_not_null()  # older events have no word for a refusal
    signs = (
        pl.col("exit_code") != 0,
        is_event & ~pl.col("is_success"),
        is_event & pl.col("is_wrong"),
        is_event & pl.col("refused").is_not_null(),
        is_event & (status == "failed"),
        pl.col("exit_code").is_null() & pl.col("result").str.contains(_FAILED_IN_WORDS),
        pl.col("script") == "failed",
    )
    stops = (
        pl.col("head").str.contains(_ABORTED),
        pl.col("script") == "terminated",
        (pl.col("exit_code") == -1) & pl.col("result").str.contains(_ABORTED_COMMAND),
    )
    refusals = (
        is_event & (status == "declined"),
        # The reply of an MCP server may contain the same words, so it is excluded.
        pl.coalesce("exit_code", "reply").is_null()
        & pl.col("_message").str.contains(_DECLINED_IN_WORDS),
    )
    is_late = (pl.col("exit_code") == 124) & pl.col("result").str.contains("timed out")
    is_late |= pl.col("refused").str.contains("timed out awaiting tools/call")
    failed, is_cancelled, is_declined = (
        pl.any_horizontal(of).fill_null(value=False) for of in (signs, stops, refusals)
    )
    is_error = failed & ~is_cancelled & ~is_declined
    if_result = pl.when(is_result)
    return typed.with_columns(
        is_error=if_result.then(is_error),
        is_cancelled=if_result.then(is_cancelled).otherwise(pl.col("asked").str.contains(_STOPS)),
        is_declined=pl.when(is_result & (is_declined | ~is_event | has_status)).then(is_declined),
        is_timed_out=if_result.then(is_late.fill_null(value=False)),
        error_message=ends_in(
            pl.when(~is_result | is_error).then(
                if_result.then("_message").otherwise("error_message")
            )
        ),
    ).drop("_output", "_message")


def _what(first_text: pl.Expr) -> pl.Expr:
    """The meaning of a record: by its type, then its kind, then its item or role."""

    def by(of: str, column: str) -> pl.Expr:
        table = _WORDS.filter(of=of).drop_nulls("what")
        words = dict(table.filter(pl.col("what") != "").select("word", "what").iter_rows())
        return pl.col(column).replace_strict(words, default=None, return_dtype=pl.String)

    kind, type_ = pl.col("kind"), pl.col("type")
    role = pl.col("role")
    items = _WORDS.filter(of="item")["word"].implode()
    is_bare = kind.is_null() & (type_.is_null() | type_.is_in(items))
    message = (
        pl.when(role == "assistant")
        .then(pl.lit("answer_text"))
        .when((role == "user") & ~first_text.str.contains(_FRAGMENT).fill_null(value=False))
        .then(pl.lit("prompt_text"))
        # A command that a person ran; the model sees it in the next turn.
        .when((role == "user") & first_text.str.starts_with("<user_shell_command>"))
        .then(pl.lit("user_shell"))
        .otherwise(pl.lit("other"))
    )
    event, item = by("event", "kind"), by("item", "kind")
    return pl.coalesce(
        pl.when(pl.col("title").is_not_null() & type_.is_null()).then(pl.lit("name")),
        pl.when(is_bare).then(pl.lit("legacy")),
        pl.when(type_ == "event_msg").then(
            pl.when(event == "item").then(by("turn_item", "item")).otherwise(event)
        ),
        pl.when(type_ == "response_item").then(
            pl.when(item == "message").then(message).otherwise(item)
        ),
        by("record", "type"),
        pl.lit("other"),
    )
