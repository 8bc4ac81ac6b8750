"""Columns of a user's own tables beside those of a frame, by dotted names: ``teams.owner``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean, in_short


class OwnColumn(NamedTuple):
    """A column of a user's own table, and the one that the table shares with the rows."""

    table: str
    column: str
    key: str


def own_column(
    rows: pl.DataFrame, name: object, own: Mapping[str, pl.DataFrame]
) -> OwnColumn | None:
    """What a dotted name means beside some rows; None: it is no name of that kind.

    Parameters
    ----------
    rows : polars.DataFrame
    name : str
        ``table.column``; anything without a dot, or a column of ``rows``, is none.
    own : mapping of str to polars.DataFrame
        Of `Snapshot.with_table`.

    Raises
    ------
    ArgumentError
        If there is no such table or column, or it is not one column that the table shares
        with the rows, or the table has several rows for one value of that.
    """
    if not isinstance(name, str) or "." not in name or name in rows.columns:
        return None
    table, _, column = name.partition(".")
    if table not in own:
        raise ArgumentError(
            f"There is no table {table!r:.40} of yours for {name!r:.80}; "
            f"there are {', '.join(own) or 'none'}.",
            f'add it first: snap.with_table("{table:.40}", "{table:.40}.csv")',
            shell=f"add it: --table {table:.40}={table:.40}.csv{did_you_mean(table, own)}",
        )
    columns = own[table].columns
    if column not in columns:
        raise ArgumentError(
            f"Table {table!r} has no column {column!r:.80}; it has {', '.join(columns)}.",
            "use one of these" + did_you_mean(column, columns),
        )
    shared = [key for key in columns if key in rows.columns and key != column]
    if len(shared) != 1:
        raise ArgumentError(
            f"{name!r} needs one column that table {table!r} shares with the rows; "
            f"found {', '.join(shared) or 'none'}.",
            "rename the others"
            if shared
            else "give the table a column such as project, agent or model",
        )
    repeated = own[table][shared[0]].drop_nulls()
    repeated = repeated.filter(repeated.is_duplicated())
    if not repeated.is_empty():
        raise ArgumentError(
            f"Table {table!r} has several rows for {shared[0]} {in_short(str(repeated[0]))}.",
            f"keep one row for each {shared[0]}",
        )
    return OwnColumn(table, column, shared[0])


def with_own_column(
    rows: pl.DataFrame, name: object, own: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """Rows with the column that a dotted name means, if it is one; null where no row is found.

    Examples
    --------
    >>> rows = pl.DataFrame({"project": ["a", "b", None]})
    >>> teams = pl.DataFrame({"project": ["a"], "owner": ["ann"]})
    >>> with_own_column(rows, "teams.owner", {"teams": teams})["teams.owner"].to_list()
    ['ann', None, None]
    """
    found = own_column(rows, name, own)
    if found is None:
        return rows
    values = own[found.table].select(
        pl.col(found.key).cast(pl.String).alias("_key"),
        pl.col(found.column).alias(f"{found.table}.{found.column}"),
    )
    keyed = rows.with_columns(_key=pl.col(found.key).cast(pl.String))
    return keyed.join(values, on="_key", how="left", maintain_order="left").drop("_key")


def with_group(
    rows: pl.DataFrame, name: str, own: Mapping[str, pl.DataFrame], example: str
) -> pl.DataFrame:
    """Rows with a column to tell them apart by, their own or a user's.

    Raises
    ------
    ArgumentError
        As for `own_column`, and if there is no such column, or nobody can group by it.
    """
    rows = with_own_column(rows, name, own)
    if name not in rows.columns or rows.schema[name].is_nested():
        raise ArgumentError(
            f"There is no column {name!r:.80} to tell runs apart by.",
            example + did_you_mean(str(name), rows.columns),
            shell="--by project" + did_you_mean(str(name), rows.columns),
        )
    return rows
