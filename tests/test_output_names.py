"""The name of an output says what is written, and where: nothing lands in a place by surprise."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run as cli
from stateanalytics.errors import ArgumentError
from tests.conftest import SHIPPED

PLACES = ("s3://bucket/history/", "gs://b/x.html", "https://host/x.duckdb", "abfss://c@a/x")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, which must stay so."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", PLACES)
def test_a_scheme_is_refused_by_name_and_makes_no_folder(demo, here, place):
    scheme = place.partition(":")[0]
    for write in (
        demo.archive,
        demo.export,
        lambda to: sa.report(demo, sections=["headline"]).write_html(to),
        sa.read,
        lambda to: sa.collect(str(SHIPPED["claude_code"]), to=to),
        sa.summarize(demo).write,
        sa.Summary.read,
    ):
        with pytest.raises(ArgumentError, match=f"by the scheme '{scheme}'"):
            write(place)
    for words in (["archive", str(SHIPPED["lionagi"]), "--to", place], ["attention", place]):
        assert cli(words) == 2


def test_report_writes_to_standard_output(here, capsysbinary):
    words = ["report", str(SHIPPED["claude_code"]), "-o", "-", "--sections", "headline"]
    assert cli(words) == 0
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"<!doctype html>") or out.startswith(b"<!DOCTYPE html>")
    assert out.rstrip().endswith(b"</html>")
    assert b"wrote" not in out + err
    assert cli([*words, "-f", "json"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"{")


def test_one_table_is_one_csv_file(demo, tmp_path):
    path = demo.export(tmp_path / "x.csv", tables=["states"])
    assert path.is_file()
    read = pl.read_csv(path, infer_schema_length=None)
    assert read.height == sa.states(demo).height
    assert demo.export(tmp_path / "x.parquet", tables=["states"]).is_file()


def test_a_csv_file_runs_no_formula(demo, tmp_path):
    own = demo.with_table("t", pl.DataFrame({"a": ["=1+1", "fine"]}))
    own.export(tmp_path / "x.csv", tables=["t"])
    assert (tmp_path / "x.csv").read_text().splitlines()[1].startswith("'=")


def test_several_tables_are_no_csv_file(demo, here):
    with pytest.raises(ArgumentError, match=r"A \.csv file holds one table; found 2"):
        demo.export("x.csv", tables=["states", "entities"])
