"""The process that salvages a damaged store; it answers with one line of JSON.

It writes the rows of sound leaves into a clean store, one by one.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from stateanalytics.io.processes import limit_process
from stateanalytics.io.salvage.pages import NULL, File, plain, values_of
from stateanalytics.io.salvage.trees import (
    Column,
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
from stateanalytics.io.sqlite_copy import promised_bytes, quoted

_SCHEMA_COLUMNS = 5
_SCHEMA = Owner((Column(),) * _SCHEMA_COLUMNS)
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
    indexes: dict[str, list[tuple[str, int, str]]] = {}
    for cell in schema.cells:
        # The overflow of a long definition may be lost; the columns before it are not.
        values = file.values(cell, _SCHEMA_COLUMNS) or [
            *(file.values(cell, _SCHEMA_COLUMNS - 1) or ()),
            (NULL, 0),
        ]
        row = plain(values, file.text_encoding())
        if len(row) != _SCHEMA_COLUMNS:
            continue
        kind, name, table, root, sql = row
        if not isinstance(name, str) or not isinstance(root, int) or not root:
            continue
        definition = sql if isinstance(sql, str) else ""
        if kind == "table":
            trees.append(Tree(name, definition, root))
        elif kind == "index" and isinstance(table, str):
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
        values = file.values(cells[0], _SCHEMA_COLUMNS + 1) if cells else None
        row = plain(values or (), "utf-8")
        if len(row) != _SCHEMA_COLUMNS or row[0] not in _KINDS:
            others.add(page)
    return others


def _is_definition(tree: Tree) -> bool:
    """Whether SQL defines a plain table; it is parsed, and nothing in it is run."""
    if tree.name.startswith("sqlite_"):
        return False
    with closing(sqlite3.connect(":memory:")) as nowhere:
        nowhere.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY * (action == sqlite3.SQLITE_SELECT)
        )
        try:
            nowhere.execute(tree.sql)
        except sqlite3.Error:
            return False
    return tree.sql.lstrip()[:12].upper() == "CREATE TABLE"


def write_rows(file: File, trees: Sequence[Tree], clean: Path) -> dict[str, list[int]]:
    """Write the rows of some tables into a new store; return the numbers of lost ones.

    Notes
    -----
    The clean store has the columns with their declared types, so that values keep their
    kind, and no constraint, index or expression of the damaged one.
    """
    clean.unlink(missing_ok=True)
    with closing(sqlite3.connect(clean, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        lost = {tree.name: _write(file, tree, connection) for tree in trees}
        connection.execute("COMMIT")
    return lost


def _write(file: File, tree: Tree, connection: sqlite3.Connection) -> list[int]:
    """Write the rows of one table; return the numbers of rows of which a part is missing."""
    columns, table, encoding = tree.owner.columns, quoted(tree.name), file.text_encoding()
    declared = ", ".join(f"{quoted(column.name)} {column.declared}" for column in columns)
    connection.execute(f"CREATE TABLE {table} ({declared})")
    taken = {column.name.lower() for column in columns}
    # Where columns have all three names, SQLite has none left for the numbers of rows.
    numbers = [name for name in ("rowid", "_rowid_", "oid") if name not in taken][:1]
    names = [*numbers, *(quoted(column.name) for column in columns)]
    lost = []
    for cell in tree.cells:
        try:
            row = plain(values_of(file.payload(cell)) or (), encoding)
            pairs = zip(columns, row, strict=False)  # the last columns may have been added later
            values = [cell.rowid if column.is_rowid else value for column, value in pairs]
            given = [cell.rowid for _ in numbers] + values
            into, places = ", ".join(names[: len(given)]), ", ".join("?" * len(given))
            connection.execute(f"INSERT INTO {table} ({into}) VALUES ({places})", given)
        except (IndexError, OverflowError, MemoryError, sqlite3.Error):
            lost.append(cell.rowid)
    return lost


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
    work.unlink()
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
    lost_rows = write_rows(file, trees, target)
    return {
        "notes": notes,
        "page_size": file.page_size,
        "n_bytes_missing": max(0, promised_bytes(file.octets[:100]) - len(file.octets)),
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
