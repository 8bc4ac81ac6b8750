"""The engines that every rule must agree on: mark a test with ``@on_every_engine``."""

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.conftest import absent
from tests.examples import a_few


@dataclass(frozen=True)
class Engine:
    """How a polars frame gets into an engine, and a result out of it again."""

    name: str
    of: Callable[[pl.DataFrame], Any]
    back: Callable[[Any], pl.DataFrame]

    def __repr__(self) -> str:
        return self.name


def _relation(frame: pl.DataFrame) -> duckdb.DuckDBPyRelation:
    # A connection of its own: relations must not depend on the default one.
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    return connection.from_arrow(frame.to_arrow())


@cache
def spark() -> Any:
    """One small Spark for all tests; started by the first that needs it."""
    if not importlib.util.find_spec("pyspark") or not shutil.which("java"):
        absent("PySpark with a Java runtime")
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("stateanalytics")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _spark_frame(frame: pl.DataFrame) -> Any:
    # Spark has no type for coded words; a user's Parquet file has none either.
    plain = frame.with_columns(
        pl.col(name).cast(pl.String)
        for name, dtype in frame.schema.items()
        if isinstance(dtype, (pl.Categorical, pl.Enum))
    )
    return spark().createDataFrame(plain.to_arrow())


def _from_spark(result: Any) -> pl.DataFrame:
    found = pl.from_arrow(result.toArrow())
    assert isinstance(found, pl.DataFrame)
    return found


POLARS = Engine("polars", lambda frame: frame, lambda result: result)
LAZY = Engine("polars lazy", lambda frame: frame.lazy(), lambda result: result.collect())
ARROW = Engine("pyarrow", lambda frame: frame.to_arrow(), pl.from_arrow)
DUCKDB = Engine("duckdb", _relation, lambda result: pl.from_arrow(result.to_arrow_table()))
SPARK = Engine("spark", _spark_frame, _from_spark)

_EACH = [
    *(pytest.param(engine, id=engine.name) for engine in (POLARS, LAZY, ARROW, DUCKDB)),
    pytest.param(SPARK, id="spark", marks=pytest.mark.spark),
]
on_every_engine = pytest.mark.parametrize("engine", _EACH)
on_every_engine_in_time = pytest.mark.parametrize("engine", a_few(_EACH))
"""What is long on a slow engine: all but polars in CI only."""

on_polars_first = pytest.mark.parametrize(
    "engine",
    [
        *a_few(pytest.param(engine, id=engine.name) for engine in (LAZY, POLARS, ARROW, DUCKDB)),
        pytest.param(SPARK, id="spark", marks=pytest.mark.spark),
    ],
)
"""The same; `make test` runs lazy polars alone, where a test nearby tries all of them."""


def assert_same_rows(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Same columns and rows; the order of rows and the width of numbers may differ."""
    plain = {
        name: pl.String if isinstance(dtype, (pl.Enum, pl.Categorical)) else dtype
        for name, dtype in expected.schema.items()
    }
    assert_frame_equal(
        found.select(pl.col(name).cast(dtype) for name, dtype in plain.items()),
        expected.cast(plain),
        check_row_order=False,
    )
