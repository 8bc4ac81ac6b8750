"""What the engine says when a query fails, in our words and with a hint that fits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Protocol

from stateanalytics.errors import QueryError, QueryRefusedError, QueryTimeoutError, did_you_mean
from stateanalytics.sql.limits import MEMORY_BYTES

_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')
_NO_COLUMN_OF = re.compile(r'Table "[^"]+" does not have a column named "([^"]+)"')


class Columns(Protocol):
    """A table, as far as messages need it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that can be named."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Those that were not read."""


def in_our_words(error: Exception, tables: Iterable[Columns]) -> QueryError:
    """DuckDB's error as ours: its first sentences, and a hint.

    Parameters
    ----------
    error : duckdb.Error
        What the engine raised.
    tables : iterable of Table
        The tables of the query, to name their columns.
    """
    import duckdb

    tables = list(tables)
    text = re.split(r"\n\nLINE |\n\nPossible solutions|\nCandidate|\s*Stack Trace", str(error))[0]
    message = " ".join(re.sub(r"\A[A-Z][A-Za-z ]{2,30} Error: ", "", text).split())[:400]
    if isinstance(error, duckdb.OutOfMemoryException):
        return too_large(MEMORY_BYTES)
    if isinstance(error, duckdb.PermissionException):
        return QueryRefusedError(
            f"A query sees the snapshot only: {message}", "select from the tables of the snapshot"
        )
    if missing := (_NO_COLUMN_OF.search(message) or _NO_COLUMN.search(message)):
        return _no_such_column(missing[1], tables)
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return QueryError(f"The SQL engine failed on this query: {message}", "write it another way")
    return QueryError(f"The query cannot be run: {message}", _fitting(error))


def _no_such_column(name: str, tables: Collection[Columns]) -> QueryError:
    if any(name in table.left_out for table in tables):
        return QueryError(
            f"The column {name!r} holds bodies, which were not read.",
            "read the store with bodies=True",
            shell="say --bodies",
        )
    known = sorted({column for table in tables for column in table.columns})
    listed = ", ".join(known[:60]) + (f" and {len(known) - 60} more" if len(known) > 60 else "")
    return QueryError(
        f"There is no column {name!r:.80} in the tables of this query; "
        f"they have {listed or 'no columns'}.",
        "text stands in 'single quotes'; see `stateanalytics schema`" + did_you_mean(name, known),
    )


def _fitting(error: Exception) -> str:
    import duckdb

    if isinstance(error, duckdb.ConversionException):
        return "TRY_CAST(… AS type) gives null where a value does not fit"
    if isinstance(error, duckdb.NotImplementedException):
        return "values for parameters are text, numbers, Booleans, moments, or lists of them"
    return "functions, types and operators are those of DuckDB; tables: `stateanalytics schema`"


def from_arrow(error: BaseException, timeout_s: float) -> QueryError:
    """The error for a result that breaks off, or cannot be handed over, on its way."""
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "out of memory" in said.casefold():
        return too_large(MEMORY_BYTES)
    if "interrupt" in said.casefold():
        return too_slow(timeout_s)
    return QueryError(
        f"The result cannot be handed over: {said[:300] or type(error).__name__}",
        "select fewer columns, or a nested one as text: to_json(x)::VARCHAR",
    )


def too_slow(timeout_s: float) -> QueryTimeoutError:
    """The error for a query that did not end in time."""
    return QueryTimeoutError(
        f"The query took longer than its limit of {timeout_s:g} s.",
        "narrow it with WHERE, or allow more time: timeout_s=…",
        shell="narrow it with WHERE, or allow more time: --timeout …",
    )


def too_large(limit_bytes: int) -> QueryError:
    """The error for a query that does not fit into memory."""
    return QueryError(
        f"The query needs more memory than its limit of {limit_bytes / 1024**3:g} GiB.",
        "aggregate or filter earlier, select fewer columns, or add LIMIT",
    )
