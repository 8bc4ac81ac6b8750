"""Print the benchmark table: ``python -m benchmarks [topic …]``."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from pathlib import Path

from benchmarks.measure import Row


def main(topics: list[str]) -> None:
    known = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    if unknown := sorted(set(topics) - set(known)):
        sys.exit(f"no benchmark {unknown}; there are {', '.join(known)}")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; medians, taken in turn\n")
    print("| work | ours | beside | ratio | goal | met |\n|---|---|---|---|---|---|")
    for topic in topics or known:
        for row in importlib.import_module(f"benchmarks.bench_{topic}").run():
            print(line(row), flush=True)


def line(row: Row) -> str:
    """One row of the table, in Markdown."""
    beside = row.peer if row.peer_s is None else f"{row.peer}: {row.peer_s:.3g} s"
    ratio = "" if row.ratio is None else f"{row.ratio:.2g} ×"
    met = ("yes" if row.is_met else "**no**") + (f" ({row.note})" if row.note else "")
    return f"| {row.work} | {row.ours_s:.3g} s | {beside} | {ratio} | {row.goal} | {met} |"


if __name__ == "__main__":
    main(sys.argv[1:])
