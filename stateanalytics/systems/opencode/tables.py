"""The tables of an opencode database that are read; no others are ever opened.

Accounts, credentials and shares contain keys and tokens. They are not in this list, and
neither is any file next to the database except the legacy messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.io.cells import INTEGER, TEXT, Cell, Kind
from stateanalytics.io.findings import counted
from stateanalytics.io.json_lines import Parser, numbered
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.base import Tables
from stateanalytics.systems.omissions import findings_of_database
from stateanalytics.systems.opencode import NAME
from stateanalytics.systems.opencode.gathered import (
    PROJECTED,
    Gathered,
    completed_rows,
    session_rows_of,
)
from stateanalytics.systems.opencode.records import (
    events_of_rows,
    messages_of,
    parts_of,
    with_fields,
)

# Payloads that the fold does not need are not read from the file: snapshots of V1 repeat
# whole messages for each update and make up most of databases of 100 GB.
_PREFIXES = (
    "step.", "execution.", "text.ended", "tool.", "input.", "inbox.", "retry.", "prompt",
    "created", "renamed", "forked", "usage.recorded", "compaction.",
)  # fmt: skip
_NEEDED = " OR ".join(
    f"type GLOB '{scope}{prefix}*'"
    for scope in ("session.", "session.next.")
    for prefix in _PREFIXES
)


def _renamed(kind: Kind, **columns: str) -> dict[str, Cell]:
    return {name: Cell(kind, column, (column,)) for name, column in columns.items()}


_SESSION_COLUMNS: Mapping[str, Cell] = {
    **dict.fromkeys(
        ("parent_id", "project_id", "directory", "title", "agent", "idle_outcome"), TEXT
    ),
    **_renamed(
        "text", session_id="id", program_version="version", fork_of="fork_session_id", text="model"
    ),
    **_renamed("real", row_cost_usd="cost"),
    **_renamed(
        "integer",
        row_input_tokens="tokens_input",
        row_output_tokens="tokens_output",
        row_reasoning_tokens="tokens_reasoning",
        row_cache_read_tokens="tokens_cache_read",
        row_cache_write_tokens="tokens_cache_write",
        created_ms="time_created",
        updated_ms="time_updated",
        archived_ms="time_archived",
        suspended_ms="time_suspended",
        claimed_ms="execution_claimed_at",
        n_resume_attempts="resume_attempts",
    ),
}
TABLES: Mapping[str, Mapping[str, Cell]] = {
    "event": {
        "seq": INTEGER,
        **_renamed("text", event_id="id", session_id="aggregate_id", raw_type="type"),
        **_renamed("integer", created_ms="created"),
        "data": Cell("text", f"CASE WHEN {_NEEDED} THEN data END", ("data", "type")),
    },
    "session_v2": _SESSION_COLUMNS,
    "session": _SESSION_COLUMNS,
    "session_message": {
        "session_id": TEXT,
        **_renamed("text", message_id="id", role="type", text="data"),
        **_renamed("integer", created_ms="time_created"),
    },
    "message": {
        "session_id": TEXT,
        **_renamed("text", message_id="id", text="data"),
        **_renamed("integer", created_ms="time_created"),
    },
    "part": {
        "message_id": TEXT,
        "session_id": TEXT,
        **_renamed("text", part_id="id", text="data"),
        **_renamed("integer", created_ms="time_created"),
    },
    "session_input": {"id": TEXT, "promoted_seq": INTEGER},
    "session_pending": {"id": TEXT},
    "session_inbox": {"id": TEXT},
}
"""Every table that is read, with the columns that are read."""
_NEWEST_PAYLOAD = 2
"""The greatest version that any known type of events has."""
_CLAIMED, _SUSPENDED = "execution_claimed_at", "time_suspended"


def tables() -> Tables:
    """The tables of a database that are read, and those that are ignored on purpose."""
    return Tables(
        read=TABLES,
        ignored=(
            *("migration", "data_migration", "event_sequence", "project", "project_directory"),
            *("workspace", "worktree", "kv"),
        ),
        version=("migration", Cell("text", "id", ("id",))),
        newest="20260903010538_execution_claimed_at",
    )


def read_database(store: Store, parser: Parser) -> tuple[Gathered, pl.DataFrame]:
    """The contents of a database, and findings about its tables."""

    def rows_of(table: str) -> pl.DataFrame:
        rows, problems = _read_rows(store, table)
        findings.append(problems)
        return rows

    findings: list[pl.DataFrame] = []
    events = rows_of("event")
    findings += [_newer_events(store, events), _claim_findings(store)]
    sessions = _sessions_of(store, parser, [rows_of(table) for table in ("session_v2", "session")])
    median_ms = sessions["created_ms"].median()
    log, broken_events = events_of_rows(
        events,
        parser,
        reference_ms=None if median_ms is None else int(median_ms),  # type: ignore[arg-type]
    )
    messages, broken_messages = messages_of(rows_of("message"), parser)
    parts, broken_parts = parts_of(rows_of("part"), parser)
    projections, broken_projections = messages_of(
        rows_of("session_message"), parser, "session_message", era=PROJECTED, has_content=True
    )
    gathered = Gathered(
        log=log,
        messages=messages,
        parts=parts,
        projections=projections,
        session_rows=sessions,
        waiting=_waiting_inputs(store),
        broken=(*broken_events, *broken_messages, *broken_parts, *broken_projections),
    )
    # What is lost is known only after everything was read.
    losses = findings_of_database(store, system=NAME)
    return gathered, pool([losses, *findings], schema.FINDINGS)


def _read_rows(store: Store, table: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows, findings = read_table(store, table, TABLES[table], system=NAME)
    return rows.with_columns(source=pl.lit(store.label)), findings


def _newer_events(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """A finding if some events have a version that no known opencode writes."""
    version = pl.col("raw_type").str.extract(r"\.(\d+)$").cast(pl.Int64, strict=False)
    newer = rows.filter(version > _NEWEST_PAYLOAD)["raw_type"]
    return counted(
        store.label,
        NAME,
        "event.unknown_version",
        "info",
        "events in a version that is not known",
        n_rows=newer.len(),
        table="event",
        column="type",
        example=newer.min(),  # type: ignore[arg-type]
        action="read as an older version",
    )


def _sessions_of(
    store: Store, parser: Parser, session_tables: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """The rows of both session tables; the row of 2.0, which is first, if an id is in both."""
    frames = []
    for table, rows in zip(("session_v2", "session"), session_tables, strict=True):
        # The claim of a session has a newer name in some versions.
        is_newer = _CLAIMED in store.tables.get(table, ())
        claim = "claimed_ms" if is_newer else "suspended_ms"
        placed = numbered(rows.with_columns(suspended_ms=claim).drop("claimed_ms"))
        fields = {"model": (("id",), "VARCHAR"), "provider": (("providerID",), "VARCHAR")}
        frames.append(with_fields(placed, parser, fields).drop("row"))
    return completed_rows(session_rows_of(pl.concat(frames)))


def claim_columns(store: Store) -> set[str]:
    """The columns of 2.0's table that show claims of executions; one if there is no table."""
    return {_CLAIMED, _SUSPENDED} & {*store.tables.get("session_v2", (_CLAIMED,))}


def _claim_findings(store: Store) -> pl.DataFrame:
    """A finding if the table of 2.0 has both columns of a claim, or neither."""
    claims = claim_columns(store)
    code, severity, message, action = (
        (
            *("source.column_missing", "warning"),
            "no column shows whether an execution is claimed",
            "whether its process died is known only from its silence",
        )
        if not claims
        else ("source.column_twice", "info", f"{_SUSPENDED} exists as well", "not read")
    )
    return counted(
        store.label,
        NAME,
        code,
        severity,
        message,
        n_rows=int(len(claims) != 1),
        table="session_v2",
        column=_CLAIMED,
        action=action,
    )


def _waiting_inputs(store: Store) -> pl.DataFrame | None:
    """Ids of the inputs that wait by the database; None: it has no table of them."""
    frames = []
    for table in ("session_pending", "session_inbox"):
        if table in store.tables:
            frames.append(_read_rows(store, table)[0].select(input_id="id"))
    if "session_input" in store.tables and "promoted_seq" in store.tables["session_input"]:
        rows, _ = _read_rows(store, "session_input")
        frames.append(rows.filter(pl.col("promoted_seq").is_null()).select(input_id="id"))
    return pl.concat(frames) if frames else None
