"""What is odd in transcripts: damage, repeats, copies, and what no release is known to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted
from stateanalytics.io.opening import read_octets
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.places import HISTORY, SETTINGS
from stateanalytics.systems.claude_code.states import SYSTEM

if TYPE_CHECKING:
    from stateanalytics.systems.claude_code.lines import Told

NEWEST_VERSION = (2, 1, 144)
"""Of the newest schema that the reader was checked against."""
RETENTION_DAYS = 30
_MOST_BYTES = 64 * 2**20
_TYPES = (
    *("user", "assistant", "system", "summary", "file-history-snapshot", "queue-operation"),
    *("progress", "pr-link", "agent-name", "custom-title", "last-prompt", "attachment"),
    *("permission-mode", "ai-title", "agent-setting", "bridge-session", "worktree-state", "meta"),
)
_SUBTYPES = (
    *("api_error", "turn_duration", "stop_hook_summary", "compact_boundary", "informational"),
    *("microcompact_boundary", "local_command", "bridge_status", "away_summary"),
    *("scheduled_task_fire", "agents_killed", "model_refusal_fallback"),
)
_BLOCK_TYPES = (
    *("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use"),
    *("advisor_tool_result", "tool_reference", "image", "document", "web_search_tool_result"),
)


def findings_of(
    root: Path, told: Told, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """What else is odd, each kind counted once.

    Parameters
    ----------
    root : pathlib.Path
        The input, for what lies beside the transcripts.
    told : Told
    details : mapping of str to polars.DataFrame
        What `reading.assembled` made of it.
    source : str
        How the user named the input.
    """
    lines, blocks = told.lines, told.blocks
    sessions, tools = details[frames.SESSIONS.name], details[frames.TOOLS.name]
    messages = details[frames.MESSAGES.name]
    kind = pl.col("type")
    is_later = lines["program_version"].map_elements(_is_newer, pl.Boolean)
    in_order = pl.col("at") < pl.col("at").cum_max().over("file", order_by="line_no")
    results = blocks.filter(kind.str.ends_with("tool_result").fill_null(value=False))
    known = pl.concat([tools["tool_id"], blocks.filter(kind == "tool_use")["tool_id"]])
    orphans = results.filter(~pl.col("tool_id").is_in(known.implode()).fill_null(value=False))
    parents = sessions.filter(pl.col("parent_thread_id").is_not_null())
    missing = parents.filter(~pl.col("parent_thread_id").is_in(sessions["thread_id"].implode()))
    repeated = int(messages["n_lines"].sum() - messages.height)
    naive, counted_once = (
        int(messages[name].sum()) for name in ("naive_output_tokens", "n_output_tokens")
    )
    copied, repeats = (sessions.filter(pl.col(name) > 0) for name in ("n_copied", "n_repeated"))
    unknown = {
        "type": lines.filter(~kind.is_in(list(_TYPES))),
        "subtype": lines.filter(kind == "system", ~pl.col("subtype").is_in(list(_SUBTYPES))),
        "block": blocks.filter(~kind.is_in(list(_BLOCK_TYPES))),
    }
    rows = (
        *(
            (f"record.unknown_{what}", "info", f"a {what} that no known release writes",
             *_words(found, "subtype" if what == "subtype" else "type"))
            for what, found in unknown.items()
        ),
        ("version.unknown", "info", "records of a version newer than the reader was checked on",
         *_words(lines.filter(is_later), "program_version")),
        ("message.repeated", "info", f"lines that tell of an answer again: {naive} output tokens, "
         f"were each added, in place of {counted_once}", repeated, None),
        ("session.copied_history", "info", "records copied from another session",
         int(sessions["n_copied"].sum()), _first(copied, "thread_id")),
        ("record.repeated", "info", "records that are there twice",
         int(sessions["n_repeated"].sum()), _first(repeats, "thread_id")),
        ("session.parent_missing", "warning", "subagents or forks whose session is not there",
         missing.height, _first(missing, "thread_id")),
        ("tool.result_without_call", "warning", "results of tool calls that are not there",
         orphans.height, _first(orphans, "tool_id")),
        ("record.own_parent", "warning", "records that name themselves as the one before",
         *_words(lines.filter(pl.col("uuid") == pl.col("parent_uuid")), "uuid")),
        ("time.out_of_order", "info", "records with a moment before that of an earlier line",
         *_words(lines.filter(in_order), "file")),
        ("session.in_two_files", "info", "sessions that several transcripts tell of",
         *_words(sessions.filter(pl.col("n_files") > 1), "thread_id")),
        *_beside(root, lines, sessions),
    )  # fmt: skip
    return pool(
        [
            counted(source, SYSTEM, code, severity, message, n_rows=n_rows, example=example)
            for code, severity, message, n_rows, example in rows
        ],
        schema.FINDINGS,
    )


def _first(rows: pl.DataFrame, column: str) -> str | None:
    return None if rows.is_empty() else str(rows[column].min())


def _words(rows: pl.DataFrame, column: str) -> tuple[int, str]:
    """How many rows, and the commonest words in them."""
    words = rows[column].drop_nulls().value_counts(sort=True)[column].head(5)
    return rows.height, ", ".join(sorted(words))


def _is_newer(version: str) -> bool:
    numbers = tuple(int(number[:9]) for number in re.findall(r"\d+", version)[:3])
    return numbers > NEWEST_VERSION


def _beside(
    root: Path, lines: pl.DataFrame, sessions: pl.DataFrame
) -> list[tuple[str, str, str, int, str | None]]:
    """What a root says of transcripts that are gone: files are deleted by age."""
    days = document(root / SETTINGS).get("cleanupPeriodDays")
    kept = days if isinstance(days, int) and 0 < days < 10**6 else RETENTION_DAYS
    found: list[tuple[str, str, str, int, str | None]] = []
    oldest = lines["at"].min()
    span = lines.select(pl.col("at").max() - pl.col("at").min()).item()
    if span is not None and span >= timedelta(days=kept - 1):
        message = f"older transcripts may have been deleted: they are kept for {kept} days"
        found.append(("time.retention_edge", "info", message, 1, str(oldest)))
    prompted = _prompted(root / HISTORY)
    gone = sorted(prompted - set(sessions["session_id"]))
    if gone:
        message = "sessions whose prompts are in the history, and whose transcripts are gone"
        found.append(("session.transcript_gone", "info", message, len(gone), gone[0]))
    return found


def document(path: Path) -> dict[str, Any]:
    """The object that a small file of JSON holds; empty where it holds none."""
    try:
        document = json.loads(read_octets(path, 2**20)[0])
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _prompted(path: Path) -> set[str]:
    """Sessions that somebody typed a prompt in; what was typed is not kept."""
    try:
        octets, _ = read_octets(path, _MOST_BYTES)
    except OSError:
        return set()
    return set(
        re.findall(r'"sessionId"\s*:\s*"([0-9a-fA-F-]{36})"', octets.decode(errors="replace"))
    )
