"""Measure two ways to do the same work side by side, and say what came out."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

N_RUNS = 5
MOST_EXPONENT = 1.1


_LONG_S, _MOST_S = 20.0, 10.0

SAME = "nothing: the same work"


@dataclass(frozen=True)
class Row:
    """One line of the benchmark table.

    Attributes
    ----------
    work : str
        What is done, with its size.
    ours_s : float
        Median seconds.
    peer : str
        What stands beside it, if anything does.
    peer_s : float, optional
        Its median seconds; then ``differs`` has to say what it does not do, or `SAME`.
    goal : str
    is_met : bool
    note : str
    differs : str
        In what the two sides are not the same work.
    load : float
        How many processes of the whole machine wanted to run when the row was made: of a row
        that was made beside other work only the ratio means anything.
    """

    work: str
    ours_s: float
    peer: str
    peer_s: float | None
    goal: str
    is_met: bool
    note: str = ""
    differs: str = ""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def __post_init__(self) -> None:
        if self.peer_s is not None and not self.differs:
            raise ValueError(f"Say in what {self.peer!r} is not the work of {self.work!r}.")

    @property
    def ratio(self) -> float | None:
        """Peer's time over ours: above 1, ours is faster."""
        return None if self.peer_s is None else self.peer_s / self.ours_s


def side_by_side(
    ours: Callable[[], object], peer: Callable[[], object], n_runs: int = N_RUNS
) -> tuple[float, float]:
    """Median seconds of both, taken in turn after a warm-up each (A B A B …).

    As many times as go into ten seconds, once at least; of what takes twenty seconds the
    warm-up is the measurement.
    """
    works = (ours, peer)
    first = [_seconds(work) for work in works]
    if sum(first) > _LONG_S:
        return first[0], first[1]
    n_runs = max(1, min(n_runs, int(_MOST_S / sum(first))))
    rounds = [[_seconds(work) for work in works] for _ in range(n_runs)]
    ours_s, peer_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    return ours_s, peer_s


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    begun = time.perf_counter()
    result = work()
    spent = time.perf_counter() - begun
    del result
    return spent


def median_s(work: Callable[[], object], n_runs: int = N_RUNS) -> float:
    """Median seconds of one piece of work, after a warm-up."""
    return side_by_side(work, lambda: None, n_runs)[0]


def cpu_s(work: Callable[[], object], n_runs: int = N_RUNS) -> float:
    """Median processor seconds of this process for one piece of work, after a warm-up."""
    spent = []
    for _ in range(n_runs + 1):
        gc.collect()
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return statistics.median(spent[1:] or spent)


def cpu_s_of_children() -> float:
    """Processor seconds of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s_of_commands(
    *commands: Sequence[str], n_runs: int = N_RUNS, environment: Mapping[str, str] | None = None
) -> list[float]:
    """Median processor seconds of each command, in turn after a warm-up each (A B A B …)."""
    rounds = []
    for _ in range(n_runs + 1):
        spent = []
        for command in commands:
            before = cpu_s_of_children()
            subprocess.run(command, capture_output=True, check=True, env=environment)
            spent.append(cpu_s_of_children() - before)
        rounds.append(spent)
    return [statistics.median(times) for times in zip(*rounds[1:], strict=True)]


def grown(
    work: str,
    sizes: Sequence[int],
    at: Callable[[int], Callable[[], object]],
    n_runs: int = N_RUNS,
    most: float = MOST_EXPONENT,
) -> Row:
    """How processor seconds grow with the size of the work; linear work has an exponent of 1.

    Parameters
    ----------
    work : str
        What it is.
    sizes : sequence of int
        At least two, rising.
    at : callable
        From a size to the work; what it prepares is not measured.
    n_runs : int
    most : float
        The largest exponent, between any two sizes from the second on, that meets the goal.
    """
    seconds = [cpu_s(at(size), n_runs) for size in sizes]
    steps = [
        math.log(seconds[i + 1] / seconds[i]) / math.log(sizes[i + 1] / sizes[i])
        for i in range(len(sizes) - 1)
    ]
    each = ", ".join(f"{n:,}: {s:.3g}" for n, s in zip(sizes, seconds, strict=True))
    exponents = ", ".join(f"{step:.2f}" for step in steps)
    return Row(
        work=f"{work}, {sizes[-1]:,} (CPU)",
        ours_s=seconds[-1],
        peer=f"the same, {sizes[-2]:,}",
        peer_s=seconds[-2],
        goal=f"exponent ≤ {most:g}",
        is_met=max(steps[1:] or steps) <= most,
        note=f"exponents {exponents}; CPU s {each}",
        differs="the size",
    )


def peak_mb(work: Callable[[], object]) -> float:
    """Peak resident memory in MB of a fresh process that does the work once.

    With that of the processes that it started and that still wait, each at its own peak.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(work, sender))
    process.start()
    # Of a process that died nothing comes, which only shows where nobody else can send.
    sender.close()
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
    """Peaks of this process and its children: Linux' ru_maxrss starts at the parent's size."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    children = [pid for task in tasks.glob("*/children") for pid in task.read_text().split()]
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in ("self", *children)]
    lines = [line for status in statuses for line in status.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
