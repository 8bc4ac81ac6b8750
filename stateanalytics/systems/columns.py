"""Where in a record the columns of a system's own frames are read from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Frame
from stateanalytics.io.json_lines import Fields

_STORED: Mapping[pl.DataType, str] = MappingProxyType(
    {TEXT: "VARCHAR", INTEGER: "BIGINT", REAL: "DOUBLE", YES_NO: "BOOLEAN", MOMENT: "TIMESTAMP"}
)


def fields_read(*frames: Frame) -> Fields:
    """Where in a record each column is read from, for `io.json_lines.Parser.read`."""
    return {
        column.name: (column.read_from, _STORED[column.dtype])
        for frame in frames
        for column in frame.columns
        if column.read_from
    }
