"""A frame as CSV, JSON or Parquet: for programs, and harmless where it is seen."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from stateanalytics.core.text import visible, without_formula
from stateanalytics.errors import ArgumentError


def as_csv(frame: pl.DataFrame, *, is_safe: bool = False, is_seen: bool = False) -> str:
    """A frame as CSV: moments in ISO 8601, lists and structs as JSON, null as nothing."""
    flat = frame.select(_flat(column) for column in frame.get_columns())
    if is_safe:
        texts = pl.col(pl.String).map_elements(without_formula, return_dtype=pl.String)
        flat = flat.with_columns(texts).rename(without_formula)
    if is_seen:
        texts = pl.col(pl.String).map_elements(visible, return_dtype=pl.String)
        flat = flat.with_columns(texts).rename(visible)
    return flat.write_csv()


def _flat(column: pl.Series) -> pl.Series:
    """A column that CSV can hold."""
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        zone = "Z" if dtype.time_zone else ""
        return column.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{zone}")
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        texts = [None if value is None else _json(value) for value in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)
    return column.cast(pl.String) if isinstance(dtype, pl.Enum | pl.Categorical) else column


def as_json(frame: pl.DataFrame, *, is_seen: bool = False) -> str:
    """A frame as a JSON list of objects; what is not a number is null."""
    rows = [_json(row, is_ascii=is_seen) for row in frame.iter_rows(named=True)]
    return "[" + ",\n ".join(rows) + "]\n"


def _json(value: Any, *, is_ascii: bool = False) -> str:
    return json.dumps(plain(value), ensure_ascii=is_ascii, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | pl.Series):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal | timedelta):
        return float(value) if isinstance(value, Decimal) else value.total_seconds()
    return _moment(value) if isinstance(value, datetime | date | time) else _text(value)


def _moment(value: datetime | date | time) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat()


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def as_parquet(frame: pl.DataFrame, *, is_seen: bool) -> bytes:
    """A frame as Parquet, which is for files only."""
    if is_seen:
        raise ArgumentError(
            "Parquet is for files, and the output is a terminal.", "-o result.parquet"
        )
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
