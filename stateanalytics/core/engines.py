"""The adapter of the bulk rules: any frame in, words as small numbers inside, the same kind out.

Rules compare small integers, because comparing text is what a million rows cost.
So a column of words is *encoded* on the way in (each known word becomes its position
in a vocabulary, anything else null) and numbers are *looked up* on the way out. Those
two steps, and the clock (`rules.clock`), are all that differs between engines; the
rules between them are Narwhals expressions and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import narwhals as nw
import polars as pl

from stateanalytics.errors import ColumnTypeError, MissingColumnsError

Frame = nw.LazyFrame[Any]
Value = str | int | float | bool | None
Values = Sequence[Value] | pl.Series


TEMPORARY = "__sa_"
"""Columns that begin so live inside a rule only."""


@dataclass(frozen=True)
class Kind:
    """What a column may hold, and what to call that in an error."""

    meaning: str
    dtypes: tuple[type[nw.dtypes.DType], ...]
    dtype: nw.dtypes.DType
    hint: str


_NUMBERS: tuple[type[nw.dtypes.DType], ...] = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64, nw.Decimal),
)
TEXT = Kind(
    "words", (nw.String, nw.Categorical, nw.Enum), nw.String(), "cast it to text: .cast(pl.String)"
)
NUMBER = Kind("numbers", _NUMBERS, nw.Float64(), "cast it: .cast(pl.Float64)")
YES_NO = Kind(
    "true or false", (nw.Boolean, *_NUMBERS[:8]), nw.Boolean(), "cast it to a Boolean column"
)
MOMENT = Kind(
    "moments or epoch seconds",
    (*_NUMBERS, nw.Datetime),
    nw.Float64(),
    'parse it: .str.to_datetime(time_zone="UTC")',
)


@dataclass(frozen=True)
class EngineAdapter:
    """A caller's frame on its way through a rule.

    Attributes
    ----------
    frame : narwhals.LazyFrame
        The frame to work on.
    give_back : callable
        Turns the result into the kind of frame that came in.
    is_eager : bool
        Did the caller's frame hold its rows, so that looking at them costs no query.
    """

    frame: Frame
    give_back: Callable[[Frame], Any]
    is_eager: bool = False


def adapt(frame: Any, needed: Mapping[str, Kind], function: str) -> EngineAdapter:
    """Let a frame in, once it is sure to hold what the rule reads.

    Parameters
    ----------
    frame : polars DataFrame or LazyFrame, DuckDB relation, PySpark frame, pyarrow Table
        Any frame that Narwhals can read.
    needed : mapping of str to Kind
        Columns the rule reads, and what they must hold. Wholly null columns fit any.
    function : str
        Who asks, for the message.

    Returns
    -------
    EngineAdapter

    Raises
    ------
    ColumnTypeError
        If it is no frame, or a column holds something else.
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> adapter = adapt(pl.DataFrame({"health": ["ok"]}), {"health": TEXT}, "rule")
    >>> adapter.give_back(adapter.frame).shape
    (1, 1)
    """
    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        raise ColumnTypeError(
            f"{function} needs a frame; found {type(frame).__name__}.",
            "give a polars frame, a DuckDB relation, a pyarrow table, or a PySpark frame "
            "(pip install 'stateanalytics[spark]')",
        ) from None
    _check(wrapped, needed, function)
    if isinstance(wrapped, nw.LazyFrame):
        return EngineAdapter(_typed(wrapped, needed), lambda result: result.to_native())
    if wrapped.implementation.is_polars():
        return EngineAdapter(
            _typed(wrapped.lazy(), needed), lambda result: result.collect().to_native(), True
        )
    eager = wrapped.implementation
    return EngineAdapter(
        _typed(wrapped.lazy(backend="polars"), needed),
        lambda result: result.collect(backend=eager).to_native(),
        is_eager=True,
    )


def _check(frame: Any, needed: Mapping[str, Kind], function: str) -> None:
    found = frame.collect_schema()
    if missing := [name for name in needed if name not in found]:
        raise MissingColumnsError.of(missing, found.names(), function)
    for name, kind in needed.items():
        if not isinstance(found[name], (*kind.dtypes, nw.Unknown)):
            raise ColumnTypeError(
                f"{function} needs {kind.meaning} in column {name!r}; found {found[name]}.",
                kind.hint,
            )


def _typed(frame: Frame, needed: Mapping[str, Kind]) -> Frame:
    """Give wholly null columns, and truths kept as numbers, the type that rules expect."""
    found = frame.collect_schema()
    return frame.with_columns(
        nw.col(name).cast(kind.dtype)
        for name, kind in needed.items()
        if isinstance(found[name], nw.Unknown)
        or (kind is YES_NO and not isinstance(found[name], nw.Boolean))
    )


def first_true(rules: Mapping[int, nw.Expr]) -> nw.Expr:
    """The number of the first rule that is true; null where none is.

    Parameters
    ----------
    rules : mapping of int to narwhals.Expr
        Boolean expressions by number, in order of precedence; null counts as false.

    Examples
    --------
    >>> frame = nw.from_native(pl.DataFrame({"x": [1, 5, None]}))
    >>> rules = {7: nw.col("x") > 3, 8: nw.col("x") > 0}
    >>> frame.select(first=first_true(rules))["first"].to_list()
    [8, 7, None]
    """
    numbers = iter(rules.items())
    number, expression = next(numbers)
    chain = nw.when(expression).then(nw.lit(number, nw.Int16))
    for number, expression in numbers:
        chain = chain.when(expression).then(nw.lit(number, nw.Int16))
    return chain


def encode(frame: Frame, columns: Mapping[str, tuple[str, Sequence[str]]]) -> Frame:
    """Add, for columns of words, each word's position in its vocabulary.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    columns : mapping of str to (str, sequence of str)
        New column: the column of words, and the vocabulary. A word outside of it, and
        null, become null.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"health": ["idle", "?", None]}))
    >>> encode(frame, {"code": ("health", ("ok", "idle"))}).collect()["code"].to_list()
    [1, None, None]
    """
    return _with_each(frame, columns, _POSITIONS, _any_position)


def lookup(frame: Frame, columns: Mapping[str, tuple[str, Values]]) -> Frame:
    """Add, for columns of positions, the value at each position.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    columns : mapping of str to (str, sequence)
        New column: the column of positions, from 0, and the values, which may hold None.
        A position that is null gives null; none may lie outside of the values. Polars
        keeps the dtype of values that are a Series; of an Enum, others make text.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"code": [1, None, 0]}))
    >>> lookup(frame, {"tone": ("code", ("info", "danger"))}).collect()["tone"].to_list()
    ['danger', None, 'info']
    """
    return _with_each(frame, columns, _ITEMS, _any_item)


def constants(frame: Frame, columns: Mapping[str, tuple[str, Sequence[str]]]) -> Frame:
    """Add one word of a vocabulary to every row: an Enum in polars, text elsewhere."""
    if frame.implementation.is_polars():
        return with_native(
            frame,
            {
                new: pl.lit(word, dtype=pl.Enum(vocabulary))
                for new, (word, vocabulary) in columns.items()
            },
        )
    return frame.with_columns(nw.lit(word).alias(new) for new, (word, _) in columns.items())


def as_words(frame: Frame, columns: Mapping[str, Sequence[str]]) -> Frame:
    """Give columns of words their vocabulary: an Enum in polars; elsewhere they stay text."""
    if not frame.implementation.is_polars():
        return frame
    typed = {name: pl.col(name).cast(pl.Enum(words)) for name, words in columns.items()}
    return with_native(frame, typed)


def explode_json(frame: Frame, column: str, fields: Mapping[str, type], place: str) -> Frame:
    """One row for each object of a JSON list: its keys as columns, and its place from 0.

    Parameters
    ----------
    frame : narwhals.LazyFrame
        Of polars, DuckDB or PySpark.
    column : str
        JSON lists of objects, never null; it goes.
    fields : mapping of str to type
        Keys of the objects, ``str`` or ``float``. None may be a column already.
    place : str
        New column for the place in the list.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"id": [7], "why": ['[{"code":"a"},{"code":"b"}]']}))
    >>> explode_json(frame, "why", {"code": str}, "order").collect().rows()
    [(7, 0, 'a'), (7, 1, 'b')]
    """
    explode: Callable[..., Any] = _EXPLODED.get(frame.implementation, _polars_exploded)
    kept = [name for name in frame.collect_schema().names() if name != column]
    result: Frame = nw.from_native(explode(frame.to_native(), kept, column, fields, place))
    return result


def with_native(frame: Frame, columns: Mapping[str, Any]) -> Frame:
    """Add columns written in the engine's own expressions, where Narwhals has no words.

    Parameters
    ----------
    frame : narwhals.LazyFrame
        Of polars, DuckDB or PySpark.
    columns : mapping of str to native expression
        New columns, or columns to replace.
    """
    native = frame.to_native()
    if frame.implementation.is_duckdb():
        import duckdb

        added = {name: expression.alias(name) for name, expression in columns.items()}
        kept = {name: duckdb.ColumnExpression(name) for name in native.columns}
        result: Frame = nw.from_native(native.select(*{**kept, **added}.values()))
    elif frame.implementation.is_pyspark():
        result = nw.from_native(native.withColumns(dict(columns)))
    else:
        result = nw.from_native(native.with_columns(**columns))
    return result


Spec = tuple[str, Any]
Maker = Callable[[str, Any], Any]
Own = TypeVar("Own")


def by_engine(polars: Own, duckdb: Own, pyspark: Own) -> Mapping[nw.Implementation, Own]:
    """What each engine has of its own."""
    engines = (nw.Implementation.POLARS, nw.Implementation.DUCKDB, nw.Implementation.PYSPARK)
    return MappingProxyType(dict(zip(engines, (polars, duckdb, pyspark), strict=True)))


def _with_each(
    frame: Frame,
    columns: Mapping[str, Spec],
    native: Mapping[nw.Implementation, Maker],
    otherwise: Callable[[str, Any], nw.Expr],
) -> Frame:
    make = native.get(frame.implementation)
    if make is None:
        return frame.with_columns(otherwise(*spec).alias(new) for new, spec in columns.items())
    return with_native(frame, {new: make(*spec) for new, spec in columns.items()})


def _dtype(values: Values) -> nw.dtypes.DType:
    kinds = {type(value) for value in values}
    by_kind: tuple[tuple[type, nw.dtypes.DType], ...] = (
        (str, nw.String()),
        (float, nw.Float64()),
        (bool, nw.Boolean()),
        (int, nw.Int16()),
    )
    return next((dtype for kind, dtype in by_kind if kind in kinds), nw.String())


def _any_position(column: str, words: Sequence[str]) -> nw.Expr:
    return (
        nw.col(column)
        .cast(nw.String)
        .replace_strict(list(words), list(range(len(words))), default=None, return_dtype=nw.Int16)
    )


def _any_item(column: str, values: Values) -> nw.Expr:
    return nw.col(column).replace_strict(
        list(range(len(values))), list(values), default=None, return_dtype=_dtype(values)
    )


def _polars_position(column: str, words: Sequence[str]) -> pl.Expr:
    return pl.col(column).cast(pl.Enum(words), strict=False).to_physical()


def _polars_item(column: str, values: Values) -> pl.Expr:
    dtypes: dict[nw.dtypes.DType, pl.DataType] = {
        nw.Boolean(): pl.Boolean(),
        nw.Int16(): pl.Int16(),
        nw.Float64(): pl.Float64(),
    }
    is_series = isinstance(values, pl.Series)
    series = values if is_series else pl.Series(values, dtype=dtypes.get(_dtype(values), pl.String))
    return pl.lit(series).gather(pl.col(column).cast(pl.UInt32))


def _duckdb_position(column: str, words: Sequence[str]) -> Any:
    from duckdb import CaseExpression, ColumnExpression, ConstantExpression, FunctionExpression

    place = FunctionExpression(
        "list_position", ConstantExpression(list(words)), ColumnExpression(column).cast("VARCHAR")
    )
    # DuckDB 2 answers null for a word that is not there, DuckDB 1 answered 0.
    found = CaseExpression(place > ConstantExpression(0), place - ConstantExpression(1))
    return found.cast("SMALLINT")


# SQL engines get a vocabulary as one text that they split once: thousands of literals
# would be parsed again with every step of the plan.
_MARK = "\x1f"


def _packed(values: Values) -> tuple[str, bool]:
    """The values as one text, None as the empty one; and is any None among them."""
    texts = [
        ""
        if value is None
        else str(value).lower()
        if value is True or value is False
        else str(value)
        for value in values
    ]
    return _MARK.join(texts), any(value is None for value in values)


def _duckdb_item(column: str, values: Values) -> Any:
    from duckdb import ColumnExpression, ConstantExpression, FunctionExpression, SQLExpression

    types = {nw.Boolean(): "BOOLEAN", nw.Int16(): "SMALLINT", nw.Float64(): "DOUBLE"}
    wanted = types.get(_dtype(values), "VARCHAR")
    text, has_none = _packed(values)
    quoted = text.replace("'", "''")
    split = f"string_split('{quoted}', '{_MARK}')"
    if not has_none and wanted != "VARCHAR":
        split = f"{split}::{wanted}[]"
    # In a subquery the text is split once, not once per block of rows.
    listed = SQLExpression(f"(SELECT {split})")
    item = FunctionExpression(
        "list_extract", listed, ColumnExpression(column) + ConstantExpression(1)
    )
    if not has_none:
        return item
    return FunctionExpression("nullif", item, ConstantExpression("")).cast(wanted)


def _spark_position(column: str, words: Sequence[str]) -> Any:
    from pyspark.sql import functions as sf

    place = sf.array_position(sf.array(*map(sf.lit, words)), sf.col(column).cast("string"))
    return sf.when(place > 0, place - 1).cast("smallint")


def _spark_item(column: str, values: Values) -> Any:
    from pyspark.sql import functions as sf

    types = {nw.Boolean(): "boolean", nw.Int16(): "smallint", nw.Float64(): "double"}
    wanted = types.get(_dtype(values), "string")
    text, has_none = _packed(values)
    array = sf.split(sf.lit(text), _MARK, -1)
    if not has_none and wanted != "string":
        array = array.cast(f"array<{wanted}>")
    item = sf.get(array, sf.col(column).cast("int"))
    return sf.nullif(item, sf.lit("")).cast(wanted) if has_none else item


def _polars_exploded(
    native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
) -> Any:
    dtypes = {name: pl.Float64 if kind is float else pl.String for name, kind in fields.items()}
    items = pl.col(column).str.json_decode(pl.List(pl.Struct(dtypes)))
    return (
        native.select(*kept, items)
        .with_columns(pl.int_ranges(pl.col(column).list.len()).alias(place))
        .explode(place, column)
        .select(*kept, place, *(pl.col(column).struct.field(name) for name in fields))
    )


def _duckdb_exploded(
    native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
) -> Any:
    kinds = ", ".join(
        f'"{name}": "{"DOUBLE" if kind is float else "VARCHAR"}"' for name, kind in fields.items()
    )
    listed = f"""from_json("{column}", '[{{{kinds}}}]')"""
    names = ", ".join(f'"{name}"' for name in kept)
    items = native.project(
        f'{names}, generate_subscripts({listed}, 1) - 1 AS "{place}", unnest({listed}) AS item'
    )
    picked = ", ".join(f'item."{name}" AS "{name}"' for name in fields)
    return items.project(f'{names}, "{place}", {picked}')


def _spark_exploded(
    native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
) -> Any:
    from pyspark.sql import functions as sf

    kinds = ", ".join(
        f"{name}: {'double' if kind is float else 'string'}" for name, kind in fields.items()
    )
    items = sf.from_json(sf.col(column), f"array<struct<{kinds}>>")
    exploded = native.select(*kept, sf.posexplode(items).alias(place, column))
    picked = (sf.col(f"{column}.{name}").alias(name) for name in fields)
    return exploded.select(*kept, sf.col(place).cast("bigint").alias(place), *picked)


_EXPLODED = by_engine(_polars_exploded, _duckdb_exploded, _spark_exploded)
_POSITIONS: Mapping[nw.Implementation, Maker] = by_engine(
    _polars_position, _duckdb_position, _spark_position
)
_ITEMS: Mapping[nw.Implementation, Maker] = by_engine(_polars_item, _duckdb_item, _spark_item)


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
