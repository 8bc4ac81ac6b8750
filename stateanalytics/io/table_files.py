"""Frames as tables of a file that other programs open: SQLite, Excel, a folder of Parquet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import polars as pl

from stateanalytics.core.components import needing
from stateanalytics.core.text import without_formula
from stateanalytics.errors import ArgumentError
from stateanalytics.io.sqlite_copy import quoted

Tables = Iterable[tuple[str, pl.DataFrame]]
"""Each name, and its rows; one after the other, so that they need not fit together."""

_MOST_ROWS = 1_048_575
"""Rows of a sheet of Excel, its header aside."""
_MOST_CHARS = 32_767
_LONGEST_NAME = 31
_LITERAL = {
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    # A sheet knows no such numbers: they are told as errors.
    "nan_inf_to_errors": True,
}


def write_sqlite(tables: Tables, path: Path) -> None:
    """Write tables into a new SQLite database."""
    try:
        _fill_sqlite(tables, path)
    except sqlite3.Error as error:  # a full disk, say
        raise OSError(f"SQLite says: {error}") from error


def _fill_sqlite(tables: Tables, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for name, rows in tables:
            flat = _flat(rows, is_text=True)
            columns = ", ".join(
                f"{quoted(column)} {_affinity(dtype)}" for column, dtype in flat.schema.items()
            )
            places = ", ".join("?" * flat.width)
            connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
            connection.executemany(
                f"INSERT INTO {quoted(name)} VALUES ({places})",
                flat.iter_rows(),
            )
        connection.commit()


def write_excel(tables: Tables, path: Path) -> None:
    """Write tables into a new Excel file, a sheet each, in which no text is run as a formula."""
    instead = "export to .sqlite, .duckdb or a folder"
    with needing("xlsxwriter", "An Excel file", extra="excel", instead=instead):
        from xlsxwriter import Workbook  # type: ignore[import-untyped]
    with Workbook(str(path), _LITERAL) as book:
        for name, rows in tables:
            if len(name) > _LONGEST_NAME:
                raise ArgumentError(
                    f"Table {name!r} has a longer name than a sheet of Excel: {len(name)} of "
                    f"{_LONGEST_NAME} characters.",
                    "leave it out with tables=[…], or export to .duckdb",
                )
            if rows.height > _MOST_ROWS:
                raise ArgumentError(
                    f"Table {name!r} has {rows.height:,} rows; a sheet of Excel holds "
                    f"{_MOST_ROWS:,}.",
                    "leave it out with tables=[…], or export to .duckdb",
                )
            is_too_long = pl.col(pl.String).str.len_chars() > _MOST_CHARS
            cut = pl.col(pl.String).str.slice(0, _MOST_CHARS - 1) + "…"
            flat = _flat(rows, is_text=False).with_columns(
                pl.when(is_too_long).then(cut).otherwise(pl.col(pl.String))
            )
            flat.write_excel(book, worksheet=name, autofilter=True, autofit=True)


def write_csv(tables: Tables, path: Path) -> None:
    """Write one table into a new CSV file, in which no text is run as a formula."""
    [(_, rows)] = tables
    texts = pl.col(pl.String).map_elements(without_formula, return_dtype=pl.String)
    _flat(rows, is_text=True).with_columns(texts).rename(without_formula).write_csv(path)


def write_parquet(tables: Tables, path: Path) -> None:
    """Write one table into a new Parquet file."""
    [(_, rows)] = tables
    rows.write_parquet(path)


def write_folder(tables: Tables, path: Path) -> None:
    """Write tables into a new folder, a Parquet file each."""
    path.mkdir()
    for name, rows in tables:
        rows.write_parquet(path / f"{name}.parquet")


def _flat(rows: pl.DataFrame, *, is_text: bool) -> pl.DataFrame:
    """Cells for a program without lists, zones and ranks; lists become JSON."""
    moment, as_json = pl.col(pl.Datetime).dt.convert_time_zone("UTC"), '{"_":'
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    return rows.with_columns(
        pl.when(pl.col(name).is_not_null())
        .then(pl.struct(_=name).struct.json_encode().str.strip_prefix(as_json).str.head(-1))
        .alias(name)
        for name in nested
    ).with_columns(
        pl.col(pl.Enum, pl.Categorical, pl.Date, pl.Time, pl.UInt64, pl.Int128).cast(pl.String),
        pl.col(pl.Binary).bin.encode("hex"),
        pl.col(pl.Decimal).cast(pl.Float64),
        pl.col(pl.Duration).dt.total_microseconds() / 1e6,
        moment.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        if is_text
        else moment.dt.replace_time_zone(None),
        *([pl.col(pl.Boolean).cast(pl.Int8)] if is_text else []),
    )


def _affinity(dtype: pl.DataType) -> str:
    return "TEXT" if dtype == pl.String else "INTEGER" if dtype.is_integer() else "REAL"
