"""sa.explore at a million runs: what a choice changes in every chart, and the newest rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl

from benchmarks.measure import Row, side_by_side
from stateanalytics.io.duckdb_rows import DuckDBRows
from stateanalytics.sql.conditions import CrossFilter

GOAL_S = 0.1
WORDS = {"kind": 5, "model": 8, "project": 40, "outcome": 5}
SCALES = ("started_at", "duration_s", "cost_usd")
CHOSEN = {"project": [0, 1, 2], "started_at": [2, 6]}
N_ROWS = 10


def run(n_runs: int = 1_000_000) -> list[Row]:
    """Measure; the table is taken in before, since that is done once."""
    rows = made(n_runs)
    look = CrossFilter(rows, [*WORDS, *SCALES])
    condition = look.where(CHOSEN)
    plain = duckdb.connect(":memory:")
    plain.register("_rows", DuckDBRows(rows))
    plain.execute("CREATE TABLE runs AS FROM _rows")
    ours_s, peer_s = side_by_side(lambda: answer(look), lambda: by_words(plain, condition))
    return [
        Row(
            work=f"sa.explore, a choice answered in 7 charts, {n_runs:,} runs",
            ours_s=ours_s,
            peer="DuckDB, of the same rows as they are",
            peer_s=peer_s,
            goal=f"≤ {GOAL_S:g} s",
            is_met=ours_s <= GOAL_S,
            differs="DuckDB is asked for the words only, and for no steps of a scale",
        )
    ]


def made(n_runs: int) -> pl.DataFrame:
    """Runs of a year, newest first, of words and scales that do not go together."""
    n = pl.int_range(n_runs)
    return pl.select(
        *((n * (17 + size) % size).cast(pl.String).alias(name) for name, size in WORDS.items()),
        started_at=pl.lit(datetime(2026, 5, 25, tzinfo=UTC))
        - pl.duration(seconds=n * (timedelta(days=365).total_seconds() / n_runs)),
        duration_s=(n * 7919 % 10_007).cast(pl.Float64),
        cost_usd=(n * 104_729 % 997) / 100,
    )


def answer(look: CrossFilter) -> object:
    """What the widget asks for after every click."""
    return look.counts(CHOSEN), look.n_rows(CHOSEN), look.selected(CHOSEN, most=N_ROWS)


def by_words(plain: duckdb.DuckDBPyConnection, condition: str) -> object:
    """The rows that are chosen, counted by each column of words."""
    return [
        plain.execute(
            f"SELECT {name}, count(*) FROM runs WHERE {condition} GROUP BY {name}"
        ).fetchall()
        for name in WORDS
    ]
