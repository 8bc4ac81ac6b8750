"""Entries of all logs: linked to their session, then transitions (told once) and events."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.layout import SYSTEM

# The same change is told by several logs: the first of these keeps it.
_TELLS_BEST = ("audit", "event", "observability", "trace", "notification")
SAME_CHANGE_S = 2.0
"""Two logs that tell the same change this close together tell one change."""
ECHO_S = 60.0
"""A poll sees what an agent reported at most two polls later."""


def link(entries: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Add ``entity_id``: by directory, else by project, else by the name of the session.

    Parameters
    ----------
    entries : polars.DataFrame, shape (n_entries, ...)
        What `logs.read_logs` and `databases` give.
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``is_current``.

    Returns
    -------
    polars.DataFrame, shape (n_entries, ... + 2)
        ``entity_id`` and ``is_orphaned``: a session is named that has no record here.
    """
    known = sessions.filter(pl.col("entity_id").is_not_null())
    current = known.filter("is_current")
    by_directory = known.unique(["directory", "session_id"], keep="first", maintain_order=True)
    by_project = current.unique(["project", "session_id"], keep="first", maintain_order=True)
    by_name = current.unique("session_id", keep="none", maintain_order=True)
    linked = entries
    for name, keys, rows in (
        ("_by_directory", ["directory", "session_id"], by_directory),
        ("_by_project", ["project", "session_id"], by_project),
        ("_by_name", ["session_id"], by_name),
    ):
        told = rows.select(*keys, pl.col("entity_id").alias(name))
        linked = linked.join(told, on=keys, how="left", maintain_order="left")
    found = pl.coalesce("_by_directory", "_by_project", "_by_name")
    return linked.with_columns(
        entity_id=pl.coalesce(found, "session_id"),
        is_orphaned=found.is_null() & pl.col("session_id").is_not_null(),
    ).drop("_by_directory", "_by_project", "_by_name")


def transitions(entries: pl.DataFrame) -> pl.DataFrame:
    """Every change of a session's legacy status that some log tells, once.

    Parameters
    ----------
    entries : polars.DataFrame
        Linked entries.

    Returns
    -------
    polars.DataFrame
        Columns of `schema.TRANSITIONS`, by time and then as they were read.

    Notes
    -----
    An accepted report changes the status at once, the poller tells the same change when it
    sees it; events, the observability log and notifications tell what the poller saw.
    """
    changes = (
        entries.filter(
            pl.col("status").is_not_null()
            & pl.col("previous").is_not_null()
            & (pl.col("status") != pl.col("previous"))
            & pl.col("entity_id").is_not_null()
            & pl.col("at").is_not_null()
            & pl.col("log").is_in(_TELLS_BEST)
            & (pl.col("is_accepted").fill_null("true") == "true")
        )
        .with_columns(
            _rank=pl.col("log").replace_strict(
                {log: rank for rank, log in enumerate(_TELLS_BEST)}, return_dtype=pl.Int8
            )
        )
        .sort("entity_id", "previous", "status", "at", "_rank", "_order", maintain_order=True)
    )
    of = ["entity_id", "previous", "status"]
    gap_s = pl.col("at").diff().over(of).dt.total_seconds(fractional=True)
    is_echo = (pl.col("log").shift(1).over(of) == "audit") & (gap_s <= ECHO_S)
    is_again = ((gap_s <= SAME_CHANGE_S) | is_echo).fill_null(value=False)
    is_seen = pl.col("log").is_in(["observability", "trace"])
    is_said = pl.col("log").is_in(["audit", "notification"])
    told = (
        changes.with_columns(_change=(~is_again).cum_sum())
        .sort("_change", "_rank", "_order", maintain_order=True)
        .group_by("_change", maintain_order=True)
        .agg(
            pl.first("entity_id", "previous", "status", "log", "role", "_order"),
            pl.col("at").min(),
            pl.col("code").drop_nulls().first(),
            seen=pl.col("detail").filter(is_seen).first(),
            said=pl.col("detail").filter(is_said).first(),
        )
        .sort("at", "_order")
    )
    is_report = pl.col("log") == "audit"
    evidence = pl.struct(kind=pl.lit("tool_result"), detail="seen").struct.json_encode()
    return told.select(
        entity_type=pl.lit("session"),
        entity_id="entity_id",
        at="at",
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        previous_status="previous",
        status="status",
        reason_code="code",
        message="said",
        writer=pl.when(is_report).then(pl.lit("agent_report")).otherwise(pl.lit("poll")),
        actor=pl.when(is_report).then("role"),
        evidence=pl.when(pl.col("seen").is_not_null()).then(pl.format("[{}]", evidence)),
        metadata=pl.struct("log").struct.json_encode(),
    )


def events(entries: pl.DataFrame) -> pl.DataFrame:
    """Everything that the logs tell, in the columns of `schema.EVENTS`.

    Traces that the observability log holds as well are told once.
    """
    told = ["at", "kind", "correlation", "session_id"]
    logged = entries.filter(pl.col("log") == "observability").select(told).unique()
    traces = entries.filter(pl.col("log") == "trace").join(
        logged, on=told, how="anti", nulls_equal=True
    )
    kept = pl.concat([entries.filter(pl.col("log") != "trace"), traces]).sort("_order")
    return kept.select(
        entity_type=pl.when(pl.col("entity_id").is_not_null()).then(pl.lit("session")),
        entity_id="entity_id",
        at="at",
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        kind="kind",
        is_activity=pl.col("is_activity") == "true",
        role="role",
        name="name",
        size_bytes=pl.col("size").cast(pl.Int64, strict=False),
        duration_s=pl.col("duration_ms").cast(pl.Float64, strict=False) / 1000,
        detail="detail",
        body="body",
    )


def named(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """A frame in its canonical shape, with the input and the system in every row."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(SYSTEM)))
