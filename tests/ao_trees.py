"""Small trees of Agent Orchestrator, written by hand as its writers write them."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from stateanalytics.core.facts import Facts
from stateanalytics.systems.reading import read_facts

CREATED = "2026-05-04T09:00:00.000Z"


def lifecycle(
    state: str = "working",
    reason: str = "task_in_progress",
    *,
    pr: tuple[str, str] = ("none", "not_created"),
    runtime: tuple[str, str] = ("alive", "process_running"),
    kind: str = "worker",
    **session: object,
) -> dict:
    """A whole payload of version 2."""
    moments = {"startedAt": CREATED, "completedAt": None, "terminatedAt": None}
    return {
        "version": 2,
        "session": {
            "kind": kind,
            "state": state,
            "reason": reason,
            **moments,
            "lastTransitionAt": "2026-05-04T09:30:00.000Z",
            **session,
        },
        "pr": {
            "state": pr[0], "reason": pr[1], "number": None, "url": None, "lastObservedAt": None,
        },
        "runtime": {
            "state": runtime[0], "reason": runtime[1], "lastObservedAt": None,
            "handle": None, "tmuxName": None,
        },
    }  # fmt: skip


def record(life: dict | None = None, **keys: object) -> dict:
    """A JSON record, with a lifecycle unless there is none."""
    base = {"project": "web", "agent": "codex", "createdAt": CREATED}
    return base | ({} if life is None else {"lifecycle": life}) | keys


def write_json(root: Path, session_id: str, content: object, *, project: str = "web") -> Path:
    """One record of the JSON generation."""
    text = content if isinstance(content, str | bytes) else json.dumps(content, indent=2) + "\n"
    return put(root / "projects" / project / "sessions" / f"{session_id}.json", text)


def write_flat(root: Path, session_id: str, *, directory: str, **keys: object) -> Path:
    """One record of lines key=value."""
    text = "".join(f"{key}={value}\n" for key, value in keys.items())
    return put(root / directory / "sessions" / session_id, text)


def write_lines(path: Path, *lines: object) -> Path:
    """A log: one JSON object a line."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return put(path, "".join(f"{text}\n" for text in texts))


def write_events(path: Path, *events: tuple[object, object, str, str, str]) -> Path:
    """A database of activity events: number and text of the time, session, type, data."""
    with closing(sqlite3.connect(path)) as store:
        # No types: a damaged store holds anything.
        store.execute(
            "CREATE TABLE activity_events (id INTEGER PRIMARY KEY, ts_epoch, ts, project_id,"
            " session_id, source, type, log_level, summary, data)"
        )
        values = "NULL, ?, ?, 'web', ?, 'lifecycle', ?, 'info', 'x', ?"
        store.executemany(f"INSERT INTO activity_events VALUES ({values})", events)
        store.commit()
    return path


def put(path: Path, text: str | bytes) -> Path:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def facts_of(*paths: Path, **arguments: object) -> Facts:
    """What trees, or parts of trees, say; their databases are closed again."""
    facts, stores = read_facts(list(paths), shown=False, **arguments)
    for store in stores:
        store.close()
    return facts


class Scenarios:
    """What each test of a module adds to one tree, so that all of them read it once.

    A scenario is a function from the root of the tree to files of its own session or
    project, and stands above the test that looks for them.
    """

    def __init__(self) -> None:
        self._writers: list[Callable[[Path], object]] = []

    def __call__(self, writer: Callable[[Path], object]) -> Callable[[Path], object]:
        self._writers.append(writer)
        return writer

    def written(self, root: Path) -> Path:
        """The tree with every scenario."""
        for writer in self._writers:
            writer(root)
        return root
