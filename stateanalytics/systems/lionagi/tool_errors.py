"""Errors of tools, counted per session, on demand: it means reading what was said.

ADR-0017 keeps these counts out of every list because they read all bodies; a run with
failed tool calls may be a good run, so they are diagnostic and no status.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.sqlite import JSON, TEXT, Cell, Store, read_table
from stateanalytics.systems.lionagi.events import listed_messages
from stateanalytics.systems.lionagi.raw import SYSTEM

MAX_OUTPUT = 4000
_FIRST_LINES = r"\A((?:[^\n]*\n){0,7}[^\n]*)"
_EXIT_CODE = r"(?im)^(?:.*process exited with code.*?|exit code:)\s*(-?\d+)\.?\s*$"
_COMPLAINT = r"error:|failed|permission denied|not found"
_PRUNED = "lion_content_pruned"


def _of_response(key: str) -> Cell:
    """A key of the answer of a tool; other messages are not looked into."""
    answer = (
        "CASE WHEN role NOT IN ('action', 'tool') THEN NULL "
        "WHEN typeof(content) <> 'text' THEN NULL WHEN NOT json_valid(content) THEN NULL "
        "WHEN json_type(content, '$.output') IS NULL AND json_type(content, '$.error') IS NULL "
        f"AND json_type(content, '$.{_PRUNED}') IS NULL THEN NULL "
        f"ELSE substr(CAST(json_extract(content, '$.{key}') AS TEXT), 1, {MAX_OUTPUT}) END"
    )
    return Cell("text", answer, ("role", "content"))


def count_errors(store: Store) -> pl.DataFrame:
    """Tool errors of each session.

    Parameters
    ----------
    store : Store
        An open lionagi store.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, 4)
        Sorted by ``session_id``: ``n_tool_answers`` (answers of tools), ``n_tool_errors``
        (of these, errors) and ``n_pruned`` (of these, bodies that were pruned, so that
        nothing is known about them); 0 for a session without answers.

    Notes
    -----
    An answer is an error when it carries one, or when its output says so by lionagi's own
    rule: an exit code other than 0 in the first eight lines, or a complaint in the first
    300 characters together with "no such file or directory". Only the first 4000
    characters of an output are looked at.
    """
    answers, _ = read_table(
        store,
        "messages",
        {
            "id": TEXT,
            "error": _of_response("error"),
            "output": _of_response("output"),
            "pruned": _of_response(_PRUNED),
        },
        system=SYSTEM,
    )
    judged = answers.filter(pl.any_horizontal(pl.col("error", "output", "pruned").is_not_null()))
    progressions, _ = read_table(store, "progressions", {"id": TEXT, "collection": JSON})
    branches, _ = read_table(store, "branches", {"session_id": TEXT, "progression_id": TEXT})
    sessions, _ = read_table(store, "sessions", {"id": TEXT})
    counts = (
        listed_messages(branches, progressions)
        .join(judged, left_on="message_id", right_on="id", how="inner")
        .group_by("session_id")
        .agg(
            n_tool_answers=pl.len(),
            n_tool_errors=_is_error().sum(),
            n_pruned=pl.col("pruned").is_not_null().sum(),
        )
    )
    names = ["n_tool_answers", "n_tool_errors", "n_pruned"]
    return (
        sessions.select(session_id="id")
        .join(counts, on="session_id", how="left")
        .with_columns(pl.col(names).fill_null(0).cast(schema.INTEGER))
        .sort("session_id")
    )


def _is_error() -> pl.Expr:
    output = pl.col("output").fill_null("")
    code = output.str.extract(_FIRST_LINES).str.extract(_EXIT_CODE).cast(pl.Int64, strict=False)
    lower = output.str.to_lowercase()
    complains = lower.str.slice(0, 300).str.contains(_COMPLAINT)
    is_lost = lower.str.contains("no such file or directory", literal=True)
    has_error = pl.col("error").fill_null("") != ""
    return has_error | (code.fill_null(0) != 0) | (complains & is_lost)
