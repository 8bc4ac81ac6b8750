"""What an archive costs: writing it, reading it back, and opening one week of a year."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

from benchmarks.measure import N_RUNS, Row, median_s, peak_mb, side_by_side
from stateanalytics.snapshot import Snapshot, read
from stateanalytics.systems.archiving import collect
from tests.generators import AS_OF, write_store

MOST_WRITING, LEAST_READING, MOST_WEEK_S, MOST_WEEK_MB = 1.5, 8.0, 2.0, 500
MOST_FLEET_CPU_S, MOST_FLEET_MB = 0.3, 4.0
N_WEEKS, N_STORES, N_A_STORE = 52, 137, 60


def run(
    n_sessions: int = 100_000, n_a_week: int = 10_000, n_weeks: int = N_WEEKS, n_runs: int = N_RUNS
) -> list[Row]:
    """The rows of the benchmark table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = write_store(folder / "state.db", n_sessions, n_messages_per_session=4)
        return [
            *beside_the_store(store, folder / "history", n_sessions, n_runs),
            one_week_of(folder, min(n_a_week, n_sessions), n_weeks, n_runs),
            many_stores(folder, min(N_STORES, n_sessions), n_runs),
        ]


def beside_the_store(store: Path, history: Path, n_sessions: int, n_runs: int) -> list[Row]:
    """Archiving what was read beside reading it, and reading it from the archive beside that."""
    with read(store, progress=False) as snap:
        archiving, reading = side_by_side(
            partial(archived_anew, snap, history), partial(load, store), n_runs
        )
    archived, stored = side_by_side(partial(load, history), partial(load, store), n_runs)
    n_bytes = sum(path.stat().st_size for path in history.rglob("*.parquet"))
    note = f"{n_bytes / 1e6:.1f} MB of {store.stat().st_size / 1e6:,.0f} MB"
    cost = (reading + archiving) / reading
    return [
        Row(
            f"archive {n_sessions:,} sessions",
            archiving,
            "reading them",
            reading,
            f"both ≤ {MOST_WRITING:g} × reading",
            cost <= MOST_WRITING,
            f"{cost:.2g} × with reading; {note}",
            differs="reading comes before it: a share, no contest",
        ),
        Row(
            f"read {n_sessions:,} sessions from the archive",
            archived,
            "from the store",
            stored,
            f"≥ {LEAST_READING:g} × faster",
            stored >= LEAST_READING * archived,
            differs="the store is copied, checked and mapped again",
        ),
    ]


def one_week_of(folder: Path, n_a_week: int, n_weeks: int, n_runs: int) -> Row:
    """A year of a fleet that prunes each week, archived each week; one week of it opened."""
    year = folder / "year"
    for week in range(n_weeks):
        store = folder / "week.db"
        store.unlink(missing_ok=True)
        now = AS_OF - timedelta(weeks=n_weeks - 1 - week)
        write_store(store, n_a_week, seed=week, as_of=now, days=7, n_messages_per_session=2)
        with read(store, progress=False) as snap:
            snap.archive(year)
    monday = AS_OF - timedelta(weeks=n_weeks // 2)
    name = f"{monday.isocalendar().year}-W{monday.isocalendar().week:02}"
    opening = partial(load, year, weeks=name)
    spent, used = median_s(opening, n_runs), peak_mb(opening)
    return Row(
        f"open one of {n_weeks} weeks of {n_a_week:,} sessions",
        spent,
        "",
        None,
        f"≤ {MOST_WEEK_S:g} s, ≤ {MOST_WEEK_MB} MB",
        spent <= MOST_WEEK_S and used <= MOST_WEEK_MB,
        f"peak {used:,.0f} MB",
    )


def many_stores(folder: Path, n_stores: int, n_runs: int) -> Row:
    """Many small stores in one archive: its size, and what it costs to open."""
    stores = []
    for number in range(n_stores):
        store = folder / f"h{number:03}" / "state.db"
        store.parent.mkdir()
        stores.append(write_store(store, N_A_STORE, seed=number, n_messages_per_session=4))
    history = folder / "fleet"
    collect(stores, history)
    n_bytes = sum(path.stat().st_size for path in history.rglob("*.*") if path.is_file())
    load(history)
    spent = []
    for _ in range(n_runs):
        begun = time.process_time()
        load(history)
        spent.append(time.process_time() - begun)
    cpu_s = statistics.median(spent)
    return Row(
        f"open an archive of {n_stores} stores of {N_A_STORE} sessions (CPU)",
        cpu_s,
        "",
        None,
        f"≤ {MOST_FLEET_CPU_S:g} s, ≤ {MOST_FLEET_MB:g} MB",
        cpu_s <= MOST_FLEET_CPU_S and n_bytes <= MOST_FLEET_MB * 1e6,
        f"{n_bytes / 1e6:.1f} MB on disk",
    )


def load(path: Path, **options: str) -> Snapshot:
    """A snapshot whose private copy is gone already."""
    with read(path, progress=False, **options) as snap:
        return snap


def archived_anew(snap: Snapshot, history: Path) -> None:
    """An archive of its own each time."""
    shutil.rmtree(history, ignore_errors=True)
    snap.archive(history)
