"""Columns that a rule can do without."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.state.engines import Frame


def optional(frame: Frame, name: str, dtype: Any) -> nw.Expr:
    """A column that may be absent: then it is null throughout, which is "not known".

    Examples
    --------
    >>> import polars as pl
    >>> frame = nw.from_native(pl.LazyFrame({"a": [1]}))
    >>> frame.select(b=optional(frame, "b", nw.String)).collect()["b"].to_list()
    [None]
    """
    if name in frame.collect_schema().names():
        return nw.col(name).cast(dtype)
    return nw.lit(None).cast(dtype)
