"""Where the columns of a system's own frames are read from, by its ``data/columns.csv``."""

from __future__ import annotations

from types import MappingProxyType

from stateanalytics.core.package_tables import table_rows
from stateanalytics.io.json_lines import Fields

_STORED = MappingProxyType(
    {
        "text": "VARCHAR",
        "integer": "BIGINT",
        "real": "DOUBLE",
        "yes_no": "BOOLEAN",
        "moment": "TIMESTAMP",
    }
)


def fields_from_csv(package: str) -> Fields:
    """Where in a record each column is read from, for `io.json_lines.Parser.read`."""
    return {
        row["column"]: (tuple(row["read_from"].split("|")), _STORED[row["dtype"]])
        for row in table_rows(package, "columns.csv")
        if row["read_from"]
    }
