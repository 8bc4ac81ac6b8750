"""What is odd about a whole store, and not about rows of one of its tables."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.cells import shown
from stateanalytics.io.findings import counted
from stateanalytics.io.salvaging import loss_findings
from stateanalytics.io.sqlite import Store


def findings_of_store(store: Store, *, system: str) -> pl.DataFrame:
    """What was lost, names that cannot be read, and tables whose pages were not checked.

    Parameters
    ----------
    store : Store
        An open store; its check is waited for.
    system : str
        Who wrote it.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    names = [
        counted(
            store.label,
            system,
            "table.illegible_name",
            "warning",
            "the name of a table or column is not UTF-8",
            example=shown(name),
            action="not read",
        )
        for name in store.illegible
    ]
    unchecked = [
        counted(
            store.label,
            system,
            "table.not_checked",
            "info",
            "looking for damaged pages took too long"
            if table == "*"
            else "what the store computes was not run to look for damaged pages",
            table=None if table == "*" else table,
            action="read as it is",
        )
        for table in store.unchecked()
    ]
    lost = loss_findings(store.losses, store.label, system=system)
    return pool([lost, *names, *unchecked], schema.FINDINGS)
