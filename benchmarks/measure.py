"""Measure two ways to do the same work side by side, and say what came out."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

N_RUNS = 5


@dataclass(frozen=True)
class Row:
    """One line of the benchmark table."""

    work: str
    ours_s: float
    peer: str
    peer_s: float | None
    goal: str
    is_met: bool
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Peer's time over ours: above 1, ours is faster."""
        return None if self.peer_s is None else self.peer_s / self.ours_s


def side_by_side(
    ours: Callable[[], object], peer: Callable[[], object], n_runs: int = N_RUNS
) -> tuple[float, float]:
    """Median seconds of both, taken in turn after a warm-up each (A B A B …)."""
    ours(), peer()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(n_runs):
        for work, spent in zip((ours, peer), times, strict=True):
            gc.collect()
            begun = time.perf_counter()
            result = work()
            spent.append(time.perf_counter() - begun)
            del result
    return statistics.median(times[0]), statistics.median(times[1])


def median_s(work: Callable[[], object], n_runs: int = N_RUNS) -> float:
    """Median seconds of one piece of work, after a warm-up."""
    return side_by_side(work, lambda: None, n_runs)[0]


def peak_mb(work: Callable[[], object]) -> float:
    """Peak resident memory in MB of a fresh process that does the work once."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(work, sender))
    process.start()
    answer = receiver.recv()
    process.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return float(answer)


def _peak(work: Callable[[], object], sender: object) -> None:
    try:
        work()
    except Exception as error:  # the parent re-raises it
        sender.send(repr(error))  # type: ignore[attr-defined]
        return
    sender.send(_high_water_mb())  # type: ignore[attr-defined]


def _high_water_mb() -> float:
    """Peak of this process alone: Linux' ru_maxrss starts at the size of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
