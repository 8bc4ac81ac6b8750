"""Maps as lists of pairs, which every format holds and in which keys are data like any other."""

from __future__ import annotations

from typing import Any

import polars as pl


def as_pairs(column: pl.Series) -> pl.Series:
    """A column whose maps, however deep, are lists of ``key`` and ``value``.

    Examples
    --------
    >>> maps = pl.Series("n", [{"a": 1}], dtype=pl.Map(pl.String, pl.Int64))
    >>> as_pairs(maps).to_list()
    [[{'key': 'a', 'value': 1}]]
    """
    if not column.dtype.is_nested():
        return column
    dtype = _without_maps(column.dtype)
    return column if dtype == column.dtype else column.cast(dtype)


def _without_maps(dtype: Any) -> pl.DataType:
    match dtype:
        case pl.Map():
            pair = {"key": _without_maps(dtype.key), "value": _without_maps(dtype.value)}
            return pl.List(pl.Struct(pair))
        case pl.List():
            return pl.List(_without_maps(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: _without_maps(field.dtype) for field in dtype.fields})
    known: pl.DataType = dtype
    return known
