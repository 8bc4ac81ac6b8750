"""Files of JSON records: event logs, streams, ``run --format json``, exports, legacy storage."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.io.files import legible, open_regular, read_octets, without_halves
from stateanalytics.io.json_lines import (
    HALF_SURROGATE,
    TOO_LONG,
    UNFINISHED,
    Chunk,
    Parser,
    chunks_of,
    conform,
    in_pieces,
    loss_reason,
    numbered,
    records_of,
)
from stateanalytics.systems.opencode.events import (
    events_of_records,
    messages_of,
    parts_of,
    with_writing,
)
from stateanalytics.systems.opencode.gathered import (
    SESSION_ROWS,
    Broken,
    Gathered,
    session_rows_of,
    together,
    without,
)
from stateanalytics.systems.opencode.log import SESSION, SESSION_KEY
from stateanalytics.systems.opencode.message_fold import MESSAGES
from stateanalytics.systems.transcripts import size_of as size_of_files

_RUN_TYPES = ("step_start", "text", "reasoning", "tool_use", "step_finish", "error")
_UNWRAPPED = (
    "CAST(coalesce(json_extract(sound, '$.payload.syncEvent'), "
    "json_extract(sound, '$.payload'), json_extract(sound, '$.syncEvent'), sound) AS VARCHAR)"
)
_WIRE = {
    "raw_type": (("type",), "VARCHAR"),
    "event_id": (("id",), "VARCHAR"),
    "session_id": (("sessionID", "properties.sessionID", "data.sessionID"), "VARCHAR"),
    "timestamp_ms": (("timestamp",), "BIGINT"),
    "info": (("properties.info", "data.info"), "JSON"),
    "part": (("properties.part", "data.part", "part"), "JSON"),
    "error": (("error",), "JSON"),
}
_FINISH = {
    "finish": (("reason",), "VARCHAR"),
    "cost_usd": (("cost",), "DOUBLE"),
    "n_input_tokens": (("tokens.input",), "BIGINT"),
    "n_output_tokens": (("tokens.output",), "BIGINT"),
    "message_id": (("messageID",), "VARCHAR"),
}
_ERROR = {
    "error_type": (("name", "type"), "VARCHAR"),
    "error_message": (("data.message", "message"), "VARCHAR"),
    "error_status": (("data.statusCode", "status"), "BIGINT"),
}


def read_record_files(files: Iterable[tuple[str, Path]], parser: Parser) -> Gathered:
    """The contents of files of records; many small files are parsed together.

    Parameters
    ----------
    files : iterable of (source, path)
        Logs, streams, captures, outputs of runs, exports.
    parser : Parser
    """
    exports: list[Gathered] = []
    unreadable: dict[str, Broken] = {}

    def chunks() -> Iterator[Chunk]:
        for source, path in files:
            try:
                document = _export(path)
                if document is not None:
                    exports.append(_of_export(document, source, parser))
                else:
                    origin = "stream" if path.suffix == ".sse" or "sse" in path.name else "log"
                    yield from chunks_of(path, source, origin)
            except OSError as error:
                unreadable[source] = _unreadable_files(source, [(path, error)])

    pieces = [_of_records(records_of(piece), parser) for piece in in_pieces(chunks())]
    gathered = together([*pieces, *exports])
    # A file that cannot be read to its end is excluded as a whole.
    kept = without(gathered, unreadable) if unreadable else gathered
    return replace(kept, broken=(*kept.broken, *unreadable.values()))


def _of_records(records: pl.DataFrame, parser: Parser) -> Gathered:
    """The contents of some records, and those that could not be read."""
    is_text = pl.col("text").is_not_null()
    too_long = records.filter("is_too_long")
    not_text = records.filter(~is_text, ~pl.col("is_too_long"))
    texts = numbered(records.filter(is_text).drop("is_too_long"))
    halved = texts.filter(pl.col("text").str.contains(HALF_SURROGATE))
    if halved.height:
        texts = texts.with_columns(pl.col("text").map_elements(_whole, return_dtype=pl.String))
    decoded = events_of_records(texts, parser)
    logs, others = [decoded.log], decoded.others
    wire = Gathered()
    if others.height:
        unwrapped = parser.read(others, {"raw_type": _WIRE["raw_type"]}, sql={"inner": _UNWRAPPED})
        inner = others.drop("text").join(
            unwrapped.select("row", text="inner"), on="row", maintain_order="left"
        )
        unwrapped_events = events_of_records(inner, parser)
        logs.append(unwrapped_events.log)
        wire = _of_stream(unwrapped_events.others, parser)
    bad = decoded.broken
    cut_off = pl.concat([bad.select(_LINE), not_text.select(_LINE)])
    finished = pl.col("is_finished")
    broken = (
        *_broken("record.not_json", "a line that is no JSON object", bad.filter(finished)),
        *_broken("record.not_utf8", "a line that is not UTF-8", not_text.filter(finished)),
        *_broken("record.too_long", TOO_LONG, too_long),
        *(
            loss
            for (source,), lines in halved.group_by("source", maintain_order=True)
            for loss in _half_surrogates(source, lines["text"], f"line {lines['line_no'].min()!s}")
        ),
        *_broken("line.unfinished", UNFINISHED, cut_off.filter(~finished), severity="info"),
    )
    return together([*(Gathered(log=log) for log in logs), wire, Gathered(broken=broken)])


_LINE = ("source", "line_no", "is_finished")


def _broken(
    code: str, message: str, lines: pl.DataFrame, *, severity: str = "warning"
) -> tuple[Broken, ...]:
    """One loss per source for some lines."""
    by_source = lines.group_by("source").agg(pl.len(), pl.col("line_no").min()).sort("source")
    return tuple(
        Broken(source, code, severity, message, n_rows, f"line {line_no}")
        for source, n_rows, line_no in by_source.iter_rows()
    )


def _half_surrogates(source: str, texts: Iterable[str], example: str) -> tuple[Broken, ...]:
    """The loss of escapes that are no character; DuckDB would refuse the whole text."""
    n_records = sum(without_halves(text)[1] > 0 for text in texts)
    message = "a record with half a surrogate pair, read as a question mark"
    broken = Broken(source, "record.half_surrogate", "info", message, n_records, example)
    return (broken,) if n_records else ()


def _whole(text: str) -> str:
    return without_halves(text)[0]


def _of_stream(texts: pl.DataFrame, parser: Parser) -> Gathered:
    """Messages, parts and sessions of V1's streams, and of runs."""
    wire = parser.read(texts, _WIRE).with_columns(pl.col("raw_type").str.replace(r"\.\d+$", ""))
    read = texts.drop("text").join(wire, on="row", how="left", maintain_order="left")
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
    newest_first = parser.read(sessions.select("row", "text"), SESSION).reverse()
    rows = newest_first.join(sessions.drop("text"), on="row", how="left", maintain_order="left")
    stream = Gathered(
        messages=messages_of(messages, parser)[0],
        parts=parts_of(
            parts.select("source", "event_id", text=pl.col("part").cast(pl.String)), parser
        )[0],
        session_rows=conform(with_writing(rows, "created_ms"), SESSION_ROWS).filter(
            pl.col("session_id").is_not_null()
        ),
        broken=_broken("record.not_understood", "a record of an unknown kind", strange),
    )
    return together([stream, _of_runs(runs, parser)])


def _of_runs(runs: pl.DataFrame, parser: Parser) -> Gathered:
    """``run --format json``: parts by message, and errors, which end their session's last one."""
    if runs.is_empty():
        return Gathered()
    with_parts = runs.filter(pl.col("part").is_not_null()).with_columns(
        text=pl.col("part").cast(pl.String)
    )
    ends = parser.read(with_parts.select("row", "text"), _FINISH)
    placed = with_parts.join(ends, on="row", how="left", maintain_order="left").filter(
        pl.col("message_id").is_not_null()
    )
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
    errors = failures.drop("text").join(
        parser.read(failures.select("row", "text"), _ERROR), on="row", how="left"
    )
    errors = errors.sort(*SESSION_KEY, "timestamp_ms").unique(
        SESSION_KEY, keep="last", maintain_order=True
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
        begin = file.read(4096)
    text = begin.decode("utf-8", "replace").lstrip("\ufeff").lstrip()
    is_document = text.startswith("{") and '"info"' in text[:200] and '"type"' not in text[:60]
    if not is_document:
        return None
    try:
        document = json.loads(read_octets(path)[0])
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
    texts: Mapping[str, list[str]], source: str, parser: Parser, broken: tuple[Broken, ...]
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
    broken += _half_surrogates(source, chain.from_iterable(texts.values()), folder.name)
    if not_json:
        message, first = "a file that is no JSON", legible(not_json[0].name)
        n_files, name = len(not_json), folder.name
        broken.append(Broken(source, "record.not_json", "warning", message, n_files, first, name))
    return _of_texts(texts, source, parser, tuple(broken))


def _unreadable_files(source: str, files: Sequence[tuple[Path, OSError]]) -> Broken:
    """The loss of files that were listed and then could not be read."""
    path, error = files[0]
    # That a file was deleted explains least about the others.
    errors = (reason for _, reason in files if not isinstance(reason, FileNotFoundError))
    code, message = loss_reason(next(errors, error))
    name = legible(path.name)
    return Broken(source, code, "warning", message, len(files), name, name)


def size_of(path: Path) -> int:
    """Bytes of a file, or of the records of a ``storage`` directory."""
    return size_of_files(_json_files(path) if path.is_dir() else [path])


def _json_files(folder: Path) -> Iterator[Path]:
    for root, directories, names in os.walk(folder):
        directories.sort()
        for name in sorted(names):
            if name.endswith(".json"):
                yield Path(root) / name
