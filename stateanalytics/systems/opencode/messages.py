"""Messages and their parts from JSON: tables of V1, exports, streams, legacy directories."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.opencode.gathered import Broken
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS
from stateanalytics.systems.opencode.payloads import Parser

_MESSAGE = {
    "in_message_id": (("id",), "VARCHAR"),
    "in_session_id": (("sessionID",), "VARCHAR"),
    "in_role": (("role", "type"), "VARCHAR"),
    "parent_id": (("parentID",), "VARCHAR"),
    "in_created_ms": (("time.created",), "BIGINT"),
    "completed_ms": (("time.completed",), "BIGINT"),
    "finish": (("finish",), "VARCHAR"),
    "error_type": (("error.name", "error.type"), "VARCHAR"),
    "error_message": (("error.data.message", "error.message"), "VARCHAR"),
    "error_status": (("error.data.statusCode", "error.status"), "BIGINT"),
    "agent": (("agent", "mode"), "VARCHAR"),
    "model": (("modelID", "model.id", "model.modelID"), "VARCHAR"),
    "provider": (("providerID", "model.providerID"), "VARCHAR"),
    "cost_usd": (("cost",), "DOUBLE"),
    "n_input_tokens": (("tokens.input",), "BIGINT"),
    "n_output_tokens": (("tokens.output",), "BIGINT"),
    "n_reasoning_tokens": (("tokens.reasoning",), "BIGINT"),
    "n_cache_read_tokens": (("tokens.cache.read",), "BIGINT"),
    "n_cache_write_tokens": (("tokens.cache.write",), "BIGINT"),
    "retry_at_ms": (("retry.at",), "BIGINT"),
    "retry_attempt": (("retry.attempt",), "BIGINT"),
    "retry_error_type": (("retry.error.type",), "VARCHAR"),
}
_PART = {
    "in_part_id": (("id",), "VARCHAR"),
    "in_message_id": (("messageID",), "VARCHAR"),
    "in_session_id": (("sessionID",), "VARCHAR"),
    "part_type": (("type",), "VARCHAR"),
    "tool": (("tool",), "VARCHAR"),
    "call_id": (("callID",), "VARCHAR"),
    "status": (("state.status",), "VARCHAR"),
    "start_ms": (("state.time.start", "time.start"), "BIGINT"),
    "end_ms": (("state.time.end", "time.end"), "BIGINT"),
    "exit_code": (("state.metadata.exit",), "BIGINT"),
    "error_message": (("state.error",), "VARCHAR"),
}
# Messages of V2 hold their parts themselves.
_CONTENT = {
    "n_content_chars": "length(array_to_string(json_extract_string(sound, "
    "'$.content[*].text'), ''))",
    "n_content_tools": "len(list_filter(json_extract_string(sound, '$.content[*].state.status'), "
    "lambda s: s = 'completed'))",
}


def messages_of(
    rows: pl.DataFrame, parser: Parser, *, era: str = "V1", has_content: bool = False
) -> pl.DataFrame:
    """Typed messages from rows with ``text``.

    Parameters
    ----------
    rows : polars.DataFrame
        ``text`` (JSON), and where they are known better ``message_id``, ``session_id``,
        ``role``, ``created_ms``.
    parser : Parser
    era : str
        Who wrote them.
    has_content : bool
        Do they hold their parts themselves.

    Returns
    -------
    polars.DataFrame
        `MESSAGES`; rows without an id, a session or a role are left out.
    """
    return _messages(_parsed_messages(rows, parser, has_content=has_content), era)


def stored_messages(
    rows: pl.DataFrame, parser: Parser, table: str, *, era: str = "V1", has_content: bool = False
) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """`messages_of` a table, and which of its cells could not be read."""
    read = _parsed_messages(rows, parser, has_content=has_content)
    return _messages(read, era), broken_cells(read, table, "message_id")


def parts_of(rows: pl.DataFrame, parser: Parser) -> pl.DataFrame:
    """Typed parts from rows with ``text``, and where known ``part_id``, ``message_id``."""
    return _parts(_parsed_parts(rows, parser))


def stored_parts(
    rows: pl.DataFrame, parser: Parser, table: str
) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """`parts_of` a table, and which of its cells could not be read."""
    read = _parsed_parts(rows, parser)
    return _parts(read), broken_cells(read, table, "part_id")


def broken_cells(read: pl.DataFrame, table: str, key: str) -> tuple[Broken, ...]:
    """What to say of cells that should hold a JSON object; nothing of empty ones.

    Parameters
    ----------
    read : polars.DataFrame
        What `Parser.read` gave, with ``has_text`` and the column ``key``.
    table, key : str
        Where they stand, and what names a row.
    """
    bad = read.filter(pl.col("has_text") & ~pl.col("is_object").fill_null(value=False))
    if bad.is_empty():
        return ()
    first = str(bad[key].drop_nulls().min())
    message = "a cell that is no JSON object"
    return (Broken("cell.not_json", "warning", message, bad.height, first, table),)


def _parsed_messages(rows: pl.DataFrame, parser: Parser, *, has_content: bool) -> pl.DataFrame:
    sql = _CONTENT if has_content else None
    names = ("message_id", "session_id", "role", "created_ms")
    return _filled(_parsed(rows, parser, _MESSAGE, sql=sql), names)


def _parsed_parts(rows: pl.DataFrame, parser: Parser) -> pl.DataFrame:
    read = _parsed(rows, parser, _PART, lengths={"n_chars": "text"})
    return _filled(read, ("part_id", "message_id", "session_id"))


def _parsed(rows: pl.DataFrame, parser: Parser, fields: Any, **more: Any) -> pl.DataFrame:
    numbered = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.UInt32))
    read = parser.read(numbered.select("row", "text"), fields, **more)
    known = numbered.with_columns(has_text=pl.col("text").is_not_null()).drop("text")
    return known.join(read, on="row", how="left", maintain_order="left")


def _messages(read: pl.DataFrame, era: str) -> pl.DataFrame:
    return _conform(read.with_columns(era=pl.lit(era)), MESSAGES).filter(
        pl.all_horizontal(pl.col("message_id", "session_id", "role").is_not_null())
    )


def _parts(read: pl.DataFrame) -> pl.DataFrame:
    return _conform(read, PARTS).filter(
        pl.all_horizontal(pl.col("part_id", "message_id").is_not_null())
    )


def _filled(frame: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """What the row says, else what its JSON says."""
    there = set(frame.columns)
    return frame.with_columns(
        pl.coalesce(*(column for column in (name, f"in_{name}") if column in there)).alias(name)
        for name in names
        if name in there or f"in_{name}" in there
    )


def _conform(frame: pl.DataFrame, shape: pl.Schema) -> pl.DataFrame:
    return frame.select(
        (pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype)).alias(
            name
        )
        for name, dtype in shape.items()
    )
