"""Each column of an overwritten row has one clock, and one function cuts rows by them."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateanalytics.core import schema
from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.systems import history
from stateanalytics.systems.history import clocks_of, values_at
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.opencode.gathered import USAGE

CLOCKS = {
    "end_ms": "own moment",
    "code": "end_ms",
    "n": "update",
    "status": "transition",
    "id": "static",
}
COLUMNS = ("end_ms", "code", "n", "status", "id", "log_status", "is_written")
numbers = st.none() | st.integers(0, 9)


def cut(row, at):
    """One row, cut the slow and obvious way."""
    is_over = row["is_written"] if row["end_ms"] is None else row["end_ms"] <= at
    shown = {"end_ms": row["end_ms"] if is_over else None, "code": row["code"] if is_over else None}
    n, status = (row["n"], row["status"]) if row["is_written"] else (None, row["log_status"])
    return {**row, **shown, "n": n, "status": status}


@settings(deadline=None)
@given(st.lists(st.tuples(*[numbers] * 6, st.booleans()), max_size=6), st.integers(0, 9))
def test_a_value_is_known_by_its_clock_alone(rows, at):
    types = dict.fromkeys(COLUMNS, pl.Int64) | {"is_written": pl.Boolean}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    values = frame.with_columns(**values_at(at, CLOCKS, pl.col("is_written")))
    assert values.to_dicts() == [cut(row, at) for row in frame.to_dicts()]


def test_every_clock_is_of_a_column_that_there_is():
    assert set(history.CLOCKS) == set(schema.ENTITIES.dtypes)
    assert set(history.LOST_OF.values()) <= {*history.LOST, "end"}
    of_lionagi = {shape.name.removeprefix("lionagi_"): shape for shape in frames.FRAMES}
    for table, clocks in clocks_of("stateanalytics.systems.lionagi").items():
        assert {*clocks, *clocks.values()} <= {*of_lionagi[table].dtypes, "own moment"}


@pytest.mark.parametrize(
    ("table", "columns"), [("messages", USAGE), ("parts", [*INPUTS.dtypes, *RESULTS.dtypes])]
)
def test_what_the_end_of_a_record_of_opencode_writes_has_its_clock(table, columns):
    assert set(columns) <= set(clocks_of("stateanalytics.systems.opencode")[table])
