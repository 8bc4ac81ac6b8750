"""Every row of every oracle of lionagi: the bulk rule says what lionagi itself said."""

import polars as pl
import pytest

from tests.oracles import ADAPTERS, LIONAGI


def read_oracle(path):
    return pl.read_csv(path, infer_schema=False)


def differences(expected, got):
    """Rows where the rule says something else, both answers side by side."""
    sides = pl.concat(
        [
            expected.rename(lambda name: f"{name} (oracle)"),
            got.rename(lambda name: f"{name} (rule)"),
        ],
        how="horizontal",
    )
    wrong = pl.any_horizontal(
        pl.col(f"{name} (oracle)").ne_missing(pl.col(f"{name} (rule)")) for name in got.columns
    )
    return sides.with_row_index("line", offset=2).filter(wrong)


@pytest.fixture(params=sorted(LIONAGI))
def name(request):
    return request.param


def test_every_row_equals_its_oracle(oracles, name):
    rows = read_oracle(oracles / name)
    got = ADAPTERS[name](rows)
    assert got.columns == [column for column in rows.columns if column in got.columns]
    assert set(got.dtypes) == {pl.String}
    wrong = differences(rows.select(got.columns), got)
    with pl.Config(tbl_rows=20, tbl_cols=-1, fmt_str_lengths=60):
        assert wrong.is_empty(), f"{name}: {wrong.height} of {rows.height} rows\n{wrong}"


def test_an_adapter_reads_input_columns_only(oracles, name):
    rows = read_oracle(oracles / name)
    got = ADAPTERS[name](rows)
    assert ADAPTERS[name](rows.drop(got.columns)).equals(got)


def test_row_order_does_not_matter(oracles, name):
    rows = read_oracle(oracles / name)
    shuffled = rows.sample(fraction=1, shuffle=True, seed=1)
    back = ADAPTERS[name](shuffled)
    wrong = differences(shuffled.select(back.columns), back)
    assert wrong.is_empty()


def test_no_rows_give_no_rows(oracles, name):
    rows = read_oracle(oracles / name)
    assert ADAPTERS[name](rows.clear()).height == 0


def test_every_oracle_file_has_an_adapter(oracles):
    files = {f"lionagi/{path.name}" for path in (oracles / "lionagi").glob("*.csv")}
    assert files <= set(ADAPTERS)
