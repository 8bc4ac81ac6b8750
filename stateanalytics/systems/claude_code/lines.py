"""The records of transcripts, one row per line, and one per call or result of a tool.

Text of people and models is measured and classified, never kept; the words of errors are kept.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.schema import MOMENT
from stateanalytics.io.json_lines import Fields, Parser, moment
from stateanalytics.systems.claude_code.frames import FRAMES
from stateanalytics.systems.situations import first_that_holds
from stateanalytics.systems.tool_calls import inputs_of, phrase_of, results_of
from stateanalytics.systems.transcripts import fields_read, whole_numbers, with_any_number

_MOST_ERROR_CHARS = 500
_BLOCK = {
    **dict.fromkeys(("type", "id", "name", "tool_use_id", "text", "input", "content"), "VARCHAR"),
    "is_error": "BOOLEAN",
}
_TIMEOUT_MS = r'"timeout"\s*:\s*(\d{1,12}(?:\.\d+)?)'
_USAGE = "message.usage"
_CREATED = {
    "n_created": ((f"{_USAGE}.cache_creation_input_tokens",), "BIGINT"),
    "n_created_5m": ((f"{_USAGE}.cache_creation.ephemeral_5m_input_tokens",), "BIGINT"),
    "n_created_1h": ((f"{_USAGE}.cache_creation.ephemeral_1h_input_tokens",), "BIGINT"),
}
_COUNTS = ("n_input_tokens", "n_cache_read_tokens", "n_output_tokens", *_CREATED)
MODEL_USAGE = {
    "inputTokens": "n_input_tokens",
    "cacheCreationInputTokens": "n_cache_creation_tokens",
    "cacheCreationEphemeral1hInputTokens": "n_cache_1h_tokens",
    "cacheReadInputTokens": "n_cache_read_tokens",
    "outputTokens": "n_output_tokens",
    "costUSD": "cost_usd",
}
"""The counts that a record of costs has per model, with our names."""
FIELDS: Fields = {
    **with_any_number({**fields_read(*FRAMES), **_CREATED}, _COUNTS),
    "queued": (("content",), "VARCHAR"),
    "retry_in_ms": (("retryInMs",), "DOUBLE"),
    "is_by_shutdown": (("interruptedByShutdown",), "BOOLEAN"),
    "interrupted_id": (("interruptedMessageId",), "VARCHAR"),
    "is_summary": (("isCompactSummary",), "BOOLEAN"),
    "is_meta": (("isMeta",), "BOOLEAN"),
    "origin_kind": (("origin.kind",), "VARCHAR"),
    "is_api_error": (("isApiErrorMessage",), "BOOLEAN"),
    "tool_ends_turn": (("toolEndsTurn", "mcpMeta._meta.claude/endTurn"), "BOOLEAN"),
    "denial_ends_turn": (("toolDenialEndsTurn",), "BOOLEAN"),
    "api_ms": (("totalAPIDuration",), "DOUBLE"),
    "tool_ms": (("totalToolDuration",), "DOUBLE"),
    "counted_since_ms": (("startTime",), "DOUBLE"),
    "blocks": (("message.content",), [_BLOCK]),
}
_COMMANDS = ("<command-name>", "<command-message>", "<bash-input>")
_BASH_OUTPUT = ("<bash-stdout>", "<bash-stderr>")
_INJECTED = (
    *(*_COMMANDS, "<local-command-", "<task-notification>"),
    *("Stop hook feedback:", "This session is being continued"),
)
_SUBTYPES = {
    "retry": ("system", ["api_error"]),
    "turn_end": ("system", ["turn_duration", "stop_hook_summary"]),
    "compaction": ("system", ["compact_boundary"]),
    "refusal": ("system", ["model_refusal_no_fallback"]),
    "max_turns": ("attachment", ["max_turns_reached"]),
    "hook_stop": ("attachment", ["hook_stopped_continuation"]),
}
# In the text of a queued task, which is JSON or tags.
_TASK_PATTERNS = {
    "result_agent_id": r'task[_-]id"?\s*[:>]\s*"?([\w-]+)',
    "result_tool_id": r'tool[_-]use[_-]id"?\s*[:>]\s*"?([\w-]+)',
    "result_status": r'status"?\s*[:>]\s*"?([\w-]+)',
}
COST_RECORD = "cost-state"
_COST_COLUMNS = (
    *("cost_usd", "api_s", "tool_s", "n_lines_added", "n_lines_removed"),
    *("counted_since", "is_cost_approximate"),
)
# A map has any keys; as a list of them it has the same shape for every record.
_BY_MODEL = (
    "map_entries(json_transform(json_extract(sound, '$.modelUsage'), "
    f"""'"MAP(VARCHAR, STRUCT({", ".join(f"{name} DOUBLE" for name in MODEL_USAGE)}))"'))::JSON"""
)
_FULL = "The model has reached its context window limit"
_INTERRUPTED = "[Request interrupted by user"
_FIRST_TEXT = (
    "list_transform(json_extract(sound, '$.message.content[*]'), lambda b: "
    "left(coalesce(b->>'$.content[0].text', b->>'$.content'), 500))"
)


def typed(
    rows: pl.DataFrame, texts: pl.DataFrame, parser: Parser, *, limit_s: float | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of `frames.LINES` and `frames.BLOCKS`, but for ``source``.

    Parameters
    ----------
    rows : polars.DataFrame
        The `FIELDS` of records, with ``row``, ``file`` and ``line_no``.
    texts : polars.DataFrame
        ``row`` and ``text``, for further fields.
    parser : Parser
    limit_s : float, optional
        The time limit of commands that ask for none.
    """
    heads = _heads(rows, texts, parser)
    lines = _lines(rows.join(heads, on="row", how="left", maintain_order="left"))
    cost_records = lines.filter(type=COST_RECORD)
    if not cost_records.is_empty():
        cost_texts = texts.join(cost_records, on="row", how="semi", maintain_order="left")
        by_model = parser.read(cost_texts, {"type": FIELDS["type"]}, sql={"model_usage": _BY_MODEL})
        by_model = by_model.select("row", pl.col("model_usage").cast(pl.String))
        lines = lines.join(by_model, on="row", how="left", maintain_order="left")
    limited = _blocks(lines, texts, parser).with_columns(pl.coalesce("timeout_s", pl.lit(limit_s)))
    return lines, limited


def _heads(rows: pl.DataFrame, texts: pl.DataFrame, parser: Parser) -> pl.DataFrame:
    """The beginning and length of each message's text; its content is a text or a list."""
    is_text = pl.col("blocks").is_null() & pl.col("type").is_in(["user", "assistant"])
    plain = texts.join(rows.filter(is_text), on="row", how="semi", maintain_order="left")
    from_texts = parser.read(plain, {"text": (("message.content",), "VARCHAR")})
    # The first text of a list classifies the record; all of them are the answer.
    block_texts = pl.col("blocks").list.eval(pl.element().struct.field("text").drop_nulls())
    from_lists = rows.filter(pl.col("blocks").list.len() > 0).select(
        "row",
        text=block_texts.list.first(),
        n_text_chars=block_texts.list.eval(pl.element().str.len_chars()).list.sum(),
    )
    messages = pl.concat(
        [from_texts.select("row", "text", n_text_chars=pl.col("text").str.len_chars()), from_lists],
        how="diagonal_relaxed",
    )
    return messages.select(
        "row",
        pl.col("n_text_chars").cast(pl.Int64),
        head=pl.col("text").str.strip_chars_start().str.slice(0, _MOST_ERROR_CHARS),
    )


def _lines(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `frames.LINES`, with ``row`` and ``blocks``."""
    known = pl.col("at").dt.year().is_between(2001, 2099)
    at = pl.when(known).then(pl.col("at").dt.replace_time_zone("UTC")).cast(MOMENT)
    is_error = pl.when(pl.col("what").is_in(["api_error", "retry"]))
    tag = pl.col("error_type").str.slice(0, _MOST_ERROR_CHARS)
    # The error of a retry is an object, and this its JSON text.
    status = tag.str.extract(r'"status"\s*:\s*(\d{3})\b').cast(pl.Int64)
    nested = pl.col("n_created_5m").fill_null(0) + pl.col("n_created_1h").fill_null(0)
    smallest = pl.min_horizontal(*_CREATED)
    is_failed = pl.col("blocks").list.eval(pl.element().struct.field("is_error")).list.any()
    queued = pl.when(pl.col("type") == "queue-operation").then("queued")
    named = rows.with_columns(
        pl.coalesce(name, queued.str.extract(pattern)).alias(name)
        for name, pattern in _TASK_PATTERNS.items()
    )
    return (
        named.with_columns(whole_numbers(_COUNTS), at=at, what=_what())
        .with_columns(
            # A number below zero is kept, for the finding about it.
            n_cache_creation_tokens=pl.when(smallest < 0)
            .then(smallest)
            .otherwise(pl.max_horizontal("n_created", nested)),
            n_cache_1h_tokens="n_created_1h",
            # A tool that fails does not end the turn.
            ends_turn=first_that_holds(
                {
                    "denial": pl.col("denial_ends_turn"),
                    "tool": pl.col("tool_ends_turn") & ~is_failed,
                }
            ),
            error_type=is_error.then(tag),
            # Both limits have the same tag, and older versions wrote no other.
            error_kind=pl.when(pl.col("head").str.contains(_FULL, literal=True))
            .then(pl.lit("context_window"))
            .otherwise("error_kind"),
            error_status=pl.coalesce("error_status", status),
            error_message=is_error.then(pl.coalesce("head", tag)),
            retry_at=pl.col("at") + pl.duration(milliseconds=pl.col("retry_in_ms").clip(0, 1e9)),
            api_s=pl.col("api_ms") / 1000,
            tool_s=pl.col("tool_ms") / 1000,
            counted_since=moment("counted_since_ms").dt.replace_time_zone("UTC"),
            says=phrase_of(
                pl.col("head"),
                gives_up=pl.col("what") == "assistant",
                asks=pl.col("what") == "assistant",
                corrects=pl.col("what") == "prompt",
            ),
        )
        .with_columns(
            pl.when(pl.col("type") == COST_RECORD).then(pl.col(_COST_COLUMNS)).name.keep()
        )
    )


def _what() -> pl.Expr:
    """The meaning of a record: the first rule that holds, in the order of the format page."""
    head = pl.col("head").fill_null("")
    kind = pl.col("type")
    tool_results = pl.element().struct.field("type") == "tool_result"
    is_own = pl.col("origin_kind").is_null() | (pl.col("origin_kind") == "human")
    is_meta = pl.col("is_meta").fill_null(value=False)
    begins_command, begins_output, begins_injected = (
        pl.any_horizontal(head.str.starts_with(word) for word in words)
        for words in (_COMMANDS, _BASH_OUTPUT, _INJECTED)
    )
    is_interrupt = pl.col("interrupted_id").is_not_null() | head.str.starts_with(_INTERRUPTED)
    user_rules = {
        "tool_result": pl.col("blocks").list.eval(tool_results).list.any(),
        "shutdown": is_interrupt & pl.col("is_by_shutdown"),
        "interrupt": is_interrupt,
        "summary": pl.col("is_summary"),
        # Only what follows shows whether a command is for the model: see `folding`.
        "command": is_own & ~is_meta & begins_command,
        "hidden": is_own & (begins_output | (is_meta & ~begins_injected)),
        "injected": is_meta | ~is_own | begins_injected,
        "prompt": pl.lit(value=True),
    }
    assistant_rules = {
        "api_error": pl.col("is_api_error"),
        "synthetic": pl.col("model") == "<synthetic>",
        "assistant": pl.lit(value=True),
    }
    rules = {
        **{name: (kind == "user") & rule for name, rule in user_rules.items()},
        **{name: (kind == "assistant") & rule for name, rule in assistant_rules.items()},
        **{
            what: (kind == type_) & pl.col("subtype").is_in(subtypes)
            for what, (type_, subtypes) in _SUBTYPES.items()
        },
        "progress": kind == "progress",
        "model_end": kind == "ended-by-model",
    }
    return pl.coalesce(first_that_holds(rules), pl.lit("other"))


def _blocks(lines: pl.DataFrame, texts: pl.DataFrame, parser: Parser) -> pl.DataFrame:
    """Calls and results of tools, and blocks of any other kind, known or not."""
    blocks = (
        lines.filter(pl.col("blocks").list.len() > 0)
        .select("row", "file", "line_no", "blocks")
        .with_columns(place=pl.int_ranges(pl.col("blocks").list.len()))
        .explode("blocks", "place")
        .unnest("blocks")
        .with_columns(
            tool_id=pl.coalesce("tool_use_id", "id"),
            timeout_s=pl.col("input").str.extract(_TIMEOUT_MS).cast(pl.Float64) / 1000,
        )
        .drop("text")
    )
    is_result = pl.col("type").str.ends_with("tool_result")
    given = blocks.select(pl.when(is_result).then("content")).to_series()
    blocks = blocks.drop("input", "content").hstack(
        [*inputs_of(blocks["input"]), *results_of(given)]
    )
    failed = blocks.filter("is_error")
    if failed.is_empty():
        return blocks
    failed_texts = texts.join(failed, on="row", how="semi", maintain_order="left")
    messages = (
        parser.read(failed_texts, {"type": FIELDS["type"]}, sql={"error_message": _FIRST_TEXT})
        .select("row", "error_message")
        .with_columns(place=pl.int_ranges(pl.col("error_message").list.len()))
        .explode("error_message", "place")
    )
    joined = blocks.join(messages, on=["row", "place"], how="left", maintain_order="left")
    return joined.with_columns(error_message=pl.when("is_error").then("error_message"))
