"""What is known of a session beyond its events: its row, or what its events said of it."""

from __future__ import annotations

import polars as pl

_TEXT, _INTEGER, _REAL = pl.String(), pl.Int64(), pl.Float64()
SESSION_ROWS = pl.Schema(
    {
        "session_id": _TEXT,
        "parent_id": _TEXT,
        "project_id": _TEXT,
        "directory": _TEXT,
        "title": _TEXT,
        "program_version": _TEXT,
        "fork_of": _TEXT,
        "agent": _TEXT,
        "model": _TEXT,
        "provider": _TEXT,
        "row_cost_usd": _REAL,
        "row_input_tokens": _INTEGER,
        "row_output_tokens": _INTEGER,
        "created_ms": _INTEGER,
        "updated_ms": _INTEGER,
        "archived_ms": _INTEGER,
        "suspended_ms": _INTEGER,
        "n_resume_attempts": _INTEGER,
        "idle_outcome": _TEXT,
    }
)
"""One session; null: not known."""


def session_rows_of(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of `SESSION_ROWS`, those that are absent null, one row a session."""
    return (
        frame.select(
            (pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype)).alias(name)
            for name, dtype in SESSION_ROWS.items()
        )
        .filter(pl.col("session_id").is_not_null())
        .unique("session_id", keep="first", maintain_order=True)
    )


def completed_rows(rows: pl.DataFrame, *others: pl.DataFrame) -> pl.DataFrame:
    """Rows of all sessions: what the first frame leaves open, the next ones tell."""
    result = session_rows_of(rows)
    names = [name for name in SESSION_ROWS if name != "session_id"]
    for other in others:
        more = session_rows_of(other)
        result = result.join(
            more, on="session_id", how="full", coalesce=True, maintain_order="left_right"
        ).select("session_id", *(pl.coalesce(name, f"{name}_right").alias(name) for name in names))
    return result
