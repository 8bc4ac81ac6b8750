"""The tables of an opencode database that are read; no other is ever opened.

Accounts, credentials and shares hold keys and tokens. They are not in this list, and
neither is any file beside the database but the legacy messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.json_lines import Parser, numbered
from stateanalytics.io.sqlite import INTEGER, TEXT, Cell, Store, read_table
from stateanalytics.systems.opencode.gathered import completed_rows, session_rows_of
from stateanalytics.systems.opencode.mapping import SYSTEM

ALLOWED = (
    "event", "session", "session_v2", "session_message", "message", "part",
    "session_input", "session_pending", "session_inbox",
)  # fmt: skip
"""Every table that is read."""

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


def _read_rows(
    store: Store, table: str, columns: Mapping[str, Cell]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows, findings = read_table(store, table, columns, system=SYSTEM)
    return rows.with_columns(source=pl.lit(store.label)), findings


def read_events(store: Store) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the ``event`` table, and what was wrong with them."""
    return _read_rows(
        store,
        "event",
        {
            "event_id": Cell("text", "id", ("id",)),
            "session_id": Cell("text", "aggregate_id", ("aggregate_id",)),
            "seq": INTEGER,
            "created_ms": Cell("integer", "created", ("created",)),
            "raw_type": Cell("text", "type", ("type",)),
            "data": Cell("text", f"CASE WHEN {_NEEDED} THEN data END", ("data", "type")),
        },
    )


def read_sessions(store: Store, parser: Parser) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of both session tables; where an id is in both, 2.0's."""
    frames, findings = [], []
    columns = {
        "session_id": Cell("text", "id", ("id",)),
        "parent_id": TEXT,
        "project_id": TEXT,
        "directory": TEXT,
        "title": TEXT,
        "program_version": Cell("text", "version", ("version",)),
        "fork_of": Cell("text", "fork_session_id", ("fork_session_id",)),
        "agent": TEXT,
        "text": Cell("text", "model", ("model",)),
        "row_cost_usd": Cell("real", "cost", ("cost",)),
        "row_input_tokens": Cell("integer", "tokens_input", ("tokens_input",)),
        "row_output_tokens": Cell("integer", "tokens_output", ("tokens_output",)),
        "created_ms": Cell("integer", "time_created", ("time_created",)),
        "updated_ms": Cell("integer", "time_updated", ("time_updated",)),
        "archived_ms": Cell("integer", "time_archived", ("time_archived",)),
        "suspended_ms": Cell("integer", "time_suspended", ("time_suspended",)),
        "n_resume_attempts": Cell("integer", "resume_attempts", ("resume_attempts",)),
        "idle_outcome": TEXT,
    }
    for table in ("session_v2", "session"):
        rows, problems = _read_rows(store, table, columns)
        findings.append(problems)
        placed = numbered(rows)
        fields = {"model": (("id",), "VARCHAR"), "provider": (("providerID",), "VARCHAR")}
        models = parser.read(placed.select("row", "text"), fields)
        frames.append(
            placed.join(models, on="row", how="left", maintain_order="left").drop("text", "row")
        )
    return completed_rows(session_rows_of(pl.concat(frames))), pool(findings, schema.FINDINGS)


def read_messages(store: Store) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """V1's messages and parts as rows with ``text``, and what was wrong with them."""
    messages, findings = _read_rows(
        store,
        "message",
        {
            "message_id": Cell("text", "id", ("id",)),
            "session_id": TEXT,
            "created_ms": Cell("integer", "time_created", ("time_created",)),
            "text": Cell("text", "data", ("data",)),
        },
    )
    parts, also = _read_rows(
        store,
        "part",
        {
            "part_id": Cell("text", "id", ("id",)),
            "message_id": TEXT,
            "session_id": TEXT,
            "created_ms": Cell("integer", "time_created", ("time_created",)),
            "text": Cell("text", "data", ("data",)),
        },
    )
    return messages, parts, pool([findings, also], schema.FINDINGS)


def read_projections(store: Store) -> tuple[pl.DataFrame, pl.DataFrame]:
    """V2's projected messages as rows with ``text``."""
    return _read_rows(
        store,
        "session_message",
        {
            "message_id": Cell("text", "id", ("id",)),
            "session_id": TEXT,
            "role": Cell("text", "type", ("type",)),
            "created_ms": Cell("integer", "time_created", ("time_created",)),
            "text": Cell("text", "data", ("data",)),
        },
    )


def read_waiting(store: Store) -> pl.DataFrame | None:
    """Ids of the inputs that the database says still wait; None: it has no such table."""
    frames = []
    for table in ("session_pending", "session_inbox"):
        if table in store.tables:
            rows, _ = read_table(store, table, {"id": TEXT}, system=SYSTEM)
            frames.append(rows.select(input_id="id"))
    if "session_input" in store.tables and "promoted_seq" in store.tables["session_input"]:
        rows, _ = read_table(store, "session_input", {"id": TEXT, "promoted_seq": INTEGER})
        frames.append(rows.filter(pl.col("promoted_seq").is_null()).select(input_id="id"))
    return pl.concat(frames) if frames else None
