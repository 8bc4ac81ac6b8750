"""The command ``failures``: what it prints, narrows, masks and refuses."""

import json

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run
from tests.examples import a_few
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")
STORE = str(SAMPLES / "state.db")
SHOWS = ("clusters", "parameters", "lift", "incidents", "mass", "related")
SHOWN_ELSEWHERE = ("codes", "members", "change")


@pytest.fixture(scope="module")
def clusters(demo):
    return sa.failures.clusters(demo)


def rows_of(capsys, *arguments):
    assert run(["failures", STORE, "--format", "json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("show", [*a_few(SHOWS, 2), *a_few(SHOWN_ELSEWHERE, 0)])
def test_every_answer_is_a_table_for_eyes(capsys, monkeypatch, show):
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["failures", STORE, "--show", show, "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert "(2 rows)" in said.out
    assert "did not fit" not in said.err
    assert "\x1b" not in said.out


def test_clusters_are_those_of_the_library(capsys, demo):
    found = rows_of(capsys, "--week", "2026-W21")
    expected = sa.failures.clusters(demo, window="2026-W21")
    assert [row["cluster_id"] for row in found] == expected["cluster_id"].to_list()


def test_a_code_and_a_cluster_narrow(capsys, clusters):
    found = rows_of(capsys, "--code", "run.failed", "--show", "codes")
    assert {row["code"][:10] for row in found} == {"run.failed"}
    row = clusters.row(0, named=True)
    members = rows_of(capsys, "--show", "members", "--cluster", row["cluster_id"])
    assert len(members) == row["n_rows"]


def test_secrets_are_masked_and_counted_unless_asked_for(capsys):
    assert run(["failures", STORE, "--show", "members", "--format", "csv"]) == 0
    masked = capsys.readouterr()
    assert "masked: " in masked.err and "× API key" in masked.err
    assert "sk-test-" not in masked.out
    assert run(["failures", STORE, "--show", "members", "--format", "csv", "--no-redact"]) == 0
    whole = capsys.readouterr()
    assert "sk-test-" in whole.out and "masked" not in whole.err


@pytest.mark.slow
def test_rules_and_another_store_are_read(capsys, tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nname = 'limits'\naction = 'merge'\nmessage = 'rate limit'\n")
    assert "limits" in {row["template"] for row in rows_of(capsys, "--rules", str(path))}
    [applied] = rows_of(capsys, "--rules", str(path), "--show", "rules")
    assert applied["n_rows"] > 20
    change = rows_of(capsys, "--show", "change", "--against", STORE, "--week", "2026-W21")
    assert {"new", "unclear", "gone"} == {row["status"] for row in change}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--show", "rules"], "no rules to show. Hint: --rules"),
        (["--against", STORE], "--against belongs to --show change"),
        (["--leave-out-mass"], "--leave-out-mass belongs to --show change"),
        (["--cluster", "v1:no"], "There is no cluster 'v1:no' here; there are"),
        (["--show", "incidents", "--cluster", "v1:no"], "--cluster does not narrow"),
        (["--rules", "no.toml"], "cannot be read"),
        (["--week", "2026-W21", "--since", "2026-05-01"], "found both"),
    ],
)
def test_what_makes_no_sense_is_one_line_that_helps(capsys, arguments, words):
    assert run(["failures", STORE, *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err and said.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_has_ids_that_lead_to_the_rows(capsys, monkeypatch, clusters, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["failures", STORE]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:5] == ["id", "state", "n_incidents", "cost", "run"]
    assert "template" in table[0] and ("code" in table[0]) == (width == 160)
    assert max(map(len, table)) <= width
    first = clusters.row(0, named=True)
    brief = table[2].split()[0]
    assert first["cluster_id"].removeprefix("v1:").startswith(brief)
    assert len(rows_of(capsys, "--cluster", brief)) == first["n_rows"]


def test_a_window_in_which_nothing_failed_says_so_and_what_was_read(capsys):
    assert run(["failures", STORE, "--show", "codes", "--week", "2020-W01"]) == 0
    said = capsys.readouterr().err
    assert "nothing of this in week 2020-W01" in said
    assert "the data that were read go from 20" in said


@pytest.mark.slow
def test_a_code_that_nothing_has_names_one_that_is_like_it(capsys):
    assert run(["failures", STORE, "--show", "codes", "--code", "run.faild"]) == 0
    assert "nothing here has code run.faild or one below it; did you" in capsys.readouterr().err


def test_a_file_holds_every_column(tmp_path, clusters):
    path = tmp_path / "clusters.parquet"
    assert run(["failures", STORE, "-o", str(path)]) == 0
    assert pl.read_parquet(path).columns == clusters.columns
