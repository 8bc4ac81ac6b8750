"""The tables of the stores themselves, column by column as they were written.

Canonical frames say what is meant; raw tables say what is there. SQLite types values and
not columns, so a raw column gets the one type that all its cells have in all stores, and
text where they differ: nothing is cast away. Moments stay what they are, epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from stateanalytics.io.sqlite import Cell, Store, read_table

PREFIX = "raw_"
STORE = "store"
"""Name of the column that says which input a row came from; `source` is taken in some."""

BODIES: Mapping[str, frozenset[str]] = {
    "artifacts": frozenset({"content"}),
    "branches": frozenset({"node_metadata"}),
    "dispatch_outbox": frozenset({"payload", "ack_token"}),
    "invocations": frozenset({"prompt"}),
    "messages": frozenset({"content", "node_metadata", "embedding"}),
    "session_controls": frozenset({"payload", "result"}),
    "session_signals": frozenset({"payload"}),
    "team_messages": frozenset({"content", "summary"}),
}
"""Columns that hold what people and models said, or keys: only read on request."""


def raw_columns(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table, over all stores, in the order they were first seen."""
    found: dict[str, dict[str, None]] = {}
    for store in stores:
        for table, columns in store.tables.items():
            kept = found.setdefault(table, {})
            kept.update(
                dict.fromkeys(column for column in columns if _is_wanted(table, column, bodies))
            )
    return {PREFIX + table: (STORE, *columns) for table, columns in sorted(found.items())}


def left_out(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table that are not read without bodies."""
    return {
        PREFIX + table: tuple(sorted(names))
        for table in sorted({table for store in stores for table in store.tables})
        if (
            names := {
                column
                for store in stores
                for column in store.tables.get(table, ())
                if not _is_wanted(table, column, bodies)
            }
        )
    }


def read_raw_table(stores: Sequence[Store], name: str, *, bodies: bool) -> pl.DataFrame:
    """One raw table of all stores, stacked by the names of its columns.

    Parameters
    ----------
    stores : sequence of Store
        Open stores. One that lacks the table adds no rows; a column it lacks is null.
    name : str
        ``raw_`` and the name of the table.
    bodies : bool
        Whether `BODIES` are read too.

    Returns
    -------
    polars.DataFrame
        ``store`` (how the input was named), then the table's columns: integers, floats or
        text, whichever all cells are; bytes as text in hexadecimal.
    """
    table = name.removeprefix(PREFIX)
    columns = raw_columns(stores, bodies=bodies)[name][1:]
    having = [store for store in stores if table in store.tables]
    kinds = _kinds(having, table, columns)
    cells = {column: _cell(column, kinds[column]) for column in columns}
    return pl.concat(
        pl.select(pl.lit(store.label).alias(STORE)).join(
            read_table(store, table, cells)[0], how="cross"
        )
        for store in having
    )


def _is_wanted(table: str, column: str, bodies: bool) -> bool:
    # A name that differs only by case, or is ours, would be another column in SQL.
    return column.casefold() != STORE and (bodies or column not in BODIES.get(table, ()))


_GROUP = 500  # columns in one expression, of which SQLite nests no more than 1,000
_TYPES = {"i": "integer", "r": "real", "t": "text", "b": "blob"}


def _kinds(stores: Iterable[Store], table: str, columns: Sequence[str]) -> dict[str, str]:
    """The one kind of each column; ``mixed`` where its cells differ."""
    seen: dict[str, set[str]] = {column: set() for column in columns}
    for store in stores:
        here = [column for column in columns if column in store.tables[table]]
        groups = [here[i : i + _GROUP] for i in range(0, len(here), _GROUP)]
        words, _ = read_table(
            store, table, {str(i): _letters(group) for i, group in enumerate(groups)}
        )
        for group, found in zip(groups, words.get_columns(), strict=True):
            for word in found.drop_nulls().unique():
                for column, letter in zip(group, word, strict=True):
                    seen[column].add(letter)
    return {column: _kind(letters - {"n"}) for column, letters in seen.items()}


def _letters(columns: Sequence[str]) -> Cell:
    """One letter a column: a scan gives few distinct words, however many rows."""
    letters = " || ".join(f"substr(typeof({_quoted(column)}), 1, 1)" for column in columns)
    return Cell("text", letters, tuple(columns))


def _kind(letters: set[str]) -> str:
    if letters == {"i", "r"}:
        return "real"
    return _TYPES[next(iter(letters))] if len(letters) == 1 else "mixed" if letters else "text"


def _cell(column: str, kind: str) -> Cell:
    if kind in ("integer", "real", "text"):
        return Cell(kind, _quoted(column), (column,))  # type: ignore[arg-type]
    as_text = (
        f"CASE typeof({_quoted(column)}) WHEN 'blob' THEN hex({_quoted(column)}) "
        f"ELSE CAST({_quoted(column)} AS TEXT) END"
    )
    return Cell("text", as_text, (column,))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
