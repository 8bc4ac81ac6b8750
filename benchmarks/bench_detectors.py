"""Detectors: what all of them say of a store, and every threshold of silence, judged at once."""

from __future__ import annotations

import functools
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl

from benchmarks.measure import Row, median_s, peak_mb, side_by_side
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.detectors.quality import gap_sums, quality_of_service

GOAL_S, GOAL_MB = 3.0, 1_000
N_JUDGED, JUDGED_CPU_S, JUDGED_MB = 300_000, 6.0, 2_500
EVENTS_PER_SESSION = 20
KINDS = pl.Series(["agent", "play", "flow", "fanout", "show-play", "engine", "other"])
THRESHOLDS_S = [10 * 1.04**step for step in range(200)]
AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
FIRST_US = 1_779_000_000_000_000
WEEK_US = 604_800_000_000
WINDOW = """
    SELECT count(*), sum(epoch_us("at") - before) FROM (
        SELECT "at", epoch_us(lag("at") OVER (
            PARTITION BY source, system, entity_type, entity_id ORDER BY "at")) AS before
        FROM '{path}')
"""


def run(n_gaps: int = 20_000_000) -> list[Row]:
    """Measure detectors, silences in memory and out of core, events beside DuckDB's window."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            of_store(min(N_JUDGED, n_gaps), Path(folder)),
            in_memory(n_gaps, Path(folder) / "gaps.parquet"),
            out_of_core(5 * n_gaps, Path(folder) / "many_gaps.parquet"),
            from_events(n_gaps // 2, Path(folder) / "events.parquet"),
        ]


def of_store(n_sessions: int, folder: Path) -> Row:
    """All detectors on all sessions of a store, and how far they agree."""
    from tests.generators import write_store

    path = str(write_store(folder / "state.db", n_sessions))
    peak = peak_mb(functools.partial(judge, path))
    cpu_s, wall_s = judge(path)
    return Row(
        work=f"detect and agreement of {n_sessions:,} sessions",
        ours_s=wall_s,
        peer="",
        peer_s=None,
        goal=f"≤ {JUDGED_CPU_S:g} CPU s, {JUDGED_MB:,} MB",
        is_met=cpu_s <= JUDGED_CPU_S and peak <= JUDGED_MB,
        note=f"{cpu_s:.2g} CPU s, peak {peak:,.0f} MB with the snapshot and its reading",
    )


def judge(path: str) -> tuple[float, float]:
    """CPU and wall seconds of the detectors and their agreement, without reading the store."""
    from stateanalytics.detectors import agreement, detect
    from stateanalytics.snapshot import read

    with read(path, progress=False) as snap:
        cpu, begun = time.process_time(), time.perf_counter()
        agreement(detect(snap))
        return time.process_time() - cpu, time.perf_counter() - begun


def in_memory(n_gaps: int, path: Path) -> Row:
    """Twenty million silences by seven kinds and two hundred thresholds."""
    write_gaps(n_gaps, path)
    gaps = pl.read_parquet(path)
    ours_s = median_s(lambda: gap_sums(gaps, THRESHOLDS_S))
    peak = peak_mb(functools.partial(count_in_memory, path))
    return Row(
        work=f"gap_sums of {n_gaps:,} silences × {len(THRESHOLDS_S)} thresholds × 7 kinds",
        ours_s=ours_s,
        peer="",
        peer_s=None,
        goal=f"≤ {GOAL_S:g} s, {GOAL_MB:,} MB",
        is_met=ours_s <= GOAL_S and peak <= GOAL_MB,
        note=f"peak {peak:,.0f} MB with the silences",
    )


def out_of_core(n_gaps: int, path: Path) -> Row:
    """Five times as many, streamed from a file."""
    write_gaps(n_gaps, path)
    ours_s = median_s(lambda: count_streamed(path), n_runs=1)
    peak = peak_mb(functools.partial(count_streamed, path))
    return Row(
        work=f"gap_sums of {n_gaps:,} silences × {len(THRESHOLDS_S)} thresholds from Parquet",
        ours_s=ours_s,
        peer="",
        peer_s=None,
        goal=f"≤ {GOAL_MB:,} MB",
        is_met=peak <= GOAL_MB,
        note=f"peak {peak:,.0f} MB; {path.stat().st_size / 1e6:,.0f} MB of file",
    )


def from_events(n_events: int, path: Path) -> Row:
    """From events to quality of service, beside the bare gaps of the same events."""
    write_events(n_events, path)
    facts = facts_of(pl.read_parquet(path))
    ours_s, peer_s = side_by_side(
        lambda: quality_of_service(facts),
        lambda: duckdb.sql(WINDOW.format(path=path)).fetchall(),
        n_runs=3,
    )
    return Row(
        work=f"quality_of_service of {n_events:,} events",
        ours_s=ours_s,
        peer="DuckDB, gaps alone",
        peer_s=peer_s,
        goal="≥ 0.5 ×",
        is_met=peer_s / ours_s >= 0.5,
        note="states, ends and all thresholds included",
        differs="no states, no ends, no thresholds: the gaps alone",
    )


def count_in_memory(path: Path) -> None:
    gap_sums(pl.read_parquet(path), THRESHOLDS_S)


def count_streamed(path: Path) -> None:
    gap_sums(pl.scan_parquet(path), THRESHOLDS_S)


def write_gaps(n: int, path: Path) -> None:
    """Silences with a mean of ten minutes, most of them closed by a sign of life."""
    row = pl.col("row")
    share = (row.hash(1).cast(pl.Float64) + 1) / 2**64
    by = pl.when(row.hash(3) % 20 == 0).then(pl.lit("own_end")).otherwise(pl.lit("sign_of_life"))
    pl.LazyFrame().select(row=pl.int_range(n, dtype=pl.UInt64)).select(
        kind=pl.lit(KINDS).gather(row.hash(2) % len(KINDS)).cast(pl.Enum(KINDS)),
        gap_s=-600 * share.log(),
        closed_by=by.cast(pl.Enum(["sign_of_life", "own_end"])),
    ).sink_parquet(path)


def write_events(n: int, path: Path) -> None:
    """Events of a week, in no order."""
    row = pl.col("row")
    at = FIRST_US + (row.hash(4) % WEEK_US).cast(pl.Int64)
    pl.LazyFrame().select(row=pl.int_range(n, dtype=pl.UInt64)).select(
        source=pl.lit("state.db"),
        system=pl.lit("lionagi"),
        entity_type=pl.lit("session"),
        entity_id=pl.format(
            "{}-5d05-46a5-8895-1b42a286a4ca", row.hash(3) % (n // EVENTS_PER_SESSION)
        ),
        at=at.cast(schema.MOMENT),
        is_activity=pl.lit(value=True),
    ).sink_parquet(path)


def facts_of(events: pl.DataFrame) -> Facts:
    """A running session for each id, begun at the first moment."""
    sessions = events.select("source", "system", "entity_type", "entity_id").unique()
    entities = sessions.with_columns(
        raw_status=pl.lit("running"),
        kind=pl.lit("agent"),
        started_at=pl.lit(FIRST_US).cast(schema.MOMENT),
    )
    filled = {
        "entities": schema.ENTITIES.conform(entities),
        "events": schema.EVENTS.conform(events),
    }
    empty = {shape.name: shape.empty() for shape in schema.FACTS if shape.name not in filled}
    return Facts(**filled, **empty, as_of=AS_OF)
