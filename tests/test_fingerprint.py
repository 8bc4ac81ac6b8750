"""The digest of frames: what it sees and what it does not."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing.parametric import dataframes

from stateanalytics.core import schema
from stateanalytics.io import parts
from stateanalytics.io.parts import fingerprint
from tests.examples import examples

ROWS = pl.DataFrame(
    {
        "id": ["a", "bc", None],
        "n": [1, None, 3],
        "x": [1.5, 2.5, None],
        "is_on": [True, None, False],
        "at": [datetime(2026, 5, 26, tzinfo=UTC), None, None],
        "tone": pl.Series(["info", None, "danger"], dtype=pl.Enum(schema.TONES)),
        "nothing": [None, None, None],
    }
)


def test_the_digest_stays_the_same_from_release_to_release():
    known = "7b47ec362322d4dc83141ef95c81d38122b5fa8a2a5c49f22caf4650a4e46c8a"
    assert fingerprint([ROWS]) == known
    assert fingerprint([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(ROWS.reverse(), id="order of rows"),
        pytest.param(ROWS.select(ROWS.columns[::-1]), id="order of columns"),
        pytest.param(ROWS.rename({"id": "ID"}), id="name"),
        pytest.param(ROWS.with_columns(pl.col("n").fill_null(0)), id="null and zero"),
        pytest.param(ROWS.with_columns(pl.col("id").fill_null("")), id="null and empty"),
        pytest.param(ROWS.with_columns(pl.col("n").cast(pl.Float64)), id="type"),
        pytest.param(ROWS.with_columns(id=pl.Series(["ab", "c", None])), id="where text is cut"),
        pytest.param(ROWS.head(2), id="rows left out"),
        pytest.param(pl.concat([ROWS, ROWS]), id="rows twice"),
        pytest.param(ROWS.clear(), id="no rows"),
    ],
)
def test_every_change_of_rows_is_seen(changed):
    assert fingerprint([changed]) != fingerprint([ROWS])


def test_which_frame_a_column_is_in_is_seen():
    apart = [ROWS.select("id"), ROWS.select("n")]
    assert fingerprint(apart) != fingerprint([ROWS.select("id", "n")])
    assert fingerprint(apart) != fingerprint(apart[::-1])
    assert fingerprint([ROWS, ROWS.clear()]) != fingerprint([ROWS])


@examples(30)
@given(
    frame=dataframes(max_size=8, allowed_dtypes=[pl.String, pl.Int64, pl.Float64, pl.Boolean]),
    cut=st.integers(0, 8),
)
def test_how_rows_lie_in_memory_is_not_seen(frame, cut):
    whole = fingerprint([frame])
    assert fingerprint([pl.concat([frame[:cut], frame[cut:]], rechunk=False)]) == whole
    around = pl.concat([frame, frame, frame])
    assert fingerprint([around[frame.height : 2 * frame.height]]) == whole


@pytest.mark.parametrize("n_kept", [0, 3, 4, 9])
def test_pieces_that_are_as_before_are_not_digested_again(monkeypatch, n_kept):
    monkeypatch.setattr(parts, "_PIECE", 4)
    rows = pl.concat([ROWS] * 4)
    [before] = parts.digested([[rows]])
    changed = pl.concat([rows.head(n_kept), ROWS.reverse(), rows])
    [again] = parts.digested([[changed]], before)
    assert again.fingerprint == fingerprint([changed]) != before.fingerprint
    each = parts.digested([[changed], [rows]])
    assert [one.fingerprint for one in each] == [again.fingerprint, before.fingerprint]
