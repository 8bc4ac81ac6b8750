"""What is left of a damaged store is read, what is lost is named, and nothing is made up."""

import random
import sqlite3
from contextlib import closing

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import errors
from stateanalytics.cli import run
from stateanalytics.io.salvage import pages, repair, trees
from stateanalytics.io.salvage.run import salvage
from stateanalytics.io.sqlite import TEXT, open_store, read_table
from tests.conftest import ROOT
from tests.examples import a_few
from tests.generators import write_store

DEMO = ROOT / "data" / "samples" / "state.db"


def damaged(path, octets, numbers, *, seed=0, at=0, n_bytes=None):
    """A copy of a store with some pages overwritten, in whole or in part."""
    size = int.from_bytes(octets[16:18], "big")
    changed, noise = bytearray(octets), random.Random(seed)
    for number in numbers:
        begin = (number - 1) * size + at
        end = begin + (n_bytes or size)
        changed[begin:end] = noise.randbytes(end - begin)
    path.write_bytes(changed)
    return path


def tables_of(path):
    """Every row of every table by its number."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        return {
            name.decode(): {
                row[0]: row[1:]
                for row in connection.execute(f'SELECT rowid, * FROM "{name.decode()}"')
            }
            for (name,) in connection.execute(query).fetchall()
        }


def roots_of(path):
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return dict(
            connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'")
        )


@pytest.fixture(scope="module")
def whole():
    return tables_of(DEMO)


@pytest.fixture(scope="module")
def schema_pages():
    """The pages that define tables: what they define cannot be read without them."""
    file = pages.File.of(DEMO.read_bytes())
    return repair.read_schema(file)[1].pages


@pytest.mark.parametrize("seed", a_few(range(8), 3))
def test_of_three_random_pages_at_least_99_percent_of_the_rows_are_left(
    tmp_path, whole, schema_pages, seed
):
    octets = DEMO.read_bytes()
    n_pages = len(octets) // int.from_bytes(octets[16:18], "big")
    numbers = random.Random(seed).sample(sorted(set(range(2, n_pages + 1)) - schema_pages), 3)
    told = salvage(damaged(tmp_path / "a.db", octets, numbers, seed=seed), tmp_path / "b.db")
    left = tables_of(tmp_path / "b.db")
    n_left = sum(len(rows) for rows in left.values())
    n_whole = sum(len(rows) for rows in whole.values())
    assert n_left >= 0.99 * n_whole
    for name, rows in left.items():
        assert rows.items() <= whole[name].items(), f"{name} holds rows that never were"
    n_told = sum(table["n_lost"] for table in told["tables"])
    assert abs(n_told - (n_whole - n_left)) <= 15


def test_a_root_that_is_lost_loses_no_row(tmp_path, whole):
    """The leaves below it are still there, and belong to no other table."""
    root = roots_of(DEMO)["messages"]
    salvage(damaged(tmp_path / "a.db", DEMO.read_bytes(), [root]), tmp_path / "b.db")
    assert tables_of(tmp_path / "b.db")["messages"] == whole["messages"]


def test_a_few_bad_bytes_in_a_page_lose_a_few_rows_of_it(tmp_path, whole):
    file = pages.File.of(DEMO.read_bytes())
    root = roots_of(DEMO)["messages"]
    leaf = trees.walk(file, trees.Tree("messages", "", root)).leaves[3]
    path = damaged(tmp_path / "a.db", file.octets, [leaf.page], at=leaf.cells[1].at, n_bytes=9)
    salvage(path, tmp_path / "b.db")
    left = tables_of(tmp_path / "b.db")["messages"]
    assert set(whole["messages"]) - set(left) == {leaf.cells[1].rowid}


def test_rows_that_were_deleted_stay_deleted(tmp_path):
    """Their leaves are free pages that look like any other leaf."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 90) for n in range(5000)])
        connection.commit()
        connection.execute("DELETE FROM t WHERE id BETWEEN 1000 AND 3999")
        connection.commit()
        root = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    before = tables_of(path)["t"]
    salvage(damaged(path, path.read_bytes(), [root]), tmp_path / "b.db")
    assert tables_of(tmp_path / "b.db")["t"] == before


def test_an_index_is_never_asked(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER)")
        connection.execute("CREATE INDEX i ON t (n, id)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(f"{n:050}", n) for n in range(999)])
        connection.commit()
    file = pages.File.of(path.read_bytes())
    leaf = trees.walk(file, trees.Tree("t", "", roots_of(path)["t"])).leaves[1]
    damaged(path, file.octets, [leaf.page])
    salvage(path, tmp_path / "b.db")
    left = tables_of(tmp_path / "b.db")["t"]
    assert set(left) == set(range(1, 1000)) - {cell.rowid for cell in leaf.cells}


def test_a_long_row_whose_rest_is_lost_is_lost_and_its_neighbours_are_not(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size=1024")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        rows = [(n, "y" * (20_000 if n == 30 else 20)) for n in range(60)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.commit()
    octets = bytearray(path.read_bytes())
    for number in range(2, len(octets) // 1024 + 1):
        begin = (number - 1) * 1024
        if octets[begin : begin + 1] == b"\0" and octets[begin + 4 : begin + 8] == b"yyyy":
            octets[begin : begin + 4] = b"\xff\xff\xff\xff"  # leads to no page
            break
    path.write_bytes(octets)
    told = salvage(path, tmp_path / "b.db")
    assert set(tables_of(tmp_path / "b.db")["t"]) == set(range(60)) - {30}
    assert told["tables"][0]["ranges"] == [{"first": 30, "last": 30, "n": 1, "page": None}]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_pages_of_every_size_and_encoding_are_read(tmp_path, encoding, page_size):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA encoding='{encoding}'")
        connection.execute(f"PRAGMA page_size={page_size}")
        connection.execute('CREATE TABLE t (a REAL, b, "odd \' name" BLOB)')
        rows = [(n * 1.5, f"ü{n}", bytes([n % 256]) * n) for n in range(400)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO t (rowid, a) VALUES (-9223372036854775808, 'text')")
        connection.execute("INSERT INTO t (rowid, a) VALUES (9223372036854775807, NULL)")
        connection.commit()
    before = tables_of(path)
    path.write_bytes(path.read_bytes()[:-1])  # one byte short: the last page is lost
    salvage(path, tmp_path / "b.db")
    left = tables_of(tmp_path / "b.db")
    assert left["t"].items() <= before["t"].items()
    if page_size < 65536:
        assert len(left["t"]) > 200


@pytest.mark.slow
def test_a_truncated_store_says_what_is_missing(tmp_path):
    octets = DEMO.read_bytes()
    path = tmp_path / "state.db"
    path.write_bytes(octets[: len(octets) // 2])
    with pytest.raises(errors.DamagedStoreError, match="--salvage"):
        sa.read(path, progress=False)
    snap = sa.read(path, on_error="salvage", progress=False)
    said = snap.findings.filter(code="salvage.truncated")["message"].item()
    assert said == "the file ends early: its last 1,359,872 bytes (664 pages) are missing"
    lost = snap.findings.filter(code="salvage.rows_lost", table="sessions")
    assert lost["message"].item() == (
        "of sessions an unknown number of rows cannot be read; 0 were"
    )
    assert lost["n_rows"].item() is None
    assert snap.transitions.height == 893


@pytest.mark.slow
def test_a_salvaged_snapshot_says_so_everywhere(tmp_path, capsys, demo):
    file = pages.File.of(DEMO.read_bytes())
    leaf = trees.walk(file, trees.Tree("sessions", "", roots_of(DEMO)["sessions"])).leaves[5]
    path = damaged(tmp_path / "state.db", file.octets, [leaf.page])
    snap = sa.read(path, on_error="salvage", as_of=demo.as_of, progress=False)
    n_lost = len(leaf.cells)
    words = f"cannot be read; {388 - n_lost} were"
    assert words in repr(snap)
    assert "MISSING" in repr(snap)
    assert words in snap._repr_html_()
    assert snap.entities.filter(entity_type="session").height == 388 - n_lost
    page = sa.report(snap, sections=["provenance"]).as_html()
    assert page.index("What is missing from this report") < page.index("Where this comes from")
    assert words in page
    assert run(["states", str(path), "--salvage", "--limit", "1"]) == 0
    assert f"lost: {path}: " in capsys.readouterr().err
    assert run(["states", str(path)]) == 2
    assert capsys.readouterr().err.endswith(
        "Hint: read a backup; or what is left of it, with --salvage\n"
    )


@pytest.mark.parametrize("command", a_few([["detectors", "--detector", "B2"], ["thresholds"]], 0))
def test_commands_that_compare_say_what_a_salvaged_store_lacks(tmp_path, capsys, command):
    file = pages.File.of(DEMO.read_bytes())
    leaf = trees.walk(file, trees.Tree("sessions", "", roots_of(DEMO)["sessions"])).leaves[5]
    path = damaged(tmp_path / "state.db", file.octets, [leaf.page])
    assert run([*command, str(path), "--salvage"]) == 0
    assert f"lost: {path}: " in capsys.readouterr().err


def test_a_whole_store_is_read_as_ever(tmp_path, demo):
    salvaged = sa.read(DEMO, on_error="salvage", as_of=demo.as_of, progress=False)
    assert salvaged.entities.drop("source").equals(demo.entities.drop("source"))
    assert "MISSING" not in repr(salvaged)
    assert salvaged.findings.filter(pl.col("code").str.starts_with("salvage.")).is_empty()


def test_lost_definitions_are_named_and_nothing_is_guessed(tmp_path, whole):
    file = pages.File.of(DEMO.read_bytes())
    definitions = repair.read_schema(file)[1].leaves[0]
    told = salvage(damaged(tmp_path / "a.db", file.octets, [definitions.page]), tmp_path / "b.db")
    assert told["n_definition_pages"] == 1
    left = tables_of(tmp_path / "b.db")
    assert 0 < len(left) < len(whole)
    assert all(rows == whole[name] for name, rows in left.items())


def test_what_cannot_be_read_at_all_says_so(tmp_path):
    path = tmp_path / "state.db"
    octets = bytearray(DEMO.read_bytes())
    octets[100:] = random.Random(0).randbytes(len(octets) - 100)
    path.write_bytes(octets)
    with pytest.raises(errors.SourceError, match=r"store|Store"):
        sa.read(path, on_error="salvage", progress=False)
    path.write_bytes(b"SQLite format 3\0" + bytes(84))
    with pytest.raises(errors.DamagedStoreError, match=r"nothing of it can be read: .*header"):
        open_store(path, salvage=True)


@pytest.mark.parametrize("seed", a_few(range(12), 4))
def test_no_file_can_crash_or_outlast_the_salvager(tmp_path, seed):
    """Noise anywhere, the header's numbers too: an answer or a refusal, never a riddle."""
    noise = random.Random(seed)
    octets = bytearray(DEMO.read_bytes()[: noise.randrange(3000, 300_000)])
    for _ in range(noise.randrange(1, 60)):
        at = noise.randrange(16, len(octets))
        octets[at : at + 8] = noise.randbytes(min(8, len(octets) - at))
    path = tmp_path / "a.db"
    path.write_bytes(octets)
    try:
        with open_store(path, salvage=True) as store:
            for table in store.tables:
                read_table(store, table, {"id": TEXT})
    except errors.SourceError as error:
        assert str(error)


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    path = damaged(tmp_path / "a.db", DEMO.read_bytes(), [500])
    open_store(path, salvage=True).close()
    assert list(folder.iterdir()) == []


def test_a_definition_that_would_run_something_is_not_believed(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("CREATE TABLE u (a)")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = 'CREATE TABLE u AS SELECT randomblob(1e9) AS a' "
            "WHERE name = 'u'"
        )
        connection.commit()
    told = salvage(path, tmp_path / "b.db")
    assert [table["table"] for table in told["tables"]] == ["t"]


@pytest.mark.slow
def test_a_large_store_is_salvaged_in_reasonable_time(tmp_path):
    path = write_store(tmp_path / "whole.db", 5_000, n_messages_per_session=10)
    octets = path.read_bytes()
    damaged(path, octets, [100, 500, 900])
    snap = sa.read(path, on_error="salvage", progress=False)
    assert snap.entities.filter(entity_type="session").height > 4_950
