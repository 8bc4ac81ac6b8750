"""A thousand stores of all systems, some damaged and some copies, and who collects them.

    python -m tests.fleets dask hosts/ history/

collects the stores of a folder with an executor: processes, dask or ray.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stateanalytics as sa
from benchmarks.bench_agent_orchestrator import write_tree
from benchmarks.bench_opencode import write_events
from tests.generators import write_store

EXECUTORS = ("processes", "dask", "ray")
PATTERNS = (".lionagi/state.db", ".agent-orchestrator", "opencode/events.jsonl")
N_JOBS = 2
#: Sessions of lionagi, and records of Agent Orchestrator, in a store of theirs.
N_SESSIONS, N_RECORDS = 4, 3
SAVED_AT = 1_787_000_000
#: Of a hundred stores: how many are of lionagi, are damaged, and are copies of others.
N_LIONAGI, N_DAMAGED, N_COPIES = 80, 2, 1


@dataclass(frozen=True)
class Fleet:
    """Stores of hosts, each where its system would have it."""

    hosts: Path
    whole: list[Path]
    damaged: list[Path]


def write_fleet(root: Path, n_hundreds: int = 10) -> Fleet:
    """Write stores of three systems, none with the work of another but for the copies."""
    n_stores = 100 * n_hundreds
    n_lionagi = N_LIONAGI * n_hundreds
    names = [root / f"h{number:04}" for number in range(n_stores)]
    lionagi = [name / PATTERNS[0] for name in names[:n_lionagi]]
    _write_parts(root.with_name(f"{root.name}-all.db"), lionagi)
    originals = names[n_lionagi : n_stores - N_COPIES * n_hundreds]
    trees, logs = originals[::2], originals[1::2]
    for number, name in enumerate(trees):
        write_tree(name / PATTERNS[1], N_RECORDS, first=number * N_RECORDS)
    for number, name in enumerate(logs):
        path = name / PATTERNS[2]
        path.parent.mkdir(parents=True)
        write_events(path, 1, first=number)
    copied = [names[0], trees[0], logs[0]]
    for number, name in enumerate(names[n_stores - N_COPIES * n_hundreds :]):
        shutil.copytree(copied[number % len(copied)], name)
    damaged = lionagi[1 : 1 + N_DAMAGED * n_hundreds]
    for number, path in enumerate(damaged):
        _damage(path, number)
    for path in root.rglob("*"):
        # What was written just now may be written again within the same tick.
        os.utime(path, (SAVED_AT, SAVED_AT))
    kept = (path for pattern in PATTERNS for path in sorted(root.glob(f"*/{pattern}")))
    return Fleet(root, [path for path in kept if path not in damaged], damaged)


def _write_parts(whole: Path, paths: list[Path]) -> None:
    """One store made by the generator, shared out: an invocation keeps its sessions."""
    write_store(whole, N_SESSIONS * len(paths))
    empty = whole.with_suffix(".empty")
    shutil.copy(whole, empty)
    with closing(sqlite3.connect(empty, isolation_level=None)) as store:
        for table in ("status_transitions", "sessions", "invocations"):
            store.execute(f"DELETE FROM {table}")
        store.execute("VACUUM")
    with closing(sqlite3.connect(whole)) as store:
        work = "coalesce(invocation_id, id)"
        ids = store.execute(f"SELECT DISTINCT {work} FROM sessions ORDER BY 1").fetchall()
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        shutil.copy(empty, path)
        mine = [text for (text,) in ids[number :: len(paths)]]
        asked = ", ".join("?" * len(mine))
        sessions = f"SELECT id FROM whole.sessions WHERE {work} IN ({asked})"
        with closing(sqlite3.connect(path)) as store, store:
            store.execute("ATTACH ? AS whole", [str(whole)])
            for table, where in (
                ("sessions", f"{work} IN ({asked})"),
                ("invocations", f"id IN ({asked})"),
                ("status_transitions", f"entity_id IN ({sessions})"),
            ):
                store.execute(
                    f"INSERT INTO {table} SELECT * FROM whole.{table} WHERE {where}", mine
                )


def _damage(path: Path, number: int) -> None:
    """Cut a store off, or write over its header, or over all that follows it."""
    whole = path.read_bytes()
    path.write_bytes(
        (whole[: len(whole) // 2], b"x" * 100 + whole[100:], whole[:100] + b"x" * 5_000)[number % 3]
    )


@contextmanager
def executor_of(kind: str, n_jobs: int = N_JOBS) -> Iterator[dict[str, Any]]:
    """Processes of our own, of Dask or of Ray, as `collect` takes them."""
    if kind == "dask":
        from dask.distributed import Client

        with Client(n_workers=n_jobs, threads_per_worker=1, dashboard_address=None) as client:
            yield {"executor": client.get_executor()}
    elif kind == "ray":
        import ray
        from ray.util.multiprocessing import Pool

        ray.init(num_cpus=n_jobs, include_dashboard=False, log_to_driver=False)
        with Pool(n_jobs) as pool:
            yield {"executor": pool}
        ray.shutdown()
    else:
        yield {"jobs": n_jobs}


def main(kind: str, hosts: str, history: str, n_jobs: str = f"{N_JOBS}") -> None:
    """Collect a folder of hosts, and count what became of them."""
    with executor_of(kind, int(n_jobs)) as asked:
        rows = sa.collect([f"{hosts}/*/{pattern}" for pattern in PATTERNS], history, **asked)
    print(json.dumps(dict(rows["status"].value_counts().iter_rows())))


if __name__ == "__main__":
    main(*sys.argv[1:])
