"""A report of 100,000 and of a million sessions: seconds and peak memory, reading included."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, median_s, peak_mb

N_RUNS = 3
SIZES = (100_000, 1_000_000)
GOALS = {100_000: (4.0, 1_200.0), 1_000_000: (20.0, 4_000.0)}


def whole_report(path: str) -> None:
    """What the command does: begin with the process that draws, read, derive, count, draw."""
    from stateanalytics.charts.report_charts import prepare
    from stateanalytics.reporting import report
    from stateanalytics.snapshot import read_for_once

    prepare()
    report(read_for_once(path), shown=False).as_html()


def run(n_sessions: int = SIZES[-1], n_runs: int = N_RUNS) -> Iterator[Row]:
    """A row for each size up to one; a report has no peer, only its goal."""
    sizes = [n for n in SIZES if n <= n_sessions] or [n_sessions]
    fewer: tuple[int, float] | None = None
    for n in sizes:
        # One of a million takes as long as all of the others, and no start to speak of.
        row = _row(n, n_runs if n <= SIZES[0] else 0, fewer)
        fewer = n, row.ours_s
        yield row


def _row(n_sessions: int, n_runs: int, fewer: tuple[int, float] | None) -> Row:
    from tests.generators import write_store

    most_s, most_mb = GOALS.get(n_sessions, (4.0, 1_200.0))
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_store(Path(folder) / "state.db", n_sessions, n_messages_per_session=2))
        begun = time.perf_counter()
        peak = peak_mb(partial(whole_report, path))
        fresh_s = time.perf_counter() - begun
        seconds = median_s(partial(whole_report, path), n_runs) if n_runs else fresh_s
    note = f"peak {peak:,.0f} MB; {fresh_s:.1f} s in a fresh process"
    if fewer:
        exponent = math.log(seconds / fewer[1]) / math.log(n_sessions / fewer[0])
        note += f"; exponent {exponent:.2f} since {fewer[0]:,}"
    return Row(
        work=f"report of {n_sessions:,} sessions, reading included",
        ours_s=seconds,
        peer="",
        peer_s=None,
        goal=f"≤ {most_s:.0f} s, ≤ {most_mb:,.0f} MB",
        is_met=seconds <= most_s and fresh_s <= most_s and peak <= most_mb,
        note=note,
    )
