"""The index of threads, which Codex makes from rollouts: what it has and they have not."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stateanalytics.errors import SourceError
from stateanalytics.io.cells import Cell
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.codex.places import index_of


def indexed_threads(root: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The threads of the index, and the index where it cannot be read.

    Parameters
    ----------
    root : pathlib.Path
        The input.

    Returns
    -------
    threads : polars.DataFrame
        ``id`` of each thread.
    unread : polars.DataFrame
        ``file`` of an index that cannot be read: no row or one.
    """
    index = index_of(root)
    threads = pl.DataFrame(schema={"id": pl.String})
    unread = pl.DataFrame(schema={"file": pl.String})
    if index is None:
        return threads, unread
    try:
        with open_store(index) as store:
            return read_table(store, "threads", {"id": Cell("text")})[0].drop_nulls(), unread
    except SourceError:
        return threads, pl.DataFrame({"file": [index.name]})
