"""Rows of a repaired store into a clean one, halving what cannot be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from stateanalytics.io.salvage.trees import Leaf, Tree

_LEAVES_AT_ONCE = 256


def copy_rows(repaired: Path, clean: Path, trees: Sequence[Tree]) -> dict[str, list[int]]:
    """Copy every row that can be read; the numbers of those that cannot, by table.

    Notes
    -----
    The clean store has the columns with their declared types, so that values keep their
    kind, and no constraint, index or expression of the damaged one.
    """
    clean.unlink(missing_ok=True)
    lost: dict[str, list[int]] = {}
    with closing(sqlite3.connect(repaired)) as damaged:
        encoding = damaged.execute("PRAGMA encoding").fetchone()[0]
    with closing(sqlite3.connect(clean, isolation_level=None, uri=True)) as connection:
        connection.execute(f"PRAGMA encoding='{encoding}'")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("PRAGMA synchronous=OFF")
        # Immutable: nothing that is found in it can end a transaction of the clean store.
        uri = f"file:{quote(os.fsencode(repaired))}?immutable=1"
        connection.execute("ATTACH ? AS damaged", (uri,))
        connection.execute("PRAGMA damaged.cell_size_check=ON")
        for tree in trees:
            lost[tree.name] = _Table(connection, tree.name).copy(tree.leaves)
    return lost


class _Table:
    """One table on its way from the repaired store to the clean one."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.connection, self.name = connection, _quoted(name)
        described = connection.execute(f"PRAGMA damaged.table_xinfo({self.name})").fetchall()
        # Virtual generated columns (2) would run the store's own expressions.
        kept = {row[1]: row[2] for row in described if row[6] in (0, 3)}
        taken = {column.lower() for column in kept}
        self.rowid = next(n for n in ("rowid", "_rowid_", "oid", "") if n not in taken)
        self.columns = ", ".join(_quoted(column) for column in kept)
        declared = ", ".join(f"{_quoted(column)} {_quoted(kind)}" for column, kind in kept.items())
        connection.execute(f"CREATE TABLE main.{self.name} ({declared})")

    def copy(self, leaves: Sequence[Leaf]) -> list[int]:
        """Copy the rows of some leaves; which could not be."""
        lost: list[int] = []
        for begin in range(0, len(leaves), _LEAVES_AT_ONCE):
            rowids = [
                cell.rowid
                for leaf in leaves[begin : begin + _LEAVES_AT_ONCE]
                for cell in leaf.cells
            ]
            lost += self._copy(rowids)
        return lost

    def _copy(self, rowids: list[int]) -> list[int]:
        if self._is_copied(rowids[0], rowids[-1]):
            return []
        if len(rowids) == 1:
            return rowids
        middle = len(rowids) // 2
        return self._copy(rowids[:middle]) + self._copy(rowids[middle:])

    def _is_copied(self, first: int, last: int) -> bool:
        names = f"{self.rowid}, {self.columns}"
        # An index may answer what the table cannot.
        query = (
            f"INSERT INTO main.{self.name} ({names}) SELECT {names} FROM damaged.{self.name} "
            f"NOT INDEXED WHERE {self.rowid} BETWEEN ? AND ?"
        )
        try:
            self.connection.execute(query, (first, last))  # by itself, so all of it or nothing
        except (sqlite3.DatabaseError, MemoryError):
            return False
        return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
