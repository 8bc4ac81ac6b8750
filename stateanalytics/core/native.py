"""Expressions that rules need and Narwhals lacks, for polars, DuckDB and Spark.

Each class has the same methods: the position of a word in a vocabulary, the value at a position,
ages and differences of times, and JSON lists as rows.
`stateanalytics.core.engines` chooses the class by the frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import polars as pl

Value = str | int | float | bool | None
Values = Sequence[Value] | pl.Series


class _Polars:
    """Expressions of polars; columns are given by name."""

    def with_columns(self, native: Any, columns: Mapping[str, Any]) -> Any:
        """The frame with new columns, or columns replaced."""
        return native.with_columns(**columns)

    def position(self, column: str, words: Sequence[str]) -> Any:
        """Position of each word in a vocabulary; null outside of it."""
        return pl.col(column).cast(pl.Enum(words), strict=False).to_physical()

    def item(self, column: str, values: Values) -> Any:
        """The value at each position from 0; null where that is null."""
        dtypes = {str: pl.String, float: pl.Float64, bool: pl.Boolean, int: pl.Int16}
        is_series = isinstance(values, pl.Series)
        series = values if is_series else pl.Series(values, dtype=dtypes[_kind_of(values)])
        return pl.lit(series).gather(pl.col(column).cast(pl.UInt32))

    def age_s(self, column: str, now_us: int) -> Any:
        """Seconds from a moment to an instant in epoch microseconds; the epoch is never."""
        at = pl.col(column).dt.epoch("us")
        return pl.when(at != 0).then((pl.lit(now_us) - at) / _million())

    def span_s(self, earlier: str, later: str) -> Any:
        """Seconds between two moments."""
        return (pl.col(later).dt.epoch("us") - pl.col(earlier).dt.epoch("us")) / _million()

    def explode(
        self, native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
    ) -> Any:
        """See `engines.explode_json`; ``kept`` are the other columns."""
        dtypes = {name: pl.Float64 if kind is float else pl.String for name, kind in fields.items()}
        items = pl.col(column).str.json_decode(pl.List(pl.Struct(dtypes)))
        return (
            native.select(*kept, items)
            .with_columns(pl.int_ranges(pl.col(column).list.len()).alias(place))
            .explode(place, column)
            .select(*kept, place, *(pl.col(column).struct.field(name) for name in fields))
        )


def _million() -> pl.Expr:
    """1,000,000 as a column.

    polars divides by a constant by multiplying with its inverse, which changes the last bit. It
    divides by a column as IEEE 754 says, like the other engines.
    """
    return (pl.int_range(pl.len(), dtype=pl.Int64) * 0 + 1_000_000).cast(pl.Float64)


class _DuckDB:
    """Expressions of DuckDB, which is imported only when they are used."""

    def with_columns(self, native: Any, columns: Mapping[str, Any]) -> Any:
        import duckdb

        kept = {name: duckdb.ColumnExpression(name) for name in native.columns}
        added = {name: expression.alias(name) for name, expression in columns.items()}
        return native.select(*{**kept, **added}.values())

    def position(self, column: str, words: Sequence[str]) -> Any:
        from duckdb import CaseExpression, ColumnExpression, ConstantExpression, FunctionExpression

        text = ColumnExpression(column).cast("VARCHAR")
        place = FunctionExpression("list_position", ConstantExpression(list(words)), text)
        # DuckDB 2 answers null for a word that is not there, DuckDB 1 answered 0.
        is_listed = place > ConstantExpression(0)
        return CaseExpression(is_listed, place - ConstantExpression(1)).cast("SMALLINT")

    def item(self, column: str, values: Values) -> Any:
        from duckdb import ColumnExpression, ConstantExpression, FunctionExpression, SQLExpression

        types = {str: "VARCHAR", float: "DOUBLE", bool: "BOOLEAN", int: "SMALLINT"}
        dtype = types[_kind_of(values)]
        text, has_none = _joined(values)
        quoted = text.replace("'", "''")
        split = f"string_split('{quoted}', '{_SEPARATOR}')"
        if not has_none and dtype != "VARCHAR":
            split = f"{split}::{dtype}[]"
        # In a subquery the text is split once instead of once per block of rows.
        items = SQLExpression(f"(SELECT {split})")
        place = ColumnExpression(column) + ConstantExpression(1)
        item = FunctionExpression("list_extract", items, place)
        if not has_none:
            return item
        return FunctionExpression("nullif", item, ConstantExpression("")).cast(dtype)

    def age_s(self, column: str, now_us: int) -> Any:
        from duckdb import CaseExpression, ConstantExpression

        at = _duckdb_microseconds(column)
        age = (ConstantExpression(now_us) - at) / ConstantExpression(1e6)
        return CaseExpression(at != ConstantExpression(0), age)

    def span_s(self, earlier: str, later: str) -> Any:
        from duckdb import ConstantExpression

        span = _duckdb_microseconds(later) - _duckdb_microseconds(earlier)
        return span / ConstantExpression(1e6)

    def explode(
        self, native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
    ) -> Any:
        kinds = ", ".join(
            f'"{name}": "{"DOUBLE" if kind is float else "VARCHAR"}"'
            for name, kind in fields.items()
        )
        items = f"""from_json("{column}", '[{{{kinds}}}]')"""
        names = ", ".join(f'"{name}"' for name in kept)
        places = f'generate_subscripts({items}, 1) - 1 AS "{place}"'
        exploded = native.project(f"{names}, {places}, unnest({items}) AS item")
        picked = ", ".join(f'item."{name}" AS "{name}"' for name in fields)
        return exploded.project(f'{names}, "{place}", {picked}')


def _duckdb_microseconds(column: str) -> Any:
    from duckdb import ColumnExpression, FunctionExpression

    return FunctionExpression("epoch_us", ColumnExpression(column))


class _Spark:
    """Expressions of Spark; an extra installs it."""

    def with_columns(self, native: Any, columns: Mapping[str, Any]) -> Any:
        return native.withColumns(dict(columns))

    def position(self, column: str, words: Sequence[str]) -> Any:
        from pyspark.sql import functions as sf

        place = sf.array_position(sf.array(*map(sf.lit, words)), sf.col(column).cast("string"))
        return sf.when(place > 0, place - 1).cast("smallint")

    def item(self, column: str, values: Values) -> Any:
        from pyspark.sql import functions as sf

        types = {str: "string", float: "double", bool: "boolean", int: "smallint"}
        dtype = types[_kind_of(values)]
        text, has_none = _joined(values)
        items = sf.split(sf.lit(text), _SEPARATOR, -1)
        if not has_none and dtype != "string":
            items = items.cast(f"array<{dtype}>")
        item = sf.get(items, sf.col(column).cast("int"))
        return sf.nullif(item, sf.lit("")).cast(dtype) if has_none else item

    def age_s(self, column: str, now_us: int) -> Any:
        from pyspark.sql import functions as sf

        at = _spark_microseconds(column)
        return sf.when(at != 0, (sf.lit(now_us) - at) / 1e6)

    def span_s(self, earlier: str, later: str) -> Any:
        return (_spark_microseconds(later) - _spark_microseconds(earlier)) / 1e6

    def explode(
        self, native: Any, kept: list[str], column: str, fields: Mapping[str, type], place: str
    ) -> Any:
        from pyspark.sql import functions as sf

        kinds = ", ".join(
            f"{name}: {'double' if kind is float else 'string'}" for name, kind in fields.items()
        )
        items = sf.from_json(sf.col(column), f"array<struct<{kinds}>>")
        exploded = native.select(*kept, sf.posexplode(items).alias(place, column))
        picked = (sf.col(f"{column}.{name}").alias(name) for name in fields)
        return exploded.select(*kept, sf.col(place).cast("bigint").alias(place), *picked)


def _spark_microseconds(column: str) -> Any:
    from pyspark.sql import functions as sf

    return sf.unix_micros(sf.col(column).cast("timestamp"))


Engine = _Polars | _DuckDB | _Spark
ENGINES: Mapping[nw.Implementation, Engine] = {
    nw.Implementation.POLARS: _Polars(),
    nw.Implementation.DUCKDB: _DuckDB(),
    nw.Implementation.PYSPARK: _Spark(),
    nw.Implementation.PYSPARK_CONNECT: _Spark(),
}


def _kind_of(values: Values) -> type:
    """The type of the values that are not None; text where all are."""
    kinds = {type(value) for value in values}
    return next((kind for kind in (str, float, bool, int) if kind in kinds), str)


# SQL engines get a vocabulary as one text and split it once. Thousands of literals would be
# parsed again in each step of the plan.
_SEPARATOR = "\x1f"


def _joined(values: Values) -> tuple[str, bool]:
    """The values as one text, with None as an empty text; and whether there is a None."""
    words = {None: "", True: "true", False: "false"}
    texts = [
        words[value] if value is None or isinstance(value, bool) else str(value) for value in values
    ]
    return _SEPARATOR.join(texts), any(value is None for value in values)
