"""Many small files of an archive become few: one table per frame and week over all sources.

A run writes small files of its own, so that it needs nobody. Compaction copies their rows into
tables, byte for byte the same rows in the same order, and lists all runs in one file. That file
is written last and counts from then on; what it replaces is deleted after that. A compaction
that is killed leaves files that nobody names, and the next one deletes them.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import polars as pl

from stateanalytics.io.archive import manifests
from stateanalytics.io.archive.reading import UnfitError, read_shard
from stateanalytics.io.budget import LEAST_ROWS
from stateanalytics.io.outputs import alone_in, put_whole

MOST_FILES = 64
"""So many small files stay: to compact them would cost more than to open them."""
MOST_ROWS = 2_000_000
"""Rows of a table; one that is larger takes too much memory to write again."""
_MOST_TABLES = 8
"""Tables of one frame and week; more are joined."""
_LEVEL = 9
"""Of compression: written once, read often."""
_DAY_S = 86_400


@dataclass(frozen=True)
class Piece:
    """The rows of one shard, and the run that they belong to."""

    run: manifests.Manifest
    shard: manifests.Shard

    def path(self, root: Path) -> Path:
        """The place of its file in an archive."""
        return self.shard.path(root, self.run.system, self.run.key)


def compact(root: Path, *, is_forced: bool = False) -> bool:
    """Write the rows of an archive as few tables where it has become many small files.

    Parameters
    ----------
    root : pathlib.Path
        The archive.
    is_forced : bool
        Whether to join all files, however few and however large.

    Returns
    -------
    bool
        Whether anything was written.

    Raises
    ------
    OSError
        If the archive cannot be written to; nothing is lost.
    StoreBusyError
        If another process keeps writing to the archive.

    Notes
    -----
    An archive with a run that cannot be read stays as it is: its rows would look like those of
    nobody. A file that is damaged stays where it is, too.
    """
    if not root.is_dir() or not (is_forced or _is_worth_it(manifests.runs_by_source(root))):
        return False
    with alone_in(root):
        known = manifests.runs_by_source(root)
        if any(each.wrong for each in known.values()):
            return False
        runs = [run for each in known.values() for run in each.runs]
        runs.sort(key=lambda run: (run.label, run.key, run.number, run.run))
        moved = dict(_moved(root, runs, is_forced=is_forced))
        loose = [path for path in _files(root / manifests.MANIFESTS) if path.suffix == ".json"]
        if not moved and not loose:
            return False
        compacted = [
            replace(run, shards=tuple(moved.get((run.name, each), each) for each in run.shards))
            for run in runs
        ]
        before = manifests.tables_of_runs(root)
        table, content = manifests.table_of_runs(root, compacted)
        put_whole(table, content)
        names = {run.name for run in runs}
        _delete([*before, *(path for path in loose if path.name in names)])
        pieces = (Piece(run, each) for run in runs for each in run.shards)
        replaced = {each.path(root) for each in pieces if (each.run.name, each.shard) in moved}
        _delete_unnamed(root, compacted, replaced=replaced)
    return True


def _is_worth_it(known: Mapping[str, manifests.Archived]) -> bool:
    shards = [each for one in known.values() for run in one.runs for each in run.shards]
    return sum(each.first is None for each in shards) > MOST_FILES


def _moved(
    root: Path, runs: Sequence[manifests.Manifest], *, is_forced: bool
) -> Iterator[tuple[tuple[str, manifests.Shard], manifests.Shard]]:
    """Shards by the name of their run, each with the one that has its rows from now on."""
    by_table: dict[tuple[str, str], list[Piece]] = {}
    for run in runs:
        for shard in run.shards:
            by_table.setdefault((shard.frame, shard.week), []).append(Piece(run, shard))
    for pieces in by_table.values():
        chosen = _chosen(root, pieces, is_forced=is_forced)
        if chosen:
            yield from _joined(root, chosen)


def _chosen(root: Path, pieces: Sequence[Piece], *, is_forced: bool) -> list[Piece]:
    """The pieces to write again: small files, and tables that are not much larger."""
    sizes = {piece.path(root): piece.shard.n_bytes for piece in pieces}
    tables = {piece.path(root) for piece in pieces if piece.shard.first is not None}
    if len(sizes) == len(tables) and (
        len(tables) < 2 or not (is_forced or len(tables) > _MOST_TABLES)
    ):
        return []
    n_loose = sum(size for path, size in sizes.items() if path not in tables)
    n_tables = sum(sizes[path] for path in tables)
    is_all = is_forced or len(tables) > _MOST_TABLES or n_tables <= 2 * n_loose
    return [piece for piece in pieces if is_all or piece.path(root) not in tables]


def _joined(
    root: Path, pieces: Sequence[Piece]
) -> Iterator[tuple[tuple[str, manifests.Shard], manifests.Shard]]:
    """The pieces written as tables, each of equal columns and not too large."""
    owners: dict[tuple[Path, int | None, int], list[Piece]] = {}
    for piece in pieces:
        # Two runs that found the same rows may name one file.
        shard = piece.shard
        owners.setdefault((piece.path(root), shard.first, shard.n_rows), []).append(piece)
    files: dict[Path, pl.DataFrame | None] = {}
    batches: dict[tuple[object, ...], list[tuple[list[Piece], pl.DataFrame]]] = {}
    for (path, first, n_rows), some in owners.items():
        if path not in files:
            try:
                files[path] = read_shard(path, some[0].shard)
            except UnfitError:
                files[path] = None
        whole = files[path] if first is not None else files.pop(path)
        if whole is None or (first or 0) + n_rows > whole.height:
            continue
        if first is None and n_rows != whole.height:
            continue
        rows = whole.slice(first or 0, n_rows)
        batch = batches.setdefault(tuple(rows.schema.items()), [])
        if batch and sum(other.height for _, other in batch) + n_rows > MOST_ROWS:
            yield from write_table(root, batch)
            batch.clear()
        batch.append((some, rows))
    for batch in batches.values():
        yield from write_table(root, batch)


def write_table(
    root: Path, batch: Sequence[tuple[list[Piece], pl.DataFrame]], level: int = _LEVEL
) -> Iterator[tuple[tuple[str, manifests.Shard], manifests.Shard]]:
    """Write one table, or two halves; the rows of each piece lie together in it."""
    memory = io.BytesIO()
    whole = pl.concat([rows for _, rows in batch])
    whole.write_parquet(memory, compression="zstd", compression_level=level)
    content, first = memory.getvalue(), 0
    if _is_too_dense(whole.height, len(content)):
        half = len(batch) // 2
        for some_of_it in (batch[:half], batch[half:]) if half else ():
            yield from write_table(root, some_of_it, level)
        return
    digest = sha256(content).hexdigest()
    for some, rows in batch:
        for piece in some:
            shard = replace(piece.shard, sha256=digest, n_bytes=len(content), first=first)
            yield (piece.run.name, piece.shard), shard
        first += rows.height
    one = batch[0][0][0]
    target = replace(one.shard, sha256=digest, first=0).path(root, one.run.system, one.run.key)
    target.parent.mkdir(parents=True, exist_ok=True)
    put_whole(target, content)


def _is_too_dense(n_rows: int, n_bytes: int) -> bool:
    """Whether a reader would take it for a bomb: `Budget.most_rows`."""
    return n_rows > max(LEAST_ROWS, n_bytes)


def _delete_unnamed(root: Path, runs: Sequence[manifests.Manifest], *, replaced: set[Path]) -> None:
    """Delete files whose rows lie elsewhere now, and those that a killed run left long ago."""
    named = {Piece(run, shard).path(root) for run in runs for shard in run.shards}
    _delete(replaced - named)
    # Where folders have no locks, a run may be writing just now.
    long_ago_s = time.time() - _DAY_S
    for folder in (root / manifests.SHARDS, root / manifests.TABLES):
        for path in _files(folder):
            with suppress(OSError):
                if path not in named and path.lstat().st_mtime < long_ago_s:
                    path.unlink()
        for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
            if path.is_dir():
                with suppress(OSError):  # what is not empty stays
                    path.rmdir()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
