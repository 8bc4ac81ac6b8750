"""Tables of one's own in SQL, and everything in a file that other programs open."""

import json
import sqlite3
import stat
import zipfile
from contextlib import closing
from datetime import date, datetime, timedelta

import duckdb
import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run as cli
from stateanalytics.errors import ArgumentError, MissingComponentError, QueryRefusedError
from stateanalytics.io import frame_files
from tests.samples import SAMPLES
from tests.test_sql import EVENTS, SESSIONS, snapshot

TEAMS = pl.DataFrame({"kind": ["agent", "=1+1"], "owner": ["ann", "bob"]})
FORMULA = '=HYPERLINK("http://x.invalid","y")'
SECRET = "DB_PASS=hunter2"


@pytest.fixture(scope="module")
def snap():
    return snapshot(SESSIONS, events=EVENTS)


def test_a_table_of_ones_own_is_joined_and_described(snap, tmp_path):
    mine = snap.with_table("teams", TEAMS)
    expected = [(name,) for name in ("ann", "bob")]
    assert mine.sql("SELECT owner FROM teams ORDER BY ALL").rows() == expected
    assert mine.schema("teams")["dtype"].to_list() == ["text", "text"]
    assert ("teams",) in mine.sql("SELECT name FROM tables").rows()
    assert "teams" not in snap._tables_for(None)
    TEAMS.write_csv(tmp_path / "t.csv")
    TEAMS.write_parquet(tmp_path / "t.parquet")
    TEAMS.write_ndjson(tmp_path / "t.jsonl")
    TEAMS.write_json(tmp_path / "t.json")
    for rows in (*tmp_path.iterdir(), TEAMS.lazy(), pl.scan_csv(tmp_path / "t.csv")):
        assert snap.with_table("teams", rows).own_tables["teams"].equals(TEAMS), rows


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("entities", TEAMS, "There is a table 'entities' already"),
        ("raw_teams", TEAMS, "cannot be called 'raw_teams'"),
        ("Teams", TEAMS, "cannot be called 'Teams'"),
        ("a b; DROP", TEAMS, "cannot be called"),
        (None, TEAMS, "cannot be called None"),
        ("t", 7, "found int 7"),
        ("t", pl.DataFrame({"a": [1], "A": [2]}), "are the same in SQL: 'a', 'A'"),
        ("t", pl.DataFrame({"a": [object()]}, schema={"a": pl.Object}), "contains Python objects"),
        ("t", "no/such.csv", "The table 'no/such.csv' cannot be read: No such file"),
        ("t", "teams.exe", "not a table that can be read"),
        ("t", "empty.csv", "The table 'empty.csv' cannot be read"),
        ("t", "~nobody-of-that-name/t.csv", "cannot be read: Could not determine home"),
        ("t", pl.DataFrame(), "Table 't' has no columns"),
        ("t", "/dev/zero", "not a table that can be read"),
    ],
)
def test_what_is_no_table_is_one_line(snap, tmp_path, monkeypatch, name, rows, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ArgumentError, match=words):
        snap.with_table(name, rows)


@pytest.mark.slow
def test_a_column_of_ones_own_tells_runs_apart_wherever_by_is_asked_for():
    kinds = ("agent", "=1+1", "agent", None)
    rows = [{**row, "kind": kind} for row, kind in zip(SESSIONS, kinds, strict=True)]
    mine, by = snapshot(rows, events=EVENTS).with_table("teams", TEAMS), "teams.owner"
    whose = mine.sql(
        "SELECT coalesce(owner, '(none)') AS owner FROM entity_states LEFT JOIN teams USING (kind) "
        "WHERE entity_type = 'session' AND ended_at IS NOT NULL"
    )["owner"]
    assert set(mine.compare("failed", by=by).frame[by].fill_null("(none)")) == set(whose)
    assert sa.failures.costs(mine, by=by)["n_runs"].sum() == sa.failures.costs(mine)["n_runs"].sum()
    look = sa.explore(mine, by=[by, "kind"]).choose(**{by: "ann"})
    assert look.selected.height == mine.sql(look.sql).height > 0
    assert set(look.selected["kind"]) == {"agent"}
    [told] = sa.report(mine, by=by, sections=["fleet"]).summary["fleet"]["groupings"]
    assert told["by"] == by
    assert {row["group"] for row in told["rows"]} == {"ann", "bob"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "teams", "words"),
    [
        ("team.owner", TEAMS, "There is no table 'team' of yours .* there are teams"),
        ("teams.owners", TEAMS, "no column 'owners'; it has kind, owner"),
        ("teams.owner", TEAMS.with_columns(agent=pl.lit("x")), "found kind, agent"),
        ("teams.owner", TEAMS.rename({"kind": "sort"}), "found none"),
        ("teams.owner", pl.concat([TEAMS, TEAMS]), "several rows for kind 'agent'"),
        ("nothing", TEAMS, "There is no column 'nothing' to group runs by"),
    ],
)
def test_a_column_of_ones_own_that_is_not_clear_is_one_line(snap, by, teams, words):
    mine = snap.with_table("teams", teams)
    with pytest.raises(ArgumentError, match=words):
        mine.compare("failed", by=by)
    with pytest.raises(ArgumentError, match=words):
        sa.report(mine, by=by, sections=["fleet"])


def test_a_refused_file_says_how_it_comes_along(snap):
    for query in ("FROM read_csv('teams.csv')", "FROM 'teams.csv'"):
        with pytest.raises(QueryRefusedError, match="with_table") as raised:
            snap.sql(query)
        assert "--table teams=teams.csv" in str(raised.value)


@pytest.fixture(scope="module")
def odd(snap):
    rows = {
        "text": [FORMULA, SECRET, None],
        "listed": [["a", "b"], [], None],
        "day": [date(2026, 5, 1), None, None],
        "lasted": [timedelta(seconds=90), None, None],
        "long": ["x" * 40_000, "", None],
    }
    return snap.with_table("odd", pl.DataFrame(rows))


def test_duckdb_and_sqlite_hold_the_rows(odd, tmp_path):
    names = ["states", "odd"]
    place = odd.export(tmp_path / "x.duckdb", tables=names)
    with duckdb.connect(str(place)) as connection:
        kept = connection.sql("SELECT entity_id, age_s FROM states").pl()
        assert kept.equals(odd.table("states").select("entity_id", "age_s"))
        query = "SELECT count(*) FROM states WHERE severity <= 'warning'::severity"
        assert connection.sql(query).fetchall() == odd.sql(query).rows() == [(1,)]
        assert connection.sql("SELECT text FROM odd").fetchall()[1] == ("DB_PASS=[secret]",)
        assert connection.sql("SELECT epoch(as_of())").fetchall() == [(odd.as_of.timestamp(),)]
    file = odd.export(tmp_path / "x.sqlite", tables=names)
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT text, listed, day, lasted FROM odd").fetchall()
        assert rows[0] == (FORMULA, '["a","b"]', "2026-05-01", 90.0)
        assert rows[1:] == [("DB_PASS=[secret]", "[]", None, None), (None,) * 4]


def test_moments_of_other_zones_and_numbers_that_are_none_are_told(snap, tmp_path):
    noon = pl.Series([datetime(2026, 1, 1, 12)]).dt.replace_time_zone("Europe/Berlin")
    mine = snap.with_table("mine", pl.DataFrame({"at": noon, "x": [float("nan")]}))
    with closing(sqlite3.connect(mine.export(tmp_path / "x.sqlite", tables=["mine"]))) as file:
        told = file.execute("SELECT at, x FROM mine").fetchall()
    assert told == [("2026-01-01T11:00:00.000000Z", None)]
    with zipfile.ZipFile(mine.export(tmp_path / "x.xlsx", tables=["mine"])) as book:
        assert "#NUM!" in book.read("xl/worksheets/sheet1.xml").decode()


@pytest.mark.parametrize("name", ["x.sqlite-wal", "x.sqlite-journal", "x.duckdb.wal"])
def test_a_database_with_a_log_beside_it_is_not_replaced(odd, tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / name).touch()
    place = tmp_path / ("x.duckdb" if "duckdb" in name else "x.sqlite")
    for written in (place, f"~/{place.name}"):
        with pytest.raises(ArgumentError, match="in use or incomplete"):
            odd.export(written, tables=["odd"])
    assert not place.exists()


def test_a_sheet_runs_nothing_and_loses_no_row(odd, tmp_path):
    place = odd.export(tmp_path / "x.xlsx", tables=["odd"])
    with zipfile.ZipFile(place) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
        texts = book.read("xl/sharedStrings.xml").decode()
    assert "<f>" not in sheet and "<hyperlink" not in sheet
    assert "=HYPERLINK" in texts and "hunter2" not in texts


def test_what_is_too_large_or_missing_for_a_sheet_is_said(odd, tmp_path, monkeypatch):
    monkeypatch.setattr(frame_files, "_MOST_ROWS", 2)
    with pytest.raises(ArgumentError, match=r"Table 'odd' has 3 rows"):
        odd.export(tmp_path / "x.xlsx", tables=["odd"])
    monkeypatch.setitem(__import__("sys").modules, "xlsxwriter", None)
    with pytest.raises(MissingComponentError, match=r"needs xlsxwriter"):
        odd.export(tmp_path / "x.xlsx", tables=["odd"])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_parquet_is_new_and_whole(odd, tmp_path):
    place = odd.export(tmp_path / "week", tables=["odd", "entities"], redact=False)
    assert {file.name for file in place.iterdir()} == {"odd.parquet", "entities.parquet"}
    assert pl.read_parquet(place / "entities.parquet").equals(odd.entities)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for other, tables, words in (
        (place, None, "a folder that is there already"),
        (tmp_path / "no" / "such.duckdb", ["odd"], "cannot be written"),
        ("/dev/null", ["odd"], "no regular file"),
        (tmp_path / "x.duckdb", ["nope"], "There is no table 'nope'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            odd.export(other, tables=tables)


@pytest.mark.slow
def test_a_duckdb_of_ones_own_holds_every_table(odd):
    with odd.duckdb() as connection:
        names = {name for (name,) in connection.sql("SHOW TABLES").fetchall()}
        assert names == {name for name in odd._tables_for(None) if not name.startswith("raw_")}
        connection.sql("CREATE TABLE mine AS FROM odd")


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_the_commands_take_tables_along(tmp_path, capsys):
    store_file = str(SAMPLES / "state.db")
    TEAMS.write_csv(tmp_path / "teams.csv")
    table = ["--table", f"teams={tmp_path / 'teams.csv'}"]
    assert cli(["sql", store_file, "FROM teams", *table, "-f", "csv", "--raw-csv"]) == 0
    assert capsys.readouterr().out == TEAMS.write_csv()
    place = tmp_path / "x.sqlite"
    assert cli(["export", store_file, "-o", str(place), "--only", "teams", *table]) == 0
    assert capsys.readouterr().out == f"{place}\n"
    told = tmp_path / "week.json"
    by = ["--by", "teams.owner", "--sections", "fleet", "-o", str(told)]
    assert cli(["report", store_file, *table, *by]) == 0
    [grouping] = json.loads(told.read_text("utf-8"))["fleet"]["groupings"]
    assert grouping["by"] == "teams.owner"
    assert cli(["report", store_file, *by]) == 2
    assert "Hint: add it: --table teams=teams.csv" in capsys.readouterr().err
    assert cli(["export", store_file, "-o", store_file]) == 2
    assert "which was read" in capsys.readouterr().err
    assert cli(["sql", store_file, "FROM teams", "--table", "teams"]) == 2
    assert "A table is NAME=FILE" in capsys.readouterr().err


def test_what_a_writer_cannot_do_is_one_line(odd, tmp_path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(frame_files, "_fill_sqlite", full)
    with pytest.raises(ArgumentError, match="SQLite reports: database or disk is full"):
        odd.export(tmp_path / "x.sqlite", tables=["odd"])
    monkeypatch.setattr(frame_files, "_LONGEST_NAME", 2)
    with pytest.raises(ArgumentError, match="longer name than a sheet"):
        odd.export(tmp_path / "x.xlsx", tables=["odd"])
    assert list(tmp_path.iterdir()) == []


def test_numbers_beyond_what_sql_takes_are_text(snap):
    big = pl.DataFrame({"a": [2**100]}, schema={"a": pl.Int128})
    assert snap.with_table("big", big).sql("FROM big").rows() == [(str(2**100),)]
