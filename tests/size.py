"""Figures of the code: lines and modules a package, five walks, engine calls of a report.

``make size`` prints them next to what `tests/size.csv` allows; ``make size WRITE=1`` writes
what was measured into that table, so that growth is a line of a review.
"""

import argparse
import ast
import csv
import gc
import importlib
import pkgutil
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
from pytest import MonkeyPatch

import stateanalytics as sa

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "stateanalytics"
SAMPLES = ROOT / "data" / "samples"
TABLE = Path(__file__).with_name("size.csv")
STEPS = {"lines": 100, "engine calls": 100, "calls": 10, "functions": 10, "": 1}
"""To what a figure is rounded up in the table, so that a line more is no line of a review."""
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def n_code_lines(path: Path) -> int:
    """Lines that are neither blank nor a comment, less all lines that docstrings span.

    Blank lines of docstrings are subtracted as well, as in the figures that the budgets
    were set by: a module with long docstrings has a few lines more than this says.
    """
    text = path.read_text("utf-8")
    lines = [line.strip() for line in text.split("\n")]
    n_lines = sum(1 for line in lines if line and not line.startswith("#"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            n_lines -= (first.end_lineno or 0) - first.lineno + 1
    return n_lines


def lines_and_modules() -> dict[str, int]:
    """Code lines and modules of each package and of all, and lines of the tests."""
    figures: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        package = parts[0] if len(parts) > 1 else "top level"
        for name in ("all", package):
            figures[f"code lines, {name}"] += n_code_lines(path)
            figures[f"modules, {name}"] += 1
    for path in (ROOT / "tests").rglob("*.py"):
        figures["lines of tests"] += len(path.read_text("utf-8").splitlines())
    return dict(figures)


@dataclass
class Walk:
    """What a call passes through inside of the package."""

    modules: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    calls: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of modules of which the first calls the second."""
    depth: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_code.co_filename
        if event != "call" or not module.startswith(str(PACKAGE)):
            return
        self.modules.add(module)
        # Python 3.12 has no frames of comprehensions: the figures are the same on each version.
        if not frame.f_code.co_name.startswith("<"):
            self.functions.add((module, frame.f_code.co_qualname))
        depth, caller = 1, frame.f_back
        while caller is not None:
            place = caller.f_code.co_filename
            if place.startswith(str(PACKAGE)):
                if depth == 1 and place != module:
                    self.calls.add((place, module))
                depth += 1
            caller = caller.f_back
        self.depth = max(self.depth, depth)


@contextmanager
def followed() -> Iterator[Walk]:
    """Follow every call of this thread into the package."""
    walk = Walk()
    # The end of what an earlier walk left behind is no part of this one.
    gc.collect()
    gc.disable()
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        gc.enable()


def _path_to_states(_: Path) -> Walk:
    with followed() as walk, sa.read(SAMPLES / "state.db") as snap:
        sa.states(snap)
    return walk


def _message_to_cluster(_: Path) -> Walk:
    with sa.read(SAMPLES / "state.db") as snap:
        sa.states(snap)
        with followed() as walk:
            sa.failures.clusters(snap)
    return walk


def _threshold_to_line(_: Path) -> Walk:
    with sa.read(SAMPLES / "state.db") as snap:
        sa.states(snap)
        with followed() as walk:
            sa.report(snap, sections=["thresholds"]).as_html()
    return walk


def _transcript_to_cost(_: Path) -> Walk:
    with followed() as walk, sa.read(SAMPLES / "claude_code") as snap:
        sa.report(snap, sections=["costs"]).as_html()
    return walk


def _refresh(folder: Path) -> Walk:
    store = folder / "state.db"
    shutil.copy(SAMPLES / "state.db", store)
    with sa.read(store) as snap:
        sa.states(snap)
        with closing(sqlite3.connect(store)) as database:
            database.execute("UPDATE sessions SET updated_at = updated_at + 1 WHERE rowid <= 20")
            database.commit()
        with followed() as walk:
            snap.refresh()
    return walk


WALKS: dict[str, Callable[[Path], Walk]] = {
    "a path to states": _path_to_states,
    "a failed message to its cluster": _message_to_cluster,
    "a threshold to its line": _threshold_to_line,
    "a transcript to its cost": _transcript_to_cost,
    "a refresh after 20 rows": _refresh,
}


def walks() -> dict[str, int]:
    """Modules, functions, calls between modules and depth of each walk.

    They are followed in a process of their own: snapshots and caches of other tests, and a
    profiler of this process, are no part of them.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_walks).result()


def _walks() -> dict[str, int]:
    # What a module runs when it is imported is no step of a walk.
    for module in pkgutil.walk_packages(sa.__path__, "stateanalytics."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    figures = {}
    for name, walked in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            walk = walked(Path(folder))
        figures |= {
            f"modules, {name}": len(walk.modules),
            f"functions, {name}": len(walk.functions),
            f"calls between modules, {name}": len(walk.calls),
            f"depth, {name}": walk.depth,
        }
    return figures


def engine_calls() -> dict[str, int]:
    """How many frames a report of the sample asks of polars, lazily or at once."""
    n_calls = 0

    def counting(collect: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal n_calls
            found = collect(*args, **options)
            n_calls += len(found) if isinstance(found, list) else 1
            return found

        return counted

    with MonkeyPatch.context() as patch, sa.demo() as snap:
        for name in ("collect", "_collect_eager"):
            patch.setattr(pl.LazyFrame, name, counting(getattr(pl.LazyFrame, name)))
        patch.setattr(pl, "collect_all", counting(pl.collect_all))
        sa.report(snap).as_html()
    return {"engine calls, a report of the sample": n_calls}


def allowed() -> dict[str, int]:
    """What the table of this repository allows, by the name of the figure."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["figure"]: int(row["most"]) for row in csv.DictReader(file)}


def main() -> None:
    """Print each figure next to what is allowed, or write them all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", action="store_true", help="allow what was measured")
    figures = lines_and_modules() | walks() | engine_calls()
    if options.parse_args().write:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["figure", "most"])
            for name, measured in figures.items():
                step = next(step for word, step in STEPS.items() if word in name)
                rows.writerow([name, -(-measured // step) * step])
    most = allowed()
    for name, measured in figures.items():
        print(f"{measured:>9,}  of {most.get(name, 0):>9,}  {name}")


if __name__ == "__main__":
    main()
