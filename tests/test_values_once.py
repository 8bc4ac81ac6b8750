"""Columns that say one thing throughout take no memory, and say the same."""

import io
import pickle
from itertools import cycle, islice

import polars as pl
import pytest

from stateanalytics.core.joins import with_scalar_columns

N = 20_000
LEVELS = pl.Enum(["low", "high"])


def _rows(values, dtype):
    column = pl.Series("x", list(islice(cycle(values), N)), dtype)
    return pl.DataFrame({"id": range(N), "x": column, "y": column})


@pytest.mark.parametrize(
    ("values", "dtype", "is_once"),
    [
        pytest.param(["s"], pl.String, True, id="one text"),
        pytest.param([""], pl.String, None, id="empty text"),
        pytest.param([None], pl.String, None, id="no text"),
        pytest.param(["a", "b"], pl.String, False, id="two texts"),
        pytest.param(["a", *["b"] * 8, "a", "a"], pl.String, False, id="the same at both ends"),
        pytest.param(["a", None], pl.String, False, id="a text or none"),
        pytest.param([None, "a"], pl.String, False, id="none or a text"),
        pytest.param([True], pl.Boolean, True, id="always true"),
        pytest.param([False], pl.Boolean, True, id="never true"),
        pytest.param([False, None], pl.Boolean, False, id="false or not known"),
        pytest.param([None], LEVELS, True, id="no word"),
        pytest.param(["low", "high"], LEVELS, False, id="two words"),
        pytest.param([None], pl.Datetime("us", "UTC"), True, id="no moment"),
        pytest.param([0.0, -0.0], pl.Float64, False, id="two zeros"),
    ],
)
def test_rows_are_the_same_and_take_less(values, dtype, is_once):
    rows = _rows(values, dtype)
    kept = with_scalar_columns(rows)
    if is_once is not None:  # of texts polars counts the letters alone
        assert (kept.estimated_size() < rows.estimated_size() - N // 8) == is_once
    assert (kept.columns, kept.schema) == (rows.columns, rows.schema)
    whole = kept.lazy().filter(pl.col("id") > 5).sort("id", descending=True).collect()
    assert whole.equals(rows.filter(pl.col("id") > 5).reverse())
    assert pickle.loads(pickle.dumps(kept)).equals(rows)
    assert pl.DataFrame(kept.to_arrow()).cast(dict(rows.schema)).equals(rows)
    file = io.BytesIO()
    kept.write_parquet(file)
    assert pl.read_parquet(file.getvalue()).equals(rows)
    assert kept.equals(rows)


def test_few_rows_are_left_as_they_are():
    rows = _rows(["s"], pl.String).head(100)
    assert with_scalar_columns(rows) is rows
