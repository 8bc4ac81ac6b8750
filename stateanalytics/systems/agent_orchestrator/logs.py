"""Logs of Agent Orchestrator, line by line: each line one row of one frame, or a fault."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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


@dataclass(frozen=True)
class Entry:
    """One line of a log, in the terms that all logs share; every field is text or null.

    Attributes
    ----------
    log : str
        Which log: audit, activity, observability, trace, event, notification, recovery,
        feedback.
    directory : str
        The project's directory; empty where the log is of a whole tree.
    project, session_id : str
        As the line says, or the name of its file.
    at : str
        When, as written.
    kind : str
        What happened.
    previous, status : str
        Legacy status before and after, where it says so.
    code, name, role, detail, level, correlation : str
        Reason; item; who; a short text; level; what groups lines of one cause.
    is_activity, is_accepted : str
        ``true`` where it is a sign of life; where a report was accepted.
    duration_ms : str
    body : str
        The line itself, only where bodies are asked for.
    decided : mapping of str to str
        What the line says of the session's axes, after and before: `DECIDED`.
    """

    log: str
    directory: str | None = None
    project: str | None = None
    session_id: str | None = None
    at: str | None = None
    kind: str | None = None
    previous: str | None = None
    status: str | None = None
    code: str | None = None
    name: str | None = None
    role: str | None = None
    detail: str | None = None
    level: str | None = None
    correlation: str | None = None
    is_activity: str = "false"
    is_accepted: str | None = None
    duration_ms: str | None = None
    size: str | None = None
    body: str | None = None
    decided: Mapping[str, str | None] | None = None


COLUMNS = tuple(field.name for field in fields(Entry) if field.name != "decided")
_LOGGED_AS = {
    "session_state": "SessionState",
    "session_reason": "SessionReason",
    "pr_state": "PRState",
    "pr_reason": "PRReason",
    "runtime_state": "RuntimeState",
    "runtime_reason": "RuntimeReason",
}
DECIDED = (
    *("decided_previous", "decided_status", *(f"previous_{name}" for name in _LOGGED_AS)),
    *(*_LOGGED_AS, "evidence_text", "detecting_attempts"),
)
"""Columns of what a line says of a session's axes; null where it says nothing of one."""


def read_logs(files: Iterable[File], faults: Faults, *, bodies: bool) -> pl.DataFrame:
    """Every line of every log of a tree, in the order of the files and of their lines.

    Parameters
    ----------
    files : iterable of File
        Logs of any kind.
    faults : Faults
        Where to say which lines could not be read.
    bodies : bool
        Whether to keep the lines themselves.

    Returns
    -------
    polars.DataFrame
        ``seq`` (Int64), ``at`` (moment; null: none can be read) and the other fields of
        `Entry` as texts.
    """
    entries = [entry for file in files for entry in _entries(file, faults, bodies)]
    columns = {name: [text_of(getattr(entry, name)) for entry in entries] for name in COLUMNS}
    decided = [entry.decided or {} for entry in entries]
    columns |= {name: [text_of(words.get(name)) for words in decided] for name in DECIDED}
    frame = pl.DataFrame(columns, schema=dict.fromkeys((*COLUMNS, *DECIDED), pl.String))
    return frame.with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        at=stored_moment("at"),
        detail=pl.col("detail").str.slice(0, MOST_DETAIL),
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
            yield replace(entry, size=str(size), body=text if bodies else None)


def _lines(text: str, file: File, faults: Faults) -> Iterator[tuple[int, str, Line]]:
    """The objects of a log; a whole-file object for snapshots."""
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
    """An object inside of a line; empty where there is none."""
    value = line.get(key)
    return value if isinstance(value, dict) else {}


def _audit(line: Line, file: File) -> Iterator[Entry]:
    """One report of an agent: accepted, or rejected with the reason."""
    before, after = _part(line, "before"), _part(line, "after")
    is_accepted = line.get("accepted") is True
    state = text_of(line.get("reportState"))
    yield Entry(
        log="audit",
        directory=file.directory,
        session_id=file.name.removesuffix(".ndjson"),
        at=text_of(line.get("timestamp")),
        kind=f"report.{state}" if is_accepted else "report.rejected",
        previous=text_of(before.get("legacyStatus")),
        status=text_of(after.get("legacyStatus")),
        code=text_of(after.get("sessionReason")),
        name=state,
        role=text_of(line.get("actor")),
        detail=text_of(line.get("note") if is_accepted else line.get("rejectionReason")),
        is_activity="true" if is_accepted else "false",
        is_accepted="true" if is_accepted else "false",
        decided=_reported(before, after) if is_accepted else None,
    )


def _reported(before: Line, after: Line) -> Mapping[str, str | None]:
    """What a report made of the session axis; it says nothing of the others."""
    return {
        "decided_previous": before.get("legacyStatus"),
        "decided_status": after.get("legacyStatus"),
        "previous_session_state": before.get("sessionState"),
        "previous_session_reason": before.get("sessionReason"),
        "session_state": after.get("sessionState"),
        "session_reason": after.get("sessionReason"),
    }


def _polled(data: Line) -> Mapping[str, str | None] | None:
    """What a poll made of all three axes, changed or not; None: the line tells of no poll."""
    if "newSessionState" not in data:
        return None
    return {
        "decided_previous": data.get("oldStatus"),
        "decided_status": data.get("newStatus"),
        **{f"previous_{name}": data.get(f"previous{key}") for name, key in _LOGGED_AS.items()},
        **{name: data.get(f"new{key}") for name, key in _LOGGED_AS.items()},
        "evidence_text": data.get("evidence"),
        "detecting_attempts": data.get("detectingAttempts"),
    }


ALIVE = ("active", "ready")
"""Activities that are a sign of life; waiting and idle agents give none."""


def _activity(line: Line, file: File) -> Iterator[Entry]:
    """What an agent was seen doing."""
    state = text_of(line.get("state"))
    yield Entry(
        log="activity",
        directory=file.directory,
        session_id=legible(file.path.split(os.sep)[-3]),  # noqa: PTH206
        at=text_of(line.get("ts")),
        kind=f"activity.{state}",
        name=state,
        role=text_of(line.get("source")),
        detail=text_of(line.get("trigger")),
        is_activity="true" if state in ALIVE else "false",
    )


def _observability(line: Line, file: File, log: str = "observability") -> Iterator[Entry]:
    """One line of the observability log, or one trace of a process."""
    data = _part(line, "data")
    operation = (
        text_of(line.get("operation")) or text_of(line.get("surface")) or text_of(line.get("kind"))
    )
    is_change = operation == "lifecycle.transition" or "fromStatus" in line
    yield Entry(
        log=log,
        project=text_of(line.get("projectId")),
        session_id=text_of(line.get("sessionId")),
        at=text_of(line.get("timestamp") or line.get("ts")),
        kind=f"observability.{operation}",
        previous=text_of(data.get("oldStatus") or line.get("fromStatus")) if is_change else None,
        status=text_of(data.get("newStatus") or line.get("toStatus")) if is_change else None,
        code=text_of(line.get("reason")),
        name=text_of(line.get("outcome") or line.get("status")),
        role=text_of(line.get("component")),
        detail=text_of(data.get("evidence")) or text_of(line.get("reason")),
        level=text_of(line.get("level")),
        correlation=text_of(line.get("correlationId")),
        duration_ms=text_of(line.get("durationMs")),
        decided=_polled(data),
    )


def _traces(line: Line, file: File) -> Iterator[Entry]:
    """The newest traces that a process kept of itself, oldest first."""
    traces = line.get("traces")
    for trace in reversed(traces if isinstance(traces, list) else []):
        if isinstance(trace, dict):
            yield from _observability(trace, file, "trace")


def _notification(line: Line, file: File) -> Iterator[Entry]:
    """An event as a notifier got it, with or without its envelope."""
    event = _part(line, "event") or line
    data, at = _part(event, "data"), event.get("timestamp") or line.get("receivedAt")
    change = _part(data, "transition")
    is_status = change.get("kind") == "session_status" or not change
    yield Entry(
        log="notification",
        project=text_of(event.get("projectId")),
        session_id=text_of(event.get("sessionId")),
        at=text_of(at),
        kind=f"notification.{text_of(event.get('type'))}",
        previous=text_of(change.get("from") or data.get("oldStatus")) if is_status else None,
        status=text_of(change.get("to") or data.get("newStatus")) if is_status else None,
        name=text_of(data.get("reactionKey") or event.get("type")),
        detail=text_of(event.get("message")),
        level=text_of(event.get("priority")),
    )


def _recovery(line: Line, file: File) -> Iterator[Entry]:
    """What a recovery did to a session."""
    action = text_of(line.get("action"))
    yield Entry(
        log="recovery",
        directory=file.directory,
        session_id=text_of(line.get("sessionId")),
        at=text_of(line.get("timestamp")),
        kind=f"recovery.{action}",
        name=text_of(line.get("previousStatus")),
        code=text_of(line.get("reason")),
        detail=text_of(line.get("error") or line.get("reason") or line.get("details")),
    )


def _feedback(text: str, file: File, faults: Faults, bodies: bool) -> Iterator[Entry]:
    """One feedback report: a bug, or a wish."""
    try:
        record = key_value_record(text)
    except NoRecordError as error:
        faults.add(Fault("record.unreadable", "warning", str(error), faults.below(file.path)))
        return
    yield Entry(
        log="feedback",
        directory=file.directory,
        session_id=record.get("session"),
        at=record.get("createdAt"),
        kind=f"feedback.{record.get('tool')}",
        name=record.get("id"),
        role=record.get("source"),
        detail=record.get("title"),
        code=record.get("dedupeKey"),
        body=record.get("body") if bodies else None,
        size=str(len(text)),
    )


READERS: Mapping[Kind, Callable[[Line, File], Iterator[Entry]]] = {
    Kind.AUDIT: _audit,
    Kind.ACTIVITY: _activity,
    Kind.OBSERVABILITY: _observability,
    Kind.TRACES: _traces,
    Kind.NOTIFICATIONS: _notification,
    Kind.RECOVERY: _recovery,
}
