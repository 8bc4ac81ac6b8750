"""What is odd in rollouts: damage, copies, and what no version is known to write."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted
from stateanalytics.io.opening import read_octets
from stateanalytics.systems.codex import frames
from stateanalytics.systems.codex.folding import ENDS, FILE, NAME_ID
from stateanalytics.systems.codex.lines import known_words
from stateanalytics.systems.codex.places import HISTORY
from stateanalytics.systems.codex.states import SYSTEM

NEWEST_VERSION = (0, 169, 0)
"""Of the newest schema that the reader was checked against."""
_MOST_BYTES = 64 * 2**20


def _words() -> dict[str, tuple[str, str]]:
    text = resources.files(__package__).joinpath("data", "findings.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["code"]: (row["severity"], row["message"]) for row in rows}


def findings_of(
    root: Path, lines: pl.DataFrame, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """What else is odd, each kind counted once.

    Parameters
    ----------
    root : pathlib.Path
        The input, for what lies beside the rollouts.
    lines : polars.DataFrame
        `frames.LINES`.
    details : mapping of str to polars.DataFrame
        What `reading.assembled` made of them.
    source : str
        How the user named the input.
    """
    sessions, turns = (details[frame.name] for frame in (frames.SESSIONS, frames.TURNS))
    rollouts = lines.filter(pl.col("what") != "name").sort(*FILE, "line_no")
    what, kind, type_, at = (pl.col(name) for name in ("what", "kind", "type", "at"))
    first = rollouts.group_by(FILE, maintain_order=True).first()
    versions = first["program_version"].drop_nulls().unique()
    newer = [version for version in versions if _numbers(version) > NEWEST_VERSION]
    threads = sessions["thread_id"].implode()
    of_events = rollouts.filter(type_ == "event_msg")
    of_tokens = rollouts.filter(what == "tokens").drop_nulls("sum_total_tokens")
    total, ordinal = pl.col("sum_total_tokens"), pl.col("ordinal")
    is_call = what.is_in(["result", "tool_end"]) & pl.col("call_id").is_not_null()
    calls = rollouts.filter(what == "call")["call_id"].implode()
    starts = rollouts.filter(what == "turn_start")["turn_id"].implode()
    is_other_end = what.is_in(list(ENDS)) & ~pl.col("turn_id").is_in(starts)
    named = pl.col("file").str.extract(NAME_ID)
    situation = pl.col("situation")
    prompted = _prompted_threads(root / HISTORY)
    odd = {
        "record.unknown_type": (
            _strange(rollouts.filter(what != "legacy"), "type", "record"),
            "type",
        ),
        "record.unknown_event": (_strange(of_events, "kind", "event"), "kind"),
        "record.unknown_item": (
            pl.concat(
                [
                    _strange(rollouts.filter(type_ == "response_item"), "kind", "item"),
                    _strange(
                        of_events.filter(kind == "item_completed"), "item", "turn_item"
                    ).with_columns(kind="item"),
                ]
            ),
            "kind",
        ),
        "record.legacy_shape": (rollouts.filter(what == "legacy"), "file"),
        "record.no_thread": (first.filter(~what.is_in(["meta", "legacy"])), "file"),
        "turn.unknown_abort": (turns.filter(situation == "unknown_abort"), "stop_reason"),
        "turn.end_without_start": (rollouts.filter(is_other_end), "turn_id"),
        "turn.superseded": (turns.filter(situation == "aborted"), "entity_id"),
        "tool.result_without_call": (
            rollouts.filter(is_call & ~pl.col("call_id").is_in(calls)),
            "call_id",
        ),
        "tokens.total_fell": (of_tokens.filter(total < total.shift(1).over(FILE)), "file"),
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
            first.filter((what == "meta") & (named != pl.col("own_id"))),
            "file",
        ),
        "session.transcript_gone": (
            prompted.filter(~pl.col("thread_id").is_in(threads)),
            "thread_id",
        ),
        "record.ordinal_gap": (
            rollouts.filter(ordinal > ordinal.shift(1).over(FILE) + 1),
            "file",
        ),
        "time.out_of_order": (
            rollouts.filter(at < at.cum_max().over("source", "file", order_by="line_no")),
            "file",
        ),
    }
    found = [(code, rows.height, _least(rows, column)) for code, (rows, column) in odd.items()]
    copied = sessions.filter(pl.col("n_copied") > 0)
    found.append(
        ("session.copied_history", int(copied["n_copied"].sum()), _least(copied, "thread_id"))
    )
    words = _words()
    return pool(
        [
            counted(source, SYSTEM, code, *words[code], n_rows=n_rows, example=example)
            for code, n_rows, example in found
        ],
        schema.FINDINGS,
    )


def _strange(rows: pl.DataFrame, column: str, of: str) -> pl.DataFrame:
    """The rows with a word that no known version writes."""
    return rows.filter(~pl.col(column).is_in(known_words().filter(of=of)["word"].implode()))


def _least(rows: pl.DataFrame, column: str) -> str:
    """The least words, so that the same rows give the same example in any order."""
    return ", ".join(rows[column].drop_nulls().unique().sort().head(5))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number[:9]) for number in re.findall(r"\d+", version)[:3])


def _prompted_threads(path: Path) -> pl.DataFrame:
    """Threads that somebody typed a prompt in, as ``thread_id``; what it was is not kept."""
    try:
        octets, _ = read_octets(path, _MOST_BYTES)
    except OSError:
        octets = b""
    found = re.findall(rb'"session_id"\s*:\s*"([0-9a-fA-F-]{36})"', octets)
    ids = sorted({thread_id.decode() for thread_id in found})
    return pl.DataFrame({"thread_id": ids}, schema={"thread_id": pl.String})
