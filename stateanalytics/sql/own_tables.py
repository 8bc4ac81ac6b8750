"""A user's own table beside those of a snapshot: which team owns which project, say."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, Any

import narwhals as nw
import polars as pl

from stateanalytics.core.maps import as_pairs
from stateanalytics.errors import ArgumentError, found, in_short
from stateanalytics.io.budget import MAX_OWN_COLUMNS, on_disk, spending
from stateanalytics.io.files import open_regular, read_parquet, unreadable
from stateanalytics.sql.running import Table

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_READERS: Mapping[str, Callable[[IO[bytes], os.stat_result], pl.DataFrame]] = {
    ".csv": lambda file, _: pl.read_csv(file, infer_schema_length=None, try_parse_dates=True),
    ".parquet": read_parquet,
    ".json": lambda file, _: pl.read_json(file.read(), infer_schema_length=None),
    ".jsonl": lambda file, _: pl.read_ndjson(file, infer_schema_length=None),
}
_HINT = 'snap.with_table("teams", "teams.csv"), or a frame instead of the file'
_IN_SHELL = "--table teams=teams.csv"


def own_table(name: str, rows: Any, known: Collection[str]) -> pl.DataFrame:
    """The rows of a user's own table, as SQL can name them.

    Parameters
    ----------
    name : str
        Small letters, digits and ``_``, at most 31.
    rows : frame, str or pathlib.Path
        A frame of polars, pandas or Arrow, or a CSV, Parquet or JSON file.
    known : collection of str
        Names that are taken.

    Raises
    ------
    ArgumentError
        If the name is taken or none, or the rows are no table.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("raw_"):
        raise ArgumentError(
            f"A table cannot be called {in_short(name)}.",
            "begin with a small letter, then small letters, digits and _, at most 31 in all; "
            "raw_ is for tables of stores",
        )
    if name in known:
        raise ArgumentError(f"There is a table {name!r} already.", "give yours another name")
    frame = _read(rows) if isinstance(rows, str | Path) else _as_polars(rows)
    if frame.width > MAX_OWN_COLUMNS:
        raise ArgumentError(
            f"Table {name!r} has {frame.width:,} columns; a table of yours has at most "
            f"{MAX_OWN_COLUMNS:,}.",
            "keep the columns that are needed",
        )
    if not frame.width:
        raise ArgumentError(f"Table {name!r} has no columns.", _HINT, shell=_IN_SHELL)
    unlike = Counter(column.casefold() for column in frame.columns)
    if twice := [column for column in frame.columns if unlike[column.casefold()] > 1]:
        raise ArgumentError(
            f"Columns of table {name!r} are one in SQL: {', '.join(map(repr, twice[:4]))}.",
            "rename them",
        )
    if objects := [column for column, dtype in frame.schema.items() if dtype == pl.Object]:
        raise ArgumentError(
            f"Column {in_short(objects[0])} of table {name!r} holds Python objects.",
            "make it text or numbers first",
        )
    # Words without a documented rank sort as text does.
    texts = frame.with_columns(pl.col(pl.Categorical, pl.Enum, pl.Int128).cast(pl.String))
    return texts.with_columns(as_pairs(column) for column in texts.get_columns())


def tables_of_own(own: Mapping[str, pl.DataFrame]) -> dict[str, Table]:
    """What queries may name, of the user's own tables."""
    return {name: Table(tuple(frame.columns), load=frame.clone) for name, frame in own.items()}


def _read(path: str | Path) -> pl.DataFrame:
    read = _READERS.get(Path(path).suffix.lower())
    if read is None:
        raise ArgumentError(
            f"{str(path)!r:.200} is no kind of table that is read; those are "
            f"{', '.join(_READERS)}.",
            _HINT,
            shell=_IN_SHELL,
        )
    try:
        with open_regular(Path(path).expanduser()) as file:
            status, budget = os.fstat(file.fileno()), spending().budget
            most = budget.most_bytes(status, budget.document_bytes)
            if status.st_size > most:
                raise ArgumentError(
                    f"The table {str(path)!r:.200} has {status.st_size:,} bytes, "
                    f"{on_disk(status):,} of them on disk; it is read up to {most:,.0f}.",
                    "keep the columns and rows that are needed, or write it as Parquet",
                )
            return read(file, status)
    except (OSError, RuntimeError, pl.exceptions.PolarsError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0]
        raise unreadable("table", path, reason[:200]) from error


def _as_polars(rows: Any) -> pl.DataFrame:
    try:
        frame: pl.DataFrame = nw.from_native(rows, eager_only=True).to_polars()
    except TypeError:
        raise ArgumentError(f"A table is a frame or a file; found {found(rows)}.", _HINT) from None
    return frame
