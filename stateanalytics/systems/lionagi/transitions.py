"""Accepted status changes, in the order in which they were written."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.lionagi.raw import Raw

# Older call sites wrote the table's name or the route's.
_ALIASES = {
    "run": "session",
    "sessions": "session",
    "shows": "show",
    "plays": "play",
    "invocations": "invocation",
    "teams": "team",
    "schedule_runs": "schedule_run",
    "schedules": "schedule",
    "dispatch_outbox": "dispatch",
}


def transitions(raw: Raw) -> pl.DataFrame:
    """One row an accepted status change.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_transitions, 12)
        Sorted by ``at``, then ``seq`` (the row's place in the table: ids are random, and
        several changes may share one moment).
    """
    rows = raw["status_transitions"].select(
        entity_type=pl.col("entity_type").replace(_ALIASES),
        entity_id="entity_id",
        at="created_at",
        seq="rowid",
        previous_status="previous_status",
        status="status",
        reason_code=pl.col("reason_code").replace("", None),
        message=pl.col("reason_summary").replace("", None),
        writer="source",
        actor="actor",
        evidence="evidence_refs",
        metadata="metadata",
    )
    # Rows come in the order of their place, and are mostly written in the order of time.
    is_ordered = rows["at"].null_count() == 0 and rows["at"].is_sorted()
    return rows if is_ordered else rows.sort("at", "seq", nulls_last=True)
