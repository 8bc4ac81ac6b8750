"""No secret that a store holds stands in anything that leaves: planted everywhere, looked for."""

import itertools
import json
import shutil
import sqlite3
from contextlib import closing
from html import unescape

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.summaries.shapes import FRAMES
from tests.conftest import ROOT
from tests.examples import a_few
from tests.lionagi_stores import session, write_store, wrote
from tests.secret_kinds import planted

# A home directory's "ann" is in other words, too.
PLANTED = [case for case in planted() if len(case.secret) >= 8]
# A key that was cut off hides all behind it, so it stands alone.
GROUPS = [
    "\n".join(case.text for case in PLANTED[i::6] if case.name != "cut off") for i in range(6)
]
FREE = tuple("message error reason title name prompt text summary detail note".split())

STORES = {
    "lionagi_in_part": ROOT / "data" / "samples" / "state.db",
    "lionagi": ROOT / "data" / "samples" / "state.db",
    "agent_orchestrator": ROOT / "data" / "samples" / "agent_orchestrator",
    "opencode": ROOT / "data" / "samples" / "opencode",
}
N_PLANTED = {"lionagi_in_part": 40}
"""How many rows of a column at most; of other stores every one."""
COMMANDS = [
    *(["attention", "--show", show] for show in ("items", "states", "findings", "audit")),
    *(["failures", "--show", show] for show in ("members", "clusters", "parameters")),
    ["costs", "--by", "system,model,provider,project,agent,kind,playbook"],
    ["sql", "SELECT * FROM entities"],
    ["sql", "SELECT * FROM events LIMIT 2000"],
    ["sql", "SELECT * FROM reasons"],
]


pytestmark = pytest.mark.usefixtures("read_once")


@pytest.fixture(scope="module")
def store(request, tmp_path_factory):
    """A copy of a system's sample with secrets in every text that may be free."""
    source = STORES[request.param]
    place = tmp_path_factory.mktemp(request.param) / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, place)
    group = itertools.cycle(GROUPS)
    files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())
    n_planted = 0
    for path in files:
        if path.read_bytes()[:6] == b"SQLite":
            n_planted += plant_in_database(path, group, N_PLANTED.get(request.param))
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text("utf-8")
            parts = text.splitlines() if path.suffix == ".jsonl" else [text]
            values = [with_secrets(json.loads(part), "", group) for part in parts]
            path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
            n_planted += len(parts)
    assert n_planted > 10
    return place


def plant_in_database(path, group, at_most):
    n_planted = 0
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        for (table,) in connection.execute(tables).fetchall():
            columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            for _, column, dtype, _, _, is_key in columns:
                if is_key or dtype.upper() not in ("TEXT", "JSON"):
                    continue
                rows = connection.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall()
                for rowid, value in rows[:at_most]:
                    changed = planted_cell(value, column, group)
                    if changed != value:
                        update = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ?'
                        n_planted += connection.execute(update, (changed, rowid)).rowcount
    return n_planted


def planted_cell(value, column, group):
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.dumps(with_secrets(json.loads(value), column, group))
        except ValueError:
            return value
    return with_secrets(value, column, group)


def with_secrets(value, name, group):
    """Texts of several words, and all that a name says are for people."""
    if isinstance(value, dict):
        return {key: with_secrets(inner, key, group) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_secrets(inner, name, group) for inner in value]
    is_free = any(name.lower().endswith(word) for word in FREE)
    if isinstance(value, str) and (is_free or " " in value):
        return f"{value} {next(group)}"
    return value


def came_through(text):
    shown = unescape(text)
    texts = (shown, shown.replace("\\n", "\n").replace('\\"', '"'))
    return {case.name for case in PLANTED if any(case.secret in text for text in texts)}


@pytest.mark.parametrize("store", a_few(reversed(STORES), 0), indirect=True)
def test_no_report_and_no_summary_holds_a_secret(store):
    with sa.read(store, progress=False) as snap:
        made = sa.report(snap, window=("2000-01-01", snap.as_of.isoformat()))
        assert made.summary["redactions"]["n"] > 10
        assert came_through(made.as_html()) == set()
        assert came_through(made.as_json()) == set()
        summary = sa.summarize(snap, k=1)
    for frame in FRAMES[1:]:
        # How an input was named is no text of it.
        text = getattr(summary, frame).drop("source", strict=False).write_json()
        assert came_through(text) == set(), frame


@pytest.mark.slow
@pytest.mark.parametrize("store", a_few(STORES), indirect=True)
@pytest.mark.parametrize("command", a_few(COMMANDS, 2), ids=lambda words: " ".join(words)[:32])
def test_no_command_prints_a_secret_unless_it_is_asked_to(store, command, capsys):
    assert run([command[0], str(store), *command[1:], "--format", "json"]) == 0
    told = capsys.readouterr()
    assert came_through(told.out) == set()
    assert came_through(told.err) == set()


@pytest.mark.parametrize("store", a_few(STORES, 0), indirect=True)
def test_what_is_asked_for_is_shown_to_its_owner_only(store, tmp_path):
    for name, is_private in (("whole.json", True), ("masked.json", False)):
        path = tmp_path / name
        options = ["--no-redact"] if is_private else []
        query = "SELECT * FROM entities"
        assert run(["sql", str(store), query, "-o", str(path), *options]) == 0
        assert bool(came_through(path.read_text("utf-8"))) is is_private
        assert (path.stat().st_mode & 0o077 == 0) is is_private


@pytest.mark.slow
def test_no_function_of_a_query_and_no_name_of_a_column_brings_one_back(tmp_path, capsys):
    key = "sk-" + "ant-api03-" + "a1B2" * 12
    store = write_store(tmp_path / "state.db", sessions=[session("s1", name=key)])
    create = f'CREATE TABLE notes ("{key}" TEXT, "x\u202ey" TEXT)'
    wrote(store, create, "INSERT INTO notes VALUES ('a', 'b')")
    for asked in ("reverse(name)", "hex(encode(name))", "substr(name, 14)", "name"):
        assert run(["sql", str(store), f"SELECT {asked} AS y FROM raw_sessions", "-f", "csv"]) == 0
        shown = capsys.readouterr().out
        assert "2B1a" not in shown and "61314232" not in shown and "a1B2" not in shown, asked
        assert "a1b2" not in shown
    assert run(["sql", str(store), "FROM raw_notes", "-f", "csv"]) == 0
    shown = capsys.readouterr().out
    assert "[API key]" in shown and "a1b2" not in shown.lower() and "\u202e" not in shown
    query = f"SELECT count(*) AS n FROM raw_sessions WHERE name = '{key}'"
    assert run(["sql", str(store), query, "-f", "csv"]) == 0
    answer = capsys.readouterr()
    assert answer.out == "n\n0\n" and "--no-redact compares" in answer.err
    assert run(["sql", str(store), query, "-f", "csv", "--no-redact"]) == 0
    assert capsys.readouterr().out == "n\n1\n"


@pytest.mark.slow
def test_no_name_of_an_export_holds_a_secret(tmp_path):
    key = "sk-" + "ant-api03-" + "a1B2" * 12
    snap = sa.demo().with_table("own", pl.DataFrame({key: ["x"], "id": [key]}))
    for name in ("own.sqlite", "own.csv", "own.duckdb"):
        octets = snap.export(tmp_path / name, tables=["own"]).read_bytes()
        assert key.encode() not in octets
        assert b"[API key]" in octets


@pytest.mark.slow
def test_a_query_is_warned_where_masking_makes_different_values_equal(tmp_path, capsys):
    people = pl.DataFrame({"email": ["ann@example.org", "bob@example.org"], "n": [1, 2]})
    people.write_csv(tmp_path / "people.csv")
    store = write_store(tmp_path / "state.db", sessions=[session("s1")])
    own = ["--table", f"people={tmp_path / 'people.csv'}", "-f", "csv"]
    query = "SELECT count(*) AS n FROM people a JOIN people b USING (email)"
    assert run(["sql", str(store), query, *own]) == 0
    answer = capsys.readouterr()
    assert answer.out == "n\n4\n"
    assert "masked in people.email" in answer.err and "--no-redact keeps" in answer.err
    assert run(["sql", str(store), query, *own, "--no-redact"]) == 0
    answer = capsys.readouterr()
    assert answer.out == "n\n2\n" and "masked" not in answer.err
    # Neither another column nor a single secret changes what a query finds.
    assert run(["sql", str(store), "SELECT sum(n) AS n FROM people", *own]) == 0
    assert "masked" not in capsys.readouterr().err
    snap = sa.demo().with_table("people", people.head(1))
    assert snap.sql("SELECT email FROM people", redact=True).item() == "[e-mail]"
