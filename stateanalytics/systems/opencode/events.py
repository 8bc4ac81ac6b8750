"""Typed events, messages and parts, from JSON records and from tables of every era."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from stateanalytics.io.json_lines import Fields, Parser, conform, numbered, sound
from stateanalytics.systems.call_texts import inputs_of, phrase_in, results_of
from stateanalytics.systems.opencode.gathered import Broken
from stateanalytics.systems.opencode.log import (
    ENVELOPE,
    ERA_A_PREFIX,
    EVENTS,
    FAMILIES,
    FIELDS,
    MESSAGE,
    ORIGINS,
    PART,
    PAYLOADS,
    Log,
    family_of,
    kind_of,
)
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS

# Messages of V2 contain their parts.
_CONTENT = {
    "n_content_chars": "length(array_to_string(json_extract_string(sound, "
    "'$.content[*].text'), ''))",
    "n_content_tools": "len(list_filter(json_extract_string(sound, '$.content[*].state.status'), "
    "lambda s: s = 'completed'))",
}

_MOST_SAID_CHARS = 500
_OUTPUT_ENDS = "right(json_extract_string(sound, '$.state.output'), 500)"
# V1 writes why a command stopped below its output, in words that changed twice.
_CALL_OUTPUT = {
    "is_timed_out": f"regexp_matches({_OUTPUT_ENDS}, '(after exceeding timeout \\d+ ms[^<]*"
    "</\\w+_metadata>|\\(Command timed out after \\d+ ms\\))\\s*$')",
    "is_aborted": f"regexp_matches({_OUTPUT_ENDS}, '(User aborted the command\\s*"
    "</\\w+_metadata>|\\(Command was aborted\\))\\s*$')",
    "invalid_message": "CASE WHEN json_extract_string(sound, '$.tool') = 'invalid' "
    "THEN json_extract_string(sound, '$.state.input.error') END",
    "asked": "CASE WHEN json_extract_string(sound, '$.type') = 'tool' "
    "THEN json_extract_string(sound, '$.state.input') END",
    "given": "coalesce(json_extract_string(sound, '$.state.output'), "
    "json_extract_string(sound, '$.state.error'))",
    "said": f"left(json_extract_string(sound, '$.text'), {_MOST_SAID_CHARS})",
}


def _of_event(place: str) -> dict[str, str]:
    """What is read of an event besides its fields, by where its data lie."""
    return {
        "asked": f"json_extract_string(sound, '{place}.input')",
        "given": f"json_extract_string(sound, '{place}.content')",
        "said": f"left(json_extract_string(sound, '{place}.text'), {_MOST_SAID_CHARS})",
    }


_KEYS = ("part_id", "message_id", "session_id", "role", "created_ms")
"""Fields of which the column of a table counts before that of its JSON."""
_VERSION = r"\.\d+$"
_LENGTHS = {"n_chars": "text"}
_CYCLE_MS = 2**36
_USUAL_MS = 1_780_000_000_000
"""A moment near which ids are dated when nothing else is known: May 2026."""
_BATCH_ROWS = 500_000


def messages_of(
    rows: pl.DataFrame,
    parser: Parser,
    table: str = "message",
    *,
    era: str = "V1",
    has_content: bool = False,
) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """Typed messages from rows with ``text``, and the texts that could not be read.

    Parameters
    ----------
    rows : polars.DataFrame
        ``source``, ``text`` (JSON), and where a table has them ``message_id``,
        ``session_id``, ``role``, ``created_ms``; ``event_id`` of messages from events.
    parser : Parser
    table : str
        The table that they are from.
    era : str
        The era of opencode that wrote them.
    has_content : bool
        Whether they contain their parts.

    Returns
    -------
    tuple of polars.DataFrame and tuple of Broken
        `MESSAGES`, without rows that have no id, session or role.
    """
    read = _parsed(rows, parser, MESSAGE, sql=_CONTENT if has_content else None)
    named = read.drop_nulls(["message_id", "session_id", "role"]).with_columns(era=pl.lit(era))
    return conform(with_writing(named, "created_ms"), MESSAGES), _broken_cells(
        read, table, "message_id"
    )


def parts_of(rows: pl.DataFrame, parser: Parser) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """Typed parts from rows like those of `messages_of`, ``part_id`` where a table has it."""
    read = _parsed(rows, parser, PART, lengths=_LENGTHS, sql=_CALL_OUTPUT)
    known = read.drop_nulls(["part_id", "message_id"])
    output = pl.col("given").cast(pl.String).str.slice(0, _MOST_SAID_CHARS)
    is_silent = output.str.strip_chars().is_in(("", "(no output)"))
    output_of_failed = pl.when(pl.col("exit_code") != 0).then(
        pl.when(is_silent).then(pl.format("exited with code {}", "exit_code")).otherwise(output)
    )
    named = _with_texts(known, pl.col("part_type") == "tool").with_columns(
        error_message=pl.coalesce("error_message", "invalid_message", output_of_failed)
    )
    return conform(with_writing(named, "start_ms"), PARTS), _broken_cells(read, "part", "part_id")


def _with_texts(rows: pl.DataFrame, is_call: pl.Expr) -> pl.DataFrame:
    """Add what calls were about and gave back, and ``says``: which phrases a text has."""
    texts = rows.select(
        *(pl.when(is_call).then(pl.col(name).cast(pl.String)) for name in ("asked", "given"))
    )
    said = pl.col("said").cast(pl.String)
    says = pl.coalesce(
        pl.when(phrase_in(said, kind)).then(pl.lit(kind)) for kind in ("gives_up", "corrects")
    )
    found = [*inputs_of(texts["asked"]), *results_of(texts["given"])]
    return rows.with_columns(says=says).hstack(found)


def with_writing(read: pl.DataFrame, near: str) -> pl.DataFrame:
    """Add ``written_ms``, dated by the id of the event that each row was read from.

    Parameters
    ----------
    read : polars.DataFrame
        Unchanged without ``event_id``.
    near : str
        A column of milliseconds, near which the ids are dated.
    """
    if "event_id" not in read.columns:
        return read
    return read.with_columns(written_ms=moment_of_id("event_id", _middle(pl.col(near))))


def _middle(moments: pl.Expr) -> pl.Expr:
    """The median moment of a source, near which its ids are dated."""
    return moments.median().over("source").floor().cast(pl.Int64).fill_null(_USUAL_MS)


def _broken_cells(read: pl.DataFrame, table: str, key: str) -> tuple[Broken, ...]:
    """The cells of each source that have text but no JSON object.

    Parameters
    ----------
    read : polars.DataFrame
        From `Parser.read`, with ``has_text`` and the column ``key``.
    table, key : str
        Their table, and the column of which an example is shown.
    """
    bad = read.filter(pl.col("has_text") & ~pl.col("is_object").fill_null(value=False))
    if bad.is_empty():
        return ()
    message = "a cell that is no JSON object"
    first = bad.group_by("source").agg(pl.len(), pl.col(key).drop_nulls().min()).sort("source")
    return tuple(
        Broken(source, "cell.not_json", "warning", message, n_rows, str(example), table)
        for source, n_rows, example in first.iter_rows()
    )


def _parsed(rows: pl.DataFrame, parser: Parser, fields: Fields, **more: Any) -> pl.DataFrame:
    placed = numbered(rows)
    read = parser.read(placed.select("row", "text"), fields, **more)
    known = placed.with_columns(has_text=pl.col("text").is_not_null()).drop("text")
    joined = known.join(read, on="row", how="left", maintain_order="left", suffix="_inside")
    twice = [name for name in _KEYS if f"{name}_inside" in joined.columns]
    return joined.with_columns(pl.coalesce(name, f"{name}_inside").alias(name) for name in twice)


@dataclass(frozen=True)
class Decoded:
    """Records by what they are.

    Attributes
    ----------
    log : Log
        The events.
    others : polars.DataFrame
        The other JSON objects.
    broken : polars.DataFrame
        The records that are no JSON object.
    """

    log: Log
    others: pl.DataFrame
    broken: pl.DataFrame


def events_of_records(texts: pl.DataFrame, parser: Parser) -> Decoded:
    """The events among JSON records of a log, a stream or a capture.

    Parameters
    ----------
    texts : polars.DataFrame
        ``row`` (UInt32) and ``text`` of each record, ``source``, and ``origin``, one of
        `log.ORIGINS`.
    parser : Parser
    """
    payload = {
        name: (tuple(f"data.{path}" for path in paths), kind)
        for name, (paths, kind) in FIELDS.items()
    }
    read = parser.read(
        texts,
        {**ENVELOPE, **payload},
        lengths={"n_chars": "data.text"},
        sql=_of_event("$.data"),
        is_hashed=True,
    )
    read = texts.drop("text").join(read, on="row", how="left", maintain_order="left")
    read = read.with_columns(session_id=pl.coalesce("session_id", "data_session_id"))
    is_event = (
        pl.col("is_object")
        & pl.col("raw_type").is_not_null()
        & pl.col("session_id").is_not_null()
        & ~pl.col("raw_type").str.starts_with("message.")
        # This type closes an exported log and repeats the last number of the session.
        & (pl.col("raw_type") != "log.synced")
    ).fill_null(value=False)
    events = read.filter(is_event)
    rest = texts.join(read.filter(~is_event).select("row", "is_object"), on="row", how="inner")
    return Decoded(
        _log_of(numbered(events.drop("row"))),
        rest.filter("is_object").drop("is_object"),
        rest.filter(~pl.col("is_object")).drop("is_object"),
    )


def events_of_rows(
    rows: pl.DataFrame, parser: Parser, *, reference_ms: int | None = None
) -> tuple[Log, tuple[Broken, ...]]:
    """The events of an ``event`` table, and the payloads that could not be read.

    Parameters
    ----------
    rows : polars.DataFrame
        ``source``, ``event_id``, ``session_id``, ``seq``, ``created_ms``, ``raw_type``, ``data``.
    parser : Parser
    reference_ms : int, optional
        A moment near which events without a moment are dated by their id.
    """
    logs, not_objects = [], []
    for part in numbered(rows).iter_slices(_BATCH_ROWS):
        texts = part.select("row", text="data").filter(pl.col("text").is_not_null())
        read = parser.read(texts, FIELDS, lengths=_LENGTHS, sql=_of_event("$"), is_hashed=True)
        known = part.with_columns(
            has_text=pl.col("data").is_not_null(),
            origin=pl.lit("database"),
        ).drop("data")
        joined = known.join(read, on="row", how="left", maintain_order="left")
        columns = ("source", "event_id", "has_text", "is_object")
        not_objects.append(joined.filter(~pl.col("is_object")).select(columns))
        logs.append(_log_of(joined, reference_ms=reference_ms))
    if not logs:
        return Log(), ()
    log = Log(
        pl.concat([log.events for log in logs]),
        {family: pl.concat([log.payload(family) for log in logs]) for family in PAYLOADS},
    )
    return log, _broken_cells(pl.concat(not_objects), "event", "event_id")


def _log_of(read: pl.DataFrame, *, reference_ms: int | None = None) -> Log:
    """Events with separate payloads, from rows that have all fields and ``row``."""
    typed = read.with_columns(type=pl.col("raw_type").str.replace(_VERSION, ""))
    moments = ("created_ms", "timestamp_ms", "wire_timestamp_ms")
    dated = typed.with_columns(
        kind=kind_of(pl.col("type")),
        at_ms=pl.coalesce(
            pl.when(pl.col(name) > 0).then(name) for name in moments if name in read.columns
        ),
        is_era_a=pl.col("type").str.starts_with(ERA_A_PREFIX),
        origin=pl.col("origin").replace_strict(
            dict(zip(ORIGINS, range(3), strict=True)), return_dtype=pl.UInt8
        ),
    )
    if dated["at_ms"].null_count():
        base = pl.lit(reference_ms) if reference_ms else _middle(pl.col("at_ms"))
        dated = dated.with_columns(pl.coalesce("at_ms", moment_of_id("event_id", base)))
    dated = dated.with_columns(family=family_of(pl.col("kind")), at_ms=sound("at_ms"))
    dated = _with_texts(dated, pl.col("kind").is_in(["tool.called", "tool.success"]))
    payloads = {
        family: dated.filter(pl.col("family") == place).select(
            pl.col(name).cast(dtype) for name, dtype in PAYLOADS[family].items()
        )
        for place, family in enumerate(FAMILIES)
    }
    return Log(dated.select(pl.col(name).cast(dtype) for name, dtype in EVENTS.items()), payloads)


def moment_of_id(column: str, reference_ms: pl.Expr) -> pl.Expr:
    """Epoch milliseconds at which an id was made, to some milliseconds.

    Its twelve hexadecimal digits are the milliseconds, modulo 2.18 years, and a counter.

    Examples
    --------
    >>> ids = pl.DataFrame({"id": ["evt_1fb7eb246001KzmfAwqFA0d05E", "x"]})
    >>> ids.select(moment_of_id("id", pl.lit(1795220000000)))["id"].to_list()
    [1795220746822, None]
    """
    digits = pl.col(column).str.extract(r"^(?:evt|msg|prt|per)_([0-9a-f]{12})", 1)
    short = digits.str.to_integer(base=16, strict=False) // 4096
    cycles = ((reference_ms - short) / _CYCLE_MS).round(0).cast(pl.Int64)
    return short + cycles * _CYCLE_MS
