"""Spans in files of OTLP, as JSON (one message or one a line) or as protobuf.

After opentelemetry-proto 1 and the file exporter of the collector, which writes the length of
each message of protobuf before it. Protobuf needs the package opentelemetry-proto.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stateanalytics import plugin
from stateanalytics.plugin import as_count, as_moment, as_text
from stateanalytics_agents.runs import mapping, objects, text_in

# Every file there is opened, also in folders that turn out to be of another system.
DEPTH = 2
JSON, PROTOBUF = (".json", ".jsonl", ".ndjson"), (".pb", ".binpb", ".otlp")
RENAMED = {
    "gen_ai.system": "gen_ai.provider.name",
    "gen_ai.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens": "gen_ai.usage.output_tokens",
}


def files_of(path: Path) -> list[Path]:
    """The files of spans at a path: one of them, or all in a folder."""
    if path.is_file():
        return [path] if is_spans(path) else []
    found = (Path(name) for name, _ in plugin.files_below(str(path), is_strict=False, depth=DEPTH))
    return [file for file in found if is_spans(file)]


def is_spans(path: Path) -> bool:
    """Whether a file begins with spans; a message of protobuf may have its length before it."""
    if path.suffix in JSON:
        begin = plugin.beginning_of(path, 4096)
        return b'"resourceSpans"' in begin or b'"resource_spans"' in begin
    begin = plugin.beginning_of(path, 5) if path.suffix in PROTOBUF else b""
    return begin[:1] == b"\n" or (begin[:1] == b"\0" and begin[4:5] == b"\n")


def find(path: Path) -> list[Path]:
    """The path, if there are spans."""
    return [path] if files_of(path) else []


def messages_of(octets: bytes) -> Iterator[dict[str, Any]]:
    """The messages in a file of protobuf, as JSON; with their lengths or a single one."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    while octets:
        n = int.from_bytes(octets[:4], "big") if octets[:1] == b"\0" else len(octets)
        begin = 4 if octets[:1] == b"\0" else 0
        yield MessageToDict(TracesData.FromString(octets[begin : begin + n]))
        octets = octets[begin + n :]


def records_in(
    path: Path, label: str, system: str, *, name: str
) -> tuple[list[dict[str, Any]], list[Any]]:
    """The messages of a file, and findings."""
    if path.suffix in JSON:
        records, bad = plugin.json_records(path, label, system, name=name)
        return records, [bad]
    records = []
    code, severity, message = "file.unreadable", "warning", ""
    try:
        records.extend(messages_of(plugin.read_octets(path)[0]))
    except ImportError:
        code, message = "file.needs_protobuf", "spans in protobuf need opentelemetry-proto"
    except Exception as error:  # its own errors are of a package that may not be installed
        message = f"no message of protobuf follows: {type(error).__name__}"
    n = int(bool(message))
    return records, [plugin.counted(label, system, code, severity, message, n_rows=n, table=name)]


def value_of(value: object) -> Any:
    """A value of an attribute; null for bytes and what is not known."""
    for kind, one in mapping(value).items():
        if kind in ("intValue", "int_value"):
            text = str(one)
            return as_count(int(text)) if re.fullmatch(r"[0-9]{1,18}", text) else None
        if kind in ("stringValue", "string_value"):
            return as_text(one)
        if kind in ("doubleValue", "boolValue", "double_value", "bool_value"):
            return one
        if kind in ("arrayValue", "array_value"):
            return [value_of(each) for each in objects(mapping(one).get("values"))]
    return None


def attributes_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by their newest name."""
    pairs = (
        (as_text(each.get("key")), each.get("value")) for each in objects(holder.get("attributes"))
    )
    return {RENAMED.get(key, key): value_of(value) for key, value in pairs if key}


def moment(nanoseconds: object) -> Any:
    """A time, from nanoseconds as a number or a text."""
    text = str(nanoseconds)
    return as_moment(int(text[:19]) / 1e9) if text.isdecimal() else None


def id_of(value: object) -> str:
    """An id in hex; JSON that protobuf itself writes has 8 or 16 octets in base64."""
    text = as_text(value) or ""
    if len(text) in (12, 24) and text.endswith("="):
        with suppress(ValueError):
            return b64decode(text).hex()
    return text


def field_of(span: Mapping[str, Any], name: str) -> Any:
    """A field by its name in JSON, or as protobuf names it: ``traceId`` or ``trace_id``."""
    return span.get(name, span.get(re.sub(r"([A-Z])", r"_\1", name).lower()))


def spans_in(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The spans of messages, each with its attributes, its times and its resource's name."""
    for record in records:
        for group in objects(record.get("resourceSpans") or record.get("resource_spans")):
            service = attributes_of(mapping(group.get("resource"))).get("service.name")
            for scope in objects(group.get("scopeSpans") or group.get("scope_spans")):
                for span in objects(scope.get("spans")):
                    status = mapping(span.get("status"))
                    trace = id_of(field_of(span, "traceId"))
                    yield {
                        **attributes_of(span),
                        "service": as_text(service),
                        "trace": trace,
                        "id": (trace, id_of(field_of(span, "spanId"))),
                        "up": (trace, id_of(field_of(span, "parentSpanId"))),
                        "name": as_text(span.get("name")),
                        "began": moment(field_of(span, "startTimeUnixNano")),
                        "ended": moment(field_of(span, "endTimeUnixNano")),
                        "is_error": status.get("code") in (2, "STATUS_CODE_ERROR"),
                        "message": text_in(status.get("message")),
                    }
