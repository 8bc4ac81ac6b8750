"""Rows counted against SQLite itself: what was read, and what was named as left out."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

from stateanalytics.io import sqlite_tables

ENTITY_TYPES = {
    "sessions": "session", "branches": "branch", "shows": "show", "plays": "play",
    "invocations": "invocation", "schedules": "schedule", "schedule_runs": "schedule_run",
    "teams": "team", "engine_runs": "engine_run", "dispatch_outbox": "dispatch",
}  # fmt: skip
"""Tables of which each row is an entity, or is named in a finding."""

SESSION_TABLES = ("sessions", "session", "session_v2")
"""Tables of which each ``id`` that is text is a session, in whatever system."""

LOGS = (
    "activity.jsonl", ".agent-report-audit/*.ndjson", "processes/*.ndjson", "recovery.log",
    "dashboard-notifications.jsonl",
)  # fmt: skip
"""Logs of lines; a copy under another name is none."""


class LostRowsError(AssertionError):
    """Rows are neither in a frame nor in a finding."""


@dataclass
class Read:
    """How many rows each table of each store gave."""

    rows: dict[tuple[Path, str], int] = field(default_factory=dict)
    is_salvaged: bool = False


@contextmanager
def counted() -> Iterator[Read]:
    """Note the height of every table that is read whole."""
    seen, read = Read(), sqlite_tables.rows_and_problems

    def noted(store: Any, table: str, columns: Any, after: int | None = None) -> Any:
        answer = read(store, table, columns, after)
        seen.is_salvaged |= bool(store.losses)
        if after is None and table in store.tables:
            seen.rows[store.path, table] = answer[0].height
        return answer

    with mock.patch.object(sqlite_tables, "rows_and_problems", noted):
        yield seen


def check_tables(seen: Read, snap: Any) -> None:
    """Every row of every table that SQLite counts was read, and is an entity or a finding."""
    if seen.is_salvaged:  # what was lost stands in findings by page, not by row
        return
    truth: dict[tuple[Path, str], int] = {}
    for path in {path for path, _ in seen.rows}:
        wanted = [table for at, table in seen.rows if at == path]
        truth |= {(path, table): n for table, n in sqlite_counts(path, wanted).items()}
    for key, n_rows in truth.items():
        if n_rows != seen.rows[key]:
            raise LostRowsError(f"{key[1]}: SQLite counts {n_rows}, read were {seen.rows[key]}")
    if set(snap.sources["system"]) == {"lionagi"}:
        _check_entities({table: n for (_, table), n in truth.items()}, snap)
    known = set(snap.entities.filter(pl.col("entity_type") == "session")["entity_id"])
    for (path, table), n_rows in truth.items():
        if table in SESSION_TABLES and n_rows and (lost := _ids(path, table) - known):
            raise LostRowsError(f"{table}: {len(lost)} ids are no session, such as {min(lost)!r}")


def _check_entities(truth: dict[str, int], snap: Any) -> None:
    left_out = snap.findings.filter(pl.col("code") == "id.unusable")
    for table, entity_type in ENTITY_TYPES.items():
        n_named = left_out.filter(pl.col("table") == table)["n_rows"].sum()
        n_kept = snap.entities.filter(pl.col("entity_type") == entity_type).height
        if truth.get(table, n_kept + n_named) != n_kept + n_named:
            raise LostRowsError(
                f"{table}: {truth[table]} rows, {n_kept} entities and {n_named} in findings"
            )
    n_changes = truth.get("status_transitions", snap.transitions.height)
    if n_changes != snap.transitions.height:
        raise LostRowsError(f"{n_changes} changes, {snap.transitions.height} in transitions")


@contextmanager
def _copied(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a store with the logs beside it, opened by SQLite; texts as bytes."""
    with tempfile.TemporaryDirectory(prefix="fuzz-count-") as folder:
        copy = Path(folder) / path.name
        for ending in ("", "-wal", "-journal"):
            beside = path.with_name(path.name + ending)
            if beside.is_file():
                shutil.copyfile(beside, copy.with_name(copy.name + ending))
        with closing(sqlite3.connect(copy)) as store:
            store.text_factory = bytes
            yield store


def sqlite_counts(path: Path, wanted: list[str]) -> dict[str, int]:
    """Rows by table as SQLite counts them in a copy; empty where it finds the store damaged."""
    try:
        with _copied(path) as store:
            check = store.execute("PRAGMA quick_check").fetchall()
            # Constraints that are not kept are no damage: rows are rows.
            if any(b"NULL value" not in row[0] and row[0] != b"ok" for row in check):
                return {}
            quoted = {table: table.replace('"', '""') for table in wanted}
            return {
                table: store.execute(f'SELECT count(*) FROM "{name}" NOT INDEXED').fetchone()[0]
                for table, name in quoted.items()
            }
    except (sqlite3.Error, OSError, UnicodeEncodeError):
        return {}


def _ids(path: Path, table: str) -> set[str]:
    """The ids of a table that are sound text."""
    ids = set()
    with suppress(sqlite3.Error), _copied(path) as store:
        columns = [row[1] for row in store.execute(f'PRAGMA table_info("{table}")')]
        if b"id" in columns:
            query = f"SELECT id FROM \"{table}\" NOT INDEXED WHERE typeof(id) = 'text'"
            for (octets,) in store.execute(query):
                with suppress(UnicodeDecodeError):
                    ids.add(octets.decode())
    return ids


def check_lines(root: Path, snap: Any, seen: Read) -> None:
    """Every line of every log of a tree is an event, or is counted in a finding."""
    logs = {path for pattern in LOGS for path in root.rglob(pattern)}
    n_lines = sum(
        bool(line.strip())
        for log in logs
        if log.is_file()
        for line in log.read_bytes().decode("utf-8", "replace").split("\n")
    )
    about_files = pl.col("code").str.starts_with("line.") | pl.col("code").str.starts_with("file.")
    findings = snap.findings.filter(about_files)
    if findings.filter(pl.col("code").str.starts_with("file.")).height:
        return  # a whole file was named as left out or as converted: its lines are not counted
    of_database = sum(n for (_, table), n in seen.rows.items() if table == "activity_events")
    n_read = snap.events.height - of_database + findings["n_rows"].sum()
    if n_read < n_lines:
        raise LostRowsError(f"{n_lines} lines in logs, {n_read} in events and findings")
