"""Frames of polars as DuckDB reads them without a third library between the two."""

from __future__ import annotations

import polars as pl


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
