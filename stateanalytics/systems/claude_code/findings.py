"""What is odd in transcripts: damage, repeats, copies, and what no known version writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.io.findings import counted
from stateanalytics.systems.claude_code import NAME, frames
from stateanalytics.systems.claude_code.costs import LARGEST
from stateanalytics.systems.claude_code.lines import COST_RECORD
from stateanalytics.systems.claude_code.places import HISTORY, settings_of, transcripts_of
from stateanalytics.systems.threads import THREAD
from stateanalytics.systems.transcripts import (
    Transcripts,
    below_zero,
    findings_on,
    ids_in,
    newer_than,
    strange,
)

NEWEST_VERSION = (2, 1, 332)
"""The newest version that the reader was checked against."""
_RETENTION_DAYS = 30
COLUMNS = (
    *("source", "file", "line_no", "at", "type", "subtype", "what", "uuid", "parent_uuid"),
    *("program_version", "n_text_chars", *frames.USAGE),
    *("cost_usd", "model_usage", "is_cost_approximate"),
)
"""The columns of records that are read here."""
_TIMED = ("user", "assistant", "system", "progress", "attachment")
"""Types of records with a moment in every version; names and settings have none."""


def findings_of(
    root: Path, transcripts: Transcripts, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """One finding per kind of oddity, with the number of rows.

    Parameters
    ----------
    root : pathlib.Path
        The input, for the files next to the transcripts.
    transcripts : transcripts.Transcripts
    details : mapping of str to polars.DataFrame
        The frames of `reading.assembled`.
    source : str
        How the user named the input.
    """
    lines, blocks = details[frames.LINES.name], details[frames.BLOCKS.name]
    sessions, tools = details[frames.SESSIONS.name], details[frames.TOOLS.name]
    messages = details[frames.MESSAGES.name]
    cost_records = lines.filter(type=COST_RECORD)
    # Older versions recorded no costs at all.
    versions = sessions.filter(pl.col("cost_usd").is_not_null())["program_version"]
    with_costs = sessions.filter(pl.col("program_version").is_in(versions.implode()))
    empty = transcripts.empty_files(transcripts_of(root), root, lines)
    kind, at = pl.col("type"), pl.col("at")
    newer = newer_than(lines["program_version"], NEWEST_VERSION)
    calls = pl.concat([tools["tool_id"], blocks.filter(kind == "tool_use")["tool_id"]])
    parent = pl.col("parent_thread_id")
    odd = {
        "record.unknown_type": (strange(__package__, lines, "type", "type"), "type"),
        "record.unknown_subtype": (
            strange(__package__, lines.filter(kind == "system"), "subtype", "subtype"),
            "subtype",
        ),
        "record.unknown_block": (strange(__package__, blocks, "type", "block"), "type"),
        "version.unknown": (
            lines.filter(pl.col("program_version").is_in(newer)),
            "program_version",
        ),
        "session.parent_missing": (
            sessions.filter(~parent.is_in(sessions["thread_id"].implode())),
            "thread_id",
        ),
        "tool.result_without_call": (
            blocks.filter(kind.str.ends_with("result"), ~pl.col("tool_id").is_in(calls.implode())),
            "tool_id",
        ),
        "record.no_content": (
            lines.filter(
                pl.col("what").is_in(["prompt", "assistant"]), pl.col("n_text_chars").is_null()
            ),
            "file",
        ),
        "time.unreadable": (lines.filter(at.is_null(), kind.is_in(_TIMED)), "file"),
        "usage.below_zero": (below_zero(lines, frames.USAGE), "file"),
        "usage.placeholder": (
            messages.filter(pl.col("stop_reason").is_null(), pl.col("thread_id").str.contains("/")),
            "thread_id",
        ),
        "cost.unreadable": (
            cost_records.filter(
                ~pl.col("cost_usd").is_between(0, LARGEST).fill_null(value=False)
                | pl.col("model_usage").is_null()
            ),
            "file",
        ),
        "cost.approximate": (cost_records.filter("is_cost_approximate"), "file"),
        "cost.inherited": (sessions.filter(pl.col("inherited_cost_usd") > 0), "thread_id"),
        "cost.not_recorded": (
            messages.join(with_costs, on=THREAD, how="semi").filter(~pl.col("is_cost_recorded")),
            "thread_id",
        ),
        "cost.side_requests": (
            messages.filter("is_side_request").with_columns(
                n_tokens=pl.sum_horizontal(frames.USAGE)
            ),
            "thread_id",
        ),
        "file.empty": (empty, "file"),
        "record.own_parent": (lines.filter(pl.col("uuid") == pl.col("parent_uuid")), "uuid"),
        "time.out_of_order": (
            lines.filter(at < at.cum_max().over("file", order_by="line_no")),
            "file",
        ),
        "session.in_two_files": (sessions.filter(pl.col("n_files") > 1), "thread_id"),
        "session.transcript_gone": (
            ids_in(root / HISTORY, "sessionId").filter(
                ~pl.col("id").is_in(sessions["session_id"].implode())
            ),
            "id",
        ),
        "session.copied_history": (sessions.filter(pl.col("n_copied") > 0), "thread_id"),
        "record.repeated": (sessions.filter(pl.col("n_repeated") > 0), "thread_id"),
    }
    sums = {
        "session.copied_history": "n_copied",
        "record.repeated": "n_repeated",
        "cost.side_requests": "n_tokens",
    }
    return pool(
        [
            findings_on(__package__, source, NAME, odd, sums),
            _repeated_usage(source, sessions, messages),
            _retention(source, lines, root),
        ],
        schema.FINDINGS,
    )


def _repeated_usage(source: str, sessions: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """How many lines repeat an answer, and how many tokens their sum would be."""
    answers = messages.filter(~pl.col("is_side_request"))
    n_tokens, n_all_lines = answers["n_output_tokens"].sum(), sessions["naive_output_tokens"].sum()
    message = (
        f"lines that repeat an answer: the sum over all of them is {n_all_lines} output tokens "
        f"instead of {n_tokens}"
    )
    n_repeats = int(answers["n_lines"].sum()) - answers.height
    return counted(source, NAME, "message.repeated", "info", message, n_rows=n_repeats)


def _retention(source: str, lines: pl.DataFrame, root: Path) -> pl.DataFrame:
    """Whether older transcripts may have been deleted: the rest is as old as is allowed."""
    days = settings_of(root).get("cleanupPeriodDays")
    kept = days if isinstance(days, int) and 0 < days < 10**6 else _RETENTION_DAYS
    first, last = lines["at"].min(), newest_in_company([[lines["at"]]], [lines["at"]])
    is_edge = first is not None and last - first >= timedelta(days=kept - 1)  # type: ignore[operator]
    message = f"older transcripts may have been deleted: they are kept for {kept} days"
    return counted(source, NAME, "time.retention_edge", "info", message, n_rows=int(is_edge))
