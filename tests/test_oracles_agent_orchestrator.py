"""Every row of Agent Orchestrator's oracle files, through the same door as the rows kept back."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SHARED
from tests.examples import a_few
from tests.oracles_agent_orchestrator import ADAPTERS, FILES, compact

KEPT_BACK = {
    "oracle_determine_status_final.csv.gz",
    "oracle_recovery.csv",
    "oracle_role.csv",
    "oracle_web_attention.csv",
}
"""Files that only their owner has; every other one must be here."""
WHOLE = {"activity_event_kinds_final_ts.csv"}
POLLS = "oracle_poll_trajectories.csv"
IN_SEQUENCE = {POLLS, "oracle_detecting_sequences.csv"}
RECORD_INPUTS = ("id", "tag", "now", "meta", "options")


def is_here(name: str) -> bool:
    """Named here, so that a file that is missing fails instead of dropping its case."""
    kept_back = SHARED / "oracles" / "agent-orchestrator" / name
    return name not in KEPT_BACK or kept_back.exists()


NAMES = sorted(filter(is_here, FILES))


@pytest.fixture(scope="module")
def folder(oracles: Path) -> Path:
    return oracles / "agent-orchestrator"


def read(path: Path) -> pl.DataFrame:
    if path.suffix == ".jsonl":
        return pl.DataFrame({"line": path.read_text(encoding="utf-8").splitlines()})
    return pl.read_csv(path, infer_schema=False)


def outputs_of_lines(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    lines = [json.loads(line) for line in rows["line"]]
    keys = list(dict.fromkeys(key for line in lines for key in line if key not in RECORD_INPUTS))
    assert keys == names
    return pl.DataFrame(
        {name: [compact(line.get(name)) for line in lines] for name in names},
        schema=dict.fromkeys(names, pl.String),
    )


def expected(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    if rows.columns == ["line"]:
        return outputs_of_lines(rows, names)
    assert rows.columns[-len(names) :] == names, "the outputs are the file's last columns, in order"
    return rows.select(names)


def check(name: str, rows: pl.DataFrame) -> None:
    got = ADAPTERS[f"agent-orchestrator/{name}"](rows)
    assert set(got.dtypes) == {pl.String}
    want = expected(rows, got.columns)
    assert got.height == want.height
    unequal = pl.any_horizontal(
        pl.col(column).ne_missing(pl.col(f"want_{column}")) for column in got.columns
    )
    beside = pl.concat([got, want.rename(lambda column: f"want_{column}")], how="horizontal")
    wrong = beside.filter(unequal)
    assert wrong.height == 0, f"{wrong.height} of {got.height} rows: {wrong.head(3).to_dicts()}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == POLLS)) for name in NAMES]
)
def test_every_row_that_is_here_holds(folder: Path, name: str) -> None:
    check(name, read(folder / name))


def test_the_first_polls_hold(folder: Path) -> None:
    """Each poll goes on from those before it, so that a beginning stands by itself."""
    check(POLLS, read(folder / POLLS).head(150))


def test_every_file_has_an_adapter(folder: Path) -> None:
    files = {path.name for path in folder.iterdir() if path.suffix != ".md"}
    assert files == set(NAMES)


@pytest.mark.parametrize(
    "name", a_few([name for name in NAMES if name not in WHOLE | IN_SEQUENCE], 8)
)
def test_the_order_and_number_of_rows_does_not_matter(folder: Path, name: str) -> None:
    rows = read(folder / name)
    few = rows.sample(min(rows.height, 97), shuffle=True, seed=7)
    check(name, few)
    check(name, rows.head(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(IN_SEQUENCE))
def test_polls_in_any_order_replay_the_same(folder: Path, name: str) -> None:
    rows = read(folder / name)
    check(name, rows.sample(fraction=1, shuffle=True, seed=11))


@pytest.mark.parametrize(
    "name",
    a_few([name for name in NAMES if name not in WHOLE and not name.endswith(".jsonl")], 8),
)
def test_an_adapter_reads_no_output(folder: Path, name: str) -> None:
    adapter, few = ADAPTERS[f"agent-orchestrator/{name}"], read(folder / name).head(5)
    outputs = adapter(few).columns
    assert adapter(few.drop(outputs)).equals(adapter(few))
