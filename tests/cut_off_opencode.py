"""A real copy of what opencode left behind, as it was at an instant.

Written from the JSON and the tables alone, record by record, and with nothing of the product:
records that were written later are removed, and of a record that was written over later
all that was written with its end is.

* An event happened at its own moment; where it names none, its id does.
* A message, a part, a session was there once it was created.
* What a message says of its end (finish, error, tokens, cost, content) was written when it
  was completed; what a part says of its end, when that was.
* The row of a session that was updated later says nothing of cost, tokens, model or outcome.
* A line of a stream was written when its event happened, one of ``run --format json`` at its
  timestamp; what a message says of its end in a line is subject to the same.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TABLES = ("event", "session", "session_v2", "session_message", "message", "part",
          "session_input", "session_pending", "session_inbox")  # fmt: skip
END_OF_MESSAGE = ("finish", "rawFinish", "error", "tokens", "cost", "content", "retry")
UPDATE_OF_SESSION = (
    *("cost", "tokens", "tokens_input", "tokens_output", "agent", "model", "resume_attempts"),
    *("idle_outcome",),
)
RUN_TYPES = ("step_start", "text", "reasoning", "tool_use", "step_finish", "error")
PLANS = ("at", "next", "retry")
"""What lies ahead of the record that names it, and so says nothing of when it was written."""
_FIRST_MS, _LAST_MS = 1_600_000_000_000, 2_000_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instants(path: Path) -> list[datetime]:
    """Every instant that a database, a log, a stream or an export names, oldest first."""
    numbers = {ms for record in _everything(path) for ms in _moments(record)}
    return [_EPOCH + timedelta(milliseconds=ms) for ms in sorted(numbers)]


def cut_off(path: Path, at: datetime, to: Path) -> Path:
    """Write the copy as it was at an instant to a path, which is given back."""
    limit = (at - _EPOCH) // timedelta(milliseconds=1)
    if _is_database(path):
        _cut_database(path, limit, to)
    elif (document := _export(path)) is not None:
        to.write_text(json.dumps(_export_then(document, limit)))
    else:
        lines = (_line_then(line, limit) for line in path.read_text().splitlines())
        to.write_text("".join(f"{line}\n" for line in lines if line is not None))
    return to


def _is_database(path: Path) -> bool:
    return path.read_bytes()[:15] == b"SQLite format 3"


def _export(path: Path) -> Json | None:
    try:
        document = json.loads(path.read_text())
    except ValueError:
        return None
    return document if "messages" in document else None


def _everything(path: Path) -> Iterator[Any]:
    if _is_database(path):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            for table in _tables(db):
                for row in _rows(db, table):
                    yield {**row, "data": json.loads(row["data"]) if "data" in row else None}
                    if table == "event":
                        yield {"happened": _happened(row, json.loads(row["data"]))}
    elif (document := _export(path)) is not None:
        yield document
    else:
        for line in path.read_text().splitlines():
            record = _record(line)
            if record is not None:
                yield record
                yield {"happened": _happened(_event(record), _event(record).get("data") or {})}


def _moments(value: Any, name: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _moments(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _moments(inner, name)
    elif isinstance(value, int) and _FIRST_MS <= value <= _LAST_MS and name not in PLANS:
        yield value


def _tables(db: sqlite3.Connection) -> list[str]:
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in TABLES if name in there]


def _rows(db: sqlite3.Connection, table: str) -> list[Json]:
    found = db.execute(f"SELECT * FROM {table} ORDER BY rowid")
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def _cut_database(path: Path, limit: int, to: Path) -> None:
    """The tables that hold work, without their constraints: null must be allowed."""
    rows_then = {
        "event": _event_row, "session": _session_row, "session_v2": _session_row,
        "message": _message_row, "session_message": _message_row, "part": _part_row,
    }  # fmt: skip
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as whole,
        closing(sqlite3.connect(to)) as db,
    ):
        for table in _tables(whole):
            names = [row[1] for row in whole.execute(f"PRAGMA table_info({table})")]
            db.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            then = [rows_then.get(table, _other_row)(row, limit) for row in _rows(whole, table)]
            db.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})",
                [[row[name] for name in names] for row in then if row is not None],
            )
        db.commit()


def _event_row(row: Json, limit: int) -> Json | None:
    return None if _is_later(_happened(row, json.loads(row["data"])), limit) else row


def _session_row(row: Json, limit: int) -> Json | None:
    if _is_later(row["time_created"], limit):
        return None
    then = dict(row)
    for name in ("time_updated", "time_archived", "time_suspended"):
        if name in row and _is_later(row[name], limit):
            then[name] = None
    if _is_later(row["time_updated"], limit):
        then |= {name: None for name in UPDATE_OF_SESSION if name in row}
    return then


def _message_row(row: Json, limit: int) -> Json | None:
    then = message_then(json.loads(row["data"]), limit)
    if then is None or _is_later(row["time_created"], limit):
        return None
    return {**row, "data": json.dumps(then)}


def _part_row(row: Json, limit: int) -> Json | None:
    if _is_later(row["time_created"], limit):
        return None
    then = part_then(json.loads(row["data"]), limit, is_dated=True)
    return {**row, "data": json.dumps(then)}


def _other_row(row: Json, limit: int) -> Json | None:
    return None if _is_later(row.get("time_created"), limit) else row


def _is_later(ms: Any, limit: int) -> bool:
    return isinstance(ms, int) and ms > limit


def message_then(info: Json, limit: int) -> Json | None:
    """A message as it was; None: it did not exist."""
    time = info.get("time") or {}
    if _is_later(time.get("created"), limit):
        return None
    if not _is_later(time.get("completed"), limit):
        return info
    then = {name: value for name, value in info.items() if name not in END_OF_MESSAGE}
    return {**then, "time": {"created": time.get("created")}}


def part_then(part: Json, limit: int, *, is_dated: bool = False) -> Json | None:
    """A part as it was; None: it did not exist, where its own row does not say that it did."""
    state = part.get("state")
    time = (state or part).get("time") or {}
    begun_later = _is_later(time.get("start"), limit)
    if begun_later and not is_dated:
        return None
    if not begun_later and not _is_later(time.get("end"), limit):
        return part
    then = {name: value for name, value in part.items() if name not in ("text", "time", "state")}
    kept = {} if begun_later else {"time": {"start": time["start"]}}
    if state is None:
        return {**then, **kept}
    if begun_later:
        return {**then, "state": {"status": "pending"}}
    # opencode writes the input when a call begins to run.
    kept |= {"input": state["input"]} if "input" in state else {}
    return {**then, "state": {"status": "running", **kept}}


def session_then(info: Json, limit: int) -> Json | None:
    """A session of a stream or an export as it was; None: it did not exist."""
    time = dict(info.get("time") or {})
    if _is_later(time.get("created"), limit):
        return None
    is_written = _is_later(time.get("updated"), limit)
    then = {
        name: value
        for name, value in info.items()
        if not (is_written and name in UPDATE_OF_SESSION)
    }
    return {**then, "time": {name: ms for name, ms in time.items() if not _is_later(ms, limit)}}


def _export_then(document: Json, limit: int) -> Json:
    pairs = [
        {
            "info": message_then(pair["info"], limit),
            "parts": [part for each in pair["parts"] if (part := part_then(each, limit))],
        }
        for pair in document["messages"]
    ]
    return {
        "info": session_then(document["info"], limit) or {},
        "messages": [pair for pair in pairs if pair["info"] is not None],
    }


def _record(line: str) -> Json | None:
    text = line.strip().removeprefix("data:").strip()
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _event(record: Json) -> Json:
    """What of a record of a stream is the event."""
    inner = record.get("payload", record)
    return inner.get("syncEvent", inner) if isinstance(inner, dict) else record


def _line_then(line: str, limit: int) -> str | None:
    """A line as it was written, or as it would have been; None: it was not there."""
    record = _record(line)
    if record is None:
        return line
    event = _event(record)
    kind = re.sub(r"\.\d+$", "", str(event.get("type")))
    if kind in RUN_TYPES and "timestamp" in record:
        return None if _is_later(record["timestamp"], limit) else line
    body = event.get("properties") or event.get("data") or {}
    if _is_later(_happened(event, event.get("data") or {}), limit):
        return None
    then = {
        "message.updated": message_then,
        "message.part.updated": part_then,
        "session.created": session_then,
        "session.updated": session_then,
    }.get(kind)
    name = "part" if kind == "message.part.updated" else "info"
    if then is None or name not in body:
        return line
    left = then(body[name], limit)
    body[name] = left
    return None if left is None else json.dumps(record)


def _happened(event: Json, data: Json) -> int | None:
    """When an event happened: as it says, as what it carries says, or as its id does."""
    for moment in (event.get("created"), data.get("timestamp"), event.get("timestamp")):
        if isinstance(moment, int) and moment > 0:
            return moment
    digits = re.match(r"(?:evt|msg|prt|per)_([0-9a-f]{12})", str(event.get("id")))
    if digits is None:
        return None
    # Twelve digits hold the milliseconds, modulo 2.18 years, and a counter of 4096.
    short, cycle = int(digits[1], 16) // 4096, 2**36
    return short + round((1_795_220_000_000 - short) / cycle) * cycle
