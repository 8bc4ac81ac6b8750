"""Values as they stand in SQL, so that what is chosen by hand can be asked for again."""

from __future__ import annotations

from datetime import datetime


def literal(value: object) -> str:
    """A value in DuckDB's SQL: a text of a store stays a text.

    Examples
    --------
    >>> [literal(value) for value in ("it's", 3, 0.5, None)]
    ["'it''s'", '3', '0.5', 'NULL']
    """
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case datetime():
            return f"TIMESTAMPTZ '{value.isoformat(' ')}'"
    return "'" + str(value).replace("'", "''") + "'"
