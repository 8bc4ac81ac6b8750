"""Logs of Agent Orchestrator: every line is one row of one frame, or a fault."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from stateanalytics.io.budget import MAX_LINE_BYTES
from stateanalytics.io.cells import shown
from stateanalytics.io.files import legible
from stateanalytics.systems.agent_orchestrator.columns import MOST_DETAIL, stored_moment
from stateanalytics.systems.agent_orchestrator.places import (
    Fault,
    Faults,
    File,
    Kind,
    read_file,
)
from stateanalytics.systems.agent_orchestrator.records import (
    NoRecordError,
    key_value_record,
    text_of,
)

_UNFINISHED = "its last line is cut off: it was being written, or its writer died"
Line = Mapping[str, Any]


Entry = dict[str, Any]
"""One row of a log: some of `COLUMNS`."""

_LOGGED_AS = {
    "session_state": "SessionState",
    "session_reason": "SessionReason",
    "pr_state": "PRState",
    "pr_reason": "PRReason",
    "runtime_state": "RuntimeState",
    "runtime_reason": "RuntimeReason",
}
COLUMNS = (
    # Which log: audit, activity, observability, trace, event, notification, recovery, feedback.
    "log",
    # The project's directory; empty where the log is of a whole tree.
    "directory",
    # By the line, or by the name of its file.
    *("project", "session_id"),
    "at",
    "kind",
    # Legacy status before and after, where the line has them.
    *("previous", "status"),
    # Reason; item; who; a short text; level; what groups lines of one cause.
    *("code", "name", "role", "detail", "level", "correlation"),
    # Is it a sign of life; was a report accepted.
    *("is_activity", "is_accepted"),
    *("duration_ms", "size"),
    # The line itself, only where bodies are asked for.
    "body",
    # The session's axes before and after the line; null where the line does not have them.
    *("decided_previous", "decided_status", *(f"previous_{name}" for name in _LOGGED_AS)),
    *(*_LOGGED_AS, "evidence_text", "detecting_attempts"),
)
"""The columns that all logs share, each of texts."""


def read_logs(files: Iterable[File], faults: Faults, *, bodies: bool) -> pl.DataFrame:
    """Every line of every log of a tree, in the order of the files and of their lines.

    Parameters
    ----------
    files : iterable of File
        Logs of any kind.
    faults : Faults
        Receives the lines that could not be read.
    bodies : bool
        Whether to keep the lines themselves.

    Returns
    -------
    polars.DataFrame
        ``seq`` (Int64), ``at`` (moment; null: none can be read) and the rest of `COLUMNS`
        as texts.
    """
    entries = [entry for file in files for entry in _entries(file, faults, bodies)]
    columns = {name: [text_of(entry.get(name)) for entry in entries] for name in COLUMNS}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(COLUMNS, pl.String))
    return frame.with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        at=stored_moment("at"),
        detail=pl.col("detail").str.slice(0, MOST_DETAIL),
        is_activity=pl.col("is_activity").fill_null("false"),
    )


def _entries(file: File, faults: Faults, bodies: bool) -> Iterator[Entry]:
    content = read_file(file.path, faults)
    if content.text is None:
        return
    if file.kind == Kind.FEEDBACK:
        yield from _feedback(content.text, file, faults, bodies)
        return
    read = READERS[file.kind]
    for size, text, line in _lines(content.text, file, faults):
        for entry in read(line, file):
            yield entry | {"size": size, "body": text if bodies else None}


def _lines(text: str, file: File, faults: Faults) -> Iterator[tuple[int, str, Line]]:
    """Objects of a log; one object for a whole file of traces."""
    pieces: Sequence[str] = [text] if file.kind == Kind.TRACES else text.split("\n")
    n_bad, n_long, first_bad = 0, 0, ""
    last = len(pieces) - 1
    below = faults.below(file.path)
    for number, piece in enumerate(pieces):
        if len(piece) > MAX_LINE_BYTES:
            n_long += 1
            continue
        if not piece.strip():
            continue
        try:
            line = orjson.loads(piece)
        except ValueError:
            line = None
        if isinstance(line, dict):
            yield len(piece), piece, line
        elif number == last and file.kind != Kind.TRACES:
            # A writer may be in the middle of it: only what ends in a newline is finished.
            faults.add(Fault("line.unfinished", "info", _UNFINISHED, below, 1, shown(piece)))
        else:
            n_bad, first_bad = n_bad + 1, first_bad or piece
    if n_bad:
        message = "lines that are no JSON object"
        faults.add(Fault("line.unreadable", "warning", message, below, n_bad, shown(first_bad)))
    if n_long:
        message = f"lines of more than {MAX_LINE_BYTES // 2**20} MiB"
        faults.add(Fault("line.too_long", "warning", message, below, n_long))


def _part(line: Line, key: str) -> Line:
    """Object inside of a line; empty where there is none."""
    value = line.get(key)
    return value if isinstance(value, dict) else {}


def _audit(line: Line, file: File) -> Iterator[Entry]:
    """One report of an agent: accepted, or rejected with the reason."""
    before, after = _part(line, "before"), _part(line, "after")
    is_accepted, state = line.get("accepted") is True, line.get("reportState")
    entry: Entry = {
        "log": "audit",
        "directory": file.directory,
        "session_id": file.name.removesuffix(".ndjson"),
        "at": line.get("timestamp"),
        "kind": f"report.{text_of(state)}" if is_accepted else "report.rejected",
        "previous": before.get("legacyStatus"),
        "status": after.get("legacyStatus"),
        "code": after.get("sessionReason"),
        "name": state,
        "role": line.get("actor"),
        "detail": line.get("note" if is_accepted else "rejectionReason"),
        "is_activity": is_accepted,
        "is_accepted": is_accepted,
    }
    if is_accepted:
        # A report changes the session axis only.
        entry |= {
            "decided_previous": before.get("legacyStatus"),
            "decided_status": after.get("legacyStatus"),
            "previous_session_state": before.get("sessionState"),
            "previous_session_reason": before.get("sessionReason"),
            "session_state": after.get("sessionState"),
            "session_reason": after.get("sessionReason"),
        }
    yield entry


ALIVE = ("active", "ready")
"""Activities that are a sign of life; waiting and idle agents give none."""


def _activity(line: Line, file: File) -> Iterator[Entry]:
    """One activity of an agent."""
    state = text_of(line.get("state"))
    yield {
        "log": "activity",
        "directory": file.directory,
        "session_id": legible(file.path.split(os.sep)[-3]),  # noqa: PTH206
        "at": line.get("ts"),
        "kind": f"activity.{state}",
        "name": state,
        "role": line.get("source"),
        "detail": line.get("trigger"),
        "is_activity": state in ALIVE,
    }


def _observability(line: Line, file: File, log: str = "observability") -> Iterator[Entry]:
    """One line of the observability log, or one trace of a process."""
    data = _part(line, "data")
    operation = text_of(line.get("operation") or line.get("surface") or line.get("kind"))
    is_change = operation == "lifecycle.transition" or "fromStatus" in line
    entry: Entry = {
        "log": log,
        "project": line.get("projectId"),
        "session_id": line.get("sessionId"),
        "at": line.get("timestamp") or line.get("ts"),
        "kind": f"observability.{operation}",
        "previous": (data.get("oldStatus") or line.get("fromStatus")) if is_change else None,
        "status": (data.get("newStatus") or line.get("toStatus")) if is_change else None,
        "code": line.get("reason"),
        "name": line.get("outcome") or line.get("status"),
        "role": line.get("component"),
        "detail": data.get("evidence") or line.get("reason"),
        "level": line.get("level"),
        "correlation": line.get("correlationId"),
        "duration_ms": line.get("durationMs"),
    }
    if "newSessionState" in data:
        # A poll records all three axes, changed or not.
        for name, key in _LOGGED_AS.items():
            entry |= {f"previous_{name}": data.get(f"previous{key}"), name: data.get(f"new{key}")}
        entry |= {
            "decided_previous": data.get("oldStatus"),
            "decided_status": data.get("newStatus"),
            "evidence_text": data.get("evidence"),
            "detecting_attempts": data.get("detectingAttempts"),
        }
    yield entry


def _traces(line: Line, file: File) -> Iterator[Entry]:
    """Newest traces that a process kept of itself, oldest first."""
    traces = line.get("traces")
    for trace in reversed(traces if isinstance(traces, list) else []):
        if isinstance(trace, dict):
            yield from _observability(trace, file, "trace")


def _notification(line: Line, file: File) -> Iterator[Entry]:
    """An event as a notifier got it, with or without its envelope."""
    event = _part(line, "event") or line
    data = _part(event, "data")
    change = _part(data, "transition")
    is_status = change.get("kind") == "session_status" or not change
    yield {
        "log": "notification",
        "project": event.get("projectId"),
        "session_id": event.get("sessionId"),
        "at": event.get("timestamp") or line.get("receivedAt"),
        "kind": f"notification.{text_of(event.get('type'))}",
        "previous": (change.get("from") or data.get("oldStatus")) if is_status else None,
        "status": (change.get("to") or data.get("newStatus")) if is_status else None,
        "name": data.get("reactionKey") or event.get("type"),
        "detail": event.get("message"),
        "level": event.get("priority"),
    }


def _recovery(line: Line, file: File) -> Iterator[Entry]:
    """One action of a recovery on a session."""
    yield {
        "log": "recovery",
        "directory": file.directory,
        "session_id": line.get("sessionId"),
        "at": line.get("timestamp"),
        "kind": f"recovery.{text_of(line.get('action'))}",
        "name": line.get("previousStatus"),
        "code": line.get("reason"),
        "detail": line.get("error") or line.get("reason") or line.get("details"),
    }


def _feedback(text: str, file: File, faults: Faults, bodies: bool) -> Iterator[Entry]:
    """One feedback report: a bug, or a wish."""
    try:
        record = key_value_record(text)
    except NoRecordError as error:
        faults.add(Fault("record.unreadable", "warning", str(error), faults.below(file.path)))
        return
    yield {
        "log": "feedback",
        "directory": file.directory,
        "session_id": record.get("session"),
        "at": record.get("createdAt"),
        "kind": f"feedback.{record.get('tool')}",
        "name": record.get("id"),
        "role": record.get("source"),
        "detail": record.get("title"),
        "code": record.get("dedupeKey"),
        "body": record.get("body") if bodies else None,
        "size": len(text),
    }


READERS: Mapping[Kind, Callable[[Line, File], Iterator[Entry]]] = {
    Kind.AUDIT: _audit,
    Kind.ACTIVITY: _activity,
    Kind.OBSERVABILITY: _observability,
    Kind.TRACES: _traces,
    Kind.NOTIFICATIONS: _notification,
    Kind.RECOVERY: _recovery,
}
