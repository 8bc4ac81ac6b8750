"""What `import stateanalytics` costs on top of `import polars`, in fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.measure import N_RUNS, Row

GOAL_S = 0.1
_TIMED = "import time; {before}b = time.perf_counter(); {work}; print(time.perf_counter() - b)"


def run(n_sessions: int = 1_000_000) -> list[Row]:
    """Measure; the number of sessions plays no part."""
    ours: list[float] = []
    polars: list[float] = []
    for _ in range(N_RUNS):
        ours.append(_seconds("import stateanalytics", "import polars; "))
        polars.append(_seconds("import polars"))
    ours_s = statistics.median(ours)
    return [
        Row(
            work="import stateanalytics, on top of polars",
            ours_s=ours_s,
            peer="import polars",
            peer_s=statistics.median(polars),
            goal=f"≤ {GOAL_S:g} s",
            is_met=ours_s <= GOAL_S,
            differs="another package: what the user pays anyhow",
        )
    ]


def _seconds(work: str, before: str = "") -> float:
    command = [sys.executable, "-c", _TIMED.format(work=work, before=before)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
