"""A writer in WAL mode, alone and while its store is loaded again and again.

Two tables must agree in every load, no write may fail or wait longer than the
writer's own busy timeout, and the log must not grow because somebody reads.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import SAME, Row

BUSY_S = 5.0
N_ROWS = 50_000
WRITER = textwrap.dedent("""
    import json, sqlite3, sys, time
    path, n_writes, busy_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    print("ready", flush=True)
    waits, n_failed = [], 0
    for i in range(n_writes):
        begun = time.perf_counter()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (text) VALUES (?)", ("x" * (i % 4000),))
            connection.execute("UPDATE total SET n = n + 1")
            connection.execute("COMMIT")
        except sqlite3.OperationalError:
            n_failed += 1
        waits.append(time.perf_counter() - begun)
        time.sleep(0.001)
    waits.sort()
    told = {"p99_s": waits[int(0.99 * len(waits))], "slowest_s": waits[-1], "n_failed": n_failed}
    print(json.dumps(told), flush=True)
""")


@dataclass(frozen=True)
class Outcome:
    """What a writer met with, and what readers saw meanwhile."""

    p99_s: float
    slowest_s: float
    n_failed: int
    n_loads: int
    n_inconsistent: int
    largest_log_mb: float


def run(n_sessions: int = 0, n_writes: int = 2_000) -> list[Row]:
    """The row of the benchmark table; how many sessions there are does not matter."""
    alone, read = outcome(n_writes, is_read=False), outcome(n_writes, is_read=True)
    return [
        Row(
            work=f"slowest of {n_writes:,} writes beside {read.n_loads} loads",
            ours_s=read.slowest_s,
            peer="slowest write alone",
            peer_s=alone.slowest_s,
            goal=f"no failed write, none waits {BUSY_S:g} s",
            is_met=read.n_failed == read.n_inconsistent == 0 and read.slowest_s < BUSY_S,
            differs=SAME,
            note=f"{read.n_failed} failed, {read.n_inconsistent} loads inconsistent; "
            f"p99 {read.p99_s * 1e3:.1f} ms, alone {alone.p99_s * 1e3:.1f} ms; "
            f"log {read.largest_log_mb:.0f} MB, alone {alone.largest_log_mb:.0f} MB",
        )
    ]


def outcome(n_writes: int, *, is_read: bool) -> Outcome:
    """Let a writer work to its end, and load its store all the while or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        create(path)
        command = [sys.executable, "-c", WRITER, str(path), str(n_writes), str(BUSY_S)]
        n_loads = n_inconsistent = largest = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while writer.poll() is None:
                if is_read:
                    n_loads += 1
                    n_inconsistent += not is_consistent(path)
                else:
                    time.sleep(0.05)
                log = Path(f"{path}-wal")
                largest = max(largest, log.stat().st_size if log.exists() else 0)
            told = json.loads(writer.stdout.read())
        return Outcome(
            **told, n_loads=n_loads, n_inconsistent=n_inconsistent, largest_log_mb=largest / 1e6
        )


def create(path: Path) -> None:
    """A store of 50 000 rows and their number."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("CREATE TABLE total (n INTEGER)")
        rows = (("y" * 500,) for _ in range(N_ROWS))
        connection.executemany("INSERT INTO rows (text) VALUES (?)", rows)
        connection.execute("INSERT INTO total VALUES (?)", (N_ROWS,))
        connection.commit()


def is_consistent(path: Path) -> bool:
    """Do the two tables of one load agree."""
    from stateanalytics.io.cells import INTEGER, TEXT
    from stateanalytics.io.sqlite import open_store
    from stateanalytics.io.sqlite_tables import read_table

    with open_store(path) as store:
        rows, _ = read_table(store, "rows", {"id": INTEGER, "text": TEXT})
        total, _ = read_table(store, "total", {"n": INTEGER})
    return bool(rows.height == total["n"].item())


if __name__ == "__main__":
    for line in run():
        print(line)
