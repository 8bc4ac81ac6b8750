"""Tables whose secrets are masked before a query sees them, names of the stores included.

A mask laid over an answer is undone by a function: ``reverse(text)`` has no shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import polars as pl

from stateanalytics.core.redaction import redact_names, redact_with_names
from stateanalytics.sql.running import Table


def masked_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The same tables, with names and rows that hold nothing which looks like a secret.

    Parameters
    ----------
    tables : mapping of str to Table
        Names of raw tables and of their columns are a store's.

    Returns
    -------
    dict of str to Table
        Names that are the same once they are masked get ``_1``, ``_2`` …. Rows are masked
        once, when a query first names their table.
    """
    names = redact_names([*tables])
    return {name: _masked(table) for name, table in zip(names, tables.values(), strict=True)}


def _masked(table: Table) -> Table:
    merged: set[str] = set()
    return Table(
        tuple(redact_names(table.columns)),
        left_out=tuple(redact_names(table.left_out)),
        view=table.view,
        load=table.load and functools.partial(_rows, table.load, merged),
        merged=merged,
    )


def _rows(load: Callable[[], pl.DataFrame], merged: set[str]) -> pl.DataFrame:
    rows = load()
    masked, n_masked = redact_with_names(rows)
    if n_masked:
        for before, after in zip(rows.get_columns(), masked.get_columns(), strict=True):
            if after.dtype == pl.String and after.n_unique() < before.n_unique():
                merged.add(after.name)
    return masked
