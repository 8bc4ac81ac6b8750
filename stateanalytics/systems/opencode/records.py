"""Typed events, messages and parts, from JSON records of files and of tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.io import files as io_files
from stateanalytics.io import json_lines
from stateanalytics.io.files import legible, open_regular, read_octets, without_halves
from stateanalytics.io.findings import counted, noted, noted_rows
from stateanalytics.io.json_lines import Fields, Parser, conform, numbered
from stateanalytics.systems.opencode import NAME
from stateanalytics.systems.opencode.gathered import (
    ENVELOPE,
    ERA_A_PREFIX,
    EVENTS,
    FIELDS,
    FINISH,
    MESSAGE,
    MESSAGES,
    NO_PAYLOADS,
    ORIGINS,
    PART,
    PARTS,
    PAYLOADS,
    RUN_ERROR,
    SESSION,
    SESSION_KEY,
    SESSION_ROWS,
    WIRE,
    Gathered,
    Log,
    family_of,
    kind_of,
    pooled_logs,
    session_rows_of,
    together,
    without,
)
from stateanalytics.systems.tool_calls import ends_in, inputs_of, phrase_of, results_of

# Messages of V2 contain their parts.
_CONTENT = {
    "n_content_chars": "length(array_to_string(json_extract_string(sound, "
    "'$.content[*].text'), ''))",
    "n_content_tools": "len(list_filter(json_extract_string(sound, '$.content[*].state.status'), "
    "lambda s: s = 'completed'))",
}
_MOST_SAID_CHARS = 500
RAN_BY_PERSON = "The following tool was executed by the user"
"""The prompt that V1 writes before a command of a person. No model is asked about it."""
_GOES_ON = (
    r"^Summarize the task tool output above and continue with your task\.$"
    r"|(?:^|\n)Continue if you have next steps(?:, or stop and ask for clarification[^.]*\.)?$"
)
"""Prompts of V1 itself, after the task of a command and after a summary."""
_OUTPUT_ENDS = "right(json_extract_string(sound, '$.state.output'), 500)"
# V1 writes below the output why a command stopped; the words have changed twice.
_CALL_OUTPUT = {
    "is_timed_out": f"regexp_matches({_OUTPUT_ENDS}, '(after exceeding timeout \\d+ ms[^<]*"
    "</\\w+_metadata>|\\(Command timed out after \\d+ ms\\))\\s*$')",
    "is_aborted": f"regexp_matches({_OUTPUT_ENDS}, '(User aborted the command\\s*"
    "</(?:\\w+_)?metadata>|\\(Command was aborted\\))\\s*$')",
    "invalid_message": "CASE WHEN json_extract_string(sound, '$.tool') = 'invalid' "
    "THEN json_extract_string(sound, '$.state.input.error') END",
    "asked": "CASE WHEN json_extract_string(sound, '$.type') = 'tool' "
    "THEN json_extract_string(sound, '$.state.input') END",
    "given": "coalesce(json_extract_string(sound, '$.state.output'), "
    "json_extract_string(sound, '$.state.error'))",
    "said": f"left(json_extract_string(sound, '$.text'), {_MOST_SAID_CHARS})",
}

_KEYS = ("part_id", "message_id", "session_id", "role", "created_ms")
"""Fields whose table column takes precedence over the JSON."""
_VERSION = r"\.\d+$"
_LENGTHS = {"n_chars": "text"}
_TEXTS = {"text": ("said",), "tool": ("asked", "given")}
"""The texts of each family of events that are classified but not kept."""
_CYCLE_MS = 2**36
_USUAL_MS = 1_780_000_000_000
"""The time near which ids are dated if nothing else is known: May 2026."""
_BATCH_ROWS = 500_000
_LINE = ("source", "line_no", "is_finished")
_FIRST_LINE = pl.format("line {}", pl.col("line_no").min())


def messages_of(
    rows: pl.DataFrame,
    parser: Parser,
    table: str = "message",
    *,
    era: str = "V1",
    has_content: bool = False,
) -> tuple[pl.DataFrame, pl.DataFrame]:
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
    tuple of polars.DataFrame
        `MESSAGES`, without rows that have no id, session or role, and `schema.FINDINGS`.
    """
    read = _parsed(rows, parser, MESSAGE, sql=_CONTENT if has_content else None)
    named = read.drop_nulls(["message_id", "session_id", "role"]).with_columns(era=pl.lit(era))
    return conform(with_writing(named, "created_ms"), MESSAGES), _broken_cells(
        read, table, "message_id"
    )


def parts_of(rows: pl.DataFrame, parser: Parser) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Typed parts from rows like those of `messages_of`, ``part_id`` where a table has it."""
    read = _parsed(rows, parser, PART, lengths=_LENGTHS, sql=_CALL_OUTPUT)
    known = read.drop_nulls(["part_id", "message_id"])
    output = ends_in(pl.when(pl.col("exit_code") != 0).then(pl.col("given").cast(pl.String)))
    is_silent = output.str.strip_chars().is_in(("", "(no output)"))
    exited = pl.format("exited with code {}", "exit_code")
    output_of_failed = pl.when(is_silent).then(exited).otherwise(output)
    named = _with_texts(known, pl.col("part_type") == "tool").with_columns(
        error_message=pl.coalesce("error_message", "invalid_message", output_of_failed)
    )
    return conform(with_writing(named, "start_ms"), PARTS), _broken_cells(read, "part", "part_id")


def _with_texts(rows: pl.DataFrame, is_call: pl.Expr) -> pl.DataFrame:
    """Add what calls were about and gave back, and ``says``: which phrases a text has."""
    if "said" in rows.columns:
        # Who said it is in its message.
        every = pl.lit(value=True)
        said = pl.col("said").cast(pl.String).str.slice(0, _MOST_SAID_CHARS)
        phrase = phrase_of(said, gives_up=every, corrects=every, asks=every)
        ran = pl.when(said == RAN_BY_PERSON).then(pl.lit("ran"))
        goes_on = pl.when(said.str.contains(_GOES_ON)).then(pl.lit("goes_on"))
        rows = rows.with_columns(says=pl.coalesce(ran, goes_on, phrase))
    if "asked" in rows.columns:
        asked, given = (
            rows.select(pl.when(is_call).then(pl.col(name).cast(pl.String))).to_series()
            for name in ("asked", "given")
        )
        rows = rows.hstack([*inputs_of(asked), *results_of(given)])
    return rows


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


def _broken_cells(read: pl.DataFrame, table: str, key: str) -> pl.DataFrame:
    """The cells of each source that have text but no JSON object.

    Parameters
    ----------
    read : polars.DataFrame
        From `Parser.read`, with ``has_text`` and the column ``key``.
    table, key : str
        Their table, and the column of which an example is shown.
    """
    bad = read.filter(pl.col("has_text") & ~pl.col("is_object").fill_null(value=False))
    return _broken("cell.not_json", bad, pl.col(key).min(), table=table)


def _broken(
    code: str, rows: pl.DataFrame, example: pl.Expr = _FIRST_LINE, **more: Any
) -> pl.DataFrame:
    """One loss per source for some rows, as `schema.FINDINGS`."""
    if rows.is_empty():
        return schema.FINDINGS.empty()
    by_source = rows.group_by("source").agg(n_rows=pl.len(), example=example).sort("source")
    own = {"package": __package__, "example": pl.col("example"), **more}
    return noted_rows(by_source, NAME, code, **own)


def with_fields(rows: pl.DataFrame, parser: Parser, fields: Fields, **more: Any) -> pl.DataFrame:
    """Rows with the fields of their JSON ``text`` in its place, by their number ``row``."""
    read = parser.read(rows.select("row", "text"), fields, **more)
    return left_joined(rows.drop("text"), read, on=["row"])


def _parsed(rows: pl.DataFrame, parser: Parser, fields: Fields, **more: Any) -> pl.DataFrame:
    placed = numbered(rows)
    read = parser.read(placed.select("row", "text"), fields, **more)
    known = placed.with_columns(has_text=pl.col("text").is_not_null()).drop("text")
    joined = known.join(read, on="row", how="left", maintain_order="left", suffix="_inside")
    twice = [name for name in _KEYS if f"{name}_inside" in joined.columns]
    return joined.with_columns(pl.coalesce(name, f"{name}_inside").alias(name) for name in twice)


def events_of_records(
    texts: pl.DataFrame, parser: Parser
) -> tuple[Log, pl.DataFrame, pl.DataFrame]:
    """The events among JSON records of a log, a stream or a capture.

    Parameters
    ----------
    texts : polars.DataFrame
        ``row`` (UInt32) and ``text`` of each record, ``source``, and ``origin``, one of
        `gathered.ORIGINS`.
    parser : Parser

    Returns
    -------
    Log
    others, broken : polars.DataFrame
        Of ``texts`` the other JSON objects, and what is no JSON object.
    """
    read = texts.hstack(parser.read(texts, ENVELOPE, is_hashed=True).drop("row"))
    is_event = (
        pl.col("is_object")
        & pl.col("raw_type").is_not_null()
        & pl.col("session_id").is_not_null()
        & ~pl.col("raw_type").str.starts_with("message.")
        # This type closes an exported log and repeats the last number of the session.
        & (pl.col("raw_type") != "log.synced")
    ).fill_null(value=False)
    events, rest = read.filter(is_event).drop("row"), read.filter(~is_event)
    others, broken = (rest.filter(rule) for rule in (pl.col("is_object"), ~pl.col("is_object")))
    log = _log_of(numbered(events), parser, "data.")
    return log, others.select(texts.columns), broken.select(texts.columns)


def events_of_rows(
    rows: pl.DataFrame, parser: Parser, *, reference_ms: int | None = None
) -> tuple[Log, pl.DataFrame]:
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
    # Each batch counts from 0, as `pooled_logs` needs.
    for part in map(numbered, rows.rename({"data": "text"}).iter_slices(_BATCH_ROWS)):
        read = parser.read(part, {"timestamp_ms": FIELDS["timestamp_ms"]}, is_hashed=True)
        has_text = part["text"].is_not_null()
        joined = part.hstack(read.drop("row")).with_columns(
            has_text=has_text, origin=pl.lit("database"), digest=pl.when(has_text).then("digest")
        )
        columns = ("source", "event_id", "has_text", "is_object")
        not_objects.append(joined.filter(~pl.col("is_object")).select(columns))
        logs.append(_log_of(joined, parser, reference_ms=reference_ms))
    if not logs:
        return Log(), schema.FINDINGS.empty()
    return pooled_logs(logs), _broken_cells(pl.concat(not_objects), "event", "event_id")


def _log_of(
    read: pl.DataFrame, parser: Parser, place: str = "", *, reference_ms: int | None = None
) -> Log:
    """Events with separate payloads, from rows with ``row``, ``text`` and the envelope.

    The fields of a payload are in the text at a ``place``; few types have any of them.
    """
    types = (
        read.select("raw_type")
        .unique()
        .with_columns(type=pl.col("raw_type").str.replace(_VERSION, ""))
    )
    types = types.with_columns(
        kind=kind_of(pl.col("type")), is_era_a=pl.col("type").str.starts_with(ERA_A_PREFIX)
    ).with_columns(family=family_of(pl.col("kind")))
    moments = ("created_ms", "timestamp_ms", "wire_timestamp_ms")
    dated = left_joined(read, types, on="raw_type").with_columns(
        at_ms=pl.coalesce(
            pl.when(pl.col(name) > 0).then(name) for name in moments if name in read.columns
        ),
        origin=pl.col("origin").replace_strict(
            dict(zip(ORIGINS, range(3), strict=True)), return_dtype=pl.UInt8
        ),
    )
    if dated["at_ms"].null_count():
        base = pl.lit(reference_ms) if reference_ms else _middle(pl.col("at_ms"))
        dated = dated.with_columns(pl.coalesce("at_ms", moment_of_id("event_id", base)))
    events = dated.with_columns(at_ms=json_lines.sound("at_ms"))
    payloads = {}
    for number, (family, shape) in enumerate(PAYLOADS.items()):
        rows = dated.filter(pl.col("family") == number)
        if family == "execution":  # most begin or succeed, and have none of its fields
            rows = rows.filter(pl.col("text").str.contains_any(['"error"', '"reason"']))
        if rows.is_empty():
            payloads[family] = NO_PAYLOADS[family]
            continue
        names = [name for name in (*shape, *_TEXTS.get(family, ())) if name in FIELDS]
        fields = {
            name: (tuple(f"{place}{path}" for path in FIELDS[name][0]), FIELDS[name][1])
            for name in names
        }
        lengths = {"n_chars": f"{place}text"} if family == "text" else None
        payload = parser.read(rows, fields, lengths=lengths).with_columns(rows["kind"])
        is_call = pl.col("kind").is_in(["tool.called", "tool.success"])
        payloads[family] = conform(_with_texts(payload, is_call), shape)
    return Log(conform(events, EVENTS), payloads)


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


_RUN_TYPES = ("step_start", "text", "reasoning", "tool_use", "step_finish", "error")
_UNWRAPPED = (
    "CAST(coalesce(json_extract(sound, '$.payload.syncEvent'), "
    "json_extract(sound, '$.payload'), json_extract(sound, '$.syncEvent'), sound) AS VARCHAR)"
)


def read_record_files(files: Iterable[tuple[str, Path]], parser: Parser) -> Gathered:
    """The contents of files of records; many small files are parsed together.

    Parameters
    ----------
    files : iterable of (source, path)
        Logs, streams, captures, outputs of runs, exports.
    parser : Parser
    """
    exports: list[Gathered] = []
    unreadable: dict[str, pl.DataFrame] = {}

    def chunks() -> Iterator[json_lines.Chunk]:
        for source, path in files:
            try:
                document = _export(path)
                if document is not None:
                    exports.append(_of_export(document, source, parser))
                else:
                    origin = "stream" if path.suffix == ".sse" or "sse" in path.name else "log"
                    yield from json_lines.chunks_of(path, source, origin)
            except OSError as error:
                unreadable[source] = _unreadable_files(source, [(path, error)])

    pieces = [
        _of_records(json_lines.records_of(piece), parser)
        for piece in json_lines.in_pieces(chunks(), 8 * json_lines.CHUNK_BYTES)
    ]
    gathered = together([*pieces, *exports])
    # A file that cannot be read to its end is excluded as a whole.
    kept = without(gathered, unreadable) if unreadable else gathered
    return replace(kept, broken=pl.concat([kept.broken, *unreadable.values()]))


def _of_records(records: pl.DataFrame, parser: Parser) -> Gathered:
    """The contents of some records, and those that could not be read."""
    is_text = pl.col("text").is_not_null()
    too_long = records.filter("is_too_long")
    not_text = records.filter(~is_text, ~pl.col("is_too_long"))
    texts = numbered(records.filter(is_text).drop("is_too_long"))
    halved = texts.filter(json_lines.MAY_BE_HALVED)
    if halved.height:
        texts = texts.with_columns(pl.col("text").map_elements(_whole, return_dtype=pl.String))
    log, others, bad = events_of_records(texts, parser)
    logs = [log]
    wire = Gathered()
    if others.height:
        unwrapped = parser.read(others, {"raw_type": WIRE["raw_type"]}, sql={"inner": _UNWRAPPED})
        inner = others.drop("text").join(
            unwrapped.select("row", text="inner"), on="row", maintain_order="left"
        )
        log, unwrapped, _ = events_of_records(inner, parser)
        logs.append(log)
        wire = _of_stream(unwrapped, parser)
    cut_off = pl.concat([bad.select(_LINE), not_text.select(_LINE)])
    finished = pl.col("is_finished")
    broken = [
        _broken("record.not_json", bad.filter(finished)),
        _broken("record.not_utf8", not_text.filter(finished)),
        _broken("record.too_long", too_long, message=json_lines.TOO_LONG),
        *(
            _half_surrogates(source, lines["text"], f"line {lines['line_no'].min()!s}")
            for (source,), lines in halved.group_by("source", maintain_order=True)
        ),
        _broken("line.unfinished", cut_off.filter(~finished), message=json_lines.UNFINISHED),
    ]
    return replace(wire, log=pooled_logs(logs), broken=pl.concat([wire.broken, *broken]))


def _half_surrogates(source: str, texts: Iterable[str], example: str) -> pl.DataFrame:
    """The loss of escapes that are no character; DuckDB would refuse the whole text."""
    n_rows = sum(without_halves(text)[1] > 0 for text in texts)
    return _lost(source, "record.half_surrogate", n_rows=n_rows, example=example)


def _lost(source: str, code: str, **more: Any) -> pl.DataFrame:
    return noted(source, NAME, code, package=__package__, **more)


def _whole(text: str) -> str:
    return without_halves(text)[0]


def _of_stream(texts: pl.DataFrame, parser: Parser) -> Gathered:
    """Messages, parts and sessions of V1's streams, and of runs."""
    read = with_fields(texts, parser, WIRE).with_columns(
        pl.col("raw_type").str.replace(_VERSION, "")
    )
    kind = pl.col("raw_type")
    infos = read.filter(pl.col("info").is_not_null()).sort("event_id", maintain_order=True)
    parts = read.filter(kind == "message.part.updated", pl.col("part").is_not_null())
    is_run = kind.is_in(list(_RUN_TYPES))
    runs = read.filter(is_run, pl.col("session_id").is_not_null())
    is_known = kind.str.contains(".", literal=True) | is_run
    strange = read.filter(~is_known.fill_null(value=False))
    messages = infos.filter(kind == "message.updated").select(
        "source", "event_id", text=pl.col("info").cast(pl.String)
    )
    sessions = infos.filter(kind.str.starts_with("session.")).select(
        "row", "source", "event_id", text=pl.col("info").cast(pl.String)
    )
    # The newest row of a session comes first.
    rows = with_fields(sessions.reverse(), parser, SESSION)
    stream = Gathered(
        messages=messages_of(messages, parser)[0],
        parts=parts_of(
            parts.select("source", "event_id", text=pl.col("part").cast(pl.String)), parser
        )[0],
        session_rows=conform(with_writing(rows, "created_ms"), SESSION_ROWS).filter(
            pl.col("session_id").is_not_null()
        ),
        broken=_broken("record.not_understood", strange),
    )
    return together([stream, _of_runs(runs, parser)])


def _of_runs(runs: pl.DataFrame, parser: Parser) -> Gathered:
    """``run --format json``: parts by message, and errors, which end their session's last one."""
    if runs.is_empty():
        return Gathered()
    with_parts = runs.filter(pl.col("part").is_not_null()).with_columns(
        text=pl.col("part").cast(pl.String)
    )
    placed = with_fields(with_parts, parser, FINISH).drop_nulls("message_id")
    finished = pl.col("raw_type") == "step_finish"
    answers = placed.group_by(*SESSION_KEY, "message_id", maintain_order=True).agg(
        created_ms=pl.col("timestamp_ms").min(),
        completed_ms=pl.col("timestamp_ms").filter(finished).max(),
        **{
            name: pl.col(name).filter(finished).drop_nulls().last()
            for name in ("finish", "cost_usd", "n_input_tokens", "n_output_tokens")
        },
    )
    failures = runs.filter(pl.col("error").is_not_null()).select(
        "row", *SESSION_KEY, "timestamp_ms", text=pl.col("error").cast(pl.String)
    )
    errors = (
        with_fields(failures, parser, RUN_ERROR)
        .sort(*SESSION_KEY, "timestamp_ms")
        .unique(SESSION_KEY, keep="last", maintain_order=True)
    )
    last = answers.sort(*SESSION_KEY, "created_ms", "message_id").unique(
        SESSION_KEY, keep="last", maintain_order=True
    )
    ended = errors.join(
        last.select(*SESSION_KEY, "message_id"), on=SESSION_KEY, how="left"
    ).with_columns(
        message_id=pl.coalesce("message_id", pl.concat_str("session_id", pl.lit(":error"))),
        error_type=pl.coalesce("error_type", pl.lit("unknown")),
        error_ms="timestamp_ms",
    )
    messages = answers.join(
        ended.drop("row", "timestamp_ms"),
        on=[*SESSION_KEY, "message_id"],
        how="full",
        coalesce=True,
    ).with_columns(
        role=pl.lit("assistant"),
        parent_id=pl.lit("run"),
        created_ms=pl.coalesce("created_ms", "error_ms"),
        completed_ms=pl.coalesce("completed_ms", "error_ms"),
    )
    shaped = conform(messages.with_columns(era=pl.lit("V1")), MESSAGES)
    pieces = parts_of(with_parts.select("source", "text", written_ms="timestamp_ms"), parser)[0]
    return Gathered(messages=shaped, parts=pieces)


def _export(path: Path) -> dict[str, Any] | None:
    """The document of ``opencode export``; None for anything else."""
    with open_regular(path) as file:
        begin = file.read(4096).decode("utf-8", "replace").lstrip("\ufeff").lstrip()
    # If stderr went into the same file, a note precedes the document.
    note, _, text = begin.partition("{")
    is_first = not note or (note.startswith("Exporting session:") and note.count("\n") == 1)
    if not is_first or '"info"' not in text[:200] or '"type"' in text[:60]:
        return None
    try:
        octets = read_octets(path)[0]
        document = json.loads(octets[octets.index(b"{") :])
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and "messages" in document else None


def _of_export(document: dict[str, Any], source: str, parser: Parser) -> Gathered:
    """The session, messages and parts of an export."""

    def listed(value: Any) -> list[Any]:
        return value if isinstance(value, list) else []

    pairs = [pair for pair in listed(document.get("messages")) if isinstance(pair, dict)]
    infos = [json.dumps(pair.get("info")) for pair in pairs]
    parts = [json.dumps(part) for pair in pairs for part in listed(pair.get("parts"))]
    session = json.dumps(document.get("info"))
    texts = {"session": [session], "message": infos, "part": parts}
    broken = _half_surrogates(source, [session, *infos, *parts], "an export")
    return _of_texts(texts, source, parser, broken)


def _of_texts(
    texts: Mapping[str, list[str]], source: str, parser: Parser, broken: pl.DataFrame
) -> Gathered:
    """The contents of one input, from the JSON texts of its sessions, messages and parts."""

    def frame(kind: str) -> pl.DataFrame:
        column = pl.Series("text", [_whole(text) for text in texts[kind]], dtype=pl.String)
        return column.to_frame().with_columns(source=pl.lit(source))

    rows = parser.read(numbered(frame("session")), SESSION)
    return Gathered(
        messages=messages_of(frame("message"), parser)[0],
        parts=parts_of(frame("part"), parser)[0],
        session_rows=session_rows_of(rows.with_columns(source=pl.lit(source))),
        broken=broken,
    )


def read_storage(folder: Path, source: str, parser: Parser) -> Gathered:
    """Sessions, messages and parts of a legacy ``storage`` directory.

    Parameters
    ----------
    folder : pathlib.Path
        The parent of ``session``, ``message`` and ``part``.
    source : str
        The name of the input.
    parser : Parser
    """
    texts: dict[str, list[str]] = {"session": [], "message": [], "part": []}
    not_json: list[Path] = []
    unreadable: list[tuple[Path, OSError]] = []
    for kind, contents in texts.items():
        for path in _json_files(folder / kind):
            try:
                text = read_octets(path)[0].decode()
                json.loads(text)
            except OSError as error:
                unreadable.append((path, error))
            except (ValueError, RecursionError):
                not_json.append(path)
            else:
                contents.append(text)
    broken = [_unreadable_files(source, unreadable)] if unreadable else []
    broken.append(_half_surrogates(source, chain.from_iterable(texts.values()), folder.name))
    if not_json:
        place = {"table": folder.name, "example": legible(not_json[0].name)}
        more = {"n_rows": len(not_json), "message": "a file that is no JSON", **place}
        broken.append(_lost(source, "record.not_json", **more))
    return _of_texts(texts, source, parser, pl.concat(broken))


def _unreadable_files(source: str, files: Sequence[tuple[Path, OSError]]) -> pl.DataFrame:
    """The loss of files that were listed and then could not be read."""
    path, error = files[0]
    # A deleted file explains least, so the error of another file is preferred.
    errors = (reason for _, reason in files if not isinstance(reason, FileNotFoundError))
    code, message = json_lines.loss_reason(next(errors, error))
    name = legible(path.name)
    more = {"n_rows": len(files), "table": name, "example": name, "action": "excluded"}
    return counted(source, NAME, code, "warning", message, **more)  # type: ignore[arg-type]


def size_of(path: Path) -> int:
    """Bytes of a file, or of the records of a ``storage`` directory."""
    return io_files.size_of(_json_files(path) if path.is_dir() else [path])


def _json_files(folder: Path) -> Iterator[Path]:
    for root, directories, names in os.walk(folder):
        directories.sort()
        for name in sorted(names):
            if name.endswith(".json"):
                yield Path(root) / name
