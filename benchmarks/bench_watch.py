"""Following a store that somebody writes to: how late a failure is told, and what is kept.

The whole of the goal, 10,000 looks (``-n 10000``), takes minutes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.measure import Row

GOAL_S, MOST_GROWTH_MB = 1.0, 30.0
N_SESSIONS = 200
# Fifty times a second a session fails, with the moment as its name, and one is well again.
WRITER = textwrap.dedent("""
    import sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    change = "UPDATE sessions SET status = ?, name = ?, updated_at = ? WHERE rowid = ?"
    print("ready", flush=True)
    for n in range(10**9):
        for status, place in (("failed", n), ("running", n + 100)):
            now = time.time()
            connection.execute(change, (status, str(now), now, 1 + place % 200))
        time.sleep(0.02)
""")


@dataclass(frozen=True)
class Followed:
    """What somebody saw who followed a store.

    Attributes
    ----------
    lags_s : list of float
        From each commit of a failure to the moment at which it was told.
    memory_mb : list of float
        Resident after each look; nothing where the system does not tell.
    """

    lags_s: list[float]
    memory_mb: list[float]

    @property
    def grown_mb(self) -> float:
        """By how much the last tenth of looks holds more than the second one."""
        tenth = len(self.memory_mb) // 10
        if not tenth:
            return 0.0
        first, last = self.memory_mb[tenth : 2 * tenth], self.memory_mb[-tenth:]
        return statistics.median(last) - statistics.median(first)


def followed(path: Path, n_looks: int) -> Followed:
    """Look so often at a store that a process of its own writes to all the while."""
    from stateanalytics.live import watch
    from stateanalytics.snapshot import read

    lags: list[float] = []
    memory: list[float] = []
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            with read(path, progress=False) as snap, closing(watch(snap, every_s=0.001)) as looks:
                for told in islice(looks, n_looks):
                    now = time.time()
                    failed = told.filter(severity="critical")["name"]
                    lags += [now - float(name) for name in failed if name and name[0] == "1"]
                    memory += _resident_mb()
        finally:
            writer.kill()
    return Followed(lags, memory)


def _resident_mb() -> list[float]:
    status = Path("/proc/self/status")
    if not status.exists():
        return []
    found = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
    return [int(found[0].split()[1]) / 1024]


def run(n_looks: int = 300) -> list[Row]:
    """The row of the benchmark table."""
    from tests.generators import write_store

    with tempfile.TemporaryDirectory() as folder:
        path = write_store(Path(folder) / "state.db", N_SESSIONS, n_messages_per_session=20)
        begun = time.perf_counter()
        seen = followed(path, n_looks)
        look_s = (time.perf_counter() - begun) / n_looks
    lag_s = statistics.median(seen.lags_s)
    return [
        Row(
            work=f"a failure is told, in {n_looks:,} looks at a store beside its writer",
            ours_s=lag_s,
            peer="",
            peer_s=None,
            goal=f"≤ {GOAL_S:g} s, memory flat over 10,000",
            is_met=lag_s <= GOAL_S and seen.grown_mb <= MOST_GROWTH_MB,
            note=f"slowest {max(seen.lags_s):.2f} s, {look_s * 1e3:.0f} ms a look; memory "
            f"{seen.memory_mb[-1]:.0f} MB, {seen.grown_mb:+.0f} MB since the first tenth",
        )
    ]
