"""A real copy of a store of lionagi as it was at an instant.

Written from the tables alone, row by row, and with nothing of the product: rows that were
written later are removed, cells that were written over later are set back as the history
says, and what nobody recorded is null.

* A row was there once it was created (where that has no column: once it was started).
* It was written later where its own ``updated_at`` or ``ended_at``, or a transition of it,
  says so; or where it is over and no moment at all says since when.
* Its status and reason are then those of the newest transition up to the instant, else its
  status is what the first transition after the instant says was before, else unknown.
* An end or a start that lies later is removed, and the end of what was open then too; the
  end of what was resumed later is its transition.
* Messages that came later leave the lists that name them; the last message is the newest
  one that is left.
* Verdicts, tokens, cost, turns, exit codes, errors and plans of the next fire have no
  history, and are null in a row that was written later.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

TYPES = {
    "sessions": "session",
    "branches": "branch",
    "invocations": "invocation",
    "shows": "show",
    "plays": "play",
    "teams": "team",
    "schedules": "schedule",
    "schedule_runs": "schedule_run",
    "engine_runs": "engine_run",
    "dispatch_outbox": "dispatch",
}
ALIASES = {**TYPES, "run": "session"}
OPEN = {
    "session": ("running",),
    "branch": ("running",),
    "invocation": ("running",),
    "show": ("active", "imported"),
    "play": ("pending", "prepared", "running", "redoing", "running_complete", "gated"),
    "team": ("active",),
    "schedule": ("enabled", "disabled"),
    "schedule_run": ("queued", "waiting_dependency", "running", "retry_wait"),
    "engine_run": ("running",),
    "dispatch": ("pending", "delivering"),
}
_PROCESS_ENDS = ("completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled")
OVER = {
    **dict.fromkeys(("session", "branch", "invocation"), _PROCESS_ENDS),
    "show": ("completed", "aborted"),
    "play": ("merged", "gate_failed", "escalated", "blocked", "aborted_after_finish"),
    "team": ("archived",),
    "schedule": ("deleted",),
    "schedule_run": ("completed", "timed_out", "cancelled", "failed", "skipped"),
    "engine_run": ("completed", "failed", "cancelled"),
    "dispatch": ("delivered", "acked", "dead_letter", "expired"),
}
NO_HISTORY = (
    *("artifact_verification_json", "input_tokens", "output_tokens", "total_cost_usd"),
    *("num_turns", "duration_ms", "exit_code", "gate_feedback", "error_detail", "last_error"),
    *("error", "member_count", "attempt", "lease_attempts", "health", "delivery", "reason_codes"),
)
FIRES = ("last_fired_at", "last_evaluated_at", "last_healthy_poll_at")
"""What a schedule writes with every fire; ``updated_at`` may stay as it was."""
PLANS = ("next_fire_at", "expires_at", "lease_expires_at", "next_attempt_at")
"""Moments that lie ahead of their row, and so say nothing of when it was written."""
_FIRST_S, _LAST_S = 946_684_800, 4_102_444_800  # the years 2000 and 2100; others are no moments


def micros(value: Any) -> int | None:
    """Microseconds since 1970 of what a cell holds, where that is a moment."""
    is_moment = isinstance(value, int | float) and _FIRST_S <= value <= _LAST_S
    return round(value * 1e6) if is_moment else None


def instants(store: Path) -> list[datetime]:
    """Every instant at which something in a store changed, oldest first."""
    with closing(_opened(store)) as db:
        columns = [
            (table, name)
            for table in _tables(db)
            for name, _ in _columns(db, table)
            if (name.endswith("_at") or name == "ts") and name not in PLANS
        ]
        cells = (
            cell
            for table, name in columns
            for (cell,) in db.execute(f'SELECT DISTINCT "{name}" FROM "{table}"')
        )
        moments = {micros(cell) for cell in cells}
        return [_moment(at) for at in sorted(at for at in moments if at is not None)]


def cut_off(store: Path, at: datetime, to: Path) -> Path:
    """Write the copy of a store as it was at an instant to a path, which is given back."""
    limit = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    with closing(sqlite3.connect(to, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        db.execute("ATTACH ? AS whole", (f"file:{store}?mode=ro&immutable=1",))
        # SQLite rounds a half away from zero, Python to the even one.
        db.create_function("micros", 1, micros, deterministic=True)
        db.execute("BEGIN")
        _copy_without_constraints(db)
        history = _history(db)
        _remove_later_rows(db, limit)
        listed = _cut_lists(db, limit)
        for table, entity_type in TYPES.items():
            if table in _tables(db):
                _set_back(db, table, entity_type, history, limit, listed)
        _set_decisions_back(db, limit)
        _clear_later_moments(db, limit)
        db.execute("COMMIT")
        db.execute("DETACH whole")
    return to


def _opened(store: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{store}?mode=ro&immutable=1", uri=True)


def _moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def _tables(db: sqlite3.Connection, schema: str = "main") -> list[str]:
    query = f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' ORDER BY name"
    return [name for (name,) in db.execute(query) if not name.startswith("sqlite_")]


def _columns(db: sqlite3.Connection, table: str, schema: str = "main") -> list[tuple[str, str]]:
    return [(row[1], row[2]) for row in db.execute(f'PRAGMA {schema}.table_info("{table}")')]


def _rows(db: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    found = db.execute(f'SELECT rowid AS _row, * FROM "{table}" ORDER BY rowid')
    names = [column[0] for column in found.description]
    return iter([dict(zip(names, row, strict=True)) for row in found])


def _copy_without_constraints(db: sqlite3.Connection) -> None:
    """Null must be allowed where nobody recorded what was there."""
    for table in _tables(db, "whole"):
        columns = _columns(db, table, "whole")
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns)
        names = ", ".join(f'"{name}"' for name, _ in columns)
        db.execute(f'CREATE TABLE "{table}" ({declared})')
        db.execute(
            f'INSERT INTO "{table}" (rowid, {names}) SELECT rowid, {names} FROM whole."{table}"'
        )


def _history(db: sqlite3.Connection) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The transitions of each entity, oldest first."""
    history = defaultdict(list)
    if "status_transitions" in _tables(db):
        for row in _rows(db, "status_transitions"):
            if (at := micros(row["created_at"])) is not None:
                key = (ALIASES.get(row["entity_type"], row["entity_type"]), row["entity_id"])
                history[key].append({**row, "at": at})
    for changes in history.values():
        changes.sort(key=lambda change: (change["at"], change["_row"]))
    return history


def _remove_later_rows(db: sqlite3.Connection, limit: int) -> None:
    # A list belongs to what it lists the messages of, whenever its own row was written.
    for table in set(_tables(db)) - {"progressions"}:
        names = [name for name, _ in _columns(db, table)]
        born = [name for name in ("created_at", "ts", "started_at", "fired_at") if name in names]
        if not born:
            continue
        later = [(row["_row"],) for row in _rows(db, table) if (_first(row, born) or 0) > limit]
        db.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', later)


def _first(row: dict[str, Any], columns: list[str]) -> int | None:
    """The first moment that a row names, in the order of the columns."""
    return next((at for name in columns if (at := micros(row[name])) is not None), None)


def _cut_lists(db: sqlite3.Connection, limit: int) -> dict[str, list[int]]:
    """Take later messages out of the lists; the moments of what each list still names."""
    query = "SELECT id, created_at FROM whole.messages"
    moments = {name: at for name, cell in db.execute(query) if (at := micros(cell)) is not None}
    listed = {}
    for row in _rows(db, "progressions"):
        try:
            names = json.loads(row["collection"])
        except (TypeError, ValueError):
            continue
        if not isinstance(names, list):
            continue
        kept = [name for name in names if _of(moments, name) <= limit]
        listed[row["id"]] = [moments[name] for name in kept if _of(moments, name)]
        if len(kept) < len(names):
            db.execute(
                "UPDATE progressions SET collection = ? WHERE rowid = ?",
                (json.dumps(kept), row["_row"]),
            )
    return listed


def _of(moments: dict[str, int], name: Any) -> int:
    """When a message came; long ago where nobody knows."""
    return moments.get(name, 0) if isinstance(name, str) else 0


def _set_back(
    db: sqlite3.Connection,
    table: str,
    entity_type: str,
    history: dict[tuple[str, str], list[dict[str, Any]]],
    limit: int,
    listed: dict[str, list[int]],
) -> None:
    """Give the rows of one table the values that they had."""
    talk = _talk(db, table, listed)
    status_column = "enabled" if table == "schedules" else "status"
    for row in _rows(db, table):
        changes = history.get((entity_type, row["id"]), [])
        before = [change for change in changes if change["at"] <= limit]
        after = [change for change in changes if change["at"] > limit]
        then: dict[str, Any] = {}
        if _is_later(row.get("last_message_at"), limit):
            then["last_message_at"] = max(talk.get(row["id"], []), default=None)
        if table == "schedules":
            then.update(_fires(db, row, limit))
        if _was_written_later(row, entity_type, bool(changes), after, limit):
            status, change = _status_then(before, after)
            then.update(_reason(change))
            then.update(dict.fromkeys(NO_HISTORY))
            then[status_column] = status
            if table == "schedules":
                then["enabled"] = {"enabled": 1, "disabled": 0}.get(status or "")
                then["next_fire_at"] = None
            if _is_later(row.get("updated_at"), limit):
                then["updated_at"] = None
            then["ended_at"] = _end(row, entity_type, status, change, limit)
            if then["ended_at"] != row.get("ended_at"):
                then["ended_at_is_approximate"] = None
            if table == "invocations":
                query = "SELECT count(*) FROM sessions WHERE invocation_id = ?"
                then["session_count"] = db.execute(query, (row["id"],)).fetchone()[0]
        if _is_later(row.get("started_at"), limit):
            then["started_at"] = None
        if table == "plays" and not _is_there(db, "sessions", row["session_id"]):
            then["session_id"] = None
        changed = {name: value for name, value in then.items() if name in row}
        if changed:
            cells = ", ".join(f'"{name}" = ?' for name in changed)
            db.execute(
                f'UPDATE "{table}" SET {cells} WHERE rowid = ?', (*changed.values(), row["_row"])
            )


def _is_there(db: sqlite3.Connection, table: str, name: str | None) -> bool:
    query = f"SELECT count(*) FROM {table} WHERE id = ?"
    return bool(db.execute(query, (name,)).fetchone()[0])


def _talk(db: sqlite3.Connection, table: str, listed: dict[str, list[int]]) -> dict[str, list]:
    """The moments of the messages of each session, in seconds."""
    talk: dict[str, list] = defaultdict(list)
    if table != "sessions":
        return talk
    for query in (
        "SELECT id, progression_id FROM sessions",
        "SELECT session_id, progression_id FROM branches",
    ):
        for session, progression in db.execute(query):
            talk[session] += [at / 1e6 for at in listed.get(progression, [])]
    return talk


def _is_later(cell: Any, limit: int) -> bool:
    at = micros(cell)
    return at is not None and at > limit


def _was_written_later(
    row: dict[str, Any], entity_type: str, has_history: bool, after: list, limit: int
) -> bool:
    moments = [micros(row.get(name)) for name in ("updated_at", "ended_at")]
    known = [at for at in moments if at is not None]
    is_over = row.get("status") in OVER[entity_type]
    return (
        bool(after)
        or any(at > limit for at in known)
        or (is_over and not known and not has_history)
    )


def _status_then(before: list, after: list) -> tuple[str | None, dict[str, Any] | None]:
    if before:
        return before[-1]["status"], before[-1]
    return (after[0]["previous_status"] if after else None), None


def _reason(change: dict[str, Any] | None) -> dict[str, Any]:
    said = change or {}
    return {
        "status_reason_code": said.get("reason_code"),
        "status_reason_summary": said.get("reason_summary"),
        "status_evidence_refs": said.get("evidence_refs"),
    }


def _end(
    row: dict[str, Any],
    entity_type: str,
    status: str | None,
    change: dict[str, Any] | None,
    limit: int,
) -> Any:
    end = row.get("ended_at")
    if status in OPEN[entity_type]:
        return None
    if end is not None and not _is_later(end, limit):
        return end
    return change["created_at"] if change and status in OVER[entity_type] else None


def _fires(db: sqlite3.Connection, row: dict[str, Any], limit: int) -> dict[str, Any]:
    """Of a schedule what its fires up to then tell."""
    later = [name for name in FIRES if _is_later(row.get(name), limit)]
    then: dict[str, Any] = dict.fromkeys(later)
    if later:
        then["next_fire_at"] = None
    if "last_fired_at" in later:
        query = "SELECT max(fired_at) FROM schedule_runs WHERE schedule_id = ?"
        fired_at = db.execute(query, (row["id"],)).fetchone()[0]
        then["last_fired_at"] = None if _is_later(fired_at, limit) else fired_at
    return then


def _clear_later_moments(db: sqlite3.Connection, limit: int) -> None:
    """Whatever else says when something was done, and says so too late."""
    for table in _tables(db):
        for name, _ in _columns(db, table):
            if name.endswith("_at") and name not in PLANS:
                later = f'micros("{name}") > {limit}'
                db.execute(f'UPDATE "{table}" SET "{name}" = NULL WHERE {later}')


def _set_decisions_back(db: sqlite3.Connection, limit: int) -> None:
    """What operators had decided about items: the last word on each, up to then."""
    if "attention_disposition_history" not in _tables(db):
        return
    names = ("item_id", "new_state", "note", "actor", "source_status", "created_at")
    query = (
        f"SELECT {', '.join(names)} FROM whole.attention_disposition_history "
        "ORDER BY created_at, sequence"
    )
    words = [dict(zip(names, row, strict=True)) for row in db.execute(query)]
    for item in {word["item_id"] for word in words}:
        mine = [word for word in words if word["item_id"] == item]
        later = [word for word in mine if _is_later(word["created_at"], limit)]
        if not later:
            continue
        db.execute("DELETE FROM attention_dispositions WHERE item_id = ?", (item,))
        before = [word for word in mine if word not in later]
        if not before or before[-1]["new_state"] == "open":
            continue
        said = before[-1]
        db.execute(
            "INSERT INTO attention_dispositions "
            "(item_id, state, note, actor, source_status, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                item,
                *(said[name] for name in ("new_state", "note", "actor", "source_status")),
                mine[0]["created_at"],
                said["created_at"],
            ),
        )
