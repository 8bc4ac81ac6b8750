"""Every row of every oracle: our rules answer what the real systems' functions answered."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SHARED
from tests.oracles import ADAPTERS, compact

KEPT_BACK = {"agent-orchestrator/oracle_web_attention.csv"}
"""Files that only their owner has; every other one must be here."""

NAMES = sorted(
    name for name in ADAPTERS if name not in KEPT_BACK or (SHARED / "oracles" / name).exists()
)
every_file = pytest.mark.parametrize("name", NAMES)


def read(path: Path) -> pl.DataFrame:
    if path.suffix == ".jsonl":
        return pl.DataFrame({"line": path.read_text(encoding="utf-8").splitlines()})
    return pl.read_csv(path, infer_schema=False)


def expected(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    if rows.columns != ["line"]:
        assert names == [name for name in rows.columns if name in names]
        return rows.select(names)
    lines = [json.loads(line) for line in rows["line"]]
    values = {name: [compact(line.get(name)) for line in lines] for name in names}
    return pl.DataFrame(values, schema=dict.fromkeys(names, pl.String))


def check(name: str, rows: pl.DataFrame) -> None:
    found = ADAPTERS[name](rows)
    assert set(found.dtypes) == {pl.String}
    wanted = expected(rows, found.columns)
    assert found.height == wanted.height
    pairs = pl.concat([found, wanted.rename(lambda column: f"{column} (oracle)")], how="horizontal")
    is_wrong = pl.any_horizontal(
        pl.col(column).ne_missing(pl.col(f"{column} (oracle)")) for column in found.columns
    )
    wrong = pairs.with_row_index("line", offset=2).filter(is_wrong)
    assert wrong.is_empty(), f"{wrong.height} of {found.height} rows: {wrong.head(3).to_dicts()}"


@every_file
def test_every_row_equals_its_oracle(oracles: Path, name: str) -> None:
    check(name, read(oracles / name))


@pytest.mark.slow
@every_file
def test_the_order_and_number_of_rows_does_not_matter(oracles: Path, name: str) -> None:
    rows = read(oracles / name)
    check(name, rows.sample(fraction=1, shuffle=True, seed=7))
    check(name, rows.head(1))
    assert ADAPTERS[name](rows.clear()).height == 0


@pytest.mark.slow
@every_file
def test_an_adapter_reads_input_columns_only(oracles: Path, name: str) -> None:
    rows = read(oracles / name)
    found = ADAPTERS[name](rows)
    if rows.columns == ["line"]:
        lines = [json.loads(line) for line in rows["line"]]
        inputs = [json.dumps({k: v for k, v in line.items() if k not in found}) for line in lines]
        assert ADAPTERS[name](pl.DataFrame({"line": inputs})).equals(found)
    else:
        assert ADAPTERS[name](rows.drop(found.columns)).equals(found)
