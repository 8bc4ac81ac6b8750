"""Tables of a package are checked cell by cell when they are loaded."""

from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple

import polars as pl
import pytest

import stateanalytics
from stateanalytics.core.package_tables import keyed_table, package_table, rows_as, table_rows
from stateanalytics.errors import ArgumentError
from stateanalytics.systems.agent_orchestrator import go_sessions
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.opencode import reading as tables
from stateanalytics.systems.situations import Situation, situations_from_csv


class Limit(NamedTuple):
    kind: Annotated[str, ("play", "flow")]
    limit_s: float | None
    kinds: tuple[str, ...] = ()
    n_tries: int = 1
    is_default: bool = False


GOOD = {"kind": "play", "limit_s": "60.5", "kinds": "a|b", "n_tries": "3", "is_default": "yes"}


def test_cells_become_values():
    assert rows_as(Limit, [GOOD], "x.csv") == (Limit("play", 60.5, ("a", "b"), 3, True),)


def test_no_rows_give_no_values():
    assert rows_as(Limit, [], "x.csv") == ()


def test_a_column_with_a_default_may_be_absent():
    assert rows_as(Limit, [{"kind": "flow", "limit_s": ""}], "x.csv") == (Limit("flow", None),)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"kind": "plya"}, r"row 2, column 'kind': needed one of 'play', 'flow'.*found 'plya'"),
        ({"kind": ""}, r"row 2, column 'kind': needed one of"),
        ({"limit_s": "soon"}, r"row 2, column 'limit_s': needed a number; found 'soon'"),
        ({"n_tries": "1.5"}, r"row 2, column 'n_tries': needed a number; found '1.5'"),
        ({"is_default": "no"}, r"row 2, column 'is_default': needed true, yes, false or nothing"),
        ({"kinda": ""}, r"x.csv has the column 'kinda', which nothing reads"),
    ],
)
def test_an_error_names_row_and_column(cells, words):
    with pytest.raises(ArgumentError, match=words):
        rows_as(Limit, [GOOD, {**GOOD, **cells}], "x.csv")


def test_a_missing_column_is_named():
    with pytest.raises(ArgumentError, match=r"x.csv needs the columns \['limit_s'\]"):
        rows_as(Limit, [{"kind": "play"}], "x.csv")


def with_text(monkeypatch, text):
    monkeypatch.setattr("stateanalytics.core.package_tables.package_text", lambda *_: text)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("play", "column 'limit_s': needed a cell; found None"),
        ("play,1,2", r"column 'limit_s': needed no cell after it; found \['2'\]"),
    ],
)
@pytest.mark.parametrize(
    "read", [table_rows, lambda *place: package_table(*place, Limit)], ids=["text", "values"]
)
def test_a_row_has_a_cell_for_each_column(monkeypatch, row, words, read):
    with_text(monkeypatch, f"kind,limit_s\nflow,\n{row}\n")
    with pytest.raises(ArgumentError, match=f"other_package/data/x.csv, row 2, {words}"):
        read("other_package", "x.csv")


def test_a_key_that_is_there_twice_is_refused(monkeypatch):
    with_text(monkeypatch, "kind,limit_s\nplay,1\nflow,\nplay,2\n")
    with pytest.raises(ArgumentError, match=r"x.csv, row 3, column 'kind': .*no row above.*'play'"):
        keyed_table("other_package", "x.csv", Limit, "kind")


def test_a_situation_with_a_word_that_is_none_of_ours_is_refused(tmp_path, monkeypatch):
    """A plug-in's table of meanings is refused with its place, not read as null."""
    folder = tmp_path / "their_package" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    rows = [dict.fromkeys(Situation._fields, ""), {"lifecycle": "finished"}]
    frame = pl.DataFrame([rows[0], {**rows[0], **rows[1]}])
    frame.write_csv(folder / "situations.csv")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ArgumentError, match=r"their_package/data/situations.csv, row 2, column 'l"):
        situations_from_csv("their_package")


def test_every_table_of_meanings_loads():
    for system in ("agent_orchestrator", "claude_code", "codex"):
        table = package_table(f"stateanalytics.systems.{system}", "situations.csv", Situation)
        assert len(table) > 10


def test_no_table_of_the_package_has_a_row_twice():
    """The later of two rows of one key would win, and a change of the first would do nothing."""
    tables = sorted(Path(stateanalytics.__file__).parent.rglob("*.csv"))
    lines = {table: table.read_text("utf-8").splitlines() for table in tables}
    assert len(tables) > 50
    assert not [table for table in tables if len(set(lines[table])) < len(lines[table])]
    for name, n_keys in (("derived_reasons.csv", 1), ("inferred_codes.csv", 2)):
        keys = [tuple(row.values())[:n_keys] for row in table_rows("stateanalytics.state", name)]
        assert len(set(keys)) == len(keys), name


WORDS = [
    ("agent_orchestrator", "reason_codes.csv", "meaning", "ad79665eacd7"),
    ("claude_code", "situations.csv", "message", "25a7a7d66d02"),
    ("codex", "situations.csv", "message", "575ce2b2179e"),
    ("opencode", "execution_reasons.csv", "message", "6c4c9fbbc80c"),
    ("opencode", "mapped_codes.csv", "meaning", "b8c7fa098bc1"),
]


@pytest.mark.parametrize(("system", "file", "column", "digest"), WORDS)
def test_words_that_become_messages_of_failures_stay(system, file, column, digest):
    """Ids of clusters and faults are made of them: other words are another failure for owners."""
    rows = table_rows(f"stateanalytics.systems.{system}", file)
    words = "\n".join(sorted({row[column] for row in rows}))
    assert sha256(words.encode()).hexdigest()[:12] == digest


@pytest.mark.parametrize("module", [go_sessions, frames, tables])
def test_every_cell_that_code_reads_has_its_row_in_the_table_of_columns(module):
    for table, cells in module._OWN.items():
        assert cells.items() <= module.TABLES[table].items()
