"""Signs of struggle are found in labelled sessions, and none in ordinary ones."""

import polars as pl
import pytest

from tests.conftest import ROOT
from tests.examples import some_of
from tests.labelled_sessions import scores, table_of

LOOPS = ("repeated_call", "repeated_error", "alternating")


def assert_good_enough(found):
    """The goals: recall of loops .95, precision of every sign .9, no sign in a control."""
    signs = found.drop_nulls("sign").with_columns(
        precision=pl.col("n_right") / pl.col("n_found"),
        recall=pl.col("n_right") / pl.col("n_labelled"),
    )
    assert signs.filter(pl.col("precision") < 0.9).is_empty()
    assert signs.filter(pl.col("recall") < 0.9).is_empty()
    assert signs.filter(pl.col("sign").is_in(LOOPS), pl.col("recall") < 0.95).is_empty()
    assert found.filter(pl.col("sign").is_null())["n_found"].sum() == 0


@pytest.mark.slow
def test_a_few_labelled_sessions(tmp_path):
    assert_good_enough(scores(tmp_path, seed=7, n_each=2, n_controls=10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12][: some_of(2, 2)])
def test_many_labelled_sessions(tmp_path, seed):
    assert_good_enough(scores(tmp_path, seed=seed, n_each=12, n_controls=350))


@pytest.mark.slow
def test_the_table_of_the_page_is_of_the_generator(tmp_path):
    page = (ROOT / "docs" / "effort.md").read_text()
    assert table_of(scores(tmp_path, seed=1)) in page
