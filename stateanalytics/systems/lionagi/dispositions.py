"""What operators decided about attention items, as it stands now (ADR-0030's words)."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.lionagi.events import resolved_items
from stateanalytics.systems.lionagi.raw import Raw


def dispositions(raw: Raw) -> pl.DataFrame:
    """One row an item that an operator set aside, with the entity that it names.

    Returns
    -------
    polars.DataFrame, shape (n_items, 10)
        `stateanalytics.core.schema.LIONAGI_DISPOSITIONS` without ``source``.
    """
    names = [name for name in schema.LIONAGI_DISPOSITIONS.dtypes.names() if name != "source"]
    return resolved_items(raw["attention_dispositions"], raw).select(names)
