"""Tables of a package: the columns of a system's own frames, with where each is read from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Column, Frame
from stateanalytics.io.json_lines import Fields

_DTYPES = MappingProxyType(
    {"text": TEXT, "integer": INTEGER, "real": REAL, "yes_no": YES_NO, "moment": MOMENT}
)
_STORED = MappingProxyType(
    {
        "text": "VARCHAR",
        "integer": "BIGINT",
        "real": "DOUBLE",
        "yes_no": "BOOLEAN",
        "moment": "TIMESTAMP",
    }
)


def frames_from_csv(
    package: str, frames: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[Frame, ...]:
    """Frames with the columns that ``data/columns.csv`` of a package has for them.

    Parameters
    ----------
    package : str
    frames : mapping of str to (str, tuple of str)
        By name, what a row is, and the key.
    """
    rows = table_rows(package, "columns.csv")
    return tuple(
        Frame(
            name,
            what,
            key,
            tuple(
                Column(row["column"], _DTYPES[row["dtype"]], row["meaning"], row["unit"])
                for row in rows
                if row["frame"] == name
            ),
        )
        for name, (what, key) in frames.items()
    )


def fields_from_csv(package: str) -> Fields:
    """Where in a record each column is read from, for `io.json_lines.Parser.read`."""
    return {
        row["column"]: (tuple(row["read_from"].split("|")), _STORED[row["dtype"]])
        for row in table_rows(package, "columns.csv")
        if row["read_from"]
    }
