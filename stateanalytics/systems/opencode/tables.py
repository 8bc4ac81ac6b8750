"""The tables of an opencode database that are read; no other is ever opened.

Accounts, credentials and shares hold keys and tokens. They are not in this list, and
neither is any file beside the database but the legacy messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.cells import INTEGER, TEXT, Cell, Kind
from stateanalytics.io.findings import counted
from stateanalytics.io.json_lines import Parser, numbered
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.base import Tables
from stateanalytics.systems.opencode.gathered import completed_rows, session_rows_of
from stateanalytics.systems.opencode.mapping import SYSTEM

# What the fold does not need is not even taken out of the file: snapshots of V1 repeat
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


_OF_SESSIONS: Mapping[str, Cell] = {
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
    "session_v2": _OF_SESSIONS,
    "session": _OF_SESSIONS,
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
"""Every table that is read, and what of it."""


def tables() -> Tables:
    """What is read of a database, and what is not on purpose."""
    return Tables(
        read=TABLES,
        ignored=(
            *("migration", "data_migration", "event_sequence", "project", "project_directory"),
            *("workspace", "worktree", "kv"),
        ),
        version=("migration", Cell("text", "id", ("id",))),
        newest="20260903010538_execution_claimed_at",
    )


def _read_rows(store: Store, table: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows, findings = read_table(store, table, TABLES[table], system=SYSTEM)
    return rows.with_columns(source=pl.lit(store.label)), findings


def read_events(store: Store) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the ``event`` table, and what was wrong with them or is not known of them."""
    rows, findings = _read_rows(store, "event")
    version = pl.col("raw_type").str.extract(r"\.(\d+)$").cast(pl.Int64, strict=False)
    newer = rows.filter(version > NEWEST_PAYLOAD)["raw_type"]
    return rows, pool(
        [
            findings,
            counted(
                store.label,
                SYSTEM,
                "event.unknown_version",
                "info",
                "events in a version that is not known",
                n_rows=newer.len(),
                table="event",
                column="type",
                example=newer.min(),  # type: ignore[arg-type]
                action="read as far as they are as before",
            ),
        ],
        schema.FINDINGS,
    )


NEWEST_PAYLOAD = 2
"""The greatest version that any known type of events has."""


def read_sessions(store: Store, parser: Parser) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of both session tables; where an id is in both, 2.0's."""
    frames, findings = [], [_claims_findings(store)]
    for table in ("session_v2", "session"):
        rows, problems = _read_rows(store, table)
        findings.append(problems)
        placed = numbered(_with_claim(rows, store.tables.get(table, ())))
        fields = {"model": (("id",), "VARCHAR"), "provider": (("providerID",), "VARCHAR")}
        models = parser.read(placed.select("row", "text"), fields)
        frames.append(
            placed.join(models, on="row", how="left", maintain_order="left").drop("text", "row")
        )
    return completed_rows(session_rows_of(pl.concat(frames))), pool(findings, schema.FINDINGS)


_CLAIMED, _SUSPENDED = "execution_claimed_at", "time_suspended"


def _with_claim(rows: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """The claim of a session by its newer name, where there is a column of it."""
    claim = "claimed_ms" if _CLAIMED in columns else "suspended_ms"
    return rows.with_columns(suspended_ms=claim).drop("claimed_ms")


def claim_columns(store: Store) -> set[str]:
    """Where a table of 2.0 says that an execution is claimed; a store without it says all."""
    return {_CLAIMED, _SUSPENDED} & {*store.tables.get("session_v2", (_CLAIMED,))}


def _claims_findings(store: Store) -> pl.DataFrame:
    """What a table of 2.0 that has both columns of a claim, or none, leaves open."""
    there = claim_columns(store)
    code, severity, message, action = (
        (
            *("source.column_missing", "warning"),
            "no column says whether an execution is claimed",
            "whether its process died is not known, but by its silence",
        )
        if not there
        else ("source.column_twice", "info", f"{_SUSPENDED} is there as well", "not read")
    )
    return counted(
        store.label,
        SYSTEM,
        code,
        severity,
        message,
        n_rows=int(len(there) != 1),
        table="session_v2",
        column=_CLAIMED,
        action=action,
    )


def read_messages(store: Store) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """V1's messages and parts as rows with ``text``, and what was wrong with them."""
    messages, findings = _read_rows(store, "message")
    parts, also = _read_rows(store, "part")
    return messages, parts, pool([findings, also], schema.FINDINGS)


def read_projections(store: Store) -> tuple[pl.DataFrame, pl.DataFrame]:
    """V2's projected messages as rows with ``text``."""
    return _read_rows(store, "session_message")


def read_waiting(store: Store) -> pl.DataFrame | None:
    """Ids of the inputs that the database says still wait; None: it has no such table."""
    frames = []
    for table in ("session_pending", "session_inbox"):
        if table in store.tables:
            frames.append(_read_rows(store, table)[0].select(input_id="id"))
    if "session_input" in store.tables and "promoted_seq" in store.tables["session_input"]:
        rows, _ = _read_rows(store, "session_input")
        frames.append(rows.filter(pl.col("promoted_seq").is_null()).select(input_id="id"))
    return pl.concat(frames) if frames else None
