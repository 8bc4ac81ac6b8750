"""Cells of every type under every kind: what is kept, what becomes null, what is said."""

import json
import math
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import nanoarrow as na
import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from stateanalytics.core import schema
from stateanalytics.errors import SourceError
from stateanalytics.io import cells, sqlite_tables
from stateanalytics.io.cells import INTEGER, JSON, MOMENT, REAL, ROWID, TEXT, YES_NO, Cell
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.sql.tables import read_raw_table
from tests.examples import examples
from tests.lionagi_stores import wrote

CELLS = (TEXT, REAL, INTEGER, YES_NO, MOMENT, JSON)
MIDNIGHT = datetime(2026, 5, 26, tzinfo=UTC)
DECLARED = {"text": "TEXT", "json": "JSON", "real": "FLOAT", "moment": "FLOAT"}
KINDS = {cell.kind: cell for cell in CELLS}


class Raw(bytes):
    """Bytes to be stored as text, whatever they say."""


def store_of(path, values, *, declared="", encoding="UTF-8"):
    """A store with table t, column c, holding the values in order."""
    path.unlink(missing_ok=True)
    begin = (f"PRAGMA encoding='{encoding}'", f"CREATE TABLE t (c {declared})")
    insert = "INSERT INTO t VALUES (CASE WHEN ? THEN CAST(? AS TEXT) ELSE ? END)"
    rows = [(isinstance(value, Raw), value, value) for value in values]
    return wrote(path, *begin, (insert, rows))


def stored(path):
    """Type and value that SQLite made of each, text and blobs as bytes."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        query = "SELECT typeof(c), c FROM t ORDER BY rowid"
        return [(kind.decode(), value) for kind, value in connection.execute(query)]


def read(path, cell, **cells_by_name):
    with open_store(path) as store:
        wanted = {"c": cell, **cells_by_name} if cell else cells_by_name
        return read_table(store, "t", wanted, system="lionagi")


def values_of(tmp_path, values, cell, **how):
    rows, findings = read(store_of(tmp_path / "s.db", values, **how), cell)
    return rows["c"].to_list(), Counter(dict(findings.select("code", "n_rows").rows()))


# --- by hand ---------------------------------------------------------------------------


def test_clean_cells_are_kept_and_nothing_is_found(tmp_path):
    moment = datetime(2026, 5, 26, 1, 2, 3, 456789, tzinfo=UTC)
    for values, cell, expected in [
        (["a", "ž🐎", "", "a\0b", None], TEXT, ["a", "ž🐎", "", "a\0b", None]),
        ([1.5, -0.25, 7, None], REAL, [1.5, -0.25, 7.0, None]),
        ([5, -(2**62), 2**63 - 1, None], INTEGER, [5, -(2**62), 2**63 - 1, None]),
        ([0, 1, None], YES_NO, [False, True, None]),
        ([moment.timestamp(), 1779753600, 0, 0.0, None], MOMENT, [moment, MIDNIGHT, *[None] * 3]),
        (['{"a": 1}', "[]", "null", "", None], JSON, ['{"a": 1}', "[]", None, None, None]),
    ]:
        for declared in ("", DECLARED.get(cell.kind, "INTEGER")):
            assert values_of(tmp_path, values, cell, declared=declared) == (expected, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "value", "code", "message", "example"),
    [
        (TEXT, b"\x00\xff", "cell.blob", "bytes where text", "x'00FF'"),
        (TEXT, Raw(b"caf\xe9"), "cell.not_utf8", "not UTF-8", "caf\\xe9"),
        (TEXT, Raw(b"\xff"), "cell.not_utf8", "not UTF-8", ""),
        (REAL, "fast", "cell.wrong_type", "no number where one", "fast"),
        (REAL, "123", "cell.wrong_type", "no number where one", "123"),
        (REAL, b"123", "cell.wrong_type", "no number where one", "x'313233'"),
        (REAL, math.inf, "cell.not_finite", "infinite", "Inf"),
        (REAL, -math.inf, "cell.not_finite", "infinite", "-Inf"),
        (REAL, 2**53 + 1, "cell.inexact", "cannot hold exactly", "9007199254740993"),
        (INTEGER, "123", "cell.wrong_type", "no number where an integer", "123"),
        (INTEGER, 1.5, "cell.not_whole", "a fraction", "1.5"),
        (INTEGER, 1e17, "cell.inexact", "beyond those that are exact", "1.0e+17"),
        (INTEGER, 1e300, "cell.inexact", "beyond those that are exact", "1.0e+300"),
        (INTEGER, -(2**63), "cell.inexact", "beyond", "-9223372036854775808"),
        (YES_NO, 2, "cell.not_yes_no", "other than 0 and 1", "2"),
        (YES_NO, "true", "cell.wrong_type", "no number where 0 or 1", "true"),
        (MOMENT, 1779831000000.0, "cell.absurd_moment", "2000 to 2100", "1779831000000.0"),
        (MOMENT, -1, "cell.absurd_moment", "2000 to 2100", "-1"),
        (MOMENT, math.inf, "cell.absurd_moment", "2000 to 2100", "Inf"),
        (MOMENT, "2026-05-26", "cell.wrong_type", "epoch seconds were expected", "2026-05-26"),
        (MOMENT, "1779753600", "cell.wrong_type", "epoch seconds", "1779753600"),
        (MOMENT, "", "cell.wrong_type", "epoch seconds", ""),
        (JSON, b"{}", "cell.blob", "bytes where JSON", "x'7B7D'"),
        (JSON, Raw(b'"\xff"'), "cell.not_utf8", "not UTF-8", '"\\xff"'),
        (JSON, "{not json", "cell.not_json", "not JSON", "{not json"),
        (JSON, '{"a": NaN}', "cell.not_json", "not JSON", '{"a": NaN}'),
        (JSON, "[Infinity]", "cell.not_json", "not JSON", "[Infinity]"),
        (JSON, "nullnull", "cell.not_json", "not JSON", "nullnull"),
        (JSON, "[" * 9000 + "]" * 9000, "cell.not_json", "not JSON", "[" * 79 + "…"),
    ],
)  # fmt: skip
def test_an_odd_cell_becomes_null_and_a_finding(tmp_path, cell, value, code, message, example):
    path = store_of(tmp_path / "s.db", [value, None, value])
    rows, findings = read(path, cell)
    assert rows["c"].to_list() == [None, None, None]
    assert findings.schema == schema.FINDINGS.dtypes
    (finding,) = findings.to_dicts()
    assert message in finding.pop("message")
    where = {"source": str(path), "system": "lionagi", "table": "t", "column": "c"}
    of_nothing = {"entity_type": None, "entity_id": None}
    said = {"severity": "warning", "n_rows": 2, "example": example, "action": "set to null"}
    assert finding == {**where, **of_nothing, "code": code, **said}


def test_numbers_in_a_text_column_become_text(tmp_path):
    assert values_of(tmp_path, [7, 1.5], TEXT) == (["7", "1.5"], {})
    assert values_of(tmp_path, [7, 1.5, "true"], JSON) == (["7", "1.5", "true"], {})


def test_json_that_was_encoded_twice_is_decoded_once_more(tmp_path):
    inner = json.dumps({"pid": 1, "name": 'a "quoted" ž'})
    values = [json.dumps(inner), inner, json.dumps("only a string"), json.dumps("null"), '"[1, "']
    path = store_of(tmp_path / "s.db", values)
    rows, findings = read(path, JSON)
    assert rows["c"].to_list() == [inner, inner, '"only a string"', None, '"[1, "']
    (finding,) = findings.to_dicts()
    assert (finding["code"], finding["n_rows"]) == ("cell.double_encoded", 2)
    assert (finding["severity"], finding["action"]) == ("info", "decoded once more")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *('{"a": 1}', "not json", '"only a string"', '"null"', ' "[2]"', '"[NaN]"', '"[1,]"'),
        *('"{\\"a\\": \\"\\\\ud800\\"}"', "null", "nan", '"' + "[" * 300 + "]" * 300 + '"'),
    ],
)
def test_a_cell_beside_one_encoded_twice_is_judged_alike_in_few_and_in_many(text, monkeypatch):
    frame = pl.DataFrame({"c": [text, '"[1]"', None]})
    few, problems = cells.check_json(frame, ["c"])
    monkeypatch.setattr(cells, "FEW_CELLS", -1)
    many, same_problems = cells.check_json(frame, ["c"])
    assert few["c"].to_list() == many["c"].to_list()
    assert problems == same_problems


def test_few_and_many_documents_are_judged_alike(tmp_path, monkeypatch):
    values = [
        *('{"a": 1}', "{", '"[1]"', "[NaN]", '["NaN is a word"]', "null", "x" * 30_000),
        *("[" * 400 + "]" * 400, "[" * 2000 + "]" * 2000, '["' + "x" * 30_000 + '"]'),
    ]
    few = values_of(tmp_path, values, JSON)
    monkeypatch.setattr(cells, "FEW_CELLS", -1)
    assert values_of(tmp_path, values, JSON) == few
    kept, found = few
    assert [i for i, value in enumerate(kept) if value is None] == [1, 3, 5, 6, 8]
    assert found == {"cell.not_json": 4, "cell.double_encoded": 1}


def test_long_text_is_read_whole(tmp_path):
    long = "ž" * 3_000_000
    assert values_of(tmp_path, [long, "a"], TEXT) == ([long, "a"], {})


def test_more_text_than_one_batch_can_hold_is_read_in_smaller_ones(tmp_path, monkeypatch):
    real, sizes = sqlite_tables._framed, []

    def picky(batch):
        is_text = batch.schema.child(0).format == "u"
        if is_text:
            sizes.append(batch.length)
        if is_text and len(sizes) < 3:
            raise sqlite_tables._TooMuchTextError
        return real(batch)

    monkeypatch.setattr(sqlite_tables, "_framed", picky)
    assert values_of(tmp_path, ["a", "b"], TEXT) == (["a", "b"], {})
    assert sizes == [3, 3, 3]  # the first row tells the types


@pytest.mark.parametrize("offsets", [(0, 5, 3), (0, 2, -9)])
def test_offsets_that_ran_over_are_seen_before_anything_goes_by_them(offsets):
    buffers = [None, na.c_buffer(offsets, na.int32()), b"hello"]
    text = na.c_array_from_buffers(na.string(), 2, buffers, validation_level="none")
    names = na.struct({"c0": na.string()})
    batch = na.c_array_from_buffers(names, 2, [None], children=[text], validation_level="none")
    with pytest.raises(sqlite_tables._TooMuchTextError):
        sqlite_tables._framed(batch)


def test_examples_are_short_and_printable(tmp_path):
    path = store_of(tmp_path / "s.db", ["\x1b[31m" + "\u202e" + "x\n" * 200])
    _, findings = read(path, REAL)
    example = findings["example"].item()
    assert len(example) == 80
    assert example.startswith("\\x1b[31m\\u202ex\\nx\\n")
    assert example.isprintable()


def test_every_column_and_code_is_one_finding(tmp_path):
    odd = [("x", b"y"), (math.inf, b"y"), (1.0, None), (b"", "z")]
    wrote(tmp_path / "s.db", "CREATE TABLE t (a, b)", ("INSERT INTO t VALUES (?, ?)", odd))
    rows, findings = read(tmp_path / "s.db", None, a=REAL, b=TEXT)
    assert rows.rows() == [(None, None), (None, None), (1.0, None), (None, "z")]
    assert findings.select("column", "code", "n_rows").sort("column", "code").rows() == [
        ("a", "cell.not_finite", 1),
        ("a", "cell.wrong_type", 2),
        ("b", "cell.blob", 2),
    ]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_blobs_are_found_in_a_store_of_another_encoding(tmp_path, encoding):
    kept, found = values_of(tmp_path, ["ž", b"\xff", None], TEXT, encoding=encoding)
    assert kept == ["ž", None, None]
    assert found == {"cell.blob": 1}


# --- tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [0, 3])
def test_a_column_without_values_has_its_kind(tmp_path, n_rows):
    path = store_of(tmp_path / "s.db", [None] * n_rows)
    for cell in KINDS.values():
        rows, findings = read(path, cell)
        assert rows.schema == {"c": cells.SCANS[cell.kind].dtype}
        assert (rows.height, rows["c"].null_count(), findings.height) == (n_rows, n_rows, 0)


def test_a_cell_that_is_too_large_is_named_and_is_no_damage(tmp_path):
    path = store_of(tmp_path / "s.db", ["a"])
    for sql, words in (
        ("CAST(zeroblob(2000000000) AS TEXT)", r"string or blob too big\.\nHint: .*huge"),
        ("nosuch(c)", r"SQLite reports: no such function: nosuch\.\nHint: exclude"),
    ):
        with open_store(path) as store, pytest.raises(SourceError, match=words):
            read_table(store, "t", {"c": Cell("text", sql)})


@pytest.mark.slow
def test_a_raw_table_may_have_as_many_columns_as_sqlite_allows(tmp_path):
    names = [f"c{i}" for i in range(1999)]
    rows = "INSERT INTO t (c0, c700, c1998) VALUES (1, x'ff', 'a'), (2, 'b', 'c')"
    wrote(tmp_path / "s.db", f"CREATE TABLE t ({', '.join(names)})", rows)
    with open_store(tmp_path / "s.db") as store:
        rows = read_raw_table([store], "raw_t", bodies=False)
    assert rows.columns == ["store", *names]
    assert rows.select("c0", "c700", "c1998").rows() == [(1, "FF", "a"), (2, "b", "c")]


def test_absent_tables_and_columns_are_empty_and_null(tmp_path):
    path = store_of(tmp_path / "s.db", ["a", "b"])
    with open_store(path) as store:
        rows, findings = read_table(store, "nowhere", {"a": TEXT, "at": MOMENT})
        assert rows.schema == {"a": pl.String, "at": schema.MOMENT}
        assert rows.height == findings.height == 0
    lacking = Cell("integer", "length(gone)", ("gone",))
    rows, findings = read(path, None, gone=MOMENT, c=TEXT, n=lacking)
    assert rows.columns == ["gone", "c", "n"]
    assert rows.rows() == [(None, "a", None), (None, "b", None)]
    assert rows.schema["gone"] == schema.MOMENT
    assert findings.height == 0
    rows, _ = read(path, None, gone=TEXT)
    assert rows.rows() == [(None,), (None,)]


def test_names_that_need_quotes_are_quoted(tmp_path):
    create = 'CREATE TABLE "t""; DROP TABLE x" ("select" TEXT, "a ""b""" TEXT)'
    wrote(tmp_path / "s.db", create, """INSERT INTO "t""; DROP TABLE x" VALUES ('1', '2')""")
    with open_store(tmp_path / "s.db") as store:
        (name,) = store.tables
        rows, _ = read_table(store, name, {"select": TEXT, 'a "b"': TEXT})
        assert rows.rows() == [("1", "2")]


def test_a_computed_cell_is_computed_once(tmp_path):
    path = store_of(tmp_path / "s.db", [None] * 500)
    coin = Cell("integer", "CASE WHEN random() > 0 THEN 1 ELSE 'tails' END")
    rows, findings = read(path, None, coin=coin, row=ROWID)
    assert set(rows["coin"]) == {1, None}
    assert rows["row"].to_list() == list(range(1, 501))
    assert findings["code"].to_list() == ["cell.wrong_type"]


def test_computed_and_plain_cells_stay_side_by_side(tmp_path):
    path = store_of(tmp_path / "s.db", ["a", "bb", "ccc"])
    rows, _ = read(path, TEXT, n=Cell("integer", "length(c)", ("c",)), row=ROWID)
    assert rows.rows() == [("a", 1, 1), ("bb", 2, 2), ("ccc", 3, 3)]


def test_tables_without_row_numbers_are_read(tmp_path):
    wrote(
        tmp_path / "s.db",
        *("CREATE TABLE t (c TEXT PRIMARY KEY) WITHOUT ROWID", "INSERT INTO t VALUES ('b'), ('a')"),
        *("CREATE TABLE u (rowid TEXT, _rowid_ TEXT)", "INSERT INTO u VALUES ('x', 'y')"),
        "CREATE TABLE v (rowid TEXT, _rowid_ TEXT, OID TEXT)",
        "INSERT INTO v VALUES ('x', 'y', 'z')",
    )
    with open_store(tmp_path / "s.db") as store:
        rows, _ = read_table(store, "t", {"c": TEXT, "n": ROWID})
        assert rows.rows() == [("a", None), ("b", None)]
        assert read_table(store, "u", {"rowid": TEXT, "n": ROWID})[0].rows() == [("x", 1)]
        assert read_table(store, "v", {"rowid": TEXT, "n": ROWID})[0].rows() == [("x", None)]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("CREATE VIEW v AS SELECT load_extension('evil') AS c", "a view"),
        ("CREATE VIRTUAL TABLE v USING fts4(c)", "a virtual table"),
    ],
)
def test_what_would_run_code_of_the_store_is_not_read(tmp_path, sql, what):
    path = wrote(store_of(tmp_path / "s.db", ["a"]), sql)
    with open_store(path) as store:
        assert "v" not in store.tables
        rows, findings = read_table(store, "v", {"c": TEXT})
    assert rows.height == 0
    (finding,) = findings.to_dicts()
    assert (finding["code"], finding["table"]) == ("table.not_stored", "v")
    assert (finding["example"], finding["action"]) == (what, "taken as absent")


def test_triggers_and_generated_columns_do_no_harm(tmp_path):
    path = wrote(
        store_of(tmp_path / "s.db", ["a"]),
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT raise(FAIL, 'no'); END",
        "CREATE TABLE g (c TEXT, kept AS (c || '!') STORED, made AS (c || '?') VIRTUAL)",
        "INSERT INTO g (c) VALUES ('a')",
    )
    with open_store(path) as store:
        assert store.tables["g"] == ("c", "kept")
        rows, _ = read_table(store, "g", {"c": TEXT, "kept": TEXT, "made": TEXT})
        assert rows.rows() == [("a", "a!", None)]
        assert read_table(store, "t", {"c": TEXT})[0].rows() == [("a",)]


def test_collations_and_functions_that_only_the_writer_has_are_not_needed(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.create_collation("theirs", lambda a, b: (a > b) - (a < b))
        connection.create_function("theirs", 1, lambda value: value, deterministic=True)
        kinds = ", ".join(f"{kind} BLOB COLLATE theirs" for kind in KINDS)
        connection.execute(f"CREATE TABLE t ({kinds}, n AS (theirs(real)) STORED)")
        connection.execute("CREATE INDEX i ON t (text)")
        connection.execute("CREATE INDEX j ON t (theirs(real))")
        row = ("a", 1.5, 2, 1, 1779753600, "[]")
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    rows, findings = read(tmp_path / "s.db", None, **KINDS, n=REAL)
    assert rows.rows() == [("a", 1.5, 2, True, MIDNIGHT, "[]", 1.5)]
    assert findings.height == 0


NUMBERED = "CREATE TABLE t (n INTEGER PRIMARY KEY, c)"


@pytest.mark.parametrize("spread", [1, 1000, -(2**55)])
def test_ranges_of_row_numbers_give_every_row_once_in_order(tmp_path, monkeypatch, spread):
    monkeypatch.setattr(sqlite_tables, "_ROWS_WORTH_A_THREAD", 10)
    monkeypatch.setattr(sqlite_tables, "N_THREADS", 3)
    numbers = [(spread * n, f"x{n}" if n % 50 == 7 else n) for n in range(-5, 250)]
    wrote(tmp_path / "s.db", NUMBERED, ("INSERT INTO t VALUES (?, ?)", numbers))
    double = Cell("integer", "n * 2", ("n",))
    rows, findings = read(tmp_path / "s.db", INTEGER, n=ROWID, double=double)
    assert rows["n"].to_list() == sorted(n for n, _ in numbers)
    assert rows.filter(pl.col("c").is_null()).height == 5
    found = findings.filter(pl.col("column") == "c")
    assert found.select("n_rows", "example").rows() == [(5, "x107")]
    if spread == 1:
        assert rows["double"].to_list() == [2 * n for n, _ in numbers]


@given(only=st.sets(st.integers(-5, 400)), spread=st.sampled_from([1, 2, 7, 100]))
@examples(30)
def test_chosen_rows_are_those_of_their_numbers(tmp_path_factory, only, spread):
    rows = [(spread * n, n) for n in range(300)]
    path = tmp_path_factory.mktemp("chosen") / "s.db"
    wrote(path, NUMBERED, ("INSERT INTO t VALUES (?, ?)", rows))
    computed = {"c": INTEGER, "double": Cell("integer", "n * 2", ("n",))}
    with pytest.MonkeyPatch.context() as patch, open_store(path) as store:
        patch.setattr(sqlite_tables, "_ROWS_WORTH_A_THREAD", 40)
        for cells_read in ({}, computed):
            chosen, _ = read_table(store, "t", {"n": ROWID, **cells_read}, only=only)
            assert chosen["n"].to_list() == [n for n, _ in rows if n in only]


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
def test_one_odd_cell_at_the_end_of_many_clean_ones_is_found(tmp_path, monkeypatch, n_threads):
    monkeypatch.setattr(sqlite_tables, "_ROWS_WORTH_A_THREAD", 1000)
    monkeypatch.setattr(sqlite_tables, "N_THREADS", n_threads)
    clean = dict(zip(KINDS, ("a", 0.5, 7, 1, 1779753600.0, "[]"), strict=True))
    odd = dict(zip(KINDS, (b"a", "a", 0.5, 2, -1.0, b"[]"), strict=True))
    columns = ", ".join(f"{kind} {DECLARED.get(kind, 'INTEGER')}" for kind in clean)
    row = f"INSERT INTO t VALUES ({', '.join('?' * len(clean))})"
    rows = [*[tuple(clean.values())] * 8000, tuple(odd.values())]
    wrote(tmp_path / "s.db", f"CREATE TABLE t ({columns})", (row, rows))
    with open_store(tmp_path / "s.db") as store:
        for kind, cell in KINDS.items():
            both = {kind: cell, "c": Cell(cell.kind, kind, (kind,))}
            rows, findings = read_table(store, "t", both)
            assert findings["n_rows"].to_list() == [1, 1], kind
            for name in (kind, "c"):
                assert rows[name].null_count() == 1
                assert rows[name][-1] is None
                assert rows[name].head(8000).n_unique() == 1


# --- any value in any kind -------------------------------------------------------------

texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["null", "", "1", "1779753600", "{}", '{"a": [1, 2]}', '"[1]"', "[1", "NaN"]),
)
values = st.one_of(
    st.none(),
    texts,
    texts.map(lambda text: Raw(text.encode())),
    st.binary(max_size=4).map(Raw),
    st.binary(max_size=4),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 3),
    st.floats(allow_nan=False),
    st.floats(9e8, 4.2e9),
)


def expected(kind, type_, value):
    """The slow obvious rule: what one stored cell becomes, and the code of a finding."""
    if type_ == "null":
        return None, None
    if kind in ("text", "json"):
        return expected_text(kind, type_, value)
    if type_ in ("text", "blob"):
        return None, "cell.wrong_type"
    if kind == "yes_no":
        return (bool(value), None) if value in (0, 1) else (None, "cell.not_yes_no")
    if kind == "moment":
        if value == 0:
            return None, None
        if not cells.EARLIEST <= value <= cells.LATEST:
            return None, "cell.absurd_moment"
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(value * 1e6)), None
    if kind == "real":
        if math.isinf(value):
            return None, "cell.not_finite"
        exact = type_ == "real" or abs(value) <= 2**53
        return (float(value), None) if exact else (None, "cell.inexact")
    if type_ == "integer":
        return (value, None) if value > -(2**63) else (None, "cell.inexact")
    if abs(value) > 2**53:
        return None, "cell.inexact"
    return (int(value), None) if value == int(value) else (None, "cell.not_whole")


def expected_text(kind, type_, value):
    if type_ == "blob":
        return None, "cell.blob"
    try:
        text = value.decode() if type_ == "text" else str(value)
    except UnicodeDecodeError:
        return None, "cell.not_utf8"
    if kind == "text":
        return text, None
    if text in ("", "null"):
        return None, None

    def refuse(word):
        raise ValueError(word)

    try:
        document = json.loads(text, parse_constant=refuse)
    except ValueError:
        return None, "cell.not_json"
    if isinstance(document, str):
        try:
            inner = json.loads(document, parse_constant=refuse)
        except ValueError:
            return text, None
        if inner is None:
            return None, "cell.double_encoded"
        return (document, "cell.double_encoded") if isinstance(inner, list | dict) else (text, None)
    return text, None


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(values, max_size=12),
    declared=st.sampled_from(["", "TEXT", "REAL", "INTEGER", "JSON", "BLOB"]),
)
def test_any_value_under_any_kind_is_what_the_slow_rule_says(tmp_path, values, declared):
    path = store_of(tmp_path / "s.db", values, declared=declared)
    in_store = stored(path)
    columns = {kind: Cell(cell.kind, "c", ("c",)) for kind, cell in KINDS.items()}
    with open_store(path) as store:
        rows, findings = read_table(store, "t", columns)
        for kind, cell in KINDS.items():
            plain, _ = read_table(store, "t", {"c": cell})
            assert plain["c"].to_list() == rows[kind].to_list()
    for kind in KINDS:
        # SQLite writes floats as text in its own way; the driver's version in another.
        wanted = [
            ("float", None)
            if kind in ("text", "json") and type_ == "real"
            else expected(kind, type_, value)
            for type_, value in in_store
        ]
        assert [v for v, w in zip(rows[kind], wanted, strict=True) if w[0] != "float"] == [
            v for v, _ in wanted if v != "float"
        ]
        found = findings.filter(pl.col("column") == kind)
        counts = Counter(code for _, code in wanted if code)
        if not any(w[0] == "float" for w in wanted):
            assert dict(found.select("code", "n_rows").rows()) == counts


def test_a_frame_that_was_duckdbs_leaves_nothing_to_complain_about():
    # nanobind tells on stderr of each type of DuckDB's that is kept to the end of a process.
    code = """
import duckdb, polars as pl
from stateanalytics.io.duckdb_rows import DuckDBRows, answer
with duckdb.connect() as connection:
    connection.register("rows", DuckDBRows(pl.DataFrame({"a": [1, 2]})))
    print(answer(connection.sql("SELECT sum(a) AS n FROM rows")).item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")
