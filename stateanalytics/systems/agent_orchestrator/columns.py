"""Which columns a rule needs, and what it does where an optional one is absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

import narwhals as nw
import polars as pl

from stateanalytics.errors import MissingColumnsError

FrameT = TypeVar("FrameT")
"""A frame of any engine that Narwhals knows: the same kind comes back."""

Steps = tuple[Mapping[str, Any], ...]
"""Columns to add, step by step: a later step may read those of an earlier one."""


def need(frame: pl.DataFrame, names: Iterable[str], function: str) -> None:
    """Refuse a frame that lacks a column.

    Parameters
    ----------
    frame : polars.DataFrame
        The frame a rule was given.
    names : iterable of str
        The columns it reads.
    function : str
        The rule's name, for the message.

    Raises
    ------
    MissingColumnsError
        If one is absent.

    Examples
    --------
    >>> import polars as pl
    >>> need(pl.DataFrame({"at": [1]}), ["at"], "a_rule")
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise MissingColumnsError.of(missing, frame.columns, function)


def add_columns(
    frame: FrameT, needs: Iterable[str], function: str, *steps: Mapping[str, Any]
) -> FrameT:
    """Add columns to a frame of any engine, after a look at what it has.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        The frame a rule was given.
    needs : iterable of str
        The columns the rule reads.
    function : str
        The rule's name, for the message.
    *steps : mapping of str to narwhals.Expr
        Columns to add; a later step may read those of an earlier one.

    Returns
    -------
    The same kind of frame
        With the columns.

    Raises
    ------
    MissingColumnsError
        If one of ``needs`` is absent.

    Examples
    --------
    >>> import narwhals as nw
    >>> import polars as pl
    >>> add_columns(pl.DataFrame({"a": [1]}), ["a"], "a_rule", {"b": nw.col("a") + 1})["b"].item()
    2
    """
    over = nw.from_native(cast(Any, frame))
    there = over.collect_schema().names()
    missing = [name for name in needs if name not in there]
    if missing:
        raise MissingColumnsError.of(missing, there, function)
    for columns in steps:
        over = over.with_columns(**columns)
    return cast(FrameT, over.to_native())


def drop_columns(frame: FrameT, *names: str) -> FrameT:
    """Drop the columns that only a rule's own steps needed."""
    return cast(FrameT, nw.from_native(cast(Any, frame)).drop(*names).to_native())


def look_up(
    column: Any,
    table: Mapping[str, str | float | None],
    default: Any = None,
    *,
    library: Any = nw,
    dtype: Any = None,
) -> Any:
    """The value of each word in a table, as an expression of Narwhals or polars.

    Parameters
    ----------
    column : narwhals.Expr or polars.Expr
        Words.
    table : mapping of str to str, float or None
        Word to value.
    default : str, float or expression, optional
        For all other words.
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.
    dtype : dtype of the library, default String
        Of the values.

    Examples
    --------
    >>> import polars as pl
    >>> words = pl.DataFrame({"word": ["a", "b", "c"]})
    >>> rule = look_up(pl.col("word"), {"a": "x", "b": "x"}, "y", library=pl)
    >>> words.select(rule).to_series().to_list()
    ['x', 'x', 'y']
    """
    kind = dtype or library.String()
    is_rule = isinstance(default, nw.Expr | pl.Expr)
    # One lookup and not one test a word: Narwhals makes each of those again for every frame.
    return column.replace_strict(
        dict(table),
        default=default if is_rule else library.lit(default, kind),
        return_dtype=kind,
    )


def first_true(*rules: tuple[Any, Any], default: Any = None, library: Any = nw) -> Any:
    """The value of the first condition that holds, as an expression of Narwhals or polars.

    Parameters
    ----------
    *rules : tuple
        A condition, and a word or an expression.
    default : str or expression, optional
        Where none holds.
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.

    Examples
    --------
    >>> import polars as pl
    >>> rule = first_true((pl.col("n") > 1, "many"), default="few", library=pl)
    >>> pl.DataFrame({"n": [1, 2]}).select(rule).to_series().to_list()
    ['few', 'many']
    """

    def expression(value: Any) -> Any:
        is_word = value is None or isinstance(value, str)
        return library.lit(value, library.String()) if is_word else value

    rule = expression(default)
    for condition, value in reversed(rules):
        rule = library.when(condition).then(expression(value)).otherwise(rule)
    return rule


def references(**columns: str) -> pl.Expr:
    """Texts as evidence: a JSON list of references by kind; null where all are null.

    Examples
    --------
    >>> import polars as pl
    >>> pl.DataFrame({"seen": ["ok"]}).select(references(tool_result="seen")).item()
    '[{"kind":"tool_result","detail":"ok"}]'
    """
    pieces = [
        pl.when(pl.col(name).is_not_null()).then(
            pl.struct(kind=pl.lit(kind), detail=name).struct.json_encode()
        )
        for kind, name in columns.items()
    ]
    joined = pl.concat_str(pieces, separator=",", ignore_nulls=True)
    return pl.when(joined != "").then(pl.format("[{}]", joined))


def with_defaults(
    frame: pl.DataFrame, columns: Mapping[str, pl.DataType], values: Mapping[str, object] = {}
) -> pl.DataFrame:
    """Add the optional columns that are absent, and cast all to the type that is read.

    Parameters
    ----------
    frame : polars.DataFrame
        The frame a rule was given.
    columns : mapping of str to polars.DataType
        Optional columns and their types.
    values : mapping of str to object
        What an absent column holds; null if it is not named here.

    Returns
    -------
    polars.DataFrame
        The frame with every one of the columns.

    Examples
    --------
    >>> import polars as pl
    >>> with_defaults(pl.DataFrame({"a": [1]}), {"b": pl.String()})["b"].to_list()
    [None]
    """
    return frame.with_columns(
        (pl.col(name) if name in frame.columns else pl.lit(values.get(name)))
        .cast(dtype)
        .alias(name)
        for name, dtype in columns.items()
    )
