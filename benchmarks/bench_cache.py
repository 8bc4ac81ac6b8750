"""What the second process pays for an input that the first one read.

Processor seconds of `read` in processes of their own, after a first read of a sample has
imported what reading needs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_transcripts import SAMPLES, write_claude_code
from benchmarks.measure import N_RUNS, Row
from tests.generators import write_store

MOST_STORE, MOST_TREE, MOST_CHANGED = 0.15, 0.12, 0.2
_OLD_S = 1_779_000_000
_READ = """
import sys, time
import stateanalytics as sa
sample, path, is_cached = sys.argv[1:]
sa.read(sample, progress=False).close()
sa.read(sample, progress=False, cache=False).close()
began = time.process_time()
with sa.read(path, progress=False, cache=is_cached == "yes"):
    print(time.process_time() - began)
"""


def run(n_sessions: int = 100_000, n_mb: int = 400, n_runs: int = N_RUNS) -> list[Row]:
    """The rows of the benchmark table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = write_store(folder / "state.db", n_sessions, n_messages_per_session=4)
        tree = folder / "claude"
        write_claude_code(tree, n_mb)
        for path in (store, *tree.rglob("*")):
            os.utime(path, (_OLD_S, _OLD_S))
        transcripts = sorted(tree.rglob("*.jsonl"))
        return [
            _row(f"read {n_sessions:,} sessions again", store, MOST_STORE, n_runs),
            _row(f"read {n_mb} MB of transcripts again", tree, MOST_TREE, n_runs),
            _row(
                f"read them after one of {len(transcripts)} files changed",
                tree,
                MOST_CHANGED,
                n_runs,
                changed=transcripts[len(transcripts) // 2],
            ),
        ]


def _row(work: str, path: Path, most: float, n_runs: int, changed: Path | None = None) -> Row:
    sample = SAMPLES / ("state.db" if path.is_file() else "claude_code")
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"STATEANALYTICS_CACHE": cache}

        def cpu_s(is_cached: str) -> float:
            command = [sys.executable, "-c", _READ, str(sample), str(path), is_cached]
            told = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            )
            return float(told.stdout)

        cpu_s("yes")
        fresh_s, cached_s = [], []
        for number in range(n_runs):
            if changed is not None:
                line = changed.read_bytes().splitlines(keepends=True)[-1]
                changed.write_bytes(changed.read_bytes() + line)
                os.utime(changed, (_OLD_S + number + 1, _OLD_S + number + 1))
            cached_s.append(cpu_s("yes"))
            fresh_s.append(cpu_s("no"))
    ours, fresh = statistics.median(cached_s), statistics.median(fresh_s)
    return Row(
        work,
        ours,
        "without the cache",
        fresh,
        f"≤ {most:g} × it",
        ours <= most * fresh,
        f"{ours / fresh:.2g} × in processor seconds",
        differs="nothing but what changed is read",
    )
