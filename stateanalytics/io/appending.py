"""Tables that only grow: of what was read before, only the new rows are read again.

A writer that appends gives each row a greater number than all before it. Whether it
really only appended is seen by a witness that the private copies of then and of now must
agree on: how many old rows there are, their greatest number, and the sums of their
numbers and of the lengths of their texts. No text is loaded for it. What it cannot see, a
text that was replaced by another of the same length, lionagi never does to these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from stateanalytics.io.cells import Cell
from stateanalytics.io.scanning import cursor_of
from stateanalytics.io.sqlite import Store, read_table
from stateanalytics.io.sqlite_copy import quoted

_NUMBERS = ("moment", "real", "integer", "yes_no")


@dataclass(frozen=True)
class Kept:
    """A table as it was read, to go on from.

    Attributes
    ----------
    store : Store
        The copy that it was read from; where it was closed, all is read again.
    rows, findings : polars.DataFrame
        As `sqlite.read_table` gave them.
    """

    store: Store
    rows: pl.DataFrame
    findings: pl.DataFrame


def read_appended(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    before: Kept | None = None,
    *,
    system: str = "",
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What `sqlite.read_table` gives, from the rows that are new where that is the same.

    Parameters
    ----------
    store, table, columns, system
        As for `sqlite.read_table`.
    before : Kept, optional
        What an earlier read of the same ``columns`` gave.

    Returns
    -------
    rows, findings : polars.DataFrame
        The same as of a fresh read.
    """
    last = None if before is None else _last_common_row(before.store, store, table, columns)
    if before is not None and last is not None:
        new, odd = read_table(store, table, columns, system=system, after=last)
        if odd.is_empty():  # else both parts would have to be counted together
            return (pl.concat([before.rows, new]) if new.height else before.rows), before.findings
    return read_table(store, table, columns, system=system)


def _last_common_row(old: Store, new: Store, table: str, columns: Mapping[str, Cell]) -> int | None:
    """The greatest number of the old rows, where the new store begins with just these."""
    has_same_shape = (
        old.copy.exists()
        and not old.losses
        and not new.losses
        and old.tables.get(table) == new.tables.get(table) is not None
        and old.rowids.get(table) == new.rowids.get(table) is not None
    )
    if not has_same_shape:
        return None
    there = _witness(old, table, columns)
    last = int(there[1] or 0)
    return last if _witness(new, table, columns, up_to=last) == there else None


def _witness(
    store: Store, table: str, columns: Mapping[str, Cell], *, up_to: int | None = None
) -> tuple[float | None, ...]:
    """What is true of the rows of a table, up to some row number."""
    rowid = store.rowids[table]
    needed = dict.fromkeys(
        name
        for column, cell in columns.items()
        for name in (cell.needs if cell.sql is not None else (column,))
        if name in store.tables[table]
    )
    numbers = {name for name, cell in columns.items() if cell.kind in _NUMBERS and not cell.sql}
    sums = [
        f"total({quoted(name) if name in numbers else f'octet_length({quoted(name)})'})"
        for name in needed
    ]
    query = ", ".join(["count(*)", f"max({rowid})", *sums])
    where = "" if up_to is None else f" WHERE {rowid} <= {up_to}"
    with cursor_of(store) as cursor:
        # An index could answer for rows that the table no longer has.
        cursor.execute(f"SELECT {query} FROM {quoted(table)} NOT INDEXED{where}")
        return tuple(cursor.fetchone())
