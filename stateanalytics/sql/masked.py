"""Tables whose secrets are masked before a query sees them, names of the stores included.

A mask laid over an answer is undone by a function: ``reverse(text)`` has no shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from stateanalytics.core.redaction import redact, redact_texts
from stateanalytics.core.text import visible
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
        Names that are masked alike are told apart by ``_1``, ``_2`` …. Rows are masked once,
        when a query first names their table.
    """
    names = masked_names([*tables])
    return {name: _masked(table) for name, table in zip(names, tables.values(), strict=True)}


def masked_names(names: Sequence[str]) -> list[str]:
    """Names without secrets and without signs that nobody sees, none twice.

    Examples
    --------
    >>> masked_names(["id", "sk-abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrsu"])
    ['id', '[API key]', '[API key]_1']
    """
    shown = [visible(name) for name in redact_texts(pl.Series(names, dtype=pl.String))[0]]
    # Names that stay keep their name, whatever comes before them.
    taken = {name.casefold() for name, was in zip(shown, names, strict=True) if name == was}
    apart = []
    for name, was in zip(shown, names, strict=True):
        free, number = name, 0
        while name != was and free.casefold() in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        apart.append(free)
    return apart


def _masked(table: Table) -> Table:
    return Table(
        tuple(masked_names(table.columns)),
        left_out=tuple(masked_names(table.left_out)),
        view=table.view,
        load=table.load and functools.cache(functools.partial(_rows, table.load)),
    )


def _rows(load: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    rows = load()
    masked, _ = redact(rows)
    return masked.rename(dict(zip(rows.columns, masked_names(rows.columns), strict=True)))
