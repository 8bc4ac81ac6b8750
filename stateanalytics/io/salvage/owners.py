"""Whose rows a page holds: those that a table's definition allows and its indexes list.

A damaged index proves nothing by itself, so nothing is read from one. But an entry with the
key and the number of a row confirms that the row is of its table, and a sound page of an
index that has no entry where the row's must be contradicts it.

References
----------
.. [1] https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from stateanalytics.io.salvage.pages import NULL, NUMBER, Cell, File, Value

_DENY_FUNCTIONS = {sqlite3.SQLITE_FUNCTION: sqlite3.SQLITE_DENY}
_N_INDEXES = 3  # of a table; each costs time, and two rarely have the same gap


class Column(NamedTuple):
    """What a value of one stored column may be.

    Attributes
    ----------
    affinity : str
        TEXT, INTEGER, REAL, BLOB or NUMERIC; of a STRICT table its type.
    is_strict, is_required : bool
        Whether other types and nulls are refused.
    may_be_absent : bool
        Whether rows may have been written before the column was added.
    is_rowid : bool
        Whether it is another name of the row number, which is stored once.
    """

    affinity: str
    is_strict: bool
    is_required: bool
    may_be_absent: bool
    is_rowid: bool

    def allows(self, kind: int) -> bool:
        """Whether SQLite stores a value of this serial type in the column."""
        if self.is_rowid or kind == 0:
            return kind == 0 and (self.is_rowid or not self.is_required)
        is_number, is_blob = kind < 12, kind >= 12 and kind % 2 == 0
        if self.affinity == "TEXT":  # it turns every number into text
            return not (is_number or (is_blob and self.is_strict))
        return not self.is_strict or self.affinity == "ANY" or self.expects(kind)

    def expects(self, kind: int) -> bool:
        """Whether the type is the declared one, too: SQLite leaves text in a column of numbers."""
        is_text, is_number = kind >= 13 and kind % 2 == 1, kind < 12
        if self.affinity in ("INTEGER", "INT", "REAL"):
            return is_number or not (is_text or self.is_strict)
        return True


@dataclass(frozen=True)
class Index:
    """The entries of an index that can be read, in order.

    Attributes
    ----------
    places : tuple of int
        The stored columns that it is over.
    entries : list of tuple
        The values of these columns and the row number.
    gaps : set of int
        Places before which entries may be missing.
    """

    places: tuple[int, ...]
    entries: list[tuple[Value, ...]] = field(repr=False)
    gaps: set[int] = field(repr=False)

    def lists(self, entry: tuple[Value, ...]) -> bool | None:
        """Whether there is such an entry; None where that cannot be known."""
        place = bisect_left(self.entries, entry)
        if self.entries[place : place + 1] == [entry]:
            # Rows of any table have nulls and numbers of rows in common.
            return None if all(kind == NULL for kind, _ in entry[:-1]) else True
        return None if place in self.gaps else False


@dataclass(frozen=True)
class Owner:
    """A table as what its rows are recognized by."""

    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()

    def judged(self, file: File, page: int, cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], int]:
        """The rows of a leaf that may be of this table, and how many of them surely are.

        None are where most are not allowed by the definition, or by the indexes: then the
        page is another table's, and a row that would do is so by chance.
        """
        if not any(self._allows(file, page, cell) for cell in (cells[0], cells[-1])):
            return (), 0  # most tables by far, and soon
        allowed = [cell for cell in cells if self._allows(file, page, cell)]
        answers = [self._lists(file, page, cell) for cell in allowed]
        expected = [self._expects(file, page, cell) for cell in allowed]
        n_listed, n_not = answers.count(True), answers.count(False)
        if 2 * sum(expected) < len(cells) or n_not > n_listed:
            return (), 0
        rows = zip(allowed, answers, expected, strict=True)
        kept = (
            cell for cell, answer, is_expected in rows if answer or (answer is None and is_expected)
        )
        return tuple(kept), n_listed

    def n_rows(self) -> int | None:
        """How many rows there were; None where no index is whole."""
        return next((len(index.entries) for index in self.indexes if not index.gaps), None)

    def _allows(self, file: File, page: int, cell: Cell) -> bool:
        if cell.n_columns > len(self.columns):
            return False
        kinds = file.kinds(page, cell.at)
        return (
            all(map(Column.allows, self.columns, kinds))
            and all(column.may_be_absent for column in self.columns[cell.n_columns :])
            and file.is_legible(page, cell.at)
        )

    def _expects(self, file: File, page: int, cell: Cell) -> bool:
        return all(map(Column.expects, self.columns, file.kinds(page, cell.at)))

    def _lists(self, file: File, page: int, cell: Cell) -> bool | None:
        answers = set()
        for index in self.indexes:
            n_needed = max(index.places) + 1
            # A row may be older than the column.
            row = file.values(page, cell.at, n_needed) if n_needed <= cell.n_columns else None
            if row:
                number = (NUMBER, cell.rowid)
                key = (
                    number if self.columns[place].is_rowid else row[place] for place in index.places
                )
                answers.add(index.lists((*key, number)))
        return True if True in answers else False if False in answers else None


def owner_of(
    file: File, name: str, sql: str, indexes: Sequence[tuple[str, int, str | None]]
) -> Owner:
    """What a definition says of its rows, which runs nothing, and what its indexes list.

    Parameters
    ----------
    file : File
        The store.
    name, sql : str
        The table and its definition.
    indexes : sequence of (str, int, str or None)
        Name, root page and definition of each of its indexes.
    """
    with closing(sqlite3.connect(":memory:")) as nowhere:
        nowhere.execute(sql)
        # What an index computes would be computed now, and is no use for recognizing rows.
        nowhere.set_authorizer(lambda action, *_: _DENY_FUNCTIONS.get(action, sqlite3.SQLITE_OK))
        for _, _, definition in indexes:
            with suppress(sqlite3.Error):
                nowhere.execute(definition or "")
        described = nowhere.execute(
            'SELECT cid, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) '
            "WHERE hidden <> 2 ORDER BY cid",  # what is computed when it is read is not stored
            (name,),
        ).fetchall()
        query = 'SELECT name, origin, "unique" FROM pragma_index_list(?) WHERE NOT partial'
        listed = nowhere.execute(query, (name,)).fetchall()
        query = 'SELECT cid, "desc", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno'
        keys = {index: nowhere.execute(query, (index,)).fetchall() for index, _, _ in listed}
    is_strict = "STRICT" in sql.upper().rpartition(")")[2]
    has_key_index = any(origin == "pk" for _, origin, _ in listed)
    columns = tuple(
        Column(
            affinity=kind.upper() if is_strict else _affinity(kind),
            is_strict=is_strict,
            is_required=bool(not_null),
            may_be_absent=not key and (default is not None or not not_null),
            is_rowid=bool(key) and not has_key_index,
        )
        for _, kind, not_null, default, key in described
    )
    places = {cid: place for place, (cid, *_) in enumerate(described)}
    roots = {index: root for index, root, _ in indexes}
    # An entry of one that is not unique proves less: rows of two tables may have it.
    best = max((unique for index, _, unique in listed if index in roots), default=0)
    usable = [
        (roots[index], tuple(places[cid] for cid, *_ in keys[index]))
        for index, _, unique in listed
        if index in roots
        and unique == best
        and all(cid in places and not desc and coll == "BINARY" for cid, desc, coll in keys[index])
    ]
    return Owner(columns, tuple(_read_index(file, *index) for index in usable[:_N_INDEXES]))


def _affinity(declared: str) -> str:
    """SQLite's rules, in their order."""
    kind = declared.upper()
    if "INT" in kind:
        return "INTEGER"
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in kind or not kind:
        return "BLOB"
    return "REAL" if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _read_index(file: File, root: int, places: tuple[int, ...]) -> Index:
    """Every entry of an index, and where a page that is not what it should be leaves a gap."""
    entries: list[tuple[Value, ...]] = []
    gaps: set[int] = set()
    seen: set[int] = set()
    # A page with the entry that all of its own are below, or an entry itself.
    left: list[tuple[int | None, tuple[Value, ...] | None]] = [(root, None)]
    while left:
        page, entry = left.pop()
        if page is None:
            if entry is not None:
                entries.append(entry)
            continue
        found = None if page in seen else file.index_entries(page, len(places) + 1)
        last = entries[-1] if entries else None
        keys = [key for _, key in found or () if key is not None]
        bounds = [*([] if last is None else [last]), *keys, *([] if entry is None else [entry])]
        is_empty = not found and page != root  # as only the page of an index without entries is
        if found is None or is_empty or any(below >= above for below, above in pairwise(bounds)):
            gaps.add(len(entries))
            continue
        seen.add(page)
        steps: list[tuple[int | None, tuple[Value, ...] | None]] = []
        for child, key in found:
            if child is not None:
                steps.append((child, entry if key is None else key))
            steps.append((None, key))
        left.extend(reversed(steps))
    return Index(places, entries, gaps)
