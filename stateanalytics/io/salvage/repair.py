"""A file that SQLite can open again: sound leaves under new trees, tables only, no index."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from stateanalytics.io.salvage.pages import INTERIOR, LEAF, File, columns_of, varint
from stateanalytics.io.salvage.trees import Leaf, Tree, adopt, walk

HEADER = 100
_SCHEMA_COLUMNS = 5
_KINDS = ("table", "index", "view", "trigger")


def read_schema(file: File) -> tuple[list[Tree], Tree]:
    """Tables whose definition is left, not walked yet, and the table of definitions itself."""
    schema = walk(file, Tree("sqlite_schema", "", 1, _SCHEMA_COLUMNS))
    if schema.gaps:
        (schema,), _ = adopt(file, [schema], _but_schema(file))
    found = []
    for leaf in schema.leaves:
        for cell in leaf.cells:
            row = columns_of(file.payload(leaf.page, cell.at) or b"\x01", file.text_encoding())
            if len(row) == _SCHEMA_COLUMNS and row[0] == "table":
                _, name, _, root, sql = row
                if isinstance(name, str) and isinstance(root, int) and isinstance(sql, str):
                    found.append(Tree(name, sql, root))
    return [tree for tree in found if tree.root and _is_definition(tree)], schema


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
        nowhere.execute("PRAGMA trusted_schema=OFF")
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
