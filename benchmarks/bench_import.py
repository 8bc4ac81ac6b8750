"""What a person waits for before anything is done: imports and commands, in fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from benchmarks.measure import N_RUNS, Row, cpu_s_of_children, median_s
from tests.samples import SAMPLES

GOAL_S = 0.1
COMMANDS = {
    "stateanalytics --help": (("--help",), 0.2),
    "stateanalytics attention of the sample": (
        ("attention", str(SAMPLES / "state.db")), 0.6
    ),
}  # fmt: skip
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
        ),
        *(_command(work, *told) for work, told in COMMANDS.items()),
    ]


def _command(work: str, arguments: tuple[str, ...], goal_s: float) -> Row:
    command = [sys.executable, "-m", "stateanalytics", *arguments]
    before = cpu_s_of_children()
    seconds = median_s(partial(subprocess.run, command, capture_output=True, check=True))
    cpu_s = (cpu_s_of_children() - before) / (N_RUNS + 1)
    return Row(work, seconds, "", None, f"≤ {goal_s:g} s", seconds <= goal_s, f"{cpu_s:.2g} CPU s")


def _seconds(work: str, before: str = "") -> float:
    command = [sys.executable, "-c", _TIMED.format(work=work, before=before)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
