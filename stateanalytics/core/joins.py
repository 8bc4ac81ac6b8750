"""Joining frames: one row per entity, joins by key, stacks, and columns of a user's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import ArgumentError, did_you_mean, in_short

# Columns with one repeated value are only kept as a scalar from so many rows on.
_MIN_SCALAR_ROWS = 10_000


Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)
_IN_ORDER = pl.QueryOptFlags(check_order_observe=False)


def collected(plan: pl.LazyFrame) -> pl.DataFrame:
    """The rows of a plan, with the same float sums as if its steps were run one by one.

    The optimizer of polars drops a sort before a sum, which can change its last digit.

    Examples
    --------
    >>> collected(pl.LazyFrame({"n": [2, 1]}).select(pl.col("n").sort().sum())).item()
    3
    """
    return plan.collect(engine="in-memory", optimizations=_IN_ORDER)


def collected_all(*plans: pl.LazyFrame) -> list[pl.DataFrame]:
    """The rows of several plans, each as from `collected`; shared steps run only once.

    Examples
    --------
    >>> rows = pl.LazyFrame({"n": [2, 1]})
    >>> [frame.item() for frame in collected_all(rows.min(), rows.max())]
    [1, 2]
    """
    return pl.collect_all(plans, engine="in-memory", optimizations=_IN_ORDER)


def collected_each(plans: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]:
    """The rows of several plans with the same columns, as from `collected`, in one query.

    Examples
    --------
    >>> rows = pl.LazyFrame({"n": [1, 2, 3]})
    >>> [part["n"].to_list() for part in collected_each([rows.filter(n=4), rows.filter(n=2)])]
    [[], [2]]
    """
    if not plans:
        return []
    numbered = (plan.with_columns(_plan=pl.lit(i)) for i, plan in enumerate(plans))
    return parts_of(collected(pl.concat(numbered)), "_plan", len(plans))


def parts_of(rows: pl.DataFrame, number: str, n: int) -> list[pl.DataFrame]:
    """The rows of each of n numbers from 0, in their order and without that column.

    Examples
    --------
    >>> rows = pl.DataFrame({"name": ["a", "b"], "part": [1, 1]})
    >>> [part["name"].to_list() for part in parts_of(rows, "part", 2)]
    [[], ['a', 'b']]
    """
    parts = {part[number][0]: part for part in rows.partition_by(number)}
    names = [name for name in rows.columns if name != number]
    return [parts.get(i, rows.clear())[names] for i in range(n)]


def deduplicated(rows: pl.DataFrame, *, keep: Literal["first", "last"] = "first") -> pl.DataFrame:
    """One row per entity: the first or the last of several with the same key.

    Examples
    --------
    >>> key = {"source": "s", "system": "x", "entity_type": "session", "entity_id": "1"}
    >>> deduplicated(pl.DataFrame([{**key, "n": 1}, {**key, "n": 2}]))["n"].to_list()
    [1]
    """
    # If ids alone are unique, which is usual, the rest of the key need not be compared.
    if rows["entity_id"].n_unique() == rows.height:
        return rows
    return rows.unique(schema.ENTITY_KEY, keep=keep, maintain_order=True)


def left_join(entities: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Entities in their order, with the columns of another frame.

    Parameters
    ----------
    entities : polars.DataFrame
        With the columns of ``schema.ENTITY_KEY``.
    other : polars.DataFrame
        At most one row for each key (`deduplicated`), and columns that ``entities`` does
        not have.

    Examples
    --------
    >>> key = dict.fromkeys(("source", "system", "entity_type"), "x")
    >>> entities = pl.DataFrame([{**key, "entity_id": name} for name in "abc"])
    >>> other = entities.with_columns(n=pl.int_range(3))
    >>> [left_join(entities, rows)["n"].to_list() for rows in (other, other.reverse(), other[:2])]
    [[0, 1, 2], [0, 1, 2], [0, 1, None]]
    >>> another_type = other[:1].with_columns(entity_type=pl.lit("y"))
    >>> left_join(entities, another_type)["n"].to_list()
    [None, None, None]
    """
    key = list(schema.ENTITY_KEY)
    # Frames derived from the same entities have the same order, so no join is needed.
    is_same = other[key].equals(entities[key], null_equal=False)
    in_order = other if is_same else _looked_up(entities[key], other)
    return entities.hstack([column for column in in_order if column.name not in key])


def left_joined(rows: Rows, *others: Rows, on: str | Sequence[str]) -> Rows:
    """The rows in their order, with the columns of other frames by a key.

    Parameters
    ----------
    rows : polars.DataFrame or LazyFrame
    *others : polars.DataFrame or LazyFrame
        At most one row for each key, and columns that ``rows`` does not have.
    on : str or sequence of str
        The columns of the key.

    Examples
    --------
    >>> rows = pl.DataFrame({"id": ["b", "a", "c"]})
    >>> left_joined(rows, pl.DataFrame({"id": ["a", "b"], "n": [1, 2]}), on="id")["n"].to_list()
    [2, 1, None]
    """
    for other in others:
        rows = rows.join(other, on=on, how="left", maintain_order="left")
    return rows


def _looked_up(keys: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The row of a frame for each key, in the order of the keys."""
    # A join by ids alone takes a third of the time; ids are usually unique.
    if other["entity_id"].n_unique() == other.height:
        renamed = {name: f"_{name}" for name in schema.ENTITY_KEY if name != "entity_id"}
        found = other.lazy().rename(renamed).with_columns(_is_matched=pl.lit(value=True))
        by_id = keys.lazy().join(found, on="entity_id", how="left", maintain_order="left").collect()
        is_same = pl.all_horizontal(pl.col(name) == pl.col(new) for name, new in renamed.items())
        if by_id.select((is_same.fill_null(value=False) | ~pl.col("_is_matched")).all()).item():
            return by_id[other.columns]
    return keys.join(other, on=list(schema.ENTITY_KEY), how="left", maintain_order="left")


def total(*names: str) -> pl.Expr:
    """The sums over the known values of columns; null where there is none.

    Examples
    --------
    >>> pl.DataFrame({"n": [1, None], "m": [None, None]}).select(total("n", "m")).row(0)
    (1, None)
    """
    columns = pl.col(names)
    return pl.when(columns.is_not_null().any()).then(columns.sum())


def pool(frames: Sequence[pl.DataFrame], shape: schema.Frame) -> pl.DataFrame:
    """Stack frames of one canonical shape; none give an empty frame of that shape."""
    kept = [frame for frame in frames if frame.height]
    return with_scalar_columns(pl.concat(kept)) if kept else shape.empty()


def with_scalar_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows, with columns of one repeated value stored as that value.

    Such columns take almost no memory or time.

    Examples
    --------
    >>> rows = pl.DataFrame({"source": ["s"] * 3, "n": [1, 2, 3], "note": [None] * 3})
    >>> with_scalar_columns(rows).equals(rows)
    True
    """
    if rows.height < _MIN_SCALAR_ROWS:
        return rows
    return rows.with_columns(
        pl.lit(column[0], column.dtype).alias(column.name) for column in rows if is_scalar(column)
    )


def is_scalar(column: pl.Series) -> bool:
    """Whether a column repeats one value, as far as that is quick to check."""
    if column.null_count():
        return column.null_count() == column.len()
    is_checked = column.dtype in (pl.String, pl.Boolean) and column[0] == column[-1]
    return is_checked and bool((column == column[0]).all())


def connected_components(n_nodes: int, links: pl.DataFrame | pl.LazyFrame) -> pl.Series:
    """The connected component of each node, named by its smallest node.

    Parameters
    ----------
    n_nodes : int
        Nodes are the numbers from 0.
    links : polars.DataFrame or LazyFrame
        ``node`` and ``id``, never null: nodes that share an id are linked. Rows may repeat.

    Returns
    -------
    polars.Series of Int64, length n_nodes

    Examples
    --------
    >>> links = pl.DataFrame({"node": [1, 2, 2, 3], "id": ["a", "a", "b", "b"]})
    >>> connected_components(5, links).to_list()
    [0, 1, 1, 1, 4]
    """
    # Only ids that several nodes share are links; most nodes have none.
    is_shared = pl.len().over("id") > 1
    shared = links.lazy().filter(is_shared).select(pl.col("node").cast(pl.Int64), "id").collect()
    component = pl.Series("component", range(n_nodes), dtype=pl.Int64)
    while not shared.is_empty():
        lowest = (
            shared.lazy()
            .with_columns(component=pl.lit(component).gather("node"))
            .with_columns(lowest=pl.col("component").min().over("id"))
            .group_by("component")
            .agg(pl.col("lowest").min())
        )
        # A component is the number of a node. Taking over the component of that node doubles the
        # reach in each round, so long chains need few rounds.
        smaller = (
            component.to_frame()
            .lazy()
            .join(lowest, on="component", how="left", maintain_order="left")
            .select(component=pl.coalesce("lowest", "component"))
            .select(pl.col("component").gather("component"))
            .collect()["component"]
        )
        if smaller.equals(component):
            break
        component = smaller
    return component


class OwnColumn(NamedTuple):
    """A column of a user's own table, and the one that the table shares with the rows."""

    table: str
    column: str
    key: str


def own_column(
    rows: pl.DataFrame, name: object, own: Mapping[str, pl.DataFrame]
) -> OwnColumn | None:
    """The column of a user's table for a dotted name; None: the name is not dotted.

    Parameters
    ----------
    rows : polars.DataFrame
    name : str
        ``table.column``; a name without a dot, or of a column of ``rows``, is none.
    own : mapping of str to polars.DataFrame
        Tables by name, as added by `Snapshot.with_table`.

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
    """Rows with the column that a dotted name refers to, if any; null where nothing matches.

    Examples
    --------
    >>> rows = pl.DataFrame({"project": ["a", "b", None]})
    >>> teams = pl.DataFrame({"project": ["a"], "owner": ["ann"]})
    >>> with_own_column(rows, "teams.owner", {"teams": teams})["teams.owner"].to_list()
    ['ann', None, None]
    """
    joined = own_column(rows, name, own)
    if joined is None:
        return rows
    values = own[joined.table].select(
        pl.col(joined.key).cast(pl.String).alias("_key"),
        pl.col(joined.column).alias(f"{joined.table}.{joined.column}"),
    )
    keyed = rows.with_columns(_key=pl.col(joined.key).cast(pl.String))
    return keyed.join(values, on="_key", how="left", maintain_order="left").drop("_key")


def with_group(
    rows: pl.DataFrame, name: str, own: Mapping[str, pl.DataFrame], example: str
) -> pl.DataFrame:
    """Rows with the column to group by: their own, or one of a user's table.

    Raises
    ------
    ArgumentError
        As for `own_column`, and if there is no such column, or it holds lists or structs.
    """
    rows = with_own_column(rows, name, own)
    if name not in rows.columns or rows.schema[name].is_nested():
        raise ArgumentError(
            f"There is no column {name!r:.80} to group runs by.",
            example + did_you_mean(str(name), rows.columns),
            shell="--by project" + did_you_mean(str(name), rows.columns),
        )
    return rows
