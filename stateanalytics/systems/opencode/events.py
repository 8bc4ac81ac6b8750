"""Events, messages and parts, from JSON records and from tables of every era."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stateanalytics.io.json_lines import Fields, Parser, conform, numbered, sound
from stateanalytics.systems.opencode.gathered import Broken
from stateanalytics.systems.opencode.log import (
    ERA_A_PREFIX,
    EVENTS,
    FAMILIES,
    ORIGINS,
    PAYLOADS,
    Log,
    family_of,
    kind_of,
)
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS
from stateanalytics.systems.opencode.payloads import ENVELOPE, FIELDS, MESSAGE, PART

# Messages of V2 hold their parts themselves.
_CONTENT = {
    "n_content_chars": "length(array_to_string(json_extract_string(sound, "
    "'$.content[*].text'), ''))",
    "n_content_tools": "len(list_filter(json_extract_string(sound, '$.content[*].state.status'), "
    "lambda s: s = 'completed'))",
}

_OUTPUT_ENDS = "right(json_extract_string(sound, '$.state.output'), 500)"
# V1 puts what stopped a command below its output, in words that changed twice.
_OF_CALLS = {
    "is_timed_out": f"regexp_matches({_OUTPUT_ENDS}, '(after exceeding timeout \\d+ ms[^<]*"
    "</\\w+_metadata>|\\(Command timed out after \\d+ ms\\))\\s*$')",
    "is_aborted": f"regexp_matches({_OUTPUT_ENDS}, '(User aborted the command\\s*"
    "</\\w+_metadata>|\\(Command was aborted\\))\\s*$')",
    "invalid_message": "CASE WHEN json_extract_string(sound, '$.tool') = 'invalid' "
    "THEN json_extract_string(sound, '$.state.input.error') END",
}


_KEYS = ("part_id", "message_id", "session_id", "role", "created_ms")
"""What a row says of itself goes before what its JSON says."""


def messages_of(
    rows: pl.DataFrame,
    parser: Parser,
    table: str = "message",
    *,
    era: str = "V1",
    has_content: bool = False,
) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """Typed messages from rows with ``text``, and which texts could not be read.

    Parameters
    ----------
    rows : polars.DataFrame
        ``text`` (JSON), and where they are known better ``message_id``, ``session_id``,
        ``role``, ``created_ms``; ``event_id`` where an event told it; ``source``.
    parser : Parser
    table : str
        Where they stand.
    era : str
        Who wrote them.
    has_content : bool
        Do they hold their parts themselves.

    Returns
    -------
    tuple of polars.DataFrame and tuple of Broken
        `MESSAGES`; rows without an id, a session or a role are left out.
    """
    read = _parsed(rows, parser, MESSAGE, sql=_CONTENT if has_content else None)
    named = read.drop_nulls(["message_id", "session_id", "role"]).with_columns(era=pl.lit(era))
    return conform(with_writing(named, "created_ms"), MESSAGES), broken_cells(
        read, table, "message_id"
    )


def parts_of(rows: pl.DataFrame, parser: Parser) -> tuple[pl.DataFrame, tuple[Broken, ...]]:
    """Typed parts from rows as `messages_of` takes them, with ``part_id`` where it is known."""
    read = _parsed(rows, parser, PART, lengths={"n_chars": "text"}, sql=_OF_CALLS)
    named = read.drop_nulls(["part_id", "message_id"]).with_columns(
        error_message=pl.coalesce("error_message", "invalid_message")
    )
    return conform(with_writing(named, "start_ms"), PARTS), broken_cells(read, "part", "part_id")


def with_writing(read: pl.DataFrame, near: str) -> pl.DataFrame:
    """Add ``written_ms`` by the ids of the events that told each row, where events did.

    Parameters
    ----------
    read : polars.DataFrame
        With ``event_id``, or without.
    near : str
        A column of milliseconds, near which the ids are dated.
    """
    if "event_id" not in read.columns:
        return read
    return read.with_columns(written_ms=moment_of_id("event_id", _middle(pl.col(near))))


def _middle(moments: pl.Expr) -> pl.Expr:
    """What the ids of a source are dated near: the middle of the moments that it tells."""
    return moments.median().over("source").floor().cast(pl.Int64).fill_null(USUAL_MS)


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


_VERSION = r"\.\d+$"
_LENGTHS = {"n_chars": "text"}
_CYCLE_MS = 2**36
USUAL_MS = 1_780_000_000_000
"""A moment near which ids are dated when nothing else is known: May 2026."""


@dataclass(frozen=True)
class Decoded:
    """What came out of some records.

    Attributes
    ----------
    log : Log
        The events among them.
    others : polars.DataFrame
        Those of the records that are JSON objects of something else.
    broken : polars.DataFrame
        Those that are no JSON object.
    """

    log: Log
    others: pl.DataFrame
    broken: pl.DataFrame = field(default_factory=pl.DataFrame)


def events_of_records(texts: pl.DataFrame, parser: Parser) -> Decoded:
    """The events among JSON records of a log, a stream or a capture.

    Parameters
    ----------
    texts : polars.DataFrame
        ``row`` (UInt32) and ``text``, one record each; ``source``, and ``origin``, one of
        `log.ORIGINS`.
    parser : Parser
    """
    inside = {name: ([f"data.{path}" for path in places], kind)
              for name, (places, kind) in FIELDS.items()}  # fmt: skip
    fields = {**ENVELOPE, **{name: (tuple(paths), kind) for name, (paths, kind) in inside.items()}}
    read = parser.read(texts, fields, lengths={"n_chars": "data.text"}, is_hashed=True)
    read = texts.drop("text").join(read, on="row", how="left", maintain_order="left")
    read = read.with_columns(session_id=pl.coalesce("session_id", "data_session_id"))
    is_event = (
        pl.col("is_object")
        & pl.col("raw_type").is_not_null()
        & pl.col("session_id").is_not_null()
        & ~pl.col("raw_type").str.starts_with("message.")
        # It closes an exported log and repeats the last number of the session.
        & (pl.col("raw_type") != "log.synced")
    ).fill_null(value=False)
    events = read.filter(is_event)
    rest = texts.join(read.filter(~is_event).select("row", "is_object"), on="row", how="inner")
    return Decoded(
        log_of(events),
        rest.filter("is_object").drop("is_object"),
        rest.filter(~pl.col("is_object")).drop("is_object"),
    )


def events_of_rows(
    rows: pl.DataFrame, parser: Parser, *, reference_ms: int | None = None
) -> tuple[Log, tuple[Broken, ...]]:
    """The events of an ``event`` table, and which of their payloads could not be read.

    Parameters
    ----------
    rows : polars.DataFrame
        ``source``, ``event_id``, ``session_id``, ``seq``, ``created_ms``, ``raw_type``, ``data``.
    parser : Parser
    reference_ms : int, optional
        A moment near which events without one are dated by their id.
    """
    logs, bad = [], []
    for part in numbered(rows).iter_slices(500_000):
        texts = part.select("row", text="data").filter(pl.col("text").is_not_null())
        read = parser.read(texts, FIELDS, lengths=_LENGTHS, is_hashed=True)
        known = part.with_columns(
            has_text=pl.col("data").is_not_null(),
            origin=pl.lit("database"),
        ).drop("data")
        joined = known.join(read, on="row", how="left", maintain_order="left")
        bad.append(
            joined.filter(~pl.col("is_object")).select(
                "source", "event_id", "has_text", "is_object"
            )
        )
        logs.append(log_of(joined, reference_ms=reference_ms, renumber=False))
    broken = broken_cells(pl.concat(bad), "event", "event_id") if bad else ()
    return _stacked(logs), broken


def _stacked(logs: Sequence[Log]) -> Log:
    """Logs whose rows are numbered through already."""
    if not logs:
        return Log()
    return Log(
        pl.concat([log.events for log in logs]),
        {family: pl.concat([log.payload(family) for log in logs]) for family in PAYLOADS},
    )


def log_of(read: pl.DataFrame, *, reference_ms: int | None = None, renumber: bool = True) -> Log:
    """Events with their payloads apart, from rows with all fields side by side."""
    if renumber:
        read = numbered(read.drop("row"))
    named = ("wire_timestamp_ms",)
    absent = [name for name in named if name not in read.columns]
    typed = read.with_columns(pl.lit(None, pl.Int64).alias(name) for name in absent).with_columns(
        type=pl.col("raw_type").str.replace(_VERSION, ""),
    )
    told = pl.coalesce(
        pl.when(pl.col("created_ms") > 0).then("created_ms"),
        pl.when(pl.col("timestamp_ms") > 0).then("timestamp_ms"),
        pl.when(pl.col("wire_timestamp_ms") > 0).then("wire_timestamp_ms"),
    )
    dated = typed.with_columns(
        kind=kind_of(pl.col("type")),
        at_ms=told,
        is_era_a=pl.col("type").str.starts_with(ERA_A_PREFIX),
        origin=pl.col("origin").replace_strict(
            dict(zip(ORIGINS, range(3), strict=True)), return_dtype=pl.UInt8
        ),
    )
    if dated["at_ms"].null_count():
        base = pl.lit(reference_ms) if reference_ms else _middle(pl.col("at_ms"))
        dated = dated.with_columns(pl.coalesce("at_ms", moment_of_id("event_id", base)))
    dated = dated.with_columns(family=family_of(pl.col("kind")), at_ms=sound("at_ms"))
    payloads = {
        family: dated.filter(pl.col("family") == place).select(
            pl.col(name).cast(dtype) for name, dtype in PAYLOADS[family].items()
        )
        for place, family in enumerate(FAMILIES)
    }
    return Log(dated.select(pl.col(name).cast(dtype) for name, dtype in EVENTS.items()), payloads)


def moment_of_id(column: str, reference_ms: pl.Expr) -> pl.Expr:
    """Epoch milliseconds that an id was made at, to some milliseconds.

    Twelve hexadecimal digits hold the milliseconds, modulo 2.18 years, and a counter.

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
