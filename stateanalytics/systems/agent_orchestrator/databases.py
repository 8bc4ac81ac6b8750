"""The database of activity events beside the JSON records, and which databases there are."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.io.sqlite import INTEGER, JSON, TEXT, Cell, Store, read_table
from stateanalytics.systems.agent_orchestrator import go_tables
from stateanalytics.systems.agent_orchestrator.go_tables import is_go
from stateanalytics.systems.agent_orchestrator.logs import ALIVE
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.agent_orchestrator.stored_values import (
    moment,
    stored_moment,
    unreadable_times,
)
from stateanalytics.systems.base import Tables

EVENTS_TABLE = "activity_events"

_DETAIL = 500
_EVENTS: Mapping[str, Cell] = {
    "id": INTEGER,
    "ts_epoch": INTEGER,
    "ts": TEXT,
    **dict.fromkeys(("project_id", "session_id", "source", "type", "log_level", "summary"), TEXT),
    "data": JSON,
}


def tables() -> Tables:
    """What is read of both databases, and what is not on purpose."""
    is_applied = "CASE WHEN is_applied THEN version_id END"
    return Tables(
        read={EVENTS_TABLE: _EVENTS, **go_tables.TABLES},
        ignored=go_tables.ASIDE,
        version=("goose_db_version", Cell("integer", is_applied, ("is_applied", "version_id"))),
        newest=go_tables.NEWEST_VERSION,
    )


def recognises(store: Store) -> bool:
    """Is this store one of Agent Orchestrator's two."""
    return EVENTS_TABLE in store.tables or is_go(store)


def read_activity_events(store: Store, *, bodies: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Activity events as entries of a log, and what was wrong with their cells.

    Parameters
    ----------
    store : Store
        With the table ``activity_events``; any other gives no rows.
    bodies : bool
        Whether to keep the ``data`` of each event.

    Returns
    -------
    entries : polars.DataFrame
        In the shape of `logs.read_logs`, without the columns that no event has.
    findings : polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    rows, findings = read_table(store, EVENTS_TABLE, _EVENTS, system=SYSTEM)
    is_status = pl.col("type") == "lifecycle.transition"
    is_seen = pl.col("type") == "activity.transition"
    entries = rows.select(
        log=pl.lit("event"),
        project="project_id",
        session_id="session_id",
        at=pl.coalesce(moment(pl.col("ts_epoch")), stored_moment("ts")),
        kind="type",
        previous=pl.when(is_status).then(_fact("from")),
        status=pl.when(is_status).then(_fact("to")),
        code=pl.coalesce(_fact("reason"), _fact("cause"), _fact("trigger")),
        name=pl.coalesce(_fact("reactionKey"), _fact("to"), _fact("agent")),
        role="source",
        detail=pl.col("summary").str.slice(0, _DETAIL),
        level="log_level",
        is_activity=(is_seen & _fact("to").is_in(ALIVE))
        .fill_null(value=False)
        .replace_strict({True: "true", False: "false"}, return_dtype=pl.String),
        duration_ms=_fact("durationMs"),
        size=pl.col("data").str.len_bytes().cast(pl.String),
        body=pl.when(bodies).then("data"),
        seq="id",
    )
    # The number is what the store sorts by; its text counts only where there is no number.
    texts = rows.filter(pl.col("ts_epoch").is_null())
    unreadable = unreadable_times(texts, store.label, EVENTS_TABLE, {"ts": pl.col("ts")})
    return entries, pl.concat([findings, unreadable])


def _fact(key: str) -> pl.Expr:
    return pl.col("data").str.json_path_match(f"$.{key}")
