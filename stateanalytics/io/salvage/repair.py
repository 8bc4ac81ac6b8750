"""A file that SQLite can open again, and its rows in a clean store, halving what cannot be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from stateanalytics.io.salvage.owners import Column, Owner, owner_of
from stateanalytics.io.salvage.pages import INTERIOR, LEAF, NULL, File, columns_of, plain, varint
from stateanalytics.io.salvage.trees import Leaf, Tree, adopt, walk

HEADER = 100
_SCHEMA_COLUMNS = 5
_SCHEMA = Owner((Column("NUMERIC", False, False, False, False),) * _SCHEMA_COLUMNS)
_KINDS = ("table", "index", "view", "trigger")


def read_schema(file: File) -> tuple[list[Tree], Tree, list[Tree]]:
    """The tables, not walked yet.

    Returns
    -------
    list of Tree
        Tables whose definition is left, with what their rows are recognized by.
    Tree
        The table of definitions itself, walked.
    list of Tree
        Tables with a definition that is not believed, and those of SQLite's own.
    """
    schema = walk(file, Tree("sqlite_schema", "", 1, _SCHEMA))
    if schema.gaps:
        (schema,) = adopt(file, [schema], _but_schema(file))
    trees: list[Tree] = []
    indexes: dict[str, list[tuple[str, int, str | None]]] = {}
    for leaf in schema.leaves:
        for cell in leaf.cells:
            # A long definition goes on elsewhere, and what comes before it is left.
            values = file.values(leaf.page, cell.at, _SCHEMA_COLUMNS) or [
                *(file.values(leaf.page, cell.at, _SCHEMA_COLUMNS - 1) or ()),
                (NULL, 0),
            ]
            row = plain(values, file.text_encoding())
            if len(row) != _SCHEMA_COLUMNS:
                continue
            kind, name, table, root, sql = row
            if not isinstance(name, str) or not isinstance(root, int) or not root:
                continue
            if kind == "table":
                trees.append(Tree(name, sql if isinstance(sql, str) else "", root))
            elif kind == "index" and isinstance(table, str):
                definition = sql if isinstance(sql, str) else None
                indexes.setdefault(table.lower(), []).append((name, root, definition))
    believed = [tree for tree in trees if _is_definition(tree)]
    recognized = [
        replace(tree, owner=owner_of(file, tree.name, tree.sql, indexes.get(tree.name.lower(), ())))
        for tree in believed
    ]
    return recognized, schema, [tree for tree in trees if tree not in believed]


def _but_schema(file: File) -> set[int]:
    """Every page that holds no definitions, by what its first row says."""
    others = set()
    for page in range(2, file.n_pages + 1):
        cells = file.cells(page)
        row = columns_of(file.payload(page, cells[0].at) or b"\x01", "utf-8") if cells else []
        if len(row) != _SCHEMA_COLUMNS or row[0] not in _KINDS:
            others.add(page)
    return others


def _is_definition(tree: Tree) -> bool:
    """Is this SQL a plain table's: it is parsed, and nothing in it is run."""
    if tree.name.startswith("sqlite_"):
        return False
    with closing(sqlite3.connect(":memory:")) as nowhere:
        selects: list[int] = []

        def watch(action: int, *_: object) -> int:
            if action == sqlite3.SQLITE_SELECT:
                selects.append(action)
                return sqlite3.SQLITE_DENY
            return sqlite3.SQLITE_OK

        nowhere.set_authorizer(watch)
        try:
            nowhere.execute(tree.sql)
        except sqlite3.Error:
            return False
        return not selects and tree.sql.lstrip()[:12].upper() == "CREATE TABLE"


def rebuild(file: File, trees: list[Tree], path: Path) -> None:
    """Write the store anew to where SQLite finds sound leaves, and nothing else, in it.

    Parameters
    ----------
    file : File
        The damaged store.
    trees : list of Tree
        Its tables, walked.
    path : Path
        Where to write.
    """
    octets = bytearray(file.octets[: file.n_pages * file.page_size])
    roots = []
    for tree in trees:
        for leaf in tree.leaves:
            _write_cells(octets, file, leaf)
        level = [(leaf.page, leaf.last) for leaf in tree.leaves]
        while len(level) > 1:
            level = _level_above(octets, file, level)
        roots.append(level[0][0] if level else _append(octets, file, _empty_leaf(file.usable)))
    _write_header(octets, file)
    path.write_bytes(octets)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) "
            "VALUES ('table', ?, ?, ?, ?)",
            [
                (tree.name, tree.name, root, tree.sql)
                for tree, root in zip(trees, roots, strict=True)
            ],
        )
        connection.execute("COMMIT")


def _write_cells(octets: bytearray, file: File, leaf: Leaf) -> None:
    """Let a leaf name its sound rows only."""
    begin = (leaf.page - 1) * file.page_size + (HEADER if leaf.page == 1 else 0)
    octets[begin + 3 : begin + 5] = len(leaf.cells).to_bytes(2, "big")
    pointers = b"".join(cell.at.to_bytes(2, "big") for cell in leaf.cells)
    octets[begin + 8 : begin + 8 + len(pointers)] = pointers


def _level_above(
    octets: bytearray, file: File, level: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Interior pages over some pages, each of which comes with its greatest row number."""
    # A cell takes at most 4 bytes for the child, 9 for the number and 2 for its pointer.
    n_children = (file.usable - 12) // 15 + 1
    above = []
    for begin in range(0, len(level), n_children):
        group = level[begin : begin + n_children]
        cells = [child.to_bytes(4, "big") + varint(last) for child, last in group[:-1]]
        page, end, pointers = bytearray(file.page_size), file.usable, b""
        for cell in cells:
            end -= len(cell)
            page[end : end + len(cell)] = cell
            pointers += end.to_bytes(2, "big")
        page[:12] = (
            bytes([INTERIOR, 0, 0])
            + len(cells).to_bytes(2, "big")
            + (end % 65536).to_bytes(2, "big")
            + b"\0"
            + group[-1][0].to_bytes(4, "big")
        )
        page[12 : 12 + len(pointers)] = pointers
        above.append((_append(octets, file, bytes(page)), group[-1][1]))
    return above


def _append(octets: bytearray, file: File, page: bytes) -> int:
    octets += page.ljust(file.page_size, b"\0")
    return len(octets) // file.page_size


def _empty_leaf(usable: int) -> bytes:
    return bytes([LEAF, 0, 0, 0, 0]) + (usable % 65536).to_bytes(2, "big") + b"\0"


def _write_header(octets: bytearray, file: File) -> None:
    """No write-ahead log, no free pages, no definitions; as many pages as there are."""
    octets[18:20] = b"\1\1"
    octets[28:32] = (len(octets) // file.page_size).to_bytes(4, "big")
    octets[32:40] = bytes(8)
    octets[52:56] = bytes(4)  # vacuum by itself: its pages become plain ones
    octets[64:68] = bytes(4)
    octets[92:96] = octets[24:28]
    octets[HEADER : HEADER + 8] = _empty_leaf(file.usable)


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
