"""A real copy of a tree of Agent Orchestrator as it was at an instant.

Written from the files alone, and with nothing of the product:

* Lines of logs, rows of events, traces and feedback that came later are removed.
* A session that was created later has no record.
* A record that was last written by then, by its own moments, is copied as it is. One
  without a lifecycle and a date of its archive does not say when it was written.
* An archive that was put away later was an active record then; an active record whose
  session was put away by then, with nothing logged since, was not there.
* Any other record is set back: its axes to what the newest line up to then says, else to
  what the first line after says was before; a line that names a status only, and another
  one than the axes make, leaves the status alone. What no line tells stands as an older one
  told it.
* A moment up to then stays, with what was written with it; whatever else changes is gone.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ARCHIVE = re.compile(r"^(.+)_(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3})Z$")
AXES = {"session": "Session", "pr": "PR", "runtime": "Runtime"}
WORDS = tuple((axis, part) for axis in AXES for part in ("state", "reason"))
PULL_REQUESTS = {
    "pr_open": "in_progress",
    "ci_failed": "ci_failing",
    "changes_requested": "changes_requested",
    "review_pending": "review_pending",
    "approved": "approved",
    "mergeable": "merge_ready",
}
BY_END = {
    "manually_killed": "killed",
    "runtime_lost": "killed",
    "auto_cleanup": "cleanup",
    "pr_merged": "cleanup",
    "error_in_process": "errored",
    "probe_failure": "errored",
}
IDENTITY = (
    *("worktree", "branch", "tmuxName", "project", "agent", "role", "createdAt", "issue"),
    *("issueTitle", "displayName", "codexModel", "runtimeHandle", "stateVersion"),
)
WRITTEN_WITH = {
    "restoredAt": (),
    "detectingStartedAt": (),
    "detectingEscalatedAt": (),
    "mergedPendingCleanupSince": (),
    "terminatedAt": ("terminationReason",),
    "escalatedAt": ("escalationReason",),
    "reportWatcherTriggerActivatedAt": ("reportWatcherActiveTrigger",),
    "agentReportedAt": ("agentReportedState", "agentReportedNote"),
}
MOMENTS = (*WRITTEN_WITH, "createdAt")
Line = dict[str, Any]


def moment(text: Any) -> datetime | None:
    """A stored text as a moment; None where it is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def instants(tree: Path) -> list[datetime]:
    """Every instant at which something in a tree changed, oldest first."""
    found = {line["at"] for line in _lines(tree)}
    for path in _records(tree):
        found |= set(_moments(_parsed(path)))
        if put_away := _put_away(path):
            found.add(put_away)
    return sorted(at for at in found if at is not None)


def cut_off(tree: Path, at: datetime, to: Path) -> Path:
    """Write the copy of a tree as it was at an instant to a directory, which is given back."""
    history = _history(tree)
    records = set(_records(tree))
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        copy = to / path.relative_to(tree)
        if path in records:
            copy, content = _record_then(path, copy, records, history, at)
        elif path.suffix == ".db":
            _cut_events(path, copy, at)
            continue
        else:
            content = _log_then(path, at)
        if content is not None:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    return to


def _records(tree: Path) -> Iterator[Path]:
    """Files of sessions: active ones and archives, not what lies beside them."""
    for path in sorted(tree.rglob("*")):
        folder = path.parent.parent if path.parent.name == "archive" else path.parent
        is_name = re.fullmatch(r"[A-Za-z0-9_-]+(\.json)?", path.name)
        if path.is_file() and folder.name == "sessions" and is_name:
            yield path


def _session(path: Path) -> str:
    archive = ARCHIVE.match(path.name)
    return archive[1] if archive else path.name.removesuffix(".json")


def _put_away(path: Path) -> datetime | None:
    archive = ARCHIVE.match(path.name)
    if archive is None:
        return None
    _, day, hour, minute, second, ms = archive.groups()
    return moment(f"{day}T{hour}:{minute}:{second}.{ms}Z")


def _parsed(path: Path) -> Line:
    """A record as flat keys, its lifecycle as an object; empty where it cannot be read."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        try:
            record = json.loads(text)
        except ValueError:
            return {}
        return record if isinstance(record, dict) else {}
    pairs = (line.strip().partition("=") for line in text.split("\n") if not line.startswith("#"))
    record = {key.strip(): value.strip() for key, equals, value in pairs if equals}
    if record.get("stateVersion") == "2":
        record["lifecycle"] = json.loads(record.pop("statePayload"))
    return record


def _life(record: Line) -> Line:
    life = record.get("lifecycle")
    return life if isinstance(life, dict) else {}


def _moments(record: Line) -> Iterator[datetime]:
    """When something of a record was written."""
    texts = [record.get(key) for key in MOMENTS] + [_enriched_at(record)]
    for axis in _life(record).values():
        if isinstance(axis, dict):
            texts += [value for key, value in axis.items() if key.endswith("At")]
    yield from (at for text in texts if (at := moment(text)))


def _enriched_at(record: Line) -> Any:
    try:
        return json.loads(record["prEnrichment"])["enrichedAt"]
    except (KeyError, TypeError, ValueError):
        return None


# --- logs --------------------------------------------------------------------------------


def _line_at(line: Line) -> datetime | None:
    event = line["event"] if isinstance(line.get("event"), dict) else line
    return moment(event.get("timestamp") or line.get("ts") or line.get("receivedAt"))


def _log_then(path: Path, at: datetime) -> bytes | None:
    """The lines of a log up to an instant; any other file as it is."""
    if path.suffix == ".kv":
        created = re.search(r"^createdAt=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return path.read_bytes() if created and (moment(created[1]) or at) <= at else None
    if path.parent.name == "processes" and path.suffix == ".json":
        snapshot = json.loads(path.read_text(encoding="utf-8"))
        snapshot["traces"] = [line for line in snapshot["traces"] if (_line_at(line) or at) <= at]
        return json.dumps(snapshot).encode()
    if ".ndjson" not in path.name and path.suffix not in (".jsonl", ".log"):
        return path.read_bytes()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if (_line_at(json.loads(line)) or at) <= at).encode()


def _cut_events(path: Path, copy: Path, at: datetime) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as db:
        limit_ms = (at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("DELETE FROM activity_events WHERE ts_epoch > ?", (limit_ms,))
        db.commit()


def _lines(tree: Path) -> list[Line]:
    """What every line of every log says of its session, oldest first."""
    found: list[Line] = []
    for path in sorted(tree.rglob("*.ndjson*")) + sorted(tree.rglob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            found += _said(path, json.loads(text))
    for path in sorted(tree.rglob("activity-events.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            query = "SELECT ts, session_id, type, data FROM activity_events ORDER BY id"
            for ts, session, kind, data in db.execute(query):
                found += _happened(moment(ts), session, kind, json.loads(data or "{}"))
    return sorted(found, key=lambda line: line["at"])


def _said(path: Path, line: Line) -> Iterator[Line]:
    at = _line_at(line)
    if at is None:
        return
    if path.parent.name == ".agent-report-audit":
        if line.get("accepted") is True:
            yield _reported(path.stem, at, line)
        return
    event = line["event"] if isinstance(line.get("event"), dict) else line
    session, data = event.get("sessionId"), event.get("data") or {}
    change = data.get("transition") or {}
    if "newSessionState" in data:
        yield _only(at, session, data.get("oldStatus"), data.get("newStatus")) | {
            "before": _words(data, "previous"), "words": _words(data, "new"),
            "evidence": data.get("evidence"), "attempts": data.get("detectingAttempts"),
        }  # fmt: skip
    elif change.get("kind") == "session_status" or (not change and "newStatus" in data):
        old, new = data.get("oldStatus", change.get("from")), data.get("newStatus")
        yield _only(at, session, old, new or change.get("to"))
    else:
        yield _only(at, session, None, None)


def _words(data: Line, prefix: str) -> dict[tuple[str, str], Any]:
    return {
        (axis, part): data.get(f"{prefix}{AXES[axis]}{part.capitalize()}") for axis, part in WORDS
    }


def _only(at: datetime | None, session: Any, old: Any, new: Any) -> Line:
    """A line that names a status at most."""
    return {
        "at": at, "session": session, "status": new, "status_before": old, "words": {},
        "before": {}, "evidence": None, "attempts": None,
    }  # fmt: skip


def _reported(session: str, at: datetime, line: Line) -> Line:
    sides = []
    for side in ("before", "after"):
        said = line[side]
        state, shown = said["sessionState"], said["legacyStatus"]
        words = {("session", "state"): state, ("session", "reason"): said["sessionReason"]}
        if state in ("working", "idle") and shown == "merged":
            words |= {("pr", "state"): "merged", ("pr", "reason"): "merged"}
        elif state in ("working", "idle") and shown in PULL_REQUESTS:
            words |= {("pr", "state"): "open", ("pr", "reason"): PULL_REQUESTS[shown]}
        sides.append((words, shown))
    (before, old), (after, new) = sides
    return _only(at, session, old, new) | {
        "words": after,
        "before": before,
        "report": {
            "agentReportedState": line["reportState"],
            "agentReportedAt": line["timestamp"],
            "agentReportedNote": line.get("note"),
        },
    }


def _happened(at: datetime | None, session: Any, kind: str, data: Line) -> Iterator[Line]:
    if kind == "lifecycle.transition":
        yield _only(at, session, data.get("from"), data.get("to"))
    elif kind == "session.killed":
        words = {("session", "state"): "terminated", ("session", "reason"): data["reason"]}
        yield _only(at, session, None, None) | {"words": words}
    else:
        yield _only(at, session, None, None)


def _history(tree: Path) -> dict[str, list[Line]]:
    history: dict[str, list[Line]] = {}
    for line in _lines(tree):
        if line["status"] or line["words"] or line.get("report"):
            history.setdefault(line["session"], []).append(line)
    return history


# --- records -----------------------------------------------------------------------------


def _record_then(
    path: Path, copy: Path, records: Iterable[Path], history: dict[str, list[Line]], at: datetime
) -> tuple[Path, bytes | None]:
    """Where a record lay and what it held; None: it was not there."""
    record, put_away, session = _parsed(path), _put_away(path), _session(path)
    if not record:
        return copy, path.read_bytes()
    begun = (record.get("createdAt"), _life(record).get("session", {}).get("startedAt"))
    if next((born for text in begun if (born := moment(text))), at) > at:
        return copy, None
    if put_away is not None and put_away <= at:
        return copy, path.read_bytes()
    others = [other for other in records if other != path and _session(other) == session]
    lines = [line for line in history.get(session, []) if line["at"] <= at]
    if _is_written_by(record, put_away, at):
        return copy, path.read_bytes()
    ends = [_put_away(other) for other in others]
    before = [end for end in ends if end is not None and end <= at]
    told = [*(line["at"] for line in lines), *_writes(record)]
    if before and max(before) >= max((one for one in told if one <= at), default=max(before)):
        return copy, None
    if put_away is not None:
        if any(end is None or end > put_away for end in ends):
            return copy, None
        copy = copy.parent.parent / (session + copy.suffix)
    return copy, _set_back(record, lines, history.get(session, []), at, path.suffix == ".json")


def _is_written_by(record: Line, put_away: datetime | None, at: datetime) -> bool:
    moved_at = moment(_life(record).get("session", {}).get("lastTransitionAt"))
    if put_away is None and moved_at is None:
        return False
    return max([*_writes(record), *([put_away] if put_away else [])]) <= at


def _writes(record: Line) -> list[datetime]:
    """Its moments but those of its beginning."""
    begun = (record.get("createdAt"), _life(record).get("session", {}).get("startedAt"))
    return [at for at in _moments(record) if at not in map(moment, begun)]


def _set_back(
    record: Line, lines: list[Line], all_lines: list[Line], at: datetime, is_json: bool
) -> bytes:
    words, status, decided_at, since = _stood(lines, all_lines, at)
    then = {key: record[key] for key in IDENTITY if key in record}
    for key, others in WRITTEN_WITH.items():
        if (moment(record.get(key)) or at + timedelta(1)) <= at:
            then |= {name: record[name] for name in (key, *others) if name in record}
    if (moment(_enriched_at(record)) or at + timedelta(1)) <= at:
        then |= {k: record[k] for k in ("prEnrichment", "prReviewComments") if k in record}
    if "agentReportedAt" not in then:
        reports = [line["report"] for line in lines if line.get("report")]
        then |= {key: value for key, value in (reports[-1] if reports else {}).items() if value}
    seen = [line["evidence"] for line in lines if line["evidence"] is not None]
    tries = [line["attempts"] for line in lines if line["attempts"] is not None]
    then |= {"lifecycleEvidence": seen[-1]} if seen else {}
    then |= {"detectingAttempts": str(tries[-1])} if tries else {}
    then |= {"status": status} if status else {}
    old = _life(record)
    is_observed = (moment(old.get("pr", {}).get("lastObservedAt")) or at + timedelta(1)) <= at
    if is_observed:
        then |= {key: record[key] for key in ("pr", "prs") if key in record}
    if words:
        then["lifecycle"] = _lifecycle(old, words, decided_at, since, at, is_observed)
    if is_json:
        return (json.dumps(then, indent=2) + "\n").encode()
    if "lifecycle" in then:
        then["stateVersion"] = "2"
        then["statePayload"] = json.dumps(then.pop("lifecycle"), separators=(",", ":"))
    else:
        then.pop("stateVersion", None)
    return "".join(f"{key}={value}\n" for key, value in then.items()).encode()


def _lifecycle(
    old: Line, words: Line, decided_at: Any, since: Any, at: datetime, is_observed: bool
) -> Line:
    """The payload with the words of then; moments that came later are not in it."""

    def kept(axis: str, key: str) -> Any:
        text = old.get(axis, {}).get(key)
        return text if (moment(text) or at + timedelta(1)) <= at else None

    said = {axis: {part: words.get((axis, part)) for part in ("state", "reason")} for axis in AXES}
    ends = {"terminatedAt": "terminated", "completedAt": "done"}
    since_text = since.isoformat() if since else None
    state = words["session", "state"]
    session = {
        "kind": old.get("session", {}).get("kind", "worker"),
        **said["session"],
        "startedAt": kept("session", "startedAt"),
        **{
            key: kept("session", key) or (since_text if state == word else None)
            for key, word in ends.items()
        },
        "lastTransitionAt": decided_at.isoformat() if decided_at else None,
    }
    number = {key: old.get("pr", {}).get(key) if is_observed else None for key in ("number", "url")}
    pr = {**said["pr"], **number, "lastObservedAt": kept("pr", "lastObservedAt")}
    runtime = {**said["runtime"], "lastObservedAt": kept("runtime", "lastObservedAt")}
    for key in ("handle", "tmuxName"):
        runtime[key] = old.get("runtime", {}).get(key)
    return {"version": 2, "session": session, "pr": pr, "runtime": runtime}


def _stood(lines: list[Line], all_lines: list[Line], at: datetime) -> tuple[Line, Any, Any, Any]:
    """Words, status, the newest line, and since when the session's state was the same."""
    words: Line = {}
    status, words_at, status_at, since = None, None, None, None
    for line in lines:
        told = {key: word for key, word in line["words"].items() if word is not None}
        if told.get(("session", "state")) is not None:
            if told["session", "state"] != words.get(("session", "state")):
                since = line["at"]
            words_at = line["at"]
        words |= told
        if line["status"]:
            status, status_at = line["status"], line["at"]
    if not lines:
        after = [line for line in all_lines if line["at"] > at]
        for line in reversed(after):
            words |= {key: word for key, word in line["before"].items() if word is not None}
            status = line["status_before"] or status
        return words, status, None, None
    if words_at and status_at and status_at > words_at and status != _shown(words):
        words, since = {}, None
    return words, status, lines[-1]["at"], since


def _shown(words: Line) -> Any:
    """The one word that Agent Orchestrator shows for three axes."""
    state, reason, pr_state, pr_reason = (
        words.get(key)
        for key in (("session", "state"), ("session", "reason"), ("pr", "state"), ("pr", "reason"))
    )
    if state == "terminated":
        return BY_END.get(reason, "terminated")
    if state not in ("working", "idle"):
        return "spawning" if state == "not_started" else state
    if pr_state == "merged":
        return "merged"
    if pr_state == "open":
        by_reason = {reason: word for word, reason in PULL_REQUESTS.items()}
        return by_reason.get(pr_reason, "pr_open")
    return state


# --- the database of the Go rewrite ------------------------------------------------------


def go_moment(text: Any) -> datetime | None:
    """A stored text of the Go rewrite as a moment: the offset counts, the zone's name does not."""
    found = re.match(r"(\S+ [\d:]+)(?:\.(\d+))?(?: ([+-]\d{4}))?", str(text))
    if found is None:
        return None
    day, fraction, offset = found.groups()
    at = datetime.fromisoformat(f"{day}{offset or '+0000'}").astimezone(UTC)
    return at + timedelta(microseconds=int(f"{fraction or 0:0<6}"[:6]))


def instants_of_go(store: Path) -> list[datetime]:
    """Every instant at which a row of a session or of a pull request changed, oldest first."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro&immutable=1", uri=True)) as db:
        rows = db.execute("SELECT created_at FROM change_log WHERE payload NOT LIKE '%sessionId%'")
        return sorted({at for (text,) in rows if (at := go_moment(text))})


MADE_AT = {
    **dict.fromkeys(
        (
            *("sessions", "change_log", "pr_comment", "conversation_messages", "review_run"),
            *("conversation_activities", "notifications", "session_interface_transitions"),
            *("session_interface_transition_messages", "pr_checks"),
        ),
        "created_at",
    ),
    "conversation_turns": "requested_at",
    "agent_switches": "requested_at",
    "telemetry_event": "occurred_at",
    "conversation_provider_events": "received_at",
    "agent_native_sessions": "last_used_at",
    "pr_reviews": "submitted_at",
    "session_cleanup_facts": "last_attempt_at",
}
"""When a row of each table was made; the rest is of all times."""


def cut_off_go(store: Path, at: datetime, to: Path) -> Path:
    """Write the copy of a database as it was at an instant to a path, which is given back.

    Rows are set back to what the log of changes says last up to then; the moment of an
    activity is the first line of it in a row.
    """
    to.write_bytes(store.read_bytes())
    with closing(sqlite3.connect(to)) as db:
        db.executescript("PRAGMA journal_mode=DELETE; PRAGMA foreign_keys=OFF")
        db.executescript("".join(f"DROP TRIGGER {name};" for name in _triggers(db)))
        db.execute("PRAGMA ignore_check_constraints=ON")
        for table, column in MADE_AT.items():
            rows = db.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            later = [(row,) for row, text in rows if (go_moment(text) or at) > at]
            db.executemany(f"DELETE FROM {table} WHERE rowid = ?", later)
        query = "SELECT session_id, event_type, payload, created_at FROM change_log ORDER BY seq"
        lines = [(s, kind, json.loads(p), text) for s, kind, p, text in db.execute(query)]
        lines.sort(key=lambda line: go_moment(line[3]) or at)
        for row in db.execute("SELECT id, updated_at FROM sessions").fetchall():
            _set_session_back(db, *row, lines, at)
        for (url,) in db.execute("SELECT url FROM pr").fetchall():
            _set_pull_back(db, url, [line for line in lines if line[2].get("url") == url])
        _set_work_back(db, lines, at)
        db.commit()
    return to


def _set_work_back(db: sqlite3.Connection, lines: list, at: datetime) -> None:
    """What ended later was open, and what was noticed later was not known."""

    def later(text: object) -> bool:
        return (go_moment(text) or at) > at

    for turn, started, ended in db.execute(
        "SELECT id, started_at, completed_at FROM conversation_turns"
    ).fetchall():
        if later(started):
            db.execute("UPDATE conversation_turns SET started_at = NULL WHERE id = ?", (turn,))
        if later(ended):
            is_queued = started is None or later(started)
            db.execute(
                "UPDATE conversation_turns SET state = ?, completed_at = NULL, error_message = ''"
                " WHERE id = ?",
                ("queued" if is_queued else "running", turn),
            )
    passed = {said["id"] for _, kind, said, _ in lines if kind == "review_run_updated"}
    for (run,) in db.execute("SELECT id FROM review_run WHERE status <> 'running'").fetchall():
        if run not in passed:
            db.execute(
                "UPDATE review_run SET status = 'running', verdict = '', body = '',"
                " delivered_at = NULL WHERE id = ?",
                (run,),
            )
    for table, state, first, ended in (
        ("agent_switches", "state", "preparing_handoff", "updated_at"),
        ("session_interface_transitions", "phase", "requested", "completed_at"),
    ):
        for one, text in db.execute(f"SELECT id, {ended} FROM {table}").fetchall():
            if later(text):
                db.execute(
                    f"UPDATE {table} SET {state} = ?, error_code = '' WHERE id = ?", (first, one)
                )
    db.execute("DELETE FROM session_worktrees")
    for column, key in (
        ("account_json", "reauthRequiredAt"),
        ("thread_state_json", "updatedAt"),
        ("model_reroute_json", "at"),
    ):
        for chat, text in db.execute(
            f"SELECT id, {column} FROM conversations WHERE {column} IS NOT NULL"
        ).fetchall():
            if (moment(json.loads(text)[key]) or at) > at:
                db.execute(f"UPDATE conversations SET {column} = NULL WHERE id = ?", (chat,))


def _triggers(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'")]


def _set_session_back(
    db: sqlite3.Connection, session: str, updated_at: str, lines: list, at: datetime
) -> None:
    if (go_moment(updated_at) or at) <= at:
        return
    mine = [
        (said, text)
        for owner, kind, said, text in lines
        if owner == session and kind.startswith("session_")
        # Messages of chats, and what was written before there were activities, say none.
        if "activity" in said and "sessionId" not in said
    ]
    said, text = mine[-1]
    since = text
    for earlier, earlier_text in reversed(mine):
        if earlier["activity"] != said["activity"]:
            break
        since = earlier_text
    kept = db.execute(
        "SELECT activity_last_at, first_signal_at FROM sessions WHERE id = ?", (session,)
    ).fetchone()
    active_at, signal_at = (None if (go_moment(cell) or at) > at else cell for cell in kept)
    db.execute(
        "UPDATE sessions SET activity_state = ?, is_terminated = ?, updated_at = ?, "
        "activity_last_at = ?, first_signal_at = ? WHERE id = ?",
        (said["activity"], said["isTerminated"], text, active_at or since, signal_at, session),
    )


def _set_pull_back(db: sqlite3.Connection, url: str, lines: list) -> None:
    if not lines:
        db.execute("DELETE FROM pr WHERE url = ?", (url,))
        return
    said = lines[-1][2]
    db.execute(
        "UPDATE pr SET pr_state = ?, ci_state = ?, review_decision = ?, mergeability = ? "
        "WHERE url = ?",
        (said["state"], said["ci"], said["review"], said["mergeability"], url),
    )
