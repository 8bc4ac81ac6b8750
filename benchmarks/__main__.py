"""Print the benchmark table: ``python -m benchmarks [-n 10000] [topic …]``."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
import traceback
from pathlib import Path

from benchmarks.measure import Row


def main(arguments: list[str]) -> None:
    known = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="topic", help=", ".join(known))
    parser.add_argument("-n", type=int, help="the size, in place of each benchmark's own")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.topics) - set(known)):
        sys.exit(f"no benchmark {unknown}; there are {', '.join(known)}")
    sizes = () if asked.n is None else (asked.n,)
    print(f"{about_the_machine()}\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    failed, spent = [], []
    for topic in asked.topics or known:
        begun = time.perf_counter()
        # Nobody waits beside it: what fails costs its own rows, and is told at the end.
        try:
            for row in importlib.import_module(f"benchmarks.bench_{topic}").run(*sizes):
                print(line(row), flush=True)
        except Exception:
            failed.append(topic)
            traceback.print_exc()
        spent.append(f"{topic} {time.perf_counter() - begun:.0f}")
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}. Seconds in all: {', '.join(spent)}.")
    if failed:
        sys.exit(f"without rows, since they failed: {', '.join(failed)}")


HEAD = ("work", "ours", "beside", "ratio", "not the same", "goal", "met", "load")


def about_the_machine() -> str:
    """What the figures were made on, and beside how much other work."""
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}; medians, taken in turn. "
        f"Load before the first row: {os.getloadavg()[0]:.1f} (of a row with more than about 1 "
        "beside its own work read the ratio only)."
    )


def line(row: Row) -> str:
    """One row of the table, in Markdown."""
    beside = row.peer if row.peer_s is None else f"{row.peer}: {row.peer_s:.3g} s"
    ratio = "" if row.ratio is None else f"{row.ratio:.2g} ×"
    met = ("yes" if row.is_met else "**no**") + (f" ({row.note})" if row.note else "")
    cells = (row.work, f"{row.ours_s:.3g} s", beside, ratio, row.differs, row.goal, met)
    return f"| {' | '.join(cells)} | {row.load:.1f} |"


if __name__ == "__main__":
    main(sys.argv[1:])
