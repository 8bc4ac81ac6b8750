"""Frames of polars to DuckDB and back, without a third library between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation


class DuckDBRows:
    """Rows to register in DuckDB, which would hand a frame itself to pyarrow.

    Parameters
    ----------
    frame : polars.DataFrame
        It is not copied.

    Examples
    --------
    >>> import duckdb
    >>> with duckdb.connect() as connection:
    ...     relation = connection.register("rows", DuckDBRows(pl.DataFrame({"a": [1, 2]})))
    ...     connection.sql("SELECT sum(a) FROM rows").fetchall()
    [(3,)]
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_schema__(self) -> object:
        return self._frame.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


class _Answer:
    """polars keeps the type of what frames are made of, and DuckDB calls its own a leak then."""

    def __init__(self, relation: DuckDBPyRelation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._relation.__arrow_c_stream__(requested_schema)


def answer(relation: DuckDBPyRelation) -> pl.DataFrame:
    """The rows that DuckDB answers with, after which nothing is left of DuckDB.

    Examples
    --------
    >>> import duckdb
    >>> with duckdb.connect() as connection:
    ...     answer(connection.sql("SELECT 1 AS a")).rows()
    [(1,)]
    """
    return pl.DataFrame(_Answer(relation))
