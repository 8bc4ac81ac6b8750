"""SQLite stores: opened without disturbing anybody, read without trusting anything.

`open_store` makes a private copy of one instant (`stateanalytics.io.sqlite_copy` explains how,
and why in another process); `stateanalytics.io.sqlite_tables` reads typed columns of that copy
into frames. The original is touched by nothing else, so a live writer never waits for an
analysis, and all tables are of the same instant.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import threading
import weakref
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stateanalytics.core.words import size
from stateanalytics.errors import DamagedStoreError, NotAStoreError, SourceError
from stateanalytics.io import refusals
from stateanalytics.io.budget import on_disk, spending
from stateanalytics.io.changed_rows import Difference, difference
from stateanalytics.io.processes import (
    PrivateFolder,
    StoreProcess,
    idle_or_new,
    isolated,
    make_private_folder,
)

_KINDS = {
    stat.S_ISDIR: "a directory",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
BUSY_S = 5.0
"""How long to wait for a locked store."""
_MAX_LOG_BYTES = 2**26
"""Of a log that is read along with a copy; SQLite's own limit is 4 MB."""


@dataclass
class SharedConnection:
    """A connection to the copy that several small queries use, and what closes it."""

    closing: ExitStack | None = None
    cursor: Any = None


@dataclass(frozen=True)
class Store:
    """A private copy of one SQLite store, of one instant.

    Attributes
    ----------
    label : str
        How the user named it; the ``source`` column of every frame read from it.
    path : Path
        The original, which is not opened any more.
    copy : Path
        The copy, readable by this user only, deleted by `close`, when the store is
        garbage, and at the end of the process.
    tables : mapping of str to tuple of str
        The tables that hold rows, with their columns.
    size_bytes : int
        Size of the original, its log included.
    is_live : bool
        Whether another process had it open.
    others : mapping of str to str
        Views and virtual tables, which run code of the store's writer and are not read, with
        the words for what they are.
    rowids : mapping of str to str or None
        The name of each table's row number; None where it has none.
    texts : mapping of str to collection of str
        The columns of each table that keep numbers as text.
    illegible : collection of str
        Names of tables and columns that are not UTF-8.
    losses : mapping
        What could not be salvaged of a damaged store (`store_findings`); empty for a whole one.
    state : str or None
        `processes.state_of_store` of the original when the copy was made.
    roots : mapping of str to int
        The first page of each table.
    logged : tuple of str and int, optional
        Its write-ahead log and the number of committed frames, from which a later copy can
        go on.
    since : Difference, optional
        The rows that differ from an earlier copy, where that is known.
    shared : SharedConnection
        What `sqlite_tables.one_connection` keeps open.
    """

    label: str
    path: Path
    copy: Path
    tables: Mapping[str, tuple[str, ...]]
    size_bytes: int
    is_live: bool
    others: Mapping[str, str] = field(default_factory=dict, repr=False)
    rowids: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    texts: Mapping[str, Collection[str]] = field(default_factory=dict, repr=False)
    encoding: str = field(default="UTF-8", repr=False)
    illegible: Collection[str] = field(default=(), repr=False)
    losses: Mapping[str, Any] = field(default_factory=dict, repr=False)
    state: str | None = field(default=None, repr=False)
    roots: Mapping[str, int] = field(default_factory=dict, repr=False)
    logged: tuple[str, int] | None = field(default=None, repr=False)
    since: Difference | None = field(default=None, repr=False, compare=False)
    shared: SharedConnection = field(default_factory=SharedConnection, repr=False, compare=False)
    _lease: _Lease | None = field(default=None, repr=False, compare=False)

    @property
    def has_log(self) -> bool:
        """Whether the copy has a write-ahead log of its own."""
        return self.copy.with_name(self.copy.name + "-wal").exists()

    @property
    def can_be_followed(self) -> bool:
        """Whether a later copy can go on from this one: it is sound and still there."""
        if self._lease is None or self.losses or not self.is_open:
            return False
        return self._lease.private_copy.is_sound and self.copy.exists()

    def check(self) -> None:
        """Wait until the copy has been checked.

        Raises
        ------
        DamagedStoreError
            If a page of the store is corrupted.
        ArgumentError
            If the store was closed.
        """
        if self._lease is None:
            return
        if not self.is_open:
            raise refusals.closed(self.label)
        verdict = self._lease.private_copy.verdict()
        if "problem" in verdict:
            raise refusals.explained(self.path, verdict["problem"], verdict["found"])
        if verdict["damage"]:
            raise refusals.damaged(self.path, verdict["damage"])

    def unchecked(self) -> list[str]:
        """Tables whose pages were not checked; ``*`` where the check took too long."""
        self.check()
        return [] if self._lease is None else list(self._lease.private_copy.verdict()["unchecked"])

    @property
    def is_open(self) -> bool:
        """Whether its copy can still be read."""
        return self._lease is None or self._lease.end.alive

    def share(self) -> Store:
        """The same copy for another user: it is deleted when every user has closed theirs."""
        return replace(
            self, _lease=None if self._lease is None else _Lease(self._lease.private_copy)
        )

    def borrowed(self) -> Store:
        """The same copy, which can be read as long as another user has it open."""
        return replace(self, _lease=None)

    def close(self) -> None:
        """Delete the copy; nothing can be read from the store after that."""
        if self._lease is not None:
            self._lease.end()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Lease:
    """The use of a copy by one store, until that is closed or garbage-collected."""

    def __init__(self, private_copy: _PrivateCopy) -> None:
        self.private_copy = private_copy
        private_copy.n_leases += 1
        self.end = weakref.finalize(self, private_copy.release)


class _PrivateCopy:
    """A private folder, and the process that copies a store into it and checks the copy."""

    def __init__(self, folder: PrivateFolder, request: str, source: str, *more: Any) -> None:
        self.copy = folder.path / "copy.db"
        self.n_leases = 0
        # A list, so that the finalizer below sees when the process was given back.
        self._process = [idle_or_new()]
        self._is_check_requested = False
        self.end = weakref.finalize(self, _end, self._process, folder)
        self._verdict: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._process[0].ask(request, source, os.path.abspath(self.copy), *more)  # noqa: PTH100
        self.answer = self._process[0].answer()

    def begin_check(self) -> None:
        """Have the copy checked while the caller continues."""
        if not self._is_check_requested:
            self._is_check_requested = True
            self._process[0].ask("check", os.path.abspath(self.copy))  # noqa: PTH100

    def release(self) -> None:
        """Give up one lease; without any the copy is deleted."""
        self.n_leases -= 1
        if not self.n_leases:
            self.end()

    @property
    def is_sound(self) -> bool:
        """Whether the check has finished without a problem."""
        return self._verdict is not None and not any(self._verdict.values())

    def verdict(self) -> dict[str, Any]:
        """The result of the check; the first call waits for it."""
        with self._lock:
            if self._verdict is None:
                self.begin_check()
                self.accept(self._process[0].answer())
            assert self._verdict is not None
            return self._verdict

    def accept(self, verdict: dict[str, Any]) -> None:
        """Take the verdict of a check of this copy, or of an earlier copy that it continues."""
        self._verdict = verdict
        if not any(map(verdict.get, ("problem", "damage"))):
            self._process.pop().keep()


def _end(processes: list[StoreProcess], folder: PrivateFolder) -> None:
    for process in processes:
        process.end()
    folder.delete()


def open_store(
    path: str | Path,
    *,
    label: str | None = None,
    salvage: bool = False,
    earlier: Store | None = None,
) -> Store:
    """A store to read from: a consistent private copy of a SQLite file.

    Parameters
    ----------
    path : str or Path
        The file. Never a URI: every character of it is a character of the name.
    label : str, optional
        How messages and the ``source`` column name it; by default as it was given.
    salvage : bool
        Whether to read what is left of a damaged store; ``losses`` of the result has the rest.
        This waits for the check of the copy.
    earlier : Store, optional
        An earlier copy of the same file. Where it is still there, the result knows which
        rows may differ, and the check of the earlier copy holds for all others.

    Returns
    -------
    Store
        Close it, or use it in a ``with`` block, to delete the copy early.

    Raises
    ------
    SourceNotFoundError
        If nothing is there.
    NotAStoreError
        If it is no file, or no SQLite file (encrypted ones look like none).
    DamagedStoreError
        If it is truncated, or its list of tables cannot be read. Corrupted pages are
        looked for while the caller continues, and end the first read of a table or `check`.
    StoreBusyError
        If it stays locked for 5 s, may not be read, or never holds still.
    NoRoomError
        If the copy does not fit into the folder for temporary files.

    Notes
    -----
    All committed rows are there, those in the write-ahead log included; nothing is
    written next to the store and no lock on it outlives this call. A writer in WAL mode
    never waits; one in a rollback mode waits for the copy, about half a second for each GB.
    """
    if salvage:
        return _whole_or_salvaged(path, label)
    path, source, size_bytes = Path(path), *_located(path)
    _refuse_large(path, size_bytes)
    if earlier is not None and not earlier.can_be_followed:
        earlier = None
    elif earlier is not None and (followed := _followed(earlier, path, source, size_bytes)):
        return followed
    private_copy = _PrivateCopy(_folder_for(path, size_bytes), "copy", source, BUSY_S)
    answer = private_copy.answer
    if "problem" in answer:
        private_copy.end()
        raise refusals.explained(path, answer["problem"], answer["found"], size_bytes, BUSY_S)
    store = Store(
        label=str(path) if label is None else label,
        path=path,
        copy=private_copy.copy,
        tables={name: tuple(table["columns"]) for name, table in answer["tables"].items()},
        size_bytes=size_bytes,
        is_live=answer["is_live"],
        others=answer["others"],
        rowids={name: table["rowid"] for name, table in answer["tables"].items()},
        roots={name: table["root"] for name, table in answer["tables"].items()},
        texts={name: frozenset(table["texts"]) for name, table in answer["tables"].items()},
        encoding=answer["encoding"],
        illegible=tuple(answer["illegible"]),
        state=answer["state"],
        logged=answer["logged"],
        _lease=_Lease(private_copy),
    )
    if earlier is not None:
        store = _with_changed_rows(store, earlier)
    if store.since is None:
        private_copy.begin_check()
    return store


def _folder_for(path: str | Path, size_bytes: int) -> PrivateFolder:
    """A private folder with room for a copy."""
    folder = make_private_folder()
    room = shutil.disk_usage(folder.path).free
    if room < size_bytes + 2**20:
        folder.delete()
        raise refusals.no_room(path, f"{size(room)} are free", size_bytes)
    return folder


def _followed(earlier: Store, path: Path, source: str, size_bytes: int) -> Store | None:
    """An earlier copy brought up to date by the store's log; None where that cannot be done."""
    if earlier.logged is None:
        return None
    arguments = (str(earlier.copy), earlier.logged, _MAX_LOG_BYTES)
    private_copy = _PrivateCopy(_folder_for(path, _MAX_LOG_BYTES), "follow", source, *arguments)
    answer = private_copy.answer
    if "problem" in answer:
        private_copy.end()
        return None
    store = replace(
        earlier,
        copy=private_copy.copy,
        size_bytes=size_bytes,
        is_live=answer["is_live"],
        state=answer["state"],
        logged=tuple(answer["logged"]),
        since=None,
        shared=SharedConnection(),
        _lease=_Lease(private_copy),
    )
    store = _with_changed_rows(store, earlier, answer["changed"])
    if store.since is None:
        store.close()
        return None
    return store


def _with_changed_rows(
    now: Store, earlier: Store, changed_pages: Collection[int] | None = None
) -> Store:
    """A store with the rows that differ from an earlier copy, where that can be proven."""
    old, new = ((s.tables, s.others, s.roots, s.rowids, s.texts) for s in (earlier, now))
    if old != new:
        return now
    roots = {name: root for name, root in now.roots.items() if now.rowids[name]}
    trees = {} if earlier.since is None else earlier.since.trees
    since = difference(earlier.copy, now.copy, roots, trees, changed_pages)
    if since is None:
        return now
    assert earlier._lease is not None
    assert now._lease is not None
    now._lease.private_copy.accept(earlier._lease.private_copy.verdict())
    return replace(now, since=since)


def _whole_or_salvaged(path: str | Path, label: str | None) -> Store:
    try:
        store = open_store(path, label=label)
        try:
            store.check()
        except BaseException:
            store.close()
            raise
    except DamagedStoreError:
        return salvaged(path, label)
    return store


def salvaged(path: str | Path, label: str | None = None) -> Store:
    """What can be read of a damaged store, written to a clean one in another process.

    Raises
    ------
    DamagedStoreError
        If nothing of it can be read.
    NoRoomError
        If the clean store does not fit into the folder for temporary files.
    """
    source, size_bytes = _located(path)
    # The work copy and the clean store, which may be larger.
    folder = _folder_for(path, 2 * size_bytes)
    clean = folder.path / "salvaged.db"
    try:
        done = subprocess.run(
            isolated("stateanalytics.io.salvage.repair", source, str(clean)),
            check=False,  # a process that was killed gives no answer
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        losses = json.loads(done.stdout) if done.stdout else {}
        if not losses or "problem" in losses:
            why = losses.get("problem", f"the process that read it ended with {done.returncode}")
            raise refusals.beyond_salvage(path, why)
        return replace(
            open_store(clean, label=str(path) if label is None else label),
            path=Path(path),
            size_bytes=size_bytes,
            losses=losses,
            state=None,
        )
    finally:
        folder.delete()


def _located(path: str | Path) -> tuple[str, int]:
    """The file that a path leads to, and its size with its log; nothing is opened."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path cannot hold every str
    except PermissionError as error:
        raise refusals.explained(path, "no_permission", error.strerror or "") from error
    except (OSError, ValueError) as error:
        raise refusals.nothing_there(path, error) from error
    for is_kind, name in _KINDS.items():
        if is_kind(status.st_mode):
            hint = "name a file in it" if is_kind is stat.S_ISDIR else "copy it to a file first"
            raise NotAStoreError(f"A SQLite store was needed, and {str(path)!r} is {name}.", hint)
    # SQLite keeps its log next to the file itself, not next to a link to it.
    source = os.path.realpath(path)
    try:
        log_size = Path(source + "-wal").stat().st_size
    except OSError:  # none, or its writer has just ended
        log_size = 0
    return source, status.st_size + log_size


def _refuse_large(path: str | Path, size_bytes: int) -> None:
    """Refuse a store that exceeds the budget, or that is nearly all holes."""
    status = os.stat(path)  # noqa: PTH116 - a Path cannot hold every str
    most = spending().budget.most_bytes(status)
    if size_bytes > most:
        raise SourceError(
            f"{str(path)!r} has {size_bytes:,} bytes, {on_disk(status):,} of them on disk; the "
            f"budget lets {most:,.0f} be read.",
            "budget='off' reads it, where you trust it",
            shell="--budget off reads it, where you trust it",
        )
