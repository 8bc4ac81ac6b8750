"""One query over named tables: checked and run in another process, its result a frame."""

from __future__ import annotations

import functools
import math
import os
import re
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

from stateanalytics.core.maps import as_pairs
from stateanalytics.core.schema import FRAMES
from stateanalytics.errors import ArgumentError, MaskedWarning, TruncatedWarning
from stateanalytics.io.refusals import no_room
from stateanalytics.sql.engine import TableFile, TableText
from stateanalytics.sql.functions import MEMORY_BYTES
from stateanalytics.sql.parsing import check_text
from stateanalytics.sql.process import handing_folder, worker
from stateanalytics.sql.values import Parameters, packed
from stateanalytics.sql.worker import Read, Run
from stateanalytics.systems import detail_frames

# The engine ends a query at its limit, as a rule; its process is killed so much later.
_GRACE = 0.25
_LEAST_GRACE_S, _MOST_GRACE_S = 0.1, 1.0


@dataclass(frozen=True, eq=False)
class Table(TableText):
    """One table that queries may name.

    Attributes
    ----------
    load : callable, optional
        Gives its rows; called when a query names the table.
    merged : set of str
        Columns in which masking made different texts equal; known once the rows are loaded.
    """

    load: Callable[[], pl.DataFrame] | None = None
    merged: set[str] = field(default_factory=set, repr=False)
    _written: list[TableFile] = field(default_factory=list, repr=False)

    def file(self, name: str) -> TableFile:
        """Its rows as a file, which is written once and deleted with this table.

        Raises
        ------
        NoRoomError
            If they do not fit into the folder for temporary files.
        """
        if not self._written or not Path(self._written[-1].path).exists():
            assert self.load is not None
            frame = self.load()
            path = _new_file()
            weakref.finalize(self, _delete, path, os.getpid())
            try:
                # As a stream, for which polars needs no threads: a fork has none.
                frame.write_ipc_stream(path)
            except OSError as error:
                reason = f"the system says: {error!s:.200}"
                raise no_room(f"table {name}", reason, int(frame.estimated_size())) from error
            words = {
                column: dtype.categories.to_list()
                for column, dtype in frame.schema.items()
                if isinstance(dtype, pl.Enum)
            }
            self._written.append(TableFile(str(path), words))
        return self._written[-1]


def run(
    query: str,
    params: Parameters,
    tables: Mapping[str, Table],
    *,
    as_of: datetime,
    max_rows: int,
    timeout_s: float,
    memory_bytes: int = MEMORY_BYTES,
) -> pl.DataFrame:
    """Run one query over named tables.

    Parameters
    ----------
    query : str
        One statement that selects.
    params : mapping, sequence or None
        Values for ``$name`` or for ``?``.
    tables : mapping of str to Table
        Everything that the query may name.
    as_of : datetime
        What the SQL function ``as_of()`` gives.
    max_rows : int
        Rows that are kept; a longer result is cut and a `TruncatedWarning` given.
    timeout_s : float
        Seconds for the query itself, from the first look at its text; loading the tables
        it names does not count.
    memory_bytes : int
        Memory that the query may take.

    Returns
    -------
    polars.DataFrame, shape (at most max_rows, ...)
        The second column of the same name has ``_1`` behind it, and so on.

    Raises
    ------
    QueryError, QueryRefusedError, QueryTimeoutError
        As their names say.
    ArgumentError
        If a limit is no positive number.
    NoRoomError
        If a table or the result does not fit into the folder for temporary files.
    """
    _check_limits(max_rows, timeout_s, memory_bytes)
    known = {
        name: TableText(table.columns, table.left_out, table.view) for name, table in tables.items()
    }
    asked = Read(
        *(check_text(query), packed(params), known, _ranked(), as_of, timeout_s, memory_bytes)
    )
    grace_s = min(max(_GRACE * timeout_s, _LEAST_GRACE_S), _MOST_GRACE_S)
    with worker() as process:
        began = time.monotonic()
        needed = process.ask(asked, timeout_s + grace_s, asked)["tables"]
        left_s = max(0.001, timeout_s - (time.monotonic() - began))
        files = {name: tables[name].file(name) for name in needed}
        with _file_for_a_while() as path:
            message = Run(files, str(path), max_rows, left_s)
            columns = process.ask(message, left_s + grace_s, asked)["columns"]
            result = _as_frame(path, columns)
    merged = [
        f"{name}.{column}"
        for name in files
        for column in sorted(tables[name].merged)
        if re.search(rf"(?i)(?<!\w){re.escape(column)}(?!\w)", query)
    ]
    if merged:
        warnings.warn(
            MaskedWarning(
                f"What looks like a secret is masked in {', '.join(merged)}, so that different "
                "values are equal there: joins, groups and DISTINCT take them for one. "
                "redact=False keeps them apart."
            ),
            stacklevel=3,
        )
    if result.height > max_rows:
        warnings.warn(
            TruncatedWarning(
                f"The result was truncated: these are its first {max_rows:,} rows. "
                "Ask for more with max_rows=…, or aggregate in the query."
            ),
            stacklevel=3,
        )
    return result.head(max_rows)


def _check_limits(max_rows: int, timeout_s: float, memory_bytes: int) -> None:
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
        raise ArgumentError(f"max_rows counts rows, from 1; found {max_rows!r}.", "max_rows=10_000")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise ArgumentError(f"timeout_s is seconds; found {timeout_s!r}.", "timeout_s=30")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ArgumentError(
            f"timeout_s is more than 0 seconds; found {timeout_s!r}.", "timeout_s=30"
        )
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes < 2**20:
        raise ArgumentError(
            f"memory_bytes counts bytes, from {2**20:,}; found {memory_bytes!r}.",
            "memory_bytes=2 * 1024**3",
        )


@functools.cache
def _ranked() -> frozenset[str]:
    """Columns whose words have a rank, in any frame."""
    return frozenset(
        column.name
        for frame in (*FRAMES.values(), *detail_frames().values())
        for column in frame.columns
        if isinstance(column.dtype, pl.Enum)
    )


def _new_file() -> Path:
    handle, path = tempfile.mkstemp(".rows", dir=handing_folder())
    os.close(handle)
    return Path(path)


@contextmanager
def _file_for_a_while() -> Iterator[Path]:
    path = _new_file()
    try:
        yield path
    finally:
        _delete(path, os.getpid())


def _delete(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a fork has no part in it
        with suppress(OSError):
            path.unlink()


def _as_frame(path: Path, columns: Sequence[tuple[str, list[str] | None]]) -> pl.DataFrame:
    """A result as a frame of our dtypes, its columns named apart."""
    frame = pl.read_ipc_stream(path.read_bytes())
    names = _apart([name for name, _ in columns])
    return pl.DataFrame(
        [
            _typed(column, words).alias(name)
            for column, name, (_, words) in zip(frame.get_columns(), names, columns, strict=True)
        ]
    )


def _typed(column: pl.Series, words: list[str] | None) -> pl.Series:
    if words is not None:
        return column.cast(pl.Enum(words))
    if column.dtype == pl.Null:
        return column.cast(pl.String)
    if column.dtype.is_decimal():
        whole = column.cast(pl.Int64, strict=False)
        return whole if whole.null_count() == column.null_count() else column.cast(pl.Float64)
    return as_pairs(column)


def _apart(names: Sequence[str]) -> list[str]:
    """Names of columns, the second of the same name with ``_1`` behind it, and so on."""
    taken: list[str] = []
    for name in names:
        free = name
        number = 0
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        taken.append(free)
    return taken
