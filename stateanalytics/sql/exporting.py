"""Every table of a snapshot in a file that other programs open, or in a DuckDB of the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.redaction import redact_names, redact_with_names
from stateanalytics.core.shapes import words_of_columns
from stateanalytics.errors import ArgumentError
from stateanalytics.io import frame_files
from stateanalytics.io.duckdb_rows import DuckDBRows
from stateanalytics.io.files import LOG_ENDINGS
from stateanalytics.io.outputs import put_in_place
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.engine import replacing_words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_SINGLE_TABLE = (".csv", ".parquet")
_WRITERS = {
    **dict.fromkeys((".sqlite", ".db"), frame_files.write_sqlite),
    ".xlsx": frame_files.write_excel,
    ".csv": frame_files.write_csv,
    ".parquet": frame_files.write_parquet,
}


def export_tables(
    tables: Mapping[str, Callable[[], pl.DataFrame]],
    to: str | Path,
    *,
    as_of: datetime,
    inputs: Iterable[Path] = (),
    is_masked: bool = True,
) -> Path:
    """Write tables into one file, or into a new folder.

    Parameters
    ----------
    tables : mapping of str to callable
        Functions that give the rows, by name of the table.
    to : str or pathlib.Path
        ``.duckdb``, ``.sqlite`` or ``.xlsx``; of one table ``.csv`` or ``.parquet``; anything
        else is a folder of Parquet files.
    as_of : datetime
        What ``as_of()`` gives in a DuckDB file.
    inputs : iterable of pathlib.Path
        What was read; never written over.
    is_masked : bool
        Whether what looks like a secret is masked.

    Returns
    -------
    pathlib.Path
        The path of the file or folder.

    Raises
    ------
    ArgumentError
        If it cannot be written there, or a table does not fit.
    MissingComponentError
        If Excel's writer is not installed.
    """
    suffix = Path(to).suffix.lower()
    if suffix in _SINGLE_TABLE and len(tables) != 1:
        raise ArgumentError(
            f"A {suffix} file can have only one table; found {len(tables)}.",
            f'name one: tables=["states"]; or several in {str(to).removesuffix(suffix)!r}.duckdb',
            shell=f"name one: --only states; or -o {Path(to).stem}.duckdb",
        )

    def rows() -> Iterator[tuple[str, pl.DataFrame]]:
        names = redact_names([*tables]) if is_masked else [*tables]
        for name, load in zip(names, tables.values(), strict=True):
            yield name, redact_with_names(load())[0] if is_masked else load()

    def write(path: Path) -> None:
        _refuse_used(str(to))
        if suffix == ".duckdb":
            _write_duckdb(rows(), path, as_of)
        else:
            _WRITERS.get(suffix, frame_files.write_folder)(rows(), path)

    return put_in_place(to, write, inputs=inputs, is_private=not is_masked)


def _refuse_used(to: str) -> None:
    """Refuse a database with a log next to it, which would be replayed into the new one."""
    logs = (Path(to + ending).expanduser() for ending in (*LOG_ENDINGS, ".wal"))
    if existing := [log.name for log in logs if os.path.lexists(log)]:
        raise ArgumentError(
            f"{to!r} is in use or incomplete: {existing[0]!r} is next to it.",
            "close the program that has it open, or name a new file",
        )


def duckdb_of(
    tables: Mapping[str, Callable[[], pl.DataFrame]], as_of: datetime
) -> DuckDBPyConnection:
    """A DuckDB in memory with every table in it, and ``as_of()``; it has no sandbox."""
    import duckdb

    connection = duckdb.connect(":memory:")
    _fill(connection, ((name, load()) for name, load in tables.items()), as_of)
    return connection


def _write_duckdb(tables: frame_files.Tables, path: Path, as_of: datetime) -> None:
    import duckdb

    try:
        with closing(duckdb.connect(str(path))) as connection:
            _fill(connection, tables, as_of)
    except duckdb.Error as error:  # a full disk, say
        raise OSError(f"DuckDB reports: {error}") from error


def _fill(connection: DuckDBPyConnection, tables: frame_files.Tables, as_of: datetime) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE MACRO as_of() AS TIMESTAMPTZ '{as_of.isoformat(' ')}'")
    for name, rows in tables:
        connection.register("_rows", DuckDBRows(rows))
        replaced = replacing_words(connection, words_of_columns(rows.schema))
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT *{replaced} FROM _rows")
        connection.unregister("_rows")
