"""What is left of a damaged store is read, what is lost is named, and nothing is made up."""

import random
import sqlite3
from contextlib import closing

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import errors
from stateanalytics.cli import run
from stateanalytics.io.cells import TEXT
from stateanalytics.io.salvage import pages, repair, trees
from stateanalytics.io.salvage.repair import salvage
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from tests.conftest import ROOT
from tests.examples import a_few
from tests.generators import write_store
from tests.lionagi_stores import wrote

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


def salvaged(path):
    """What was lost of a store, and the rows that were salvaged."""
    clean = path.with_name("b.db")
    return salvage(path, clean), tables_of(clean)


def roots_of(path):
    query = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return dict(connection.execute(query))


@pytest.fixture(scope="module")
def whole():
    return tables_of(DEMO)


@pytest.fixture(scope="module")
def schema_pages():
    """The pages that define tables: what they define cannot be read without them."""
    file = pages.File.of(DEMO.read_bytes())
    schema = repair.read_schema(file)[1]
    return schema.pages.union(*map(file.overflow, schema.cells))


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(range(8), 3))
def test_of_three_random_pages_99_percent_of_the_rows_are_left(tmp_path, whole, schema_pages, seed):
    octets = DEMO.read_bytes()
    n_pages = len(octets) // int.from_bytes(octets[16:18], "big")
    numbers = random.Random(seed).sample(sorted(set(range(2, n_pages + 1)) - schema_pages), 3)
    losses, left = salvaged(damaged(tmp_path / "a.db", octets, numbers, seed=seed))
    n_left = sum(len(rows) for rows in left.values())
    n_whole = sum(len(rows) for rows in whole.values())
    assert n_left >= 0.99 * n_whole
    for name, rows in left.items():
        assert rows.items() <= whole[name].items(), f"{name} holds rows that never were"
    n_reported = sum(table["n_lost"] for table in losses["tables"])
    assert abs(n_reported - (n_whole - n_left)) <= 15


DRAWS = {
    "swapped": lambda octets, noise: octets[::-1],
    "overwritten": lambda octets, noise: [noise.randbytes(len(block)) for block in octets],
    "zeroed": lambda octets, noise: [bytes(len(block)) for block in octets],
    "half zeroed": lambda octets, noise: [
        block[: len(block) // 2] + bytes(len(block) - len(block) // 2) for block in octets
    ],
}


def with_bad_blocks(octets, kind, n_pairs, noise, schema_pages, *, n_bytes=4096):
    """A store of which pairs of blocks are swapped, overwritten or zeroed."""
    size = int.from_bytes(octets[16:18], "big")
    kept = {(page - 1) * size // n_bytes for page in schema_pages} | {0}
    blocks = noise.sample(sorted(set(range(len(octets) // n_bytes)) - kept), 2 * n_pairs)
    changed = bytearray(octets)
    for pair in zip(blocks[::2], blocks[1::2], strict=True):
        places = [slice(n_bytes * block, n_bytes * (block + 1)) for block in pair]
        bad = DRAWS[kind]([bytes(octets[place]) for place in places], noise)
        for place, block in zip(places, bad, strict=True):
            changed[place] = block
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("n_pairs", "seed"), a_few([(40, 1), (5, 2), (40, 3), (20, 4)], 2))
def test_no_row_is_made_up_and_every_other_is_counted(
    tmp_path, whole, schema_pages, kind, n_pairs, seed
):
    noise = random.Random(f"{kind}{n_pairs}{seed}")
    path = tmp_path / "a.db"
    path.write_bytes(with_bad_blocks(DEMO.read_bytes(), kind, n_pairs, noise, schema_pages))
    losses, left = salvaged(path)
    for name, rows in left.items():
        assert rows.items() <= whole[name].items(), f"{name} holds rows that never were"
    n_left, n_whole = (sum(map(len, tables.values())) for tables in (left, whole))
    # Swapped pages are all there, and go back to the tables that their rows are of.
    assert n_left >= (0.97 if kind == "swapped" else 1 - n_pairs / 250) * n_whole
    n_reported = sum(table["n_lost"] or table["n_unclaimed"] for table in losses["tables"])
    assert abs(n_reported - (n_whole - n_left)) <= 0.01 * n_whole


def two_tables(path, *definitions, n_rows=300, row=lambda table, n: (f"{table}-{n:05}", n)):
    """A store with tables of some hundred rows each."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size=1024")
        for place, definition in enumerate(definitions):
            connection.execute(definition)
            marks = ", ".join("?" * len(row(place, 0)))
            name = definition.split()[2]
            rows = [row(place, n) for n in range(n_rows)]
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        connection.commit()
    return path.read_bytes()


def swapped(octets, first, second):
    size = int.from_bytes(octets[16:18], "big")
    pages_ = [octets[begin : begin + size] for begin in range(0, len(octets), size)]
    pages_[first - 1], pages_[second - 1] = pages_[second - 1], pages_[first - 1]
    return b"".join(pages_)


LOOKALIKES = ("CREATE TABLE t (id TEXT PRIMARY KEY, n)", "CREATE TABLE u (id TEXT PRIMARY KEY, n)")


def test_a_root_in_the_place_of_another_gives_no_table_the_rows_of_the_other(tmp_path):
    """Only the index of a table knows whose rows are whose, so each gets its own back."""
    path = tmp_path / "a.db"
    octets = two_tables(path, *LOOKALIKES)
    before, roots = tables_of(path), roots_of(path)
    path.write_bytes(swapped(octets, roots["t"], roots["u"]))
    assert salvaged(path)[1] == before


def test_the_empty_page_of_another_table_is_no_empty_table(tmp_path):
    path = tmp_path / "a.db"
    two_tables(path, LOOKALIKES[0])
    wrote(path, LOOKALIKES[1])
    before, roots = tables_of(path), roots_of(path)
    path.write_bytes(swapped(path.read_bytes(), roots["t"], roots["u"]))
    assert salvaged(path)[1] == before


def test_rows_of_a_page_that_two_tables_lead_to_are_nobodys_without_an_index(tmp_path):
    path = tmp_path / "a.db"
    octets = two_tables(path, "CREATE TABLE t (id, n)", "CREATE TABLE u (id, n)")
    before, roots = tables_of(path), roots_of(path)
    size = 1024
    both = bytearray(octets)
    places = {name: slice(size * (root - 1), size * root) for name, root in roots.items()}
    both[places["u"]] = octets[places["t"]]
    path.write_bytes(both)
    losses, left = salvaged(path)
    assert all(rows.items() <= before[name].items() for name, rows in left.items())
    assert [table["n_unclaimed"] for table in losses["tables"]] == [300, 300]


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        ("CREATE TABLE t (n NOT NULL)", "CREATE TABLE u (n)", lambda t, n: ([n, None][t],)),
        ("CREATE TABLE t (id, n)", "CREATE TABLE u (id, n, m)", lambda t, n: (n,) * (2 + t)),
        ("CREATE TABLE t (id TEXT)", "CREATE TABLE u (id)", lambda t, n: ([f"{n}", n][t],)),
        ("CREATE TABLE t (id INT)", "CREATE TABLE u (id)", lambda t, n: ([n, f"n{n}"][t],)),
        ("CREATE TABLE t (n INTEGER PRIMARY KEY)", "CREATE TABLE u (n)", lambda t, n: (n,)),
        ("CREATE TABLE t (n REAL) STRICT", "CREATE TABLE u (n)", lambda t, n: ([n / 2, b"n"][t],)),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_the_definition_are_set_apart(tmp_path, first, second, row):
    path = tmp_path / "a.db"
    octets = two_tables(path, first, second, row=row)
    before, roots = tables_of(path), roots_of(path)
    path.write_bytes(swapped(octets, roots["t"], roots["u"]))
    losses, left = salvaged(path)
    assert left["t"].items() <= before["t"].items()
    assert losses["n_unclaimed"] + sum(table["n_unclaimed"] for table in losses["tables"]) or (
        left == before
    )


@pytest.mark.parametrize(
    ("definition", "row"),
    [
        pytest.param(
            "CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER)",
            lambda _, n: (f"{n}", "soon" if n % 50 == 7 else n),
            id="a row of another type",
        ),
        # SQLite calls such a function unsafe in a definition that it is told not to trust.
        pytest.param(
            "CREATE TABLE t (id TEXT PRIMARY KEY, n CHECK (json_valid(n)))",
            lambda _, n: (f"{n}", "{}"),
            id="a check of json",
        ),
    ],
)
def test_rows_that_the_index_lists_are_kept(tmp_path, definition, row):
    path = tmp_path / "a.db"
    octets = two_tables(path, definition, row=row)
    before = tables_of(path)
    path.write_bytes(octets + bytes(1024))
    assert salvaged(path)[1] == before


@pytest.mark.slow
def test_a_leaf_in_the_place_of_an_interior_page_loses_nothing(tmp_path):
    path = tmp_path / "a.db"
    octets = two_tables(path, LOOKALIKES[0], n_rows=9000)
    before = tables_of(path)
    file = pages.File.of(octets)
    tree = trees.walk(file, repair.read_schema(file)[0][0])
    assert tree.leaf_depth == 2
    interior = file.children(tree.root, trees.LEAST, trees.MOST)[0]
    path.write_bytes(swapped(octets, interior[0], tree.leaves[0].page))
    assert salvaged(path)[1] == before


def test_a_text_that_goes_on_in_noise_is_not_read(tmp_path):
    """The last page of a long text leads to none, which SQLite does not look at."""
    path = tmp_path / "a.db"
    octets = two_tables(path, LOOKALIKES[0], row=lambda t, n: (f"{n}", "y" * (1500 * (n == 30))))
    before = tables_of(path)
    numbers = range(2, len(octets) // 1024 + 1)
    (rest,) = (number for number in numbers if octets[1024 * number - 1020 :][:4] == b"yyyy")
    damaged(path, octets, [rest])
    losses, tables = salvaged(path)
    left = tables["t"]
    assert set(before["t"].items()) - set(left.items()) == {(31, (b"30", b"y" * 1500))}
    assert losses["tables"][0]["n_lost"] == 1


def test_an_empty_page_below_a_root_is_a_loss(tmp_path):
    """Zeroed but for its kind and size, it is a sound page without rows."""
    path = tmp_path / "a.db"
    octets = two_tables(path, "CREATE TABLE t (id TEXT PRIMARY KEY, n)")
    file = pages.File.of(octets)
    leaf = trees.walk(file, repair.read_schema(file)[0][0]).leaves[2]
    begin = 1024 * (leaf.page - 1)
    path.write_bytes(octets[: begin + 3] + b"\0\0\4\0\0" + octets[begin + 8 :])
    losses, _ = salvaged(path)
    assert losses["tables"][0]["n_lost"] == len(leaf.cells)
    assert losses["tables"][0]["n_ranges"] == 1


def test_bad_rows_of_a_page_are_counted(tmp_path):
    path = tmp_path / "a.db"
    octets = two_tables(path, "CREATE TABLE t (id, n)")
    file = pages.File.of(octets)
    leaf = trees.walk(file, repair.read_schema(file)[0][0]).leaves[2]
    begin = 1024 * (leaf.page - 1) + leaf.cells[1].begin
    path.write_bytes(octets[:begin] + b"\xff" * 9 + octets[begin + 9 :])
    losses, tables = salvaged(path)
    assert losses["tables"][0]["n_lost"] == 300 - len(tables["t"]) > 0


def test_a_long_definition_of_which_the_rest_is_lost_is_named(tmp_path):
    path = tmp_path / "a.db"
    columns = ", ".join(f"a_column_with_a_long_name_{n}" for n in range(90))
    octets = two_tables(path, f"CREATE TABLE t (id, {columns})", row=lambda t, n: (n,) * 91)
    file = pages.File.of(octets)
    schema = repair.read_schema(file)[1]
    rest = file.overflow(schema.leaves[0].cells[0])[0]
    path.write_bytes(octets[: 1024 * (rest - 1)] + b"\xff" * 1024 + octets[1024 * rest :])
    assert salvage(path, tmp_path / "b.db")["definitions_refused"] == ["t"]


@pytest.mark.slow
def test_what_is_set_apart_is_a_finding_with_its_table(tmp_path, schema_pages):
    noise = random.Random("75 90125")
    path = tmp_path / "state.db"
    path.write_bytes(with_bad_blocks(DEMO.read_bytes(), "swapped", 150, noise, schema_pages))
    snap = sa.read(path, on_error="salvage", progress=False)
    apart = snap.findings.filter(pl.col("code") == "salvage.rows_unclaimed")
    assert apart["n_rows"].sum() > 0
    assert apart["table"].drop_nulls().len() > 0
    assert snap.entities.filter(pl.col("entity_type") == "branch").height <= 457


@pytest.mark.slow
def test_a_root_that_is_lost_loses_no_row(tmp_path, whole):
    """The leaves below it are still there, and belong to no other table."""
    root = roots_of(DEMO)["messages"]
    salvage(damaged(tmp_path / "a.db", DEMO.read_bytes(), [root]), tmp_path / "b.db")
    assert tables_of(tmp_path / "b.db")["messages"] == whole["messages"]


@pytest.mark.slow
def test_a_few_bad_bytes_in_a_page_lose_a_few_rows_of_it(tmp_path, whole):
    file = pages.File.of(DEMO.read_bytes())
    root = roots_of(DEMO)["messages"]
    leaf = trees.walk(file, trees.Tree("messages", "", root)).leaves[3]
    path = damaged(tmp_path / "a.db", file.octets, [leaf.page], at=leaf.cells[1].begin, n_bytes=9)
    left = salvaged(path)[1]["messages"]
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
    create = ("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER)", "CREATE INDEX i ON t (n, id)")
    rows = [(f"{n:050}", n) for n in range(999)]
    wrote(path, *create, ("INSERT INTO t VALUES (?, ?)", rows))
    file = pages.File.of(path.read_bytes())
    leaf = trees.walk(file, trees.Tree("t", "", roots_of(path)["t"])).leaves[1]
    damaged(path, file.octets, [leaf.page])
    salvage(path, tmp_path / "b.db")
    left = tables_of(tmp_path / "b.db")["t"]
    assert set(left) == set(range(1, 1000)) - {cell.rowid for cell in leaf.cells}


def test_a_long_row_whose_rest_is_lost_is_lost_and_its_neighbours_are_not(tmp_path):
    path = tmp_path / "a.db"
    rows = [(n, "y" * (20_000 if n == 30 else 20)) for n in range(60)]
    create = ("PRAGMA page_size=1024", "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    wrote(path, *create, ("INSERT INTO t VALUES (?, ?)", rows))
    octets = bytearray(path.read_bytes())
    for number in range(2, len(octets) // 1024 + 1):
        begin = (number - 1) * 1024
        if octets[begin : begin + 1] == b"\0" and octets[begin + 4 : begin + 8] == b"yyyy":
            octets[begin : begin + 4] = b"\xff\xff\xff\xff"  # leads to no page
            break
    path.write_bytes(octets)
    losses, tables = salvaged(path)
    assert set(tables["t"]) == set(range(60)) - {30}
    assert losses["tables"][0]["ranges"] == [{"first": 30, "last": 30, "n": 1, "page": None}]


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


def test_rows_older_than_a_column_have_its_constant_default(tmp_path):
    """A column may be added with a constant alone, which SQLite writes in many ways."""
    path = tmp_path / "a.db"
    constants = ["1e-3", "- 5", "(1.5e+3)", "(-(5))", "(CAST('7' AS INTEGER))", "'it''s'", "word"]
    constants += ['"a b"', "x'00ff'", "TRUE", "NULL", "0x10"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("CREATE TABLE later (a, at DEFAULT CURRENT_TIMESTAMP, b DEFAULT (1+2))")
        connection.execute("INSERT INTO t VALUES (1)")
        for number, constant in enumerate(constants):
            connection.execute(f"ALTER TABLE t ADD COLUMN c{number} DEFAULT {constant}")
        connection.commit()
    before = tables_of(path)
    assert before["t"][1][1:6] == (0.001, -5, 1500.0, -5, 7)
    assert salvaged(path)[1] == before
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        assert (
            connection.execute("SELECT dflt_value FROM pragma_table_info('later')").fetchall()
            == [(None,)] * 3
        )


def test_a_table_with_columns_of_all_names_of_row_numbers_keeps_its_rows(tmp_path):
    path = tmp_path / "a.db"
    rows = [(7, "a", 2.5), (8, None, b"b")]
    wrote(path, "CREATE TABLE t (rowid, _rowid_, oid)", ("INSERT INTO t VALUES (?, ?, ?)", rows))
    before = tables_of(path)
    losses, left = salvaged(path)
    assert left == before
    assert losses["tables"][0]["n_read"] == 2


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
    assert lost["message"].item() == "of sessions an unknown number of rows cannot be read; 0 were"
    assert lost["n_rows"].item() is None
    assert snap.transitions.height == 893


def without_a_leaf_of(table, folder):
    """A copy of the sample in which one page of a table is noise, and what was on it."""
    file = pages.File.of(DEMO.read_bytes())
    leaf = trees.walk(file, trees.Tree(table, "", roots_of(DEMO)[table])).leaves[5]
    return damaged(folder / "state.db", file.octets, [leaf.page]), leaf


@pytest.mark.slow
def test_a_salvaged_snapshot_says_so_everywhere(tmp_path, capsys, demo):
    path, leaf = without_a_leaf_of("sessions", tmp_path)
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
    assert run(["attention", "--show", "states", str(path), "--salvage", "--limit", "1"]) == 0
    assert f"lost: {path}: " in capsys.readouterr().err
    assert run(["attention", "--show", "states", str(path)]) == 2
    hint = "Hint: read a backup, or its intact parts with --salvage\n"
    assert capsys.readouterr().err.endswith(hint)


@pytest.mark.parametrize("command", a_few([["detectors", "--detector", "B2"], ["thresholds"]], 0))
def test_commands_that_compare_say_what_a_salvaged_store_lacks(tmp_path, capsys, command):
    path, _ = without_a_leaf_of("sessions", tmp_path)
    assert run([*command, str(path), "--salvage"]) == 0
    assert f"lost: {path}: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_store_is_read_as_ever(tmp_path, demo):
    salvaged = sa.read(DEMO, on_error="salvage", as_of=demo.as_of, progress=False)
    assert salvaged.entities.drop("source").equals(demo.entities.drop("source"))
    assert "MISSING" not in repr(salvaged)
    assert salvaged.findings.filter(pl.col("code").str.starts_with("salvage.")).is_empty()


@pytest.mark.slow
def test_lost_definitions_are_named_and_nothing_is_guessed(tmp_path, whole):
    file = pages.File.of(DEMO.read_bytes())
    definitions = repair.read_schema(file)[1].leaves[0]
    losses, left = salvaged(damaged(tmp_path / "a.db", file.octets, [definitions.page]))
    assert losses["n_definition_pages"] == 1
    assert 0 < len(left) < len(whole)
    assert all(rows == whole[name] for name, rows in left.items())


@pytest.mark.slow
def test_what_cannot_be_read_at_all_says_so(tmp_path):
    path = tmp_path / "state.db"
    octets = bytearray(DEMO.read_bytes())
    octets[100:] = random.Random(0).randbytes(len(octets) - 100)
    path.write_bytes(octets)
    with pytest.raises(errors.SourceError, match=r"store|Store"):
        sa.read(path, on_error="salvage", progress=False)
    path.write_bytes(b"SQLite format 3\0" + bytes(84))
    with pytest.raises(errors.DamagedStoreError, match=r"nothing in it can be read: .*header"):
        open_store(path, salvage=True)


@pytest.mark.slow
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


@pytest.mark.slow
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
    losses, _ = salvaged(path)
    assert [table["table"] for table in losses["tables"]] == ["t"]
    assert losses["definitions_refused"] == ["u"]


@pytest.mark.slow
def test_a_large_store_is_salvaged_in_reasonable_time(tmp_path):
    path = write_store(tmp_path / "whole.db", 5_000, n_messages_per_session=10)
    octets = path.read_bytes()
    damaged(path, octets, [100, 500, 900])
    snap = sa.read(path, on_error="salvage", progress=False)
    assert snap.entities.filter(entity_type="session").height > 4_950
