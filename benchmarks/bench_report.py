"""A report of a store of 100 000 sessions: seconds and peak memory, reading included."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measure import N_RUNS, Row, median_s, peak_mb

N_SESSIONS = 100_000
MOST_S, MOST_MB = 10.0, 1_500.0


def whole_report(path: str) -> None:
    """What the command does: read, derive, count, draw."""
    from stateanalytics.reporting import report
    from stateanalytics.snapshot import read

    report(read(path), shown=False).as_html()


def run(n_sessions: int = N_SESSIONS, n_runs: int = N_RUNS) -> list[Row]:
    """The row of the benchmark table; a report has no peer, only its goal."""
    from tests.generators import write_store

    n_sessions = min(n_sessions, N_SESSIONS)
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_store(Path(folder) / "state.db", n_sessions, n_messages_per_session=2))
        seconds = median_s(partial(whole_report, path), n_runs)
        begun = time.perf_counter()
        peak = peak_mb(partial(whole_report, path))
        fresh_s = time.perf_counter() - begun
    return [
        Row(
            work=f"report of {n_sessions:,} sessions",
            ours_s=seconds,
            peer="",
            peer_s=None,
            goal=f"< {MOST_S:.0f} s, < {MOST_MB:,.0f} MB",
            is_met=seconds < MOST_S and fresh_s < MOST_S and peak < MOST_MB,
            note=f"peak {peak:,.0f} MB; {fresh_s:.1f} s in a fresh process",
        )
    ]
