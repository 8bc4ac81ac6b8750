"""What is odd in rollouts: damage, copies, and what no version is known to write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from stateanalytics.errors import SourceError
from stateanalytics.io.cells import Cell
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.codex import NAME, frames
from stateanalytics.systems.codex.folding import ENDS, FILE, FILE_ID, is_repeated
from stateanalytics.systems.codex.places import HISTORY, index_of, rollouts_of
from stateanalytics.systems.transcripts import (
    Transcripts,
    below_zero,
    findings_on,
    ids_in,
    newer_than,
    strange,
)

NEWEST_VERSION = (0, 169, 0)
"""The newest version that the reader was checked against."""
COLUMNS = (
    *("source", "file", "line_no", "at", "type", "kind", "item", "what", "ordinal"),
    *("own_id", "call_id", "turn_id", "program_version", "n_text_chars", "sum_total_tokens"),
    *frames.USAGE,
)
"""The columns of records that are read here."""


def findings_of(
    root: Path, transcripts: Transcripts, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """One finding per kind of oddity, with the number of rows.

    Parameters
    ----------
    root : pathlib.Path
        The input, for the files next to the rollouts.
    transcripts : transcripts.Transcripts
    details : mapping of str to polars.DataFrame
        The frames of `reading.assembled`.
    source : str
        How the user named the input.
    """
    sessions, turns = (details[frame.name] for frame in (frames.SESSIONS, frames.TURNS))
    records = details[frames.LINES.name]
    empty = transcripts.empty_files(rollouts_of(root), root, records)
    lines = records.lazy().filter(pl.col("what") != "name")
    rollouts = lines.sort(*FILE, "line_no").select(COLUMNS).collect()
    del records, lines  # as large as the sorted copy
    what, kind, type_, at = (pl.col(name) for name in ("what", "kind", "type", "at"))
    first = rollouts.group_by(FILE, maintain_order=True).first()
    newer = newer_than(first["program_version"], NEWEST_VERSION)
    threads = sessions["thread_id"].implode()
    indexed, unread = _indexed_threads(root)
    # Most records are looked at by few columns: a copy of all would be large.
    kinds = rollouts.select("type", "kind", "item", "what")
    events = kinds.filter(type_ == "event_msg")
    token_counts = rollouts.filter(what == "tokens").drop_nulls("sum_total_tokens")
    total, ordinal = pl.col("sum_total_tokens"), pl.col("ordinal")
    is_call = what.is_in(["result", "tool_end"]) & pl.col("call_id").is_not_null()
    tools = details[frames.TOOLS.name]["call_id"]
    calls = pl.concat(
        [rollouts.select(pl.col("call_id").filter(what == "call")).to_series(), tools]
    ).implode()
    starts = rollouts.select(pl.col("turn_id").filter(what == "turn_start")).to_series().implode()
    is_other_end = what.is_in(list(ENDS)) & ~pl.col("turn_id").is_in(starts)
    file_id = pl.col("file").str.extract(FILE_ID)
    situation = pl.col("situation")
    odd = {
        "record.unknown_type": (
            strange(__package__, kinds.filter(what != "legacy"), "type", "record"),
            "type",
        ),
        "record.unknown_event": (strange(__package__, events, "kind", "event"), "kind"),
        "record.unknown_item": (
            pl.concat(
                [
                    strange(__package__, kinds.filter(type_ == "response_item"), "kind", "item"),
                    strange(
                        __package__, events.filter(kind == "item_completed"), "item", "turn_item"
                    ).with_columns(kind="item"),
                ]
            ),
            "kind",
        ),
        "record.repeated": (
            rollouts.filter(what.str.contains("^(?:prompt|answer)_"), is_repeated()),
            "file",
        ),
        "time.unreadable": (rollouts.filter(at.is_null(), what != "legacy"), "file"),
        "usage.below_zero": (below_zero(rollouts, frames.USAGE), "file"),
        "file.empty": (empty, "file"),
        "record.legacy_shape": (rollouts.filter(what == "legacy"), "file"),
        "record.no_thread": (first.filter(~what.is_in(["meta", "legacy"])), "file"),
        "turn.unknown_abort": (turns.filter(situation == "unknown_abort"), "stop_reason"),
        "turn.end_without_start": (rollouts.filter(is_other_end), "turn_id"),
        "turn.superseded": (turns.filter(situation == "aborted"), "entity_id"),
        "tool.result_without_call": (
            rollouts.filter(is_call & ~pl.col("call_id").is_in(calls)),
            "call_id",
        ),
        "tokens.total_fell": (token_counts.filter(total < total.shift(1).over(FILE)), "file"),
        "version.unknown": (
            first.filter(pl.col("program_version").is_in(newer)),
            "program_version",
        ),
        "session.parent_missing": (
            sessions.filter(~pl.col("parent_thread_id").is_in(threads)),
            "thread_id",
        ),
        "session.in_two_files": (sessions.filter(pl.col("n_files") > 1), "thread_id"),
        "session.name_mismatch": (
            first.filter((what == "meta") & (file_id != pl.col("own_id"))),
            "file",
        ),
        "index.thread_without_rollout": (indexed.filter(~pl.col("id").is_in(threads)), "id"),
        "index.unreadable": (unread, "file"),
        "session.transcript_gone": (
            ids_in(root / HISTORY, "session_id").filter(~pl.col("id").is_in(threads)),
            "id",
        ),
        "session.copied_history": (sessions.filter(pl.col("n_copied") > 0), "thread_id"),
        "record.ordinal_gap": (
            rollouts.filter(ordinal > ordinal.shift(1).over(FILE) + 1),
            "file",
        ),
        "time.out_of_order": (
            rollouts.filter(at < at.cum_max().over("source", "file", order_by="line_no")),
            "file",
        ),
    }
    return findings_on(__package__, source, NAME, odd, sums={"session.copied_history": "n_copied"})


def _indexed_threads(root: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``id`` of each thread in the database, and ``file`` of a database that cannot be read."""
    index = index_of(root)
    threads = pl.DataFrame(schema={"id": pl.String})
    unread = pl.DataFrame(schema={"file": pl.String})
    if index is None:
        return threads, unread
    try:
        with open_store(index) as store:
            return read_table(store, "threads", {"id": Cell("text")})[0].drop_nulls(), unread
    except SourceError:
        return threads, pl.DataFrame({"file": [index.name]})
