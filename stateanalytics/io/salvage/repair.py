"""The process that salvages a damaged store; it answers with one line of JSON.

It writes a file with only the sound leaves, which SQLite can open, and lets SQLite copy the
rows into a clean store; ranges of rows that fail are halved until single rows fail.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stateanalytics.io.processes import limit_process
from stateanalytics.io.salvage.pages import INTERIOR, LEAF, NULL, File, columns_of, plain, varint
from stateanalytics.io.salvage.trees import (
    Column,
    Leaf,
    Owner,
    Tree,
    adopt,
    n_in_no_tree,
    n_lost,
    n_set_apart,
    own,
    owner_of,
    walk,
)
from stateanalytics.io.sqlite_copy import quoted

HEADER = 100
_SCHEMA_COLUMNS = 5
_SCHEMA = Owner((Column("NUMERIC", False, False, False, False),) * _SCHEMA_COLUMNS)
_KINDS = ("table", "index", "view", "trigger")


def read_schema(file: File) -> tuple[list[Tree], Tree, list[Tree]]:
    """The tables, before they are walked.

    Returns
    -------
    list of Tree
        Tables with a readable definition, and with their owner.
    Tree
        The table of definitions itself, walked.
    list of Tree
        Tables with an implausible definition, and internal tables of SQLite.
    """
    schema = walk(file, Tree("sqlite_schema", "", 1, _SCHEMA))
    if schema.gaps:
        (schema,) = adopt(file, [schema], _but_schema(file))
    trees: list[Tree] = []
    indexes: dict[str, list[tuple[str, int, str | None]]] = {}
    for leaf in schema.leaves:
        for cell in leaf.cells:
            # The overflow of a long definition may be lost; the columns before it are not.
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
    """Every page without definitions, by its first row."""
    others = set()
    for page in range(2, file.n_pages + 1):
        cells = file.cells(page)
        row = columns_of(file.payload(page, cells[0].at) or b"\x01", "utf-8") if cells else []
        if len(row) != _SCHEMA_COLUMNS or row[0] not in _KINDS:
            others.add(page)
    return others


def _is_definition(tree: Tree) -> bool:
    """Whether SQL defines a plain table; it is parsed, and nothing in it is run."""
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
    """Write a copy of the store in which SQLite finds the sound leaves and nothing else.

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
    """Make a leaf refer to its sound rows only."""
    begin = (leaf.page - 1) * file.page_size + (HEADER if leaf.page == 1 else 0)
    octets[begin + 3 : begin + 5] = len(leaf.cells).to_bytes(2, "big")
    pointers = b"".join(cell.at.to_bytes(2, "big") for cell in leaf.cells)
    octets[begin + 8 : begin + 8 + len(pointers)] = pointers


def _level_above(
    octets: bytearray, file: File, level: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Interior pages above some pages, each given with its largest row number."""
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
    """A header without write-ahead log, free pages and definitions, with the number of pages."""
    octets[18:20] = b"\1\1"
    octets[28:32] = (len(octets) // file.page_size).to_bytes(4, "big")
    octets[32:40] = bytes(8)
    octets[52:56] = bytes(4)  # no auto-vacuum: its pages become plain ones
    octets[64:68] = bytes(4)
    octets[92:96] = octets[24:28]
    octets[HEADER : HEADER + 8] = _empty_leaf(file.usable)


_LEAVES_AT_ONCE = 256


def copy_rows(repaired: Path, clean: Path, trees: Sequence[Tree]) -> dict[str, list[int]]:
    """Copy every readable row; return the numbers of the others by table.

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
        # Immutable: no content of it can end a transaction of the clean store.
        uri = f"file:{quote(os.fsencode(repaired))}?immutable=1"
        connection.execute("ATTACH ? AS damaged", (uri,))
        connection.execute("PRAGMA damaged.cell_size_check=ON")
        for tree in trees:
            lost[tree.name] = _Table(connection, tree.name).copy(tree.leaves)
    return lost


class _Table:
    """One table on its way from the repaired store to the clean one."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.connection, self.name = connection, quoted(name)
        described = connection.execute(f"PRAGMA damaged.table_xinfo({self.name})").fetchall()
        # Virtual generated columns (2) would run the store's own expressions.
        kept = {row[1]: row[2] for row in described if row[6] in (0, 3)}
        taken = {column.lower() for column in kept}
        self.rowid = next(n for n in ("rowid", "_rowid_", "oid", "") if n not in taken)
        self.columns = ", ".join(quoted(column) for column in kept)
        declared = ", ".join(f"{quoted(column)} {quoted(kind)}" for column, kind in kept.items())
        connection.execute(f"CREATE TABLE main.{self.name} ({declared})")

    def copy(self, leaves: Sequence[Leaf]) -> list[int]:
        """Copy the rows of some leaves; return the numbers of rows that failed."""
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
        # An index could answer in place of the table, and hide its damage.
        query = (
            f"INSERT INTO main.{self.name} ({names}) SELECT {names} FROM damaged.{self.name} "
            f"NOT INDEXED WHERE {self.rowid} BETWEEN ? AND ?"
        )
        try:
            self.connection.execute(query, (first, last))  # one statement: all rows or none
        except (sqlite3.DatabaseError, MemoryError):
            return False
        return True


CPU_S, CPU_S_PER_GB = 120, 600
MEMORY_BYTES, MEMORY_PER_BYTE = 2**30, 12
N_NAMED = 50  # ranges of lost rows that are listed, per table


def main() -> None:
    """Salvage the store named first into the file named second."""
    source, target = Path(sys.argv[-2]), Path(sys.argv[-1])
    try:
        # A malicious store ends nothing but this process.
        size = source.stat().st_size
        cpu_s = CPU_S + CPU_S_PER_GB * size // 10**9
        limit_process(RLIMIT_CPU=cpu_s, RLIMIT_AS=MEMORY_BYTES + MEMORY_PER_BYTE * size)
        answer = salvage(source, target)
    except (OSError, sqlite3.Error, MemoryError, ValueError) as error:
        answer = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


def salvage(source: Path, target: Path) -> dict[str, Any]:
    """Write the readable rows to ``target``; return what was read and what was lost."""
    work = target.with_suffix(".work")
    notes = _merged_copy(source, work)
    file = File.of(work.read_bytes())
    if file.page_size < 512 or file.page_size & (file.page_size - 1) or not file.n_pages:
        raise ValueError("its header, which says how it is to be read, is damaged")
    tables, schema, others = read_schema(file)
    walked = [walk(file, tree) for tree in tables]
    free = file.free_pages()
    # Pages of tables without a readable definition must not be assigned to others.
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
            _report(tree, lost_rows[tree.name], n_unclaimed)
            for tree, n_unclaimed in zip(trees, n_set_apart(walked, trees), strict=True)
        ],
    }


def _report(tree: Tree, lost: list[int], n_unclaimed: int) -> dict[str, Any]:
    n_read = sum(len(leaf.cells) for leaf in tree.leaves) - len(lost)
    ranges: list[dict[str, Any]] = [
        {"first": gap.low + 1, "last": gap.high, "n": n_lost(tree, gap), "page": gap.page}
        for gap in tree.gaps
    ]
    ranges += [
        {"first": leaf.first, "last": leaf.last, "n": leaf.n_lost, "page": leaf.page}
        for leaf in tree.leaves
        if leaf.n_lost
    ]
    ranges += [{"first": rowid, "last": rowid, "n": 1, "page": None} for rowid in lost]
    n_rows = tree.owner.n_rows()
    is_unknown = n_rows is None and any(gap["n"] is None for gap in ranges)
    estimate = None if is_unknown else sum(gap["n"] or 0 for gap in ranges)
    return {
        "table": tree.name,
        "n_read": n_read,
        "n_lost": estimate if n_rows is None else max(0, n_rows - n_read),
        "n_unclaimed": n_unclaimed,
        "ranges": ranges[:N_NAMED],
        "n_ranges": len(ranges),
    }


def _merged_copy(source: Path, work: Path) -> list[str]:
    """Copy a store, and merge its write-ahead log into the copy if possible; return notes."""
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
    """Number of bytes that the header promises and the file does not have."""
    header = file.octets[:100]
    # The number of pages is only kept by versions that also keep the second of these.
    promised = int.from_bytes(header[28:32], "big") * file.page_size
    is_kept = header[24:28] == header[92:96]
    return max(0, promised - len(file.octets)) if is_kept else 0
