"""Files of records: event logs, streams, ``run --format json``, exports, legacy JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.io.files import legible, without_halves
from stateanalytics.io.opening import MAX_LINE_BYTES, open_regular, read_octets
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
)
from stateanalytics.systems.opencode.message_fold import MESSAGES
from stateanalytics.systems.opencode.payloads import (
    SESSION,
    Parser,
    conform,
    numbered,
    read_lines,
)

MAX_DOCUMENT_BYTES = 512 * 2**20
TOO_LONG = f"a line of more than {MAX_LINE_BYTES // 2**20} MiB"
UNFINISHED = "a last line that is cut off: it was being written, or its writer died"
_HALF = r"\\u[dD][89a-fA-F]"
RUN_TYPES = ("step_start", "text", "reasoning", "tool_use", "step_finish", "error")
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


def read_record_file(path: Path, parser: Parser) -> Gathered:
    """Everything that a file of records holds.

    Parameters
    ----------
    path : pathlib.Path
        A log, a stream, a capture, the output of a run, or an export.
    parser : Parser
    """
    document = _export(path)
    if document is not None:
        return gathered_of_export(document, parser)
    origin = "stream" if path.suffix == ".sse" or "sse" in path.name else "log"
    pieces = [_piece(lines, parser, origin) for lines in read_lines(path)]
    return together(pieces) if pieces else Gathered()


def _piece(lines: pl.DataFrame, parser: Parser, origin: str) -> Gathered:
    too_long = lines.filter("is_too_long")
    not_text = lines.filter(pl.col("text").is_null(), ~pl.col("is_too_long"))
    texts = lines.filter(pl.col("text").is_not_null()).select(
        row=pl.col("line_no").cast(pl.UInt32), text="text"
    )
    halved = texts.filter(pl.col("text").str.contains(_HALF))
    if halved.height:
        texts = texts.with_columns(pl.col("text").map_elements(_whole, return_dtype=pl.String))
    decoded = events_of_records(texts, parser, origin=origin)
    logs, others = [decoded.log], decoded.others
    wire = Gathered()
    if others.height:
        unwrapped = parser.read(others, {"raw_type": _WIRE["raw_type"]}, sql={"inner": _UNWRAPPED})
        inner = unwrapped.select("row", text=pl.col("inner"))
        again = events_of_records(inner, parser, origin=origin)
        logs.append(again.log)
        wire = _of_wire(again.others, parser)
    bad = decoded.broken.select(line_no="row").join(
        lines.select(pl.col("line_no").cast(pl.UInt32), "is_finished"), on="line_no", how="left"
    )
    cut_off = pl.concat([bad, not_text.select(pl.col("line_no").cast(pl.UInt32), "is_finished")])
    finished = pl.col("is_finished")
    broken = [
        _broken("record.not_json", "a line that is no JSON object", bad.filter(finished)),
        _broken("record.not_utf8", "a line that is not UTF-8", not_text.filter(finished)),
        _broken("record.too_long", TOO_LONG, too_long),
        _halved(halved["text"], f"line {halved['row'].min()!s}"),
        _broken("line.unfinished", UNFINISHED, cut_off.filter(~finished), severity="info"),
    ]
    return together(
        [
            *(Gathered(log=log) for log in logs),
            wire,
            Gathered(broken=tuple(fault for fault in broken if fault is not None)),
        ]
    )


def _broken(
    code: str, message: str, lines: pl.DataFrame, *, severity: str = "warning"
) -> Broken | None:
    if lines.is_empty():
        return None
    return Broken(code, severity, message, lines.height, f"line {lines['line_no'].min()!s}")


def _halved(texts: Iterable[str], example: str) -> Broken | None:
    """What to say of escapes that stand for no character; DuckDB would refuse the whole text."""
    n_records = sum(without_halves(text)[1] > 0 for text in texts)
    message = "a record with half a surrogate pair, read as a question mark"
    return (
        Broken("record.half_surrogate", "info", message, n_records, example) if n_records else None
    )


def _whole(text: str) -> str:
    return without_halves(text)[0]


def _of_wire(texts: pl.DataFrame, parser: Parser) -> Gathered:
    """Messages, parts and sessions of V1's streams, and of runs."""
    read = parser.read(texts, _WIRE).with_columns(pl.col("raw_type").str.replace(r"\.\d+$", ""))
    kind = pl.col("raw_type")
    infos = read.filter(pl.col("info").is_not_null()).sort("event_id", maintain_order=True)
    parts = read.filter(kind == "message.part.updated", pl.col("part").is_not_null())
    runs = read.filter(kind.is_in(list(RUN_TYPES)), pl.col("session_id").is_not_null())
    of_runs = _of_runs(runs, parser)
    known = kind.str.contains(".", literal=True) | kind.is_in(list(RUN_TYPES))
    strange = read.filter(~known.fill_null(value=False))
    sessions = infos.filter(kind.str.starts_with("session.")).select(
        "row", "event_id", text=pl.col("info").cast(pl.String)
    )
    told = parser.read(sessions.select("row", "text"), SESSION).reverse()
    rows = told.join(sessions.drop("text"), on="row", how="left", maintain_order="left")
    faults = _broken(
        "record.not_understood",
        "a record of no kind that is known",
        strange.select(line_no="row"),
    )
    return together(
        [
            Gathered(
                messages=messages_of(
                    infos.filter(kind == "message.updated").select(
                        "event_id", text=pl.col("info").cast(pl.String)
                    ),
                    parser,
                )[0],
                parts=parts_of(
                    parts.select("event_id", text=pl.col("part").cast(pl.String)), parser
                )[0],
                session_rows=conform(with_writing(rows, "created_ms"), SESSION_ROWS).filter(
                    pl.col("session_id").is_not_null()
                ),
                broken=() if faults is None else (faults,),
            ),
            of_runs,
        ]
    )


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
    sentences = placed.group_by("session_id", "message_id").agg(
        created_ms=pl.col("timestamp_ms").min(),
        completed_ms=pl.col("timestamp_ms").filter(finished).max(),
        **{
            name: pl.col(name).filter(finished).drop_nulls().last()
            for name in ("finish", "cost_usd", "n_input_tokens", "n_output_tokens")
        },
    )
    failures = runs.filter(pl.col("error").is_not_null()).select(
        "row", "session_id", "timestamp_ms", text=pl.col("error").cast(pl.String)
    )
    errors = failures.drop("text").join(
        parser.read(failures.select("row", "text"), _ERROR), on="row", how="left"
    )
    errors = errors.sort("session_id", "timestamp_ms").unique(
        "session_id", keep="last", maintain_order=True
    )
    last = sentences.sort("session_id", "created_ms", "message_id").unique(
        "session_id", keep="last", maintain_order=True
    )
    ended = errors.join(
        last.select("session_id", "message_id"), on="session_id", how="left"
    ).with_columns(
        message_id=pl.coalesce("message_id", pl.concat_str("session_id", pl.lit(":error"))),
        error_type=pl.coalesce("error_type", pl.lit("unknown")),
        error_ms="timestamp_ms",
    )
    messages = sentences.join(
        ended.drop("row", "timestamp_ms"),
        on=["session_id", "message_id"],
        how="full",
        coalesce=True,
    ).with_columns(
        role=pl.lit("assistant"),
        parent_id=pl.lit("run"),
        created_ms=pl.coalesce("created_ms", "error_ms"),
        completed_ms=pl.coalesce("completed_ms", "error_ms"),
    )
    shaped = conform(messages.with_columns(era=pl.lit("V1")), MESSAGES)
    pieces = parts_of(with_parts.select("text", written_ms="timestamp_ms"), parser)[0]
    return Gathered(messages=shaped, parts=pieces)


def _export(path: Path) -> dict[str, Any] | None:
    """The document of ``opencode export``; None for anything else."""
    with open_regular(path) as file:
        begin = file.read(4096)
    text = begin.decode("utf-8", "replace").lstrip("\ufeff").lstrip()
    is_document = text.startswith("{") and '"info"' in text[:200] and '"type"' not in text[:60]
    if not is_document or path.stat().st_size > MAX_DOCUMENT_BYTES:
        return None
    try:
        document = json.loads(read_octets(path, MAX_DOCUMENT_BYTES)[0])
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and "messages" in document else None


def gathered_of_export(document: dict[str, Any], parser: Parser) -> Gathered:
    """The session, messages and parts of an export."""
    pairs = [pair for pair in _listed(document.get("messages")) if isinstance(pair, dict)]
    infos = [_text(pair.get("info")) for pair in pairs]
    parts = [_text(part) for pair in pairs for part in _listed(pair.get("parts"))]
    session = _text(document.get("info"))
    halved = _halved([session, *infos, *parts], "an export")
    own = _frame([session])
    rows = parser.read(numbered(own), SESSION)
    return Gathered(
        messages=messages_of(_frame(infos), parser)[0],
        parts=parts_of(_frame(parts), parser)[0],
        session_rows=session_rows_of(rows),
        broken=() if halved is None else (halved,),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return json.dumps(value)


def _frame(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"text": [_whole(text) for text in texts]}, schema={"text": pl.String})


def read_storage(folder: Path, parser: Parser) -> Gathered:
    """Sessions, messages and parts of a legacy ``storage`` directory.

    Parameters
    ----------
    folder : pathlib.Path
        With ``session``, ``message`` and ``part`` in it.
    parser : Parser
    """
    texts: dict[str, list[str]] = {"session": [], "message": [], "part": []}
    not_json: list[Path] = []
    failed: list[tuple[Path, OSError]] = []
    for kind, contents in texts.items():
        for path in _json_files(folder / kind):
            try:
                text = read_octets(path, MAX_DOCUMENT_BYTES)[0].decode()
                json.loads(text)
            except OSError as error:
                failed.append((path, error))
            except (ValueError, RecursionError):
                not_json.append(path)
            else:
                contents.append(text)
    rows = numbered(_frame(texts["session"]))
    halved = _halved(itertools.chain.from_iterable(texts.values()), folder.name)
    broken = [*([lost(failed)] if failed else []), *([halved] if halved else [])]
    if not_json:
        message, first = "a file that is no JSON", legible(not_json[0].name)
        broken.append(
            Broken("record.not_json", "warning", message, len(not_json), first, folder.name)
        )
    return Gathered(
        messages=messages_of(_frame(texts["message"]), parser)[0],
        parts=parts_of(_frame(texts["part"]), parser)[0],
        session_rows=session_rows_of(parser.read(rows, SESSION)),
        broken=tuple(broken),
    )


def lost(failed: Sequence[tuple[Path, OSError]]) -> Broken:
    """What to say of files that were found and then could not be read."""
    path, error = failed[0]
    if all(isinstance(reason, FileNotFoundError) for _, reason in failed):
        code, message = "file.vanished", "a file that was gone when it was to be opened"
    else:
        code, message = "file.unreadable", f"a file that cannot be read ({error.strerror})"
    name = legible(path.name)
    return Broken(code, "warning", message, len(failed), name, name)


def size_of(path: Path) -> int:
    """Bytes of a file, or of the records of a ``storage`` directory; of what is gone, none."""
    files = _json_files(path) if path.is_dir() else [path]
    n_bytes = 0
    for file in files:
        with contextlib.suppress(OSError):
            n_bytes += file.stat().st_size
    return n_bytes


def _json_files(folder: Path) -> Iterator[Path]:
    for root, directories, names in os.walk(folder):
        directories.sort()
        for name in sorted(names):
            if name.endswith(".json"):
                yield Path(root) / name
