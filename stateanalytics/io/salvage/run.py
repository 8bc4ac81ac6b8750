"""The process that salvages: arguments, limits, one line of JSON as its answer."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from stateanalytics.io.salvage.pages import File
from stateanalytics.io.salvage.repair import copy_rows, read_schema, rebuild
from stateanalytics.io.salvage.trees import (
    Gap,
    Tree,
    adopt,
    n_in_no_tree,
    n_lost,
    n_set_apart,
    own,
    walk,
)

CPU_S, CPU_S_PER_GB = 120, 600
MEMORY_BYTES, MEMORY_PER_BYTE = 2**30, 12
N_NAMED = 50  # ranges of lost rows that are named one by one, a table


def main() -> None:
    """Salvage the store named first into the file named second."""
    source, target = Path(sys.argv[-2]), Path(sys.argv[-1])
    try:
        _limit(source.stat().st_size)
        answer = salvage(source, target)
    except (OSError, sqlite3.Error, MemoryError, ValueError) as error:
        answer = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


def salvage(source: Path, target: Path) -> dict[str, Any]:
    """Write what can be read to ``target``; what was read and what was lost."""
    work = target.with_suffix(".work")
    notes = _merged_copy(source, work)
    file = File.of(work.read_bytes())
    if file.page_size < 512 or file.page_size & (file.page_size - 1) or not file.n_pages:
        raise ValueError("its header, which says how it is to be read, is damaged")
    tables, schema, others = read_schema(file)
    walked = [walk(file, tree) for tree in tables]
    free = file.free_pages()
    # Pages of tables that nobody knows any more must not be given to others.
    taken = None if free is None or schema.gaps else free | schema.pages
    if taken is not None:
        taken = taken.union(*(walk(file, tree).pages for tree in others))
    trees = adopt(file, own(file, walked), taken)
    rebuild(file, trees, work)
    lost_rows = copy_rows(work, target, trees)
    work.unlink()
    return {
        "notes": notes,
        "page_size": file.page_size,
        "n_bytes_missing": _n_bytes_missing(file),
        "n_definition_pages": len(schema.gaps),
        "definitions_refused": [
            tree.name for tree in others if not tree.name.startswith("sqlite_")
        ],
        "n_unclaimed": n_in_no_tree(file, [*walked, *trees], taken),
        "tables": [
            _told(tree, lost_rows[tree.name], n_unclaimed)
            for tree, n_unclaimed in zip(trees, n_set_apart(walked, trees), strict=True)
        ],
    }


def _told(tree: Tree, lost: list[int], n_unclaimed: int) -> dict[str, Any]:
    n_read = sum(len(leaf.cells) for leaf in tree.leaves) - len(lost)
    ranges = [_range(tree, gap) for gap in tree.gaps]
    ranges += [
        {"first": leaf.first, "last": leaf.last, "n": leaf.n_lost, "page": leaf.page}
        for leaf in tree.leaves
        if leaf.n_lost
    ]
    ranges += [{"first": rowid, "last": rowid, "n": 1, "page": None} for rowid in lost]
    n_rows = tree.owner.n_rows()
    unknown = n_rows is None and any(gap["n"] is None for gap in ranges)
    about = None if unknown else sum(gap["n"] or 0 for gap in ranges)
    return {
        "table": tree.name,
        "n_read": n_read,
        "n_lost": about if n_rows is None else max(0, n_rows - n_read),
        "n_unclaimed": n_unclaimed,
        "ranges": ranges[:N_NAMED],
        "n_ranges": len(ranges),
    }


def _range(tree: Tree, gap: Gap) -> dict[str, Any]:
    return {"first": gap.low + 1, "last": gap.high, "n": n_lost(tree, gap), "page": gap.page}


def _merged_copy(source: Path, work: Path) -> list[str]:
    """Copy a store, and let its write-ahead log become part of the copy where that works."""
    shutil.copyfile(source, work)
    log = Path(f"{source}-wal")
    if not log.exists() or not log.stat().st_size:
        return []
    copied = Path(f"{work}-wal")
    shutil.copyfile(log, copied)
    try:
        with closing(sqlite3.connect(work)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.Error:
        return ["its write-ahead log could not be read, so its newest rows are missing"]
    else:
        return []
    finally:
        copied.unlink(missing_ok=True)
        Path(f"{work}-shm").unlink(missing_ok=True)


def _n_bytes_missing(file: File) -> int:
    """How many bytes fewer are there than the header promises."""
    header = file.octets[:100]
    # The number of pages is only kept by versions that also keep the second of these.
    promised = int.from_bytes(header[28:32], "big") * file.page_size
    is_kept = header[24:28] == header[92:96]
    return max(0, promised - len(file.octets)) if is_kept else 0


def _limit(size: int) -> None:
    """A store that was made to exhaust its reader ends this process only."""
    try:
        import resource
    except ImportError:  # no such limits here
        return
    cpu_s = CPU_S + CPU_S_PER_GB * size // 10**9
    memory = MEMORY_BYTES + MEMORY_PER_BYTE * size
    limits = {resource.RLIMIT_CPU: cpu_s, resource.RLIMIT_AS: memory, resource.RLIMIT_CORE: 0}
    for what, wanted in limits.items():
        _, hard = resource.getrlimit(what)
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(what, (wanted, hard))
