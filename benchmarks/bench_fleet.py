"""A thousand stores into one archive, and states of ten million rows, on one machine's engines.

Dask, Ray and Spark are left out where they are not installed (the extras fleet and spark; Spark
needs Java). They have the two cores that one process has, too: what they add here is their
price, and their gain is machines that this one does not have.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

import stateanalytics as sa
from benchmarks.bench_states import AS_OF, write_parts
from benchmarks.measure import Row, cpu_s_of_children, peak_mb
from tests.fleets import EXECUTORS, Fleet, write_fleet

N_STORES, MOST_MB = 1_000, 500
MODULES = {"processes": "stateanalytics", "dask": "distributed", "ray": "ray"}
_ROOT = Path(__file__).parents[1]


def run(n_rows: int = 10_000_000) -> Iterator[Row]:
    """The rows of the benchmark table; fewer stores for fewer rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = write_fleet(folder / "hosts", max(1, min(N_STORES, n_rows // 10_000) // 100))
        alone_s, expected = _collected_alone(fleet, folder / "one")
        n_stores = len(fleet.whole) + len(fleet.damaged)
        for kind in EXECUTORS:
            if importlib.util.find_spec(MODULES[kind]):
                yield _collected(kind, fleet, folder / kind, n_stores, alone_s, expected)
        parts = folder / "parts"
        parts.mkdir()
        write_parts(parts, n_rows)
        yield from _of_states(parts, n_rows)


def _collected_alone(fleet: Fleet, history: Path) -> tuple[float, pl.DataFrame]:
    """Seconds of one process of this kind for all stores, and the states of its archive."""
    begun = time.perf_counter()
    _collect("processes", fleet, history, n_jobs=1)
    return time.perf_counter() - begun, _states_of(history)


def _collected(
    kind: str, fleet: Fleet, history: Path, n_stores: int, alone_s: float, expected: pl.DataFrame
) -> Row:
    begun, before = time.perf_counter(), cpu_s_of_children()
    _collect(kind, fleet, history)
    spent, cpu_s = time.perf_counter() - begun, cpu_s_of_children() - before
    is_same = _states_of(history).equals(expected)
    return Row(
        f"archive {n_stores:,} stores of three systems, two workers of {kind}",
        spent,
        "one process",
        alone_s,
        "the same archive",
        is_same,
        f"{cpu_s:.0f} CPU s of processes that were waited for",
        differs="one process in place of two, which begin first",
    )


def _collect(kind: str, fleet: Fleet, history: Path, n_jobs: int = 2) -> None:
    command = [sys.executable, "-m", "tests.fleets", kind, str(fleet.hosts), str(history)]
    subprocess.run([*command, str(n_jobs)], cwd=_ROOT, check=True, capture_output=True)


def _states_of(history: Path) -> pl.DataFrame:
    with sa.read(history, progress=False, cache=False) as snap:
        states = sa.states(snap)
    return states.sort(states.columns[:4])


def _of_states(parts: Path, n_rows: int) -> Iterator[Row]:
    """Counts by severity of so many states, out of core; each equals that of polars."""
    begun = time.perf_counter()
    expected = _with_polars(parts)
    polars_s = time.perf_counter() - begun
    engines = {"DuckDB": _with_duckdb}
    if importlib.util.find_spec("pyspark") and shutil.which("java"):
        engines["Spark on two cores"] = _with_spark
    for name, engine in engines.items():
        begun = time.perf_counter()
        found = engine(parts)
        spent = time.perf_counter() - begun
        peak = 0.0 if engine is _with_spark else peak_mb(partial(engine, parts))
        yield Row(
            f"states of {n_rows:,} sessions in Parquet, counted by severity, {name}",
            spent,
            "polars, file by file",
            polars_s,
            f"the same counts, ≤ {MOST_MB} MB" if peak else "the same counts",
            found == expected and peak <= MOST_MB,
            f"{n_rows / spent:,.0f} rows/s" + (f"; {peak:,.0f} MB" if peak else ""),
            differs="another engine; Spark starts a virtual machine",
        )


def _with_polars(parts: Path) -> dict[str, int]:
    counted = [
        sa.states(pl.read_parquet(path), as_of=AS_OF)["severity"].value_counts()
        for path in sorted(parts.glob("*.parquet"))
    ]
    return _as_dict(pl.concat(counted).group_by("severity").agg(pl.col("count").sum()).rows())


def _with_duckdb(parts: Path) -> dict[str, int]:
    import duckdb

    with duckdb.connect(config={"memory_limit": f"{MOST_MB - 100}MB"}) as connection:
        connection.execute("SET preserve_insertion_order = false")
        rows = connection.read_parquet(str(parts / "*.parquet"))
        states = sa.states(rows, as_of=AS_OF)
        return _as_dict(states.aggregate("severity, count(*) AS n").fetchall())


def _with_spark(parts: Path) -> dict[str, int]:
    from tests.engines import spark

    rows = spark().read.parquet(str(parts))
    return _as_dict(sa.states(rows, as_of=AS_OF).groupBy("severity").count().collect())


def _as_dict(rows: list[tuple[object, ...]]) -> dict[str, int]:
    return {str(word): int(n) for word, n in rows}  # type: ignore[call-overload]
