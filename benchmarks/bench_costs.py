"""Transcripts next to other ways to read them: their parse, and what a day cost.

The parse stands next to typed structs of msgspec and DuckDB's own reader of JSON; costs next to
ccusage, which is on npm. Each peer is left out where it is not installed. All in processor
seconds, because ours and DuckDB use several threads.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from benchmarks.bench_transcripts import settle, write_claude_code
from benchmarks.measure import Row, cpu_s, cpu_s_of_commands
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.lines import FIELDS, typed
from stateanalytics.systems.claude_code.places import transcripts_of
from stateanalytics.systems.transcripts import Transcripts, read_records

N_RUNS = 3
MOST_PARSE, MOST_FRESH, MOST_CACHED = 1.5, 3.0, 1.0
PARSED_MB = 100
HAS_MSGSPEC = importlib.util.find_spec("msgspec") is not None
_COLUMNS = {
    "type": "VARCHAR", "uuid": "VARCHAR", "parentUuid": "VARCHAR", "timestamp": "VARCHAR",
    "sessionId": "VARCHAR", "version": "VARCHAR", "message": "JSON",
}  # fmt: skip


def run(n_mb: int = 400) -> Iterator[Row]:
    """The parse of a hundred megabytes, and the costs of four hundred."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        for root, size in ((small, min(PARSED_MB, n_mb)), (large, n_mb)):
            write_claude_code(root, size)
            settle(root)
        yield from _parses(small, min(PARSED_MB, n_mb))
        yield from _costs(large, n_mb, Path(folder) / "cache")


def _parses(root: Path, n_mb: int) -> Iterator[Row]:
    files = list(transcripts_of(root))
    peers: dict[str, Callable[[], object]] = {
        "DuckDB `read_json`": partial(with_duckdb, files),
        **({"msgspec": partial(with_msgspec, files)} if HAS_MSGSPEC else {}),
    }
    ours = cpu_s(partial(parsed, root, files), N_RUNS)
    for name, peer in peers.items():
        peer_s = cpu_s(peer, N_RUNS)
        is_goal = name == "msgspec"
        yield Row(
            f"parse {n_mb} MB of transcripts (CPU)",
            ours,
            name,
            peer_s,
            f"≤ {MOST_PARSE:g} ×" if is_goal else "none",
            not is_goal or ours <= MOST_PARSE * peer_s,
            f"{ours / peer_s:.2g} ×",
            differs="14 and 7 columns in place of 60 and 25, no check, no word of an error"
            if is_goal
            else "seven columns of lines, no block of a message",
        )


def parsed(root: Path, files: list[Path]) -> Transcripts:
    """Our rows of all records, as reading begins with them."""
    return read_records(
        root, files, "claude", fields=FIELDS, frames=(frames.LINES, frames.BLOCKS), typed=typed
    )


def with_duckdb(files: list[Path]) -> object:
    """Some columns of all lines."""
    with duckdb.connect() as connection:
        return connection.sql(
            "FROM read_json($files, format='newline_delimited', columns=$columns)",
            params={"files": [str(path) for path in files], "columns": _COLUMNS},
        ).fetch_arrow_table()


def with_msgspec(files: list[Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Lines and blocks as typed structs, and the two frames of them."""
    import msgspec

    text = str | None
    a_block = msgspec.defstruct(
        "Block",
        [(name, text, None) for name in ("type", "id", "name", "tool_use_id", "text")]
        + [("is_error", bool | None, None)],
    )
    usage_of = ("input_tokens", "cache_read_input_tokens", "output_tokens",
                "cache_creation_input_tokens")  # fmt: skip
    a_usage = msgspec.defstruct("Usage", [(name, int | None, None) for name in usage_of])
    a_message = msgspec.defstruct(
        "Message",
        [("id", text, None), ("model", text, None), ("stop_reason", text, None),
         ("usage", a_usage | None, None), ("content", str | list[a_block] | None, None)],  # type: ignore[valid-type]
    )  # fmt: skip
    names = ("type", "subtype", "uuid", "parentUuid", "timestamp", "sessionId", "version")
    line = msgspec.defstruct(
        "Line", [(name, text, None) for name in names] + [("message", a_message | None, None)]
    )
    decode = msgspec.json.Decoder(line).decode
    lines: list[Any] = []
    blocks: list[Any] = []
    for path in files:
        for octets in path.read_bytes().splitlines():
            record = decode(octets)
            message = record.message
            usage = message.usage if message else None
            lines.append((
                *(getattr(record, name) for name in names),
                *((message.id, message.model, message.stop_reason) if message else (None,) * 3),
                *(getattr(usage, name) if usage else None for name in usage_of),
            ))  # fmt: skip
            if message and isinstance(message.content, list):
                blocks += [
                    (record.uuid, block.type, block.id, block.name, block.tool_use_id,
                     block.is_error, len(block.text or ""))
                    for block in message.content
                ]  # fmt: skip
    return pl.DataFrame(lines, orient="row", infer_schema_length=None), pl.DataFrame(
        blocks, orient="row", infer_schema_length=None
    )


def _costs(root: Path, n_mb: int, cache: Path) -> Iterator[Row]:
    """What each day and model cost, first and again, next to ccusage."""
    peer = shutil.which("ccusage")
    if peer is None:
        return
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(root), "STATEANALYTICS_CACHE": str(cache)}
    ours = [sys.executable, "-m", "stateanalytics", "costs", str(root), "--by", "day,model"]
    theirs = [peer, "claude", "daily", "--offline", "--json"]
    for name, asked, most in (
        ("without the cache", [*ours, "--no-cache"], MOST_FRESH), ("again", ours, MOST_CACHED)
    ):  # fmt: skip
        ours_s, peer_s = cpu_s_of_commands(asked, theirs, n_runs=N_RUNS, environment=environment)
        yield Row(
            f"`costs` of {n_mb} MB of transcripts by day and model, {name} (CPU)",
            ours_s,
            "ccusage",
            peer_s,
            f"≤ {most:g} ×",
            ours_s <= most * peer_s,
            f"{ours_s / peer_s:.2g} ×; {_totals(ours, theirs, environment)}",
            differs="runs, turns, failures and lost work are found, too",
        )


def _totals(ours: list[str], theirs: list[str], environment: dict[str, str]) -> str:
    """The two sums in dollars."""
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
        for command in ([*ours[:-2], "--format", "csv"], theirs)
    ]
    usd = pl.read_csv(outputs[0].encode())["total_usd"].sum()
    return f"${usd:,.2f} and ${json.loads(outputs[1])['totals']['totalCost']:,.2f}"
