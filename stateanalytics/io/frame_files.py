"""Frames as files: tables for other programs, and folders that this one reads back.

Tables are written to SQLite, Excel, CSV or Parquet. A folder has one Parquet file per frame and
a head in JSON::

    fleet/head.json
    fleet/<frame>-<digest>.parquet

The head is written last and names each file by its digest, so an interrupted write leaves the
previous frames, and a later change is noticed.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.schema import Frame
from stateanalytics.core.text import without_formula
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    NotAStoreError,
    SourceNotFoundError,
    in_short,
    needing,
)
from stateanalytics.io.files import read_json_object, read_octets, read_parquet, refuse_scheme
from stateanalytics.io.outputs import put_whole, refuse_inputs
from stateanalytics.io.sqlite_copy import quoted

Tables = Iterable[tuple[str, pl.DataFrame]]
"""Names and rows, one table after another, so that not all must fit into memory."""

_MOST_ROWS = 1_048_575
"""Rows of an Excel sheet without its header."""
_MOST_CHARS = 32_767
_LONGEST_NAME = 31
_LITERAL = {
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    # A sheet has no such numbers: they become errors.
    "nan_inf_to_errors": True,
}


def write_sqlite(tables: Tables, path: Path) -> None:
    """Write tables into a new SQLite database."""
    try:
        _fill_sqlite(tables, path)
    except sqlite3.Error as error:  # a full disk, say
        raise OSError(f"SQLite reports: {error}") from error


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
                f"INSERT INTO {quoted(name)} VALUES ({places})", flat.iter_rows()
            )
        connection.commit()


def write_excel(tables: Tables, path: Path) -> None:
    """Write tables into a new Excel file, a sheet each, in which no text is run as a formula."""
    instead = "export to .sqlite, .duckdb or a folder"
    with needing("xlsxwriter", "An Excel file", extra="excel", instead=instead):
        from xlsxwriter import Workbook  # type: ignore[import-untyped]
    # In memory first: a half-written one complains at the end of the process.
    octets = io.BytesIO()
    with Workbook(octets, _LITERAL) as book:
        for name, rows in tables:
            if len(name) > _LONGEST_NAME:
                raise ArgumentError(
                    f"Table {name!r} has a longer name than a sheet of Excel: {len(name)} of "
                    f"{_LONGEST_NAME} characters.",
                    "exclude it with tables=[…], or export to .duckdb",
                )
            if rows.height > _MOST_ROWS:
                raise ArgumentError(
                    f"Table {name!r} has {rows.height:,} rows; a sheet of Excel holds "
                    f"{_MOST_ROWS:,}.",
                    "exclude it with tables=[…], or export to .duckdb",
                )
            is_too_long = pl.col(pl.String).str.len_chars() > _MOST_CHARS
            cut = pl.col(pl.String).str.slice(0, _MOST_CHARS - 1) + "…"
            flat = _flat(rows, is_text=False).with_columns(
                pl.when(is_too_long).then(cut).otherwise(pl.col(pl.String))
            )
            flat.write_excel(book, worksheet=name, autofilter=True, autofit=True)
    path.write_bytes(octets.getvalue())


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
    """Cells for a program without lists, time zones and enums; lists become JSON."""
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


HEAD = "head.json"
MAX_HEAD_BYTES, MAX_FRAME_BYTES = 10_000_000, 8_000_000_000
_FILE = re.compile(r"[a-z]+-[0-9a-f]{32}\.parquet")
_DIGEST = re.compile(r"[0-9a-f]{64}")


KIND, VERSION = "summary", 2
"""What a folder holds, in its head and in messages, and the version of that."""
MADE_BY = 'sa.summarize("history/").write("fleet/")'
"""How to make one."""


def write_frames(
    path: str | Path, head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]
) -> Path:
    """Write frames into a folder, replacing earlier ones.

    Raises
    ------
    ArgumentError
        If the folder has other content, or cannot be written.
    """
    folder = _named(path)
    refuse_inputs(folder, ())
    try:
        if folder.exists() and not _may_be(folder):
            raise ArgumentError(
                f"{str(path)!r} is no {KIND}, and something is there.",
                "name a new folder, such as 'fleet/'",
            )
        folder.mkdir(parents=True, exist_ok=True)
        listed = {name: _put(folder, name, frame) for name, frame in frames.items()}
        whole_head = {"kind": KIND, "version": VERSION, **head, "frames": listed}
        put_whole(folder / HEAD, (json.dumps(whole_head, indent=1) + "\n").encode())
        kept = {_file(name, entry["sha256"]) for name, entry in listed.items()}
        for file in folder.iterdir():
            if _FILE.fullmatch(file.name) and file.name not in kept:
                file.unlink()
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error.strerror or error}.",
            "name a folder that you may write to",
        ) from None
    return folder


def _named(path: str | Path) -> Path:
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ArgumentError(
            f"A {KIND} needs the name of a folder; found {in_short(path)}.", "'fleet/'"
        )
    refuse_scheme(path)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ArgumentError(f"{str(path)!r}: {error}", "name the folder in full") from None


def _may_be(folder: Path) -> bool:
    """Whether a folder has only files that `write_frames` leaves."""
    if not folder.is_dir():
        return False
    return all(file.name == HEAD or _FILE.fullmatch(file.name) for file in folder.iterdir())


def _file(name: str, digest: str) -> str:
    return f"{name}-{digest[:32]}.parquet"


def _put(folder: Path, name: str, frame: pl.DataFrame) -> dict[str, Any]:
    octets = io.BytesIO()
    _as_written(frame).write_parquet(octets)
    content = octets.getvalue()
    digest = sha256(content).hexdigest()
    put_whole(folder / _file(name, digest), content)
    return {"sha256": digest, "n_rows": frame.height, "n_bytes": len(content)}


def _as_written(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame as in a file: enums as text, because another version may have more words."""
    return frame.with_columns(pl.col(pl.Enum).cast(pl.String))


def read_frames(
    path: str | Path, shapes: Callable[[Mapping[str, Any]], Mapping[str, Frame]]
) -> tuple[Mapping[str, Any], dict[str, pl.DataFrame]]:
    """The head and the frames of a folder.

    Parameters
    ----------
    path : str or pathlib.Path
        The folder.
    shapes : callable
        From the head to the shapes of its frames; it raises ValueError, TypeError or KeyError
        for a head without meaning.

    Raises
    ------
    SourceNotFoundError
        If nothing is there.
    NotAStoreError
        If it is no such folder, or has another version.
    DamagedStoreError
        If its content is not what was written.
    """
    folder = _named(path)
    try:
        head = json.loads(read_octets(folder / HEAD, MAX_HEAD_BYTES)[0].decode())
        is_it = isinstance(head, dict) and head.get("kind") == KIND
    except (OSError, ValueError, RecursionError) as error:
        raise _no_head(folder, error) from None
    if not is_it:
        raise _no_head(folder, ValueError())
    version = head.get("version")
    if type(version) is not int or version != VERSION:  # True is 1 to Python
        raise NotAStoreError(
            f"{str(path)!r} is a {KIND} of version {version!r:.20}; this program reads {VERSION}.",
            f"count it again: {MADE_BY}",
        )
    try:
        wanted = shapes(head)
        listed = {name: _listed(head["frames"][name]) for name in wanted}
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(folder, f"its head makes no sense ({type(error).__name__})") from None
    return head, {name: _read(folder, shape, listed[name]) for name, shape in wanted.items()}


def is_summary(path: str | Path) -> bool:
    """Whether a path is such a folder, whatever its version and damage."""
    head = read_json_object(Path(path).expanduser() / HEAD, max_bytes=MAX_HEAD_BYTES).value
    return head is not None and head.get("kind") == KIND


def _no_head(folder: Path, error: Exception) -> Exception:
    if not folder.exists():
        return SourceNotFoundError(
            f"There is no file or directory {str(folder)!r}.", f"make one: {MADE_BY}"
        )
    if (folder / HEAD).exists() and not isinstance(error, OSError):
        return _damaged(folder, "its header is wrong")
    return NotAStoreError(f"{str(folder)!r} is no {KIND}.", f"make one: {MADE_BY}")


def _damaged(folder: Path, problem: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"The {KIND} {str(folder)!r} is damaged: {problem}.", f"make it again: {MADE_BY}"
    )


def _listed(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    digest, n_rows, n_bytes = entry["sha256"], entry["n_rows"], entry["n_bytes"]
    if not _DIGEST.fullmatch(digest) or not all(type(n) is int for n in (n_rows, n_bytes)):
        raise ValueError(digest)
    return digest, n_rows, n_bytes


def _read(folder: Path, shape: Frame, listed: tuple[str, int, int]) -> pl.DataFrame:
    digest, n_rows, n_bytes = listed
    file = _file(shape.name, digest)
    try:
        content, status = read_octets(folder / file, min(max(n_bytes, 0), MAX_FRAME_BYTES))
        if sha256(content).hexdigest() != digest:
            raise _damaged(folder, f"{file} is not what was written")
        rows = read_parquet(io.BytesIO(content), status)
        plain = _as_written(shape.empty())
        if dict(rows.schema) != dict(plain.schema) or rows.height != n_rows:
            raise _damaged(folder, f"{file} has other rows or columns")
        return shape.conform(rows)
    except OSError as error:
        raise _damaged(folder, f"{file} cannot be read ({error.strerror or 'too short'})") from None
    except pl.exceptions.PolarsError:
        raise _damaged(folder, f"{file} does not hold what its name says") from None
