"""SQLite stores: opened without disturbing anybody, read without trusting anything.

`open_store` makes a private copy of one instant (how, and why in another process, says
`stateanalytics.io.sqlite_copy`); `read_table` reads typed columns of that copy into
frames. The original is touched by nothing else, so a live writer never waits for an
analysis, and no table can be of another instant than its neighbour.
"""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io import refusals, salvaging, tables
from stateanalytics.io.cells import INTEGER, JSON, MOMENT, REAL, ROWID, TEXT, YES_NO, Cell
from stateanalytics.io.changed_rows import Rows, Tree, difference
from stateanalytics.io.private_folders import PrivateFolder, make_private_folder
from stateanalytics.io.store_process import StoreProcess, idle_or_new

__all__ = [
    "INTEGER",
    "JSON",
    "MOMENT",
    "REAL",
    "ROWID",
    "TEXT",
    "YES_NO",
    "Cell",
    "Store",
    "open_store",
    "read_table",
]

BUSY_S = 5.0  # how long a locked store is waited for
_MOST_LOGGED = 2**26  # octets of a log that are read along with a copy; SQLite's own limit is 4 MB


@dataclass(frozen=True)
class Since:
    """What differs from an earlier copy of the same store.

    Attributes
    ----------
    copy : Path
        The earlier copy.
    rows : mapping of str to Rows
        By table; one without row numbers is not named.
    trees : mapping of str to Tree
        The pages of these tables.
    """

    copy: Path
    rows: Mapping[str, Rows]
    trees: Mapping[str, Tree]


@dataclass(frozen=True)
class Store:
    """A private copy of one SQLite store, of one instant.

    Attributes
    ----------
    label : str
        How the user named it; the ``source`` column of every frame read from it.
    path : Path
        The original, which nothing opens any more.
    copy : Path
        The copy, readable by this user only, deleted by `close`, when the store is
        garbage, and at the end of the process.
    tables : mapping of str to tuple of str
        The tables that hold rows, with their columns; views and virtual tables, which
        run what the store's writer wrote, are left out.
    size_bytes : int
        Size of the original, its log included.
    is_live : bool
        Whether another process had it open.
    losses : mapping
        What could not be salvaged of a damaged one, as `salvaging` reads it; empty for
        a store that is whole.
    state : str or None
        What was another if anybody had written to the original before the copy was made
        (`store_process.state_of_store`); None where nothing tells.
    roots : mapping of str to int
        The page that each table begins at.
    logged : tuple of str and int, optional
        Which log it had, and how many frames of it: what a later copy can go on from.
    since : Since, optional
        What differs from an earlier copy, where that is known.
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
    since: Since | None = field(default=None, repr=False, compare=False)
    _lease: _Lease | None = field(default=None, repr=False, compare=False)

    @property
    def has_log(self) -> bool:
        """Whether the copy is a file and the log beside it."""
        return self.copy.with_name(self.copy.name + "-wal").exists()

    @property
    def can_be_followed(self) -> bool:
        """Whether it is a copy of a sound store that is still there."""
        if self._lease is None or self.losses or not self.is_open:
            return False
        return self._lease.copying.is_sound and self.copy.exists()

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
        verdict = self._lease.copying.verdict()
        if "problem" in verdict:
            raise refusals.explained(self.path, verdict["problem"], verdict["found"])
        if verdict["damage"]:
            raise refusals.damaged(self.path, verdict["damage"])

    def unchecked(self) -> list[str]:
        """The tables whose pages were not checked; ``*`` where the check took too long."""
        self.check()
        return [] if self._lease is None else list(self._lease.copying.verdict()["unchecked"])

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return self._lease is None or self._lease.end.alive

    def again(self) -> Store:
        """The same copy for somebody else: it is deleted when all have closed theirs."""
        return replace(self, _lease=None if self._lease is None else _Lease(self._lease.copying))

    def close(self) -> None:
        """Delete the copy; nothing can be read from the store after that."""
        if self._lease is not None:
            self._lease.end()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Lease:
    """The use of a copy by one store, until that is closed or garbage."""

    def __init__(self, copying: _Copying) -> None:
        self.copying = copying
        copying.n_leases += 1
        self.end = weakref.finalize(self, copying.give_back)


class _Copying:
    """A private folder, and the process that fills it and then checks what it filled."""

    def __init__(self, folder: PrivateFolder, request: str, source: str, *more: Any) -> None:
        self.copy = folder.path / "copy.db"
        self.n_leases = 0
        self._busy = [idle_or_new()]
        self._is_asked = False
        self.end = weakref.finalize(self, _end, self._busy, folder)
        self._verdict: dict[str, Any] | None = None
        self._one_by_one = threading.Lock()
        self.answer = self._ask(request, source, os.path.abspath(self.copy), *more)  # noqa: PTH100

    def _ask(self, *request: Any) -> dict[str, Any]:
        self._busy[0].ask(*request)
        return self._busy[0].answer()

    def begin_check(self) -> None:
        """Let the copy be checked while the caller goes on."""
        if not self._is_asked:
            self._is_asked = True
            self._busy[0].ask("check", os.path.abspath(self.copy))  # noqa: PTH100

    def give_back(self) -> None:
        """One who used the copy does not need it any more."""
        self.n_leases -= 1
        if not self.n_leases:
            self.end()

    @property
    def is_sound(self) -> bool:
        """Whether it was checked, and nothing was found."""
        return self._verdict is not None and not any(self._verdict.values())

    def verdict(self) -> dict[str, Any]:
        """What the check of the copy came to; waits for it the first time."""
        with self._one_by_one:
            if self._verdict is None:
                self.begin_check()
                self.found(self._busy[0].answer())
            assert self._verdict is not None
            return self._verdict

    def found(self, verdict: dict[str, Any]) -> None:
        """What a check found, of this copy or of all that is the same in another."""
        self._verdict = verdict
        if not any(map(verdict.get, ("problem", "damage"))):
            self._busy.pop().keep()


def _end(busy: list[StoreProcess], folder: PrivateFolder) -> None:
    for process in busy:
        process.end()
    folder.delete()


def open_store(
    path: str | Path,
    *,
    label: str | None = None,
    salvage: bool = False,
    before: Store | None = None,
) -> Store:
    """A store to read from: a consistent private copy of a SQLite file.

    Parameters
    ----------
    path : str or Path
        The file. Never a URI: every character of it is a character of the name.
    label : str, optional
        How messages and the ``source`` column name it; by default as it was given.
    salvage : bool
        Whether to read what is left of a store that is damaged; its ``losses`` say what
        is not. Its check is waited for.
    before : Store, optional
        An earlier copy of the same file. Where it is still there, the new one says which
        rows may differ, and the check of the earlier one holds for all others.

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
        looked for while the caller goes on, and end the first `read_table` or `check`.
    StoreBusyError
        If it stays locked for 5 s, may not be read, or never holds still.
    NoRoomError
        If the copy does not fit into the folder for temporary files.

    Notes
    -----
    All committed rows are there, those in the write-ahead log included; nothing is
    written beside the store and no lock on it outlives this call. A writer in WAL mode
    never waits; one in a rollback mode waits for the copy, about
    half a second for each GB.
    """
    if salvage:
        return _whole_or_salvaged(path, label)
    path, source, size_bytes = Path(path), *refusals.located(path)
    refusals.refuse_large(path, size_bytes)
    if before is not None and before.can_be_followed:
        followed = _followed(before, path, source, size_bytes)
        if followed is not None:
            return followed
    copying = _Copying(_folder_for(path, size_bytes), "copy", source, BUSY_S)
    answer = copying.answer
    if "problem" in answer:
        copying.end()
        raise refusals.explained(path, answer["problem"], answer["found"], size_bytes, BUSY_S)
    store = Store(
        label=str(path) if label is None else label,
        path=path,
        copy=copying.copy,
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
        _lease=_Lease(copying),
    )
    if before is not None and before.can_be_followed:
        store = _compared(before, store)
    if store.since is None:
        copying.begin_check()
    return store


def _folder_for(path: Path, size_bytes: int) -> PrivateFolder:
    """A private folder with room for so many bytes."""
    folder = make_private_folder()
    room = shutil.disk_usage(folder.path).free
    if room < size_bytes + 2**20:
        folder.delete()
        raise refusals.no_room(path, f"{refusals.megabytes(room)} are free", size_bytes)
    return folder


def _followed(before: Store, path: Path, source: str, size_bytes: int) -> Store | None:
    """The store as its log says since an earlier copy was made; None where it does not."""
    if before.logged is None:
        return None
    arguments = (str(before.copy), before.logged, _MOST_LOGGED)
    copying = _Copying(_folder_for(path, _MOST_LOGGED), "follow", source, *arguments)
    answer = copying.answer
    if "problem" in answer:
        copying.end()
        return None
    store = replace(
        before,
        copy=copying.copy,
        size_bytes=size_bytes,
        is_live=answer["is_live"],
        state=answer["state"],
        logged=tuple(answer["logged"]),
        since=None,
        _lease=_Lease(copying),
    )
    store = _compared(before, store, answer["changed"])
    if store.since is None:
        store.close()
        return None
    return store


def _compared(before: Store, now: Store, changed: Collection[int] | None = None) -> Store:
    """A store with what differs from an earlier copy, where that can be told."""
    shapes = [
        (each.tables, each.others, each.roots, each.rowids, each.texts) for each in (before, now)
    ]
    if shapes[0] != shapes[1]:
        return now
    numbered = {name: root for name, root in now.roots.items() if now.rowids[name]}
    trees = {} if before.since is None else before.since.trees
    found = difference(before.copy, now.copy, numbered, trees, changed)
    if found is None:
        return now
    assert before._lease is not None
    assert now._lease is not None
    now._lease.copying.found(before._lease.copying.verdict())
    return replace(now, since=Since(before.copy, found.rows, found.trees))


def _whole_or_salvaged(path: str | Path, label: str | None) -> Store:
    try:
        store = open_store(path, label=label)
        try:
            store.check()
        except BaseException:
            store.close()
            raise
    except DamagedStoreError:
        source, size_bytes = refusals.located(path)
        clean, losses, folder = salvaging.salvage(path, source, size_bytes)
    else:
        return store
    try:
        return replace(
            open_store(clean, label=str(path) if label is None else label),
            path=Path(path),
            size_bytes=size_bytes,
            losses=losses,
            state=None,
        )
    finally:
        folder.delete()


def read_table(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    *,
    system: str = "",
    only: Collection[int] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a table in the columns and kinds that are asked for, and what was wrong.

    Parameters
    ----------
    store : Store
        An open store.
    table : str
        Name of the table. One that is absent gives no rows.
    columns : mapping of str to Cell
        Name of each column to its kind. One that is absent, or whose ``needs`` are,
        is null in every row.
    system : str
        Goes into the ``system`` column of the findings.
    only : collection of int, optional
        Only rows with these row numbers; the table must have some.

    Returns
    -------
    rows : polars.DataFrame, shape (n_rows, n_columns)
        In the order of the table's row numbers. A cell that holds something else than
        its kind is null.
    findings : polars.DataFrame
        One row per column and kind of problem, in the shape of `schema.FINDINGS`.

    Raises
    ------
    DamagedStoreError
        If a page of the store is corrupted.
    ArgumentError
        If the store was closed.

    Examples
    --------
    >>> import sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     connection = sqlite3.connect(Path(folder) / "state.db")
    ...     _ = connection.executescript(
    ...         "CREATE TABLE t (id TEXT, at REAL); INSERT INTO t VALUES ('a', 0), ('b', 'soon')"
    ...     )
    ...     connection.close()
    ...     with open_store(Path(folder) / "state.db") as store:
    ...         rows, findings = read_table(store, "t", {"id": TEXT, "at": MOMENT})
    >>> rows.rows()
    [('a', None), ('b', None)]
    >>> findings.select("column", "code", "n_rows", "example").rows()
    [('at', 'cell.wrong_type', 1, 'soon')]
    """
    if not (store.is_open and store.copy.exists()):
        raise refusals.closed(store.label)
    rows, problems = tables.read(store, table, columns, only)
    store.check()
    named = [{"source": store.label, "system": system, **finding} for finding in problems]
    findings = pl.DataFrame(named) if named else schema.FINDINGS.empty()
    return rows, schema.FINDINGS.conform(findings)
